//! `zen-edge pull` as a person or a script runs it, against a hub on this machine.

use server::{Answer, Asked, Server};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

mod server;

/// A sound GGUF (version 3, no keys, no tensors), with bytes after it that make it some hundred kilobytes.
fn gguf() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend((0..200_000u32).map(|i| (i % 251) as u8));
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const LISTING: &str = "/api/models/zenlm/zen-nano-0.6b/tree/main?recursive=true";
const FILE: &str = "/zenlm/zen-nano-0.6b/resolve/main/zen-nano-0.6b-Q4_K_M.gguf";

/// What the hub lists: the file's name, length and sha256 among others.
fn listing(bytes: &[u8], sha256: &str) -> Answer {
    let text = serde_json::json!([
        {"type": "file", "path": "README.md", "size": 10, "oid": "1"},
        {"type": "directory", "path": "onnx", "size": 0, "oid": "2"},
        {"type": "file", "path": "zen-nano-0.6b-Q8_0.gguf", "size": 9, "lfs": {"oid": "0".repeat(64), "size": 9}},
        {"type": "file", "path": "zen-nano-0.6b-Q4_K_M.gguf", "size": bytes.len(),
         "lfs": {"oid": sha256, "size": bytes.len(), "pointerSize": 134}},
    ])
    .to_string();
    Answer::new(200, text.as_bytes())
        .with("Content-Length", text.len())
        .with("Content-Type", "application/json")
}

