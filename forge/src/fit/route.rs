//! The route head: which model a prompt is worth, from outcomes.
//!
//! An outcome's utility is `quality − λ·price − μ·latency`: the price is the model's in USD for 1,000 tokens (as in the
//! decision, whose λ it is), the latency in seconds. Three kinds of head:
//!
//! * **utility** – a ridge regression of the utility for each model: a route logit is an expected utility. A model needs no
//!   outcome on the prompts of another. For a task in which a model has none it is taken to be as good as the mean of those
//!   that have; where none has, all are equal, with up to [`PRICE_EDGE`] more for the cheaper.
//! * **soft** – a multinomial logistic regression on `softmax(utility / τ)`, among the models that were tried on the prompt.
//! * **hard** – the same on the best model alone; equals share.

use super::folds::text_hash;
use super::logistic::{Head, Scaling, Targets, fit as fit_logistic};
use super::matrix::{Matrix, cholesky, cholesky_solve, par_map};
use super::score::{argmax, softmax};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use zen_edge_core::catalog::Task;
use zen_edge_kernels::pool::Pool;

/// Where no model has an outcome for a task, the cheapest is preferred to the dearest by so much quality; without it the noise
/// of the fit decides.
pub const PRICE_EDGE: f64 = 0.1;
/// A model with fewer outcomes is not trained: its row is 0 and `trained: false`.
pub const LEAST_OUTCOMES: usize = 10;
/// Strengths of the ridge that cross-validation tries, over vectors scaled to one a coordinate.
pub const RIDGE: [f64; 9] = [10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 100_000.0];
/// Strengths of L2 for the logistic heads.
const SOFT_L2: [f64; 3] = [33.0, 333.0, 3333.0];
/// Temperatures of the soft target.
const TAU: [f64; 2] = [0.1, 0.3];
const FOLDS: u64 = 3;

/// What a model did on a prompt; the mean where it was asked several times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The model.
    pub model: usize,
    /// How good it was.
    pub quality: f64,
    /// What it is worth, see the module.
    pub utility: f64,
    /// USD for the answer.
    pub cost: f64,
}

/// A prompt with the outcomes of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its row among the vectors.
    pub row: usize,
    /// Its text's hash: what splits prompts.
    pub hash: u64,
    /// Its file.
    pub file: usize,
    /// Its task.
    pub task: Option<Task>,
    /// The outcomes, one a model.
    pub seen: Vec<Seen>,
}

impl Entry {
    /// Seven of ten prompts fit, the others judge: by hash, so that a prompt is on the same side in every file.
    pub const fn is_held_out(&self) -> bool {
        self.hash % 10 >= 7
    }
}

/// What the heads are fitted on.
#[derive(Debug)]
pub struct Data<'a> {
    /// The vectors.
    pub x: &'a Matrix,
    /// The widths of their parts.
    pub widths: &'a [usize],
    /// How many models there are.
    pub models: usize,
    /// USD for 1,000 tokens of each.
    pub price: &'a [f64],
    /// λ.
    pub lambda: f64,
    /// Rows of prompts without outcomes, with their task: what a task looks like in which a model was never tried.
    pub prior: &'a [(usize, Task)],
}

/// A kind of head.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "target", rename_all = "snake_case")]
pub enum Method {
    /// A ridge regression of each model's utility.
    Utility {
        /// Its strength.
        ridge: f64,
    },
    /// `softmax(utility / tau)`.
    Soft {
        /// The temperature.
        tau: f64,
        /// The strength of L2.
        l2: f64,
    },
    /// The best model.
    Hard {
        /// The strength of L2.
        l2: f64,
    },
}

/// Which kind is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The one that cross-validation prefers.
    #[default]
    Auto,
    /// The best model.
    Hard,
    /// `softmax(utility / τ)`.
    Soft,
    /// Each model's utility.
    Utility,
}

/// A method and the mean utility of its picks on prompts held out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The method.
    #[serde(flatten)]
    pub method: Method,
    /// The mean over files of the mean utility.
    pub utility: f64,
}

/// Which models have outcomes enough.
pub fn trained(entries: &[&Entry], models: usize) -> Vec<bool> {
    let mut count = vec![0; models];
    entries.iter().flat_map(|entry| &entry.seen).for_each(|seen| count[seen.model] += 1);
    count.into_iter().map(|count| count >= LEAST_OUTCOMES).collect()
}

