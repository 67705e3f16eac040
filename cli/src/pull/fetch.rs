//! One file over HTTP: resumed by Range, measured against what is known of it, hashed as it comes.
//!
//! The rules, each of which has a test:
//!
//! * What is on the disk is continued only if its record names the same URL, length and hash (a part of another file
//!   is never mixed in), and only if the end can be told to be right: by an expected hash, or by an ETag that the
//!   server is asked to hold on to (`If-Range`) and repeats.
//! * A server that answers 200 to a Range, or 206 with another ETag or another place, is taken from the start.
//! * A length announced other than the expected one is refused before a byte is written; bytes beyond the expected
//!   length end the pull; bytes short of it are fetched again from where they ended.
//! * The hash decides at the end. A resumed file with a wrong hash is fetched once more from the start, for the part
//!   on the disk may be what was damaged; a fresh one with a wrong hash is refused.

use super::error::{Kept, PullError, Total};
use super::store::{Basis, hex, write_json};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{HeaderMap, StatusCode};

/// What is to come.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub url: String,
    /// The length in bytes, where it is known beforehand.
    pub size: Option<u64>,
    /// The sha256 in lower-case hexadecimal digits, where it is known beforehand.
    pub sha256: Option<String>,
    /// Where `sha256` is from.
    pub basis: Basis,
}

/// What came; it lies, complete but unpublished, at the part's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub size: u64,
    pub sha256: String,
    pub etag: Option<String>,
    /// How many of the bytes were on the disk before.
    pub resumed: u64,
}

/// Who wants to know how it goes.
pub trait Watch {
    /// `done` of `total` bytes are there.
    fn at(&mut self, done: u64, total: Option<u64>);
    /// Something that a person would want to be told.
    fn note(&mut self, text: &str);
}

/// Of what the bytes of a part are.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    url: String,
    size: Option<u64>,
    sha256: Option<String>,
    etag: Option<String>,
}

/// How an attempt ended without the file.
enum Stop {
    /// Trying again is no use.
    Final(PullError),
    /// The connection or the server had a bad moment.
    Again(PullError),
    /// What lies on the disk is of no use; the next attempt starts at 0.
    Anew(String),
}

impl From<PullError> for Stop {
    fn from(error: PullError) -> Self {
        Self::Final(error)
    }
}

/// A pull of one file.
pub struct Download<'a> {
    pub agent: &'a ureq::Agent,
    pub wanted: Wanted,
    /// Where the bytes go.
    pub part: PathBuf,
    /// Where it is recorded of what they are.
    pub record: PathBuf,
    /// Attempts in a row that may bring nothing new.
    pub tries: u32,
    /// The pause after the first failed attempt; it doubles with each.
    pub pause: Duration,
    /// What the first bytes must be.
    pub magic: &'static [u8],
}

