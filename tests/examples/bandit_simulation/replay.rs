//! Streams of prompts and the policies that choose on them.

use super::data::{Data, Prompt};
use std::collections::VecDeque;
use zen_edge_core::bandit::{Arms, Bandit, BanditOptions, OutcomeId};

/// A small seeded generator (SplitMix64): the same streams on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Uniform in 0..n; the bias of the remainder is below 1e-15 here.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// In which order the prompts come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Shuffled,
    /// Each pass brings one task after the other, in an order of its own.
    Blocked,
}

/// A stream.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub order: Order,
    /// How often the prompts come, each time in a new order.
    pub passes: usize,
    /// From the middle on the models' outcomes are those of others: the best has changed places with the worst.
    pub swap: bool,
    /// Policies beside the usual ones.
    pub extra: Vec<Policy>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self { order: Order::Shuffled, passes: 1, swap: false, extra: Vec::new() }
    }
}

/// How our bandit learns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learn {
    /// Turns until a reward is known.
    pub delay: usize,
    /// The share of rewards that never come.
    pub lost: f64,
    pub exploration: Option<f64>,
    pub forgetting: Option<f64>,
}

/// Who chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    Random,
    /// The prior's best.
    NoLearning,
    /// The model that was best over the whole stream, known in advance.
    BestSingle,
    /// The same for each task, the true task being known.
    BestPerTask,
    /// The best for each prompt.
    Oracle,
    /// Learns a mean a task and model (the true task being known), with the same optimism and forgetting.
    TaskMeans,
    Ours(Learn),
}

impl Policy {
    pub fn name(self) -> String {
        match self {
            Self::Random => "random".into(),
            Self::NoLearning => "no learning (prior alone)".into(),
            Self::BestSingle => "best single, in hindsight".into(),
            Self::BestPerTask => "best per task, in hindsight".into(),
            Self::Oracle => "oracle".into(),
            Self::TaskMeans => "online mean per true task".into(),
            Self::Ours(learn) => {
                let mut name = String::from("**bandit**");
                if learn.delay > 0 {
                    name += &format!(", rewards {} turns late", learn.delay);
                }
                if learn.lost > 0.0 {
                    name += &format!(", {:.0} % of rewards lost", 100.0 * learn.lost);
                }
                if let Some(exploration) = learn.exploration {
                    name += &format!(", exploration {exploration}");
                }
                if let Some(forgetting) = learn.forgetting {
                    name += &format!(", forgetting {forgetting}");
                }
                name
            }
        }
    }
}

/// One stream of prompts, with what each model would have brought.
pub struct Stream<'a> {
    data: &'a Data,
    prior: &'a [Vec<f64>],
    price: &'a [f64],
    /// Prompts by turn.
    order: Vec<usize>,
    /// The model whose outcome a model has after the middle.
    swapped: Option<Vec<usize>>,
    rewards: Vec<Vec<f64>>,
}

impl<'a> Stream<'a> {
    pub fn new(
        data: &'a Data,
        weight: f64,
        prior: &'a [Vec<f64>],
        price: &'a [f64],
        scenario: &Scenario,
        seed: u64,
    ) -> Self {
        let mut random = Random(seed);
        let mut order = Vec::new();
        for _ in 0..scenario.passes {
            let mut pass: Vec<usize> = (0..data.replay.len()).collect();
            random.shuffle(&mut pass);
            if scenario.order == Order::Blocked {
                let mut tasks: Vec<usize> = (0..data.tasks).collect();
                random.shuffle(&mut tasks);
                pass.sort_by_key(|&i| tasks[data.replay[i].task]);
            }
            order.extend(pass);
        }
        let rewards: Vec<Vec<f64>> = data.replay.iter().map(|p| p.rewards(weight)).collect();
        let swapped = scenario.swap.then(|| {
            let mean = |j: usize| rewards.iter().map(|r| r[j]).sum::<f64>();
            let mut ranks: Vec<usize> = (0..data.models.len()).collect();
            ranks.sort_by(|&a, &b| mean(a).total_cmp(&mean(b)));
            let mut swapped = vec![0; ranks.len()];
            for (i, &model) in ranks.iter().enumerate() {
                swapped[model] = ranks[ranks.len() - 1 - i];
            }
            swapped
        });
        Self { data, prior, price, order, swapped, rewards }
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }

    fn prompt(&self, turn: usize) -> &Prompt {
        &self.data.replay[self.order[turn]]
    }

    /// The model whose outcome stands for a model's at a turn.
    fn outcome(&self, turn: usize, model: usize) -> usize {
        match &self.swapped {
            Some(swapped) if 2 * turn >= self.order.len() => swapped[model],
            _ => model,
        }
    }

    fn reward(&self, turn: usize, model: usize) -> f64 {
        self.rewards[self.order[turn]][self.outcome(turn, model)]
    }

    fn quality(&self, turn: usize, model: usize) -> f64 {
        self.prompt(turn).quality[self.outcome(turn, model)]
    }