/// Whether every two models are linked by prompts that both were tried on: only then can a softmax over all of them be
/// fitted.
fn linked(entries: &[&Entry], models: usize) -> bool {
    let mut root: Vec<usize> = (0..models).collect();
    fn find(root: &[usize], mut at: usize) -> usize {
        while root[at] != at {
            at = root[at];
        }
        at
    }
    let mut seen = vec![false; models];
    for entry in entries {
        for pair in entry.seen.windows(2) {
            let (a, b) = (find(&root, pair[0].model), find(&root, pair[1].model));
            root[a] = b;
        }
        entry.seen.iter().for_each(|one| seen[one.model] = true);
    }
    let mut roots: Vec<usize> = (0..models).filter(|m| seen[*m]).map(|m| find(&root, m)).collect();
    roots.sort_unstable();
    roots.dedup();
    roots.len() < 2
}

/// Chooses a method by cross-validation over `entries`, split by prompt.
pub fn choose(
    data: &Data<'_>,
    entries: &[&Entry],
    target: Target,
    pool: &Pool,
    told: &mut dyn FnMut(f64),
) -> (Method, Vec<Tried>) {
    let ridge = RIDGE.map(|ridge| vec![Method::Utility { ridge }]).concat();
    let soft = TAU.iter().flat_map(|&tau| SOFT_L2.map(|l2| Method::Soft { tau, l2 })).collect::<Vec<_>>();
    let hard = SOFT_L2.map(|l2| Method::Hard { l2 }).to_vec();
    let methods: Vec<Method> = match target {
        Target::Utility => ridge,
        Target::Soft => soft,
        Target::Hard => hard,
        Target::Auto if linked(entries, data.models) => [ridge, soft, hard].concat(),
        Target::Auto => ridge,
    };
    let judged: Vec<&Entry> = entries.iter().filter(|entry| entry.seen.len() > 1).copied().collect();
    let fold_of = |entry: &Entry| (entry.hash >> 8) % FOLDS;
    let plain = match target {
        Target::Soft => Method::Soft { tau: 0.1, l2: 333.0 },
        Target::Hard => Method::Hard { l2: 333.0 },
        _ => Method::Utility { ridge: 1000.0 },
    };
    if judged.len() < 3 * FOLDS as usize {
        return (plain, Vec::new());
    }
    let mut sums: Vec<BTreeMap<usize, (f64, usize)>> = vec![BTreeMap::new(); methods.len()];
    for fold in 0..FOLDS {
        told(fold as f64 / FOLDS as f64);
        let fitted: Vec<&Entry> = entries.iter().filter(|e| fold_of(e) != fold).copied().collect();
        let heads = fit_all(data, &fitted, &methods, pool);
        for (sums, head) in sums.iter_mut().zip(&heads) {
            for entry in judged.iter().filter(|entry| fold_of(entry) == fold) {
                let logits = head.apply(data.x.row(entry.row));
                let sum = sums.entry(entry.file).or_default();
                sum.0 += pick(entry, |seen| f64::from(logits[seen.model])).utility;
                sum.1 += 1;
            }
        }
    }
    told(1.0);
    let mean = |sums: &BTreeMap<usize, (f64, usize)>| {
        sums.values().map(|(sum, n)| sum / *n as f64).sum::<f64>() / sums.len().max(1) as f64
    };
    let tried: Vec<Tried> = methods
        .iter()
        .zip(&sums)
        .map(|(method, sums)| Tried { method: *method, utility: mean(sums) })
        .collect();
    let best = tried.iter().fold(None, |best: Option<&Tried>, one| match best {
        Some(best) if best.utility >= one.utility => Some(best),
        _ => Some(one),
    });
    (best.map_or(plain, |best| best.method), tried)
}

/// The outcome of the best-scored model among those that were tried on a prompt; the first of equals.
fn pick(entry: &Entry, score: impl Fn(&Seen) -> f64) -> Seen {
    let mut best = entry.seen[0];
    let mut most = score(&best);
    for seen in &entry.seen[1..] {
        let value = score(seen);
        if value > most {
            (best, most) = (*seen, value);
        }
    }
    best
}

/// A head for raw vectors.
pub fn fit(data: &Data<'_>, entries: &[&Entry], method: Method, pool: &Pool) -> Head {
    fit_all(data, entries, &[method], pool).remove(0)
}

