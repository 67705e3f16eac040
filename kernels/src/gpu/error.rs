//! Why the GPU does not answer.

/// Why a GPU is not there, is not believed, or stopped.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no adapter.
    #[error("no GPU adapter: {0}")]
    NoAdapter(String),
    /// The adapter gives no device.
    #[error("the GPU {adapter} gives no device: {why}")]
    NoDevice {
        /// The adapter.
        adapter: String,
        /// What it says.
        why: String,
    },
    /// The device promises less than a kernel needs.
    #[error("the GPU's {limit} is {found}, and {needed} are needed")]
    Limit {
        /// WebGPU's name of the limit.
        limit: &'static str,
        /// What is needed.
        needed: u64,
        /// What there is.
        found: u64,
    },
    /// The kernels do not take this.
    #[error("the GPU's kernels do not take {what}")]
    Unsupported {
        /// What they do not take.
        what: String,
    },
    /// There is not enough memory on the device.
    #[error("the GPU's memory is too small: {0}")]
    OutOfMemory(String),
    /// The device was lost: its driver was reset, or it was taken away.
    #[error("the GPU was lost: {0}")]
    Lost(String),
    /// The device refused a command.
    #[error("the GPU reports an error: {0}")]
    Device(String),
    /// A kernel's known answer came out otherwise.
    #[error("the GPU failed its self-test: {kernel}: {why}")]
    Wrong {
        /// The kernel, or `prompt` for a whole pass.
        kernel: String,
        /// By how much.
        why: String,
    },
    /// It failed at an earlier start, with the same driver, build and model.
    #[error("{why} (found at an earlier start)")]
    Refused {
        /// What was found then.
        why: String,
    },
    /// It was measured to be slower than the CPU at every length.
    #[error("the CPU is faster: {0}")]
    Slower(String),
    /// A start of the GPU never came to its end: it may have taken the process with it.
    #[error("the last start of the GPU never finished{}", stays(*.times, *.left))]
    Unfinished {
        /// So many in a row.
        times: u32,
        /// Starts after this one that stay on the CPU too.
        left: u32,
    },
}

fn stays(times: u32, left: u32) -> String {
    let row = if times > 1 { format!(", {times} in a row") } else { String::new() };
    match left {
        0 => format!("{row}; the next one tries it again"),
        _ => format!("{row}; {left} more stay on the CPU, then it is tried again"),
    }
}
