//! `tokenizer.json` as the keys `tokenizer.ggml.*` of a GGUF.

use super::SourceError;
use super::huggingface::read_json;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use zen_edge_core::gguf::{Array, Value};
use zen_edge_core::tokenizer::{PreTokenizer, TokenType};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Json,
    #[serde(default)]
    pre_tokenizer: Json,
    #[serde(default)]
    post_processor: Json,
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    /// Of other models than BPE it is something else.
    #[serde(default)]
    vocab: Vocab,
    #[serde(default)]
    merges: Vec<Merge>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Vocab {
    Ids(HashMap<String, u32>),
    Other(serde::de::IgnoredAny),
}

impl Default for Vocab {
    fn default() -> Self {
        Self::Ids(HashMap::new())
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Text(String),
}

impl Merge {
    /// Its two parts.
    fn parts(&self) -> Option<(&str, &str)> {
        match self {
            Self::Pair(left, right) => Some((left, right)),
            Self::Text(text) => text.split_once(' '),
        }
    }
}

/// The expression that Qwen 2, 2.5 and 3 split by, as `tokenizer.json` writes it.
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Llama 3's.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const KNOWN_PRE: &str =
    "the splitting of Qwen 2 to 3, Llama 3, SmolLM and GPT-2 is known; another would give other token ids";
const KNOWN_NORMALIZER: &str =
    "no normaliser (NFC for Qwen), or spaces written as ▁, is known; another would give other token ids";
const KNOWN_MODEL: &str = "BPE is known, byte-level or with byte_fallback";

/// Tokens beyond this are no vocabulary.
const MAX_TOKENS: u64 = 1 << 22;

struct Reader {
    file: PathBuf,
}

impl Reader {
    fn wrong(&self, what: &'static str, found: impl std::fmt::Display, known: &'static str) -> SourceError {
        let mut found = found.to_string();
        if let Some((end, _)) = found.char_indices().nth(300) {
            found.truncate(end);
            found.push('…');
        }
        SourceError::Tokenizer { file: self.file.clone(), what, found, known }
    }

