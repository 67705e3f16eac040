//! The facts of a file, for people and programs: what it is, what is in it, and what of it can be run here.

use crate::backbone::{Architecture, parts};
use crate::gguf::{Array, Gguf, GgufError, StringArray, Value, type_name};
use crate::source::{Contents, Source};
use crate::tensors::{TensorFile, TensorFileError};
use crate::tokenizer::PreTokenizer;
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::sync::Arc;
use zen_edge_kernels::format::BlockType;

/// Elements of an array that a report shows.
const SHOWN_ELEMENTS: usize = 6;
/// Characters of a string that a report shows.
const SHOWN_CHARS: usize = 200;

/// Why a file has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The source failed: the system's own words.
    #[error("cannot read {file}: {source}")]
    #[allow(missing_docs)]
    Io { file: String, source: std::io::Error },
    /// The file is neither GGUF nor safetensors.
    #[error("{file} is neither a GGUF nor a safetensors file: {looks_like}")]
    #[allow(missing_docs)]
    UnknownFormat { file: String, looks_like: String },
    /// A GGUF file that is refused.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A safetensors file that is refused.
    #[error(transparent)]
    Safetensors(#[from] TensorFileError),
}

/// A file's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// GGUF.
    Gguf,
    /// safetensors.
    Safetensors,
}

/// What a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A backbone: the GGUF of a model.
    Backbone,
    /// The router's linear heads.
    Heads,
    /// Other tensors: a checkpoint, an adapter, a vocabulary.
    Other,
}

/// The facts of a file. Absent facts are `None`: nothing is guessed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The source's name.
    pub file: String,
    /// The format.
    pub format: Format,
    /// The GGUF version.
    pub version: Option<u32>,
    /// What the file is for.
    pub role: Role,
    /// The file's size in bytes.
    pub bytes: u64,
    /// Bytes before the tensors: header, metadata, tensor table.
    pub header_bytes: u64,
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// `general.name`.
    pub name: Option<String>,
    /// `general.license`.
    pub license: Option<String>,
    /// The quantisation that `general.file_type` names: `Q4_K_M`. Tensors have types of their own: see `types`.
    pub file_type: Option<String>,
    /// Elements of all tensors.
    pub parameters: u64,
    /// The model's sizes, from the metadata and the tensors of a GGUF.
    pub shapes: Option<Shapes>,
    /// The heads' sizes, where the file holds them.
    pub heads: Option<HeadShapes>,
    /// Tensors by type, the most bytes first.
    pub types: Vec<TypeFacts>,
    /// The tokenizer of a GGUF.
    pub tokenizer: Option<TokenizerFacts>,
    /// Whether it can be run here, and if not, why.
    pub runnable: Runnable,
    /// Memory in use while routing, for a GGUF whose shapes are known.
    pub resident: Option<Resident>,
    /// Keys and values in the file's order, long ones abbreviated.
    pub metadata: Vec<MetadataFacts>,
    /// The tensors in the file's order.
    pub tensors: Vec<TensorFacts>,
}

/// A model's sizes. Where layers differ, the largest.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shapes {
    /// Transformer blocks.
    pub layers: Option<u32>,
    /// Width of the residual stream.
    pub hidden: Option<u32>,
    /// Query heads.
    pub heads: Option<u32>,
    /// Key and value heads.
    pub kv_heads: Option<u32>,
    /// Width of a query or key head.
    pub head_dim: Option<u32>,
    /// Width of a value head.
    pub value_dim: Option<u32>,
    /// Width of the feed-forward network.
    pub ffn: Option<u32>,
    /// Tokens in the vocabulary.
    pub vocab: Option<u64>,
    /// Positions that the model was trained for.
    pub context: Option<u32>,
    /// The base of the rotary embedding.
    pub rope_theta: Option<f32>,
    /// Positions that a sliding-window layer sees.
    pub sliding_window: Option<u32>,
    /// Whether the output matrix is the embedding.
    pub tied_embedding: bool,
}

/// The heads' sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeadShapes {
    /// The hidden size that they read.
    pub hidden: u64,
    /// Rows of each head, by its name: `task`, `route`, `feature`.
    pub rows: BTreeMap<String, u64>,
}

/// The tensors of one type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeFacts {
    /// The type's name, `unknown (99)` where it has none.
    pub name: String,
    /// How many tensors have it.
    pub tensors: u64,
    /// Their elements.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the kernels (GGUF) or the heads (safetensors) take it.
    pub supported: bool,
}

