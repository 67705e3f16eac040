//! `zen-edge fit` as a person or a script runs it.

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn zen_edge(folder: &Path, words: &[&str]) -> Ran {
    let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(words)
        .current_dir(folder)
        .env("ZEN_EDGE_CACHE", folder.join("cache"))
        .env("ZEN_EDGE_STATE", folder.join("state"))
        .env("COLUMNS", "200")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
}

#[track_caller]
fn good(folder: &Path, words: &[&str]) -> String {
    let ran = zen_edge(folder, words);
    assert_eq!(ran.code, Some(0), "{words:?}: {}{}", ran.out, ran.err);
    ran.out
}

#[track_caller]
fn refused(folder: &Path, words: &[&str], code: i32, said: &[&str]) {
    let ran = zen_edge(folder, words);
    assert_eq!(ran.code, Some(code), "{words:?}: {}{}", ran.out, ran.err);
    for word in said {
        assert!(ran.err.contains(word), "no {word:?} in {}", ran.err);
    }
}

/// Labelled prompts and outcomes, in one file each.
fn rows(folder: &Path) {
    let write = |name: &str, lines: Vec<Value>| {
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(folder.join(name), text.join("\n")).unwrap();
    };
    let labelled = |n: usize| {
        let (task, text) =
            [("code", "fix the bug in this function"), ("creative", "write a poem about")][n % 2];
        json!({"prompt": format!("{text} {n}"), "task": task, "source": format!("{task}{}", n / 2 % 3)})
    };
    write("rows.jsonl", (0..40).map(labelled).collect());
    let outcome = |n: usize| {
        let code = (n / 2).is_multiple_of(2);
        let (task, text) = if code { ("code", "fix this function") } else { ("creative", "a poem on") };
        let model = ["poet", "coder"][n % 2];
        let right = (model == "coder") == code;
        json!({"prompt": format!("{text} {}", n / 2), "model": model, "quality": f64::from(u8::from(right)),
            "cost": 0.001, "task": task})
    };
    write("outcomes.jsonl", (0..120).map(outcome).collect());
}

#[test]
fn heads_are_fitted_and_route() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rows(folder);
    let text = good(folder, &["fit", "rows.jsonl", "--profiles", "outcomes.jsonl", "--out", "heads"]);
    assert!(!text.contains('\u{1b}'), "no colours into a pipe: {text}");
    for word in [
        "100 prompts (100 read now",
        "task head: by source (6)",
        "tf-idf",
        "keywords",
        "route head: outcomes.jsonl",
        "oracle",
        "best single",
        "written to heads",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let routed: Value =
        serde_json::from_str(&good(folder, &["route", "--heads", "heads", "--json", "fix this function 99"]))
            .unwrap();
    assert_eq!((&routed["task"], &routed["model"]), (&json!("code"), &json!("coder")), "{routed}");
    let page = std::fs::read_to_string(folder.join("heads/report.html")).unwrap();
    assert!(page.matches("<svg").count() == 2 && !page.contains("http-equiv") && !page.contains("<script"));

    // The vectors are kept; the report for programs is the one on the disk.
    let text =
        good(folder, &["fit", "rows.jsonl", "outcomes.jsonl", "--out", "again", "--json", "--no-tfidf"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["schema"], &report["embedding"]["read"]), (&json!("zen-edge.fit/1"), &json!(0)));
    assert_eq!(std::fs::read_to_string(folder.join("again/report.json")).unwrap(), text);
    assert!(!text.contains(folder.to_str().unwrap()), "a report does not tell where its owner keeps files");
    assert_eq!(
        std::fs::read(folder.join("heads/heads.safetensors")).unwrap(),
        std::fs::read(folder.join("again/heads.safetensors")).unwrap()
    );
    let hash = &report["heads_sha256"];
    let config: Value =
        serde_json::from_slice(&std::fs::read(folder.join("again/router_config.json")).unwrap()).unwrap();
    assert_eq!(&config["heads_sha256"], hash);
}

#[test]
fn each_fault_has_its_code_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    rows(folder);
    std::fs::write(folder.join("wrong.jsonl"), "{\"prompt\": \"a\"}\n{\"prompt\": \"b\", \"task\": \"x\"}\n")
        .unwrap();
    std::fs::write(folder.join("few.yaml"), "models:\n  - {id: poet, backend: cloud, provider: p}\n")
        .unwrap();
    let out = ["--out", "heads"];
    refused(folder, &["fit", "none.jsonl", out[0], out[1]], 3, &["none.jsonl"]);
    refused(folder, &["fit", "wrong.jsonl", out[0], out[1]], 4, &["wrong.jsonl:2: the task `x`"]);
    refused(folder, &["fit", "rows.jsonl", out[0], out[1]], 2, &["--catalog"]);
    refused(folder, &["fit", out[0], out[1]], 2, &["ROWS"]);
    refused(
        folder,
        &["fit", "rows.jsonl", "outcomes.jsonl", "--catalog", "few.yaml", out[0], out[1]],
        6,
        &["coder"],
    );
    refused(folder, &["fit", "rows.jsonl", "outcomes.jsonl", "--l2", "0", out[0], out[1]], 2, &["l2"]);
    refused(
        folder,
        &["fit", "rows.jsonl", "outcomes.jsonl", "--pooling", "cls", out[0], out[1]],
        2,
        &["cls"],
    );
    refused(
        folder,
        &["fit", "rows.jsonl", "outcomes.jsonl", "--model", "absent.gguf", out[0], out[1]],
        3,
        &["absent"],
    );
    assert!(!folder.join("heads").exists());
}
