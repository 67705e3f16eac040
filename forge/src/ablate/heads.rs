//! Task heads that are fitted on the way: to the untouched vectors, and to those of a scheme.
//!
//! A head that stays as it was tells what a scheme costs those who put another file below the heads that they have; one
//! that is fitted to the scheme's own vectors, what it costs those who fit anew.

use super::AblateError;
use crate::fit::logistic::Head;
use crate::fit::matrix::Matrix;
use crate::fit::report::FileReport;
use crate::fit::score::argmax;
use crate::fit::{Count, FitError, Gathered, Labelled, Standardize, task};
use crate::parity::{self, Accuracy, Prompt, Share};
use crate::rows::Row;
use serde::Serialize;
use std::collections::HashSet;
use std::path::PathBuf;
use zen_edge_core::catalog::Task;
use zen_edge_core::config::RouterConfig;
use zen_edge_core::tokenizer::Tokenizer;
use zen_edge_kernels::pool::Pool;

/// Labelled rows that heads are fitted to.
pub struct FitRows(Gathered);

impl FitRows {
    /// The labelled rows of files, as `zen-edge fit` reads them.
    ///
    /// # Errors
    /// [`FitError`]: files that cannot be read, rows of less than two tasks.
    pub fn read(files: &[PathBuf]) -> Result<Self, FitError> {
        let gathered = Gathered::read(files)?;
        classes(&gathered.labelled)?;
        Ok(Self(gathered))
    }
}

/// The tasks of rows; at least two.
fn classes(labelled: &Labelled) -> Result<Vec<Task>, FitError> {
    let classes: Vec<Task> = Task::ALL.into_iter().filter(|task| labelled.task.contains(task)).collect();
    if classes.len() < 2 {
        return Err(FitError::Classes(classes.iter().map(|task| task.name()).collect()));
    }
    Ok(classes)
}

/// What a report says of the rows that heads were fitted to, and of how.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FitMark {
    /// The files.
    pub files: Vec<FileReport>,
    /// Labelled rows that the heads were fitted to.
    pub rows: usize,
    /// Labelled rows that were left out, for their prompts are judged.
    pub overlap: usize,
    /// The tokens of their prompts.
    pub tokens: usize,
    /// The tasks that the heads tell apart.
    pub tasks: Vec<Task>,
    /// What was held out together when L2 was chosen: `source` or `prompt`.
    pub split: &'static str,
    /// How many folds L2 was chosen on; with none it is taken as it is.
    pub folds: usize,
    /// L2 and the like, chosen on the untouched vectors: the same for every head.
    pub choice: task::Choice,
}

/// A head's decisions on a scheme's vectors, beside those of the untouched head on the untouched vectors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decided {
    /// Prompts with the same task.
    pub task: Option<Share>,
    /// How often it is right; absent where no judged prompt states a task that the head knows.
    pub accuracy: Option<Accuracy>,
}

/// What a scheme costs heads that were fitted on the way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FittedHeads {
    /// The head that was fitted to the untouched vectors.
    pub kept: Decided,
    /// One that was fitted to the scheme's own.
    pub refitted: Decided,
}

/// Rows as backbones read them.
pub(super) struct Fit {
    pub(super) prompts: Vec<Prompt>,
    pub(super) mark: FitMark,
    /// The place among `prompts` of each row.
    place: Vec<usize>,
    labels: Vec<usize>,
    groups: Vec<usize>,
    widths: Vec<usize>,
}

/// The untouched head and what it says.
pub(super) struct Untouched {
    head: Head,
    said: Vec<usize>,
}

