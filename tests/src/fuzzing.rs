//! What must hold for any bytes: one function for each reader of what other people wrote, and real files to begin from.
//!
//! The fuzz targets (fuzz/) and the replay in the tests (tests/fuzz_replay.rs) run the same functions. Each returns where
//! the bytes are refused and panics where something that must hold does not.

use fastrand::Rng;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};
use zen_edge_core::backbone::{self, Backbone, BackboneOptions};
use zen_edge_core::bandit::{Arms, Bandit, BanditOptions};
use zen_edge_core::catalog::Catalog;
use zen_edge_core::config::RouterConfig;
use zen_edge_core::decision::{Limits, Require};
use zen_edge_core::generate::{ChatTemplate, Message, RouteTag};
use zen_edge_core::gguf::{Gguf, testing::Builder};
use zen_edge_core::heads::Heads;
use zen_edge_core::inspect::inspect;
use zen_edge_core::policy::Policy;
use zen_edge_core::router::{Request, Router, RouterOptions};
use zen_edge_core::source::Memory;
use zen_edge_core::tensors::TensorFile;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_default_pack as pack;

/// A reader of hostile bytes.
pub struct Target {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// Reads the bytes; panics where something that must hold does not.
    pub run: fn(&[u8]),
    /// Real files to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 11] = [
    Target { name: "gguf", run: gguf, seeds: gguf_seeds },
    Target { name: "safetensors", run: safetensors, seeds: || vec![pack::HEADS.to_vec(), small_heads()] },
    Target { name: "heads", run: heads, seeds: || vec![small_heads()] },
    Target {
        name: "route_tag",
        run: route_tag,
        seeds: || vec![TAG.into(), TAG.replace("/>", "></route>").into()],
    },
    Target { name: "chat_template", run: chat_template, seeds: || vec![TEMPLATE.into()] },
    Target { name: "config", run: config, seeds: || vec![pack::CONFIG.to_vec(), SMALL_CONFIG.into()] },
    Target { name: "catalog", run: catalog, seeds: catalog_seeds },
    Target { name: "policy", run: policy, seeds: policy_seeds },
    Target { name: "bandit", run: bandit, seeds: bandit_seeds },
    Target { name: "tokenizer", run: tokenizer, seeds: text_seeds },
    Target { name: "route", run: route, seeds: text_seeds },
];

/// A backbone file: the container, its report, its tokenizer, its weights, and a forward pass where all of it stands.
pub fn gguf(bytes: &[u8]) {
    let source = || Arc::new(Memory::new("fuzz.gguf", bytes.to_vec()));
    let report = inspect(source());
    let Ok(gguf) = Gguf::open(source()) else { return };
    if let Ok(report) = report {
        assert!(serde_json::to_string(&report).is_ok());
    }
    if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
        let ids = tokenizer.encode("Hello <b>, 12 Ünï!", &EncodeOptions::default());
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.vocab_len()));
        tokenizer.decode(&ids, false);
    }
    let options = BackboneOptions { threads: Some(1), ..BackboneOptions::default() };
    let checked = backbone::check(&gguf);
    if let Ok(backbone) = Backbone::load(&gguf, &options) {
        checked.expect("what loads passes the check");
        // A file may describe a large model in few bytes only where its tensors are views of the same bytes.
        if backbone.multiply_adds() < 1 << 22
            && let Ok(vector) = backbone.embed(&[0, 1, 2])
        {
            assert!(vector.len() == backbone.hidden_size() && vector.iter().all(|v| v.is_finite()));
        }
    }
}

/// The container of heads.
pub fn safetensors(bytes: &[u8]) {
    let Ok(file) = TensorFile::open(Arc::new(Memory::new("fuzz.safetensors", bytes.to_vec()))) else {
        return;
    };
    for tensor in file.tensors() {
        let values = file.f32(&tensor.name);
        assert!(values.is_err() || values.is_ok_and(|values| values.len() as u64 == tensor.elements()));
    }
    assert!(inspect(file.source().clone()).is_ok());
}

