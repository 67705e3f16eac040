//! Cases from the field (tests/CASES.md) that concern a GPU, beside those that tests/tests/gpu.rs holds.

#![cfg(not(target_family = "wasm"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use zen_edge_core::backbone::gpu::{Gpu, GpuBackbone, GpuOptions, block_on};
use zen_edge_core::backbone::{Backbone, BackboneOptions};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::router::{Device, Request, Router, RouterOptions};
use zen_edge_default_pack::pack;
use zen_edge_tests::skip;

/// Options that count how often the GPU's side looks at the clock, which it does at each pass.
fn watched() -> (GpuOptions, Arc<AtomicUsize>) {
    let (looks, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let counted = looks.clone();
    let now = move || -> Duration {
        counted.fetch_add(1, Ordering::Relaxed);
        start.elapsed()
    };
    (GpuOptions { software: true, now: Some(Arc::new(now)), ..GpuOptions::default() }, looks)
}

/// Whether there is an adapter; else the test is skipped.
fn adapter(test: &str) -> bool {
    let opened = block_on(Gpu::open(&watched().0));
    if let Err(error) = &opened {
        skip(test, &format!("needs a GPU adapter, a software one will do: {error}"));
    }
    opened.is_ok()
}

#[test]
fn d5_i4_no_gpu_is_opened_unless_one_is_asked_for() {
    let looks_with = |device| {
        let (gpu, looks) = watched();
        let options = RouterOptions { threads: Some(1), device, gpu, ..RouterOptions::default() };
        let router = Router::load(&pack(), &options).unwrap();
        let read = router.route("why is the sky blue?", &Request::default()).unwrap().reading;
        (looks.load(Ordering::Relaxed), router.gpu().is_some(), read.backend)
    };
    let (looks, opened, backend) = looks_with(Device::Cpu);
    assert_eq!((looks, opened, backend.device, backend.fallback), (0, false, "cpu", None));
    // The same is seen to work: where a GPU is asked for, the clock is looked at.
    if adapter("d5_i4_no_gpu_is_opened_unless_one_is_asked_for") {
        let (looks, opened, backend) = looks_with(Device::Gpu);
        assert!(looks > 0 && opened && backend.device == "gpu", "{looks} {opened} {backend:?}");
    }
}

/// Bytes of this process that are in memory and belong to no file.
fn resident() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib << 10)
}

#[test]
fn i13_passes_on_a_gpu_leave_memory_flat() {
    if !adapter("i13_passes_on_a_gpu_leave_memory_flat") {
        return;
    }
    let gguf = Gguf::open(pack().model).unwrap();
    let options = BackboneOptions { threads: Some(1), ..BackboneOptions::default() };
    let backbone = Arc::new(Backbone::load(&gguf, &options).unwrap());
    let gpu = block_on(GpuBackbone::open(backbone, &watched().0)).unwrap();
    let pass = |i: usize| drop(block_on(gpu.embed(&[1, 2, 3 + i as u32 % 100, 4], None)).unwrap());
    (0..100).for_each(pass);
    let before = resident();
    (0..400).for_each(pass);
    let after = resident();
    println!("400 passes: resident {before:?} to {after:?}");
    if let (Some(before), Some(after)) = (before, after) {
        // A pass's own buffers are some 100 KB: kept, they would be 40 MB.
        assert!(after < before + (8 << 20), "{before} to {after}");
    }
}
