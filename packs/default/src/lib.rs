//! The default pack: a small Qwen3-architecture backbone with task and route heads.
