//! YAML as settings files use it: the parser's events into a tree, within bounds.
//!
//! Plain scalars are what YAML 1.2's core schema says, and what other readers take from YAML 1.1: `yes`, `no`, `on`, `off`, `y` and
//! `n` are booleans; whole numbers may be in `0b…`, have a sign before `0x…`, and `_` between digits. Aliases and merge keys (`<<`)
//! are unfolded.

use super::fields::Fault;
use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A catalog of 4,096 rows with all keys has some 200,000 events.
const EVENTS: usize = 400_000;
/// How deep lists and objects may stand in each other, with what aliases bring.
const DEPTH: usize = 32;
/// Bytes that anchors and aliases may stand for. They are of use in hand-written files, but a few lines of them can stand for
/// gigabytes: what they unfold to is bounded by what a large file may hold.
const UNFOLDED: usize = 16 << 20;

/// The one document of a text; null where it has none.
pub(super) fn parse(text: &str) -> Result<Value, Fault> {
    let options = granit_parser::options! { emit_comments: false };
    let mut tree = Tree::default();
    for (count, next) in Parser::new_from_str_with_options(text, options).enumerate() {
        let (event, span) = next.map_err(|error| {
            let at = error.marker();
            fault(at.line(), at.col(), error.info())
        })?;
        if count >= EVENTS {
            return Err(at(&span, "more than any settings file holds"));
        }
        tree.take(event, &span)?;
    }
    Ok(tree.root.unwrap_or(Value::Null))
}

fn fault(line: usize, column: usize, what: String) -> Fault {
    Fault::Syntax { line: line as u64, column: column as u64 + 1, what }
}

fn at(span: &Span, what: &str) -> Fault {
    fault(span.start.line(), span.start.col(), what.to_owned())
}

#[derive(Default)]
struct Tree {
    root: Option<Value>,
    /// Whether a document has begun.
    begun: bool,
    /// What is not closed yet, the outermost first.
    open: Vec<Open>,
    /// What aliases stand for, by the anchor's number.
    anchors: HashMap<usize, Value>,
    /// Bytes of what anchors and aliases stand for.
    unfolded: usize,
}

struct Open {
    anchor: usize,
    node: Node,
}

enum Node {
    List(Vec<Value>),
    Object {
        fields: Map<String, Value>,
        /// The key whose value comes next.
        key: Option<Key>,
        /// What merge keys bring, for the keys that do not stand there.
        merged: Vec<Value>,
    },
}

enum Key {
    Field(String),
    Merge,
}

impl Tree {
    fn take(&mut self, event: Event<'_>, span: &Span) -> Result<(), Fault> {
        match event {
            Event::DocumentStart(..) if std::mem::replace(&mut self.begun, true) => {
                Err(at(span, "a second document: settings are one"))
            }
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(Open { node: Node::Object { key: key @ None, .. }, .. }) = self.open.last_mut() {
                    *key = Some(key_of(&text, style, tag.as_deref()).map_err(|why| at(span, why))?);
                    return if anchor == 0 {
                        Ok(())
                    } else {
                        self.keep(anchor, &Value::from(&*text)).map_err(|why| at(span, why))
                    };
                }
                let value = scalar(&text, style, tag.as_deref()).map_err(|why| at(span, why))?;
                self.put(anchor, value).map_err(|why| why.at(span))
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, Node::List(Vec::new()), span),
            Event::MappingStart(_, anchor, _) => {
                let node = Node::Object { fields: Map::new(), key: None, merged: Vec::new() };
                self.begin(anchor, node, span)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { anchor, node }) = self.open.pop() else { return Ok(()) };
                let value = node.close().map_err(|why| at(span, why))?;
                self.put(anchor, value).map_err(|why| why.at(span))
            }
            Event::Alias(anchor) => {
                let value = self
                    .anchors
                    .get(&anchor)
                    .ok_or_else(|| at(span, "an alias inside of what it stands for"))?;
                let value = value.clone();
                self.count(&value).map_err(|why| at(span, why))?;
                if let Some(Open { node: Node::Object { key: key @ None, .. }, .. }) = self.open.last_mut()
                    && let Value::String(text) = value
                {
                    *key = Some(Key::Field(text));
                    return Ok(());
                }
                self.put(0, value).map_err(|why| why.at(span))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, node: Node, span: &Span) -> Result<(), Fault> {
        if let Some(Open { node: Node::Object { key: None, .. }, .. }) = self.open.last() {
            return Err(at(span, "a key that is no text"));
        }
        if self.open.len() >= DEPTH {
            return Err(at(span, "deeper than any settings"));
        }
        self.open.push(Open { anchor, node });
        Ok(())
    }

