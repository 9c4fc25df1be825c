//! Encodes and decodes messages for the store and for other pods. Nothing here reads or sends them.

pub(crate) mod inflight;
pub(crate) mod owner;
pub(crate) mod record;
