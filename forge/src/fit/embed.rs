//! Each prompt's vector, read once by the very backbone that will serve, and kept on disk.
//!
//! The prompts go through a [`Router`] whose heads say nothing: tokens, truncation and arithmetic are those of a router, for
//! they are a router's. The cache is one file for each backbone, read-out and truncation rule; it only grows, each record
//! has a checksum, and what was written before a run was broken off is used by the next.

use super::error::FitError;
use super::matrix::Matrix;
use safetensors::tensor::{Dtype, TensorView};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, Pooling};
use zen_edge_core::config::Keep;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::heads::TENSORS;
use zen_edge_core::pack::{LoadError, Pack, Part};
use zen_edge_core::router::{Router, RouterOptions};
use zen_edge_core::source::{Memory, Source, sha256};

/// Raised when the engine gives a prompt another vector than before, in any bit.
pub const ENGINE_CONTRACT: u32 = 1;
/// Prompts that are tokenised and read together.
const BATCH: usize = 32;
const MAGIC: &[u8; 8] = b"ZENVEC1\n";
/// Magic, key, width, checksum.
const HEADER: usize = 8 + 32 + 4 + 8;

/// What is read of a prompt, and what of a pass becomes its vector: the keys of `router_config.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Unicode scalar values that are read.
    pub max_chars: usize,
    /// Tokens that are read.
    pub max_tokens: usize,
    /// Which side of a long prompt.
    pub keep: Keep,
    /// Whether the beginning-of-sequence token goes before; `None`: as the GGUF says.
    pub add_bos: Option<bool>,
    /// Whether the end-of-sequence token goes behind; `None`: as the GGUF says.
    pub add_eos: Option<bool>,
    /// Whether special tokens that stand in a prompt stay text.
    pub plain_text: bool,
    /// What of a pass becomes the vector.
    pub pooling: Pooling,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            max_chars: 4000,
            max_tokens: 2048,
            keep: Keep::Start,
            add_bos: None,
            add_eos: None,
            plain_text: false,
            pooling: Pooling::default(),
        }
    }
}

impl Reading {
    /// The keys for a config.
    pub fn keys(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut keys = serde_json::Map::new();
        let keep = match self.keep {
            Keep::Start => "start",
            Keep::End => "end",
        };
        keys.insert("pooling".into(), self.pooling.to_string().into());
        keys.insert("max_chars".into(), self.max_chars.into());
        keys.insert("max_tokens".into(), self.max_tokens.into());
        keys.insert("keep".into(), keep.into());
        if let Some(bos) = self.add_bos {
            keys.insert("add_bos".into(), bos.into());
        }
        if let Some(eos) = self.add_eos {
            keys.insert("add_eos".into(), eos.into());
        }
        keys.insert("plain_text".into(), self.plain_text.into());
        keys
    }
}

/// A backbone that reads prompts as a router does.
pub struct Reader {
    router: Router,
    reading: Reading,
    sha256: String,
}

impl Reader {
    /// Loads a backbone. Where `reading` leaves the tokens around a prompt to the GGUF, they are what it says from now on.
    ///
    /// # Errors
    /// What a router's load says of the backbone, its tokenizer and the pooling.
    pub fn open(model: Arc<dyn Source>, reading: Reading, threads: Option<usize>) -> Result<Self, FitError> {
        let io = |source| LoadError::Io { file: model.name().to_owned(), source };
        let hash = sha256(&*model).map_err(io)?;
        let hidden = {
            let gguf = Gguf::open(model.clone()).map_err(LoadError::from)?;
            zen_edge_core::backbone::Shape::read(&gguf).map_err(LoadError::from)?.hidden
        };
        let mut reading = reading;
        let pack = silent_pack(model, hidden, &reading)?;
        // Nothing is kept of the prompts but what the cache file holds.
        let options = RouterOptions {
            threads,
            cache_bytes: Some(0),
            prefix_bytes: Some(0),
            ..RouterOptions::default()
        };
        let router = Router::load(&pack, &options)?;
        reading.add_bos.get_or_insert(router.tokenizer().adds_bos());
        reading.add_eos.get_or_insert(router.tokenizer().adds_eos());
        Ok(Self { router, reading, sha256: hash })
    }

