//! The catalog: one row for each model that a prompt can be routed to.
//!
//! A file is YAML or JSON: a list of rows, or an object with `models: [rows]` and, if wanted, `aliases: {name: id}`.
//!
//! | key of a row | type | meaning |
//! |---|---|---|
//! | `id` | string | required; a trailing `-YYYYMMDD` falls off |
//! | `backend` | see below | where the model runs |
//! | `tasks` | list of task names | what it is meant for; `general` takes any task |
//! | `max_context` | integer | tokens; 0 or absent: not known, and then no limit |
//! | `vision` | bool | reads images; by default whether `vision` is among the tasks |
//! | `cost_per_1k` | number >= 0 | USD for 1,000 tokens, input and output blended; default 0 |
//! | `latency_ms` | number >= 0 | typical time to the first token |
//! | `tokens_per_second` | number > 0 | typical speed of the answer |
//! | `quality` | 0 to 1 | how well its answers are judged, for `min_quality` |
//! | `levels` | list of `fast`, `balanced`, `max` | efforts that it can be asked for; default all |
//! | `trained` | bool | `false` keeps the learned head from picking it |
//! | `disabled` | bool | keeps the row (rows of the route head need one) and never picks it |
//!
//! `backend` is written in one of four ways, of which the first is zen-router's and the second hanzo-router's:
//! `backend: cloud, provider: openai` or `backend: local, est_bytes: 400000000`;
//! `backend: {kind: local, est_bytes: …}`; `backend: {local: {bytes: …}}`, `backend: {cloud: {provider: …}}`.
//!
//! A local row without a size gets an estimate from its id where that ends in a parameter count (`-0.6b`, `-24b`), and
//! [`CatalogReport::estimated`] says so. Without either it is used where it runs already and never loaded.

use crate::config::RouterConfig;
use crate::config::fields::{self, FieldError, Fields, kind};
use crate::config::{MAX_ID_BYTES, MAX_ROUTES};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// The most bytes that a catalog may have; the published one has 5,058.
pub const MAX_CATALOG_BYTES: usize = 4 << 20;

/// Why a catalog is refused, alone or beside a config.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum CatalogError {
    /// The file is neither YAML nor JSON, or a key is absent, of another type or out of range.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// Two rows have one id, when their dates have fallen off.
    #[error("{name}: `{id}` stands in rows {first} and {second}; remove one")]
    DuplicateId {
        /// The file.
        name: String,
        /// The id.
        id: String,
        /// The first row, from 0.
        first: usize,
        /// The second row, from 0.
        second: usize,
    },
    /// An alias leads nowhere.
    #[error("{name}: the alias `{alias}` means `{id}`, which no row has")]
    UnknownAlias {
        /// The file.
        name: String,
        /// The alias.
        alias: String,
        /// What it means.
        id: String,
    },
    /// An alias is the id of a row.
    #[error("{name}: the alias `{alias}` is the id of a row; rename it")]
    ShadowingAlias {
        /// The file.
        name: String,
        /// The alias.
        alias: String,
    },
    /// Rows of the route head have no model: catalog and heads do not belong together.
    #[error(
        "{name} has {cards} models, {config} has {rows} route rows, and {} of these are not in the catalog: {}{}; \
         take the catalog that the heads were trained with, or add the rows (`disabled: true` keeps one unused)",
        .missing.len(), list(.missing), .extra.is_empty().then(String::new)
            .unwrap_or_else(|| format!(" (in the catalog without a route row: {})", list(.extra)))
    )]
    RouteRows {
        /// The file.
        name: String,
        /// Its models.
        cards: usize,
        /// The config.
        config: String,
        /// Its route rows.
        rows: usize,
        /// Ids of route rows that no model has.
        missing: Vec<String>,
        /// Ids of models that have no route row: where an id was renamed, its new name is among them.
        extra: Vec<String>,
    },
}

/// At most eight ids: a message is no place for four thousand.
fn list(ids: &[String]) -> String {
    let mut text = ids.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
    if ids.len() > 8 {
        text += ", …";
    }
    text
}

