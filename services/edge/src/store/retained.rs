//! Retained messages for new subscriptions, where several pods share the store. They are read in pages, each in a
//! transaction of its own: so no transaction reads all of them, and none conflicts with a publisher. A message may
//! change between two pages, so each page remembers the position as of which it was read, see [`RetainedPages`].

mod queue;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use millrace_layers::retained::{self, Bookmark};
use millrace_layers::subscriptions::Subscribed;
use millrace_layers::{LayerError, Position, Store};
use millrace_router::TopicTree;
use millrace_session::Message;
use millrace_storage::Read::Snapshot;
use millrace_storage::block_on;

pub(super) use self::queue::RetainedQueue;
use super::writer::may_pass;
use super::{StoreContext, SubscribeWrite, record};
use crate::broker::retained_size;
use crate::clock::Clock;
use crate::jobs::replay::RetainedPages;
use crate::mailbox::Mail;

const PAGE: usize = 1_000;
/// Levels compared in a page, to find the topics that earlier filters of the same SUBSCRIBE have read; a page ends early after
/// them.
const COMPARED_MAX: usize = 64_000;
/// Estimated memory of a waiting SUBSCRIBE without its filters, bytes.
const SUBSCRIBE_BYTES: usize = 1024;
/// Estimated memory of each of its filters without the text, bytes.
const FILTER_BYTES: usize = 256;
const UNREAD: &str = "the retained messages cannot be read now";

/// Failures of the store in a row after which a SUBSCRIBE is refused.
const FAILURES_MAX: u32 = 5;
/// A page that failed is read again with this part (1/n) of its messages and reads.
const PART_AFTER_FAILURE: usize = 8;
const TAKEN: usize = 16;
/// How long the thread waits after a page that the store did not answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A durable SUBSCRIBE whose answer waits for the retained messages of its filters.
pub(crate) struct RetainedRead {
    subscribe: Box<SubscribeWrite>,
    subscribed: Vec<Option<Subscribed>>,
    /// Index of the filter being read, among the replays.
    at: usize,
    reader: RetainedReader,
    /// Since the last page.
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadStep {
    Done,
    More,
    Later,
}

impl RetainedRead {
    pub(super) fn new(subscribe: Box<SubscribeWrite>, subscribed: Vec<Option<Subscribed>>) -> Self {
        let reader = RetainedReader::new(RetainedPages::default());
        Self { subscribe, subscribed, at: 0, reader, failures: 0 }
    }

    fn broker(&self) -> u64 {
        self.subscribe.session.broker.id
    }

    fn is_gone(&self) -> bool {
        self.subscribe.pending.asker.strong_count() == 0
    }

    fn bytes(&self) -> usize {
        let pending = &self.subscribe.pending;
        let replayed = pending.replays.iter().map(|replay| &*replay.filter);
        let filters = replayed.chain(pending.in_memory.iter().map(|(filter, _)| &**filter));
        SUBSCRIBE_BYTES + filters.map(|filter| FILTER_BYTES + filter.len()).sum::<usize>()
    }

    fn read_bytes(&self) -> usize {
        self.reader.bytes
    }

    async fn step(&mut self, layers: &Store, clock: &Clock) -> Result<ReadStep, LayerError> {
        let replays = &mut self.subscribe.pending.replays;
        if self.at >= replays.len() {
            return Ok(ReadStep::Done);
        }
        if !self.reader.pages.has_filters() {
            let filters = replays.iter().map(|replay| replay.filter.clone()).collect();
            self.reader.pages = RetainedPages::new(self.subscribe.session.broker.id, filters);
        }
        match self.reader.read(layers, clock, self.at).await {
            Ok(is_last) => (self.at, self.failures) = (self.at + usize::from(is_last), 0),
            Err(error) if may_pass(&error) && self.failures + 1 < FAILURES_MAX => {
                self.failures += 1;
                return Ok(ReadStep::Later);
            }
            Err(error) => return Err(error),
        }
        if self.at < replays.len() {
            return Ok(ReadStep::More);
        }
        let over = RetainedReader::new(RetainedPages::default());
        let RetainedReader { tree, pages, .. } = std::mem::replace(&mut self.reader, over);
        let (retained, pages) = (tree.snapshot(), Arc::new(pages));
        for replay in replays {
            replay.retained = Some(retained.clone());
            replay.pages = pages.clone();
        }
        Ok(ReadStep::Done)
    }

    fn answer(self, shared: &StoreContext) {
        let core = usize::from(self.subscribe.target.core);
        shared.mailboxes[core].post(Mail::Subscribed(self.subscribe, self.subscribed));
    }

