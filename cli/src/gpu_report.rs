//! `zen-edge gpu-report`: what GPU there is, whether it is to be believed, and how fast it is.

use crate::engine;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::output::plain;
use serde::Serialize;
use std::sync::Arc;
use std::time::Instant;
use zen_edge_core::backbone::Backbone;
use zen_edge_core::backbone::gpu::{
    Gpu, GpuBackbone, GpuFailure, GpuNotes, GpuOptions, NotesKeeper, Now, PromptProof, block_on, measure,
};
use zen_edge_core::pack::LoadError;
use zen_edge_kernels::format::BlockType;

/// The arguments of `zen-edge gpu-report`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    engine: engine::Args,
    /// Leave out the measurements
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    adapter: String,
    driver: String,
    api: String,
    kind: &'static str,
    software: bool,
    limits: Limits,
    features: Vec<&'static str>,
    /// Bytes of the weights on the device.
    weight_bytes: u64,
    /// Milliseconds to open the device, put the weights there and prove it.
    open_ms: f64,
    kernels: Vec<Kernel>,
    prompts: Vec<Prompt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    roofline: Option<Roofline>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timings: Vec<Timing>,
}

#[derive(Serialize)]
struct Limits {
    storage_binding_bytes: u64,
    buffer_bytes: u64,
    storage_buffers: u32,
    workgroup_storage_bytes: u32,
    invocations: u32,
}

#[derive(Serialize)]
struct Kernel {
    kernel: &'static str,
    on: String,
    error: f64,
    tolerance: f64,
}

#[derive(Serialize)]
struct Prompt {
    tokens: usize,
    cosine: f64,
    length: f64,
}

#[derive(Serialize)]
struct Roofline {
    gflops: f64,
    gigabytes_per_second: f64,
    products: Vec<Product>,
}

#[derive(Serialize)]
struct Product {
    format: &'static str,
    tokens: usize,
    rows: usize,
    cols: usize,
    gflops: f64,
    share: f64,
}

#[derive(Serialize)]
struct Timing {
    tokens: usize,
    gpu_ms: f64,
    cpu_ms: f64,
}

impl From<GpuFailure> for Failure {
    fn from(failure: GpuFailure) -> Self {
        match failure {
            GpuFailure::Backbone(error) => LoadError::from(error).into(),
            other => Self::new(Exit::Other, other.to_string()),
        }
    }
}

/// Runs the command: an error where there is no GPU, or one that is not to be believed.
pub fn run(args: &Args) -> Result<(), Failure> {
    let backbone = args.engine.backbone()?;
    let start = Instant::now();
    let now: Now = Arc::new(move || start.elapsed());
    let options = GpuOptions { software: true, now: Some(now.clone()), ..GpuOptions::default() };
    // Whatever an earlier start found or left behind: this one tries, and what it finds is remembered.
    let (mut notes, kept) = (GpuNotes::default(), crate::state::gpu_notes());
    let write = |notes: &GpuNotes| kept.as_ref().map(|file| block_on(file.write(notes.to_bytes())));
    let _ = notes.begin();
    write(&notes);
    let opened = block_on(GpuBackbone::open_with(backbone.clone(), &options, &mut notes));
    notes.ended();
    write(&notes);
    let opened = opened?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let (info, limits) = (opened.gpu().info(), opened.gpu().limits());
    let mut report = Report {
        adapter: info.adapter.clone(),
        driver: info.driver.clone(),
        api: info.api.clone(),
        kind: info.kind,
        software: info.software,
        limits: Limits {
            storage_binding_bytes: limits.binding,
            buffer_bytes: limits.buffer,
            storage_buffers: limits.storage_buffers,
            workgroup_storage_bytes: limits.workgroup_storage,
            invocations: limits.invocations,
        },
        features: limits.features.clone(),
        weight_bytes: opened.weight_bytes(),
        open_ms,
        kernels: opened
            .proof()
            .kernels
            .iter()
            .map(|line| Kernel {
                kernel: line.kernel.name(),
                on: line.what.clone(),
                error: line.error,
                tolerance: line.tolerance,
            })
            .collect(),
        prompts: opened
            .proof()
            .prompts
            .iter()
            .map(|PromptProof { tokens, cosine, length }| Prompt {
                tokens: *tokens,
                cosine: *cosine,
                length: *length,
            })
            .collect(),
        roofline: None,
        timings: Vec::new(),
    };
    if !args.quick {
        report.roofline = Some(roofline(opened.gpu(), &now)?);
        report.timings = timings(&backbone, &opened)?;
    }
    if args.json {
        output::json(&report);
    } else {
        print(&report);
    }
    Ok(())
}

