//! `zen-edge inspect` as a person or a script runs it.

use std::process::{Command, Output};
use std::sync::Arc;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;

fn zen_edge(words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(words)
        .env("ZEN_EDGE_CACHE", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A file in a folder of its own.
fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

/// A GGUF with one key, `general.architecture`.
fn gguf(architecture: &str) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    let mut string = |text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    string("general.architecture");
    bytes.extend(8u32.to_le_bytes());
    bytes.extend((architecture.len() as u64).to_le_bytes());
    bytes.extend(architecture.as_bytes());
    bytes
}

#[test]
fn what_cannot_be_run_is_described_with_the_reason() {
    let (_dir, path) = file("m.gguf", &gguf("mamba"));
    let (code, out, err) = zen_edge(&["inspect", &path]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("GGUF version 3") && out.contains("cannot be run here") && out.contains("mamba"),
        "{out}"
    );
    let (_, out, _) = zen_edge(&["inspect", &path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["architecture"], "mamba");
    assert_eq!(json["runnable"]["yes"], false);
    let (_, out, _) = zen_edge(&["inspect", &path, "--metadata"]);
    assert!(out.contains("general.architecture  string  mamba"), "{out}");
}

#[test]
fn a_name_out_of_a_file_does_not_steer_the_terminal() {
    let (_dir, path) = file("m.gguf", &gguf("\u{1b}]0;owned\u{7}"));
    for words in [&["inspect", &path][..], &["inspect", &path, "--metadata"]] {
        let (_, out, err) = zen_edge(words);
        assert!(!out.contains(['\u{1b}', '\u{7}']) && out.contains("owned"), "{out}{err}");
    }
}

#[test]
fn each_wrong_file_has_its_exit_code() {
    let whole = gguf("qwen3");
    let mut old = whole.clone();
    old[4] = 1;
    for (name, bytes, code, word) in [
        ("m.gguf", &whole[..whole.len() - 3], 4, "m.gguf"),
        ("page.gguf", b"<!DOCTYPE html><html></html>".as_slice(), 4, "HTML"),
        ("empty.gguf", b"", 4, "empty.gguf"),
        ("old.gguf", &old, 5, "version 1"),
    ] {
        let (_dir, path) = file(name, bytes);
        let (got, out, err) = zen_edge(&["inspect", &path]);
        assert_eq!(got, Some(code), "{name}: {err}");
        assert!(out.is_empty() && err.contains(word), "{name}: {err}");
    }
    let (code, _, err) = zen_edge(&["inspect", "no/such/file.gguf"]);
    assert!(code == Some(3) && err.contains("no/such/file.gguf"), "{err}");
    let (code, _, err) = zen_edge(&["inspect", env!("CARGO_TARGET_TMPDIR")]);
    assert!(code == Some(3) && err.contains("folder"), "{err}");
}

#[test]
fn a_trace_shows_each_layer_and_names_the_one_that_breaks() {
    let pack = concat!(env!("CARGO_MANIFEST_DIR"), "/../packs/default/model.gguf");
    let (code, text, _) = zen_edge(&["inspect", pack, "--trace", "write a haiku"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("after layer") && text.contains("embedding") && text.lines().count() == 5,
        "{text}"
    );
    // The second layer's norm with a NaN in it: its bytes are found by the tensor's place in the file.
    let mut bytes = std::fs::read(pack).unwrap();
    let gguf = Gguf::open(Arc::new(Memory::new("pack", bytes.clone()))).unwrap();
    let at = gguf.require_tensor("blk.1.ffn_norm.weight").unwrap().offset as usize;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let (_folder, path) = file("damaged.gguf", &bytes);
    let (code, text, error) = zen_edge(&["inspect", &path, "--trace", "write a haiku", "--json"]);
    assert_eq!(code, Some(4), "{text}{error}");
    assert!(error.contains("layer 2, gate"), "{error}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (json["fault"]["layer"].as_u64(), json["layers"][1]["not_finite"].as_u64()),
        (Some(2), Some(0))
    );
}
