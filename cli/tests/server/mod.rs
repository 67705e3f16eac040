//! An HTTP server on this machine that answers as a test scripts it, lies included.
#![allow(dead_code, reason = "each of the tests that include this file uses a part of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A request as the server saw it: the path, and the headers in lower case.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The N of `Range: bytes=N-`.
    pub fn from(&self) -> Option<usize> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

/// An answer, sent as it is: headers may lie about the body.
#[derive(Default)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, body: &[u8]) -> Self {
        Self { status, headers: Vec::new(), body: body.to_vec() }
    }

    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// The whole content, announced truly.
    pub fn whole(body: &[u8], etag: &str) -> Self {
        Self::new(200, body).with("Content-Length", body.len()).with("ETag", etag)
    }

    /// The content from `from` on, announced truly.
    pub fn rest(body: &[u8], from: usize, etag: &str) -> Self {
        let (len, last) = (body.len(), body.len() - 1);
        Self::new(206, &body[from..])
            .with("Content-Length", len - from)
            .with("Content-Range", format!("bytes {from}-{last}/{len}"))
            .with("ETag", etag)
    }

    /// Sends only the first `n` bytes of the body, then closes.
    pub fn breaking(mut self, n: usize) -> Self {
        self.body.truncate(n);
        self
    }
}

pub struct Server {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Answers the n-th request (from 0) with what `script` gives for it.
    pub fn new(script: impl Fn(usize, &Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, stopped) = (asked.clone(), stop.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let Some(request) = read(&stream) else { continue };
                let n = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                send(stream, &request, script(n, &request));
            }
        });
        Self { address, asked, stop }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(&self.address));
    }
}

fn read(stream: &TcpStream) -> Option<Asked> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    Some(Asked { method, path, headers })
}

fn send(mut stream: TcpStream, request: &Asked, answer: Answer) {
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes());
    if request.method != "HEAD" {
        let _ = stream.write_all(&answer.body);
    }
    let _ = stream.flush();
}
