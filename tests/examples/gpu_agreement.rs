//! How a backbone on the GPU agrees with the CPU, and how long both take: one row for `benches/records/gpu.md`.
//!
//! `cargo run --release -p zen-edge-tests --example gpu_agreement -- [--model GGUF] [--prompts JSONL] [--limit N]`. Without a
//! model: the default pack, whose task heads are compared too. Without prompts: runs of token ids.

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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut model, mut prompts, mut limit) = (None, None, usize::MAX);
    while let Some(name) = arguments.next() {
        let value = arguments.next().expect("a value follows each option");
        match name.as_str() {
            "--model" => model = Some(value),
            "--prompts" => prompts = Some(value),
            "--limit" => limit = value.parse().expect("a number"),
            other => panic!("no option {other}"),
        }
    }
    let source: Arc<dyn Source> = match &model {
        Some(path) => Arc::new(Memory::open(path).expect("the model opens")),
        None => pack().model,
    };
    let gguf = Gguf::open(source).expect("a GGUF");
    let backbone = Arc::new(Backbone::load(&gguf, &BackboneOptions::default()).expect("a backbone"));
    let start = Instant::now();
    let options =
        GpuOptions { software: true, now: Some(Arc::new(move || start.elapsed())), ..GpuOptions::default() };
    let gpu =
        block_on(GpuBackbone::open(backbone.clone(), &options)).unwrap_or_else(|error| panic!("{error}"));
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
    let heads = model.is_none().then(|| {
        let config = RouterConfig::parse(&pack().config.bytes, "config").expect("a config");
        Heads::load(&TensorFile::open(pack().heads).expect("heads"), &config).expect("heads")
    });
    let ids: Vec<Vec<u32>> = match &prompts {
        Some(path) => {
            let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
            let text = std::fs::read_to_string(path).expect("prompts");
            let rows =
                text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
            rows.filter_map(|row| row["prompt"].as_str().map(str::to_owned))
                .map(|prompt| tokenizer.encode_limited(&prompt, &EncodeOptions::default(), 2048).0)
                .filter(|ids| !ids.is_empty())
                .take(limit)
                .collect()
        }
        None => [1, 16, 64, 128, 512, 700]
            .iter()
            .map(|n| (0..*n).map(|i| ((i * 7919 + 17) % vocab) as u32).collect())
            .take(limit)
            .collect(),
    };
    let (mut worst, mut sum, mut same, mut tokens) = (f64::INFINITY, 0.0, 0, 0);
    let (mut gpu_time, mut cpu_time) = (0.0, 0.0);
    for ids in &ids {
        let start = Instant::now();
        let cpu = backbone.embed(ids).expect("the CPU answers");
        let cpu_took = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let found = block_on(gpu.embed(ids, None)).expect("the GPU answers");
        let gpu_took = start.elapsed().as_secs_f64();
        let proof = PromptProof::new(ids.len(), &found, &cpu);
        if prompts.is_none() {
            println!("{proof:?}: GPU {:.1} ms, CPU {:.1} ms", 1e3 * gpu_took, 1e3 * cpu_took);
        }
        (worst, sum, tokens) = (proof.cosine.min(worst), sum + proof.cosine, tokens + ids.len());
        (gpu_time, cpu_time) = (gpu_time + gpu_took, cpu_time + cpu_took);
        if let Some(heads) = &heads {
            let task = |vector: &[f32]| {
                let logits = heads.logits(vector).expect("logits").task;
                (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]))
            };
            same += usize::from(task(&found) == task(&cpu));
        }
    }
    println!(
        "{} prompts, {tokens} tokens: cosine mean {:.7}, worst {worst:.7}; {:.0} tokens/s on the GPU, {:.0} on the CPU",
        ids.len(),
        sum / ids.len() as f64,
        tokens as f64 / gpu_time,
        tokens as f64 / cpu_time
    );
    if heads.is_some() {
        println!("the same task: {same} of {}", ids.len());
    }
}
