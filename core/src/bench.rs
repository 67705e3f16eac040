//! How fast a device reads and decides, and how fast it could at most.
//!
//! One runner for the command line, the browser and the phone, and one record of it ([`Record`], `docs/bench.md`). It
//! takes the time from the clock that is handed in, reads no file and asks the system nothing: what only the system knows
//! (memory, energy) comes through a [`Meter`], what only the caller knows through [`About`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use zen_edge_core::bench::{About, Bench, BenchError, NoMeter, Plan, Record, Subject};
//! use zen_edge_core::router::{Clock, Router};
//!
//! fn measure(router: Arc<Router>, clock: Arc<dyn Clock>) -> Result<Record, BenchError> {
//!     let mut bench = Bench::new(Subject::Router(router), Plan::default(), clock, Box::new(NoMeter))?;
//!     while !bench.work(Duration::from_millis(100))? {
//!         println!("{:.0} %", 100.0 * bench.progress().share);
//!     }
//!     Ok(bench.finish(About::default()))
//! }
//! ```

mod bound;
mod limits;
mod prompts;
mod record;
mod stats;
#[cfg(test)]
mod tests;

pub use bound::Facts;
pub use prompts::STRATA;
pub use record::{
    Again, Bound, Decisions, Device, Energy, Engine, Limiter, Limits, Load, MOST_BYTES, MemoryUse, Model,
    Phase, Read, Record, RecordError, SCHEMA, SCHEMA_1, Speed, Stratum, Sustained, Warning,
};
pub use stats::{Figures, Spread};

use crate::backbone::{Backbone, BackboneError, KvType, Pass};
use crate::generate::{self, GenerateError, GenerateOptions, Generation, Generator};
use crate::gguf::Gguf;
use crate::router::{Clock, Job, Request, Router};
use limits::Measuring;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The largest buffer that tells the bandwidth of the memory: several times the last-level cache of most processors.
pub const READ_BYTES: usize = 256 << 20;
/// Tokens of the passes of a sustained run.
const SUSTAINED_TOKENS: usize = 128;
/// Samples of a sustained run, where each is at least a second long.
const SUSTAINED_SAMPLES: f64 = 60.0;
/// Look-ups of a cached decision, whose time is divided: a browser's clock goes in steps of up to 100 µs, a look-up takes a
/// tenth of that.
const LOOK_UPS: u32 = 32;
/// The share of its first speed below which a sustained run is told to have been throttled.
const THROTTLED: f64 = 0.9;
/// The relative standard deviation above which repetitions are told to differ.
const NOISY: f64 = 0.15;

/// What is measured.
#[derive(Clone)]
pub enum Subject {
    /// A router: reading, whole decisions and, where the plan has it, generating.
    Router(Arc<Router>),
    /// A backbone without heads: reading and generating.
    Generator(Generator),
}

impl Subject {
    /// Its backbone.
    pub fn backbone(&self) -> &Backbone {
        match self {
            Self::Router(router) => router.backbone(),
            Self::Generator(generator) => generator.backbone(),
        }
    }

    const fn router(&self) -> Option<&Arc<Router>> {
        match self {
            Self::Router(router) => Some(router),
            Self::Generator(_) => None,
        }
    }

    fn generator(&self) -> Result<Generator, GenerateError> {
        match self {
            Self::Router(router) => router.generator(),
            Self::Generator(generator) => Ok(generator.clone()),
        }
    }
}

/// Which prompts the decisions are measured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// No decisions.
    None,
    /// So many of each stratum, made by the bench, each unlike the others.
    Made(usize),
    /// These; equal ones count once.
    Given(Vec<String>),
}

/// How it is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Tokens of the prompts whose prefill is measured.
    pub prefill: Vec<usize>,
    /// Tokens that are generated.
    pub decode: Vec<usize>,
    /// How keys and values are kept while tokens are generated.
    pub kv: KvType,
    /// How often each of them.
    pub repetitions: usize,
    /// Whole decisions; of a router alone.
    pub prompts: Prompts,
    /// Whether the machine's limits are measured, and so every speed has its bound.
    pub limits: bool,
    /// Bytes of the buffer that tells the bandwidth of the memory; [`READ_BYTES`], less where memory is scarce.
    pub read_bytes: usize,
    /// How long prefill is repeated to see whether the device throttles.
    pub sustained: Option<Duration>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            prefill: vec![16, 64, 128, 512],
            decode: vec![64],
            kv: KvType::F32,
            repetitions: 5,
            prompts: Prompts::Made(20),
            limits: true,
            read_bytes: READ_BYTES,
            sustained: None,
        }
    }
}

