//! `zen-edge route` with limits and users, `observe`, `forget` and `stats`, as a person or a script runs them.

use std::path::Path;
use std::process::Command;

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Exit code, standard output, standard error.
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let out = Command::new(env!("CARGO_BIN_EXE_zen-edge"))
            .args(words)
            .env("ZEN_EDGE_STATE", self.path().join("state"))
            .env("ZEN_EDGE_CACHE", self.path().join("cache"))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
    }

    #[track_caller]
    fn good(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!((code, &*err), (0, ""), "{words:?}: {out}{err}");
        out
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.good(words)).unwrap()
    }

    #[track_caller]
    fn refused(&self, words: &[&str], code: i32, said: &str) {
        let (got, out, err) = self.run(words);
        assert!(got == code && err.contains(said), "{words:?}: {got} {out}{err}");
    }
}

#[test]
fn limits_are_kept_and_an_explanation_says_why_models_fell_out() {
    let home = Home::new();
    let words =
        ["route", "What is 12 times 12?", "--explain", "--max-cost", "0.0003", "--exclude", "codegemma-7b"];
    let text = home.good(&words);
    let row = |model: &str| text.lines().rev().find(|line| line.contains(model)).unwrap().to_owned();
    assert!(row("gpt-4-1106-preview").contains("costs $0.02 for 1k tokens, the limit is $0.0003"), "{text}");
    assert!(row("codegemma-7b").contains("excluded"), "{text}");
    assert!(row("zen-nano-0.6b").contains("its route row has seen no data"), "{text}");
    assert!(text.contains("score = quality − 0.35 · cost − 0.15 · latency"), "{text}");
    assert!(text.lines().all(|line| line == line.trim_end()), "no blanks at the ends of lines");

    let offline = home.json(&["route", "hello", "--json", "--offline", "--running", "zen-nano-0.6b"]);
    assert_eq!((&offline["model"], &offline["route"]), (&"zen-nano-0.6b".into(), &"reuse".into()));
    let none = home.json(&["route", "hello", "--json", "--vision"]);
    assert_eq!((&none["model"], &none["route"]), (&serde_json::Value::Null, &"no_fit".into()));
    let rules = home.json(&["route", "hello", "--json", "--rules", "--task", "code"]);
    assert_eq!(
        (&rules["task"], &rules["source"], &rules["tokens"]),
        (&"code".into(), &"rules".into(), &0.into())
    );
    let unsure = home.json(&["route", "hello", "--json", "--min-confidence", "1"]);
    assert_eq!(unsure["source"], "rules");
    let level = home.json(&["route", "hello", "--json", "--level", "max"]);
    assert_eq!(level["level"], "max");
    let late = home.json(&["route", "hello", "--json", "--deadline-ms", "0"]);
    assert!(late["reason"].as_str().unwrap().contains("the deadline is 0 ms"), "{late}");
    assert_eq!(home.json(&["route", "hello", "--json", "--deadline-ms", "600000"])["source"], "learned");
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let home = Home::new();
    home.refused(
        &["route", "hello", "--exclude", "gpt-9"],
        2,
        "the catalog has no model gpt-9; it has: codegemma-7b",
    );
    home.refused(&["route", "hello", "--max-cost=-1"], 2, "at least 0");
    home.refused(&["route", "hello", "--max-cost", "nan"], 2, "at least 0");
    home.refused(&["route", "hello", "--min-quality", "7"], 2, "from 0 to 1");
    home.refused(&["route", "hello", "--task", "cooking"], 2, "code");
    home.refused(&["route", "hello", "--context", "absent.json"], 3, "absent.json");
    let file = home.path().join("c.json");
    std::fs::write(&file, "{\"power\": 3}").unwrap();
    home.refused(&["route", "hello", "--context", file.to_str().unwrap()], 4, "is no context");
    home.refused(&["observe", "0123456789abcdef", "--quality", "0.5"], 2, "no outcome 0123456789abcdef");
    home.refused(&["observe", "what", "--quality", "0.5"], 2, "what");
    home.refused(&["forget"], 2, "--all");
}

#[test]
fn the_state_of_the_device_is_a_file() {
    let home = Home::new();
    let file = home.path().join("context.json");
    let context = r#"{"providers": {"openai": {"down": true}, "open-weights": {"requests_left": 0}}, "thermal": "critical"}"#;
    std::fs::write(&file, context).unwrap();
    let answer = home.json(&["route", "hello", "--json", "--context", file.to_str().unwrap()]);
    assert_eq!(answer["route"], "no_fit");
    let why = |model: &str| {
        let models = answer["scores"]["models"].as_array().unwrap();
        models.iter().find(|row| row["model"] == model).unwrap()["why_not"]["why"].clone()
    };
    assert_eq!(why("gpt-4-1106-preview"), "provider_down");
    assert_eq!(why("codegemma-7b"), "rate_limited");
    assert_eq!(why("zen-nano-0.6b"), "hot");
}

