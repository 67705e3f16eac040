//! The linear heads: from the backbone's raw hidden state to task logits, route logits and the bandit's features.
//!
//! Each head is `y = W·x + b` with `W` of shape `[rows, hidden]`, row-major F32, as `torch.nn.Linear` keeps it. The six
//! tensors of `heads.safetensors` are `{task,route,feature}_head.{weight,bias}`; the rows stand in the order of the
//! config's `tasks` and `catalog`.
//!
//! Sums run in eight virtual lanes (element `i` goes to lane `i % 8`, in order) that are joined by one tree,
//! `((0+4)+(2+6))+((1+5)+(3+7))`, without fused multiply-add: logits have the same bits on every machine.

use crate::config::RouterConfig;
use crate::room::{self, NoMemory};
use crate::source::Memory;
use crate::tensors::{Dtype, TensorFile, TensorFileError};
use std::sync::Arc;
use thiserror::Error;

/// Why heads are refused, or a vector for them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HeadsError {
    /// The file is no valid safetensors container, or cannot be read.
    #[error(transparent)]
    File(#[from] TensorFileError),
    /// One of the six tensors is absent.
    #[error("{name}: the tensor `{tensor}` is missing; heads need {}", TENSORS.join(", "))]
    Missing {
        /// The file.
        name: String,
        /// The tensor.
        tensor: &'static str,
    },
    /// A tensor is not F32.
    #[error("{name}: the tensor `{tensor}` is {found}; heads must be F32")]
    Dtype {
        /// The file.
        name: String,
        /// The tensor.
        tensor: &'static str,
        /// Its type.
        found: String,
    },
    /// A tensor's shape is not what the config says.
    #[error("{name}: the tensor `{tensor}` has the shape {found:?}, but {config} says {expected:?} ({key})")]
    Shape {
        /// The file.
        name: Box<str>,
        /// The tensor.
        tensor: &'static str,
        /// Its shape.
        found: Box<[u64]>,
        /// The config.
        config: Box<str>,
        /// The shape by the config.
        expected: Box<[u64]>,
        /// The config's keys that the shape follows from.
        key: &'static str,
    },
    /// A weight or bias is NaN or infinite.
    #[error(
        "{name}: the tensor `{tensor}` holds {value} at element {index}; the file is damaged or the training diverged"
    )]
    NotFinite {
        /// The file.
        name: String,
        /// The tensor.
        tensor: &'static str,
        /// The element, row-major from 0.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// The config is bound to another file of heads.
    #[error(
        "{name}: SHA-256 is {found}, but {config} is bound to {expected} (`heads_sha256`); the temperatures would not fit"
    )]
    Hash {
        /// The file.
        name: String,
        /// Its hash.
        found: String,
        /// The config.
        config: String,
        /// The config's hash.
        expected: String,
    },
    /// The vector is not the hidden state of the config's backbone.
    #[error("the heads read a hidden state of {expected} values, this one has {found}")]
    Length {
        /// The vector's length.
        found: usize,
        /// The config's `hidden_size`.
        expected: usize,
    },
    /// The vector holds a NaN or an infinity.
    #[error("the hidden state holds {value} at {index}")]
    Vector {
        /// The element.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// The vector was normalised.
    #[error(
        "the hidden state has the norm {norm}: it was normalised, but the heads read the raw vector (`embd_normalize` -1)"
    )]
    Normalised {
        /// Its Euclidean norm.
        norm: f32,
    },
    /// A finite vector led to a logit that is not.
    #[error("the {head} head overflows at row {row}: the hidden state is out of any sensible range")]
    Overflow {
        /// `task`, `route` or `feature`.
        head: &'static str,
        /// The row.
        row: usize,
    },
}

/// The tensors of a file of heads.
pub const TENSORS: [&str; 6] = [
    "task_head.weight",
    "task_head.bias",
    "route_head.weight",
    "route_head.bias",
    "feature_head.weight",
    "feature_head.bias",
];

/// A derived mask counts a route row as trained where its norm exceeds this: 1.17 times the norm that
/// `torch.nn.Linear` gives a row at first (uniform in ±1/√n, so √(1/3) = .577 for any n).
///
/// In the published heads the rows of models with data have norms of .686 to .841. Those without lie at .608 to .665,
/// above .577 too: the softmax pushes each of them away from every example, all in much the same direction. The bound
/// sits in the gap between. It was read off that one file; a config that states `trained` needs no bound.
pub const TRAINED_ROW_NORM: f32 = 0.6755;

