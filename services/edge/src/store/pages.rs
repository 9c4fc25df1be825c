//! Pages of what sessions read: their streams merged in commit order. One transaction reads for many sessions at
//! once, because a store across a network takes time for each answer.

mod common;
mod in_flight;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use futures_util::lock::Mutex;
use millrace_layers::streams::{self, ReadLimit, StreamBatch};
use millrace_layers::usage::{self, Counter};
use millrace_layers::{LayerError, Position};
use millrace_session::Message;
use millrace_storage::{Transaction, block_on};

use self::in_flight::ResolvedInFlight;
use super::parts::PartCache;
use super::reader::SOURCES_AT_ONCE;
use super::writer::may_pass;
use super::{DetachWrite, Job, StoreContext, StoredPage, StreamRead, Write, record};
use crate::broker::Broker;
use crate::jobs::{FoundInFlight, PageEntry, PageReader};
use crate::mailbox::Mail;

const PAGE: ReadLimit = ReadLimit { entries: 500, bytes: 512 * 1024 };

/// A read that is too old by itself is repeated with this part (1/n) of the entries, up to [`CUTS_MAX`] times.
const FEWER: usize = 8;
const CUTS_MAX: u8 = 2;

fn entries_of(cuts: u8) -> usize {
    PAGE.entries / FEWER.pow(u32::from(cuts))
}

enum Found {
    Page(StoredPage, ResolvedInFlight),
    /// Some of the messages in flight; the rest takes further transactions.
    Part(FoundInFlight),
}

/// Answers sessions with the next page of each. Returns the reads to repeat later, because the store does not answer
/// now.
pub(super) fn answer(
    shared: &StoreContext,
    parts: &mut PartCache,
    reads: Vec<StreamRead>,
) -> Vec<StreamRead> {
    let (mut later, mut batches) = (Vec::new(), VecDeque::from([reads]));
    while let Some(mut reads) = batches.pop_front() {
        if reads.is_empty() {
            continue;
        }
        let found = match find(shared, parts, &reads) {
            Err(LayerError::Contended(_)) if reads.len() > 1 => {
                let rest = reads.split_off(reads.len() / 2);
                batches.extend([reads, rest]);
                continue;
            }
            Err(LayerError::Contended(_)) if reads[0].cuts < CUTS_MAX => {
                reads[0].cuts += 1;
                batches.push_back(reads);
                continue;
            }
            Err(error) => reads.iter().map(|_| Err(error.clone())).collect(),
            Ok(found) => found,
        };
        later.extend(post(shared, reads, found));
        if !later.is_empty() {
            later.extend(batches.drain(..).flatten());
        }
    }
    later
}

/// Reads in one transaction, which is not repeated after it became too old.
fn find(
    shared: &StoreContext,
    parts: &mut PartCache,
    reads: &[StreamRead],
) -> Result<Vec<Result<Found, LayerError>>, LayerError> {
    // Everything up to here is committed and has its position, so a session knows which of it was delivered live.
    let through = if shared.is_shared {
        // Sessions that share the store with other pods get nothing live before the commit.
        Position::MAX
    } else {
        Position::end_of(shared.through.load(Ordering::Acquire))
    };
    let entries = if let [alone] = reads { entries_of(alone.cuts) } else { PAGE.entries };
    let (parts, sources) = (Mutex::new(parts), SOURCES_AT_ONCE * entries / PAGE.entries);
    block_on(shared.layers.run_piece(2, async |tx| {
        let work = Cell::new(sources);
        let found = reads.iter().map(|read| {
            let (tx, parts, work, entries) = (tx.clone(), &parts, &work, entries_of(read.cuts));
            let limit = ReadLimit { entries, bytes: PAGE.bytes * entries / PAGE.entries };
            let streams = StreamReads { shared, tx, parts, read, through, limit, work };
            async move { streams.find().await }
        });
        let found = join_all(found).await;
        match found.iter().find_map(|found| found.as_ref().err().filter(|error| may_pass(error))) {
            // The store's failure concerns all of them.
            Some(error) => Err(error.clone()),
            None => Ok(found),
        }
    }))
}