/// A GGUF's tokenizer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenizerFacts {
    /// `tokenizer.ggml.model`: `gpt2` is byte-level BPE, `llama` is SentencePiece.
    pub model: Option<String>,
    /// `tokenizer.ggml.pre`: the name of the pre-tokenizer.
    pub pre: Option<String>,
    /// Tokens.
    pub tokens: usize,
    /// Merges.
    pub merges: Option<usize>,
    /// Tokens by their kind: `normal`, `unknown`, `control`, `user_defined`, `unused`, `byte`.
    pub kinds: BTreeMap<&'static str, usize>,
    /// Special tokens by their role: `bos`, `eos`, `unknown`, `padding`, …
    pub special: BTreeMap<String, SpecialToken>,
    /// `tokenizer.ggml.add_bos_token`.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// Whether there is a chat template.
    pub chat_template: bool,
}

/// A special token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpecialToken {
    /// Its id.
    pub id: u32,
    /// Its text, invalid UTF-8 replaced; `None` where the vocabulary has no such id.
    pub text: Option<String>,
}

/// Whether a file can be run here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Runnable {
    /// Whether it can.
    pub yes: bool,
    /// Why not; empty where it can.
    pub reasons: Vec<Reason>,
}

/// A reason why a file cannot be run here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// A word for programs: `architecture`, `types`, `tokenizer`, `keys`, `tensors`, `split`, `role`, `backbone`.
    pub code: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Memory in use while routing: an estimate from shapes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resident {
    /// Bytes of the weights that stay in memory (clean pages where the file is mapped).
    pub weights: u64,
    /// Bytes that stay in the file: the embedding, of which only the prompt's rows are read, and the output matrix, which
    /// routing never needs.
    pub left_in_file: u64,
    /// Bytes of keys and values for 1,000 tokens of prompt: f32, one layer's at a time.
    pub kv_per_1k_tokens: u64,
    /// Bytes of activations for 1,000 tokens that are computed at once; shorter chunks take less.
    pub activations_per_1k_tokens: u64,
}

/// A metadata entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetadataFacts {
    /// The key.
    pub key: String,
    /// The value's type: `uint32`, `array of string`.
    #[serde(rename = "type")]
    pub value_type: &'static str,
    /// The value; of a long array its first elements, of a long string its beginning.
    pub value: Json,
    /// The number of elements of an array.
    pub elements: Option<usize>,
    /// Whether `value` is not the whole of it.
    pub abbreviated: bool,
}

/// A tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorFacts {
    /// The name.
    pub name: String,
    /// The type's name.
    #[serde(rename = "type")]
    pub element_type: String,
    /// The dimensions in the file's own order: of a GGUF the input dimension first, of a safetensors file last.
    pub dims: Vec<u64>,
    /// Where the bytes begin in the file.
    pub offset: u64,
    /// How many bytes there are.
    pub bytes: u64,
}

/// Reports the facts of a GGUF or safetensors file. Tensors' bytes are not read.
///
/// # Errors
/// [`InspectError`]: the file cannot be read, is of another format (the message says which and what to do) or is damaged.
pub fn inspect(source: Arc<dyn Source>) -> Result<Report, InspectError> {
    let contents = Contents::of(&*source)
        .map_err(|error| InspectError::Io { file: source.name().to_owned(), source: error })?;
    match contents {
        Contents::Gguf => Ok(gguf_report(&Gguf::open(source)?)),
        Contents::Safetensors => Ok(safetensors_report(&TensorFile::open(source)?)),
        other => {
            Err(InspectError::UnknownFormat { file: source.name().to_owned(), looks_like: other.to_string() })
        }
    }
}

/// The facts of a GGUF that is open already.
pub fn gguf_report(gguf: &Gguf) -> Report {
    // A key of the wrong type is no fact; `runnable` tells of it where it is needed.
    let text = |key| gguf.str(key).ok().flatten().map(str::to_owned);
    let tensors: Vec<TensorFacts> = gguf
        .tensors()
        .iter()
        .map(|tensor| TensorFacts {
            name: tensor.name.clone(),
            element_type: gguf_type(tensor.type_id),
            dims: tensor.dims.clone(),
            offset: tensor.offset,
            bytes: tensor.bytes,
        })
        .collect();
    let shapes = shapes(gguf);
    Report {
        file: gguf.source().name().to_owned(),
        format: Format::Gguf,
        version: Some(gguf.version()),
        role: if gguf.tensor("token_embd.weight").is_some() { Role::Backbone } else { Role::Other },
        bytes: gguf.source().len(),
        header_bytes: gguf.data_start(),
        architecture: text("general.architecture"),
        name: text("general.name"),
        license: text("general.license"),
        file_type: gguf.u32("general.file_type").ok().flatten().map(file_type),
        parameters: total(gguf.tensors().iter().map(|tensor| tensor.elements())),
        types: types(gguf.tensors().iter().map(|tensor| {
            let supported = BlockType::from_ggml_id(tensor.type_id).is_some();
            (gguf_type(tensor.type_id), tensor.elements(), tensor.bytes, supported)
        })),
        heads: None,
        tokenizer: tokenizer(gguf),
        runnable: runnable(gguf),
        resident: resident(gguf, &shapes),
        shapes: Some(shapes),
        metadata: gguf.metadata().map(|(key, value)| metadata(key, value)).collect(),
        tensors,
    }
}