/// Heads of the small config: what loads gives finite logits or an error.
pub fn heads(bytes: &[u8]) {
    static CONFIG: OnceLock<RouterConfig> = OnceLock::new();
    let config =
        CONFIG.get_or_init(|| RouterConfig::parse(SMALL_CONFIG.as_bytes(), "small").expect("it is sound"));
    let Ok(heads) = Heads::from_bytes(bytes, "fuzz.safetensors", config) else { return };
    let hidden: Vec<f32> = (0..heads.vector_size()).map(|i| i as f32 - 3.5).collect();
    if let Ok(output) = heads.apply(&hidden) {
        let finite = |values: &[f32]| values.iter().all(|v| v.is_finite());
        assert!(finite(&output.task) && finite(&output.route) && finite(&output.features));
    }
}

/// `router_config.json`.
pub fn config(bytes: &[u8]) {
    let Ok(config) = RouterConfig::parse(bytes, "fuzz.json") else { return };
    assert!(config.max_chars > 0 && config.max_tokens > 0 && config.hidden_size > 0);
    assert!(config.trained.as_ref().is_none_or(|rows| rows.len() == config.catalog.len()));
    drop(Catalog::of_ids(&config));
}

/// The catalog, YAML or JSON.
pub fn catalog(bytes: &[u8]) {
    let Ok(catalog) = Catalog::parse(bytes, "fuzz.yaml") else { return };
    for card in catalog.cards() {
        assert!(catalog.get(&card.id).is_some_and(|found| found.id == card.id), "{:?}", card.id);
        assert!(card.cost_per_1k >= 0.0 && card.answer_ms(100).is_none_or(|ms| ms >= 0.0));
    }
    assert!(serde_json::to_string(&catalog.report(None)).is_ok());
}

/// A route tag: what is read is written back to the letter, so that nothing else was in the text.
pub fn route_tag(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(tag) = text.parse::<RouteTag>() {
        assert_eq!(tag.to_string(), text);
    }
}

/// A chat template: it is refused, fails, or gives a text, in a bounded number of steps.
pub fn chat_template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let messages =
        [Message::new("system", "Be brief."), Message::new("user", "Hi"), Message::new("assistant", "Hello")];
    if let Ok(template) = ChatTemplate::parse(text) {
        let _ = template.render(&messages, "<s>", "</s>", true);
    }
}

/// `router_policy.yaml`.
pub fn policy(bytes: &[u8]) {
    let Ok(policy) = Policy::parse(bytes, "fuzz.yaml") else { return };
    for unified in [false, true] {
        assert!((0.0..=1.0).contains(&policy.fraction(unified)));
    }
}

/// What was learned: the bytes as they are, and with their length and checksum mended, so that what lies behind is reached.
pub fn bandit(bytes: &[u8]) {
    learned(bytes);
    if let Some(body) = bytes.len().checked_sub(32).filter(|body| *body >= 20) {
        let mut mended = bytes.to_vec();
        mended[12..20].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let digest = Sha256::digest(&mended[..body]);
        mended[body..].copy_from_slice(&digest);
        learned(&mended);
    }
}

/// Estimates are numbers, and what is taken is written so that it is taken again.
fn learned(bytes: &[u8]) {
    let options = |epoch| BanditOptions { epoch: Some(epoch), ..BanditOptions::default() };
    let estimate = |bandit: &Bandit| {
        let estimate = bandit.estimate("ann", &[0.5; 8], &[0.2; 3]).expect("three rows, eight features");
        assert!(estimate.quality.iter().all(|q| q.is_finite()), "{:?}", estimate.quality);
        estimate
    };
    let (mut bandit, fresh) = Bandit::from_bytes(bytes, small_arms(), options(7));
    let first = estimate(&bandit);
    if fresh.is_some() {
        assert_eq!((bandit.stats().users, bandit.stats().pending), (0, 0));
    }
    let (again, none) = Bandit::from_bytes(&bandit.to_bytes(), small_arms(), options(8));
    assert!(none.is_none(), "what was written is refused: {none:?}");
    assert_eq!(again.stats(), bandit.stats());
    assert_eq!(estimate(&again), first);
    let id = bandit.record("ann", 1, &first);
    bandit.observe(id, 1e300).expect("it waits");
    estimate(&bandit);
}

