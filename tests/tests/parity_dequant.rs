//! Dequantisation against the PyPI package `gguf`, bit for bit, on blocks of all byte patterns.

use zen_edge_kernels::format::{BlockType, dequantize};
use zen_edge_tests::fixture;

fn manifest() -> serde_json::Value {
    let path = fixture("dequant/manifest.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_type_is_covered() {
    let manifest = manifest();
    let covered: Vec<_> =
        manifest["types"].as_array().unwrap().iter().map(|t| t["type"].as_str().unwrap()).collect();
    for ty in BlockType::ALL {
        assert!(covered.contains(&ty.name()), "{ty} has no fixture");
    }
    assert_eq!(covered.len(), BlockType::ALL.len());
}

#[test]
fn blocks_dequantise_as_gguf_does_bit_for_bit() {
    let manifest = manifest();
    let mut wrong = Vec::new();
    for entry in manifest["types"].as_array().unwrap() {
        let number = |key: &str| usize::try_from(entry[key].as_u64().unwrap()).unwrap();
        let ty = BlockType::from_ggml_id(u32::try_from(number("ggml_id")).unwrap()).unwrap();
        assert_eq!(ty.name(), entry["type"]);
        assert_eq!((ty.block_bytes(), ty.block_len()), (number("block_bytes"), number("block_len")), "{ty}");
        let file = std::fs::read(fixture("dequant").join(entry["file"].as_str().unwrap())).unwrap();
        let blocks = number("blocks");
        let (bytes, want) = file.split_at(blocks * ty.block_bytes());
        let want: Vec<u32> =
            want.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(want.len(), blocks * ty.block_len(), "{ty}: {} bytes", file.len());

        let mut got = vec![f32::NAN; want.len()];
        dequantize(ty, bytes, &mut got);
        // A run and its blocks one by one: a fast path over many blocks must not differ.
        let mut alone = vec![f32::NAN; want.len()];
        for (bytes, out) in bytes.chunks_exact(ty.block_bytes()).zip(alone.chunks_exact_mut(ty.block_len())) {
            dequantize(ty, bytes, out);
        }
        for (how, got) in [("together", &got), ("one by one", &alone)] {
            let differ = |&i: &usize| got[i].to_bits() != want[i];
            if let Some(i) = (0..want.len()).find(differ) {
                let count = (0..want.len()).filter(differ).count();
                wrong.push(format!(
                    "{ty} {how}: {count} of {} values differ, the first in block {} at {}: {:e} ({:08x}), gguf gives {:e} ({:08x})",
                    want.len(), i / ty.block_len(), i % ty.block_len(),
                    got[i], got[i].to_bits(), f32::from_bits(want[i]), want[i],
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
