//! Weights at the edge of what numbers hold: blocks of zeros, scales too small for a normal number, vectors of norm 0. Each
//! gives finite values, the same ones on every instruction set.

use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, BackboneError, BackboneOptions};
use zen_edge_core::gguf::{Gguf, TensorInfo};
use zen_edge_core::heads::Heads;
use zen_edge_core::pack::Pack;
use zen_edge_core::router::{Request, Router, RouterOptions};
use zen_edge_core::source::Memory;
use zen_edge_default_pack as files;
use zen_edge_kernels::isa::Isa;
use zen_edge_tests::fuzzing::small_model;

/// A file with the bytes of its tensors changed.
fn changed(mut file: Vec<u8>, change: impl Fn(&TensorInfo, &mut [u8])) -> Vec<u8> {
    let tensors = Gguf::open(Arc::new(Memory::new("model.gguf", file.clone()))).unwrap().tensors().to_vec();
    for tensor in tensors {
        let range = tensor.offset as usize..(tensor.offset + tensor.bytes) as usize;
        change(&tensor, &mut file[range]);
    }
    file
}

/// The vector of some tokens, which every instruction set of this machine gives alike.
fn vector(file: &[u8]) -> Result<Vec<f32>, BackboneError> {
    let gguf = Gguf::open(Arc::new(Memory::new("model.gguf", file.to_vec()))).unwrap();
    let mut vectors = Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(|isa| {
        let options = BackboneOptions { threads: Some(1), isa: Some(isa), ..BackboneOptions::default() };
        Backbone::load(&gguf, &options).unwrap().embed(&[0, 1, 2, 3, 4])
    });
    let first = vectors.next().unwrap();
    for other in vectors {
        match (&first, &other) {
            (Ok(first), Ok(other)) => {
                assert!(first.iter().zip(other).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
            (first, other) => assert!(first.is_err() && other.is_err(), "{first:?} {other:?}"),
        }
    }
    first
}

/// Q4_K and Q8_0, the blocks of the small models: their type, their bytes, and how many halves at their start are scales.
const BLOCKS: [(u32, usize, usize); 2] = [(12, 144, 2), (8, 34, 1)];

#[test]
fn blocks_of_zeros_are_zeros() {
    for architecture in ["qwen3", "llama", "gemma3"] {
        // Every matrix: nothing is added to the residual stream, whose norm is the embedding's.
        let matrices = changed(small_model(architecture), |tensor, bytes| {
            if tensor.dims.len() == 2 && tensor.name != "token_embd.weight" {
                bytes.fill(0);
            }
        });
        let stream = vector(&matrices).unwrap();
        assert!(stream.iter().all(|v| v.is_finite()) && stream.iter().any(|v| *v != 0.0), "{architecture}");
        // The embedding too: a vector of norm 0, not of 0 / 0.
        let nothing = changed(matrices, |tensor, bytes| {
            if tensor.name == "token_embd.weight" {
                bytes.fill(0);
            }
        });
        assert!(vector(&nothing).unwrap().iter().all(|v| *v == 0.0), "{architecture}");
    }
}

#[test]
fn scales_below_the_normal_numbers_are_numbers() {
    for architecture in ["qwen3", "llama", "gemma3"] {
        for scale in [1_u16, 0x03ff, 0x8001] {
            let file = changed(small_model(architecture), |tensor, bytes| {
                let Some((_, len, scales)) = BLOCKS.iter().find(|(id, ..)| *id == tensor.type_id) else {
                    return;
                };
                for block in bytes.chunks_exact_mut(*len) {
                    for half in block[..2 * scales].as_chunks_mut().0 {
                        *half = scale.to_le_bytes();
                    }
                }
            });
            let vector = vector(&file).unwrap();
            assert!(vector.iter().all(|v| v.is_finite()), "{architecture}, {scale:#06x}");
            assert!(
                vector.iter().any(|v| *v != 0.0),
                "{architecture}, {scale:#06x}: the scale was taken for 0"
            );
        }
        // What is no number is found.
        for scale in [0x7c00_u16, 0x7e00] {
            let file = changed(small_model(architecture), |tensor, bytes| {
                if tensor.name == "blk.0.ffn_down.weight" {
                    bytes[..2].copy_from_slice(&scale.to_le_bytes());
                }
            });
            assert!(matches!(vector(&file), Err(BackboneError::NotFinite)), "{architecture}, {scale:#06x}");
        }
    }
}

#[test]
fn a_vector_of_norm_0_is_answered_by_finite_numbers() {
    let whole = files::pack();
    let options = RouterOptions { threads: Some(1), ..RouterOptions::default() };
    let router = Router::load(&whole, &options).unwrap();
    let zeros = vec![0.0; router.backbone().vector_size()];
    let heads = Heads::from_bytes(files::HEADS, "heads.safetensors", router.config()).unwrap();
    let output = heads.apply(&zeros).unwrap();
    assert!(output.task.iter().chain(&output.route).chain(&output.features).all(|v| v.is_finite()));
    // The whole way, with a backbone that gives such vectors.
    let mut model = vec![0; whole.model.len() as usize];
    whole.model.read_at(0, &mut model).unwrap();
    let model = changed(model, |tensor, bytes| {
        if tensor.name == "output_norm.weight" {
            bytes.fill(0);
        }
    });
    let pack = Pack { model: Arc::new(Memory::new("model.gguf", model)), ..whole };
    let router = Router::load(&pack, &options).unwrap();
    for _ in 0..2 {
        let outcome = router
            .route("why is the sky blue?", &Request { user: Some("ann"), ..Request::default() })
            .unwrap();
        let decision = &outcome.decision;
        assert!(
            outcome.model().is_some() && decision.confidence.value().is_none_or(f32::is_finite),
            "{decision:?}"
        );
        assert!(decision.candidates.iter().all(|c| c.score.is_none_or(f64::is_finite)), "{decision:?}");
    }
}
