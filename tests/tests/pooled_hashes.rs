//! The hidden state has the same bits on every instruction set, any number of threads, any chunk, on every machine: this
//! computes vectors and compares the SHA-256 of their bytes with what is stored in `fixtures/pooled-hashes.json`.
//!
//! `cargo xtask test` runs it natively, under emulators of other processors and in WebAssembly, against the same file.
//! Where a change of the arithmetic is meant, `ZEN_EDGE_STORE_HASHES=1 cargo test -p zen-edge-tests --test pooled_hashes`
//! writes the file anew; it does so only where every instruction set here agrees.

use serde_json::{Value, json};
use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, BackboneOptions, Pooling};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::gguf::testing::Builder;
use zen_edge_core::router::{Router, RouterOptions};
use zen_edge_core::source::Memory;
use zen_edge_default_pack as default_pack;
use zen_edge_kernels::format::BlockType;
use zen_edge_kernels::isa::Isa;

const STORED: &str = include_str!("../fixtures/pooled-hashes.json");

/// A prompt, and after how many tokens it is cut (0: it is whole). A text that is too short is repeated.
const PROMPTS: [(&str, &str, usize); 8] = [
    ("one token", "Hello", 1),
    ("English", "Write a Python function that reverses a linked list, and explain its complexity.", 0),
    (
        "German",
        "Welche Vor- und Nachteile hätte eine Wärmepumpe in einem Altbau von 1912? Bitte ausführlich.",
        0,
    ),
    ("Chinese", "请用通俗的语言解释量子纠缠，并举一个日常生活中的例子。", 0),
    ("Arabic", "اكتب رسالة رسمية إلى مدير الشركة تطلب فيها إجازة لمدة أسبوع.", 0),
    (
        "code",
        "fn main() {\n    let xs: Vec<u64> = (0..10).filter(|x| x % 2 == 0).collect();\n\tprintln!(\"{xs:?}\");\n}",
        0,
    ),
    ("Hindi and emoji", "मुझे दाल मखनी की रेसिपी बताओ 🍲🔥 — 4 people, 30 मिनट।", 65),
    ("512 tokens", "The quick brown fox – быстрая лиса – räser över hunden; 3.14159 ≠ 22/7. ", 512),
];

/// The chunk sizes and numbers of threads that a prompt goes through.
fn runs(tokens: usize) -> &'static [(usize, usize)] {
    // A long prompt takes an emulated processor seconds.
    if tokens > 60 { &[(512, 1), (33, 2)] } else { &[(512, 1), (512, 2), (33, 1), (33, 2)] }
}

fn sha256(vector: &[f32]) -> String {
    use sha2::Digest;
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    sha2::Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Every run of every prompt on one model; each prompt's hash.
fn hashes(model: &str, gguf: &Gguf, pooling: &Pooling, prompts: &[(&str, Vec<u32>)]) -> Vec<Value> {
    let mut hashes: Vec<Option<String>> = vec![None; prompts.len()];
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        for threads in [1, 2] {
            let options = BackboneOptions {
                isa: Some(isa),
                threads: Some(threads),
                pooling: pooling.clone(),
                ..BackboneOptions::default()
            };
            let backbone = Backbone::load(gguf, &options).unwrap_or_else(|e| panic!("{model}: {e}"));
            for ((name, ids), first) in prompts.iter().zip(&mut hashes) {
                for &(chunk, _) in runs(ids.len()).iter().filter(|run| run.1 == threads) {
                    let hash = sha256(&backbone.embed_chunked(ids, chunk).unwrap());
                    let first = first.get_or_insert_with(|| hash.clone());
                    assert_eq!(
                        *first, hash,
                        "{model}, {name}: {isa} with {threads} threads in chunks of {chunk} gives other bits"
                    );
                }
            }
        }
    }
    let entry = |((name, ids), hash): (&(&str, Vec<u32>), Option<String>)| json!({ "model": model, "prompt": name, "tokens": ids.len(), "sha256": hash });
    prompts.iter().zip(hashes).map(entry).collect()
}

