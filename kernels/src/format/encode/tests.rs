use super::*;
use crate::format::dequantize;
use crate::testing::Random;

const ENCODED: [BlockType; 13] = [
    BlockType::F32,
    BlockType::F16,
    BlockType::BF16,
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q8_0,
    BlockType::Q2K,
    BlockType::Q3K,
    BlockType::Q4K,
    BlockType::Q5K,
    BlockType::Q6K,
];

fn decoded(ty: BlockType, bytes: &[u8], len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    dequantize(ty, bytes, &mut out);
    out
}

fn squared(a: &[f32], b: &[f32], weights: impl Iterator<Item = f32>) -> f64 {
    a.iter()
        .zip(b)
        .zip(weights)
        .map(|((a, b), w)| f64::from(w) * (f64::from(*a) - f64::from(*b)).powi(2))
        .sum()
}

/// About normal.
fn gaussian(random: &mut Random, n: usize) -> Vec<f32> {
    (0..n).map(|_| (0..6).map(|_| random.unit()).sum::<f32>() * 0.02).collect()
}

/// What a block decodes to can be stored without any error: layouts and searches agree with the decoder.
#[test]
fn what_was_decoded_is_encoded_again() {
    let mut random = Random::new(7);
    for ty in ENCODED {
        let block: Vec<u8> = loop {
            let mut block = random.block(ty);
            if ty == BlockType::Q6K {
                // A scale of -128, which the search puts the largest at.
                block[192] = 128;
            }
            let values = decoded(ty, &block, ty.block_len());
            if values.iter().any(|v| v.abs() > 1e-3) {
                break block;
            }
        };
        let values = decoded(ty, &block, ty.block_len());
        let again = decoded(ty, &encode(ty, &values, None).unwrap(), values.len());
        let error = (squared(&values, &again, std::iter::repeat(1.0))
            / squared(&values, &vec![0.0; values.len()], std::iter::repeat(1.0)))
        .sqrt();
        let allowed = match ty.block_len() {
            1 => 0.0,
            32 => 0.05,
            _ => 0.15,
        };
        assert!(error <= allowed, "{ty}: {error}");
    }
}

/// The bytes of a group with a part in every place, through `decode`.
#[test]
fn packing_is_decoding_backwards() {
    use crate::format::decode as f;
    fn check<F: pack::Pack>(random: &mut Random) {
        for _ in 0..50 {
            let block = random.block(F::TYPE);
            let mut group = Group::new();
            F::decode(&block, &mut group);
            let mut again = vec![0; block.len()];
            F::pack(&group, &mut again);
            assert_eq!(block, again, "{}", F::TYPE);
        }
    }
    let random = &mut Random::new(3);
    check::<f::Q4_0>(random);
    check::<f::Q4_1>(random);
    check::<f::Q5_0>(random);
    check::<f::Q5_1>(random);
    check::<f::Q8_0>(random);
    check::<f::Q2K>(random);
    check::<f::Q3K>(random);
    check::<f::Q4K>(random);
    check::<f::Q5K>(random);
    check::<f::Q6K>(random);
}

/// Errors of normal values, relative to their size, that no path may exceed: a search that got lost would.
#[test]
fn errors_are_those_of_the_format() {
    let values = gaussian(&mut Random::new(11), 256 * 64);
    let size = squared(&values, &vec![0.0; values.len()], std::iter::repeat(1.0));
    let most = [
        (BlockType::F16, 3e-4),
        (BlockType::BF16, 3e-3),
        (BlockType::Q8_0, 0.006),
        (BlockType::Q6K, 0.018),
        (BlockType::Q5_1, 0.036),
        (BlockType::Q5_0, 0.041),
        (BlockType::Q5K, 0.036),
        (BlockType::Q4_1, 0.074),
        (BlockType::Q4_0, 0.083),
        (BlockType::Q4K, 0.072),
        (BlockType::Q3K, 0.150),
        (BlockType::Q2K, 0.270),
    ];
    for (ty, most) in most {
        let again = decoded(ty, &encode(ty, &values, None).unwrap(), values.len());
        let error = (squared(&values, &again, std::iter::repeat(1.0)) / size).sqrt();
        assert!(error < most, "{ty}: {error}");
    }
}