/// The facts of a safetensors file that is open already.
pub fn safetensors_report(file: &TensorFile) -> Report {
    let heads = heads(file);
    let supported =
        |dtype| matches!(dtype, safetensors::Dtype::F32 | safetensors::Dtype::F16 | safetensors::Dtype::BF16);
    let mut reasons = Vec::new();
    if heads.is_none() {
        reasons.push(Reason {
            code: "role",
            message:
                "the file holds no router heads (task_head.weight, route_head.weight, feature_head.weight); \
                      a checkpoint is run as GGUF: convert it with llama.cpp's convert_hf_to_gguf.py"
                    .to_owned(),
        });
    }
    Report {
        file: file.source().name().to_owned(),
        format: Format::Safetensors,
        version: None,
        role: if heads.is_some() { Role::Heads } else { Role::Other },
        bytes: file.source().len(),
        header_bytes: file.tensors().first().map_or(file.source().len(), |tensor| tensor.range.start),
        architecture: None,
        name: None,
        license: None,
        file_type: None,
        parameters: total(file.tensors().iter().map(|tensor| tensor.elements())),
        shapes: None,
        heads,
        types: types(file.tensors().iter().map(|tensor| {
            (tensor.dtype.to_string(), tensor.elements(), tensor.bytes(), supported(tensor.dtype))
        })),
        tokenizer: None,
        runnable: Runnable { yes: reasons.is_empty(), reasons },
        resident: None,
        metadata: file
            .metadata()
            .iter()
            .map(|(key, value)| metadata(key, &Value::String(value.clone())))
            .collect(),
        tensors: file
            .tensors()
            .iter()
            .map(|tensor| TensorFacts {
                name: tensor.name.clone(),
                element_type: tensor.dtype.to_string(),
                dims: tensor.shape.clone(),
                offset: tensor.range.start,
                bytes: tensor.bytes(),
            })
            .collect(),
    }
}

fn gguf_type(id: u32) -> String {
    type_name(id).map_or_else(|| format!("unknown ({id})"), str::to_owned)
}

/// A sum that stays at the top of its range: elements of types that are unknown are bounded by nothing.
fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// Tensors of (type, elements, bytes, supported) by type.
fn types(tensors: impl Iterator<Item = (String, u64, u64, bool)>) -> Vec<TypeFacts> {
    let mut by_name: BTreeMap<String, TypeFacts> = BTreeMap::new();
    for (name, parameters, bytes, supported) in tensors {
        let facts = by_name.entry(name).or_insert_with_key(|name| TypeFacts {
            name: name.clone(),
            tensors: 0,
            parameters: 0,
            bytes: 0,
            supported,
        });
        facts.tensors += 1;
        facts.parameters = facts.parameters.saturating_add(parameters);
        facts.bytes = facts.bytes.saturating_add(bytes);
    }
    let mut types: Vec<_> = by_name.into_values().collect();
    types.sort_by_key(|facts| std::cmp::Reverse(facts.bytes));
    types
}

fn shapes(gguf: &Gguf) -> Shapes {
    let arch = gguf.architecture().unwrap_or_default();
    let most = |key: &str| {
        gguf.u32_list(&format!("{arch}.{key}")).ok().flatten().and_then(|list| list.into_iter().max())
    };
    let hidden = most("embedding_length");
    let heads = most("attention.head_count");
    // The format's rule for files that do not name it.
    let even = || match (hidden, heads) {
        (Some(hidden), Some(heads)) => hidden.checked_div(heads),
        _ => None,
    };
    let embedding = gguf.tensor("token_embd.weight").and_then(|tensor| tensor.dims.get(1).copied());
    let tokens = || gguf.strings("tokenizer.ggml.tokens").ok().flatten().map(|tokens| tokens.len() as u64);
    Shapes {
        layers: most("block_count"),
        hidden,
        heads,
        kv_heads: most("attention.head_count_kv").or(heads),
        head_dim: most("attention.key_length").or_else(even),
        value_dim: most("attention.value_length").or_else(even),
        ffn: most("feed_forward_length"),
        vocab: embedding.or_else(tokens),
        context: most("context_length"),
        rope_theta: gguf.f32(&format!("{arch}.rope.freq_base")).ok().flatten(),
        sliding_window: most("attention.sliding_window"),
        tied_embedding: gguf.tensor("token_embd.weight").is_some() && gguf.tensor("output.weight").is_none(),
    }
}