/// What kind of work a prompt asks for, in the order of zen-router's task head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Write, explain or repair code, queries, shell commands.
    Code,
    /// Deduction, puzzles, arguments.
    Reasoning,
    /// From word problems to proofs.
    Math,
    /// Stories, poems, role-play.
    Creative,
    /// A question about an image.
    Vision,
    /// A long document and a question.
    LongContext,
    /// Greetings and small talk.
    CheapChat,
    /// All else; a model with this tag takes any task.
    General,
}

impl Task {
    /// The eight tasks in the order of the task head.
    pub const ALL: [Self; 8] = [
        Self::Code,
        Self::Reasoning,
        Self::Math,
        Self::Creative,
        Self::Vision,
        Self::LongContext,
        Self::CheapChat,
        Self::General,
    ];
    /// Their names in files and messages.
    pub const NAMES: [&'static str; 8] =
        ["code", "reasoning", "math", "creative", "vision", "long_context", "cheap_chat", "general"];

    /// The name in files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The task of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|&n| n == name).map(|i| Self::ALL[i])
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much effort a model is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Short thinking, short answers.
    Fast,
    /// The usual.
    #[default]
    Balanced,
    /// As long as it takes.
    Max,
}

impl Level {
    /// The three levels.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Balanced, Self::Max];

    /// The name in files, messages and the route tag.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["fast", "balanced", "max"][self as usize]
    }

    /// The level of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where a model runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Backend {
    /// On this device.
    Local {
        /// What it occupies when it runs, in bytes; `None`: not known.
        est_bytes: Option<u64>,
    },
    /// At a provider.
    Cloud {
        /// The provider's name.
        provider: String,
    },
}

impl Backend {
    /// Whether the model runs on this device.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local { .. })
    }
}

/// A row of the catalog.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Card {
    /// The id without a date.
    pub id: String,
    /// The id as the file has it: what a provider may want to see.
    pub written_id: String,
    /// Where it runs.
    pub backend: Backend,
    /// What it is meant for.
    pub tasks: Vec<Task>,
    /// The longest context in tokens; 0: not known.
    pub max_context: u64,
    /// Whether it reads images.
    pub vision: bool,
    /// USD for 1,000 tokens.
    pub cost_per_1k: f64,
    /// Time to the first token in milliseconds.
    pub latency_ms: Option<f64>,
    /// Speed of the answer.
    pub tokens_per_second: Option<f64>,
    /// How well its answers are judged, 0 to 1.
    pub quality: Option<f64>,
    /// Efforts that it can be asked for.
    pub levels: Vec<Level>,
    /// Whether the learned head may pick it, where the file says so.
    pub trained: Option<bool>,
    /// Whether it is never picked.
    pub disabled: bool,
}

impl Card {
    /// The time of an answer of `tokens` tokens in milliseconds, as far as it can be estimated: the latency, and with
    /// the speed known the answer's own time. `None` where neither is known.
    #[must_use]
    pub fn answer_ms(&self, tokens: u32) -> Option<f64> {
        let speaking = self.tokens_per_second.map(|speed| f64::from(tokens) * 1000.0 / speed);
        match (self.latency_ms, speaking) {
            (None, None) => None,
            (latency, speaking) => Some(latency.unwrap_or(0.0) + speaking.unwrap_or(0.0)),
        }
    }
}

/// What a catalog holds beyond what was understood, and where it and a config do not meet. Nothing here is fatal; a
/// program prints it at load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CatalogReport {
    /// Keys that are not known, as `models[3].colour`.
    pub unknown_keys: Vec<String>,
    /// Tasks that are none of the eight, as model and task. They are ignored.
    pub unknown_tasks: Vec<(String, String)>,
    /// Models without any task that is known: only a `prefer` list or the learned head reaches them.
    pub without_tasks: Vec<String>,
    /// Local models whose size was estimated from their id, with the bytes.
    pub estimated: Vec<(String, u64)>,
    /// Local models without a size: never loaded.
    pub without_size: Vec<String>,
    /// Route rows of the config that no model has: see [`Catalog::bind`].
    pub rows_without_model: Vec<String>,
    /// Models that no route row has: reached by rules.
    pub models_without_row: Vec<String>,
    /// Models whose route row has not seen data: reached by rules.
    pub untrained: Vec<String>,
}

