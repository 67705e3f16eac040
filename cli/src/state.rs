//! What the program keeps between runs: counts of its decisions, and what users' rewards taught. No text of a prompt.

use crate::exit::Exit;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
#[cfg(feature = "gpu")]
use zen_edge_core::backbone::gpu::NotesFile;
use zen_edge_core::router::{Counts, Router};

/// Names another folder for it.
pub const FOLDER: &str = "ZEN_EDGE_STATE";

/// What is remembered of GPUs.
const GPU: &str = "gpu.json";

/// The folder. Whoever has one holds its lock until they drop it.
pub struct State {
    folder: PathBuf,
    _lock: File,
}

/// Counts of all runs since a moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Seconds of Unix time.
    pub since: u64,
    #[serde(flatten)]
    pub counts: Counts,
}

impl State {
    /// Opens the folder, and waits for another process that is at work in it.
    ///
    /// # Errors
    /// A folder that cannot be made or written.
    pub fn open() -> Result<Self, Failure> {
        let folder = folder().ok_or_else(|| {
            let message = format!("this system has no place for a program's data; name a folder by {FOLDER}");
            Failure::new(Exit::Missing, message)
        })?;
        let failure = |error: io::Error| {
            let folder = folder.display();
            let message = format!("nothing can be kept in {folder}: {error}; {FOLDER} names another folder");
            Failure::new(Exit::Missing, message)
        };
        fs::create_dir_all(&folder).map_err(failure)?;
        let lock = File::options().create(true).append(true).open(folder.join("lock")).map_err(failure)?;
        lock.lock().map_err(failure)?;
        Ok(Self { folder, _lock: lock })
    }

    /// The folder's path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn counts_path(&self) -> PathBuf {
        self.folder.join("counts.json")
    }

    /// What rewards taught these heads. Each pack has a file of its own: trying another one costs nothing.
    pub fn learning_path(&self, router: &Router) -> PathBuf {
        self.folder.join(format!("learning-{}.bin", &router.heads().sha256()[..16]))
    }

    /// The counts so far; `None` before the first.
    ///
    /// # Errors
    /// A file that cannot be read. One that is damaged is told of and begins anew.
    pub fn counts(&self) -> Result<Option<Kept>, Failure> {
        let path = self.counts_path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::file(&path, &error)),
        };
        match serde_json::from_slice(&bytes) {
            Ok(kept) => Ok(Some(kept)),
            Err(error) => {
                anstream::eprintln!("note: {} is damaged ({error}): counting begins anew", path.display());
                Ok(None)
            }
        }
    }

    /// Adds the counts of this run.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&self, counts: &Counts) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut kept = self.counts()?.unwrap_or(Kept { since: now, counts: Counts::default() });
        kept.counts.merge(counts);
        let bytes = serde_json::to_vec(&kept).unwrap_or_default();
        self.write(&self.counts_path(), &bytes)
    }

    /// Loads what was learned; tells of a file that is of no use, and keeps it beside the new one.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn load_learning(&self, router: &Router) -> Result<(), Failure> {
        let path = self.learning_path(router);
        let fresh = router.load_learning(&path).map_err(|error| Failure::file(&path, &error))?;
        if let Some(why) = fresh {
            let aside = path.with_extension("damaged");
            fs::rename(&path, &aside).map_err(|error| Failure::unwritable(&aside, &error))?;
            anstream::eprintln!("note: learning begins anew: {why}; the file is kept as {}", aside.display());
        }
        Ok(())
    }

    /// Saves what was learned.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn save_learning(&self, router: &Router) -> Result<(), Failure> {
        let path = self.learning_path(router);
        router.save_learning(&path).map_err(|error| Failure::unwritable(&path, &error))
    }

    /// Erases everything that is kept.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn erase(&self) -> Result<usize, Failure> {
        let mut erased = 0;
        let entries = fs::read_dir(&self.folder).map_err(|error| Failure::file(&self.folder, &error))?;
        for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            // Only what is ours: the folder may be one that somebody named.
            if ["counts.json", GPU].contains(&name) || name.starts_with("learning-") {
                fs::remove_file(&path).map_err(|error| Failure::unwritable(&path, &error))?;
                erased += 1;
            }
        }
        Ok(erased)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        let whole = || {
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(bytes)?;
            file.persist(path)?;
            Ok(())
        };
        whole().map_err(|error: io::Error| Failure::unwritable(path, &error))
    }
}

/// The file with what is remembered of GPUs, where there is a place for it. It is written whole, and so without the lock.
#[cfg(feature = "gpu")]
pub fn gpu_notes() -> Option<NotesFile> {
    let folder = folder()?;
    fs::create_dir_all(&folder).ok()?;
    Some(NotesFile(folder.join(GPU)))
}

fn folder() -> Option<PathBuf> {
    match std::env::var_os(FOLDER) {
        Some(folder) if !folder.is_empty() => Some(folder.into()),
        _ => {
            directories::ProjectDirs::from("", "", "zen-edge").map(|dirs| dirs.data_local_dir().to_path_buf())
        }
    }
}
