//! What a model hub says of a repository's files: its listing names each file's length and, for large ones, sha256.

use super::error::PullError;
use super::fetch::{Wanted, Watch, document, is_sha256, linked, protocol};
use super::registry::Entry;
use super::store::Basis;
use serde::Deserialize;
use std::time::Duration;

/// A listing longer than this is none: it is a page a folder, and each file is some hundred bytes.
const LISTING_LIMIT: u64 = 4 << 20;

#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    size: Option<u64>,
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    /// The sha256 of the content.
    oid: String,
    size: u64,
}

/// The hub that `entry` is fetched from: `HF_ENDPOINT`, as the hub's own tools read it, else its own.
fn endpoint(entry: &Entry) -> String {
    let set = std::env::var("HF_ENDPOINT").ok().filter(|value| !value.is_empty());
    set.unwrap_or_else(|| entry.endpoint.clone()).trim_end_matches('/').to_owned()
}

/// Where the file of `quant` is, and what is known of it.
pub fn resolve(
    agent: &ureq::Agent,
    entry: &Entry,
    quant: &str,
    tries: u32,
    pause: Duration,
    watch: &mut dyn Watch,
) -> Result<Wanted, PullError> {
    let hub = endpoint(entry);
    let (repo, revision) = (&entry.repo, &entry.revision);
    let at = |file: &str| format!("{hub}/{repo}/resolve/{revision}/{}", escaped(file));
    if let Some(pin) = entry.pins.get(quant) {
        let url = at(&pin.file);
        let (_, said) = linked(agent, &url);
        if let Some(said) = said.filter(|said| *said != pin.sha256) {
            return Err(PullError::PinBroken { file: pin.file.clone(), said, pinned: pin.sha256.clone() });
        }
        return Ok(Wanted {
            url,
            size: Some(pin.size),
            sha256: Some(pin.sha256.clone()),
            basis: Basis::Pinned,
        });
    }
    let listing = format!("{hub}/api/models/{repo}/tree/{revision}?recursive=true");
    let text = document(agent, &listing, LISTING_LIMIT, tries, pause, watch)?;
    let files: Vec<Listed> = serde_json::from_slice(&text).map_err(|error| {
        protocol(&listing, &format!("it should list the files of {repo}, as JSON: {error}"))
    })?;
    let file = choose(&files, repo, quant)?;
    let url = at(&file.path);
    let (mut size, mut sha256) = match &file.lfs {
        Some(large) => (Some(large.size), Some(large.oid.to_ascii_lowercase())),
        None => (file.size, None),
    };
    sha256 = sha256.filter(|hash| is_sha256(hash));
    if sha256.is_none() {
        let (said, hash) = linked(agent, &url);
        size = size.or(said);
        sha256 = hash;
    }
    let basis = if sha256.is_some() { Basis::Hub } else { Basis::None };
    Ok(Wanted { url, size, sha256, basis })
}

/// The one GGUF with `quant` in its name.
fn choose<'a>(files: &'a [Listed], repo: &str, quant: &str) -> Result<&'a Listed, PullError> {
    let ggufs =
        || files.iter().filter(|file| file.kind == "file" && file.path.to_lowercase().ends_with(".gguf"));
    let lower = quant.to_lowercase();
    let fits: Vec<&Listed> = ggufs().filter(|file| names(&file.path.to_lowercase(), &lower)).collect();
    let list = |files: &mut dyn Iterator<Item = &Listed>| {
        let names: Vec<&str> = files.map(|file| file.path.as_str()).take(20).collect();
        if names.is_empty() { "no GGUF at all".to_owned() } else { names.join(", ") }
    };
    match fits[..] {
        [file] => Ok(file),
        [] => Err(PullError::NoSuchQuant {
            repo: repo.to_owned(),
            quant: quant.to_owned(),
            names: list(&mut ggufs()),
        }),
        _ => Err(PullError::Ambiguous {
            repo: repo.to_owned(),
            quant: quant.to_owned(),
            names: list(&mut fits.iter().copied()),
        }),
    }
}

/// Whether `path` names `quant` as a word: `q4_k` is not in `…-q4_k_m.gguf`.
fn names(path: &str, quant: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    path.match_indices(quant)
        .any(|(at, _)| !path[..at].ends_with(word) && !path[at + quant.len()..].starts_with(word))
}

/// A path within a URL: what is not plain is percent-encoded, so that a listed name cannot change the request.
fn escaped(path: &str) -> String {
    use std::fmt::Write;
    path.bytes().fold(String::new(), |mut url, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'_' | b'-' | b'~') {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
        url
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(paths: &[&str]) -> Vec<Listed> {
        paths
            .iter()
            .map(|path| Listed { kind: "file".into(), path: (*path).into(), size: Some(1), lfs: None })
            .collect()
    }

    #[test]
    fn the_file_is_chosen_by_its_quantisation_as_a_word() {
        let files =
            listed(&["README.md", "zen-nano-0.6b-Q4_K_M.gguf", "zen-nano-0.6b-q8_0.gguf", "x.q4_k.txt"]);
        assert_eq!(choose(&files, "a/b", "Q4_K_M").unwrap().path, "zen-nano-0.6b-Q4_K_M.gguf");
        assert_eq!(choose(&files, "a/b", "q8_0").unwrap().path, "zen-nano-0.6b-q8_0.gguf");
        let error = choose(&files, "a/b", "Q4_K").err().unwrap().to_string();
        assert!(error.contains("zen-nano-0.6b-q8_0.gguf") && !error.contains("README"), "{error}");
        let twice = listed(&["m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf"]);
        assert!(matches!(choose(&twice, "a/b", "Q4_K_M"), Err(PullError::Ambiguous { .. })));
        assert!(choose(&[], "a/b", "Q4_K_M").err().unwrap().to_string().contains("no GGUF at all"));
    }

    #[test]
    fn listed_names_cannot_change_the_request() {
        assert_eq!(escaped("a b?c#d/é.gguf"), "a%20b%3Fc%23d/%C3%A9.gguf");
    }
}
