//! The router of Zen Edge: from a prompt and a GGUF to a decision, on the device.
//!
//! * [`source`] – bytes that are read at random: a mapped file, memory, a browser's storage.
//! * [`gguf`] – the container of a backbone: metadata and tensors, validated.
//! * [`tensors`] – the safetensors file of the heads, validated.
//! * [`inspect`] – the facts of a file, for people and programs.
//! * [`tokenizer`] – text to token ids, built from a GGUF's metadata.
//! * [`backbone`] – a prompt's token ids to the last token's hidden state.
//! * [`config`] and [`heads`] – `router_config.json` and the linear heads: hidden state to logits and features.
//! * [`catalog`], [`rules`], [`policy`], [`decision`] – logits, limits and context to a decision with reasons.
//! * [`bandit`] – what a user's rewards teach.
//! * [`generate`] – text from a backbone, and probabilities over given texts.
//! * [`cache`] – vectors of prompts that were read before.
//! * [`mod@bench`] – how fast a device is, and how fast it could be at most.
//! * [`pack`] and [`router`] – a backbone and its heads together; prompt in, outcome out.
//! * [`selftest`] – whether a device computes what it should.
//! * [`lifecycle`] – a router in an app that the system watches: memory, heat, background.

pub mod backbone;
pub mod bandit;
pub mod bench;
pub mod cache;
pub mod catalog;
pub mod config;
pub mod decision;
pub mod generate;
pub mod gguf;
pub mod heads;
pub mod inspect;
pub mod lifecycle;
pub mod pack;
pub mod policy;
mod room;
pub mod router;
pub mod rules;
pub mod selftest;
pub mod source;
pub mod tensors;
pub mod tokenizer;
