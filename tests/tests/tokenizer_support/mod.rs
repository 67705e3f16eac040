//! What the tokenizer's tests share: vocabularies as tokenizers, and digests of ids.

use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::{PreTokenizer, Strings, TieBreak, TokenizerModel, TokenizerSpec};
use zen_edge_tests::{need, peers, shared};

/// The description of a vocabulary's tokenizer, where the machine has its file.
pub fn spec(test: &str, name: &str) -> Option<TokenizerSpec> {
    let gguf = |path| {
        let file = Memory::open(path).unwrap();
        TokenizerSpec::from_gguf(&Gguf::open(Arc::new(file)).unwrap()).unwrap()
    };
    let json = |name: &str| {
        need(test, "a vocabulary (cargo xtask peers)", peers(&format!("tokenizers/{name}/tokenizer.json")))
    };
    let bpe = TokenizerModel::ByteLevelBpe;
    match name {
        "tiny" => need(test, "the tiny Qwen3", shared("data/fixtures/qwen3-tiny-rand-q4_0.gguf")).map(gguf),
        "gemma3" | "smollm2" => {
            let file = if name == "gemma3" { "gemma-3-270m-q4_k_m" } else { "smollm2-135m-q4_1" };
            need(test, "a model (cargo xtask peers)", peers(&format!("models/{file}.gguf"))).map(gguf)
        }
        "qwen3" => json(name).map(|path| from_json(&path, bpe(PreTokenizer::Qwen2))),
        "llama3" => json(name).map(|path| from_json(&path, bpe(PreTokenizer::Llama3))),
        "gpt2" => json(name).map(|path| from_json(&path, bpe(PreTokenizer::Gpt2))),
        "default" => json("gpt2").map(|path| from_json(&path, bpe(PreTokenizer::Default))),
        "llama2" => json(name).map(|path| from_json(&path, TokenizerModel::SentencePiece(TieBreak::LeftId))),
        _ => panic!("no vocabulary {name}"),
    }
}

/// What a GGUF made from this `tokenizer.json` would say, without BOS.
pub fn from_json(path: &Path, model: TokenizerModel) -> TokenizerSpec {
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut tokens: Vec<(String, i32)> = Vec::new();
    let mut put = |id: &Value, token: String, kind: i32| {
        let id = id.as_u64().unwrap() as usize;
        if tokens.len() <= id {
            // As converters fill a vocabulary up to the embedding's rows.
            tokens.resize_with(id + 1, Default::default);
        }
        tokens[id] = (token, kind);
    };
    for (token, id) in json["model"]["vocab"].as_object().unwrap() {
        let is_byte = token.len() == 6 && token.starts_with("<0x") && token.ends_with('>');
        put(id, token.clone(), if is_byte { 6 } else { 1 });
    }
    for added in json["added_tokens"].as_array().unwrap() {
        let special = added["special"].as_bool().unwrap();
        put(&added["id"], text(&added["content"]), if special { 3 } else { 4 });
    }
    for (id, (token, kind)) in tokens.iter_mut().enumerate() {
        if *kind == 0 {
            (*token, *kind) = (format!("[PAD{id}]"), 5);
        }
    }
    let merges: Vec<String> = json["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|merge| match merge {
            Value::Array(parts) => format!("{} {}", text(&parts[0]), text(&parts[1])),
            merge => text(merge),
        })
        .collect();
    let mut scores = vec![-1e9; tokens.len()];
    if matches!(model, TokenizerModel::SentencePiece(_)) {
        // The scores from which the merges were made: a token's is the higher the earlier its first merge stands.
        let ids: std::collections::HashMap<&str, usize> =
            tokens.iter().enumerate().map(|(id, (token, _))| (token.as_str(), id)).collect();
        for (rank, merge) in merges.iter().enumerate() {
            let score: &mut f32 = &mut scores[ids[merge.replacen(' ', "", 1).as_str()]];
            *score = score.max(-(rank as f32));
        }
    }
    TokenizerSpec {
        model,
        scores: Some(scores),
        types: Some(tokens.iter().map(|&(_, kind)| kind).collect()),
        tokens: tokens.iter().map(|(token, _)| token).collect::<Strings>(),
        merges: Some(merges.iter().collect()),
        bos: None,
        eos: None,
        unk: json["model"]["unk_token"]
            .as_str()
            .map(|unk| tokens.iter().position(|(token, _)| token == unk).unwrap() as u32),
        add_bos: false,
        add_eos: false,
        add_space_prefix: true,
    }
}

#[allow(dead_code)] // not every test has golden ids
/// FNV-1a over ids, as make_golden.py has it.
pub fn fnv(ids: &[u32]) -> u64 {
    ids.iter()
        .flat_map(|id| id.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The prompts beside the repository: id, language, text.
pub fn prompts(test: &str) -> Option<Vec<(String, String, String)>> {
    let mut prompts = Vec::new();
    for part in ["train", "dev", "test"] {
        let path = need(test, "the prompts", shared(&format!("data/prompts/{part}.jsonl")))?;
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let prompt: Value = serde_json::from_str(line).unwrap();
            let field = |name: &str| prompt[name].as_str().unwrap().to_owned();
            prompts.push((field("id"), field("lang"), field("prompt")));
        }
    }
    Some(prompts)
}
