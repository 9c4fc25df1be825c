//! A store on another machine, simulated: it does not answer for a while, loses answers, or fails. The tests check what clients see.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{
    Packet, PacketType, Properties, Publish, QoS, ReasonCode, SubscribeOptions, Will, encode,
};
use millrace_storage::{
    Completion, Database, Engine, EngineTransaction, Host, KeyRange, RangeOptions, RangePage, Read, Reply,
    RetryPolicy, StoreError, StoreVersion, System, Transaction, block_on,
};

use crate::common::{Client, Server, id, publish, publish_qos, will};
use crate::steps::{come_back, expect_no_rest, lasting, leave, rest, say, subscribe_and_leave, take, texts};
use crate::tools::{eventually, metric};

/// The fault that the simulated way to the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Fine,
    /// The store does not answer: reads fail after a while, commits wait.
    Away,
    /// Reads are answered. Commits wait until the fault ends, and are carried out then.
    Stuck,
    /// Commits that append messages wait, which are those of the writer. Others are carried out.
    Holds,
    /// One of three answers to commits is lost. Half of the commits without an answer were carried out.
    Loses,
    /// The disk fails. The first commit that appends a message has an unknown outcome, and is carried out when the fault ends. All
    /// others fail.
    Broken,
    /// Commits that append messages always conflict with another transaction.
    Contended,
    /// A transaction with [`POISON`] in a value is too large.
    Poisoned,
    /// Ranges of keys with [`SLOW`] in them are not answered.
    Slow,
    /// Transactions are too old when they read so many rows of them at once.
    Old(usize),
    /// Ranges of keys with [`SLOW`] in them cannot be read.
    Corrupt,
    /// Each commit takes [`SYNC`], as on a slow disk.
    Syncs,
}

const POISON: &[u8] = b"poison";
const SLOW: &[u8] = b"slow";
const SYNC: Duration = Duration::from_millis(50);

/// A store in memory, behind a simulated way to it.
pub(crate) struct Far {
    /// The store itself, without faults.
    near: Database,
    way: Mutex<Way>,
    /// Commits that wait for the end of the fault.
    stuck: Mutex<Vec<(Transaction, Completion)>>,
    /// With [`Way::Broken`], the commit that is carried out later.
    survives: Mutex<Option<Transaction>>,
    commits: AtomicU64,
    syncs: AtomicU64,
    /// Reads of ranges with [`SLOW`] in their keys.
    slow: AtomicU64,
    host: System,
}

impl Far {
    pub(crate) fn new() -> Arc<Self> {
        Self::over(Database::memory())
    }

    /// Another way to a store that others use, too.
    pub(crate) fn over(near: Database) -> Arc<Self> {
        Arc::new(Self {
            near,
            way: Mutex::new(Way::Fine),
            stuck: Mutex::default(),
            survives: Mutex::default(),
            commits: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            host: System::new(),
        })
    }

    pub(crate) fn database(self: &Arc<Self>) -> Database {
        let retry = RetryPolicy { unavailable_max: Duration::from_secs(1), ..RetryPolicy::default() };
        Database::new(Arc::new(Handle(self.clone())), Arc::new(System::new()), retry)
    }

    /// The store itself.
    pub(crate) fn near(&self) -> &Database {
        &self.near
    }

    pub(crate) fn set(&self, way: Way) {
        if let Some(transaction) = self.survives.lock().unwrap().take() {
            block_on(transaction.commit()).unwrap();
        }
        *self.way.lock().unwrap() = way;
        if !matches!(way, Way::Away | Way::Stuck | Way::Holds) {
            self.pass();
        }
    }

    /// Carries out the commits that wait. Later ones wait as before.
    pub(crate) fn pass(&self) {
        let stuck = std::mem::take(&mut *self.stuck.lock().unwrap());
        for (transaction, done) in stuck {
            done.complete(block_on(transaction.commit()));
        }
    }

    /// Reads of ranges with `slow` in their keys.
    pub(crate) fn slow_reads(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Whether a commit waits.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.stuck.lock().unwrap().is_empty()
    }

    fn way(&self) -> Way {
        *self.way.lock().unwrap()
    }

