//! `cargo xtask …`: every chore that needs more than cargo.
fn main() {}