    /// The backbone.
    pub fn backbone(&self) -> &Backbone {
        self.router.backbone()
    }

    /// What is read of a prompt.
    pub const fn reading(&self) -> &Reading {
        &self.reading
    }

    /// The SHA-256 of the backbone's file.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// What vectors of this reader are kept under.
    pub fn key(&self) -> [u8; 32] {
        let rule = serde_json::Value::Object(self.reading.keys());
        Sha256::digest(format!("{ENGINE_CONTRACT}\n{}\n{rule}", self.sha256)).into()
    }

    /// The vectors of some prompts, with their tokens and whether they were cut.
    ///
    /// # Errors
    /// What the backbone says.
    pub fn read(&self, prompts: &[&str]) -> Result<Vec<Vector>, FitError> {
        let encoded: Vec<(Vec<u32>, bool)> = prompts.iter().map(|p| self.router.encode(p, None)).collect();
        let ids: Vec<&[u32]> = encoded.iter().map(|(ids, _)| ids.as_slice()).collect();
        let vectors = self.router.backbone().embed_batch(&ids).map_err(LoadError::from)?;
        let read = vectors.into_iter().zip(&encoded).map(|(values, (ids, truncated))| Vector {
            values,
            tokens: ids.len() as u32,
            truncated: *truncated,
        });
        Ok(read.collect())
    }
}

/// A pack around a backbone whose heads are zeros.
fn silent_pack(model: Arc<dyn Source>, hidden: usize, reading: &Reading) -> Result<Pack, FitError> {
    let mut config = reading.keys();
    config.insert("tasks".into(), serde_json::json!(["general"]));
    config.insert("catalog".into(), serde_json::json!(["none"]));
    config.insert("trained".into(), serde_json::json!([false]));
    config.insert("hidden_size".into(), hidden.into());
    config.insert("feature_dim".into(), 1.into());
    let width = reading.pooling.width(hidden);
    let zeros = vec![0u8; 4 * width];
    let views = TENSORS.map(|name| {
        let shape = if name.ends_with("weight") { vec![1, width] } else { vec![1] };
        let bytes = &zeros[..4 * shape.iter().product::<usize>()];
        TensorView::new(Dtype::F32, shape, bytes).map(|view| (name, view))
    });
    let views = views.into_iter().collect::<Result<Vec<_>, _>>().map_err(FitError::Serialize)?;
    let heads = safetensors::serialize(views, None).map_err(FitError::Serialize)?;
    Ok(Pack {
        model,
        heads: Arc::new(Memory::new("heads that say nothing", heads)),
        config: Part::new("fit", serde_json::Value::Object(config).to_string()),
        catalog: None,
        policy: None,
    })
}

/// What was read of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// The vector, not normalised.
    pub values: Vec<f32>,
    /// How many tokens were read.
    pub tokens: u32,
    /// Whether the prompt was longer.
    pub truncated: bool,
}

/// Vectors on disk. One process at a time: the file is locked.
#[derive(Debug)]
pub struct Cache {
    file: File,
    path: PathBuf,
    width: usize,
    known: HashMap<[u8; 32], Vector>,
    /// Bytes of damaged records that were cut off the end.
    pub cut: u64,
}

