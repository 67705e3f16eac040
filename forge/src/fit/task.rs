//! The task head: its L2 by cross-validation, its worth on sources that it has not seen, its temperature.

use super::folds::deal;
use super::logistic::{Head, Scaling, Targets, fit};
use super::matrix::{Matrix, par_map};
use super::score::{Scores, argmax};
use serde::{Deserialize, Serialize};
use zen_edge_kernels::pool::Pool;

/// The strengths of L2 that cross-validation tries, from the strongest on: 1/C of scikit-learn.
pub const GRID: [f64; 8] = [3333.0, 1000.0, 333.0, 100.0, 33.0, 10.0, 3.3, 1.0];
/// What is taken where there are too few rows to choose.
pub const PLAIN_L2: f64 = 33.0;
/// Folds of a dealing.
pub const FOLDS: usize = 5;
/// The dealing that L2 is chosen on; others judge.
const CHOICE: u64 = 7;

/// Labelled rows.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Their vectors.
    pub x: &'a Matrix,
    /// Their classes.
    pub labels: &'a [usize],
    /// How many classes there are.
    pub classes: usize,
    /// Rows that are held out together.
    pub groups: &'a [usize],
    /// The widths of the vector's parts.
    pub widths: &'a [usize],
}

/// Whether each coordinate is brought to unit variance before the fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standardize {
    /// Never.
    #[default]
    No,
    /// Always.
    Yes,
    /// Where cross-validation says so.
    Cv,
}

/// What the rows of a class count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Each row the same.
    Rows,
    /// Each source the same, however many rows it has: a head for sources that it has not seen should not be that of the
    /// largest one.
    Sources,
    /// What cross-validation prefers.
    #[default]
    Cv,
}

/// A strength of L2 and what cross-validation says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The strength.
    pub l2: f64,
    /// Whether coordinates were standardised.
    pub standardize: bool,
    /// What rows counted.
    pub count: Count,
    /// Balanced accuracy on the rows held out.
    pub balanced_accuracy: f64,
}

/// How the head is fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// The strength of L2.
    pub l2: f64,
    /// Whether coordinates are standardised.
    pub standardize: bool,
    /// What rows count: never [`Count::Cv`].
    pub count: Count,
    /// What was tried; empty where the strength was given or there was nothing to choose on.
    pub tried: Vec<Tried>,
}

impl Rows<'_> {
    /// What a head is fitted to on these of the rows.
    fn targets(&self, rows: &[usize], count: Count) -> Targets {
        let of = |all: &[usize]| rows.iter().map(|row| all[*row]).collect::<Vec<_>>();
        let labels = of(self.labels);
        match count {
            Count::Sources => Targets::balanced_by(&labels, &of(self.groups), self.classes),
            Count::Rows | Count::Cv => Targets::balanced(&labels, self.classes),
        }
    }

    /// How many folds can be dealt; 0 where none can be held out.
    pub fn folds(&self) -> usize {
        let mut groups = self.groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() < 2 { 0 } else { FOLDS.min(groups.len()) }
    }

    /// The folds of a dealing.
    pub fn deal(&self, seed: u64) -> Vec<usize> {
        deal(self.labels, self.classes, self.groups, self.folds(), seed)
    }
}

/// The rows of a fold, and those beside it.
pub fn sides(folds: &[usize], fold: usize) -> (Vec<usize>, Vec<usize>) {
    (0..folds.len()).partition(|row| folds[*row] != fold)
}

/// A fold that is fitted at one strength after the other, each from where the last one ended.
struct Path {
    x: Matrix,
    targets: Targets,
    scaling: Scaling,
    held: Vec<usize>,
    start: Option<Vec<f64>>,
}

