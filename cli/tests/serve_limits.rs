//! What `zen-edge serve` does when it is asked too much, when a client goes away, and when it is told to end.
#![cfg(unix)]

use serde_json::json;
use served::{Served, chat_model};
use std::io::{Read, Write};
use std::net::TcpStream;

mod served;

/// A server of the backbone alone: it reads every prompt whole, so that work can be made as long as one likes.
fn slow(words: &[&str]) -> (Served, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.gguf");
    std::fs::write(&path, chat_model()).unwrap();
    let served = Served::start(&[&["--model", path.to_str().unwrap(), "--threads", "1"], words].concat());
    (served, folder)
}

/// So many inputs of 4,000 tokens each.
fn work(inputs: usize) -> Vec<u8> {
    json!({"content": vec![vec![7; 4000]; inputs]}).to_string().into_bytes()
}

/// Minutes of it.
const ENDLESS: usize = 400;

/// Sends a request and does not wait for its answer.
fn send(served: &Served, path: &str, body: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(served.address()).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    stream
}

#[test]
fn beyond_those_that_run_and_wait_requests_are_refused_and_a_client_that_leaves_frees_its_place() {
    let (served, _folder) = slow(&["--concurrency", "1", "--queue", "1"]);
    let first = send(&served, "/embedding", &work(ENDLESS));
    served.until("zen_edge_running", 1.0);
    let second = send(&served, "/embedding", &work(ENDLESS));
    served.until("zen_edge_queue_depth", 1.0);
    let third = served.post("/embedding", &json!({"content": "a"}));
    assert_eq!((third.status, &third.json["error"]["code"]), (503, &json!("overloaded")));
    assert_eq!(third.header("retry-after"), Some("1"));
    // What needs no engine is answered all the same.
    served.get("/health").good();
    // The one that waits leaves, then the one that runs: its pass ends though nobody waited for that.
    drop(second);
    served.until("zen_edge_queue_depth", 0.0);
    assert_eq!(served.metric("zen_edge_running"), 1.0);
    drop(first);
    served.until("zen_edge_running", 0.0);
    served.post("/embedding", &json!({"content": "a"})).good();
}

#[test]
fn a_stream_whose_client_leaves_ends() {
    let (served, _folder) = slow(&["--concurrency", "1"]);
    // Without an end by itself: it must be the client that ends it.
    let messages = json!([{"role": "user", "content": "hi ".repeat(1500)}]);
    let body = json!({"messages": messages, "stream": true, "max_tokens": 2000, "temperature": 2, "seed": 1});
    let mut stream = send(&served, "/v1/chat/completions", body.to_string().as_bytes());
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    drop(stream);
    served.until("zen_edge_running", 0.0);
    assert!(served.metric("zen_edge_tokens_generated_total") < 2000.0);
}

#[test]
fn what_takes_too_long_is_ended() {
    let (served, _folder) = slow(&["--concurrency", "1", "--timeout", "3"]);
    let late = served.ask("POST", "/embedding", &work(ENDLESS), &[]);
    assert_eq!((late.status, &late.json["error"]["code"]), (504, &json!("timeout")), "{}", late.text);
    served.until("zen_edge_running", 0.0);
    // A body that never comes is not waited for either.
    let mut stream = TcpStream::connect(served.address()).unwrap();
    stream.write_all(b"POST /embedding HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    served.post("/embedding", &json!({"content": "a"})).good();
}

#[test]
fn a_stream_that_takes_too_long_ends_with_an_error() {
    let (served, _folder) = slow(&["--timeout", "0.2"]);
    let messages = json!([{"role": "user", "content": "hi ".repeat(1000)}]);
    let body = json!({"messages": messages, "stream": true, "max_tokens": 2500, "temperature": 2, "seed": 1});
    let late = served.ask("POST", "/v1/chat/completions", body.to_string().as_bytes(), &[]);
    // In the stream; or, on a machine that is busy, in place of it.
    assert!(late.status == 200 || late.status == 504, "{}", late.status);
    assert!(late.text.contains("\"code\":\"timeout\"") && !late.text.contains("[DONE]"), "{}", late.text);
    served.until("zen_edge_running", 0.0);
}

#[test]
fn told_to_end_it_finishes_what_runs_and_takes_no_more() {
    for signal in ["TERM", "INT"] {
        let (mut served, _folder) = slow(&["--grace", "600", "--timeout", "600"]);
        let idle = TcpStream::connect(served.address()).unwrap();
        let mut stream = send(&served, "/embedding", &work(3));
        served.until("zen_edge_running", 1.0);
        served.signal(signal);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("]]}]"), "{signal}: {}", answer.len());
        let (status, err) = served.end();
        assert!(status.success(), "{signal}: {status} {err}");
        assert!(TcpStream::connect(served.address()).is_err(), "nobody listens any more");
        drop(idle);
    }
}

#[test]
fn what_does_not_end_within_the_grace_is_cancelled() {
    let (mut served, _folder) = slow(&["--grace", "0.1"]);
    let mut stream = send(&served, "/embedding", &work(ENDLESS));
    served.until("zen_edge_running", 1.0);
    served.signal("TERM");
    let (status, err) = served.end();
    assert!(status.success(), "{status} {err}");
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    assert_eq!(answer, "", "it was cut off");
    // Without patience: a second signal.
    let (mut served, _folder) = slow(&["--grace", "600", "--timeout", "600"]);
    let _stream = send(&served, "/embedding", &work(ENDLESS));
    served.until("zen_edge_running", 1.0);
    served.signal("INT");
    while TcpStream::connect(served.address()).is_ok() {}
    served.signal("INT");
    assert!(served.end().0.success());
}

#[test]
fn a_run_is_counted_when_it_ends_unless_it_is_not_to_be() {
    for (words, counted) in [(&[][..], true), (&["--no-stats"], false)] {
        let mut served = Served::start(words);
        served.post("/v1/route", &json!({"prompt": "hello there"})).good();
        served.signal("TERM");
        assert!(served.end().0.success());
        let counts = std::fs::read_to_string(served.state().join("counts.json")).unwrap_or_default();
        assert_eq!(counts.contains("\"routed\":1"), counted, "{counts}");
    }
}

/// A prompt never leaves the device, served or not: as the system itself sees it.
#[cfg(target_os = "linux")]
#[test]
fn it_connects_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls.txt");
    let traced = |words: &[&str]| {
        let mut strace = std::process::Command::new("strace");
        // The tracer is a process beside it, so that what we started is the server.
        strace.args(["-D", "--follow-forks", "--trace=%network", "--output"]).arg(&log).args(words);
        strace
    };
    let may = traced(&["true"]).output().is_ok_and(|ran| ran.status.success());
    if !may {
        return zen_edge_tests::skip("it_connects_to_nothing", "needs strace, and to be allowed to trace");
    }
    let strace = traced(&[env!("CARGO_BIN_EXE_zen-edge")]);
    let mut served = Served::by(strace, &[], &[]);
    served.post("/v1/route", &json!({"prompt": "a secret", "user": "ann"})).good();
    served.post("/embedding", &json!({"content": "a secret"})).good();
    served.signal("TERM");
    assert!(served.end().0.success());
    let log = std::fs::read_to_string(&log).unwrap();
    let calls = |name: &str| log.lines().filter(|line| line.contains(name)).collect::<Vec<_>>();
    assert_eq!(calls(" bind(").len(), 1, "the trace sees calls: {log}");
    assert_eq!(calls("connect("), Vec::<&str>::new());
    assert_eq!(calls("sendto(").iter().filter(|call| call.contains("sin_port")).count(), 0, "{log}");
}
