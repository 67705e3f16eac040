//! Schemes of quantisation: how they are written, and what they make of a row.
//!
//! ```text
//! SCHEME = fp16 | int{2,3,4,8}[-g<N>][-rot][-nohead] | TYPE[-nohead]      TYPE: q4_k, q8_0, … as GGUF calls them
//! ```
//!
//! `int` is symmetric absmax: `s = max(absmax / qmax, 1e-8)` with `qmax = 2^(bits − 1) − 1`, `q = round(x / s)` half to even,
//! clipped to `[−qmax − 1, qmax]`, and `q · s` comes back. A scale for each row, or with `-g<N>` for each `N` inputs of it
//! (the last group is shorter where `N` does not divide the row). `-rot` turns the input dimension before and back after,
//! see [`Rotation`]. `-nohead` leaves embedding and LM head alone.

use super::hadamard::Rotation;
use half::f16;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use zen_edge_kernels::format::BlockType;

/// Why a word is no scheme.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// No scheme begins so.
    #[error(
        "`{scheme}` is no scheme: write fp16, int{{2,3,4,8}}[-g<N>][-rot][-nohead], or a GGUF type such as q4_k or q8_0"
    )]
    Unknown {
        /// What was written.
        scheme: String,
    },
    /// `int` of other bits.
    #[error("`{scheme}`: int takes 2, 3, 4 or 8 bits")]
    Bits {
        /// What was written.
        scheme: String,
    },
    /// A group that is no number from 1.
    #[error("`{scheme}`: `{found}` is no group; write -g and a whole number from 1, as in int4-g128")]
    Group {
        /// What was written.
        scheme: String,
        /// The suffix.
        found: String,
    },
    /// A suffix that the scheme does not have, or out of order, or twice.
    #[error("`{scheme}`: `-{found}` cannot stand there; the order is {order}")]
    Suffix {
        /// What was written.
        scheme: String,
        /// The suffix.
        found: String,
        /// What may follow, in order.
        order: &'static str,
    },
    /// A type that is read and not made.
    #[error("`{scheme}`: {ty} can be read but not made here; choose another type, such as q4_k or q4_0")]
    NotMade {
        /// What was written.
        scheme: String,
        /// The type.
        ty: BlockType,
    },
}

/// How weights are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Every weight rounded to half precision.
    Float16,
    /// Symmetric absmax.
    Int(Int),
    /// A GGUF type, by our own encoder.
    Block {
        /// The type.
        ty: BlockType,
        /// Whether embedding and LM head are left alone.
        nohead: bool,
    },
}

/// Symmetric absmax of few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Int {
    /// 2, 3, 4 or 8.
    pub bits: u8,
    /// Inputs that share a scale; all of a row where there is none.
    pub group: Option<NonZeroU32>,
    /// Whether the input dimension is turned.
    pub rot: bool,
    /// Whether embedding and LM head are left alone.
    pub nohead: bool,
}

/// Bits that a scale takes: half precision, as block formats keep it.
const SCALE_BITS: f64 = 16.0;

impl Scheme {
    /// Whether embedding and LM head are left alone.
    pub const fn leaves_head(&self) -> bool {
        match self {
            Self::Float16 => false,
            Self::Int(int) => int.nohead,
            Self::Block { nohead, .. } => *nohead,
        }
    }

    /// Whether rows are turned.
    pub const fn turns(&self) -> bool {
        matches!(self, Self::Int(Int { rot: true, .. }))
    }

    /// What a matrix of `cols` inputs gets: the scheme's type, or the one that takes its place where a row is not whole
    /// blocks. Those are llama.cpp's, but Q4_0 for IQ4_NL, which is not made here.
    pub const fn block_type(ty: BlockType, cols: usize) -> BlockType {
        let ty = if cols.is_multiple_of(ty.block_len()) {
            ty
        } else {
            match ty {
                BlockType::Q4K => BlockType::Q5_0,
                BlockType::Q5K => BlockType::Q5_1,
                BlockType::Q6K => BlockType::Q8_0,
                _ => BlockType::Q4_0,
            }
        };
        // Not even blocks of 32: half precision, as llama.cpp has it.
        if cols.is_multiple_of(ty.block_len()) { ty } else { BlockType::F16 }
    }