    /// The reward of each turn under a policy.
    pub fn replay(&self, policy: Policy, seed: u64) -> Vec<f64> {
        let models = self.data.models.len();
        let turns = 0..self.len();
        match policy {
            Policy::Random => {
                let mut random = Random(!seed);
                turns.map(|t| self.reward(t, random.below(models))).collect()
            }
            Policy::NoLearning => turns
                .map(|t| {
                    self.reward(t, best(self.prior[self.order[t]].iter().zip(self.price).map(|(p, c)| p - c)))
                })
                .collect(),
            Policy::BestSingle => self.hindsight(|_| 0),
            Policy::BestPerTask => self.hindsight(|prompt| prompt.task),
            Policy::Oracle => {
                turns.map(|t| (0..models).map(|m| self.reward(t, m)).fold(f64::MIN, f64::max)).collect()
            }
            Policy::TaskMeans => self.task_means(),
            Policy::Ours(learn) => self.bandit(learn, seed),
        }
    }

    /// The model with the best sum of each group, over the whole stream; where roles swap, over each half.
    fn hindsight(&self, group: impl Fn(&Prompt) -> usize) -> Vec<f64> {
        let models = self.data.models.len();
        let key = |t: usize| {
            let half = usize::from(self.swapped.is_some() && 2 * t >= self.len());
            half * self.data.tasks + group(self.prompt(t))
        };
        let mut sums = vec![vec![0.0; models]; 2 * self.data.tasks];
        for t in 0..self.len() {
            for (m, sum) in sums[key(t)].iter_mut().enumerate() {
                *sum += self.reward(t, m);
            }
        }
        (0..self.len()).map(|t| self.reward(t, best(sums[key(t)].iter().copied()))).collect()
    }

    fn task_means(&self) -> Vec<f64> {
        let BanditOptions { exploration, forgetting, .. } = BanditOptions::default();
        let models = self.data.models.len();
        // Weight and sum, by task and model; a mean starts from the model's over all tasks, that from the user's.
        let mut seen = vec![vec![(0.0, 0.0); models]; self.data.tasks];
        (0..self.len())
            .map(|t| {
                let total = |m: Option<usize>| {
                    seen.iter()
                        .flat_map(|row| row.iter().enumerate())
                        .filter(|(i, _)| m.is_none_or(|m| m == *i))
                        .fold((0.0, 0.0), |(n, s), (_, (dn, ds))| (n + dn, s + ds))
                };
                let (n, s) = total(None);
                let all = (s + 1.0) / (n + 2.0);
                let task = self.prompt(t).task;
                let chosen = best((0..models).map(|m| {
                    let (n, s) = total(Some(m));
                    let of_model = (s + 2.0 * all) / (n + 2.0);
                    let (n, s) = seen[task][m];
                    (s + 2.0 * of_model) / (n + 2.0) + exploration * 0.4 / (n + 2.0f64).sqrt() - self.price[m]
                }));
                for (n, s) in seen.iter_mut().flatten() {
                    (*n, *s) = (*n * forgetting, *s * forgetting);
                }
                let (n, s) = &mut seen[task][chosen];
                (*n, *s) = (*n + 1.0, *s + self.quality(t, chosen));
                self.reward(t, chosen)
            })
            .collect()
    }

    fn bandit(&self, learn: Learn, seed: u64) -> Vec<f64> {
        let default = BanditOptions::default();
        let options = BanditOptions {
            exploration: learn.exploration.unwrap_or(default.exploration),
            forgetting: learn.forgetting.unwrap_or(default.forgetting),
            epoch: Some(1),
            ..default
        };
        let arms = Arms {
            heads_sha256: self.data.heads_sha256.clone(),
            ids: self.data.models.clone(),
            features: self.data.replay[0].features.len(),
        };
        let mut bandit = Bandit::new(arms, options);
        let mut random = Random(seed ^ 0xD1CE);
        let mut waiting: VecDeque<(usize, OutcomeId, f64)> = VecDeque::new();
        (0..self.len())
            .map(|t| {
                let estimate = bandit
                    .estimate("user", &self.prompt(t).features, &self.prior[self.order[t]])
                    .unwrap_or_else(|e| panic!("{e}"));
                let chosen = best(estimate.quality.iter().zip(self.price).map(|(q, c)| q - c));
                let id = bandit.record("user", chosen, &estimate);
                waiting.push_back((t + learn.delay, id, self.quality(t, chosen)));
                while waiting.front().is_some_and(|(due, ..)| *due <= t) {
                    let Some((_, id, quality)) = waiting.pop_front() else { break };
                    if random.unit() >= learn.lost {
                        bandit.observe(id, quality).unwrap_or_else(|e| panic!("{e}"));
                    }
                }
                self.reward(t, chosen)
            })
            .collect()
    }
}

/// The place of the greatest value, of equals the first: as the decision does.
fn best(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::MIN);
    for (i, value) in values.enumerate() {
        if value > best.1 {
            best = (i, value);
        }
    }
    best.0
}