impl Cache {
    /// Opens a cache or begins one. Records after a damaged one are cut off and read anew.
    ///
    /// # Errors
    /// [`FitError::CacheIo`]; [`FitError::CacheKey`] for a file of another backbone, read-out or rule;
    /// [`FitError::CacheBusy`] where another run has it.
    pub fn open(path: &Path, key: &[u8; 32], width: usize) -> Result<Self, FitError> {
        let io = |source| FitError::CacheIo { file: path.to_owned(), source };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(io)?;
        }
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(FitError::CacheBusy { file: path.to_owned() });
            }
            // A file system without locks: two runs at once would cost time and records, not truth (checksums).
            Err(std::fs::TryLockError::Error(_)) => {}
        }
        let mut cache = Self { file, path: path.to_owned(), width, known: HashMap::new(), cut: 0 };
        let len = cache.file.metadata().map_err(io)?.len();
        let mut header = [MAGIC.as_slice(), key, &(width as u32).to_le_bytes()].concat();
        header.extend(checksum(&header));
        let mut reader = BufReader::with_capacity(1 << 20, &cache.file);
        let mut found = vec![0; HEADER];
        let sound = match reader.read_exact(&mut found) {
            Ok(()) => found[..8] == *MAGIC && checksum(&found[..HEADER - 8]) == found[HEADER - 8..],
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
            Err(error) => return Err(io(error)),
        };
        if !sound {
            // No cache of ours, or one whose first bytes never came to the disk.
            if len >= HEADER as u64 && found[..8] != *MAGIC {
                return Err(FitError::CacheKey { file: path.to_owned() });
            }
            cache.cut = len;
            cache.begin(&header).map_err(io)?;
            return Ok(cache);
        }
        if found != header {
            return Err(FitError::CacheKey { file: path.to_owned() });
        }
        let mut good = HEADER as u64;
        let mut record = vec![0; record_len(width)];
        loop {
            match reader.read_exact(&mut record) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(io(error)),
            }
            let Some((hash, vector)) = parse(&record) else { break };
            cache.known.insert(hash, vector);
            good += record.len() as u64;
        }
        cache.cut = len - good;
        if cache.cut > 0 {
            cache.file.set_len(good).map_err(io)?;
        }
        cache.file.seek(SeekFrom::Start(good)).map_err(io)?;
        Ok(cache)
    }

    fn begin(&mut self, header: &[u8]) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(header)
    }

    /// Forgets everything: the file begins anew.
    ///
    /// # Errors
    /// [`FitError::CacheIo`].
    pub fn clear(&mut self) -> Result<(), FitError> {
        self.known.clear();
        let io = |source| FitError::CacheIo { file: self.path.clone(), source };
        self.file.set_len(HEADER as u64).map_err(io)?;
        self.file.seek(SeekFrom::End(0)).map(|_| ()).map_err(io)
    }

    /// How many vectors it holds.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A prompt's vector, where it is known.
    pub fn get(&self, prompt: &str) -> Option<&Vector> {
        self.known.get(&hash_of(prompt))
    }

    /// Keeps the vectors of prompts: on the disk before it returns.
    ///
    /// # Errors
    /// [`FitError::CacheIo`].
    pub fn put(&mut self, vectors: Vec<(&str, Vector)>) -> Result<(), FitError> {
        let mut bytes = Vec::with_capacity(vectors.len() * record_len(self.width));
        for (prompt, vector) in vectors {
            let (from, hash) = (bytes.len(), hash_of(prompt));
            bytes.extend(hash);
            bytes.extend(vector.tokens.to_le_bytes());
            bytes.extend(u32::from(vector.truncated).to_le_bytes());
            vector.values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            let sum = checksum(&bytes[from..]);
            bytes.extend(sum);
            self.known.insert(hash, vector);
        }
        self.file.write_all(&bytes).map_err(|source| FitError::CacheIo { file: self.path.clone(), source })
    }
}

/// Hash, tokens, whether truncated, values, checksum.
const fn record_len(width: usize) -> usize {
    32 + 4 + 4 + 4 * width + 8
}

fn hash_of(prompt: &str) -> [u8; 32] {
    Sha256::digest(prompt.as_bytes()).into()
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let hash: [u8; 32] = Sha256::digest(bytes).into();
    std::array::from_fn(|at| hash[at])
}