    /// Bits that a weight takes in a row of `cols`, scales counted at 16 bits each.
    pub fn bits(&self, cols: usize) -> f64 {
        match self {
            Self::Float16 => 16.0,
            Self::Int(Int { bits, group, .. }) => {
                let groups = group.map_or(1, |group| cols.div_ceil(group.get() as usize));
                f64::from(*bits) + SCALE_BITS * groups as f64 / cols.max(1) as f64
            }
            Self::Block { ty, .. } => type_bits(Self::block_type(*ty, cols)),
        }
    }
}

/// Bits that a weight takes in a type.
pub(super) fn type_bits(ty: BlockType) -> f64 {
    8.0 * ty.block_bytes() as f64 / ty.block_len() as f64
}

impl Int {
    /// The largest quant; the smallest is one less than its negative.
    pub fn qmax(&self) -> f32 {
        ((1u32 << (self.bits - 1)) - 1) as f32
    }

    /// A row there and back, turned where there is a rotation.
    pub fn apply(&self, row: &mut [f32], rotation: Option<&Rotation>) {
        if let Some(rotation) = rotation {
            rotation.turn(row);
        }
        let group = self.group.map_or(row.len(), |group| group.get() as usize).max(1);
        for group in row.chunks_mut(group) {
            absmax(group, self.qmax());
        }
        if let Some(rotation) = rotation {
            rotation.turn_back(row);
        }
    }
}

/// Rounds a group that shares one scale.
fn absmax(group: &mut [f32], qmax: f32) {
    let most = group.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let scale = (most / qmax).max(1e-8);
    for value in group {
        *value = quant(*value, scale, qmax) * scale;
    }
}

/// The whole number that a value becomes.
fn quant(value: f32, scale: f32, qmax: f32) -> f32 {
    (value / scale).round_ties_even().clamp(-qmax - 1.0, qmax)
}

/// Rounds values to half precision.
pub(super) fn half_precision(values: &mut [f32]) {
    for value in values {
        *value = f16::from_f32(*value).to_f32();
    }
}

const INT_ORDER: &str = "-g<N>, -rot, -nohead";

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Self, SchemeError> {
        let scheme = || text.to_owned();
        let mut parts = text.split('-');
        let head = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        let suffix =
            |found: &str, order| SchemeError::Suffix { scheme: scheme(), found: found.to_owned(), order };
        if head == "fp16" {
            return match rest.first() {
                None => Ok(Self::Float16),
                Some(found) => Err(suffix(found, "fp16 alone")),
            };
        }
        if let Some(bits) = head.strip_prefix("int") {
            let bits = match bits {
                "2" => 2,
                "3" => 3,
                "4" => 4,
                "8" => 8,
                _ => return Err(SchemeError::Bits { scheme: scheme() }),
            };
            return Self::int(text, bits, &rest).map(Self::Int);
        }
        let named = |ty: &BlockType| ty.name().eq_ignore_ascii_case(head);
        let Some(ty) = BlockType::ALL.into_iter().find(named) else {
            return Err(SchemeError::Unknown { scheme: scheme() });
        };
        if matches!(ty, BlockType::IQ4NL | BlockType::IQ4XS) {
            return Err(SchemeError::NotMade { scheme: scheme(), ty });
        }
        match *rest {
            [] => Ok(Self::Block { ty, nohead: false }),
            ["nohead"] => Ok(Self::Block { ty, nohead: true }),
            ["nohead", found, ..] | [found, ..] => Err(suffix(found, "-nohead")),
        }
    }
}

