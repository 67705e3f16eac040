//! Every operation of every instruction set against the portable one, on random and on extreme operands.

use super::*;
use crate::isa::{Isa, Task, dispatch};
use crate::testing::Random;

/// One operation on two vectors and a third; eight words come back.
struct Operation {
    name: &'static str,
    a: [u32; LANES],
    b: [u32; LANES],
}

impl Task for Operation {
    type Output = Vec<u32>;

    // Inlined, as every task: an instruction that is written as assembly needs its instruction set around it.
    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn run<S: Simd>(self) -> Vec<u32> {
        // SAFETY: the caller gives the instruction set; the arrays hold a vector.
        unsafe {
            let (a, b) = (S::i_load(self.a.as_ptr().cast()), S::i_load(self.b.as_ptr().cast()));
            let (x, y) = (S::f_load(self.a.as_ptr().cast()), S::f_load(self.b.as_ptr().cast()));
            let float = |v: S::F| {
                let mut out = vec![0f32; LANES];
                S::f_store(out.as_mut_ptr(), v);
                out.into_iter().map(f32::to_bits).collect()
            };
            let int = |v: S::I| {
                let mut out = vec![0u32; LANES];
                S::i_store(out.as_mut_ptr().cast(), v);
                out
            };
            match self.name {
                "f_splat" => float(S::f_splat(f32::from_bits(self.a[0]))),
                "f_add" => float(S::f_add(x, y)),
                "f_sub" => float(S::f_sub(x, y)),
                "f_mul" => float(S::f_mul(x, y)),
                "f_div" => float(S::f_div(x, y)),
                "f_max" => float(S::f_max(x, y)),
                "f_min" => float(S::f_min(x, y)),
                "f_magnitude" => int(S::f_magnitude(x)),
                "f_from_bits" => float(S::f_from_bits(a)),
                "f_from_i" => float(S::f_from_i(a)),
                "i_from_f" => int(S::i_from_f(x)),
                "i_splat" => int(S::i_splat(self.a[0] as i32)),
                "i_from_bits" => int(S::i_from_bits(x)),
                "i_from_u8" => int(S::i_from_u8(u64::from(self.a[0]) | u64::from(self.b[0]) << 32)),
                "i_from_u16" => int(S::i_from_u16(self.a.as_ptr().cast())),
                "i_and" => int(S::i_and(a, b)),
                "i_add" => int(S::i_add(a, b)),
                "i_sub" => int(S::i_sub(a, b)),
                "i_max" => int(S::i_max(a, b)),
                "i_shl" => int(S::i_shl(a, self.b[0] % 32)),
                "i_sar" => int(S::i_sar(a, self.b[0] % 32)),
                "i_blend16" => int(S::i_blend16(a, b)),
                "i_dot16" => int(S::i_dot16(a, b)),
                "i_store_low_bytes" => {
                    let mut out = [0i8; LANES];
                    S::i_store_low_bytes(out.as_mut_ptr(), S::i_sar(a, 24));
                    out.into_iter().map(|byte| byte as u32).collect()
                }
                "f_trees" => {
                    let mut vectors = [x; LANES];
                    for (i, vector) in vectors.iter_mut().enumerate() {
                        *vector = S::f_mul(if i % 2 == 0 { x } else { y }, S::f_splat(1.0 + i as f32));
                    }
                    float(S::f_trees(vectors))
                }
                "i_xor" => int(S::i_xor(a, b)),
                "i_dot4" | "i_dot4_signed" => {
                    let signed = self.name == "i_dot4_signed";
                    let (w, a) = self.bytes(signed);
                    let (w, a) = (S::i_load(w.as_ptr().cast()), S::i_load(a.as_ptr().cast()));
                    // What is added to leaves room for 32 bits.
                    let acc = S::i_sar(b, 4);
                    int(if signed { S::i_dot4_signed(acc, w, a) } else { S::i_dot4(acc, w, a) })
                }
                // Sixteen lanes: what the two halves say.
                "f16" => {
                    let wide = S::f16_from(x, y);
                    let [low, high] = S::f16_halves(wide);
                    let mut out = [float(low), float(high)].concat();
                    let mut memory = [0.0f32; 2 * LANES];
                    S::f16_store(
                        memory.as_mut_ptr(),
                        S::f16_add(wide, S::f16_splat(f32::from_bits(self.b[0]))),
                    );
                    out.extend(memory.map(f32::to_bits));
                    S::f16_store(memory.as_mut_ptr(), S::f16_sub(wide, S::f16_load(memory.as_ptr())));
                    out.extend(memory.map(f32::to_bits));
                    S::f16_store(memory.as_mut_ptr(), S::f16_mul(wide, S::f16_from(y, x)));
                    out.extend(memory.map(f32::to_bits));
                    out
                }
                "i16" => {
                    let mut memory = [0i32; 2 * LANES];
                    for (memory, word) in memory.iter_mut().zip(self.a.iter().chain(&self.b)) {
                        *memory = *word as i32;
                    }
                    let [low, high] = S::f16_halves(S::f16_from_i(S::i16_load_high(memory.as_ptr())));
                    let both = S::f16_halves(S::f16_from_i(S::i16_from(a, b)));
                    let small = S::f16_from(S::f_from_i(S::i_sar(a, 10)), S::f_from_i(S::i_sar(b, 10)));
                    let [rounded, _] = S::f16_halves(S::f16_from_i(S::i16_from_f(small)));
                    [low, high, both[0], both[1], rounded].into_iter().flat_map(float).collect()
                }
                // Sums of at most 22 bits, scales of eight.
                "f16_from_sum" => {
                    let half = |word: u32| (word as i32 % 1024) & 0xffff | ((word >> 16) as i32 % 1024) << 16;
                    let sum = S::sum_of(half(self.a[0]), half(self.b[0]));
                    let scale =
                        f32::from((self.a[1] % 64) as i8) * if self.b[1] & 1 == 0 { 1.0 } else { -1.0 };
                    let floats =
                        [S::f16_from_sum(sum), S::f16_from_scaled_sum(S::sum_of_none(), S::f16_splat(1.0))];
                    let small = S::sum_of(half(self.a[2]) & 0x00ff_00ff, half(self.b[2]) & 0x00ff_00ff);
                    let scaled = S::f16_from_scaled_sum(small, S::f16_splat(scale));
                    [S::f16_halves(floats[0]), S::f16_halves(floats[1]), S::f16_halves(scaled)]
                        .into_iter()
                        .flatten()
                        // Minus zero and zero are one sum.
                        .flat_map(|v| float(S::f_add(v, S::f_splat(0.0))))
                        .collect()
                }
                // Weights of 0 to 63, or signed; activations never -128. Which lane a product goes to is open.
                "i_quads" | "i_quads_signed" => {
                    let signed = self.name == "i_quads_signed";
                    let (w, a) = self.bytes(signed);
                    let (w, a) = (S::i_load(w.as_ptr().cast()), S::i_load(a.as_ptr().cast()));
                    let lanes = int(if signed { S::i_quads_signed(w, a) } else { S::i_quads(w, a) });
                    lanes
                        .chunks(4)
                        .map(|half| half.iter().fold(0u32, |sum, lane| sum.wrapping_add(*lane)))
                        .collect()
                }
                "i_halves" => {
                    let mut rows = [a; LANES];
                    for (i, row) in rows.iter_mut().enumerate() {
                        *row = S::i_add(S::i_shl(a, i as u32), b);
                    }
                    S::i_halves(rows).into_iter().flat_map(int).collect()
                }
                "i_transpose" => {
                    let mut rows = [a; LANES];
                    for (i, row) in rows.iter_mut().enumerate() {
                        *row = S::i_add(S::i_shl(a, i as u32), b);
                    }
                    let memory: Vec<u32> = rows.into_iter().flat_map(int).collect();
                    let from = core::array::from_fn(|r| memory[LANES * r..].as_ptr().cast());
                    let transposed = S::i_transpose(rows).into_iter().flat_map(int);
                    transposed.chain(S::i_load_transposed(from).into_iter().flat_map(int)).collect()
                }
                other => unreachable!("{other} is not an operation"),
            }
        }
    }
}

