//! The shaders: files, one for a kernel, with shared pieces imported; their permutations are data.

use crate::format::BlockType;
use std::fmt::Write;

/// A constant that a permutation sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Value {
    U32(u32),
    I32(i32),
}

/// A kernel, by the file that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kernel {
    /// Copies words.
    Echo,
    /// Normalises rows.
    Norm,
    /// Weights × activations.
    Gemm,
    /// Normalises, rotates and scales heads.
    Heads,
    /// Causal attention.
    Attention,
    /// The feed-forward network's activation.
    Gate,
    /// The roofline's multiply-adds.
    Peak,
    /// The roofline's copy.
    Copy,
}

impl Kernel {
    /// Every kernel.
    pub const ALL: [Self; 8] = [
        Self::Echo,
        Self::Norm,
        Self::Gemm,
        Self::Heads,
        Self::Attention,
        Self::Gate,
        Self::Peak,
        Self::Copy,
    ];

    /// Its file's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Norm => "norm",
            Self::Gemm => "gemm",
            Self::Heads => "heads",
            Self::Attention => "attention",
            Self::Gate => "gate",
            Self::Peak => "peak",
            Self::Copy => "copy",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::Echo => include_str!("shaders/echo.wgsl"),
            Self::Norm => include_str!("shaders/norm.wgsl"),
            Self::Gemm => include_str!("shaders/gemm.wgsl"),
            Self::Heads => include_str!("shaders/heads.wgsl"),
            Self::Attention => include_str!("shaders/attention.wgsl"),
            Self::Gate => include_str!("shaders/gate.wgsl"),
            Self::Peak => include_str!("shaders/peak.wgsl"),
            Self::Copy => include_str!("shaders/copy.wgsl"),
        }
    }
}

/// The pieces that shaders import.
const PIECES: [(&str, &str); 2] =
    [("reduce", include_str!("shaders/reduce.wgsl")), ("decode", include_str!("shaders/decode.wgsl"))];