/// The models that prompts are routed to.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    name: String,
    cards: Vec<Card>,
    /// From ids and the file's aliases to cards.
    index: BTreeMap<String, usize>,
    report: CatalogReport,
}

impl Catalog {
    /// Reads a catalog, YAML or JSON; `name` is what messages call it.
    ///
    /// # Errors
    /// A [`CatalogError`] that names the row and the key.
    pub fn parse(bytes: &[u8], name: &str) -> Result<Self, CatalogError> {
        let (rows, aliases) = match fields::yaml(bytes, name, MAX_CATALOG_BYTES)? {
            Value::Array(rows) => (rows, None),
            value => {
                let mut keys = Fields::new(name, "", value)?;
                let rows = match keys.take("models") {
                    None => return Err(keys.missing("models").into()),
                    Some(Value::Array(rows)) => rows,
                    Some(other) => {
                        return Err(keys.wrong_type("models", "a list of models", kind(&other)).into());
                    }
                };
                let aliases = keys.take("aliases");
                // What else stands at the top is reported with the rows' own keys.
                let mut catalog = Self::from_rows(name, rows, aliases)?;
                catalog.report.unknown_keys.splice(0..0, keys.unknown());
                return Ok(catalog);
            }
        };
        Self::from_rows(name, rows, aliases)
    }

    /// The models that a config names, of which nothing else is known: for heads that come without a catalog. They count
    /// as free cloud models for every task, and only the learned head tells them apart.
    ///
    /// # Errors
    /// A [`CatalogError`] where two ids are the same but for a date.
    pub fn of_ids(config: &RouterConfig) -> Result<Self, CatalogError> {
        let row = |id: &String| serde_json::json!({"id": id, "backend": "cloud", "provider": "unknown", "tasks": Task::NAMES, "cost_per_1k": 0.0});
        Self::from_rows(&config.name, config.catalog.iter().map(row).collect(), None)
    }

    fn from_rows(name: &str, rows: Vec<Value>, aliases: Option<Value>) -> Result<Self, CatalogError> {
        if rows.is_empty() {
            return Err(FieldError::Empty { name: name.into(), key: "models".into() }.into());
        }
        if rows.len() > MAX_ROUTES {
            let (name, key, count) = (name.into(), "models".into(), rows.len());
            return Err(FieldError::TooMany { name, key, count, limit: MAX_ROUTES }.into());
        }
        let mut catalog = Self {
            name: name.into(),
            cards: Vec::with_capacity(rows.len()),
            index: BTreeMap::new(),
            report: CatalogReport::default(),
        };
        for (row, value) in rows.into_iter().enumerate() {
            let card = card(name, row, value, &mut catalog.report)?;
            if let Some(first) = catalog.index.insert(card.id.clone(), row) {
                return Err(CatalogError::DuplicateId { name: name.into(), id: card.id, first, second: row });
            }
            catalog.cards.push(card);
        }
        let aliases = match aliases {
            None => return Ok(catalog),
            Some(Value::Object(aliases)) => aliases,
            Some(other) => {
                let (name, key, found) = (name.into(), "aliases".into(), kind(&other).into());
                return Err(
                    FieldError::Type { name, key, expected: "an object of name and id", found }.into()
                );
            }
        };
        for (alias, id) in aliases {
            let Value::String(id) = id else {
                let (name, key, found) = (name.into(), format!("aliases.{alias}"), kind(&id).into());
                return Err(FieldError::Type { name, key, expected: "a model id", found }.into());
            };
            // Aliases of aliases would need an order and a check for circles.
            let Some(row) = catalog.cards.iter().position(|card| card.id == normalise_id(&id)) else {
                return Err(CatalogError::UnknownAlias { name: name.into(), alias, id });
            };
            if catalog.index.insert(normalise_id(&alias).to_owned(), row).is_some() {
                return Err(CatalogError::ShadowingAlias { name: name.into(), alias });
            }
        }
        Ok(catalog)
    }

