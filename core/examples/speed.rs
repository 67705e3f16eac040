//! Speed of prefill and decode: `cargo run --release -p zen-edge-core --example speed -- MODEL.gguf [ISA] [THREADS]
//! [TOKENS …]`.
//!
//! Prints, for each number of tokens, the median of several runs of prefill in tokens a second and in giga multiply-adds a
//! second (those of the weights; attention comes on top); then the median of 48 decoded tokens, logits counted. Figures of a shared machine are worth something only beside others of
//! the same run.

use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_kernels::isa::Isa;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("give a GGUF file")?;
    let isa = args.next().map_or(Ok(Isa::best()), |name| Isa::from_name(&name))?;
    let threads = args.next().map(|n| n.parse()).transpose()?;
    let mut sizes = args.map(|n| n.parse()).collect::<Result<Vec<usize>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![16, 64, 128, 512];
    }
    let start = Instant::now();
    let gguf = Gguf::open(Arc::new(Memory::open(&model)?))?;
    let backbone =
        Backbone::load(&gguf, &BackboneOptions { isa: Some(isa), threads, ..BackboneOptions::default() })?;
    println!(
        "{model}: {isa}, {} threads, loaded in {:.0} ms",
        backbone.threads(),
        start.elapsed().as_secs_f64() * 1e3
    );
    let giga = backbone.multiply_adds() as f64 / 1e9;
    for tokens in sizes {
        let ids: Vec<u32> = (0..tokens).map(|i| (i * 7919 % backbone.shape().vocab) as u32).collect();
        let mut times: Vec<f64> = Vec::new();
        while times.len() < 3 || (times.iter().sum::<f64>() < 2.0 && times.len() < 15) {
            let start = Instant::now();
            backbone.embed(&ids)?;
            times.push(start.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let speed = tokens as f64 / times[times.len() / 2];
        println!(
            "{tokens:6} tokens: {speed:8.1} tok/s, {:6.1} G multiply-adds/s ({} runs)",
            speed * giga,
            times.len()
        );
    }
    let head = backbone.head(&gguf)?;
    let mut context = backbone.context();
    let mut ids: Vec<u32> = (0..8).collect();
    backbone.embed_in(&mut context, &ids, None)?;
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..48 {
        ids.push((ids.len() * 7919 % backbone.shape().vocab) as u32);
        let start = Instant::now();
        let hidden = backbone.embed_in(&mut context, &ids, None)?;
        std::hint::black_box(backbone.logits(&head, &hidden)?);
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let (speed, bytes) = (1.0 / times[times.len() / 2], backbone.weight_bytes() + head.bytes());
    println!("decode: {speed:8.1} tok/s, {:6.1} GB/s of weights", speed * bytes as f64 / 1e9);
    Ok(())
}
