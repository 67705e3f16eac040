//! A router in a program that the system watches: a phone's app, a page in the background, a small server.
//!
//! * [`TrimLevel`] – what is given back when memory is short, and how a system's words map onto it.
//! * [`Footprint`] – what a pack will take, before it is loaded, and whether that fits.
//! * [`Device`] and [`plan`] – foreground, heat: how many threads may work, and whether any may.
//! * [`Managed`] – a router that keeps all of this: its weights can be dropped, and come back when they are asked for.
//!
//! Nothing here asks the system: what it says (memory, heat, cores) is handed in.

mod budget;
mod device;
mod managed;
#[cfg(test)]
mod tests;
mod trim;

pub use budget::{Footprint, OverBudget};
pub use device::{Background, Deferral, Device, Work, fast_cores, plan};
pub use managed::{LifecycleError, Managed, ManagedGeneration, ManagedOptions, ManagedSession, ManagedStats};
pub use trim::TrimLevel;