impl Operation {
    /// Weights of 0 to 63, or signed, and activations, never -128.
    fn bytes(&self, signed: bool) -> ([u32; LANES], [u32; LANES]) {
        let w = self.a.map(|w| if signed { w } else { w & 0x3f3f_3f3f });
        let a = self.b.map(|a| u32::from_le_bytes(a.to_le_bytes().map(|a| if a == 128 { 127 } else { a })));
        (w, a)
    }
}

const OPERATIONS: [&str; 35] = [
    "f_trees",
    "i_xor",
    "i_dot4",
    "i_dot4_signed",
    "f16",
    "i16",
    "f16_from_sum",
    "f_splat",
    "f_add",
    "f_sub",
    "f_mul",
    "f_div",
    "f_max",
    "f_min",
    "f_magnitude",
    "f_from_bits",
    "f_from_i",
    "i_from_f",
    "i_splat",
    "i_add",
    "i_sub",
    "i_max",
    "i_shl",
    "i_sar",
    "i_blend16",
    "i_dot16",
    "i_store_low_bytes",
    "i_from_bits",
    "i_from_u8",
    "i_from_u16",
    "i_and",
    "i_quads",
    "i_quads_signed",
    "i_halves",
    "i_transpose",
];

/// Words that are extreme as floats, as integers or as 16-bit halves.
const EXTREMES: [u32; 16] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x8000_7fff,
    0x7fff_8000,
    0x3f80_0000,
    0xbf00_0000,
];

