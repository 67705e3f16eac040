//! Two runs over the same prompts, in figures.

use super::{Judge, ParityError, Prompt};
use serde::Serialize;
use zen_edge_core::bench::STRATA;
use zen_edge_core::catalog::Task;
use zen_edge_core::heads::Heads;

/// A share of prompts, with Wilson's 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Prompts for which it holds.
    pub hits: usize,
    /// Prompts.
    pub n: usize,
    /// `hits / n`.
    pub value: f64,
    /// The interval's ends.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

impl Share {
    /// `hits` of `n`, or nothing of none.
    pub fn of(hits: usize, n: usize) -> Option<Self> {
        const Z: f64 = 1.959_963_984_540_054;
        if n == 0 {
            return None;
        }
        let (value, size) = (hits as f64 / n as f64, n as f64);
        let middle = value + Z * Z / (2.0 * size);
        let half = Z * (value * (1.0 - value) / size + Z * Z / (4.0 * size * size)).sqrt();
        let scale = 1.0 + Z * Z / size;
        // At none and all the formula's own end is 0 or 1 but for rounding.
        let low = if hits == 0 { 0.0 } else { (middle - half) / scale };
        let high = if hits == n { 1.0 } else { (middle + half) / scale };
        Some(Self { hits, n, value, low, high })
    }

    /// Of flags: those that are set; or nothing of none.
    pub fn count(flags: impl Iterator<Item = bool>) -> Option<Self> {
        let (mut hits, mut n) = (0, 0);
        for flag in flags {
            hits += usize::from(flag);
            n += 1;
        }
        Self::of(hits, n)
    }
}

/// Mean and ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        Self {
            mean: mean(values),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Cosines of the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cosine {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean; of a single prompt 0.
    pub standard_error: f64,
    /// The lowest.
    pub min: f64,
}

impl Cosine {
    fn of(values: &[f64]) -> Self {
        let (n, mean) = (values.len() as f64, mean(values));
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            mean,
            standard_error: if n > 1.0 { (squares / (n * (n - 1.0))).sqrt() } else { 0.0 },
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
        }
    }
}

/// How often the task head is right, on the prompts whose rows state a task that it knows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// On the reference's vectors.
    pub reference: Share,
    /// On the other's.
    pub model: Share,
    /// The other's less the reference's.
    pub difference: f64,
    /// A 95 % interval of the difference: prompts drawn anew with replacement, both runs' answers together.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

/// How far two runs agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Prompts.
    pub n: usize,
    /// Same task; absent without heads.
    pub task: Option<Share>,
    /// Same first model, of the route rows that were trained.
    pub route: Option<Share>,
    /// The reference's first model is among the other's first three.
    pub top3: Option<Share>,
    /// Cosines of the vectors.
    pub cosine: Cosine,
    /// The other's norm over the reference's.
    pub norm_ratio: Spread,
    /// Of the task head; absent without heads or labels.
    pub accuracy: Option<Accuracy>,
}

/// The figures of prompts of one length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stratum {
    /// Tokens of a prompt, as `33-128`.
    pub tokens: &'static str,
    /// How far the runs agree; absent where no prompt is so long.
    pub figures: Option<Figures>,
}

/// A prompt whose vectors lie far apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// The row in the file, from 1.
    pub row: usize,
    /// What the row calls it.
    pub id: Option<String>,
    /// Tokens that were read.
    pub tokens: usize,
    /// The cosine of its vectors.
    pub cosine: f64,
    /// The reference's task and the other's.
    pub tasks: Option<[Task; 2]>,
    /// How far the reference's first task logit lies before its second.
    pub margin: Option<f32>,
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Over all prompts.
    pub all: Figures,
    /// By length, see [`STRATA`]; their prompts add up to all.
    pub strata: Vec<Stratum>,
    /// The prompts of the lowest cosines, and before them those whose task differs.
    pub worst: Vec<Worst>,
}

/// What heads say of a vector.
#[derive(Clone, Debug)]
struct Verdict {
    task: usize,
    margin: f32,
    /// Trained route rows, best first; no more than three.
    routes: Vec<usize>,
}

