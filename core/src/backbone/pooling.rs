//! What of a pass becomes the vector that the heads read.

use super::forward::finite;
use super::{Backbone, BackboneError};
use std::fmt;
use std::str::FromStr;
use zen_edge_kernels::{math, ops};

/// The most parts that a pooling may have.
pub const MAX_PARTS: usize = 16;

/// Which tokens of a layer's output a part takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tokens {
    /// The last token's.
    Last,
    /// The mean over all tokens.
    Mean,
}

/// A part of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// `hidden_size` values. Without a layer those after the final norm; with one the residual stream after so many
    /// layers (from 1), each token's scaled to a root mean square of 1: a few tokens, above all the first, have norms
    /// hundreds of times larger than the others and would be all that a mean shows.
    Hidden {
        /// Which tokens.
        tokens: Tokens,
        /// After how many layers; `None`: after all of them and the final norm.
        layer: Option<usize>,
    },
    /// One value: ln(1 + tokens).
    Length,
}

/// How the vector that the heads read is made of a pass: its parts, one after the other.
///
/// Written as in `router_config.json`: `last` (the last token's hidden state, zen-router's and the default), `mean`,
/// `last@12`, `mean@12` (after 12 layers), `length`, joined by `+`.
///
/// ```
/// use zen_edge_core::backbone::Pooling;
/// let pooling: Pooling = "last+mean@15+length".parse()?;
/// assert_eq!(pooling.width(576), 576 + 576 + 1);
/// assert!("cls".parse::<Pooling>().is_err());
/// # Ok::<_, zen_edge_core::backbone::PoolingError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pooling(Vec<Part>);

/// Why a pooling is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolingError {
    /// A part that is none of those that there are.
    #[error(
        "`{0}` is no part of a vector; parts are last, mean, last@N, mean@N (after N layers) and length, joined by +"
    )]
    Unknown(String),
    /// A part stands twice.
    #[error("`{0}` stands twice")]
    Twice(Part),
    /// Nothing of a hidden state is in it.
    #[error("a length alone says nothing of a prompt; add last or mean")]
    LengthAlone,
    /// More parts than anyone needs.
    #[error("{0} parts are too many: at most {MAX_PARTS}")]
    TooMany(usize),
    /// A layer that the backbone does not have before its last.
    #[error("`{part}` is not there: of {layers} layers, those before the last can be read (`@1` to `@{}`); the last one's is `last` or `mean`", layers - 1)]
    Layer {
        /// The part.
        part: Part,
        /// The backbone's layers.
        layers: usize,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Hidden { tokens, layer } = self else { return f.write_str("length") };
        f.write_str(match tokens {
            Tokens::Last => "last",
            Tokens::Mean => "mean",
        })?;
        layer.map_or(Ok(()), |layer| write!(f, "@{layer}"))
    }
}

impl FromStr for Part {
    type Err = PoolingError;

    fn from_str(text: &str) -> Result<Self, PoolingError> {
        let unknown = || PoolingError::Unknown(text.chars().take(40).collect());
        if text == "length" {
            return Ok(Self::Length);
        }
        let (tokens, layer) = match text.split_once('@') {
            Some((tokens, layer)) => (tokens, Some(layer)),
            None => (text, None),
        };
        let tokens = match tokens {
            "last" => Tokens::Last,
            "mean" => Tokens::Mean,
            _ => return Err(unknown()),
        };
        let number = |text: &str| {
            let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
            plain.then(|| text.parse().ok()).flatten().ok_or_else(unknown)
        };
        Ok(Self::Hidden { tokens, layer: layer.map(number).transpose()? })
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(n, part)| write!(f, "{}{part}", if n > 0 { "+" } else { "" }))
    }
}

impl FromStr for Pooling {
    type Err = PoolingError;

    fn from_str(text: &str) -> Result<Self, PoolingError> {
        let count = text.split('+').count();
        if count > MAX_PARTS {
            return Err(PoolingError::TooMany(count));
        }
        let mut parts = Vec::with_capacity(count);
        for part in text.split('+') {
            let part = part.parse()?;
            if parts.contains(&part) {
                return Err(PoolingError::Twice(part));
            }
            parts.push(part);
        }
        if parts == [Part::Length] { Err(PoolingError::LengthAlone) } else { Ok(Self(parts)) }
    }
}

impl Default for Pooling {
    fn default() -> Self {
        Self(vec![Part::Hidden { tokens: Tokens::Last, layer: None }])
    }
}

impl Pooling {
    /// Its parts.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The values of a vector, for a backbone of this hidden size.
    pub fn width(&self, hidden: usize) -> usize {
        self.widths(hidden).sum()
    }

