//! The thread that reads streams for sessions that are behind, and trims the streams that have grown.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use millrace_layers::index;
use millrace_layers::streams::{self, Batch, ReadLimit, StreamId, Totals};
use millrace_layers::usage::{self, Counter};
use millrace_layers::{Error, Position};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{Entry, InFlight, Message, Place};
use millrace_storage::block_on;

use super::inflight::Row;
use super::jobs::{PageEntry, Reader};
use super::parts::{self, Part, Parts};
use super::queue::Taken;
use super::writer::may_pass;
use super::{Attached, Detach, Job, Page, Read, Shared, ToRead, Write, record};
use crate::broker::Broker;
use crate::mailbox::Mail;

/// Where a page ends.
const PAGE: ReadLimit = ReadLimit { entries: 500, bytes: 512 * 1024 };
/// How often it is looked for streams that are over their limits.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A stream is looked at when it got this part of its limit in messages, and all that got any are looked at now and then.
const LOOK_AT_PART: u64 = 8;
/// How often all are looked at.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(60);
/// Entries that one transaction trims.
const TRIM_ENTRIES: usize = 1000;
/// Things that one transaction sweeps.
const SWEPT: usize = 500;

/// What a thread takes at a time, where there are several.
const TAKEN: usize = 8;

/// Reads beside [`run`], until the queue is closed.
pub(super) fn help(shared: &Shared) {
    let (mut parts, mut unread) = (Parts::default(), Vec::new());
    while read_some(shared, &mut parts, &mut unread).is_some() {
        parts.clean(shared.clock.now());
    }
}

/// Until the queue is closed.
pub(super) fn run(shared: &Shared) {
    let (mut looked_at, mut looked_at_all) = (shared.clock.now(), shared.clock.now());
    let mut parts = Parts::default();
    // For sessions, of a store that does not answer.
    let mut unread = Vec::new();
    while let Some(is_there) = read_some(shared, &mut parts, &mut unread) {
        if !is_there {
            continue;
        }
        let now = shared.clock.now();
        parts.clean(now);
        if now >= looked_at + LOOK_EVERY.as_millis() as u64 {
            let all = now >= looked_at_all + LOOK_AT_ALL_EVERY.as_millis() as u64;
            trim(shared, all);
            if all {
                sweep(shared);
            }
            looked_at = now;
            looked_at_all = if all { now } else { looked_at_all };
        }
    }
}

/// Reads what waits. False when the store does not answer, `None` when the queue is closed.
fn read_some(shared: &Shared, parts: &mut Parts, unread: &mut Vec<ToRead>) -> Option<bool> {
    let mut reads = std::mem::take(unread);
    let most = if shared.is_shared { TAKEN } else { usize::MAX };
    match shared.reads.take_some(LOOK_EVERY, most) {
        Taken::Work(more) => reads.extend(more),
        Taken::Nothing => {}
        Taken::Closed => return None,
    }
    let mut is_away = false;
    for read in reads {
        match read {
            // Each would wait for it anew.
            ToRead::Page(read) if is_away && matches!(read.reader, Reader::Session(..)) => {
                unread.push(ToRead::Page(read));
            }
            ToRead::Page(read) => {
                let later = answer(shared, parts, read);
                is_away |= later.is_some();
                unread.extend(later.map(ToRead::Page));
            }
            ToRead::Broker { core, name } => open(shared, core, name),
        }
    }
    Some(!is_away)
}

/// Reads a broker, and tells who asked.
fn open(shared: &Shared, core: u16, name: Arc<str>) {
    let opened = shared.open(&name);
    if let (Some(region), Ok(Some(broker))) = (&shared.region, &opened) {
        return region.when_joined(broker, core, name);
    }
    let opened = opened.map(|broker| broker.is_some());
    if let Err(error) = &opened {
        tracing::error!(%error, broker = &*name, "a broker cannot be read; its clients are told to come back");
    }
    shared.mailboxes[usize::from(core)].deliver(&mut vec![Mail::Opened(name, opened.ok())], 0);
}

