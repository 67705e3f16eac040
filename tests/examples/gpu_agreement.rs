//! How a backbone on the GPU agrees with the CPU, and how long both take: rows for `benches/records/gpu.md`.
//!
//! `cargo run --release -p zen-edge-tests --example gpu_agreement -- [--model GGUF] [--prompts JSONL] [--limit N] [--every N]
//! [--max-tokens N]`. Without a model: the default pack with its heads. With one, and prompts that have tasks: a read-out of
//! class means that is fitted to the CPU's vectors of those prompts that are not compared. Without prompts: runs of token ids.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::backbone::gpu::{GpuBackbone, GpuOptions, PromptProof, block_on};
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::config::RouterConfig;
use zen_edge_core::gguf::Gguf;
use zen_edge_core::heads::Heads;
use zen_edge_core::source::{Memory, Source};
use zen_edge_core::tensors::TensorFile;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_default_pack::pack;

/// Prompts that a read-out is fitted to.
const FITTED: usize = 400;

/// Logits of a vector: of tasks, and of routes where the heads have them.
type ReadOut = Box<dyn Fn(&[f32]) -> Vec<Vec<f32>>>;

struct Options {
    model: Option<String>,
    prompts: Option<String>,
    limit: usize,
    every: usize,
    max_tokens: usize,
}

fn options() -> Options {
    let mut options =
        Options { model: None, prompts: None, limit: usize::MAX, every: 1, max_tokens: usize::MAX };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().expect("a value follows each option");
        let number = || value.parse::<usize>().expect("a number");
        match name.as_str() {
            "--limit" => options.limit = number(),
            "--every" => options.every = number().max(1),
            "--max-tokens" => options.max_tokens = number(),
            "--model" => options.model = Some(value),
            "--prompts" => options.prompts = Some(value),
            other => panic!("no option {other}"),
        }
    }
    options
}

/// A linear read-out of tasks: distances to class means in units of each dimension's spread.
fn class_means(vectors: &[(String, Vec<f32>)]) -> ReadOut {
    let n = vectors[0].1.len();
    let mean = |rows: &[&Vec<f32>]| -> Vec<f64> {
        (0..n).map(|i| rows.iter().map(|row| f64::from(row[i])).sum::<f64>() / rows.len() as f64).collect()
    };
    let all: Vec<&Vec<f32>> = vectors.iter().map(|(_, vector)| vector).collect();
    let middle = mean(&all);
    let spread: Vec<f64> = (0..n)
        .map(|i| {
            all.iter().map(|v| (f64::from(v[i]) - middle[i]).powi(2)).sum::<f64>() / all.len() as f64 + 1e-9
        })
        .collect();
    let mut classes: BTreeMap<&str, Vec<&Vec<f32>>> = BTreeMap::new();
    for (task, vector) in vectors {
        classes.entry(task).or_default().push(vector);
    }
    let means: Vec<Vec<f64>> = classes.values().map(|rows| mean(rows)).collect();
    Box::new(move |vector| {
        let distance = |mean: &Vec<f64>| -> f32 {
            let far = vector.iter().zip(mean).zip(&spread).map(|((x, m), s)| (f64::from(*x) - m).powi(2) / s);
            -far.sum::<f64>() as f32
        };
        vec![means.iter().map(distance).collect()]
    })
}

/// The places of the largest logits, largest first.
fn ranking(logits: &[f32]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..logits.len()).collect();
    places.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    places
}

/// What a way to compute gave, summed up.
#[derive(Default)]
struct Sum {
    prompts: usize,
    cosine: f64,
    worst: f64,
    length: f64,
    /// Prompts with a cosine of at least .9995.
    close: usize,
    /// Per kind of logits: the same first place, and the CPU's first place among three.
    same: Vec<usize>,
    top: Vec<usize>,
    seconds: f64,
}

impl Sum {
    fn add(&mut self, found: &[f32], cpu: &[f32], read_out: Option<&ReadOut>) {
        let proof = PromptProof::new(0, found, cpu);
        self.worst = if self.prompts == 0 { proof.cosine } else { self.worst.min(proof.cosine) };
        self.prompts += 1;
        self.cosine += proof.cosine;
        self.length = self.length.max((proof.length - 1.0).abs());
        self.close += usize::from(proof.cosine >= 0.9995);
        let Some(read_out) = read_out else { return };
        for (kind, (a, b)) in read_out(found).iter().zip(read_out(cpu)).enumerate() {
            if self.same.len() <= kind {
                self.same.push(0);
                self.top.push(0);
            }
            let (a, b) = (ranking(a), ranking(&b));
            self.same[kind] += usize::from(a[0] == b[0]);
            self.top[kind] += usize::from(a.iter().take(3).any(|place| *place == b[0]));
        }
    }

