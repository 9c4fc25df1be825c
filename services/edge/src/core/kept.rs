//! What a core knows of a session that the store keeps, while it has a connection.
//!
//! A session is *live* when each message that matches comes to it as a copy from the publisher, before it is stored. One that has
//! just come back, or does not keep up, is *behind*: its messages are read from the store, page by page, as fast as the
//! client takes them. It becomes live again like this: it holds the live copies that come; a *fence* makes sure that every
//! message that was routed before it held them is committed; it reads once more, beyond that; then it goes on with the
//! copies it held, without those it has read. Should it hold too much meanwhile, it drops all of that and begins again.
//!
//! Where other pods write to the same store a session is never live: what this pod hands out, and when, says nothing of the order of
//! their commits. It *follows*: it reads on whenever one of its streams may have grown, but for what comes to it as a copy of what is
//! committed, see [`super::committed`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::streams::{Source, StreamId};
use millrace_mqtt::{PacketId, QoS, topic};
use millrace_session::{Delivery, Entry, Message};
use smallvec::SmallVec;

use super::committed::Ahead;
use super::unanswered::Unanswered;
use crate::jobs::PendingSubscribe;

/// Messages that are held for a session that is not live yet.
const HELD_MESSAGES_MAX: usize = 1_000;
/// Bytes of them.
const HELD_BYTES_MAX: usize = 1024 * 1024;
/// Places that are remembered without a look at the cursor.
const SEEN_MIN: usize = 64;

/// What a core knows of a session that the store keeps.
pub(super) struct Kept {
    sources: Vec<KeptSource>,
    /// Grows with each change: a page that was read before it is of no use.
    pub(super) sources_version: u32,
    /// Messages that the session got, in order, until they are stored.
    recent: VecDeque<Arc<Message>>,
    /// Places of messages that the session got, on earlier connections too: at least of those beyond its cursor.
    pub(super) seen: Vec<Position>,
    /// When there are so many, those that the cursor has passed are forgotten.
    seen_max: usize,
    pub(super) feed: Feed,
    /// SUBSCRIBE packets that wait for the store: until then nothing is sent, so that retained messages come first.
    pub(super) subscribing: u32,
    /// Those of them that are durable, and are answered when what came before copies of it came has been read.
    pub(super) unanswered: Vec<PendingSubscribe>,
    pub(super) unanswered_by_store: Unanswered,
    held: VecDeque<Held>,
    held_bytes: usize,
    /// All up to here was read before the session became live: what the core knows to be handed over may be behind that.
    read: Position,
    /// By address: in flight, or waiting, when the subscription they came by ended: they may stand in no stream that the session has.
    orphans: HashMap<usize, Arc<Message>>,
    /// Packet ids that stand in the store, with the places of their messages.
    pub(super) ids: Vec<(PacketId, Option<Position>)>,
    /// Messages that were acknowledged since the last checkpoint.
    pub(super) acknowledged: u32,
    /// Of one that follows: what it had without reading it.
    pub(super) ahead: Ahead,
}

/// A stream of the session.
pub(super) struct KeptSource {
    pub(super) filter: Box<str>,
    pub(super) source: Source,
}

/// Where the session's messages come from.
pub(super) enum Feed {
    Live,
    Behind(Behind),
}

/// A session that reads.
pub(super) struct Behind {
    /// All up to here was handed to the session.
    pub(super) through: Position,
    /// A page is on its way.
    pub(super) asked: bool,
    /// The last page found the end.
    pub(super) at_end: bool,
    /// How the way back to live stands.
    pub(super) way: Way,
    /// A stream may have grown since a page was asked for.
    pub(super) grown: bool,
}

impl Behind {
    pub(super) fn new(through: Position, way: Way) -> Self {
        Self { through, asked: false, at_end: false, way, grown: false }
    }
}

/// How the way back to live stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// There is more to read: live copies are dropped.
    Far,
    /// It will never be live: live copies are dropped, and what they announce is read.
    Follows,
    /// Live copies are held, and the fence is not passed.
    Fenced(u64),
    /// Live copies are held; whatever was routed before is committed up to here.
    Passed(Position),
}