/// Returns what a session has to be read later, for the store does not answer now.
fn answer(shared: &Shared, parts: &mut Parts, read: Read) -> Option<Read> {
    let Read { core, broker, sources, cursor, reader } = read;
    // Up to here all places are set: who reads knows what it has had live.
    let through = if shared.is_shared {
        // Nobody has anything live.
        Position::MAX
    } else {
        Position::end_of(shared.through.load(Ordering::Acquire))
    };
    let streams = Streams { shared, broker: &broker, sources: &sources };
    let page = streams.page(parts, cursor, through);
    if let (Err(error), Reader::Session(..)) = (&page, &reader)
        && may_pass(error)
    {
        return Some(Read { core, broker, sources, cursor, reader });
    }
    if let Err(error) = &page {
        tracing::error!(%error, "a session's messages cannot be read");
    }
    let mail = match reader {
        Reader::Session(target, version) => Mail::Page(target, version, page.ok()),
        Reader::Connection(connection, mut attached) => {
            let session = (broker.clone(), attached.client.clone());
            let standing = attached.rows.iter().map(|(id, _)| id.get()).collect();
            let resolved = page.and_then(|page| Ok((streams.resolve(&mut attached)?, page)));
            if let Ok((in_flight, page)) = resolved {
                attached.in_flight = in_flight;
                Mail::Attached(connection, session, Some((attached, Some(page))))
            } else {
                // Nobody has it: it is left as it was.
                let now_ms = shared.clock.unix_now_ms();
                let detach = Detach { standing, ..Detach::unused(broker.clone(), *attached, now_ms) };
                shared.writes.push(&mut vec![Job { write: Write::Detach(Box::new(detach)), ack: None }]);
                Mail::Attached(connection, session, None)
            }
        }
    };
    shared.mailboxes[usize::from(core)].deliver(&mut vec![mail], 0);
    None
}

/// The streams of one session.
struct Streams<'a> {
    shared: &'a Shared,
    broker: &'a Broker,
    sources: &'a [streams::Source],
}

