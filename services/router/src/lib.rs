//! Finds the receivers of a message: subscription tries with `+`, `#`, `$share` and `$`-topics, and
//! the same trie for retained messages.
//!
//! Reads and writes never wait for each other. A [`Router`] publishes immutable [`Snapshot`]s; a
//! writer copies the path that it changes (a few nodes, however large the broker) and publishes a
//! new root. A core can cache a match as long as [`Router::generation`] stays the same.
//!
//! This crate knows nothing of packets, sockets, clocks, sessions or the store. Callers pass valid
//! filters and topics (`millrace_mqtt::topic`).

#![allow(missing_docs, reason = "a comment says only what name and type do not")]

mod digest;
mod group;
mod matched;
mod pmap;
mod receiver;
mod recent;
mod router;
mod seed;
mod set;
mod subscription;
mod topic_tree;
mod trie;

pub use digest::{Code, Digest, SHAPES_MAX, TooMany, TopicCode};
pub use group::ShareGroup;
pub use matched::Matched;
pub use receiver::{CopyOptions, Receiver};
pub use router::{Edit, MatchLimits, Router, Snapshot};
pub use subscription::{Subscription, Target};
pub use topic_tree::{TopicTree, TreeSnapshot, TreeStep, Walk};
