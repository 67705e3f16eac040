//! Zen Edge inside apps: what the Swift package, the Kotlin library and the Python package call, and nothing but conversion.
//!
//! The words are those of `zen-edge-core`; what an app's life asks for (memory, heat, background) is
//! [`zen_edge_core::lifecycle`]. A call that takes long is a future: the work runs on the engine's one thread and on its
//! pool, one prompt after the other, and ends early when the future is dropped.

#![allow(
    unsafe_code,
    reason = "uniffi's macros write it; by hand only where a descriptor is borrowed, with its reason"
)]

mod bench;
mod cores;
mod engine;
mod error;
mod generation;
mod listener;
mod pack;
mod types;
mod worker;

pub use bench::BenchOptions;
pub use engine::{CancelToken, Engine, Typing, engine_version, footprint};
pub use error::ZenEdgeError;
pub use generation::{Choice, ChooseOptions, GenerateOptions, Generated, Generation, KvPrecision};
pub use listener::{ListenerError, LoadStage, LogLevel, Progress, RouterListener};
pub use pack::{FileSource, PackSource};
pub use types::{
    About, Adapter, Backend, BackgroundPolicy, Candidate, Embedding, Footprint, Held, LoadOptions, Outcome,
    RouteKind, RouteOptions, Scored, SelfTestReport, Stats, Timings, TrimLevel, WhyNot,
};

uniffi::setup_scaffolding!("zen_edge");
