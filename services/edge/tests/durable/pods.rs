//! Several pods on one store: each session has one owner, and what is acknowledged on one pod reaches the sessions of all, also
//! without a network between them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrace_layers::sessions::{self, Attach, SessionId};
use millrace_layers::{Store, catalog, pods};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, Publish, QoS, ReasonCode, Version, Will, encode};
use millrace_storage::{Database, block_on};

use crate::common::{Client, Server, connect, properties, publish_qos};
use crate::history::{History, publish_mixed};
use crate::region::{Net, nets};
use crate::steps::{
    VERSIONS, acknowledge, come_back, is_present, lasting, leave, say, take, take_until, texts,
};
use crate::tools::{Packets, TURN_WORK_MAX, metric, number_of, numbered};

fn pod(database: &Database, name: &str, threads: usize) -> Server {
    Net::Absent.pod(database, name, threads)
}

#[allow(clippy::disallowed_methods, reason = "leases are in unix time")]
pub(crate) fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn a_session_goes_from_pod_to_pod_with_all_it_has() {
    for (version, net) in
        VERSIONS.into_iter().flat_map(|version| nets().into_iter().map(move |net| (version, net)))
    {
        let database = Database::memory();
        let pods = net.three(&database);
        let mut ann = Client::open(&pods[0], lasting(version, "ann"));
        ann.subscribe("a/+", QoS::ExactlyOnce);
        leave(&mut ann, true);
        let mut expected = Vec::new();
        for round in 0..6 {
            for (number, from) in pods.iter().enumerate() {
                let text = format!("{round} {number}");
                let qos = if number == 2 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
                say(from, qos, "a/b", &[&text]);
                expected.push(text);
            }
            let mut ann = come_back(&pods[round % 3], version, "ann");
            say(&pods[(round + 1) % 3], QoS::AtLeastOnce, "a/b", &["the end"]);
            assert_eq!(texts(&take_until(&mut ann, "the end")), expected, "round {round}");
            expected.clear();
            leave(&mut ann, round % 2 == 0);
        }
    }
}

#[test]
fn what_is_published_on_another_pod_right_after_a_suback_arrives() {
    for net in nets() {
        suback_on(&net);
    }
}

fn suback_on(net: &Net) {
    let database = Database::memory();
    let pods = net.three(&database);
    for (number, filter) in ["x/y", "x/+", "#", "+/y", "x/y/#", "x/y"].into_iter().enumerate() {
        let id = format!("ann {number}");
        let mut ann = Client::open(&pods[number % 3], lasting(V5, &id));
        ann.subscribe(filter, QoS::AtLeastOnce);
        // From both others, which do not know the filter.
        for from in [1, 2] {
            let text = format!("{filter} from {from}");
            say(&pods[(number + from) % 3], QoS::AtLeastOnce, "x/y", &[&text]);
            let message = take(&mut ann);
            assert_eq!(message.payload, text.as_bytes());
            acknowledge(&mut ann, &message);
        }
        ann.unsubscribe(&[filter]);
        say(&pods[(number + 1) % 3], QoS::AtLeastOnce, "x/y", &["nobody's"]);
        ann.expect_nothing();
    }
}

#[test]
fn a_second_connect_on_another_pod_ends_the_first_and_has_what_was_in_flight() {
    for net in nets() {
        for (version, lasts) in [(V5, true), (V311, true), (V5, false)] {
            take_over(&net, version, lasts);
        }
    }
}

fn take_over(net: &Net, version: Version, lasts: bool) {
    {
        let database = Database::memory();
        let pods = net.three(&database);
        let asks = |id| if lasts { lasting(version, id) } else { connect(version, id) };
        let mut first = Client::open(&pods[0], asks("ann"));
        first.subscribe("t", QoS::AtLeastOnce);
        if lasts {
            say(&pods[1], QoS::AtLeastOnce, "t", &["one", "two"]);
            let one = take(&mut first);
            assert_eq!((one.payload, take(&mut first).payload), (&b"one"[..], &b"two"[..]));
            acknowledge(&mut first, &one);
            first.ping();
        }
        let mut second = Client::open(&pods[2], asks("ann"));
        assert_eq!(is_present(&second), lasts);
        if version == V5 {
            let told = first.recv();
            assert!(
                matches!(&told, Packet::Disconnect(told) if told.reason == ReasonCode::SESSION_TAKEN_OVER),
                "{told:?}"
            );
        }
        assert!(first.recv_bytes().is_none());
        if lasts {
            // Acknowledged a moment ago, on a pod that had not stored it yet: it may come again, the other must.
            let mut again = texts(&[take(&mut second)]);
            if again == ["one"] {
                again = texts(&[take(&mut second)]);
            }
            assert_eq!(again, ["two"]);
        } else {
            second.subscribe("t", QoS::AtLeastOnce);
            say(&pods[2], QoS::AtLeastOnce, "t", &["new"]);
            assert_eq!(take(&mut second).payload, b"new");
        }
    }
}

