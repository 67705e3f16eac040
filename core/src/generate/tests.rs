//! Generations of a tiny model.
