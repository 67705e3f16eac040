//! The embedding rows of a prompt's tokens, gathered from the file.

use super::{Backbone, BackboneError};
use crate::gguf::{GgufError, TensorInfo};
use crate::source::Source;
use lru::LruCache;
use std::sync::{Mutex, PoisonError};
use zen_edge_kernels::format::dequantize;
use zen_edge_kernels::ops;

/// Bytes of rows that are kept where a source cannot show them in place.
///
/// Each of them is a call into a browser's storage there, some 0.2 ms: a prompt of 4,000 tokens took 780 ms before its first
/// layer. At 0.6B (840 bytes a row) it is some 5,000 tokens, with the default pack all of them.
const KEPT: usize = 4 << 20;

/// Rows that were read of late, as the file has them.
pub(super) struct Rows(Mutex<LruCache<u32, Box<[u8]>>>);

impl Rows {
    pub fn new() -> Self {
        // Bounded in bytes, by hand: rows are all of one length, which is not known to be above zero.
        Self(Mutex::new(LruCache::unbounded()))
    }

    /// Shows a row's bytes to `see`; they are read where they are not kept.
    fn with(
        &self,
        source: &dyn Source,
        embedding: &TensorInfo,
        id: u32,
        see: impl FnOnce(&[u8]),
    ) -> Result<(), BackboneError> {
        let len = embedding.row_bytes() as usize;
        let offset = embedding.offset + u64::from(id) * len as u64;
        if let Some(bytes) = source.view(offset, len) {
            see(&bytes);
            return Ok(());
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = kept.get(&id) {
            see(row);
            return Ok(());
        }
        let mut row = vec![0; len].into_boxed_slice();
        source.read_at(offset, &mut row).map_err(|error| GgufError::Io {
            file: source.name().to_owned(),
            offset,
            len: len as u64,
            source: error,
        })?;
        see(&row);
        kept.put(id, row);
        while kept.len() > 1 && kept.len() * len > KEPT {
            kept.pop_lru();
        }
        Ok(())
    }
}

impl Backbone {
    /// The embedding rows of `ids`, `[token][hidden]`, scaled as the model does.
    pub(super) fn gather(&self, ids: &[u32], x: &mut Vec<f32>) -> Result<(), BackboneError> {
        let hidden = self.shape.hidden;
        x.resize(ids.len() * hidden, 0.0);
        let ty = self.embedding.block_type()?;
        for (id, x) in ids.iter().zip(x.chunks_exact_mut(hidden)) {
            match &self.changed_embedding {
                Some(values) => x.copy_from_slice(&values[*id as usize * hidden..][..hidden]),
                None => {
                    self.rows.with(&*self.source, &self.embedding, *id, |row| dequantize(ty, row, x))?;
                }
            }
        }
        if let Some(factor) = self.plan.embed_scale {
            ops::scale(x, factor);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;
    use crate::gguf::testing::Builder;
    use crate::source::Memory;
    use std::sync::Arc;

    #[test]
    fn what_is_kept_is_bounded_in_bytes_and_the_row_of_late_is_among_it() {
        struct Far(Memory);
        impl Source for Far {
            fn name(&self) -> &str {
                self.0.name()
            }
            fn len(&self) -> u64 {
                self.0.len()
            }
            fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
                self.0.read_at(offset, buf)
            }
        }
        // Rows of 1 MiB: the bound holds four.
        let (cols, count) = (1 << 18, 6);
        let values: Vec<f32> = (0..cols * count).map(|i| (i / cols) as f32).collect();
        let file = Builder::new("llama")
            .f32_tensor("token_embd.weight", &[cols as u64, count as u64], &values)
            .build();
        let far = Gguf::open(Arc::new(Far(Memory::new("far", file)))).unwrap();
        let embedding = far.require_tensor("token_embd.weight").unwrap();
        let rows = Rows::new();
        for id in [0, 1, 2, 3, 4, 5, 2] {
            let see = |row: &[u8]| assert_eq!(row[..4], (id as f32).to_le_bytes());
            rows.with(&**far.source(), embedding, id, see).unwrap();
        }
        let kept = rows.0.lock().unwrap();
        assert_eq!(kept.len(), 4);
        assert_eq!(kept.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 5, 4, 3]);
    }
}
