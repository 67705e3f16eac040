//! Text to token ids, built from a GGUF's metadata.
//!
//! Two models: byte-level BPE (`tokenizer.ggml.model` = `gpt2`) with the pre-tokenizers of [`PreTokenizer`], and SentencePiece
//! (`llama`) as Gemma and Llama 2 use it. Ids equal those of Hugging Face `tokenizers` for the `tokenizer.json` that the GGUF
//! was made from, special tokens that stand in the text included.
//!
//! A text goes through four steps:
//!
//! 1. added tokens (control and user-defined ones) are matched as they stand;
//! 2. the text between them is normalised (NFC for `qwen2`; spaces for SentencePiece);
//! 3. it is split into pieces that nothing is joined across;
//! 4. each piece is joined from bytes or characters by merges.
//!
//! Every step works on as much of the text as it needs, so a text that is cut at a number of tokens costs no more than its
//! part that is kept ([`Tokenizer::encode_limited`]), and every step is linear but for the joining, which is O(n log n) in
//! the length of a piece.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use zen_edge_core::gguf::Gguf;
//! use zen_edge_core::source::Memory;
//! use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
//!
//! let gguf = Gguf::open(Arc::new(Memory::open("model.gguf")?))?;
//! let tokenizer = Tokenizer::from_gguf(&gguf)?;
//! let ids = tokenizer.encode("write a haiku", &EncodeOptions::default());
//! assert_eq!(tokenizer.decode(&ids, false), b"write a haiku");
//! # Ok(())
//! # }
//! ```

mod added;
mod bpe;
mod bytes;
mod classes;
mod error;
mod merge;
mod normalize;
mod pretokenize;
mod spec;
mod spm;
#[cfg(test)]
mod tests;
mod vocab;

pub use error::TokenizerError;
pub use spec::{PreTokenizer, Strings, TieBreak, TokenType, TokenizerModel, TokenizerSpec};

use crate::gguf::Gguf;
use crate::room;
use added::{Added, Part, Parts};
use bpe::Bpe;
use merge::{Scratch, WordCache};
use normalize::Normalizer;
use pretokenize::Scanner;
use spm::Spm;
use vocab::Blob;

/// How a text is encoded. The default is what Hugging Face's `tok(prompt)` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Control tokens that stand in the text (`<|im_end|>`) are text like any other. User-defined ones (`<think>`) are
    /// matched all the same, as `tokenizers` does with added tokens that are not special.
    pub plain_text: bool,
    /// Whether the BOS token begins the ids; `None`: as the GGUF says.
    pub add_bos: Option<bool>,
    /// Whether the EOS token ends the ids; `None`: as the GGUF says.
    pub add_eos: Option<bool>,
}

/// A tokenizer. It holds its vocabulary in a few flat tables, is never changed, and may be shared by threads.
pub struct Tokenizer {
    model: Model,
    normalizer: Normalizer,
    added: Added,
    /// The bytes that each token stands for.
    blob: Blob,
    kinds: Box<[TokenType]>,
    bos: Option<u32>,
    eos: Option<u32>,
    unk: Option<u32>,
    add_bos: bool,
    add_eos: bool,
}

enum Model {
    Bpe(Bpe, PreTokenizer),
    Spm(Spm),
}

/// Text is taken in stretches of this many bytes.
const STRETCH: usize = 1 << 14;
/// A piece longer than this is cut: positions in it are 32 bits wide.
const LONGEST_PIECE: usize = 1 << 30;

