//! Prints rows: as tables and sentences for people, or as JSON.

use std::io::{self, ErrorKind, Write};

use super::open_folder::AnswerError;
use super::rows::{InspectRow, RetainedMessageRow, RowState, SessionRow, StreamRow};
use super::show;
use crate::terminal::table::{Align, Column, Table};
use crate::text;

const SESSIONS: &[Column] = &[
    ("CLIENT", Align::Left),
    ("STATE", Align::Left),
    ("EXPIRY", Align::Left),
    ("SUBSCRIPTIONS", Align::Right),
    ("WAITING", Align::Right),
    ("OLDEST", Align::Left),
];

const STREAMS: &[Column] = &[
    ("FILTER", Align::Left),
    ("SUBSCRIBERS", Align::Right),
    ("MESSAGES", Align::Right),
    ("BYTES", Align::Right),
    ("PARTITIONS", Align::Right),
    ("OLDEST", Align::Left),
    ("ID", Align::Left),
];

const RETAINED: &[Column] = &[
    ("TOPIC", Align::Left),
    ("QOS", Align::Right),
    ("BYTES", Align::Right),
    ("EXPIRES", Align::Left),
    ("PAYLOAD", Align::Left),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Text,
    Json,
    /// Prints the payload of a retained message, unchanged.
    Raw,
}

/// Rows go to `out`, messages for people to `aside`.
pub(super) struct RowPrinter<O, A> {
    out: O,
    aside: A,
    style: Style,
    now_ms: u64,
    table: Option<Table>,
    purged: u64,
    wills_lost: u64,
}

impl<O: Write, A: Write> RowPrinter<O, A> {
    pub(super) fn new(out: O, aside: A, style: Style, now_ms: u64) -> Self {
        Self { out, aside, style, now_ms, table: None, purged: 0, wills_lost: 0 }
    }

    pub(super) fn row(&mut self, row: &InspectRow) -> Result<(), AnswerError> {
        match self.style {
            Style::Text => self.text(row),
            Style::Json => self.json(row),
            Style::Raw => self.raw(row),
        }
        .map_err(|error| ended(&error))
    }

    /// Prints `nothing` if there was no row, and how to continue if `after` says that the list is
    /// not complete.
    pub(super) fn end(&mut self, nothing: &str, after: Option<&str>) -> Result<(), AnswerError> {
        self.finish(nothing, after).map_err(|error| ended(&error))
    }

    fn finish(&mut self, nothing: &str, after: Option<&str>) -> io::Result<()> {
        if let Some(table) = &mut self.table {
            table.flush(&mut self.out)?;
        } else if self.style == Style::Text && !nothing.is_empty() {
            writeln!(self.aside, "{nothing}")?;
        }
        self.out.flush()?;
        match after {
            Some(after) => {
                writeln!(self.aside, "There are more: add --after {} to continue.", text::quoted(after))
            }
            None => Ok(()),
        }
    }

