//! A disk that is full: messages that must be stored are refused, live delivery continues, and the server recovers by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{
    Connect, Packet, PacketType, Property, Publish, QoS, ReasonCode, SubscribeOptions, Will,
};
use millrace_storage::{Embedded, Options};

use crate::common::{Client, Server, connect, id, properties, publish, publish_qos, will};
use crate::steps::{
    Disk, VERSIONS, acknowledge, come_back, expect_no_rest, is_present, lasting, leave, rest, say, start,
    subscribe_and_leave, take, texts,
};
use crate::tools::{eventually, metric};

/// SUBSCRIBE with one filter: its reason.
fn ask(client: &mut Client, filter: &str) -> u8 {
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..SubscribeOptions::default() };
    client.subscribe_all(&[(filter, options)], properties(&[])).reasons[0]
}

/// Waits until the store accepts writes again, without a restart.
fn expect_recovered(server: &Server) {
    eventually(
        || {
            let mut client = Client::raw(server);
            client.send(&Packet::Connect(lasting(V5, "tries")));
            client.recv_connack().reason == ReasonCode::SUCCESS
        },
        || "the store still refuses".into(),
    );
}

#[test]
fn what_must_be_stored_is_refused_and_what_is_live_goes_on() {
    for threads in [1, 4] {
        let disk = Disk::new();
        let server = start(&disk.store.database(), threads);
        subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::ExactlyOnce)]);
        say(&server, QoS::AtLeastOnce, "kept/a", &["before"]);
        let mut lasting_clients = VERSIONS.map(|version| {
            let name = if version == V5 { "five" } else { "three" };
            let mut client = Client::open(&server, lasting(version, name));
            client.subscribe("mine", QoS::AtLeastOnce);
            client
        });
        disk.fill();
        for (client, refused) in lasting_clients.iter_mut().zip([0x80, 0x83]) {
            assert_eq!(ask(client, "more"), refused);
        }
        // A 5.0 client gets the reason; a 3.1.1 client is closed, so that it tries again.
        let mut five = Client::connect(&server, V5, "publisher 5");
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let reason = five.publish(publish_qos(qos, 1, "kept/a", b"refused"));
            assert_eq!(reason, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
        }
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let mut three = Client::connect(&server, V311, "publisher 3");
            three.send(&Packet::Publish(publish_qos(qos, 1, "kept/a", b"refused")));
            three.expect_close();
        }
        for (version, refused) in [(V311, ReasonCode(3)), (V5, ReasonCode::SERVER_UNAVAILABLE)] {
            assert_eq!(Client::refused(&server, lasting(version, "new")).reason, refused);
            assert_eq!(Client::refused(&server, lasting(version, "offline")).reason, refused);
        }
        // Clean sessions do not notice.
        live_traffic(&server);
        disk.make_room();
        expect_recovered(&server);
        for client in &mut lasting_clients {
            assert_eq!(ask(client, "more"), 1);
            assert!(!five.publish(publish_qos(QoS::AtLeastOnce, 1, "more", b"after")).is_error());
            let message = take(client);
            assert_eq!((message.topic, message.payload), ("more", &b"after"[..]));
            acknowledge(client, &message);
            client.unsubscribe(&["more"]);
        }
        assert!(!five.publish(publish_qos(QoS::ExactlyOnce, 1, "kept/b", b"after")).is_error());
        let mut offline = come_back(&server, V5, "offline");
        assert_eq!(texts(&rest(&server, &mut offline, "kept/c")), ["before", "after"]);
        assert!(metric(&server, "millrace_publishes_refused_total", "reason=\"store\"") >= 4);
    }
}

#[test]
fn a_retained_message_that_is_refused_is_not_served_and_the_former_one_is() {
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let disk = Disk::new();
        let server = start(&disk.store.database(), 1);
        let mut publisher = Client::connect(&server, V5, "publisher");
        let kept = |qos, topic, text| Publish { retain: true, ..publish_qos(qos, 1, topic, text) };
        assert!(!publisher.publish(kept(QoS::AtLeastOnce, "t/old", b"former")).is_error());
        disk.fill();
        for topic in ["t/new", "t/old"] {
            if qos == QoS::AtMostOnce {
                publisher.send(&Packet::Publish(Publish { retain: true, ..publish(topic, b"refused") }));
                publisher.ping();
            } else {
                assert!(publisher.publish(kept(qos, topic, b"refused")).is_error());
            }
        }
        let retained = || metric(&server, "millrace_retained_messages", "");
        eventually(|| retained() == 1, || format!("{} messages are retained", retained()));
        let mut late = Client::connect(&server, V5, "late");
        late.subscribe("t/#", QoS::AtMostOnce);
        let message = take(&mut late);
        assert_eq!((message.topic, message.payload), ("t/old", &b"former"[..]), "{qos:?}");
        late.expect_nothing();
    }
}