    /// Carries a read out unless the store does not answer.
    fn read<'a, T: Send + 'a>(
        &'a self,
        read: impl Future<Output = Result<T, StoreError>> + Send + 'a,
    ) -> Reply<'a, T> {
        Reply::Later(Box::pin(async move {
            if self.way() == Way::Away {
                self.host.pause(Duration::from_millis(100)).await;
                return Err(StoreError::Unavailable("it is away".into()));
            }
            read.await
        }))
    }
}

struct Handle(Arc<Far>);

impl Engine for Handle {
    #[allow(clippy::disallowed_methods, reason = "this is an engine")]
    fn begin(&self) -> Box<dyn EngineTransaction> {
        Box::new(FarTransaction {
            far: self.0.clone(),
            near: self.0.near.begin_unretried(),
            appends: AtomicBool::new(false),
            writes: AtomicBool::new(false),
            is_poisoned: AtomicBool::new(false),
        })
    }
}

struct FarTransaction {
    far: Arc<Far>,
    near: Transaction,
    appends: AtomicBool,
    writes: AtomicBool,
    is_poisoned: AtomicBool,
}

impl FarTransaction {
    fn note(&self, value: &[u8]) {
        self.is_poisoned.fetch_or(value.windows(POISON.len()).any(|part| part == POISON), Ordering::Relaxed);
    }
}

// `Transaction` has checked keys and values, so these writes cannot fail.
impl EngineTransaction for FarTransaction {
    fn read_version(&self) -> Reply<'_, StoreVersion> {
        self.far.read(self.near.read_version())
    }

    fn get<'a>(&'a self, key: &[u8], read: Read) -> Reply<'a, Option<Bytes>> {
        let key = key.to_vec();
        self.far.read(async move { self.near.get(&key, read).await })
    }

    fn range<'a>(&'a self, range: KeyRange, options: RangeOptions) -> Reply<'a, RangePage> {
        let is_slow = range.begin.windows(SLOW.len()).any(|part| part == SLOW);
        self.far.read(async move {
            self.far.slow.fetch_add(u64::from(is_slow), Ordering::Relaxed);
            while is_slow && self.far.way() == Way::Slow {
                self.far.host.pause(Duration::from_millis(20)).await;
            }
            match self.far.way() {
                Way::Old(rows) if is_slow && options.limit >= rows => Err(StoreError::TooOld),
                Way::Corrupt if is_slow => Err(StoreError::Corrupt("by the test".into())),
                _ => self.near.range(range, options).await,
            }
        })
    }

    fn set(&self, key: Bytes, value: Bytes) {
        self.writes.store(true, Ordering::Relaxed);
        self.note(&value);
        self.near.set(key, value).unwrap();
    }

    fn clear(&self, key: Bytes) {
        self.writes.store(true, Ordering::Relaxed);
        self.near.clear(key).unwrap();
    }

    fn clear_range(&self, range: KeyRange) {
        self.near.clear_range(range).unwrap();
    }

    fn atomic_add(&self, key: Bytes, addend: i64) {
        self.near.atomic_add(key, addend).unwrap();
    }

    fn set_versionstamped_key(&self, template: Vec<u8>, offset: usize, value: Bytes) {
        self.note(&value);
        self.appends.store(true, Ordering::Relaxed);
        self.writes.store(true, Ordering::Relaxed);
        let (prefix, rest) = template.split_at(offset);
        let (user_bytes, suffix) = rest[10..].split_at(2);
        self.near.set_versionstamped_key(prefix, user_bytes.try_into().unwrap(), suffix, value).unwrap();
    }

    fn add_read_conflict_range(&self, range: KeyRange) {
        self.near.add_read_conflict_range(range).unwrap();
    }

    fn add_write_conflict_range(&self, range: KeyRange) {
        self.near.add_write_conflict_range(range).unwrap();
    }

    fn commit(&self, done: Completion) {
        let near = self.near.clone();
        let number = self.far.commits.fetch_add(1, Ordering::Relaxed);
        match self.far.way() {
            Way::Away | Way::Stuck => self.far.stuck.lock().unwrap().push((near, done)),
            Way::Holds if self.appends.load(Ordering::Relaxed) => {
                self.far.stuck.lock().unwrap().push((near, done));
            }
            Way::Loses if number.is_multiple_of(3) => {
                if number.is_multiple_of(2) {
                    let _ = block_on(near.commit());
                }
                done.complete(Err(StoreError::CommitUnknown));
            }
            Way::Broken => {
                let mut survives = self.far.survives.lock().unwrap();
                if self.appends.load(Ordering::Relaxed) && survives.is_none() {
                    *survives = Some(near);
                    return done.complete(Err(StoreError::CommitUnknown));
                }
                done.complete(Err(StoreError::Io("broken".into())));
            }
            Way::Contended if self.appends.load(Ordering::Relaxed) => {
                done.complete(Err(StoreError::Conflict));
            }
            Way::Poisoned if self.is_poisoned.load(Ordering::Relaxed) => {
                done.complete(Err(StoreError::TransactionTooLarge));
            }
            Way::Syncs if self.writes.load(Ordering::Relaxed) => {
                self.far.syncs.fetch_add(1, Ordering::Relaxed);
                block_on(self.far.host.pause(SYNC));
                done.complete(block_on(near.commit()));
            }
            _ => done.complete(block_on(near.commit())),
        }
    }
}

