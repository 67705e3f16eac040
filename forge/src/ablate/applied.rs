//! A scheme on its way through a backbone's weights, and the count of what it reached.

use super::AblateError;
use super::hadamard::Rotation;
use super::schemes::{Scheme, half_precision, type_bits};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use zen_edge_core::backbone::{Held, Weights};
use zen_edge_core::gguf::{Gguf, TensorInfo};
use zen_edge_kernels::format::{BlockType, dequantize, encode_in};
use zen_edge_kernels::pool::Pool;

/// Rows that a thread takes at a time.
const ROWS: usize = 64;

/// The embedding; where it is tied it is the LM head too.
const EMBEDDING: &str = "token_embd.weight";
/// The LM head, where it has a tensor of its own. A router never reads it.
const HEAD: &str = "output.weight";

/// Weights that a scheme reached, of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reached {
    /// Those that were quantised.
    pub touched: u64,
    /// All.
    pub all: u64,
}

/// Matrices that got another type than the scheme's, because their rows are not whole blocks of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fallback {
    /// What they got.
    pub ty: &'static str,
    /// How many matrices.
    pub matrices: usize,
    /// Their weights.
    pub weights: u64,
}

/// What share of a backbone's weights a scheme reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Weights of the layers' matrices.
    pub matrices: Reached,
    /// Weights of the embedding.
    pub embedding: Reached,
    /// Touched weights over all of both.
    pub share: f64,
    /// Weights whose value changed.
    pub changed: u64,
    /// Weights of norms, which no scheme touches.
    pub norms: u64,
    /// Weights of tensors that a router never reads (an LM head of its own).
    pub unread: u64,
    /// Matrices that the scheme leaves alone by its name.
    pub left: Vec<String>,
    /// What took the scheme's place where rows are not whole blocks.
    pub fallbacks: Vec<Fallback>,
}

/// A scheme, applied to every matrix as it is loaded.
pub(super) struct Applied<'a> {
    scheme: Scheme,
    seed: u64,
    pool: &'a Pool,
    rotations: HashMap<usize, Rotation>,
    coverage: Coverage,
    touched: BTreeSet<String>,
    fallbacks: BTreeMap<BlockType, Fallback>,
    /// Bits of all weights that are read.
    bits: f64,
    /// The first fault; nothing is changed after it.
    fault: Option<AblateError>,
}

impl<'a> Applied<'a> {
    pub(super) fn new(scheme: Scheme, seed: u64, pool: &'a Pool) -> Self {
        Self {
            scheme,
            seed,
            pool,
            rotations: HashMap::new(),
            coverage: Coverage::default(),
            touched: BTreeSet::new(),
            fallbacks: BTreeMap::new(),
            bits: 0.0,
            fault: None,
        }
    }

