//! The state of a connected session that is persistent: where its messages come from, and how far the client has acknowledged them.
//!
//! A session is *live* while it gets each matching message as a copy from the publisher, before the message is stored. A session
//! that has just connected, or does not keep up, reads its messages from the store, page by page, as fast as the client takes
//! them. To become live again, the session first holds the live copies that arrive. A barrier makes sure that every message that
//! was routed before is committed. Then the session reads once more up to that commit, and continues with the held copies that it
//! has not read. If it has to hold too much meanwhile, it drops the held copies and begins again.
//!
//! Where other pods write to the same store, a session is never live, because the order in which this pod delivers says nothing
//! about the order of their commits. It *follows* its streams: it reads whenever one of them may have grown, and delivers copies of
//! committed messages without reading them, see [`super::committed`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use millrace_layers::streams::{StreamId, StreamSource};
use millrace_layers::{Position, Positions};
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{Budget, Message, OutboxEntry};

use super::committed::LiveCopies;
use super::feed::{Feed, HeldMessage, ReadState, Take, Way};
use super::filter_set::FilterSet;
use super::held::HeldCopies;
use super::unanswered::Unanswered;
use crate::jobs::{PendingSubscribe, StoredPage, open_positions};

/// Ranges of delivered messages before those that follow from the base are removed.
const HAD_MIN: usize = 64;

/// The sources that pages are read from, made once for all pages: a session may have a thousand.
#[derive(Default)]
pub(super) struct PageSources {
    /// A page that was read for an older version is discarded.
    pub(super) version: u32,
    of_all: Option<Arc<[StreamSource]>>,
}

impl PageSources {
    fn change(&mut self) {
        self.version += 1;
        self.of_all = None;
    }
}

pub(super) struct PersistentSession {
    sources: Vec<FilterSource>,
    pub(super) page_sources: PageSources,
    /// Delivered messages, in order, until they are stored.
    recent: VecDeque<Arc<Message>>,
    /// Delivered messages, also on earlier connections: at least all beyond the base.
    pub(super) had: Positions,
    had_max: usize,
    /// A crashed owner of the session may have sent QoS 1 messages up to here.
    pub(super) maybe_sent: Position,
    pub(super) feed: Feed,
    /// Bytes of a message of the last page for which memory had no room, or 0. The session reads on when its client has taken others.
    pub(super) no_room_for: usize,
    /// SUBSCRIBE packets that wait for the store. Nothing is sent meanwhile, so that retained messages come first.
    pub(super) subscribing: u32,
    /// Durable SUBSCRIBE packets. Each is answered when the session has read the messages from before its live copies.
    pub(super) unanswered: Vec<PendingSubscribe>,
    /// Jobs that write former subscriptions back after a refusal.
    pub(super) writing_back: u32,
    pub(super) unanswered_by_store: Unanswered,
    held: HeldCopies,
    /// The session read everything up to here before it became live.
    read: Position,
    /// Messages, by address, that were in flight or queued when their subscription ended. No other stream of the session has them, or
    /// the search for one took too long (`true`).
    orphans: HashMap<usize, (Arc<Message>, bool)>,
    /// Whether a subscription has ended or was refused on this connection. Its stream may have the only copy of messages in flight.
    pub(super) has_ended_filters: bool,
    /// Packet ids in the store, with the positions of their messages.
    pub(super) ids: Vec<(PacketId, Option<Position>)>,
    /// Filters whose retained messages are due, see [`super::replays_due`].
    pub(super) due: HashSet<Box<str>, foldhash::fast::RandomState>,
    pub(super) acknowledged: u32,
    /// Only for sessions that follow their streams: messages delivered from copies but not yet read from the store.
    pub(super) live_copies: LiveCopies,
}

/// A filter of the session, and the stream that stores its messages.
pub(super) struct FilterSource {
    pub(super) filter: Box<str>,
    pub(super) source: StreamSource,
}

