//! What the residual stream looks like on its way, for who must find where a model breaks.

use super::forward::Place;
use super::{Backbone, BackboneError};

/// The residual stream after a layer.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LayerTrace {
    /// After how many layers; 0 is the embedding.
    pub layers: usize,
    /// Its root mean square over all tokens, those that are not finite left out.
    pub rms: f32,
    /// The largest magnitude of a finite value.
    pub largest: f32,
    /// Values that are infinite or NaN.
    pub not_finite: usize,
}

/// Where a value that is infinite or NaN was found first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The layer, from 1; 0 is the embedding, the number of layers + 1 the final norm.
    pub layer: usize,
    /// What of the layer: `embedding`, `queries`, `keys`, `values`, `attention`, `attention output`, `gate`, `ffn output` or
    /// `final norm`.
    pub part: &'static str,
    /// The first token, from 0, that has it.
    pub token: usize,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part {
            part @ ("embedding" | "final norm") => write!(f, "the {part}")?,
            part => write!(f, "layer {}, {part}", self.layer)?,
        }
        write!(f, ", token {} of the prompt", self.token + 1)
    }
}

/// A prompt's way through the layers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Trace {
    /// One entry for the embedding and one for each layer.
    pub layers: Vec<LayerTrace>,
    /// The first value that is not finite, where there is one.
    pub fault: Option<Fault>,
}

impl Backbone {
    /// Runs a prompt through every layer and looks at each step: slower than a pass that only answers, and it goes on where
    /// such a pass ends with [`BackboneError::NotFinite`].
    ///
    /// # Errors
    /// As [`embed`](Self::embed), but a value that is not finite is what it reports.
    pub fn trace(&self, ids: &[u32]) -> Result<Trace, BackboneError> {
        let mut trace = Trace { layers: Vec::with_capacity(self.shape.layers + 1), fault: None };
        self.watch(ids, &mut |place, values| {
            let rows = values.len() / ids.len();
            if let (None, Some(at)) = (&trace.fault, values.iter().position(|value| !value.is_finite())) {
                let Place { layer, part, .. } = place;
                trace.fault = Some(Fault { layer, part, token: at / rows });
            }
            if place.whole {
                trace.layers.push(summary(place.layer, values));
            }
        })?;
        Ok(trace)
    }
}

fn summary(layers: usize, values: &[f32]) -> LayerTrace {
    let (mut squares, mut largest, mut finite) = (0.0f64, 0.0f32, 0usize);
    for value in values.iter().filter(|value| value.is_finite()) {
        squares += f64::from(*value).powi(2);
        largest = largest.max(value.abs());
        finite += 1;
    }
    let rms = (squares / finite.max(1) as f64).sqrt() as f32;
    LayerTrace { layers, rms, largest, not_finite: values.len() - finite }
}