/// Which rows of the route head have seen data. The logit of another row is noise and must not be picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrainedMask {
    /// As the config's `trained` says.
    Stated(Vec<bool>),
    /// Guessed from the norms of the rows, see [`TRAINED_ROW_NORM`].
    Derived(Vec<bool>),
}

impl TrainedMask {
    /// One flag for a route row.
    #[must_use]
    pub fn rows(&self) -> &[bool] {
        match self {
            Self::Stated(rows) | Self::Derived(rows) => rows,
        }
    }

    /// Whether the mask is a guess.
    #[must_use]
    pub fn is_derived(&self) -> bool {
        matches!(self, Self::Derived(_))
    }

    /// How many rows have seen data.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows().iter().filter(|&&trained| trained).count()
    }
}

/// Logits of the two deciding heads, raw: no softmax, no temperature.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logits {
    /// One for each of the config's tasks.
    pub task: Vec<f32>,
    /// One for each row of the config's catalog.
    pub route: Vec<f32>,
}

/// What all three heads say of a hidden state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadOutput {
    /// Task logits, in the order of the config's `tasks`.
    pub task: Vec<f32>,
    /// Route logits, in the order of the config's `catalog`.
    pub route: Vec<f32>,
    /// The bandit's features.
    pub features: Vec<f32>,
}

/// `y = W·x + b`.
#[derive(Clone, Debug)]
struct Linear {
    /// Row-major, `bias.len()` rows of the hidden size.
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Linear {
    fn apply(&self, x: &[f32], head: &'static str) -> Result<Vec<f32>, HeadsError> {
        // `x` is never empty: the config's hidden size is at least 1.
        let rows = self.weight.chunks_exact(x.len());
        let y: Vec<f32> = rows.zip(&self.bias).map(|(row, bias)| dot(row, x) + bias).collect();
        match y.iter().position(|y| !y.is_finite()) {
            Some(row) => Err(HeadsError::Overflow { head, row }),
            None => Ok(y),
        }
    }
}

/// The dot product in eight virtual lanes, see the module's page. The slices have one length.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 8];
    let (a_blocks, a_tail) = a.as_chunks::<8>();
    let (b_blocks, b_tail) = b.as_chunks::<8>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_tail).zip(b_tail) {
        *lane += a * b;
    }
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7))
}

/// The three heads of a router, validated against its config.
#[derive(Clone, Debug)]
pub struct Heads {
    hidden: usize,
    task: Linear,
    route: Linear,
    feature: Linear,
    trained: TrainedMask,
    sha256: String,
}

