//! What an owner of a catalog needs to make a pack, on their own machine.
//!
//! * [`rows`] – prompts with their labels, from JSON lines.
//!
//! Nothing of it is part of a router that runs: applications do not link this crate.

pub mod rows;
