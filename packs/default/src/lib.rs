//! The default pack: a small Qwen3-architecture backbone with task and route heads, as bytes in the program.
//!
//! So `route` works on a fresh clone, offline, with no download. What the pack can and cannot do, with its held-out
//! figures, stands in the package's README.md; how it was made, in `training/` of the repository.

use std::sync::Arc;
use zen_edge_core::pack::{Pack, Part, files};
use zen_edge_core::source::Memory;

/// The pack, ready for [`Router::load`](zen_edge_core::router::Router::load). Nothing is copied but its text files.
///
/// ```
/// use zen_edge_core::router::{Request, Router, RouterOptions};
///
/// let router = Router::load(&zen_edge_default_pack::pack(), &RouterOptions::default())?;
/// let outcome = router.route("write a python function to reverse a linked list", &Request::default())?;
/// assert_eq!(outcome.decision.task.name(), "code");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn pack() -> Pack {
    let name = |file: &str| format!("default pack/{file}");
    Pack {
        model: Arc::new(Memory::new(name(files::MODEL), MODEL)),
        heads: Arc::new(Memory::new(name(files::HEADS), HEADS)),
        config: Part::new(name(files::CONFIG), CONFIG),
        catalog: Some(Part::new(name(files::CATALOG[0]), CATALOG)),
        policy: Some(Part::new(name(files::POLICY), POLICY)),
    }
}

/// The backbone: a GGUF file, Q4_K_M, with its tokenizer.
pub const MODEL: &[u8] = include_bytes!("../model.gguf");

/// The three linear heads: a safetensors file with the six F32 tensors `{task,route,feature}_head.{weight,bias}`.
pub const HEADS: &[u8] = include_bytes!("../heads.safetensors");

/// `router_config.json`: tasks, route rows, the truncation rule, temperatures, and the hashes of the two files above.
pub const CONFIG: &[u8] = include_bytes!("../router_config.json");

/// `catalog.yaml`: the models that can be chosen, with their prices.
pub const CATALOG: &[u8] = include_bytes!("../catalog.yaml");

/// `router_policy.yaml`: what the rules prefer.
pub const POLICY: &[u8] = include_bytes!("../router_policy.yaml");

/// `selftest.json`: prompts with their token ids and the read-out of the dequantised weights in float32, so that an
/// engine can check itself: by cosine, because an engine with 8-bit activations does not give the same floats.
pub const SELFTEST: &[u8] = include_bytes!("../selftest.json");

/// The pack's name, as `base` in the config has it.
pub const NAME: &str = "zen-edge-default";

/// The snippets of docs/rust.md, docs/learning.md and docs/bench.md.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/rust.md")]
    mod rust {}
    #[doc = include_str!("../../../docs/learning.md")]
    mod learning {}
    #[doc = include_str!("../../../docs/bench.md")]
    mod bench {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_their_names_say() {
        assert_eq!(&MODEL[..4], b"GGUF");
        let header = u64::from_le_bytes(HEADS[..8].try_into().expect("8 bytes")) as usize;
        assert!(header < HEADS.len());
        let header = std::str::from_utf8(&HEADS[8..8 + header]).expect("a safetensors header is UTF-8");
        for head in ["task_head", "route_head", "feature_head"] {
            for part in ["weight", "bias"] {
                assert!(header.contains(&format!("\"{head}.{part}\"")), "{head}.{part} is absent");
            }
        }
        for text in [CONFIG, CATALOG, POLICY, SELFTEST] {
            assert!(std::str::from_utf8(text).is_ok());
        }
    }

    #[test]
    fn pack_fits_its_budget() {
        let bytes = MODEL.len() + HEADS.len() + CONFIG.len() + CATALOG.len() + POLICY.len() + SELFTEST.len();
        assert!(bytes <= 16 << 20, "the default pack has {bytes} bytes; 16 MiB is its limit");
    }
}