/// Whether a tensor stays in the file while routing.
fn stays_in_file(name: &str) -> bool {
    matches!(name, "token_embd.weight" | "output.weight" | "output.bias")
}

fn resident(gguf: &Gguf, shapes: &Shapes) -> Option<Resident> {
    let bytes = |in_file: bool| {
        let tensors = gguf.tensors().iter().filter(|tensor| stays_in_file(&tensor.name) == in_file);
        total(tensors.map(|tensor| tensor.bytes))
    };
    let (hidden, ffn) = (u64::from(shapes.hidden?), u64::from(shapes.ffn?));
    let query = u64::from(shapes.heads?).saturating_mul(shapes.head_dim?.into());
    let key = u64::from(shapes.kv_heads?).saturating_mul(shapes.head_dim?.into());
    let value = u64::from(shapes.kv_heads?).saturating_mul(shapes.value_dim?.into());
    const TOKENS: u64 = 1_000;
    const F32: u64 = 4;
    let kv = key.saturating_add(value);
    // Residual stream, normed input, projected output; query and attention output; key and value; gate and up.
    let activations = [hidden, hidden, hidden, query, query, kv, ffn, ffn];
    Some(Resident {
        weights: bytes(false),
        left_in_file: bytes(true),
        kv_per_1k_tokens: kv.saturating_mul(TOKENS * F32),
        activations_per_1k_tokens: total(activations.into_iter()).saturating_mul(TOKENS * F32),
    })
}

fn tokenizer(gguf: &Gguf) -> Option<TokenizerFacts> {
    let text = |key| gguf.str(key).ok().flatten().map(str::to_owned);
    let flag = |key| gguf.bool(key).ok().flatten();
    let list = |key| gguf.strings(key).ok().flatten();
    let model = text("tokenizer.ggml.model");
    let tokens = list("tokenizer.ggml.tokens");
    if model.is_none() && tokens.is_none() {
        return None;
    }
    let mut kinds = BTreeMap::new();
    for kind in gguf.i32s("tokenizer.ggml.token_type").ok().flatten().unwrap_or_default() {
        // `llama_token_type` of llama.cpp.
        let kind = match kind {
            1 => "normal",
            2 => "unknown",
            3 => "control",
            4 => "user_defined",
            5 => "unused",
            6 => "byte",
            _ => "undefined",
        };
        *kinds.entry(kind).or_insert(0) += 1;
    }
    let special = gguf
        .metadata()
        .filter_map(|(key, value)| {
            let role = key.strip_prefix("tokenizer.ggml.")?.strip_suffix("_token_id")?;
            let id = u32::try_from(value.as_integer()?).ok()?;
            let text = tokens.and_then(|tokens| tokens.get(id as usize));
            let text = text.map(|text| String::from_utf8_lossy(text).into_owned());
            Some((role.to_owned(), SpecialToken { id, text }))
        })
        .collect();
    Some(TokenizerFacts {
        model,
        pre: text("tokenizer.ggml.pre"),
        tokens: tokens.map_or(0, StringArray::len),
        merges: list("tokenizer.ggml.merges").map(StringArray::len),
        kinds,
        special,
        add_bos: flag("tokenizer.ggml.add_bos_token"),
        add_eos: flag("tokenizer.ggml.add_eos_token"),
        add_space_prefix: flag("tokenizer.ggml.add_space_prefix"),
        chat_template: gguf.get("tokenizer.chat_template").is_some(),
    })
}

