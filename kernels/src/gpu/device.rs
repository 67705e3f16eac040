//! A device: chosen, asked for no more than is needed, watched for errors and loss.

use super::error::GpuError;
use super::shader::{Kernel, Permutation};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// WebGPU's default for the size of a binding, which every device has.
pub const DEFAULT_BINDING: u64 = 128 << 20;

/// Operations a second that are assumed before anything was measured: a slow software adapter.
const SLOW: f64 = 4e9;

/// What a submission may take, in seconds: a display shows a frame in between, and no watchdog barks.
const SUBMISSION: f64 = 0.05;

/// What tells the time: since any fixed moment.
pub type Now = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Lets others work for a moment: the rest of a page, while the CPU's side of a proof is computed.
pub type Pause = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// How a device is chosen and watched.
#[derive(Clone, Default)]
pub struct GpuOptions {
    /// Whether a software adapter will do. It is never faster than the CPU's own kernels.
    pub software: bool,
    /// The clock by which work is cut into short submissions. Without one, a slow device is assumed.
    pub now: Option<Now>,
    /// The adapter's name and its driver's, where they do not tell them themselves: in a browser.
    pub told: Option<(String, String)>,
    /// What is awaited between pieces of work for the CPU. Natively there is no need of it.
    pub pause: Option<Pause>,
    /// Faults to inject, in a test of what notices them.
    pub faults: Faults,
}

impl GpuOptions {
    /// Lets others work, where somebody said how.
    pub async fn pause(&self) {
        if let Some(pause) = &self.pause {
            pause().await;
        }
    }
}

/// Faults of a device, for tests: results that are wrong, a device that goes away.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A kernel whose results are 5 % too large.
    pub wrong: Option<Kernel>,
    /// So many times a device is lost at its next submission; shared by the devices that are opened one after the other.
    pub losses: Arc<AtomicU64>,
    /// Whether no memory can be had for weights.
    pub no_memory: bool,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// The adapter's name.
    pub adapter: String,
    /// The driver's name and version, as far as it tells them.
    pub driver: String,
    /// The API: `vulkan`, `metal`, `dx12`, `webgpu`.
    pub api: String,
    /// Whether it is a processor that plays a GPU.
    pub software: bool,
    /// `discrete`, `integrated`, `virtual`, `cpu` or `other`.
    pub kind: &'static str,
}

/// What a device has of what the kernels care for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLimits {
    /// Bytes of a storage binding.
    pub binding: u64,
    /// Bytes of a buffer.
    pub buffer: u64,
    /// Storage buffers of a kernel.
    pub storage_buffers: u32,
    /// Bytes of a workgroup's memory.
    pub workgroup_storage: u32,
    /// Invocations of a workgroup.
    pub invocations: u32,
    /// Features of which kernels could make use: `f16`, `subgroups`, `timestamps`.
    pub features: Vec<&'static str>,
}

/// What befell a device.
#[derive(Default)]
struct Health(Mutex<Option<GpuError>>);

impl Health {
    /// The first word stands: what follows it follows from it.
    fn set(&self, error: GpuError) {
        lock(&self.0).get_or_insert(error);
    }
}

/// An open device. Shared by reference between threads.
pub struct Gpu {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    info: GpuInfo,
    limits: GpuLimits,
    binding: u64,
    health: Arc<Health>,
    pipelines: Mutex<HashMap<Permutation, wgpu::ComputePipeline>>,
    faults: Faults,
    /// Whether an injected loss has come over it.
    gone: AtomicBool,
    pub(super) now: Option<Now>,
    /// Operations a second, as the bits of an f64.
    rate: AtomicU64,
    pub(super) arena: wgpu::Buffer,
    /// Held while parameters are written and submitted: two passes share the arena.
    pub(super) submitting: Mutex<()>,
}

/// A buffer of f32 on the device.
#[derive(Clone)]
pub struct GpuBuffer(pub(super) wgpu::Buffer);

