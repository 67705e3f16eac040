//! How long the steps of a pass are, which is how long a cancel waits at most:
//!
//! `cargo run --release -p zen-edge-core --features threads --example steps -- MODEL.gguf [THREADS]`

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let model = words.next().ok_or("give MODEL.gguf [THREADS]")?;
    let threads = words.next().map_or(Ok(1), |word| word.parse())?;
    let gguf = Gguf::open(Arc::new(Memory::open(Path::new(&model))?))?;
    let options = BackboneOptions { threads: Some(threads), ..BackboneOptions::default() };
    let backbone = Backbone::load(&gguf, &options)?;
    println!("{} on {threads} threads", backbone.isa());
    let vocab = backbone.shape().vocab;
    for tokens in [128, 512, 2048] {
        let ids: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 17) % vocab) as u32).collect();
        let mut pass = backbone.begin(&ids, None)?;
        let (start, mut steps) = (Instant::now(), Vec::new());
        loop {
            let step = Instant::now();
            let done = backbone.step(&mut pass)?.is_some();
            steps.push(step.elapsed().as_secs_f64() * 1e3);
            if done {
                break;
            }
        }
        let whole = start.elapsed().as_secs_f64() * 1e3;
        // A layer has five steps a chunk, the last one other ones: those of the first layers are shown.
        let names = ["project", "attend", "output", "widen", "narrow"];
        let stages = names.iter().enumerate().map(|(i, name)| {
            let mut times: Vec<f64> = steps
                .iter()
                .skip(i)
                .step_by(names.len())
                .take((backbone.shape().layers - 1).max(1))
                .copied()
                .collect();
            times.sort_by(f64::total_cmp);
            format!("{name} {:.2}", times[times.len() / 2])
        });
        println!("a layer's steps, ms: {}", stages.collect::<Vec<_>>().join(", "));
        steps.sort_by(f64::total_cmp);
        let at = |share: usize| steps[(steps.len() - 1) * share / 100];
        let (median, late, longest) = (at(50), at(99), at(100));
        println!(
            "{tokens} tokens, {whole:.0} ms: {} steps, median {median:.1} ms, 99 % {late:.1}, longest {longest:.1}",
            steps.len()
        );
    }
    Ok(())
}