    fn refuse(mut self, shared: &StoreContext, what: &'static str) {
        self.subscribe.pending.is_refused = true;
        self.subscribe.pending.what = what;
        self.answer(shared);
    }
}

/// Reads the retained messages for a SUBSCRIBE, or refuses it if too many of its broker wait.
pub(super) fn read(shared: &StoreContext, read: RetainedRead) {
    if let Err(read) = shared.retained.push(read) {
        let broker = &*read.subscribe.session.broker.name;
        tracing::warn!(broker, "too many SUBSCRIBEs wait for retained messages; a SUBSCRIBE is refused");
        read.refuse(shared, "too many subscriptions of the broker wait for retained messages");
    }
}

/// The thread that reads retained messages. It has nothing else to do, so that neither pages of sessions nor
/// housekeeping wait for it. Runs until the queue is closed.
pub(super) fn run(shared: &StoreContext) {
    while let Some(reads) = shared.retained.take(TAKEN) {
        if !step_all(shared, reads) {
            shared.retained.pause(RETRY_AFTER);
        }
    }
}

/// Returns false if the store answered none of them.
fn step_all(shared: &StoreContext, mut reads: Vec<RetainedRead>) -> bool {
    let results = block_on(join_all(reads.iter_mut().map(|read| read.step(&shared.layers, &shared.clock))));
    let mut is_there = false;
    for (read, result) in reads.into_iter().zip(results) {
        match result {
            Ok(ReadStep::Done) => {
                is_there = true;
                read.answer(shared);
            }
            Ok(step) => {
                is_there |= step == ReadStep::More;
                shared.retained.push_again(read);
            }
            Err(error) => {
                is_there = true;
                tracing::error!(%error, "retained messages cannot be read; a SUBSCRIBE is refused");
                read.refuse(shared, UNREAD);
            }
        }
    }
    is_there
}

/// The retained messages of a SUBSCRIBE, as far as they are read; its filters share them.
struct RetainedReader {
    tree: TopicTree<Arc<Message>>,
    bytes: usize,
    pages: RetainedPages,
    from: Option<Bookmark>,
    limit: usize,
}

impl RetainedReader {
    fn new(pages: RetainedPages) -> Self {
        Self { tree: TopicTree::new(), bytes: 0, pages, from: None, limit: PAGE }
    }

    /// Reads a page of a filter; returns true after the last one.
    async fn read(&mut self, layers: &Store, clock: &Clock, at: usize) -> Result<bool, LayerError> {
        let limit = self.limit;
        let (broker, from) = (self.pages.broker(), self.from.as_ref());
        let filter = self.pages.filter(at).as_bytes();
        // At least 2, so that a page that is too old is tried again with fewer messages.
        let run = layers.run_piece(limit.max(2), async |tx| {
            let page = retained::matching(&tx, broker, filter, from, limit, Snapshot).await?;
            Ok((page, tx.read_version().await?))
        });
        let read = run.await;
        self.limit = match &read {
            Ok(_) => (2 * limit).min(PAGE),
            Err(_) => (limit / PART_AFTER_FAILURE).max(1),
        };
        let (page, version) = read?;
        let (mut next, mut compared) = (page.next, 0);
        for (number, item) in page.items.into_iter().enumerate() {
            if compared >= COMPARED_MAX {
                next = Some(Bookmark::at(broker, &item.topic));
                // The rest of the page is read again.
                self.limit = number;
                break;
            }
            let topic = std::str::from_utf8(&item.topic).map_err(|_| LayerError::Corrupt("topic"))?;
            let (is_read, work) = self.pages.is_of_earlier(at, topic);
            compared += work;
            if is_read {
                continue;
            }
            let message = record::decode(topic.into(), &item.body, clock);
            let message = Arc::new(message.ok_or(LayerError::Corrupt("message"))?);
            self.bytes += retained_size(&message) as usize;
            self.tree.insert(topic, message);
        }
        self.pages.push(at, next.clone(), Position::end_of(version));
        self.from = next;
        Ok(self.from.is_none())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU16;

    use bytes::Bytes;
    use millrace_mqtt::{Properties, QoS};
    use millrace_router::{Target, TreeStep, Walk};
    use millrace_storage::Database;

    use super::*;
    use crate::broker::Broker;
    use crate::jobs::replay::Replay;
    use crate::jobs::{PendingSubscribe, SessionKey};

    const BROKER: u64 = 1;

    /// The session that has sent a SUBSCRIBE, as long as it is there.
    pub(super) type Asker = Arc<()>;

    pub(super) fn subscribe(broker: u64, asker: &Asker, filters: &[&str]) -> RetainedRead {
        let mut pending = PendingSubscribe::new(Some(NonZeroU16::MIN));
        pending.asker = Arc::downgrade(asker);
        pending.replays = filters.iter().map(|filter| replay(filter)).collect();
        let session =
            SessionKey { broker: Arc::new(Broker::new(broker, "b", 1)), client: "c".into(), epoch: 1 };
        let target = Target { core: 0, slot: 0, generation: 1 };
        let subscribe = SubscribeWrite::new(session, target, Vec::new(), Vec::new(), pending);
        RetainedRead::new(Box::new(subscribe), Vec::new())
    }

    fn replay(filter: &str) -> Replay {
        let (qos, pages) = (QoS::AtMostOnce, Arc::default());
        Replay { filter: filter.into(), qos, identifier: 0, left_out: 0, before: None, retained: None, pages }
    }

    struct Retains {
        layers: Store,
        clock: Clock,
        /// Publishes since the subscription, with the position of each.
        live: Vec<(String, Position, String)>,
    }

    impl Retains {
        fn with(topics: usize, payload: &str) -> Self {
            let mut retains =
                Self { layers: Store::new(Database::memory()), clock: Clock::start(), live: Vec::new() };
            for topic in 0..topics {
                retains.publish(&format!("t/{topic:04}"), payload);
            }
            retains.live.clear();
            retains
        }

        /// An empty payload removes the retained message.
        fn publish(&mut self, topic: &str, payload: &str) {
            let message =
                Message::new(topic.into(), QoS::AtLeastOnce, true, Properties::EMPTY, payload.as_bytes(), 0);
            let body: Bytes = record::encode(&message, &self.clock).into();
            let version = block_on(async {
                let write = async |tx: millrace_storage::Transaction| match payload {
                    "" => retained::clear(&tx, BROKER, topic.as_bytes()).await,
                    _ => retained::set(&tx, BROKER, topic.as_bytes(), &body).await,
                };
                self.layers.run(write).await.unwrap();
                self.layers.run(async |tx| Ok(tx.read_version().await?)).await.unwrap()
            });
            self.live.push((topic.to_owned(), Position::end_of(version), payload.to_owned()));
        }

        fn read(&self, reader: &mut RetainedReader, at: usize) -> bool {
            block_on(reader.read(&self.layers, &self.clock, at)).unwrap()
        }
    }

    fn reader_of<'f>(filters: impl IntoIterator<Item = &'f str>) -> RetainedReader {
        let filters = filters.into_iter().map(Into::into).collect();
        RetainedReader::new(RetainedPages::new(BROKER, filters))
    }