impl GpuBuffer {
    /// Its values.
    pub fn len(&self) -> usize {
        usize::try_from(self.0.size() / 4).unwrap_or(usize::MAX)
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Parameter slots of a submission.
pub(super) const SLOTS: usize = 256;
/// The largest alignment that WebGPU allows a device to ask of uniform offsets.
pub(super) const SLOT: usize = 256;

impl Gpu {
    /// Opens the best adapter, with WebGPU's default limits and larger bindings where it has them.
    ///
    /// # Errors
    /// No adapter, one that is software where that will not do, or limits below what the kernels need.
    pub async fn open(options: &GpuOptions) -> Result<Self, GpuError> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = instance
            .request_adapter(&wgpu::RequestAdapterOptions {
                power_preference: wgpu::PowerPreference::HighPerformance,
                ..Default::default()
            })
            .await
            .map_err(|error| GpuError::NoAdapter(error.to_string()))?;
        let mut info = describe(&adapter.get_info());
        if let Some((name, driver)) = &options.told {
            (info.adapter, info.driver) = (name.clone(), driver.clone());
        }
        if info.software && !options.software {
            let why = format!("{} is software, which is taken only where it is asked for", info.adapter);
            return Err(GpuError::NoAdapter(why));
        }
        let has = adapter.limits();
        let need = |limit: &'static str, needed: u64, found: u64| {
            if found < needed { Err(GpuError::Limit { limit, needed, found }) } else { Ok(()) }
        };
        let defaults = wgpu::Limits::defaults();
        need("maxComputeInvocationsPerWorkgroup", 256, has.max_compute_invocations_per_workgroup.into())?;
        need("maxComputeWorkgroupStorageSize", 16_384, has.max_compute_workgroup_storage_size.into())?;
        need("maxStorageBuffersPerShaderStage", 4, has.max_storage_buffers_per_shader_stage.into())?;
        need("maxComputeWorkgroupsPerDimension", 65_535, has.max_compute_workgroups_per_dimension.into())?;
        let binding = u64::from(u32::MAX).min(has.max_storage_buffer_binding_size).min(has.max_buffer_size);
        need("maxStorageBufferBindingSize", DEFAULT_BINDING, binding)?;
        // Only what the kernels use: a device may have less than WebGPU's defaults of what they do not.
        let mut limits = defaults.or_worse_values_from(&has);
        limits.max_storage_buffer_binding_size = binding;
        limits.max_buffer_size = limits.max_buffer_size.max(binding).min(has.max_buffer_size);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("zen-edge"),
            required_features: wgpu::Features::empty(),
            required_limits: limits,
            ..Default::default()
        };
        let (device, queue) = adapter
            .request_device(&descriptor)
            .await
            .map_err(|error| GpuError::NoDevice { adapter: info.adapter.clone(), why: error.to_string() })?;
        let health = Arc::new(Health::default());
        let watch = health.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            watch.set(match error {
                wgpu::Error::OutOfMemory { .. } => GpuError::OutOfMemory(error.to_string()),
                _ => GpuError::Device(error.to_string()),
            });
        }));
        let watch = health.clone();
        device.set_device_lost_callback(move |reason, why| {
            watch.set(GpuError::Lost(format!("{reason:?}: {why}").trim_end_matches([' ', ':']).to_owned()));
        });
        let arena = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("parameters"),
            size: (SLOTS * SLOT) as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let features = adapter.features();
        let features = [
            (wgpu::Features::SHADER_F16, "f16"),
            (wgpu::Features::SUBGROUP, "subgroups"),
            (wgpu::Features::TIMESTAMP_QUERY, "timestamps"),
        ]
        .into_iter()
        .filter_map(|(feature, name)| features.contains(feature).then_some(name))
        .collect();
        Ok(Self {
            device,
            queue,
            info,
            limits: GpuLimits {
                binding: has.max_storage_buffer_binding_size,
                buffer: has.max_buffer_size,
                storage_buffers: has.max_storage_buffers_per_shader_stage,
                workgroup_storage: has.max_compute_workgroup_storage_size,
                invocations: has.max_compute_invocations_per_workgroup,
                features,
            },
            binding,
            health,
            pipelines: Mutex::default(),
            faults: options.faults.clone(),
            gone: AtomicBool::new(false),
            now: options.now.clone(),
            rate: AtomicU64::new(SLOW.to_bits()),
            arena,
            submitting: Mutex::new(()),
        })
    }

    /// What it is.
    pub const fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// What it has.
    pub const fn limits(&self) -> &GpuLimits {
        &self.limits
    }

    /// Bytes that a binding may have.
    pub const fn binding_limit(&self) -> u64 {
        self.binding
    }

    /// What befell it, if anything did: then nothing that it answers is to be believed.
    ///
    /// # Errors
    /// The first error, or the loss.
    pub fn check(&self) -> Result<(), GpuError> {
        lock(&self.health.0).clone().map_or(Ok(()), Err)
    }

    /// A buffer of `len` values, zeros.
    ///
    /// # Errors
    /// One larger than a binding may be, or no memory for it.
    pub async fn buffer(&self, len: usize) -> Result<GpuBuffer, GpuError> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        Ok(GpuBuffer(self.create(len, usage).await?))
    }

    /// A buffer that holds `values`.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub async fn buffer_of(&self, values: &[f32]) -> Result<GpuBuffer, GpuError> {
        let buffer = self.buffer(values.len()).await?;
        self.write(&buffer, 0, values);
        Ok(buffer)
    }

    pub(super) async fn weights_buffer(&self, words: &[u32]) -> Result<wgpu::Buffer, GpuError> {
        if self.faults.no_memory {
            return Err(GpuError::OutOfMemory("injected by a test".to_owned()));
        }
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let buffer = self.create(words.len(), usage).await?;
        self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        // The driver's copy of the words is freed once they are on the device: not at the end of all weights.
        self.queue.submit([]);
        self.settle().await?;
        Ok(buffer)
    }

    async fn create(&self, len: usize, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, GpuError> {
        let size = (len.max(4) as u64).saturating_mul(4).next_multiple_of(16);
        if size > self.binding {
            return Err(GpuError::Limit {
                limit: "maxStorageBufferBindingSize",
                needed: size,
                found: self.binding,
            });
        }
        let (buffer, error) = {
            let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
            let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            let buffer = self.device.create_buffer(&descriptor);
            (buffer, scope.pop())
        };
        match error.await {
            Some(error) => Err(GpuError::OutOfMemory(error.to_string())),
            None => Ok(buffer),
        }
    }

    /// Writes values from `at` on.
    pub fn write(&self, buffer: &GpuBuffer, at: usize, values: &[f32]) {
        self.queue.write_buffer(&buffer.0, 4 * at as u64, bytemuck::cast_slice(values));
    }

    /// Reads `len` values from `at` on, after all that was submitted.
    ///
    /// # Errors
    /// What befell the device.
    pub async fn read(&self, buffer: &GpuBuffer, at: usize, len: usize) -> Result<Vec<f32>, GpuError> {
        self.check()?;
        let size = 4 * len as u64;
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("answer"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&buffer.0, 4 * at as u64, &staging, 0, size);
        self.submit(encoder.finish());
        let signal = Signal::default();
        let done = signal.clone();
        staging.map_async(wgpu::MapMode::Read, .., move |result| done.set(result.map_err(|e| e.to_string())));
        let mapped = self.wait(signal).await;
        self.check()?;
        mapped.unwrap_or_else(|| Err("the answer never came".to_owned())).map_err(GpuError::Device)?;
        let view = staging.get_mapped_range(..).map_err(|error| GpuError::Device(error.to_string()))?;
        // Not cast in place: nothing promises that a mapped range is aligned to floats.
        let values = view.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        drop(view);
        staging.unmap();
        Ok(values)
    }

    /// Waits for all that was submitted.
    ///
    /// # Errors
    /// What befell the device.
    pub async fn settle(&self) -> Result<(), GpuError> {
        let signal = Signal::default();
        let done = signal.clone();
        self.queue.on_submitted_work_done(move || done.set(()));
        self.wait(signal).await;
        self.check()
    }

    /// What the signal brings; `None` where the device broke and brings nothing any more.
    async fn wait<T>(&self, signal: Signal<T>) -> Option<T> {
        Waiting { signal, gpu: self }.await
    }

    pub(super) fn submit(&self, commands: wgpu::CommandBuffer) {
        self.queue.submit([commands]);
        let lose = |left: u64| left.checked_sub(1);
        if !self.gone.load(Ordering::Relaxed)
            && self.faults.losses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok()
        {
            self.gone.store(true, Ordering::Relaxed);
            self.device.destroy();
        }
    }

    pub(super) fn pipeline(&self, permutation: &Permutation) -> wgpu::ComputePipeline {
        if let Some(pipeline) = lock(&self.pipelines).get(permutation) {
            return pipeline.clone();
        }
        let fault = if self.faults.wrong == Some(permutation.kernel) { 1.05 } else { 1.0 };
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(permutation.kernel.name()),
            source: wgpu::ShaderSource::Wgsl(permutation.text(fault).into()),
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(permutation.kernel.name()),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Every kernel writes its workgroup's memory before it reads it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        lock(&self.pipelines).insert(permutation.clone(), pipeline.clone());
        pipeline
    }

    /// Operations that a submission may have.
    pub(super) fn budget(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed)) * SUBMISSION
    }

    /// Operations a second, as measured so far.
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Learns from a pass of so many operations.
    pub(super) fn measured(&self, operations: f64, took: Duration) {
        // A short pass tells of its latency, not of the device.
        if operations < 1e7 || took.is_zero() {
            return;
        }
        let rate = operations / took.as_secs_f64();
        let rate = 0.5 * f64::from_bits(self.rate.load(Ordering::Relaxed)) + 0.5 * rate;
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
    }
}