impl Tokenizer {
    /// Builds the tokenizer that a GGUF's metadata describes.
    ///
    /// # Errors
    /// As [`TokenizerSpec::from_gguf`] and [`Tokenizer::new`].
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        Self::new(TokenizerSpec::from_gguf(gguf)?)
    }

    /// Builds a tokenizer.
    ///
    /// # Errors
    /// Whatever is wrong with the description: see the variants of [`TokenizerError`].
    pub fn new(spec: TokenizerSpec) -> Result<Self, TokenizerError> {
        let tokens = spec.tokens.len();
        if tokens == 0 {
            return Err(TokenizerError::EmptyVocab);
        }
        if tokens > vocab::MAX_TOKENS || spec.tokens.total_bytes() > vocab::MAX_BYTES {
            return Err(TokenizerError::VocabTooLarge {
                tokens,
                bytes: spec.tokens.total_bytes(),
                max_tokens: vocab::MAX_TOKENS,
                max_bytes: vocab::MAX_BYTES,
            });
        }
        for (key, id) in [
            ("tokenizer.ggml.bos_token_id", spec.bos),
            ("tokenizer.ggml.eos_token_id", spec.eos),
            ("tokenizer.ggml.unknown_token_id", spec.unk),
        ] {
            if let Some(id) = id.filter(|&id| id as usize >= tokens) {
                return Err(TokenizerError::IdOutOfRange { key, id, tokens });
            }
        }
        for (flag, set, key, id) in [
            ("tokenizer.ggml.add_bos_token", spec.add_bos, "tokenizer.ggml.bos_token_id", spec.bos),
            ("tokenizer.ggml.add_eos_token", spec.add_eos, "tokenizer.ggml.eos_token_id", spec.eos),
        ] {
            if set && id.is_none() {
                return Err(TokenizerError::FlagWithoutToken { flag, key });
            }
        }
        let kinds = kinds(&spec)?;

        let is_spm = matches!(spec.model, TokenizerModel::SentencePiece(_));
        let mut blob = Blob::with_room(tokens, spec.tokens.total_bytes())?;
        let (mut added, mut added_bytes) = (Vec::new(), 0);
        let mut byte_ids = [None; 256];
        // Tokens that no text can become although their type would allow it.
        let mut unreachable = Vec::new();
        let mut decoded = Vec::new();
        let refused = TokenizerError::no_memory("the tokens");
        for ((id, token), &kind) in (0_u32..).zip(spec.tokens.iter()).zip(&kinds) {
            decoded.clear();
            match kind {
                TokenType::Control | TokenType::Unknown | TokenType::UserDefined => {
                    let control = kind != TokenType::UserDefined;
                    // `[PAD151669]` fills a vocabulary up to the embedding's rows. Some converters call it user-defined;
                    // in `tokenizer.json` it does not exist.
                    let filler = token == format!("[PAD{id}]").as_bytes();
                    if !token.is_empty() && !filler {
                        // Runs of spaces are written as spaces by converters, but the `tokenizer.json` of Gemma has `▁`
                        // there: spaces of a text come to them by merges.
                        let spaces = is_spm && token.iter().all(|&byte| byte == b' ');
                        let bytes = token.len() * if spaces { normalize::SPACE_SIGN.len() } else { 1 };
                        added_bytes += bytes;
                        added::within(added_bytes)?;
                        let pattern = if spaces {
                            normalize::SPACE_SIGN.repeat(token.len()).into_bytes()
                        } else {
                            token.to_vec()
                        };
                        room::push(&mut added, (pattern, id, control))
                            .map_err(TokenizerError::no_memory("the added tokens"))?;
                    }
                    if is_spm {
                        spm::spaced(token, &mut decoded).map_err(refused)?;
                    } else {
                        decoded.extend_from_slice(token);
                    }
                }
                TokenType::Byte if is_spm => match spm::byte_of(token) {
                    Some(byte) => {
                        byte_ids[usize::from(byte)].get_or_insert(id);
                        decoded.push(byte);
                    }
                    None => decoded.extend_from_slice(token),
                },
                _ if is_spm => spm::spaced(token, &mut decoded).map_err(refused)?,
                _ => {
                    if !bytes::decode(token, &mut decoded) {
                        decoded.extend_from_slice(token);
                        room::push(&mut unreachable, id)
                            .map_err(TokenizerError::no_memory("the tokens that no text becomes"))?;
                    }
                }
            }
            blob.push(&decoded)?;
        }

        let (model, normalizer) = match spec.model {
            TokenizerModel::ByteLevelBpe(pre) => {
                let merges = spec.merges.as_ref().ok_or(TokenizerError::MissingMerges)?;
                let reachable =
                    |id: u32| bpe::reachable(kinds[id as usize]) && unreachable.binary_search(&id).is_err();
                let bpe = Bpe::new(&blob, reachable, merges, pre == PreTokenizer::Llama3)?;
                let normalizer = match pre {
                    PreTokenizer::Qwen2 => Normalizer::Nfc,
                    _ => Normalizer::None,
                };
                (Model::Bpe(bpe, pre), normalizer)
            }
            TokenizerModel::SentencePiece(ties) => {
                let scores = spec.scores.as_ref().ok_or(TokenizerError::MissingScores)?;
                if scores.len() != tokens {
                    return Err(TokenizerError::ListLength {
                        key: "tokenizer.ggml.scores",
                        found: scores.len(),
                        tokens,
                    });
                }
                let spm = Spm::new(&blob, |id| kinds[id as usize], scores, ties, byte_ids, spec.unk)?;
                (Model::Spm(spm), Normalizer::Spaces { prefix: spec.add_space_prefix })
            }
        };
        Ok(Self {
            model,
            normalizer,
            added: Added::new(added)?,
            blob,
            kinds,
            bos: spec.bos,
            eos: spec.eos,
            unk: spec.unk,
            add_bos: spec.add_bos,
            add_eos: spec.add_eos,
        })
    }

    /// The ids of a text. Nothing in it is unescaped: a backslash and an `n` are two characters.
    pub fn encode(&self, text: &str, options: &EncodeOptions) -> Vec<u32> {
        self.encode_limited(text, options, usize::MAX).0
    }

    /// The ids of bytes; what is not UTF-8 in them becomes U+FFFD, as [`String::from_utf8_lossy`] and Python's
    /// `errors="replace"` have it.
    pub fn encode_bytes(&self, bytes: &[u8], options: &EncodeOptions) -> Vec<u32> {
        self.encode(&String::from_utf8_lossy(bytes), options)
    }

    /// The first `max_tokens` of the ids that [`Tokenizer::encode`] gives, and whether there are more. The text beyond is
    /// not looked at.
    pub fn encode_limited(&self, text: &str, options: &EncodeOptions, max_tokens: usize) -> (Vec<u32>, bool) {
        let mut ids = Vec::new();
        if options.add_bos.unwrap_or(self.add_bos) {
            ids.extend(self.bos);
        }
        self.encode_text(text, options.plain_text, max_tokens, &mut ids);
        if ids.len() <= max_tokens && options.add_eos.unwrap_or(self.add_eos) {
            ids.extend(self.eos);
        }
        let truncated = ids.len() > max_tokens;
        ids.truncate(max_tokens);
        (ids, truncated)
    }

    /// Appends the ids of a text until there are more than `max_tokens`.
    fn encode_text(&self, text: &str, plain: bool, max_tokens: usize, ids: &mut Vec<u32>) {
        let mut parts = Parts::new(&self.added, text, plain, self.normalizer);
        let mut pieces = Pieces {
            tokenizer: self,
            scratch: Scratch::default(),
            cache: (text.len() >= WordCache::WORTH_IT).then(WordCache::new),
        };
        let mut pending = String::new();
        let mut first = true;
        while ids.len() <= max_tokens {
            // A piece that goes on beyond its stretch is looked at again with twice as much text.
            match parts.next(pending.len().max(STRETCH)) {
                Some(Part::Text(text)) => {
                    self.normalizer.append(text, first, &mut pending);
                    first = false;
                    let last = pending.len() >= LONGEST_PIECE;
                    let done = pieces.encode(&pending, last, max_tokens, ids);
                    pending.drain(..done);
                }
                end => {
                    pieces.encode(&pending, true, max_tokens, ids);
                    pending.clear();
                    first = true;
                    match end {
                        Some(Part::Token(id)) => ids.push(id),
                        _ => return,
                    }
                }
            }
        }
    }

    /// The bytes that ids stand for; with `skip_control`, without control tokens. Ids beyond the vocabulary stand for
    /// nothing. Where the vocabulary puts a space before a text, it is taken off.
    pub fn decode(&self, ids: &[u32], skip_control: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for &id in ids {
            if !(skip_control && self.is_control(id)) {
                out.extend_from_slice(self.token_bytes(id).unwrap_or_default());
            }
        }
        if self.normalizer == (Normalizer::Spaces { prefix: true }) && out.first() == Some(&b' ') {
            out.remove(0);
        }
        out
    }

    /// The number of tokens.
    pub fn vocab_len(&self) -> usize {
        self.blob.len()
    }

    /// The bytes that a token stands for.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.blob.get(id)
    }

    /// The type of a token.
    pub fn token_type(&self, id: u32) -> Option<TokenType> {
        self.kinds.get(id as usize).copied()
    }

    /// The token that stands for this text: `<|im_end|>`, ` the`. All tokens are looked at, which takes milliseconds.
    pub fn token_id(&self, text: &str) -> Option<u32> {
        (0..self.blob.len() as u32).find(|&id| self.blob.get(id) == Some(text.as_bytes()))
    }

    /// Whether the token is a control token (or the unknown one), which is not part of a text's words.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.token_type(id), Some(TokenType::Control | TokenType::Unknown))
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// The token for what has none.
    pub fn unk(&self) -> Option<u32> {
        self.unk
    }

    /// Whether the GGUF wants texts to begin with BOS.
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether the GGUF wants texts to end with EOS.
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// The pre-tokenizer of byte-level BPE; SentencePiece has none.
    pub fn pre_tokenizer(&self) -> Option<PreTokenizer> {
        match self.model {
            Model::Bpe(_, pre) => Some(pre),
            Model::Spm(_) => None,
        }
    }

    /// The bytes of memory that the tables take.
    pub fn memory(&self) -> usize {
        let model = match &self.model {
            Model::Bpe(bpe, _) => bpe.memory(),
            Model::Spm(spm) => spm.memory(),
        };
        size_of::<Self>() + model + self.added.memory() + self.blob.memory() + self.kinds.len()
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("tokens", &self.vocab_len())
            .field("pre", &self.pre_tokenizer())
            .finish_non_exhaustive()
    }
}