#[test]
fn a_retained_message_whose_removal_is_refused_is_served() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "offline", &[("t/#", QoS::AtLeastOnce)]);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let kept = |text| Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "t/old", text) };
    assert!(!publisher.publish(kept(b"former")).is_error());
    disk.fill();
    assert!(publisher.publish(kept(b"")).is_error());
    let mut late = Client::connect(&server, V5, "late");
    late.subscribe("t/#", QoS::AtMostOnce);
    assert_eq!(take(&mut late).payload, b"former");
    disk.make_room();
    expect_recovered(&server);
    let mut publisher = Client::connect(&server, V5, "publisher");
    assert!(!publisher.publish(kept(b"")).is_error());
    let mut late = Client::connect(&server, V5, "late");
    late.subscribe("t/#", QoS::AtMostOnce);
    late.expect_nothing();
}

/// A store on a disk of which so much is free, above or within a reserve of 1 MiB.
struct SmallDisk {
    _folder: tempfile::TempDir,
    free: Arc<AtomicU64>,
    store: Embedded,
}

impl SmallDisk {
    fn new() -> Self {
        let (folder, free) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(1 << 40)));
        let asked = Arc::clone(&free);
        let options = Options {
            memtable_bytes: 4 << 20,
            disk_reserve_bytes: 1 << 20,
            free_bytes: Arc::new(move |_| Ok(asked.load(Ordering::SeqCst))),
            ..Options::default()
        };
        let store = Embedded::open(&folder, options).unwrap();
        Self { _folder: folder, free, store }
    }

    fn is_nearly_full(&self) {
        self.free.store(1 << 19, Ordering::SeqCst);
    }

    fn has_room(&self) {
        self.free.store(1 << 40, Ordering::SeqCst);
    }
}

#[test]
fn an_abandoned_session_is_purged_from_a_nearly_full_disk() {
    let disk = SmallDisk::new();
    let server = start(&disk.store.database(), 1);
    // No other session has its filter, so its end also changes the index of filters.
    subscribe_and_leave(&server, V5, "abandoned", &[("kept/#", QoS::AtLeastOnce)]);
    say(&server, QoS::AtLeastOnce, "kept/a", &["waits"]);
    disk.is_nearly_full();
    let mut publisher = Client::connect(&server, V5, "publisher");
    assert!(publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"refused")).is_error());
    let purged = server.edge.purge_session("default", "abandoned").unwrap();
    assert_eq!(purged.recv().unwrap(), Ok(true));
    disk.has_room();
    expect_recovered(&server);
    assert!(!is_present(&Client::open(&server, lasting(V5, "abandoned"))));
}

#[test]
fn clients_drain_their_sessions_on_a_nearly_full_disk_also_after_a_restart() {
    for restarts in [false, true] {
        let disk = SmallDisk::new();
        let mut server = start(&disk.store.database(), 1);
        for (version, client) in [(V5, "five"), (V311, "three")] {
            subscribe_and_leave(&server, version, client, &[("kept/#", QoS::ExactlyOnce)]);
        }
        let waiting: Vec<String> = (0..20).map(|number| format!("{number}")).collect();
        for (number, text) in waiting.iter().enumerate() {
            let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
            say(&server, qos, "kept/a", &[text]);
        }
        disk.is_nearly_full();
        if restarts {
            drop(server);
            server = start(&disk.store.database(), 1);
        }
        // CONNECTs of new sessions and publishes share transactions with those that are accepted.
        let mut news: Vec<Client> = (0..20)
            .map(|number| {
                let mut client = Client::raw(&server);
                client.send(&Packet::Connect(lasting(V5, &format!("new {number}"))));
                client
            })
            .collect();
        for (version, client) in [(V5, "five"), (V311, "three")] {
            let mut client = come_back(&server, version, client);
            assert!(is_present(&client));
            let got: Vec<_> = waiting.iter().map(|_| take(&mut client)).collect();
            got.iter().for_each(|message| acknowledge(&mut client, message));
            assert_eq!(texts(&got), waiting);
            leave(&mut client, true);
        }
        for client in &mut news {
            assert_eq!(client.recv_connack().reason, ReasonCode::SERVER_UNAVAILABLE);
        }
        let mut publisher = Client::connect(&server, V5, "publisher");
        assert!(publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"refused")).is_error());
        disk.has_room();
        expect_recovered(&server);
        let mut client = come_back(&server, V5, "five");
        expect_no_rest(&server, &mut client, "kept/a");
    }
}

