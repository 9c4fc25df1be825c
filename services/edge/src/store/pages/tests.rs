use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use millrace_layers::index::IndexedStream;
use millrace_layers::qos2::{self, Direction};
use millrace_layers::sessions::{self, SessionId};
use millrace_layers::streams::{NewEntry, StreamRef, StreamSource};
use millrace_layers::subscriptions::{self, StoredOptions};
use millrace_layers::{BrokerId, Store};
use millrace_mqtt::{PacketId, Properties, QoS};
use millrace_router::Target;
use millrace_session::{InFlight, StoredPosition};
use millrace_storage::{Database, Host, Pause, Read};

use super::super::AttachedSession;
use super::super::inflight::InFlightRow;
use super::*;
use crate::clock::Clock;
use crate::connection_id::ConnectionId;
use crate::store::queue::TakenWork;
use crate::store::reader::FirstReader;
use crate::store::writer::Writer;

/// Time passes with each read of the store and with nothing else, so it counts reads.
#[derive(Default)]
struct Reads {
    now_us: AtomicU64,
    each_us: AtomicU64,
}

impl Reads {
    /// A transaction is too old after this many reads.
    fn limit(&self, reads: u64) {
        self.each_us.store(5_000_000 / reads, Ordering::Relaxed);
    }
}