/// What the system tells of the process and the machine. Each is absent where it does not.
pub trait Meter {
    /// A counter of energy, in joules, and what it counts: `rapl` or `battery`.
    fn joules(&self) -> Option<(&'static str, f64)> {
        None
    }

    /// The process's memory now.
    fn memory(&self) -> Option<MemoryUse> {
        None
    }
}

/// A system that tells nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMeter;

impl Meter for NoMeter {}

/// What the caller knows of a record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct About {
    /// When, in UTC, as ISO 8601.
    pub date: String,
    /// The version of Zen Edge.
    pub version: String,
    /// `native`, or the browser's build.
    pub build: String,
    /// The device.
    pub device: Device,
    /// The name of the model's file.
    pub model: Option<String>,
    /// Its SHA-256.
    pub sha256: Option<String>,
    /// How long loading took.
    pub load: Option<Load>,
    /// What the caller noticed.
    pub warnings: Vec<Warning>,
}

/// Why a bench does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The backbone says so.
    #[error(transparent)]
    Backbone(#[from] BackboneError),
    /// The model does not generate.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A size of the plan cannot be.
    #[error("{tokens} tokens cannot be measured: give 1 to {most}")]
    Tokens {
        /// What the plan asks for.
        tokens: usize,
        /// The most that the model reads.
        most: usize,
    },
    /// There is nothing to repeat.
    #[error("0 repetitions measure nothing: give at least 1")]
    Repetitions,
    /// The clock stands still.
    #[error("the clock does not advance: a bench needs one that does")]
    Clock,
}

/// How far a bench is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// From 0 to 1.
    pub share: f64,
    /// What is at work: `warm-up`, `pp512`, `tg64`, `decisions`, `limits`, `sustained`; `done` at the end.
    pub stage: String,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Task {
    WarmUp,
    Prefill(usize),
    Decode(usize),
    Cold(usize),
    Cached(usize),
    /// The process's memory, before the limits' buffers are part of it.
    Memory,
    Limits,
    Sustained(Duration),
}

impl Task {
    fn stage(self) -> String {
        match self {
            Self::WarmUp => "warm-up".to_owned(),
            Self::Prefill(tokens) => format!("pp{tokens}"),
            Self::Decode(tokens) => format!("tg{tokens}"),
            Self::Cold(_) | Self::Cached(_) => "decisions".to_owned(),
            Self::Memory | Self::Limits => "limits".to_owned(),
            Self::Sustained(_) => "sustained".to_owned(),
        }
    }
}

/// A task that is at work.
struct Running {
    task: Task,
    work: Work,
    spent: Duration,
    joules: f64,
}

enum Work {
    Pass(Vec<u32>, Option<Box<Pass>>),
    /// A decision, and how often it is still made behind this one.
    Decision(Option<Box<Job>>, u32),
    /// A generation and how many tokens have come.
    Decode(Box<Generation>, usize),
    Limits(Box<Measuring>),
    Nothing,
}

/// One repetition.
struct Sample {
    phase: Phase,
    tokens: usize,
    seconds: f64,
    joules: f64,
}

/// A prompt's decisions.
#[derive(Clone, Copy, Default)]
struct Decided {
    tokens: usize,
    cold: Option<f64>,
    cached: Option<f64>,
}

/// The samples of a sustained run.
#[derive(Default)]
struct Series {
    interval: f64,
    spent: f64,
    /// Tokens and seconds of the sample that is not full yet.
    open: (f64, f64),
    samples: Vec<f64>,
}

/// A bench on its way: [`Bench::work`] until it is done, then [`Bench::finish`].
pub struct Bench {
    subject: Subject,
    facts: Facts,
    plan: Plan,
    clock: Arc<dyn Clock>,
    meter: Box<dyn Meter>,
    prompts: Vec<String>,
    queue: VecDeque<Task>,
    tasks: usize,
    running: Option<Running>,
    generator: Option<Generator>,
    samples: Vec<Sample>,
    decided: Vec<Decided>,
    memory: Option<MemoryUse>,
    limits: Option<Limits>,
    measured_twice: bool,
    series: Series,
    energy: Option<Energy>,
    off_gpu: bool,
}