fn pod(far: &Arc<Far>) -> Server {
    named(far, "pod")
}

pub(crate) fn named(far: &Arc<Far>, name: &str) -> Server {
    Server::on(&far.database(), |config| config.pod = Some(name.into()))
}

fn reason(client: &mut Client, qos: QoS, packet_id: u16, payload: &str) -> ReasonCode {
    client.send(&Packet::Publish(publish_qos(qos, packet_id, "kept/a", payload.as_bytes())));
    let kind = if qos == QoS::AtLeastOnce { PacketType::PubAck } else { PacketType::PubRec };
    client.recv_ack(kind, id(packet_id)).reason
}

#[test]
fn a_silent_store_refuses_publishes_in_time_live_messages_go_on_and_all_recovers() {
    for way in [Way::Away, Way::Stuck] {
        let far = Far::new();
        let server = pod(&far);
        let _mended = Mended(far.clone());
        subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::ExactlyOnce)]);
        let mut publisher = Client::open(&server, lasting(V5, "publisher"));
        let mut lives = Client::connect(&server, V5, "lives");
        lives.subscribe("live", QoS::ExactlyOnce);
        let mut three = Client::connect(&server, V311, "three");
        assert_eq!(reason(&mut publisher, QoS::AtLeastOnce, 1, "before"), ReasonCode::SUCCESS);
        let mut doubtful = Client::connect(&server, V5, "doubtful");
        far.set(way);
        if way == Way::Stuck {
            doubtful.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"in doubt")));
            eventually(|| far.is_waiting(), || "the commit does not wait".into());
        }
        for (qos, packet_id) in [(QoS::AtLeastOnce, 2), (QoS::ExactlyOnce, 3), (QoS::AtLeastOnce, 4)] {
            let refused = reason(&mut publisher, qos, packet_id, "refused");
            assert_eq!(refused, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR, "{way:?}");
        }
        three.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"again")));
        three.expect_close();
        assert_eq!(Client::refused(&server, lasting(V5, "new")).reason, ReasonCode::SERVER_UNAVAILABLE);
        // QoS 0 needs no store. With a higher QoS only the store could say whether a session on another pod needs the message.
        assert!(!publisher.publish(publish("live", b"live")).is_error());
        assert_eq!(take(&mut lives).payload, b"live");
        let retained = Publish { retain: true, ..publish("live", b"not retained now") };
        assert!(!publisher.publish(retained).is_error());
        assert_eq!(take(&mut lives).payload, b"not retained now");
        lives.ping();
        if way == Way::Stuck {
            doubtful.ping();
        }
        far.set(Way::Fine);
        let mut stored = vec!["before"];
        if way == Way::Stuck {
            // A message is not refused while its commit may still be carried out.
            assert_eq!(doubtful.recv_ack(PacketType::PubAck, id(1)).reason, ReasonCode::SUCCESS);
            stored.push("in doubt");
        }
        // The packet id of its last refused message shows that the publisher knows of the refusals.
        eventually(
            || reason(&mut publisher, QoS::AtLeastOnce, 4, "after") == ReasonCode::SUCCESS,
            || "the store still refuses".into(),
        );
        stored.push("after");
        let mut offline = come_back(&server, V5, "offline");
        assert_eq!(texts(&rest(&server, &mut offline, "kept/c")), stored);
        assert!(metric(&server, "millrace_publishes_refused_total", "reason=\"store\"") >= 4);
    }
}

