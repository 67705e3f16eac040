//! `zen-edge verify` and `ablate` as a person or a script runs them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROWS: &str = r#"{"prompt": "write a python function to reverse a linked list", "task": "code", "id": "list"}
{"prompt": "hi there, how are you?", "task": "cheap_chat"}

{"prompt": "A train leaves at 9 and rides 120 km in 90 minutes. How fast is it?", "task": "math"}
{"prompt": " "}
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::write(place.path("rows.jsonl"), ROWS).unwrap();
        place
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Exit code, standard output, standard error.
    fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let ran = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
            .args(words)
            .current_dir(self.0.path())
            .env("COLUMNS", "200")
            .env("TMPDIR", self.0.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    }

    #[track_caller]
    fn good(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
        assert!(err.is_empty(), "a bar is drawn on a terminal only: {err}");
        out
    }

    #[track_caller]
    fn refused(&self, words: &[&str], code: i32, said: &str) {
        let (found, out, err) = self.run(words);
        assert_eq!(found, Some(code), "{words:?}: {out}{err}");
        assert!(err.contains(said), "no {said:?} in {err}");
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn tiny(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    root.join(format!("tests/fixtures/tiny/{name}-tiny-rand-f16.gguf")).display().to_string()
}

#[test]
fn verify_tells_how_far_two_backbones_agree() {
    let place = Place::new();
    let text = place.good(&["verify", "-p", "rows.jsonl", "-o", "report.json", "--min-top3", "0.5"]);
    for word in [
        "same task",
        "in top 3",
        "float arithmetic",
        "int8 arithmetic",
        "without text left out",
        "every threshold",
    ] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let printed = json(&place.good(&["verify", "-p", "rows.jsonl", "--json", "--arithmetic", "float"]));
    let kept = json(&std::fs::read_to_string(place.path("report.json")).unwrap());
    for report in [&printed, &kept] {
        assert_eq!(report["schema"], "zen-edge.verify/1");
        assert_eq!((&report["prompts"]["n"], &report["prompts"]["blank"]), (&3.into(), &1.into()));
        assert_eq!(report["passed"], true);
        assert_eq!(report["model"]["sha256"], report["reference"]["sha256"]);
    }
    assert_eq!(printed["all"]["cosine"]["min"], 1.0);
    assert!(kept["all"]["cosine"]["min"].as_f64().unwrap() < 1.0);
    assert_eq!(kept["worst"].as_array().unwrap().len(), 3);

    // A backbone without heads.
    let text =
        place.good(&["verify", "-p", "rows.jsonl", "-m", &tiny("qwen3"), "--limit", "2", "--seed", "5"]);
    assert!(text.contains("drawn by seed 5") && !text.contains("same task"), "{text}");
}

#[test]
fn verify_is_a_gate_and_each_fault_has_its_code() {
    let place = Place::new();
    let (code, out, err) =
        place.run(&["verify", "-p", "rows.jsonl", "--min-cosine", "1", "--min-task", "0.1"]);
    assert_eq!(code, Some(9), "{out}{err}");
    assert!(out.contains("same task"), "the figures are told all the same: {out}");
    assert!(err.contains("below the threshold: cosine_min") && !err.contains("task is"), "{err}");
    let with = |more: &[&'static str]| [&["verify", "-p", "rows.jsonl"], more].concat();
    place.refused(&with(&["--min-route", "99"]), 2, "not a share");
    place.refused(&with(&["--arithmetic", "int4"]), 2, "int8 or float");
    place.refused(&with(&["--float", "ffn_sideways"]), 2, "ffn_sideways");
    place.refused(&with(&["--limit", "0"]), 2, "limit");
    place.refused(&["verify", "-p", "rows.jsonl", "-m", &tiny("llama"), "--min-task", "0.9"], 2, "--heads");
    place.refused(&["verify", "-p", "none.jsonl"], 3, "none.jsonl");
    place.refused(&with(&["-r", "none.gguf"]), 3, "none.gguf");
    std::fs::write(place.path("bad.jsonl"), "{\"prompt\": 3}\n").unwrap();
    place.refused(&["verify", "-p", "bad.jsonl"], 4, "bad.jsonl:1");
    std::fs::write(place.path("bad.gguf"), "GGUF").unwrap();
    place.refused(&with(&["-r", "bad.gguf"]), 4, "bad.gguf");
    place.refused(&with(&["-r", "."]), 3, "config.json");
    place.refused(&["verify", "-p", "rows.jsonl", "-r", &tiny("qwen3")], 6, "hidden state");
    place.refused(&with(&["-o", "no/such/folder.json"]), 1, "cannot be written");
}

#[test]
fn a_folder_of_hugging_face_files_is_a_reference() {
    let test = "a_folder_of_hugging_face_files_is_a_reference";
    let shared = |name: &str| {
        zen_edge_tests::need(
            test,
            "the shared Qwen3",
            zen_edge_tests::shared(&format!("data/fixtures/{name}")),
        )
    };
    let (Some(folder), Some(f32), Some(q4)) = (
        shared("qwen3-tiny-rand-hf"),
        shared("qwen3-tiny-rand-f32.gguf"),
        shared("qwen3-tiny-rand-q4_k_m.gguf"),
    ) else {
        return;
    };
    let place = Place::new();
    let [folder, f32, q4] = [&folder, &f32, &q4].map(|path| path.to_str().unwrap());
    let verify = |model: &str, reference: &str| {
        let words = ["verify", "-p", "rows.jsonl", "--json", "--arithmetic", "float"];
        json(&place.good(&[&words[..], &["-m", model, "-r", reference]].concat()))
    };
    // It holds the values that the converter's GGUF holds, and is called by its own name.
    let same = verify(f32, folder);
    assert_eq!((&same["all"]["cosine"]["min"], &same["prompts"]["n"]), (&1.0.into(), &3.into()));
    assert_eq!(same["reference"]["file"], "qwen3-tiny-rand-hf");
    assert_eq!(same["reference"]["formats"].as_object().unwrap().keys().collect::<Vec<_>>(), ["F32"]);
    let other = verify(q4, folder);
    assert!(other["all"]["cosine"]["min"].as_f64().unwrap() < 1.0);
    assert_eq!(other["all"]["cosine"], verify(q4, f32)["all"]["cosine"]);
    assert_eq!(
        other["reference"]["sha256"], same["reference"]["sha256"],
        "what is made of it is the same again"
    );

    let text = place.good(&["ablate", "-p", "rows.jsonl", "-s", "int8", "-m", folder]);
    assert!(text.contains("weights    qwen3-tiny-rand-hf"), "{text}");
    let left: Vec<_> =
        std::fs::read_dir(place.0.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(left, ["rows.jsonl"], "nothing is left behind");
}

#[test]
fn ablate_tells_what_schemes_cost_and_draws_it() {
    let place = Place::new();
    let words = ["ablate", "-p", "rows.jsonl", "-s", "fp16,int4-g32-rot,q4_k-nohead", "--svg", "picture.svg"];
    let text = place.good(&[&words[..], &["-o", "report.json"]].concat());
    for word in ["int4-g32-rot", "q4_k-nohead", "touched", "accuracy", "100.0 %"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let svg = std::fs::read_to_string(place.path("picture.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("int4-g32-rot") && svg.contains("bits a weight"));
    let report = json(&std::fs::read_to_string(place.path("report.json")).unwrap());
    assert_eq!(report["schema"], "zen-edge.ablate/1");
    let names: Vec<&str> =
        report["schemes"].as_array().unwrap().iter().map(|entry| entry["scheme"].as_str().unwrap()).collect();
    assert_eq!(names, ["int4-g32-rot", "q4_k-nohead", "fp16"]);
    assert_eq!(report["schemes"][0]["coverage"]["share"], 1.0);
    assert!(report["schemes"][1]["coverage"]["share"].as_f64().unwrap() < 1.0);
    // Without heads the picture is of cosines.
    place.good(&["ablate", "-p", "rows.jsonl", "-s", "int8", "-m", &tiny("gemma3"), "--svg", "cosine.svg"]);
    assert!(std::fs::read_to_string(place.path("cosine.svg")).unwrap().contains("mean cosine"));

    for (schemes, said) in
        [("int5", "2, 3, 4 or 8 bits"), ("int8,int8", "twice"), ("", "no schemes"), ("int4-rot-g32", "order")]
    {
        place.refused(&["ablate", "-p", "rows.jsonl", "-s", schemes], 2, said);
    }
}

#[test]
fn ablate_fits_heads_on_the_way() {
    let place = Place::new();
    let rows = "{\"prompt\": \"sort a vector in rust\", \"task\": \"code\"}\n\
                {\"prompt\": \"hello my friend\", \"task\": \"cheap_chat\"}\n\
                {\"prompt\": \"what is 17 times 23?\", \"task\": \"math\"}\n";
    std::fs::write(place.path("fit.jsonl"), rows.to_owned() + ROWS.lines().next().unwrap()).unwrap();
    let words = ["ablate", "-p", "rows.jsonl", "-s", "fp16,int3", "--fit", "fit.jsonl"];
    let text = place.good(&words);
    for word in ["heads fitted here, to 3 labelled rows of 3 tasks", "refitted", "note: 1 of the rows to fit"]
    {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
    let report = json(&place.good(&[&words[..], &["--json"]].concat()));
    assert_eq!((&report["fit"]["rows"], &report["fit"]["overlap"]), (&3.into(), &1.into()));
    for kind in ["kept", "refitted"] {
        let accuracy = &report["schemes"][0]["fitted"][kind]["accuracy"];
        assert_eq!(accuracy["model"]["n"], 3, "{report}");
        assert!(accuracy["low"].as_f64() <= accuracy["difference"].as_f64(), "{report}");
    }
    let with = |fit: &'static str| ["ablate", "-p", "rows.jsonl", "-s", "int8", "--fit", fit];
    place.refused(&with("rows.jsonl"), 4, "blank");
    place.refused(&with("none.jsonl"), 3, "none.jsonl");
    std::fs::write(place.path("one.jsonl"), "{\"prompt\": \"a\", \"task\": \"math\"}").unwrap();
    place.refused(&with("one.jsonl"), 4, "only math");
    let own: String =
        ROWS.lines().filter(|line| line.contains("task")).map(|line| line.to_owned() + "\n").collect();
    std::fs::write(place.path("own.jsonl"), own).unwrap();
    place.refused(&with("own.jsonl"), 2, "rows of their own");
}
