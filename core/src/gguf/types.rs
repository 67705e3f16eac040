//! The element types of ggml: ids, names and block sizes, also of those that the kernels do not run.

use zen_edge_kernels::format::BlockType;

/// Name, elements in a block and bytes in a block of a `ggml_type`.
pub(super) struct Layout {
    pub name: &'static str,
    pub block_len: u64,
    pub block_bytes: u64,
}

/// The layout of the type with this id, or `None` where its size is not known.
///
/// Source: `ggml.h` (`enum ggml_type`) and the block structs of `ggml-common.h`. The types which the kernels run come
/// from [`BlockType`], so that there is one table of their sizes; the others are here so that a file which holds them
/// can be bounded and described.
pub(super) fn layout(id: u32) -> Option<Layout> {
    if let Some(t) = BlockType::from_ggml_id(id) {
        return Some(Layout {
            name: t.name(),
            block_len: t.block_len() as u64,
            block_bytes: t.block_bytes() as u64,
        });
    }
    let (name, block_len, block_bytes) = match id {
        // 36, as in ggml-common.h: the 40 of the Python package's table dates from f32 scales. Never stored in files.
        9 => ("Q8_1", 32, 36),
        15 => ("Q8_K", 256, 292),
        16 => ("IQ2_XXS", 256, 66),
        17 => ("IQ2_XS", 256, 74),
        18 => ("IQ3_XXS", 256, 98),
        19 => ("IQ1_S", 256, 50),
        21 => ("IQ3_S", 256, 110),
        22 => ("IQ2_S", 256, 82),
        24 => ("I8", 1, 1),
        25 => ("I16", 1, 2),
        26 => ("I32", 1, 4),
        27 => ("I64", 1, 8),
        28 => ("F64", 1, 8),
        29 => ("IQ1_M", 256, 56),
        // Interleaved for one instruction set and withdrawn since; the same blocks in another order.
        31 => ("Q4_0_4_4", 32, 18),
        32 => ("Q4_0_4_8", 32, 18),
        33 => ("Q4_0_8_8", 32, 18),
        34 => ("TQ1_0", 256, 54),
        35 => ("TQ2_0", 256, 66),
        36 => ("IQ4_NL_4_4", 32, 18),
        37 => ("IQ4_NL_4_8", 32, 18),
        38 => ("IQ4_NL_8_8", 32, 18),
        39 => ("MXFP4", 32, 17),
        40 => ("NVFP4", 64, 36),
        41 => ("Q1_0", 128, 18),
        _ => return None,
    };
    Some(Layout { name, block_len, block_bytes })
}

/// The name of the `ggml_type` with this id, or `None` where it is not known.
///
/// ```
/// assert_eq!(zen_edge_core::gguf::type_name(12), Some("Q4_K"));
/// assert_eq!(zen_edge_core::gguf::type_name(16), Some("IQ2_XXS")); // known, though the kernels do not run it
/// assert_eq!(zen_edge_core::gguf::type_name(1_000), None);
/// ```
pub fn type_name(id: u32) -> Option<&'static str> {
    match id {
        // Older than GGUF; their ids stay taken.
        4 => Some("Q4_2"),
        5 => Some("Q4_3"),
        _ => layout(id).map(|t| t.name),
    }
}