fn fit_all(data: &Data<'_>, entries: &[&Entry], methods: &[Method], pool: &Pool) -> Vec<Head> {
    let rows: Vec<usize> = entries.iter().map(|entry| entry.row).collect();
    let x = data.x.gather(&rows);
    let scaling = Scaling::of(&x, data.widths, false);
    let scaled = scaling.apply(&x);
    let strengths: Vec<f64> = methods
        .iter()
        .filter_map(|method| match method {
            Method::Utility { ridge } => Some(*ridge),
            _ => None,
        })
        .collect();
    let mut ridges = ridge(data, entries, &scaled, &scaling, &strengths, pool).into_iter();
    let logistic = par_map(pool, methods.len(), |at| {
        let (tau, l2) = match methods[at] {
            Method::Utility { .. } => return None,
            Method::Soft { tau, l2 } => (Some(tau), l2),
            Method::Hard { l2 } => (None, l2),
        };
        let solution = fit_logistic(&scaled, &soft_targets(data, entries, tau), l2, None);
        Some(scaling.fold(&solution.weight, &solution.bias))
    });
    let empty = || Head::zero(data.models, data.x.cols);
    let mut heads: Vec<Head> =
        logistic.into_iter().map(|head| head.or_else(|| ridges.next()).unwrap_or_else(empty)).collect();
    let trained = trained(entries, data.models);
    for head in &mut heads {
        for model in (0..data.models).filter(|model| !trained[*model]) {
            head.weight[model * data.x.cols..][..data.x.cols].fill(0.0);
            head.bias[model] = 0.0;
        }
    }
    heads
}

fn soft_targets(data: &Data<'_>, entries: &[&Entry], tau: Option<f64>) -> Targets {
    let k = data.models;
    let mut targets = Targets {
        classes: k,
        wanted: vec![0.0; entries.len() * k],
        weight: Vec::with_capacity(entries.len()),
        known: vec![false; entries.len() * k],
    };
    for (row, entry) in entries.iter().enumerate() {
        let top = entry.seen.iter().map(|s| s.utility).fold(f64::NEG_INFINITY, f64::max);
        let share = |seen: &Seen| match tau {
            Some(tau) => ((seen.utility - top) / tau).exp(),
            None => f64::from(u8::from(seen.utility >= top - 1e-9)),
        };
        let sum: f64 = entry.seen.iter().map(share).sum();
        for seen in &entry.seen {
            targets.wanted[row * k + seen.model] = (share(seen) / sum) as f32;
            targets.known[row * k + seen.model] = true;
        }
        // One model alone was compared with none.
        targets.weight.push(if entry.seen.len() > 1 { 1.0 } else { 0.0 });
    }
    targets
}

