//! Settings files, JSON or YAML: a bounded tree in which no key stands twice, and its fields taken out one by one.
//!
//! The files are small and written by hand, so what counts is the message: a derived `Deserialize` would let the last of
//! two equal keys win in nested maps, drop unknown keys silently and name no key in a type error.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;
use thiserror::Error;

/// Why a settings file is refused before its meaning is looked at.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum FieldError {
    /// The file is larger than any of its kind can be.
    #[error("{name}: {bytes} bytes; such a file has at most {limit}: is this the right one?")]
    TooLarge {
        /// The file.
        name: String,
        /// Its length in bytes.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The bytes are not JSON, or not YAML where that is allowed.
    #[error("{name}: cannot be read as {format}, at line {line}, column {column}: {what}")]
    Syntax {
        /// The file.
        name: String,
        /// `JSON` or `YAML`.
        format: &'static str,
        /// The line, from 1; 0 where it is not known.
        line: u64,
        /// The column, from 1; 0 where it is not known.
        column: u64,
        /// The parser's words.
        what: String,
    },
    /// A key stands twice in one object: which one counts would be a guess.
    #[error("{name}: the key `{key}` stands twice; remove one")]
    DuplicateKey {
        /// The file.
        name: String,
        /// The key.
        key: String,
    },
    /// A key without a default is absent.
    #[error("{name}: the key `{key}` is missing")]
    Missing {
        /// The file.
        name: String,
        /// The key.
        key: String,
    },
    /// A value is of another type.
    #[error("{name}: `{key}` must be {expected}, found {found}")]
    Type {
        /// The file.
        name: String,
        /// The key.
        key: String,
        /// What may stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A number is out of its range.
    #[error("{name}: `{key}` is {found}, it must be {allowed}")]
    Range {
        /// The file.
        name: String,
        /// The key.
        key: String,
        /// The number.
        found: String,
        /// The range.
        allowed: &'static str,
    },
    /// A list that must have entries has none.
    #[error("{name}: `{key}` is empty; list at least one")]
    Empty {
        /// The file.
        name: String,
        /// The key.
        key: String,
    },
    /// A list is longer than the bound.
    #[error("{name}: `{key}` has {count} entries, at most {limit} are allowed")]
    TooMany {
        /// The file.
        name: String,
        /// The key.
        key: String,
        /// The entries.
        count: usize,
        /// The bound.
        limit: usize,
    },
}

/// Parses JSON of at most `limit` bytes.
pub(crate) fn json(bytes: &[u8], name: &str, limit: usize) -> Result<Value, FieldError> {
    bounded(bytes, name, limit)?;
    parse_json(without_mark(bytes)).map_err(|fault| fault.named(name, "JSON"))
}

/// Parses YAML or JSON of at most `limit` bytes. A file without any content is an empty object.
pub(crate) fn yaml(bytes: &[u8], name: &str, limit: usize) -> Result<Value, FieldError> {
    bounded(bytes, name, limit)?;
    let bytes = without_mark(bytes);
    // JSON is YAML but for details (tabs as indentation), so what begins like JSON is tried as such.
    if bytes.trim_ascii_start().starts_with(b"{") || bytes.trim_ascii_start().starts_with(b"[") {
        match parse_json(bytes) {
            Err(Fault::Syntax { .. }) => {}
            done => return done.map_err(|fault| fault.named(name, "JSON")),
        }
    }
    let value = parse_yaml(bytes).map_err(|fault| fault.named(name, "YAML"))?;
    Ok(if value.is_null() { Value::Object(Map::new()) } else { value })
}

/// Why a text is no settings.
pub(super) enum Fault {
    Duplicate(String),
    Syntax { line: u64, column: u64, what: String },
}

impl Fault {
    fn named(self, name: &str, format: &'static str) -> FieldError {
        let name = name.into();
        match self {
            Self::Duplicate(key) => FieldError::DuplicateKey { name, key },
            Self::Syntax { line, column, what } => FieldError::Syntax { name, format, line, column, what },
        }
    }
}

fn bounded(bytes: &[u8], name: &str, limit: usize) -> Result<(), FieldError> {
    if bytes.len() <= limit {
        return Ok(());
    }
    Err(FieldError::TooLarge { name: name.into(), bytes: bytes.len(), limit })
}

/// Editors on Windows put a byte-order mark, which is no part of the text.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn parse_json(bytes: &[u8]) -> Result<Value, Fault> {
    let duplicate = RefCell::new(None);
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let parsed = Unique(&duplicate).deserialize(&mut parser).and_then(|value| parser.end().map(|()| value));
    parsed.map_err(|error| match duplicate.into_inner() {
        Some(key) => Fault::Duplicate(key),
        None => Fault::Syntax {
            line: error.line() as u64,
            column: error.column() as u64,
            what: error.to_string(),
        },
    })
}

