//! `router_config.json`: what the heads expect of the backbone and of the prompt.
//!
//! The file is zen-router's, with keys of our own beside (all optional). Keys that are not known are kept by name in
//! [`RouterConfig::unknown`], so that a program can report them; they are never fatal.
//!
//! | key | type | default | meaning |
//! |---|---|---|---|
//! | `tasks` | list of task names | required | the rows of the task head, in order |
//! | `catalog` | list of model ids | required | the rows of the route head, in order |
//! | `hidden_size` | integer | required | the length of the backbone's hidden state |
//! | `feature_dim` | integer | required | the rows of the feature head |
//! | `base` | string | none | the backbone's name |
//! | `frozen_backbone` | bool | none | whether only the heads were trained |
//! | `pooling` | parts joined by `+` | `last` | what the heads read, see [`Pooling`]: `last`, `last+mean`, `mean@15+length` |
//! | `embd_normalize` | -1 | -1 | another value is refused: the heads read the raw vector |
//! | `max_chars` | integer | 4000 | Unicode scalar values of the prompt that are read |
//! | `max_tokens` | integer | 2048 | tokens that are read |
//! | `keep` | `start`, `end` | `start` | which side of a long prompt is read |
//! | `add_bos`, `add_eos` | bool | the GGUF's | whether the token is put around the prompt |
//! | `plain_text` | bool | false | special tokens that stand in the text stay text |
//! | `trained` | list of bool, or of model ids | derived | the route rows that have seen data |
//! | `temperature` | `{"task": t, "route": t}` | none | fitted with the heads; without it a confidence is uncalibrated |
//! | `min_confidence` | 0 to 1 | none | below it the rules decide |
//! | `backbone_sha256`, `heads_sha256` | 64 hexadecimal digits | none | the files that the temperatures belong to |
//! | `lambda_cost`, `mu_latency` | number >= 0 | .35, .15 | weights of the score, see [`crate::decision`] |

pub use crate::backbone::Pooling;
use crate::backbone::{Part, PoolingError, Tokens};
use crate::catalog::{Task, normalise_id};
use fields::{Fields, brief, kind};
use serde_json::Value;
use thiserror::Error;

pub(crate) mod fields;
mod yaml;
pub use fields::FieldError;

/// The most bytes that a `router_config.json` may have; the published one has 857.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;
/// The most rows that a route head may have.
pub const MAX_ROUTES: usize = 4096;
/// The largest hidden state and the largest feature vector.
pub const MAX_WIDTH: usize = 1 << 16;
/// The longest model id in bytes.
pub const MAX_ID_BYTES: usize = 256;