impl PersistentSession {
    pub(super) fn live(sources: Vec<FilterSource>) -> Self {
        Self {
            sources,
            page_sources: PageSources::default(),
            recent: VecDeque::new(),
            had: Positions::default(),
            had_max: HAD_MIN,
            maybe_sent: Position::MIN,
            feed: Feed::Live,
            no_room_for: 0,
            subscribing: 0,
            unanswered: Vec::new(),
            writing_back: 0,
            unanswered_by_store: Unanswered::default(),
            held: HeldCopies::default(),
            read: Position::MIN,
            orphans: HashMap::new(),
            has_ended_filters: false,
            ids: Vec::new(),
            due: HashSet::default(),
            acknowledged: 0,
            live_copies: LiveCopies::default(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.feed, Feed::Live)
    }

    /// Decides about a live copy: copies are held only while the session is about to become live or waits for the store.
    pub(super) fn take(&self, qos: QoS, bytes: usize, budget: Option<&Arc<Budget>>) -> Take {
        let fits = self.held.has_room(bytes, budget);
        match &self.feed {
            Feed::Live if self.subscribing == 0 => Take::Deliver,
            // A subscription that is not durable yet gives no right to the message.
            Feed::Live => {
                if fits {
                    Take::Hold
                } else {
                    Take::Drop
                }
            }
            Feed::Reading(_) if qos == QoS::AtMostOnce && self.subscribing == 0 => Take::Deliver,
            Feed::Reading(ReadState { way: Way::Far | Way::Follows, .. }) if qos > QoS::AtMostOnce => {
                Take::Drop
            }
            // The store does not have messages of QoS 0.
            Feed::Reading(ReadState { way: Way::Follows, .. }) => Take::Deliver,
            Feed::Reading(_) => {
                if fits {
                    Take::Hold
                } else {
                    Take::Drop
                }
            }
        }
    }

    pub(super) fn hold(&mut self, held: HeldMessage, budget: Option<&Arc<Budget>>) {
        self.held.push(held, budget);
    }

    /// A live copy was dropped, so the held copies have a gap. Returns how many of them were looked at.
    pub(super) fn dropped(&mut self, handed_over: Position) -> usize {
        let handed_over = self.base(handed_over);
        let looked_at = self.held.drop_stored();
        match &mut self.feed {
            Feed::Reading(ReadState { way: Way::Follows, .. }) => {}
            Feed::Reading(reading) => reading.way = Way::Far,
            Feed::Live => self.begin_reading(handed_over),
        }
        looked_at
    }

    /// Makes a session that does not keep up read from here on. It has got everything up to `handed_over`.
    pub(super) fn begin_reading(&mut self, handed_over: Position) {
        let through = handed_over.max(self.read);
        self.feed = Feed::Reading(ReadState::new(through, Way::Far));
    }

    /// The session has got everything up to `through`.
    pub(super) fn follow(&mut self, through: Position) {
        self.feed = Feed::Reading(ReadState::new(through, Way::Follows));
    }

    /// Notes that a stream of the session may have grown; returns true when the caller must read it now.
    pub(super) fn grow(&mut self) -> bool {
        let Feed::Reading(reading) = &mut self.feed else { return false };
        reading.at_end &= reading.asked;
        reading.grown = reading.asked;
        !reading.asked
    }

    pub(super) fn follows(&self) -> bool {
        matches!(self.feed, Feed::Reading(ReadState { way: Way::Follows, .. }))
    }

    pub(super) fn waits_for_fanouts(&self, up_to: u64) -> bool {
        matches!(self.feed, Feed::Reading(ReadState { way: Way::FansOut(number), .. }) if number == up_to)
    }

    /// Whether a following session has read to the end, and a message at the position `position` comes after that end.
    pub(super) fn is_next(&self, position: Position) -> bool {
        let Feed::Reading(reading) = &self.feed else { return false };
        if reading.way != Way::Follows || reading.asked || !reading.at_end || reading.grown {
            return false;
        }
        // A new subscription may begin later than the last position that was read.
        let since = self.sources.iter().map(|persistent| Position::end_of(persistent.source.since)).max();
        self.subscribing == 0 && position > reading.through && since.is_none_or(|since| position > since)
    }

    pub(super) fn has_read(&self, position: Position) -> bool {
        matches!(&self.feed, Feed::Reading(reading) if position <= reading.through)
    }

    /// Remembers of a stored message only the position, and that only until the base has passed it.
    pub(super) fn got(&mut self, message: &Arc<Message>, handed_over: Position) {
        self.recent.push_back(message.clone());
        while let Some(first) = self.recent.pop_front_if(|first| first.is_decided()) {
            if let Some(position) = first.position() {
                self.had.add(Position(position));
            }
        }
        if self.had.len() >= self.had_max {
            self.had.cut(self.base(handed_over));
            self.had_max = HAD_MIN.max(2 * self.had.len());
        }
    }

    pub(super) fn had(&self) -> Positions {
        let mut had = self.had.clone();
        let recent = self.recent.iter().filter_map(|message| message.position()).map(Position);
        recent.for_each(|position| had.add(position));
        had
    }

    pub(super) fn may_be_sent(&self, message: &Message) -> bool {
        message.position().is_some_and(|position| Position(position) <= self.maybe_sent)
    }

    /// A page was delivered: the session has got everything up to its end.
    pub(super) fn read_through(&mut self, page: &StoredPage) {
        if let Feed::Reading(reading) = &mut self.feed {
            // Messages that the session had on an earlier connection need not be read.
            reading.through = self.had.skip(reading.through.max(page.through));
            self.had.cut(reading.through);
            self.live_copies.taken = 0;
            (reading.asked, reading.at_end) = (false, !page.more && !reading.grown);
            reading.note_cuts(page.cuts);
            reading.grown = false;
        }
    }

    /// Held copies that the session has not read stay held for [`Self::take_held`].
    pub(super) fn go_live(&mut self) {
        let Feed::Reading(reading) = &self.feed else { return };
        let through = reading.through;
        self.held.drop_read(through);
        self.page_sources.of_all = None;
        self.read = through;
        self.feed = Feed::Live;
    }

    /// Returns the held copies once the session is live and no SUBSCRIBE waits.
    pub(super) fn take_held(&mut self) -> VecDeque<HeldMessage> {
        if self.subscribing > 0 || !matches!(self.feed, Feed::Live) {
            return VecDeque::new();
        }
        self.held.take()
    }

    /// Returns the held copies that no page will have: they were published with QoS 0, or before the subscription was durable. A page
    /// may have later messages of their publishers.
    pub(super) fn take_unstored(&mut self) -> VecDeque<HeldMessage> {
        if self.subscribing > 0 {
            return VecDeque::new();
        }
        self.held.take_unstored()
    }

    /// The cursor, up to which the client has acknowledged everything, and what it has acknowledged after the cursor.
    /// `open`: messages that it has not acknowledged. `handed_over`: live sessions have got everything up to there.
    pub(super) fn progress<'e>(
        &self,
        handed_over: Position,
        open: impl Iterator<Item = &'e OutboxEntry>,
    ) -> (Position, Positions) {
        self.had.progress(self.base(handed_over), open_positions(open))
    }