    /// Counts what an alias stands for.
    fn count(&mut self, value: &Value) -> Result<(), &'static str> {
        let (bytes, depth) = extent(value);
        if self.open.len() + depth > DEPTH {
            return Err("deeper than any settings");
        }
        self.unfolded += bytes;
        if self.unfolded > UNFOLDED { Err("aliases for more than any settings file holds") } else { Ok(()) }
    }

    fn keep(&mut self, anchor: usize, value: &Value) -> Result<(), &'static str> {
        self.count(value)?;
        self.anchors.insert(anchor, value.clone());
        Ok(())
    }

    /// A whole value, where it belongs.
    fn put(&mut self, anchor: usize, value: Value) -> Result<(), Refused> {
        if anchor != 0 {
            self.keep(anchor, &value)?;
        }
        match self.open.last_mut().map(|open| &mut open.node) {
            None => self.root = Some(value),
            Some(Node::List(list)) => list.push(value),
            Some(Node::Object { fields, key, merged }) => match key.take() {
                None => return Err(Refused::Why("a key that is no text")),
                Some(Key::Merge) => merged.push(value),
                Some(Key::Field(key)) if fields.contains_key(&key) => return Err(Refused::Duplicate(key)),
                Some(Key::Field(key)) => {
                    fields.insert(key, value);
                }
            },
        }
        Ok(())
    }
}

/// Why a value has no place.
enum Refused {
    Duplicate(String),
    Why(&'static str),
}

impl Refused {
    fn at(self, span: &Span) -> Fault {
        match self {
            Self::Duplicate(key) => Fault::Duplicate(key),
            Self::Why(why) => at(span, why),
        }
    }
}

impl From<&'static str> for Refused {
    fn from(why: &'static str) -> Self {
        Self::Why(why)
    }
}

impl Node {
    fn close(self) -> Result<Value, &'static str> {
        let (mut fields, merged) = match self {
            Self::List(list) => return Ok(Value::Array(list)),
            Self::Object { fields, merged, .. } => (fields, merged),
        };
        for value in merged {
            merge(&mut fields, value)?;
        }
        Ok(Value::Object(fields))
    }
}

/// What a merge key brings: an object, or a list of what it may bring, of which the first that has a key counts. Null brings
/// nothing.
fn merge(fields: &mut Map<String, Value>, value: Value) -> Result<(), &'static str> {
    match value {
        Value::Null => Ok(()),
        Value::Array(list) => list.into_iter().try_for_each(|value| merge(fields, value)),
        Value::Object(object) => {
            for (key, value) in object {
                fields.entry(key).or_insert(value);
            }
            Ok(())
        }
        _ => Err("a merge key without an object"),
    }
}

/// About how many bytes a value takes, and how deep it is.
fn extent(value: &Value) -> (usize, usize) {
    fn sum<'a>(own: usize, parts: impl Iterator<Item = &'a Value>) -> (usize, usize) {
        parts.map(extent).fold((own, 1), |(bytes, depth), part| (bytes + part.0, depth.max(part.1 + 1)))
    }
    const NODE: usize = size_of::<Value>();
    match value {
        Value::String(text) => (NODE + text.len(), 0),
        Value::Array(list) => sum(NODE, list.iter()),
        Value::Object(fields) => {
            let keys: usize = fields.keys().map(|key| NODE + key.len()).sum();
            sum(NODE + keys, fields.values())
        }
        _ => (NODE, 0),
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn key_of(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Key, &'static str> {
    match (style, tag) {
        (ScalarStyle::Plain, None) if text == "<<" => Ok(Key::Merge),
        (ScalarStyle::Plain, None) if is_null(text) => Err("a key that is no text"),
        (_, Some(tag)) if tag.core_suffix().is_some_and(|suffix| suffix != "str") => {
            Err("a key, tagged as no text")
        }
        _ => Ok(Key::Field(text.to_owned())),
    }
}

/// The value of a scalar, by its tag, else by its form.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, &'static str> {
    let tagged = match tag.and_then(Tag::core_suffix) {
        Some("str") => Some(text.into()),
        Some("null") => Some(Value::Null),
        Some("bool") => Some(boolean(text).ok_or("tagged as a boolean, and none")?.into()),
        Some("int") => Some(whole(text).ok_or("tagged as a whole number, and none")?),
        Some("float") => Some(number(text)?.ok_or("tagged as a number, and none")?),
        Some(_) => return Err("a scalar, tagged as a list or an object"),
        None => None,
    };
    // `!` alone makes a text of anything.
    let text_only = style != ScalarStyle::Plain
        || tag.is_some_and(|tag| tag.parts() == ("", "!") || tag.parts() == ("!", ""));
    match tagged {
        Some(value) => Ok(value),
        None if text_only => Ok(text.into()),
        None if is_null(text) => Ok(Value::Null),
        None => match (boolean(text), whole(text)) {
            (Some(value), _) => Ok(value.into()),
            (None, Some(value)) => Ok(value),
            (None, None) => Ok(number(text)?.unwrap_or_else(|| text.into())),
        },
    }
}

