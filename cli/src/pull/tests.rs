//! Pulls against a server on this machine that misbehaves as asked.

use super::error::PullError;
use super::fetch::{Download, Got, Wanted, Watch};
use super::store::{Basis, hash_file, hex};
use server::{Answer, Asked, Server};
use sha2::{Digest, Sha256};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

#[path = "../../tests/server/mod.rs"]
mod server;

#[derive(Default)]
struct Notes {
    notes: Vec<String>,
    last: (u64, Option<u64>),
}

impl Watch for Notes {
    fn at(&mut self, done: u64, total: Option<u64>) {
        self.last = (done, total);
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

/// One pull into a folder of its own.
struct Pull {
    dir: tempfile::TempDir,
    wanted: Wanted,
    tries: u32,
    notes: Notes,
}

impl Pull {
    fn new(url: String) -> Self {
        let wanted = Wanted { url, size: None, sha256: None, basis: Basis::None };
        Self { dir: tempfile::tempdir().unwrap(), wanted, tries: 3, notes: Notes::default() }
    }

    fn expecting(mut self, content: &[u8]) -> Self {
        self.wanted.size = Some(content.len() as u64);
        self.wanted.sha256 = Some(sha256(content));
        self.wanted.basis = Basis::Hub;
        self
    }

    fn part(&self) -> PathBuf {
        self.dir.path().join("m.part")
    }

    fn run(&mut self) -> Result<Got, PullError> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .timeout_per_read(Some(Duration::from_secs(5)))
            .build()
            .into();
        let download = Download {
            agent: &agent,
            wanted: self.wanted.clone(),
            part: self.part(),
            record: self.dir.path().join("m.part.json"),
            tries: self.tries,
            pause: Duration::from_millis(1),
            magic: b"GGUF",
        };
        download.run(&mut self.notes)
    }

    fn held(&self) -> Vec<u8> {
        std::fs::read(self.part()).unwrap_or_default()
    }
}

fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}

/// Bytes that start as a GGUF does, some hundred kilobytes: more than one buffer.
fn content() -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    let mut state = 1u32;
    bytes.resize_with(300_007, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    bytes
}

#[test]
fn a_good_server_gives_the_file_in_one_request() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |_, _| Answer::whole(&body, "\"e1\""));
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    let got = pull.run().unwrap();
    assert_eq!((got.size, got.resumed), (content.len() as u64, 0));
    assert_eq!(got.sha256, sha256(&content));
    assert_eq!(got.etag.as_deref(), Some("\"e1\""));
    assert_eq!(pull.held(), content);
    assert_eq!(hash_file(&pull.part()).unwrap(), got.sha256);
    assert_eq!(server.asked().len(), 1);
    assert_eq!(pull.notes.last, (got.size, Some(got.size)));
}

