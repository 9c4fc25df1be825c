//! A pod is dead when its lease is not renewed, and for no other reason; what is done for dead pods and expired sessions
//! lets publishes continue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use millrace_layers::sessions::{self, Attach, Detach, SessionId};
use millrace_layers::shares::{self, PodUsage};
use millrace_layers::{LayerError, Store, pods};
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, QoS, ReasonCode, Will};
use millrace_storage::{Database, block_on};

use crate::away::{Far, Mended, Way, named};
use crate::common::{Client, Server, publish_qos, will};
use crate::pods::now_ms;
use crate::steps::{lasting, say, subscribe_and_leave, take, texts};
use crate::tools::{eventually, metric};

/// Longer than a lease lasts, as the pods write it.
const LEASES_MS: u64 = 12_000;

fn with_will(pod: &Server, id: &str) -> Client {
    let last = Will { qos: QoS::AtLeastOnce, ..will("will/fired", b"gone") };
    Client::open(pod, Connect { will: Some(last), ..lasting(V5, id) })
}

fn leases(store: &Store) -> HashMap<Bytes, u64> {
    let listed = block_on(store.run(async |tx| pods::list(&tx).await)).unwrap();
    listed.into_iter().map(|pod| (pod.name, pod.until_ms)).collect()
}

/// Waits until these pods have renewed their leases for longer than a lease lasts.
fn wait_for_leases(store: &Store, names: &[&'static str]) {
    let first = leases(store);
    let is_longer = |name: &&'static str| {
        let (name, now) = (Bytes::from_static(name.as_bytes()), leases(store));
        let (first, now) = (first.get(&name), now.get(&name));
        first.zip(now).is_some_and(|(first, now)| *now >= first + LEASES_MS)
    };
    eventually(|| names.iter().all(is_longer), || format!("{:?} and then {:?}", first, leases(store)));
}

#[test]
fn a_pod_whose_writer_waits_for_the_store_is_not_taken_for_dead() {
    let near = Database::memory();
    let (slow, store) = (Far::over(near.clone()), Store::new(near.clone()));
    let one = named(&slow, "one");
    let start = |name: &str| Server::on(&near, |config| config.pod = Some(name.into()));
    let two = start("two");
    let mut watcher = Client::open(&two, lasting(V5, "watcher"));
    watcher.subscribe("will/+", QoS::AtLeastOnce);
    let mut ann = with_will(&one, "ann");
    subscribe_and_leave(&one, V5, "offline", &[("t", QoS::AtLeastOnce)]);
    let mut publisher = Client::connect(&one, V5, "publisher");
    eventually(|| leases(&store).len() == 2, || "two pods".into());
    slow.set(Way::Holds);
    publisher.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"waits")));
    eventually(|| slow.is_waiting(), || "nothing is committed".into());
    let three = start("three");
    eventually(|| leases(&store).len() == 3, || "three pods".into());
    wait_for_leases(&store, &["one", "two", "three"]);
    slow.set(Way::Fine);
    ann.ping();
    for pod in [&one, &two, &three] {
        assert_eq!(metric(pod, "millrace_wills_published_total", ""), 0);
    }
    say(&three, QoS::AtLeastOnce, "will/end", &["the end"]);
    assert_eq!(texts(&[take(&mut watcher)]), ["the end"]);
}

#[test]
fn clients_of_a_pod_that_was_taken_for_dead_do_not_hear_of_another_connection() {
    let near = Database::memory();
    let (far, store) = (Far::over(near.clone()), Store::new(near.clone()));
    let (one, _two) = (named(&far, "one"), Server::on(&near, |config| config.pod = Some("two".into())));
    let _mended = Mended(far.clone());
    let mut ann = Client::open(&one, lasting(V5, "ann"));
    eventually(|| leases(&store).len() == 2, || "two pods".into());
    far.set(Way::Away);
    eventually(|| !leases(&store).contains_key(&b"one"[..]), || "the pod is not taken for dead".into());
    far.set(Way::Fine);
    ann.expect_disconnect(ReasonCode::SERVER_SHUTTING_DOWN);
}

#[test]
fn clocks_that_differ_by_half_a_minute_make_nobody_dead_and_nobody_immortal() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let start = |name: &str, ahead_ms: i64| {
        Server::on(&database, |config| {
            config.pod = Some(name.into());
            config.clock_ahead_ms = ahead_ms;
        })
    };
    let mut pods = vec![start("ahead", 30_000), start("behind", -30_000), start("right", 0)];
    let mut clients: Vec<Client> =
        pods.iter().zip(["ann", "bob", "cid"]).map(|(pod, id)| with_will(pod, id)).collect();
    eventually(|| leases(&store).len() == 3, || "three pods".into());
    pods.extend([start("new ahead", 30_000), start("new behind", -30_000)]);
    eventually(|| leases(&store).len() == 5, || "five pods".into());
    // A pod that died, and whose clock was an hour fast.
    block_on(store.run(async |tx| pods::renew(&tx, b"dead", now_ms() + 3_600_000))).unwrap();
    wait_for_leases(&store, &["ahead", "behind", "right", "new ahead", "new behind"]);
    eventually(|| !leases(&store).contains_key(&b"dead"[..]), || "the dead pod is not forgotten".into());
    for pod in &pods {
        assert_eq!(metric(pod, "millrace_wills_published_total", ""), 0);
    }
    clients.iter_mut().for_each(Client::ping);
}