fn roofline(gpu: &Gpu, now: &Now) -> Result<Roofline, Failure> {
    let formats = [BlockType::Q4K, BlockType::Q6K, BlockType::Q8_0, BlockType::F16];
    let measured = block_on(measure(gpu, now, &formats)).map_err(GpuFailure::from)?;
    let products = measured.products.iter().map(|product| Product {
        format: product.ty.name(),
        tokens: product.shape[0],
        rows: product.shape[1],
        cols: product.shape[2],
        gflops: product.speed / 1e9,
        share: product.share,
    });
    Ok(Roofline {
        gflops: measured.peak / 1e9,
        gigabytes_per_second: measured.bandwidth / 1e9,
        products: products.collect(),
    })
}

fn timings(backbone: &Backbone, gpu: &GpuBackbone) -> Result<Vec<Timing>, Failure> {
    let vocab = backbone.shape().vocab;
    let mut timings = Vec::new();
    for tokens in [16, 64, 256] {
        let ids: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 17) % vocab) as u32).collect();
        // The first pass of a length compiles shaders and makes buffers.
        block_on(gpu.embed(&ids, None))?;
        let start = Instant::now();
        block_on(gpu.embed(&ids, None))?;
        let gpu_ms = start.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        backbone.embed(&ids).map_err(LoadError::from)?;
        timings.push(Timing { tokens, gpu_ms, cpu_ms: start.elapsed().as_secs_f64() * 1e3 });
    }
    Ok(timings)
}

fn print(report: &Report) {
    let software = if report.software { ": software, taken only with --device gpu" } else { "" };
    output::line(&format!("{} ({}, {}{software})", plain(&report.adapter), report.api, report.kind));
    output::line(&format!("driver   {}", plain(&report.driver)));
    let l = &report.limits;
    output::line(&format!(
        "limits   binding {} MiB, workgroup {} KiB, {} invocations, {} storage buffers",
        l.storage_binding_bytes >> 20,
        l.workgroup_storage_bytes >> 10,
        l.invocations,
        l.storage_buffers
    ));
    output::line(&format!("features {}", report.features.join(", ")));
    output::line(&format!(
        "weights  {:.1} MB on the device; opened and proved in {:.0} ms",
        report.weight_bytes as f64 / 1e6,
        report.open_ms
    ));
    output::line("\nproved against the CPU:");
    for line in &report.kernels {
        output::line(&format!(
            "  {:<10} {:<50} error {:.1e} of {:.0e}",
            line.kernel, line.on, line.error, line.tolerance
        ));
    }
    for prompt in &report.prompts {
        output::line(&format!(
            "  {:<10} {:<50} cosine {:.6}, length {:.4}",
            "prompt",
            format!("{} tokens", prompt.tokens),
            prompt.cosine,
            prompt.length
        ));
    }
    if let Some(roofline) = &report.roofline {
        output::line(&format!(
            "\nat most {:.1} GFLOP/s of multiply-adds, {:.1} GB/s of copying; products:",
            roofline.gflops, roofline.gigabytes_per_second
        ));
        for product in &roofline.products {
            output::line(&format!(
                "  {:<5} {:>4} x {} x {}  {:>8.1} GFLOP/s, {:.0} % of that",
                product.format,
                product.tokens,
                product.rows,
                product.cols,
                product.gflops,
                100.0 * product.share
            ));
        }
    }
    if !report.timings.is_empty() {
        output::line("\na prompt's prefill:");
        for timing in &report.timings {
            output::line(&format!(
                "  {:>4} tokens  {:>8.1} ms on the GPU, {:>7.1} ms on the CPU",
                timing.tokens, timing.gpu_ms, timing.cpu_ms
            ));
        }
    }
}
