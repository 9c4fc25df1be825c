//! Pages of what sessions read: their streams merged in commit order. One transaction reads for many sessions at
//! once, because a store across a network takes time for each answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use futures_util::lock::Mutex;
use millrace_layers::streams::{self, ReadLimit, StreamBatch, StreamId};
use millrace_layers::usage::{self, Counter};
use millrace_layers::{LayerError, Position};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{InFlight, Message, OutboxEntry, StoredPosition};
use millrace_storage::Read::Snapshot;
use millrace_storage::{Transaction, block_on};

use super::inflight::InFlightRow;
use super::parts::{self, PartCache, StreamPart};
use super::writer::may_pass;
use super::{AttachedSession, DetachWrite, Job, StoreContext, StoredPage, StreamRead, Write, record};
use crate::broker::Broker;
use crate::jobs::{PageEntry, PageReader};
use crate::mailbox::Mail;

const PAGE: ReadLimit = ReadLimit { entries: 500, bytes: 512 * 1024 };

/// The in-flight messages of a session that is being attached, and the positions that it need not read again for
/// them.
type ResolvedInFlight = (Vec<(PacketId, InFlight)>, Vec<Position>);

/// Answers sessions with the next page of each. Returns the reads to repeat later, because the store does not answer
/// now.
pub(super) fn answer(
    shared: &StoreContext,
    parts: &mut PartCache,
    reads: Vec<StreamRead>,
) -> Vec<StreamRead> {
    if reads.is_empty() {
        return reads;
    }
    // Everything up to here is committed and has its position, so a session knows which of it was delivered live.
    let through = if shared.is_shared {
        // Sessions that share the store with other pods get nothing live before the commit.
        Position::MAX
    } else {
        Position::end_of(shared.through.load(Ordering::Acquire))
    };
    let parts = Mutex::new(parts);
    let found = block_on(shared.layers.run(async |tx| {
        let found = reads.iter().map(|read| {
            let streams = StreamReads { shared, tx: tx.clone(), parts: &parts, read, through };
            async move { streams.find().await }
        });
        let found = join_all(found).await;
        match found.iter().find_map(|found| found.as_ref().err().filter(|error| may_pass(error))) {
            // The store's failure concerns all of them.
            Some(error) => Err(error.clone()),
            None => Ok(found),
        }
    }));
    let found = found.unwrap_or_else(|error| reads.iter().map(|_| Err(error.clone())).collect());
    let mut mail: Vec<Vec<Mail>> = shared.mailboxes.iter().map(|_| Vec::new()).collect();
    let (mut later, mut missed) = (Vec::new(), HashMap::new());
    for (read, found) in reads.into_iter().zip(found) {
        match found {
            Err(error) if may_pass(&error) && matches!(read.reader, PageReader::Session(..)) => {
                later.push(read);
            }
            found => {
                if let Some((page, _)) = found.as_ref().ok().filter(|(page, _)| page.missed > 0) {
                    *missed.entry(read.broker.id).or_default() += page.missed;
                }
                mail[usize::from(read.core)].push(to_mail(shared, read, found));
            }
        }
    }
    for (mailbox, mut mail) in shared.mailboxes.iter().zip(mail).filter(|(_, mail)| !mail.is_empty()) {
        mailbox.deliver(&mut mail, 0);
    }
    for (broker, missed) in missed {
        count_missed(shared, broker, missed);
    }
    later
}

fn count_missed(shared: &StoreContext, broker: u64, missed: u64) {
    let run = shared.layers.run(async |tx| usage::add(&tx, broker, Counter::MissedEntries, missed));
    if let Err(error) = block_on(run) {
        tracing::warn!(%error, missed, "messages that sessions missed are left out of the broker's losses, because the store does not count them");
    }
}

fn to_mail(
    shared: &StoreContext,
    read: StreamRead,
    found: Result<(StoredPage, ResolvedInFlight), LayerError>,
) -> Mail {
    if let Err(error) = &found {
        tracing::error!(%error, "a session's messages cannot be read: its client is disconnected, and may connect again");
    }
    match read.reader {
        PageReader::Session(target, version) => Mail::Page(target, version, found.ok().map(|(page, _)| page)),
        PageReader::Connection(connection, mut attached) => {
            let session = (read.broker.clone(), attached.client.clone());
            let standing = attached.rows.iter().map(|(id, _)| id.get()).collect();
            attached.rows.clear();
            if let Ok((page, (in_flight, settled))) = found {
                attached.in_flight = in_flight;
                settled.into_iter().for_each(|position| attached.acknowledged.add(position));
                return Mail::Attached(connection, session, Some((attached, Some(page))));
            }
            // The connection is not served: its session goes back to the store unchanged.
            let now_ms = shared.clock.unix_now_ms();
            let detach = DetachWrite { standing, ..DetachWrite::unused(read.broker, *attached, now_ms) };
            shared.writes.push(&mut vec![Job { write: Write::Detach(Box::new(detach)), ack: None }]);
            Mail::Attached(connection, session, None)
        }
    }
}