/// The types, one for each token.
fn kinds(spec: &TokenizerSpec) -> Result<Box<[TokenType]>, TokenizerError> {
    let tokens = spec.tokens.len();
    let refused = TokenizerError::no_memory("the types of the tokens");
    let Some(types) = &spec.types else {
        return Ok(room::filled(tokens, TokenType::Normal).map_err(refused)?.into_boxed_slice());
    };
    if types.len() != tokens {
        return Err(TokenizerError::ListLength {
            key: "tokenizer.ggml.token_type",
            found: types.len(),
            tokens,
        });
    }
    let mut kinds = room::room(tokens).map_err(refused)?;
    for (id, &value) in (0..).zip(types) {
        kinds.push(TokenType::from_ggml(value).ok_or(TokenizerError::UnknownTokenType { id, value })?);
    }
    Ok(kinds.into_boxed_slice())
}

/// The splitting and joining of one text.
struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    scratch: Scratch,
    cache: Option<WordCache>,
}

impl Pieces<'_> {
    /// Appends the ids of the pieces of a stretch until there are more than `max_tokens`, and says how far it came. Unless
    /// it is the `last`, pieces that might go on in the text after it are left.
    fn encode(&mut self, text: &str, last: bool, max_tokens: usize, ids: &mut Vec<u32>) -> usize {
        let Self { tokenizer, scratch, cache } = self;
        let blob = &tokenizer.blob;
        match &tokenizer.model {
            Model::Bpe(bpe, pre) => {
                let scanner = Scanner::new(text, *pre);
                let settled = if last { text.len() } else { scanner.settled() };
                each(
                    text,
                    settled,
                    |pos| scanner.next(pos),
                    cache,
                    max_tokens,
                    ids,
                    |piece, ids| {
                        bpe.encode(piece, blob, scratch, ids);
                    },
                )
            }
            Model::Spm(spm) => {
                let settled = if last { text.len() } else { text.len().saturating_sub(1) };
                each(
                    text,
                    settled,
                    |pos| spm.next(text, pos),
                    cache,
                    max_tokens,
                    ids,
                    |piece, ids| {
                        spm.encode(piece, blob, scratch, ids);
                    },
                )
            }
        }
    }
}

/// Encodes the pieces that end at or before `settled`.
#[inline]
fn each(
    text: &str,
    settled: usize,
    next: impl Fn(usize) -> usize,
    cache: &mut Option<WordCache>,
    max_tokens: usize,
    ids: &mut Vec<u32>,
    mut join: impl FnMut(&str, &mut Vec<u32>),
) -> usize {
    let mut pos = 0;
    while pos < settled && ids.len() <= max_tokens {
        let end = next(pos);
        if end > settled {
            break;
        }
        let piece = &text[pos..end];
        match cache {
            Some(cache) => cache.get_or(piece.as_bytes(), ids, |ids| join(piece, ids)),
            None => join(piece, ids),
        }
        pos = end;
    }
    pos
}
