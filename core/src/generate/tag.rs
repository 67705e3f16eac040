//! The route tag: `<route model="ID" level="fast|balanced|max"/>`, as zen-router's generative mode answers.
//!
//! The tag is not sampled. Its only free parts are an id of the catalog that the limits allow and a level that this model
//! has; so the model is the one whose tag the backbone gives the largest likelihood, then the level likewise: two calls of
//! [`Generator::choose`], each one pass over what its options share. What comes out is a tag by construction.

use super::{ChooseOptions, GenerateError, Generator, Message};
use crate::backbone::Interrupt;
use crate::catalog::Level;

/// A route tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTag {
    /// The model's id.
    pub model: String,
    /// The level.
    pub level: Level,
}

/// Why a text is not a route tag.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// It is not of this form.
    #[error("not a route tag; it is <route model=\"ID\" level=\"fast|balanced|max\"/> and nothing else")]
    Form,
    /// The id is empty, or holds what no id may.
    #[error(
        "no model has the id {0:?}: an id is printable, without quotes, angle brackets, ampersands and blanks"
    )]
    Id(String),
    /// There is no such level.
    #[error("{0:?} is no level; it is fast, balanced or max")]
    Level(String),
}

/// What a tag is made of.
const OPEN: &str = "<route model=\"";
const BETWEEN: &str = "\" level=\"";
const CLOSE: &str = "\"/>";

/// Whether an id can stand in a tag.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|c| c.is_ascii_graphic() && !"\"'<>&".contains(c))
}

impl std::fmt::Display for RouteTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{OPEN}{}{BETWEEN}{}{CLOSE}", self.model, self.level.name())
    }
}

impl std::str::FromStr for RouteTag {
    type Err = TagError;

    /// Reads a tag: the whole text, to the letter. The paired form of other projects, other quotes, more or fewer blanks,
    /// other attributes or anything before or behind it are no tag.
    fn from_str(text: &str) -> Result<Self, TagError> {
        let inner =
            text.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix(CLOSE)).ok_or(TagError::Form)?;
        let (model, level) = inner.split_once(BETWEEN).ok_or(TagError::Form)?;
        if !is_id(model) {
            return Err(TagError::Id(model.to_owned()));
        }
        let level = Level::from_name(level).ok_or_else(|| TagError::Level(level.to_owned()))?;
        Ok(Self { model: model.to_owned(), level })
    }
}

/// How a prompt stands before its tag. It must be what the backbone was trained on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagFrame {
    /// The GGUF's chat template, where it has one, with this before the prompt; else the prompt and a line end.
    Chat {
        /// The system's message; none where it is empty.
        system: String,
    },
    /// This text with the prompt in the place of `{prompt}`.
    Text(String),
}

impl Default for TagFrame {
    fn default() -> Self {
        Self::Chat { system: String::new() }
    }
}

impl Generator {
    /// The prompt as it stands before its tag.
    ///
    /// # Errors
    /// What the chat template says.
    pub fn tag_prompt(&self, prompt: &str, frame: &TagFrame) -> Result<String, GenerateError> {
        match frame {
            TagFrame::Text(text) => Ok(text.replace("{prompt}", prompt)),
            TagFrame::Chat { .. } if !self.has_template() => Ok(format!("{prompt}\n")),
            TagFrame::Chat { system } => {
                let system = (!system.is_empty()).then(|| Message::new("system", system.as_str()));
                let messages: Vec<Message> =
                    system.into_iter().chain([Message::new("user", prompt)]).collect();
                self.render(&messages)
            }
        }
    }

    /// The probability of each of these models among them, by the likelihood of its tag up to the level. `framed` is what
    /// [`tag_prompt`](Self::tag_prompt) gave. An id that cannot stand in a tag has the probability 0. `interrupt` may end
    /// the passes.
    ///
    /// # Errors
    /// No id that can stand in a tag; and as [`choose`](Self::choose).
    pub fn tag_models(
        &self,
        framed: &str,
        ids: &[&str],
        how: &ChooseOptions,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<Vec<f64>, GenerateError> {
        let texts: Vec<String> =
            ids.iter().filter(|id| is_id(id)).map(|id| format!("{OPEN}{id}{BETWEEN}")).collect();
        let mut choices = self.choose_until(framed, &texts, how, interrupt)?.into_iter();
        let mut share =
            |id: &&str| is_id(id).then(|| choices.next()).flatten().map_or(0.0, |choice| choice.probability);
        Ok(ids.iter().map(&mut share).collect())
    }

    /// The level of a model's tag, among `levels`, and its probability among them.
    ///
    /// # Errors
    /// No level; and as [`choose`](Self::choose).
    pub fn tag_level(
        &self,
        framed: &str,
        model: &str,
        levels: &[Level],
        how: &ChooseOptions,
        interrupt: Option<&dyn Interrupt>,
    ) -> Result<(Level, f64), GenerateError> {
        let texts: Vec<String> = levels.iter().map(|level| format!("{}{CLOSE}", level.name())).collect();
        let choices =
            self.choose_until(&format!("{framed}{OPEN}{model}{BETWEEN}"), &texts, how, interrupt)?;
        let best =
            levels.iter().zip(&choices).rev().max_by(|a, b| a.1.probability.total_cmp(&b.1.probability));
        best.map(|(level, choice)| (*level, choice.probability)).ok_or(GenerateError::NoOptions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tag_is_this_form_alone() {
        let tag = "<route model=\"gpt-5.5\" level=\"fast\"/>";
        let read: RouteTag = tag.parse().unwrap();
        assert_eq!((read.model.as_str(), read.level), ("gpt-5.5", Level::Fast));
        assert_eq!(read.to_string(), tag);
        for wrong in [
            "",
            "gpt-5.5",
            " <route model=\"a\" level=\"fast\"/>",
            "<route model=\"a\" level=\"fast\"/>\n",
            "<route model=\"a\" level=\"fast\" />",
            "<route model='a' level='fast'/>",
            "<route level=\"fast\" model=\"a\"/>",
            "<route model=\"a\" level=\"fast\">a</route>",
            "<route model=\"a\"/>",
            "<Route model=\"a\" level=\"fast\"/>",
        ] {
            assert_eq!(wrong.parse::<RouteTag>(), Err(TagError::Form), "{wrong}");
        }
        for (text, id) in
            [("<route model=\"\" level=\"max\"/>", ""), ("<route model=\"a b\" level=\"max\"/>", "a b")]
        {
            assert_eq!(text.parse::<RouteTag>(), Err(TagError::Id(id.into())));
        }
        let text = "<route model=\"a\" level=\"Max\"/>";
        assert_eq!(text.parse::<RouteTag>(), Err(TagError::Level("Max".into())));
        // A quote in a level cannot smuggle another attribute in.
        let text = "<route model=\"a\" level=\"max\" level=\"fast\"/>";
        assert!(text.parse::<RouteTag>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else(text in "(<route model=\"[a-z0-9.:/_-]{0,9}\" level=\"(fast|max|ma)\"/>|.{0,60})") {
            if let Ok(tag) = text.parse::<RouteTag>() {
                prop_assert_eq!(tag.to_string(), text);
            }
        }
    }
}
