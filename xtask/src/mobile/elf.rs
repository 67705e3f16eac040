//! What a shared library for Android must have: its exports, and segments that pages of 16 KiB can be mapped to.

use super::io;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::Path;

/// The page of the newest devices, which older ones divide.
const PAGE: u64 = 16 << 10;

/// The functions that bindings call, by the header that the generator writes for C.
pub fn called(bindings: &Path) -> Result<BTreeSet<String>, String> {
    let header = bindings.join("swift/ZenEdgeFFI.h");
    let text = std::fs::read_to_string(&header).map_err(io(&header))?;
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("uniffi_zen_edge") || word.starts_with("ffi_zen_edge"));
    let called: BTreeSet<String> = ours.map(str::to_owned).collect();
    if called.len() < 50 { Err(format!("{} names few functions", header.display())) } else { Ok(called) }
}

/// Checks a shared library's alignment and exports; its bytes.
pub fn check(library: &Path, bindings: &Path) -> Result<u64, String> {
    let bytes = std::fs::read(library).map_err(io(library))?;
    let wrong = |why: String| format!("{}: {why}", library.display());
    let header = FileHeader64::<Endianness>::parse(&*bytes).map_err(|error| wrong(error.to_string()))?;
    let endian = header.endian().map_err(|error| wrong(error.to_string()))?;
    let segments = header.program_headers(endian, &*bytes).map_err(|error| wrong(error.to_string()))?;
    let loaded: Vec<_> = segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD).collect();
    if loaded.is_empty() {
        return Err(wrong("nothing of it is loaded".into()));
    }
    for segment in loaded {
        let (align, address, offset) =
            (segment.p_align(endian), segment.p_vaddr(endian), segment.p_offset(endian));
        if align < PAGE || address % PAGE != offset % PAGE {
            return Err(wrong(format!(
                "a segment is aligned to {align}: devices with pages of {PAGE} refuse it"
            )));
        }
    }
    let file = object::File::parse(&*bytes).map_err(|error| wrong(error.to_string()))?;
    let exported: BTreeSet<&str> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global())
        .filter_map(|symbol| symbol.name().ok())
        .collect();
    if let Some(missing) = called(bindings)?.iter().find(|name| !exported.contains(name.as_str())) {
        return Err(wrong(format!("does not export {missing}, which the bindings call")));
    }
    if let Some(odd) = exported.iter().find(|name| !name.contains("zen_edge") && !name.starts_with("UNIFFI"))
    {
        return Err(wrong(format!("exports {odd}, which is nobody's business")));
    }
    Ok(bytes.len() as u64)
}
