//! What is remembered of devices between starts: which were proved, which were not and why, and a start that never ended.
//!
//! A value, and no file: natively [`NotesFile`] keeps it in one, in a browser the page's storage does. What is decided by it
//! is decided here.

use super::{Backbone, GpuError, GpuInfo, Layer, Matrix};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::future::Future;
use std::pin::Pin;
use zen_edge_kernels::gpu::shaders;

/// What keeps notes between starts. Where it cannot, each start is as the first.
pub trait NotesKeeper: Send + Sync {
    /// The bytes that were written last; none before the first.
    fn read(&self) -> Kept<'_, Vec<u8>>;

    /// Keeps bytes, so that they outlive the process when this is done.
    fn write(&self, bytes: Vec<u8>) -> Kept<'_, ()>;

    /// What somebody does so that a GPU that was refused is tried at once: the end of a sentence.
    fn retry(&self) -> String;
}

/// What a [`NotesKeeper`] does.
pub type Kept<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Notes in a file, written in one step.
#[cfg(not(target_family = "wasm"))]
#[derive(Clone, Debug)]
pub struct NotesFile(pub std::path::PathBuf);

#[cfg(not(target_family = "wasm"))]
impl NotesKeeper for NotesFile {
    fn read(&self) -> Kept<'_, Vec<u8>> {
        Box::pin(std::future::ready(std::fs::read(&self.0).unwrap_or_default()))
    }

    fn write(&self, bytes: Vec<u8>) -> Kept<'_, ()> {
        // A folder that cannot be written costs a proof and the marker, never the answer.
        let _ = crate::bandit::publish(&self.0, &bytes);
        Box::pin(std::future::ready(()))
    }

    fn retry(&self) -> String {
        format!("without {} it is tried at once", self.0.display())
    }
}

/// The notes' format. Notes of another one are begun anew.
const VERSION: u32 = 1;

/// Devices and models that are remembered; the oldest go first.
const MOST: usize = 16;

/// What a verdict holds for: another driver, another build or another model is proved anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Key {
    adapter: String,
    driver: String,
    api: String,
    build: String,
    model: String,
}

impl Key {
    pub fn new(info: &GpuInfo, backbone: &Backbone) -> Self {
        Self {
            adapter: info.adapter.clone(),
            driver: info.driver.clone(),
            api: info.api.clone(),
            build: build(),
            model: model(backbone),
        }
    }
}

/// This build of the kernels.
fn build() -> String {
    format!("{} {:016x}", env!("CARGO_PKG_VERSION"), shaders())
}

/// Tells models apart by what is in memory anyway: shape, formats, norms.
fn model(backbone: &Backbone) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{:?}", backbone.shape));
    for layer in &backbone.layers {
        for matrix in Layer::matrices(layer) {
            hash.update(Matrix::block_type(matrix).name());
        }
        for norm in [&layer.attn_norm, &layer.ffn_norm] {
            norm.iter().for_each(|value| hash.update(value.to_le_bytes()));
        }
    }
    hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Verdict {
    /// It was proved; the right vector of the middle one of the prompts, which it must give at every start.
    Proved { answer: Vec<f32> },
    /// It was not.
    Refused { why: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    key: Key,
    verdict: Verdict,
}

/// What is remembered of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuNotes {
    version: u32,
    /// The build that started a GPU last.
    build: String,
    /// Whether that start has not come to its end.
    starting: bool,
    /// Starts in a row that never did.
    unfinished: u32,
    /// Starts that are to stay on the CPU.
    skip: u32,
    notes: Vec<Note>,
}