impl Heads {
    /// Reads heads from the bytes of a safetensors file; `name` is what messages call it.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_bytes(bytes: &[u8], name: &str, config: &RouterConfig) -> Result<Self, HeadsError> {
        let bytes = room::copied(bytes).map_err(|NoMemory(bytes)| TensorFileError::OutOfMemory {
            file: name.to_owned(),
            what: "its bytes".to_owned(),
            bytes,
        })?;
        Self::load(&TensorFile::open(Arc::new(Memory::new(name, bytes)))?, config)
    }

    /// Reads heads and checks them against their config. Tensors beyond the six are left alone.
    ///
    /// # Errors
    /// A [`HeadsError`] that names the file, the tensor and both sides.
    pub fn load(file: &TensorFile, config: &RouterConfig) -> Result<Self, HeadsError> {
        let hidden = config.vector_size();
        // A vector of one hidden state has its size; only then is the pooling beside the point.
        let by = |single, several| if hidden == config.hidden_size { single } else { several };
        let linear = |weight, bias, rows: usize, keys: [&'static str; 2]| {
            Ok::<_, HeadsError>(Linear {
                weight: values(file, config, weight, &[rows as u64, hidden as u64], keys[0])?,
                bias: values(file, config, bias, &[rows as u64], keys[1])?,
            })
        };
        let [task_weight, task_bias, route_weight, route_bias, feature_weight, feature_bias] = TENSORS;
        let task = linear(
            task_weight,
            task_bias,
            config.tasks.len(),
            [by("`tasks` by `hidden_size`", "`tasks` by `hidden_size` and `pooling`"), "`tasks`"],
        )?;
        let route = linear(
            route_weight,
            route_bias,
            config.catalog.len(),
            [by("`catalog` by `hidden_size`", "`catalog` by `hidden_size` and `pooling`"), "`catalog`"],
        )?;
        let feature = linear(
            feature_weight,
            feature_bias,
            config.feature_dim,
            [
                by("`feature_dim` by `hidden_size`", "`feature_dim` by `hidden_size` and `pooling`"),
                "`feature_dim`",
            ],
        )?;
        let trained = match &config.trained {
            Some(rows) => TrainedMask::Stated(rows.clone()),
            None => {
                let norms = route.weight.chunks_exact(hidden).map(norm);
                TrainedMask::Derived(norms.map(|n| n > TRAINED_ROW_NORM).collect())
            }
        };
        let source = &**file.source();
        let sha256 = crate::source::sha256(source).map_err(|error| TensorFileError::Io {
            file: source.name().to_owned(),
            offset: 0,
            len: source.len(),
            source: error,
        })?;
        if let Some(expected) = &config.heads_sha256
            && *expected != sha256
        {
            return Err(HeadsError::Hash {
                name: file.source().name().into(),
                found: sha256,
                config: config.name.clone(),
                expected: expected.clone(),
            });
        }
        Ok(Self { hidden, task, route, feature, trained, sha256 })
    }

    /// The length of the vector that the heads read.
    #[must_use]
    pub fn vector_size(&self) -> usize {
        self.hidden
    }

    /// Which route rows have seen data.
    #[must_use]
    pub fn trained(&self) -> &TrainedMask {
        &self.trained
    }

    /// The SHA-256 of the file in lower-case hexadecimal digits: what a bandit's state and temperatures are bound to.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// The Euclidean norms of the rows of the route head, from which a mask is derived.
    #[must_use]
    pub fn route_norms(&self) -> Vec<f32> {
        self.route.weight.chunks_exact(self.hidden).map(norm).collect()
    }

    /// The values that the heads hold, weights and biases.
    #[must_use]
    pub fn parameters(&self) -> usize {
        [&self.task, &self.route, &self.feature].iter().map(|l| l.weight.len() + l.bias.len()).sum()
    }

    /// The task and route logits of a raw hidden state of [`Self::vector_size`] values.
    ///
    /// # Errors
    /// [`HeadsError::Length`], [`HeadsError::Vector`], [`HeadsError::Normalised`], [`HeadsError::Overflow`].
    pub fn logits(&self, hidden: &[f32]) -> Result<Logits, HeadsError> {
        self.check(hidden)?;
        Ok(Logits { task: self.task.apply(hidden, "task")?, route: self.route.apply(hidden, "route")? })
    }

    /// The bandit's features of a raw hidden state: by far the largest head, and only a bandit asks for it.
    ///
    /// # Errors
    /// As [`Self::logits`].
    pub fn features(&self, hidden: &[f32]) -> Result<Vec<f32>, HeadsError> {
        self.check(hidden)?;
        self.feature.apply(hidden, "feature")
    }

    /// All three heads on a raw hidden state.
    ///
    /// # Errors
    /// As [`Self::logits`].
    pub fn apply(&self, hidden: &[f32]) -> Result<HeadOutput, HeadsError> {
        let Logits { task, route } = self.logits(hidden)?;
        Ok(HeadOutput { task, route, features: self.feature.apply(hidden, "feature")? })
    }

    /// Refuses what is not a raw hidden state. A norm of 1 within 1e-4 marks a vector that was normalised: raw ones
    /// come out of an RMSNorm with a norm near √hidden times its weights (about 100 for zen-nano).
    fn check(&self, hidden: &[f32]) -> Result<(), HeadsError> {
        if hidden.len() != self.hidden {
            return Err(HeadsError::Length { found: hidden.len(), expected: self.hidden });
        }
        if let Some(index) = hidden.iter().position(|x| !x.is_finite()) {
            return Err(HeadsError::Vector { index, value: hidden[index] });
        }
        let norm = norm(hidden);
        if (norm - 1.0).abs() < 1e-4 {
            return Err(HeadsError::Normalised { norm });
        }
        Ok(())
    }
}

fn norm(x: &[f32]) -> f32 {
    dot(x, x).sqrt()
}