/// A live copy that is held.
pub(super) struct Held {
    pub(super) message: Arc<Message>,
    pub(super) qos: QoS,
    pub(super) retain: bool,
    pub(super) shared: u64,
    pub(super) identifiers: SmallVec<[u32; 1]>,
}

impl Held {
    pub(super) fn new(delivery: &Delivery<'_>) -> Self {
        Self {
            message: delivery.message.clone(),
            qos: delivery.qos,
            retain: delivery.retain,
            shared: delivery.shared,
            identifiers: SmallVec::from_slice(delivery.identifiers),
        }
    }
}

/// What to do with a live copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    Deliver,
    Hold,
    /// It is, or will be, in the store.
    Drop,
}

impl Kept {
    /// A session that has nothing to read.
    pub(super) fn live(sources: Vec<KeptSource>) -> Self {
        Self {
            sources,
            sources_version: 0,
            recent: VecDeque::new(),
            seen: Vec::new(),
            seen_max: SEEN_MIN,
            feed: Feed::Live,
            subscribing: 0,
            unanswered: Vec::new(),
            unanswered_by_store: Unanswered::default(),
            held: VecDeque::new(),
            held_bytes: 0,
            read: Position::MIN,
            orphans: HashMap::new(),
            ids: Vec::new(),
            acknowledged: 0,
            ahead: Ahead::default(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.feed, Feed::Live)
    }

    /// What to do with a live copy of this many bytes.
    pub(super) fn take(&self, qos: QoS, bytes: usize) -> Take {
        let fits = self.held.len() < HELD_MESSAGES_MAX && self.held_bytes + bytes <= HELD_BYTES_MAX;
        match &self.feed {
            Feed::Live if self.subscribing == 0 => Take::Deliver,
            // Nothing is promised to what matches only a subscription that is not durable yet.
            Feed::Live => {
                if fits {
                    Take::Hold
                } else {
                    Take::Drop
                }
            }
            Feed::Behind(_) if qos == QoS::AtMostOnce && self.subscribing == 0 => Take::Deliver,
            Feed::Behind(Behind { way: Way::Far | Way::Follows, .. }) if qos > QoS::AtMostOnce => Take::Drop,
            // It has no place among what is read.
            Feed::Behind(Behind { way: Way::Follows, .. }) => Take::Deliver,
            Feed::Behind(_) => {
                if fits {
                    Take::Hold
                } else {
                    Take::Drop
                }
            }
        }
    }

    pub(super) fn hold(&mut self, held: Held) {
        self.held_bytes += held.message.size();
        self.held.push_back(held);
    }

    /// A live copy was dropped: what is held has a gap.
    pub(super) fn dropped(&mut self, handed_over: Position) {
        let handed_over = self.base(handed_over);
        // No page would have these.
        self.held.retain(|held| held.qos == QoS::AtMostOnce);
        self.held_bytes = self.held.iter().map(|held| held.message.size()).sum();
        match &mut self.feed {
            Feed::Behind(Behind { way: Way::Follows, .. }) => {}
            Feed::Behind(behind) => behind.way = Way::Far,
            Feed::Live => self.fall_behind(handed_over),
        }
    }

    /// The session does not keep up: from here on it reads. All up to `handed_over` was handed to it.
    pub(super) fn fall_behind(&mut self, handed_over: Position) {
        let through = handed_over.max(self.read);
        self.feed = Feed::Behind(Behind::new(through, Way::Far));
    }

    /// The session reads for always. All up to `through` was handed to it.
    pub(super) fn follow(&mut self, through: Position) {
        self.feed = Feed::Behind(Behind::new(through, Way::Follows));
    }

    /// A stream of the session may have grown. True when it is to be read now.
    pub(super) fn grow(&mut self) -> bool {
        let Feed::Behind(behind) = &mut self.feed else { return false };
        behind.at_end &= behind.asked;
        behind.grown = behind.asked;
        !behind.asked
    }

    /// Whether the session reads no further before its new subscriptions are known.
    pub(super) fn waits_for_subscribe(&self) -> bool {
        self.follows() && self.subscribing > 0
    }

    pub(super) fn follows(&self) -> bool {
        matches!(self.feed, Feed::Behind(Behind { way: Way::Follows, .. }))
    }

    /// Whether a session that follows has read to the end, and a message that is committed at `place` comes after that.
    pub(super) fn is_next(&self, place: Position) -> bool {
        let Feed::Behind(Behind { through, asked: false, at_end: true, way: Way::Follows, grown: false }) =
            &self.feed
        else {
            return false;
        };
        // What a subscription counts from may be later than what was read.
        let since = self.sources.iter().map(|kept| Position::end_of(kept.source.since)).max();
        self.subscribing == 0 && place > *through && since.is_none_or(|since| place > since)
    }

    /// Whether a session that follows has read up to `place`.
    pub(super) fn has_read(&self, place: Position) -> bool {
        matches!(&self.feed, Feed::Behind(behind) if place <= behind.through)
    }

    /// The session got a message. `open`: what the client has not acknowledged.
    pub(super) fn got<'e>(
        &mut self,
        message: &Arc<Message>,
        handed_over: Position,
        open: impl Iterator<Item = &'e Entry>,
    ) {
        self.recent.push_back(message.clone());
        self.note_places(handed_over, open);
    }

