//! Means over seeds with their standard errors, as tables and as a record.

use super::LAMBDA;
use super::data::{Data, PriorKind};
use super::replay::{Learn, Order, Policy, Scenario, Stream};
use super::timing::Timing;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Points of a curve that are kept.
const POINTS: usize = 60;

pub struct Figure {
    pub mean: f64,
    pub error: f64,
}

impl Figure {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        Self { mean, error: (variance / n).sqrt() }
    }

    fn text(&self, digits: usize) -> String {
        format!("{:.digits$} ± {:.digits$}", self.mean, self.error)
    }

    fn json(&self) -> Value {
        // Far below the errors; more digits would be noise that triples the file.
        let short = |x: f64| (x * 1e5).round() / 1e5;
        json!([short(self.mean), short(self.error)])
    }
}

/// One policy on one stream, over all seeds.
pub struct Row {
    pub policy: Policy,
    pub reward: Figure,
    /// The same over the last third of the turns.
    pub late: Figure,
    /// Regret against the oracle and against the best per task at the curve's turns.
    pub regret: Vec<Figure>,
    pub regret_task: Vec<Figure>,
}

pub struct Experiment {
    pub title: String,
    pub data: &'static str,
    pub prior: PriorKind,
    pub cost_weight: f64,
    pub order: Order,
    pub passes: usize,
    pub swap: bool,
    pub turns: usize,
    /// Turns (1 is the first) at which regret is kept.
    pub at: Vec<usize>,
    pub rows: Vec<Row>,
    /// Our reward less another policy's, paired by seed: no learning, best single, best per task, oracle.
    pub against: Vec<(Policy, Figure)>,
}

impl Experiment {
    pub fn run(
        title: &str,
        data: &Data,
        weight: f64,
        prior: PriorKind,
        scenario: &Scenario,
        seeds: u64,
    ) -> Self {
        let (priors, price) = (data.prior(prior, weight), data.price(weight));
        let ours = Policy::Ours(Learn::default());
        let mut policies = vec![
            Policy::Random,
            Policy::NoLearning,
            Policy::BestSingle,
            Policy::BestPerTask,
            Policy::Oracle,
            Policy::TaskMeans,
            ours,
        ];
        policies.extend(&scenario.extra);
        let mut rewards: Vec<Vec<Vec<f64>>> = vec![Vec::new(); policies.len()];
        for seed in 0..seeds {
            let stream = Stream::new(data, weight, &priors, &price, scenario, 1000 + seed);
            for (policy, rewards) in policies.iter().zip(&mut rewards) {
                rewards.push(stream.replay(*policy, 1000 + seed));
            }
        }
        let turns = rewards[0][0].len();
        let at: Vec<usize> = (1..=POINTS).map(|i| (turns * i).div_ceil(POINTS)).collect();
        let place =
            |policy: Policy| policies.iter().position(|p| *p == policy).expect("a policy of the list");
        let mean = |rewards: &[f64]| rewards.iter().sum::<f64>() / rewards.len() as f64;
        let means = |rewards: &[Vec<f64>], from: usize| {
            Figure::of(&rewards.iter().map(|r| mean(&r[from..])).collect::<Vec<_>>())
        };
        let regret = |of: &[Vec<f64>], against: &[Vec<f64>]| {
            let sums: Vec<Vec<f64>> = of
                .iter()
                .zip(against)
                .map(|(r, a)| {
                    let mut sum = 0.0;
                    r.iter()
                        .zip(a)
                        .map(|(r, a)| {
                            sum += a - r;
                            sum
                        })
                        .collect()
                })
                .collect();
            at.iter()
                .map(|&t| Figure::of(&sums.iter().map(|s| s[t - 1]).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        };
        let (oracle, task) = (&rewards[place(Policy::Oracle)], &rewards[place(Policy::BestPerTask)]);
        let rows = policies
            .iter()
            .zip(&rewards)
            .map(|(&policy, r)| Row {
                policy,
                reward: means(r, 0),
                late: means(r, turns - turns / 3),
                regret: regret(r, oracle),
                regret_task: regret(r, task),
            })
            .collect();
        let against =
            [Policy::NoLearning, Policy::BestSingle, Policy::BestPerTask, Policy::Oracle].map(|other| {
                let gaps: Vec<f64> = rewards[place(ours)]
                    .iter()
                    .zip(&rewards[place(other)])
                    .map(|(a, b)| mean(a) - mean(b))
                    .collect();
                (other, Figure::of(&gaps))
            });
        let (order, passes, swap) = (scenario.order, scenario.passes, scenario.swap);
        Self {
            title: title.into(),
            data: data.name,
            prior,
            cost_weight: weight,
            order,
            passes,
            swap,
            turns,
            at,
            rows,
            against: against.into(),
        }
    }

    /// The curve's place next to a share of the stream.
    fn checkpoint(&self, share: f64) -> usize {
        ((POINTS as f64 * share).round() as usize).clamp(1, POINTS) - 1
    }

    pub fn markdown(&self) -> String {
        let cost = if self.cost_weight == 1.0 {
            String::new()
        } else {
            format!(", cost × {:.0}", self.cost_weight)
        };
        let [a, b, c] = [0.25, 0.5, 1.0].map(|share| self.checkpoint(share));
        let mut text = format!(
            "\n### {}, {}, {} prior{cost}: {} turns\n\n",
            self.title,
            self.data,
            self.prior.name(),
            self.turns
        );
        let _ = writeln!(
            text,
            "| policy | mean reward | last third | regret at turn {} | {} | {} |\n|---|---:|---:|---:|---:|---:|",
            self.at[a], self.at[b], self.at[c]
        );
        for row in &self.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.policy.name(),
                row.reward.text(4),
                row.late.text(4),
                row.regret[a].text(1),
                row.regret[b].text(1),
                row.regret[c].text(1)
            );
        }
        let gaps: Vec<String> = self
            .against
            .iter()
            .map(|(policy, gap)| format!("{}: {:+.4} ± {:.4}", policy.name(), gap.mean, gap.error))
            .collect();
        let _ =
            writeln!(text, "\nThe bandit's mean reward less that of … (paired by seed) {}.", gaps.join("; "));
        text
    }

