//! Outcomes of several models on public prompts, with the default pack's features and priors fitted on one half.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use zen_edge_core::router::{Request, Router, RouterOptions};
use zen_edge_default_pack as files;
use zen_edge_tests::{root, shared};

/// What the head says before anything is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorKind {
    /// The same of every model.
    Flat,
    /// A multinomial logistic regression on which model is best, as a softmax head is trained.
    Logistic,
    /// A ridge regression of each model's reward, as the default pack's head; a softmax at that pack's temperature.
    Ridge,
}

impl PriorKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Logistic => "logistic head",
            Self::Ridge => "ridge head",
        }
    }
}

/// One prompt with its outcomes.
pub struct Prompt {
    pub features: Vec<f32>,
    pub task: usize,
    pub quality: Vec<f64>,
    /// USD of the whole query, as the files say.
    pub cost: Vec<f64>,
}

/// One file: the half that priors are fitted on, and the half that is replayed.
pub struct Data {
    pub name: &'static str,
    pub models: Vec<String>,
    pub tasks: usize,
    pub heads_sha256: String,
    pub fit: Vec<Prompt>,
    pub replay: Vec<Prompt>,
}

impl Data {
    /// The factor on cost at which the dearest model's mean cost takes .3 of quality away.
    pub fn weighty_cost(&self) -> f64 {
        let means = (0..self.models.len()).map(|j| self.fit.iter().map(|p| p.cost[j]).sum::<f64>());
        0.3 / super::LAMBDA * self.fit.len() as f64 / means.fold(0.0, f64::max)
    }

    /// What a router knows of cost before it chooses: each model's mean over the other half, weighed.
    pub fn price(&self, weight: f64) -> Vec<f64> {
        let mean = |j: usize| self.fit.iter().map(|p| p.cost[j]).sum::<f64>() / self.fit.len() as f64;
        (0..self.models.len()).map(|j| super::LAMBDA * weight * mean(j)).collect()
    }

    /// The prior of each replayed prompt.
    pub fn prior(&self, kind: PriorKind, weight: f64) -> Vec<Vec<f64>> {
        let models = self.models.len();
        let rewards: Vec<Vec<f64>> = self.fit.iter().map(|p| p.rewards(weight)).collect();
        match kind {
            PriorKind::Flat => vec![vec![1.0 / models as f64; models]; self.replay.len()],
            PriorKind::Ridge => {
                // The pack's own temperature for its route head.
                let scores = ridge(&self.fit, &rewards, 2000.0);
                self.replay.iter().map(|p| softmax(&scores.apply(&p.features), 0.1701)).collect()
            }
            PriorKind::Logistic => {
                let scores = logistic(&self.fit, &rewards);
                self.replay.iter().map(|p| softmax(&scores.apply(&p.features), 1.0)).collect()
            }
        }
    }
}

impl Prompt {
    /// Quality less the weighed cost, one a model.
    pub fn rewards(&self, weight: f64) -> Vec<f64> {
        self.quality.iter().zip(&self.cost).map(|(q, c)| q - super::LAMBDA * weight * c).collect()
    }
}

