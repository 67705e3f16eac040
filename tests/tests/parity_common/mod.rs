//! What the parity tests share: reference files, agreement, models opened the way a test wants them.
#![allow(dead_code)] // each test file uses its part

use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_kernels::isa::Isa;

/// A JSON file of references.
pub fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A list of numbers as f32.
pub fn vector(value: &Value) -> Vec<f32> {
    #[allow(clippy::cast_possible_truncation)]
    value.as_array().expect("a vector").iter().map(|x| x.as_f64().expect("a number") as f32).collect()
}

/// A list of token ids.
pub fn ids(value: &Value) -> Vec<u32> {
    let id = |x: &Value| u32::try_from(x.as_u64().expect("a token id")).expect("a token id");
    value.as_array().expect("token ids").iter().map(id).collect()
}

/// A list of lists.
pub fn each<T>(value: &Value, of: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("a list").iter().map(of).collect()
}

/// The Euclidean norm.
pub fn norm(v: &[f32]) -> f64 {
    v.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt()
}

/// The cosine of two vectors, in f64.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "the vectors' widths");
    let dot: f64 = a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
    dot / (norm(a) * norm(b))
}

/// Mean and minimum of cosines.
#[derive(Clone, Copy, Debug)]
pub struct Agreement {
    /// How many prompts.
    pub n: usize,
    /// The mean cosine.
    pub mean: f64,
    /// The lowest cosine.
    pub min: f64,
}

impl Agreement {
    /// Of cosines, none of which may be NaN.
    pub fn of(cosines: &[f64]) -> Self {
        assert!(!cosines.is_empty() && cosines.iter().all(|c| c.is_finite()), "cosines: {cosines:?}");
        #[allow(clippy::cast_precision_loss)]
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        Self { n: cosines.len(), mean, min: cosines.iter().copied().fold(f64::INFINITY, f64::min) }
    }
}

/// The standard error of the mean difference of two lists of cosines, prompt by prompt.
#[allow(clippy::cast_precision_loss)]
pub fn standard_error(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let difference: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    let mean = difference.iter().sum::<f64>() / n;
    (difference.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n * (n - 1.0))).sqrt()
}

/// Options of a test: this instruction set (the best where `None`), this many threads.
pub fn options(isa: Option<Isa>, threads: usize) -> BackboneOptions {
    BackboneOptions { isa, threads: Some(threads), ..BackboneOptions::default() }
}

/// The GGUF in these bytes.
pub fn gguf(name: &str, bytes: Vec<u8>) -> Gguf {
    Gguf::open(Arc::new(Memory::new(name, bytes))).unwrap_or_else(|e| panic!("{e}"))
}

/// The GGUF at `path`, mapped.
pub fn mapped(path: &Path) -> Gguf {
    let source = Memory::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Gguf::open(Arc::new(source)).unwrap_or_else(|e| panic!("{e}"))
}

/// A backbone over `gguf`.
pub fn load(gguf: &Gguf, options: &BackboneOptions) -> Backbone {
    Backbone::load(gguf, options).unwrap_or_else(|e| panic!("{e}"))
}

/// The raw last-token vector.
pub fn embed(backbone: &Backbone, ids: &[u32]) -> Vec<f32> {
    let vector = backbone.embed(ids).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(vector.len(), backbone.hidden_size());
    vector
}

/// The vector's bits: what "the same" means here (an equality that -0 and NaN cannot fool).
pub fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|x| x.to_bits()).collect()
}

/// A GGUF whose F16 tensors are F32, with the same values: what the fixtures were made from.
///
/// The committed files are F16 because half the size is enough to say what each weight is. Knows only what
/// `make_tiny.py` writes: version 3, alignment 32.
pub fn expanded(file: &[u8]) -> Vec<u8> {
    const ALIGNMENT: usize = 32;
    struct Cursor<'a>(&'a [u8], usize);
    impl<'a> Cursor<'a> {
        fn take(&mut self, n: usize) -> &'a [u8] {
            self.1 += n;
            &self.0[self.1 - n..self.1]
        }
        fn u32(&mut self) -> u32 {
            u32::from_le_bytes(self.take(4).try_into().unwrap())
        }
        fn u64(&mut self) -> usize {
            usize::try_from(u64::from_le_bytes(self.take(8).try_into().unwrap())).unwrap()
        }
        fn string(&mut self) -> &'a [u8] {
            let n = self.u64();
            self.take(n)
        }
        fn value(&mut self, kind: u32) {
            match kind {
                0 | 1 | 7 => self.take(1),
                2 | 3 => self.take(2),
                4..=6 => self.take(4),
                8 => self.string(),
                9 => {
                    let (kind, n) = (self.u32(), self.u64());
                    (0..n).for_each(|_| self.value(kind));
                    &[]
                }
                _ => self.take(8),
            };
        }
    }
    let mut at = Cursor(file, 0);
    assert_eq!(at.take(8), b"GGUF\x03\0\0\0");
    let (tensors, keys) = (at.u64(), at.u64());
    for _ in 0..keys {
        at.string();
        let kind = at.u32();
        at.value(kind);
    }
    let mut out = file[..at.1].to_vec();
    let mut table = Vec::new();
    for _ in 0..tensors {
        let start = at.1;
        at.string();
        let dims = at.u32() as usize;
        let elements: usize = (0..dims).map(|_| at.u64()).product();
        let head = &file[start..at.1];
        let (kind, offset) = (at.u32(), at.u64());
        table.push((head, elements, kind, offset));
    }
    let data = &file[at.1.next_multiple_of(ALIGNMENT)..];
    let mut blob: Vec<u8> = Vec::new();
    for (head, elements, kind, offset) in table {
        out.extend_from_slice(head);
        out.extend_from_slice(&0u32.to_le_bytes());
        out.extend_from_slice(&(blob.len() as u64).to_le_bytes());
        match kind {
            0 => blob.extend_from_slice(&data[offset..][..4 * elements]),
            1 => blob
                .extend(data[offset..][..2 * elements].chunks_exact(2).flat_map(|h| widen(h).to_le_bytes())),
            _ => panic!("make_tiny.py writes F32 and F16 alone, not {kind}"),
        }
        blob.resize(blob.len().next_multiple_of(ALIGNMENT), 0);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out.extend_from_slice(&blob);
    out
}

/// f16 to f32 by the definition, apart from the kernels' own.
fn widen(half: &[u8]) -> f32 {
    let bits = u16::from_le_bytes([half[0], half[1]]);
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    assert!(exponent < 31, "a weight is finite");
    let size = if exponent == 0 {
        fraction * 2f32.powi(-24)
    } else {
        (fraction + 1024.0) * 2f32.powi(exponent - 25)
    };
    if bits >> 15 == 1 { -size } else { size }
}