/// Whether the backbone and the tokenizer can be made from this GGUF.
fn runnable(gguf: &Gguf) -> Runnable {
    let mut reasons = Vec::new();
    let mut no = |code, message| reasons.push(Reason { code, message });

    if let Ok(Some(parts)) = gguf.u32("split.count")
        && parts > 1
    {
        let part = gguf.u32("split.no").ok().flatten().map_or(0, |part| part.saturating_add(1));
        no(
            "split",
            format!("the file is part {part} of {parts}: join the parts with `llama-gguf-split --merge`"),
        );
    }
    if let Ok(Some(kind)) = gguf.str("general.type")
        && kind != "model"
    {
        no("role", format!("the file holds no model, but one of general.type `{kind}`"));
    }
    match gguf.architecture().map(|arch| (arch, Architecture::from_name(arch))) {
        Ok((arch, Some(architecture))) => {
            for key in [
                "block_count",
                "embedding_length",
                "feed_forward_length",
                "attention.head_count",
                "attention.layer_norm_rms_epsilon",
            ] {
                let key = format!("{arch}.{key}");
                let error = match gguf.get(&key) {
                    Some(Value::F32(_) | Value::F64(_)) if key.ends_with("epsilon") => continue,
                    _ if key.ends_with("epsilon") => gguf.require_f32(&key).err(),
                    _ => gguf.require_u32(&key).err(),
                };
                if let Some(error) = error {
                    no("keys", error.to_string());
                }
            }
            if let Ok(Some(experts)) = gguf.u32(&format!("{arch}.expert_count"))
                && experts > 0
            {
                no("architecture", format!("a mixture of {experts} experts is not supported"));
            }
            let missing = missing_tensors(gguf, architecture);
            if let Some(first) = missing.first() {
                let more = match missing.len() {
                    1 => String::new(),
                    n => format!(" and {} more", n - 1),
                };
                no("tensors", format!("the tensor `{first}`{more} of the architecture {arch} is missing"));
            }
        }
        Ok((arch, None)) => no(
            "architecture",
            format!(
                "the architecture `{arch}` is not supported (supported: {})",
                Architecture::ALL.map(Architecture::name).join(", ")
            ),
        ),
        Err(error) => no("architecture", error.to_string()),
    }

    let mut unsupported: BTreeMap<u32, (usize, &str)> = BTreeMap::new();
    for tensor in gguf.tensors() {
        // What stays unread may be of any type: routing never needs the output matrix.
        if BlockType::from_ggml_id(tensor.type_id).is_none() && !tensor.name.starts_with("output.") {
            unsupported.entry(tensor.type_id).or_insert((0, &tensor.name)).0 += 1;
        }
    }
    for (id, (count, first)) in unsupported {
        let supported = BlockType::ALL.map(|t| t.name()).join(", ");
        no(
            "types",
            format!(
                "{count} tensors, `{first}` first, have the type {}, which is not supported (supported: {supported})",
                gguf_type(id)
            ),
        );
    }

    let pre = gguf.str("tokenizer.ggml.pre");
    match (gguf.require_str("tokenizer.ggml.model"), pre) {
        (Err(error), _) | (_, Err(error)) => no("tokenizer", error.to_string()),
        (Ok("gpt2"), Ok(Some(pre))) if PreTokenizer::from_name(pre).is_some() => {}
        (Ok("gpt2"), Ok(pre)) => {
            let pre = pre.map_or_else(
                || "the file does not name its pre-tokenizer (tokenizer.ggml.pre)".to_owned(),
                |pre| format!("the pre-tokenizer `{pre}` is not known"),
            );
            no("tokenizer", format!("{pre}; known: {}", PreTokenizer::NAMES));
        }
        (Ok("llama"), _) => {}
        (Ok(model), _) => no(
            "tokenizer",
            format!(
                "the tokenizer `{model}` is not supported (supported: gpt2, byte-level BPE; llama, SentencePiece)"
            ),
        ),
    }
    if let Err(error) = gguf.require_strings("tokenizer.ggml.tokens") {
        no("tokenizer", error.to_string());
    }
    if reasons.is_empty()
        && let Err(error) = crate::backbone::check(gguf)
    {
        reasons.push(Reason { code: "backbone", message: error.to_string() });
    }
    Runnable { yes: reasons.is_empty(), reasons }
}

/// The tensors of an architecture that the file lacks.
fn missing_tensors(gguf: &Gguf, architecture: Architecture) -> Vec<String> {
    let arch = architecture.name();
    let layers = gguf.u32(&format!("{arch}.block_count")).ok().flatten().unwrap_or(0);
    let mut missing: Vec<String> = ["token_embd.weight", "output_norm.weight"]
        .into_iter()
        .filter(|name| gguf.tensor(name).is_none())
        .map(str::to_owned)
        .collect();
    for layer in 0..layers {
        let names = parts(architecture).map(|name| format!("blk.{layer}.{name}.weight"));
        let absent: Vec<_> = names.filter(|name| gguf.tensor(name).is_none()).collect();
        let whole = absent.len() == parts(architecture).count();
        missing.extend(absent);
        // A file may claim any number of layers: after one that is wholly absent the rest is not listed.
        if whole {
            break;
        }
    }
    missing
}

