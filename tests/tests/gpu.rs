//! The GPU against the CPU: the same vectors to a tolerance, the same decisions, and whatever breaks, an answer.
//!
//! On whatever adapter there is; Mesa's llvmpipe will do. Without one each test is skipped and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zen_edge_core::backbone::gpu::{
    Faults, Gpu, GpuBackbone, GpuError, GpuFailure, GpuOptions, Kernel, PromptProof, block_on,
};
use zen_edge_core::backbone::{Backbone, BackboneError, BackboneOptions, Cancel};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::router::{Device, Request, Router, RouterOptions};
use zen_edge_core::source::Memory;
use zen_edge_default_pack::pack;
use zen_edge_tests::{fixture, need, shared, skip};

/// The cosine below which a vector would be another.
const SAME: f64 = 0.9995;

fn options() -> GpuOptions {
    let start = Instant::now();
    GpuOptions { software: true, now: Some(Arc::new(move || start.elapsed())), ..GpuOptions::default() }
}

/// Whether there is an adapter; else the test is skipped.
fn adapter(test: &str) -> bool {
    match block_on(Gpu::open(&options())) {
        Ok(_) => true,
        Err(error) => {
            skip(test, &format!("needs a GPU adapter, a software one will do: {error}"));
            false
        }
    }
}

fn load(path: &std::path::Path) -> Arc<Backbone> {
    let gguf = Gguf::open(Arc::new(Memory::open(path).unwrap())).unwrap();
    Arc::new(Backbone::load(&gguf, &BackboneOptions { threads: Some(2), ..Default::default() }).unwrap())
}

fn open(backbone: &Arc<Backbone>, options: &GpuOptions) -> Result<GpuBackbone, GpuFailure> {
    block_on(GpuBackbone::open(backbone.clone(), options))
}

fn backbone_is_float(path: &std::path::Path) -> bool {
    let name = path.display().to_string();
    ["f16.gguf", "bf16.gguf", "f32.gguf"].iter().any(|end| name.ends_with(end))
}

fn ids(n: usize, vocab: usize) -> Vec<u32> {
    (0..n).map(|i| u32::try_from((i * 104_729 + 3) % vocab).unwrap()).collect()
}

/// A router without memory of earlier prompts.
fn router(device: Device, faults: Faults) -> Router {
    let options = RouterOptions {
        threads: Some(2),
        cache_bytes: Some(0),
        prefix_bytes: Some(0),
        device,
        gpu: GpuOptions { faults, ..GpuOptions::default() },
        ..RouterOptions::default()
    };
    Router::load(&pack(), &options).unwrap()
}

const PROMPT: &str = "Write a function that merges two sorted lists.";

#[test]
fn every_architecture_and_format_gives_the_cpus_vector() {
    let test = "every_architecture_and_format_gives_the_cpus_vector";
    if !adapter(test) {
        return;
    }
    let mut files: Vec<_> = ["tiny", "real"]
        .iter()
        .filter_map(|folder| std::fs::read_dir(fixture(folder)).ok())
        .flat_map(|folder| folder.map(|entry| entry.unwrap().path()))
        .collect();
    if let Some(folder) = need(test, "the fixtures beside the repository", shared("data/fixtures")) {
        files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|end| end == "gguf"));
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let backbone = load(&path);
        let gpu = match open(&backbone, &options()) {
            Ok(gpu) => gpu,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        for n in [1, 17, 65] {
            let ids = ids(n, backbone.shape().vocab);
            let expected = backbone.embed(&ids).unwrap();
            let found = block_on(gpu.embed(&ids, None)).unwrap();
            let proof = PromptProof::new(n, &found, &expected);
            // Random weights carry a rounding that fell the other way far; floats are not rounded.
            let least = if backbone_is_float(&path) { 0.999_999 } else { 0.998 };
            assert!(proof.cosine >= least, "{}: {proof:?}", path.display());
        }
    }
}