#[test]
fn f1_a_break_is_resumed_by_range_until_the_file_is_whole() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match (n, asked.from()) {
        (0, None) => Answer::whole(&body, "\"e1\"").breaking(100_000),
        (1, Some(from)) => Answer::rest(&body, from, "\"e1\"").breaking(50_000),
        (_, Some(from)) => Answer::rest(&body, from, "\"e1\""),
        _ => Answer::new(500, b""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    let got = pull.run().unwrap();
    assert_eq!(got.resumed, 150_000);
    assert_eq!(pull.held(), content);
    let asked = server.asked();
    assert_eq!(asked.iter().map(Asked::from).collect::<Vec<_>>(), [None, Some(100_000), Some(150_000)]);
    assert_eq!(asked[1].header("if-range"), Some("\"e1\""));
    assert!(pull.notes.notes[0].contains("broke off at 100000 of 300007"), "{:?}", pull.notes.notes);
}

#[test]
fn f4_a_file_that_never_comes_whole_is_an_error_and_its_part_is_kept() {
    let content = content();
    let body = content.clone();
    // No Range, and never more than half: only the furthest byte counts as progress, so this ends.
    let server = Server::new(move |_, _| Answer::whole(&body, "\"e1\"").breaking(150_000));
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    let error = pull.run().unwrap_err();
    assert!(matches!(error, PullError::BrokeOff { got: 150_000, tries: 3, .. }), "{error}");
    assert!(error.to_string().contains("goes on from byte 150000"), "{error}");
    assert_eq!(pull.held(), content[..150_000]);
}

#[test]
fn a_part_of_an_earlier_process_is_resumed() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match asked.from() {
        None if n == 0 => Answer::whole(&body, "\"e1\"").breaking(70_000),
        Some(from) => Answer::rest(&body, from, "\"e1\""),
        None => Answer::new(500, b""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.tries = 1;
    pull.run().unwrap_err();
    let got = pull.run().unwrap();
    assert_eq!(got.resumed, 70_000);
    assert_eq!(pull.held(), content);
}

#[test]
fn a_complete_part_needs_no_request() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |_, _| Answer::whole(&body, "\"e1\""));
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.run().unwrap();
    let again = pull.run().unwrap();
    assert_eq!(again.resumed, content.len() as u64);
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn f5_a_part_of_another_file_is_never_mixed_in() {
    let content = content();
    let mut other = content.clone();
    other[200_000] ^= 1;
    let (a, b) = (content.clone(), other.clone());
    let server = Server::new(move |_, asked| match (asked.path.as_str(), asked.from()) {
        ("/a.gguf", _) => Answer::whole(&a, "\"a\"").breaking(90_000),
        (_, None) => Answer::whole(&b, "\"b\""),
        (_, Some(_)) => Answer::new(500, b""),
    });
    let mut pull = Pull::new(server.url("/a.gguf")).expecting(&content);
    pull.tries = 1;
    pull.run().unwrap_err();
    assert_eq!(pull.held().len(), 90_000);
    // The same place on the disk, another URL: asked for from the start.
    pull.wanted.url = server.url("/b.gguf");
    pull.wanted.sha256 = Some(sha256(&other));
    assert_eq!(pull.run().unwrap().resumed, 0);
    assert_eq!(pull.held(), other);
    assert_eq!(server.asked()[1].from(), None);
}

#[test]
fn f5_another_expected_hash_starts_anew_even_at_the_same_url() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match asked.from() {
        None if n == 0 => Answer::whole(&body, "\"e1\"").breaking(90_000),
        None => Answer::whole(&body, "\"e1\""),
        Some(_) => Answer::new(500, b""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.tries = 1;
    pull.wanted.sha256 = Some(sha256(b"what was wanted first"));
    pull.run().unwrap_err();
    pull.wanted.sha256 = Some(sha256(&content));
    assert_eq!(pull.run().unwrap().resumed, 0);
}

#[test]
fn a_server_without_range_is_taken_from_the_start() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, _| {
        let answer = Answer::whole(&body, "\"e1\"");
        if n == 0 { answer.breaking(120_000) } else { answer }
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    let got = pull.run().unwrap();
    assert_eq!(got.resumed, 0);
    assert_eq!(pull.held(), content);
    assert!(server.asked()[1].from().is_some());
}

#[test]
fn another_etag_between_tries_starts_anew() {
    let old = content();
    let mut new = old.clone();
    new[10] ^= 1;
    let (a, b) = (old.clone(), new.clone());
    // It ignores If-Range and gives the rest of the new file: only the ETag tells.
    let server = Server::new(move |n, asked| match (n, asked.from()) {
        (0, _) => Answer::whole(&a, "\"old\"").breaking(100_000),
        (_, Some(from)) => Answer::rest(&b, from, "\"new\""),
        (_, None) => Answer::whole(&b, "\"new\""),
    });
    let mut pull = Pull::new(server.url("/m.gguf"));
    let got = pull.run().unwrap();
    assert_eq!(got.resumed, 0);
    assert_eq!(pull.held(), new);
    assert!(pull.notes.notes.iter().any(|note| note.contains("another by now")), "{:?}", pull.notes.notes);
}

#[test]
fn a_weak_etag_is_not_sent_as_if_range() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match (n, asked.from()) {
        (0, _) => Answer::whole(&body, "W/\"e\"").breaking(100_000),
        (_, Some(from)) => Answer::rest(&body, from, "W/\"e\""),
        (_, None) => Answer::new(500, b""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.run().unwrap();
    assert_eq!(server.asked()[1].header("if-range"), None);
}

#[test]
fn without_etag_and_hash_nothing_is_resumed() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, _| {
        let answer = Answer::new(200, &body).with("Content-Length", body.len());
        if n == 0 { answer.breaking(100_000) } else { answer }
    });
    let mut pull = Pull::new(server.url("/m.gguf"));
    let got = pull.run().unwrap();
    assert_eq!((got.resumed, pull.held() == content), (0, true));
    assert_eq!(server.asked()[1].from(), None);
}

#[test]
fn a_206_from_another_place_is_not_appended() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match (n, asked.from()) {
        (0, _) => Answer::whole(&body, "\"e\"").breaking(100_000),
        (_, Some(from)) => Answer::rest(&body, from - 1, "\"e\""),
        (_, None) => Answer::whole(&body, "\"e\""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    assert_eq!(pull.run().unwrap().resumed, 0);
    assert_eq!(pull.held(), content);
}

#[test]
fn a_416_throws_the_part_away_and_starts_anew() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match (n, asked.from()) {
        (0, _) => Answer::whole(&body, "\"e\"").breaking(100_000),
        (_, Some(_)) => Answer::new(416, b"").with("Content-Range", format!("bytes */{}", body.len())),
        (_, None) => Answer::whole(&body, "\"e\""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    assert_eq!(pull.run().unwrap().resumed, 0);
    assert_eq!(pull.held(), content);
}

#[test]
fn a_server_that_always_starts_us_anew_is_given_up() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |_, asked| match asked.from() {
        None => Answer::whole(&body, "\"e\"").breaking(100_000),
        Some(_) => Answer::new(416, b""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.tries = 50;
    let error = pull.run().unwrap_err();
    assert!(matches!(error, PullError::Protocol { .. }), "{error}");
}

#[test]
fn a_length_that_is_not_the_expected_one_is_refused_before_a_byte_is_kept() {
    let content = content();
    for lie in [content.len() - 1, content.len() + 1, 0, usize::MAX] {
        let body = content.clone();
        let server = Server::new(move |_, _| Answer::new(200, &body).with("Content-Length", lie));
        let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
        let error = pull.run().unwrap_err();
        assert!(matches!(error, PullError::WrongLength { said, .. } if said == lie as u64), "{lie}: {error}");
        assert!(pull.held().is_empty());
    }
}

#[test]
fn more_bytes_than_expected_end_the_pull() {
    let content = content();
    let mut body = content.clone();
    body.extend_from_slice(b"and more");
    // No length is announced; the connection's end is the body's end.
    let server = Server::new(move |_, _| Answer::new(200, &body));
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    let error = pull.run().unwrap_err();
    assert!(matches!(error, PullError::TooLong { .. }), "{error}");
    assert!(!pull.part().exists());
}

#[test]
fn a_short_body_without_a_length_is_noticed() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |_, asked| match asked.from() {
        None => Answer::new(200, &body[..99_000]).with("ETag", "\"e\""),
        Some(from) => Answer::rest(&body, from, "\"e\""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    assert_eq!(pull.run().unwrap().resumed, 99_000);
    assert_eq!(pull.held(), content);
}

#[test]
fn neither_length_nor_hash_is_refused() {
    let body = content();
    let server = Server::new(move |_, _| Answer::new(200, &body));
    let error = Pull::new(server.url("/m.gguf")).run().unwrap_err();
    assert!(matches!(error, PullError::NoMeasure { .. }), "{error}");
}

#[test]
fn f2_wrong_bytes_are_refused_and_thrown_away() {
    let content = content();
    let mut wrong = content.clone();
    wrong[1234] ^= 0x40;
    let server = Server::new(move |_, _| Answer::whole(&wrong, "\"e\""));
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    let error = pull.run().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, PullError::WrongHash { .. }) && text.contains(&sha256(&content)), "{text}");
    assert!(!pull.part().exists());
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn f2_a_damaged_part_heals_by_one_fresh_fetch() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match (n, asked.from()) {
        (0, _) => Answer::whole(&body, "\"e\"").breaking(100_000),
        (_, Some(from)) => Answer::rest(&body, from, "\"e\""),
        (_, None) => Answer::whole(&body, "\"e\""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.tries = 1;
    pull.run().unwrap_err();
    let mut held = pull.held();
    held[50_000] ^= 1;
    std::fs::write(pull.part(), held).unwrap();
    let got = pull.run().unwrap();
    assert_eq!(got.resumed, 0);
    assert_eq!(pull.held(), content);
}

#[test]
fn statuses_say_what_they_mean_and_only_passing_ones_are_tried_again() {
    for (status, requests) in [(404, 1), (403, 1), (410, 1), (418, 1), (206, 1), (500, 3), (503, 3), (429, 3)]
    {
        let server = Server::new(move |_, _| Answer::new(status, b"GGUFnot").with("Content-Length", 7));
        let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content());
        let error = pull.run().unwrap_err();
        match status {
            206 => assert!(matches!(error, PullError::Protocol { .. }), "{error}"),
            _ => {
                assert!(matches!(error, PullError::Status { status: said, .. } if said == status), "{error}");
            }
        }
        assert!(pull.held().is_empty(), "an error page is never kept");
        assert_eq!(server.asked().len(), requests, "{status}");
    }
}

#[test]
fn a_passing_fault_passes() {
    let content = content();
    let body = content.clone();
    let server =
        Server::new(move |n, _| if n < 2 { Answer::new(503, b"") } else { Answer::whole(&body, "\"e\"") });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    pull.run().unwrap();
    assert_eq!(pull.held(), content);
}

#[test]
fn a_web_page_in_the_place_of_a_file_is_named() {
    let page = b"<!doctype html><title>Log in</title>";
    let typed = Server::new(|_, _| {
        Answer::new(200, page)
            .with("Content-Type", "text/html; charset=utf-8")
            .with("Content-Length", page.len())
    });
    let error = Pull::new(typed.url("/m.gguf")).expecting(&content()).run().unwrap_err();
    assert!(matches!(error, PullError::NotGguf { .. }) && error.to_string().contains("web page"), "{error}");
    let untyped = Server::new(|_, _| Answer::new(200, page).with("Content-Length", page.len()));
    let mut pull = Pull::new(untyped.url("/m.gguf"));
    let error = pull.run().unwrap_err();
    assert!(error.to_string().contains("<!doctype html>"), "{error}");
    assert!(!pull.part().exists());
}

#[test]
fn redirects_are_followed_and_keep_the_range() {
    let content = content();
    let body = content.clone();
    let server = Server::new(move |n, asked| match (asked.path.as_str(), asked.from()) {
        ("/m.gguf", _) => Answer::new(302, b"").with("Location", "/blob").with("Content-Length", 0),
        (_, None) if n < 3 => Answer::whole(&body, "\"e\"").breaking(80_000),
        (_, Some(from)) => Answer::rest(&body, from, "\"e\""),
        _ => Answer::new(500, b""),
    });
    let mut pull = Pull::new(server.url("/m.gguf")).expecting(&content);
    assert_eq!(pull.run().unwrap().resumed, 80_000);
    assert_eq!(pull.held(), content);
}

#[test]
fn nobody_there_is_said_so() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut pull = Pull::new(format!("http://{closed}/m.gguf"));
    let error = pull.run().unwrap_err();
    assert!(matches!(error, PullError::Unreachable { .. }), "{error}");
    let error = Pull::new("no url at all".into()).run().unwrap_err();
    assert!(matches!(error, PullError::Unreachable { .. }), "{error}");
}
