//! Where a weight's bytes live: a mapped file or owned memory, shared and sliced without copies.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// A cheap, shared, read-only view of bytes: a part of a mapped file or of owned memory.
///
/// Cloning and slicing copy nothing. Pages of a mapped file are clean: the system may evict them and read them again.
#[derive(Clone)]
pub struct Bytes {
    owner: Owner,
    range: Range<usize>,
}

#[derive(Clone)]
enum Owner {
    Owned(Arc<Vec<u8>>),
    Static(&'static [u8]),
    #[cfg(not(target_family = "wasm"))]
    Mapped(Arc<memmap2::Mmap>),
}

impl Bytes {
    /// Maps a file read-only.
    ///
    /// The file must not be shortened or rewritten by another process while the map lives: as with every memory map,
    /// a page that has gone faults when it is read. Replacing a file by rename is safe.
    ///
    /// # Errors
    /// What the system says of the file.
    #[cfg(not(target_family = "wasm"))]
    pub fn map(file: &std::fs::File) -> std::io::Result<Self> {
        // SAFETY: the map is read-only and private to this process; its owner keeps it alive as long as any slice of
        // it lives. A file that another process truncates meanwhile is the documented limit of every memory map.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::Mmap::map(file)? };
        let len = map.len();
        Ok(Self { owner: Owner::Mapped(Arc::new(map)), range: 0..len })
    }

    /// Maps a part of a file read-only: an asset inside a package, of which only its place is known. `offset` needs no
    /// alignment. What [`Self::map`] says of the file holds here too.
    ///
    /// # Errors
    /// [`std::io::ErrorKind::UnexpectedEof`] where the part leaves the file; otherwise what the system says.
    #[cfg(not(target_family = "wasm"))]
    pub fn map_part(file: &std::fs::File, offset: u64, len: u64) -> std::io::Result<Self> {
        use std::io::ErrorKind::{OutOfMemory, UnexpectedEof};
        // Mapped pages beyond the end of a file fault when they are read.
        if offset.checked_add(len).is_none_or(|end| file.metadata().is_ok_and(|meta| end > meta.len())) {
            return Err(UnexpectedEof.into());
        }
        let len = usize::try_from(len).map_err(|_| OutOfMemory)?;
        if len == 0 {
            return Ok(Self::from(Vec::new()));
        }
        // SAFETY: as in `map`.
        #[allow(unsafe_code)]
        let map = unsafe { memmap2::MmapOptions::new().offset(offset).len(len).map(file)? };
        Ok(Self { owner: Owner::Mapped(Arc::new(map)), range: 0..len })
    }

    /// The view of `range`, relative to this view, or `None` where it lies outside.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { owner: self.owner.clone(), range: start..start + range.len() })
    }

    /// Whether the bytes are pages of a mapped file (clean, evictable) rather than memory of the process.
    pub fn is_mapped(&self) -> bool {
        match self.owner {
            Owner::Owned(_) | Owner::Static(_) => false,
            #[cfg(not(target_family = "wasm"))]
            Owner::Mapped(_) => true,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self { owner: Owner::Owned(Arc::new(bytes)), range: 0..len }
    }
}

impl From<&'static [u8]> for Bytes {
    fn from(bytes: &'static [u8]) -> Self {
        Self { owner: Owner::Static(bytes), range: 0..bytes.len() }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.owner {
            Owner::Owned(bytes) => bytes,
            Owner::Static(bytes) => bytes,
            #[cfg(not(target_family = "wasm"))]
            Owner::Mapped(map) => map,
        };
        &all[self.range.clone()]
    }
}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bytes").field("len", &self.range.len()).field("mapped", &self.is_mapped()).finish()
    }
}

/// Numbers that begin with a line of the cache, 64 bytes.
pub(crate) struct Lines<T> {
    lines: Vec<Line>,
    numbers: core::marker::PhantomData<T>,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read as numbers, never as a field")] [u8; 64]);

/// A number of which every pattern of bits is one, zeros too.
pub(crate) trait Number: Copy {}
impl Number for u8 {}
impl Number for i32 {}
impl Number for f32 {}

impl<T: Number> Lines<T> {
    pub(crate) const fn new() -> Self {
        Self { lines: Vec::new(), numbers: core::marker::PhantomData }
    }

    /// Makes room for `len` numbers, a multiple of 64; new ones are zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        self.lines.resize(len * size_of::<T>() / size_of::<Line>(), Line([0; 64]));
    }
}

impl<T: Number> Deref for Lines<T> {
    type Target = [T];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        let len = self.lines.len() * size_of::<Line>() / size_of::<T>();
        // SAFETY: so many bytes, aligned to 64, and every pattern of bits is a `T`.
        unsafe { core::slice::from_raw_parts(self.lines.as_ptr().cast(), len) }
    }
}

impl<T: Number> DerefMut for Lines<T> {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        let len = self.lines.len() * size_of::<Line>() / size_of::<T>();
        // SAFETY: as in `deref`, and the vector is borrowed for as long.
        unsafe { core::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_and_stay_inside() {
        let bytes = Bytes::from(vec![1, 2, 3, 4, 5]);
        let middle = bytes.slice(1..4).unwrap();
        assert_eq!(&*middle, [2, 3, 4]);
        assert_eq!(&*middle.slice(1..2).unwrap(), [3]);
        assert!(middle.slice(2..4).is_none());
        #[allow(clippy::reversed_empty_ranges)]
        let reversed = 3..1;
        assert!(bytes.slice(reversed).is_none());
        assert!(bytes.slice(0..usize::MAX).is_none());
    }

    #[cfg(not(target_family = "wasm"))]
    #[test]
    fn a_mapped_file_reads_as_its_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"zen").unwrap();
        let bytes = Bytes::map(&file).unwrap();
        assert!(bytes.is_mapped());
        assert_eq!(&*bytes, b"zen");
    }

    #[cfg(not(target_family = "wasm"))]
    #[test]
    fn a_part_may_lie_anywhere_in_its_file_and_not_outside() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        for (offset, len) in [(0, 20_000), (1, 19_999), (4097, 5000), (19_999, 1), (20_000, 0)] {
            let part = Bytes::map_part(&file, offset as u64, len as u64).unwrap();
            assert_eq!(*part, bytes[offset..offset + len]);
            assert_eq!(part.is_mapped(), len > 0);
        }
        for (offset, len) in [(1, 20_000), (20_000, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let error = Bytes::map_part(&file, offset, len).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        }
    }
}