#[test]
fn d9_the_default_pack_decides_alike_and_the_adapter_is_named() {
    let test = "d9_the_default_pack_decides_alike_and_the_adapter_is_named";
    if !adapter(test) {
        return;
    }
    let (cpu, gpu) = (router(Device::Cpu, Faults::default()), router(Device::Gpu, Faults::default()));
    assert_eq!(gpu.gpu_fallback(), None);
    let mut prompts = vec![PROMPT.to_owned(), "zwei ".repeat(600)];
    if let Some(path) = need(test, "the prompts beside the repository", shared("data/prompts/test.jsonl")) {
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let short = rows.map(|row| row["prompt"].as_str().unwrap().to_owned()).filter(|p| p.len() < 400);
        prompts.extend(short.take(40));
    }
    let mut same = 0;
    for prompt in &prompts {
        let request = Request::default();
        let (a, b) = (cpu.route(prompt, &request).unwrap(), gpu.route(prompt, &request).unwrap());
        assert_eq!((a.reading.backend.device, b.reading.backend.device), ("cpu", "gpu"));
        assert!(b.reading.backend.adapter.is_some_and(|adapter| !adapter.name.is_empty()));
        assert_eq!(a.reading.tokens, b.reading.tokens);
        same += usize::from(a.decision.task == b.decision.task && a.decision.model() == b.decision.model());
        let (a, b) = (cpu.embed(prompt, &request).unwrap(), gpu.embed(prompt, &request).unwrap());
        let proof = PromptProof::new(a.reading.tokens, &b.vector, &a.vector);
        assert!(proof.cosine >= SAME && proof.passed(), "{prompt:?}: {proof:?}");
    }
    assert!(1000 * same >= 995 * prompts.len(), "{same} of {} decisions are the same", prompts.len());
}

#[test]
fn d1_i2_a_gpu_that_is_wrong_is_not_believed_and_the_cpu_says_why() {
    if !adapter("d1_i2_a_gpu_that_is_wrong_is_not_believed_and_the_cpu_says_why") {
        return;
    }
    let plain = router(Device::Cpu, Faults::default()).embed(PROMPT, &Request::default()).unwrap();
    assert_eq!(plain.reading.backend.fallback, None);
    for kernel in [Kernel::Gemm, Kernel::Attention] {
        let router = router(Device::Gpu, Faults { wrong: Some(kernel), ..Faults::default() });
        assert!(router.gpu().is_none());
        let read = router.embed(PROMPT, &Request::default()).unwrap();
        assert_eq!(read.vector, plain.vector, "the CPU's bits");
        let why = read.reading.backend.fallback.expect("a reason");
        assert!(why.contains(kernel.name()) && why.contains("self-test"), "{why}");
        assert_eq!(read.reading.backend.device, "cpu");
    }
}

#[test]
fn d15_i8_a_lost_device_is_rebuilt_once_and_the_request_still_answers() {
    if !adapter("d15_i8_a_lost_device_is_rebuilt_once_and_the_request_still_answers") {
        return;
    }
    let request = Request::default();
    let plain = router(Device::Cpu, Faults::default()).embed(PROMPT, &request).unwrap();
    let losses = Arc::new(AtomicU64::new(0));
    let router = router(Device::Gpu, Faults { losses: losses.clone(), ..Faults::default() });
    let adapter = |router: &Router| router.embed(PROMPT, &request).unwrap().reading.backend.adapter;
    assert!(!adapter(&router).expect("the GPU reads").rebuilt);
    losses.store(1, Ordering::Relaxed);
    let read = router.embed(PROMPT, &request).unwrap();
    assert!(read.reading.backend.adapter.expect("the next device reads").rebuilt);
    let proof = PromptProof::new(read.reading.tokens, &read.vector, &plain.vector);
    assert!(proof.cosine >= SAME, "{proof:?}");
    // Once more: now the CPU, for this request and from now on.
    losses.store(1, Ordering::Relaxed);
    for _ in 0..2 {
        let read = router.embed(PROMPT, &request).unwrap();
        assert_eq!(read.vector, plain.vector, "the CPU's bits");
        let backend = read.reading.backend;
        assert!(backend.device == "cpu" && backend.fallback.is_some(), "{backend:?}");
    }
    assert!(router.gpu().is_none());
}

