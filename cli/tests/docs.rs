//! The commands in README.md, CONTRIBUTING.md and docs/ are run, and print what the text says they print.
//!
//! Every `$ …` line of a ```` ```console ```` block is given to `sh` in a folder of its own for each page, with this
//! build's `zen-edge` on the path (`cargo run --release --` means the same) and a hub on this machine in place of the
//! public one. The lines below a command are what it prints: `…` stands for anything within a line, a line that is
//! only `…` for any number of lines, and `[exit N]` as the last line for the exit code, else it is 0. A block that
//! cannot be run says why in its first line: ```` ```console no-run: … ````.
#![cfg(unix)]

use server::{Answer, Server};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

mod server;

/// One command of a page.
#[derive(Debug)]
struct Shown {
    line: usize,
    command: String,
    output: Vec<String>,
    exit: i32,
}

/// The commands of the blocks that are run; and the lines of those that are not and do not say why.
fn commands(text: &str) -> (Vec<Shown>, Vec<usize>) {
    let (mut shown, mut silent): (Vec<Shown>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let mut words = info.splitn(2, ' ');
        let (kind, rest) = (words.next().unwrap_or(""), words.next());
        let run = kind == "console" && rest.is_none();
        if matches!(kind, "sh" | "bash" | "shell") {
            // A shell block would be passed over unseen.
            silent.push(at + 1);
        } else if kind == "console"
            && let Some(why) = rest
            && why.strip_prefix("no-run:").is_none_or(|why| why.trim().is_empty())
        {
            silent.push(at + 1);
        }
        let from = shown.len();
        for (at, line) in lines.by_ref() {
            if line.trim_start().starts_with("```") {
                break;
            }
            if !run {
                continue;
            }
            if let Some(command) = line.strip_prefix("$ ") {
                shown.push(Shown { line: at + 1, command: command.to_owned(), output: Vec::new(), exit: 0 });
            } else if let Some(last) = shown.get_mut(from..).and_then(<[_]>::last_mut) {
                if last.command.ends_with('\\') {
                    last.command.push('\n');
                    last.command.push_str(line);
                } else if let Some(exit) = line.strip_prefix("[exit ").and_then(|rest| rest.strip_suffix(']'))
                {
                    last.exit = exit.parse().expect("an exit code is a number");
                } else {
                    last.output.push(line.to_owned());
                }
            } else {
                silent.push(at + 1);
            }
        }
    }
    (shown, silent)
}

/// Whether a printed line is what a page shows.
fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Whether printed lines are what a page shows: a line of `…` alone stands for any number of lines.
fn all_fit(patterns: &[String], lines: &[&str]) -> bool {
    match patterns.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| all_fit(rest, &lines[skipped..]))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, more)) => fits(first.trim_end(), line.trim_end()) && all_fit(rest, more),
            None => false,
        },
    }
}

/// A hub that has the default backbone's place filled with a small sound GGUF.
fn hub() -> Server {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3u32.to_le_bytes());
    bytes.extend([0; 16]);
    Server::new(move |_, asked| {
        if asked.path.starts_with("/api/models/") {
            let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            let listing: Vec<_> = ["Q4_K_M", "Q8_0"]
                .iter()
                .map(|quant| {
                    serde_json::json!({"type": "file", "path": format!("zen-nano-0.6b-{quant}.gguf"), "size": bytes.len(),
                        "lfs": {"oid": sha256, "size": bytes.len()}})
                })
                .collect();
            let text = serde_json::to_string(&listing).unwrap();
            return Answer::new(200, text.as_bytes()).with("Content-Length", text.len());
        }
        Answer::whole(&bytes, "\"e\"")
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Runs the commands of one page; gives how many there were.
fn run(page: &Path) -> usize {
    let text = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let (shown, silent) = commands(&text);
    let name = page.strip_prefix(root()).unwrap_or(page).display();
    assert!(silent.is_empty(), "{name}, lines {silent:?}: not run, and it is not said why");
    let (hub, dir) = (hub(), tempfile::tempdir().unwrap());
    // A float model that a page can work on.
    let tiny = root().join("tests/fixtures/tiny/qwen3-tiny-rand-f16.gguf");
    std::fs::copy(tiny, dir.path().join("model-f16.gguf")).unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_zen-edge")).parent().unwrap();
    let path = std::env::join_paths(
        [bin.to_path_buf()]
            .into_iter()
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .unwrap();
    for Shown { line, command, output, exit } in &shown {
        let script = command.replace("cargo run --release --", "zen-edge");
        let ran = Command::new("sh")
            .args(["-c", &format!("{{ {script}\n}} 2>&1")])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("ZEN_EDGE_CACHE", dir.path().join("cache"))
            .env("ZEN_EDGE_STATE", dir.path().join("state"))
            .env("HF_ENDPOINT", hub.url(""))
            .env("NO_PROXY", "127.0.0.1")
            .env("COLUMNS", "110")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(ran.status.code(), Some(*exit), "{name}:{line}: `{command}` printed\n{printed}");
        let lines: Vec<&str> = printed.lines().collect();
        assert!(
            all_fit(output, &lines),
            "{name}:{line}: `{command}` printed\n{printed}\nwhere the page shows\n{}",
            output.join("\n")
        );
    }
    shown.len()
}

#[test]
fn the_readme_is_true() {
    assert!(run(&root().join("README.md")) > 0);
}

#[test]
fn contributing_is_true() {
    run(&root().join("CONTRIBUTING.md"));
}

#[test]
fn the_manual_is_true() {
    assert!(run(&root().join("docs/cli.md")) > 0);
}

#[test]
fn other_pages_are_true() {
    let mut pages: Vec<PathBuf> = std::fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md") && !path.ends_with("cli.md"))
        .collect();
    pages.sort();
    pages.iter().for_each(|page| {
        run(page);
    });
}

#[test]
fn the_harness_itself_sees_differences() {
    let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(fits("a … b", "a 12 b") && fits("…b", "ab") && fits("a…", "a") && fits("same", "same"));
    assert!(!fits("a … b", "a 12 c") && !fits("same", "samer") && !fits("b…", "ab"));
    assert!(all_fit(&owned(&["x", "…", "z"]), &["x", "y", "y", "z"]));
    assert!(!all_fit(&owned(&["x"]), &["x", "y"]) && !all_fit(&owned(&["x", "y"]), &["x"]));
    let page = "```console\n$ a \\\n  b\nout\n[exit 3]\n$ c\n```\n```console no-run: why\n$ d\n```\n```console no-run:\n```\n```sh\nx\n```\n";
    let (shown, silent) = commands(page);
    assert_eq!(shown.len(), 2);
    assert_eq!((shown[0].command.as_str(), shown[0].exit), ("a \\\n  b", 3));
    assert_eq!(shown[0].output, ["out"]);
    assert_eq!(silent, [11, 13]);
}
