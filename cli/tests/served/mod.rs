//! A `zen-edge serve` of its own for a test, and a client.
#![allow(dead_code, reason = "each of the tests that include this file uses a part of it")]

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A server that runs until it is dropped.
pub struct Served {
    child: Child,
    /// What it said when it was ready.
    pub said: Value,
    url: String,
    agent: ureq::Agent,
    home: tempfile::TempDir,
}

/// An answer, whatever its status.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub text: String,
    /// `null` where the text is no JSON.
    pub json: Value,
}

impl Answer {
    #[track_caller]
    pub fn good(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl Served {
    pub fn start(words: &[&str]) -> Self {
        Self::with(words, &[])
    }

    pub fn with(words: &[&str], env: &[(&str, &str)]) -> Self {
        Self::by(Command::new(env!("CARGO_BIN_EXE_zen-edge")), words, env)
    }

    /// On a free port, in a home of its own; `program` is the command or one that runs it.
    pub fn by(mut program: Command, words: &[&str], env: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut child = program
            .args(["serve", "--port", "0", "--json"])
            .args(words)
            .env_remove("ZEN_EDGE_API_KEY")
            .env("ZEN_EDGE_STATE", home.path())
            .env("ZEN_EDGE_CACHE", home.path())
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut err = String::new();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("{words:?} is not served: {line}{err}")
        });
        // A server on all addresses is reached by this one.
        let url = format!("http://127.0.0.1:{}", said["port"]);
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build();
        Self { child, said, url, agent: config.into(), home }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// The folder that it keeps its state in.
    pub fn state(&self) -> &Path {
        self.home.path()
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, b"", &[])
    }

    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, body.to_string().as_bytes(), &[("Content-Type", "application/json")])
    }

    pub fn ask(&self, method: &str, path: &str, body: &[u8], headers: &[(&str, &str)]) -> Answer {
        self.try_ask(method, path, body, headers).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        headers: &[(&str, &str)],
    ) -> Result<Answer, ureq::Error> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = if body.is_empty() {
            self.agent.run(request.body(()).unwrap())?
        } else {
            self.agent.run(request.body(body).unwrap())?
        };
        let headers = response.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
        let status = response.status().as_u16();
        let text = response.body_mut().with_config().limit(1 << 30).read_to_string()?;
        let json = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status, headers, text, json })
    }

    /// A figure of `/metrics`.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in\n{page}")).parse().unwrap()
    }

    /// Waits until a figure of `/metrics` is this one.
    pub fn until(&self, name: &str, value: f64) {
        for _ in 0..6000 {
            if self.metric(name) == value {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{name} never was {value}: {}", self.metric(name));
    }

    /// Sends a signal by its name.
    #[cfg(unix)]
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end; gives what it wrote to standard error.
    pub fn end(&mut self) -> (ExitStatus, String) {
        let status = self.child.wait().unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (status, err)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The default pack's backbone with a chat template: a small model that can be asked, though it was made to route.
///
/// The key goes before the others. Its length is a multiple of the alignment, so that no tensor moves.
pub fn chat_model() -> Vec<u8> {
    const TEMPLATE: &str = "{% for m in messages %}{% if m['content'] == 'refuse me' %}{{ raise_exception('as asked') }}\
        {% endif %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
    const KEY: &str = "tokenizer.chat_template";
    let model = zen_edge_default_pack::MODEL;
    let around = 8 + KEY.len() + 4 + 8;
    let length = (around + TEMPLATE.len()).next_multiple_of(32) - around;
    // Jinja leaves a comment out; 32 of these bytes are one at least.
    let length = if length - TEMPLATE.len() < 4 { length + 32 } else { length };
    let template = format!("{TEMPLATE}{{#{}#}}", " ".repeat(length - TEMPLATE.len() - 4));
    let keys = u64::from_le_bytes(model[16..24].try_into().unwrap());
    let mut bytes = model[..16].to_vec();
    bytes.extend((keys + 1).to_le_bytes());
    bytes.extend((KEY.len() as u64).to_le_bytes());
    bytes.extend(KEY.as_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend((template.len() as u64).to_le_bytes());
    bytes.extend(template.as_bytes());
    bytes.extend(&model[24..]);
    bytes
}
