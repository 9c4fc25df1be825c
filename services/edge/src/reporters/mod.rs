//! Threads that exchange with the store what brokers count: incidents, usage, and usage of limits that pods share.
//!
//! Each thread visits all open brokers at its own interval, and ends when its handle is dropped. Event loops never wait for
//! these threads, and this folder knows no event loop.

mod incidents;
mod quota;
mod usage;

pub(crate) use incidents::IncidentRecorder;
pub(crate) use quota::QuotaExchange;
pub(crate) use usage::UsageReporter;