#[test]
fn retained_messages_are_those_of_all_pods() {
    for net in nets() {
        retained_on(&net);
    }
}

fn retained_on(net: &Net) {
    let database = Database::memory();
    let pods = net.three(&database);
    let retain = |server: &Server, topic: &str, text: &str| {
        let mut publisher = Client::connect(server, V5, "publisher");
        let message = publish_qos(QoS::AtLeastOnce, 1, topic, text.as_bytes());
        assert!(!publisher.publish(Publish { retain: true, ..message }).is_error());
        publisher.disconnect();
    };
    for round in 0..4 {
        retain(&pods[round % 3], "r/last", &format!("round {round}"));
        retain(&pods[(round + 1) % 3], "r/gone", if round % 2 == 0 { "here" } else { "" });
        for lasts in [false, true] {
            let id = format!("reader {round} {lasts}");
            let asks = if lasts { lasting(V5, &id) } else { connect(V5, &id) };
            let mut reader = Client::open(&pods[(round + 2) % 3], asks);
            reader.subscribe("r/#", QoS::AtLeastOnce);
            let count = 2 - round % 2;
            let mut got: Vec<_> = (0..count).map(|_| take(&mut reader)).collect();
            assert!(got.iter().all(|message| message.retain));
            got.iter().for_each(|message| acknowledge(&mut reader, message));
            got.sort_by_key(|message| message.topic.to_owned());
            let expected = [String::from("here"), format!("round {round}")];
            assert_eq!(texts(&got), expected[2 - count..], "{round} {lasts}");
            reader.expect_nothing();
            reader.unsubscribe(&["r/#"]);
        }
    }
}

#[test]
fn the_sessions_of_a_dead_pod_get_their_wills_and_are_freed() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let one = pod(&database, "one", 1);
    let mut watcher = Client::open(&one, lasting(V5, "watcher"));
    watcher.subscribe("will/+", QoS::AtLeastOnce);
    // A session as a killed pod leaves it.
    let will = Will {
        topic: "will/ann",
        payload: b"gone",
        qos: QoS::AtLeastOnce,
        retain: false,
        properties: properties(&[]),
    };
    let dying = pod(&database, "dying", 1);
    let mut ann = Client::open(&dying, Connect { will: Some(will), ..lasting(V5, "ann") });
    ann.subscribe("t", QoS::AtLeastOnce);
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    let id = SessionId { broker, client: b"ann" };
    let request = |owner: &'static str| Attach {
        owner: owner.into(),
        clean: false,
        expiry_s: 3600,
        now_ms: now_ms(),
        will: None,
        details: None,
    };
    drop(dying);
    assert_eq!(take(&mut watcher).payload, b"gone", "it ended in order, and its will fired");
    block_on(store.run(async |tx| {
        sessions::attach(&tx, id, request("dead")).await?;
        pods::renew(&tx, b"dead", now_ms() - 1)
    }))
    .unwrap();
    let is_free = || {
        let read = millrace_storage::Read::Snapshot;
        let (record, pods) = block_on(store.run(async |tx| {
            Ok::<_, millrace_layers::LayerError>((
                sessions::get(&tx, id, read).await?,
                pods::list(&tx).await?,
            ))
        }))
        .unwrap();
        record.unwrap().is_detached() && pods.iter().all(|pod| &*pod.name != b"dead")
    };
    crate::tools::eventually(is_free, || "the session of the dead pod is not freed".into());
    say(&one, QoS::AtLeastOnce, "t", &["still kept"]);
    assert_eq!(take(&mut come_back(&one, V5, "ann")).payload, b"still kept");
}

#[test]
fn a_session_that_an_operator_ends_on_another_pod_loses_its_connection() {
    for net in nets() {
        for asks in [lasting(V5, "ann"), connect(V5, "ann")] {
            let pods = net.three(&Database::memory());
            let mut ann = Client::open(&pods[0], asks);
            ann.subscribe("t", QoS::AtMostOnce);
            let ended = pods[1].edge.purge_session("default", "ann").unwrap();
            assert_eq!(ended.recv().unwrap(), Ok(true));
            assert!(matches!(ann.recv(), Packet::Disconnect(_)));
            assert!(ann.recv_bytes().is_none());
        }
    }
}

