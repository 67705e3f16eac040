//! Dealing rows into folds: whole sources together, classes as even as sources allow.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// A sequence of pseudo-random numbers that is the same everywhere (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Puts values into another order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for at in (1..values.len()).rev() {
            let other = (self.draw() % (at as u64 + 1)) as usize;
            values.swap(at, other);
        }
    }
}

/// The first eight bytes of a text's SHA-256, as a number: what splits prompts.
pub fn text_hash(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    hash[..8].iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// The fold of each row, `0..folds`: rows of one group are in one fold. Groups are taken by how uneven their classes are, the
/// most uneven first, in a seeded order among equals, each to the fold where the classes' shares end up most alike.
pub fn deal(labels: &[usize], classes: usize, groups: &[usize], folds: usize, seed: u64) -> Vec<usize> {
    let mut counts: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (label, group) in labels.iter().zip(groups) {
        counts.entry(*group).or_insert_with(|| vec![0.0; classes])[*label] += 1.0;
    }
    let mut total = vec![0.0; classes];
    labels.iter().for_each(|label| total[*label] += 1.0);
    let present: Vec<usize> = (0..classes).filter(|c| total[*c] > 0.0).collect();
    let mut order: Vec<(usize, Vec<f64>)> = counts.into_iter().collect();
    Rng(seed).shuffle(&mut order);
    order.sort_by(|a, b| spread(&b.1).total_cmp(&spread(&a.1)));
    let mut dealt = vec![vec![0.0; classes]; folds];
    let mut fold_of = BTreeMap::new();
    for (group, counts) in order {
        let judge = |fold: usize| {
            let evenness: f64 = present
                .iter()
                .map(|&class| {
                    let share = |at: usize| {
                        (dealt[at][class] + if at == fold { counts[class] } else { 0.0 }) / total[class]
                    };
                    spread(&(0..folds).map(share).collect::<Vec<_>>())
                })
                .sum();
            (evenness, dealt[fold].iter().sum::<f64>())
        };
        let mut best = (0, judge(0));
        for fold in 1..folds {
            let judged = judge(fold);
            if judged.0 < best.1.0 - 1e-12 || (judged.0 < best.1.0 + 1e-12 && judged.1 < best.1.1) {
                best = (fold, judged);
            }
        }
        dealt[best.0].iter_mut().zip(&counts).for_each(|(dealt, count)| *dealt += count);
        fold_of.insert(group, best.0);
    }
    groups.iter().map(|group| fold_of[group]).collect()
}

/// The standard deviation.
fn spread(values: &[f64]) -> f64 {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_never_split_and_classes_are_even() {
        let mut rng = Rng(3);
        // 60 sources of 1 to 40 rows, mostly of one class.
        let (mut labels, mut groups) = (Vec::new(), Vec::new());
        for group in 0..60 {
            for _ in 0..=rng.draw() % 40 {
                labels.push(if rng.draw().is_multiple_of(10) { 3 } else { group % 4 });
                groups.push(group);
            }
        }
        for seed in 0..3 {
            let folds = deal(&labels, 4, &groups, 5, seed);
            let mut of: BTreeMap<usize, usize> = BTreeMap::new();
            for (group, fold) in groups.iter().zip(&folds) {
                assert_eq!(of.entry(*group).or_insert(*fold), fold, "source {group} is in two folds");
            }
            for class in 0..4 {
                let all = labels.iter().filter(|l| **l == class).count() as f64;
                for fold in 0..5 {
                    let here = (0..labels.len()).filter(|i| labels[*i] == class && folds[*i] == fold).count();
                    let share = here as f64 / all;
                    assert!((0.08..0.4).contains(&share), "class {class} in fold {fold}: {share}");
                }
            }
        }
        assert_eq!(deal(&labels, 4, &groups, 5, 1), deal(&labels, 4, &groups, 5, 1));
        assert_ne!(deal(&labels, 4, &groups, 5, 1), deal(&labels, 4, &groups, 5, 2));
    }

    #[test]
    fn fewer_groups_than_folds_leave_folds_empty() {
        let folds = deal(&[0, 1, 0, 1], 2, &[0, 0, 1, 1], 5, 0);
        assert_eq!(folds[0], folds[1]);
        assert_ne!(folds[0], folds[2]);
        assert!(deal(&[], 2, &[], 5, 0).is_empty());
    }
}
