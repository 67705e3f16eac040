//! What an owner of a catalog needs to make a pack, on their own machine.
//!
//! * [`verify`] – a backbone against a reference in float arithmetic: the same decisions?
//! * [`ablate`] – what a scheme of quantisation costs the decision.
//! * [`parity`] – the harness of both.
//! * [`rows`] – prompts with their labels, from JSON lines.
//!
//! Nothing of it is part of a router that runs: applications do not link this crate.

pub mod ablate;
pub mod parity;
pub mod rows;
pub mod verify;
