//! Which type each tensor gets: the mixtures that llama.cpp gives its names to.

use serde::Serialize;
use zen_edge_kernels::format::BlockType;

/// A mixture of types, by llama.cpp's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[allow(missing_docs, non_camel_case_types)] // the names are llama.cpp's own
pub enum Mix {
    F32,
    F16,
    BF16,
    Q8_0,
    Q6_K,
    Q5_K_M,
    Q5_K_S,
    Q5_1,
    Q5_0,
    Q4_K_M,
    Q4_K_S,
    Q4_1,
    Q4_0,
}

impl Mix {
    /// Every mixture, the largest first.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q6_K,
        Self::Q5_K_M,
        Self::Q5_K_S,
        Self::Q5_1,
        Self::Q5_0,
        Self::Q4_K_M,
        Self::Q4_K_S,
        Self::Q4_1,
        Self::Q4_0,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q6_K => "Q6_K",
            Self::Q5_K_M => "Q5_K_M",
            Self::Q5_K_S => "Q5_K_S",
            Self::Q5_1 => "Q5_1",
            Self::Q5_0 => "Q5_0",
            Self::Q4_K_M => "Q4_K_M",
            Self::Q4_K_S => "Q4_K_S",
            Self::Q4_1 => "Q4_1",
            Self::Q4_0 => "Q4_0",
        }
    }

    /// The mixture of this name, in any case.
    ///
    /// # Errors
    /// A message that lists the names.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mix| mix.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|mix| mix.name()).collect();
            format!("there is no type {name:?}; these can be made: {}", names.join(", "))
        })
    }

    /// `general.file_type`: llama.cpp's `llama_ftype`.
    pub const fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q8_0 => 7,
            Self::Q5_0 => 8,
            Self::Q5_1 => 9,
            Self::Q4_K_S => 14,
            Self::Q4_K_M => 15,
            Self::Q5_K_S => 16,
            Self::Q5_K_M => 17,
            Self::Q6_K => 18,
            Self::BF16 => 32,
        }
    }

    /// The type of most matrices.
    pub const fn base(self) -> BlockType {
        match self {
            Self::F32 => BlockType::F32,
            Self::F16 => BlockType::F16,
            Self::BF16 => BlockType::BF16,
            Self::Q8_0 => BlockType::Q8_0,
            Self::Q6_K => BlockType::Q6K,
            Self::Q5_K_M | Self::Q5_K_S => BlockType::Q5K,
            Self::Q5_1 => BlockType::Q5_1,
            Self::Q5_0 => BlockType::Q5_0,
            Self::Q4_K_M | Self::Q4_K_S => BlockType::Q4K,
            Self::Q4_1 => BlockType::Q4_1,
            Self::Q4_0 => BlockType::Q4_0,
        }
    }

    /// The type of a tensor, and the one it would have had if its rows were whole blocks of that.
    ///
    /// `layers`: of the model; `tied`: whether the embedding is the LM head too.
    pub fn of(self, name: &str, dims: &[u64], layers: usize, tied: bool) -> (BlockType, Option<BlockType>) {
        // Vectors are few and matter much.
        if dims.len() < 2 || !name.ends_with(".weight") || name.ends_with("_norm.weight") {
            return (BlockType::F32, None);
        }
        let wanted = self.wanted(name, layers, tied);
        let mut ty = wanted;
        while !dims[0].is_multiple_of(ty.block_len() as u64) {
            ty = match ty {
                BlockType::Q4K => BlockType::Q5_0,
                BlockType::Q5K => BlockType::Q5_1,
                BlockType::Q6K => BlockType::Q8_0,
                _ => BlockType::F16,
            };
        }
        (ty, (ty != wanted).then_some(wanted))
    }

    fn wanted(self, name: &str, layers: usize, tied: bool) -> BlockType {
        let base = self.base();
        if base.block_len() == 1 {
            return base;
        }
        if name == "output.weight" || tied && name == "token_embd.weight" {
            return if base == BlockType::Q8_0 { base } else { BlockType::Q6K };
        }
        let layer_and_part = name
            .strip_prefix("blk.")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(layer, part)| Some((layer.parse::<usize>().ok()?, part.strip_suffix(".weight")?)));
        let Some((layer, part)) = layer_and_part else { return base };
        // The first and last eighth, and of the others every third.
        let eighth = layers / 8;
        let more = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
        match (self, part) {
            (Self::Q4_K_M | Self::Q5_K_M, "attn_v" | "ffn_down") if more => BlockType::Q6K,
            (Self::Q4_K_S, "attn_v") if layer < 4 => BlockType::Q5K,
            (Self::Q4_K_S, "ffn_down") if layer < eighth => BlockType::Q5K,
            _ => base,
        }
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
