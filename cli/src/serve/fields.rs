//! The fields of a request, taken one by one: a wrong value and a field that nobody knows are refused by name.

use super::refusal::Refusal;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What is left of a body.
pub struct Fields {
    left: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// The fields of a body.
    ///
    /// # Errors
    /// What is no JSON object.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let left = serde_json::from_slice(body).map_err(|error| Refusal::Json(error.to_string()))?;
        Ok(Self { left, known: Vec::new() })
    }

    /// Takes a field. `null` is as good as none: OpenAI's clients send it so.
    ///
    /// # Errors
    /// A value that it cannot have.
    pub fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<Option<T>, Refusal> {
        self.known.push(name);
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|error| Refusal::value(name, error.to_string())),
        }
    }

    /// Takes a number from `low` to `high`.
    ///
    /// # Errors
    /// Any other value.
    pub fn number(&mut self, name: &'static str, low: f64, high: f64) -> Result<Option<f64>, Refusal> {
        match self.take(name)? {
            Some(value) if !(low..=high).contains(&value) => {
                Err(Refusal::value(name, format!("{value} is not from {low} to {high}")))
            }
            value => Ok(value),
        }
    }

    /// Takes a text of at most `most` bytes that is not empty.
    ///
    /// # Errors
    /// Any other value.
    pub fn word(&mut self, name: &'static str, most: usize) -> Result<Option<String>, Refusal> {
        match self.take::<String>(name)? {
            Some(word) if word.is_empty() || word.len() > most => {
                Err(Refusal::value(name, format!("give 1 to {most} bytes")))
            }
            word => Ok(word),
        }
    }

    /// Drops fields that change nothing of an answer here.
    pub fn ignore(&mut self, names: &[&str]) {
        names.iter().for_each(|name| {
            self.left.remove(*name);
        });
    }

    /// Refuses a field that would change the answer and is not done here, unless its value asks for nothing.
    ///
    /// # Errors
    /// [`Refusal::Unsupported`].
    pub fn unsupported(
        &mut self,
        name: &str,
        hint: &'static str,
        asks_nothing: impl FnOnce(&Value) -> bool,
    ) -> Result<(), Refusal> {
        match self.left.remove(name) {
            Some(value) if !value.is_null() && !asks_nothing(&value) => {
                Err(Refusal::Unsupported { param: name.to_owned(), hint })
            }
            _ => Ok(()),
        }
    }

    /// Refuses what is left: a misspelt field would be none.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn end(self) -> Result<(), Refusal> {
        match self.left.into_iter().next() {
            None => Ok(()),
            Some((param, _)) => Err(Refusal::Unknown { param, known: self.known.join(", ") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_its_field() {
        let mut fields =
            Fields::parse(br#"{"a": 1.5, "b": null, "c": 3, "user": "x", "n": 2, "tools": []}"#).unwrap();
        assert_eq!(fields.number("a", 0.0, 2.0), Ok(Some(1.5)));
        assert_eq!(fields.take::<String>("b"), Ok(None));
        assert!(matches!(fields.take::<String>("c"), Err(Refusal::Value { param, .. }) if param == "c"));
        fields.ignore(&["user", "absent"]);
        assert_eq!(fields.unsupported("tools", "", |v| v == &serde_json::json!([])), Ok(()));
        let refusal = fields.unsupported("n", "", |v| v == 1);
        assert!(matches!(refusal, Err(Refusal::Unsupported { param, .. }) if param == "n"));
        assert_eq!(fields.end(), Ok(()));
        let mut fields = Fields::parse(br#"{"a": 3, "temprature": 1, "w": ""}"#).unwrap();
        assert!(matches!(fields.number("a", 0.0, 2.0), Err(Refusal::Value { .. })));
        assert!(matches!(fields.word("w", 9), Err(Refusal::Value { .. })));
        assert!(
            matches!(fields.end(), Err(Refusal::Unknown { param, known }) if param == "temprature" && known == "a, w")
        );
        for bad in [&b"[]"[..], b"", b"{", b"\xff", b"3"] {
            assert!(matches!(Fields::parse(bad), Err(Refusal::Json(_))));
        }
    }
}