    /// What the file is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The models, in the file's order.
    #[must_use]
    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// Where a model stands in [`Self::cards`]: by its id, with or without a date; by an alias of the file; or by
    /// `opus`, `sonnet`, `haiku`, which mean the newest `claude-` model of that family here.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<usize> {
        let id = normalise_id(id);
        self.index.get(id).copied().or_else(|| self.newest(id))
    }

    /// The card of an id, as [`Self::find`] finds it.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Card> {
        self.find(id).map(|row| &self.cards[row])
    }

    fn newest(&self, family: &str) -> Option<usize> {
        if !["opus", "sonnet", "haiku"].contains(&family) {
            return None;
        }
        let versions = self.cards.iter().enumerate().filter_map(|(row, card)| {
            let version = card.id.strip_prefix("claude-")?.strip_prefix(family)?.strip_prefix('-')?;
            let version: Option<Vec<u32>> = version.split('-').map(|part| part.parse().ok()).collect();
            Some((version?, std::cmp::Reverse(row)))
        });
        versions.max().map(|(_, std::cmp::Reverse(row))| row)
    }

    /// What is to be said of this catalog and a config: `trained` has one flag for a route row, as
    /// [`crate::heads::TrainedMask::rows`] gives it.
    #[must_use]
    pub fn report(&self, config: Option<(&RouterConfig, &[bool])>) -> CatalogReport {
        let mut report = self.report.clone();
        let Some((config, trained)) = config else { return report };
        let mut rows = vec![None; self.cards.len()];
        for (row, id) in config.catalog.iter().enumerate() {
            match self.index.get(id) {
                Some(&card) => rows[card] = Some(row),
                None => report.rows_without_model.push(id.clone()),
            }
        }
        for (card, row) in self.cards.iter().zip(rows) {
            match row {
                None => report.models_without_row.push(card.id.clone()),
                Some(row) if trained.get(row) != Some(&true) || card.trained == Some(false) => {
                    report.untrained.push(card.id.clone());
                }
                Some(_) => {}
            }
        }
        report
    }

    /// The model of each route row of a config, as its place in [`Self::cards`]. Models without a route row are fine:
    /// a new one is reached by rules until a head is trained for it.
    ///
    /// # Errors
    /// [`CatalogError::RouteRows`] where a route row has no model: an id was renamed, or another catalog lies beside
    /// the heads. Left unsaid, its probability would vanish and every other would be wrong.
    pub fn bind(&self, config: &RouterConfig) -> Result<Vec<usize>, CatalogError> {
        let rows: Vec<usize> = config.catalog.iter().filter_map(|id| self.index.get(id)).copied().collect();
        if rows.len() == config.catalog.len() {
            return Ok(rows);
        }
        let report = self.report(Some((config, &[])));
        Err(CatalogError::RouteRows {
            name: self.name.clone(),
            cards: self.cards.len(),
            config: config.name.clone(),
            rows: config.catalog.len(),
            missing: report.rows_without_model,
            extra: report.models_without_row,
        })
    }
}