/// Compares with the stored entries of `suite`, or stores them.
fn compare(suite: &str, found: Vec<Value>) {
    if std::env::var_os("ZEN_EDGE_STORE_HASHES").is_some() {
        let path = zen_edge_tests::fixture("pooled-hashes.json");
        // The two tests store one after the other, each its own part.
        static FILE: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _held = FILE.lock().unwrap();
        let mut all: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        all[suite] = found.into();
        std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(&all).unwrap())).unwrap();
        return;
    }
    let stored: Value = serde_json::from_str(STORED).unwrap();
    let stored = stored[suite].as_array().unwrap_or_else(|| panic!("nothing is stored for {suite}"));
    let here: Vec<_> = Isa::ALL.into_iter().filter(|isa| isa.is_available()).map(Isa::name).collect();
    println!("{} vectors on {}", found.len(), here.join(", "));
    for (found, stored) in found.iter().zip(stored) {
        assert_eq!(found, stored, "found, then stored; to store anew: ZEN_EDGE_STORE_HASHES=1");
    }
    assert_eq!(found.len(), stored.len());
}

#[test]
fn the_default_pack_gives_the_stored_bits() {
    let pack = default_pack::pack();
    let options = RouterOptions { threads: Some(1), cache_bytes: Some(0), ..RouterOptions::default() };
    let router = Router::load(&pack, &options).unwrap_or_else(|e| panic!("{e}"));
    let prompts: Vec<_> = PROMPTS
        .into_iter()
        .map(|(name, text, cut)| {
            let (mut ids, _) = router.encode(text, None);
            while ids.len() < cut {
                ids.extend_from_within(..ids.len().min(cut - ids.len()));
            }
            if cut > 0 {
                ids.truncate(cut);
            }
            (name, ids)
        })
        .collect();
    let gguf = Gguf::open(pack.model.clone()).unwrap();
    compare("default pack", hashes("default pack", &gguf, &Pooling::default(), &prompts));
    let pooling = "mean+last@1+mean@1+length".parse().unwrap();
    compare("default pack, pooled", hashes("default pack", &gguf, &pooling, &prompts));
}

/// Numbers of no pattern (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// A block of any bits, with scales that keep a layer's outputs near one.
    fn block(&mut self, ty: BlockType, out: &mut Vec<u8>) {
        let at: &[usize] = match ty {
            BlockType::F32 => return out.extend((self.unit() * 0.1).to_le_bytes()),
            // The upper half of a float is a bfloat16.
            BlockType::BF16 => return out.extend(&(self.unit() * 0.1).to_le_bytes()[2..]),
            BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4K | BlockType::Q5K => &[0, 2],
            BlockType::Q2K => &[80, 82],
            BlockType::Q3K => &[108],
            BlockType::Q6K => &[208],
            _ => &[0],
        };
        let start = out.len();
        out.extend((0..ty.block_bytes()).map(|_| self.next() as u8));
        // An f16 of 2^-14 … 2^-12 beside integer scales, of 2^-8 … 2^-6 where there are none.
        let exponent = if ty.block_len() == 256 { 1 } else { 7 };
        for at in at {
            let word = self.next();
            let scale = (word & 0x83ff) | (exponent + (word >> 32) % 3) << 10;
            out[start + at..start + at + 2].copy_from_slice(&(scale as u16).to_le_bytes());
        }
    }
}

