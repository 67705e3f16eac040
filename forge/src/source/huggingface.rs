//! A folder of Hugging Face files as the model that llama.cpp's converter would make of it.

use super::{Change, Files, Model, Place, SourceError, Tensor, tokenizer};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zen_edge_core::backbone::Architecture;
use zen_edge_core::gguf::Value;
use zen_edge_core::source::Memory;
use zen_edge_core::tensors::{Dtype, TensorFile};
use zen_edge_kernels::format::BlockType;

/// `config.json`, or the part of it that is about text.
struct Config {
    file: PathBuf,
    json: Json,
}

impl Config {
    fn wrong(&self, key: &str, found: impl ToString, why: &str) -> SourceError {
        let (file, key) = (self.file.clone(), key.to_owned());
        SourceError::Config { file, key, found: found.to_string(), why: why.to_owned() }
    }

    /// The value of a key that is there and not null.
    fn get(&self, key: &str) -> Option<&Json> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    fn number(&self, key: &str) -> Result<Option<f64>, SourceError> {
        self.get(key)
            .map(|v| v.as_f64().ok_or_else(|| self.wrong(key, v, "a number is expected")))
            .transpose()
    }

    /// A positive integer.
    fn count(&self, key: &str) -> Result<Option<u32>, SourceError> {
        let why = "a positive integer is expected";
        self.get(key)
            .map(|v| {
                let count = v.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
                count.ok_or_else(|| self.wrong(key, v, why))
            })
            .transpose()
    }

    fn require(&self, key: &str) -> Result<u32, SourceError> {
        self.count(key)?.ok_or_else(|| self.wrong(key, "absent", "the model's shape needs it"))
    }

    /// A key that must have this value where it is there: the backbone has nothing else.
    fn only(&self, key: &str, fits: impl Fn(&Json) -> bool, why: &str) -> Result<(), SourceError> {
        match self.get(key) {
            Some(value) if !fits(value) => Err(self.wrong(key, value, why)),
            _ => Ok(()),
        }
    }
}

pub(super) fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> Result<Option<T>, SourceError> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(SourceError::Io { file: file.to_owned(), source }),
    };
    let wrong = |source| SourceError::Json { file: file.to_owned(), source };
    serde_json::from_slice(&text).map(Some).map_err(wrong)
}

pub(super) fn open(folder: &Path) -> Result<Model, SourceError> {
    let file = folder.join("config.json");
    let whole: Json = read_json(&file)?
        .ok_or_else(|| SourceError::MissingFile { folder: folder.to_owned(), name: "config.json" })?;
    let architecture = architecture(folder, &whole)?;
    // Models that also see images keep what is about text apart.
    let json =
        whole.get("text_config").filter(|text| text.is_object()).cloned().unwrap_or_else(|| whole.clone());
    let config = Config { file, json };
    let files = tensor_files(folder)?;
    let mut notes = Vec::new();
    let mut tensors = tensors(&config, architecture, &files, &mut notes)?;
    let vocab = tensors.iter().find(|t| t.name == "token_embd.weight").map(|t| t.rows());
    let vocab =
        vocab.ok_or_else(|| config.wrong("embed_tokens.weight", "absent", "there is no such tensor"))?;

    let shown = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let title =
        shown.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
    let mut metadata: Vec<(String, Value)> = vec![
        ("general.architecture".to_owned(), architecture.name().into()),
        ("general.type".to_owned(), "model".into()),
        ("general.name".to_owned(), title.into()),
    ];
    hyperparameters(&config, architecture, vocab, &mut metadata, &mut tensors)?;
    tokenizer::read(folder, &whole, &config.json, vocab, &mut metadata, &mut notes)?;
    Ok(Model {
        name: folder.display().to_string(),
        architecture,
        metadata,
        tensors,
        alignment: 32,
        notes,
        files: Files::Folder(files),
    })
}

fn architecture(folder: &Path, config: &Json) -> Result<Architecture, SourceError> {
    let class = config["architectures"][0].as_str();
    let found = class.or(config["model_type"].as_str()).unwrap_or("nothing");
    match found {
        "Qwen3ForCausalLM" | "Qwen3Model" | "qwen3" => Ok(Architecture::Qwen3),
        "LlamaForCausalLM" | "LlamaModel" | "llama" => Ok(Architecture::Llama),
        "Gemma3ForCausalLM"
        | "Gemma3TextModel"
        | "Gemma3ForConditionalGeneration"
        | "gemma3_text"
        | "gemma3" => Ok(Architecture::Gemma3),
        _ => Err(SourceError::Architecture {
            file: folder.join("config.json").display().to_string(),
            found: found.to_owned(),
        }),
    }
}