fn heads(file: &TensorFile) -> Option<HeadShapes> {
    let mut rows = BTreeMap::new();
    let mut hidden = None;
    for tensor in file.tensors() {
        if let Some(head) = tensor.name.strip_suffix("_head.weight")
            && let [out, input] = tensor.shape[..]
        {
            rows.insert(head.to_owned(), out);
            hidden = hidden.or(Some(input));
        }
    }
    hidden.map(|hidden| HeadShapes { hidden, rows })
}

fn metadata(key: &str, value: &Value) -> MetadataFacts {
    let mut abbreviated = false;
    let elements = value.as_array().map(Array::len);
    let shown = show(value, &mut abbreviated);
    MetadataFacts { key: key.to_owned(), value_type: value.type_name(), value: shown, elements, abbreviated }
}

fn show(value: &Value, abbreviated: &mut bool) -> Json {
    match value {
        Value::U8(v) => (*v).into(),
        Value::I8(v) => (*v).into(),
        Value::U16(v) => (*v).into(),
        Value::I16(v) => (*v).into(),
        Value::U32(v) => (*v).into(),
        Value::I32(v) => (*v).into(),
        Value::F32(v) => float(*v),
        Value::Bool(v) => (*v).into(),
        Value::String(v) => string(v, abbreviated),
        Value::Array(v) => array(v, abbreviated),
        Value::U64(v) => (*v).into(),
        Value::I64(v) => (*v).into(),
        Value::F64(v) => (*v).into(),
    }
}

/// The shortest decimal that is this f32: `1e-6`, not the 9.999999974752427e-7 of its widening.
fn float(v: f32) -> Json {
    v.to_string().parse::<f64>().map_or(Json::Null, Json::from)
}

fn string(text: &str, abbreviated: &mut bool) -> Json {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((cut, _)) => {
            *abbreviated = true;
            format!("{}…", &text[..cut]).into()
        }
        None => text.into(),
    }
}

fn array(array: &Array, abbreviated: &mut bool) -> Json {
    fn first<T: Copy + Into<Json>>(elements: &[T]) -> Json {
        elements.iter().take(SHOWN_ELEMENTS).map(|&v| v.into()).collect::<Vec<Json>>().into()
    }
    *abbreviated |= array.len() > SHOWN_ELEMENTS;
    match array {
        Array::U8(v) => first(v),
        Array::I8(v) => first(v),
        Array::U16(v) => first(v),
        Array::I16(v) => first(v),
        Array::U32(v) => first(v),
        Array::I32(v) => first(v),
        Array::F32(v) => v.iter().take(SHOWN_ELEMENTS).map(|&v| float(v)).collect::<Vec<_>>().into(),
        Array::Bool(v) => first(v),
        Array::Strings(v) => v
            .iter()
            .take(SHOWN_ELEMENTS)
            .map(|text| string(&String::from_utf8_lossy(text), abbreviated))
            .collect::<Vec<_>>()
            .into(),
        Array::Arrays(v) => {
            v.iter().take(SHOWN_ELEMENTS).map(|v| self::array(v, abbreviated)).collect::<Vec<_>>().into()
        }
        Array::U64(v) => first(v),
        Array::I64(v) => first(v),
        Array::F64(v) => first(v),
    }
}

