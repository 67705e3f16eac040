//! `zen-edge`: route prompts on the device.
fn main() {}