    /// How byte-level BPE splits.
    fn pre_tokenizer(&self, file: &File) -> Result<PreTokenizer, SourceError> {
        let pre = &file.pre_tokenizer;
        let unknown = || self.wrong("the pre-tokenizer", pre, KNOWN_PRE);
        let byte_level = |json: &Json, splits: bool| {
            json["type"] == "ByteLevel"
                && json["add_prefix_space"] != true
                && json.get("use_regex").and_then(Json::as_bool).unwrap_or(true) == splits
        };
        let found = if byte_level(pre, true) {
            PreTokenizer::Gpt2
        } else {
            let parts = pre["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice);
            match parts {
                [digits, bytes] if digits["type"] == "Digits" && byte_level(bytes, true) => {
                    if digits["individual_digits"] != true {
                        return Err(unknown());
                    }
                    PreTokenizer::SmolLm
                }
                [split, bytes] if split["type"] == "Split" && byte_level(bytes, false) => {
                    let plain = split["behavior"] == "Isolated" && split["invert"] != true;
                    match split["pattern"]["Regex"].as_str() {
                        Some(QWEN2) if plain => PreTokenizer::Qwen2,
                        Some(LLAMA3) if plain => PreTokenizer::Llama3,
                        _ => return Err(unknown()),
                    }
                }
                _ => return Err(unknown()),
            }
        };
        let nfc = file.normalizer["type"] == "NFC";
        if nfc != (found == PreTokenizer::Qwen2) || !(nfc || file.normalizer.is_null()) {
            return Err(self.wrong("the normaliser", &file.normalizer, KNOWN_NORMALIZER));
        }
        // A piece that is a token is that token: Llama 3's rule, and of no other that is known.
        let whole = file.model.ignore_merges;
        if whole.is_some_and(|whole| whole != (found == PreTokenizer::Llama3)) {
            let found = format!("{} with this pre-tokenizer", whole.unwrap_or_default());
            return Err(self.wrong("ignore_merges", found, KNOWN_PRE));
        }
        Ok(found)
    }

    /// Whether SentencePiece puts a space before a text.
    fn space_prefix(&self, file: &File) -> Result<bool, SourceError> {
        let replaces = |json: &Json| {
            json["type"] == "Replace" && json["pattern"]["String"] == " " && json["content"] == "▁"
        };
        let normalizer = &file.normalizer;
        let parts = normalizer["normalizers"].as_array().map_or(&[][..], Vec::as_slice);
        let prefix = match parts {
            _ if replaces(normalizer) => Some(false),
            [prepend, replace]
                if prepend["type"] == "Prepend" && prepend["prepend"] == "▁" && replaces(replace) =>
            {
                Some(true)
            }
            _ if normalizer.is_null() => None,
            _ => return Err(self.wrong("the normaliser", normalizer, KNOWN_NORMALIZER)),
        };
        let pre = &file.pre_tokenizer;
        let unknown = || self.wrong("the pre-tokenizer", pre, KNOWN_PRE);
        match (prefix, pre["type"].as_str()) {
            (Some(prefix), None) if pre.is_null() => Ok(prefix),
            // Spaces are ▁ by then: it splits nothing (Gemma).
            (Some(prefix), Some("Split")) if pre["pattern"]["String"] == " " => Ok(prefix),
            (None, Some("Metaspace")) if pre["replacement"] == "▁" && pre["split"] != true => {
                match pre["prepend_scheme"].as_str() {
                    Some("never") => Ok(false),
                    Some("always") => Ok(true),
                    _ => Err(unknown()),
                }
            }
            _ => Err(unknown()),
        }
    }
}

/// Writes the keys; `vocab` is the number of rows of the embedding.
pub(super) fn read(
    folder: &Path,
    config: &Json,
    text_config: &Json,
    vocab: u64,
    metadata: &mut Vec<(String, Value)>,
    notes: &mut Vec<String>,
) -> Result<(), SourceError> {
    let reader = Reader { file: folder.join("tokenizer.json") };
    let file: File = read_json(&reader.file)?
        .ok_or_else(|| SourceError::MissingFile { folder: folder.to_owned(), name: "tokenizer.json" })?;
    let settings: Json = read_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let generation: Json = read_json(&folder.join("generation_config.json"))?.unwrap_or_default();
    let Vocab::Ids(ids) = &file.model.vocab else {
        let kind = file.model.kind.as_deref().unwrap_or("not named");
        return Err(reader.wrong("the model", kind, KNOWN_MODEL));
    };
    if file.model.kind.as_deref().is_some_and(|kind| kind != "BPE") || file.model.merges.is_empty() {
        return Err(reader.wrong(
            "the model",
            file.model.kind.as_deref().unwrap_or("without merges"),
            KNOWN_MODEL,
        ));
    }
    if vocab > MAX_TOKENS {
        return Err(reader.wrong("the vocabulary", vocab, "at most 4,194,304 tokens are read"));
    }
    let mut tokens: Vec<(String, TokenType)> = vec![(String::new(), TokenType::Undefined); vocab as usize];
    let beyond = |id: u32| {
        reader.wrong(
            "a token's id",
            id,
            "the embedding has fewer rows: the tokenizer belongs to another model",
        )
    };
    let spm = file.model.byte_fallback;
    let unk = file.model.unk_token.as_deref();
    for (token, &id) in ids {
        let is_byte = spm && token.len() == 6 && token.starts_with("<0x") && token.ends_with('>');
        let kind = match () {
            () if is_byte => TokenType::Byte,
            () if spm && unk == Some(token) => TokenType::Unknown,
            () => TokenType::Normal,
        };
        *tokens.get_mut(id as usize).ok_or_else(|| beyond(id))? = (token.clone(), kind);
    }
    let mut stripping = 0;
    for added in &file.added_tokens {
        let slot = tokens.get_mut(added.id as usize).ok_or_else(|| beyond(added.id))?;
        let kind = match slot.1 {
            TokenType::Unknown | TokenType::Byte => slot.1,
            _ if added.special || looks_special(&added.content) => TokenType::Control,
            _ => TokenType::UserDefined,
        };
        *slot = (added.content.clone(), kind);
        stripping += usize::from(added.single_word || added.lstrip || added.rstrip);
    }
    if stripping > 0 {
        notes.push(format!(
            "{stripping} added tokens have lstrip, rstrip or single_word, which a GGUF cannot say: where they stand in a text, \
             the spaces about them become tokens"
        ));
    }
    for (id, (token, kind)) in tokens.iter_mut().enumerate() {
        if *kind == TokenType::Undefined {
            (*token, *kind) = (format!("[PAD{id}]"), TokenType::Unused);
        }
    }

    let mut put = |key: &str, value: Value| metadata.push((format!("tokenizer.ggml.{key}"), value));
    let list = |strings: Vec<String>| Value::Array(Array::Strings(strings.into_iter().collect()));
    let types = Array::I32(tokens.iter().map(|(_, kind)| *kind as i32).collect());
    if spm {
        let prefix = reader.space_prefix(&file)?;
        let scores = scores(&reader, &file, ids, tokens.len())?;
        put("model", "llama".into());
        put("pre", "default".into());
        put("tokens", list(tokens.iter().map(|(token, _)| token.clone()).collect()));
        put("scores", Array::F32(scores).into());
        put("token_type", types.into());
        put("add_space_prefix", prefix.into());
        if let Some(id) = unk.and_then(|unk| ids.get(unk)) {
            put("unknown_token_id", (*id).into());
        }
    } else {
        let pre = reader.pre_tokenizer(&file)?;
        put("model", "gpt2".into());
        put("pre", pre.name().into());
        put("tokens", list(tokens.iter().map(|(token, _)| token.clone()).collect()));
        put("token_type", types.into());
        let merges = file.model.merges.iter().enumerate().map(|(i, merge)| {
            let (left, right) = merge.parts().ok_or_else(|| {
                reader.wrong(
                    "a merge",
                    format!("number {i}"),
                    "a merge has two parts with a space between them",
                )
            })?;
            Ok(format!("{left} {right}"))
        });
        put("merges", list(merges.collect::<Result<_, SourceError>>()?));
    }

    let by_text: HashMap<&str, u32> =
        tokens.iter().zip(0..).map(|((token, _), id)| (token.as_str(), id)).collect();
    // By its text in the tokenizer's settings, else by its id in the model's.
    let special = |name: &str| -> Option<u32> {
        let setting = &settings[format!("{name}_token")];
        let text = setting.as_str().or_else(|| setting["content"].as_str());
        if let Some(id) = text.and_then(|text| by_text.get(text)) {
            return Some(*id);
        }
        let key = format!("{name}_token_id");
        let of = |json: &Json| json[&key].as_u64().or_else(|| json[&key][0].as_u64());
        let id = [text_config, config, &generation].into_iter().find_map(of)?;
        u32::try_from(id).ok().filter(|id| u64::from(*id) < vocab)
    };
    let around = template(&file.post_processor);
    let bos = around.as_ref().and_then(|(first, _)| *first).or_else(|| special("bos"));
    let eos = special("eos").or_else(|| around.as_ref().and_then(|(_, last)| *last));
    for (key, id) in [("bos", bos), ("eos", eos), ("padding", special("pad"))] {
        if let Some(id) = id {
            put(&format!("{key}_token_id"), id.into());
        }
    }
    // The template is what `tokenizers` applies; without one, the settings are what `transformers` goes by.
    let asked = |name: &str| settings[name].as_bool().unwrap_or(false);
    let (add_bos, add_eos) = match around {
        Some((first, last)) => (first.is_some(), last.is_some()),
        None => (asked("add_bos_token") && bos.is_some(), asked("add_eos_token") && eos.is_some()),
    };
    put("add_bos_token", add_bos.into());
    put("add_eos_token", add_eos.into());

    if let Some(template) = chat_template(folder, &settings)? {
        metadata.push(("tokenizer.chat_template".to_owned(), template.into()));
    }
    Ok(())
}

/// Whether a token is one of a template's signs by its looks, though a `tokenizer.json` may not call it special: llama.cpp's
/// converter goes by the same.
fn looks_special(token: &str) -> bool {
    let within = |start: &str, end: &str| {
        token.len() >= start.len() + end.len() && token.starts_with(start) && token.ends_with(end)
    };
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&token)
        || within("<|", "|>")
        || within("<｜", "｜>")
        || within("<unused", ">")
}

/// The scores that the merges were made from: a token's is the higher the earlier its first merge stands.
fn scores(
    reader: &Reader,
    file: &File,
    ids: &HashMap<String, u32>,
    tokens: usize,
) -> Result<Vec<f32>, SourceError> {
    let lowest = -(file.model.merges.len() as f32) - 1.0;
    let mut scores = vec![lowest; tokens];
    let mut joined = String::new();
    for (rank, merge) in file.model.merges.iter().enumerate() {
        let Some((left, right)) = merge.parts() else {
            let known = "a merge has two parts with a space between them";
            return Err(reader.wrong("a merge", format!("number {rank}"), known));
        };
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let Some(&id) = ids.get(joined.as_str()) else {
            return Err(reader.wrong("a merge", format!("of {joined:?}"), "what it makes must be a token"));
        };
        let score = &mut scores[id as usize];
        *score = score.max(-(rank as f32));
    }
    Ok(scores)
}

/// What a post-processor puts before and after a text: the ids, where there is a template at all.
fn template(post: &Json) -> Option<(Option<u32>, Option<u32>)> {
    let template = match post["type"].as_str()? {
        "TemplateProcessing" => post,
        "Sequence" => post["processors"].as_array()?.iter().find(|p| p["type"] == "TemplateProcessing")?,
        _ => return None,
    };
    let single = template["single"].as_array()?;
    let id = |piece: Option<&Json>| {
        let name = piece?["SpecialToken"]["id"].as_str()?;
        u32::try_from(template["special_tokens"][name]["ids"][0].as_u64()?).ok()
    };
    Some((id(single.first()), id(single.last())))
}

/// The chat template, from whichever of three files has it.
fn chat_template(folder: &Path, settings: &Json) -> Result<Option<String>, SourceError> {
    let file = folder.join("chat_template.jinja");
    match std::fs::read_to_string(&file) {
        Ok(template) => return Ok(Some(template)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(source) => return Err(SourceError::Io { file, source }),
    }
    let apart: Json = read_json(&folder.join("chat_template.json"))?.unwrap_or_default();
    let of = |json: &Json| {
        let template = &json["chat_template"];
        let default = template.as_array().and_then(|all| all.iter().find(|t| t["name"] == "default"));
        template.as_str().or_else(|| default?["template"].as_str()).map(str::to_owned)
    };
    Ok(of(settings).or_else(|| of(&apart)))
}