/// Ridge regressions of each model's utility, for several strengths.
fn ridge(
    data: &Data<'_>,
    entries: &[&Entry],
    scaled: &Matrix,
    scaling: &Scaling,
    strengths: &[f64],
    pool: &Pool,
) -> Vec<Head> {
    if strengths.is_empty() {
        return Vec::new();
    }
    let (d, models) = (scaled.cols, data.models);
    let prior_rows: Vec<usize> = data.prior.iter().map(|(row, _)| *row).collect();
    let prior = scaling.apply(&data.x.gather(&prior_rows));
    let guess = Guess::of(data, entries);
    // Models that were tried on the same prompts share one system of equations.
    type System = (Vec<usize>, Vec<Task>, Vec<(usize, Vec<f64>)>);
    let mut systems: Vec<System> = Vec::new();
    let mut place: HashMap<(Vec<usize>, Vec<Task>), usize> = HashMap::new();
    let trained = trained(entries, models);
    for model in (0..models).filter(|model| trained[*model]) {
        let (mut mine, mut wanted) = (Vec::new(), Vec::new());
        for (row, entry) in entries.iter().enumerate() {
            if let Some(seen) = entry.seen.iter().find(|seen| seen.model == model) {
                mine.push(row);
                wanted.push(seen.utility);
            }
        }
        let missing: Vec<Task> = Task::ALL.into_iter().filter(|task| !guess.has(model, *task)).collect();
        for (_, task) in data.prior.iter().filter(|(_, task)| missing.contains(task)) {
            wanted.push(guess.utility(model, *task));
        }
        let at = *place.entry((mine.clone(), missing.clone())).or_insert_with(|| {
            systems.push((mine, missing, Vec::new()));
            systems.len() - 1
        });
        systems[at].2.push((model, wanted));
    }
    let mut heads = vec![(vec![0.0; models * d], vec![0.0; models]); strengths.len()];
    for (mine, missing, wanted) in systems {
        let mut x = Matrix::new(d + 1);
        let rows = mine.iter().map(|row| scaled.row(*row));
        let far = data.prior.iter().zip(prior.iter()).filter(|((_, task), _)| missing.contains(task));
        for row in rows.chain(far.map(|(_, row)| row)) {
            x.data.extend_from_slice(row);
            x.data.push(1.0);
        }
        let gram = x.gram(pool);
        let right: Vec<Vec<f64>> = par_map(pool, wanted.len(), |at| {
            let mut right = vec![0.0; d + 1];
            for (row, y) in x.iter().zip(&wanted[at].1) {
                right.iter_mut().zip(row).for_each(|(r, x)| *r += f64::from(*x) * y);
            }
            right
        });
        let solved = par_map(pool, strengths.len(), |at| {
            let mut system = gram.clone();
            (0..d).for_each(|i| system[i * (d + 1) + i] += strengths[at]);
            system[(d + 1) * (d + 1) - 1] += 1e-6;
            let factor = cholesky(&system, d + 1)?;
            let solve = |right: &Vec<f64>| {
                let mut solution = right.clone();
                cholesky_solve(&factor, &mut solution);
                solution
            };
            Some(right.iter().map(solve).collect::<Vec<_>>())
        });
        for ((weight, bias), solved) in heads.iter_mut().zip(solved) {
            // A system that is no system has vectors that are no numbers: the head's check says so.
            for ((model, _), solution) in wanted.iter().zip(solved.into_iter().flatten()) {
                weight[model * d..][..d].copy_from_slice(&solution[..d]);
                bias[*model] = solution[d];
            }
        }
    }
    heads.iter().map(|(weight, bias)| scaling.fold(weight, bias)).collect()
}

/// What is taken of a model in a task where it has no outcome.
struct Guess {
    /// Mean quality-side utility without price, and count, by task and model.
    mean: HashMap<Task, Vec<(f64, usize)>>,
    overall: f64,
    edge: Vec<f64>,
    cost: Vec<f64>,
}

impl Guess {
    fn of(data: &Data<'_>, entries: &[&Entry]) -> Self {
        let cost: Vec<f64> = data.price.iter().map(|price| data.lambda * price).collect();
        let mut mean: HashMap<Task, Vec<(f64, usize)>> = HashMap::new();
        for entry in entries {
            let Some(task) = entry.task else { continue };
            let of = mean.entry(task).or_insert_with(|| vec![(0.0, 0); data.models]);
            for seen in &entry.seen {
                of[seen.model].0 += seen.utility + cost[seen.model];
                of[seen.model].1 += 1;
            }
        }
        for of in mean.values_mut().flatten() {
            of.0 /= of.1.max(1) as f64;
        }
        let known: Vec<f64> =
            mean.values().flatten().filter(|(_, n)| *n > 0).map(|(mean, _)| *mean).collect();
        // The order of a hash map is not that of another run, nor is a sum over it.
        let mut sorted = known;
        sorted.sort_by(f64::total_cmp);
        let overall = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        let logs: Vec<f64> = data.price.iter().map(|price| price.max(1e-9).ln()).collect();
        let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
        let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let edge =
            |log: &f64| if high > low { PRICE_EDGE * (high - log) / (high - low) } else { PRICE_EDGE / 2.0 };
        Self { mean, overall, edge: logs.iter().map(edge).collect(), cost }
    }

    fn has(&self, model: usize, task: Task) -> bool {
        self.mean.get(&task).is_some_and(|of| of[model].1 > 0)
    }

    fn utility(&self, model: usize, task: Task) -> f64 {
        let known: Vec<f64> =
            self.mean.get(&task).into_iter().flatten().filter(|(_, n)| *n > 0).map(|(m, _)| *m).collect();
        let quality = match known.is_empty() {
            true => self.overall + self.edge[model] - PRICE_EDGE / 2.0,
            false => known.iter().sum::<f64>() / known.len() as f64,
        };
        quality - self.cost[model]
    }
}

