//! Logits to a token.

use super::GenerateError;
use zen_edge_kernels::math;

/// How a token is taken from the logits. The parts are applied in the order of the fields: penalty, the `top_k` largest,
/// the fewest that reach `top_p`, those of at least `min_p` of the largest probability, then temperature and chance.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the largest logit (of equal ones the smallest id); 1 samples as the model was trained.
    pub temperature: f32,
    /// Divides positive logits, and multiplies negative ones, of tokens among the last `penalty_window`. 1 is off.
    pub repetition_penalty: f32,
    /// Tokens that the penalty looks back on, the prompt's included.
    pub penalty_window: usize,
    /// How many of the largest logits are kept. 0 is off.
    pub top_k: usize,
    /// The probability that the kept ones reach together. 1 is off.
    pub top_p: f32,
    /// The share of the largest probability that a kept one has at least. 0 is off.
    pub min_p: f32,
    /// What chance begins with: the same seed gives the same text.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            repetition_penalty: 1.0,
            penalty_window: 64,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
        }
    }
}

pub(super) struct Sampler {
    how: Sampling,
    random: fastrand::Rng,
}

impl Sampler {
    pub(super) fn new(how: &Sampling) -> Result<Self, GenerateError> {
        let check = |option, value: f32, range: std::ops::RangeInclusive<f32>, why| {
            if range.contains(&value) {
                return Ok(());
            }
            Err(GenerateError::Option { option, found: f64::from(value), why })
        };
        check("temperature", how.temperature, 0.0..=100.0, "a temperature is 0 to 100")?;
        check(
            "repetition_penalty",
            how.repetition_penalty,
            1e-3..=1e3,
            "a penalty is 0.001 to 1000; 1 is off",
        )?;
        check(
            "top_p",
            how.top_p,
            f32::MIN_POSITIVE..=1.0,
            "a probability that is reached is above 0 and at most 1",
        )?;
        check("min_p", how.min_p, 0.0..=1.0, "a share is 0 to 1")?;
        Ok(Self { how: how.clone(), random: fastrand::Rng::with_seed(how.seed) })
    }

    /// The next token after `before`.
    pub(super) fn sample(&mut self, mut logits: Vec<f32>, before: &[u32]) -> u32 {
        let how = &self.how;
        if how.repetition_penalty != 1.0 {
            let mut seen = before[before.len().saturating_sub(how.penalty_window)..].to_vec();
            seen.sort_unstable();
            seen.dedup();
            for id in seen {
                if let Some(logit) = logits.get_mut(id as usize) {
                    *logit = if *logit > 0.0 {
                        *logit / how.repetition_penalty
                    } else {
                        *logit * how.repetition_penalty
                    };
                }
            }
        }
        if how.temperature == 0.0 {
            return largest(&logits);
        }
        // Largest first; of equal ones the smaller id.
        let mut kept: Vec<(u32, f32)> = (0..).zip(logits).collect();
        let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if how.top_k > 0 && how.top_k < kept.len() {
            kept.select_nth_unstable_by(how.top_k - 1, order);
            kept.truncate(how.top_k);
        }
        kept.sort_unstable_by(order);
        if how.top_p < 1.0 {
            let shares = shares(&kept, 1.0);
            let mut sum = 0.0;
            let enough = shares.iter().position(|share| {
                sum += share;
                sum >= f64::from(how.top_p)
            });
            kept.truncate(enough.map_or(kept.len(), |at| at + 1));
        }
        if how.min_p > 0.0 {
            let shares = shares(&kept, 1.0);
            let least = shares[0] * f64::from(how.min_p);
            kept.truncate(shares.iter().take_while(|share| **share >= least).count().max(1));
        }
        let shares = shares(&kept, how.temperature);
        let mut left = self.random.f64();
        for ((id, _), share) in kept.iter().zip(&shares) {
            left -= share;
            if left < 0.0 {
                return *id;
            }
        }
        // Rounding left a sliver: it is the last one's.
        kept.last().map_or(0, |(id, _)| *id)
    }
}

