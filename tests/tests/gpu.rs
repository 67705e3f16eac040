//! The GPU against the CPU: the same vectors to a tolerance, the same decisions, and whatever breaks, an answer.
//!
//! On whatever adapter there is; Mesa's llvmpipe will do. Without one each test is skipped and says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use zen_edge_core::backbone::gpu::{
    Faults, Gpu, GpuBackbone, GpuError, GpuFailure, GpuNotes, GpuOptions, GpuRuntime, Kernel, NotesFile,
    PromptProof, block_on,
};
use zen_edge_core::backbone::{Arithmetic, Backbone, BackboneError, BackboneOptions, Cancel};
use zen_edge_core::gguf::Gguf;
use zen_edge_core::router::{Device, Request, Router, RouterOptions, Step};
use zen_edge_core::source::Memory;
use zen_edge_default_pack::pack;
use zen_edge_tests::{fixture, need, shared, skip};

/// The least cosine with the CPU's vector: what its int8 activations cost, at most, on the default pack's prompts
/// (.99899 in `benches/records/verify.md`). With the CPU's float arithmetic the GPU agrees to the sixth figure.
const SAME: f64 = 0.9985;

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

/// The vectors of several prompts in f32 on the CPU.
fn floats(backbone: &Backbone, prompts: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut pass = backbone.begin_float(prompts).unwrap();
    loop {
        if let Some(vectors) = backbone.step_float(&mut pass).unwrap() {
            return vectors;
        }
    }
}

fn ids(n: usize, vocab: usize) -> Vec<u32> {
    (0..n).map(|i| u32::try_from((i * 104_729 + 3) % vocab).unwrap()).collect()
}

fn router_options(device: Device, faults: Faults) -> RouterOptions {
    RouterOptions {
        threads: Some(2),
        cache_bytes: Some(0),
        prefix_bytes: Some(0),
        device,
        gpu: GpuOptions { faults, ..GpuOptions::default() },
        ..RouterOptions::default()
    }
}

/// A router without memory of earlier prompts.
fn router(device: Device, faults: Faults) -> Router {
    Router::load(&pack(), &router_options(device, faults)).unwrap()
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
        let prompts = [1, 17, 65].map(|n| ids(n, backbone.shape().vocab));
        let expected = floats(&backbone, &prompts.each_ref().map(Vec::as_slice));
        for (ids, expected) in prompts.iter().zip(&expected) {
            let found = block_on(gpu.embed(ids, None)).unwrap();
            let proof = PromptProof::new(ids.len(), &found, expected);
            assert!(proof.cosine >= 0.999_99, "{}: {proof:?}", path.display());
        }
    }
}