fn boolean(text: &str) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    match () {
        () if is(["true", "yes", "on", "y"]) => Some(true),
        () if is(["false", "no", "off", "n"]) => Some(false),
        () => None,
    }
}

/// A whole number of 64 bits: decimal, or with `0x`, `0o` or `0b`; `_` may stand between digits.
fn whole(text: &str) -> Option<Value> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.split_at_checked(2) {
        Some(("0x", digits)) => (16, digits),
        Some(("0o", digits)) => (8, digits),
        Some(("0b", digits)) => (2, digits),
        // What begins with a zero would be octal to some, and decimal to others.
        _ if digits.starts_with('0') && digits != "0" => return None,
        _ => (10, digits),
    };
    // Rust's own parser takes a sign, which stood before.
    let bare = digits.starts_with(|c: char| c.is_ascii_hexdigit()) && !digits.ends_with('_');
    if !bare || digits.contains("__") {
        return None;
    }
    let magnitude = u64::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    if negative { Some(0i64.checked_sub_unsigned(magnitude)?.into()) } else { Some(magnitude.into()) }
}

/// A number with a fraction or an exponent.
fn number(text: &str) -> Result<Option<Value>, &'static str> {
    const NOT_FINITE: &str = "a number that is not finite";
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(NOT_FINITE);
    }
    // Rust's own parser knows words as well, which are texts here.
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Ok(None);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Some(value.into())),
        Ok(_) => Err(NOT_FINITE),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod against_saphyr;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(text: &str) -> Value {
        parse(text).unwrap_or_else(|_| panic!("{text:?} is refused"))
    }

    #[test]
    fn plain_scalars_are_what_yaml_says() {
        for (text, expected) in [
            ("12", json!(12)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("1_000", json!(1000)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("-0b101", json!(-5)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("1.5e-3", json!(0.0015)),
            (".5", json!(0.5)),
            ("007", json!(7.0)),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("~", json!(null)),
            ("1_000.5", json!("1_000.5")),
            ("_1", json!("_1")),
            ("1__0", json!("1__0")),
            ("0X1F", json!("0X1F")),
            ("0x-1", json!("0x-1")),
            ("inf", json!("inf")),
            ("NaN", json!("NaN")),
            ("+.nan", json!("+.nan")),
            ("2026-01-01", json!("2026-01-01")),
            ("'12'", json!("12")),
            ("\"\\u00e9\"", json!("é")),
            ("!!str 12", json!("12")),
            ("! 12", json!("12")),
            ("!!int '12'", json!(12)),
            ("!!float 1", json!(1.0)),
            ("!mine 12", json!(12)),
            ("|\n  a\n  b\n", json!("a\nb\n")),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn aliases_and_merge_keys_are_unfolded() {
        let text = "base: &base {a: 1, b: [x]}\nfirst: {<<: *base, a: 2}\nsecond:\n  <<: [{b: 0}, *base]\nthird: *base\n";
        let base = json!({"a": 1, "b": ["x"]});
        let expected =
            json!({"base": base, "first": {"a": 2, "b": ["x"]}, "second": {"a": 1, "b": 0}, "third": base});
        assert_eq!(value(text), expected);
        assert_eq!(value("&k key: 1\nother: *k\n"), json!({"key": 1, "other": "key"}));
        assert_eq!(value("'<<': 1"), json!({"<<": 1}));
        assert_eq!(value("<<: ~\na: 1"), json!({"a": 1}));
    }

    #[test]
    fn what_is_no_settings_is_refused_with_its_place() {
        for (text, line) in [
            ("a: 1\n---\nb: 2", 2),
            ("a: &a [*a]", 1),
            ("? [a]\n: 1", 1),
            ("~: 1", 1),
            ("!!int 1: 1", 1),
            ("a: 1\n<<: 2", 0),
            ("a: !!int x", 1),
            ("a: !!map x", 1),
            ("a: -.inf", 1),
            ("- .nan", 1),
            ("a: 1\nb: 1e999", 2),
            ("a: b: c", 1),
            ("a: *gone", 1),
        ] {
            let Err(Fault::Syntax { line: found, column, what }) = parse(text) else {
                panic!("{text:?} is not refused")
            };
            assert!(line == 0 || found == line, "{text:?}: {found}");
            assert!(column > 0 && !what.is_empty(), "{text:?}: {what}");
        }
    }

    #[test]
    fn a_long_text_behind_many_aliases_is_refused() {
        let text = format!("a: &a {}\nb: [{}]", "x".repeat(10_000), vec!["*a"; 10_000].join(", "));
        assert!(parse(&text).is_err());
        let mut deep = String::from("a0: &a0 [x]\n");
        for i in 1..40 {
            deep += &format!("a{i}: &a{i} [*a{}]\n", i - 1);
        }
        assert!(parse(&deep).is_err());
    }
}
