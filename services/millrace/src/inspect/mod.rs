//! Looks into a broker's stored data, and copies it: `millrace sessions`, `streams`, `retained`,
//! `backup` and `restore`.
//!
//! The process that has the data folder open answers a [`request::InspectRequest`] with [`rows::InspectRow`]s
//! ([`open_folder::OpenFolder`]). If a server has it open, this process asks the server through a socket in
//! the folder ([`socket`]); otherwise it opens the folder itself. [`source`] decides. Reads are
//! snapshots, one transaction per page or session, so they delay no client.

mod args;
mod audit;
mod backup;
mod backup_commands;
mod command;
mod open_folder;
mod print;
mod request;
mod retained;
mod rows;
mod sessions;
mod show;
pub(crate) mod socket;
mod source;
mod streams;
#[cfg(test)]
mod testing;

pub(crate) use args::{
    BACKUP_HELP, BackupArgs, RESTORE_HELP, RestoreArgs, RetainedArgs, SessionsArgs, StreamsArgs,
};
pub(crate) use backup_commands::{backup, restore};
pub(crate) use command::{retained, sessions, streams};
pub(crate) use source::is_missing;