impl Host for Reads {
    fn now(&self) -> Duration {
        let each_us = self.each_us.load(Ordering::Relaxed);
        Duration::from_micros(self.now_us.fetch_add(each_us, Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        7
    }

    fn pause(&self, _: Duration) -> Pause {
        Box::pin(async {})
    }
}

struct Tenants {
    reads: Arc<Reads>,
    shared: StoreContext,
}

impl Tenants {
    fn new() -> Self {
        let reads = Arc::new(Reads::default());
        let layers = Store::new(Database::memory_on(reads.clone()));
        Self { reads, shared: StoreContext::of_test(layers, Clock::start(), false, "edge") }
    }

    /// A broker with a session that subscribes to `count` filters.
    fn broker(&self, name: &str, count: usize) -> (Arc<Broker>, Vec<StreamSource>) {
        let id = block_on(self.shared.layers.ensure_broker(name.as_bytes())).unwrap().id;
        let sources = self.shared.run(&async |tx| {
            let id = SessionId { broker: id, client: b"c" };
            let (owner, will, details) = ("edge".into(), None, None);
            let attach = sessions::Attach { owner, clean: true, expiry_s: 1_000, now_ms: 1, will, details };
            let epoch = sessions::attach(tx, id, attach).await?.epoch;
            let owned = sessions::fence(tx, id, epoch).await?;
            let options = StoredOptions { bits: 1, identifier: 0 };
            let mut sources = Vec::new();
            for number in 0..count {
                let filter = format!("f/{number}");
                let done = subscriptions::subscribe(&owned, filter.as_bytes(), options).await?;
                sources.push(StreamSource { stream: done.stream, since: done.since });
            }
            Ok(sources)
        });
        let broker = self.shared.open(name).unwrap().unwrap();
        broker.stay_open();
        self.subscribers(&broker, &sources, 1);
        (broker, sources)
    }

    /// Streams with several subscribers are read through shared parts.
    fn subscribers(&self, broker: &Broker, sources: &[StreamSource], count: u64) {
        for (number, source) in sources.iter().enumerate() {
            let indexed = [IndexedStream { group: Bytes::new(), stream: source.stream }];
            broker.streams.set(&format!("f/{number}"), &indexed, &[count]);
        }
    }

    /// Stores messages in one transaction, each in the streams of `to`, with `bytes` bytes.
    fn publish(&self, broker: BrokerId, to: &[Vec<StreamSource>], bytes: usize) {
        let payload = vec![b'x'; bytes];
        let message = Message::new("t".into(), QoS::AtLeastOnce, false, Properties::EMPTY, &payload, 0);
        let body = record::encode_entry(&message, 0, &self.shared.clock).into();
        self.shared.run(&async |tx| {
            (0u16..).zip(to).try_for_each(|(number, to)| {
                let to: Vec<_> =
                    to.iter().map(|source| StreamRef { stream: source.stream, partition: 0 }).collect();
                streams::append(tx, broker, &to, NewEntry { number, now_ms: 1, body: &body })
            })
        });
        self.shared.through.store(self.shared.version(), Ordering::Relaxed);
    }

    /// The pages that were answered, of each session.
    fn pages(&self) -> HashMap<u32, Option<StoredPage>> {
        let mut mail = Vec::new();
        self.shared.mailboxes[0].take(&mut mail);
        let page = |mail| match mail {
            Mail::Page(target, _, page) => (target.slot, page),
            _ => panic!("no page"),
        };
        mail.into_iter().map(page).collect()
    }

    /// All pages of a session from the beginning: positions and sources.
    fn read_all(&self, broker: &Arc<Broker>, sources: &[StreamSource]) -> Vec<(StoredPosition, Vec<usize>)> {
        let (mut parts, mut cursor, mut all) = (PartCache::default(), Position::MIN, Vec::new());
        loop {
            assert!(answer(&self.shared, &mut parts, vec![read(broker, sources, cursor, 0)]).is_empty());
            let page = self.pages().remove(&0).unwrap().unwrap();
            assert!(page.through > cursor, "each page goes on");
            all.extend(page.entries.iter().map(|(message, _, of)| (message.position().unwrap(), of.clone())));
            cursor = page.through;
            if !page.more {
                return all;
            }
        }
    }
}

static ASKER: LazyLock<Arc<()>> = LazyLock::new(Default::default);

fn read(broker: &Arc<Broker>, sources: &[StreamSource], cursor: Position, slot: u32) -> StreamRead {
    let target = Target { core: 0, slot, generation: 1 };
    let reader = PageReader::Session(target, 0, Arc::downgrade(&ASKER));
    StreamRead { core: 0, broker: broker.clone(), sources: sources.into(), cursor, cuts: 0, reader }
}

#[test]
fn a_tenant_whose_sessions_read_much_does_not_stop_the_others() {
    let tenants = Tenants::new();
    let ((heavy, many), (other, few)) = (tenants.broker("heavy", 300), tenants.broker("other", 1));
    let mut queued: Vec<_> = (1..=64).map(|slot| read(&heavy, &many, Position::MIN, slot)).collect();
    queued.push(read(&other, &few, Position::MIN, 0));
    tenants.shared.reads.push(&mut queued);
    tenants.reads.limit(5_000);
    let (mut reader, mut answered) = (FirstReader::new(&tenants.shared), HashMap::new());
    for step in 1..=11 {
        assert!(reader.step(&tenants.shared, Duration::ZERO));
        answered.extend(tenants.pages());
        assert!(answered.contains_key(&0), "step {step}: the other tenant has its turn");
    }
    assert!(answered.len() == 65 && answered.values().all(Option::is_some), "{}", answered.len());
}

#[test]
fn pages_that_nobody_waits_for_are_not_read() {
    let tenants = Tenants::new();
    let (broker, sources) = tenants.broker("b", 1);
    let mut reads: Vec<_> = (0..3).map(|slot| read(&broker, &sources, Position::MIN, slot)).collect();
    let target = Target { core: 0, slot: 1, generation: 1 };
    reads[1].reader = PageReader::Session(target, 0, Arc::downgrade(&Arc::default()));
    tenants.shared.reads.push(&mut reads);
    assert!(FirstReader::new(&tenants.shared).step(&tenants.shared, Duration::ZERO));
    let pages = tenants.pages();
    assert!(pages.len() == 2 && !pages.contains_key(&1));
}

#[test]
fn a_read_that_is_too_old_by_itself_fails_no_other_and_ends() {
    let tenants = Tenants::new();
    let ((heavy, many), (other, few)) = (tenants.broker("heavy", 300), tenants.broker("other", 1));
    let mut reads: Vec<_> = (0..8).map(|slot| read(&other, &few, Position::MIN, slot)).collect();
    reads.insert(3, read(&heavy, &many, Position::MIN, 8));
    tenants.reads.limit(250);
    let later = answer(&tenants.shared, &mut PartCache::default(), reads);
    let pages = tenants.pages();
    assert!((0..8).all(|slot| pages[&slot].is_some()) && pages[&8].is_none());
    assert!(later.is_empty(), "it is not repeated for ever");
}

#[test]
fn a_read_that_is_too_old_by_itself_takes_fewer_entries() {
    let tenants = Tenants::new();
    let (broker, sources) = tenants.broker("b", 2);
    // Each body is stored apart, and is a read of its own.
    tenants.publish(broker.id, &vec![sources.clone(); 400], 1_100);
    tenants.reads.limit(250);
    let all = tenants.read_all(&broker, &sources);
    assert!(all.len() == 400 && all.is_sorted_by(|(before, _), (after, _)| before < after), "{}", all.len());
}

#[test]
fn the_page_after_a_cut_one_is_read_in_one_transaction() {
    let tenants = Tenants::new();
    let (broker, sources) = tenants.broker("b", 2);
    tenants.publish(broker.id, &vec![sources.clone(); 400], 1_100);
    let first = read(&broker, &sources, Position::MIN, 0);
    tenants.reads.limit(250);
    answer(&tenants.shared, &mut PartCache::default(), vec![first]);
    let page = tenants.pages().remove(&0).unwrap().unwrap();
    assert!(page.more && page.cuts > 0, "{} entries", page.entries.len());
    let next = StreamRead { cuts: page.cuts, ..read(&broker, &sources, page.through, 0) };
    let before_us = tenants.reads.now_us.load(Ordering::Relaxed);
    answer(&tenants.shared, &mut PartCache::default(), vec![next]);
    assert_eq!(tenants.pages()[&0].as_ref().unwrap().cuts, page.cuts);
    let took_us = tenants.reads.now_us.load(Ordering::Relaxed) - before_us;
    assert!(took_us < 5_000_000, "a larger page was tried first: {took_us} us");
}

#[test]
fn a_page_of_many_streams_reads_about_what_it_returns() {
    let tenants = Tenants::new();
    let (broker, sources) = tenants.broker("b", 100);
    for source in &sources {
        tenants.publish(broker.id, &vec![vec![*source]; 100], 1);
    }
    tenants.subscribers(&broker, &sources, 2);
    let mut parts = PartCache::default();
    answer(&tenants.shared, &mut parts, vec![read(&broker, &sources, Position::MIN, 0)]);
    let page = tenants.pages().remove(&0).unwrap().unwrap();
    assert!(page.entries.len() >= 250 && page.more, "{}", page.entries.len());
    assert!(parts.entries() <= 2_500, "{} entries are decoded for 500", parts.entries());
}

#[test]
fn a_page_of_many_streams_has_about_the_bytes_of_a_page() {
    let tenants = Tenants::new();
    let (broker, sources) = tenants.broker("b", 40);
    for source in &sources {
        tenants.publish(broker.id, &vec![vec![*source]; 2], 200_000);
    }
    tenants.subscribers(&broker, &sources, 2);
    let mut parts = PartCache::default();
    answer(&tenants.shared, &mut parts, vec![read(&broker, &sources, Position::MIN, 0)]);
    let page = tenants.pages().remove(&0).unwrap().unwrap();
    assert!(page.entries.len() == 2 && page.more, "{} entries of 200 kB", page.entries.len());
    assert!(parts.entries() <= 6, "{} bodies are in memory", parts.entries());
}

#[test]
fn shared_parts_and_streams_of_one_session_give_the_same_messages() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let tenants = Tenants::new();
        let (broker, sources) = tenants.broker("b", random.usize(1..60));
        let (mut expected, uneven) = (0, random.bool());
        for _ in 0..random.usize(1..40) {
            let bytes = [1, 300, 2_000, 30_000, 100_000][random.usize(..5)];
            let mut some = || {
                let all = if uneven && random.u8(..) > 9 { 1 } else { sources.len() };
                let count = random.usize(1..4);
                let mut to: Vec<_> = (0..count).map(|_| sources[random.usize(..all)]).collect();
                to.sort_by_key(|source| source.stream);
                to.dedup_by_key(|source| source.stream);
                to
            };
            let to: Vec<_> = (0..if bytes > 1_000 { 3 } else { 90 }).map(|_| some()).collect();
            tenants.publish(broker.id, &to, bytes);
            expected += to.len();
        }
        let own = tenants.read_all(&broker, &sources);
        assert!(own.len() == expected && own.is_sorted_by(|(before, _), (after, _)| before < after));
        tenants.subscribers(&broker, &sources, 2);
        assert_eq!(tenants.read_all(&broker, &sources), own, "seed {seed}");
        tenants.subscribers(&broker, &sources[..sources.len() / 2], 1);
        assert_eq!(tenants.read_all(&broker, &sources), own, "seed {seed}: some are shared");
    }
}