#[test]
fn a_qos_2_message_with_a_slow_commit_is_stored_once_although_its_publisher_resends_it() {
    let far = Far::new();
    let server = pod(&far);
    let _mended = Mended(far.clone());
    subscribe_and_leave(&server, V5, "reader", &[("kept/#", QoS::ExactlyOnce)]);
    let mut publisher = Client::open(&server, lasting(V5, "publisher"));
    far.set(Way::Stuck);
    let first = publish_qos(QoS::ExactlyOnce, 7, "kept/a", b"once");
    publisher.send(&Packet::Publish(first.clone()));
    publisher.ping();
    // Other publishes would be refused by now. The outcome of this commit is unknown, so the server says nothing.
    publisher.expect_silence(Duration::from_secs(4));
    publisher.cut();
    far.set(Way::Fine);
    let mut publisher = come_back(&server, V5, "publisher");
    publisher.send(&Packet::Publish(Publish { dup: true, ..first }));
    assert_eq!(publisher.recv_ack(PacketType::PubRec, id(7)).reason, ReasonCode::SUCCESS);
    let mut reader = come_back(&server, V5, "reader");
    assert_eq!(texts(&rest(&server, &mut reader, "kept/c")), ["once"]);
}

#[test]
fn an_unsubscribe_that_cannot_be_stored_is_not_acknowledged() {
    for version in [V311, V5] {
        let far = Far::new();
        let server = pod(&far);
        let _mended = Mended(far.clone());
        let mut ann = Client::open(&server, lasting(version, "ann"));
        ann.subscribe("kept/a", QoS::AtLeastOnce);
        // Before the fault, because the writer refuses a CONNECT until it has seen that the store answers again.
        let mut publisher = Client::connect(&server, V5, "publisher");
        far.set(Way::Away);
        if version == V5 {
            let refused = ann.unsubscribe(&["kept/a"]);
            assert!(refused.reasons == [ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR.0]);
            ann.cut();
        } else {
            let mut bytes = Vec::new();
            let filters = ["kept/a"].into_iter();
            encode::unsubscribe(id(1), Properties::EMPTY, filters, version, &mut bytes);
            ann.send_bytes(&bytes);
            ann.expect_close();
        }
        far.set(Way::Fine);
        let is_back = || reason(&mut publisher, QoS::AtLeastOnce, 8, "still kept") == ReasonCode::SUCCESS;
        eventually(is_back, || "the store still refuses".into());
        assert_eq!(take(&mut come_back(&server, version, "ann")).payload, b"still kept");
    }
}

#[test]
fn a_subscription_whose_retained_messages_cannot_be_read_is_refused() {
    for version in [V311, V5] {
        let far = Far::new();
        let server = pod(&far);
        let _mended = Mended(far.clone());
        let mut publisher = Client::connect(&server, V5, "publisher");
        publisher.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "here/a", b"kept") });
        let mut ann = Client::connect(&server, version, "ann");
        ann.subscribe("other", QoS::AtMostOnce);
        far.set(Way::Away);
        let subscribe = |ann: &mut Client| {
            let here = [("here/+", SubscribeOptions::default())];
            ReasonCode(ann.subscribe_all(&here, Properties::EMPTY).reasons[0])
        };
        assert!(subscribe(&mut ann).is_error(), "{version:?}");
        // The refused subscription gets no messages, and the earlier one still does.
        publisher.publish(publish("here/b", b"not for ann"));
        publisher.publish(publish("other", b"live"));
        assert_eq!(take(&mut ann).payload, b"live");
        far.set(Way::Fine);
        let is_granted = || !subscribe(&mut ann).is_error();
        eventually(is_granted, || "the store still refuses".into());
        assert_eq!(take(&mut ann).payload, b"kept");
    }
}

