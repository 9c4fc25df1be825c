//! Lists, shows and purges retained messages.

use std::time::Duration;

use millrace_edge::stored;
use millrace_layers::{BrokerId, retained};
use millrace_storage::{Host, Read, System, block_on};

use super::open_folder::{AnswerError, OpenFolder, RowSink};
use super::rows::{InspectRow, Payload, RetainedDetails, RetainedMessageRow};
use crate::running::LiveChanges;
use crate::text::{self, name};

const PAGE: usize = 200;

const HEAD_BYTES: usize = 48;

/// How long, and how often, the store is read until it shows a change by a running server.
const STORED_WITHIN: Duration = Duration::from_secs(10);
const READ_INTERVAL: Duration = Duration::from_millis(10);

pub(super) fn list(
    opened: &OpenFolder,
    broker: BrokerId,
    filter: Option<&str>,
    after: Option<&str>,
    limit: usize,
    out: RowSink<'_>,
) -> Result<Option<String>, AnswerError> {
    filter.map_or(Ok(()), check)?;
    let mut from = after.map(|topic| retained::Bookmark::after(broker, topic.as_bytes()));
    let (mut left, mut last) = (limit, None);
    loop {
        let page = page(opened, broker, filter, from.as_ref(), PAGE.min(left + 1))?;
        for item in page.items {
            if left == 0 {
                return Ok(last);
            }
            let message = decode(&item)?;
            let topic = name(&item.topic);
            last = Some(topic.clone());
            out(InspectRow::Retained(RetainedMessageRow {
                topic,
                qos: message.qos,
                expires_at_ms: message.expires_at_ms,
                payload_bytes: message.payload.len(),
                payload_head: text::head(&message.payload, HEAD_BYTES),
            }))?;
            left -= 1;
        }
        from = page.next;
        if from.is_none() {
            return Ok(None);
        }
    }
}

pub(super) fn show(
    opened: &OpenFolder,
    broker: BrokerId,
    topic: &str,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    let body =
        opened.run(|tx| async move { retained::get(&tx, broker, topic.as_bytes(), Read::Snapshot).await })?;
    let body = body.ok_or_else(|| not_found(topic))?;
    let item = retained::RetainedRow { topic: topic.as_bytes().to_vec().into(), body };
    let message = decode(&item)?;
    let escaped = |(name, value): (String, Vec<u8>)| (text::escape(name.as_bytes()), text::escape(&value));
    out(InspectRow::RetainedDetails(Box::new(RetainedDetails {
        topic: topic.into(),
        qos: message.qos,
        expires_at_ms: message.expires_at_ms,
        properties: message.properties.into_iter().map(escaped).collect(),
        payload_bytes: message.payload.len(),
        payload: Payload::new(message.payload),
    })))
}

pub(super) fn purge(
    opened: &OpenFolder,
    broker_name: &str,
    broker: BrokerId,
    filter: &str,
    out: RowSink<'_>,
) -> Result<(), AnswerError> {
    check(filter)?;
    let (mut from, mut found) = (None, false);
    loop {
        let page = page(opened, broker, Some(filter), from.as_ref(), PAGE)?;
        let purged = match &opened.live {
            Some(live) => clear_live(opened, &**live, (broker_name, broker), &page.items)?,
            None => clear_stored(opened, broker, &page.items)?,
        };
        found |= !purged.is_empty();
        for topic in purged {
            out(InspectRow::RetainedPurged { topic })?;
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    if found { Ok(()) } else { Err(not_found(filter)) }
}

fn clear_stored(
    opened: &OpenFolder,
    broker: BrokerId,
    items: &[retained::RetainedRow],
) -> Result<Vec<String>, AnswerError> {
    opened.run(|tx| async move {
        for item in items {
            retained::clear(&tx, broker, &item.topic).await?;
        }
        Ok(())
    })?;
    Ok(items.iter().map(|item| name(&item.topic)).collect())
}

fn clear_live(
    opened: &OpenFolder,
    live: &dyn LiveChanges,
    (broker_name, broker): (&str, BrokerId),
    items: &[retained::RetainedRow],
) -> Result<Vec<String>, AnswerError> {
    let mut purged = Vec::new();
    for item in items {
        let topic = name(&item.topic);
        if live.clear_retained(broker_name, &topic).map_err(AnswerError::Failed)? {
            purged.push(topic);
        }
    }
    // The server's writer takes jobs in order, so the last removal implies the others.
    match items.last() {
        Some(last) if !is_removed_in_time(opened, broker, last)? => Err(AnswerError::Failed(
            "clients do not get the messages any more, but the store has not removed them yet: see the server's log; \
             after a restart they may be back"
                .into(),
        )),
        _ => Ok(purged),
    }
}

/// True when the message is gone, or the store has a newer message of the topic.
fn is_removed_in_time(
    opened: &OpenFolder,
    broker: BrokerId,
    item: &retained::RetainedRow,
) -> Result<bool, AnswerError> {
    let (host, topic) = (System::new(), &item.topic);
    loop {
        let body = opened.run(|tx| async move { retained::get(&tx, broker, topic, Read::Snapshot).await })?;
        if body.as_ref() != Some(&item.body) {
            return Ok(true);
        }
        if host.now() > STORED_WITHIN {
            return Ok(false);
        }
        block_on(host.pause(READ_INTERVAL));
    }
}

fn page(
    opened: &OpenFolder,
    broker: BrokerId,
    filter: Option<&str>,
    from: Option<&retained::Bookmark>,
    limit: usize,
) -> Result<retained::RetainedPage, AnswerError> {
    opened.run(|tx| async move {
        match filter {
            Some(filter) => {
                retained::matching(&tx, broker, filter.as_bytes(), from, limit, Read::Snapshot).await
            }
            None => retained::all(&tx, broker, from, limit, Read::Snapshot).await,
        }
    })
}

fn decode(item: &retained::RetainedRow) -> Result<stored::DecodedMessage, AnswerError> {
    stored::retained(&name(&item.topic), &item.body).ok_or_else(|| {
        let topic = text::escape(&item.topic);
        AnswerError::Failed(format!(
            "the message of \"{topic}\" is of a format that this version does not know"
        ))
    })
}

/// Refuses an invalid filter, which might match by chance.
fn check(filter: &str) -> Result<(), AnswerError> {
    if stored::is_filter(filter) && !filter.starts_with("$share/") {
        return Ok(());
    }
    let filter = text::escape(filter.as_bytes());
    Err(AnswerError::Failed(format!(
        "\"{filter}\" is not a topic or a topic filter: + stands for one level, # for all levels at the end"
    )))
}

fn not_found(filter: &str) -> AnswerError {
    let topic = text::escape(filter.as_bytes());
    AnswerError::Failed(if stored::is_topic(filter) {
        format!("there is no retained message of the topic \"{topic}\"")
    } else {
        format!("there is no retained message that matches \"{topic}\"")
    })
}
