//! What survives the process: edges one after the other on one store.

#[path = "../common/mod.rs"]
mod common;
mod retained;