/// Why a `router_config.json` is refused.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file is no JSON, or a key is absent, of another type or out of range.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// An entry stands twice in a list whose positions are rows of a head (ids are compared without their date).
    #[error("{name}: `{key}` lists `{entry}` at rows {first} and {second}; a row needs an id of its own")]
    DuplicateEntry {
        /// The file.
        name: String,
        /// The key.
        key: &'static str,
        /// The entry.
        entry: String,
        /// The first row, from 0.
        first: usize,
        /// The second row, from 0.
        second: usize,
    },
    /// A task that is not one of the eight.
    #[error("{name}: `tasks` row {row} is `{found}`; the tasks are {}", Task::NAMES.join(", "))]
    UnknownTask {
        /// The file.
        name: String,
        /// The row, from 0.
        row: usize,
        /// The name that stands there.
        found: String,
    },
    /// The vector is pooled in a way that the engine does not know.
    #[error("{name}: `pooling`: {source}")]
    Pooling {
        /// The file.
        name: String,
        /// Why not.
        source: PoolingError,
    },
    /// The heads were trained on normalised vectors.
    #[error(
        "{name}: `embd_normalize` is {found}, but the engine gives the raw vector (-1): use heads trained on it"
    )]
    Normalize {
        /// The file.
        name: String,
        /// The value.
        found: String,
    },
    /// The mask is not as long as the list of route rows.
    #[error("{name}: `trained` has {trained} entries, but `catalog` has {rows} rows")]
    TrainedLength {
        /// The file.
        name: String,
        /// The entries of the mask.
        trained: usize,
        /// The rows of the route head.
        rows: usize,
    },
    /// The mask names a model that no row has.
    #[error("{name}: `trained` names `{id}`, which is not in `catalog`")]
    TrainedUnknown {
        /// The file.
        name: String,
        /// The id.
        id: String,
    },
    /// The backbone's hidden state is not as long as the heads expect.
    #[error(
        "{name}: `hidden_size` is {config}, but the backbone's hidden state has {backbone} values: \
         these heads belong to another backbone{}", .base.as_ref().map(|b| format!(" ({b})")).unwrap_or_default()
    )]
    BackboneHidden {
        /// The file.
        name: String,
        /// The config's size.
        config: usize,
        /// The backbone's size.
        backbone: usize,
        /// The backbone that the config names.
        base: Option<String>,
    },
    /// The GGUF states another pooling.
    #[error(
        "{name}: `pooling` is `{pooling}`, but the backbone's file states {backbone}: they do not belong together"
    )]
    BackbonePooling {
        /// The file.
        name: String,
        /// The config's pooling.
        pooling: Pooling,
        /// The GGUF's pooling.
        backbone: String,
    },
}

/// Which side of a prompt that is too long is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The first characters and tokens, as zen-router trained.
    #[default]
    Start,
    /// The last ones.
    End,
}

/// Softmax temperatures, fitted with the heads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Temperature {
    /// Of the task head.
    pub task: Option<f32>,
    /// Of the route head.
    pub route: Option<f32>,
}

/// A validated `router_config.json`; the module's table tells the keys.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RouterConfig {
    /// What the file is called in messages.
    pub name: String,
    /// The backbone's name.
    pub base: Option<String>,
    /// The rows of the task head.
    pub tasks: Vec<Task>,
    /// The rows of the route head: model ids, without a trailing date.
    pub catalog: Vec<String>,
    /// Whether only the heads were trained.
    pub frozen_backbone: Option<bool>,
    /// The length of the backbone's hidden state.
    pub hidden_size: usize,
    /// What of a pass the heads read.
    pub pooling: Pooling,
    /// The rows of the feature head.
    pub feature_dim: usize,
    /// Unicode scalar values of the prompt that are read.
    pub max_chars: usize,
    /// Tokens that are read.
    pub max_tokens: usize,
    /// Which side of a long prompt is read.
    pub keep: Keep,
    /// Whether the beginning-of-sequence token is prepended; `None`: as the GGUF says.
    pub add_bos: Option<bool>,
    /// Whether the end-of-sequence token is appended; `None`: as the GGUF says.
    pub add_eos: Option<bool>,
    /// Whether special tokens that stand in the text stay text.
    pub plain_text: bool,
    /// The route rows that have seen data; `None`: derived from the weights, see [`crate::heads::TrainedMask`].
    pub trained: Option<Vec<bool>>,
    /// The temperatures of the confidences.
    pub temperature: Temperature,
    /// The calibrated confidence below which the rules decide.
    pub min_confidence: Option<f32>,
    /// SHA-256 of the backbone's file, in lower case.
    pub backbone_sha256: Option<String>,
    /// SHA-256 of the heads' file, in lower case.
    pub heads_sha256: Option<String>,
    /// Weight of a model's cost in its score.
    pub lambda_cost: Option<f64>,
    /// Weight of a model's latency in its score.
    pub mu_latency: Option<f64>,
    /// Keys that are not known, in the file's order of names.
    pub unknown: Vec<String>,
}

impl RouterConfig {
    /// Reads and validates a config; `name` is what messages call it.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the key.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Self, ConfigError> {
        let mut keys = Fields::new(name, "", fields::json(bytes, name, MAX_CONFIG_BYTES)?)?;