/// Text to ids and back: the same bytes, for the default pack's tokenizer, whose normaliser is the identity on what it
/// gives back.
pub fn tokenizer(bytes: &[u8]) {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    let tokenizer = TOKENIZER.get_or_init(|| {
        let gguf = Gguf::open(pack::pack().model).expect("the default pack opens");
        Tokenizer::from_gguf(&gguf).expect("and has a tokenizer")
    });
    let text = String::from_utf8_lossy(bytes);
    for plain_text in [true, false] {
        let options = EncodeOptions { plain_text, add_bos: Some(false), add_eos: Some(false) };
        let ids = tokenizer.encode(&text, &options);
        let decoded = tokenizer.decode(&ids, false);
        let once = String::from_utf8(decoded).expect("text comes back as text");
        // NFC may change a text once, never twice.
        let again = tokenizer.encode(&once, &options);
        assert_eq!(tokenizer.decode(&again, false), once.as_bytes());
        if text.is_ascii() {
            assert_eq!(once, text);
        }
        let (limited, cut) = tokenizer.encode_limited(&text, &options, 5);
        assert!(limited.len() <= 5 && ids.starts_with(&limited) && cut == (ids.len() > limited.len()));
    }
}

/// A prompt through the whole router, under limits that its first bytes choose.
pub fn route(bytes: &[u8]) {
    static ROUTER: OnceLock<Router> = OnceLock::new();
    let router = ROUTER.get_or_init(|| {
        let options = RouterOptions { threads: Some(1), ..RouterOptions::default() };
        Router::load(&pack::pack(), &options).expect("the default pack loads")
    });
    let ([a, b], text) = match bytes {
        [a, b, text @ ..] => ([*a, *b], text),
        short => ([0, 0], short),
    };
    let limits = Limits {
        max_cost: (a & 1 > 0).then_some(f64::from(b) / 10_000.0),
        min_confidence: (a & 2 > 0).then_some(f32::from(b) / 255.0),
        offline: a & 4 > 0,
        require: Require { vision: a & 8 > 0, min_context: if a & 16 > 0 { u64::from(b) << 9 } else { 0 } },
        ..Limits::default()
    };
    let text = String::from_utf8_lossy(text);
    let request = Request { limits, has_media: a & 32 > 0, rules_only: a & 64 > 0, ..Request::default() };
    let outcome = router.route(&text, &request).expect("every text is answered");
    assert!(outcome.reading.tokens <= router.config().max_tokens);
    if let Some(model) = outcome.model() {
        let card = router.catalog().get(model).expect("the model is in the catalog");
        let limits = &request.limits;
        assert!(limits.max_cost.is_none_or(|cost| card.cost_per_1k <= cost));
        assert!(!limits.offline || card.backend.is_local());
        assert!(!(limits.require.vision || request.has_media) || card.vision);
    }
    let candidates = &outcome.decision.candidates;
    assert!(candidates.iter().all(|c| c.feasible == c.why_not.is_none()));
    assert_eq!(router.route(&text, &request).expect("twice").decision, outcome.decision);
}

