//! Where a pack's files come from.

use crate::error::ZenEdgeError;
use std::path::Path;
use std::sync::Arc;
use zen_edge_core::pack::{LoadError, Pack, Part};
use zen_edge_core::source::{Memory, Source};

/// A file.
#[derive(Clone, Debug, uniffi::Enum)]
pub enum FileSource {
    /// By its path. It is mapped: its pages are clean, and the system may take them back.
    Path {
        /// The path.
        path: String,
    },
    /// Bytes of an open file, as an asset inside an Android package has them. They are mapped too. The descriptor is only
    /// read, is not closed, and may be closed when the call has returned.
    Descriptor {
        /// The descriptor.
        fd: i32,
        /// Where the bytes begin in the file.
        offset: u64,
        /// How many there are; all that follow where it is not said.
        length: Option<u64>,
        /// What messages call it.
        name: String,
    },
    /// Bytes in memory. Weights from here are memory of the process, which the system cannot take back.
    Bytes {
        /// The bytes.
        bytes: Vec<u8>,
        /// What messages call them.
        name: String,
    },
}

/// A backbone and what belongs to it.
#[derive(Clone, Debug, uniffi::Enum)]
pub enum PackSource {
    /// A folder with `model.gguf`, `heads.safetensors`, `router_config.json` and, where they are there, a catalog and a policy.
    Folder {
        /// The folder.
        path: String,
    },
    /// A backbone, and the folder of its heads.
    Heads {
        /// The GGUF.
        model: FileSource,
        /// The folder with `heads.safetensors`, `router_config.json` and, where they are there, a catalog and a policy.
        folder: String,
    },
    /// File by file.
    Files {
        /// The GGUF.
        model: FileSource,
        /// The heads.
        heads: FileSource,
        /// `router_config.json`.
        config: FileSource,
        /// The catalog.
        catalog: Option<FileSource>,
        /// The policy.
        policy: Option<FileSource>,
    },
}

impl PackSource {
    pub(crate) fn open(self) -> Result<Pack, ZenEdgeError> {
        Ok(match self {
            Self::Folder { path } => Pack::open(path)?,
            Self::Heads { model, folder } => Pack::with_heads(model.open()?, folder)?,
            Self::Files { model, heads, config, catalog, policy } => Pack {
                model: model.open()?,
                heads: heads.open()?,
                config: config.part()?,
                catalog: catalog.map(FileSource::part).transpose()?,
                policy: policy.map(FileSource::part).transpose()?,
            },
        })
    }
}

impl FileSource {
    fn open(self) -> Result<Arc<dyn Source>, ZenEdgeError> {
        let io = |file: &str, source| ZenEdgeError::from(LoadError::Io { file: file.to_owned(), source });
        Ok(Arc::new(match self {
            Self::Path { path } => Memory::open(Path::new(&path)).map_err(|error| io(&path, error))?,
            Self::Descriptor { fd, offset, length, name } => {
                let file = borrow(fd).map_err(|error| io(&name, error))?;
                Memory::of_file(&*name, &file, offset, length).map_err(|error| io(&name, error))?
            }
            Self::Bytes { bytes, name } => Memory::new(name, bytes),
        }))
    }

    /// A small file, whole.
    pub(crate) fn part(self) -> Result<Part, ZenEdgeError> {
        /// Texts of a pack have some kilobytes; whoever names a model here has mixed something up.
        const MOST: u64 = 16_000_000;
        let source = self.open()?;
        let (name, len) = (source.name().to_owned(), source.len());
        if len > MOST {
            let detail = format!("{name} has {len} bytes: no config, catalog or policy has so many");
            return Err(ZenEdgeError::BadRequest { detail });
        }
        let mut bytes = vec![0; len as usize];
        source
            .read_at(0, &mut bytes)
            .map_err(|source| ZenEdgeError::from(LoadError::Io { file: name.clone(), source }))?;
        Ok(Part { name, bytes })
    }
}

/// A duplicate of the caller's descriptor, closed with it.
#[cfg(unix)]
fn borrow(fd: i32) -> std::io::Result<std::fs::File> {
    use std::os::fd::BorrowedFd;
    if fd < 0 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: it is borrowed for this call alone, in which it is duplicated. A number that is no open descriptor makes the
    // duplication fail; -1, which is not allowed here, was refused.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?.into())
}

#[cfg(not(unix))]
fn borrow(_: i32) -> std::io::Result<std::fs::File> {
    Err(std::io::ErrorKind::Unsupported.into())
}
