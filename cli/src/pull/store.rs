//! Where pulled files lie, what is recorded of them, and how they are found again.
//!
//! A file `zen-nano-0.6b.Q4_K_M.gguf` is there only when it is whole: it comes into being by a rename. Beside it lie
//! `….json` (what it is and how it was verified), and during a pull `….part`, `….part.json` and `….lock`.

use super::PullError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Whether `name` can be a name: it becomes a part of a file's name, so nothing that could leave the folder.
pub fn is_name(name: &str) -> bool {
    name.len() <= 100
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The folder of pulled models: `--dir`, else `ZEN_EDGE_CACHE`, else the user's cache.
pub fn folder(dir: Option<&Path>) -> Result<PathBuf, PullError> {
    if let Some(dir) = dir {
        return Ok(dir.to_path_buf());
    }
    if let Some(cache) = std::env::var_os("ZEN_EDGE_CACHE").filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(cache).join("models"));
    }
    let dirs = directories::ProjectDirs::from("", "", "zen-edge").ok_or(PullError::NoCache)?;
    Ok(dirs.cache_dir().join("models"))
}

/// What is recorded beside a whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub name: String,
    pub quant: String,
    pub url: String,
    pub size: u64,
    pub sha256: String,
    /// Against what the sha256 was checked.
    pub basis: Basis,
    pub etag: Option<String>,
    /// The file's time of change (nanoseconds since 1970) when it was hashed last: while it stands, so does the hash.
    pub modified: u128,
}

/// Where the expected sha256 came from. The order is that of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// `--sha256` on the command line.
    Given,
    /// A pin in the registry of this program.
    Pinned,
    /// The hub's own listing or header: it guards against damage on the way, not against the hub.
    Hub,
    /// Nothing to check against: length and structure only.
    None,
}

impl Basis {
    /// For messages.
    pub fn words(self) -> &'static str {
        match self {
            Self::Given => "as given by --sha256",
            Self::Pinned => "as pinned in this program",
            Self::Hub => "as the hub states it; this program has no pin of its own",
            Self::None => "no hash was known beforehand",
        }
    }
}

/// The paths of one pulled file.
#[derive(Clone, Debug)]
pub struct Slot {
    pub name: String,
    pub quant: String,
    pub file: PathBuf,
}

impl Slot {
    pub fn new(folder: &Path, name: &str, quant: &str) -> Result<Self, PullError> {
        for word in [name, quant] {
            if !is_name(word) {
                return Err(PullError::BadName(word.to_owned()));
            }
        }
        let file = folder.join(format!("{name}.{quant}.gguf"));
        Ok(Self { name: name.to_owned(), quant: quant.to_owned(), file })
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(suffix);
        path.into()
    }

    pub fn manifest(&self) -> PathBuf {
        self.beside(".json")
    }

    pub fn part(&self) -> PathBuf {
        self.beside(".part")
    }

    pub fn part_record(&self) -> PathBuf {
        self.beside(".part.json")
    }

    /// Takes the slot for this process until the file that is returned is closed.
    ///
    /// The lock file itself stays: removing it would let two processes hold "the" lock on two files of one name.
    pub fn lock(&self) -> Result<File, PullError> {
        let path = self.beside(".lock");
        let disk = |source| PullError::Disk { what: "cannot lock", path: path.clone(), source };
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|source| PullError::Disk {
                what: "cannot make the folder",
                path: folder.to_path_buf(),
                source,
            })?;
        }
        let file = File::options().create(true).append(true).open(&path).map_err(disk)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(fs::TryLockError::WouldBlock) => Err(PullError::Locked { path: self.file.clone() }),
            Err(fs::TryLockError::Error(source)) => Err(disk(source)),
        }
    }

    /// The whole file and its manifest, if both are there and still agree; `Err` where they do not.
    ///
    /// The length is always compared. The hash is computed again only when the file's time of change is not the one
    /// that was recorded, or when `thorough`.
    pub fn whole(&self, thorough: bool) -> Result<Option<Manifest>, PullError> {
        let damaged =
            |why: String| PullError::Damaged { path: self.file.clone(), why, name: self.name.clone() };
        let about = match fs::metadata(&self.file) {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(PullError::Disk { what: "cannot look at", path: self.file.clone(), source });
            }
        };
        let Ok(text) = fs::read(self.manifest()) else {
            return Err(damaged("the record beside it is gone".into()));
        };
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|e| damaged(format!("the record beside it is none: {e}")))?;
        if about.len() != manifest.size {
            return Err(damaged(format!("it has {} bytes, {} were pulled", about.len(), manifest.size)));
        }
        if thorough || modified(&about) != manifest.modified {
            let sha256 = hash_file(&self.file)?;
            if sha256 != manifest.sha256 {
                return Err(damaged(format!("its sha256 is {sha256}, pulled was {}", manifest.sha256)));
            }
            // Recorded, so that the next look is cheap; where it cannot be, the next look hashes again.
            let fresh = Manifest { modified: modified(&about), ..manifest };
            let _ = write_json(&self.manifest(), &fresh);
            return Ok(Some(fresh));
        }
        Ok(Some(manifest))
    }

    /// Puts the verified part into its place: on the disk first, then by rename, then the manifest.
    pub fn publish(&self, mut manifest: Manifest) -> Result<Manifest, PullError> {
        let part = self.part();
        let disk = |what, path: &Path| {
            let path = path.to_path_buf();
            move |source| PullError::Disk { what, path, source }
        };
        let file = File::options().append(true).open(&part).map_err(disk("cannot open", &part))?;
        file.sync_all().map_err(disk("cannot write out", &part))?;
        drop(file);
        fs::rename(&part, &self.file).map_err(disk("cannot publish", &self.file))?;
        let about = fs::metadata(&self.file).map_err(disk("cannot look at", &self.file))?;
        manifest.modified = modified(&about);
        write_json(&self.manifest(), &manifest)?;
        let _ = fs::remove_file(self.part_record());
        // A rename survives a power cut only when the folder is on the disk too; Windows has no such call.
        #[cfg(unix)]
        if let Some(folder) = self.file.parent() {
            let _ = File::open(folder).and_then(|folder| folder.sync_all());
        }
        Ok(manifest)
    }
}

