//! What a bench leaves behind: one JSON document, the same from a laptop, a browser and a phone.
//!
//! `docs/bench.schema.json` describes it for other programs. Fields are only ever added within a version; a reader passes
//! over those that it does not know.

use super::stats::{Figures, Spread};
use serde::{Deserialize, Serialize};

/// The schema's name and version, as every record states it.
pub const SCHEMA: &str = "zen-edge.bench/2";
/// The one before, which the benchmark page of version 0.1 wrote.
pub const SCHEMA_1: &str = "zen-edge.bench/1";
/// More rows than any bench makes; a longer file is somebody's mistake.
const MOST_ROWS: usize = 4096;
/// Bytes of the largest record that is read.
pub const MOST_BYTES: usize = 1 << 22;

/// What one device measured with one backbone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// When, in UTC, as ISO 8601.
    pub date: String,
    /// What ran.
    pub engine: Engine,
    /// What it ran on.
    pub device: Device,
    /// What it ran.
    pub model: Model,
    /// Sequences that went through the backbone together, in every figure of the record: 1.
    pub batch_size: u32,
    /// How long loading took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// Memory of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Energy, where the system tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// What the machine can do at most, by instruction set and threads.
    #[serde(default)]
    pub limits: Vec<Limits>,
    /// Tokens a second of prefill and decode.
    #[serde(default)]
    pub speed: Vec<Speed>,
    /// Milliseconds from a prompt to its decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Decisions>,
    /// Speed over minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sustained: Option<Sustained>,
    /// What may have spoilt the figures.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// What ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// The version of Zen Edge.
    pub version: String,
    /// `native`, or the browser's build.
    pub build: String,
    /// The instruction set of the kernels, for what states none of its own.
    pub isa: String,
    /// Threads, likewise.
    pub threads: usize,
}

/// What it ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// What its owner calls it.
    pub name: String,
    /// The operating system, or what the browser tells of it.
    pub platform: String,
    /// The processor's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// The processor's architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The browser or the JavaScript runtime, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub browser: Option<String>,
    /// Logical cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u32>,
    /// Bytes of memory; a browser tells a rounded and capped figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Whether the page may share memory between threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_origin_isolated: Option<bool>,
    /// The GPU, where one ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
}

/// The backbone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The file's name, without its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `general.architecture`.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// Length of a hidden state.
    pub hidden_size: usize,
    /// The file's SHA-256, in small hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The file's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Multiply-adds of the layers' weights for one token.
    pub multiply_adds: u64,
    /// Of these, those with weights that are floats.
    #[serde(default)]
    pub float_multiply_adds: u64,
    /// Bytes of the layers' weights: what a prompt reads.
    pub weight_bytes: u64,
    /// Bytes of the LM head, which decoding reads beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_bytes: Option<u64>,
}

/// How long loading took. The first time pays for what the system has not cached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Milliseconds to a loaded router.
    pub ms: f64,
    /// Milliseconds more to the first decision, of a short prompt: where a file is mapped, its pages come now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_decision_ms: Option<f64>,
    /// Where the model came from: `program`, `file`, or a browser's `opfs`, `indexeddb`, `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Whether it was in the browser's storage already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<bool>,
    /// Whether the system was asked to forget the file's pages before, and took the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_cache_dropped: Option<bool>,
    /// Bytes that came from the disk until the first decision, as the system counts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// The same a second time, in the same process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
}

/// Loading a second time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Again {
    /// Milliseconds to a loaded router.
    pub ms: f64,
    /// Milliseconds more to the first decision.
    pub first_decision_ms: f64,
}

/// Memory of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Bytes resident after the passes and decisions, before the limits' buffers; in a browser the engine's memory.
    pub resident_bytes: u64,
    /// The most that was resident until then, loading twice included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Of the resident bytes, the process's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anonymous_bytes: Option<u64>,
    /// Of the resident bytes, clean pages of files, which the system may take back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
}

/// Energy of the measured passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// What told it: `rapl` (the processor's package) or `battery` (the whole device).
    pub source: String,
    /// Joules while tokens were measured, everything else on the machine counted too.
    pub joules: f64,
    /// Seconds that this took.
    pub seconds: f64,
}