impl Verdict {
    fn of(heads: &Heads, vector: &[f32]) -> Result<Self, ParityError> {
        let logits = heads.logits(vector)?;
        let (task, margin) = first(&logits.task);
        let trained = heads.trained().rows();
        let mut routes: Vec<usize> = (0..logits.route.len()).filter(|row| trained[*row]).collect();
        routes.sort_by(|a, b| logits.route[*b].total_cmp(&logits.route[*a]).then(a.cmp(b)));
        routes.truncate(3);
        Ok(Self { task, margin, routes })
    }
}

/// The largest of some logits, the first of equals, and how far it lies before the next.
fn first(logits: &[f32]) -> (usize, f32) {
    let (mut best, mut second) = (0, f32::NEG_INFINITY);
    for (at, logit) in logits.iter().enumerate().skip(1) {
        if *logit > logits[best] {
            second = logits[best];
            best = at;
        } else {
            second = second.max(*logit);
        }
    }
    (best, logits.get(best).map_or(0.0, |logit| logit - second))
}

/// A prompt in both runs.
struct Pair {
    cosine: f64,
    norm_ratio: f64,
    verdicts: Option<[Verdict; 2]>,
    /// The task head's row that is right.
    label: Option<usize>,
}

impl Pair {
    fn of(judge: &Judge, prompt: &Prompt, [a, b]: [&[f32]; 2]) -> Result<Self, ParityError> {
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let (norm_a, norm_b) = (dot(a, a).sqrt(), dot(b, b).sqrt());
        let cosine = match norm_a * norm_b {
            // Equal bits are equal, whatever the roots are rounded to; and nothing equals nothing.
            _ if a == b => 1.0,
            0.0 => 0.0,
            norms => (dot(a, b) / norms).clamp(-1.0, 1.0),
        };
        let norm_ratio = if a == b { 1.0 } else { norm_b / norm_a };
        let verdicts = match &judge.heads {
            Some(heads) => Some([Verdict::of(heads, a)?, Verdict::of(heads, b)?]),
            None => None,
        };
        let label = prompt.task.and_then(|task| judge.config.tasks.iter().position(|row| *row == task));
        Ok(Self { cosine, norm_ratio, verdicts, label })
    }
}

/// Draws prompts anew, with replacement, to tell how far a figure of theirs is chance.
#[derive(Clone, Copy, Debug)]
pub struct Bootstrap {
    /// How often.
    pub rounds: usize,
    /// By which seed.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { rounds: 1000, seed: 0 }
    }
}

impl Bootstrap {
    /// A 95 % interval of the mean of `values`.
    pub fn interval(&self, values: &[f64]) -> [f64; 2] {
        if values.is_empty() {
            return [0.0; 2];
        }
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut means: Vec<f64> = (0..self.rounds.max(1))
            .map(|_| {
                (0..values.len()).map(|_| values[random.usize(..values.len())]).sum::<f64>()
                    / values.len() as f64
            })
            .collect();
        means.sort_by(f64::total_cmp);
        let at = |share: f64| means[((means.len() - 1) as f64 * share).round() as usize];
        [at(0.025), at(0.975)]
    }
}

impl Figures {
    fn of(pairs: &[&Pair]) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let of = |value: fn(&Pair) -> f64| pairs.iter().map(|pair| value(pair)).collect::<Vec<f64>>();
        let share = |holds: fn(&[Verdict; 2]) -> Option<bool>| {
            Share::count(pairs.iter().filter_map(|pair| pair.verdicts.as_ref().and_then(holds)))
        };
        Some(Self {
            n: pairs.len(),
            task: share(|[a, b]| Some(a.task == b.task)),
            route: share(|[a, b]| a.routes.first().map(|first| b.routes.first() == Some(first))),
            top3: share(|[a, b]| a.routes.first().map(|first| b.routes.contains(first))),
            cosine: Cosine::of(&of(|pair| pair.cosine)),
            norm_ratio: Spread::of(&of(|pair| pair.norm_ratio)),
            accuracy: accuracy(pairs),
        })
    }
}

fn accuracy(pairs: &[&Pair]) -> Option<Accuracy> {
    let right: Vec<[bool; 2]> = pairs
        .iter()
        .filter_map(|pair| {
            let ([a, b], label) = (pair.verdicts.as_ref()?, pair.label?);
            Some([a.task == label, b.task == label])
        })
        .collect();
    Accuracy::of(&right)
}