    /// Of what is stored only the place is remembered, and that until the cursor has passed it: messages come live in another order
    /// than that of their places, so an older one may still be open.
    fn note_places<'e>(&mut self, handed_over: Position, open: impl Iterator<Item = &'e Entry>) {
        while let Some(first) = self.recent.pop_front_if(|first| first.is_placed()) {
            self.seen.extend(first.place().map(Position));
        }
        if self.seen.len() >= self.seen_max {
            let cursor = self.cursor(handed_over, open);
            self.seen.retain(|seen| *seen > cursor);
            self.seen_max = SEEN_MIN.max(2 * self.seen.len());
        }
    }

    /// Places beyond what was read, of messages that the session has had.
    pub(super) fn had(&self) -> HashSet<Position> {
        let Feed::Behind(Behind { through, .. }) = &self.feed else { return HashSet::new() };
        let recent = self.recent.iter().filter_map(|message| message.place()).map(Position);
        recent.chain(self.seen.iter().copied()).filter(|place| place > through).collect()
    }

    /// A page came: all up to here was handed over.
    pub(super) fn read_through(&mut self, through: Position, more: bool) {
        if let Feed::Behind(behind) = &mut self.feed {
            behind.through = behind.through.max(through);
            self.ahead.taken = 0;
            (behind.asked, behind.at_end) = (false, !more && !behind.grown);
            behind.grown = false;
        }
    }

    /// Becomes live. Gives what was held and not read.
    pub(super) fn go_live(&mut self) {
        let Feed::Behind(behind) = &self.feed else { return };
        let through = behind.through;
        self.held.retain(|held| {
            let message = &held.message;
            !message.is_refused() && message.place().is_none_or(|place| Position(place) > through)
        });
        self.held_bytes = self.held.iter().map(|held| held.message.size()).sum();
        self.read = through;
        self.feed = Feed::Live;
    }

    /// Gives what is held, once nothing is in its way.
    pub(super) fn take_held(&mut self) -> VecDeque<Held> {
        if self.subscribing > 0 || !matches!(self.feed, Feed::Live) {
            return VecDeque::new();
        }
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    /// Gives what is held and stands in no stream, for no page will have it: it was published before the subscription was durable,
    /// or with QoS 0. What its publishers sent later may be in a page.
    pub(super) fn take_unstored(&mut self) -> VecDeque<Held> {
        if self.subscribing > 0 {
            return VecDeque::new();
        }
        let is_unstored = |held: &Held| {
            let message = &held.message;
            held.qos == QoS::AtMostOnce || message.is_placed() && message.place().is_none()
        };
        // The publisher of a refused message sends it again, behind others that this session has not had (P4).
        let held = std::mem::take(&mut self.held).into_iter().filter(|held| !held.message.is_refused());
        let (unstored, held): (VecDeque<Held>, _) = held.partition(is_unstored);
        self.held = held;
        self.held_bytes = self.held.iter().map(|held| held.message.size()).sum();
        unstored
    }

    /// All up to here is acknowledged. `handed_over`: all up to there was handed to live sessions.
    pub(super) fn cursor<'e>(
        &self,
        handed_over: Position,
        open: impl Iterator<Item = &'e Entry>,
    ) -> Position {
        let places =
            open.filter(|entry| !entry.replay && entry.shared == 0).filter_map(|entry| entry.message.place());
        let first = places.map(|place| Position(place).before()).min();
        first.map_or(self.base(handed_over), |first| first.min(self.base(handed_over)))
    }

    /// What was acknowledged beyond the cursor.
    pub(super) fn acknowledged_beyond<'e>(
        &self,
        cursor: Position,
        open: impl Iterator<Item = &'e Entry>,
    ) -> Vec<Position> {
        if self.seen.is_empty() {
            return Vec::new();
        }
        let open: HashSet<Position> = open.filter_map(|entry| entry.message.place()).map(Position).collect();
        self.seen.iter().copied().filter(|seen| *seen > cursor && !open.contains(seen)).collect()
    }

    /// All up to here was handed to the session.
    pub(super) fn base(&self, handed_over: Position) -> Position {
        match &self.feed {
            // What is held while it subscribes was not.
            Feed::Live => {
                let held = self.held.iter().filter_map(|held| held.message.place());
                held.map(|place| Position(place).before()).fold(handed_over.max(self.read), Position::min)
            }
            Feed::Behind(behind) => behind.through,
        }
    }

    /// A subscription has become durable. The session reads what was stored for it before copies of it came: it is behind
    /// until a fence is passed.
    pub(super) fn add_source(&mut self, added: KeptSource, handed_over: Position) {
        self.remove_source(&added.filter);
        self.sources.push(added);
        self.sources_version += 1;
        if self.is_live() {
            let through = self.base(handed_over);
            self.feed = Feed::Behind(Behind { at_end: true, ..Behind::new(through, Way::Far) });
        }
    }

    pub(super) fn has_source(&self, filter: &str, source: Source) -> bool {
        self.sources.iter().any(|known| &*known.filter == filter && known.source == source)
    }

    pub(super) fn remove_source(&mut self, filter: &str) {
        self.sources.retain(|known| &*known.filter != filter);
        self.sources_version += 1;
    }

    /// Subscriptions have ended. `open`: what the client has not acknowledged.
    pub(super) fn end_sources<'e>(&mut self, ended: &[Box<str>], open: impl Iterator<Item = &'e Entry>) {
        let is_known = |filter: &&str| self.filters().any(|known| known == *filter);
        let known: Vec<&str> = ended.iter().map(|filter| &**filter).filter(is_known).collect();
        let open = open.map(|entry| &entry.message).chain(self.held.iter().map(|held| &held.message));
        let is_orphan = |message: &&Arc<Message>| {
            self.orphans.contains_key(&Arc::as_ptr(message).addr())
                || known.iter().any(|filter| topic::matches(filter, message.topic()))
        };
        let orphans = open.filter(is_orphan);
        self.orphans = orphans.map(|message| (Arc::as_ptr(message).addr(), message.clone())).collect();
        ended.iter().for_each(|filter| self.remove_source(filter));
    }

    pub(super) fn is_orphan(&self, message: &Arc<Message>) -> bool {
        self.orphans.contains_key(&Arc::as_ptr(message).addr())
    }

    pub(super) fn source(&self, number: usize) -> Option<&KeptSource> {
        self.sources.get(number)
    }

    pub(super) fn filters(&self) -> impl Iterator<Item = &str> {
        self.sources.iter().map(|known| &*known.filter)
    }

    pub(super) fn into_recent(self) -> (Vec<Arc<Message>>, Vec<Position>) {
        (self.recent.into(), self.seen)
    }

    /// What is read.
    pub(super) fn sources(&self) -> Vec<Source> {
        self.sources.iter().map(|kept| kept.source).collect()
    }

    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.sources.iter().map(|kept| kept.source.stream).collect()
    }
}
