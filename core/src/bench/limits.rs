//! The machine's limits, measured in small steps.

use super::BenchError;
use super::record::{Limits, Read};
use crate::router::Clock;
use std::time::Duration;
use zen_edge_kernels::isa::Isa;
use zen_edge_kernels::limits as work;
use zen_edge_kernels::pool::Pool;

/// A sample takes at least this long: a coarse clock and a late thread then count for little.
const LEAST: Duration = Duration::from_millis(4);
/// Samples of a limit, of which the best counts: what else the machine does can only make one smaller. Short ones fit between
/// two turns of another program; long ones give the system time to put two threads on two processors. So after every few
/// they become twice as long.
const SAMPLES: usize = 16;
const OF_A_LENGTH: usize = 4;
/// So many bytes, and so many multiply-adds, take time on any machine: where none has passed, the clock stands still.
const SURELY_BYTES: u64 = 1 << 32;
const SURELY_MULTIPLY_ADDS: u64 = 1 << 36;

/// A limit that is being measured.
enum Stage {
    Read(usize),
    Int8,
    Float,
}

/// Measures one limit after the other.
pub(super) struct Measuring {
    isa: Isa,
    threads: usize,
    /// What is still to be measured, the next one last.
    stages: Vec<Stage>,
    buffer: Vec<u8>,
    rounds: usize,
    samples: usize,
    best: f64,
    limits: Limits,
}

impl Measuring {
    /// Limits of `pool` with `isa`; reading from buffers of `sizes` bytes.
    pub(super) fn new(isa: Isa, pool: &Pool, sizes: &[usize]) -> Self {
        let mut stages = vec![Stage::Float, Stage::Int8];
        stages.extend(sizes.iter().rev().map(|size| Stage::Read(*size)));
        Self {
            isa,
            threads: pool.threads(),
            stages,
            buffer: Vec::new(),
            rounds: 1,
            samples: 0,
            best: 0.0,
            limits: Limits {
                isa: isa.name().to_owned(),
                threads: pool.threads(),
                read: Vec::new(),
                int8_multiply_adds_per_second: 0.0,
                float_multiply_adds_per_second: 0.0,
            },
        }
    }

    /// One sample; the limits after the last one.
    ///
    /// # Errors
    /// [`BenchError::Clock`].
    pub(super) fn step(&mut self, clock: &dyn Clock, pool: &Pool) -> Result<Option<Limits>, BenchError> {
        debug_assert_eq!(pool.threads(), self.threads);
        let Some(stage) = self.stages.last() else { return Ok(Some(self.limits.clone())) };
        // Reading is measured with the widest loads that there are: the bandwidth is the machine's, not a kernel's.
        if let Stage::Read(size) = *stage
            && self.buffer.len() != size
        {
            self.buffer = Vec::new();
            // Written, so that it is memory and not the system's one page of zeros. Where there is no room a browser's
            // tab or a phone must live on without the figure.
            if self.buffer.try_reserve_exact(size).is_err() {
                self.next();
                return Ok(None);
            }
            self.buffer.resize(size, 0x5a);
            std::hint::black_box(work::read(Isa::best(), pool, &self.buffer, 1));
        }
        let start = clock.now();
        let done = match stage {
            Stage::Read(size) => {
                std::hint::black_box(work::read(Isa::best(), pool, &self.buffer, self.rounds));
                *size as u64 * self.rounds as u64
            }
            Stage::Int8 => work::int8(self.isa, pool, self.rounds),
            Stage::Float => work::float(self.isa, pool, self.rounds),
        };
        let took = clock.now().saturating_sub(start);
        if took < LEAST {
            let surely = match stage {
                Stage::Read(_) => SURELY_BYTES,
                Stage::Int8 | Stage::Float => SURELY_MULTIPLY_ADDS,
            };
            if took.is_zero() && done >= surely {
                return Err(BenchError::Clock);
            }
            self.rounds *= 2;
            return Ok(None);
        }
        self.best = self.best.max(done as f64 / took.as_secs_f64());
        self.samples += 1;
        if self.samples < SAMPLES {
            if self.samples.is_multiple_of(OF_A_LENGTH) {
                self.rounds *= 2;
            }
            return Ok(None);
        }
        match *stage {
            Stage::Read(size) => {
                let read = Read { bytes: size as u64, bytes_per_second: self.best };
                self.limits.read.push(read);
            }
            Stage::Int8 => self.limits.int8_multiply_adds_per_second = self.best,
            Stage::Float => self.limits.float_multiply_adds_per_second = self.best,
        }
        self.next();
        Ok(self.stages.is_empty().then(|| self.limits.clone()))
    }

    fn next(&mut self) {
        self.stages.pop();
        self.buffer = Vec::new();
        (self.rounds, self.samples, self.best) = (1, 0, 0.0);
    }
}

/// The better of two measurements of the same limits: what else the machine does can only make one smaller.
pub(super) fn better(a: Limits, b: &Limits) -> Limits {
    let read = |read: Read| {
        let other = b.read.iter().find(|other| other.bytes == read.bytes);
        let most = other.map_or(0.0, |other| other.bytes_per_second);
        Read { bytes_per_second: read.bytes_per_second.max(most), ..read }
    };
    Limits {
        read: a.read.into_iter().map(read).collect(),
        int8_multiply_adds_per_second: a.int8_multiply_adds_per_second.max(b.int8_multiply_adds_per_second),
        float_multiply_adds_per_second: a
            .float_multiply_adds_per_second
            .max(b.float_multiply_adds_per_second),
        ..a
    }
}