#[test]
fn a_will_is_retained_once_it_is_stored() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    let mut publisher = Client::connect(&server, V5, "publisher");
    let former = Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "w", b"former") };
    assert!(!publisher.publish(former).is_error());
    let gone = Some(Will { qos: QoS::AtLeastOnce, retain: true, ..will("w", b"gone") });
    let mut ann = Client::open(&server, Connect { will: gone, ..connect(V5, "ann") });
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::AtLeastOnce)]);
    disk.fill();
    leave(&mut ann, false);
    let open = || metric(&server, "millrace_connections_open", "");
    eventually(|| open() == 1, || format!("{} connections are open", open()));
    // The store refuses it after the end of the connection.
    assert!(publisher.publish(publish_qos(QoS::AtLeastOnce, 2, "kept/a", b"refused")).is_error());
    let retained = |name| {
        let mut late = Client::connect(&server, V5, name);
        late.subscribe("w", QoS::AtMostOnce);
        let message = take(&mut late);
        assert!(message.retain);
        (late, message.payload)
    };
    let (mut late, payload) = retained("late");
    assert_eq!(payload, b"former");
    disk.make_room();
    assert_eq!(take(&mut late).payload, b"gone");
    assert_eq!(retained("later").1, b"gone");
}

#[test]
fn messages_behind_a_refused_one_are_stored_after_it() {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let disk = Disk::new();
        let server = start(&disk.store.database(), 1);
        subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::ExactlyOnce)]);
        let mut publisher = Client::open(&server, lasting(V5, "publisher"));
        disk.fill();
        publisher.send(&Packet::Publish(publish_qos(qos, 1, "kept/a", b"1")));
        let refused = || metric(&server, "millrace_publishes_refused_total", "reason=\"store\"");
        eventually(|| refused() == 1, || "the publish is not refused".into());
        disk.make_room();
        expect_recovered(&server);
        // The refusal of the first message is on its way, and the publisher does not see it.
        publisher.send(&Packet::Publish(publish_qos(qos, 2, "kept/a", b"2")));
        let kind = if qos == QoS::AtLeastOnce { PacketType::PubAck } else { PacketType::PubRec };
        assert!(publisher.recv_ack(kind, id(1)).reason.is_error());
        assert_eq!(publisher.recv_disconnect().reason, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
        let mut publisher = Client::open(&server, lasting(V5, "publisher"));
        for (packet_id, text) in [(1, b"1"), (2, b"2")] {
            let again = Publish { dup: true, ..publish_qos(qos, packet_id, "kept/a", text) };
            publisher.send(&Packet::Publish(again));
            assert_eq!(publisher.recv_ack(kind, id(packet_id)).reason, ReasonCode::SUCCESS);
        }
        let mut offline = come_back(&server, V5, "offline");
        assert_eq!(texts(&rest(&server, &mut offline, "kept/c")), ["1", "2"], "{qos:?}");
    }
}

#[test]
fn messages_behind_a_refused_one_do_not_reach_a_session_that_has_missed_it() {
    for threads in [1, 4] {
        let disk = Disk::new();
        let server = start(&disk.store.database(), threads);
        subscribe_and_leave(&server, V5, "reader", &[("kept/#", QoS::ExactlyOnce)]);
        let mut publisher = Client::open(&server, lasting(V5, "publisher"));
        disk.fill();
        assert!(publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"1")).is_error());
        disk.make_room();
        expect_recovered(&server);
        let mut reader = come_back(&server, V5, "reader");
        expect_no_rest(&server, &mut reader, "kept/live");
        publisher.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 2, "kept/a", b"2")));
        assert_eq!(publisher.recv_disconnect().reason, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR);
        let mut publisher = Client::open(&server, lasting(V5, "publisher"));
        for (packet_id, text) in [(1, b"1"), (2, b"2")] {
            assert!(!publisher.publish(publish_qos(QoS::AtLeastOnce, packet_id, "kept/a", text)).is_error());
        }
        assert_eq!(texts(&rest(&server, &mut reader, "kept/b")), ["1", "2"], "{threads} loops");
    }
}