fn parse_yaml(bytes: &[u8]) -> Result<Value, Fault> {
    let text = std::str::from_utf8(bytes).map_err(|error| Fault::Syntax {
        line: 0,
        column: 0,
        what: format!("no text: {error}"),
    })?;
    super::yaml::parse(text)
}

/// Builds a [`Value`] and refuses a key that stands twice, and numbers that are none.
#[derive(Clone, Copy)]
struct Unique<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // `Value` would turn it into null, which reads as an absent key.
        if value.is_finite() { Ok(value.into()) } else { Err(E::custom("a number that is not finite")) }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if fields.contains_key(&key) {
                let error = A::Error::custom(format_args!("duplicate key `{key}`"));
                *self.0.borrow_mut() = Some(key);
                return Err(error);
            }
            let value = map.next_value_seed(self)?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

/// The fields of one object, each taken out once; what is left is unknown.
pub(crate) struct Fields<'a> {
    /// The file.
    pub(crate) name: &'a str,
    /// What stands before a key in messages: `models[3].`.
    path: String,
    fields: Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which must be an object; `path` is where it stands in the file.
    pub(crate) fn new(name: &'a str, path: &str, value: Value) -> Result<Self, FieldError> {
        match value {
            Value::Object(fields) => {
                let path = if path.is_empty() { String::new() } else { format!("{path}.") };
                Ok(Self { name, path, fields })
            }
            other => Err(FieldError::Type {
                name: name.into(),
                key: if path.is_empty() { "the file".into() } else { path.into() },
                expected: "an object of settings",
                found: kind(&other).into(),
            }),
        }
    }

    /// The names of the keys that nothing took.
    pub(crate) fn unknown(&self) -> Vec<String> {
        self.fields.keys().map(|key| format!("{}{key}", self.path)).collect()
    }

    /// A key's value; `null` is absent.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.fields.remove(key).filter(|value| !value.is_null())
    }

    /// Takes another spelling of a key for the key itself, where that is absent.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if !self.fields.contains_key(to)
            && let Some(value) = self.fields.remove(from)
        {
            self.fields.insert(to.into(), value);
        }
    }

    pub(crate) fn string(&mut self, key: &str) -> Result<Option<String>, FieldError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(key, "a string", kind(&other))),
        }
    }

    pub(crate) fn boolean(&mut self, key: &str) -> Result<Option<bool>, FieldError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong_type(key, "true or false", brief(&other))),
        }
    }

    /// A finite number in a range that `allowed` words.
    pub(crate) fn number(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<f64>,
        allowed: &'static str,
    ) -> Result<Option<f64>, FieldError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            Some(number) => Err(self.range(key, number, allowed)),
            None => Err(self.wrong_type(key, "a number", brief(&value))),
        }
    }

    /// A whole number in a range that `allowed` words.
    pub(crate) fn whole(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
        allowed: &'static str,
    ) -> Result<Option<u64>, FieldError> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let Value::Number(number) = &value else {
            return Err(self.wrong_type(key, "a whole number", brief(&value)));
        };
        match number.as_u64() {
            Some(n) if range.contains(&n) => Ok(Some(n)),
            _ => Err(self.range(key, number, allowed)),
        }
    }

    /// A whole number from 1 to `limit` that counts things in memory.
    pub(crate) fn size(
        &mut self,
        key: &str,
        limit: usize,
        allowed: &'static str,
    ) -> Result<Option<usize>, FieldError> {
        let size = self.whole(key, 1..=limit as u64, allowed)?;
        // No larger than `limit`, which is a `usize`.
        Ok(size.map(|size| size as usize))
    }

    /// A list of strings, of at least one and at most `limit` entries.
    pub(crate) fn strings(&mut self, key: &str, limit: usize) -> Result<Option<Vec<String>>, FieldError> {
        let list = match self.take(key) {
            None => return Ok(None),
            Some(Value::Array(list)) => list,
            Some(other) => return Err(self.wrong_type(key, "a list of strings", kind(&other))),
        };
        if list.is_empty() {
            return Err(FieldError::Empty { name: self.name.into(), key: self.key(key) });
        }
        if list.len() > limit {
            let (name, key) = (self.name.into(), self.key(key));
            return Err(FieldError::TooMany { name, key, count: list.len(), limit });
        }
        let strings = list.into_iter().map(|entry| match entry {
            Value::String(text) => Ok(text),
            other => Err(self.wrong_type(key, "a list of strings", format!("{} in the list", kind(&other)))),
        });
        strings.collect::<Result<_, _>>().map(Some)
    }

    /// A key as messages name it.
    pub(crate) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    pub(crate) fn missing(&self, key: &str) -> FieldError {
        FieldError::Missing { name: self.name.into(), key: self.key(key) }
    }

    pub(crate) fn wrong_type(
        &self,
        key: &str,
        expected: &'static str,
        found: impl Into<String>,
    ) -> FieldError {
        FieldError::Type { name: self.name.into(), key: self.key(key), expected, found: found.into() }
    }

    pub(crate) fn range(&self, key: &str, found: impl fmt::Display, allowed: &'static str) -> FieldError {
        FieldError::Range { name: self.name.into(), key: self.key(key), found: found.to_string(), allowed }
    }
}