#[test]
fn messages_in_flight_that_stand_far_apart_are_found_in_several_transactions() {
    let tenants = Tenants::new();
    let (broker, sources) = tenants.broker("b", 300);
    let to: Vec<_> = (0..50).map(|number| vec![sources[number]]).collect();
    let mut rows = Vec::new();
    for number in 0..40 {
        tenants.publish(broker.id, &to, 1);
        let limit = ReadLimit { entries: usize::MAX, bytes: usize::MAX };
        let read = tenants
            .shared
            .run(&async |tx| streams::read(tx, broker.id, &sources[..50], Position::MIN, limit).await);
        let position = read.entries[number * 50].position.0;
        let (qos, retain, identifiers) = (QoS::AtLeastOnce, false, Default::default());
        let row = InFlightRow::InStream { position, qos, retain, identifiers };
        rows.push((PacketId::new(1 + number as u16).unwrap(), row));
    }
    let connection = ConnectionId { core: 0, slot: 1, generation: 1 };
    let attached = AttachedSession { rows, ..AttachedSession::default() };
    let reader = PageReader::Connection(connection, Box::new(attached), FoundInFlight::default());
    let mut connects = vec![StreamRead {
        core: 0,
        broker,
        sources: sources.into(),
        cursor: Position::end_of(tenants.shared.version()),
        cuts: 0,
        reader,
    }];
    tenants.shared.reads.push(&mut connects);
    tenants.reads.limit(10_000);
    let (mut reader, mut mail) = (FirstReader::new(&tenants.shared), Vec::new());
    for step in 0..10 {
        assert!(reader.step(&tenants.shared, Duration::ZERO));
        tenants.shared.mailboxes[0].take(&mut mail);
        if !mail.is_empty() {
            assert!(step > 2, "others had their turn meanwhile");
            break;
        }
    }
    let Some(Mail::Attached(_, _, Some((attached, Some(_))))) = mail.pop() else { panic!("it is refused") };
    let found = attached.in_flight.iter().filter(|(_, row)| matches!(row, InFlight::Published(_)));
    assert_eq!(found.count(), 40);
}