/// Sessions of a pod that no longer runs.
#[allow(clippy::needless_pass_by_value, reason = "so that a closure can stand in the call")]
fn make_sessions(
    store: &Store,
    broker: u64,
    count: usize,
    then: impl AsyncFn(&millrace_storage::Transaction, SessionId<'_>, u64) -> Result<(), LayerError>,
) {
    let names: Vec<String> = (0..count).map(|number| format!("session {number}")).collect();
    for names in names.chunks(500) {
        block_on(store.run(async |tx| {
            for name in names {
                let id = SessionId { broker, client: name.as_bytes() };
                let request = Attach {
                    owner: "dead".into(),
                    clean: false,
                    expiry_s: 1,
                    now_ms: now_ms(),
                    will: None,
                    details: None,
                };
                let epoch = sessions::attach(&tx, id, request).await?.epoch;
                then(&tx, id, epoch).await?;
            }
            Ok(())
        }))
        .unwrap();
    }
}

/// Publishes until `left` is 0, and returns how many messages were acknowledged while it was between.
fn publish_meanwhile(server: &Server, total: usize, left: impl Fn() -> usize) -> usize {
    let (mut publisher, mut between) = (Client::connect(server, V5, "publisher"), 0);
    let is_done = || {
        assert!(!publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"on")).is_error());
        let left = left();
        between += usize::from(0 < left && left < total);
        left == 0
    };
    eventually(is_done, || "sessions are left".into());
    between
}

const SESSIONS: usize = 800;

#[test]
fn publishes_go_on_while_the_sessions_of_a_dead_pod_are_recovered() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let one = Server::on(&database, |config| config.pod = Some("one".into()));
    subscribe_and_leave(&one, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    make_sessions(&store, broker, SESSIONS, async |_, _, _| Ok(()));
    block_on(store.run(async |tx| pods::renew(&tx, b"dead", now_ms()))).unwrap();
    let left = || {
        block_on(store.run(async |tx| sessions::of_owner(&tx, b"dead", None, SESSIONS).await)).unwrap().len()
    };
    let between = publish_meanwhile(&one, SESSIONS, left);
    assert!(between >= 3, "{between} messages");
}

fn expired_sessions_left(store: &Store, broker: u64) -> usize {
    let all = block_on(store.run(async |tx| sessions::list(&tx, broker, None, 2 * SESSIONS).await)).unwrap();
    all.iter().filter(|(client, _)| client.starts_with(b"session ")).count()
}

/// Makes offline sessions that are due in a moment, while the server runs.
fn make_expiring(store: &Store, broker: u64) {
    let at_ms = now_ms();
    make_sessions(store, broker, SESSIONS, async |tx, id, epoch| {
        let how = Detach { now_ms: at_ms + 10_000, expiry_s: Some(1), keep_will: false.into() };
        sessions::detach(sessions::fence(tx, id, epoch).await?, how).await.map(drop)
    });
}

#[test]
fn publishes_go_on_while_many_sessions_expire() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let server = Server::on(&database, |_| {});
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    make_expiring(&store, broker);
    let between = publish_meanwhile(&server, SESSIONS, || expired_sessions_left(&store, broker));
    assert!(between >= 3, "{between} messages");
}

#[test]
fn publishes_wait_for_no_commit_of_sessions_that_expire() {
    let far = Far::new();
    far.set(Way::Syncs);
    let store = Store::new(far.near().clone());
    let server = Server::on(&far.database(), |config| config.limits.usage_interval_s = 0);
    let _mended = Mended(far.clone());
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    let mut publisher = Client::connect(&server, V5, "publisher");
    let (publishes, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let own = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let answer = publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"on"));
                assert!(!answer.is_error());
                publishes.fetch_add(1, Ordering::Relaxed);
            }
        });
        make_expiring(&store, broker);
        let own = || far.syncs().saturating_sub(publishes.load(Ordering::Relaxed));
        let before = own();
        eventually(|| expired_sessions_left(&store, broker) == 0, || "sessions are left".into());
        is_over.store(true, Ordering::Relaxed);
        own().saturating_sub(before)
    });
    // Some for moments in which the publisher had no processor; steps of their own would be 16 or more.
    assert!(own <= 8, "{own} transactions of their own beside {publishes:?} publishes");
}

#[test]
fn a_pod_that_ends_is_forgotten_also_behind_a_thousand_others() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    block_on(store.run(async |tx| {
        (0..1_000).try_for_each(|number| pods::renew(&tx, format!("a{number:04}").as_bytes(), now_ms()))
    }))
    .unwrap();
    let last = Server::on(&database, |config| config.pod = Some("last".into()));
    let is_listed = || {
        let listed = block_on(store.run(async |tx| pods::list(&tx).await)).unwrap();
        listed.iter().any(|pod| *pod.name == *b"last")
    };
    eventually(is_listed, || "the pod has no lease".into());
    drop(last);
    assert!(!is_listed());
}

#[test]
fn what_pods_that_are_gone_have_used_of_limits_is_removed_though_nobody_opens_their_brokers() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let broker = block_on(store.ensure_broker(b"nobody asks")).unwrap().id;
    let used = PodUsage { connections: 1, ..PodUsage::default() };
    block_on(store.run(async |tx| {
        pods::renew(&tx, b"lives", now_ms())?;
        for pod in [&b"gone"[..], b"lives"] {
            shares::report(&tx, broker, pod, used, now_ms() + 3_600_000)?;
        }
        Ok(())
    }))
    .unwrap();
    let _one = Server::on(&database, |config| config.pod = Some("one".into()));
    let left = || {
        let usage = store.run(async |tx| shares::usage_of_others(&tx, broker, b"", now_ms()).await);
        block_on(usage).unwrap().len()
    };
    eventually(|| left() < 2, || "nothing is removed".into());
    assert_eq!(left(), 1);
}
