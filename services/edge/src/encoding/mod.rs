//! Bytes of messages in the store and between pods. Nothing here reads or sends them.

pub(crate) mod inflight;
pub(crate) mod record;