/// The name of a `general.file_type` (`enum llama_ftype` of llama.h).
fn file_type(id: u32) -> String {
    let name = match id {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        19 => "IQ2_XXS",
        20 => "IQ2_XS",
        21 => "Q2_K_S",
        22 => "IQ3_XS",
        23 => "IQ3_XXS",
        24 => "IQ1_S",
        25 => "IQ4_NL",
        26 => "IQ3_S",
        27 => "IQ3_M",
        28 => "IQ2_S",
        29 => "IQ2_M",
        30 => "IQ4_XS",
        31 => "IQ1_M",
        32 => "BF16",
        36 => "TQ1_0",
        37 => "TQ2_0",
        38 => "MXFP4_MOE",
        _ => return format!("unknown ({id})"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::testing::Builder;
    use crate::source::Memory;

    fn report(file: Vec<u8>) -> Result<Report, InspectError> {
        inspect(Arc::new(Memory::new("test", file)))
    }

    fn model(arch: &str) -> Builder {
        let key = |name: &str| format!("{arch}.{name}");
        let mut file = Builder::new(arch)
            .with("general.name", "tiny")
            .with("general.file_type", 15_u32)
            .with(&key("block_count"), 1_u32)
            .with(&key("context_length"), 4096_u32)
            .with(&key("embedding_length"), 32_u32)
            .with(&key("feed_forward_length"), 16_u32)
            .with(&key("attention.head_count"), 2_u32)
            .with(&key("attention.head_count_kv"), 1_u32)
            .with(&key("attention.layer_norm_rms_epsilon"), 1e-6_f32)
            .with("tokenizer.ggml.model", "gpt2")
            .strings("tokenizer.ggml.tokens", ["a", "b", "<|im_end|>"])
            .i32s("tokenizer.ggml.token_type", &[1, 1, 3])
            .strings("tokenizer.ggml.merges", ["a b"])
            .with("tokenizer.ggml.eos_token_id", 2_u32)
            .with("tokenizer.ggml.bos_token_id", 9_u32)
            .with("tokenizer.ggml.add_bos_token", false)
            .f32_tensor("token_embd.weight", &[32, 3], &[0.0; 96])
            .f32_tensor("output_norm.weight", &[32], &[1.0; 32]);
        let block: [(&str, &[u64]); 9] = [
            ("attn_norm", &[32]),
            ("attn_q", &[32, 32]),
            ("attn_k", &[32, 16]),
            ("attn_v", &[32, 16]),
            ("attn_output", &[32, 32]),
            ("ffn_norm", &[32]),
            ("ffn_gate", &[32, 16]),
            ("ffn_up", &[32, 16]),
            ("ffn_down", &[16, 32]),
        ];
        for (name, dims) in block {
            let zeros = vec![0.0; dims.iter().product::<u64>() as usize];
            file = file.f32_tensor(&format!("blk.0.{name}.weight"), dims, &zeros);
        }
        file
    }

    fn codes(report: &Report) -> Vec<&str> {
        report.runnable.reasons.iter().map(|reason| reason.code).collect()
    }

    #[test]
    fn a_model_that_runs_is_described() {
        let report = report(model("llama").with("tokenizer.ggml.pre", "smollm").build()).unwrap();
        assert!(report.runnable.yes, "{:?}", report.runnable);
        assert_eq!((report.format, report.version, report.role), (Format::Gguf, Some(3), Role::Backbone));
        assert_eq!(report.architecture.as_deref(), Some("llama"));
        assert_eq!((report.name.as_deref(), report.file_type.as_deref()), (Some("tiny"), Some("Q4_K_M")));
        let block = 32 + 1024 + 512 + 512 + 1024 + 32 + 512 + 512 + 512;
        assert_eq!(report.parameters, 96 + 32 + block);
        let shapes = report.shapes.as_ref().unwrap();
        assert_eq!(
            (shapes.layers, shapes.hidden, shapes.heads, shapes.kv_heads),
            (Some(1), Some(32), Some(2), Some(1))
        );
        assert_eq!(
            (shapes.head_dim, shapes.ffn, shapes.vocab, shapes.context),
            (Some(16), Some(16), Some(3), Some(4096))
        );
        assert!(shapes.tied_embedding);
        assert_eq!(
            report.types,
            [TypeFacts {
                name: "F32".into(),
                tensors: 11,
                parameters: 96 + 32 + block,
                bytes: 4 * (96 + 32 + block),
                supported: true
            }]
        );
        let resident = report.resident.as_ref().unwrap();
        assert_eq!((resident.weights, resident.left_in_file), (4 * (32 + block), 4 * 96));
        assert_eq!(resident.kv_per_1k_tokens, 1_000 * 4 * (16 + 16));
        let tokenizer = report.tokenizer.as_ref().unwrap();
        assert_eq!((tokenizer.tokens, tokenizer.merges, tokenizer.add_bos), (3, Some(1), Some(false)));
        assert_eq!(tokenizer.kinds, BTreeMap::from([("normal", 2), ("control", 1)]));
        assert_eq!(tokenizer.special["eos"].text.as_deref(), Some("<|im_end|>"));
        assert_eq!(tokenizer.special["bos"], SpecialToken { id: 9, text: None });
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["format"], "gguf");
        assert_eq!(json["runnable"]["yes"], true);
        let epsilon = report.metadata.iter().find(|entry| entry.key.ends_with("epsilon")).unwrap();
        assert_eq!((&epsilon.value, epsilon.value_type), (&Json::from(1e-6), "float32"));
    }

    #[test]
    fn what_cannot_run_says_why() {
        let built = |file: Builder| report(file.build()).unwrap();
        let falcon = built(model("falcon").with("tokenizer.ggml.pre", "qwen2"));
        assert_eq!(codes(&falcon), ["architecture"]);
        assert!(falcon.runnable.reasons[0].message.contains("qwen3, llama, gemma3"));

        // Qwen3 has norms that this file lacks.
        let qwen = built(model("qwen3").with("tokenizer.ggml.pre", "qwen2"));
        assert_eq!(codes(&qwen), ["tensors"]);
        assert!(qwen.runnable.reasons[0].message.contains("blk.0.attn_q_norm.weight` and 1 more"));

        let pre = built(model("llama").with("tokenizer.ggml.pre", "tekken"));
        assert_eq!(codes(&pre), ["tokenizer"]);
        assert!(pre.runnable.reasons[0].message.contains("`tekken` is not known"));
        let none = built(model("llama"));
        assert!(none.runnable.reasons[0].message.contains("does not name its pre-tokenizer"));

        let types = built(model("llama").with("tokenizer.ggml.pre", "qwen2").tensor(
            "blk.0.extra",
            &[256],
            16,
            &[0; 66],
        ));
        assert_eq!(codes(&types), ["types"]);
        assert!(types.runnable.reasons[0].message.contains("IQ2_XXS"));
        assert!(types.types.iter().any(|t| t.name == "IQ2_XXS" && !t.supported && t.bytes == 66));

        let split = built(
            model("llama")
                .with("tokenizer.ggml.pre", "qwen2")
                .with("split.count", 3_u16)
                .with("split.no", 1_u16),
        );
        assert!(split.runnable.reasons[0].message.contains("part 2 of 3"));

        let bare = built(Builder::new("llama").with("llama.block_count", u32::MAX));
        assert!(codes(&bare).contains(&"keys") && codes(&bare).contains(&"tensors"));
        assert_eq!(bare.role, Role::Other);
        let nameless = built(Builder::empty());
        assert!(nameless.runnable.reasons[0].message.contains("general.architecture"));
        let adapter = built(Builder::new("llama").with("general.type", "adapter"));
        assert_eq!(codes(&adapter)[0], "role");
        let experts =
            built(model("llama").with("tokenizer.ggml.pre", "qwen2").with("llama.expert_count", 8_u32));
        assert_eq!(codes(&experts), ["architecture"]);
    }

    #[test]
    fn long_values_are_abbreviated() {
        let file = Builder::empty()
            .with("text", "é".repeat(1_000))
            .strings("tokens", ["x"; 1_000])
            .with("short", Array::Bool(vec![true]))
            .with("nan", f32::NAN);
        let report = report(file.build()).unwrap();
        let [text, tokens, short, nan] = &report.metadata[..] else { panic!("four keys") };
        assert_eq!(text.value.as_str().unwrap().chars().count(), SHOWN_CHARS + 1);
        assert!(text.abbreviated && tokens.abbreviated && !short.abbreviated);
        assert_eq!((tokens.value.as_array().unwrap().len(), tokens.elements), (SHOWN_ELEMENTS, Some(1_000)));
        assert_eq!(short.value, serde_json::json!([true]));
        assert_eq!(nan.value, Json::Null);
    }

    #[test]
    fn heads_and_checkpoints_are_told_apart() {
        let file = |name: &str| {
            let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}}}"#);
            let mut file = (header.len() as u64).to_le_bytes().to_vec();
            file.extend(header.bytes().chain([0; 24]));
            report(file).unwrap()
        };
        let heads = file("task_head.weight");
        assert_eq!((heads.role, heads.runnable.yes), (Role::Heads, true));
        assert_eq!(heads.heads, Some(HeadShapes { hidden: 3, rows: BTreeMap::from([("task".into(), 2)]) }));
        let checkpoint = file("model.embed_tokens.weight");
        assert_eq!((checkpoint.role, codes(&checkpoint)), (Role::Other, vec!["role"]));
        assert_eq!(checkpoint.parameters, 6);
    }

    #[test]
    fn other_files_are_named() {
        for (bytes, named) in [
            (&b"<!doctype html>"[..], "HTML"),
            (b"PK\x03\x04\x14\0", "zip archive"),
            (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
            (b"lmgg\x01\0\0\0", "ggml format"),
            (b"", "empty"),
        ] {
            let error = report(bytes.to_vec()).unwrap_err();
            assert!(matches!(error, InspectError::UnknownFormat { .. }));
            assert!(error.to_string().contains(named), "{error}");
        }
        let error = report(model("llama").truncate(1_000).build()).unwrap_err();
        assert!(matches!(error, InspectError::Gguf(_)), "{error}");
        let error = report(b"\xff\0\0\0\0\0\0\0{".to_vec()).unwrap_err();
        assert!(
            matches!(error, InspectError::Safetensors(TensorFileError::HeaderTruncated { .. })),
            "{error}"
        );
    }
}