fn card(name: &str, row: usize, value: Value, report: &mut CatalogReport) -> Result<Card, CatalogError> {
    let mut keys = Fields::new(name, &format!("models[{row}]"), value)?;
    let written_id = keys.string("id")?.ok_or_else(|| keys.missing("id"))?;
    if written_id.trim().is_empty() || written_id.len() > MAX_ID_BYTES {
        return Err(keys.wrong_type("id", "an id of 1 to 256 bytes", format!("`{written_id}`")).into());
    }
    let id = normalise_id(&written_id).to_owned();
    let mut tasks = Vec::new();
    let names = match keys.take("tasks") {
        // An empty list is a row that only `prefer` lists and the learned head reach.
        None => Vec::new(),
        Some(Value::Array(names)) => names,
        Some(other) => return Err(keys.wrong_type("tasks", "a list of task names", kind(&other)).into()),
    };
    for task in names {
        let Value::String(task) = task else {
            return Err(keys.wrong_type("tasks", "a list of task names", kind(&task)).into());
        };
        match Task::from_name(&task) {
            Some(task) if tasks.contains(&task) => {}
            Some(task) => tasks.push(task),
            None => report.unknown_tasks.push((id.clone(), task)),
        }
    }
    if tasks.is_empty() {
        report.without_tasks.push(id.clone());
    }
    let backend = match backend(&mut keys)? {
        Backend::Local { est_bytes: None } => {
            let est_bytes = estimate_bytes(&id);
            match est_bytes {
                Some(bytes) => report.estimated.push((id.clone(), bytes)),
                None => report.without_size.push(id.clone()),
            }
            Backend::Local { est_bytes }
        }
        backend => backend,
    };
    let levels = match keys.strings("levels", 16)? {
        None => Level::ALL.to_vec(),
        Some(names) => {
            let levels = names.iter().map(|name| {
                let wrong =
                    || keys.wrong_type("levels", "a list of `fast`, `balanced`, `max`", format!("`{name}`"));
                Level::from_name(name).ok_or_else(wrong)
            });
            levels.collect::<Result<_, _>>()?
        }
    };
    keys.rename("tok_s", "tokens_per_second");
    let max_context = keys.whole("max_context", 0..=u64::MAX, "a whole number of tokens")?.unwrap_or(0);
    let amount = "0 to 1e12";
    let card = Card {
        max_context,
        vision: keys.boolean("vision")?.unwrap_or_else(|| tasks.contains(&Task::Vision)),
        cost_per_1k: keys.number("cost_per_1k", 0.0..=1e12, amount)?.unwrap_or(0.0),
        latency_ms: keys.number("latency_ms", 0.0..=1e12, amount)?,
        tokens_per_second: keys.number("tokens_per_second", 1e-6..=1e12, "0.000001 to 1e12")?,
        quality: keys.number("quality", 0.0..=1.0, "0 to 1")?,
        trained: keys.boolean("trained")?,
        disabled: keys.boolean("disabled")?.unwrap_or(false),
        id,
        written_id,
        backend,
        tasks,
        levels,
    };
    report.unknown_keys.extend(keys.unknown());
    Ok(card)
}

fn backend(keys: &mut Fields) -> Result<Backend, FieldError> {
    const EXPECTED: &str = "`local` or `cloud` (or an object that says which)";
    let (kind_of, mut inner) = match keys.take("backend") {
        None => return Err(keys.missing("backend")),
        Some(Value::String(kind)) => (kind, None),
        Some(Value::Object(mut object)) => {
            let path = keys.key("backend");
            match object.remove("kind").or_else(|| object.remove("type")) {
                Some(Value::String(kind)) => {
                    (kind, Some(Fields::new(keys.name, &path, Value::Object(object))?))
                }
                Some(other) => return Err(keys.wrong_type("backend.kind", EXPECTED, kind(&other))),
                None if object.len() == 1 => {
                    let (kind, value) = object.into_iter().next().expect("there is one entry");
                    let value = if value.is_null() { Value::Object(serde_json::Map::new()) } else { value };
                    let inner = Fields::new(keys.name, &format!("{path}.{kind}"), value)?;
                    (kind, Some(inner))
                }
                None => return Err(keys.wrong_type("backend", EXPECTED, "an object without `kind`")),
            }
        }
        Some(other) => return Err(keys.wrong_type("backend", EXPECTED, kind(&other))),
    };
    let outer_provider = keys.string("provider")?;
    for spelling in ["bytes", "size_bytes"] {
        keys.rename(spelling, "est_bytes");
        if let Some(inner) = &mut inner {
            inner.rename(spelling, "est_bytes");
        }
    }
    let whole = "a whole number of bytes";
    match kind_of.as_str() {
        "local" => {
            let inner = inner.map_or(Ok(None), |mut inner| inner.whole("est_bytes", 1..=u64::MAX, whole))?;
            let est_bytes =
                inner.map_or_else(|| keys.whole("est_bytes", 1..=u64::MAX, whole), |b| Ok(Some(b)))?;
            Ok(Backend::Local { est_bytes })
        }
        "cloud" => {
            let provider = inner.map_or(Ok(None), |mut inner| inner.string("provider"))?.or(outer_provider);
            match provider.filter(|provider| !provider.trim().is_empty()) {
                Some(provider) => Ok(Backend::Cloud { provider }),
                None => Err(keys.missing("provider")),
            }
        }
        other => Err(keys.wrong_type("backend", EXPECTED, format!("`{other}`"))),
    }
}