impl Bench {
    /// Plans a bench. A router's caches are cleared in between: what it remembers of earlier prompts is forgotten.
    ///
    /// # Errors
    /// A plan that cannot be, a file that cannot be read.
    pub fn new(
        subject: Subject,
        plan: Plan,
        clock: Arc<dyn Clock>,
        meter: Box<dyn Meter>,
    ) -> Result<Self, BenchError> {
        let backbone = subject.backbone();
        let gguf = Gguf::open(backbone.source().clone()).map_err(BackboneError::from)?;
        let facts = Facts::read(&gguf)?;
        let most = backbone.shape().context;
        for tokens in plan.prefill.iter().chain(&plan.decode) {
            if *tokens == 0 || *tokens > most {
                return Err(BenchError::Tokens { tokens: *tokens, most });
            }
        }
        if plan.repetitions == 0 {
            return Err(BenchError::Repetitions);
        }
        let prompts = match (&plan.prompts, subject.router()) {
            (Prompts::None, _) | (_, None) => Vec::new(),
            (Prompts::Made(each), Some(router)) => prompts::made(router, *each),
            (Prompts::Given(given), Some(_)) => {
                let mut seen = std::collections::HashSet::new();
                given.iter().filter(|text| !text.trim().is_empty() && seen.insert(*text)).cloned().collect()
            }
        };
        let generator = if plan.decode.is_empty() { None } else { Some(subject.generator()?) };
        let mut queue = VecDeque::from([Task::WarmUp]);
        for tokens in &plan.prefill {
            queue.extend((0..plan.repetitions).map(|_| Task::Prefill(*tokens)));
        }
        for tokens in &plan.decode {
            queue.extend((0..plan.repetitions).map(|_| Task::Decode(*tokens)));
        }
        queue.extend((0..prompts.len()).flat_map(|at| [Task::Cold(at), Task::Cached(at)]));
        queue.push_back(Task::Memory);
        if plan.limits {
            queue.push_back(Task::Limits);
        }
        if let Some(seconds) = plan.sustained {
            queue.push_back(Task::Sustained(seconds));
        }
        let interval = plan.sustained.map_or(1.0, |time| (time.as_secs_f64() / SUSTAINED_SAMPLES).max(1.0));
        Ok(Self {
            tasks: queue.len(),
            decided: vec![Decided::default(); prompts.len()],
            series: Series { interval, ..Series::default() },
            subject,
            facts,
            plan,
            clock,
            meter,
            prompts,
            queue,
            running: None,
            generator,
            samples: Vec::new(),
            memory: None,
            limits: None,
            measured_twice: false,
            energy: None,
            off_gpu: false,
        })
    }

    /// Whether decisions that begin from now on keep off the GPU.
    pub fn keep_off_gpu(&mut self, off: bool) {
        self.off_gpu = off;
    }