    fn print(&self, tokens: usize) {
        println!(
            "cosine mean {:.7}, worst {:.7}, {} of {} at least .9995; length within {:.4}; {:.0} tokens/s",
            self.cosine / self.prompts as f64,
            self.worst,
            self.close,
            self.prompts,
            self.length,
            tokens as f64 / self.seconds
        );
        for ((same, top), kind) in self.same.iter().zip(&self.top).zip(["task", "route"]) {
            println!("  the same {kind} as the CPU's: {same} of {}, among three {top}", self.prompts);
        }
    }
}

fn main() {
    let options = options();
    let source: Arc<dyn Source> = match &options.model {
        Some(path) => Arc::new(Memory::open(path).expect("the model opens")),
        None => pack().model,
    };
    let gguf = Gguf::open(source).expect("a GGUF");
    let backbone = Arc::new(Backbone::load(&gguf, &BackboneOptions::default()).expect("a backbone"));
    let start = Instant::now();
    let how =
        GpuOptions { software: true, now: Some(Arc::new(move || start.elapsed())), ..GpuOptions::default() };
    let gpu = block_on(GpuBackbone::open(backbone.clone(), &how)).unwrap_or_else(|error| panic!("{error}"));
    println!(
        "{:?}\nopened and proved in {:.2} s, {} kernels, weights {:.1} MB on the device",
        gpu.gpu().info(),
        start.elapsed().as_secs_f64(),
        gpu.proof().kernels.len(),
        gpu.weight_bytes() as f64 / 1e6
    );
    for proof in &gpu.proof().prompts {
        println!("proof: {proof:?}");
    }
    let vocab = backbone.shape().vocab;
    let (mut ids, mut fitted) = (Vec::new(), Vec::new());
    match &options.prompts {
        Some(path) => {
            let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
            let text = std::fs::read_to_string(path).expect("prompts");
            for (n, line) in text.lines().enumerate() {
                let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
                let (prompt, task) = (row["prompt"].as_str().unwrap_or(""), row["task"].as_str());
                let tokens = tokenizer.encode_limited(prompt, &EncodeOptions::default(), 2048).0;
                if tokens.is_empty() || tokens.len() > options.max_tokens {
                    continue;
                }
                if n % options.every == 0 && ids.len() < options.limit {
                    ids.push(tokens);
                } else if let (Some(task), true) = (task, fitted.len() < FITTED && tokens.len() < 128) {
                    fitted.push((task.to_owned(), tokens));
                }
            }
        }
        None => {
            let lengths = [1, 16, 64, 128, 512, 700];
            ids.extend(lengths.iter().map(|n| (0..*n).map(|i| ((i * 7919 + 17) % vocab) as u32).collect()));
            ids.truncate(options.limit);
        }
    }
    let read_out: Option<ReadOut> = if options.model.is_none() {
        let config = RouterConfig::parse(&pack().config.bytes, "config").expect("a config");
        let heads = Heads::load(&TensorFile::open(pack().heads).expect("heads"), &config).expect("heads");
        Some(Box::new(move |vector| {
            let logits = heads.logits(vector).expect("logits");
            vec![logits.task, logits.route]
        }))
    } else if fitted.is_empty() {
        None
    } else {
        let read = |(task, ids): (String, Vec<u32>)| (task, backbone.embed(&ids).expect("the CPU answers"));
        Some(class_means(&fitted.into_iter().map(read).collect::<Vec<_>>()))
    };
    let (mut sum, mut tokens, mut cpu_seconds) = (Sum::default(), 0, 0.0);
    for ids in &ids {
        let start = Instant::now();
        let cpu = backbone.embed(ids).expect("the CPU answers");
        cpu_seconds += start.elapsed().as_secs_f64();
        tokens += ids.len();
        let start = Instant::now();
        let found = block_on(gpu.embed(ids, None)).expect("the GPU answers");
        sum.seconds += start.elapsed().as_secs_f64();
        sum.add(&found, &cpu, read_out.as_ref());
    }
    println!(
        "{} prompts, {tokens} tokens; {:.0} tokens/s on the CPU",
        ids.len(),
        tokens as f64 / cpu_seconds
    );
    sum.print(tokens);
}