    fn json(&self) -> Value {
        let curve = |figures: &[Figure]| Value::from(figures.iter().map(Figure::json).collect::<Vec<_>>());
        let rows = self.rows.iter().map(|row| {
            json!({
                "policy": row.policy.name(), "reward": row.reward.json(), "last_third": row.late.json(),
                "regret_oracle": curve(&row.regret), "regret_best_per_task": curve(&row.regret_task),
            })
        });
        let against: serde_json::Map<String, Value> =
            self.against.iter().map(|(policy, gap)| (policy.name(), gap.json())).collect();
        json!({
            "title": self.title, "data": self.data, "prior": self.prior.name(), "cost_weight": self.cost_weight,
            "order": format!("{:?}", self.order), "passes": self.passes, "swap": self.swap, "turns": self.turns,
            "at": self.at, "policies": rows.collect::<Vec<_>>(), "bandit_less": against,
        })
    }
}

pub struct Report {
    pub seeds: u64,
    pub timing: Timing,
    pub experiments: Vec<Experiment>,
}

impl Report {
    pub fn write(&self, folder: &Path) {
        let options = zen_edge_core::bandit::BanditOptions::default();
        let timing = &self.timing;
        let record = json!({
            "what": "replay of public outcomes through the per-user bandit; figures are [mean, standard error] over seeds",
            "seeds": self.seeds, "lambda": LAMBDA, "exploration": options.exploration, "forgetting": options.forgetting,
            "dimensions": zen_edge_core::bandit::DIMENSIONS,
            "timing": {
                "models": super::timing::ROWS, "features": super::timing::FEATURES, "estimate_us": timing.estimate_us,
                "observe_us": timing.observe_us, "user_bytes": timing.user_bytes, "user_file_bytes": timing.file_bytes,
                "machine": std::env::consts::ARCH, "note": "medians on one thread; the machine was shared",
            },
            "experiments": self.experiments.iter().map(Experiment::json).collect::<Vec<_>>(),
        });
        let mut text = format!(
            "# Bandit simulation\n\n<!-- Written by tests/examples/bandit_simulation.rs. -->\n\nMeans over {} seeds ± one standard error. Reward is quality less {LAMBDA} × cost (USD of the whole query). Regret is cumulative, against the oracle.\nFeatures: the default pack. Half of each file (by hash of the prompt) fits the priors, the other is replayed. Exploration {}, forgetting {}, {} dimensions.\n\n{}.\n",
            self.seeds,
            options.exploration,
            options.forgetting,
            zen_edge_core::bandit::DIMENSIONS,
            timing.line()
        );
        for experiment in &self.experiments {
            text += &experiment.markdown();
        }
        let put = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        };
        std::fs::create_dir_all(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        put("bandit-simulation.md", text);
        put("bandit-simulation.json", format!("{record}\n"));
    }
}