#[test]
fn requests_repeated_after_a_lost_answer_are_carried_out_once() {
    for version in [V311, V5] {
        let far = Far::new();
        let server = pod(&far);
        let _mended = Mended(far.clone());
        subscribe_and_leave(&server, version, "reader", &[("t/#", QoS::ExactlyOnce)]);
        far.set(Way::Loses);
        let mut expected = Vec::new();
        for number in 0..60 {
            let text = number.to_string();
            let qos = if number % 3 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
            say(&server, qos, "t/a", &[&text]);
            expected.push(text);
            let last = Will { qos: QoS::AtLeastOnce, ..will("t/will", b"gone") };
            let mut dies = Client::open(
                &server,
                millrace_mqtt::Connect { will: Some(last), ..lasting(version, "dies") },
            );
            dies.ping();
            if number % 10 == 0 {
                dies.cut();
                expected.push("gone".into());
                let fired = || metric(&server, "millrace_wills_published_total", "");
                let wanted = number / 10 + 1;
                eventually(|| fired() == wanted, || format!("{} wills, not {wanted}", fired()));
            } else {
                dies.disconnect();
            }
        }
        far.set(Way::Fine);
        let mut reader = come_back(&server, version, "reader");
        assert_eq!(texts(&rest(&server, &mut reader, "t/end")), expected);
    }
}

#[test]
fn a_store_that_was_away_makes_no_pod_count_as_dead() {
    for way in [Way::Away, Way::Stuck] {
        let far = Far::new();
        let pods = ["one", "two", "three"].map(|name| named(&far, name));
        subscribe_and_leave(&pods[0], V5, "watcher", &[("w", QoS::AtLeastOnce)]);
        let join = |(pod, name)| {
            let last = Will { qos: QoS::AtLeastOnce, ..will("w", b"gone") };
            Client::open(pod, millrace_mqtt::Connect { will: Some(last), ..lasting(V5, name) })
        };
        let mut lives: Vec<Client> = pods.iter().zip(["ann", "bob", "cid"]).map(join).collect();
        // Time for the pods to renew their leases.
        lives[0].expect_silence(Duration::from_secs(1));
        far.set(way);
        // Longer than a lease.
        lives[0].expect_silence(Duration::from_secs(7));
        far.set(Way::Fine);
        for (packet_id, client) in (1..).zip(&mut lives) {
            eventually(
                || !reason(client, QoS::AtLeastOnce, packet_id, "after").is_error(),
                || "the store still refuses".into(),
            );
        }
        lives[0].expect_silence(Duration::from_secs(3));
        lives.iter_mut().for_each(Client::ping);
        for pod in &pods {
            assert_eq!(metric(pod, "millrace_wills_published_total", ""), 0, "{way:?}");
        }
    }
}

#[test]
fn a_message_whose_commit_survives_a_disk_failure_reaches_online_subscribers_once() {
    let far = Far::new();
    let server = Server::on(&far.database(), |_| {});
    let mut reader = Client::open(&server, lasting(V5, "reader"));
    reader.subscribe("kept/#", QoS::ExactlyOnce);
    let mut publisher = Client::open(&server, lasting(V5, "publisher"));
    let mut other = Client::connect(&server, V5, "other");
    far.set(Way::Broken);
    let first = publish_qos(QoS::ExactlyOnce, 7, "kept/a", b"once");
    publisher.send(&Packet::Publish(first));
    eventually(|| far.survives.lock().unwrap().is_some(), || "nothing is committed".into());
    // Messages published meanwhile are refused.
    let refused = reason(&mut other, QoS::ExactlyOnce, 1, "refused");
    assert_eq!(refused, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
    far.set(Way::Fine);
    assert_eq!(publisher.recv_ack(PacketType::PubRec, id(7)).reason, ReasonCode::SUCCESS);
    assert_eq!(texts(&rest(&server, &mut reader, "kept/c")), ["once"]);
}

#[test]
fn a_retained_message_whose_commit_survives_a_disk_failure_is_served_although_later_ones_were_refused() {
    for (first, second) in [("first", "second"), ("first", ""), ("", "second"), ("", "")] {
        let far = Far::new();
        let server = Server::on(&far.database(), |_| {});
        let mut reader = Client::open(&server, lasting(V5, "reader"));
        reader.subscribe("kept/#", QoS::AtLeastOnce);
        let mut publisher = Client::connect(&server, V5, "publisher");
        let [mut other, mut early, mut late] =
            ["other", "early", "late"].map(|name| Client::connect(&server, V5, name));
        let kept = |id, text: &'static str| Publish {
            retain: true,
            ..publish_qos(QoS::AtLeastOnce, id, "kept/a", text.as_bytes())
        };
        assert!(!publisher.publish(kept(1, "former")).is_error());
        far.set(Way::Broken);
        publisher.send(&Packet::Publish(kept(7, first)));
        eventually(|| far.survives.lock().unwrap().is_some(), || "nothing is committed".into());
        assert!(other.publish(kept(1, second)).is_error());
        let expect_first = |client: &mut Client| {
            client.subscribe("kept/#", QoS::AtMostOnce);
            if !first.is_empty() {
                assert_eq!(take(client).payload, first.as_bytes(), "before {second:?}");
            }
            client.expect_nothing();
        };
        expect_first(&mut early);
        far.set(Way::Fine);
        assert_eq!(publisher.recv_ack(PacketType::PubAck, id(7)).reason, ReasonCode::SUCCESS);
        expect_first(&mut late);
    }
}