/// What the machine can do at most with one instruction set and some threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The instruction set.
    pub isa: String,
    /// Threads.
    pub threads: usize,
    /// Bytes that are read in a second, from buffers of these sizes.
    pub read: Vec<Read>,
    /// int8 multiply-adds in a second.
    pub int8_multiply_adds_per_second: f64,
    /// f32 multiply-adds in a second, as a multiplication and an addition: the kernels do not fuse them.
    pub float_multiply_adds_per_second: f64,
}

impl Limits {
    /// The bandwidth for a pass that reads `bytes`: that of the buffer whose size is nearest.
    #[must_use]
    pub fn bandwidth(&self, bytes: u64) -> Option<f64> {
        let far = |read: &&Read| (read.bytes.max(1) as f64 / bytes.max(1) as f64).ln().abs();
        let nearest = self.read.iter().min_by(|a, b| far(a).total_cmp(&far(b)))?;
        Some(nearest.bytes_per_second)
    }
}

/// Reading a buffer from end to end, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Read {
    /// Size of the buffer. One that fits into a cache is read from there.
    pub bytes: u64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
}

/// What was done with the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// A prompt was read, up to the last token's hidden state: the LM head does not run.
    Prefill,
    /// Tokens were generated one after the other, the LM head with each.
    Decode,
}

/// Tokens a second of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// `pp512`: prefill of 512 tokens; `tg64`: 64 tokens generated.
    pub test: String,
    /// What was done.
    pub phase: Phase,
    /// Tokens of one repetition.
    pub tokens: usize,
    /// Sequences at once: 1.
    pub batch_size: u32,
    /// The instruction set.
    pub isa: String,
    /// Threads.
    pub threads: usize,
    /// How keys and values were kept, in decode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv: Option<String>,
    /// How often it was measured.
    pub repetitions: usize,
    /// Tokens a second over the repetitions.
    pub tokens_per_second: Figures,
    /// What a single stream can reach at most on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Joules for a token, where the system tells energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules_per_token: Option<f64>,
}

/// What keeps a pass from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limiter {
    /// The bytes that must be read.
    Memory,
    /// The multiply-adds that must be made.
    Compute,
}

/// What a single stream can reach at most, from the limits measured in the same run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Tokens a second: the smaller of the next two.
    pub tokens_per_second: f64,
    /// Tokens a second by the bytes alone.
    pub memory_tokens_per_second: f64,
    /// Tokens a second by the weights' multiply-adds alone.
    pub compute_tokens_per_second: f64,
    /// Which of the two binds.
    pub limiter: Limiter,
    /// Bytes that one repetition reads: weights (in decode for each token, with the LM head and the keys and values).
    pub bytes: f64,
    /// Multiply-adds of the weights in one repetition. Attention, norms, unpacking and the activations' quantisation are
    /// not counted: the true bound is lower.
    pub multiply_adds: f64,
    /// The median speed over the bound. More than 1 cannot be: there is a warning then.
    pub share: f64,
}

/// Milliseconds from a prompt to its decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decisions {
    /// Where the prompts came from: `made` by the bench, or a `file`.
    pub prompts: String,
    /// Prompts that were measured.
    pub count: usize,
    /// Each prompt unlike the others, nothing of it known; `None` where only strata are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<Spread>,
    /// The same prompt at once again: its vector is looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Spread>,
    /// By the prompts' length.
    pub strata: Vec<Stratum>,
}

/// Decisions on prompts of similar length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stratum {
    /// `1-32`, `33-128`, `129-512` or `513+` tokens.
    pub tokens: String,
    /// Prompts that were measured.
    pub prompts: usize,
    /// Tokens of a prompt, on average.
    pub mean_tokens: f64,
    /// Nothing of the prompt known.
    pub cold: Spread,
    /// The same prompt at once again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<Spread>,
    /// Prompt tokens over the time of the whole cold decisions.
    pub tokens_per_second: f64,
}