    /// What was reached, and the bits that a weight takes on average.
    ///
    /// # Errors
    /// The first fault; [`AblateError::Missed`] and [`AblateError::Untouched`]: a scheme that passes a matrix over would
    /// be judged by weights that it never saw.
    pub(super) fn finish(mut self, gguf: &Gguf) -> Result<(Coverage, f64), AblateError> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        for tensor in gguf.tensors() {
            let name = tensor.name.as_str();
            if name == HEAD {
                self.coverage.unread += tensor.elements();
            } else if tensor.dims.len() < 2 || tensor.rows() == 1 {
                self.coverage.norms += tensor.elements();
            } else if !self.touched.contains(name) && !self.coverage.left.iter().any(|left| left == name) {
                return Err(AblateError::Missed { scheme: self.scheme, tensor: name.to_owned() });
            }
        }
        let (matrices, embedding) = (self.coverage.matrices, self.coverage.embedding);
        let (touched, all) = (matrices.touched + embedding.touched, matrices.all + embedding.all);
        if touched == 0 {
            return Err(AblateError::Untouched { scheme: self.scheme });
        }
        self.coverage.share = touched as f64 / all as f64;
        self.coverage.fallbacks = self.fallbacks.into_values().collect();
        Ok((self.coverage, self.bits / all as f64))
    }

    fn try_change(
        &mut self,
        tensor: &TensorInfo,
        cols: usize,
        values: &mut [f32],
    ) -> Result<u64, AblateError> {
        let Self { scheme, seed, pool, rotations, .. } = self;
        let scheme = *scheme;
        match scheme {
            Scheme::Float16 => Ok(by_rows(pool, cols, values, &half_precision)),
            Scheme::Int(int) => {
                if int.rot && !rotations.contains_key(&cols) {
                    let tensor = || tensor.name.clone();
                    let rotation = Rotation::new(cols, *seed).ok_or_else(|| AblateError::Rotation {
                        scheme,
                        tensor: tensor(),
                        cols,
                    })?;
                    rotations.insert(cols, rotation);
                }
                let rotation = rotations.get(&cols).filter(|_| int.rot);
                Ok(by_rows(pool, cols, values, &|row| int.apply(row, rotation)))
            }
            Scheme::Block { ty, .. } => {
                let ty = Scheme::block_type(ty, cols);
                let failed = |source| AblateError::Encode { scheme, tensor: tensor.name.clone(), source };
                let before = values.to_vec();
                let bytes = encode_in(pool, ty, values, None).map_err(failed)?;
                dequantize(ty, &bytes, values);
                Ok(others(values, &before))
            }
        }
    }
}

/// Changes each row, spread over the pool; how many values are others now.
fn by_rows(pool: &Pool, cols: usize, values: &mut [f32], change: &(dyn Fn(&mut [f32]) + Sync)) -> u64 {
    let parts: Vec<Mutex<&mut [f32]>> = values.chunks_mut((ROWS * cols).max(1)).map(Mutex::new).collect();
    let changed = AtomicU64::new(0);
    pool.run(parts.len(), &|at| {
        // Each part is one iteration's alone: its lock is free and whole.
        let Ok(mut part) = parts[at].lock() else { return };
        let before = part.to_vec();
        part.chunks_mut(cols.max(1)).for_each(change);
        changed.fetch_add(others(&part, &before), Ordering::Relaxed);
    });
    changed.into_inner()
}

/// How many values are others than before.
fn others(now: &[f32], before: &[f32]) -> u64 {
    now.iter().zip(before).filter(|(now, before)| now.to_bits() != before.to_bits()).count() as u64
}

