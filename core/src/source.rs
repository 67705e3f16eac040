//! Bytes that are read at random: a mapped file, memory, a browser's storage.

use std::io;
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
        let file = std::fs::File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Self { name: path.display().to_string().into(), bytes: Bytes::map(&file)? })
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
}