/// Speed over minutes, one prefill after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sustained {
    /// What was done again and again: `pp128`.
    pub test: String,
    /// Seconds in all.
    pub seconds: f64,
    /// Seconds of one of the samples.
    pub interval_seconds: f64,
    /// Tokens a second of each interval.
    pub tokens_per_second: Vec<f64>,
    /// Mean of the first tenth of the samples.
    pub first: f64,
    /// Mean of the last tenth.
    pub last: f64,
}

/// What may have spoilt the figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A short name that does not change: `above_bound`, `throttled`, `noisy`, …
    pub code: String,
    /// In words.
    pub message: String,
}

impl Warning {
    /// A warning.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into() }
    }
}

/// Why a text is no record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is larger than any record.
    #[error(
        "{bytes} bytes are more than any record has: give a file that `zen-edge bench` or the page wrote"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is no JSON, or lacks a field.
    #[error("no benchmark record: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a version that we do not know.
    #[error("the record is of schema {found:?}; this version reads {SCHEMA} and {SCHEMA_1}")]
    Schema {
        /// What it says.
        found: String,
    },
    /// A figure is none.
    #[error("{field} = {value} is no measurement: it must be a number of at least 0")]
    Figure {
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// It has more rows than any bench makes.
    #[error("the record has more than {MOST_ROWS} rows")]
    TooManyRows,
}

impl Record {
    /// Reads a record of this version or of the one before, which is brought into this form.
    ///
    /// # Errors
    /// [`RecordError`], by cause.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Named {
            schema: String,
        }
        if text.len() > MOST_BYTES {
            return Err(RecordError::TooLarge { bytes: text.len() });
        }
        let Named { schema } = serde_json::from_str(text)?;
        let record = match schema.as_str() {
            SCHEMA => serde_json::from_str::<Self>(text)?,
            SCHEMA_1 => serde_json::from_str::<one::Record>(text)?.into(),
            _ => return Err(RecordError::Schema { found: schema.chars().take(64).collect() }),
        };
        record.check()?;
        Ok(record)
    }

    /// Takes over what `other`, of the same model and device, measured with other threads or kernels.
    pub fn absorb(&mut self, other: Self) {
        self.limits.extend(other.limits);
        self.speed.extend(other.speed);
        self.decisions = self.decisions.take().or(other.decisions);
        self.sustained = self.sustained.take().or(other.sustained);
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        self.energy = match (self.energy.take(), other.energy) {
            (Some(a), Some(b)) => {
                Some(Energy { joules: a.joules + b.joules, seconds: a.seconds + b.seconds, ..a })
            }
            (a, b) => a.or(b),
        };
    }

    /// Every figure that is shown is one.
    fn check(&self) -> Result<(), RecordError> {
        fn figure(field: &'static str, value: f64) -> Result<(), RecordError> {
            // JSON has no infinity, but 1e999 is read as one.
            if value.is_finite() && value >= 0.0 {
                return Ok(());
            }
            Err(RecordError::Figure { field, value })
        }
        fn spread(field: &'static str, spread: &Spread) -> Result<(), RecordError> {
            let Spread { mean, p50, p90, p99, min, max } = *spread;
            [mean, p50, p90, p99, min, max].into_iter().try_for_each(|value| figure(field, value))
        }
        let strata = self.decisions.as_ref().map_or(0, |decisions| decisions.strata.len());
        let samples = self.sustained.as_ref().map_or(0, |sustained| sustained.tokens_per_second.len());
        if self.speed.len() + self.limits.len() + strata + samples + self.warnings.len() > MOST_ROWS {
            return Err(RecordError::TooManyRows);
        }
        if let Some(load) = &self.load {
            figure("load.ms", load.ms)?;
        }
        for row in &self.speed {
            let Figures { mean, sd, median, min, max } = row.tokens_per_second;
            for value in [mean, sd, median, min, max] {
                figure("speed.tokens_per_second", value)?;
            }
            if let Some(bound) = &row.bound {
                figure("speed.bound.tokens_per_second", bound.tokens_per_second)?;
                figure("speed.bound.share", bound.share)?;
            }
        }
        for limits in &self.limits {
            figure("limits.int8_multiply_adds_per_second", limits.int8_multiply_adds_per_second)?;
            figure("limits.float_multiply_adds_per_second", limits.float_multiply_adds_per_second)?;
            for read in &limits.read {
                figure("limits.read.bytes_per_second", read.bytes_per_second)?;
            }
        }
        if let Some(decisions) = &self.decisions {
            for one in decisions.cold.iter().chain(&decisions.cached) {
                spread("decisions", one)?;
            }
            for stratum in &decisions.strata {
                spread("decisions.strata.cold", &stratum.cold)?;
                if let Some(cached) = &stratum.cached {
                    spread("decisions.strata.cached", cached)?;
                }
                figure("decisions.strata.mean_tokens", stratum.mean_tokens)?;
                figure("decisions.strata.tokens_per_second", stratum.tokens_per_second)?;
            }
        }
        if let Some(sustained) = &self.sustained {
            for value in &sustained.tokens_per_second {
                figure("sustained.tokens_per_second", *value)?;
            }
            figure("sustained.first", sustained.first)?;
            figure("sustained.last", sustained.last)?;
        }
        Ok(())
    }
}