impl Fit {
    /// Leaves out what is judged, and makes tokens of the rest.
    pub(super) fn new(
        rows: &FitRows,
        judged: &[(usize, Row)],
        config: &RouterConfig,
        tokenizer: &Tokenizer,
        hidden: usize,
    ) -> Result<Self, AblateError> {
        let FitRows(gathered) = rows;
        let judged: HashSet<&str> = judged.iter().map(|(_, row)| row.prompt.trim()).collect();
        let all = &gathered.labelled;
        let apart = |row: &usize| !judged.contains(gathered.prompts[all.prompt[*row]].trim());
        let kept: Vec<usize> = (0..all.prompt.len()).filter(apart).collect();
        let overlap = all.prompt.len() - kept.len();
        let labelled = all.gather(&kept);
        let tasks = match classes(&labelled) {
            Ok(tasks) => tasks,
            Err(_) if overlap > 0 => return Err(AblateError::Overlap { overlap, left: kept.len() }),
            Err(error) => return Err(error.into()),
        };
        let mut used = labelled.prompt.clone();
        used.sort_unstable();
        used.dedup();
        let texts: Vec<(usize, Row)> = used
            .iter()
            .map(|at| (*at, Row { prompt: gathered.prompts[*at].clone(), ..Row::default() }))
            .collect();
        let (prompts, _) = parity::encode(&texts, config, tokenizer)?;
        // A prompt of no tokens has no vector.
        let place = |prompt: &usize| prompts.binary_search_by_key(prompt, |prompt| prompt.row).ok();
        let read: Vec<usize> =
            (0..labelled.prompt.len()).filter(|row| place(&labelled.prompt[*row]).is_some()).collect();
        let labelled = labelled.gather(&read);
        let (groups, _, split) = labelled.groups();
        let class = |task: &Task| tasks.iter().position(|class| class == task).unwrap_or_default();
        Ok(Self {
            place: labelled.prompt.iter().filter_map(place).collect(),
            labels: labelled.task.iter().map(class).collect(),
            groups,
            widths: config.pooling.widths(hidden).collect(),
            mark: FitMark {
                files: gathered.report.files.clone(),
                rows: labelled.prompt.len(),
                overlap,
                tokens: prompts.iter().map(|prompt| prompt.ids.len()).sum(),
                tasks,
                split,
                folds: 0,
                choice: task::Choice {
                    l2: task::PLAIN_L2,
                    standardize: false,
                    count: Count::Rows,
                    tried: Vec::new(),
                },
            },
            prompts,
        })
    }

    /// Calls `with` the rows and their vectors.
    fn with<R>(&self, vectors: &[Vec<f32>], with: impl FnOnce(&task::Rows<'_>) -> R) -> R {
        let cols = vectors.first().map_or(0, Vec::len);
        let x = Matrix { cols, data: self.place.iter().flat_map(|at| &vectors[*at]).copied().collect() };
        let classes = self.mark.tasks.len();
        let (labels, groups, widths) = (&self.labels, &self.groups, &self.widths);
        with(&task::Rows { x: &x, labels, classes, groups, widths })
    }

    /// Chooses how heads are fitted, and fits the untouched one.
    pub(super) fn untouched(
        &mut self,
        vectors: &[Vec<f32>],
        judged: &[Vec<f32>],
        pool: &Pool,
        told: &mut dyn FnMut(f64),
    ) -> Result<Untouched, AblateError> {
        // Without sources nothing counts but rows.
        let count = if self.mark.split == "source" { Count::Cv } else { Count::Rows };
        let (choice, folds) = self.with(vectors, |rows| {
            (task::choose(rows, None, Standardize::No, count, pool, told), rows.folds())
        });
        (self.mark.choice, self.mark.folds) = (choice, folds);
        let head = self.head(vectors)?;
        let said = say(&head, judged);
        Ok(Untouched { head, said })
    }

    fn head(&self, vectors: &[Vec<f32>]) -> Result<Head, AblateError> {
        let all: Vec<usize> = (0..self.labels.len()).collect();
        let head = self.with(vectors, |rows| task::head(rows, &all, &self.mark.choice));
        if head.is_finite() { Ok(head) } else { Err(FitError::Diverged { head: "task" }.into()) }
    }

    /// What heads make of a scheme's vectors: of the fit's prompts, and of those that are judged.
    pub(super) fn heads(
        &self,
        untouched: &Untouched,
        vectors: &[Vec<f32>],
        judged: &[Vec<f32>],
        prompts: &[Prompt],
    ) -> Result<FittedHeads, AblateError> {
        let decided = |head: &Head| {
            let said = say(head, judged);
            let pairs = || untouched.said.iter().zip(&said);
            let right: Vec<[bool; 2]> = pairs()
                .zip(prompts)
                .filter_map(|((a, b), prompt)| {
                    let label = self.mark.tasks.iter().position(|task| Some(*task) == prompt.task)?;
                    Some([*a == label, *b == label])
                })
                .collect();
            Decided { task: Share::count(pairs().map(|(a, b)| a == b)), accuracy: Accuracy::of(&right) }
        };
        Ok(FittedHeads { kept: decided(&untouched.head), refitted: decided(&self.head(vectors)?) })
    }
}

fn say(head: &Head, vectors: &[Vec<f32>]) -> Vec<usize> {
    vectors.iter().map(|vector| argmax(&head.apply(vector))).collect()
}

impl From<FitError> for AblateError {
    fn from(error: FitError) -> Self {
        Self::Fit(Box::new(error))
    }
}