/// Mean quality and mean cost of a way to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Mean quality.
    pub quality: f64,
    /// Mean USD for 1,000 prompts.
    pub usd_per_1k_prompts: f64,
}

/// A weight of cost and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// λ, per USD for 1,000 tokens.
    pub lambda: f64,
    /// What comes of it.
    #[serde(flatten)]
    pub point: Point,
}

/// RouterBench's measure: the area under the upper convex hull of (mean cost, mean quality) over the span of cost of the
/// single models, divided by the span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aiq {
    /// The head, λ swept.
    pub head: f64,
    /// The single models, mixed at random.
    pub models: f64,
    /// The best model of each class by its means, λ swept; the true class is known.
    pub best_per_class: f64,
    /// The best outcome, λ swept.
    pub oracle: f64,
}

/// What routing is worth on prompts held out, of one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// The file.
    pub file: String,
    /// Prompts held out with two outcomes or more.
    pub prompts: usize,
    /// Models.
    pub models: Vec<String>,
    /// A model at random.
    pub random: Point,
    /// The model of the least mean cost.
    pub cheapest: Point,
    /// Its id.
    pub cheapest_model: String,
    /// The model of the best mean on the prompts that were fitted.
    pub best_single: Point,
    /// Its id.
    pub best_single_model: String,
    /// The best of the prompt's true class by the same means.
    pub best_per_class: Point,
    /// The head at the λ that it was fitted with.
    pub head: Point,
    /// What a random mix of single models reaches at the head's cost.
    pub models_at_the_heads_cost: f64,
    /// The best outcome; of equals the cheapest.
    pub oracle: Point,
    /// RouterBench's measure.
    pub aiq: Aiq,
    /// The head at other weights of cost.
    pub sweep: Vec<Swept>,
    /// How often the head picked each model.
    pub picks: BTreeMap<String, usize>,
}

/// The λ of [`Panel::sweep`].
const LAMBDAS: [f64; 9] = [0.0, 0.35, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0];