fn modified(about: &fs::Metadata) -> u128 {
    about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |t| t.as_nanos())
}

/// Writes a small JSON file so that a reader sees the old one or the new one, never a half.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), PullError> {
    let disk = |source| PullError::Disk { what: "cannot write", path: path.to_path_buf(), source };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(disk)?;
    let text = serde_json::to_vec_pretty(value).map_err(|e| disk(e.into()))?;
    file.write_all(&text).map_err(disk)?;
    file.as_file().sync_all().map_err(disk)?;
    file.persist(path).map_err(|e| disk(e.error))?;
    Ok(())
}

/// The sha256 of a file, read in pieces.
pub fn hash_file(path: &Path) -> Result<String, PullError> {
    let disk = |source| PullError::Disk { what: "cannot read", path: path.to_path_buf(), source };
    let mut file = File::open(path).map_err(disk)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hex(&hash.finalize())),
            Ok(n) => hash.update(&buffer[..n]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(disk(error)),
        }
    }
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What `--model` means where no file of that name exists: `NAME` or `NAME:QUANT`, pulled before.
///
/// `Ok(None)` where nothing of that name was pulled. `quant` is what a bare name prefers.
pub fn find(word: &str, prefer: Option<&str>) -> Result<Option<PathBuf>, PullError> {
    let (name, quant) = word.split_once(':').map_or((word, None), |(name, quant)| (name, Some(quant)));
    if !is_name(name) || !quant.is_none_or(is_name) {
        return Ok(None);
    }
    let folder = folder(None)?;
    let mut slots = pulled(&folder);
    slots
        .retain(|slot| slot.name == name && quant.is_none_or(|quant| slot.quant.eq_ignore_ascii_case(quant)));
    if let Some(prefer) = prefer {
        slots.sort_by_key(|slot| !slot.quant.eq_ignore_ascii_case(prefer));
    }
    // A file whose record is gone is not listed, but it is there: the message of `whole` says what to do.
    if slots.is_empty()
        && let Some(quant) = quant.or(prefer)
    {
        slots.push(Slot::new(&folder, name, quant)?);
    }
    for slot in slots {
        if slot.whole(false)?.is_some() {
            return Ok(Some(slot.file));
        }
    }
    Ok(None)
}

/// What lies in `folder`, by the manifests, sorted by path.
pub fn pulled(folder: &Path) -> Vec<Slot> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut slots: Vec<Slot> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            if !name.ends_with(".gguf.json") {
                return None;
            }
            let manifest: Manifest = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            Slot::new(folder, &manifest.name, &manifest.quant).ok()
        })
        .collect();
    slots.sort_by(|a, b| a.file.cmp(&b.file));
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_folder() {
        for good in ["zen-nano-0.6b", "Q4_K_M", "a"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "..", ".hidden", "a/b", "a\\b", "a:b", "é", "-x", &"a".repeat(101)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    fn slot_with(content: &[u8]) -> (tempfile::TempDir, Slot) {
        let dir = tempfile::tempdir().unwrap();
        let slot = Slot::new(dir.path(), "m", "Q4_0").unwrap();
        fs::write(slot.part(), content).unwrap();
        slot.publish(Manifest {
            name: "m".into(),
            quant: "Q4_0".into(),
            url: "http://127.0.0.1/m".into(),
            size: content.len() as u64,
            sha256: hash_file(&slot.part()).unwrap(),
            basis: Basis::Hub,
            etag: None,
            modified: 0,
        })
        .unwrap();
        (dir, slot)
    }

    #[test]
    fn a_published_file_is_whole_until_it_changes() {
        let (_dir, slot) = slot_with(b"GGUF....");
        assert!(slot.whole(true).unwrap().is_some());
        // Same length, other bytes: the time of change gives it away.
        fs::write(&slot.file, b"GGUF...!").unwrap();
        let file = File::options().append(true).open(&slot.file).unwrap();
        file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(5)).unwrap();
        assert!(slot.whole(false).unwrap_err().to_string().contains("sha256"));
        fs::write(&slot.file, b"GGUF").unwrap();
        let error = slot.whole(false).unwrap_err().to_string();
        assert!(error.contains("4 bytes, 8 were pulled") && error.contains("zen-edge pull m"), "{error}");
        fs::remove_file(slot.manifest()).unwrap();
        assert!(slot.whole(false).is_err());
        fs::remove_file(&slot.file).unwrap();
        assert_eq!(slot.whole(false).unwrap(), None);
    }

    #[test]
    fn a_slot_is_held_by_one_at_a_time() {
        let (_dir, slot) = slot_with(b"GGUF");
        let held = slot.lock().unwrap();
        assert!(matches!(slot.lock(), Err(PullError::Locked { .. })));
        drop(held);
        slot.lock().unwrap();
    }

    #[test]
    fn pulled_files_are_listed_by_their_manifests() {
        let (dir, slot) = slot_with(b"GGUF");
        fs::write(dir.path().join("junk.gguf.json"), "{").unwrap();
        let found = pulled(dir.path());
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].file, slot.file);
    }
}
