//! Which columns of each matrix matter: the mean square of what a catalog's own prompts put into them.

use super::{Progress, QuantizeError};
use crate::rows;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use zen_edge_core::backbone::{Backbone, BackboneOptions, Observer};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_kernels::pool::Pool;

/// The importance of columns, by the tensors' names.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    /// The file of the prompts, without its folder.
    pub file: String,
    /// How many prompts were read.
    pub prompts: usize,
    /// Their tokens.
    pub tokens: u64,
    /// For each matrix, the importance of each of its columns.
    pub columns: BTreeMap<String, Vec<f32>>,
}

/// As many tokens of average activation each column is said to have seen beforehand. The last layer's queries see one token a
/// prompt: a column that is small in a few of them is not known to be small.
const PRIOR: f64 = 4.0;
/// Tokens of a prompt that are read: what comes after adds little to a mean, and much time.
const LIMIT: usize = 512;

/// Sums of squares by layer and part: how many tokens, and of each column.
#[derive(Default)]
struct Sums {
    by_matrix: Mutex<BTreeMap<(usize, &'static str), Columns>>,
}

type Columns = (u64, Vec<f64>);

impl Observer for Sums {
    fn product(&self, layer: usize, part: &'static str, inputs: &[f32], columns: usize) {
        let Ok(mut all) = self.by_matrix.lock() else { return };
        let (count, squares) = all.entry((layer, part)).or_insert_with(|| (0, vec![0.0; columns]));
        for row in inputs.chunks_exact(columns) {
            *count += 1;
            for (sum, value) in squares.iter_mut().zip(row) {
                *sum += f64::from(*value) * f64::from(*value);
            }
        }
    }
}

impl Importance {
    /// Runs the prompts of `file` (JSON lines) through the backbone of `gguf` and sums up what its matrices are multiplied
    /// with. `progress` is told of every prompt; where it gives `false`, the work ends.
    ///
    /// # Errors
    /// [`QuantizeError`]: prompts that cannot be read, a model that does not run.
    pub fn collect(
        gguf: &Gguf,
        file: &Path,
        pool: &Pool,
        progress: &mut dyn FnMut(Progress<'_>) -> bool,
    ) -> Result<Importance, QuantizeError> {
        let rows = rows::each(file, |row: rows::Row| Ok(row))?;
        let tokenizer = Tokenizer::from_gguf(gguf)?;
        let mut backbone = Backbone::load(
            gguf,
            &BackboneOptions { pool: Some(pool.clone()), ..BackboneOptions::default() },
        )?;
        let sums = Arc::new(Sums::default());
        backbone.observe(sums.clone());
        let mut tokens = 0;
        let mut prompts = 0;
        for (i, row) in rows.iter().enumerate() {
            if !progress(Progress { stage: "prompts", share: i as f64 / rows.len() as f64 }) {
                return Err(QuantizeError::Cancelled);
            }
            let (ids, _) = tokenizer.encode_limited(&row.prompt, &EncodeOptions::default(), LIMIT);
            if ids.is_empty() {
                continue;
            }
            backbone.embed(&ids)?;
            tokens += ids.len() as u64;
            prompts += 1;
        }
        let all = sums.by_matrix.lock().map(|mut all| std::mem::take(&mut *all)).unwrap_or_default();
        let columns = all.into_iter().map(|((layer, part), (count, squares))| {
            let mean = squares.iter().sum::<f64>() / (squares.len() as f64 * count.max(1) as f64);
            let of = |sum: &f64| ((sum + PRIOR * mean) / (count as f64 + PRIOR)) as f32;
            (format!("blk.{layer}.{part}.weight"), squares.iter().map(of).collect())
        });
        Ok(Importance {
            file: file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
            prompts,
            tokens,
            columns: columns.collect(),
        })
    }
}
