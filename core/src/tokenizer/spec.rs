//! What a tokenizer is built from: the keys `tokenizer.ggml.*` of a GGUF.

use super::TokenizerError;
use crate::gguf::{Gguf, StringArray};
use crate::room;

/// What joins bytes or characters to tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerModel {
    /// `gpt2`: text is split by a pre-tokenizer, and each piece's bytes are joined by ranked merges.
    ByteLevelBpe(PreTokenizer),
    /// `llama`: characters are joined by the scores of what they become; what has no token falls back to bytes.
    SentencePiece(TieBreak),
}

/// How byte-level BPE splits text before it joins: `tokenizer.ggml.pre`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PreTokenizer {
    /// `qwen2` (Qwen 2, 2.5 and 3): NFC; single digits; words with one leading sign; runs of signs with their newlines.
    Qwen2,
    /// `llama-bpe`, also written `llama3` and `llama-v3`: as `qwen2`, but digits in threes and no NFC; a piece that is a
    /// token is that token, whatever the merges say.
    Llama3,
    /// `smollm` (SmolLM, SmolLM2): single digits, then as `gpt-2`.
    SmolLm,
    /// `gpt-2`: words, numbers and runs of signs, each with one leading space.
    Gpt2,
    /// `default`: llama.cpp's rule for models that it does not know: runs of punctuation, then as `gpt-2`, digits in threes.
    Default,
}

impl PreTokenizer {
    /// The names that [`PreTokenizer::from_name`] knows, for messages.
    pub const NAMES: &'static str = "qwen2, llama-bpe, llama3, llama-v3, smollm, gpt-2, default";

    /// The pre-tokenizer that a GGUF's `tokenizer.ggml.pre` names.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "qwen2" => Self::Qwen2,
            "llama-bpe" | "llama3" | "llama-v3" => Self::Llama3,
            "smollm" => Self::SmolLm,
            "gpt-2" => Self::Gpt2,
            "default" => Self::Default,
            _ => return None,
        })
    }

    /// The name in a GGUF.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qwen2 => "qwen2",
            Self::Llama3 => "llama-bpe",
            Self::SmolLm => "smollm",
            Self::Gpt2 => "gpt-2",
            Self::Default => "default",
        }
    }
}

/// Which of several ways to the same SentencePiece token goes first, where they overlap (`aaa` from `aa a` and `a aa`).
///
/// A GGUF holds scores of tokens, not ranks of merges; the ranks of Hugging Face's `tokenizer.json` were made from the
/// scores by converters that ordered equals differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TieBreak {
    /// The lower id of the left part (Llama 2 and its kin).
    LeftId,
    /// The longer left part, in characters (Gemma).
    LongestLeft,
}

/// `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TokenType {
    /// 0: not said.
    Undefined = 0,
    /// 1: made of text by the model.
    Normal = 1,
    /// 2: stands for what has no token.
    Unknown = 2,
    /// 3: matched in the text as it stands, unless `plain_text` is asked for: `<|im_end|>`.
    Control = 3,
    /// 4: matched in the text as it stands: `<think>`.
    UserDefined = 4,
    /// 5: a place that is not in use.
    Unused = 5,
    /// 6: a byte of a character that has no token: `<0x0A>`.
    Byte = 6,
}