/// The folder's safetensors files.
fn tensor_files(folder: &Path) -> Result<Vec<TensorFile>, SourceError> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let single = folder.join("model.safetensors");
    let index = folder.join("model.safetensors.index.json");
    let names: Vec<PathBuf> = if single.exists() {
        vec![single]
    } else {
        let Some(map) = read_json::<Index>(&index)? else {
            return Err(SourceError::MissingFile { folder: folder.to_owned(), name: "model.safetensors" });
        };
        let names: std::collections::BTreeSet<String> = map.weight_map.into_values().collect();
        if let Some(name) = names.iter().find(|name| Path::new(name).file_name() != Some(name.as_ref())) {
            let why = "the parts lie in the folder itself".to_owned();
            return Err(SourceError::Config {
                file: index,
                key: "weight_map".into(),
                found: name.clone(),
                why,
            });
        }
        names.into_iter().map(|name| folder.join(name)).collect()
    };
    names
        .into_iter()
        .map(|file| {
            let source =
                Memory::open(&file).map_err(|source| SourceError::Io { file: file.clone(), source })?;
            Ok(TensorFile::open(Arc::new(source))?)
        })
        .collect()
}

/// The GGUF name of what a layer of a checkpoint calls `part`.
fn part_of(architecture: Architecture, part: &str) -> Option<&'static str> {
    let gemma = architecture == Architecture::Gemma3;
    Some(match part {
        "input_layernorm" => "attn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "post_attention_layernorm" if gemma => "post_attention_norm",
        "post_attention_layernorm" => "ffn_norm",
        "pre_feedforward_layernorm" if gemma => "ffn_norm",
        "post_feedforward_layernorm" if gemma => "post_ffw_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    })
}

/// The name of a checkpoint's tensor in a GGUF.
fn name_of(architecture: Architecture, name: &str) -> Option<String> {
    const PREFIXES: [&str; 3] = ["language_model.model.", "model.language_model.", "model."];
    let inner = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    match inner {
        "embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
        "norm.weight" => return Some("output_norm.weight".to_owned()),
        "lm_head.weight" | "language_model.lm_head.weight" => return Some("output.weight".to_owned()),
        _ => {}
    }
    let (layer, part) = inner.strip_prefix("layers.")?.split_once('.')?;
    let layer: u32 = layer.parse().ok()?;
    let part = part_of(architecture, part.strip_suffix(".weight")?)?;
    Some(format!("blk.{layer}.{part}.weight"))
}

fn tensors(
    config: &Config,
    architecture: Architecture,
    files: &[TensorFile],
    notes: &mut Vec<String>,
) -> Result<Vec<Tensor>, SourceError> {
    let heads = config.require("num_attention_heads")?;
    let kv_heads = config.count("num_key_value_heads")?.unwrap_or(heads);
    // Gemma's own default is tied; that of the others is not, but their heads are then stored.
    let tied = config.get("tie_word_embeddings").and_then(Json::as_bool);
    let tied = tied.unwrap_or(architecture == Architecture::Gemma3);
    let (mut tensors, mut images) = (Vec::new(), 0);
    for (index, file) in files.iter().enumerate() {
        for entry in file.tensors() {
            let path = PathBuf::from(file.source().name());
            let other = [
                "vision_tower.",
                "multi_modal_projector.",
                "model.vision_tower.",
                "model.multi_modal_projector.",
            ];
            if other.iter().any(|prefix| entry.name.starts_with(prefix)) {
                images += 1;
                continue;
            }
            // A buffer of old checkpoints that says what the settings say.
            if entry.name.ends_with("rotary_emb.inv_freq") {
                continue;
            }
            let Some(name) = name_of(architecture, &entry.name) else {
                let (tensor, architecture) = (entry.name.clone(), architecture.name());
                return Err(SourceError::UnknownTensor { file: path, tensor, architecture });
            };
            if name == "output.weight" && tied {
                continue;
            }
            let shape = |why: String| SourceError::Shape {
                file: path.clone(),
                tensor: entry.name.clone(),
                shape: entry.shape.clone(),
                why,
            };
            let ty = match entry.dtype {
                Dtype::F32 => BlockType::F32,
                Dtype::F16 => BlockType::F16,
                Dtype::BF16 => BlockType::BF16,
                other => return Err(shape(format!("it holds {other}; F32, F16 and BF16 are read"))),
            };
            if !(1..=2).contains(&entry.shape.len()) || entry.shape.contains(&0) {
                return Err(shape("a matrix or a vector is expected".to_owned()));
            }
            let pairs = match name.rsplit('.').nth(1) {
                Some("attn_q") => Some(heads),
                Some("attn_k") => Some(kv_heads),
                _ => None,
            };
            let change = match (architecture, pairs) {
                (Architecture::Llama, Some(heads)) => {
                    let rows = entry.shape[0];
                    if entry.shape.len() != 2 || !rows.is_multiple_of(2 * u64::from(heads)) {
                        return Err(shape(format!("its rows are not pairs of {heads} heads")));
                    }
                    Change::PairRows { heads: heads as usize }
                }
                (Architecture::Gemma3, _) if name.ends_with("norm.weight") => Change::AddOne,
                _ => Change::None,
            };
            if tensors.iter().any(|tensor: &Tensor| tensor.name == name) {
                return Err(shape(format!("two tensors are {name}")));
            }
            let place = Place::Folder { file: index, name: entry.name.clone(), change };
            tensors.push(Tensor { name, dims: entry.shape.iter().rev().copied().collect(), ty, place });
        }
    }
    if images > 0 {
        notes.push(format!("{images} tensors that are about images were left out"));
    }
    Ok(tensors)
}

/// `rope_theta` and the scaling, whichever of its two forms `transformers` has written.
struct Rope<'a> {
    theta: f64,
    local: f64,
    scaling: Option<&'a serde_json::Map<String, Json>>,
}

