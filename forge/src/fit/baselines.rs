//! What heads are set beside: TF-IDF with logistic regression, keywords, the most frequent class.

use super::lbfgs::{self, minimise};
use super::matrix::{Matrix, par_map};
use super::score::argmax;
use super::task::{Rows, sides};
use std::collections::HashMap;
use zen_edge_core::rules::{Request, RuleSet, classify};
use zen_edge_kernels::pool::Pool;

/// Words and pairs of words that count: the most frequent of those in two prompts or more.
pub const TERMS: usize = 50_000;
/// The strength of L2, 1/C of scikit-learn.
pub const TFIDF_L2: f64 = 0.1;
const LANES: usize = 8;

/// Terms of prompts.
pub struct Terms {
    /// For each prompt its terms, with 1 + ln(count).
    rows: Vec<Vec<(u32, f32)>>,
    terms: usize,
}

impl Terms {
    /// Words (runs of letters and digits in lower case; a Chinese, Japanese or Korean character is a word) and pairs of words
    /// of at most `max_chars` characters of each prompt.
    pub fn of(prompts: &[&str], max_chars: usize) -> Self {
        let mut ids: HashMap<u64, u32> = HashMap::new();
        let mut frequency: Vec<u32> = Vec::new();
        let mut rows: Vec<Vec<(u32, f32)>> = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            let mut counts: HashMap<u32, u32> = HashMap::new();
            let mut last = None;
            for word in words(prompt, max_chars) {
                let pair =
                    last.map(|last: u64| last.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word.rotate_left(17));
                for term in [Some(word), pair].into_iter().flatten() {
                    let next = frequency.len() as u32;
                    let id = *ids.entry(term).or_insert(next);
                    if id == next {
                        frequency.push(0);
                    }
                    *counts.entry(id).or_default() += 1;
                }
                last = Some(word);
            }
            let mut row: Vec<(u32, f32)> =
                counts.into_iter().map(|(id, n)| (id, 1.0 + (n as f32).ln())).collect();
            row.sort_unstable_by_key(|(id, _)| *id);
            row.iter().for_each(|(id, _)| frequency[*id as usize] += 1);
            rows.push(row);
        }
        let mut kept: Vec<u32> =
            (0..frequency.len() as u32).filter(|id| frequency[*id as usize] > 1).collect();
        kept.sort_by_key(|id| (std::cmp::Reverse(frequency[*id as usize]), *id));
        kept.truncate(TERMS);
        let mut place = vec![u32::MAX; frequency.len()];
        kept.iter().zip(0..).for_each(|(id, at)| place[*id as usize] = at);
        for row in &mut rows {
            row.retain_mut(|(id, _)| {
                *id = place[*id as usize];
                *id != u32::MAX
            });
        }
        Self { rows, terms: kept.len() }
    }

    /// Of some rows: weighed by inverse document frequency among `known`, unit length.
    fn weighed(&self, known: &[usize], rows: &[usize]) -> Vec<Vec<(u32, f32)>> {
        let mut frequency = vec![0u32; self.terms];
        known.iter().for_each(|&row| self.rows[row].iter().for_each(|(t, _)| frequency[*t as usize] += 1));
        let n = 1.0 + known.len() as f32;
        let idf: Vec<f32> = frequency.iter().map(|f| (n / (1.0 + *f as f32)).ln() + 1.0).collect();
        let weigh = |&row: &usize| {
            let mut out: Vec<(u32, f32)> = self.rows[row].clone();
            out.iter_mut().for_each(|(term, value)| *value *= idf[*term as usize]);
            let norm = out.iter().map(|(_, v)| v * v).sum::<f32>().sqrt().max(1e-12);
            out.iter_mut().for_each(|(_, value)| *value /= norm);
            out
        };
        rows.iter().map(weigh).collect()
    }

    /// Logits of every row by a regression that has not seen its fold.
    pub fn out_of_fold(&self, rows: &Rows<'_>, folds: &[usize], pool: &Pool) -> Matrix {
        let fitted = par_map(pool, rows.folds(), |fold| {
            let (fitted, held) = sides(folds, fold);
            let labels: Vec<usize> = fitted.iter().map(|row| rows.labels[*row]).collect();
            let weights =
                sparse_fit(&self.weighed(&fitted, &fitted), self.terms, &labels, rows.classes, TFIDF_L2);
            let logits: Vec<Vec<f32>> = self
                .weighed(&fitted, &held)
                .iter()
                .map(|row| sparse_logits(row, &weights, self.terms)[..rows.classes].to_vec())
                .collect();
            (held, logits)
        });
        let mut out = Matrix { cols: rows.classes, data: vec![0.0; rows.labels.len() * rows.classes] };
        for (held, logits) in fitted {
            for (row, logits) in held.into_iter().zip(logits) {
                out.data[row * rows.classes..][..rows.classes].copy_from_slice(&logits);
            }
        }
        out
    }
}