/// What a model of `<n>b` parameters occupies when it runs at four bits: .7 bytes a parameter (zen-nano's Q4_K_M has .67
/// with its embedding, larger ones .6) and a quarter of a gigabyte for its cache and activations.
fn estimate_bytes(id: &str) -> Option<u64> {
    let count = id.rsplit('-').find_map(|part| {
        let digits = part.strip_suffix(['b', 'B'])?;
        let plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        digits.parse::<f64>().ok().filter(|&n| plain && n > 0.0 && n <= 10_000.0)
    })?;
    Some((count * 0.7e9) as u64 + (1 << 28))
}

/// A model id without surrounding blanks and without a trailing `-YYYYMMDD`: providers add dates to ids that logs and
/// catalogs write without.
///
/// Eight digits that are no date (`-99999999`) stay, and so does an id that is nothing but a date.
#[must_use]
pub fn normalise_id(id: &str) -> &str {
    let id = id.trim();
    let Some((head, date)) = id.rsplit_once('-') else { return id };
    let bytes = date.as_bytes();
    if head.is_empty() || bytes.len() != 8 || !bytes.iter().all(u8::is_ascii_digit) {
        return id;
    }
    let number =
        |from: usize, to: usize| bytes[from..to].iter().fold(0, |n, &d| n * 10 + u32::from(d - b'0'));
    let is_date = (1970..2200).contains(&number(0, 4))
        && (1..=12).contains(&number(4, 6))
        && (1..=31).contains(&number(6, 8));
    if is_date { head } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Catalog, CatalogError> {
        Catalog::parse(text.as_bytes(), "catalog.yaml")
    }

    fn config(ids: &[&str]) -> RouterConfig {
        let ids = serde_json::to_string(ids).unwrap();
        let json = format!(r#"{{"tasks": ["code"], "catalog": {ids}, "hidden_size": 4, "feature_dim": 1}}"#);
        RouterConfig::parse(json.as_bytes(), "router_config.json").unwrap()
    }

    const TWO: &str = "models:\n  - {id: a, backend: cloud, provider: p, tasks: [code]}\n  - {id: b, backend: cloud, provider: p}\n";

    #[test]
    fn task_names_and_order_agree() {
        for (row, task) in Task::ALL.into_iter().enumerate() {
            assert_eq!(task as usize, row);
            assert_eq!(Task::from_name(task.name()), Some(task));
            assert_eq!(serde_json::to_value(task).unwrap(), task.name());
        }
        assert_eq!(Task::from_name("Code"), None);
    }

    #[test]
    fn dates_fall_off_ids() {
        for (id, normal) in [
            ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
            (" o3 ", "o3"),
            ("gpt-5.5", "gpt-5.5"),
            ("m-99999999", "m-99999999"),
            ("m-20251301", "m-20251301"),
            ("m-2025100", "m-2025100"),
            ("-20251001", "-20251001"),
            ("20251001", "20251001"),
            ("m-20251001-20251002", "m-20251001"),
            ("m-２０２５１００１", "m-２０２５１００１"),
        ] {
            assert_eq!(normalise_id(id), normal, "{id}");
        }
    }

    #[test]
    fn every_spelling_of_a_backend_is_read() {
        let local = Backend::Local { est_bytes: Some(7) };
        let cloud = Backend::Cloud { provider: "p".into() };
        for (row, backend) in [
            ("backend: local, est_bytes: 7, provider: engine", &local),
            ("backend: local, bytes: 7", &local),
            ("backend: {kind: local, est_bytes: 7}", &local),
            ("backend: {local: {bytes: 7}}", &local),
            ("backend: cloud, provider: p", &cloud),
            ("backend: {kind: cloud, provider: p}", &cloud),
            ("backend: {cloud: {provider: p}}", &cloud),
        ] {
            let catalog = parse(&format!("- {{id: x, {row}}}")).unwrap();
            assert_eq!(&catalog.cards()[0].backend, backend, "{row}");
            assert!(catalog.report(None).unknown_keys.is_empty(), "{row}");
        }
        for row in ["backend: cloud", "backend: cloud, provider: ''", "provider: p"] {
            let error = parse(&format!("- {{id: x, {row}}}")).unwrap_err();
            assert!(matches!(error, CatalogError::Field(FieldError::Missing { .. })), "{row}: {error}");
        }
        for row in ["backend: edge", "backend: 3", "backend: {}", "backend: {kind: 1}", "backend: {local: 7}"]
        {
            let error = parse(&format!("- {{id: x, {row}}}")).unwrap_err();
            assert!(matches!(error, CatalogError::Field(FieldError::Type { .. })), "{row}: {error}");
        }
    }

    #[test]
    fn json_and_all_keys() {
        let catalog = parse(
            r#"{"models": [{"id": "m-20251001", "backend": {"kind": "cloud", "provider": "p"}, "tasks": ["code", "agent"],
            "max_context": 200000, "vision": true, "cost_per_1k": 0.5, "latency_ms": 300, "tokens_per_second": 50,
            "quality": 0.8, "levels": ["fast", "max"], "trained": false, "disabled": true, "colour": 1}],
            "aliases": {"best": "m"}, "version": 3}"#,
        )
        .unwrap();
        let card = catalog.get("best").unwrap();
        assert_eq!((card.id.as_str(), card.written_id.as_str()), ("m", "m-20251001"));
        assert_eq!((card.max_context, card.vision, card.cost_per_1k), (200_000, true, 0.5));
        assert_eq!((card.quality, card.trained, card.disabled), (Some(0.8), Some(false), true));
        assert_eq!(card.levels, [Level::Fast, Level::Max]);
        assert_eq!(card.answer_ms(100), Some(300.0 + 2000.0));
        let report = catalog.report(None);
        assert_eq!(report.unknown_keys, ["version", "models[0].colour"]);
        assert_eq!(report.unknown_tasks, [("m".to_owned(), "agent".to_owned())]);
    }

    #[test]
    fn defaults_and_estimates() {
        let catalog = parse(
            "- {id: zen-nano-0.6b, backend: local, provider: engine, tasks: [general]}\n- {id: mine, backend: local}\n\
             - {id: v, backend: cloud, provider: p, tasks: [vision]}",
        )
        .unwrap();
        let [nano, mine, v] = catalog.cards() else { panic!("three rows") };
        assert_eq!(nano.backend, Backend::Local { est_bytes: Some(420_000_000 + (1 << 28)) });
        assert_eq!(mine.backend, Backend::Local { est_bytes: None });
        assert!(v.vision && !nano.vision);
        assert_eq!((nano.max_context, nano.cost_per_1k, nano.answer_ms(9)), (0, 0.0, None));
        assert_eq!(nano.levels, Level::ALL);
        let report = catalog.report(None);
        assert_eq!(report.estimated, [("zen-nano-0.6b".to_owned(), 420_000_000 + (1 << 28))]);
        assert_eq!(
            (report.without_size, report.without_tasks),
            (vec!["mine".to_owned()], vec!["mine".to_owned()])
        );
        for (id, known) in
            [("x-7b", true), ("x-24b-instruct", true), ("b", false), ("x-b", false), ("x-nanb", false)]
        {
            assert_eq!(estimate_bytes(id).is_some(), known, "{id}");
        }
    }

    #[test]
    fn ids_and_aliases_are_found() {
        let catalog = parse(
            "models:\n- {id: claude-opus-4-5, backend: cloud, provider: p}\n\
             - {id: claude-opus-4-10, backend: cloud, provider: p}\n\
             - {id: claude-opus-mini, backend: cloud, provider: p}\n\
             - {id: claude-haiku-4-5-20251001, backend: cloud, provider: p}\naliases: {quick: claude-haiku-4-5}\n",
        )
        .unwrap();
        for (id, row) in [
            ("claude-opus-4-5-20250101", Some(0)),
            ("opus", Some(1)),
            ("haiku", Some(3)),
            ("quick", Some(3)),
            ("claude-haiku-4-5", Some(3)),
            ("sonnet", None),
            ("claude", None),
        ] {
            assert_eq!(catalog.find(id), row, "{id}");
        }
    }

    #[test]
    fn each_fault_has_its_variant() {
        type Check = fn(&CatalogError) -> bool;
        let cases: &[(&str, Check)] = &[
            ("", |e| matches!(e, CatalogError::Field(FieldError::Missing { key, .. }) if key == "models")),
            ("[]", |e| matches!(e, CatalogError::Field(FieldError::Empty { .. }))),
            ("models: []", |e| matches!(e, CatalogError::Field(FieldError::Empty { .. }))),
            ("models: {}", |e| matches!(e, CatalogError::Field(FieldError::Type { .. }))),
            ("[1]", |e| matches!(e, CatalogError::Field(FieldError::Type { key, .. }) if key == "models[0]")),
            (
                "- {backend: local}",
                |e| matches!(e, CatalogError::Field(FieldError::Missing { key, .. }) if key == "models[0].id"),
            ),
            ("- {id: '', backend: local}", |e| matches!(e, CatalogError::Field(FieldError::Type { .. }))),
            ("- {id: a, backend: local}\n- {id: a-20250102, backend: local}", |e| {
                matches!(e, CatalogError::DuplicateId { first: 0, second: 1, .. })
            }),
            ("models: [{id: a, backend: local}]\naliases: {x: b}", |e| {
                matches!(e, CatalogError::UnknownAlias { .. })
            }),
            ("models: [{id: a, backend: local}]\naliases: {a: a}", |e| {
                matches!(e, CatalogError::ShadowingAlias { .. })
            }),
            ("models: [{id: a, backend: local}]\naliases: [a]", |e| {
                matches!(e, CatalogError::Field(FieldError::Type { .. }))
            }),
        ];
        for (text, check) in cases {
            let error = parse(text).unwrap_err();
            assert!(check(&error), "{text}: {error:?}");
            assert!(error.to_string().starts_with("catalog.yaml"), "{error}");
        }
        for key in
            ["cost_per_1k: -1", "quality: 1.5", "tokens_per_second: 0", "latency_ms: -2", "est_bytes: 0"]
        {
            let error = parse(&format!("- {{id: a, backend: local, {key}}}")).unwrap_err();
            assert!(matches!(error, CatalogError::Field(FieldError::Range { .. })), "{key}: {error}");
        }
        for key in [
            "tasks: code",
            "tasks: [1]",
            "vision: 1",
            "max_context: many",
            "levels: [slow]",
            "cost_per_1k: x",
        ] {
            let error = parse(&format!("- {{id: a, backend: local, {key}}}")).unwrap_err();
            assert!(matches!(error, CatalogError::Field(FieldError::Type { .. })), "{key}: {error}");
        }
    }

    #[test]
    fn a11_route_rows_without_a_model_are_refused_naming_both() {
        let catalog = parse(TWO).unwrap();
        assert_eq!(catalog.bind(&config(&["b", "a"])).unwrap(), [1, 0]);
        // A renamed id.
        let error = catalog.bind(&config(&["a", "renamed"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("renamed") && text.contains("without a route row: b"), "{text}");
        assert!(
            text.contains("catalog.yaml has 2 models") && text.contains("router_config.json has 2"),
            "{text}"
        );
        // A head with more rows than the catalog.
        let text = catalog.bind(&config(&["a", "b", "c"])).unwrap_err().to_string();
        assert!(
            text.contains("2 models") && text.contains("3 route rows") && text.contains("catalog: c"),
            "{text}"
        );
    }

    #[test]
    fn h2_a_new_row_needs_no_training() {
        let catalog = parse(TWO).unwrap();
        let config = config(&["a"]);
        assert_eq!(catalog.bind(&config).unwrap(), [0]);
        assert_eq!(catalog.report(Some((&config, &[true]))).models_without_row, ["b"]);
        assert_eq!(catalog.report(Some((&config, &[false]))).untrained, ["a"]);
    }
}
