//! How fast a device is, in the words of the command line and of the page.

use crate::engine::{CancelToken, Engine, cancel};
use crate::error::ZenEdgeError;
use std::ops::ControlFlow;
use std::sync::Arc;
use zen_edge_core::bench::{About, Device, Plan, Prompts};
use zen_edge_core::router::SystemClock;

/// What is measured, and on what. Sizes that are not said are those of the command line.
#[derive(Clone, Debug, Default, uniffi::Record)]
pub struct BenchOptions {
    /// When, in UTC, as ISO 8601.
    #[uniffi(default = "")]
    pub date: String,
    /// What the device is called, as `Pixel 9`.
    #[uniffi(default = "")]
    pub device: String,
    /// The operating system, with its version.
    #[uniffi(default = "")]
    pub platform: String,
    /// Bytes of the device's memory.
    #[uniffi(default = None)]
    pub memory_bytes: Option<u64>,
    /// Tokens of the prompts whose reading is measured.
    #[uniffi(default = None)]
    pub prefill: Option<Vec<u32>>,
    /// Tokens that are generated.
    #[uniffi(default = None)]
    pub decode: Option<Vec<u32>>,
    /// How often each of them.
    #[uniffi(default = None)]
    pub repetitions: Option<u32>,
    /// Whole decisions, for each length of prompt; 0 for none.
    #[uniffi(default = None)]
    pub decisions: Option<u32>,
    /// Bytes of the buffer that tells the bandwidth of the memory.
    #[uniffi(default = None)]
    pub read_bytes: Option<u64>,
}

impl BenchOptions {
    fn plan(&self) -> Plan {
        let standard = Plan::default();
        let sizes = |sizes: &Option<Vec<u32>>, standard| match sizes {
            Some(sizes) => sizes.iter().map(|size| *size as usize).collect(),
            None => standard,
        };
        Plan {
            prefill: sizes(&self.prefill, standard.prefill),
            decode: sizes(&self.decode, standard.decode),
            repetitions: self.repetitions.map_or(standard.repetitions, |n| n as usize),
            prompts: match self.decisions {
                None => standard.prompts,
                Some(0) => Prompts::None,
                Some(each) => Prompts::Made(each as usize),
            },
            read_bytes: self
                .read_bytes
                .map_or(standard.read_bytes, |n| usize::try_from(n).unwrap_or(usize::MAX)),
            kv: standard.kv,
            limits: standard.limits,
            sustained: standard.sustained,
        }
    }

    fn about(&self) -> About {
        About {
            date: self.date.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            build: "native".into(),
            device: Device {
                name: self.device.clone(),
                platform: self.platform.clone(),
                arch: Some(std::env::consts::ARCH.into()),
                cores: std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()),
                memory_bytes: self.memory_bytes,
                ..Device::default()
            },
            ..About::default()
        }
    }
}

#[uniffi::export]
impl Engine {
    /// Measures how fast this device reads, decides and generates: the JSON of `zen-edge bench --json`. It takes minutes with a
    /// large backbone; what earlier prompts left in the caches is forgotten by it.
    pub async fn bench(
        &self,
        options: BenchOptions,
        token: Option<Arc<CancelToken>>,
    ) -> Result<String, ZenEdgeError> {
        let managed = self.managed.clone();
        self.worker
            .run(cancel(token), move |cancel| {
                let clock = Arc::new(SystemClock::default());
                let record = managed.bench(options.plan(), clock, options.about(), &mut |_| {
                    if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
                serde_json::to_string(&record)
                    .map_err(|error| ZenEdgeError::Internal { detail: format!("the record: {error}") })
            })
            .await
    }
}