/// Both files.
pub fn load_all() -> [Data; 2] {
    let router = Router::load(&files::pack(), &RouterOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    ["llmrouter", "routellm"].map(|name| load(name, &router))
}

fn load(name: &'static str, router: &Router) -> Data {
    let file = shared(&format!("data/profiles/{name}.jsonl"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a JSON row")).collect();
    let mut models: Vec<String> = Vec::new();
    let mut tasks: Vec<String> = Vec::new();
    let mut prompts: Vec<(String, Prompt)> = Vec::new();
    let mut places = HashMap::new();
    let place = |list: &mut Vec<String>, item: &str| {
        list.iter().position(|x| x == item).unwrap_or_else(|| {
            list.push(item.to_owned());
            list.len() - 1
        })
    };
    let text_of = |row: &Value, key: &str| {
        row[key].as_str().unwrap_or_else(|| panic!("a row without {key}")).to_owned()
    };
    for row in &rows {
        place(&mut models, &text_of(row, "model"));
    }
    for row in &rows {
        let text = text_of(row, "prompt");
        let task = place(&mut tasks, &text_of(row, "task"));
        let at = *places.entry(text.clone()).or_insert_with(|| {
            let none = vec![f64::NAN; models.len()];
            prompts.push((text, Prompt { features: Vec::new(), task, quality: none.clone(), cost: none }));
            prompts.len() - 1
        });
        let model = place(&mut models, &text_of(row, "model"));
        prompts[at].1.quality[model] = row["quality"].as_f64().expect("a quality");
        prompts[at].1.cost[model] = row["cost"].as_f64().expect("a cost");
    }
    vectors(name, router, &mut prompts);
    let (mut fit, mut replay) = (Vec::new(), Vec::new());
    for (text, prompt) in prompts {
        assert!(
            prompt.quality.iter().chain(&prompt.cost).all(|x| x.is_finite()),
            "an outcome is missing: {text:?}"
        );
        let half = Sha256::digest(&text)[0] & 1;
        if half == 0 { fit.push(prompt) } else { replay.push(prompt) }
    }
    Data { name, models, tasks: tasks.len(), heads_sha256: router.heads().sha256().to_owned(), fit, replay }
}

/// Fills the features in, from a file under `target/` where an earlier run with the same heads and prompts left them.
fn vectors(name: &str, router: &Router, prompts: &mut [(String, Prompt)]) {
    let mut key = Sha256::new().chain_update(files::MODEL).chain_update(files::HEADS);
    for (text, _) in prompts.iter() {
        key.update((text.len() as u64).to_le_bytes());
        key.update(text);
    }
    let key: String = key.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect();
    let cache = root().join(format!("target/bandit-features-{name}-{key}.f32"));
    let width = router.config().feature_dim;
    if let Some(values) = cached(&cache, prompts.len() * width) {
        for ((_, prompt), row) in prompts.iter_mut().zip(values.chunks_exact(width)) {
            prompt.features = row.to_vec();
        }
        return;
    }
    eprintln!("{name}: embedding {} prompts", prompts.len());
    for (text, prompt) in prompts.iter_mut() {
        let hidden = router.embed(text, &Request::default()).unwrap_or_else(|e| panic!("{e}")).vector;
        prompt.features = router.heads().features(&hidden).unwrap_or_else(|e| panic!("{e}"));
    }
    let bytes: Vec<u8> =
        prompts.iter().flat_map(|(_, p)| p.features.iter().flat_map(|x| x.to_le_bytes())).collect();
    // Only a saving of time: a folder that cannot be written costs the next run a minute.
    let _ = std::fs::create_dir_all(root().join("target")).and_then(|()| std::fs::write(&cache, bytes));
}

fn cached(file: &Path, len: usize) -> Option<Vec<f32>> {
    let bytes = std::fs::read(file).ok().filter(|bytes| bytes.len() == 4 * len)?;
    Some(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// One linear score a model.
struct Scores {
    mean: Vec<f64>,
    /// A model's weights.
    weights: Vec<Vec<f64>>,
    bias: Vec<f64>,
}

impl Scores {
    fn apply(&self, features: &[f32]) -> Vec<f64> {
        let x: Vec<f64> = features.iter().zip(&self.mean).map(|(&x, m)| f64::from(x) - m).collect();
        self.weights.iter().zip(&self.bias).map(|(w, b)| b + dot(w, &x)).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The features' mean, and the features centred.
fn centred(prompts: &[Prompt]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = prompts.len() as f64;
    let mean: Vec<f64> = (0..prompts[0].features.len())
        .map(|i| prompts.iter().map(|p| f64::from(p.features[i])).sum::<f64>() / n)
        .collect();
    let rows = prompts
        .iter()
        .map(|p| p.features.iter().zip(&mean).map(|(&x, m)| f64::from(x) - m).collect())
        .collect();
    (mean, rows)
}

/// Ridge regression by Cholesky.
fn ridge(prompts: &[Prompt], targets: &[Vec<f64>], penalty: f64) -> Scores {
    let (mean, rows) = centred(prompts);
    let d = mean.len();
    let mut a = vec![vec![0.0; d]; d];
    for x in &rows {
        for i in 0..d {
            for j in 0..=i {
                a[i][j] += x[i] * x[j];
            }
        }
    }
    for i in 0..d {
        a[i][i] += penalty;
        for j in 0..=i {
            let sum = a[i][j] - dot(&a[i][..j], &a[j][..j]);
            a[i][j] = if i == j { sum.sqrt() } else { sum / a[j][j] };
        }
    }
    let models = targets[0].len();
    let bias: Vec<f64> =
        (0..models).map(|m| targets.iter().map(|t| t[m]).sum::<f64>() / targets.len() as f64).collect();
    let weights = (0..models).map(|m| {
        let mut w: Vec<f64> =
            (0..d).map(|i| rows.iter().zip(targets).map(|(x, t)| x[i] * (t[m] - bias[m])).sum()).collect();
        for i in 0..d {
            w[i] = (w[i] - dot(&a[i][..i], &w[..i])) / a[i][i];
        }
        for i in (0..d).rev() {
            let sum: f64 = (i + 1..d).map(|j| a[j][i] * w[j]).sum();
            w[i] = (w[i] - sum) / a[i][i];
        }
        w
    });
    Scores { weights: weights.collect(), mean, bias }
}

/// Multinomial logistic regression on which model is best (equally good ones share), by accelerated gradient descent.
fn logistic(prompts: &[Prompt], targets: &[Vec<f64>]) -> Scores {
    const PENALTY: f64 = 0.01;
    let (mean, mut rows) = centred(prompts);
    let (n, models) = (rows.len(), targets[0].len());
    // Length 4 in the mean: the penalty is meant for that scale, and the step is safe on it.
    let scale = 4.0 / (rows.iter().map(|x| dot(x, x)).sum::<f64>() / n as f64).sqrt();
    rows.iter_mut().flatten().for_each(|x| *x *= scale);
    let wanted: Vec<Vec<f64>> = targets
        .iter()
        .map(|t| {
            let most = t.iter().copied().fold(f64::MIN, f64::max);
            let best: Vec<f64> = t.iter().map(|&r| f64::from(r > most - 1e-6)).collect();
            let count: f64 = best.iter().sum();
            best.iter().map(|b| b / count).collect()
        })
        .collect();
    let mut scores =
        Scores { mean, weights: vec![vec![0.0; rows[0].len()]; models], bias: vec![0.0; models] };
    let mut speed = (scores.weights.clone(), scores.bias.clone());
    for _ in 0..200 {
        let mut gradient = (vec![vec![0.0; rows[0].len()]; models], vec![0.0; models]);
        for (x, wanted) in rows.iter().zip(&wanted) {
            let logits: Vec<f64> =
                scores.weights.iter().zip(&scores.bias).map(|(w, b)| b + dot(w, x)).collect();
            for (m, (p, y)) in softmax(&logits, 1.0).into_iter().zip(wanted).enumerate() {
                let error = (p - y) / n as f64;
                gradient.1[m] += error;
                gradient.0[m].iter_mut().zip(x).for_each(|(g, x)| *g += error * x);
            }
        }
        for m in 0..models {
            for (i, w) in scores.weights[m].iter_mut().enumerate() {
                speed.0[m][i] = 0.9 * speed.0[m][i] - 0.1 * (gradient.0[m][i] + PENALTY * *w);
                *w += speed.0[m][i];
            }
            speed.1[m] = 0.9 * speed.1[m] - 0.1 * gradient.1[m];
            scores.bias[m] += speed.1[m];
        }
    }
    scores.weights.iter_mut().flatten().for_each(|w| *w *= scale);
    scores
}

fn softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::MIN, f64::max);
    let values: Vec<f64> = logits.iter().map(|l| ((l - most) / temperature).exp()).collect();
    let sum: f64 = values.iter().sum();
    values.iter().map(|v| v / sum).collect()
}