/// The kind of a value, in words.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A scalar as it stands in the file; of the rest only the kind, so that a message stays short.
pub(crate) fn brief(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().take(64).collect(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        other => kind(other).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_and_json_give_the_same_tree() {
        let expected = json!({"a": [1, 2.5, "x", true, null], "b": {"c": "-1"}});
        for text in [
            r#"{"a": [1, 2.5, "x", true, null], "b": {"c": "-1"}}"#,
            "\u{feff}{\"a\": [1, 2.5, \"x\", true, null],\t\"b\": {\"c\": \"-1\"}}",
            "a: [1, 2.5, x, true, null]\nb:\n  c: '-1' # a comment\n",
            "{a: [1, 2.5, x, true, ~], b: {c: '-1'}}",
            "&root\na: &list [1, 2.5, x, true, null]\nb: {c: \"-1\"}\n",
        ] {
            assert_eq!(yaml(text.as_bytes(), "f", 1000).unwrap(), expected, "{text}");
        }
        for text in ["", "\n# nothing\n", "{}", "---\n", "null"] {
            assert_eq!(yaml(text.as_bytes(), "f", 1000).unwrap(), json!({}), "{text:?}");
        }
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_in_both() {
        for text in ["a: 1\na: 2", "{\"a\": 1, \"a\": 2}", "b: {a: 1, a: 2}", "- {a: 1}\n- {a: 1, a: 1}"] {
            let error = yaml(text.as_bytes(), "f", 1000).unwrap_err();
            assert_eq!(error, FieldError::DuplicateKey { name: "f".into(), key: "a".into() }, "{text}");
        }
    }

    #[test]
    fn faults_name_file_and_place() {
        for text in
            ["a: [1", "a: b: c", "{\"a\": 1e999}", "a: .nan", "a: .inf", "a: 1\n---\nb: 2", "a: *gone"]
        {
            let error = yaml(text.as_bytes(), "f.yaml", 1000).unwrap_err();
            assert!(matches!(&error, FieldError::Syntax { format: "YAML", .. }), "{text}: {error:?}");
            assert!(error.to_string().starts_with("f.yaml: "), "{error}");
        }
        assert!(matches!(yaml(b"a: \xff", "f", 1000), Err(FieldError::Syntax { .. })));
        assert!(matches!(json(b"a: 1", "f", 1000), Err(FieldError::Syntax { format: "JSON", line: 1, .. })));
        assert!(matches!(yaml(b"a: 1", "f", 3), Err(FieldError::TooLarge { bytes: 4, limit: 3, .. })));
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let list = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb += &format!("a{i}: &a{i} [{list}]\n");
        }
        assert!(matches!(yaml(bomb.as_bytes(), "f", 1 << 20), Err(FieldError::Syntax { .. })));
        for deep in ["[".repeat(100_000), "{a: ".repeat(50_000), "- ".repeat(100_000)] {
            assert!(matches!(yaml(deep.as_bytes(), "f", 1 << 20), Err(FieldError::Syntax { .. })));
        }
    }
}