/// A hub that behaves.
fn hub() -> Server {
    let bytes = gguf();
    Server::new(move |_, asked| match asked.path.as_str() {
        LISTING => listing(&bytes, &sha256(&bytes)),
        FILE => match asked.from() {
            Some(from) => Answer::rest(&bytes, from, "\"e\""),
            None => Answer::whole(&bytes, "\"e\""),
        },
        _ => Answer::new(404, b""),
    })
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("models/zen-nano-0.6b.Q4_K_M.gguf")
    }

    fn run(&self, server: Option<&Server>, words: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zen-edge"));
        command.args(words).env("ZEN_EDGE_CACHE", self.0.path()).env_remove("HF_ENDPOINT");
        for proxy in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(proxy).env_remove(proxy.to_uppercase());
        }
        if let Some(server) = server {
            command.env("HF_ENDPOINT", server.url(""));
        }
        Ran::of(command.output().unwrap())
    }
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn ends(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        for word in words {
            assert!(
                self.out.contains(word) || self.err.contains(word),
                "no {word:?} in\n{}{}",
                self.out,
                self.err
            );
        }
        self
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

#[test]
fn a_name_becomes_a_verified_file_that_other_commands_find() {
    let (hub, home) = (hub(), Home::new());
    let words = ["200.0 kB", "fetched", "as the hub states it", &sha256(&gguf())];
    let ran = home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(0, &words);
    assert!(!ran.out.contains('\u{1b}'), "no colours into a pipe: {}", ran.out);
    assert_eq!(std::fs::read(home.file()).unwrap(), gguf());
    let file = "zen-nano-0.6b.Q4_K_M.gguf";
    let expected = [file.to_owned(), format!("{file}.json"), format!("{file}.lock")];
    assert_eq!(names(&home.0.path().join("models")), expected);
    // Again: nothing is asked of anyone.
    let before = hub.asked().len();
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(0, &["there already"]);
    home.run(Some(&hub), &["pull", "zen-nano-0.6b", "--verify"]).ends(0, &["there already"]);
    assert_eq!(hub.asked().len(), before);
    home.run(None, &["inspect", "zen-nano-0.6b"]).ends(0, &["GGUF version 3"]);
    home.run(None, &["inspect", "zen-nano-0.6b:Q4_K_M"]).ends(0, &["GGUF version 3"]);
    home.run(None, &["inspect", "zen-nano-0.6b:q4_k_m"]).ends(0, &["GGUF version 3"]);
    home.run(None, &["pull", "zen-nano-0.6b", "--quant", "q4_k_m"]).ends(0, &["there already"]);
    std::fs::remove_file(home.file().with_extension("gguf.json")).unwrap();
    home.run(None, &["inspect", "zen-nano-0.6b"]).ends(8, &["the record beside it is gone"]);
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(0, &["fetched anew"]);
    home.run(None, &["inspect", "zen-nano-0.6b:Q8_0"]).ends(3, &["zen-edge pull zen-nano-0.6b --quant Q8_0"]);
    home.run(None, &["pull", "--list"]).ends(0, &["zen-nano-0.6b:Q4_K_M", "whole"]);
}

#[test]
fn json_tells_programs_the_same() {
    let (hub, home) = (hub(), Home::new());
    let ran = home.run(Some(&hub), &["pull", "zen-nano-0.6b", "--json"]).ends(0, &[]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["sha256"], sha256(&gguf()));
    assert_eq!(json["size"], gguf().len());
    assert_eq!((&json["verified_against"], &json["fetched"]), (&"hub".into(), &true.into()));
    assert_eq!(json["path"], home.file().to_str().unwrap());
    let ran = home.run(None, &["pull", "--list", "--json"]).ends(0, &[]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["pulled"][0]["state"], "whole");
    assert_eq!(json["known"][0]["name"], "zen-nano-0.6b");
}

#[test]
fn f1_a_broken_pull_goes_on_in_the_next_run() {
    let bytes = gguf();
    let hub = Server::new(move |_, asked| match (asked.path.as_str(), asked.from()) {
        (LISTING, _) => listing(&bytes, &sha256(&bytes)),
        (FILE, None) => Answer::whole(&bytes, "\"e\"").breaking(120_000),
        (FILE, Some(from)) => Answer::rest(&bytes, from, "\"e\""),
        _ => Answer::new(404, b""),
    });
    let home = Home::new();
    let pull = ["pull", "zen-nano-0.6b", "--tries", "1"];
    home.run(Some(&hub), &pull).ends(7, &["broke off at 120000 of 200024", "goes on from byte 120000"]);
    assert!(!home.file().exists());
    home.run(None, &["inspect", "zen-nano-0.6b"]).ends(3, &["has not been pulled"]);
    home.run(Some(&hub), &pull).ends(0, &["resumed at 120.0 kB"]);
    assert_eq!(std::fs::read(home.file()).unwrap(), gguf());
    assert_eq!(hub.asked().iter().filter_map(Asked::from).collect::<Vec<_>>(), [120_000]);
}

#[test]
fn f2_a_damaged_file_is_told_of_and_fetched_anew() {
    let (hub, home) = (hub(), Home::new());
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(0, &[]);
    let mut bytes = gguf();
    bytes.truncate(1000);
    std::fs::write(home.file(), bytes).unwrap();
    home.run(None, &["inspect", "zen-nano-0.6b"])
        .ends(8, &["1000 bytes, 200024 were pulled", "zen-edge pull"]);
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(0, &["damaged", "fetched anew"]);
    assert_eq!(std::fs::read(home.file()).unwrap(), gguf());
}

#[test]
fn wrong_bytes_are_never_published() {
    let bytes = gguf();
    let hub = Server::new(move |_, asked| match asked.path.as_str() {
        LISTING => listing(&bytes, &sha256(b"something else")),
        _ => Answer::whole(&bytes, "\"e\""),
    });
    let home = Home::new();
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(8, &[&sha256(&gguf()), &sha256(b"something else")]);
    let left = names(&home.0.path().join("models"));
    assert_eq!(left, ["zen-nano-0.6b.Q4_K_M.gguf.lock"]);
}

#[test]
fn a_hash_of_ones_own_is_held_above_the_hubs() {
    let (hub, home) = (hub(), Home::new());
    let other = "ab".repeat(32);
    home.run(Some(&hub), &["pull", "zen-nano-0.6b", "--sha256", &other])
        .ends(8, &["as given by --sha256", &other]);
    let right = sha256(&gguf()).to_uppercase();
    home.run(Some(&hub), &["pull", "zen-nano-0.6b", "--sha256", &right]).ends(0, &["as given by --sha256"]);
    home.run(Some(&hub), &["pull", "zen-nano-0.6b", "--sha256", "12"]).ends(2, &["no sha256"]);
}

#[test]
fn a_url_is_pulled_under_a_name_of_ones_own() {
    let bytes = gguf();
    let server = Server::new(move |_, asked| match (asked.method.as_str(), asked.path.as_str()) {
        // A hub's words before it sends the reader on: the length and the sha256 of what is behind.
        (_, "/linked.gguf") => Answer::new(302, b"")
            .with("Location", "/plain.gguf")
            .with("Content-Length", 0)
            .with("X-Linked-Size", bytes.len())
            .with("X-Linked-ETag", format!("\"{}\"", sha256(&bytes))),
        (_, "/plain.gguf") => Answer::whole(&bytes, "\"e\""),
        (_, "/unsound.gguf") => {
            let mut unsound = bytes.clone();
            unsound[8] = 200;
            Answer::whole(&unsound, "\"e\"")
        }
        _ => Answer::new(404, b""),
    });
    let home = Home::new();
    let pull = |name: &str, path: &str| home.run(None, &["pull", name, "--url", &server.url(path)]);
    pull("mine", "/plain.gguf").ends(0, &["length and structure only", "mine.custom.gguf"]);
    pull("linked", "/linked.gguf").ends(0, &["as the hub states it"]);
    pull("gone", "/gone.gguf").ends(7, &["404", "no such file"]);
    pull("unsound", "/unsound.gguf").ends(4, &["no sound GGUF"]);
    pull("../evil", "/plain.gguf").ends(2, &["cannot be a name"]);
    home.run(None, &["inspect", "mine"]).ends(0, &["GGUF version 3"]);
    home.run(None, &["inspect", "unsound"]).ends(3, &[]);
}

#[test]
fn f5_another_url_under_a_name_replaces_the_file() {
    let (first, mut second) = (gguf(), gguf());
    second.push(7);
    let expected = second.clone();
    let server = Server::new(move |_, asked| match asked.path.as_str() {
        "/1.gguf" => Answer::whole(&first, "\"1\""),
        _ => Answer::whole(&second, "\"2\""),
    });
    let home = Home::new();
    home.run(None, &["pull", "m", "--url", &server.url("/1.gguf")]).ends(0, &[]);
    home.run(None, &["pull", "m", "--url", &server.url("/2.gguf")]).ends(0, &["it is replaced"]);
    assert_eq!(std::fs::read(home.0.path().join("models/m.custom.gguf")).unwrap(), expected);
}

#[test]
fn each_misuse_says_what_to_do() {
    let (hub, home) = (hub(), Home::new());
    home.run(Some(&hub), &["pull", "zen-nano"]).ends(2, &["zen-nano-0.6b", "--url"]);
    home.run(Some(&hub), &["pull"]).ends(2, &["--list"]);
    let quant = ["pull", "zen-nano-0.6b", "--quant", "Q5_0"];
    home.run(Some(&hub), &quant).ends(7, &["no GGUF with Q5_0", "zen-nano-0.6b-Q8_0.gguf"]);
}

#[test]
fn a_hub_that_is_none_is_told_from_a_missing_network() {
    let home = Home::new();
    let page = Server::new(|_, _| Answer::new(200, b"<html>").with("Content-Length", 6));
    home.run(Some(&page), &["pull", "zen-nano-0.6b"]).ends(7, &["should list the files", "as JSON"]);
    let gone = Server::new(|_, _| Answer::new(404, b"").with("Content-Length", 0));
    home.run(Some(&gone), &["pull", "zen-nano-0.6b"]).ends(7, &["404"]);
}

#[test]
fn two_pulls_of_one_file_do_not_meet() {
    let (hub, home) = (hub(), Home::new());
    let folder = home.0.path().join("models");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::File::create(folder.join("zen-nano-0.6b.Q4_K_M.gguf.lock")).unwrap();
    lock.lock().unwrap();
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(1, &["another pull is at work"]);
    assert!(hub.asked().is_empty());
    lock.unlock().unwrap();
    home.run(Some(&hub), &["pull", "zen-nano-0.6b"]).ends(0, &[]);
}