    /// The values of each part.
    pub fn widths(&self, hidden: usize) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(move |part| if *part == Part::Length { 1 } else { hidden })
    }

    /// Whether it is the last token's hidden state alone.
    pub fn is_last(&self) -> bool {
        *self == Self::default()
    }

    /// Whether every part can be had from a backbone of so many layers.
    pub(super) fn check(&self, layers: usize) -> Result<(), PoolingError> {
        let absent =
            |part: &&Part| matches!(part, Part::Hidden { layer: Some(layer), .. } if *layer >= layers);
        self.0.iter().find(absent).map_or(Ok(()), |part| Err(PoolingError::Layer { part: *part, layers }))
    }

    /// How many of a backbone's layers it takes.
    pub(super) fn depth(&self, layers: usize) -> usize {
        let depth = |part: &Part| match part {
            Part::Hidden { layer, .. } => layer.unwrap_or(layers),
            Part::Length => 0,
        };
        self.0.iter().map(depth).max().unwrap_or(layers)
    }

    /// Whether a mean is taken of the last layer that it needs, which then must be finished for all tokens.
    pub(super) fn means_after(&self, depth: usize, layers: usize) -> bool {
        self.after((depth < layers).then_some(depth)).any(|(_, mean)| mean.is_some())
    }

    /// Whether a part is read after `layer` layers.
    pub(super) fn reads_after(&self, layer: usize) -> bool {
        self.after(Some(layer)).next().is_some()
    }

    /// The parts that are means, of which a context keeps each token's state.
    pub(super) fn means(&self) -> usize {
        self.0.iter().filter(|part| matches!(part, Part::Hidden { tokens: Tokens::Mean, .. })).count()
    }

    /// The parts that are read after `layer` layers (`None`: after the final norm): each with its place among the parts
    /// and, where it is a mean, among the means.
    fn after(&self, layer: Option<usize>) -> impl Iterator<Item = (usize, Option<usize>)> + '_ {
        let mut means = 0;
        self.0.iter().enumerate().filter_map(move |(at, part)| {
            let Part::Hidden { tokens, layer: of } = part else { return None };
            let mean = (*tokens == Tokens::Mean).then(|| {
                means += 1;
                means - 1
            });
            (*of == layer).then_some((at, mean))
        })
    }
}

/// The vector of a segment while it is made.
#[derive(Default)]
pub(super) struct Pooled {
    parts: Vec<Vec<f32>>,
}

impl Pooled {
    /// None of the parts is there yet but the length of a prompt of `tokens` tokens.
    pub fn new(pooling: &Pooling, tokens: usize) -> Self {
        let part = |part: &Part| match part {
            Part::Length => vec![math::ln(1.0 + tokens as f64) as f32],
            Part::Hidden { .. } => Vec::new(),
        };
        Self { parts: pooling.0.iter().map(part).collect() }
    }

    /// The whole, with an infinity or NaN refused.
    pub fn finish(self) -> Result<Vec<f32>, BackboneError> {
        finite(self.parts.concat())
    }

    /// Takes what the pooling reads after `layer` layers from the states of a segment's tokens, `[token][hidden]`.
    /// `kept` are the states of each mean of the tokens before; those of these tokens are added to it.
    pub fn take(
        &mut self,
        pooling: &Pooling,
        layer: Option<usize>,
        states: &[f32],
        hidden: usize,
        mut kept: Option<&mut Vec<Vec<f32>>>,
    ) {
        for (at, mean) in pooling.after(layer) {
            self.parts[at] = match (mean, kept.as_deref_mut()) {
                (None, _) => states[states.len() - hidden..].to_vec(),
                (Some(_), None) => average(states, hidden),
                (Some(mean), Some(kept)) => {
                    kept[mean].extend_from_slice(states);
                    average(&kept[mean], hidden)
                }
            };
        }
    }
}

/// The mean of rows: summed in their order, in f64, so that it has the same bits however the rows came.
fn average(rows: &[f32], hidden: usize) -> Vec<f32> {
    let mut sum = vec![0.0f64; hidden];
    for row in rows.chunks_exact(hidden) {
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum += f64::from(*value);
        }
    }
    let count = (rows.len() / hidden).max(1) as f64;
    sum.into_iter().map(|sum| (sum / count) as f32).collect()
}

impl Backbone {
    /// The residual stream of some tokens as a part `@N` takes it.
    pub(super) fn unit(&self, x: &[f32], out: &mut Vec<f32>) {
        out.resize(x.len(), 0.0);
        ops::rms_norm(self.isa, &self.pool, x, &self.ones, self.shape.eps, out);
    }

    /// The layers that a pass goes through: all, unless the vector needs fewer.
    pub fn depth(&self) -> usize {
        self.pooling.depth(self.shape.layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in ["last", "mean", "last@3", "mean@12", "last+mean@15+length", "length+mean"] {
            assert_eq!(text.parse::<Pooling>().unwrap().to_string(), text);
        }
        assert_eq!(Pooling::default().to_string(), "last");
        assert!(Pooling::default().is_last() && !"mean".parse::<Pooling>().unwrap().is_last());
    }

    #[test]
    fn each_cause_has_its_variant() {
        let of = |text: &str| text.parse::<Pooling>().unwrap_err();
        for text in [
            "",
            "cls",
            "last+",
            "last@",
            "last@x",
            "last@0",
            "last@01",
            "last@+1",
            "Mean",
            "length@2",
            "last mean",
        ] {
            assert!(matches!(of(text), PoolingError::Unknown(_)), "{text}");
        }
        assert!(matches!(of("last@99999999999999999999999"), PoolingError::Unknown(_)));
        assert!(matches!(of("mean@2+mean@2"), PoolingError::Twice(_)));
        assert_eq!(of("length"), PoolingError::LengthAlone);
        assert_eq!(of(&vec!["last"; 17].join("+")), PoolingError::TooMany(17));
        let pooling: Pooling = "mean@3".parse().unwrap();
        assert!(pooling.check(4).is_ok());
        assert!(matches!(pooling.check(3), Err(PoolingError::Layer { layers: 3, .. })));
    }
}