#[test]
fn a_publisher_that_reuses_the_packet_id_of_a_refused_message_goes_on() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::ExactlyOnce)]);
    let mut publisher = Client::connect(&server, V5, "publisher");
    disk.fill();
    for packet_id in [1, 2] {
        assert!(publisher.publish(publish_qos(QoS::AtLeastOnce, packet_id, "kept/a", b"no")).is_error());
    }
    disk.make_room();
    expect_recovered(&server);
    // A message with the id of the last refusal shows that the client has both refusals.
    assert_eq!(publisher.publish(publish_qos(QoS::AtLeastOnce, 2, "kept/a", b"yes")), ReasonCode::SUCCESS);
    assert_eq!(publisher.publish(publish_qos(QoS::ExactlyOnce, 3, "kept/a", b"and")), ReasonCode::SUCCESS);
    let mut offline = come_back(&server, V5, "offline");
    assert_eq!(texts(&rest(&server, &mut offline, "kept/c")), ["yes", "and"]);
}

#[test]
fn a_refused_message_holds_back_no_message_with_qos_0() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "offline", &[("kept/#", QoS::ExactlyOnce)]);
    let mut publisher = Client::connect(&server, V5, "publisher");
    disk.fill();
    assert!(publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "kept/a", b"no")).is_error());
    disk.make_room();
    expect_recovered(&server);
    publisher.publish(Publish { retain: true, ..publish("r", b"retained") });
    publisher.ping();
    // The server may forget what the store does not have.
    drop(server);
    let server = start(&disk.store.database(), 1);
    let mut reader = Client::connect(&server, V5, "reader");
    reader.subscribe("r", QoS::AtMostOnce);
    assert_eq!(texts(&rest(&server, &mut reader, "r")), ["retained"]);
}

/// Clean sessions exchange messages of each quality of service.
fn live_traffic(server: &Server) {
    let mut reader = Client::connect(server, V311, "live reader");
    reader.subscribe("live/+", QoS::ExactlyOnce);
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        say(server, qos, "live/a", &["live"]);
        let message = take(&mut reader);
        assert_eq!((message.payload, message.qos), (&b"live"[..], qos));
        acknowledge(&mut reader, &message);
    }
    reader.ping();
}

#[test]
fn nothing_acknowledged_is_lost_when_the_disk_fills_up_between() {
    let disk = Disk::new();
    let mut server = start(&disk.store.database(), 1);
    subscribe_and_leave(&server, V5, "reader", &[("t", QoS::ExactlyOnce)]);
    let mut writer = Client::open(&server, lasting(V5, "writer"));
    let mut acknowledged = Vec::new();
    for number in 0..60u16 {
        match number % 20 {
            7 => disk.fill(),
            14 => {
                disk.make_room();
                if number > 40 {
                    drop(server);
                    server = start(&disk.store.database(), 1);
                }
                expect_recovered(&server);
                // A publisher that may not have received a refusal must begin a new connection.
                writer = Client::open(&server, lasting(V5, "writer"));
            }
            _ => {}
        }
        let text = number.to_string();
        let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        let message = publish_qos(qos, number + 1, "t", text.as_bytes());
        writer.send(&Packet::Publish(message));
        let kind = if qos == QoS::AtLeastOnce { PacketType::PubAck } else { PacketType::PubRec };
        let reason = writer.recv_ack(kind, id(number + 1)).reason;
        assert_eq!(reason.is_error(), (7..14).contains(&(number % 20)), "{number}: {reason}");
        if !reason.is_error() {
            acknowledged.push(text);
            if qos == QoS::ExactlyOnce {
                writer.send(&Packet::PubRel(crate::common::ack(id(number + 1))));
                writer.recv_ack(PacketType::PubComp, id(number + 1));
            }
        }
    }
    let mut reader = come_back(&server, V5, "reader");
    assert_eq!(texts(&rest(&server, &mut reader, "t")), acknowledged);
}

