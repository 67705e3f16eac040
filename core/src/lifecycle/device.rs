//! The state of the device, and what may run in it.

use crate::decision::Thermal;

/// What the system says of the app and of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Whether the app is seen.
    pub foreground: bool,
    /// How hot the device is.
    pub thermal: Thermal,
}

impl Default for Device {
    /// Seen, and cool.
    fn default() -> Self {
        Self { foreground: true, thermal: Thermal::Nominal }
    }
}

/// What becomes of prompts while the app is not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// One thread of the processor answers them, never the GPU: a system ends an app that draws in the background.
    #[default]
    Cpu,
    /// They are refused with [`Deferral::Background`], to be asked again when the app is seen.
    Defer,
}

/// Why a prompt is to be asked again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Deferral {
    /// The app is not seen, and its options say that nothing runs then.
    #[error("the app is in the background: ask again when it is seen, or load with `Background::Cpu`")]
    Background,
    /// The device is too hot to generate; rules can route, but not write.
    #[error("the device is too hot to generate: ask again when it has cooled")]
    TooHot,
}

/// What may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The backbone, on so many threads.
    Run {
        /// Threads, at least one.
        threads: usize,
        /// Whether anything may be submitted to a GPU.
        gpu: bool,
    },
    /// The rules alone: the device is too hot for the backbone.
    Rules,
    /// Nothing.
    Deferred(Deferral),
}

impl Work {
    /// Whether anything may be submitted to a GPU.
    #[must_use]
    pub const fn gpu(self) -> bool {
        matches!(self, Self::Run { gpu: true, .. })
    }
}

/// What may run on a device in this state, of at most `threads` threads.
///
/// | | threads | GPU |
/// |---|---|---|
/// | seen, nominal | all | yes |
/// | seen, fair | half, rounded up | yes |
/// | seen, serious | one | no |
/// | not seen | one, or deferred | no |
/// | critical | rules, or deferred | no |
#[must_use]
pub fn plan(threads: usize, device: &Device, background: Background) -> Work {
    let threads = threads.max(1);
    match (device.foreground, background, device.thermal) {
        (false, Background::Defer, _) => Work::Deferred(Deferral::Background),
        (_, _, Thermal::Critical) => Work::Rules,
        (false, Background::Cpu, _) | (true, _, Thermal::Serious) => Work::Run { threads: 1, gpu: false },
        (true, _, Thermal::Fair) => Work::Run { threads: threads.div_ceil(2), gpu: true },
        (true, _, Thermal::Nominal) => Work::Run { threads, gpu: true },
    }
}

/// How many of a processor's cores are fast, by any figure of each one's speed (capacity, highest frequency): those with more
/// than half of the fastest one's. A loop that is shared with slow cores does not end sooner, and costs more energy.
///
/// `None` where nothing is known: no figure, or only zeros.
#[must_use]
pub fn fast_cores(speeds: &[u64]) -> Option<usize> {
    let most = speeds.iter().copied().max().filter(|most| *most > 0)?;
    Some(speeds.iter().filter(|speed| **speed > most / 2).count())
}