    /// The backbone, as its file tells.
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let running = self.running.as_ref().map(|running| running.task);
        let left = self.queue.len() + usize::from(running.is_some());
        let mut done = self.tasks.saturating_sub(left) as f64;
        if let Some(Task::Sustained(time)) = running {
            done += (self.series.spent / time.as_secs_f64()).min(1.0);
        }
        let stage =
            running.or_else(|| self.queue.front().copied()).map_or_else(|| "done".to_owned(), Task::stage);
        Progress { share: done / self.tasks.max(1) as f64, stage }
    }

    /// Works for about `slice`, at least a step (a part of a layer of a chunk, a generated token), at most to the end of a
    /// repetition; whether the bench is done. Between two calls the clock does not count.
    ///
    /// # Errors
    /// What the backbone says; a clock that stands still.
    pub fn work(&mut self, slice: Duration) -> Result<bool, BenchError> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => match self.queue.pop_front() {
                Some(task) => self.begin(task)?,
                None => return Ok(true),
            },
        };
        let joules = self.meter.joules();
        let begun = self.clock.now();
        let (done, took) = loop {
            let done = self.step(&mut running)?;
            let took = self.clock.now().saturating_sub(begun);
            if done || took >= slice {
                break (done, took);
            }
        };
        running.spent += took;
        if let (Some((source, before)), Some((_, after))) = (joules, self.meter.joules()) {
            running.joules += (after - before).max(0.0);
            if matches!(running.task, Task::Prefill(_) | Task::Decode(_) | Task::Sustained(_)) {
                let energy = self.energy.get_or_insert_with(|| Energy {
                    source: source.to_owned(),
                    joules: 0.0,
                    seconds: 0.0,
                });
                energy.joules += (after - before).max(0.0);
                energy.seconds += took.as_secs_f64();
            }
        }
        if done {
            self.complete(running)?;
        } else {
            self.running = Some(running);
        }
        Ok(self.running.is_none() && self.queue.is_empty())
    }

    fn begin(&self, task: Task) -> Result<Running, BenchError> {
        let work = match task {
            Task::WarmUp => Work::Pass(self.ids(SUSTAINED_TOKENS.min(16)), None),
            Task::Prefill(tokens) => Work::Pass(self.ids(tokens), None),
            Task::Sustained(_) => Work::Pass(self.ids(SUSTAINED_TOKENS), None),
            Task::Decode(tokens) => match &self.generator {
                Some(generator) => {
                    // One token begins it, so that a step reads the weights, the LM head and a short context: as
                    // llama-bench does.
                    let options = GenerateOptions {
                        max_tokens: tokens,
                        kv: self.plan.kv,
                        ignore_end: true,
                        ..GenerateOptions::default()
                    };
                    Work::Decode(Box::new(generator.begin_ids(self.ids(1), &options)?), 0)
                }
                None => Work::Nothing,
            },
            Task::Cold(_) => {
                if let Some(router) = self.subject.router() {
                    router.clear_cache();
                }
                Work::Decision(None, 0)
            }
            Task::Cached(_) => Work::Decision(None, LOOK_UPS - 1),
            Task::Memory => Work::Nothing,
            Task::Limits => {
                let backbone = self.subject.backbone();
                let whole = |bytes: u64| {
                    usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1 << 16, self.plan.read_bytes)
                };
                let mut sizes = vec![whole(self.facts.model.weight_bytes), self.plan.read_bytes];
                if self.generator.is_some() {
                    sizes.push(whole(self.facts.step_bytes()));
                }
                sizes.sort_unstable();
                sizes.dedup();
                Work::Limits(Box::new(Measuring::new(backbone.isa(), backbone.pool(), &sizes)))
            }
        };
        Ok(Running { task, work, spent: Duration::ZERO, joules: 0.0 })
    }

    /// Ids of ordinary tokens, the same on every device.
    fn ids(&self, tokens: usize) -> Vec<u32> {
        let vocab = self.subject.backbone().shape().vocab;
        (0..tokens.min(self.subject.backbone().shape().context)).map(|i| (i * 7919 % vocab) as u32).collect()
    }

    /// Makes a step; whether the repetition is done.
    fn step(&mut self, running: &mut Running) -> Result<bool, BenchError> {
        let backbone = self.subject.backbone();
        match &mut running.work {
            Work::Pass(ids, pass) => {
                let pass = match pass {
                    Some(pass) => pass,
                    None => pass.insert(Box::new(backbone.begin(ids, None)?)),
                };
                Ok(backbone.step(pass)?.is_some())
            }
            Work::Decision(job, more) => {
                let (Task::Cold(at) | Task::Cached(at)) = running.task else { return Ok(true) };
                let Some(router) = self.subject.router() else { return Ok(true) };
                let request = Request { cpu_only: self.off_gpu, ..Request::default() };
                let job = job.get_or_insert_with(|| Box::new(router.begin(&self.prompts[at], &request)));
                if !job.step() {
                    return Ok(false);
                }
                let left = *more;
                let Work::Decision(Some(job), _) = std::mem::replace(&mut running.work, Work::Nothing) else {
                    return Ok(true);
                };
                let outcome = job.outcome()?;
                self.decided[at].tokens = outcome.reading.tokens;
                // A router that keeps no vectors reads the prompt anew: that is no cached decision.
                if matches!(running.task, Task::Cached(_)) && !outcome.reading.cached {
                    running.task = Task::Memory;
                    return Ok(true);
                }
                running.work = Work::Decision(None, left.saturating_sub(1));
                Ok(left == 0)
            }
            Work::Decode(generation, come) => match generation.step()? {
                generate::Progress::Reading => Ok(false),
                generate::Progress::Piece(_) => {
                    *come += 1;
                    Ok(matches!(running.task, Task::Decode(tokens) if *come == tokens))
                }
                generate::Progress::Ended => Ok(true),
            },
            Work::Limits(measuring) => {
                let limits = measuring.step(&*self.clock, backbone.pool())?;
                let Some(limits) = limits else { return Ok(false) };
                self.limits = Some(match self.limits.take() {
                    Some(before) => limits::better(before, &limits),
                    None => limits,
                });
                Ok(true)
            }
            Work::Nothing => Ok(true),
        }
    }

    fn complete(&mut self, running: Running) -> Result<(), BenchError> {
        let seconds = running.spent.as_secs_f64();
        let joules = running.joules;
        match running.task {
            Task::WarmUp => {}
            Task::Prefill(tokens) => {
                self.samples.push(Sample { phase: Phase::Prefill, tokens, seconds, joules });
            }
            Task::Decode(tokens) => {
                // A context that was full before ends a generation early: that is no repetition of this many tokens.
                if matches!(running.work, Work::Decode(_, come) if come == tokens) {
                    self.samples.push(Sample { phase: Phase::Decode, tokens, seconds, joules });
                }
            }
            Task::Cold(at) => self.decided[at].cold = Some(seconds * 1e3),
            Task::Cached(at) => self.decided[at].cached = Some(seconds * 1e3 / f64::from(LOOK_UPS)),
            Task::Memory => self.memory = self.memory.or_else(|| self.meter.memory()),
            Task::Limits => {
                // A figure above its bound has a cause. The first that is looked for: something else ran while the limits
                // were measured.
                if !self.measured_twice && self.rows().iter().any(above) {
                    self.measured_twice = true;
                    self.tasks += 1;
                    self.queue.push_front(Task::Limits);
                }
            }
            Task::Sustained(time) => {
                let Work::Pass(ids, _) = &running.work else { return Ok(()) };
                if seconds <= 0.0 {
                    return Err(BenchError::Clock);
                }
                self.series.add(ids.len() as f64, seconds);
                if self.series.spent < time.as_secs_f64() {
                    self.running = Some(self.begin(running.task)?);
                }
            }
        }
        Ok(())
    }

    /// The rows of the speeds, each with its bound.
    fn rows(&self) -> Vec<Speed> {
        let backbone = self.subject.backbone();
        let mut rows: Vec<Speed> = Vec::new();
        for (phase, name, sizes) in
            [(Phase::Prefill, "pp", &self.plan.prefill), (Phase::Decode, "tg", &self.plan.decode)]
        {
            for tokens in sizes {
                let test = format!("{name}{tokens}");
                if rows.iter().any(|row| row.test == test) {
                    continue;
                }
                let of = |sample: &&Sample| {
                    sample.phase == phase && sample.tokens == *tokens && sample.seconds > 0.0
                };
                let samples: Vec<&Sample> = self.samples.iter().filter(of).collect();
                let speeds: Vec<f64> = samples.iter().map(|s| s.tokens as f64 / s.seconds).collect();
                let Some(figures) = Figures::of(&speeds) else { continue };
                let joules: f64 = samples.iter().map(|sample| sample.joules).sum();
                let read: usize = samples.iter().map(|sample| sample.tokens).sum();
                let bound = self.limits.as_ref().and_then(|limits| {
                    self.facts.bound(limits, phase, *tokens, self.plan.kv, figures.median)
                });
                rows.push(Speed {
                    test,
                    phase,
                    tokens: *tokens,
                    batch_size: 1,
                    isa: backbone.isa().name().to_owned(),
                    threads: backbone.threads(),
                    kv: (phase == Phase::Decode).then(|| self.plan.kv.name().to_owned()),
                    repetitions: speeds.len(),
                    tokens_per_second: figures,
                    bound,
                    joules_per_token: (joules > 0.0).then(|| joules / read as f64),
                });
            }
        }
        rows
    }

    fn decisions(&self) -> Option<Decisions> {
        let measured: Vec<&Decided> = self.decided.iter().filter(|one| one.cold.is_some()).collect();
        let cold = Spread::of(&measured.iter().filter_map(|one| one.cold).collect::<Vec<_>>())?;
        let cached = Spread::of(&measured.iter().filter_map(|one| one.cached).collect::<Vec<_>>());
        let mut strata = Vec::new();
        for (at, (name, _, _)) in STRATA.into_iter().enumerate() {
            let here: Vec<&&Decided> =
                measured.iter().filter(|one| prompts::stratum(one.tokens) == at).collect();
            let times: Vec<f64> = here.iter().filter_map(|one| one.cold).collect();
            let Some(cold) = Spread::of(&times) else { continue };
            let tokens: usize = here.iter().map(|one| one.tokens).sum();
            let seconds = times.iter().sum::<f64>() / 1e3;
            strata.push(Stratum {
                tokens: name.to_owned(),
                prompts: here.len(),
                mean_tokens: tokens as f64 / here.len() as f64,
                cold,
                cached: Spread::of(&here.iter().filter_map(|one| one.cached).collect::<Vec<_>>()),
                tokens_per_second: if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 },
            });
        }
        let prompts = if matches!(self.plan.prompts, Prompts::Given(_)) { "file" } else { "made" };
        Some(Decisions {
            prompts: prompts.to_owned(),
            count: measured.len(),
            cold: Some(cold),
            cached,
            strata,
        })
    }

    /// The record of what was measured.
    #[must_use]
    pub fn finish(self, about: About) -> Record {
        let backbone = self.subject.backbone();
        let speed = self.rows();
        let sustained = self.series.finish();
        let mut warnings = about.warnings;
        warnings.extend(speed.iter().filter(|row| above(row)).map(above_warning));
        warnings.extend(noisy_warning(&speed));
        if let Some(Sustained { first, last, .. }) = sustained
            && last < THROTTLED * first
        {
            warnings.push(Warning::new(
                "throttled",
                format!(
                    "the speed fell from {first:.1} to {last:.1} tokens/s: the device throttles, or something else began \
                     to run"
                ),
            ));
        }
        let memory = self.memory;
        Record {
            schema: SCHEMA.to_owned(),
            date: about.date,
            engine: Engine {
                version: about.version,
                build: about.build,
                isa: backbone.isa().name().to_owned(),
                threads: backbone.threads(),
            },
            device: about.device,
            model: Model { name: about.model, sha256: about.sha256, ..self.facts.model.clone() },
            batch_size: 1,
            load: about.load,
            memory,
            energy: self.energy.clone().filter(|energy| energy.joules > 0.0),
            decisions: self.decisions(),
            limits: self.limits.into_iter().collect(),
            speed,
            sustained,
            warnings,
        }
    }
}