#[test]
fn weights_lower_the_weighted_error() {
    let mut random = Random::new(5);
    let values = gaussian(&mut random, 512 * 8);
    let weights: Vec<f32> = (0..512).map(|_| random.unit().abs().powi(4) * 30.0).collect();
    for ty in ENCODED.into_iter().filter(|ty| ty.block_len() > 1) {
        let error = |bytes: Vec<u8>| {
            squared(&values, &decoded(ty, &bytes, values.len()), weights.iter().cycle().copied())
        };
        let (plain, weighted) =
            (error(encode(ty, &values, None).unwrap()), error(encode(ty, &values, Some(&weights)).unwrap()));
        assert!(weighted < 0.9 * plain, "{ty}: {weighted} is not below {plain}");
    }
}

#[test]
fn threads_and_instruction_sets_give_the_same_bytes() {
    let mut random = Random::new(9);
    let values = random.activations(CHUNK * 2 + 512);
    for ty in ENCODED {
        let one = encode_on(Isa::Scalar, &Pool::single(), ty, &values, None).unwrap();
        assert_eq!(one, encode_in(&Pool::new(3), ty, &values, None).unwrap(), "{ty}");
    }
}

#[test]
fn wrong_input_is_an_error() {
    use EncodeError as E;
    let ones = [1.0f32; 256];
    assert!(matches!(encode(BlockType::IQ4XS, &ones, None), Err(E::Unsupported { .. })));
    assert!(matches!(encode(BlockType::Q4K, &ones[..255], None), Err(E::Length { len: 255, .. })));
    let mut bad = ones;
    bad[17] = f32::NAN;
    assert!(matches!(encode(BlockType::Q4_0, &bad, None), Err(E::NotFinite { index: 17, .. })));
    bad[17] = f32::NEG_INFINITY;
    assert!(matches!(encode(BlockType::F32, &bad, None), Err(E::NotFinite { index: 17, .. })));
    assert!(matches!(encode(BlockType::Q4_0, &ones, Some(&[])), Err(E::WeightsLength { weights: 0, .. })));
    assert!(matches!(encode(BlockType::Q4_0, &ones, Some(&ones[..33])), Err(E::WeightsLength { .. })));
    assert!(matches!(encode(BlockType::Q4K, &ones, Some(&ones[..32])), Err(E::WeightsLength { .. })));
    let mut weights = ones;
    weights[3] = -1.0;
    assert!(matches!(encode(BlockType::Q4_0, &ones, Some(&weights)), Err(E::Weight { index: 3, .. })));
    bad = ones;
    bad[40] = 1e30;
    for ty in [BlockType::F16, BlockType::Q4_0, BlockType::Q8_0] {
        let index = if ty == BlockType::F16 { 40 } else { 32 };
        assert_eq!(encode(ty, &bad, None), Err(E::TooLarge { ty, index }));
    }
    assert_eq!(encode(BlockType::Q4K, &bad, None), Err(E::TooLarge { ty: BlockType::Q4K, index: 0 }));
    assert_eq!(encode(BlockType::Q4K, &[], None), Ok(Vec::new()));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(if cfg!(debug_assertions) { 48 } else { 512 }))]

    /// Any finite numbers, of every magnitude: bytes whose values are finite and no further off than zero would be, or the
    /// error that they are too large.
    #[test]
    fn any_finite_values_are_encoded_or_refused(
        bits in proptest::collection::vec(proptest::prelude::any::<u32>(), 256),
        weights in proptest::option::of(proptest::collection::vec(0u32..0x7f80_0000, 256)),
        shift in 0u32..140,
    ) {
        // All magnitudes at once, and within a window of them.
        let wild: Vec<f32> = bits.iter().map(|b| f32::from_bits(*b)).map(|v| if v.is_finite() { v } else { 0.0 }).collect();
        let near: Vec<f32> = bits.iter().map(|b| f32::from_bits(b & 0x80ff_ffff | shift << 23)).collect();
        let weights: Option<Vec<f32>> = weights.map(|w| w.into_iter().map(f32::from_bits).collect());
        for values in [wild, near, vec![0.0; 256], vec![f32::MAX; 256], vec![-f32::MIN_POSITIVE / 8.0; 256], vec![0.37; 256], vec![-2.5; 256]] {
            for ty in ENCODED {
                match encode(ty, &values, weights.as_deref()) {
                    Err(error) => proptest::prop_assert!(matches!(error, EncodeError::TooLarge { .. }), "{error}"),
                    Ok(bytes) => {
                        let back = decoded(ty, &bytes, 256);
                        proptest::prop_assert!(back.iter().all(|v| v.is_finite()));
                        if weights.is_none() {
                            let zero = squared(&values, &[0.0; 256], std::iter::repeat(1.0));
                            let error = squared(&values, &back, std::iter::repeat(1.0));
                            proptest::prop_assert!(error <= zero * 1.001, "{ty}: {error} > {zero}");
                        }
                    }
                }
            }
        }
    }
}