/// Judges a head's logits on entries of one file. `known` are the entries that were fitted: what baselines may know.
pub fn judge(
    data: &Data<'_>,
    (head, method): (&Head, Method),
    known: &[&Entry],
    held: &[&Entry],
    file: (usize, &str),
    ids: &[String],
) -> Option<Panel> {
    let of_file = |entries: &[&'_ Entry]| -> Vec<Entry> {
        entries.iter().filter(|e| e.file == file.0 && e.seen.len() > 1).map(|e| (*e).clone()).collect()
    };
    let (known, held) = (of_file(known), of_file(held));
    if known.is_empty() || held.is_empty() {
        return None;
    }
    let logits: Vec<Vec<f32>> = held.iter().map(|entry| head.apply(data.x.row(entry.row))).collect();
    let models = data.models;
    let means = |entries: &mut dyn Iterator<Item = &Entry>| {
        let mut sum = vec![(0.0, 0.0, 0usize); models];
        for seen in entries.flat_map(|entry| &entry.seen) {
            let of = &mut sum[seen.model];
            *of = (of.0 + seen.quality, of.1 + seen.cost, of.2 + 1);
        }
        let mean = |(q, c, n): (f64, f64, usize)| (n > 0).then(|| (q / n as f64, c / n as f64));
        sum.into_iter().map(mean).collect::<Vec<_>>()
    };
    let all = means(&mut known.iter());
    let mut by_task: HashMap<Task, Vec<Option<(f64, f64)>>> = HashMap::new();
    for task in Task::ALL {
        by_task.insert(task, means(&mut known.iter().filter(|entry| entry.task == Some(task))));
    }
    let quality = |model: usize| all[model].map_or(f64::NEG_INFINITY, |mean| mean.0);
    let cost = |model: usize| all[model].map_or(f64::INFINITY, |mean| mean.1);
    let class_quality = |entry: &Entry, model: usize| {
        let of_task = entry.task.and_then(|task| by_task.get(&task)).and_then(|of| of[model]);
        of_task.map_or_else(|| quality(model), |mean| mean.0)
    };
    let point = |score: &dyn Fn(usize, &Entry, &Seen) -> f64| {
        let picks = held.iter().enumerate().map(|(at, entry)| pick(entry, |seen| score(at, entry, seen)));
        let n = held.len() as f64;
        let (q, c) = picks.fold((0.0, 0.0), |(q, c), seen| (q + seen.quality, c + seen.cost));
        Point { quality: q / n, usd_per_1k_prompts: c / n * 1e3 }
    };
    // A logit of the logistic kinds is a log probability and not a quality: there λ takes from the probability, as the
    // decision does.
    let sums: Vec<f64> = match method {
        Method::Utility { .. } => Vec::new(),
        _ => {
            let sum = |(entry, z): (&Entry, &Vec<f32>)| {
                entry.seen.iter().map(|seen| f64::from(z[seen.model]).exp()).sum()
            };
            held.iter().zip(&logits).map(sum).collect()
        }
    };
    let expected = |at: usize, model: usize| match sums.get(at) {
        None => f64::from(logits[at][model]) + data.lambda * data.price[model],
        Some(sum) => f64::from(logits[at][model]).exp() / sum,
    };
    let swept =
        |lambda: f64| point(&|at, _, seen| expected(at, seen.model) - lambda * data.price[seen.model]);
    let head_point = point(&|at, _, seen| f64::from(logits[at][seen.model]));
    let dearest = held.iter().flat_map(|entry| &entry.seen).map(|s| s.cost).fold(1e-12, f64::max);
    let here: Vec<usize> = (0..models).filter(|model| all[*model].is_some()).collect();
    let order = |by: &dyn Fn(usize) -> f64| {
        here.iter().copied().min_by(|a, b| by(*a).total_cmp(&by(*b))).unwrap_or_default()
    };
    let (cheapest, best) = (order(&cost), order(&|model| -quality(model)));
    let n_seen = held.iter().map(|entry| entry.seen.len()).sum::<usize>() as f64;
    let sum =
        |of: &dyn Fn(&Seen) -> f64| held.iter().flat_map(|entry| &entry.seen).map(of).sum::<f64>() / n_seen;
    let singles: Vec<(f64, f64)> = {
        let of_held = means(&mut held.iter());
        here.iter().filter_map(|model| of_held[*model]).map(|(q, c)| (c * 1e3, q)).collect()
    };
    let span = singles.iter().fold((f64::INFINITY, 0f64), |(low, high), (c, _)| (low.min(*c), high.max(*c)));
    let pair = |point: Point| (point.usd_per_1k_prompts, point.quality);
    let cheapest_point = point(&|_, _, seen| -cost(seen.model));
    // From no weight to one that only the price counts under, whatever the prices.
    let weights = |unit: f64| {
        (0..=60).map(move |step| match step {
            0 => 0.0,
            step => 10f64.powf(f64::from(step) / 10.0 - 3.0) / unit,
        })
    };
    let price_unit = here.iter().map(|model| data.price[*model]).fold(1e-12, f64::max);
    let area =
        |points: Vec<(f64, f64)>| hull_area(points.into_iter().chain([pair(cheapest_point)]), span.0, span.1);
    let mut picks = BTreeMap::new();
    for (at, entry) in held.iter().enumerate() {
        let seen = pick(entry, |seen| f64::from(logits[at][seen.model]));
        *picks.entry(ids[seen.model].clone()).or_insert(0) += 1;
    }
    Some(Panel {
        file: file.1.to_owned(),
        prompts: held.len(),
        models: here.iter().map(|model| ids[*model].clone()).collect(),
        random: Point { quality: sum(&|s| s.quality), usd_per_1k_prompts: sum(&|s| s.cost) * 1e3 },
        cheapest: cheapest_point,
        cheapest_model: ids[cheapest].clone(),
        best_single: point(&|_, _, seen| quality(seen.model)),
        best_single_model: ids[best].clone(),
        best_per_class: point(&|_, entry, seen| class_quality(entry, seen.model)),
        head: head_point,
        models_at_the_heads_cost: hull_at(&hull(singles.iter().copied()), head_point.usd_per_1k_prompts),
        oracle: point(&|_, _, seen| seen.quality - 1e-6 * seen.cost / dearest),
        aiq: Aiq {
            head: area(weights(price_unit).map(|lambda| pair(swept(lambda))).collect()),
            models: hull_area(singles.iter().copied(), span.0, span.1),
            best_per_class: area(
                weights(dearest)
                    .map(|l| pair(point(&|_, e, s| class_quality(e, s.model) - l * cost(s.model))))
                    .collect(),
            ),
            oracle: area(
                weights(dearest)
                    .map(|l| pair(point(&|_, _, s| s.quality - (l + 1e-6 / dearest) * s.cost)))
                    .collect(),
            ),
        },
        sweep: LAMBDAS.map(|lambda| Swept { lambda, point: swept(lambda) }).to_vec(),
        picks,
    })
}