#[test]
fn a_session_whose_page_cannot_be_read_is_detached_although_its_packet_ids_have_wrapped() {
    let tenants = Tenants::new();
    let (shared, (broker, sources)) = (&tenants.shared, tenants.broker("b", 1));
    let session = SessionId { broker: broker.id, client: b"c" };
    let record = || shared.run(&async |tx| sessions::get(tx, session, Read::Snapshot).await).unwrap();
    let epoch = record().epoch;
    let ids = [65_534, 65_535, 1, 2].map(|id| PacketId::new(id).unwrap());
    shared.run(&async |tx| {
        let to = [StreamRef { stream: sources[0].stream, partition: 0 }];
        let body = Bytes::from_static(b"no message");
        streams::append(tx, broker.id, &to, NewEntry { number: 1, now_ms: 1, body: &body })?;
        let owned = sessions::fence(tx, session, epoch).await?;
        ids.iter().try_for_each(|id| qos2::set(&owned, Direction::Outbound, id.get(), &body))
    });
    shared.through.store(shared.version(), Ordering::Relaxed);
    let rows = ids.map(|id| (id, InFlightRow::Released(None))).into();
    let attached =
        AttachedSession { client: "c".into(), epoch, expiry_s: 1_000, rows, ..AttachedSession::default() };
    let connection = ConnectionId { core: 0, slot: 1, generation: 1 };
    let reader = PageReader::Connection(connection, Box::new(attached), FoundInFlight::default());
    let cursor = Position::MIN;
    let read = StreamRead { core: 0, broker, sources: sources.into(), cursor, cuts: 0, reader };
    assert!(answer(shared, &mut PartCache::default(), vec![read]).is_empty());
    let TakenWork::Work(jobs) = shared.writes.take(Duration::ZERO) else { panic!("no job") };
    let mut writer = Writer::new(shared);
    writer.write(jobs);
    assert!(writer.unwritten.is_empty() && record().is_detached());
    let rows = shared.run(&async |tx| qos2::list(tx, session, Direction::Outbound, Read::Snapshot).await);
    assert_eq!(rows.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 65_534, 65_535]);
}
