//! `zen-edge-mobile` as a library of its own. It has nothing to add: a build that is optimised as a whole takes the last crate's level,
//! which must be the kernels' own, and what apps call is built for size.

#![allow(unsafe_code, reason = "uniffi's macro writes it")]

pub use zen_edge_mobile::*;

zen_edge_mobile::uniffi_reexport_scaffolding!();