/// The first of the largest logits.
fn largest(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// The probabilities of logits that come largest first.
fn shares(kept: &[(u32, f32)], temperature: f32) -> Vec<f64> {
    let largest = kept.first().map_or(0.0, |(_, logit)| *logit);
    let share = |logit: f32| math::exp_f64(f64::from(logit - largest) / f64::from(temperature));
    let mut shares: Vec<f64> = kept.iter().map(|(_, logit)| share(*logit)).collect();
    let sum: f64 = shares.iter().sum();
    for share in &mut shares {
        *share /= sum;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(how: Sampling) -> Sampler {
        Sampler::new(&how).unwrap()
    }

    /// How often each id comes in `n` draws.
    fn drawn(how: Sampling, logits: &[f32], n: usize) -> Vec<usize> {
        let mut sampler = sampler(how);
        let mut counts = vec![0; logits.len()];
        for _ in 0..n {
            counts[sampler.sample(logits.to_vec(), &[]) as usize] += 1;
        }
        counts
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        assert_eq!(sampler(Sampling::default()).sample(vec![1.0, 3.0, 3.0, 2.0], &[]), 1);
    }

    #[test]
    fn chance_follows_the_probabilities_and_the_seed() {
        let logits = [0.0, 2f32.ln(), 5f32.ln(), f32::NEG_INFINITY];
        let how = Sampling { temperature: 1.0, seed: 7, ..Sampling::default() };
        let counts = drawn(how.clone(), &logits, 8000);
        for (count, expected) in counts.iter().zip([1000, 2000, 5000, 0]) {
            assert!(count.abs_diff(expected) < 150, "{counts:?}");
        }
        assert_eq!(counts, drawn(how.clone(), &logits, 8000));
        assert_ne!(counts, drawn(Sampling { seed: 8, ..how }, &logits, 8000));
    }

    #[test]
    fn the_temperature_sharpens_and_flattens() {
        let logits = [0.0, 1.0];
        let share = |temperature| {
            drawn(Sampling { temperature, seed: 1, ..Sampling::default() }, &logits, 4000)[1] as f64 / 4000.0
        };
        for (temperature, expected) in [(0.5, 0.8808), (1.0, 0.7311), (2.0, 0.6225)] {
            assert!((share(temperature) - expected).abs() < 0.03, "{temperature}");
        }
    }

    #[test]
    fn what_is_cut_off_never_comes() {
        // Probabilities .1, .2, .3, .4.
        let logits = [1f32.ln(), 2f32.ln(), 3f32.ln(), 4f32.ln()];
        let base = Sampling { temperature: 1.0, ..Sampling::default() };
        let seen = |how| drawn(how, &logits, 2000).iter().map(|n| *n > 0).collect::<Vec<_>>();
        assert_eq!(seen(Sampling { top_k: 2, ..base.clone() }), [false, false, true, true]);
        assert_eq!(seen(Sampling { top_p: 0.65, ..base.clone() }), [false, false, true, true]);
        assert_eq!(seen(Sampling { top_p: 0.3, ..base.clone() }), [false, false, false, true]);
        assert_eq!(seen(Sampling { min_p: 0.45, ..base.clone() }), [false, true, true, true]);
        assert_eq!(seen(Sampling { min_p: 1.0, ..base.clone() }), [false, false, false, true]);
        assert_eq!(seen(base), [true; 4]);
    }

    #[test]
    fn the_penalty_looks_back_so_far_and_counts_a_token_once() {
        let how = Sampling { repetition_penalty: 2.0, penalty_window: 2, ..Sampling::default() };
        let logits = vec![4.0, 3.0, -1.0];
        assert_eq!(sampler(how.clone()).sample(logits.clone(), &[0, 0]), 1);
        assert_eq!(sampler(how.clone()).sample(logits.clone(), &[0, 1, 2]), 0, "0 is out of the window");
        assert_eq!(sampler(how).sample(vec![-3.0, -2.0], &[1]), 0, "a negative logit is pushed down");
    }

    #[test]
    fn options_that_cannot_be_are_named() {
        let cases = [
            ("temperature", Sampling { temperature: -1.0, ..Sampling::default() }),
            ("temperature", Sampling { temperature: f32::NAN, ..Sampling::default() }),
            ("top_p", Sampling { top_p: 0.0, ..Sampling::default() }),
            ("min_p", Sampling { min_p: 1.5, ..Sampling::default() }),
            ("repetition_penalty", Sampling { repetition_penalty: 0.0, ..Sampling::default() }),
        ];
        for (name, how) in cases {
            let error = Sampler::new(&how).err().unwrap();
            assert!(matches!(error, GenerateError::Option { option, .. } if option == name), "{error}");
        }
    }
}