#[test]
fn a_dead_pod_with_sessions_of_a_deleted_broker_is_forgotten() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let deleted = block_on(store.ensure_broker(b"deleted")).unwrap();
    let id = SessionId { broker: deleted.id, client: b"ann" };
    let request = || Attach {
        owner: "dead".into(),
        clean: false,
        expiry_s: 3600,
        now_ms: now_ms(),
        will: None,
        details: None,
    };
    block_on(store.run(async |tx| {
        sessions::attach(&tx, id, request()).await?;
        catalog::condemn(&tx, &deleted, now_ms())?;
        pods::renew(&tx, b"dead", now_ms() - 1)
    }))
    .unwrap();
    let _one = pod(&database, "one", 1);
    let is_forgotten = || {
        let listed = block_on(store.run(async |tx| pods::list(&tx).await)).unwrap();
        listed.iter().all(|pod| &*pod.name != b"dead")
    };
    crate::tools::eventually(is_forgotten, || "the dead pod stays listed".into());
}

#[test]
fn a_pod_that_was_taken_for_dead_lets_go_of_its_sessions() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let one = pod(&database, "one", 1);
    let mut ann = Client::open(&one, lasting(V5, "ann"));
    ann.subscribe("t", QoS::AtLeastOnce);
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    let id = SessionId { broker, client: b"ann" };
    block_on(store.run(async |tx| {
        let read = millrace_storage::Read::Serializable;
        let epoch = sessions::get(&tx, id, read).await?.unwrap().epoch;
        sessions::abandon(&tx, id, b"one", now_ms()).await?;
        pods::notify_lost(&tx, b"one", id, epoch)
    }))
    .unwrap();
    assert!(matches!(ann.recv(), Packet::Disconnect(told) if told.reason == ReasonCode::SESSION_TAKEN_OVER));
    say(&one, QoS::AtLeastOnce, "t", &["kept"]);
    assert_eq!(take(&mut come_back(&one, V5, "ann")).payload, b"kept");
}

#[test]
fn a_session_that_hops_between_pods_while_messages_flow_gets_each_once_in_order() {
    const COUNT: u64 = 400;
    for (version, net) in
        VERSIONS.into_iter().flat_map(|version| nets().into_iter().map(move |net| (version, net)))
    {
        let database = Database::memory();
        let pods = net.three(&database);
        crate::steps::subscribe_and_leave(&pods[0], version, "ann", &[("f/+", QoS::ExactlyOnce)]);
        std::thread::scope(|scope| {
            for (number, from) in pods.iter().enumerate() {
                let topic = format!("f/{number}");
                let qualities = [QoS::AtLeastOnce, QoS::ExactlyOnce];
                scope.spawn(move || publish_mixed(from, &topic, COUNT, &qualities, |_| {}));
            }
            // A message may come again if its acknowledgement is not stored yet when another pod takes the session.
            let mut history = History::default();
            history.forgives = true;
            let mut round = 0;
            while history.total() < 3 * COUNT {
                round += 1;
                assert!(round < 300, "{} of {}", history.total(), 3 * COUNT);
                let mut ann = come_back(&pods[round % 3], version, "ann");
                ann.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
                {
                    let mut packets = Packets::of(&ann);
                    history.take(&mut packets, &ann, 10 + round * 7 % 50);
                }
                // Gone in order, cut, or still there when the next pod takes it.
                match round % 3 {
                    0 => leave(&mut ann, true),
                    1 => leave(&mut ann, false),
                    _ => std::mem::forget(ann),
                }
            }
        });
    }
}

#[test]
fn copies_of_committed_messages_are_handed_out_over_several_turns_and_in_order() {
    const SESSIONS: usize = 400;
    const MESSAGES: u64 = 90;
    let server = pod(&Database::memory(), "pod", 1);
    let mut sessions: Vec<Client> = (0..SESSIONS)
        .map(|number| {
            let mut client = Client::open(&server, lasting(V5, &format!("reader {number}")));
            client.subscribe("t", QoS::AtLeastOnce);
            client
        })
        .collect();
    let mut publisher = Client::connect(&server, V5, "publisher");
    // The first message of a connection is read from the store, and so are the others until it is read.
    publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"first"));
    for session in &mut sessions {
        let first = take(session);
        acknowledge(session, &first);
        session.ping();
    }
    let mut bytes = Vec::new();
    for (packet_id, number) in (1..).zip(0..MESSAGES) {
        let payload = numbered(number, 8);
        let message = publish_qos(QoS::AtLeastOnce, packet_id, "t", &payload);
        encode::packet(&Packet::Publish(message), V5, &mut bytes);
    }
    publisher.send_bytes(&bytes);
    for session in &mut sessions {
        for number in 0..MESSAGES {
            let message = take(session);
            assert_eq!(number_of(message.payload), number);
            acknowledge(session, &message);
        }
        session.expect_nothing();
    }
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < TURN_WORK_MAX, "a turn did {work} units of work");
}