/// One file made from another: cut, flipped, overwritten with numbers that hurt, or spliced with a second one.
pub fn changed(random: &mut Rng, file: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = file.to_vec();
    let below = |random: &mut Rng, n: usize| random.usize(..n.max(1));
    for _ in 0..1 + below(random, 4) {
        if bytes.is_empty() {
            break;
        }
        // Headers are where the structure is.
        let reach = if below(random, 3) > 0 { bytes.len().min(2048) } else { bytes.len() };
        let at = below(random, reach);
        match below(random, 7) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << below(random, 8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'-'][below(random, 8)],
            3 => {
                let hurts = [0, 1, u64::MAX, u64::MAX / 2, 1 << 31, 1 << 40, (1 << 32) - 1, 31];
                let value = hurts[below(random, hurts.len())].to_le_bytes();
                let width = [1, 2, 4, 8][below(random, 4)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&value[..width]);
            }
            4 => {
                let end = (at + 1 + below(random, 32)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            5 => {
                let end = (at + 1 + below(random, 32)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            _ if !other.is_empty() => {
                let from = below(random, other.len());
                let end = (from + 1 + below(random, 64)).min(other.len());
                let end_here = (at + end - from).min(bytes.len());
                drop(bytes.splice(at..end_here, other[from..end].iter().copied()));
            }
            _ => {}
        }
    }
    bytes
}

/// A whole backbone of 20 KB: one layer, one vocabulary of 300 tokens, with Q4_K and Q8_0 blocks among its tensors.
pub fn small_model(architecture: &str) -> Vec<u8> {
    let own = |suffix: &str| format!("{architecture}.{suffix}");
    // The byte-level alphabet: printable bytes stand for themselves, the others for 256 and on, in their order.
    let plain = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let others = (0..=255u8).filter(|byte| !plain(byte)).zip('\u{100}'..);
    let mut tokens: Vec<String> =
        (0..=255u8).filter(plain).map(|byte| char::from(byte).to_string()).collect();
    tokens.extend(others.map(|(_, c)| c.to_string()));
    tokens.extend(["He".to_owned(), "ll".to_owned(), "<b>".to_owned()]);
    let types: Vec<i32> = (0..tokens.len()).map(|i| if i + 1 == tokens.len() { 3 } else { 1 }).collect();
    let vocab = tokens.len() as u64;
    let mut file = Builder::new(architecture)
        .with(&own("block_count"), 1_u32)
        .with(&own("context_length"), 64_u32)
        .with(&own("embedding_length"), 256_u32)
        .with(&own("feed_forward_length"), 32_u32)
        .with(&own("attention.head_count"), 2_u32)
        .with(&own("attention.head_count_kv"), 1_u32)
        .with(&own("attention.key_length"), 16_u32)
        .with(&own("attention.value_length"), 16_u32)
        .with(&own("attention.layer_norm_rms_epsilon"), 1e-6_f32)
        .with(&own("rope.freq_base"), 10_000.0_f32)
        .with("tokenizer.ggml.model", "gpt2")
        .with("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", ["H e", "l l"])
        .i32s("tokenizer.ggml.token_type", &types);
    // Q4_K: 144 bytes for 256 values; Q8_0: 34 for 32. Scales of 1 in half precision.
    let q4_k = |n: u64| -> Vec<u8> {
        let block: Vec<u8> = [0, 0x3c, 0, 0x2c].into_iter().chain((4..144).map(|i| (i * 37) as u8)).collect();
        block.repeat((n / 256) as usize)
    };
    let q8_0 = |n: u64| -> Vec<u8> {
        let block: Vec<u8> = [0, 0x20].into_iter().chain((2..34).map(|i| (i * 11) as u8)).collect();
        block.repeat((n / 32) as usize)
    };
    file = file.tensor("token_embd.weight", &[256, vocab], 8, &q8_0(256 * vocab));
    file = file.f32_tensor("output_norm.weight", &[256], &[1.0; 256]);
    for (part, rows) in [
        ("attn_norm", 0),
        ("attn_q", 32),
        ("attn_k", 16),
        ("attn_v", 16),
        ("ffn_norm", 0),
        ("ffn_gate", 32),
        ("ffn_up", 32),
    ] {
        let name = format!("blk.0.{part}.weight");
        file = match rows {
            0 => file.f32_tensor(&name, &[256], &[1.0; 256]),
            rows => file.tensor(&name, &[256, rows], 12, &q4_k(256 * rows)),
        };
    }
    for part in ["attn_output", "ffn_down"] {
        file = file.tensor(&format!("blk.0.{part}.weight"), &[32, 256], 8, &q8_0(32 * 256));
    }
    if architecture != "llama" {
        for part in ["attn_q_norm", "attn_k_norm"] {
            file = file.f32_tensor(&format!("blk.0.{part}.weight"), &[16], &[1.0; 16]);
        }
    }
    if architecture == "gemma3" {
        file = file.with("gemma3.attention.sliding_window", 8_u32);
        for part in ["post_attention_norm", "post_ffw_norm"] {
            file = file.f32_tensor(&format!("blk.0.{part}.weight"), &[256], &[1.0; 256]);
        }
    }
    file.build()
}

fn gguf_seeds() -> Vec<Vec<u8>> {
    ["qwen3", "llama", "gemma3"].map(small_model).to_vec()
}

const TAG: &str = r#"<route model="gpt-5.5" level="balanced"/>"#;
const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{% if loop.first and message['role'] == 'system' %}{{ message['content'].strip() + '\\n' }}{% else %}{% set role = 'model' if message.role == 'assistant' else message.role %}<start>{{ role }}\n{{ message['content'] | trim }}<end>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<start>model\n{% endif %}";
const SMALL_CONFIG: &str = r#"{"base": "small", "tasks": ["code", "general"], "catalog": ["a", "b", "c"], "hidden_size": 8,
    "feature_dim": 4, "pooling": "last", "embd_normalize": -1, "max_chars": 100, "max_tokens": 10, "keep": "end",
    "trained": [true, true, false], "temperature": {"task": 1.5, "route": 0.5}, "min_confidence": 0.3}"#;

/// The six tensors of the small config.
fn small_heads() -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for (head, rows) in [("task", 2usize), ("route", 3), ("feature", 4)] {
        for (part, shape) in [("weight", vec![rows, 8]), ("bias", vec![rows])] {
            let start = data.len();
            for i in 0..shape.iter().product::<usize>() {
                data.extend_from_slice(&((i % 7) as f32 / 4.0 - 0.6).to_le_bytes());
            }
            let entry =
                serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
            header.insert(format!("{head}_head.{part}"), entry);
        }
    }
    let mut header = serde_json::Value::from(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    file
}

fn catalog_seeds() -> Vec<Vec<u8>> {
    let odd = "models:\n  - {id: zen-4b-20250101, backend: local, bytes: 7, tasks: [code], quality: .5}\n  - id: x\n    backend: \
               {kind: cloud, provider: p}\n    levels: [fast, max]\n    latency_ms: 5\n    tok_s: 9\naliases: {q: x}\n";
    let json =
        r#"[{"id": "a", "backend": {"cloud": {"provider": "p"}}, "cost_per_1k": 0.1, "max_context": 8}]"#;
    vec![pack::CATALOG.to_vec(), odd.into(), json.into()]
}

fn policy_seeds() -> Vec<Vec<u8>> {
    let full = "prefer: {code: [a, b], cheap_chat: [c]}\nmemory_fraction: {unified: 0.5, discrete: 0.8}\ncost_ceiling: 0.01\ndefault: a\n";
    vec![b"{}".to_vec(), pack::POLICY.to_vec(), full.into()]
}

fn small_arms() -> Arms {
    Arms { heads_sha256: "7".repeat(64), ids: vec!["a".into(), "b".into(), "c".into()], features: 8 }
}

fn bandit_seeds() -> Vec<Vec<u8>> {
    let mut bandit = Bandit::new(small_arms(), BanditOptions { epoch: Some(7), ..BanditOptions::default() });
    let empty = bandit.to_bytes();
    for (round, user) in ["ann", "bob", "ann", "eve"].into_iter().cycle().take(40).enumerate() {
        let features: Vec<f32> = (0..8).map(|i| ((round * 5 + i * 3) % 11) as f32 / 5.0 - 1.0).collect();
        let estimate = bandit.estimate(user, &features, &[0.2, 0.5, 0.3]).expect("the shapes are right");
        let id = bandit.record(user, round % 3, &estimate);
        if round % 4 != 3 {
            bandit.observe(id, (round % 5) as f64 / 4.0).expect("it waits");
        }
    }
    vec![empty, bandit.to_bytes()]
}

fn text_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "write a python function to reverse a linked list",
        "fn main() { println!(\"{}\", 1 + 2); }\n\n\tlet x = 'a';",
        "Was ist der Unterschied zwischen TCP und UDP? 你好，世界。 Привет! مرحبا שלום ไทย हिन्दी",
        "<|im_start|>user\nhi<|im_end|> e\u{301}\u{1F469}\u{200D}\u{1F680} \u{FEFF}\u{0}\r\n",
        "12345.678e-9 $a_b->c[0] ```rust\nx\n``` https://example.org/?q=1&r=%20",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}