/// A backbone of two layers; its matrices have the formats of `mix`, in turn.
fn tiny(architecture: &str, mix: &[BlockType], seed: u64) -> Gguf {
    const HIDDEN: u64 = 256;
    const FFN: u64 = 512;
    const HEAD: u64 = 64;
    let mut random = Random(seed);
    let key = |suffix: &str| format!("{architecture}.{suffix}");
    let mut file = Builder::new(architecture)
        .with(&key("block_count"), 2u32)
        .with(&key("context_length"), 512u32)
        .with(&key("embedding_length"), HIDDEN as u32)
        .with(&key("feed_forward_length"), FFN as u32)
        .with(&key("attention.head_count"), 4u32)
        .with(&key("attention.head_count_kv"), 2u32)
        .with(&key("attention.key_length"), HEAD as u32)
        .with(&key("attention.layer_norm_rms_epsilon"), 1e-6f32)
        .with(&key("attention.sliding_window"), 24u32)
        .with(&key("attention.sliding_window_pattern"), 2u32);
    let mut turn = mix.iter().cycle();
    let mut matrix = |file: Builder, random: &mut Random, name: &str, cols: u64, rows: u64| {
        let ty = *turn.next().expect("a mix names a format");
        let mut bytes = Vec::new();
        for _ in 0..cols * rows / ty.block_len() as u64 {
            random.block(ty, &mut bytes);
        }
        file.tensor(name, &[cols, rows], ty.ggml_id(), &bytes)
    };
    let norm = |file: Builder, random: &mut Random, name: &str, len: u64| {
        let weights: Vec<f32> = (0..len).map(|_| 1.0 + random.unit() * 0.5).collect();
        file.f32_tensor(name, &[len], &weights)
    };
    file = matrix(file, &mut random, "token_embd.weight", HIDDEN, 97);
    file = norm(file, &mut random, "output_norm.weight", HIDDEN);
    for layer in 0..2 {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let mut norms = vec![("attn_norm", HIDDEN), ("ffn_norm", HIDDEN)];
        if architecture != "llama" {
            norms.extend([("attn_q_norm", HEAD), ("attn_k_norm", HEAD)]);
        }
        if architecture == "gemma3" {
            norms.extend([("post_attention_norm", HIDDEN), ("post_ffw_norm", HIDDEN)]);
        }
        for (part, len) in norms {
            file = norm(file, &mut random, &name(part), len);
        }
        for (part, cols, rows) in [
            ("attn_q", HIDDEN, 4 * HEAD),
            ("attn_k", HIDDEN, 2 * HEAD),
            ("attn_v", HIDDEN, 2 * HEAD),
            ("attn_output", 4 * HEAD, HIDDEN),
            ("ffn_gate", HIDDEN, FFN),
            ("ffn_up", HIDDEN, FFN),
            ("ffn_down", FFN, HIDDEN),
        ] {
            file = matrix(file, &mut random, &name(part), cols, rows);
        }
    }
    Gguf::open(Arc::new(Memory::new(architecture, file.build()))).unwrap()
}

#[test]
fn tiny_backbones_of_every_format_give_the_stored_bits() {
    use BlockType::{BF16, F16, F32, IQ4NL, IQ4XS, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    let mixes: [(&str, &[BlockType]); 4] = [
        ("Q4_K, Q6_K", &[Q6K, Q4K, Q4K, Q6K, Q4K]),
        ("Q8_0", &[Q8_0]),
        ("every K-quant, IQ4_XS", &[Q2K, Q3K, Q4K, Q5K, Q6K, IQ4XS]),
        ("every small block, every float", &[Q4_0, Q4_1, F16, Q5_0, Q5_1, BF16, Q8_0, IQ4NL, F32]),
    ];
    let mut found = Vec::new();
    for (seed, architecture) in ["qwen3", "llama", "gemma3"].into_iter().enumerate() {
        for (i, (name, mix)) in mixes.iter().enumerate() {
            let gguf = tiny(architecture, mix, (10 * seed + i) as u64);
            let mut random = Random(77);
            let mut prompt = |n: usize| (0..n).map(|_| (random.next() % 97) as u32).collect::<Vec<u32>>();
            // One token; a few; more than a block of keys and than a window.
            let prompts = [("a", prompt(1)), ("b", prompt(6)), ("c", prompt(70))];
            found.extend(hashes(&format!("{architecture} {name}"), &gguf, &Pooling::default(), &prompts));
        }
    }
    compare("tiny backbones", found);
}
