//! Why a vocabulary is refused.

use crate::gguf::GgufError;
use crate::room::NoMemory;

/// Why no tokenizer can be built from a GGUF's metadata or from a [`super::TokenizerSpec`]. One variant for one cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages say
pub enum TokenizerError {
    /// A key is absent or of the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),

    /// A tokenizer of another kind.
    #[error(
        "tokenizer.ggml.model is `{model}`; `gpt2` (byte-level BPE) and `llama` (SentencePiece) are supported: choose a \
         model with one of these"
    )]
    UnsupportedModel { model: String },

    /// `tokenizer.ggml.pre` is absent, and byte-level BPE splits text differently for every model family.
    #[error(
        "tokenizer.ggml.pre is absent, so how to split text is unknown: convert the model again with a current llama.cpp, \
         or name the pre-tokenizer yourself ({known})"
    )]
    MissingPre { known: &'static str },

    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not known.
    #[error(
        "tokenizer.ggml.pre is `{pre}`, which is not known ({known} are): a guess would give wrong token ids; name the \
         pre-tokenizer yourself if you know that one of these splits the same way"
    )]
    UnknownPre { pre: String, known: &'static str },

    /// No tokens.
    #[error("the vocabulary is empty (tokenizer.ggml.tokens): the file is damaged")]
    EmptyVocab,

    /// More tokens, or more bytes of them, than can be indexed.
    #[error(
        "the vocabulary has {tokens} tokens of {bytes} bytes; the limits are {max_tokens} and {max_bytes}"
    )]
    VocabTooLarge { tokens: usize, bytes: usize, max_tokens: usize, max_bytes: usize },

    /// A list that runs beside the tokens has another length.
    #[error("{key} has {found} entries for {tokens} tokens: the file is damaged")]
    ListLength { key: &'static str, found: usize, tokens: usize },

    /// A token type that GGUF does not have.
    #[error("tokenizer.ggml.token_type of token {id} is {value}, which GGUF does not have (0 to 6)")]
    UnknownTokenType { id: u32, value: i32 },

    /// A special token's id beyond the vocabulary.
    #[error("{key} is {id}, beyond the vocabulary of {tokens} tokens: the file is damaged")]
    IdOutOfRange { key: &'static str, id: u32, tokens: usize },

    /// The flag asks for a token that is not named.
    #[error("{flag} is true, but {key} is absent")]
    FlagWithoutToken { flag: &'static str, key: &'static str },

    /// Byte-level BPE without its merges.
    #[error("tokenizer.ggml.merges is absent: byte-level BPE cannot join anything without it")]
    MissingMerges,

    /// More merges than can be ranked.
    #[error("tokenizer.ggml.merges has {merges} entries, the limit is {limit}")]
    TooManyMerges { merges: usize, limit: usize },

    /// A merge that is not two parts with a space between them.
    #[error("merge {index} is `{merge}`, not two parts with a space between them")]
    MergeFormat { index: usize, merge: String },

    /// A merge of, or to, a token that does not exist.
    #[error("merge {index} (`{merge}`) needs the token `{token}`, which the vocabulary lacks")]
    MergeUnknownToken { index: usize, merge: String, token: String },

    /// Byte-level BPE that cannot write ordinary text. (Other bytes may lack a token: they are left out of the ids.)
    #[error("the vocabulary lacks the token for the byte 0x{byte:02X}: ordinary text could not be written")]
    MissingByte { byte: u8 },

    /// SentencePiece without scores.
    #[error("tokenizer.ggml.scores is absent: SentencePiece cannot order its merges without it")]
    MissingScores,

    /// A score that cannot be compared.
    #[error("tokenizer.ggml.scores of token {id} is not a number")]
    ScoreNotANumber { id: u32 },

    /// SentencePiece that cannot write every text.
    #[error(
        "the vocabulary lacks the byte token <0x{byte:02X}> and names no unknown token: some texts could not be written"
    )]
    NoFallback { byte: u8 },

    /// Keys that all fall together in the hash table. No model's do; a file can be made so.
    #[error("the {what} fall together in a hash table as no model's do: the file is hostile")]
    Crowded { what: &'static str },

    /// Memory was refused.
    #[error("no memory for {what}, {bytes} bytes: free memory or use a model with a smaller vocabulary")]
    OutOfMemory { what: &'static str, bytes: u64 },

    /// The added tokens cannot be compiled into a matcher.
    #[error("the control and user-defined tokens cannot be searched for: {reason}")]
    AddedTokens { reason: String },
}

impl TokenizerError {
    /// The system refused memory for `what`.
    pub(super) fn no_memory(what: &'static str) -> impl Fn(NoMemory) -> Self + Copy {
        move |NoMemory(bytes)| Self::OutOfMemory { what, bytes }
    }
}