    fn found(reader: &RetainedReader, filter: &str) -> Vec<(String, String)> {
        let mut walk = Walk::new(reader.tree.snapshot(), filter);
        let mut found = Vec::new();
        loop {
            match walk.step() {
                TreeStep::Value(message) => {
                    let payload = String::from_utf8(message.payload().to_vec()).unwrap();
                    found.push((message.topic().to_string(), payload));
                }
                TreeStep::Nothing => {}
                TreeStep::Done => return found,
            }
        }
    }

    #[test]
    fn each_topic_comes_once_with_its_present_value_whatever_changes_between_pages() {
        let mut retains = Retains::with(2_500, "old");
        let (mut reader, mut pages) = (reader_of(["#"]), 0);
        loop {
            let is_last = retains.read(&mut reader, 0);
            pages += 1;
            // In pages that are read, in those that are not, and beyond all.
            for range in 0..4 {
                let topic = |number| format!("t/{:04}", 1_000 * range + 10 * pages + number);
                retains.publish(&topic(0), &format!("first after page {pages}"));
                retains.publish(&topic(0), &format!("second after page {pages}"));
                retains.publish(&topic(1), "");
                retains.publish(&format!("{}/new", topic(2)), &format!("new after page {pages}"));
            }
            if is_last {
                break;
            }
        }
        assert_eq!(pages, 3);
        let mut got: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (topic, payload) in found(&reader, "#") {
            got.entry(topic).or_default().push(payload);
        }
        let read = got.clone();
        for (topic, position, payload) in &retains.live {
            if !reader.pages.has(topic, *position).0 {
                got.entry(topic.clone()).or_default().push(payload.clone());
            }
        }
        let mut now = reader_of(["#"]);
        while !retains.read(&mut now, 0) {}
        let mut present: BTreeMap<String, String> = found(&now, "#").into_iter().collect();
        for (topic, payloads) in &got {
            let last = present.remove(topic).unwrap_or_default();
            assert_eq!(payloads.last(), Some(&last), "{topic}: {payloads:?}");
            let times = payloads.iter().filter(|payload| **payload == last).count();
            assert_eq!(times, 1, "{topic}: {payloads:?}");
        }
        assert!(present.is_empty(), "nobody got {present:?}");
        let changed = |change: &str| read.values().flatten().filter(|value| value.contains(change)).count();
        assert!(changed("second") > 0 && changed("first") == 0 && changed("new") > 0, "no page saw a change");
    }