#[test]
fn a_message_that_cannot_be_written_is_refused_alone_and_found_by_halves() {
    const COUNT: u16 = 64;
    let far = Far::new();
    let server = Server::on(&far.database(), |_| {});
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let text = |number| if number == 40 { "poison".into() } else { format!("{number}") };
    far.set(Way::Stuck);
    let send = |publisher: &mut Client, number| {
        let payload: String = text(number);
        publisher.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, number, "kept/a", payload.as_bytes())));
    };
    send(&mut publisher, 1);
    eventually(|| !far.stuck.lock().unwrap().is_empty(), || "nothing is committed".into());
    (2..=COUNT).for_each(|number| send(&mut publisher, number));
    // All are read, and wait for the first one.
    publisher.ping();
    let before = far.commits.load(Ordering::Relaxed);
    far.set(Way::Poisoned);
    let mut refused = Vec::new();
    for _ in 0..COUNT {
        let Packet::PubAck(ack) = publisher.recv() else { panic!("no PUBACK") };
        refused.extend(ack.reason.is_error().then(|| ack.packet_id.get()));
    }
    let commits = far.commits.load(Ordering::Relaxed) - before;
    assert_eq!(refused, [40]);
    assert!(commits < 32, "{commits} transactions");
    far.set(Way::Fine);
    let mut offline = come_back(&server, V5, "offline");
    let expected: Vec<String> = (1..=COUNT).filter(|number| *number != 40).map(text).collect();
    assert_eq!(texts(&rest(&server, &mut offline, "kept/c")), expected);
}

/// Ends the fault when a test ends or fails, because a server stops only after its reads and commits.
pub(crate) struct Mended(pub(crate) Arc<Far>);

impl Drop for Mended {
    fn drop(&mut self) {
        self.0.set(Way::Fine);
    }
}

#[test]
fn pages_of_sessions_do_not_wait_for_retained_messages_of_others() {
    // More than the threads that read from the store.
    const SUBSCRIBERS: u64 = 6;
    let far = Far::new();
    let server = pod(&far);
    let _mended = Mended(far.clone());
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let mut publisher = Client::open(&server, lasting(V5, "publisher"));
    assert_eq!(reason(&mut publisher, QoS::AtLeastOnce, 1, "text"), ReasonCode::SUCCESS);
    let retained = Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 2, "slow/a", b"retained") };
    assert_eq!(publisher.publish(retained), ReasonCode::SUCCESS);
    far.set(Way::Slow);
    let mut subscribers: Vec<Client> = (0..SUBSCRIBERS).map(|_| ask(&server, &mut publisher)).collect();
    eventually(|| far.slow.load(Ordering::Relaxed) > 0, || "no retained messages are read".into());
    let mut offline = come_back(&server, V5, "offline");
    assert_eq!(take(&mut offline).payload, b"text");
    far.set(Way::Fine);
    for client in &mut subscribers {
        take_suback(client);
        assert_eq!(take(client).payload, b"retained");
    }
}

/// A client that waits for the retained messages of `slow/+`.
fn ask(server: &Server, publisher: &mut Client) -> Client {
    let mut client = Client::connect(server, V5, "");
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    let mut bytes = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, [("slow/+", options)], V5, &mut bytes);
    client.send_bytes(&bytes);
    client.ping();
    // The SUBSCRIBE has passed the writer when a later publish has.
    assert_eq!(reason(publisher, QoS::AtLeastOnce, 3, "text"), ReasonCode::SUCCESS);
    client
}