/// Hashes of a prompt's words.
fn words(prompt: &str, max_chars: usize) -> Vec<u64> {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let mut words = Vec::new();
    let mut hash = START;
    let mut open = false;
    for c in prompt.chars().take(max_chars) {
        let own = matches!(u32::from(c), 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff);
        if open && (own || !c.is_alphanumeric()) {
            words.push(hash);
            (hash, open) = (START, false);
        }
        if c.is_alphanumeric() {
            for low in c.to_lowercase() {
                hash = (hash ^ u64::from(low)).wrapping_mul(0x0100_0000_01b3);
            }
            open = true;
            if own {
                words.push(hash);
                (hash, open) = (START, false);
            }
        }
    }
    if open {
        words.push(hash);
    }
    words
}

fn sparse_logits(row: &[(u32, f32)], weights: &[f32], terms: usize) -> [f32; LANES] {
    let mut z = [0f32; LANES];
    for (term, value) in row.iter().chain([&(terms as u32, 1.0)]) {
        let w = &weights[*term as usize * LANES..][..LANES];
        (0..LANES).for_each(|l| z[l] += value * w[l]);
    }
    z
}

/// Class-balanced multinomial logistic regression on sparse rows: weights of each term, eight a term, the biases last.
fn sparse_fit(x: &[Vec<(u32, f32)>], terms: usize, labels: &[usize], classes: usize, l2: f64) -> Vec<f32> {
    let weight = super::logistic::Targets::balanced(labels, classes).weight;
    let mut parameters = vec![0f64; (terms + 1) * LANES];
    let share = 1.0 / x.len().max(1) as f64;
    let options = lbfgs::Options { iterations: 60, gradient: 1e-5, gain: 1e-5 };
    minimise(&mut parameters, options, |p, gradient| {
        let weights: Vec<f32> = p.iter().map(|p| *p as f32).collect();
        gradient.fill(0.0);
        let mut loss = 0.0;
        for ((row, &label), &weight) in x.iter().zip(labels).zip(&weight) {
            let z = sparse_logits(row, &weights, terms);
            let top = z[..classes].iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = z[..classes].iter().map(|z| (z - top).exp()).sum();
            loss += f64::from(weight) * f64::from(sum.ln() + top - z[label]);
            let mut residual = [0f32; LANES];
            for class in 0..classes {
                residual[class] =
                    weight * ((z[class] - top).exp() / sum - f32::from(u8::from(class == label)));
            }
            for (term, value) in row.iter().chain([&(terms as u32, 1.0)]) {
                let g = &mut gradient[*term as usize * LANES..][..LANES];
                (0..LANES).for_each(|l| g[l] += f64::from(value * residual[l]));
            }
        }
        let penal = &p[..terms * LANES];
        gradient.iter_mut().zip(penal).for_each(|(g, w)| *g += l2 * w);
        gradient.iter_mut().for_each(|g| *g *= share);
        (loss + 0.5 * l2 * penal.iter().map(|w| w * w).sum::<f64>()) * share
    });
    parameters.into_iter().map(|p| p as f32).collect()
}

/// The most frequent class of the rows outside each row's fold.
pub fn majority(rows: &Rows<'_>, folds: &[usize]) -> Vec<usize> {
    let mut out = vec![0; rows.labels.len()];
    for fold in 0..rows.folds() {
        let (fitted, held) = sides(folds, fold);
        let mut count = vec![0f32; rows.classes];
        fitted.iter().for_each(|row| count[rows.labels[*row]] += 1.0);
        let most = argmax(&count);
        held.into_iter().for_each(|row| out[row] = most);
    }
    out
}

/// What a set of rules says of each prompt, as a place among `tasks`; a task that is not among them is past the end.
pub fn rules(set: RuleSet, prompts: &[&str], tasks: &[zen_edge_core::catalog::Task]) -> Vec<usize> {
    let say = |prompt: &&str| {
        let task = classify(set, &Request::new(prompt)).task;
        tasks.iter().position(|t| *t == task).unwrap_or(tasks.len())
    };
    prompts.iter().map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_single_characters_of_chinese() {
        assert_eq!(words("Write the WRITE", 100).len(), 3);
        let w = words("Write, write", 100);
        assert_eq!(w[0], w[1]);
        assert_eq!(words("写一首诗 now", 100).len(), 5);
        assert_eq!(words("abc def", 4).len(), 1);
        assert!(words(" ,. ", 9).is_empty());
    }

    #[test]
    fn words_that_tell_classes_apart_are_learned() {
        let prompts: Vec<String> = (0..60)
            .map(|i| format!("{} number {}", ["write a poem", "solve the sum", "fix the bug"][i % 3], i % 7))
            .collect();
        let prompts: Vec<&str> = prompts.iter().map(String::as_str).collect();
        let labels: Vec<usize> = (0..60).map(|i| i % 3).collect();
        let groups: Vec<usize> = (0..60).map(|i| i / 3).collect();
        let x = Matrix::new(0);
        let rows = Rows { x: &x, labels: &labels, classes: 3, groups: &groups, widths: &[] };
        let folds = rows.deal(0);
        let logits = Terms::of(&prompts, 4000).out_of_fold(&rows, &folds, &Pool::new(2));
        assert!(logits.iter().zip(&labels).all(|(z, label)| argmax(z) == *label));
        assert_eq!(majority(&rows, &folds).len(), 60);
    }
}