impl TokenType {
    /// The type of a number in a GGUF.
    pub fn from_ggml(value: i32) -> Option<Self> {
        Some(match value {
            0 => Self::Undefined,
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// Many byte strings in one blob: a vocabulary of 151,936 tokens is two allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of all strings together.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a string.
    pub fn push(&mut self, string: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(string.as_ref());
        self.ends.push(self.bytes.len());
    }

    /// The strings in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let string = &self.bytes[start..end];
            start = end;
            string
        })
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for Strings {
    fn from_iter<T: IntoIterator<Item = S>>(strings: T) -> Self {
        let mut all = Self::default();
        for string in strings {
            all.push(string);
        }
        all
    }
}

impl TryFrom<&StringArray> for Strings {
    type Error = TokenizerError;

    /// A copy of the strings of a GGUF.
    ///
    /// # Errors
    /// [`TokenizerError::OutOfMemory`].
    fn try_from(array: &StringArray) -> Result<Self, TokenizerError> {
        let refused = TokenizerError::no_memory("the vocabulary's strings");
        let mut all = Self {
            bytes: room::room(array.total_bytes()).map_err(refused)?,
            ends: room::room(array.len()).map_err(refused)?,
        };
        for string in array.iter() {
            all.push(string);
        }
        Ok(all)
    }
}

/// What a tokenizer is built from. [`TokenizerSpec::from_gguf`] reads it; the fields may be changed before
/// [`super::Tokenizer::new`] checks them.
#[derive(Clone, Debug)]
pub struct TokenizerSpec {
    /// The kind of tokenizer, with its pre-tokenizer.
    pub model: TokenizerModel,
    /// The tokens in the order of their ids, as a GGUF writes them: byte-level tokens in GPT-2's printable characters
    /// (`Ġthe`), SentencePiece ones with `▁` for a space.
    pub tokens: Strings,
    /// SentencePiece: the score of each token, higher first. Byte-level BPE: not used.
    pub scores: Option<Vec<f32>>,
    /// The type of each token; where absent, all are normal.
    pub types: Option<Vec<i32>>,
    /// Byte-level BPE: `left right`, the first to be applied first. SentencePiece: not used.
    pub merges: Option<Strings>,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// The token that ends a text.
    pub eos: Option<u32>,
    /// The token for what has none.
    pub unk: Option<u32>,
    /// Whether a text begins with `bos` unless the caller says otherwise.
    pub add_bos: bool,
    /// Whether a text ends with `eos` unless the caller says otherwise.
    pub add_eos: bool,
    /// SentencePiece: whether a space is put before each run of text.
    pub add_space_prefix: bool,
}

impl TokenizerSpec {
    /// Reads the keys `tokenizer.ggml.*`.
    ///
    /// Where a key is absent, llama.cpp's defaults hold: `add_bos_token` is true for SentencePiece and `llama-bpe` (if
    /// there is a BOS), false for the others; `add_eos_token` is false; `add_space_prefix` is true.
    ///
    /// # Errors
    /// [`TokenizerError::Metadata`] for a key that is absent or of the wrong type, [`TokenizerError::UnsupportedModel`],
    /// [`TokenizerError::MissingPre`], [`TokenizerError::UnknownPre`].
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::from_gguf_as(gguf, None)
    }

    /// As [`TokenizerSpec::from_gguf`], but with this pre-tokenizer whatever `tokenizer.ggml.pre` says or lacks.
    ///
    /// # Errors
    /// As [`TokenizerSpec::from_gguf`].
    pub fn from_gguf_as(gguf: &Gguf, pre: Option<PreTokenizer>) -> Result<Self, TokenizerError> {
        let model = match gguf.require_str("tokenizer.ggml.model")? {
            "gpt2" => TokenizerModel::ByteLevelBpe(match (pre, gguf.str("tokenizer.ggml.pre")?) {
                (Some(pre), _) => pre,
                (None, Some(name)) => PreTokenizer::from_name(name).ok_or_else(|| {
                    TokenizerError::UnknownPre { pre: name.to_owned(), known: PreTokenizer::NAMES }
                })?,
                (None, None) => return Err(TokenizerError::MissingPre { known: PreTokenizer::NAMES }),
            }),
            "llama" => TokenizerModel::SentencePiece(if gguf.architecture()?.starts_with("gemma") {
                TieBreak::LongestLeft
            } else {
                TieBreak::LeftId
            }),
            other => return Err(TokenizerError::UnsupportedModel { model: other.to_owned() }),
        };
        let bos = gguf.u32("tokenizer.ggml.bos_token_id")?;
        let add_bos = match gguf.bool("tokenizer.ggml.add_bos_token")? {
            Some(add) => add,
            None => {
                bos.is_some()
                    && matches!(
                        model,
                        TokenizerModel::SentencePiece(_) | TokenizerModel::ByteLevelBpe(PreTokenizer::Llama3)
                    )
            }
        };
        let refused = TokenizerError::no_memory("the vocabulary's scores and types");
        Ok(Self {
            model,
            tokens: gguf.require_strings("tokenizer.ggml.tokens")?.try_into()?,
            scores: gguf.f32s("tokenizer.ggml.scores")?.map(room::copied).transpose().map_err(refused)?,
            types: gguf.i32s("tokenizer.ggml.token_type")?.map(room::copied).transpose().map_err(refused)?,
            merges: gguf.strings("tokenizer.ggml.merges")?.map(TryInto::try_into).transpose()?,
            bos,
            eos: gguf.u32("tokenizer.ggml.eos_token_id")?,
            unk: gguf.u32("tokenizer.ggml.unknown_token_id")?,
            add_bos,
            add_eos: gguf.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false),
            add_space_prefix: gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
        })
    }
}