impl Streams<'_> {
    fn read(&self, sources: &[streams::Source], cursor: Position, limit: ReadLimit) -> Result<Batch, Error> {
        let broker = self.broker.id;
        block_on(self.shared.layers.run(async |tx| streams::read(&tx, broker, sources, cursor, limit).await))
    }

    fn page(&self, parts: &mut Parts, cursor: Position, through: Position) -> Result<Page, Error> {
        let subscribed = &self.broker.streams;
        let is_common = |source: &streams::Source| subscribed.subscribers(source.stream) > 1;
        let (common, own): (Vec<usize>, Vec<usize>) =
            (0..self.sources.len()).partition(|number| is_common(&self.sources[*number]));
        let mut found = Found { through: Position::MAX, ..Found::default() };
        if !own.is_empty() || common.is_empty() {
            let sources: Vec<_> = own.iter().map(|number| self.sources[*number]).collect();
            let Batch { entries, through, more, missed } = self.read(&sources, cursor, PAGE)?;
            found.missed = missed.iter().map(|(_, missed)| missed.at_most).sum();
            found.ends(through, more);
            for entry in entries {
                let (message, publisher) = self.message(&entry)?;
                let sources = entry.sources.iter().map(|number| own[*number]).collect();
                found.entries.push((entry.position, (message, publisher, sources)));
            }
        }
        self.find_common(&common, cursor, parts, &mut found)?;
        if found.missed > 0 {
            let (broker, missed) = (self.broker.id, found.missed);
            let run =
                self.shared.layers.run(async |tx| usage::add(&tx, broker, Counter::MissedEntries, missed));
            block_on(run)?;
        }
        Ok(found.into_page(cursor, through))
    }

    /// What streams have that other sessions read too.
    fn find_common(
        &self,
        numbers: &[usize],
        cursor: Position,
        parts: &mut Parts,
        found: &mut Found,
    ) -> Result<(), Error> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (broker, now) = (self.broker.id, self.shared.clock.now());
        let rows = block_on(self.shared.layers.run(async |tx| {
            let mut rows = Vec::with_capacity(numbers.len());
            for number in numbers {
                let stream = self.sources[*number].stream;
                rows.push(streams::stream(&tx, broker, stream, millrace_storage::Read::Snapshot).await?);
            }
            Ok::<_, Error>(rows)
        }))?;
        for (number, row) in numbers.iter().zip(rows) {
            let source = self.sources[*number];
            let Some(row) = row else { continue };
            let from = cursor.max(Position::end_of(source.since));
            found.missed += row.missed_since(from).at_most;
            // What was trimmed is not handed out of memory either.
            let from = from.max(row.floor);
            let part = match parts.find((broker, source.stream), from, now) {
                Some(part) => part,
                None => {
                    let part = Arc::new(self.part(source.stream, from)?);
                    parts.keep((broker, source.stream), part.clone(), now);
                    part
                }
            };
            found.ends(part.through, part.more);
            found.entries.extend(
                part.following(from)
                    .iter()
                    .map(|entry| (entry.position, (entry.message.clone(), entry.publisher, vec![*number]))),
            );
        }
        Ok(())
    }

    fn part(&self, stream: StreamId, after: Position) -> Result<Part, Error> {
        let source = streams::Source { stream, since: 0 };
        let Batch { entries, through, more, .. } = self.read(&[source], after, PAGE)?;
        let entry = |entry: streams::Entry| {
            let (message, publisher) = self.message(&entry)?;
            Ok(parts::Entry { position: entry.position, message, publisher })
        };
        let entries = entries.into_iter().map(entry).collect::<Result<_, Error>>()?;
        Ok(Part { after, through, more, entries })
    }

    fn message(&self, entry: &streams::Entry) -> Result<(Arc<Message>, u64), Error> {
        let decoded = record::decode_entry(&entry.body, &self.shared.clock);
        let (message, publisher) = decoded.ok_or(Error::Corrupt("message"))?;
        message.set_place(Some(entry.position.0));
        Ok((Arc::new(message), publisher))
    }

    /// The messages that were in flight when the session was left. One that is no longer there was trimmed.
    fn resolve(&self, attached: &mut Attached) -> Result<Vec<(PacketId, InFlight)>, Error> {
        let rows = std::mem::take(&mut attached.rows);
        let place = |row: &Row| match row {
            Row::InStream { place, .. } => Some(*place),
            _ => None,
        };
        let mut places: Vec<Place> = rows.iter().filter_map(|(_, row)| place(row)).collect();
        places.sort_unstable();
        // They mostly stand one behind the other.
        let mut found: HashMap<Place, Arc<Message>> = HashMap::new();
        for at in &places {
            if found.contains_key(at) {
                continue;
            }
            let limit = ReadLimit { entries: places.len() - found.len(), bytes: PAGE.bytes };
            for entry in self.read(self.sources, Position(*at).before(), limit)?.entries {
                if places.binary_search(&entry.position.0).is_ok() {
                    found.insert(entry.position.0, self.message(&entry)?.0);
                }
            }
        }
        let in_flight = rows.into_iter().filter_map(|(id, row)| {
            let in_flight = match row {
                Row::Released(place) => InFlight::Released(place),
                Row::Whole(entry) => InFlight::Published(entry),
                Row::InStream { place, qos, retain, identifiers } => {
                    attached.acknowledged.push(Position(place));
                    let Some(message) = found.get(&place).cloned() else {
                        // Of a subscription that has ended, or trimmed. With QoS 2 the client may have it, and
                        // must be told that its id is free before it means another message.
                        let released = (id, InFlight::Released(Some(place)));
                        return (qos == QoS::ExactlyOnce).then_some(released);
                    };
                    InFlight::Published(Entry { message, qos, retain, replay: false, shared: 0, identifiers })
                }
            };
            if let InFlight::Released(Some(place)) = &in_flight {
                attached.acknowledged.push(Position(*place));
            }
            Some((id, in_flight))
        });
        let in_flight = in_flight.collect();
        attached.acknowledged.sort_unstable();
        Ok(in_flight)
    }
}

