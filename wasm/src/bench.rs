//! The bench on its way, in slices: JSON in, JSON out.

use crate::error::{Code, backbone, fail};
use crate::{Performance, json, text};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use wasm_bindgen::prelude::*;
use zen_edge_core::backbone::KvType;
use zen_edge_core::bench::{About, Bench, BenchError, MemoryUse, Meter, Plan, Prompts, Subject};
use zen_edge_core::router::Router;

/// What is measured, as JSON; what is left out is the plan's own.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Ask {
    prefill: Vec<usize>,
    decode: Vec<usize>,
    kv: String,
    repetitions: usize,
    each: usize,
    prompts: Option<Vec<String>>,
    sustained_seconds: Option<f64>,
    read_bytes: usize,
}

impl Default for Ask {
    fn default() -> Self {
        let Plan { prefill, .. } = Plan::default();
        Self {
            prefill,
            decode: vec![32],
            kv: KvType::default().name().to_owned(),
            repetitions: 3,
            each: 20,
            prompts: None,
            sustained_seconds: None,
            // A tab's memory never shrinks again: enough to leave the caches of most devices.
            read_bytes: 64 << 20,
        }
    }
}

impl Ask {
    fn plan(self) -> Result<Plan, JsValue> {
        let kv = KvType::from_name(&self.kv)
            .ok_or_else(|| fail(Code::BadRequest, &format!("kv is f32, f16 or int8, not {:?}", self.kv)))?;
        let seconds = self.sustained_seconds.filter(|seconds| *seconds > 0.0);
        Ok(Plan {
            prefill: self.prefill,
            decode: self.decode,
            kv,
            repetitions: self.repetitions,
            prompts: match (self.prompts, self.each) {
                (Some(given), _) => Prompts::Given(given),
                (None, 0) => Prompts::None,
                (None, each) => Prompts::Made(each.min(1000)),
            },
            limits: true,
            read_bytes: self.read_bytes.clamp(1 << 20, 1 << 30),
            sustained: seconds.map(|seconds| Duration::from_secs_f64(seconds.min(86_400.0))),
        })
    }
}

/// The module's memory: it never shrinks, so that it is also the most that it has been.
struct Module;

impl Meter for Module {
    fn memory(&self) -> Option<MemoryUse> {
        let resident_bytes = core::arch::wasm32::memory_size(0) as u64 * 65_536;
        Some(MemoryUse { resident_bytes, ..MemoryUse::default() })
    }
}

/// A bench on its way. Freeing it ends it.
#[wasm_bindgen]
pub struct Benchmark(Bench);

impl Benchmark {
    pub fn new(router: Arc<Router>, ask: &str) -> Result<Self, JsValue> {
        let plan = json::<Ask>(ask)?.plan()?;
        let bench = Bench::new(Subject::Router(router), plan, Arc::new(Performance), Box::new(Module));
        Ok(Self(bench.map_err(|error| told(&error))?))
    }
}

#[wasm_bindgen]
impl Benchmark {
    /// Works for about `ms` milliseconds, at least one step; whether it is done.
    pub fn work(&mut self, ms: f64) -> Result<bool, JsValue> {
        self.0.work(Duration::from_secs_f64(ms.clamp(0.0, 1e6) / 1e3)).map_err(|error| told(&error))
    }

    /// How far it is, as JSON.
    pub fn progress(&self) -> String {
        text(&self.0.progress())
    }

    /// The record, as JSON, of a device and a model that `about` describes.
    pub fn finish(self, about: &str) -> Result<String, JsValue> {
        let about = About { version: env!("CARGO_PKG_VERSION").to_owned(), ..json(about)? };
        Ok(text(&self.0.finish(about)))
    }
}

fn told(error: &BenchError) -> JsValue {
    match error {
        BenchError::Backbone(error) => backbone(error),
        other => fail(Code::BadRequest, &other.to_string()),
    }
}