fn take_suback(client: &mut Client) {
    match client.recv() {
        Packet::SubAck(suback) => assert!(!ReasonCode(suback.reasons[0]).is_error()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_retained_messages_are_read_for_sessions_that_have_ended() {
    let far = Far::new();
    let server = pod(&far);
    let _mended = Mended(far.clone());
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let mut publisher = Client::open(&server, lasting(V5, "publisher"));
    let before = metric(&server, "millrace_connections_open", "");
    far.set(Way::Slow);
    let mut first = ask(&server, &mut publisher);
    eventually(|| far.slow.load(Ordering::Relaxed) > 0, || "no retained messages are read".into());
    let read = far.slow.load(Ordering::Relaxed);
    for _ in 0..20 {
        ask(&server, &mut publisher).cut();
    }
    let connections = || metric(&server, "millrace_connections_open", "");
    eventually(|| connections() == before + 1, || format!("{} connections", connections()));
    far.set(Way::Fine);
    take_suback(&mut first);
    // Its retained messages are read after those of the ended sessions would have been.
    let mut last = ask(&server, &mut publisher);
    take_suback(&mut last);
    let read = far.slow.load(Ordering::Relaxed) - read;
    assert!(read < 20, "{read} pages were read for 20 sessions that have ended");
}

#[test]
fn pages_of_retained_messages_that_fail_become_smaller_and_a_subscribe_is_refused_in_the_end() {
    let far = Far::new();
    let server = pod(&far);
    let _mended = Mended(far.clone());
    let mut publisher = Client::connect(&server, V5, "publisher");
    let topics: Vec<String> = (0..40).map(|number| format!("slow/{number:02}")).collect();
    for topic in &topics {
        let retained = Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 2, topic, b"retained") };
        assert_eq!(publisher.publish(retained), ReasonCode::SUCCESS);
    }
    let mut client = Client::connect(&server, V5, "client");
    far.set(Way::Old(20));
    client.subscribe("slow/#", QoS::AtMostOnce);
    let mut got: Vec<String> = topics.iter().map(|_| client.recv_publish().topic.to_owned()).collect();
    got.sort();
    assert_eq!(got, topics);
    far.set(Way::Old(0));
    let mut other = Client::connect(&server, V5, "other");
    let filter = [("slow/#", SubscribeOptions::default())];
    let refused = other.subscribe_all(&filter, Properties::EMPTY).reasons[0];
    assert_eq!(ReasonCode(refused), ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
    let mut kept = Client::open(&server, lasting(V5, "kept"));
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    let refused = kept.subscribe_all(&[("slow/#", options)], Properties::EMPTY).reasons[0];
    assert_eq!(ReasonCode(refused), ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
    far.set(Way::Fine);
    other.subscribe("slow/00", QoS::AtMostOnce);
    assert_eq!(take(&mut other).payload, b"retained");
    // The store has forgotten the refused subscription, too.
    kept.subscribe("granted", QoS::AtLeastOnce);
    leave(&mut kept, true);
    drop(kept);
    publisher.publish(publish_qos(QoS::AtLeastOnce, 3, "slow/00", b"not for kept"));
    let mut kept = come_back(&server, V5, "kept");
    expect_no_rest(&server, &mut kept, "granted");
}

#[test]
fn transactions_that_conflict_are_counted_and_timed_to_their_commit() {
    let far = Far::new();
    let server = pod(&far);
    let _mended = Mended(far.clone());
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let mut publisher = Client::open(&server, lasting(V5, "publisher"));
    let transactions = || metric(&server, "millrace_store_transaction_seconds_count", "");
    let [conflicts, retries] = ["conflicts", "retries"]
        .map(|what| format!("millrace_store_transaction_{what}_total"))
        .map(|name| move |server: &Server| metric(server, &name, ""));
    assert!(transactions() > 0, "the clients' sessions are written");
    let before = [conflicts(&server), retries(&server)];
    far.set(Way::Contended);
    publisher.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"contended")));
    eventually(
        || conflicts(&server) >= before[0] + 3 && retries(&server) >= before[1] + 3,
        || format!("{} conflicts, {} retries", conflicts(&server), retries(&server)),
    );
    let committed = transactions();
    far.set(Way::Fine);
    publisher.recv_ack(PacketType::PubAck, id(1));
    eventually(
        || reason(&mut publisher, QoS::AtLeastOnce, 1, "after") == ReasonCode::SUCCESS,
        || "the store still refuses".into(),
    );
    assert!(transactions() > committed);
}
