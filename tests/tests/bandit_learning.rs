//! That the per-user bandit learns, and forgets: on synthetic users, seeded, through the public API.

use zen_edge_core::bandit::{Arms, Bandit, BanditOptions};

const MODELS: usize = 6;
const FEATURES: usize = 256;
const TOPICS: usize = 3;

/// A small seeded generator (SplitMix64).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }
}

/// The chance that a model pleases this user on a topic: one good model a topic, which is not the head's favourite.
fn chance(topic: usize, model: usize, swapped: bool) -> f64 {
    let good = (topic + if swapped { 4 } else { 1 }) % MODELS;
    if model == good { 0.85 } else { 0.35 }
}

/// The head's say: it favours model 0 everywhere, a little.
const PRIOR: [f64; MODELS] = [0.25, 0.15, 0.15, 0.15, 0.15, 0.15];

/// A prompt of a topic: two leading features tell it, the others are noise.
fn prompt(random: &mut Random) -> (usize, Vec<f32>) {
    let topic = random.below(TOPICS);
    let mut features: Vec<f32> = (0..FEATURES).map(|_| random.unit() as f32 - 0.5).collect();
    let angle = topic as f32 * std::f32::consts::TAU / TOPICS as f32;
    features[0] += 2.0 * angle.cos();
    features[1] += 2.0 * angle.sin();
    (topic, features)
}

fn bandit(forgetting: f64) -> Bandit {
    let ids = (0..MODELS).map(|i| format!("model-{i}")).collect();
    let arms = Arms { heads_sha256: "0".repeat(64), ids, features: FEATURES };
    Bandit::new(arms, BanditOptions { forgetting, epoch: Some(1), ..BanditOptions::default() })
}

/// The mean chance of success of the chosen models, over `turns`.
fn play(bandit: &mut Bandit, random: &mut Random, turns: usize, swapped: bool) -> f64 {
    let mut sum = 0.0;
    for _ in 0..turns {
        let (topic, features) = prompt(random);
        let estimate = bandit.estimate("user", &features, &PRIOR).unwrap();
        let chosen =
            (0..MODELS).max_by(|&a, &b| estimate.quality[a].total_cmp(&estimate.quality[b])).unwrap();
        let id = bandit.record("user", chosen, &estimate);
        let chance = chance(topic, chosen, swapped);
        sum += chance;
        bandit.observe(id, f64::from(random.unit() < chance)).unwrap();
    }
    sum / turns as f64
}

/// Means over seeds.
fn over_seeds(play: impl Fn(u64) -> f64) -> f64 {
    const SEEDS: u64 = 8;
    (0..SEEDS).map(play).sum::<f64>() / SEEDS as f64
}

#[test]
fn h15_learning_beats_no_learning_and_the_best_single_model() {
    // No learning takes model 0 always, the good one of no topic; the best single model is good on one topic in three.
    let (no_learning, best_single) = (0.35, (0.85 + 2.0 * 0.35) / 3.0);
    let early = over_seeds(|seed| play(&mut bandit(0.999), &mut Random(seed), 300, false));
    let late = over_seeds(|seed| {
        let (mut bandit, mut random) = (bandit(0.999), Random(seed));
        play(&mut bandit, &mut random, 1000, false);
        play(&mut bandit, &mut random, 500, false)
    });
    println!(
        "first 300 turns {early:.3}, after 1,000 {late:.3}; no learning {no_learning}, best single {best_single:.3}"
    );
    assert!(early > no_learning + 0.1, "{early}");
    assert!(late > best_single + 0.2, "{late}");
}

#[test]
fn forgetting_recovers_where_a_learner_that_keeps_all_does_not() {
    let after_swap = |forgetting: f64| {
        over_seeds(|seed| {
            let (mut bandit, mut random) = (bandit(forgetting), Random(seed));
            play(&mut bandit, &mut random, 2000, false);
            play(&mut bandit, &mut random, 500, true);
            play(&mut bandit, &mut random, 500, true)
        })
    };
    let (forgets, keeps) = (after_swap(0.995), after_swap(1.0));
    println!("500 to 1,000 turns after the swap: {forgets:.3} with forgetting, {keeps:.3} without");
    assert!(forgets > 0.6, "{forgets}");
    assert!(forgets > keeps + 0.05, "{forgets} against {keeps}");
}

#[test]
fn late_and_lost_rewards_slow_learning_but_do_not_stop_it() {
    let mean = over_seeds(|seed| {
        let (mut bandit, mut random) = (bandit(0.999), Random(seed));
        let mut waiting = std::collections::VecDeque::new();
        let mut sum = 0.0;
        for turn in 0..1500 {
            let (topic, features) = prompt(&mut random);
            let estimate = bandit.estimate("user", &features, &PRIOR).unwrap();
            let chosen =
                (0..MODELS).max_by(|&a, &b| estimate.quality[a].total_cmp(&estimate.quality[b])).unwrap();
            let chance = chance(topic, chosen, false);
            waiting.push_back((bandit.record("user", chosen, &estimate), random.unit() < chance));
            if waiting.len() > 50
                && let Some((id, success)) = waiting.pop_front()
                && random.unit() > 0.4
            {
                bandit.observe(id, f64::from(success)).unwrap();
            }
            if turn >= 1000 {
                sum += chance;
            }
        }
        assert!(bandit.stats().missing > 0, "what never came is counted");
        sum / 500.0
    });
    println!("rewards 50 turns late, 40 % lost, after 1,000 turns: {mean:.3}");
    assert!(mean > 0.6, "{mean}");
}
