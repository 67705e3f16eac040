//! Who reads a prompt: the CPU, or a GPU that proved itself and where it is faster.

use super::types::{BackendInfo, Device, RouterOptions};
use super::{Clock, lock};
use crate::backbone::{Backbone, BackboneError, Interrupt};
use std::sync::{Arc, Mutex};

#[cfg(all(feature = "gpu", not(target_family = "wasm")))]
use crate::backbone::gpu::{GpuBackbone, GpuFailure, GpuOptions, GpuRuntime, block_on};

/// Prompt lengths at which CPU and GPU are set side by side, in tokens.
#[cfg(all(feature = "gpu", not(target_family = "wasm")))]
const LENGTHS: [usize; 3] = [16, 64, 256];

/// A GPU that reads prompts, or why there is none.
pub struct GpuReader {
    #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
    runtime: Option<GpuRuntime>,
    /// The shortest prompt that it reads.
    #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
    from_tokens: usize,
    fallback: Mutex<Option<String>>,
}

impl GpuReader {
    /// Opens what the options ask for. Whatever goes wrong is a reason, not an error: the CPU answers.
    pub fn open(backbone: &Arc<Backbone>, options: &RouterOptions, clock: &Arc<dyn Clock>) -> Self {
        let none = |why: Option<String>| Self {
            #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
            runtime: None,
            #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
            from_tokens: 0,
            fallback: Mutex::new(why),
        };
        if options.device == Device::Cpu {
            return none(None);
        }
        #[cfg(not(all(feature = "gpu", not(target_family = "wasm"))))]
        {
            let _ = (backbone, clock);
            none(Some("this build has no GPU: it was built without the feature `gpu`".to_owned()))
        }
        #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
        {
            let time = clock.clone();
            let gpu = GpuOptions {
                software: options.device == Device::Gpu,
                now: Some(options.gpu.now.clone().unwrap_or_else(|| Arc::new(move || time.now()))),
                ..options.gpu.clone()
            };
            let runtime = match block_on(GpuRuntime::open(backbone.clone(), gpu)) {
                Ok(runtime) => runtime,
                Err(error) => return none(Some(error.to_string())),
            };
            let from_tokens = match (options.device, runtime.ready()) {
                (Device::Auto, Some(ready)) => match crossover(backbone, &ready, clock) {
                    Ok(tokens) => tokens,
                    Err(why) => return none(Some(why)),
                },
                _ => 0,
            };
            Self { runtime: Some(runtime), from_tokens, fallback: Mutex::new(None) }
        }
    }

    /// Why the CPU runs where a GPU was asked for.
    pub fn fallback(&self) -> Option<String> {
        lock(&self.fallback).clone()
    }

    /// The backbone on the GPU, unless it was given up.
    #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
    pub fn ready(&self) -> Option<Arc<GpuBackbone>> {
        self.runtime.as_ref()?.ready()
    }

    /// The backbone on the GPU: none yet in a browser.
    #[cfg(all(feature = "gpu", target_family = "wasm"))]
    pub fn ready(&self) -> Option<Arc<crate::backbone::gpu::GpuBackbone>> {
        None
    }

    /// Whether a prompt of so many tokens is read by the GPU.
    pub fn takes(&self, tokens: usize) -> bool {
        #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
        return tokens >= self.from_tokens
            && self.runtime.as_ref().is_some_and(|runtime| runtime.failed().is_none());
        #[cfg(not(all(feature = "gpu", not(target_family = "wasm"))))]
        {
            let _ = tokens;
            false
        }
    }

    /// The vector of `ids`; `None` where the CPU is to give it, and the reason is kept where the GPU should have.
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
            let runtime = self.runtime.as_ref()?;
            match block_on(runtime.embed(ids, interrupt)) {
                Ok(vector) => {
                    *lock(&self.fallback) = None;
                    return Some(Ok(vector));
                }
                // The CPU has the last word on what is wrong with a prompt or a file.
                Err(GpuFailure::Backbone(BackboneError::Cancelled)) => {
                    return Some(Err(BackboneError::Cancelled));
                }
                Err(error) => *lock(&self.fallback) = Some(error.to_string()),
            }
        }
        #[cfg(not(all(feature = "gpu", not(target_family = "wasm"))))]
        let _ = interrupt;
        None
    }

    /// Writes the GPU's name under what it read.
    pub fn sign(&self, backend: &mut BackendInfo) {
        #[cfg(all(feature = "gpu", not(target_family = "wasm")))]
        if let Some(runtime) = &self.runtime
            && let Some(ready) = runtime.ready()
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
                rebuilt: runtime.rebuilt(),
            }));
        }
        #[cfg(not(all(feature = "gpu", not(target_family = "wasm"))))]
        let _ = backend;
    }
}

/// The shortest of [`LENGTHS`] from which on the GPU was faster than the CPU, measured.
#[cfg(all(feature = "gpu", not(target_family = "wasm")))]
fn crossover(backbone: &Backbone, gpu: &GpuBackbone, clock: &Arc<dyn Clock>) -> Result<usize, String> {
    let vocab = backbone.shape().vocab;
    let mut faster = None;
    let mut told = String::new();
    for tokens in LENGTHS {
        let ids: Vec<u32> = (0..tokens).map(|i| ((i * 7919 + 17) % vocab) as u32).collect();
        // The first pass compiles, or pays for the file's pages.
        let time = |pass: &mut dyn FnMut() -> Result<(), String>| -> Result<f64, String> {
            pass()?;
            let start = clock.now();
            pass()?;
            Ok(clock.now().saturating_sub(start).as_secs_f64() * 1e3)
        };
        let on_cpu = time(&mut || backbone.embed(&ids).map(|_| ()).map_err(|e| e.to_string()))?;
        let on_gpu = time(&mut || block_on(gpu.embed(&ids, None)).map(|_| ()).map_err(|e| e.to_string()))?;
        if on_gpu >= on_cpu {
            faster = None;
        } else if faster.is_none() {
            faster = Some(tokens);
        }
        told = format!("{tokens} tokens took {on_gpu:.1} ms on the GPU and {on_cpu:.1} ms on the CPU");
    }
    faster.ok_or_else(|| format!("the CPU is faster: {told}"))
}