fn operands(name: &str, random: &mut Random, round: usize) -> [u32; LANES] {
    core::array::from_fn(|_| {
        let word = random.next() as u32;
        match name {
            // Halves, ties among them, inside the range that the trait states.
            "i_from_f" => {
                let whole = (word >> 9) as f32 / [1.0, 2.0, 8.0, 4096.0][round % 4] - 2.0;
                if word & 1 == 0 {
                    whole.min(4_194_303.0).to_bits()
                } else {
                    (-whole).max(-4_194_303.0).to_bits()
                }
            }
            // The sum of -32768 · -32768 twice is outside an i32, and no kernel gives it.
            "i_dot16" => {
                let half = |v: u32| if v & 0xffff == 0x8000 { 0x8001 } else { v & 0xffff };
                let word = if round.is_multiple_of(2) { word } else { EXTREMES[word as usize % 16] };
                half(word) | half(word >> 16) << 16
            }
            _ if round.is_multiple_of(2) => EXTREMES[word as usize % EXTREMES.len()],
            // Floats whose exponents are near one another, so that sums round.
            name if name.starts_with("f_") && round % 4 == 1 => (word & 0x83ff_ffff) | 0x3c00_0000,
            _ => word,
        }
    })
}

#[test]
fn every_operation_is_the_portable_one() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        let mut random = Random::new(5);
        for name in OPERATIONS {
            for round in 0..400 {
                let (a, b) = (operands(name, &mut random, round), operands(name, &mut random, round));
                let expected = dispatch(Isa::Scalar, Operation { name, a, b });
                let found = dispatch(isa, Operation { name, a, b });
                let same = |(x, y): (&u32, &u32)| {
                    // Which NaN comes out of an arithmetic operation is not defined.
                    let nan = |v: u32| f32::from_bits(v).is_nan();
                    let floats = name.starts_with("f_") && name != "f_magnitude" || name == "f16";
                    x == y || floats && nan(*x) && nan(*y)
                };
                assert!(
                    found.len() == expected.len() && found.iter().zip(&expected).all(same),
                    "{isa} {name}({a:x?}, {b:x?}) = {found:x?}, not {expected:x?}"
                );
            }
        }
    }
}