#[test]
fn a_device_that_is_lost_while_it_is_rebuilt_is_given_up() {
    if !adapter("a_device_that_is_lost_while_it_is_rebuilt_is_given_up") {
        return;
    }
    let request = Request::default();
    let plain = router(Device::Cpu, Faults::default()).embed(PROMPT, &request).unwrap();
    let losses = Arc::new(AtomicU64::new(0));
    let router = router(Device::Gpu, Faults { losses: losses.clone(), ..Faults::default() });
    losses.store(2, Ordering::Relaxed);
    let read = router.embed(PROMPT, &request).unwrap();
    assert_eq!(read.vector, plain.vector, "the CPU's bits");
    assert!(read.reading.backend.fallback.is_some() && router.gpu().is_none());
}

#[test]
fn d16_no_memory_and_no_adapter_are_reasons_and_no_errors() {
    if !adapter("d16_no_memory_and_no_adapter_are_reasons_and_no_errors") {
        return;
    }
    let full = router(Device::Gpu, Faults { no_memory: true, ..Faults::default() });
    assert!(full.gpu_fallback().unwrap().contains("memory"));
    let read = full.route(PROMPT, &Request::default()).unwrap().reading;
    assert!(read.backend.fallback.unwrap().contains("memory"));
    // `auto` takes no software adapter, and no GPU that is slower than the CPU.
    let auto = router(Device::Auto, Faults::default());
    match auto.gpu() {
        None => assert!(auto.gpu_fallback().is_some()),
        Some(gpu) => assert!(!gpu.gpu().info().software),
    }
}

#[test]
fn a_pass_can_be_cancelled_and_bad_ids_are_the_cpus_errors() {
    if !adapter("a_pass_can_be_cancelled_and_bad_ids_are_the_cpus_errors") {
        return;
    }
    let gguf = Gguf::open(pack().model).unwrap();
    let backbone = Arc::new(Backbone::load(&gguf, &BackboneOptions::default()).unwrap());
    let gpu = open(&backbone, &options()).unwrap();
    let cancel = Cancel::new();
    cancel.cancel();
    let cancelled = block_on(gpu.embed(&[1, 2, 3], Some(&cancel)));
    assert!(matches!(cancelled, Err(GpuFailure::Backbone(BackboneError::Cancelled))));
    let none = block_on(gpu.embed(&[], None));
    assert!(matches!(none, Err(GpuFailure::Backbone(BackboneError::NoTokens))));
    let beyond = block_on(gpu.embed(&[u32::MAX], None));
    assert!(matches!(beyond, Err(GpuFailure::Backbone(BackboneError::Token { .. }))));
    // Longer than a binding: refused before anything is allocated by it, and the device goes on.
    let tokens = usize::try_from(gpu.gpu().binding_limit()).unwrap() / 4 / backbone.hidden_size() + 1;
    if tokens < 1 << 20 {
        let long = block_on(gpu.embed(&vec![1; tokens], None));
        assert!(matches!(long, Err(GpuFailure::Gpu(GpuError::Limit { .. }))));
    }
    assert_eq!(block_on(gpu.embed(&[1, 2, 3], None)).unwrap().len(), backbone.hidden_size());
}

#[test]
fn threads_share_a_gpu() {
    if !adapter("threads_share_a_gpu") {
        return;
    }
    let gguf = Gguf::open(pack().model).unwrap();
    let backbone = Arc::new(Backbone::load(&gguf, &BackboneOptions::default()).unwrap());
    let gpu = open(&backbone, &options()).unwrap();
    let prompts: Vec<Vec<u32>> = [5, 40, 70].iter().map(|n| ids(*n, backbone.shape().vocab)).collect();
    let alone: Vec<Vec<f32>> = prompts.iter().map(|ids| block_on(gpu.embed(ids, None)).unwrap()).collect();
    std::thread::scope(|scope| {
        for (ids, alone) in prompts.iter().zip(&alone) {
            let gpu = &gpu;
            scope.spawn(move || {
                for _ in 0..3 {
                    let found = block_on(gpu.embed(ids, None)).unwrap();
                    let proof = PromptProof::new(ids.len(), &found, alone);
                    assert!(proof.cosine > 0.999_999, "{proof:?}");
                }
            });
        }
    });
}