impl Download<'_> {
    /// Fetches what is missing and verifies the whole.
    pub fn run(&self, watch: &mut dyn Watch) -> Result<Got, PullError> {
        let mut furthest = 0;
        let mut in_a_row = 0;
        let mut anew = 0;
        loop {
            match self.attempt(watch) {
                Ok(got) => match &self.wanted.sha256 {
                    Some(expected) if *expected != got.sha256 => {
                        self.discard()?;
                        if got.resumed == 0 || anew > 0 {
                            return Err(PullError::WrongHash {
                                url: self.wanted.url.clone(),
                                got: got.sha256,
                                expected: expected.clone(),
                                basis: self.wanted.basis.words(),
                            });
                        }
                        anew += 1;
                        watch.note("the resumed file has a wrong hash: from the start");
                    }
                    _ => return Ok(got),
                },
                Err(Stop::Final(error)) => return Err(error),
                Err(Stop::Anew(why)) => {
                    self.discard()?;
                    anew += 1;
                    // Twice can be an accident; a server that does it for ever must not keep us for ever.
                    if anew > 3 {
                        return Err(PullError::Protocol { url: self.wanted.url.clone(), why });
                    }
                    watch.note(&format!("{why}: from the start"));
                }
                Err(Stop::Again(error)) => {
                    let held = length(&self.part);
                    in_a_row = if held > furthest { 1 } else { in_a_row + 1 };
                    furthest = furthest.max(held);
                    if in_a_row >= self.tries.max(1) {
                        return Err(self.final_word(error, held, in_a_row));
                    }
                    let pause = self.pause * 2u32.saturating_pow(in_a_row - 1).min(32);
                    watch.note(&format!("{} Again in {:.0} s.", brief(&error), pause.as_secs_f64().ceil()));
                    std::thread::sleep(pause);
                }
            }
        }
    }

    /// The error as it is told after the last try.
    fn final_word(&self, error: PullError, held: u64, in_a_row: u32) -> PullError {
        match error {
            PullError::BrokeOff { url, expected, .. } => {
                PullError::BrokeOff { url, got: held, expected, tries: in_a_row, kept: Kept(held) }
            }
            PullError::Unreachable { url, why, .. } => PullError::Unreachable { url, why, kept: Kept(held) },
            other => other,
        }
    }

    /// One request, and as much of the answer as comes.
    fn attempt(&self, watch: &mut dyn Watch) -> Result<Got, Stop> {
        let url = &self.wanted.url;
        let (mut file, record, offset, mut hash) = self.open()?;
        // Everything may be there already: a process that ended between the last byte and the rename.
        if offset > 0
            && self.wanted.sha256.is_some()
            && record.as_ref().and_then(|record| record.size).or(self.wanted.size) == Some(offset)
        {
            let etag = record.and_then(|record| record.etag);
            return Ok(Got { size: offset, sha256: hex(&hash.finalize()), etag, resumed: offset });
        }
        let mut request = self.agent.get(url.as_str()).header("Accept-Encoding", "identity");
        if offset > 0 {
            request = request.header("Range", format!("bytes={offset}-"));
            let etag = record.as_ref().and_then(|record| record.etag.as_deref());
            // A weak ETag may stay while bytes change, and If-Range forbids it.
            if let Some(etag) = etag.filter(|etag| !etag.starts_with("W/")) {
                request = request.header("If-Range", etag);
            }
        }
        let response = request.call().map_err(|error| self.no_answer(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let etag = text(&headers, "etag");
        let mut start = offset;
        // By the header itself: for `Content-Length: 0` the client says "no body", not "of no bytes".
        let chunked = headers.contains_key("transfer-encoding");
        let mut said =
            text(&headers, "content-length").filter(|_| !chunked).and_then(|said| said.parse().ok());
        match status {
            StatusCode::OK => {
                if offset > 0 {
                    watch.note("the server sends the file from the start");
                    start = 0;
                }
            }
            StatusCode::PARTIAL_CONTENT => {
                let range = text(&headers, "content-range").and_then(|range| content_range(&range));
                let Some((first, total)) = range else {
                    return Err(protocol(url, "206 without a Content-Range that can be read").into());
                };
                if offset == 0 {
                    return Err(protocol(url, "206 to a request for the whole file").into());
                }
                if first != offset {
                    return Err(Stop::Anew(format!(
                        "asked for byte {offset}, the server sends from {first}"
                    )));
                }
                if let (Some(before), Some(now)) = (record.as_ref().and_then(|r| r.etag.as_ref()), &etag)
                    && before != now
                {
                    return Err(Stop::Anew("the file at the server is another by now".into()));
                }
                let before = record.as_ref().and_then(|record| record.size);
                if self.wanted.size.is_none() && before.is_some() && total.is_some() && before != total {
                    return Err(Stop::Anew("the file at the server has another length by now".into()));
                }
                said = total.or(said.and_then(|rest: u64| rest.checked_add(offset)));
            }
            StatusCode::RANGE_NOT_SATISFIABLE if offset > 0 => {
                return Err(Stop::Anew(format!("the server has nothing from byte {offset} on")));
            }
            status => return Err(self.bad_status(status)),
        }
        if text(&headers, "content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            return Err(PullError::NotGguf {
                url: url.clone(),
                start: "a web page (Content-Type text/html)".into(),
                hint: ": a page to log in, or a proxy, may stand between",
            }
            .into());
        }
        if let (Some(said), Some(expected)) = (said, self.wanted.size)
            && said != expected
        {
            let source_note = if self.wanted.basis == Basis::Pinned { " (pinned)" } else { " (by the hub)" };
            return Err(PullError::WrongLength { url: url.clone(), said, expected, source_note }.into());
        }
        let total = self.wanted.size.or(said);
        if total.is_none() && self.wanted.sha256.is_none() {
            return Err(PullError::NoMeasure { url: url.clone() }.into());
        }
        if start == 0 {
            self.rewind(&mut file)?;
            hash = Sha256::new();
        }
        write_json(
            &self.record,
            &Record { url: url.clone(), size: total, sha256: self.wanted.sha256.clone(), etag: etag.clone() },
        )?;
        let done = self.copy(response.into_body(), &mut file, &mut hash, start, total, watch)?;
        if total.is_some_and(|total| done < total) {
            return Err(Stop::Again(self.broke_off(done, total)));
        }
        if done < self.magic.len() as u64 {
            return Err(self.not_gguf(format!("{done} bytes and ends")).into());
        }
        Ok(Got { size: done, sha256: hex(&hash.finalize()), etag, resumed: start })
    }

    /// The part as it lies on the disk, at its end: empty unless it is a part of just what is wanted.
    fn open(&self) -> Result<(File, Option<Record>, u64, Sha256), PullError> {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.part)
            .map_err(|source| self.disk("cannot open", source))?;
        let record: Option<Record> =
            fs::read(&self.record).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let record = record.filter(|record| {
            record.url == self.wanted.url
                && record.sha256 == self.wanted.sha256
                && (self.wanted.size.is_none() || record.size == self.wanted.size)
                && (record.etag.is_some() || record.sha256.is_some())
        });
        let mut hash = Sha256::new();
        if record.is_none() {
            self.rewind(&mut file)?;
            return Ok((file, None, 0, hash));
        }
        let mut buffer = vec![0; 1 << 18];
        let mut held = 0u64;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    hash.update(&buffer[..n]);
                    held += n as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(self.disk("cannot read", source)),
            }
        }
        let limit = record.as_ref().and_then(|record| record.size);
        if limit.is_some_and(|limit| held > limit) {
            self.rewind(&mut file)?;
            return Ok((file, None, 0, Sha256::new()));
        }
        Ok((file, record, held, hash))
    }

    fn rewind(&self, file: &mut File) -> Result<(), PullError> {
        file.set_len(0).and_then(|()| file.rewind()).map_err(|source| self.disk("cannot empty", source))
    }

    /// Removes the part and its record.
    pub fn discard(&self) -> Result<(), PullError> {
        for path in [&self.part, &self.record] {
            match fs::remove_file(path) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(PullError::Disk { what: "cannot remove", path: path.clone(), source });
                }
            }
        }
        Ok(())
    }

    /// The body to the disk and into the hash, from `start` on; gives how many bytes are there then.
    fn copy(
        &self,
        body: ureq::Body,
        file: &mut File,
        hash: &mut Sha256,
        start: u64,
        total: Option<u64>,
        watch: &mut dyn Watch,
    ) -> Result<u64, Stop> {
        let mut body = body.into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; 1 << 16];
        let mut done = start;
        let mut head = Vec::new();
        watch.at(done, total);
        loop {
            let n = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Err(Stop::Again(self.broke_off(done, total))),
            };
            if start == 0 && head.len() < self.magic.len() {
                head.extend_from_slice(&buffer[..n.min(self.magic.len() - head.len())]);
                if !self.magic.starts_with(&head) {
                    let shown: String = buffer[..n.min(16)].escape_ascii().map(char::from).collect();
                    drop(self.discard());
                    return Err(self.not_gguf(format!("\"{shown}\"")).into());
                }
            }
            let after = done + n as u64;
            if let Some(expected) = total.filter(|&total| after > total) {
                self.discard()?;
                return Err(PullError::TooLong { url: self.wanted.url.clone(), expected }.into());
            }
            file.write_all(&buffer[..n]).map_err(|source| self.disk("cannot write", source))?;
            hash.update(&buffer[..n]);
            done = after;
            watch.at(done, total);
        }
        Ok(done)
    }

    fn broke_off(&self, got: u64, expected: Option<u64>) -> PullError {
        PullError::BrokeOff {
            url: self.wanted.url.clone(),
            got,
            expected: Total(expected),
            tries: 1,
            kept: Kept(got),
        }
    }

    fn not_gguf(&self, start: String) -> PullError {
        let hint = if start.contains('<') { ": a web page in the file's place?" } else { "" };
        PullError::NotGguf { url: self.wanted.url.clone(), start, hint }
    }

    fn no_answer(&self, error: &ureq::Error) -> Stop {
        unreachable(&self.wanted.url, error)
    }

    fn bad_status(&self, status: StatusCode) -> Stop {
        refused(&self.wanted.url, status)
    }

    fn disk(&self, what: &'static str, source: std::io::Error) -> PullError {
        PullError::Disk { what, path: self.part.clone(), source }
    }
}