#[test]
fn connections_that_end_while_the_disk_is_full_leave_their_sessions_and_wills_behind() {
    for expiry_s in [0, 3600] {
        let disk = Disk::new();
        let server = start(&disk.store.database(), 1);
        subscribe_and_leave(&server, V5, "watcher", &[("w", QoS::AtLeastOnce)]);
        let expiry = properties(&[Property::SessionExpiryInterval(expiry_s)]);
        let request = Connect {
            properties: expiry,
            will: Some(Will { qos: QoS::AtLeastOnce, ..will("w", b"gone") }),
            ..lasting(V5, "ann")
        };
        let mut ann = Client::open(&server, request);
        let mut bob = Client::open(&server, lasting(V5, "bob"));
        bob.subscribe("t", QoS::AtLeastOnce);
        say(&server, QoS::AtLeastOnce, "t", &["one", "two"]);
        let got = [take(&mut bob), take(&mut bob)];
        acknowledge(&mut bob, &got[0]);
        bob.ping();
        disk.fill();
        leave(&mut ann, false);
        leave(&mut bob, true);
        disk.make_room();
        expect_recovered(&server);
        // The will fires, once; the session is there with what it did not acknowledge.
        let wills = || metric(&server, "millrace_wills_published_total", "");
        eventually(|| wills() == 1, || format!("{} wills with an expiry of {expiry_s} s", wills()));
        let mut watcher = come_back(&server, V5, "watcher");
        assert_eq!(texts(&rest(&server, &mut watcher, "w")), ["gone"]);
        let mut bob = come_back(&server, V5, "bob");
        let again = texts(&rest(&server, &mut bob, "t"));
        assert!(again == ["two"] || again == ["one", "two"], "{again:?}");
        leave(&mut bob, true);
        expect_no_rest(&server, &mut come_back(&server, V5, "bob"), "t");
    }
}

#[test]
fn a_subscriber_goes_on_with_qos_1_and_takes_up_qos_2_when_there_is_room() {
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    let mut reader = Client::open(&server, lasting(V5, "reader"));
    reader.subscribe("t", QoS::ExactlyOnce);
    let mut writer = Client::connect(&server, V5, "writer");
    assert!(!writer.publish(publish_qos(QoS::ExactlyOnce, 1, "t", b"stored")).is_error());
    let stored = take(&mut reader);
    disk.fill();
    // Its own QoS 0 and QoS 1 to who keeps nothing.
    live_traffic(&server);
    // The store cannot record the PUBREC: the server disconnects the client, which comes again.
    reader.send(&Packet::PubRec(crate::common::ack(stored.packet_id.unwrap())));
    reader.recv_disconnect();
    disk.make_room();
    expect_recovered(&server);
    let mut reader = come_back(&server, V5, "reader");
    // The last PUBREC may have been stored with the end of its connection, or not: the packet id is the same.
    let id = stored.packet_id.unwrap();
    match reader.recv() {
        Packet::PubRel(released) => {
            assert_eq!(released.packet_id, id);
            reader.send(&Packet::PubComp(crate::common::ack(id)));
        }
        Packet::Publish(again) => {
            assert_eq!((again.packet_id, again.dup), (Some(id), true));
            acknowledge(&mut reader, &again);
        }
        other => panic!("{other:?}"),
    }
    expect_no_rest(&server, &mut reader, "t");
}

#[test]
fn ends_of_many_connections_that_the_store_refused_are_written_together() {
    const CLIENTS: usize = 300;
    let disk = Disk::new();
    let server = start(&disk.store.database(), 1);
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let name = format!("c{number}");
            Client::open(&server, Connect { will: Some(will("wills", b"gone")), ..lasting(V5, &name) })
        })
        .collect();
    let mut reader = Client::connect(&server, V5, "reader");
    reader.subscribe("wills", QoS::AtMostOnce);
    disk.fill();
    clients.into_iter().for_each(Client::cut);
    let open = || metric(&server, "millrace_connections_open", "");
    eventually(|| open() == 1, || format!("{} connections", open()));
    let transactions = || metric(&server, "millrace_store_transaction_seconds_count", "");
    let before = transactions();
    disk.make_room();
    for _ in 0..CLIENTS {
        assert_eq!(reader.recv_publish().payload, b"gone");
    }
    let written = transactions() - before;
    assert!(written < CLIENTS as u64 / 5, "{written} transactions for {CLIENTS} clients");
}
