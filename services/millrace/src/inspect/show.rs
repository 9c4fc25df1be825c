//! Prints one session, stream or message in full, for people. The fields are those of `rows`.

use std::io::{self, Write};

use super::rows::{RetainedDetails, RowState, SessionDetailsRow, StreamDetails, SubscriptionRow};
use crate::terminal::table::{Align, Column, Table};
use crate::text;

const PAYLOAD_BYTES_MAX: usize = 4_096;

const SUBSCRIPTIONS: &[Column] = &[
    ("SUBSCRIPTION", Align::Left),
    ("QOS", Align::Right),
    ("OPTIONS", Align::Left),
    ("IDENTIFIER", Align::Right),
    ("STREAM", Align::Left),
];

const ENTRIES: &[Column] = &[
    ("POSITION", Align::Left),
    ("TIME", Align::Left),
    ("BYTES", Align::Right),
    ("TOPIC", Align::Left),
    ("PAYLOAD", Align::Left),
];

pub(super) fn session(out: &mut impl Write, details: &SessionDetailsRow, now_ms: u64) -> io::Result<()> {
    let session = &details.session;
    let since = session.offline_since_ms.map_or_else(String::new, |at_ms| text::time(at_ms, now_ms));
    let state = match session.state {
        RowState::Connected => "connected".into(),
        RowState::CutOff => "cut off: the server ended before the connection did".into(),
        RowState::Offline => format!("offline since {since}"),
        RowState::Expired => format!("expired, offline since {since}"),
    };
    let ends = match session.expires_at_ms {
        Some(at_ms) if session.state == RowState::Expired => format!(", ended {}", text::time(at_ms, now_ms)),
        Some(at_ms) => format!(", ends {}", text::time(at_ms, now_ms)),
        None => String::new(),
    };
    line(out, "client", &text::escape(session.client_id.as_bytes()))?;
    line(out, "state", &state)?;
    line(out, "expiry", &(expiry(session.expiry_s) + &ends))?;
    line(out, "waiting", &waiting(details, now_ms))?;
    if details.missed_at_most > 0 {
        let (least, most) = (details.missed_at_least, details.missed_at_most);
        let many = match least {
            0 => format!("up to {}", text::plural(most, "message", "messages")),
            least if least == most => text::plural(most, "message", "messages"),
            least => format!("{} to {} messages", text::count(least), text::count(most)),
        };
        line(out, "missed", &format!("{many}, removed by a limit before they were read"))?;
    }
    let will = details.will.as_ref().map_or_else(
        || "none".into(),
        |will| {
            let delay = text::duration(will.delay_s.into());
            format!("{}, to be published {delay} after the connection's end", text::bytes(will.bytes as u64))
        },
    );
    line(out, "will", &will)?;
    line(out, "from client", &packet_ids(&details.inbound_packet_ids))?;
    line(out, "to client", &packet_ids(&details.outbound_packet_ids))?;
    let after = match details.acknowledged_after_cursor {
        0 => String::new(),
        some => format!(", and {} after it acknowledged", text::plural(some as u64, "message", "messages")),
    };
    line(out, "cursor", &(details.cursor.clone() + &after))?;
    line(out, "epoch", &details.epoch.to_string())?;
    let mut table = Table::new(SUBSCRIPTIONS.to_vec());
    if !details.filters.is_empty() {
        writeln!(out)?;
    }
    for subscription in &details.filters {
        table.push(out, subscription_cells(subscription))?;
    }
    table.flush(out)
}