impl Weights for Applied<'_> {
    fn held(&mut self, tensor: &TensorInfo) -> Held {
        let (embedding, n) = (tensor.name == EMBEDDING, tensor.elements());
        let of = if embedding { &mut self.coverage.embedding } else { &mut self.coverage.matrices };
        of.all += n;
        if embedding && self.scheme.leaves_head() {
            self.coverage.left.push(tensor.name.clone());
            let bits = tensor.block_type().map_or(0.0, type_bits);
            self.bits += bits * n as f64;
            return Held::Float;
        }
        Held::Changed
    }

    fn change(&mut self, tensor: &TensorInfo, cols: usize, values: &mut [f32]) {
        if self.fault.is_some() {
            return;
        }
        match self.try_change(tensor, cols, values) {
            Ok(changed) => {
                let n = values.len() as u64;
                let embedding = tensor.name == EMBEDDING;
                let of = if embedding { &mut self.coverage.embedding } else { &mut self.coverage.matrices };
                of.touched += n;
                self.coverage.changed += changed;
                self.bits += self.scheme.bits(cols) * n as f64;
                self.touched.insert(tensor.name.clone());
                if let Scheme::Block { ty, .. } = self.scheme
                    && let got = Scheme::block_type(ty, cols)
                    && got != ty
                {
                    let none = Fallback { ty: got.name(), matrices: 0, weights: 0 };
                    let fallback = self.fallbacks.entry(got).or_insert(none);
                    fallback.matrices += 1;
                    fallback.weights += n;
                }
            }
            Err(fault) => self.fault = Some(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zen_edge_core::source::Memory;

    /// A container of three tensors, of which a backbone would load two.
    fn gguf() -> Gguf {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend(3u64.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        let mut offset = 0u64;
        for (name, dims) in
            [(EMBEDDING, vec![4u64, 8]), ("blk.0.ffn_up.weight", vec![4, 4]), ("output_norm.weight", vec![4])]
        {
            file.extend((name.len() as u64).to_le_bytes());
            file.extend(name.as_bytes());
            file.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|n| file.extend(n.to_le_bytes()));
            file.extend(0u32.to_le_bytes());
            file.extend(offset.to_le_bytes());
            offset += (4 * dims.iter().product::<u64>()).next_multiple_of(32);
        }
        file.resize(file.len().next_multiple_of(32) + offset as usize, 0);
        Gguf::open(Arc::new(Memory::new("three.gguf", file))).unwrap()
    }

    fn reach(scheme: &str, names: &[&str]) -> Result<(Coverage, f64), AblateError> {
        let (gguf, pool) = (gguf(), Pool::single());
        let mut applied = Applied::new(scheme.parse().unwrap(), 0, &pool);
        for name in names {
            let tensor = gguf.tensor(name).unwrap();
            if applied.held(tensor) == Held::Changed {
                let mut values: Vec<f32> = (0..tensor.elements()).map(|i| i as f32 * 0.3).collect();
                applied.change(tensor, 4, &mut values);
            }
        }
        applied.finish(&gguf)
    }

    #[test]
    fn every_weight_is_counted_once() {
        let (coverage, bits) = reach("int8", &[EMBEDDING, "blk.0.ffn_up.weight"]).unwrap();
        assert_eq!(coverage.embedding, Reached { touched: 32, all: 32 });
        assert_eq!(coverage.matrices, Reached { touched: 16, all: 16 });
        assert_eq!((coverage.share, coverage.norms), (1.0, 4));
        assert!(coverage.changed > 0 && coverage.changed < 48);
        assert_eq!(bits, 8.0 + 16.0 / 4.0);
        let (coverage, bits) = reach("int8-nohead", &[EMBEDDING, "blk.0.ffn_up.weight"]).unwrap();
        assert_eq!(coverage.embedding, Reached { touched: 0, all: 32 });
        assert_eq!((coverage.share, coverage.left), (1.0 / 3.0, vec![EMBEDDING.to_owned()]));
        assert_eq!(bits, (32.0 * 32.0 + 16.0 * 12.0) / 48.0);
    }

    #[test]
    fn the_first_fault_is_told() {
        let (gguf, pool) = (gguf(), Pool::single());
        let fault = |scheme: &str, cols: usize, values: &mut [f32]| {
            let mut applied = Applied::new(scheme.parse().unwrap(), 0, &pool);
            applied.change(gguf.tensor(EMBEDDING).unwrap(), cols, values);
            applied.finish(&gguf).unwrap_err()
        };
        let odd = fault("int4-rot", 7, &mut [1.0; 14]);
        assert!(
            matches!(&odd, AblateError::Rotation { tensor, cols: 7, .. } if tensor == EMBEDDING),
            "{odd}"
        );
        let damaged = fault("q8_0", 32, &mut [f32::NAN; 64]);
        assert!(matches!(&damaged, AblateError::Encode { .. }), "{damaged}");
    }

    #[test]
    fn a_matrix_that_was_passed_over_is_an_error() {
        let missed = reach("int8", &[EMBEDDING]).unwrap_err();
        assert!(
            matches!(&missed, AblateError::Missed { tensor, .. } if tensor == "blk.0.ffn_up.weight"),
            "{missed}"
        );
        // nohead excuses the embedding alone, and not that it was never met.
        let missed = reach("int8-nohead", &["blk.0.ffn_up.weight"]).unwrap_err();
        assert!(matches!(&missed, AblateError::Missed { tensor, .. } if tensor == EMBEDDING), "{missed}");
    }
}