/// The upper convex hull of (cost, quality), as far as quality grows.
fn hull(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut hull: Vec<(f64, f64)> = Vec::new();
    for point in points {
        if hull.last().is_some_and(|last| point.1 <= last.1) {
            continue;
        }
        while let [.., a, b] = hull[..] {
            // Whether b lies on or below the line from a to the point.
            if (b.1 - a.1) * (point.0 - a.0) <= (point.1 - a.1) * (b.0 - a.0) {
                hull.pop();
            } else {
                break;
            }
        }
        hull.push(point);
    }
    hull
}

/// A hull's quality at a cost: between its points a random mix of both; before the first, the first's.
fn hull_at(hull: &[(f64, f64)], cost: f64) -> f64 {
    let Some(after) = hull.iter().position(|point| point.0 > cost) else {
        return hull.last().map_or(0.0, |point| point.1);
    };
    if after == 0 {
        return hull[0].1;
    }
    let (a, b) = (hull[after - 1], hull[after]);
    a.1 + (b.1 - a.1) * (cost - a.0) / (b.0 - a.0)
}

/// The area under the upper convex hull of (cost, quality) from `low` to `high`, divided by the span: a mean quality. Beyond
/// the last point quality stays as it is.
pub fn hull_area(points: impl Iterator<Item = (f64, f64)>, low: f64, high: f64) -> f64 {
    let hull = hull(points);
    if high <= low {
        return hull_at(&hull, low);
    }
    let inner = hull.iter().map(|point| point.0).filter(|cost| *cost > low && *cost < high);
    let stops: Vec<f64> = [low].into_iter().chain(inner).chain([high]).collect();
    let piece =
        |pair: &[f64]| (pair[1] - pair[0]) * (hull_at(&hull, pair[0]) + hull_at(&hull, pair[1])) / 2.0;
    stops.windows(2).map(piece).sum::<f64>() / (high - low)
}

/// The temperature under which `softmax(logits / T)` is nearest to the chance that a model is among the best for the prompt,
/// each prompt among the models that were tried on it. `None` where no prompt has a better and a worse model.
pub fn temperature(data: &Data<'_>, head: &Head, held: &[&Entry]) -> Option<f64> {
    let mut examples: Vec<(Vec<f32>, Vec<f64>)> = Vec::new();
    for entry in held {
        let top = entry.seen.iter().map(|s| s.quality).fold(f64::NEG_INFINITY, f64::max);
        let best = |seen: &&Seen| seen.quality >= top - 1e-9;
        let n = entry.seen.iter().filter(best).count();
        if n == entry.seen.len() {
            continue;
        }
        let logits = head.apply(data.x.row(entry.row));
        let own = entry.seen.iter().map(|seen| logits[seen.model]).collect();
        let share = |seen: &Seen| if best(&seen) { 1.0 / n as f64 } else { 0.0 };
        examples.push((own, entry.seen.iter().map(share).collect()));
    }
    if examples.is_empty() {
        return None;
    }
    let loss = |temperature: f64| {
        let of = |(logits, wanted): &(Vec<f32>, Vec<f64>)| {
            let p = softmax(logits, temperature as f32);
            wanted.iter().zip(p).map(|(wanted, p)| -wanted * (p + 1e-12).ln()).sum::<f64>()
        };
        examples.iter().map(of).sum::<f64>()
    };
    let all: Vec<f64> = (0..=75).map(|step| 0.01 * 1.11f64.powi(step)).collect();
    let losses: Vec<f32> = all.iter().map(|t| -loss(*t) as f32).collect();
    Some(all[argmax(&losses)])
}