/// Tells the shaders of one build from those of another: what was proved holds for these.
pub fn shaders() -> u64 {
    let texts = Kernel::ALL.iter().map(|kernel| kernel.source()).chain(PIECES.map(|(_, text)| text));
    // FNV-1a.
    texts
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A kernel with its constants: what a pipeline is made of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Permutation {
    pub kernel: Kernel,
    pub constants: Vec<(&'static str, Value)>,
}

impl Permutation {
    pub fn new(kernel: Kernel, constants: impl Into<Vec<(&'static str, Value)>>) -> Self {
        Self { kernel, constants: constants.into() }
    }

    pub fn of_u32(kernel: Kernel, constants: &[(&'static str, u32)]) -> Self {
        Self::new(
            kernel,
            constants.iter().map(|(name, value)| (*name, Value::U32(*value))).collect::<Vec<_>>(),
        )
    }

    pub fn gemm(ty: BlockType, tile: u32, add: bool) -> Self {
        let decode = Decode::of(ty);
        Self::new(
            Kernel::Gemm,
            [
                ("KIND", Value::U32(decode.kind as u32)),
                ("GROUP", Value::U32(decode.group)),
                ("SUB", Value::U32(decode.sub)),
                ("OFFSET", Value::I32(decode.offset)),
                ("MIN", Value::U32(decode.min.into())),
                ("TM", Value::U32(tile)),
                ("ADD", Value::U32(add.into())),
            ],
        )
    }

    /// The whole text. `fault` is what results are multiplied by: 1, but in a test of what notices that.
    pub fn text(&self, fault: f32) -> String {
        let mut text = String::new();
        for (name, value) in &self.constants {
            let _ = match value {
                Value::U32(value) => writeln!(text, "const {name}: u32 = {value}u;"),
                Value::I32(value) => writeln!(text, "const {name}: i32 = {value};"),
            };
        }
        let _ = writeln!(text, "const FAULT: f32 = {fault:?};");
        for line in self.kernel.source().lines() {
            match line.strip_prefix("#import ") {
                Some(name) => {
                    let piece = PIECES.iter().find(|(piece, _)| *piece == name.trim());
                    text.push_str(piece.expect("a shader imports a piece that is there").1);
                }
                None => text.push_str(line),
            }
            text.push('\n');
        }
        text
    }

    /// Every permutation that a backbone may ask for, with the heads' lengths that models have.
    #[cfg(test)]
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::of_u32(Kernel::Echo, &[]),
            Self::of_u32(Kernel::Peak, &[("ROUNDS", 64)]),
            Self::of_u32(Kernel::Copy, &[]),
        ];
        for flag in 0..2 {
            all.push(Self::of_u32(Kernel::Norm, &[("ADD", flag)]));
            all.push(Self::of_u32(Kernel::Gate, &[("ACTIVATION", flag)]));
            for d in [16, 32, 48, 64, 80, 96, 128, 256] {
                for pairs in 0..2 {
                    all.push(Self::of_u32(Kernel::Heads, &[("D", d), ("NORM", flag), ("PAIRS", pairs)]));
                }
            }
        }
        for d in [16, 32, 48, 64, 80, 96, 128, 256] {
            all.push(Self::of_u32(Kernel::Attention, &[("D", d)]));
        }
        for ty in BlockType::ALL {
            for tile in [1, 2, 4] {
                for add in [false, true] {
                    all.push(Self::gemm(ty, tile, add));
                }
            }
        }
        all
    }
}

/// How packed weights keep a weight's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nibbles = 0,
    Bytes = 1,
    F16 = 2,
    BF16 = 3,
    F32 = 4,
}

impl Kind {
    /// Words of a block of 32 weights.
    pub const fn words(self) -> usize {
        match self {
            Self::Nibbles => 4,
            Self::Bytes => 8,
            Self::F16 | Self::BF16 => 16,
            Self::F32 => 32,
        }
    }
}

/// How a format is packed for the device, and so how the shader unpacks it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decode {
    pub kind: Kind,
    /// Weights that share a float scale; 0 for floats.
    pub group: u32,
    /// Weights that share an integer scale.
    pub sub: u32,
    /// What is taken from a nibble; that of bytes is taken when they are packed.
    pub offset: i32,
    pub min: bool,
}

impl Decode {
    pub const fn of(ty: BlockType) -> Self {
        use BlockType as T;
        use Kind::{BF16, Bytes, F16, F32, Nibbles};
        let (kind, group, sub, offset, min) = match ty {
            T::F32 => (F32, 0, 0, 0, false),
            T::F16 => (F16, 0, 0, 0, false),
            T::BF16 => (BF16, 0, 0, 0, false),
            T::Q4_0 => (Nibbles, 32, 32, 8, false),
            T::Q4_1 => (Nibbles, 32, 32, 0, true),
            T::Q2K => (Nibbles, 256, 16, 0, true),
            T::Q3K => (Nibbles, 256, 16, 4, false),
            T::Q4K => (Nibbles, 256, 32, 0, true),
            T::Q5_0 | T::Q8_0 | T::IQ4NL => (Bytes, 32, 32, 0, false),
            T::Q5_1 => (Bytes, 32, 32, 0, true),
            T::Q5K => (Bytes, 256, 32, 0, true),
            T::Q6K => (Bytes, 256, 16, 0, false),
            T::IQ4XS => (Bytes, 256, 32, 0, false),
        };
        Self { kind, group, sub, offset, min }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// WebGPU's defaults, which every device has.
    const WORKGROUP_STORAGE: u32 = 16_384;

    #[test]
    fn every_shader_is_valid_and_keeps_the_limits_that_every_device_has() {
        for permutation in Permutation::all() {
            let text = permutation.text(1.0);
            let module = wgpu::naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|error| panic!("{permutation:?}: {}", error.emit_to_string(&text)));
            // No capability beyond WebGPU's core: no subgroups, no f16.
            let mut validator = wgpu::naga::valid::Validator::new(
                wgpu::naga::valid::ValidationFlags::all(),
                wgpu::naga::valid::Capabilities::empty(),
            );
            validator
                .validate(&module)
                .unwrap_or_else(|error| panic!("{permutation:?}: {}", error.emit_to_string(&text)));
            let mut layouter = wgpu::naga::proc::Layouter::default();
            layouter.update(module.to_ctx()).expect("types have sizes");
            let (mut storage, mut workgroup) = (0, 0);
            for (_, variable) in module.global_variables.iter() {
                match variable.space {
                    wgpu::naga::AddressSpace::WorkGroup => workgroup += layouter[variable.ty].size,
                    wgpu::naga::AddressSpace::Storage { .. } => storage += 1,
                    _ => {}
                }
            }
            assert!(storage <= 8, "{permutation:?} binds {storage} storage buffers");
            assert!(workgroup <= WORKGROUP_STORAGE, "{permutation:?} takes {workgroup} bytes of a workgroup");
            for entry in &module.entry_points {
                assert!(entry.workgroup_size.iter().product::<u32>() <= 256, "{permutation:?}");
            }
        }
    }

    /// The compiler of Chrome reads WGSL more strictly than naga does. Where it is not installed naga's word stands.
    #[test]
    fn tint_takes_every_shader_too() {
        if Command::new("tint").arg("--version").output().is_err() {
            eprintln!("SKIPPED tint_takes_every_shader_too: tint is not on the path");
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        for (n, permutation) in Permutation::all().iter().enumerate() {
            let path = folder.path().join(format!("{n}.wgsl"));
            std::fs::write(&path, permutation.text(1.0)).expect("written");
            let output = Command::new("tint").args(["--format", "wgsl"]).arg(&path).output();
            let output = output.expect("tint runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{permutation:?}: {said}");
        }
    }

    #[test]
    fn every_kernel_has_its_fault() {
        for permutation in Permutation::all() {
            let faulty = permutation.text(1.5);
            assert!(
                faulty.matches("FAULT").count() >= 2
                    || matches!(permutation.kernel, Kernel::Peak | Kernel::Copy)
            );
        }
    }
}