/// The values of a tensor of the shape that the config says, all of them finite.
fn values(
    file: &TensorFile,
    config: &RouterConfig,
    tensor: &'static str,
    shape: &[u64],
    key: &'static str,
) -> Result<Vec<f32>, HeadsError> {
    let name = || file.source().name().to_owned();
    let info = file.info(tensor).ok_or_else(|| HeadsError::Missing { name: name(), tensor })?;
    if info.dtype != Dtype::F32 {
        return Err(HeadsError::Dtype { name: name(), tensor, found: format!("{:?}", info.dtype) });
    }
    if info.shape != shape {
        return Err(HeadsError::Shape {
            name: name().into(),
            tensor,
            found: info.shape.clone().into(),
            config: config.name.clone().into(),
            expected: shape.into(),
            key,
        });
    }
    let values = file.f32(tensor)?;
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(HeadsError::NotFinite { name: name(), tensor, index, value: values[index] }),
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use safetensors::tensor::TensorView;

    const HIDDEN: usize = 19;

    fn config(extra: &str) -> RouterConfig {
        let json = format!(
            r#"{{"tasks": ["code", "math"], "catalog": ["a", "b", "c"], "hidden_size": {HIDDEN}, "feature_dim": 5 {extra}}}"#
        );
        RouterConfig::parse(json.as_bytes(), "c.json").unwrap()
    }

    /// Weights of a fixed pseudo-random sequence in ±1.
    fn noise(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    type Tensors = Vec<(&'static str, Vec<usize>, Vec<f32>)>;

    fn tensors() -> Tensors {
        let rows = [("task", 2), ("route", 3), ("feature", 5)];
        let all = TENSORS.iter().zip(0u32..).map(|(&name, seed)| {
            let rows = rows.iter().find(|(head, _)| name.starts_with(head)).unwrap().1;
            let shape = if name.ends_with("weight") { vec![rows, HIDDEN] } else { vec![rows] };
            (name, shape.clone(), noise(shape.iter().product(), seed + 1))
        });
        all.collect()
    }

    fn bytes(tensors: &Tensors, dtype: Dtype) -> Vec<u8> {
        let data: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, _, values)| values.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let views = tensors.iter().zip(&data).map(|((name, shape, _), data)| {
            // Of a two-byte type only half the values are needed.
            let data = if dtype == Dtype::F32 { data } else { &data[..data.len() / 2] };
            (*name, TensorView::new(dtype, shape.clone(), data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn heads(config: &RouterConfig) -> Heads {
        Heads::from_bytes(&bytes(&tensors(), Dtype::F32), "h.safetensors", config).unwrap()
    }

    #[test]
    fn logits_are_the_matrix_product() {
        let heads = heads(&config(""));
        let x: Vec<f32> = noise(HIDDEN, 77).iter().map(|v| v * 20.0).collect();
        let output = heads.apply(&x).unwrap();
        let all = tensors();
        for (head, got) in [&output.task, &output.route, &output.features].into_iter().enumerate() {
            let (weight, bias) = (&all[2 * head].2, &all[2 * head + 1].2);
            assert_eq!(got.len(), bias.len());
            for (row, &y) in got.iter().enumerate() {
                let w = &weight[row * HIDDEN..][..HIDDEN];
                let exact: f64 = w.iter().zip(&x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum::<f64>()
                    + f64::from(bias[row]);
                assert!((f64::from(y) - exact).abs() < 1e-4, "head {head} row {row}: {y} and {exact}");
            }
        }
        let logits = heads.logits(&x).unwrap();
        assert_eq!((logits.task, logits.route), (output.task, output.route));
        assert_eq!(heads.features(&x).unwrap(), output.features);
        assert_eq!(heads.parameters(), (2 + 3 + 5) * (HIDDEN + 1));
    }

    proptest! {
        /// The order of the sum is part of the format: it is written out here element by element.
        #[test]
        fn the_order_of_the_sum_is_fixed(a in prop::collection::vec(-1e3f32..1e3, 0..70), seed: u32) {
            let b = noise(a.len(), seed);
            let mut lanes = [0f32; 8];
            for i in 0..a.len() {
                lanes[i % 8] += a[i] * b[i];
            }
            let low = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]);
            let high = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]);
            prop_assert_eq!(dot(&a, &b).to_bits(), (low + high).to_bits());
        }
    }

    #[test]
    fn each_fault_of_the_file_has_its_variant() {
        let load = |t: &Tensors, dtype| Heads::from_bytes(&bytes(t, dtype), "h", &config("")).unwrap_err();
        for i in 0..6 {
            let mut t = tensors();
            let (name, ..) = t.remove(i);
            assert!(matches!(load(&t, Dtype::F32), HeadsError::Missing { tensor, .. } if tensor == name));

            let mut t = tensors();
            t[i].1.push(1);
            let error = load(&t, Dtype::F32);
            assert!(matches!(&error, HeadsError::Shape { tensor, .. } if *tensor == name), "{error}");
            assert!(error.to_string().contains("c.json"), "both sides are named: {error}");

            for value in [f32::NAN, f32::INFINITY] {
                let mut t = tensors();
                t[i].2[1] = value;
                assert!(
                    matches!(load(&t, Dtype::F32), HeadsError::NotFinite { tensor, index: 1, .. } if tensor == name)
                );
            }
        }
        assert!(matches!(load(&tensors(), Dtype::F16), HeadsError::Dtype { tensor: "task_head.weight", .. }));
        let whole = bytes(&tensors(), Dtype::F32);
        for cut in [0, 7, 8, 100, whole.len() - 1] {
            let error = Heads::from_bytes(&whole[..cut], "h", &config("")).unwrap_err();
            assert!(matches!(error, HeadsError::File(_)), "{cut}: {error}");
        }
    }

    #[test]
    fn a11_rows_that_disagree_with_the_config_are_refused_naming_both() {
        let mut t = tensors();
        t[2] = ("route_head.weight", vec![4, HIDDEN], noise(4 * HIDDEN, 9));
        let error = Heads::from_bytes(&bytes(&t, Dtype::F32), "h", &config("")).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, HeadsError::Shape { tensor: "route_head.weight", .. }), "{text}");
        assert!(text.contains("[4, 19]") && text.contains("[3, 19]") && text.contains("`catalog`"), "{text}");
    }

    #[test]
    fn a_config_is_bound_to_its_heads() {
        let file = bytes(&tensors(), Dtype::F32);
        let hash = heads(&config("")).sha256().to_owned();
        assert_eq!(hash.len(), 64);
        let bound = config(&format!(r#", "heads_sha256": "{}""#, hash.to_uppercase()));
        assert!(Heads::from_bytes(&file, "h", &bound).is_ok());
        let other = config(&format!(r#", "heads_sha256": "{}""#, "0".repeat(64)));
        assert!(matches!(Heads::from_bytes(&file, "h", &other), Err(HeadsError::Hash { .. })));
    }

    #[test]
    fn c4_a_normalised_vector_is_refused() {
        let heads = heads(&config(""));
        let mut x = noise(HIDDEN, 3);
        let n = norm(&x);
        x.iter_mut().for_each(|v| *v /= n);
        assert!(matches!(heads.logits(&x), Err(HeadsError::Normalised { .. })));
        assert!(matches!(heads.features(&x), Err(HeadsError::Normalised { .. })));
        x.iter_mut().for_each(|v| *v *= 100.0);
        assert!(heads.apply(&x).is_ok());
    }

    #[test]
    fn bad_vectors_are_refused() {
        let heads = heads(&config(""));
        assert!(matches!(heads.logits(&[1.0; 4]), Err(HeadsError::Length { found: 4, expected: HIDDEN })));
        let mut x = vec![2.0; HIDDEN];
        x[5] = f32::NAN;
        assert!(matches!(heads.apply(&x), Err(HeadsError::Vector { index: 5, .. })));
        assert!(matches!(heads.logits(&[f32::MAX; HIDDEN]), Err(HeadsError::Overflow { .. })));
    }

    #[test]
    fn the_mask_is_stated_or_derived() {
        assert_eq!(
            heads(&config(r#", "trained": ["c"]"#)).trained(),
            &TrainedMask::Stated(vec![false, false, true])
        );
        let mut t = tensors();
        // Rows of norm .58, .66 (never seen) and .70 (seen).
        let row = |norm: f32| vec![norm / (HIDDEN as f32).sqrt(); HIDDEN];
        t[2].2 = [row(0.58), row(0.66), row(0.70)].concat();
        let heads = Heads::from_bytes(&bytes(&t, Dtype::F32), "h", &config("")).unwrap();
        assert_eq!(heads.trained(), &TrainedMask::Derived(vec![false, false, true]));
        assert!(heads.trained().is_derived());
        assert_eq!(heads.trained().count(), 1);
    }
}