impl Accuracy {
    /// Of prompts by whether the reference was right and whether the other was; nothing of none.
    pub fn of(right: &[[bool; 2]]) -> Option<Self> {
        let differences: Vec<f64> =
            right.iter().map(|[a, b]| f64::from(u8::from(*b)) - f64::from(u8::from(*a))).collect();
        let [low, high] = Bootstrap::default().interval(&differences);
        let reference = Share::count(right.iter().map(|[a, _]| *a))?;
        let model = Share::count(right.iter().map(|[_, b]| *b))?;
        Some(Self { reference, model, difference: model.value - reference.value, low, high })
    }
}

/// Compares the vectors of two runs over the same prompts; of the prompts that differ most, `worst` are named.
///
/// # Errors
/// Vectors that the heads do not read.
///
/// # Panics
/// Where the runs are not of these prompts.
pub fn compare(
    judge: &Judge,
    prompts: &[Prompt],
    reference: &[Vec<f32>],
    model: &[Vec<f32>],
    worst: usize,
) -> Result<Comparison, ParityError> {
    assert_eq!([reference.len(), model.len()], [prompts.len(); 2], "both runs are of these prompts");
    let pairs: Vec<Pair> = prompts
        .iter()
        .zip(reference.iter().zip(model))
        .map(|(prompt, (a, b))| Pair::of(judge, prompt, [a, b]))
        .collect::<Result<_, _>>()?;
    let all = Figures::of(&pairs.iter().collect::<Vec<_>>());
    let all = all.ok_or(ParityError::NoPrompts { rows: 0 })?;
    let strata = STRATA.iter().enumerate().map(|(stratum, (tokens, ..))| {
        let members = pairs.iter().zip(prompts).filter(|(_, prompt)| prompt.stratum() == stratum);
        Stratum { tokens, figures: Figures::of(&members.map(|(pair, _)| pair).collect::<Vec<_>>()) }
    });
    let differs = |pair: &Pair| pair.verdicts.as_ref().is_some_and(|[a, b]| a.task != b.task);
    let mut order: Vec<usize> = (0..pairs.len()).collect();
    order.sort_by(|a, b| {
        let [a, b] = [&pairs[*a], &pairs[*b]];
        differs(b).cmp(&differs(a)).then(a.cosine.total_cmp(&b.cosine))
    });
    let tasks = |pair: &Pair| {
        let task = |verdict: &Verdict| judge.config.tasks[verdict.task];
        pair.verdicts.as_ref().map(|[a, b]| [task(a), task(b)])
    };
    Ok(Comparison {
        all,
        strata: strata.collect(),
        worst: order
            .into_iter()
            .take(worst)
            .map(|at| Worst {
                row: prompts[at].row + 1,
                id: prompts[at].id.clone(),
                tokens: prompts[at].ids.len(),
                cosine: pairs[at].cosine,
                tasks: tasks(&pairs[at]),
                margin: pairs[at].verdicts.as_ref().map(|[a, _]| a.margin),
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // Wilson 1927, as in Brown, Cai and DasGupta 2001: 10 of 20 gives .299 to .701.
        let half = Share::of(10, 20).unwrap();
        assert!((half.low - 0.2993).abs() < 1e-4 && (half.high - 0.7007).abs() < 1e-4, "{half:?}");
        let all = Share::of(500, 500).unwrap();
        assert_eq!((all.value, all.high), (1.0, 1.0));
        assert!((all.low - 0.99238).abs() < 1e-5, "{all:?}");
        assert_eq!(Share::of(0, 5).unwrap().low, 0.0);
        assert_eq!(Share::of(0, 0), None);
    }

    #[test]
    fn the_first_logit_and_its_margin() {
        assert_eq!(first(&[1.0, 3.0, 2.5]), (1, 0.5));
        assert_eq!(first(&[3.0, 1.0, 3.0]), (0, 0.0));
        assert_eq!(first(&[2.0]).0, 0);
    }

    #[test]
    fn an_interval_holds_the_mean_and_is_the_same_again() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i % 7)).collect();
        let [low, high] = Bootstrap::default().interval(&values);
        let mean = mean(&values);
        assert!(low < mean && mean < high, "{low} {mean} {high}");
        // The standard error of the mean is 2/10: the interval's width is near 4 of them.
        assert!((0.6..1.0).contains(&(high - low)), "{low} {high}");
        assert_eq!([low, high], Bootstrap::default().interval(&values));
        assert_eq!(Bootstrap::default().interval(&[0.25; 9]), [0.25; 2]);
    }
}
