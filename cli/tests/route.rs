//! `zen-edge route` and `embed` as a person or a script runs them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

fn zen_edge(words: &[&str], stdin: &[u8]) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
        .args(words)
        .env("ZEN_EDGE_CACHE", env!("CARGO_TARGET_TMPDIR"))
        .env("ZEN_EDGE_STATE", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that ends before it has read everything closes the pipe.
    drop(child.stdin.take().unwrap().write_all(stdin));
    let ran = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
}

#[track_caller]
fn good(words: &[&str]) -> String {
    let ran = zen_edge(words, b"");
    assert_eq!(ran.code, Some(0), "{words:?}: {}{}", ran.out, ran.err);
    ran.out
}

#[track_caller]
fn json(words: &[&str]) -> serde_json::Value {
    serde_json::from_str(&good(words)).unwrap()
}

#[track_caller]
fn refused(words: &[&str], code: i32, said: &[&str]) {
    let ran = zen_edge(words, b"");
    assert_eq!(ran.code, Some(code), "{words:?}: {}{}", ran.out, ran.err);
    for word in said {
        assert!(ran.err.contains(word), "no {word:?} in {}", ran.err);
    }
}

fn write(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// What an answer says without what differs from call to call: times, and what free memory there is.
fn said(answer: &serde_json::Value) -> serde_json::Value {
    let mut answer = answer.clone();
    let fields = answer.as_object_mut().unwrap();
    fields.remove("timings");
    fields.remove("id");
    for candidate in fields["scores"]["models"].as_array_mut().unwrap() {
        candidate.as_object_mut().unwrap().remove("why_not");
    }
    answer
}

const PROMPT: &str = "write a python function to reverse a linked list";

#[test]
fn text_and_json_say_the_same() {
    let json = json(&["route", "--json", PROMPT]);
    let text = good(&["route", PROMPT]);
    assert!(!text.contains('\u{1b}'), "no colours into a pipe: {text}");
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("task ") && first.contains(json["task"].as_str().unwrap()), "{text}");
    assert!(text.contains(json["model"].as_str().unwrap()), "{text}");
    assert_eq!(json["top3"].as_array().unwrap().len(), 3);
    for choice in json["top3"].as_array().unwrap() {
        assert!(text.contains(choice["model"].as_str().unwrap()), "{text}");
    }
    assert!(json["tokens"].as_u64().unwrap() > 0);
    assert_eq!((&json["truncated"], &json["source"]), (&false.into(), &"learned".into()));
    let sum: f64 =
        json["scores"]["tasks"].as_array().unwrap().iter().map(|t| t["probability"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
    let t = &json["timings"];
    let parts = ["tokenize", "prefill", "heads"].map(|part| t[part].as_f64().unwrap());
    assert!((parts.iter().sum::<f64>() - t["total"].as_f64().unwrap()).abs() < 0.01, "{t}");
}

#[test]
fn rows_are_answered_as_they_are_alone_in_order_with_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = [PROMPT, "hi", "prove that there are infinitely many primes", "café \u{1f600}\n\tx"];
    let rows: Vec<String> = prompts
        .iter()
        .enumerate()
        .map(|(id, p)| serde_json::json!({"id": id, "prompt": p}).to_string())
        .collect();
    let path = write(dir.path(), "rows.jsonl", rows.join("\n").as_bytes());
    let out = good(&["route", "--file", &path]);
    let answers: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), prompts.len());
    for (at, (answer, prompt)) in answers.iter().zip(prompts).enumerate() {
        let alone = json(&["route", "--json", prompt]);
        assert_eq!(answer["id"], at);
        assert_eq!(said(answer), said(&alone), "{prompt:?}");
    }
    // The same rows through a pipe, under no name that tells what they are.
    let ran = zen_edge(&["route", "--jsonl", "--file", "-"], rows.join("\n").as_bytes());
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), prompts.len()));
    assert!(ran.err.is_empty(), "no progress bar into a pipe: {}", ran.err);
}

#[test]
fn a_row_without_an_answer_does_not_keep_the_others_from_theirs() {
    let ran = zen_edge(&["route", "--jsonl", "--file", "-"], b"{\"prompt\":\"a\"}\n{\n{\"prompt\":\"b\"}\n");
    assert_eq!(ran.code, Some(4), "{}", ran.err);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines.len() == 3 && lines[1].contains("\"row\":2,\"error\""), "{}", ran.out);
}

#[test]
fn b11_an_empty_prompt_is_answered_by_rules_without_the_model() {
    for prompt in ["", " \n\t "] {
        let json = json(&["route", "--json", prompt]);
        assert_eq!((&json["source"], &json["tokens"]), (&"rules".into(), &0.into()), "{json}");
        assert!(json["task"].is_string());
        assert_eq!(json["timings"]["prefill"], 0.0);
    }
}

