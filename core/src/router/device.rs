//! Who reads a prompt: the CPU, or a GPU that proved itself and where it is faster.

use super::types::{BackendInfo, Device, RouterOptions};
use super::{Clock, lock};
use crate::backbone::{Backbone, BackboneError, Interrupt};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

#[cfg(feature = "gpu")]
use crate::backbone::gpu::{
    GpuBackbone, GpuError, GpuFailure, GpuNotes, GpuOptions, GpuRuntime, NotesKeeper,
};

/// Prompt lengths at which CPU and GPU are set side by side, in tokens.
#[cfg(feature = "gpu")]
const LENGTHS: [usize; 3] = [16, 64, 256];

/// A prompt on a GPU: its vector, or `None` where the CPU is to give it.
pub type GpuRead = Pin<Box<dyn Future<Output = Option<Result<Vec<f32>, BackboneError>>> + Send>>;

/// A GPU that reads prompts, or why there is none.
pub struct GpuReader {
    #[cfg(feature = "gpu")]
    device: Device,
    #[cfg(feature = "gpu")]
    options: GpuOptions,
    #[cfg(feature = "gpu")]
    notes: Option<Arc<dyn NotesKeeper>>,
    #[cfg(feature = "gpu")]
    running: Mutex<Option<Running>>,
    fallback: Mutex<Option<String>>,
}

#[cfg(feature = "gpu")]
#[derive(Clone)]
struct Running {
    runtime: Arc<GpuRuntime>,
    /// The shortest prompt that it reads.
    from_tokens: usize,
}

impl GpuReader {
    /// Opens what the options ask for, or leaves it to [`start`](Self::start). Whatever goes wrong is a reason, not an error:
    /// the CPU answers.
    pub fn open(backbone: &Arc<Backbone>, options: &RouterOptions, clock: &Arc<dyn Clock>) -> Arc<Self> {
        #[cfg(not(feature = "gpu"))]
        {
            let _ = (backbone, clock);
            let none = || "this build has no GPU: it was built without the feature `gpu`".to_owned();
            let why = options.no_gpu.clone().or_else(|| (options.device != Device::Cpu).then(none));
            Arc::new(Self { fallback: Mutex::new(why) })
        }
        #[cfg(feature = "gpu")]
        {
            let time = clock.clone();
            let reader = Arc::new(Self {
                device: options.device,
                options: GpuOptions {
                    software: options.device == Device::Gpu,
                    now: Some(options.gpu.now.clone().unwrap_or_else(|| Arc::new(move || time.now()))),
                    ..options.gpu.clone()
                },
                notes: options.gpu_notes.clone(),
                running: Mutex::new(None),
                fallback: Mutex::new(options.no_gpu.clone()),
            });
            if options.device == Device::Cpu || options.no_gpu.is_some() {
                return reader;
            }
            if options.gpu_later || cfg!(target_family = "wasm") {
                *lock(&reader.fallback) = Some("the GPU is not ready yet".to_owned());
                return reader;
            }
            #[cfg(not(target_family = "wasm"))]
            let _ = crate::backbone::gpu::block_on(reader.start(backbone));
            let _ = backbone;
            reader
        }
    }

    /// Opens the GPU, has it prove itself and moves over to it. Until then the CPU answers, and after it where this fails.
    ///
    /// # Errors
    /// Why the CPU goes on; [`fallback`](Self::fallback) tells it too.
    #[cfg(feature = "gpu")]
    pub async fn start(&self, backbone: &Arc<Backbone>) -> Result<(), GpuFailure> {
        let keeper = self.notes.as_deref();
        let mut notes = match keeper {
            Some(keeper) => GpuNotes::parse(&keeper.read().await),
            None => GpuNotes::default(),
        };
        let begun = notes.begin();
        // The marker is there before anything of the GPU is touched.
        if let Some(keeper) = keeper {
            keeper.write(notes.to_bytes()).await;
        }
        let started = match begun {
            Ok(()) => {
                let started = self.open_proved(backbone, &mut notes).await;
                notes.ended();
                if let Some(keeper) = keeper {
                    keeper.write(notes.to_bytes()).await;
                }
                started
            }
            Err(error) => Err(error.into()),
        };
        match started {
            Ok(running) => {
                *lock(&self.running) = Some(running);
                *lock(&self.fallback) = None;
                Ok(())
            }
            Err(error) => {
                let mut why = error.to_string();
                if let (
                    Some(keeper),
                    GpuFailure::Gpu(GpuError::Refused { .. } | GpuError::Unfinished { .. }),
                ) = (keeper, &error)
                {
                    why = format!("{why}; {}", keeper.retry());
                }
                *lock(&self.fallback) = Some(why);
                Err(error)
            }
        }
    }

    #[cfg(feature = "gpu")]
    async fn open_proved(
        &self,
        backbone: &Arc<Backbone>,
        notes: &mut GpuNotes,
    ) -> Result<Running, GpuFailure> {
        let runtime = GpuRuntime::open(backbone.clone(), self.options.clone(), notes).await?;
        let from_tokens = match (self.device, runtime.ready()) {
            (Device::Auto, Some(ready)) => crossover(backbone, &ready, &self.options).await?,
            _ => 0,
        };
        Ok(Running { runtime: Arc::new(runtime), from_tokens })
    }