struct StreamReads<'a, 'p> {
    shared: &'a StoreContext,
    tx: Transaction,
    parts: &'a Mutex<&'p mut PartCache>,
    read: &'a StreamRead,
    through: Position,
}

impl StreamReads<'_, '_> {
    async fn find(&self) -> Result<(StoredPage, ResolvedInFlight), LayerError> {
        let page = self.page().await?;
        let resolved = match &self.read.reader {
            PageReader::Session(..) => ResolvedInFlight::default(),
            PageReader::Connection(_, attached) => self.resolve(attached).await?,
        };
        Ok((page, resolved))
    }

    async fn stored(
        &self,
        sources: &[streams::StreamSource],
        cursor: Position,
        limit: ReadLimit,
    ) -> Result<StreamBatch, LayerError> {
        streams::read(&self.tx, self.broker().id, sources, cursor, limit).await
    }

    fn broker(&self) -> &Broker {
        &self.read.broker
    }

    async fn page(&self) -> Result<StoredPage, LayerError> {
        let StreamRead { sources, cursor, .. } = self.read;
        let subscribed = &self.broker().streams;
        let is_common = |source: &streams::StreamSource| subscribed.subscribers(source.stream) > 1;
        let (common, own): (Vec<usize>, Vec<usize>) =
            (0..sources.len()).partition(|number| is_common(&sources[*number]));
        let mut found = PageContent { through: Position::MAX, ..PageContent::default() };
        if !own.is_empty() || common.is_empty() {
            let sources: Vec<_> = own.iter().map(|number| sources[*number]).collect();
            let StreamBatch { entries, through, more, missed } = self.stored(&sources, *cursor, PAGE).await?;
            found.missed = missed.iter().map(|(_, missed)| missed.at_most).sum();
            found.ends(through, more);
            for entry in entries {
                let (message, publisher) = self.message(&entry)?;
                let sources = entry.sources.iter().map(|number| own[*number]).collect();
                found.entries.push((entry.position, (message, publisher, sources)));
            }
        }
        self.find_common(&common, &mut found).await?;
        Ok(found.into_page(*cursor, self.through))
    }

