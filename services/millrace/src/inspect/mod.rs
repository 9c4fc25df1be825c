//! Looks into a broker's stored data, and copies it: `millrace sessions`, `streams`, `retained`, `backup` and
//! `restore`.
//!
//! The process that has the data folder open answers a [`request::Request`] with [`rows::Row`]s ([`place::Place`]).
//! If a server has it open, this process asks the server through a socket in the folder ([`socket`]); otherwise it
//! opens the folder itself. [`source`] decides. Reads are snapshots, one transaction per page or session, so they
//! delay no client.

mod args;
mod backup;
mod command;
pub(crate) mod confirm;
mod live;
mod place;
mod print;
mod request;
mod retained;
mod rows;
mod sessions;
mod show;
pub(crate) mod socket;
mod source;
mod streams;
pub(crate) mod table;
#[cfg(test)]
mod testing;
pub(crate) mod text;

pub(crate) use args::{BackupArgs, RestoreArgs, RetainedArgs, SessionsArgs, StreamsArgs};
pub(crate) use command::{backup, restore, retained, sessions, streams};
pub(crate) use live::Live;
pub(crate) use place::name;
pub(crate) use sessions::{Found, find};
pub(crate) use source::is_missing;

#[allow(clippy::disallowed_methods, reason = "the one clock of these commands and of the control plane")]
pub(crate) fn now_ms() -> u64 {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}