#[test]
fn rewards_teach_and_are_forgotten() {
    let home = Home::new();
    let ask = || home.json(&["route", "Write a poem about the sea.", "--json", "--user", "ann"]);
    let first = ask();
    let id = first["outcome"].as_str().unwrap();
    assert_eq!(id.len(), 16);
    assert_eq!(home.good(&["observe", id, "--quality", "0"]), "");
    home.refused(&["observe", id, "--quality", "0"], 2, "has had its reward");
    // A model that keeps failing this user is left.
    let mut tried = vec![first["model"].clone()];
    for _ in 0..8 {
        let answer = ask();
        home.good(&["observe", answer["outcome"].as_str().unwrap(), "--quality", "0", "--latency-ms", "900"]);
        tried.push(answer["model"].clone());
    }
    assert!(tried.iter().any(|model| *model != tried[0]), "{tried:?}");
    let stats = home.json(&["stats", "--json", "--user", "ann"]);
    assert_eq!((&stats["user"]["observations"], &stats["bandit"]["users"]), (&9.into(), &1.into()));
    assert_eq!(home.json(&["stats", "--json", "--user", "bob"])["user"], serde_json::Value::Null);
    let text = home.good(&["stats", "--user", "ann"]);
    assert!(text.contains("ann: 9 rewards") && text.contains("mean quality"), "{text}");
    assert!(home.good(&["forget", "--user", "ann"]).contains("is erased"));
    assert!(home.good(&["forget", "--user", "ann"]).contains("nothing was learned"));
    assert_eq!(home.json(&["stats", "--json"])["bandit"]["users"], 0);
}

#[test]
fn a_damaged_learning_file_costs_the_learning_and_is_kept_aside() {
    let home = Home::new();
    let id =
        home.json(&["route", "hello", "--json", "--user", "ann"])["outcome"].as_str().unwrap().to_owned();
    home.good(&["observe", &id, "--quality", "1"]);
    let state = home.path().join("state");
    let file = std::fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "bin"))
        .unwrap();
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    let (code, out, err) = home.run(&["route", "hello", "--user", "ann"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("learning begins anew") && err.contains(".damaged"), "{err}");
    assert_eq!(std::fs::read(file.with_extension("damaged")).unwrap(), bytes[..bytes.len() - 9]);
    assert!(home.good(&["forget", "--all"]).contains("3 files erased"));
    assert!(home.good(&["stats"]).contains("No prompt has been routed yet"));
}

#[test]
fn runs_are_counted_without_the_text_of_a_prompt() {
    let home = Home::new();
    assert!(home.good(&["stats"]).contains("No prompt has been routed yet"));
    home.good(&["route", "a secret question about lions"]);
    home.good(&["route", "a secret question about lions", "--rules"]);
    home.good(&["route", "not counted", "--no-stats"]);
    let stats = home.json(&["stats", "--json"]);
    assert_eq!((&stats["routed"], &stats["sources"]["rules"]), (&2.into(), &1.into()));
    assert_eq!((&stats["reasons"]["rules_only"], &stats["fallback_rate"]), (&1.into(), &0.5.into()));
    let text = home.good(&["stats"]);
    assert!(text.contains("the heads did not decide 50.0 % of the prompts"), "{text}");
    for entry in std::fs::read_dir(home.path().join("state")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(5).any(|window| window == b"lions"));
    }
    // A damaged file costs the counts, never the answer.
    std::fs::write(home.path().join("state/counts.json"), "{").unwrap();
    let (code, _, err) = home.run(&["route", "hello"]);
    assert!(code == 0 && err.contains("counting begins anew"), "{err}");
    assert_eq!(home.json(&["stats", "--json"])["routed"], 1);
}

#[test]
fn many_processes_count_together() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| home.good(&["route", "hello", "--user", "ann"]));
        }
    });
    let stats = home.json(&["stats", "--json"]);
    assert_eq!((&stats["routed"], &stats["bandit"]["pending"]), (&6.into(), &6.into()));
}

#[test]
fn turns_of_one_conversation_are_held_at_their_model() {
    let home = Home::new();
    let rows = home.path().join("turns.jsonl");
    let turns = ["Prove that there are infinitely many primes.", "thanks!", "ok"];
    let text: Vec<String> =
        turns.iter().map(|turn| serde_json::json!({ "prompt": turn }).to_string()).collect();
    std::fs::write(&rows, text.join("\n")).unwrap();
    let models = |words: &[&str]| -> Vec<(String, bool)> {
        let words: Vec<&str> =
            ["route", "--rules", "--file", rows.to_str().unwrap()].iter().chain(words).copied().collect();
        let answers = home.good(&words);
        let answers = answers.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        answers.map(|a| (a["model"].as_str().unwrap().to_owned(), a["held"].as_bool().unwrap())).collect()
    };
    let alone = models(&[]);
    assert!(alone[0].0 != alone[1].0 && alone.iter().all(|(_, held)| !held), "{alone:?}");
    let together = models(&["--conversation"]);
    assert!(together.iter().all(|(model, _)| *model == alone[0].0), "{together:?}");
    assert_eq!(together.iter().map(|(_, held)| *held).collect::<Vec<_>>(), [false, true, true]);
}