/// Version 1: whole decisions alone, in a browser.
mod one {
    use super::{Decisions, Engine, Load, MemoryUse, Model, SCHEMA, Spread, Stratum, Warning};
    use serde::Deserialize;

    #[derive(Deserialize)]
    pub(super) struct Record {
        date: String,
        engine: Engine,
        device: Device,
        model: Shape,
        load: Loading,
        cold: Vec<Row>,
        repeated: Spread,
        #[serde(default)]
        warnings: Vec<String>,
    }

    #[derive(Deserialize)]
    struct Device {
        name: String,
        platform: String,
        browser: String,
        cores: Option<u32>,
        memory_gb: Option<f64>,
        cross_origin_isolated: bool,
        adapter: Option<String>,
    }

    #[derive(Deserialize)]
    struct Shape {
        architecture: String,
        layers: usize,
        hidden_size: usize,
        multiply_adds: u64,
        weight_bytes: u64,
    }

    #[derive(Deserialize)]
    struct Loading {
        ms: f64,
        stored: bool,
        memory_bytes: u64,
    }

    #[derive(Deserialize)]
    struct Row {
        tokens: String,
        prompts: usize,
        mean_tokens: f64,
        ms: Spread,
        tokens_per_second: f64,
    }

    impl From<Record> for super::Record {
        fn from(old: Record) -> Self {
            let Record { date, engine, device, model, load, cold, repeated, warnings } = old;
            Self {
                schema: SCHEMA.to_owned(),
                date,
                engine,
                device: super::Device {
                    name: device.name,
                    platform: device.platform,
                    browser: Some(device.browser),
                    cores: device.cores,
                    memory_bytes: device.memory_gb.map(|gb| (gb * 1e9) as u64),
                    cross_origin_isolated: Some(device.cross_origin_isolated),
                    adapter: device.adapter,
                    ..super::Device::default()
                },
                model: Model {
                    architecture: model.architecture,
                    layers: model.layers,
                    hidden_size: model.hidden_size,
                    multiply_adds: model.multiply_adds,
                    weight_bytes: model.weight_bytes,
                    ..Model::default()
                },
                batch_size: 1,
                load: Some(Load { ms: load.ms, stored: Some(load.stored), ..Load::default() }),
                memory: Some(MemoryUse { resident_bytes: load.memory_bytes, ..MemoryUse::default() }),
                energy: None,
                limits: Vec::new(),
                speed: Vec::new(),
                decisions: Some(Decisions {
                    prompts: "made".to_owned(),
                    count: cold.iter().map(|row| row.prompts).sum(),
                    cold: None,
                    cached: Some(repeated),
                    strata: cold
                        .into_iter()
                        .map(|row| Stratum {
                            tokens: row.tokens,
                            prompts: row.prompts,
                            mean_tokens: row.mean_tokens,
                            cold: row.ms,
                            cached: None,
                            tokens_per_second: row.tokens_per_second,
                        })
                        .collect(),
                }),
                sustained: None,
                warnings: warnings.into_iter().map(|message| Warning::new("noted", message)).collect(),
            }
        }
    }
}