    fn json(&mut self, row: &InspectRow) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, row)?;
        self.out.write_all(b"\n")
    }

    fn raw(&mut self, row: &InspectRow) -> io::Result<()> {
        match row {
            InspectRow::RetainedDetails(details) => self.out.write_all(&details.payload.bytes()),
            _ => Ok(()),
        }
    }

    fn text(&mut self, row: &InspectRow) -> io::Result<()> {
        let now_ms = self.now_ms;
        match row {
            InspectRow::Session(session) => self.cells(SESSIONS, session_cells(session, now_ms)),
            InspectRow::Stream(stream) => self.cells(STREAMS, stream_cells(stream, now_ms)),
            InspectRow::Retained(retained) => self.cells(RETAINED, retained_cells(retained, now_ms)),
            InspectRow::SessionDetails(details) => show::session(&mut self.out, details, now_ms),
            InspectRow::StreamDetails(details) => show::stream(&mut self.out, details, now_ms),
            InspectRow::RetainedDetails(details) => show::retained(&mut self.out, details, now_ms),
            InspectRow::SessionPurged(purged) => {
                self.purged += 1;
                self.wills_lost += u64::from(purged.will_lost);
                Ok(())
            }
            InspectRow::RetainedPurged { .. } => {
                self.purged += 1;
                Ok(())
            }
            InspectRow::StreamPurged { filter, messages, bytes } => writeln!(
                self.out,
                "Removed {} ({}) of \"{}\".",
                text::plural(*messages, "message", "messages"),
                text::bytes(*bytes),
                text::escape(filter.as_bytes())
            ),
            InspectRow::BackupProgress { bytes } => {
                writeln!(self.aside, "Copied {} ...", text::bytes(*bytes))
            }
            InspectRow::BackupDone { target, bytes, version } => {
                let version = version.map_or_else(String::new, |version| format!(", version {version}"));
                writeln!(self.out, "Made {target} ({}{version}).", text::bytes(*bytes))
            }
            InspectRow::ClusterRestored { cluster_file, version } => {
                writeln!(self.out, "Restored the cluster of {cluster_file} to version {version}.")
            }
        }
    }

    fn cells(&mut self, columns: &'static [Column], cells: Vec<String>) -> io::Result<()> {
        self.table.get_or_insert_with(|| Table::new(columns.to_vec())).push(&mut self.out, cells)
    }

    pub(super) fn purged(&mut self, one: &str, many: &str) -> Result<(), AnswerError> {
        if self.style != Style::Text {
            return self.out.flush().map_err(|error| ended(&error));
        }
        let purged = text::plural(self.purged, one, many);
        let mut say = || {
            writeln!(self.out, "Removed {purged}.")?;
            match self.wills_lost {
                0 => {}
                1 => writeln!(self.out, "A will was removed and not published: no server runs.")?,
                wills => writeln!(
                    self.out,
                    "{} wills were removed and not published: no server runs.",
                    text::count(wills)
                )?,
            }
            self.out.flush()
        };
        say().map_err(|error| ended(&error))
    }
}

fn ended(error: &io::Error) -> AnswerError {
    match error.kind() {
        // The reader, such as `head`, has read enough.
        ErrorKind::BrokenPipe => AnswerError::NobodyReads,
        _ => AnswerError::Failed(format!("standard output cannot be written: {error}")),
    }
}

fn session_cells(session: &SessionRow, now_ms: u64) -> Vec<String> {
    let since = |at_ms: Option<u64>| text::duration(now_ms.saturating_sub(at_ms.unwrap_or(now_ms)) / 1_000);
    let state = match session.state {
        RowState::Connected => "connected".into(),
        RowState::CutOff => "cut off".into(),
        RowState::Offline => format!("offline {}", since(session.offline_since_ms)),
        RowState::Expired => format!("expired {} ago", since(session.expires_at_ms)),
    };
    vec![
        text::escape(session.client_id.as_bytes()),
        state,
        show::expiry(session.expiry_s),
        text::count(session.subscriptions as u64),
        show::at_least(session.waiting, session.waiting_is_more),
        distance(session.oldest_waiting_at_ms, now_ms),
    ]
}

fn stream_cells(stream: &StreamRow, now_ms: u64) -> Vec<String> {
    vec![
        text::escape(stream.filter.as_bytes()),
        text::count(stream.subscribers),
        text::count(stream.messages),
        text::bytes(stream.bytes),
        stream.partitions.to_string(),
        distance(stream.oldest_at_ms, now_ms),
        stream.id.to_string(),
    ]
}

fn retained_cells(retained: &RetainedMessageRow, now_ms: u64) -> Vec<String> {
    vec![
        text::escape(retained.topic.as_bytes()),
        retained.qos.to_string(),
        text::bytes(retained.payload_bytes as u64),
        retained.expires_at_ms.map_or_else(|| "never".into(), |at_ms| text::distance(at_ms, now_ms)),
        retained.payload_head.clone(),
    ]
}

fn distance(at_ms: Option<u64>, now_ms: u64) -> String {
    at_ms.map_or_else(|| "-".into(), |at_ms| text::distance(at_ms, now_ms))
}

#[cfg(test)]
#[path = "print_tests.rs"]
mod tests;
