//! A prompt never leaves the device: no command but `pull` opens a socket, as the system itself sees it.
#![cfg(target_os = "linux")]

use std::process::Command;
use zen_edge_tests::skip;

/// The network calls of a run, by strace. `None` where it cannot trace here.
fn calls(words: &[&str], folder: &std::path::Path) -> Option<Vec<String>> {
    let log = folder.join("calls.txt");
    let traced = Command::new("strace")
        .args(["--follow-forks", "--trace=%network", "--output"])
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_zen-edge"))
        .args(words)
        .env("ZEN_EDGE_STATE", folder.join("state"))
        .env("ZEN_EDGE_CACHE", folder.join("cache"))
        // Nobody answers there: a pull fails, but only after it has opened a socket.
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .output()
        .ok()?;
    let err = String::from_utf8_lossy(&traced.stderr);
    if err.contains("ptrace") || err.contains("PTRACE") {
        return None;
    }
    let log = std::fs::read_to_string(log).expect("strace writes its log");
    Some(log.lines().filter(|line| line.contains('(')).map(str::to_owned).collect())
}

#[test]
fn no_command_but_pull_opens_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = folder.join("rows.jsonl");
    std::fs::write(&rows, "{\"prompt\": \"hello\"}\n{\"prompt\": \"2 + 2\"}\n").unwrap();
    let Some(pulled) = calls(&["pull", "zen-nano-0.6b"], folder) else {
        return skip("no_command_but_pull_opens_a_socket", "needs strace, and to be allowed to trace");
    };
    assert!(pulled.iter().any(|call| call.contains("socket(")), "the trace sees sockets: {pulled:?}");
    let commands: [&[&str]; 7] = [
        &["route", "a secret", "--explain", "--deadline-ms", "1000"],
        &["route", "a secret", "--user", "ann"],
        &["route", "--file", rows.to_str().unwrap()],
        &["embed", "a secret"],
        &["stats"],
        &["forget", "--all"],
        &["inspect", rows.to_str().unwrap()],
    ];
    for words in commands {
        let calls = calls(words, folder).expect("it could trace before");
        assert_eq!(calls, Vec::<String>::new(), "{words:?}");
    }
}
