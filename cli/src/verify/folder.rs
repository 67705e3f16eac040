//! A folder of Hugging Face files as a GGUF, for as long as a command runs.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::plain;
use crate::quantize::progress;
use std::io;
use std::path::Path;
use tempfile::TempDir;
use zen_edge_core::source::{Memory, Source};
use zen_edge_forge::quantize::{Mix, Options, quantize};
use zen_edge_kernels::memory::Bytes;

/// A GGUF in F32 that goes with its last user.
pub struct Converted {
    // Mapped files go before the folder that they lie in.
    file: Memory,
    _folder: Option<TempDir>,
}

/// Makes a GGUF in F32 of a folder, in the system's folder for temporary files: no value is changed by it. It is called
/// as the folder is.
pub fn convert(folder: &Path, threads: Option<u16>) -> Result<Converted, Failure> {
    let place = TempDir::with_prefix("zen-edge-").map_err(|error| {
        let why = format!("no temporary folder can be made for {}: {error}", folder.display());
        Failure::new(Exit::Other, why)
    })?;
    let path = place.path().join("model-f32.gguf");
    let options = Options { threads: threads.map(usize::from), ..Options::default() };
    let (bar, mut progress) = progress();
    let report = quantize(folder, &path, Mix::F32, &options, &mut progress);
    bar.finish_and_clear();
    for note in report?.notes {
        anstream::eprintln!("note: {}: {}", plain(&folder.display().to_string()), plain(&note));
    }
    // `.` and `..` have no name of their own.
    let whole = folder.canonicalize();
    let name = if folder.file_name().is_some() { folder } else { whole.as_deref().unwrap_or(folder) };
    let failed = |error: io::Error| Failure::file(&path, &error);
    let file = std::fs::File::open(&path).map_err(failed)?;
    let file = Memory::of_file(name.display().to_string(), &file, 0, None).map_err(failed)?;
    // Where a mapped file may be unlinked it is, so that nothing is left behind by a run that is broken off.
    let _folder = if cfg!(unix) { None } else { Some(place) };
    Ok(Converted { file, _folder })
}

impl Source for Converted {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buf)
    }

    fn view(&self, offset: u64, len: usize) -> Option<Bytes> {
        self.file.view(offset, len)
    }
}
