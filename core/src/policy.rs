//! `router_policy.yaml`: which models an operator prefers, and what they may occupy and cost. It is hanzo-router's file;
//! every key is optional and `{}`, or nothing at all, is valid.
//!
//! | key | type | default | meaning |
//! |---|---|---|---|
//! | `prefer` | task → list of ids | none | models that are tried first, in this order |
//! | `memory_fraction` | above 0, to 1 | .85 unified, .70 discrete | share of the available memory that a model may take |
//! | `cost_ceiling` | number >= 0 | none | USD for 1,000 tokens that a cloud model may cost |
//! | `default` | id | none | tried last, whatever its tasks; ours |

use crate::catalog::{Catalog, Task, normalise_id};
use crate::config::MAX_ROUTES;
use crate::config::fields::{self, FieldError, Fields};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most bytes that a policy may have.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// An operator's preferences.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Policy {
    /// Ids without a date that are tried first for a task.
    pub prefer: BTreeMap<Task, Vec<String>>,
    /// Share of the available memory that a local model may take; `None`: .85 where CPU and GPU share it, else .70.
    pub memory_fraction: Option<f64>,
    /// USD for 1,000 tokens that a cloud model may cost.
    pub cost_ceiling: Option<f64>,
    /// The model that is tried last.
    pub default: Option<String>,
    /// Keys that are not known, and tasks under `prefer` that are none of the eight (hanzo-router has more). Nothing
    /// depends on them; a program reports them.
    pub unknown: Vec<String>,
}

impl Policy {
    /// Reads a policy, YAML or JSON; `name` is what messages call it.
    ///
    /// # Errors
    /// A [`FieldError`] that names the key.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Self, FieldError> {
        let mut keys = Fields::new(name, "", fields::yaml(bytes, name, MAX_POLICY_BYTES)?)?;
        let mut policy = Self {
            memory_fraction: keys.number("memory_fraction", 1e-6..=1.0, "above 0 and at most 1")?,
            cost_ceiling: keys.number("cost_ceiling", 0.0..=1e12, "0 to 1e12")?,
            default: keys.string("default")?.map(|id| normalise_id(&id).to_owned()),
            ..Self::default()
        };
        if let Some(prefer) = keys.take("prefer") {
            let mut lists = Fields::new(name, "prefer", prefer)?;
            for task in Task::ALL {
                if let Some(ids) = lists.strings(task.name(), MAX_ROUTES)? {
                    policy.prefer.insert(task, ids.iter().map(|id| normalise_id(id).to_owned()).collect());
                }
            }
            policy.unknown = lists.unknown();
        }
        policy.unknown.extend(keys.unknown());
        Ok(policy)
    }

    /// Ids of the policy that a catalog does not have, without repetition: they are passed over.
    #[must_use]
    pub fn unknown_ids(&self, catalog: &Catalog) -> Vec<String> {
        let mut ids = Vec::new();
        for id in self.prefer.values().flatten().chain(&self.default) {
            if catalog.find(id).is_none() && !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        ids
    }

    /// The share of the available memory that a local model may take.
    #[must_use]
    pub fn fraction(&self, unified: bool) -> f64 {
        self.memory_fraction.unwrap_or(if unified { 0.85 } else { 0.70 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of zen-router's docs/config.md.
    const PUBLISHED: &str = "
# Per-task preference: the first usable model wins.
prefer:
  cheap_chat:   [zen-nano-0.6b, zen5-flash, claude-haiku-4-5-20251001]
  general:      [zen-agent-4b, zen5, claude-haiku-4-5-20251001]
  code:         [zen-coder-24b, zen5-coder, gpt-5.1-codex-max, claude-sonnet-4-6]
  reasoning:    [zen-agent-4b, zen5-max, claude-opus-4-8, gpt-5.5]
  math:         [zen5-max, deepseek-reasoner, o3, claude-opus-4-8]
  creative:     [claude-fable-5, claude-sonnet-4-6, zen5]
  vision:       [zen-omni, zen-vl, gemini-3-pro]
  long_context: [gemini-3-flash, zen5-max, claude-opus-4-8]

memory_fraction: 0.85
cost_ceiling: 0.02
";

    #[test]
    fn the_published_file_loads() {
        let policy = Policy::parse(PUBLISHED.as_bytes(), "router_policy.yaml").unwrap();
        assert_eq!(policy.prefer.len(), 8);
        assert_eq!(policy.prefer[&Task::CheapChat], ["zen-nano-0.6b", "zen5-flash", "claude-haiku-4-5"]);
        assert_eq!((policy.memory_fraction, policy.cost_ceiling), (Some(0.85), Some(0.02)));
        assert!(policy.unknown.is_empty());
        let catalog = Catalog::parse(b"- {id: zen5, backend: cloud, provider: p}", "c").unwrap();
        let unknown = policy.unknown_ids(&catalog);
        assert!(unknown.contains(&"o3".to_owned()) && !unknown.contains(&"zen5".to_owned()));
        assert_eq!(unknown.iter().filter(|id| *id == "zen5-max").count(), 1);
    }

    #[test]
    fn every_key_is_optional() {
        for text in ["", "{}", "# only a comment", "prefer: {}", "prefer:", "null"] {
            assert_eq!(Policy::parse(text.as_bytes(), "p").unwrap(), Policy::default(), "{text:?}");
        }
        assert_eq!((Policy::default().fraction(true), Policy::default().fraction(false)), (0.85, 0.70));
        let policy = Policy::parse(b"{\"memory_fraction\": 0.5, \"default\": \"m-20250101\"}", "p").unwrap();
        assert_eq!((policy.fraction(true), policy.default.as_deref()), (0.5, Some("m")));
    }

    #[test]
    fn unknown_keys_and_tasks_are_reported() {
        let policy = Policy::parse(b"prefer: {code: [a], ocr: [b]}\ncolour: 1\n", "p").unwrap();
        assert_eq!(policy.unknown, ["prefer.ocr", "colour"]);
    }

    #[test]
    fn each_fault_names_its_key() {
        for (text, key) in [
            ("memory_fraction: 0", "memory_fraction"),
            ("memory_fraction: 1.5", "memory_fraction"),
            ("cost_ceiling: -1", "cost_ceiling"),
        ] {
            let error = Policy::parse(text.as_bytes(), "p.yaml").unwrap_err();
            assert!(matches!(&error, FieldError::Range { key: k, .. } if k == key), "{text}: {error}");
        }
        for text in [
            "- a",
            "prefer: [a]",
            "prefer: {code: a}",
            "prefer: {code: [1]}",
            "cost_ceiling: low",
            "default: 1",
        ] {
            let error = Policy::parse(text.as_bytes(), "p.yaml").unwrap_err();
            assert!(matches!(error, FieldError::Type { .. }), "{text}: {error}");
        }
        assert!(
            matches!(Policy::parse(b"prefer: {code: []}", "p"), Err(FieldError::Empty { key, .. }) if key == "prefer.code")
        );
        assert!(matches!(Policy::parse(b"a: 1\na: 2", "p"), Err(FieldError::DuplicateKey { .. })));
    }
}