        let tasks = tasks(&mut keys)?;
        let catalog = catalog(&mut keys)?;
        let width = "a whole number from 1 to 65536";
        let hidden_size = keys.size("hidden_size", MAX_WIDTH, width)?;
        let hidden_size = hidden_size.ok_or_else(|| keys.missing("hidden_size"))?;
        let feature_dim = keys.size("feature_dim", MAX_WIDTH, width)?;
        let feature_dim = feature_dim.ok_or_else(|| keys.missing("feature_dim"))?;

        let pooling = match keys.string("pooling")? {
            None => Pooling::default(),
            Some(text) => {
                text.parse().map_err(|source| ConfigError::Pooling { name: name.into(), source })?
            }
        };
        match keys.take("embd_normalize") {
            None => {}
            Some(value) if value.as_f64() == Some(-1.0) => {}
            Some(other) => return Err(ConfigError::Normalize { name: name.into(), found: brief(&other) }),
        }

        let keep = match keys.string("keep")?.as_deref() {
            None | Some("start") => Keep::Start,
            Some("end") => Keep::End,
            Some(other) => {
                return Err(keys.wrong_type("keep", "`start` or `end`", format!("`{other}`")).into());
            }
        };
        let temperature = match keys.take("temperature") {
            None => Temperature::default(),
            Some(value) => {
                let mut keys = Fields::new(name, "temperature", value)?;
                // The bound keeps every logit finite after the division, also as f32.
                let mut positive = |key| keys.number(key, 1e-3..=1e6, "0.001 to 1000000");
                let (task, route) = (positive("task")?, positive("route")?);
                Temperature { task: task.map(|t| t as f32), route: route.map(|t| t as f32) }
            }
        };
        let min_confidence = keys.number("min_confidence", 0.0..=1.0, "0 to 1")?.map(|p| p as f32);
        let trained = trained(&mut keys, &catalog)?;
        let [backbone_sha256, heads_sha256] =
            [sha256(&mut keys, "backbone_sha256")?, sha256(&mut keys, "heads_sha256")?];

        let config = Self {
            name: name.into(),
            base: keys.string("base")?,
            frozen_backbone: keys.boolean("frozen_backbone")?,
            max_chars: keys.size("max_chars", usize::MAX, "a whole number from 1")?.unwrap_or(4000),
            max_tokens: keys.size("max_tokens", usize::MAX, "a whole number from 1")?.unwrap_or(2048),
            add_bos: keys.boolean("add_bos")?,
            add_eos: keys.boolean("add_eos")?,
            plain_text: keys.boolean("plain_text")?.unwrap_or(false),
            lambda_cost: keys.number("lambda_cost", 0.0..=1e12, "0 to 1e12")?,
            mu_latency: keys.number("mu_latency", 0.0..=1e12, "0 to 1e12")?,
            backbone_sha256,
            heads_sha256,
            tasks,
            catalog,
            hidden_size,
            pooling,
            feature_dim,
            keep,
            trained,
            temperature,
            min_confidence,
            unknown: keys.unknown(),
        };
        Ok(config)
    }

    /// The values of the vector that the heads read.
    pub fn vector_size(&self) -> usize {
        self.pooling.width(self.hidden_size)
    }

    /// Checks that a backbone gives what the heads were trained on: `hidden` is the length of its hidden state,
    /// `pooling` its GGUF's `{arch}.pooling_type` where there is one (llama.cpp's numbers: 0 none, 1 mean, 2 cls,
    /// 3 last, 4 rank). None and absent state nothing and pass.
    ///
    /// # Errors
    /// [`ConfigError::BackboneHidden`] and [`ConfigError::BackbonePooling`], naming both sides.
    pub fn check_backbone(&self, hidden: usize, pooling: Option<u32>) -> Result<(), ConfigError> {
        if hidden != self.hidden_size {
            return Err(ConfigError::BackboneHidden {
                name: self.name.clone(),
                config: self.hidden_size,
                backbone: hidden,
                base: self.base.clone(),
            });
        }
        // What is made of several parts is no pooling that a GGUF can state.
        let plain = self.pooling.parts().len() == 1;
        let mean = self.pooling.parts() == [Part::Hidden { tokens: Tokens::Mean, layer: None }];
        let stated = match pooling {
            None | Some(0) => return Ok(()),
            Some(1) if mean || !plain => return Ok(()),
            Some(3) if !mean => return Ok(()),
            Some(3) => "`last` pooling (3)".into(),
            Some(1) => "`mean` pooling (1)".into(),
            Some(2) => "`cls` pooling (2)".into(),
            Some(4) => "`rank` pooling (4)".into(),
            Some(other) => format!("pooling type {other}, which is not known"),
        };
        let (name, pooling) = (self.name.clone(), self.pooling.clone());
        Err(ConfigError::BackbonePooling { name, pooling, backbone: stated })
    }
}