/// Whether a request that got no answer is worth another try.
fn unreachable(url: &str, error: &ureq::Error) -> Stop {
    let failure = PullError::Unreachable { url: url.to_owned(), why: error.to_string(), kept: Kept(0) };
    match error {
        ureq::Error::HostNotFound
        | ureq::Error::BadUri(_)
        | ureq::Error::Http(_)
        | ureq::Error::InvalidProxyUrl
        | ureq::Error::RequireHttpsOnly(_)
        | ureq::Error::TooManyRedirects
        | ureq::Error::Tls(_)
        | ureq::Error::Rustls(_) => Stop::Final(failure),
        _ => Stop::Again(failure),
    }
}

/// What a status that brings no file means, and whether it may pass.
fn refused(url: &str, status: StatusCode) -> Stop {
    let meaning = match status.as_u16() {
        401 | 403 => "it wants to know who asks; fetch the file by other means and name it with --model",
        404 | 410 => {
            "there is no such file; the name, the revision or the URL is wrong, or it was taken away"
        }
        408 | 429 => "it is too busy; try again later",
        500..600 => "it has a fault of its own; try again later",
        _ => "that is no answer to a request for a file",
    };
    let failure = PullError::Status { url: url.to_owned(), status: status.as_u16(), meaning };
    if matches!(status.as_u16(), 408 | 429 | 500..600) { Stop::Again(failure) } else { Stop::Final(failure) }
}

