//! Why text cannot be generated.

use crate::backbone::BackboneError;
use crate::tokenizer::TokenizerError;

/// Why text cannot be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The backbone does not load or run.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The tokenizer does not load.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The prompt fills the model's context.
    #[error(
        "the prompt has {tokens} tokens and the model a context of {context}: no room for an answer; shorten the prompt"
    )]
    PromptTooLong {
        /// The prompt's.
        tokens: usize,
        /// The model's.
        context: usize,
    },
    /// An option has a value that cannot be.
    #[error("{option} = {found}: {why}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        found: f64,
        /// What it may be.
        why: &'static str,
    },
    /// The file has no chat template.
    #[error("the model has no chat template (tokenizer.chat_template): give the whole prompt as text")]
    NoTemplate,
    /// The file has a chat template, and this build no engine for it.
    #[error(
        "this build runs no chat templates: build it with the feature `chat-template`, or give the whole prompt as text"
    )]
    TemplateNotBuilt,
    /// The chat template cannot be read or run.
    #[error("the model's chat template: {why}")]
    Template {
        /// What its engine says.
        why: String,
    },
    /// The chat template refuses the messages.
    #[error("the model's chat template refuses these messages: {why}")]
    Messages {
        /// What it says.
        why: String,
    },
    /// There is nothing to choose from.
    #[error("there are no options to choose from")]
    NoOptions,
    /// An option without a token.
    #[error("option {index} has no token: an empty text has no probability")]
    EmptyOption {
        /// Its place in the list.
        index: usize,
    },
    /// Two options are the same tokens.
    #[error("options {first} and {second} are the same text: their probabilities cannot be told apart")]
    SameOptions {
        /// Places in the list.
        first: usize,
        /// Places in the list.
        second: usize,
    },
}