impl<'a> Rope<'a> {
    fn read(config: &'a Config, architecture: Architecture) -> Result<Self, SourceError> {
        let gemma = architecture == Architecture::Gemma3;
        let parameters = config.get("rope_parameters");
        let of = |kind: &str| parameters.and_then(|p| p.get(kind)).or(parameters);
        let full = of("full_attention").and_then(Json::as_object);
        let theta =
            |map: Option<&serde_json::Map<String, Json>>| map.and_then(|m| m.get("rope_theta")?.as_f64());
        let default = if gemma { 1e6 } else { 1e4 };
        let local = parameters.and_then(|p| p.get("sliding_attention")).and_then(Json::as_object);
        Ok(Self {
            theta: theta(full).or(config.number("rope_theta")?).unwrap_or(default),
            local: theta(local).or(config.number("rope_local_base_freq")?).unwrap_or(1e4),
            scaling: config.get("rope_scaling").and_then(Json::as_object).or(full),
        })
    }
}

fn hyperparameters(
    config: &Config,
    architecture: Architecture,
    vocab: u64,
    metadata: &mut Vec<(String, Value)>,
    tensors: &mut Vec<Tensor>,
) -> Result<(), SourceError> {
    let gemma = architecture == Architecture::Gemma3;
    let mut put =
        |suffix: &str, value: Value| metadata.push((format!("{}.{suffix}", architecture.name()), value));
    let (hidden, heads, layers) = (
        config.require("hidden_size")?,
        config.require("num_attention_heads")?,
        config.require("num_hidden_layers")?,
    );
    let head_dim = match config.count("head_dim")? {
        Some(dim) => dim,
        None if gemma => 256,
        None => hidden / heads,
    };
    put("block_count", layers.into());
    put(
        "context_length",
        config.count("max_position_embeddings")?.unwrap_or(if gemma { 131_072 } else { 2048 }).into(),
    );
    put("embedding_length", hidden.into());
    put("feed_forward_length", config.require("intermediate_size")?.into());
    put("attention.head_count", heads.into());
    put("attention.head_count_kv", config.count("num_key_value_heads")?.unwrap_or(heads).into());
    let eps = config.number("rms_norm_eps")?.unwrap_or(1e-6);
    put("attention.layer_norm_rms_epsilon", (eps as f32).into());
    put("attention.key_length", head_dim.into());
    put("attention.value_length", head_dim.into());

    config.only("attention_bias", |v| *v == Json::Bool(false), "the backbone has no biases")?;
    config.only("mlp_bias", |v| *v == Json::Bool(false), "the backbone has no biases")?;
    if gemma {
        for key in ["hidden_activation", "hidden_act"] {
            let fits = |v: &Json| v == "gelu_pytorch_tanh";
            config.only(key, fits, "the backbone's activation is gelu_pytorch_tanh")?;
        }
        for key in ["final_logit_softcapping", "attn_logit_softcapping"] {
            config.only(key, |_| false, "the backbone caps no logits")?;
        }
        // The backbone scales the queries of the largest model alone otherwise.
        let scalar = if layers == 62 { hidden / heads } else { head_dim };
        let fits = |v: &Json| v.as_f64() == Some(f64::from(scalar));
        config.only("query_pre_attn_scalar", fits, "the backbone scales queries by the length of a head")?;
        let window = config.count("sliding_window")?.unwrap_or(4096);
        put("attention.sliding_window", window.into());
        config.only("sliding_window_pattern", |v| *v == 6, "every sixth layer sees everything")?;
        let full = |i: usize| if (i + 1).is_multiple_of(6) { "full_attention" } else { "sliding_attention" };
        let fits =
            |v: &Json| v.as_array().is_some_and(|l| l.iter().enumerate().all(|(i, kind)| kind == full(i)));
        config.only("layer_types", fits, "every sixth layer sees everything")?;
    } else {
        config.only("hidden_act", |v| v == "silu", "the backbone's activation is silu")?;
        config.only("use_sliding_window", |v| *v == Json::Bool(false), "the backbone has no such window")?;
        let fits = |v: &Json| v.as_array().is_some_and(|l| l.iter().all(|kind| kind == "full_attention"));
        config.only("layer_types", fits, "every layer sees everything")?;
    }
    if architecture == Architecture::Llama {
        put("vocab_size", u32::try_from(vocab).unwrap_or(u32::MAX).into());
        put("rope.dimension_count", head_dim.into());
    }
    config.only("partial_rotary_factor", |v| v.as_f64() == Some(1.0), "the backbone rotates whole heads")?;

    let rope = Rope::read(config, architecture)?;
    put("rope.freq_base", (rope.theta as f32).into());
    if gemma {
        put("rope.freq_base_swa", (rope.local as f32).into());
    }
    let Some(scaling) = rope.scaling else { return Ok(()) };
    let number = |key: &str| -> Result<Option<f64>, SourceError> {
        let value = scaling.get(key).filter(|value| !value.is_null());
        let wrong =
            |v: &Json| config.wrong(&format!("rope scaling {key}"), v, "a positive number is expected");
        value.map(|v| v.as_f64().filter(|n| *n > 0.0).ok_or_else(|| wrong(v))).transpose()
    };
    let need = |key: &str| {
        let absent =
            || config.wrong(&format!("rope scaling {key}"), "absent", "this kind of scaling needs it");
        number(key)?.ok_or_else(absent)
    };
    let kind = ["rope_type", "type"].iter().find_map(|key| scaling.get(*key)?.as_str()).unwrap_or("default");
    match kind {
        "default" => {}
        "linear" => {
            put("rope.scaling.type", "linear".into());
            put("rope.scaling.factor", (need("factor")? as f32).into());
        }
        "yarn" => {
            for key in ["mscale", "mscale_all_dim"] {
                if let Some(found) = number(key)? {
                    return Err(config.wrong(
                        &format!("rope scaling {key}"),
                        found,
                        "the backbone has no such factor",
                    ));
                }
            }
            let factor = need("factor")?;
            put("rope.scaling.type", "yarn".into());
            put("rope.scaling.factor", (factor as f32).into());
            if let Some(original) = number("original_max_position_embeddings")? {
                put("rope.scaling.original_context_length", (original as u32).into());
            }
            for (key, ours) in [("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")] {
                if let Some(beta) = number(key)? {
                    put(&format!("rope.scaling.{ours}"), (beta as f32).into());
                }
            }
            // There it is the whole of the magnitude, in a GGUF a factor of the usual one.
            if let Some(attention) = number("attention_factor")? {
                let usual = 1.0 + 0.1 * factor.ln();
                put("rope.scaling.attn_factor", ((attention / usual) as f32).into());
            }
        }
        "llama3" => {
            let original = need("original_max_position_embeddings")?;
            let (factor, low, high) = (need("factor")?, need("low_freq_factor")?, need("high_freq_factor")?);
            let slowing = |i: u32| {
                let turn =
                    2.0 * std::f64::consts::PI * rope.theta.powf(f64::from(2 * i) / f64::from(head_dim));
                let share = original / turn;
                if share > high {
                    1.0
                } else if share < low {
                    factor
                } else {
                    let smooth = (share - low) / (high - low);
                    1.0 / ((1.0 - smooth) / factor + smooth)
                }
            };
            let values: Vec<f32> = (0..head_dim / 2).map(|i| slowing(i) as f32).collect();
            tensors.push(Tensor {
                name: "rope_freqs.weight".to_owned(),
                dims: vec![values.len() as u64],
                ty: BlockType::F32,
                place: Place::Made(values),
            });
        }
        other => {
            let why = "default, linear, yarn and llama3 are known";
            return Err(config.wrong("rope scaling type", other, why));
        }
    }
    Ok(())
}