/// What was found in several streams.
#[derive(Default)]
struct Found {
    entries: Vec<(Position, PageEntry)>,
    /// Up to here all of them were read.
    through: Position,
    more: bool,
    missed: u64,
}

impl Found {
    /// Some were read up to here.
    fn ends(&mut self, through: Position, more: bool) {
        self.more |= more;
        self.through = self.through.min(through);
    }

    /// In commit order, each message once.
    fn into_page(mut self, cursor: Position, through: Position) -> Page {
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
        Page {
            entries: self.entries.into_iter().map(|(_, entry)| entry).collect(),
            through: self.through.min(through).max(cursor),
            more,
            missed: self.missed,
        }
    }
}

/// Holds the streams that have grown to their limits: the oldest messages go, and are counted.
fn trim(shared: &Shared, all: bool) {
    let limits = &shared.limits;
    let mut touched = Vec::new();
    shared.touched.lock().unwrap_or_else(PoisonError::into_inner).retain(|stream, messages| {
        // A message may be long.
        let is_due = all
            || *messages * LOOK_AT_PART >= u64::from(limits.queue_messages_max)
            || *messages * LOOK_AT_PART * u64::from(limits.packet_size_max) >= limits.queue_bytes_max;
        if is_due {
            touched.push(*stream);
        }
        !is_due
    });
    let keep = Totals { entries: limits.queue_messages_max.into(), bytes: limits.queue_bytes_max };
    let longest_ms = u64::from(limits.session_expiry_max_s) * 1000;
    let before_ms = shared.clock.unix_now_ms().saturating_sub(longest_ms);
    for (broker, stream) in touched {
        let Some(broker) = shared.brokers.by_id(broker) else { continue };
        match block_on(shared.layers.limit_stream(broker.id, stream, before_ms, keep, TRIM_ENTRIES)) {
            Ok(removed) => broker.counters[shared.mailboxes.len() + 1]
                .trimmed
                .add(usize::try_from(removed.entries).unwrap_or(0)),
            Err(error) => tracing::warn!(%error, "a stream could not be held to its limits"),
        }
    }
}

/// Removes what streams have left that nobody subscribes to any more, and long messages that no stream has any more.
fn sweep(shared: &Shared) {
    for broker in shared.brokers.all() {
        sweep_broker(shared, broker.id);
    }
}

fn sweep_broker(shared: &Shared, broker: u64) {
    let dropped = || block_on(shared.layers.run(async |tx| streams::sweep_dropped(&tx, broker, SWEPT).await));
    let changes = || block_on(shared.layers.run(async |tx| index::trim_changes(&tx, broker, SWEPT).await));
    let swept = until_nothing(dropped).and_then(|()| until_nothing(changes)).and_then(|()| {
        let mut bodies = Some(Position::MIN);
        while let Some(from) = bodies {
            let run = shared.layers.run(async |tx| streams::sweep_bodies(&tx, broker, from, SWEPT).await);
            bodies = block_on(run)?.next;
        }
        Ok(())
    });
    if let Err(error) = swept {
        tracing::warn!(%error, "what nobody needs any more stays in the store for now");
    }
}

/// Sweeps piece by piece, until a piece had nothing to remove.
fn until_nothing(piece: impl Fn() -> Result<usize, Error>) -> Result<(), Error> {
    while piece()? > 0 {}
    Ok(())
}
