//! What is given back when memory is short.

/// How much is given back; each level gives back all that the ones before it do. Nothing that was learned or counted is
/// lost, and answers keep their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrimLevel {
    /// Keys and values of earlier prompts. A prompt that begins as an earlier one is read anew.
    Contexts,
    /// Also the vectors of earlier prompts. A prompt that was read before is read anew.
    Caches,
    /// Also the weights, the tokenizer and the heads. The next prompt loads them again.
    Weights,
}

impl TrimLevel {
    /// What Android's `onTrimMemory(level)` asks for; `None` for 0, which is no level. Levels between the named ones count as
    /// the named one below them, as Android's documentation asks.
    ///
    /// | level | in the app | here |
    /// |--:|---|---|
    /// | 5, 10 | runs, memory gets scarce | `Contexts` |
    /// | 15 | runs, memory is critical | `Caches` |
    /// | 20 | is no longer seen | `Contexts` |
    /// | 40 | may be ended, far down the list | `Caches` |
    /// | 60, 80 | will be ended soon | `Weights` |
    #[must_use]
    pub const fn of_android(level: i32) -> Option<Self> {
        match level {
            60.. => Some(Self::Weights),
            40..60 | 15..20 => Some(Self::Caches),
            1..40 => Some(Self::Contexts),
            _ => None,
        }
    }

    /// What iOS's memory warning asks for: in the foreground the app is in use, and its weights are clean pages that the
    /// system takes by itself; in the background an app with little memory is the last to be ended.
    #[must_use]
    pub const fn of_memory_warning(foreground: bool) -> Self {
        if foreground { Self::Caches } else { Self::Weights }
    }
}
