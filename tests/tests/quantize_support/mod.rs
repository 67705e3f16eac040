//! Folders of Hugging Face files: those that a GGUF would have been made of, and small ones about a tokenizer.

use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use zen_edge_core::gguf::Gguf;
use zen_edge_kernels::format::dequantize;

/// What a folder holds.
pub struct Folder {
    pub config: Json,
    pub tokenizer: Vec<u8>,
    /// Name, shape in C order, values.
    pub tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Folder {
    /// Writes it, the tensors in so many files.
    pub fn write(&self, parts: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("config.json", self.config.to_string().as_bytes());
        write("tokenizer.json", &self.tokenizer);
        let mut map = BTreeMap::new();
        for (i, tensors) in self.tensors.chunks(self.tensors.len().div_ceil(parts)).enumerate() {
            let name = match parts {
                1 => "model.safetensors".to_owned(),
                _ => format!("model-{:05}-of-{parts:05}.safetensors", i + 1),
            };
            write(&name, &safetensors(tensors));
            map.extend(tensors.iter().map(|(tensor, ..)| (tensor.clone(), name.clone())));
        }
        if parts > 1 {
            write("model.safetensors.index.json", json!({"weight_map": map}).to_string().as_bytes());
        }
        folder
    }

    /// One small layer below a vocabulary of `tokens`.
    pub fn small(architecture: &str, tokens: usize) -> Self {
        let (hidden, ffn, head) = (32, 32, 16);
        let mut tensors = vec![
            ("model.embed_tokens.weight".to_owned(), vec![tokens, hidden], vec![0.01; tokens * hidden]),
            ("model.norm.weight".to_owned(), vec![hidden], vec![1.0; hidden]),
        ];
        let mut put = |name: &str, shape: Vec<usize>| {
            let len = shape.iter().product();
            tensors.push((format!("model.layers.0.{name}.weight"), shape, vec![0.5; len]));
        };
        put("input_layernorm", vec![hidden]);
        put("post_attention_layernorm", vec![hidden]);
        if architecture == "gemma3" {
            put("pre_feedforward_layernorm", vec![hidden]);
            put("post_feedforward_layernorm", vec![hidden]);
        }
        if architecture != "llama" {
            put("self_attn.q_norm", vec![head]);
            put("self_attn.k_norm", vec![head]);
        }
        for part in ["q", "k", "v"] {
            put(&format!("self_attn.{part}_proj"), vec![2 * head, hidden]);
        }
        put("self_attn.o_proj", vec![hidden, 2 * head]);
        put("mlp.gate_proj", vec![ffn, hidden]);
        put("mlp.up_proj", vec![ffn, hidden]);
        put("mlp.down_proj", vec![hidden, ffn]);
        let config = json!({
            "architectures": [class(architecture)], "hidden_size": hidden, "num_hidden_layers": 1,
            "num_attention_heads": 2, "head_dim": head, "intermediate_size": ffn, "rms_norm_eps": 1e-6,
            "max_position_embeddings": 64, "tie_word_embeddings": true,
        });
        Self { config, tokenizer: Vec::new(), tensors }
    }
}

fn class(architecture: &str) -> &'static str {
    match architecture {
        "qwen3" => "Qwen3ForCausalLM",
        "llama" => "LlamaForCausalLM",
        _ => "Gemma3ForCausalLM",
    }
}

/// A safetensors file in F32.
fn safetensors(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        header.insert(
            name.clone(),
            json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]}),
        );
    }
    let header = Json::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}

/// A tensor's values.
pub fn expanded_values(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.require_tensor(name).unwrap();
    let mut out = vec![0.0; tensor.elements() as usize];
    dequantize(tensor.block_type().unwrap(), &gguf.tensor_bytes(tensor).unwrap(), &mut out);
    out
}