#[test]
fn b7_escapes_are_not_read() {
    assert_ne!(
        json(&["embed", "--json", "a\\nb"])["embedding"],
        json(&["embed", "--json", "a\nb"])["embedding"],
    );
}

#[test]
fn embed_prints_the_vector_with_all_its_bits() {
    let text = good(&["embed", PROMPT]);
    let values: Vec<f32> = text.lines().map(|line| line.parse().unwrap()).collect();
    let json = json(&["embed", "--json", PROMPT]);
    let read: Vec<f32> =
        json["embedding"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect();
    assert_eq!(
        values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
        read.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
    );
    let norm = values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    assert!((norm / json["norm"].as_f64().unwrap() - 1.0).abs() < 1e-5);
    for other in [&["--threads", "1"][..], &["--threads", "3"], &["--isa", "scalar"]] {
        assert_eq!(good(&[&["embed", PROMPT], other].concat()), text, "{other:?}");
    }
    assert_eq!(self::json(&["embed", "--json", "--isa", "scalar", "x"])["backend"]["isa"], "scalar");
    assert_eq!(self::json(&["embed", "--json", "--threads", "1", "x"])["backend"]["threads"], 1);
}

#[test]
fn b8_special_tokens_in_the_prompt_are_parsed_unless_it_is_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    // Whatever the vocabulary calls its end: read from the file that is routed with.
    let model = write(dir.path(), "model.gguf", zen_edge_default_pack::MODEL);
    let report = json(&["inspect", "--json", &model]);
    let special = report["tokenizer"]["special"]["eos"]["text"]
        .as_str()
        .expect("the pack's vocabulary has an end")
        .to_owned();
    let parsed = json(&["embed", "--json", &special]);
    let plain = json(&["embed", "--json", "--plain-text", &special]);
    assert_eq!(parsed["tokens"], 1);
    assert!(plain["tokens"].as_u64().unwrap() > 1, "{plain}");
}

#[test]
fn g16_each_failure_names_its_cause_and_has_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    refused(&["route"], 2, &["--file"]);
    refused(&["route", "a", "--file", "b"], 2, &["cannot be used with"]);
    refused(&["route", "a", "--threads", "0"], 2, &["--threads"]);
    refused(&["route", "--file", "no/such/file"], 3, &["no/such/file"]);
    refused(&["route", "--model", "no-such-model", "a"], 3, &["no-such-model", "pull --list"]);
    refused(&["route", "--model", "zen-nano-0.6b", "a"], 3, &["zen-edge pull zen-nano-0.6b"]);
    refused(&["route", "--heads", "no/such/folder", "a"], 3, &["no/such/folder", "heads.safetensors"]);
    let empty = dir.path().to_str().unwrap();
    refused(&["route", "--heads", empty, "a"], 3, &["heads.safetensors"]);
    let page = write(dir.path(), "page.gguf", b"<!DOCTYPE html><html>404</html>");
    refused(&["route", "--model", &page, "a"], 4, &["page.gguf", "HTML"]);
    let cut = write(
        dir.path(),
        "cut.gguf",
        &zen_edge_default_pack::MODEL[..zen_edge_default_pack::MODEL.len() / 2],
    );
    refused(&["embed", "--model", &cut, "a"], 4, &["cut.gguf"]);
    let isa = zen_edge(&["route", "--isa", "mmx", "a"], b"");
    assert!(isa.code == Some(2) && isa.err.contains("mmx") && isa.err.contains("scalar"), "{}", isa.err);
}

#[test]
fn heads_that_do_not_fit_are_refused_naming_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "heads.safetensors", zen_edge_default_pack::HEADS);
    let folder = dir.path().to_str().unwrap();
    // The pack's own heads and config from a folder are as good as those inside.
    write(dir.path(), "catalog.yaml", zen_edge_default_pack::CATALOG);
    write(dir.path(), "router_config.json", zen_edge_default_pack::CONFIG);
    assert_eq!(
        said(&json(&["route", "--json", "--heads", folder, "a"])),
        said(&json(&["route", "--json", "a"]))
    );
    let mut config: serde_json::Value = serde_json::from_slice(zen_edge_default_pack::CONFIG).unwrap();
    let hidden = config["hidden_size"].as_u64().unwrap();
    config["hidden_size"] = (hidden + 32).into();
    write(dir.path(), "router_config.json", config.to_string().as_bytes());
    refused(
        &["route", "--heads", folder, "a"],
        6,
        &[&hidden.to_string(), &(hidden + 32).to_string(), "router_config.json"],
    );
    config["hidden_size"] = hidden.into();
    config["embd_normalize"] = 2.into();
    write(dir.path(), "router_config.json", config.to_string().as_bytes());
    refused(&["route", "--heads", folder, "a"], 6, &["embd_normalize"]);
    write(dir.path(), "router_config.json", b"not json");
    refused(&["route", "--heads", folder, "a"], 4, &["router_config.json"]);
}
