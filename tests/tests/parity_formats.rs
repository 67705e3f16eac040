//! The backbone in 14 formats against transformers (fp32) on the dequantised weights of the same file: at least as
//! close as llama.cpp comes to it.
//!
//! `cargo run --release -p zen-edge-tests --example parity_report` prints the same figures as a table, and those of the
//! 0.6B shapes, whose files are too large for a test to make (benches/records has them).

mod parity_common;

use parity_common::{Agreement, cosine, each, embed, ids, json, load, mapped, options, vector};
use serde_json::Value;
use std::path::Path;
use zen_edge_tests::{need, shared};

/// Ours and llama.cpp's agreement with transformers over the prompts of one format.
fn agreement(refs: &Value, format: &str, file: &Path) -> (Agreement, Agreement) {
    let backbone = load(&mapped(file), &options(None, 2));
    let entry = &refs["refs"][format];
    let want = each(&entry["transformers_fp32_dequantised"], vector);
    let theirs = each(&entry["llama_cpp_haswell"], vector);
    let prompts = each(&refs["ids"], ids);
    let ours: Vec<_> =
        prompts.iter().zip(&want).map(|(ids, want)| cosine(&embed(&backbone, ids), want)).collect();
    let theirs: Vec<_> = theirs.iter().zip(&want).map(|(v, want)| cosine(v, want)).collect();
    let theirs = Agreement::of(&theirs);
    // The file says so itself (in f32): whoever reads the wrong vectors is seen here.
    let recorded = refs["agreement"][format]["llama.cpp[haswell]_vs_hf"]["cos_mean"].as_f64().unwrap();
    assert!(
        (theirs.mean - recorded).abs() < 1e-6,
        "{format}: {} against the recorded {recorded}",
        theirs.mean
    );
    (Agreement::of(&ours), theirs)
}

fn at_least_as_llama_cpp(refs: &Value, format: &str, file: &Path) -> Result<(), String> {
    let (ours, theirs) = agreement(refs, format, file);
    println!(
        "{:16} {format:8} n {:2}  ours {:.7} (min {:.7})  llama.cpp {:.7} (min {:.7})",
        refs["model"].as_str().unwrap_or_default(),
        ours.n,
        ours.mean,
        ours.min,
        theirs.mean,
        theirs.min
    );
    let exact = ["f32", "f16", "bf16"].contains(&format);
    if ours.mean < theirs.mean {
        return Err(format!("{format}: mean cosine {:.7}, llama.cpp {:.7}", ours.mean, theirs.mean));
    }
    if exact && ours.min < 0.99999 {
        return Err(format!("{format}: lowest cosine {:.7} with weights of 16 bits or more", ours.min));
    }
    Ok(())
}

#[test]
fn tiny_agrees_at_least_as_well_as_llama_cpp_in_every_format() {
    let test = "tiny_agrees_at_least_as_well_as_llama_cpp_in_every_format";
    let Some(refs) = need(test, "shared fixtures", shared("data/fixtures/qwen3-tiny-rand-refs.json")) else {
        return;
    };
    let folder = refs.parent().unwrap().to_path_buf();
    let refs = json(&refs);
    let formats: Vec<_> = refs["refs"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(formats.len(), 14);
    let worse: Vec<_> = formats
        .iter()
        .filter_map(|format| {
            let file = folder.join(refs["refs"][format]["file"].as_str().unwrap());
            at_least_as_llama_cpp(&refs, format, &file).err()
        })
        .collect();
    assert!(worse.is_empty(), "{}", worse.join("\n"));
}