    /// Takes back what a refused checkpoint said; an id that is in use again is completed when that use is over.
    pub(super) fn take_back(&mut self, completed: Vec<PacketId>, replayed: Vec<Box<str>>) {
        let known: HashSet<PacketId> = self.ids.iter().map(|(id, _)| *id).collect();
        self.ids.extend(completed.into_iter().filter(|id| !known.contains(id)).map(|id| (id, None)));
        self.due.extend(replayed);
    }

    /// The session has got everything up to here.
    pub(super) fn base(&self, handed_over: Position) -> Position {
        match &self.feed {
            // Held copies were not delivered.
            Feed::Live => {
                let held = self.held.messages().filter_map(|message| message.position());
                held.map(|position| Position(position).before())
                    .chain(self.unanswered_by_store.read_from)
                    .fold(handed_over.max(self.read), Position::min)
            }
            Feed::Reading(reading) => reading.through,
        }
    }

    /// A live session reads again until a barrier is passed, because the store may have messages from
    /// before its first live copy.
    /// Returns whether any stream is new to the session.
    pub(super) fn add_sources(&mut self, added: Vec<FilterSource>, handed_over: Position) -> bool {
        let mut new: HashMap<Box<str>, StreamSource, foldhash::fast::RandomState> =
            added.iter().map(|added| (added.filter.clone(), added.source)).collect();
        self.sources.retain(|known| match new.get(&known.filter) {
            Some(source) if *source == known.source => {
                new.remove(&known.filter);
                true
            }
            Some(_) => false,
            None => true,
        });
        if new.is_empty() {
            return false;
        }
        self.sources.extend(added.into_iter().filter(|added| new.remove(&added.filter).is_some()));
        self.page_sources.change();
        if self.is_live() {
            let through = self.base(handed_over);
            self.feed = Feed::Reading(ReadState { at_end: true, ..ReadState::new(through, Way::Far) });
        }
        true
    }