fn tasks(keys: &mut Fields) -> Result<Vec<Task>, ConfigError> {
    let names = keys.strings("tasks", Task::ALL.len())?.ok_or_else(|| keys.missing("tasks"))?;
    let mut tasks = Vec::with_capacity(names.len());
    for (row, found) in names.into_iter().enumerate() {
        let Some(task) = Task::from_name(&found) else {
            return Err(ConfigError::UnknownTask { name: keys.name.into(), row, found });
        };
        if let Some(first) = tasks.iter().position(|&t| t == task) {
            return Err(duplicate(keys, "tasks", found, first, row));
        }
        tasks.push(task);
    }
    Ok(tasks)
}

fn catalog(keys: &mut Fields) -> Result<Vec<String>, ConfigError> {
    let ids = keys.strings("catalog", MAX_ROUTES)?.ok_or_else(|| keys.missing("catalog"))?;
    let mut seen = std::collections::BTreeMap::new();
    let mut catalog = Vec::with_capacity(ids.len());
    for (row, id) in ids.into_iter().enumerate() {
        if id.trim().is_empty() || id.len() > MAX_ID_BYTES {
            return Err(keys
                .wrong_type("catalog", "a list of ids of 1 to 256 bytes", format!("row {row}: `{id}`"))
                .into());
        }
        let normal = normalise_id(&id).to_owned();
        if let Some(first) = seen.insert(normal.clone(), row) {
            return Err(duplicate(keys, "catalog", normal, first, row));
        }
        catalog.push(normal);
    }
    Ok(catalog)
}

fn trained(keys: &mut Fields, catalog: &[String]) -> Result<Option<Vec<bool>>, ConfigError> {
    const EXPECTED: &str = "a list of true and false, or a list of model ids";
    let entries = match keys.take("trained") {
        None => return Ok(None),
        Some(Value::Array(entries)) => entries,
        Some(other) => return Err(keys.wrong_type("trained", EXPECTED, kind(&other)).into()),
    };
    if entries.iter().all(Value::is_boolean) && !entries.is_empty() {
        if entries.len() != catalog.len() {
            return Err(ConfigError::TrainedLength {
                name: keys.name.into(),
                trained: entries.len(),
                rows: catalog.len(),
            });
        }
        return Ok(Some(entries.iter().map(|e| e.as_bool() == Some(true)).collect()));
    }
    // An empty list of ids is allowed: heads without any route row that has seen data.
    let mut mask = vec![false; catalog.len()];
    for entry in entries {
        let Value::String(id) = entry else {
            return Err(keys.wrong_type("trained", EXPECTED, format!("{} in the list", kind(&entry))).into());
        };
        let normal = normalise_id(&id);
        let Some(row) = catalog.iter().position(|c| c == normal) else {
            return Err(ConfigError::TrainedUnknown { name: keys.name.into(), id });
        };
        mask[row] = true;
    }
    Ok(Some(mask))
}

