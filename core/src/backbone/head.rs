//! The LM head: a hidden state to the logits of the vocabulary.

use super::forward::finite;
use super::{Backbone, BackboneError, weights};
use crate::gguf::Gguf;
use zen_edge_kernels::gemm::{Activations, Input, Matrix, Product, matmul};

/// The LM head of a backbone. The router never needs it: it is opened by who decodes.
///
/// It is the tensor `output.weight` or, where the embedding is tied, `token_embd.weight`. Where the source maps its bytes
/// it costs no memory of its own; elsewhere it is read whole (128 MB for a vocabulary of 151,936 in Q6_K).
pub struct LmHead {
    matrix: Matrix,
    tied: bool,
}

impl LmHead {
    /// Bytes that one token's logits read.
    pub fn bytes(&self) -> u64 {
        self.matrix.bytes().len() as u64
    }

    /// Whether it is the embedding.
    pub const fn is_tied(&self) -> bool {
        self.tied
    }

    /// Logits that it gives: the vocabulary's size.
    pub const fn vocab(&self) -> usize {
        self.matrix.rows()
    }
}

impl Backbone {
    /// Opens the LM head in the file of this backbone.
    ///
    /// # Errors
    /// A tensor that is not `[hidden_size, vocabulary]`, a format that cannot be run, a file that cannot be read.
    pub fn head(&self, gguf: &Gguf) -> Result<LmHead, BackboneError> {
        let own = gguf.tensor("output.weight");
        let tensor = match own {
            Some(tensor) => tensor,
            None => gguf.require_tensor("token_embd.weight")?,
        };
        let mut arithmetic = self.arithmetic;
        let matrix = weights::matrix(gguf, tensor, self.shape.vocab, self.shape.hidden, &mut arithmetic)?;
        Ok(LmHead { matrix, tied: own.is_none() })
    }

    /// The logits of hidden states: `[row][vocabulary]` for `[row][hidden_size]`.
    ///
    /// # Errors
    /// [`BackboneError::NotFinite`] where the head's weights are damaged: the hidden states were seen to be finite.
    ///
    /// # Panics
    /// Where `hidden` is not whole rows.
    pub fn logits(&self, head: &LmHead, hidden: &[f32]) -> Result<Vec<f32>, BackboneError> {
        let rows = hidden.len() / self.shape.hidden;
        assert_eq!(hidden.len(), rows * self.shape.hidden, "hidden states are not whole rows");
        let mut out = vec![0.0; rows * head.vocab()];
        let mut quantized = Activations::default();
        if head.matrix.is_quantized() {
            quantized.quantize(self.isa, &self.pool, hidden, self.shape.hidden);
        }
        let product = Product { w: &head.matrix, out: &mut out };
        matmul(self.isa, &self.pool, Input { x: hidden, q: &quantized }, &mut [product]);
        finite(out)
    }
}