    /// Ends the streams of these filters. Returns the work of finding the messages that may have no stream any more.
    /// `open`: messages that the client has not acknowledged.
    pub(super) fn end_sources<'e>(
        &mut self,
        ended: &[Box<str>],
        open: impl Iterator<Item = &'e OutboxEntry>,
    ) -> u64 {
        let ended: HashSet<&str, foldhash::fast::RandomState> =
            ended.iter().map(|filter| &**filter).collect();
        let open: Vec<_> = open.map(|entry| &entry.message).chain(self.held.messages()).collect();
        let known = FilterSet::new(self.filters().filter(|filter| ended.contains(filter)));
        let mut known = known.with_unknown(self.unknown_bytes(open.iter().copied()));
        // When it takes too long to find out, as many messages are orphans as a session may store whole.
        let orphan = |message: &Arc<Message>| {
            let address = Arc::as_ptr(message).addr();
            let is_unknown = match self.orphans.get(&address) {
                Some((_, is_unknown)) => Some(*is_unknown),
                None => match known.matches(message.topic()) {
                    Some(matches) => matches.then_some(false),
                    None => known.may_store_whole(message).then_some(true),
                },
            };
            is_unknown.map(|is_unknown| (address, (message.clone(), is_unknown)))
        };
        self.orphans = open.into_iter().filter_map(orphan).collect();
        self.has_ended_filters |= !ended.is_empty();
        self.sources.retain(|known| !ended.contains(&*known.filter));
        self.page_sources.change();
        known.work()
    }

    pub(super) fn is_orphan(&self, message: &Arc<Message>) -> bool {
        self.orphans.contains_key(&Arc::as_ptr(message).addr())
    }

    /// The filters of the streams that must have the messages in flight; `None` while no subscription has ended: then each
    /// message is in one of them.
    pub(super) fn streams_left<'m>(&self, open: impl Iterator<Item = &'m Arc<Message>>) -> Option<FilterSet> {
        self.has_ended_filters.then(|| FilterSet::new(self.filters()).with_unknown(self.unknown_bytes(open)))
    }

    fn unknown_bytes<'m>(&self, open: impl Iterator<Item = &'m Arc<Message>>) -> usize {
        let is_unknown = |message: &&Arc<Message>| {
            self.orphans.get(&Arc::as_ptr(message).addr()).is_some_and(|(_, is_unknown)| *is_unknown)
        };
        open.filter(is_unknown).map(|message| message.size()).sum()
    }

    pub(super) fn source(&self, number: usize) -> Option<&FilterSource> {
        self.sources.get(number)
    }

    pub(super) fn filters(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|known| &*known.filter)
    }

    pub(super) fn into_recent(self) -> (Vec<Arc<Message>>, Positions) {
        (self.recent.into(), self.had)
    }

    pub(super) fn sources(&mut self) -> Arc<[StreamSource]> {
        let sources = &self.sources;
        let make = || sources.iter().map(|persistent| persistent.source).collect();
        self.page_sources.of_all.get_or_insert_with(make).clone()
    }

    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.sources.iter().map(|persistent| persistent.source.stream).collect()
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Properties;
    use smallvec::SmallVec;

    use super::*;
    use crate::store::WHOLE_BYTES_MAX;

    fn entry(number: usize) -> OutboxEntry {
        let (qos, payload) = (QoS::AtLeastOnce, vec![b'.'; 900_000]);
        let topic = format!("t/{number}").into();
        let message = Arc::new(Message::new(topic, qos, false, Properties::EMPTY, &payload, 0));
        let identifiers = SmallVec::new();
        OutboxEntry { message, qos, retain: false, replay: false, maybe_sent: false, shared: 0, identifiers }
    }

    #[test]
    fn unsubscribes_that_are_too_much_work_store_half_of_what_a_session_may_store_whole() {
        // Each part has more levels than one answer may look at.
        let part = |part: usize| (0..101).map(move |number| format!("{part}/{number}{}", "/a".repeat(100)));
        let source = StreamSource { stream: 1, since: 0 };
        let sources = (0..3).flat_map(part);
        let sources = sources.map(|filter| FilterSource { filter: filter.into(), source }).collect();
        let mut persistent = PersistentSession::live(sources);
        let open: Vec<OutboxEntry> = (0..6).map(entry).collect();
        for number in 0..3 {
            let ended: Vec<Box<str>> = part(number).map(Into::into).collect();
            persistent.end_sources(&ended, open.iter());
            let orphans = open.iter().filter(|entry| persistent.is_orphan(&entry.message));
            let bytes: usize = orphans.map(|entry| entry.message.size()).sum();
            assert!((1..=WHOLE_BYTES_MAX / 2).contains(&bytes), "{bytes}");
        }
    }
}