fn sha256(keys: &mut Fields, key: &str) -> Result<Option<String>, FieldError> {
    match keys.string(key)? {
        None => Ok(None),
        Some(hex) if hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Ok(Some(hex.to_ascii_lowercase()))
        }
        Some(other) => Err(keys.wrong_type(key, "64 hexadecimal digits", format!("`{other}`"))),
    }
}

fn duplicate(keys: &Fields, key: &'static str, entry: String, first: usize, second: usize) -> ConfigError {
    ConfigError::DuplicateEntry { name: keys.name.into(), key, entry, first, second }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str =
        r#""tasks": ["code", "general"], "catalog": ["a", "b"], "hidden_size": 16, "feature_dim": 4"#;

    fn parse(extra: &str) -> Result<RouterConfig, ConfigError> {
        let comma = if extra.is_empty() { "" } else { "," };
        RouterConfig::parse(format!("{{{SMALL}{comma}{extra}}}").as_bytes(), "c.json")
    }

    #[test]
    fn defaults_are_those_of_zen_router() {
        let config = parse("").unwrap();
        assert_eq!(config.tasks, [Task::Code, Task::General]);
        assert_eq!((config.max_chars, config.max_tokens, config.keep), (4000, 2048, Keep::Start));
        assert_eq!((config.add_bos, config.add_eos, config.plain_text), (None, None, false));
        assert_eq!((config.trained, config.temperature), (None, Temperature::default()));
        assert!(config.unknown.is_empty());
    }

    #[test]
    fn own_keys_are_read() {
        let hash = "AB".repeat(32);
        let config = parse(&format!(
            r#""max_chars": 10, "max_tokens": 5, "keep": "end", "add_bos": true, "add_eos": false, "plain_text": true,
            "trained": [false, true], "temperature": {{"task": 1.5, "route": 2}}, "min_confidence": 0.4,
            "heads_sha256": "{hash}", "lambda_cost": 0.5, "mu_latency": 0, "base": "x", "frozen_backbone": true"#
        ))
        .unwrap();
        assert_eq!((config.max_chars, config.max_tokens, config.keep), (10, 5, Keep::End));
        assert_eq!((config.add_bos, config.add_eos, config.plain_text), (Some(true), Some(false), true));
        assert_eq!(config.trained.unwrap(), [false, true]);
        assert_eq!(config.temperature, Temperature { task: Some(1.5), route: Some(2.0) });
        assert_eq!(config.heads_sha256.unwrap(), hash.to_lowercase());
        assert_eq!(
            (config.lambda_cost, config.mu_latency, config.min_confidence),
            (Some(0.5), Some(0.0), Some(0.4))
        );
    }

    #[test]
    fn trained_may_name_models_with_their_date() {
        assert_eq!(parse(r#""trained": ["b-20251001"]"#).unwrap().trained.unwrap(), [false, true]);
        assert_eq!(parse(r#""trained": []"#).unwrap().trained.unwrap(), [false, false]);
        assert!(
            matches!(parse(r#""trained": ["c"]"#), Err(ConfigError::TrainedUnknown { id, .. }) if id == "c")
        );
        assert!(matches!(
            parse(r#""trained": [true]"#),
            Err(ConfigError::TrainedLength { trained: 1, rows: 2, .. })
        ));
        assert!(matches!(
            parse(r#""trained": ["a", true]"#),
            Err(ConfigError::Field(FieldError::Type { .. }))
        ));
    }

    #[test]
    fn unknown_keys_are_reported_and_not_fatal() {
        let config = parse(r#""beta": 1, "alpha": {"x": [1]}"#).unwrap();
        assert_eq!(config.unknown, ["alpha", "beta"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        let bytes = [b"\xef\xbb\xbf{".as_slice(), SMALL.as_bytes(), b"}"].concat();
        assert!(RouterConfig::parse(&bytes, "c.json").is_ok());
    }

    #[test]
    fn c4_only_the_raw_vector_is_accepted() {
        assert!(parse(r#""embd_normalize": -1"#).is_ok());
        for value in ["2", "0", "\"-1\"", "true"] {
            let error = parse(&format!(r#""embd_normalize": {value}"#)).unwrap_err();
            assert!(matches!(&error, ConfigError::Normalize { .. }), "{value}: {error}");
            assert!(error.to_string().contains("-1") && error.to_string().contains("c.json"), "{error}");
        }
    }

    #[test]
    fn c6_another_pooling_is_refused_on_both_sides() {
        let error = parse(r#""pooling": "cls""#).unwrap_err();
        assert!(
            matches!(&error, ConfigError::Pooling { .. }) && error.to_string().contains("`cls`"),
            "{error}"
        );
        assert!(matches!(parse(r#""pooling": 3"#), Err(ConfigError::Field(FieldError::Type { .. }))));
        let stated = |own: &str, file| {
            let config = parse(&format!(r#""pooling": "{own}""#)).unwrap();
            config.check_backbone(16, file).map_err(|error| error.to_string())
        };
        for (own, fit, others) in [
            (
                "last",
                [None, Some(0), Some(3)].as_slice(),
                [(1, "mean"), (2, "cls"), (4, "rank"), (77, "77")].as_slice(),
            ),
            ("mean", &[None, Some(0), Some(1)], &[(3, "last"), (2, "cls")]),
            ("last+mean", &[None, Some(0), Some(1), Some(3)], &[(2, "cls")]),
        ] {
            for file in fit {
                stated(own, *file).unwrap();
            }
            for (file, word) in others {
                let text = stated(own, Some(*file)).unwrap_err();
                assert!(text.contains(&format!("`{own}`")) && text.contains(word), "{text}");
            }
        }
    }

    #[test]
    fn the_vector_is_as_long_as_its_parts() {
        assert_eq!(parse("").unwrap().vector_size(), 16);
        assert_eq!(parse(r#""pooling": "last+mean@2+length""#).unwrap().vector_size(), 33);
    }

    #[test]
    fn a_backbone_of_another_width_is_refused_naming_both() {
        let text = parse(r#""base": "nano""#).unwrap().check_backbone(1024, None).unwrap_err().to_string();
        assert!(text.contains("16") && text.contains("1024") && text.contains("nano"), "{text}");
    }

    #[test]
    fn every_cause_has_its_variant() {
        type Check = fn(&ConfigError) -> bool;
        let cases: &[(&str, Check)] = &[
            ("", |e| matches!(e, ConfigError::Field(FieldError::Syntax { .. }))),
            ("{} x", |e| matches!(e, ConfigError::Field(FieldError::Syntax { .. }))),
            ("[1]", |e| matches!(e, ConfigError::Field(FieldError::Type { found, .. }) if found == "a list")),
            ("{}", |e| matches!(e, ConfigError::Field(FieldError::Missing { key, .. }) if key == "tasks")),
            (
                r#"{"tasks": []}"#,
                |e| matches!(e, ConfigError::Field(FieldError::Empty { key, .. }) if key == "tasks"),
            ),
            (r#"{"tasks": "code"}"#, |e| matches!(e, ConfigError::Field(FieldError::Type { .. }))),
            (r#"{"tasks": [1]}"#, |e| matches!(e, ConfigError::Field(FieldError::Type { .. }))),
            (r#"{"tasks": ["cod"]}"#, |e| matches!(e, ConfigError::UnknownTask { row: 0, .. })),
            (r#"{"tasks": ["code", "code"]}"#, |e| {
                matches!(e, ConfigError::DuplicateEntry { second: 1, .. })
            }),
            (
                r#"{"tasks": ["code"]}"#,
                |e| matches!(e, ConfigError::Field(FieldError::Missing { key, .. }) if key == "catalog"),
            ),
            (
                r#"{"tasks": ["code"], "catalog": []}"#,
                |e| matches!(e, ConfigError::Field(FieldError::Empty { key, .. }) if key == "catalog"),
            ),
            (r#"{"tasks": ["code"], "catalog": [""]}"#, |e| {
                matches!(e, ConfigError::Field(FieldError::Type { .. }))
            }),
            (r#"{"tasks": ["code"], "catalog": ["a", "a-20250101"]}"#, |e| {
                matches!(e, ConfigError::DuplicateEntry { key: "catalog", first: 0, second: 1, .. })
            }),
            (
                r#"{"tasks": ["code"], "catalog": ["a"]}"#,
                |e| matches!(e, ConfigError::Field(FieldError::Missing { key, .. }) if key == "hidden_size"),
            ),
            (
                r#"{"tasks": ["code"], "tasks": ["code"]}"#,
                |e| matches!(e, ConfigError::Field(FieldError::DuplicateKey { key, .. }) if key == "tasks"),
            ),
            (
                r#"{"zzz": {"a": 1, "a": 2}}"#,
                |e| matches!(e, ConfigError::Field(FieldError::DuplicateKey { key, .. }) if key == "a"),
            ),
        ];
        for (json, check) in cases {
            let error = RouterConfig::parse(json.as_bytes(), "c.json").unwrap_err();
            assert!(check(&error), "{json}: {error:?}");
            assert!(error.to_string().starts_with("c.json"), "{error}");
        }
        for (extra, key) in [
            (r#""hidden_size2": 1, "max_tokens": 0"#, "max_tokens"),
            (r#""max_chars": -1"#, "max_chars"),
            (r#""max_chars": 1.5"#, "max_chars"),
            (r#""temperature": {"task": 0}"#, "temperature.task"),
            (r#""temperature": {"route": -3}"#, "temperature.route"),
            (r#""min_confidence": 1.01"#, "min_confidence"),
            (r#""lambda_cost": -0.1"#, "lambda_cost"),
        ] {
            let error = parse(extra).unwrap_err();
            assert!(
                matches!(&error, ConfigError::Field(FieldError::Range { key: k, .. }) if k == key),
                "{extra}: {error:?}"
            );
        }
        for extra in [
            r#""keep": "middle""#,
            r#""add_bos": 1"#,
            r#""temperature": 2"#,
            r#""heads_sha256": "abc""#,
            r#""min_confidence": "high""#,
            r#""base": 3"#,
        ] {
            assert!(matches!(parse(extra), Err(ConfigError::Field(FieldError::Type { .. }))), "{extra}");
        }
        // Python's json.dumps writes these words, which are no JSON.
        for extra in [r#""lambda_cost": NaN"#, r#""mu_latency": Infinity"#, r#""lambda_cost": 1e999"#] {
            assert!(matches!(parse(extra), Err(ConfigError::Field(FieldError::Syntax { .. }))), "{extra}");
        }
    }

    #[test]
    fn sizes_are_bounded() {
        let json = SMALL.replace("16", "65537");
        assert!(matches!(
            RouterConfig::parse(format!("{{{json}}}").as_bytes(), "c"),
            Err(ConfigError::Field(FieldError::Range { key, .. })) if key == "hidden_size"
        ));
        let ids = (0..=MAX_ROUTES).map(|i| format!("\"m{i}\"")).collect::<Vec<_>>().join(",");
        let json = SMALL.replace(r#"["a", "b"]"#, &format!("[{ids}]"));
        assert!(matches!(
            RouterConfig::parse(format!("{{{json}}}").as_bytes(), "c"),
            Err(ConfigError::Field(FieldError::TooMany { key, .. })) if key == "catalog"
        ));
        let large = vec![b' '; MAX_CONFIG_BYTES + 1];
        assert!(matches!(
            RouterConfig::parse(&large, "c"),
            Err(ConfigError::Field(FieldError::TooLarge { .. }))
        ));
        // Nesting is bounded by the parser: no stack is exhausted.
        let deep = "[".repeat(MAX_CONFIG_BYTES);
        assert!(matches!(
            RouterConfig::parse(deep.as_bytes(), "c"),
            Err(ConfigError::Field(FieldError::Syntax { .. }))
        ));
    }
}