/// Whether a row is faster than its bound: that cannot be.
fn above(row: &Speed) -> bool {
    row.bound.is_some_and(|bound| bound.share > 1.0)
}

fn above_warning(row: &Speed) -> Warning {
    let share = row.bound.map_or(0.0, |bound| 100.0 * bound.share);
    let cause = match row.bound.map(|bound| bound.limiter) {
        Some(Limiter::Memory) => {
            "the weights came from a cache that the read test did not find, or the clock is wrong"
        }
        _ => {
            "the processor ran slower while its peak was measured (heat, another program), or the clock is wrong"
        }
    };
    Warning::new(
        "above_bound",
        format!(
            "{} on {} stands at {share:.0} % of its bound, which cannot be, and the limits were measured twice: {cause}. Do not \
             quote it",
            row.test,
            ran_on(row)
        ),
    )
}

/// One warning for all rows whose repetitions differ: on a busy machine they are many.
fn noisy_warning(rows: &[Speed]) -> Option<Warning> {
    let deviation = |row: &Speed| row.tokens_per_second.sd / row.tokens_per_second.mean;
    let noisy: Vec<&Speed> =
        rows.iter().filter(|row| row.repetitions > 2 && deviation(row) > NOISY).collect();
    let most = noisy.iter().map(|row| deviation(row)).fold(0.0, f64::max);
    let first = noisy.first()?;
    let tests: Vec<&str> = noisy.iter().map(|row| row.test.as_str()).collect();
    Some(Warning::new(
        "noisy",
        format!(
            "{}: repetitions of {} differ by a standard deviation of up to {:.0} %; something else ran",
            ran_on(first),
            tests.join(", "),
            100.0 * most
        ),
    ))
}

/// The kernels and threads of a row, in words.
fn ran_on(row: &Speed) -> String {
    format!("{}, {} thread{}", row.isa, row.threads, if row.threads == 1 { "" } else { "s" })
}

impl Series {
    /// Adds a pass. A sample is closed when its interval is full.
    fn add(&mut self, tokens: f64, seconds: f64) {
        self.spent += seconds;
        self.open = (self.open.0 + tokens, self.open.1 + seconds);
        if self.open.1 >= self.interval {
            self.samples.push(self.open.0 / self.open.1);
            self.open = (0.0, 0.0);
        }
    }

    fn finish(&self) -> Option<Sustained> {
        let mut samples = self.samples.clone();
        // What is left of a run shorter than an interval is a sample of its own.
        if samples.is_empty() && self.open.1 > 0.0 {
            samples.push(self.open.0 / self.open.1);
        }
        let tenth = samples.len().div_ceil(10);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        (!samples.is_empty()).then(|| Sustained {
            test: format!("pp{SUSTAINED_TOKENS}"),
            seconds: self.spent,
            interval_seconds: self.interval,
            first: mean(&samples[..tenth]),
            last: mean(&samples[samples.len() - tenth..]),
            tokens_per_second: samples,
        })
    }
}