    /// Why the CPU runs where a GPU was asked for.
    pub fn fallback(&self) -> Option<String> {
        lock(&self.fallback).clone()
    }

    #[cfg(feature = "gpu")]
    fn running(&self) -> Option<Running> {
        lock(&self.running).clone()
    }

    /// The backbone on the GPU, unless it was given up.
    #[cfg(feature = "gpu")]
    pub fn ready(&self) -> Option<Arc<GpuBackbone>> {
        self.running()?.runtime.ready()
    }

    /// The shortest prompt that the GPU reads, where one runs.
    #[cfg(feature = "gpu")]
    pub fn from_tokens(&self) -> Option<usize> {
        self.running().map(|running| running.from_tokens)
    }

    /// Whether a prompt of so many tokens is read by the GPU.
    pub fn takes(&self, tokens: usize) -> bool {
        #[cfg(feature = "gpu")]
        return self
            .running()
            .is_some_and(|running| tokens >= running.from_tokens && running.runtime.failed().is_none());
        #[cfg(not(feature = "gpu"))]
        {
            let _ = tokens;
            false
        }
    }

    /// The vector of `ids`; `None` where the CPU is to give it, and the reason is kept where the GPU should have. In a
    /// browser nothing can wait for a GPU without returning to the page: there it is always `None`, and [`begin`](Self::begin)
    /// is asked.
    pub fn embed(
        &self,
        ids: &[u32],
        interrupt: Option<&dyn Interrupt>,
    ) -> Option<Result<Vec<f32>, BackboneError>> {
        if !self.takes(ids.len()) {
            return None;
        }
        #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
        {
            let running = self.running()?;
            self.judge(crate::backbone::gpu::block_on(running.runtime.embed(ids, interrupt)))
        }
        #[cfg(not(all(feature = "gpu", not(target_family = "wasm"))))]
        {
            let _ = interrupt;
            None
        }
    }

    /// Begins to read `ids` on the GPU, where it takes them: as [`embed`](Self::embed), for a caller with an event loop.
    pub fn begin(self: &Arc<Self>, ids: &[u32]) -> Option<GpuRead> {
        if !self.takes(ids.len()) {
            return None;
        }
        #[cfg(feature = "gpu")]
        {
            let (reader, ids, running) = (self.clone(), ids.to_vec(), self.running()?);
            Some(Box::pin(async move { reader.judge(running.runtime.embed(&ids, None).await) }))
        }
        #[cfg(not(feature = "gpu"))]
        None
    }

    #[cfg(feature = "gpu")]
    fn judge(&self, read: Result<Vec<f32>, GpuFailure>) -> Option<Result<Vec<f32>, BackboneError>> {
        match read {
            Ok(vector) => {
                *lock(&self.fallback) = None;
                Some(Ok(vector))
            }
            // The CPU has the last word on what is wrong with a prompt or a file.
            Err(GpuFailure::Backbone(BackboneError::Cancelled)) => Some(Err(BackboneError::Cancelled)),
            Err(error) => {
                *lock(&self.fallback) = Some(error.to_string());
                None
            }
        }
    }

    /// Writes the GPU's name under what it read.
    pub fn sign(&self, backend: &mut BackendInfo) {
        #[cfg(feature = "gpu")]
        if let Some(running) = self.running()
            && let Some(ready) = running.runtime.ready()
        {
            let info = ready.gpu().info();
            backend.device = "gpu";
            backend.isa = "wgsl";
            backend.fallback = None;
            backend.adapter = Some(Box::new(super::types::Adapter {
                name: info.adapter.clone(),
                driver: info.driver.clone(),
                api: info.api.clone(),
                software: info.software,
                rebuilt: running.runtime.rebuilt(),
            }));
        }
        #[cfg(not(feature = "gpu"))]
        let _ = backend;
    }
}

/// The shortest of [`LENGTHS`] from which on the GPU was faster than the CPU, measured.
#[cfg(feature = "gpu")]
async fn crossover(
    backbone: &Backbone,
    gpu: &GpuBackbone,
    options: &GpuOptions,
) -> Result<usize, GpuFailure> {
    let vocab = backbone.shape().vocab;
    let now = || options.now.as_ref().map_or(std::time::Duration::ZERO, |now| now());
    let mut faster = None;
    let mut told = String::new();
    for tokens in LENGTHS {
        let ids: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 17) % vocab) as u32).collect();
        let (mut on_cpu, mut on_gpu) = (0.0, 0.0);
        // The first pass compiles, or pays for the file's pages.
        for _ in 0..2 {
            on_cpu = 0.0;
            let mut pass = backbone.begin(&ids, None)?;
            loop {
                let start = now();
                let done = backbone.step(&mut pass)?.is_some();
                on_cpu += now().saturating_sub(start).as_secs_f64() * 1e3;
                if done {
                    break;
                }
                options.pause().await;
            }
            let start = now();
            gpu.embed(&ids, None).await?;
            on_gpu = now().saturating_sub(start).as_secs_f64() * 1e3;
        }
        if on_gpu >= on_cpu {
            faster = None;
        } else if faster.is_none() {
            faster = Some(tokens);
        }
        told = format!("{tokens} tokens took {on_gpu:.1} ms on the GPU and {on_cpu:.1} ms on the CPU");
    }
    faster.ok_or_else(|| GpuError::Slower(told).into())
}
