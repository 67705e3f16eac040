//! What an owner of a catalog needs to make a pack, on their own machine.
//!
//! * [`rows`] – prompts with their labels, from JSON lines.
//! * [`fit`] – heads from rows, with a report of what they are worth.
//!
//! Nothing of it is part of a router that runs: applications do not link this crate.

pub mod fit;
pub mod rows;
