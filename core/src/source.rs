//! Bytes that are read at random: a mapped file, memory, a browser's storage.

use crate::room;
use sha2::{Digest, Sha256};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use zen_edge_kernels::memory::Bytes;

/// Random access to a file's bytes. A browser has no paths and a phone hands over a descriptor: readers see only this.
pub trait Source: Send + Sync {
    /// What the bytes are called in messages: a path, a URL, `memory`.
    fn name(&self) -> &str;

    /// The length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the range leaves the file; otherwise what the system says.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// The bytes of a range without a copy, where the source holds them in memory or maps them; else `None`.
    fn view(&self, offset: u64, len: usize) -> Option<Bytes> {
        let _ = (offset, len);
        None
    }

    /// The SHA-256 of the bytes in small hexadecimal digits, where it is known without reading them: a storage that
    /// verified a download knows it.
    fn known_sha256(&self) -> Option<&str> {
        None
    }
}

/// The SHA-256 of a source's bytes, in small hexadecimal digits. They are read in pieces: a mapped file stays where it is.
///
/// # Errors
/// What the source says where it cannot be read.
pub fn sha256(source: &dyn Source) -> io::Result<String> {
    sha256_watched(source, &mut |_| ControlFlow::Continue(()))
}

/// [`sha256`], telling after each piece how many bytes are read.
///
/// # Errors
/// [`io::ErrorKind::Interrupted`] where `watch` breaks it off; else as [`sha256`].
pub fn sha256_watched(
    source: &dyn Source,
    watch: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> io::Result<String> {
    if let Some(known) = source.known_sha256() {
        return Ok(known.to_owned());
    }
    const WINDOW: usize = 1 << 18;
    let mut digest = Sha256::new();
    let mut window = room::filled(WINDOW.min(usize::try_from(source.len()).unwrap_or(WINDOW)), 0)?;
    let mut offset = 0;
    while offset < source.len() {
        let left = usize::try_from(source.len() - offset).unwrap_or(WINDOW);
        let part = &mut window[..left.min(WINDOW)];
        source.read_at(offset, part)?;
        digest.update(&*part);
        offset += part.len() as u64;
        if watch(offset).is_break() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(hex(&digest.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
        .map(char::from)
        .collect()
}

/// A source that is memory: owned, static or a mapped file.
#[derive(Clone, Debug)]
pub struct Memory {
    name: Arc<str>,
    bytes: Bytes,
}

impl Memory {
    /// A source over bytes in memory, called `name` in messages.
    pub fn new(name: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }

    /// Maps the file at `path` read-only.
    ///
    /// # Errors
    /// What the system says of the file; a directory is [`io::ErrorKind::IsADirectory`].
    #[cfg(not(target_family = "wasm"))]
    pub fn open(path: impl AsRef<std::path::Path>) -> io::Result<Self> {
        let path = path.as_ref();
        // Before it is opened: Windows answers an opened directory with a refused permission.
        if std::fs::metadata(path)?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let file = std::fs::File::open(path)?;
        Ok(Self { name: path.display().to_string().into(), bytes: Bytes::map(&file)? })
    }

    /// Maps `len` bytes from `offset` of an open file read-only, called `name` in messages: an asset inside a package. All
    /// that follows `offset` where there is no `len`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the part leaves the file; otherwise what the system says.
    #[cfg(not(target_family = "wasm"))]
    pub fn of_file(
        name: impl Into<Arc<str>>,
        file: &std::fs::File,
        offset: u64,
        len: Option<u64>,
    ) -> io::Result<Self> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let len = match len {
            Some(len) => len,
            None => meta.len().checked_sub(offset).ok_or(io::ErrorKind::UnexpectedEof)?,
        };
        Ok(Self { name: name.into(), bytes: Bytes::map_part(file, offset, len)? })
    }
}

impl Source for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.view(offset, buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(&bytes);
        Ok(())
    }

    fn view(&self, offset: u64, len: usize) -> Option<Bytes> {
        let start = usize::try_from(offset).ok()?;
        self.bytes.slice(start..start.checked_add(len)?)
    }
}

/// What a file is, as its first bytes tell. A wrong file is often a known one: the message can say which, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contents {
    /// A GGUF file.
    Gguf,
    /// A safetensors file.
    Safetensors,
    /// No bytes.
    Empty,
    /// Zeros: space that a download reserved and did not fill.
    Zeros,
    /// A pointer that Git LFS left in the place of the file.
    LfsPointer,
    /// An HTML or XML page.
    Html,
    /// A zip archive, as PyTorch and NumPy checkpoints are.
    Zip,
    /// A Python pickle, as old PyTorch checkpoints are.
    Pickle,
    /// The ggml formats before GGUF, by their names: ggml, ggmf, ggjt, ggla.
    GgmlLegacy(&'static str),
    /// A gzip or zstd stream.
    Compressed(&'static str),
    /// An HDF5 file, as Keras models are.
    Hdf5,
    /// A TensorFlow Lite model.
    TfLite,
    /// JSON.
    Json,
    /// Other text; its beginning.
    Text(String),
    /// Anything else; the first bytes.
    Unknown(Vec<u8>),
}

impl Contents {
    /// The most bytes that are looked at.
    pub const ENOUGH: u64 = 256;

    /// What `source` holds.
    ///
    /// # Errors
    /// What the source says where it cannot be read.
    pub fn of(source: &dyn Source) -> io::Result<Self> {
        let mut head = vec![0; source.len().min(Self::ENOUGH) as usize];
        source.read_at(0, &mut head)?;
        Ok(Self::of_head(&head))
    }

    /// What a file that begins with `head` holds.
    pub fn of_head(head: &[u8]) -> Self {
        match head {
            [] => return Self::Empty,
            [b'G', b'G', b'U', b'F', ..] => return Self::Gguf,
            [b'P', b'K', 3 | 5, 4 | 6, ..] => return Self::Zip,
            [0x80, 2..=5, ..] => return Self::Pickle,
            // Little-endian integers: the names stand reversed in the file.
            [b'l', b'm', b'g', b'g', ..] => return Self::GgmlLegacy("ggml"),
            [b'f', b'm', b'g', b'g', ..] => return Self::GgmlLegacy("ggmf"),
            [b't', b'j', b'g', b'g', ..] => return Self::GgmlLegacy("ggjt"),
            [b'a', b'l', b'g', b'g', ..] => return Self::GgmlLegacy("ggla"),
            [0x1f, 0x8b, ..] => return Self::Compressed("gzip"),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => return Self::Compressed("zstd"),
            [0x89, b'H', b'D', b'F', ..] => return Self::Hdf5,
            [_, _, _, _, b'T', b'F', b'L', b'3', ..] => return Self::TfLite,
            // A header's length, which is no text even where it is a hostile one, and the JSON that follows it. Whether
            // the length is right is the reader's question.
            [a, b, c, d, e, f, g, h, b'{', ..]
                if [a, b, c, d, e, f, g, h]
                    .iter()
                    .any(|b| !b.is_ascii_graphic() && !b.is_ascii_whitespace()) =>
            {
                return Self::Safetensors;
            }
            _ => {}
        }
        if head.starts_with(b"version https://git-lfs") {
            return Self::LfsPointer;
        }
        if head.iter().all(|&byte| byte == 0) {
            return Self::Zeros;
        }
        // The cut at ENOUGH may fall within a character: up to three bytes of one are forgiven at the end.
        let text = match std::str::from_utf8(head) {
            Ok(text) => Some(text),
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&head[..error.valid_up_to()]).ok()
            }
            Err(_) => None,
        };
        let printable = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
        let Some(text) = text.filter(|text| !text.is_empty() && text.chars().all(printable)) else {
            return Self::Unknown(head[..head.len().min(8)].to_vec());
        };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        match text.chars().next() {
            Some('<') => Self::Html,
            Some('{' | '[') => Self::Json,
            _ => {
                let line = text.lines().next().unwrap_or_default();
                Self::Text(line.chars().take(60).collect())
            }
        }
    }
}

/// A clause for a message: `it is an HTML page: …`.
impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gguf => f.write_str("it is a GGUF file"),
            Self::Safetensors => f.write_str("it is a safetensors file"),
            Self::Empty => f.write_str("it is empty (0 bytes): fetch it again"),
            Self::Zeros => f.write_str("it begins with zeros: a download reserved its space and did not fill it; fetch it again"),
            Self::LfsPointer => f.write_str("it is a Git LFS pointer, not the file itself: run `git lfs pull`, or download the file"),
            Self::Html => f.write_str(
                "it is an HTML or XML page: a server answered with a page instead of the file; check the address (on \
                 Hugging Face: /resolve/, not /blob/) and whether the file needs a login",
            ),
            Self::Zip => f.write_str(
                "it is a zip archive, as PyTorch checkpoints (.pt, .bin) are: convert the model to GGUF or safetensors, or \
                 unpack the archive",
            ),
            Self::Pickle => f.write_str(
                "it is a Python pickle, as old PyTorch checkpoints are: such files can run code and are not read; convert \
                 the model to GGUF or safetensors",
            ),
            Self::GgmlLegacy(name) => {
                write!(f, "it is in the {name} format, which GGUF replaced in 2023: convert the model again with a current llama.cpp")
            }
            Self::Compressed(name) => write!(f, "it is {name}-compressed: decompress it first"),
            Self::Hdf5 => f.write_str("it is an HDF5 file, as Keras models are: convert the model to GGUF or safetensors"),
            Self::TfLite => f.write_str("it is a TensorFlow Lite model: use the GGUF of the model"),
            Self::Json => f.write_str("it is JSON: a server's error message, or the configuration instead of the weights"),
            Self::Text(text) => write!(f, "it is text that begins with {text:?}"),
            Self::Unknown(bytes) => {
                f.write_str("its first bytes, ")?;
                for byte in bytes {
                    write!(f, "{byte:02x} ")?;
                }
                f.write_str("(hexadecimal), belong to no format that is known here")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stay_inside() {
        let source = Memory::new("memory", vec![1, 2, 3]);
        let mut buf = [0; 2];
        source.read_at(1, &mut buf).unwrap();
        assert_eq!(buf, [2, 3]);
        assert_eq!(source.read_at(2, &mut buf).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(source.view(u64::MAX, 1).is_none());
        assert!(source.view(3, usize::MAX).is_none());
    }

    #[test]
    fn files_are_mapped_and_what_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zen");
        std::fs::write(&path, b"zen").unwrap();
        let source = Memory::open(&path).unwrap();
        assert_eq!((source.name(), source.len()), (path.to_str().unwrap(), 3));
        assert!(source.view(0, 3).unwrap().is_mapped());
        std::fs::write(folder.path().join("empty"), b"").unwrap();
        let empty = Memory::open(folder.path().join("empty")).unwrap();
        assert!(empty.is_empty());
        assert_eq!(Contents::of(&empty).unwrap(), Contents::Empty);
        assert_eq!(Memory::open(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(Memory::open(folder.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_part_of_a_file_is_a_source() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"before zen after").unwrap();
        let part = Memory::of_file("asset", &file, 7, Some(3)).unwrap();
        assert_eq!((part.name(), &*part.view(0, 3).unwrap()), ("asset", &b"zen"[..]));
        assert_eq!(Memory::of_file("asset", &file, 11, None).unwrap().len(), 5);
        for (offset, len) in [(17, None), (7, Some(100))] {
            let error = Memory::of_file("asset", &file, offset, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_hash_can_be_watched_and_broken_off() {
        let source = Memory::new("memory", vec![7; 600_000]);
        let mut seen = Vec::new();
        let watched = sha256_watched(&source, &mut |bytes| {
            seen.push(bytes);
            ControlFlow::Continue(())
        });
        assert_eq!(watched.unwrap(), sha256(&source).unwrap());
        assert_eq!(seen, [1 << 18, 2 << 18, 600_000]);
        let error = sha256_watched(&source, &mut |_| ControlFlow::Break(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn a_file_is_named_by_its_first_bytes() {
        let named = |head: &[u8]| Contents::of_head(head);
        assert_eq!(named(b"GGUF\x03\0\0\0"), Contents::Gguf);
        assert_eq!(named(b"\x40\0\0\0\0\0\0\0{\"a\":1}"), Contents::Safetensors);
        assert_eq!(named(b""), Contents::Empty);
        assert_eq!(named(&[0; 64]), Contents::Zeros);
        assert_eq!(
            named(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
            Contents::LfsPointer
        );
        assert_eq!(named(b"\n<!DOCTYPE html><html>"), Contents::Html);
        assert_eq!(named("\u{feff}<?xml version='1.0'?><Error/>".as_bytes()), Contents::Html);
        assert_eq!(named(b"PK\x03\x04\x14"), Contents::Zip);
        assert_eq!(named(b"\x80\x02}q\0"), Contents::Pickle);
        assert_eq!(named(b"tjgg\x03\0\0\0"), Contents::GgmlLegacy("ggjt"));
        assert_eq!(named(b"\x1f\x8b\x08"), Contents::Compressed("gzip"));
        assert_eq!(named(b"\x89HDF\r\n"), Contents::Hdf5);
        assert_eq!(named(b"\x1c\0\0\0TFL3"), Contents::TfLite);
        assert_eq!(named(b"{\"error\": \"Repository not found\"}"), Contents::Json);
        assert_eq!(named(b"Entry not found\n"), Contents::Text("Entry not found".into()));
        assert_eq!(named(b"GG"), Contents::Text("GG".into()));
        assert_eq!(named(&[0xff, 0xfe, 1]), Contents::Unknown(vec![0xff, 0xfe, 1]));
        // A character that the end of the head cuts does not make text unknown.
        assert_eq!(named(&"é".as_bytes()[..1]), Contents::Unknown(vec![0xc3]));
        assert_eq!(named(&"aé".as_bytes()[..2]), Contents::Text("a".into()));
    }

    #[test]
    fn messages_say_what_to_do() {
        assert!(Contents::LfsPointer.to_string().contains("git lfs pull"));
        assert!(Contents::Html.to_string().contains("/resolve/"));
        assert!(Contents::Unknown(vec![0xff, 1]).to_string().contains("ff 01"));
    }
}