/// The folder that the GGUF of one of the committed tiny models would have been made of.
pub fn folder_of(gguf: &Gguf) -> Folder {
    let architecture = gguf.architecture().unwrap();
    let number = |key: &str| gguf.require_u32(&format!("{architecture}.{key}")).unwrap();
    let float = |key: &str| f64::from(gguf.require_f32(&format!("{architecture}.{key}")).unwrap());
    // The shortest decimal that is the f32, as a person would have written it.
    let short = |value: f64| (value as f32).to_string().parse::<f64>().unwrap();
    let (heads, kv_heads) = (number("attention.head_count"), number("attention.head_count_kv"));
    let mut config = json!({
        "architectures": [class(architecture)],
        "hidden_size": number("embedding_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": number("attention.key_length"),
        "intermediate_size": number("feed_forward_length"),
        "max_position_embeddings": number("context_length"),
        "rms_norm_eps": short(float("attention.layer_norm_rms_epsilon")),
        "rope_theta": float("rope.freq_base"),
        "tie_word_embeddings": true,
        "torch_dtype": "float32",
    });
    for key in ["bos", "eos", "pad"] {
        let ours = if key == "pad" { "padding" } else { key };
        config[format!("{key}_token_id")] =
            gguf.require_u32(&format!("tokenizer.ggml.{ours}_token_id")).unwrap().into();
    }
    if architecture == "gemma3" {
        config["hidden_activation"] = "gelu_pytorch_tanh".into();
        config["query_pre_attn_scalar"] = number("attention.key_length").into();
        config["sliding_window"] = number("attention.sliding_window").into();
        config["rope_local_base_freq"] = float("rope.freq_base_swa").into();
    } else {
        config["hidden_act"] = "silu".into();
    }
    let mut tensors = Vec::new();
    for tensor in gguf.tensors() {
        let mut values = expanded_values(gguf, &tensor.name);
        let shape: Vec<usize> = tensor.dims.iter().rev().map(|dim| *dim as usize).collect();
        let part = tensor.name.rsplit('.').nth(1).unwrap();
        if architecture == "llama" && (part == "attn_q" || part == "attn_k") {
            let heads = if part == "attn_q" { heads } else { kv_heads } as usize;
            values = in_halves(&values, shape[0], shape[1], heads);
        }
        if architecture == "gemma3" && tensor.name.ends_with("norm.weight") {
            values.iter_mut().for_each(|value| *value -= 1.0);
        }
        tensors.push((name_of(architecture, &tensor.name), shape, values));
    }
    Folder { config, tokenizer: tokenizer(gguf), tensors }
}

/// Neighbouring rows of each head back to its two halves: the converter's `permute`, backwards.
fn in_halves(values: &[f32], rows: usize, columns: usize, heads: usize) -> Vec<f32> {
    let dim = rows / heads;
    let mut out = vec![0.0; values.len()];
    for row in 0..rows {
        let (head, at) = (row / dim, row % dim);
        let to = head * dim + (at % 2) * (dim / 2) + at / 2;
        out[to * columns..(to + 1) * columns].copy_from_slice(&values[row * columns..(row + 1) * columns]);
    }
    out
}

fn name_of(architecture: &str, name: &str) -> String {
    let gemma = architecture == "gemma3";
    if name == "token_embd.weight" {
        return "model.embed_tokens.weight".to_owned();
    }
    if name == "output_norm.weight" {
        return "model.norm.weight".to_owned();
    }
    let (layer, part) = name.strip_prefix("blk.").unwrap().split_once('.').unwrap();
    let part = match part.strip_suffix(".weight").unwrap() {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "post_attention_norm" => "post_attention_layernorm",
        "ffn_norm" if gemma => "pre_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        other => panic!("no tensor {other}"),
    };
    format!("model.layers.{layer}.{part}.weight")
}

/// The `tokenizer.json` of a GGUF's tokenizer.
fn tokenizer(gguf: &Gguf) -> Vec<u8> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let tokens: Vec<String> =
        gguf.require_strings("tokenizer.ggml.tokens").unwrap().iter().map(text).collect();
    let types = gguf.i32s("tokenizer.ggml.token_type").unwrap().unwrap();
    let spm = gguf.require_str("tokenizer.ggml.model").unwrap() == "llama";
    let (mut vocab, mut added) = (serde_json::Map::new(), Vec::new());
    for (id, (token, kind)) in tokens.iter().zip(types).enumerate() {
        match kind {
            // Those without use are not in a tokenizer.json, but for the ones that it lists as special.
            5 => {}
            3 | 4 => added.push(json!({"id": id, "content": token, "special": *kind == 3})),
            _ => drop(vocab.insert(token.clone(), id.into())),
        }
    }
    let mut json = json!({"added_tokens": added, "normalizer": null, "post_processor": null});
    let merges: Vec<String> = if spm {
        let scores = gguf.f32s("tokenizer.ggml.scores").unwrap().unwrap();
        merges(&vocab, scores)
    } else {
        gguf.require_strings("tokenizer.ggml.merges").unwrap().iter().map(text).collect()
    };
    json["model"] = json!({
        "type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": spm,
        "unk_token": if spm { Json::from("<unk>") } else { Json::Null },
    });
    let byte_level =
        |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": regex});
    match gguf.str("tokenizer.ggml.pre").unwrap() {
        Some("qwen2") => {
            let regex = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
            let split = json!({"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false});
            json["normalizer"] = json!({"type": "NFC"});
            json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]});
        }
        Some("smollm") => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [digits, byte_level(true)]});
        }
        _ => {
            json["normalizer"] = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
            json["post_processor"] = json!({
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<bos>"}}, {"Sequence": {"id": "A"}}],
                "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2]}},
            });
        }
    }
    json.to_string().into_bytes()
}

/// The merges that scores stand for: of every token all ways to split it in two, the best token first.
fn merges(vocab: &serde_json::Map<String, Json>, scores: &[f32]) -> Vec<String> {
    let mut found = Vec::new();
    for (token, id) in vocab {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if vocab.contains_key(left) && vocab.contains_key(right) {
                found.push((scores[id.as_u64().unwrap() as usize], at, format!("{left} {right}")));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    found.into_iter().map(|(.., merge)| merge).collect()
}