fn post(
    shared: &StoreContext,
    reads: Vec<StreamRead>,
    found: Vec<Result<Found, LayerError>>,
) -> Vec<StreamRead> {
    let mut mail: Vec<Vec<Mail>> = shared.mailboxes.iter().map(|_| Vec::new()).collect();
    let (mut later, mut unfinished, mut missed) = (Vec::new(), Vec::new(), HashMap::new());
    for (mut read, found) in reads.into_iter().zip(found) {
        let found = match (found, &mut read.reader) {
            (Err(error), PageReader::Session(..))
                if may_pass(&error) && !matches!(error, LayerError::Contended(_)) =>
            {
                later.push(read);
                continue;
            }
            (Ok(Found::Part(part)), reader) => {
                if let PageReader::Connection(_, _, known) = reader {
                    known.through = part.through;
                    known.messages.extend(part.messages);
                }
                unfinished.push(read);
                continue;
            }
            (Ok(Found::Page(page, in_flight)), _) => Ok((page, in_flight)),
            (Err(error), _) => Err(error),
        };
        if let Some((page, _)) = found.as_ref().ok().filter(|(page, _)| page.missed > 0) {
            *missed.entry(read.broker.id).or_default() += page.missed;
        }
        mail[usize::from(read.core)].push(to_mail(shared, read, found));
    }
    for (mailbox, mut mail) in shared.mailboxes.iter().zip(mail).filter(|(_, mail)| !mail.is_empty()) {
        mailbox.deliver(&mut mail, 0);
    }
    for (broker, missed) in missed {
        count_missed(shared, broker, missed);
    }
    if !unfinished.is_empty() {
        shared.reads.push(&mut unfinished);
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
        PageReader::Session(target, version, _) => {
            Mail::Page(target, version, found.ok().map(|(page, _)| page))
        }
        PageReader::Connection(connection, mut attached, _) => {
            let session = (read.broker.clone(), attached.client.clone());
            if let Ok((page, (in_flight, settled))) = found {
                attached.rows.clear();
                attached.in_flight = in_flight;
                settled.into_iter().for_each(|position| attached.acknowledged.add(position));
                return Mail::Attached(connection, session, Some((attached, Some(page))));
            }
            // The connection is not served: its session goes back to the store unchanged.
            let now_ms = shared.clock.unix_now_ms();
            let detach = DetachWrite::unused(read.broker, *attached, now_ms);
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
    limit: ReadLimit,
    /// Sources that the transaction may still read for messages in flight.
    work: &'a Cell<usize>,
}

impl StreamReads<'_, '_> {
    async fn find(&self) -> Result<Found, LayerError> {
        let resolved = match &self.read.reader {
            PageReader::Session(..) => ResolvedInFlight::default(),
            PageReader::Connection(_, attached, known) => {
                let (found, is_whole) = self.find_in_flight(attached, known).await?;
                if !is_whole {
                    return Ok(Found::Part(found));
                }
                in_flight::resolve(attached, [known, &found])
            }
        };
        Ok(Found::Page(self.page().await?, resolved))
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
            let StreamBatch { entries, through, more, missed } =
                self.stored(&sources, *cursor, self.limit).await?;
            found.missed = missed.iter().map(|(_, missed)| missed.at_most).sum();
            found.ends(through, more);
            for entry in entries {
                let (message, publisher) = self.message(&entry)?;
                let sources = entry.sources.iter().map(|number| own[*number]).collect();
                found.entries.push((entry.position, (message, publisher, sources)));
            }
        }
        self.find_common(&common, &mut found).await?;
        let page = found.into_page(*cursor, self.through, self.limit.entries);
        Ok(StoredPage { cuts: self.read.cuts, ..page })
    }

    fn message(&self, entry: &streams::StreamEntry) -> Result<(Arc<Message>, u64), LayerError> {
        let decoded = record::decode_entry(&entry.body, &self.shared.clock);
        let (message, publisher) = decoded.ok_or(LayerError::Corrupt("message"))?;
        message.set_position(Some(entry.position.0));
        Ok((Arc::new(message), publisher))
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

    fn into_page(mut self, cursor: Position, through: Position, entries: usize) -> StoredPage {
        self.entries.sort_by_key(|(position, _)| *position);
        self.entries.dedup_by(|(later, (_, _, sources)), (position, (_, _, all))| {
            let is_same = later == position;
            if is_same {
                all.append(sources);
            }
            is_same
        });
        if let Some((last, _)) = self.entries.get(entries - 1) {
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
            ..StoredPage::default()
        }
    }
}

#[cfg(test)]
mod tests;