impl Scheme {
    fn int(scheme: &str, bits: u8, suffixes: &[&str]) -> Result<Int, SchemeError> {
        let mut int = Int { bits, group: None, rot: false, nohead: false };
        // How far in the order the suffixes are.
        let mut at = 0;
        for found in suffixes {
            let place = match *found {
                "rot" => 2,
                "nohead" => 3,
                word if word.starts_with('g') => 1,
                _ => 0,
            };
            if place <= at {
                let (scheme, found) = (scheme.to_owned(), (*found).to_owned());
                return Err(SchemeError::Suffix { scheme, found, order: INT_ORDER });
            }
            at = place;
            match place {
                1 => {
                    let digits = &found[1..];
                    // `parse` would take a sign, and 0128 is no other group than 128.
                    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
                    int.group = digits.parse().ok().filter(|_| plain);
                    if int.group.is_none() {
                        let (scheme, found) = (scheme.to_owned(), format!("-{found}"));
                        return Err(SchemeError::Group { scheme, found });
                    }
                }
                2 => int.rot = true,
                _ => int.nohead = true,
            }
        }
        Ok(int)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float16 => f.write_str("fp16")?,
            Self::Int(Int { bits, group, rot, .. }) => {
                write!(f, "int{bits}")?;
                if let Some(group) = group {
                    write!(f, "-g{group}")?;
                }
                if *rot {
                    f.write_str("-rot")?;
                }
            }
            Self::Block { ty, .. } => f.write_str(&ty.name().to_ascii_lowercase())?,
        }
        if self.leaves_head() { f.write_str("-nohead") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Scheme, SchemeError> {
        text.parse()
    }

    fn int(text: &str) -> Int {
        match parse(text) {
            Ok(Scheme::Int(int)) => int,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_grammar_is_kept_to_the_letter() {
        assert_eq!(parse("fp16"), Ok(Scheme::Float16));
        let group = NonZeroU32::new(32);
        assert_eq!(int("int4-g32-rot-nohead"), Int { bits: 4, group, rot: true, nohead: true });
        assert_eq!(int("int3"), Int { bits: 3, group: None, rot: false, nohead: false });
        assert_eq!(parse("q4_k"), Ok(Scheme::Block { ty: BlockType::Q4K, nohead: false }));
        assert_eq!(parse("Q8_0-nohead"), Ok(Scheme::Block { ty: BlockType::Q8_0, nohead: true }));
        for text in ["", "int", "int5", "int16", "int04", "int4x", "int-g32"] {
            let error = parse(text).unwrap_err();
            let unknown = matches!(error, SchemeError::Unknown { .. });
            assert!(
                if text.is_empty() { unknown } else { matches!(error, SchemeError::Bits { .. }) },
                "{text}: {error}"
            );
        }
        for text in ["fp32", "FP16", "Int4", " int4", "q4_k_m", "q9", "rot", "-rot"] {
            assert!(matches!(parse(text), Err(SchemeError::Unknown { .. })), "{text}");
        }
        for text in ["int4-g", "int4-g0", "int4-g-1", "int4-g+8", "int4-g08", "int4-g99999999999", "int4-gx"]
        {
            assert!(matches!(parse(text), Err(SchemeError::Group { .. })), "{text}: {:?}", parse(text));
        }
        for text in [
            "int4-",
            "int4-rot-g32",
            "int4-nohead-rot",
            "int4-rot-rot",
            "int4-g32-g32",
            "int4-G32",
            "int4-head",
            "fp16-nohead",
            "fp16-",
            "q4_k-rot",
            "q4_k-",
            "q4_k-nohead-nohead",
        ] {
            assert!(matches!(parse(text), Err(SchemeError::Suffix { .. })), "{text}: {:?}", parse(text));
        }
        assert!(matches!(parse("iq4_nl"), Err(SchemeError::NotMade { .. })));
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(
            bits in prop::sample::select(vec![2u8, 3, 4, 8]),
            group in prop::option::of(1u32..5000),
            rot: bool,
            nohead: bool,
        ) {
            let group = group.and_then(NonZeroU32::new);
            let scheme = Scheme::Int(Int { bits, group, rot, nohead });
            prop_assert_eq!(scheme.to_string().parse::<Scheme>(), Ok(scheme));
        }

        #[test]
        fn any_word_is_read_as_it_is_written_or_refused(
            text in "(fp16|int[0-9]{0,2}|q[2-8]_[0k1]|x)(-(g[0-9]{0,3}|rot|nohead|[a-z]?)){0,4}",
        ) {
            if let Ok(scheme) = text.parse::<Scheme>() {
                prop_assert_eq!(scheme.to_string(), text);
            }
        }

        /// Nothing moves by more than half a step; what is on the grid stays.
        #[test]
        fn an_error_is_at_most_half_a_step(row in prop::collection::vec(-8f32..8.0, 1..80), bits in prop::sample::select(vec![2u8, 3, 4, 8])) {
            let int = Int { bits, group: None, rot: false, nohead: false };
            let step = row.iter().fold(0f32, |most, value| most.max(value.abs())) / int.qmax();
            let mut there = row.clone();
            int.apply(&mut there, None);
            for (a, b) in row.iter().zip(&there) {
                prop_assert!((a - b).abs() <= step * 0.500_01 + 1e-8, "{} {} {}", a, b, step);
            }
        }
    }

    #[test]
    fn a_row_by_hand() {
        // int4: qmax 7, absmax 7, s 1: ties go to even numbers.
        let mut row = [7.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49, -6.51];
        int("int4").apply(&mut row, None);
        assert_eq!(row, [7.0, 0.0, 2.0, 2.0, 0.0, -2.0, -2.0, 0.0, -7.0]);
        // int2: qmax 1, absmax 3, s 3.
        let mut row = [3.0, -3.0, 1.6, 1.5, -1.4];
        int("int2").apply(&mut row, None);
        assert_eq!(row, [3.0, -3.0, 3.0, 0.0, 0.0]);
        // int8 in groups of 2, the last one short: scales of their own.
        let mut row = [127.0, 1.4, 1.27, 0.006, 5.0];
        int("int8-g2").apply(&mut row, None);
        assert_eq!(row[..2], [127.0, 1.0]);
        assert!((row[3] - 0.01).abs() < 1e-6, "{row:?}");
        assert_eq!(row[4], 5.0);
        // Nothing but zeros: the smallest scale, and zeros again.
        let mut row = [0.0; 5];
        int("int4").apply(&mut row, None);
        assert_eq!(row, [0.0; 5]);
        // Below the smallest scale values fall to zero.
        let mut row = [1e-9, -4e-9];
        int("int4").apply(&mut row, None);
        assert_eq!(row, [0.0, 0.0]);
    }

    #[test]
    fn quants_end_one_below_the_negative_of_the_largest() {
        assert_eq!(quant(100.0, 1.0, 7.0), 7.0);
        assert_eq!(quant(-7.6, 1.0, 7.0), -8.0);
        assert_eq!(quant(-100.0, 1.0, 7.0), -8.0);
        assert_eq!(quant(-100.0, 1.0, 1.0), -2.0);
    }

    #[test]
    fn bits_count_the_scales() {
        let bits = |text: &str, cols| parse(text).unwrap().bits(cols);
        assert_eq!(bits("fp16", 64), 16.0);
        assert_eq!(bits("int4", 64), 4.25);
        assert_eq!(bits("int4-g32", 64), 4.5);
        assert_eq!(bits("int4-g48", 64), 4.5);
        assert_eq!(bits("q4_k", 256), 4.5);
        assert_eq!(bits("q8_0", 64), 8.5);
        // 640 is not whole blocks of 256.
        assert_eq!(bits("q4_k", 640), bits("q5_0", 640));
        assert_eq!(bits("q6_k", 640), bits("q8_0", 640));
        assert_eq!(bits("q2_k", 48), 16.0);
    }
}
