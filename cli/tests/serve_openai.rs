//! `zen-edge serve` and the `openai` package of PyPI, in the version that openai/requirements.txt pins.

use served::{Served, chat_model};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use zen_edge_tests::skip;

mod served;

fn ran(command: &mut Command) -> Result<Output, String> {
    let what = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{what}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    Err(format!("{what}: {}", err.lines().last().unwrap_or_default()))
}

/// A Python of its own with what requirements.txt names. Made once: a marker says that it is whole, and of which text.
fn python() -> Result<PathBuf, String> {
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai/requirements.txt");
    let pinned = std::fs::read_to_string(&requirements).unwrap();
    let venv = Path::new(env!("CARGO_TARGET_TMPDIR")).join("openai-venv");
    let python = venv.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let marker = venv.join("whole.txt");
    if std::fs::read_to_string(&marker).is_ok_and(|made| made == pinned)
        && ran(Command::new(&python).arg("-V")).is_ok()
    {
        return Ok(python);
    }
    let system = ["python3", "python"].into_iter().find(|name| ran(Command::new(name).arg("-V")).is_ok());
    let system = system.ok_or("there is no Python")?;
    ran(Command::new(system).args(["-m", "venv", "--clear"]).arg(&venv))?;
    ran(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements))?;
    std::fs::write(&marker, pinned).map_err(|error| error.to_string())?;
    Ok(python)
}

#[test]
fn openais_own_client_is_answered() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            return skip(
                "openais_own_client_is_answered",
                &format!("needs Python 3 and PyPI's openai: {why}"),
            );
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("chat.gguf");
    std::fs::write(&model, chat_model()).unwrap();
    let words = ["--model", model.to_str().unwrap(), "--alias", "smollm2-135m-q4_1"];
    let served = Served::with(&words, &[("ZEN_EDGE_API_KEY", "secret")]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openai/test_openai.py");
    // Whatever stands between this machine and others does not stand before itself.
    let env = [("NO_PROXY", "127.0.0.1"), ("no_proxy", "127.0.0.1"), ("PYTHONDONTWRITEBYTECODE", "1")];
    let run = |words: &[&str]| {
        let output = Command::new(&python).args(words).envs(env).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        out.into_owned()
    };
    let out = run(&[script.to_str().unwrap(), served.url(), "secret", "chat"]);
    assert!(out.starts_with("openai "), "{out}");

    // The manual's own lines, but for the place and the key.
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/serve.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let lines = manual.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(lines.contains("http://127.0.0.1:8080") && lines.contains("api_key=\"none\""), "{lines}");
    let lines = lines.replace("http://127.0.0.1:8080", served.url()).replace("\"none\"", "\"secret\"");
    assert!(!run(&["-c", &lines]).is_empty());
}