    /// Reads streams that other sessions read too, through the shared parts.
    async fn find_common(&self, numbers: &[usize], found: &mut PageContent) -> Result<(), LayerError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (broker, cursor, now) = (self.broker().id, self.read.cursor, self.shared.clock.now());
        let now_through = Position::end_of(self.tx.read_version().await?);
        let streams = numbers.iter().map(|number| self.read.sources[*number].stream);
        let rows = join_all(streams.map(|stream| streams::stream(&self.tx, broker, stream, Snapshot))).await;
        for (number, row) in numbers.iter().zip(rows) {
            let source = self.read.sources[*number];
            let Some(row) = row? else { continue };
            let from = cursor.max(Position::end_of(source.since));
            found.missed += row.missed_since(from).at_most;
            // Trimmed messages are not delivered from memory either.
            let from = from.max(row.floor);
            // A second reader waits here, and finds what the first one has read.
            let mut parts = self.parts.lock().await;
            let part = match parts.find((broker, source.stream), from, now) {
                Some(part) => part,
                None => {
                    let part = Arc::new(self.part(source.stream, from).await?);
                    parts.keep((broker, source.stream), part.clone(), now);
                    part
                }
            };
            drop(parts);
            // A part read a moment ago lacks later commits, and a session that follows must read to the present end.
            let is_old = self.shared.is_shared && part.through < now_through;
            found.ends(part.through, part.more || is_old);
            found.entries.extend(
                part.following(from)
                    .iter()
                    .map(|entry| (entry.position, (entry.message.clone(), entry.publisher, vec![*number]))),
            );
        }
        Ok(())
    }

    async fn part(&self, stream: StreamId, after: Position) -> Result<StreamPart, LayerError> {
        let source = streams::StreamSource { stream, since: 0 };
        let StreamBatch { entries, through, more, .. } = self.stored(&[source], after, PAGE).await?;
        let entry = |entry: streams::StreamEntry| {
            let (message, publisher) = self.message(&entry)?;
            Ok(parts::PartEntry { position: entry.position, message, publisher })
        };
        let entries = entries.into_iter().map(entry).collect::<Result<_, LayerError>>()?;
        Ok(StreamPart { after, through, more, entries })
    }

    fn message(&self, entry: &streams::StreamEntry) -> Result<(Arc<Message>, u64), LayerError> {
        let decoded = record::decode_entry(&entry.body, &self.shared.clock);
        let (message, publisher) = decoded.ok_or(LayerError::Corrupt("message"))?;
        message.set_position(Some(entry.position.0));
        Ok((Arc::new(message), publisher))
    }

    /// The messages that were in flight when the session was detached; trimmed messages are missing.
    async fn resolve(&self, attached: &AttachedSession) -> Result<ResolvedInFlight, LayerError> {
        let position = |row: &InFlightRow| match row {
            InFlightRow::InStream { position, .. } => Some(*position),
            _ => None,
        };
        let mut positions: Vec<StoredPosition> =
            attached.rows.iter().filter_map(|(_, row)| position(row)).collect();
        positions.sort_unstable();
        // In-flight messages mostly stand one behind the other.
        let mut found: HashMap<StoredPosition, Arc<Message>> = HashMap::new();
        let mut through = Position::MIN;
        for at in &positions {
            if Position(*at) <= through {
                continue;
            }
            let limit = ReadLimit { entries: positions.len() - found.len(), bytes: PAGE.bytes };
            let batch = self.stored(&self.read.sources, Position(*at).before(), limit).await?;
            through = batch.through;
            for entry in batch.entries {
                if positions.binary_search(&entry.position.0).is_ok() {
                    found.insert(entry.position.0, self.message(&entry)?.0);
                }
            }
        }
        let mut settled = Vec::new();
        let in_flight = attached.rows.iter().cloned().filter_map(|(id, row)| {
            let in_flight = match row {
                InFlightRow::Released(position) => InFlight::Released(position),
                InFlightRow::Whole(entry) => InFlight::Published(entry),
                InFlightRow::Unsent(entry) => InFlight::Unsent(entry),
                InFlightRow::InStream { position, qos, retain, identifiers } => {
                    settled.push(Position(position));
                    let Some(message) = found.get(&position).cloned() else {
                        // The message was trimmed, or its subscription ended. With QoS 2 the client may have the
                        // message, so it must release the packet id before the id is used for another one.
                        let released = (id, InFlight::Released(Some(position)));
                        return (qos == QoS::ExactlyOnce).then_some(released);
                    };
                    let (replay, maybe_sent) = (false, false);
                    InFlight::Published(OutboxEntry {
                        message,
                        qos,
                        retain,
                        replay,
                        maybe_sent,
                        shared: 0,
                        identifiers,
                    })
                }
            };
            if let InFlight::Released(Some(position)) = &in_flight {
                settled.push(Position(*position));
            }
            Some((id, in_flight))
        });
        let in_flight = in_flight.collect();
        Ok((in_flight, settled))
    }
}

#[derive(Default)]
struct PageContent {
    entries: Vec<(Position, PageEntry)>,
    /// All streams were read up to here.
    through: Position,
    more: bool,
    missed: u64,
}

impl PageContent {
    /// A stream was read up to `through`.
    fn ends(&mut self, through: Position, more: bool) {
        self.more |= more;
        self.through = self.through.min(through);
    }

    fn into_page(mut self, cursor: Position, through: Position) -> StoredPage {
        self.entries.sort_by_key(|(position, _)| *position);
        self.entries.dedup_by(|(later, (_, _, sources)), (position, (_, _, all))| {
            let is_same = later == position;
            if is_same {
                all.append(sources);
            }
            is_same
        });
        if let Some((last, _)) = self.entries.get(PAGE.entries - 1) {
            self.through = self.through.min(*last);
        }
        let read = self.entries.partition_point(|(position, _)| *position <= self.through);
        let more = self.more || read < self.entries.len();
        let settled = self.entries.partition_point(|(position, _)| *position <= self.through.min(through));
        self.entries.truncate(settled);
        StoredPage {
            entries: self.entries.into_iter().map(|(_, entry)| entry).collect(),
            through: self.through.min(through).max(cursor),
            more,
            missed: self.missed,
            compared: 0,
        }
    }
}
