//! The names that `pull` knows: data, in registry.json.

use super::PullError;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Registry {
    models: Vec<Entry>,
}

/// A backbone that has a name.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    pub name: String,
    pub about: String,
    /// Where the hub is, unless `HF_ENDPOINT` says otherwise.
    pub endpoint: String,
    pub repo: String,
    pub revision: String,
    /// The quantisation that is fetched when none is asked for.
    pub quant: String,
    pub license: String,
    /// By quantisation: files whose size and sha256 we vouch for.
    #[serde(default)]
    pub pins: BTreeMap<String, Pin>,
}

/// A file that we vouch for.
#[derive(Clone, Debug, Deserialize)]
pub struct Pin {
    pub file: String,
    pub size: u64,
    pub sha256: String,
}

/// Every name.
pub fn all() -> Vec<Entry> {
    let registry: Registry =
        serde_json::from_str(include_str!("registry.json")).expect("the registry is part of the program");
    registry.models
}

/// The entry of `name`.
pub fn find(name: &str) -> Result<Entry, PullError> {
    let all = all();
    match all.iter().find(|entry| entry.name == name) {
        Some(entry) => Ok(entry.clone()),
        None => Err(PullError::UnknownName {
            name: name.to_owned(),
            known: all.into_iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_reads_and_pins_are_whole() {
        for entry in all() {
            assert!(super::super::store::is_name(&entry.name), "{}", entry.name);
            assert!(entry.repo.split('/').count() == 2, "{}", entry.repo);
            for pin in entry.pins.values() {
                assert!(pin.sha256.len() == 64 && pin.size > 0 && pin.file.ends_with(".gguf"), "{pin:?}");
            }
        }
        assert_eq!(find("zen-nano-0.6b").unwrap().quant, "Q4_K_M");
        assert!(find("zen-nano").unwrap_err().to_string().contains("zen-nano-0.6b"));
    }
}