/// A small document, for the hub's listing: retried like a file, at most `limit` bytes.
pub fn document(
    agent: &ureq::Agent,
    url: &str,
    limit: u64,
    tries: u32,
    pause: Duration,
    watch: &mut dyn Watch,
) -> Result<Vec<u8>, PullError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let once = || {
            let response = agent.get(url).call().map_err(|error| unreachable(url, &error))?;
            if response.status() != StatusCode::OK {
                return Err(refused(url, response.status()));
            }
            let mut body = response.into_body();
            body.with_config().limit(limit).read_to_vec().map_err(|error| match error {
                ureq::Error::BodyExceedsLimit(_) => {
                    Stop::Final(protocol(url, "it is far longer than such an answer is"))
                }
                error => unreachable(url, &error),
            })
        };
        match once() {
            Ok(bytes) => return Ok(bytes),
            Err(Stop::Again(error)) if attempt < tries => {
                watch.note(&brief(&error));
                std::thread::sleep(pause * 2u32.saturating_pow(attempt - 1).min(32));
            }
            Err(Stop::Again(error) | Stop::Final(error)) => return Err(error),
            Err(Stop::Anew(why)) => return Err(protocol(url, &why)),
        }
    }
}

/// What a hub says of a file before it sends the reader on: `X-Linked-Size`, and `X-Linked-ETag` where it is a sha256.
///
/// Best effort: a server that is no hub says nothing.
pub fn linked(agent: &ureq::Agent, url: &str) -> (Option<u64>, Option<String>) {
    let answer = agent.head(url).config().max_redirects(0).max_redirects_will_error(false).build().call();
    let Ok(answer) = answer else { return (None, None) };
    if !answer.status().is_success() && !answer.status().is_redirection() {
        return (None, None);
    }
    let size = text(answer.headers(), "x-linked-size").and_then(|size| size.parse().ok());
    let hash =
        text(answer.headers(), "x-linked-etag").map(|etag| etag.trim_matches('"').to_ascii_lowercase());
    (size, hash.filter(|hash| is_sha256(hash)))
}

/// Whether `text` is 64 lower-case hexadecimal digits.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

pub fn protocol(url: &str, why: &str) -> PullError {
    PullError::Protocol { url: url.to_owned(), why: why.to_owned() }
}

/// One line of an error, for a note between tries.
fn brief(error: &PullError) -> String {
    match error {
        PullError::BrokeOff { got, expected, .. } => {
            format!("The connection broke off at {got} of {expected} bytes.")
        }
        PullError::Unreachable { why, .. } => format!("No answer ({why})."),
        PullError::Status { status, .. } => format!("The server answers {status}."),
        other => format!("{other}."),
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// `bytes 100-999/1000` to (100, 1000); the total may be `*`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.trim().split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let total = match total.trim() {
        "*" => None,
        total => Some(total.parse::<u64>().ok()?),
    };
    (first <= last && total.is_none_or(|total| last < total)).then_some((first, total))
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |about| about.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_strictly() {
        assert_eq!(content_range("bytes 100-999/1000"), Some((100, Some(1000))));
        assert_eq!(content_range("bytes 0-0/*"), Some((0, None)));
        for bad in ["bytes 5-4/10", "bytes 5-10/10", "5-6/10", "bytes */10", "bytes a-b/c", "bytes 1-2", ""] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
