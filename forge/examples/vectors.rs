//! Writes the vectors of many prompts, for a look at which part of a pass heads should read (`training/pooling_choice.py`):
//!
//! `cargo run --release -p zen-edge-forge --example vectors -- MODEL.gguf OUT.f32 POOLING MAX_TOKENS ROWS.jsonl…`
//!
//! `OUT.f32` is row-major, little-endian f32, a row a prompt, in the order of the files.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::{EncodeOptions, Tokenizer};
use zen_edge_forge::rows;

/// Characters that are read of a prompt, as the router does.
const MAX_CHARS: usize = 4000;
/// Prompts that go through the layers together.
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [model, out, pooling, max_tokens, files @ ..] = &words[..] else {
        return Err("give MODEL.gguf OUT.f32 POOLING MAX_TOKENS ROWS.jsonl…".into());
    };
    let max_tokens: usize = max_tokens.parse()?;
    let gguf = Gguf::open(Arc::new(Memory::open(Path::new(model))?))?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let options = BackboneOptions { pooling: pooling.parse()?, ..BackboneOptions::default() };
    let backbone = Backbone::load(&gguf, &options)?;
    let mut ids = Vec::new();
    for file in files {
        for row in rows::read(Path::new(file))? {
            let text: String = row.prompt.chars().take(MAX_CHARS).collect();
            let mut tokens = tokenizer.encode(&text, &EncodeOptions::default());
            tokens.truncate(max_tokens);
            ids.push(tokens);
        }
    }
    // Prompts of like length go together.
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|row| ids[*row].len());
    let mut vectors = vec![Vec::new(); ids.len()];
    for (done, batch) in order.chunks(BATCH).enumerate() {
        let prompts: Vec<&[u32]> = batch.iter().map(|row| &ids[*row][..]).collect();
        for (row, vector) in batch.iter().zip(backbone.embed_batch(&prompts)?) {
            vectors[*row] = vector;
        }
        eprint!("\r{} of {} prompts", (done * BATCH + batch.len()), ids.len());
    }
    eprintln!();
    let mut file = std::io::BufWriter::new(std::fs::File::create(out)?);
    for value in vectors.iter().flatten() {
        file.write_all(&value.to_le_bytes())?;
    }
    Ok(file.flush()?)
}
