//! Kernels on a GPU, in WGSL, and their host side: one code for Vulkan, Metal, DX12 and a browser's WebGPU.
//!
//! A [`Gpu`] is an open device, a [`GpuMatrix`] a weight matrix on it, a [`Pass`] kernels in order. All of it is asynchronous, as a
//! browser wants it; natively [`block_on`] waits. The kernels need WebGPU's default limits and core WGSL alone: bindings of
//! 128 MiB, 256 invocations, 16 KiB of workgroup memory, no subgroups, no f16.
//!
//! A GPU cannot promise the CPU's bits: activations stay in f32, and what it computes is held to a tolerance of the CPU's float
//! arithmetic. [`prove`] holds every kernel against its twin on the CPU, on the
//! device that is to be used: results in the field are wrong more often than they crash.

mod device;
mod error;
mod measure;
mod pass;
mod proof;
mod shader;
#[cfg(test)]
mod tests;
mod weights;

#[cfg(not(target_family = "wasm"))]
pub use device::block_on;
pub use device::{DEFAULT_BINDING, Faults, Gpu, GpuBuffer, GpuInfo, GpuLimits, GpuOptions, Now, Pause};
pub use error::GpuError;
pub use measure::{Roofline, Share, measure};
pub use pass::{Heads, MAX_HEAD, Pass, Placement, Rows, rope_table};
pub use proof::{Line, prove};
pub use shader::{Kernel, shaders};
pub use weights::GpuMatrix;