impl GpuNotes {
    /// Reads notes. Damaged ones and those of another format cost a proof, and nothing else: there are none then.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).ok().filter(|notes: &Self| notes.version == VERSION).unwrap_or_default()
    }

    /// The notes as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let notes = Self { version: VERSION, ..self.clone() };
        // Strings, numbers and lists: nothing of it can fail.
        serde_json::to_vec(&notes).unwrap_or_default()
    }

    /// To be asked before a GPU is touched. Either way the notes have changed: who keeps them writes them before he goes on,
    /// for they now say that a start is under way, until [`ended`](Self::ended) is called.
    ///
    /// A start that never ended may have taken the process or the system with it. So the next one stays on the CPU; the one
    /// after tries again, for it may also have been somebody who closed a page. From the second in a row on, twice as many
    /// stay on the CPU each time, up to 64.
    ///
    /// # Errors
    /// [`GpuError::Unfinished`] where the CPU is to be taken.
    pub fn begin(&mut self) -> Result<(), GpuError> {
        if self.starting {
            self.starting = false;
            self.unfinished = self.unfinished.saturating_add(1);
            self.skip = 1 << (self.unfinished - 1).min(6);
        }
        let build = build();
        if self.build != build {
            (self.build, self.unfinished, self.skip) = (build, 0, 0);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Err(GpuError::Unfinished { times: self.unfinished, left: self.skip });
        }
        self.starting = true;
        Ok(())
    }

    /// The start has come to its end, a good or a bad one.
    pub fn ended(&mut self) {
        (self.starting, self.unfinished, self.skip) = (false, 0, 0);
    }

    fn find(&self, key: &Key) -> Option<&Verdict> {
        self.notes.iter().find(|note| note.key == *key).map(|note| &note.verdict)
    }

    /// Why the device was refused before.
    pub(super) fn refused(&self, key: &Key) -> Option<GpuError> {
        match self.find(key)? {
            Verdict::Refused { why } => Some(GpuError::Refused { why: why.clone() }),
            Verdict::Proved { .. } => None,
        }
    }

    /// The CPU's answer to what the device was asked when it was proved.
    pub(super) fn answer(&self, key: &Key) -> Option<Vec<f32>> {
        match self.find(key)? {
            Verdict::Proved { answer } => Some(answer.clone()),
            Verdict::Refused { .. } => None,
        }
    }

    pub(super) fn prove(&mut self, key: Key, answer: Vec<f32>) {
        self.note(key, Verdict::Proved { answer });
    }

    /// Keeps what will be the same at the next start; a lack of memory or a loss will not.
    pub(super) fn refuse(&mut self, key: Key, error: &GpuError) {
        if matches!(error, GpuError::Wrong { .. } | GpuError::Unsupported { .. }) {
            self.note(key, Verdict::Refused { why: error.to_string() });
        }
    }

    fn note(&mut self, key: Key, verdict: Verdict) {
        self.notes.retain(|note| note.key != key);
        self.notes.push(Note { key, verdict });
        let over = self.notes.len().saturating_sub(MOST);
        self.notes.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(driver: &str) -> Key {
        let word = |word: &str| word.to_owned();
        Key {
            adapter: word("a"),
            driver: word(driver),
            api: word("vulkan"),
            build: build(),
            model: word("m"),
        }
    }

    /// As a file would keep them.
    fn kept(notes: &GpuNotes) -> GpuNotes {
        GpuNotes::parse(&notes.to_bytes())
    }

    #[test]
    fn a_start_that_never_ended_keeps_the_next_on_the_cpu_and_more_of_them_each_time() {
        let mut notes = GpuNotes::default();
        let mut stayed = Vec::new();
        for _ in 0..9 {
            assert_eq!(notes.begin(), Ok(()), "it is tried");
            // The process dies here; the notes are as they were written.
            notes = kept(&notes);
            let mut starts = 0;
            while let Err(GpuError::Unfinished { .. }) = kept(&notes).begin() {
                let _ = notes.begin();
                notes = kept(&notes);
                starts += 1;
            }
            stayed.push(starts);
        }
        assert_eq!(stayed, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(notes.begin(), Ok(()));
        notes.ended();
        assert_eq!(kept(&notes).begin(), Ok(()), "one that ended puts all right");
    }

    #[test]
    fn another_build_tries_at_once() {
        let mut notes = GpuNotes::default();
        notes.begin().unwrap();
        assert!(matches!(kept(&notes).begin(), Err(GpuError::Unfinished { times: 1, left: 0 })));
        notes.build = "older".to_owned();
        assert_eq!(kept(&notes).begin(), Ok(()));
    }

    #[test]
    fn verdicts_hold_for_their_adapter_driver_build_and_model() {
        let mut notes = GpuNotes::default();
        notes.prove(key("1"), vec![1.5, -0.1]);
        let wrong = GpuError::Wrong { kernel: "gemm".to_owned(), why: "an error".to_owned() };
        notes.refuse(key("2"), &wrong);
        notes.refuse(key("3"), &GpuError::OutOfMemory("for now".to_owned()));
        let notes = kept(&notes);
        assert_eq!(notes.answer(&key("1")), Some(vec![1.5, -0.1]));
        assert_eq!(notes.refused(&key("1")), None);
        assert!(notes.refused(&key("2")).unwrap().to_string().contains("gemm"));
        for other in [
            key("3"),
            Key { adapter: "b".to_owned(), ..key("1") },
            Key { api: "metal".to_owned(), ..key("1") },
            Key { build: "older".to_owned(), ..key("1") },
            Key { model: "other".to_owned(), ..key("1") },
        ] {
            assert!(notes.answer(&other).is_none() && notes.refused(&other).is_none(), "{other:?}");
        }
        // A later verdict takes the earlier one's place.
        let mut notes = notes;
        notes.prove(key("2"), vec![2.0]);
        assert_eq!((notes.refused(&key("2")), notes.answer(&key("2"))), (None, Some(vec![2.0])));
    }

    #[test]
    fn the_notes_do_not_grow_and_damaged_ones_are_none() {
        let mut notes = GpuNotes::default();
        for n in 0..3 * MOST {
            notes.prove(key(&n.to_string()), vec![0.0]);
        }
        assert_eq!(notes.notes.len(), MOST);
        assert!(notes.answer(&key("0")).is_none() && notes.answer(&key("47")).is_some());
        let bytes = notes.to_bytes();
        for len in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            assert_eq!(GpuNotes::parse(&bytes[..len]), GpuNotes::default());
        }
        let text = String::from_utf8(bytes).unwrap().replacen("\"version\":1", "\"version\":2", 1);
        assert_eq!(GpuNotes::parse(text.as_bytes()), GpuNotes::default());
    }
}