#[test]
fn the_proofs_other_side_is_a_backbone_in_float_to_the_bit() {
    let mut files: Vec<_> = std::fs::read_dir(fixture("tiny"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "gguf"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for path in files {
        let gguf = Gguf::open(Arc::new(Memory::open(&path).unwrap())).unwrap();
        let options = BackboneOptions { threads: Some(1), ..Default::default() };
        let (as_it_is, float) = (
            Backbone::load(&gguf, &options).unwrap(),
            Backbone::load(&gguf, &BackboneOptions { arithmetic: Arithmetic::Float, ..options }).unwrap(),
        );
        let prompts = [1, 40, 9].map(|n| ids(n, float.shape().vocab));
        let found = floats(&as_it_is, &prompts.each_ref().map(Vec::as_slice));
        for (ids, found) in prompts.iter().zip(&found) {
            assert_eq!(*found, float.embed(ids).unwrap(), "{}", path.display());
        }
        assert!(as_it_is.begin_float(&[&[1], &[]]).is_err());
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
        assert!(proof.cosine >= SAME, "{prompt:?}: {proof:?}");
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

/// A start with notes in a file.
fn start(path: &std::path::Path, faults: Faults) -> Router {
    let options = RouterOptions {
        gpu_notes: Some(Arc::new(NotesFile(path.to_owned()))),
        ..router_options(Device::Gpu, faults)
    };
    Router::load(&pack(), &options).unwrap()
}

#[test]
fn a_proof_is_remembered_and_so_is_a_failure() {
    if !adapter("a_proof_is_remembered_and_so_is_a_failure") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu.json");
    let proof = |router: &Router| router.gpu().expect("a GPU").proof().clone();
    let first = proof(&start(&path, Faults::default()));
    assert!(!first.remembered && first.kernels.len() > 10 && first.prompts.len() == 3);
    let again = proof(&start(&path, Faults::default()));
    assert!(again.remembered && again.kernels.is_empty() && again.prompts.len() == 1, "{again:?}");
    assert!(again.prompts[0].passed());
    // A device that is wrong now was right before: the answer of then tells.
    let wrong = Faults { wrong: Some(Kernel::Gemm), ..Faults::default() };
    let why = start(&path, wrong).gpu_fallback().expect("it is refused");
    assert!(why.contains("self-test") && why.contains("gemm"), "{why}");
    // That is remembered as well, though it is right again; the words say where.
    let why = start(&path, Faults::default()).gpu_fallback().expect("it is refused unseen");
    assert!(why.contains("gemm") && why.contains("earlier start") && why.contains("gpu.json"), "{why}");
    std::fs::remove_file(&path).unwrap();
    assert!(!proof(&start(&path, Faults::default())).remembered);
    // What was kept is damaged: it is proved anew, and not refused for it.
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.find("\"answer\":[").expect("an answer is kept") + 10;
    std::fs::write(&path, format!("{}9e3,{}", &text[..at], &text[at..])).unwrap();
    assert!(!proof(&start(&path, Faults::default())).remembered);
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(!proof(&start(&path, Faults::default())).remembered);
    // No place to keep anything: every start is as the first.
    let nowhere = folder.path().join("none/gpu.json");
    assert!(!proof(&start(&nowhere, Faults::default())).remembered);
}

#[test]
fn a_start_that_never_ended_is_not_repeated_at_once() {
    if !adapter("a_start_that_never_ended_is_not_repeated_at_once") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gpu.json");
    // The start ends in a panic in its middle, as a driver would end the process.
    let died = std::panic::catch_unwind(|| {
        let mut options = router_options(Device::Gpu, Faults::default());
        options.gpu.now = Some(Arc::new(|| panic!("the driver dies")));
        options.gpu_notes = Some(Arc::new(NotesFile(path.clone())));
        Router::load(&pack(), &options).map_err(|error| error.to_string()).map(drop)
    });
    assert!(died.is_err());
    let router = start(&path, Faults::default());
    let reading = router.route(PROMPT, &Request::default()).unwrap().reading;
    let why = reading.backend.fallback.expect("a reason");
    assert!(reading.backend.device == "cpu" && router.gpu().is_none());
    assert!(why.contains("never finished") && why.contains("gpu.json"), "{why}");
    assert!(start(&path, Faults::default()).gpu().is_some(), "the next one tries it again");
    assert!(start(&path, Faults::default()).gpu().is_some());
    // A failure that is told is an end.
    start(&path, Faults { no_memory: true, ..Faults::default() });
    assert!(start(&path, Faults::default()).gpu().is_some());
}

#[test]
fn the_cpu_answers_until_the_gpu_is_ready() {
    if !adapter("the_cpu_answers_until_the_gpu_is_ready") {
        return;
    }
    let options = RouterOptions { gpu_later: true, ..router_options(Device::Gpu, Faults::default()) };
    let router = Arc::new(Router::load(&pack(), &options).unwrap());
    let request = Request::default();
    let before = router.route(PROMPT, &request).unwrap();
    assert_eq!(before.reading.backend.device, "cpu");
    assert!(before.reading.backend.fallback.unwrap().contains("not ready"));
    let starting = router.clone();
    let thread = std::thread::spawn(move || block_on(starting.start_gpu()));
    while !thread.is_finished() {
        let outcome = router.route(PROMPT, &request).unwrap();
        assert_eq!(outcome.decision.task, before.decision.task);
    }
    thread.join().unwrap().unwrap();
    let after = router.route(PROMPT, &request).unwrap();
    assert_eq!((after.reading.backend.device, after.reading.backend.fallback), ("gpu", None));
    assert_eq!(after.decision.task, before.decision.task);
}

#[test]
fn a_rebuild_that_nobody_waits_for_leaves_the_cpu_and_the_reason() {
    if !adapter("a_rebuild_that_nobody_waits_for_leaves_the_cpu_and_the_reason") {
        return;
    }
    let losses = Arc::new(AtomicU64::new(0));
    let gguf = Gguf::open(pack().model).unwrap();
    let backbone = Arc::new(Backbone::load(&gguf, &BackboneOptions::default()).unwrap());
    let options = GpuOptions { faults: Faults { losses: losses.clone(), ..Faults::default() }, ..options() };
    let runtime = block_on(GpuRuntime::open(backbone, options, &mut GpuNotes::default())).unwrap();
    losses.store(1, Ordering::Relaxed);
    let mut reading = Box::pin(runtime.embed(&[1, 2, 3], None));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut done = false;
    while !done && losses.load(Ordering::Relaxed) > 0 {
        done = reading.as_mut().poll(&mut context).is_ready();
    }
    drop(reading);
    // Where the rebuild came to its end within that step there is a device again.
    match runtime.failed() {
        None => assert!(runtime.ready().is_some()),
        // By whichever of its errors the loss was seen.
        Some(error) => assert!(!error.to_string().contains("rebuilt"), "{error}"),
    }
}

#[test]
fn a_job_waits_for_the_gpu_and_goes_on_with_the_cpu_where_that_is_lost() {
    if !adapter("a_job_waits_for_the_gpu_and_goes_on_with_the_cpu_where_that_is_lost") {
        return;
    }
    let losses = Arc::new(AtomicU64::new(0));
    let router = Arc::new(router(Device::Gpu, Faults { losses: losses.clone(), ..Faults::default() }));
    let cpu = self::router(Device::Cpu, Faults::default());
    let plain = cpu.embed(PROMPT, &Request::default()).unwrap();
    let drive = || {
        let mut job = router.begin_embed(PROMPT, &Request::default());
        // Whether there is anything to wait for is the device's affair: it may be done before it is asked.
        while job.advance(std::task::Waker::noop()) != Step::Done {}
        job.embedding().unwrap()
    };
    let read = drive();
    assert!(read.reading.backend.device == "gpu", "{:?}", read.reading.backend);
    assert!(PromptProof::new(0, &read.vector, &plain.vector).cosine >= SAME);
    // Dropped in its middle: the next one is none the worse.
    drop(router.begin_embed(PROMPT, &Request::default()));
    drop(router.begin(PROMPT, &Request::default()));
    assert_eq!(router.stats().counts.cancelled, 1);
    // Who asks to keep off it is kept off it.
    let mut job = router.begin_embed(PROMPT, &Request { cpu_only: true, ..Request::default() });
    while job.advance(std::task::Waker::noop()) != Step::Done {}
    let read = job.embedding().unwrap();
    assert!(read.reading.backend.device == "cpu" && read.vector == plain.vector);
    // Lost once, the next device answers; lost again, the CPU does, with its bits.
    losses.store(1, Ordering::Relaxed);
    let read = drive();
    assert!(read.reading.backend.adapter.expect("a device").rebuilt);
    losses.store(1, Ordering::Relaxed);
    for _ in 0..2 {
        let read = drive();
        assert_eq!(read.vector, plain.vector);
        assert!(read.reading.backend.device == "cpu" && read.reading.backend.fallback.is_some());
    }
}