/// The hash that splits a prompt.
pub fn split_hash(prompt: &str) -> u64 {
    text_hash(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_of_a_hull_is_the_mean_quality_over_the_span() {
        // A triangle from (0, 0) to (1, 1), then flat to 2: ½ + 1 over 2.
        let line = [(0.0, 0.0), (1.0, 1.0), (2.0, 0.5)];
        assert!((hull_area(line.into_iter(), 0.0, 2.0) - 0.75).abs() < 1e-12);
        // A point below the line changes nothing, one above it does.
        assert!((hull_area(line.into_iter().chain([(0.5, 0.2)]), 0.0, 2.0) - 0.75).abs() < 1e-12);
        let above = hull_area(line.into_iter().chain([(0.5, 1.0)]), 0.0, 2.0);
        assert!((above - 0.875).abs() < 1e-12, "{above}");
        assert_eq!(hull_area([(1.0, 0.4)].into_iter(), 1.0, 1.0), 0.4);
        assert!((hull_at(&hull(line.into_iter()), 0.25) - 0.25).abs() < 1e-12);
    }

    /// Two models on a line of vectors: the cheap one is right on the left, the dear one on the right.
    fn world(n: usize) -> (Matrix, Vec<Entry>) {
        let x =
            Matrix { cols: 2, data: (0..n).flat_map(|i| [i as f32 / n as f32 * 10.0 - 5.0, 1.0]).collect() };
        let entries = (0..n).map(|i| {
            let right = i * 2 >= n;
            let seen = |model: usize, quality: bool, cost: f64| {
                let quality = f64::from(u8::from(quality));
                Seen { model, quality, utility: quality - 0.1 * cost, cost }
            };
            Entry {
                row: i,
                hash: text_hash(&i.to_string()),
                file: 0,
                task: Some(if right { Task::Math } else { Task::Code }),
                seen: vec![seen(0, !right, 0.001), seen(1, right, 0.01)],
            }
        });
        (x, entries.collect())
    }

    #[test]
    fn every_kind_of_head_learns_where_a_model_is_right() {
        let (x, entries) = world(300);
        let price = [0.001, 0.01];
        let data = Data { x: &x, widths: &[2], models: 2, price: &price, lambda: 0.1, prior: &[] };
        let (held, known): (Vec<&Entry>, Vec<&Entry>) = entries.iter().partition(|e| e.is_held_out());
        let pool = Pool::new(2);
        let ids = ["cheap".to_owned(), "dear".to_owned()];
        for target in [Target::Utility, Target::Soft, Target::Hard, Target::Auto] {
            let (method, tried) = choose(&data, &known, target, &pool, &mut |_| {});
            assert!(!tried.is_empty());
            let head = fit(&data, &known, method, &pool);
            let panel = judge(&data, (&head, method), &known, &held, (0, "toy"), &ids).unwrap();
            assert!(panel.head.quality > 0.97, "{target:?}: {panel:?}");
            assert!(panel.oracle.quality == 1.0 && panel.aiq.head > panel.aiq.models, "{panel:?}");
            assert!(panel.best_per_class.quality == 1.0 && panel.random.quality == 0.5);
            assert_eq!(panel.cheapest_model, "cheap");
            assert!(panel.head.quality > panel.models_at_the_heads_cost);
            assert!(temperature(&data, &head, &held).is_some());
        }
    }

    #[test]
    fn models_never_tried_together_are_not_put_into_one_softmax() {
        let (_, mut entries) = world(40);
        assert!(linked(&entries.iter().collect::<Vec<_>>(), 2));
        for (at, entry) in entries.iter_mut().enumerate() {
            entry.seen.remove(at % 2);
        }
        assert!(!linked(&entries.iter().collect::<Vec<_>>(), 2));
        assert_eq!(trained(&entries.iter().take(18).collect::<Vec<_>>(), 3), [false; 3]);
        assert_eq!(trained(&entries.iter().collect::<Vec<_>>(), 3), [true, true, false]);
    }

    #[test]
    fn a_task_that_nobody_was_tried_on_prefers_the_cheaper() {
        let (mut x, entries) = world(200);
        // Small talk lies elsewhere.
        for i in 0..60 {
            x.data.extend([0.1 * (i % 5) as f32, 30.0]);
        }
        let prior: Vec<(usize, Task)> = (200..260).map(|row| (row, Task::CheapChat)).collect();
        let data = Data { x: &x, widths: &[2], models: 2, price: &[0.001, 0.01], lambda: 0.1, prior: &prior };
        let known: Vec<&Entry> = entries.iter().collect();
        let head = fit(&data, &known, Method::Utility { ridge: 1.0 }, &Pool::single());
        let z = head.apply(x.row(230));
        assert!(z[0] > z[1] + 0.03 && z[0] < z[1] + 0.2, "{z:?}");
    }
}