/// Chooses the strength of L2 by balanced accuracy on the rows held out. `told` is given the share that is done.
pub fn choose(
    rows: &Rows<'_>,
    l2: Option<f64>,
    standardize: Standardize,
    count: Count,
    pool: &Pool,
    told: &mut dyn FnMut(f64),
) -> Choice {
    let standardized: &[bool] = match standardize {
        Standardize::No => &[false],
        Standardize::Yes => &[true],
        Standardize::Cv => &[false, true],
    };
    let counts = match count {
        Count::Cv => &[Count::Rows, Count::Sources][..],
        Count::Rows => &[Count::Rows],
        Count::Sources => &[Count::Sources],
    };
    let ways: Vec<_> =
        standardized.iter().flat_map(|&way| counts.iter().map(move |&count| (way, count))).collect();
    let grid = l2.as_ref().map_or(GRID.as_slice(), std::slice::from_ref);
    let (standardize, count) = ways[0];
    let mut choice = Choice { l2: l2.unwrap_or(PLAIN_L2), standardize, count, tried: Vec::new() };
    if rows.folds() == 0 || (grid.len() == 1 && ways.len() == 1) {
        return choice;
    }
    let folds = rows.deal(CHOICE);
    let mut best = f64::NEG_INFINITY;
    for (way, &(standardize, count)) in ways.iter().enumerate() {
        let mut paths = par_map(pool, rows.folds(), |fold| {
            let (fitted, held) = sides(&folds, fold);
            let x = rows.x.gather(&fitted);
            let scaling = Scaling::of(&x, rows.widths, standardize);
            let targets = rows.targets(&fitted, count);
            Path { x: scaling.apply(&x), targets, scaling, held, start: None }
        });
        let (mut most, mut worse) = (f64::NEG_INFINITY, 0);
        for (at, &l2) in grid.iter().enumerate() {
            told((way * grid.len() + at) as f64 / (ways.len() * grid.len()) as f64);
            let solved = par_map(pool, paths.len(), |at| {
                let path = &paths[at];
                let solution = fit(&path.x, &path.targets, l2, path.start.as_deref());
                let head = path.scaling.fold(&solution.weight, &solution.bias);
                let guess = path.held.iter().map(|row| argmax(&head.apply(rows.x.row(*row)))).collect();
                (solution.parameters, guess)
            });
            let mut predicted = vec![0; rows.labels.len()];
            for (path, (parameters, guess)) in paths.iter_mut().zip(solved) {
                let guess: Vec<usize> = guess;
                path.held.iter().zip(guess).for_each(|(row, guess)| predicted[*row] = guess);
                path.start = Some(parameters);
            }
            let reached = balanced(rows.labels, &predicted, rows.classes);
            choice.tried.push(Tried { l2, standardize, count, balanced_accuracy: reached });
            if reached > best {
                best = reached;
                (choice.l2, choice.standardize, choice.count) = (l2, standardize, count);
            }
            // Weaker L2 takes longer and, once it has begun to lose, goes on to.
            worse = if reached < most - 0.002 { worse + 1 } else { 0 };
            most = most.max(reached);
            if worse == 2 {
                break;
            }
        }
    }
    told(1.0);
    choice
}

fn balanced(labels: &[usize], predicted: &[usize], classes: usize) -> f64 {
    let names: Vec<String> = (0..classes).map(|class| class.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Scores::of(labels, predicted, &names).balanced_accuracy
}

/// The logits of every row by a head that has not seen its fold.
pub fn out_of_fold(rows: &Rows<'_>, choice: &Choice, folds: &[usize], pool: &Pool) -> Matrix {
    let heads = par_map(pool, rows.folds(), |fold| {
        let (fitted, held) = sides(folds, fold);
        (head(rows, &fitted, choice), held)
    });
    let mut out = Matrix { cols: rows.classes, data: vec![0.0; rows.labels.len() * rows.classes] };
    for (head, held) in heads {
        for row in held {
            out.data[row * rows.classes..][..rows.classes].copy_from_slice(&head.apply(rows.x.row(row)));
        }
    }
    out
}

/// A head over the raw vectors of these of the rows.
pub fn head(rows: &Rows<'_>, fitted: &[usize], choice: &Choice) -> Head {
    let targets = rows.targets(fitted, choice.count);
    let x = rows.x.gather(fitted);
    super::logistic::fit_raw(&x, &targets, choice.l2, rows.widths, choice.standardize).0
}