pub(super) fn stream(out: &mut impl Write, details: &StreamDetails, now_ms: u64) -> io::Result<()> {
    let stream = &details.stream;
    let oldest = stream.oldest_at_ms.map_or_else(|| "-".into(), |at_ms| text::time(at_ms, now_ms));
    line(out, "filter", &text::escape(stream.filter.as_bytes()))?;
    line(out, "id", &stream.id.to_string())?;
    line(out, "subscribers", &text::count(stream.subscribers))?;
    let held = text::plural(stream.messages, "message", "messages");
    line(out, "holds", &format!("{held}, {}", text::bytes(stream.bytes)))?;
    line(out, "oldest", &oldest)?;
    line(out, "partitions", &stream.partitions.to_string())?;
    line(out, "floor", &details.floor)?;
    let mut table = Table::new(ENTRIES.to_vec());
    if !details.first.is_empty() {
        writeln!(out)?;
    }
    for entry in &details.first {
        let cells = vec![
            entry.position.clone(),
            text::rfc3339(entry.at_ms),
            text::bytes(entry.bytes as u64),
            entry
                .topic
                .as_ref()
                .map_or_else(|| "(unknown format)".into(), |topic| text::escape(topic.as_bytes())),
            entry.head.clone(),
        ];
        table.push(out, cells)?;
    }
    table.flush(out)?;
    let left = stream.messages.saturating_sub(details.first.len() as u64);
    if left > 0 && !details.first.is_empty() {
        writeln!(out, "and {} more", text::count(left))?;
    }
    Ok(())
}

pub(super) fn retained(out: &mut impl Write, details: &RetainedDetails, now_ms: u64) -> io::Result<()> {
    let expires = details.expires_at_ms.map_or_else(|| "never".into(), |at_ms| text::time(at_ms, now_ms));
    line(out, "topic", &text::escape(details.topic.as_bytes()))?;
    line(out, "qos", &details.qos.to_string())?;
    line(out, "expires", &expires)?;
    for (name, value) in &details.properties {
        line(out, name, value)?;
    }
    line(out, "payload", &text::bytes(details.payload_bytes as u64))?;
    writeln!(out, "\n{}", text::head(&details.payload.bytes(), PAYLOAD_BYTES_MAX))?;
    if details.payload_bytes > PAYLOAD_BYTES_MAX {
        writeln!(out, "(only its beginning: --raw writes all of it)")?;
    }
    Ok(())
}

pub(super) fn expiry(seconds: Option<u32>) -> String {
    match seconds {
        None => "never".into(),
        Some(0) => "with its connection".into(),
        Some(seconds) => text::duration(seconds.into()),
    }
}

/// The count may have ended at its limit.
pub(super) fn at_least(number: u64, is_more: bool) -> String {
    text::count(number) + if is_more { "+" } else { "" }
}

fn waiting(details: &SessionDetailsRow, now_ms: u64) -> String {
    let session = &details.session;
    let Some(oldest_at_ms) = session.oldest_waiting_at_ms else { return "nothing".into() };
    let many = at_least(session.waiting, session.waiting_is_more);
    let noun = if many == "1" { "message" } else { "messages" };
    let bytes = text::bytes(session.waiting_bytes);
    format!("{many} {noun}, {bytes}; the oldest of {}", text::time(oldest_at_ms, now_ms))
}

fn packet_ids(ids: &[u16]) -> String {
    const SHOWN: usize = 20;
    if ids.is_empty() {
        return "nothing in flight".into();
    }
    let shown: Vec<String> = ids.iter().take(SHOWN).map(u16::to_string).collect();
    let more = match ids.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {} more", text::count(more as u64)),
    };
    format!("packet {} {}{more} in flight", if ids.len() == 1 { "id" } else { "ids" }, shown.join(", "))
}

fn subscription_cells(of: &SubscriptionRow) -> Vec<String> {
    let mut options = Vec::new();
    if of.no_local {
        options.push("no local");
    }
    if of.retain_as_published {
        options.push("retain as published");
    }
    match of.retain_handling {
        1 => options.push("retained only when new"),
        2 => options.push("no retained"),
        _ => {}
    }
    vec![
        text::escape(of.filter.as_bytes()),
        of.qos.to_string(),
        if options.is_empty() { "-".into() } else { options.join(", ") },
        if of.identifier == 0 { "-".into() } else { of.identifier.to_string() },
        of.stream.map_or_else(|| "none: nothing is kept".into(), |stream| stream.to_string()),
    ]
}

fn line(out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "{name:<12}  {value}")
}