fn parse(record: &[u8]) -> Option<([u8; 32], Vector)> {
    let (body, sum) = record.split_at(record.len() - 8);
    if checksum(body) != *sum {
        return None;
    }
    let hash = body[..32].try_into().ok()?;
    let number = |at: usize| body[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let mut values = Vec::with_capacity((body.len() - 40) / 4);
    for value in body[40..].chunks_exact(4) {
        values.push(f32::from_le_bytes(value.try_into().ok()?));
    }
    Some((hash, Vector { values, tokens: number(32)?, truncated: number(36)? != 0 }))
}

/// What reading the prompts took.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Embedded {
    /// Different prompts.
    pub prompts: usize,
    /// Of these, read now; the others' vectors were on the disk.
    pub read: usize,
    /// Prompts of which only a part was read.
    pub truncated: usize,
    /// Tokens of all prompts.
    pub tokens: u64,
    /// Bytes that were cut off the cache's end, because they were damaged.
    pub cache_cut_bytes: u64,
    /// Whether the cache held other vectors than the backbone gives now, and was begun anew.
    pub cache_outdated: bool,
    /// Seconds.
    pub seconds: f64,
}

/// Vectors of prompts, in the order of `prompts`, which are all different. `told` is given the bytes that are done and those
/// that there are.
///
/// # Errors
/// What the backbone and the cache say.
pub fn vectors(
    reader: &Reader,
    prompts: &[&str],
    cache: Option<&Path>,
    told: &mut dyn FnMut(u64, u64),
) -> Result<(Matrix, Vec<u32>, Embedded), FitError> {
    let start = std::time::Instant::now();
    let width = reader.backbone().vector_size();
    let key = reader.key();
    let mut out = Embedded { prompts: prompts.len(), ..Embedded::default() };
    let mut cache = match cache {
        Some(folder) => {
            let name: String = key[..12].iter().map(|byte| format!("{byte:02x}")).collect();
            Some(Cache::open(&folder.join(format!("{name}.vec")), &key, width)?)
        }
        None => None,
    };
    if let Some(cache) = &mut cache {
        out.cache_cut_bytes = cache.cut;
        // An engine that computes otherwise than the one that filled the cache is seen by one prompt.
        if let Some(&prompt) = prompts.iter().find(|prompt| cache.get(prompt).is_some()) {
            let fresh = reader.read(&[prompt])?.remove(0);
            if cache.get(prompt) != Some(&fresh) {
                cache.clear()?;
                out.cache_outdated = true;
            }
        }
    }
    let size = |prompt: &str| prompt.len().min(4 * reader.reading().max_chars) as u64;
    let missing: Vec<usize> = (0..prompts.len())
        .filter(|&at| cache.as_ref().is_none_or(|cache| cache.get(prompts[at]).is_none()))
        .collect();
    let of: u64 = missing.iter().map(|&at| size(prompts[at])).sum();
    let mut done = 0;
    let mut rows: Vec<Option<Vector>> = vec![None; prompts.len()];
    told(0, of);
    for batch in missing.chunks(BATCH) {
        let texts: Vec<&str> = batch.iter().map(|&at| prompts[at]).collect();
        let read = reader.read(&texts)?;
        if let Some(cache) = &mut cache {
            cache.put(texts.iter().copied().zip(read.iter().cloned()).collect())?;
        }
        for (&at, vector) in batch.iter().zip(read) {
            done += size(prompts[at]);
            rows[at] = Some(vector);
        }
        out.read += batch.len();
        told(done, of);
    }
    let mut x = Matrix::new(width);
    let mut tokens = Vec::with_capacity(prompts.len());
    for (row, prompt) in rows.iter().zip(prompts) {
        let vector = row.as_ref().or_else(|| cache.as_ref().and_then(|cache| cache.get(prompt)));
        // Every prompt is either read above or was found in the cache.
        let Some(vector) = vector else { continue };
        x.data.extend_from_slice(&vector.values);
        tokens.push(vector.tokens);
        out.tokens += u64::from(vector.tokens);
        out.truncated += usize::from(vector.truncated);
    }
    out.seconds = start.elapsed().as_secs_f64();
    Ok((x, tokens, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(max_chars: usize) -> Reader {
        let reading = Reading { max_chars, max_tokens: 64, ..Reading::default() };
        Reader::open(zen_edge_default_pack::pack().model, reading, Some(1)).unwrap()
    }

    fn all(reader: &Reader, prompts: &[&str], cache: Option<&Path>) -> (Matrix, Embedded) {
        let (x, tokens, read) = vectors(reader, prompts, cache, &mut |_, _| {}).unwrap();
        assert_eq!((x.rows(), tokens.len()), (prompts.len(), prompts.len()));
        (x, read)
    }

    fn only_file(folder: &Path) -> PathBuf {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).next().unwrap()
    }

    #[test]
    fn vectors_are_those_of_a_router() {
        let reader = reader(20);
        let (x, read) = all(&reader, &["Hi!", "a prompt that is longer than twenty characters"], None);
        assert_eq!((read.read, read.truncated), (2, 1));
        let router = Router::load(&zen_edge_default_pack::pack(), &RouterOptions::default()).unwrap();
        let request = zen_edge_core::router::Request::default();
        assert_eq!(router.embed("Hi!", &request).unwrap().vector, x.row(0));
        assert_eq!(router.embed("a prompt that is lon", &request).unwrap().vector, x.row(1));
    }

    #[test]
    fn a_cache_resumes_and_a_damaged_tail_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Some(folder.path());
        let reader = reader(4000);
        let (plain, _) = all(&reader, &["a", "b", "c"], None);
        let (_, read) = all(&reader, &["a", "b"], cache);
        assert_eq!(read.read, 2);
        let (x, read) = all(&reader, &["a", "b", "c"], cache);
        assert_eq!((read.read, read.cache_cut_bytes, &x), (1, 0, &plain));
        // Broken off in the middle of the last record.
        let file = only_file(folder.path());
        let len = std::fs::metadata(&file).unwrap().len();
        OpenOptions::new().write(true).open(&file).unwrap().set_len(len - 100).unwrap();
        let (x, read) = all(&reader, &["a", "b", "c"], cache);
        assert_eq!((read.read, read.cache_cut_bytes, &x), (1, record_len(256) as u64 - 100, &plain));
        // A bit that turned over in the second record: it and what follows are read anew.
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[HEADER + record_len(256) + 90] ^= 1;
        std::fs::write(&file, &bytes).unwrap();
        let (x, read) = all(&reader, &["a", "b", "c"], cache);
        assert_eq!((read.read, &x), (2, &plain));
        let (_, read) = all(&reader, &["a", "b", "c"], cache);
        assert_eq!((read.read, read.cache_cut_bytes), (0, 0));
    }

    #[test]
    fn a_cache_is_of_one_backbone_and_rule() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (reader(4000), reader(30));
        all(&one, &["a"], Some(folder.path()));
        let (_, read) = all(&other, &["a"], Some(folder.path()));
        assert_eq!(read.read, 1, "another rule has a file of its own");
        let path = folder.path().join("x.vec");
        drop(Cache::open(&path, &one.key(), 256).unwrap());
        assert!(matches!(Cache::open(&path, &other.key(), 256), Err(FitError::CacheKey { .. })));
        assert!(matches!(Cache::open(&path, &one.key(), 128), Err(FitError::CacheKey { .. })));
        std::fs::write(&path, "something else that someone keeps here, long enough to have a header")
            .unwrap();
        assert!(matches!(Cache::open(&path, &one.key(), 256), Err(FitError::CacheKey { .. })));
        let path = folder.path().join("y.vec");
        let held = Cache::open(&path, &one.key(), 256).unwrap();
        assert!(matches!(Cache::open(&path, &one.key(), 256), Err(FitError::CacheBusy { .. })));
        drop(held);
    }

    #[test]
    fn vectors_of_another_engine_are_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let reader = reader(4000);
        let (plain, _) = all(&reader, &["a", "b"], Some(folder.path()));
        {
            let mut cache = Cache::open(&only_file(folder.path()), &reader.key(), 256).unwrap();
            cache.clear().unwrap();
            let odd = || Vector { values: vec![1.0; 256], tokens: 1, truncated: false };
            cache.put(vec![("a", odd()), ("b", odd())]).unwrap();
        }
        let (x, read) = all(&reader, &["a", "b"], Some(folder.path()));
        assert!(read.cache_outdated && read.read == 2 && x == plain, "{read:?}");
    }
}
