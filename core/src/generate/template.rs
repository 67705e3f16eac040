//! The chat template of a GGUF: Jinja, as Hugging Face's `apply_chat_template` runs it.

#[cfg(feature = "chat-template")]
pub use jinja::ChatTemplate;

use serde::{Deserialize, Serialize};

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user` or `assistant`; what a template knows.
    pub role: String,
    /// Its text.
    pub content: String,
}

impl Message {
    /// A message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

#[cfg(feature = "chat-template")]
mod jinja;