#[cfg(not(target_family = "wasm"))]
std::thread_local! {
    /// Whether [`block_on`] runs on this thread: then waiting for a device is waiting.
    static BLOCKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs a future of a device to its end on this thread. There is none in a browser, where a thread that waits keeps what it waits
/// for from happening.
#[cfg(not(target_family = "wasm"))]
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let outer = BLOCKING.replace(true);
    let result = loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            break result;
        }
        std::thread::yield_now();
    };
    BLOCKING.set(outer);
    result
}

fn describe(info: &wgpu::AdapterInfo) -> GpuInfo {
    let driver = format!("{} {}", info.driver, info.driver_info);
    let (kind, software) = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => ("discrete", false),
        wgpu::DeviceType::IntegratedGpu => ("integrated", false),
        wgpu::DeviceType::VirtualGpu => ("virtual", false),
        wgpu::DeviceType::Cpu => ("cpu", true),
        wgpu::DeviceType::Other => ("other", false),
    };
    GpuInfo {
        adapter: info.name.clone(),
        driver: driver.trim().to_owned(),
        api: match info.backend {
            wgpu::Backend::BrowserWebGpu => "webgpu".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        },
        software,
        kind,
    }
}

/// A value that a callback sets and a future waits for.
struct Signal<T>(Arc<Mutex<(Option<T>, Option<Waker>)>>);

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new((None, None))))
    }
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Signal<T> {
    fn set(&self, value: T) {
        let mut state = lock(&self.0);
        state.0 = Some(value);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

struct Waiting<'a, T> {
    signal: Signal<T>,
    gpu: &'a Gpu,
}

impl<T> Future for Waiting<'_, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        // Natively callbacks are called while the device is polled; in a browser its event loop calls them. An error here is one
        // of the device, and is found in its health.
        #[cfg(not(target_family = "wasm"))]
        let how = if BLOCKING.get() { wgpu::PollType::wait_indefinitely() } else { wgpu::PollType::Poll };
        #[cfg(target_family = "wasm")]
        let how = wgpu::PollType::Poll;
        let _ = self.gpu.device.poll(how);
        let mut state = lock(&self.signal.0);
        if let Some(value) = state.0.take() {
            return Poll::Ready(Some(value));
        }
        if self.gpu.check().is_err() {
            return Poll::Ready(None);
        }
        state.1 = Some(context.waker().clone());
        drop(state);
        if cfg!(not(target_family = "wasm")) {
            // Whatever executor runs this asks again.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// What is behind a mutex, whatever befell another thread: every change leaves it whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
