//! One suite for every kernel, against the definition, equal to the bit.

use super::*;
use crate::testing::Random;

/// A row-major matrix of random blocks: every bit pattern of the quants, finite scales of every size.
fn random_matrix(random: &mut Random, ty: BlockType, rows: usize, cols: usize) -> Matrix {
    let blocks = rows * cols / ty.block_len();
    let mut bytes = Vec::new();
    for _ in 0..blocks {
        bytes.extend(random.block(ty));
    }
    Matrix::new(ty, rows, cols, bytes.into()).unwrap()
}

fn check(isa: Isa, w: &Matrix, x: &[f32], pool: &Pool) {
    let tokens = x.len() / w.cols;
    let mut q = Activations::new();
    if w.is_quantized() {
        q.quantize(Isa::Scalar, &Pool::single(), x, w.cols);
    }
    let input = Input { x, q: &q };
    let expected = reference::matmul(w, input, tokens);
    let mut fast = Activations::new();
    if w.is_quantized() {
        fast.quantize(isa, pool, x, w.cols);
        assert_eq!(fast.q, q.q);
        assert_eq!(fast.sums, q.sums);
        assert_same(&fast.scale, &q.scale, "scales");
        assert_same(&fast.min, &q.min, "sums times scales");
    }
    // Unpacked panels, and row by row.
    for few in [0, usize::MAX] {
        let mut out = vec![f32::NAN; expected.len()];
        matmul_by(isa, pool, Input { x, q: &fast }, &mut [Product { w, out: &mut out }], few);
        assert_same(
            &out,
            &expected,
            &format!("{isa} {} {}x{} {tokens} tokens, few: {few}", w.ty, w.rows, w.cols),
        );
    }
}

fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        // Every NaN is alike: which one comes out of an operation is not defined.
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{what}: [{i}] {a:e} is not {b:e}");
    }
}

fn suite(isa: Isa, ty: BlockType) {
    if !isa.is_available() {
        eprintln!("SKIPPED {isa}: this processor lacks it");
        return;
    }
    let mut random = Random::new(7 + u64::from(ty.ggml_id()));
    let unit = ty.block_len().max(32);
    let pools = [Pool::single(), Pool::new(2), Pool::new(3)];
    // Odd rows, a whole panel, tails; one group, several, more than a chunk; every token tail.
    for (i, (rows, groups, tokens)) in
        [(1, 1, 1), (16, 1, 4), (17, 2, 5), (31, 1, 2), (33, 3, 3), (48, 2, 7), (7, 2, 13)]
            .into_iter()
            .enumerate()
    {
        let w = random_matrix(&mut random, ty, rows, groups * unit);
        let x = random.activations(tokens * w.cols);
        check(isa, &w, &x, &pools[i % pools.len()]);
    }
    let w = random_matrix(&mut random, ty, 18, 1024 + unit);
    check(isa, &w, &random.activations(6 * w.cols), &pools[0]);

    // Extremes: zeros, the largest quants of both signs, subnormals, huge values, an infinity, a NaN.
    let w = random_matrix(&mut random, ty, 16, 2 * unit);
    let n = w.cols;
    let mut rows = Vec::new();
    rows.extend(vec![0.0; n]);
    rows.extend((0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }));
    rows.extend((0..n).map(|i| f32::from_bits(i as u32 + 1)));
    rows.extend((0..n).map(|i| if i % 3 == 0 { 3e38 } else { -1e38 }));
    rows.extend((0..n).map(|i| if i == 40 % n { f32::INFINITY } else { 1.0 }));
    rows.extend((0..n).map(|i| if i == n - 1 { f32::NAN } else { 0.5 }));
    check(isa, &w, &rows, &pools[1]);
}

macro_rules! suites {
    ($($isa:ident: $variant:ident;)*) => {
        $(mod $isa {
            use super::*;
            suites!(@types $variant: f32 F32, f16 F16, bf16 BF16, q4_0 Q4_0, q4_1 Q4_1, q5_0 Q5_0, q5_1 Q5_1, q8_0 Q8_0,
                q2_k Q2K, q3_k Q3K, q4_k Q4K, q5_k Q5K, q6_k Q6K, iq4_nl IQ4NL, iq4_xs IQ4XS);
        })*
    };
    (@types $variant:ident: $($test:ident $type:ident),*) => {
        $(#[test]
        fn $test() {
            suite(Isa::$variant, BlockType::$type);
        })*
    };
}

suites! {
    scalar: Scalar;
}
#[cfg(target_arch = "x86_64")]
suites! {
    avx2: Avx2;
    avx_vnni: AvxVnni;
    avx512_vnni: Avx512Vnni;
}
#[cfg(target_arch = "aarch64")]
suites! {
    neon: Neon;
    neon_dotprod: NeonDotprod;
    neon_i8mm: NeonI8mm;
}
#[cfg(target_arch = "wasm32")]
suites! {
    simd128: Simd128;
    relaxed_simd: RelaxedSimd;
}

/// Weights that drive every partial sum to its bound: no 16-bit accumulator may overflow, every integer stays exact.
#[test]
fn c15_extreme_blocks_do_not_overflow() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for ty in BlockType::ALL {
            let cols = ty.block_len().max(32) * 2;
            for byte in [0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0] {
                let mut bytes = vec![byte; 16 * ty.row_bytes(cols).unwrap()];
                crate::testing::make_scales_finite(ty, &mut bytes);
                let w = Matrix::new(ty, 16, cols, bytes.into()).unwrap();
                for x in [1.0f32, -1.0] {
                    check(isa, &w, &vec![x; 4 * cols], &Pool::single());
                }
            }
        }
    }
}

#[test]
fn c13_products_of_one_input_run_together_on_odd_rows() {
    let mut random = Random::new(3);
    let (a, b) = (
        random_matrix(&mut random, BlockType::Q4K, 40, 256),
        random_matrix(&mut random, BlockType::Q6K, 17, 256),
    );
    let x = random.activations(3 * 256);
    let mut q = Activations::new();
    let pool = Pool::new(2);
    q.quantize(Isa::best(), &pool, &x, 256);
    let input = Input { x: &x, q: &q };
    let (mut y, mut z) = (vec![0.0; 3 * 40], vec![0.0; 3 * 17]);
    matmul(Isa::best(), &pool, input, &mut [Product { w: &a, out: &mut y }, Product { w: &b, out: &mut z }]);
    assert_eq!(y, reference::matmul(&a, input, 3));
    assert_eq!(z, reference::matmul(&b, input, 3));
}

#[test]
fn a_matrix_checks_its_bytes() {
    let error = Matrix::new(BlockType::Q4K, 2, 255, vec![].into()).unwrap_err();
    assert_eq!(error, MatrixError::PartialBlock { ty: BlockType::Q4K, cols: 255 });
    let error = Matrix::new(BlockType::Q4K, usize::MAX, 256, vec![0; 144].into()).unwrap_err();
    assert!(matches!(error, MatrixError::Size { expected: usize::MAX, found: 144, .. }));
    let error = Matrix::new(BlockType::Q4K, 2, 256, vec![0; 144].into()).unwrap_err();
    assert_eq!(error.to_string(), "2 x 256 Q4_K values need 288 bytes, not 144");
}