    #[test]
    fn a_page_is_bounded_by_messages_and_by_bytes() {
        for (topics, bytes, pages_min) in [(2_500, 10, 3), (40, 100_000, 4)] {
            let retains = Retains::with(topics, &"x".repeat(bytes));
            let (mut reader, mut pages, mut before) = (reader_of(["#"]), 0, 0);
            loop {
                let is_last = retains.read(&mut reader, 0);
                let all = found(&reader, "#").len();
                assert!(all - before <= PAGE && (all - before - 1) * bytes <= 1 << 20, "{}", all - before);
                (pages, before) = (pages + 1, all);
                if is_last {
                    break;
                }
            }
            assert!(before == topics && pages >= pages_min, "{pages} pages");
        }
    }

    #[test]
    fn filters_of_one_subscribe_share_the_messages() {
        let retains = Retains::with(1_500, "text");
        let asker = Asker::default();
        let filters = ["t/+", "#", "t/#", "+/0007", "$SYS/#", "t/0007", "other"];
        let mut read = subscribe(BROKER, &asker, &filters);
        let mut bytes = 0;
        while block_on(read.step(&retains.layers, &retains.clock)).unwrap() == ReadStep::More {
            bytes = bytes.max(read.read_bytes());
        }
        let mut alone = reader_of(["#"]);
        while !retains.read(&mut alone, 0) {}
        assert!(bytes <= alone.bytes, "{bytes} for all, {} for one", alone.bytes);
        let mut messages = std::collections::HashSet::new();
        for (filter, count) in filters.iter().zip([1_500, 1_500, 1_500, 1, 0, 1, 0]) {
            let replays = &read.subscribe.pending.replays;
            let replay = replays.iter().find(|replay| &*replay.filter == *filter).unwrap();
            let found: Vec<_> = Walk::new(replay.retained.clone().unwrap(), filter).collect();
            assert_eq!(found.len(), count, "{filter}");
            messages.extend(found.iter().map(Arc::as_ptr));
        }
        assert_eq!(messages.len(), 1_500);
    }

    #[test]
    fn many_filters_of_one_subscribe_make_no_smaller_pages() {
        let retains = Retains::with(2_500, "text");
        let asker = Asker::default();
        let filters: Vec<String> = (0..500).map(|number| format!("none/{number}/+")).collect();
        let filters: Vec<&str> = filters.iter().map(|filter| &**filter).chain(["t/#"]).collect();
        let mut read = subscribe(BROKER, &asker, &filters);
        let mut pages = 1;
        while block_on(read.step(&retains.layers, &retains.clock)).unwrap() == ReadStep::More {
            pages += 1;
        }
        assert_eq!(pages, 500 + 3);
        let last = read.subscribe.pending.replays.last().unwrap();
        assert_eq!(Walk::new(last.retained.clone().unwrap(), "t/#").count(), 2_500);
    }

    #[test]
    fn a_page_with_much_to_compare_ends_early_and_no_topic_is_left_out() {
        let mut retains = Retains::with(0, "text");
        let topics = (0..40).map(|number| format!("{}/{number}", ["a"; 11].join("/")));
        topics.for_each(|topic| retains.publish(&topic, "text"));
        // No topic ends with x, so each of the other levels is looked at both ways.
        let filters: Vec<String> = (0..1 << 11)
            .map(|bits| (0..11).map(|bit| if bits >> bit & 1 == 0 { "a/" } else { "+/" }).collect::<String>())
            .map(|filter| filter + "x")
            .chain(["#".to_owned()])
            .collect();
        let mut reader = reader_of(filters.iter().map(|filter| &**filter));
        let mut pages = 1;
        while !retains.read(&mut reader, filters.len() - 1) {
            pages += 1;
        }
        assert!((2..=40).contains(&pages), "{pages} pages");
        assert_eq!(found(&reader, "#").len(), 40);
    }

    #[test]
    fn a_topic_of_several_filters_is_had_as_of_the_page_that_has_it() {
        let mut retains = Retains::with(3, "old");
        let mut reader = reader_of(["t/+", "#"]);
        assert!(retains.read(&mut reader, 0));
        retains.publish("t/0001", "new");
        retains.publish("t/0002", "");
        assert!(retains.read(&mut reader, 1));
        let old = |topic: &str| (topic.to_owned(), "old".to_owned());
        let mut got = found(&reader, "#");
        got.sort();
        assert_eq!(got, ["t/0000", "t/0001", "t/0002"].map(old));
        for (topic, position, _) in &retains.live {
            assert!(!reader.pages.has(topic, *position).0, "{topic} changed after its page was read");
        }
    }
}
