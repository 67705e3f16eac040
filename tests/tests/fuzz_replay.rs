//! A short run of every fuzz target with a fixed seed: real files cut and changed, the same ones on every machine. What a
//! long run found (fuzz/) stays in fuzz/regressions and is run here for good.

use fastrand::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::source::Memory;
use zen_edge_core::tokenizer::Tokenizer;
use zen_edge_tests::fuzzing::{TARGETS, changed};
use zen_edge_tests::root;

#[test]
fn changed_files_are_refused_or_harmless() {
    for target in &TARGETS {
        let seeds = (target.seeds)();
        for seed in &seeds {
            (target.run)(seed);
            (target.run)(b"");
        }
        let mut random = Rng::with_seed(20_261_130);
        let start = Instant::now();
        let mut runs = 0;
        // By number first, so that every machine makes the same ones; by time where a reader is slow.
        while runs < 3000 && start.elapsed() < Duration::from_secs(6) {
            let file = &seeds[random.usize(..seeds.len())];
            let other = &seeds[random.usize(..seeds.len())];
            (target.run)(&changed(&mut random, file, other));
            runs += 1;
        }
        println!(
            "{}: {} seeds, {runs} changed files in {:.1} s",
            target.name,
            seeds.len(),
            start.elapsed().as_secs_f64()
        );
        assert!(runs >= 20, "{}: {runs} runs", target.name);
    }
}

#[test]
fn what_a_long_run_found_stays_mended() {
    let folder = root().join("fuzz/regressions");
    let mut files = 0;
    for target in &TARGETS {
        let Ok(entries) = std::fs::read_dir(folder.join(target.name)) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            println!("{}", path.display());
            (target.run)(&std::fs::read(&path).unwrap());
            files += 1;
        }
    }
    println!("{files} files");
}

#[test]
fn what_the_gguf_runs_begin_from_is_sound() {
    let gguf = TARGETS.iter().find(|target| target.name == "gguf").unwrap();
    for seed in (gguf.seeds)() {
        let file = Gguf::open(Arc::new(Memory::new("seed.gguf", seed))).unwrap();
        Tokenizer::from_gguf(&file).unwrap();
        let options = BackboneOptions { threads: Some(1), ..BackboneOptions::default() };
        Backbone::load(&file, &options).unwrap().embed(&[0, 1, 2]).unwrap();
    }
}

#[test]
fn every_target_has_its_fuzzer() {
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for target in &TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"", target.name)), "{}", target.name);
        let file =
            std::fs::read_to_string(root().join(format!("fuzz/fuzz_targets/{}.rs", target.name))).unwrap();
        assert!(file.contains(&format!("fuzzing::{}(data)", target.name)), "{}", target.name);
    }
}
