//! Limits that a tenant's record sets: publishers over a rate wait, other excess is refused as the protocol says, and the tenant
//! gets an incident.

use std::time::Duration;

use millrace_access::model::{Access, Action, BrokerLimits, ClientLimits, Credential, Effect, Limits, Rule};
use millrace_layers::Store;
use millrace_layers::accounts::{self, ACCESS};
use millrace_layers::incidents::{self, IncidentRecord, IncidentSearch, StoredIncidentKind};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{
    Connect, Packet, PacketType, Properties, Property, Publish, QoS, ReasonCode, SubscribeOptions, Version,
    Will, encode,
};
use millrace_storage::{Database, Transaction, block_on};

use crate::access::{bob, change, connect_as, put, with_access};
use crate::common::{Client, Server, connect, id, list, properties, publish, publish_qos, will};
use crate::region::Net;
use crate::steps::{VERSIONS, come_back, is_present, lasting, leave};
use crate::tools::{Packets, counted, eventually, flood, metric, number_of, numbered, publish_all};

const QUOTA: u8 = ReasonCode::QUOTA_EXCEEDED.0;

fn access(limits: Limits) -> Access {
    Access { anonymous: true, limits, ..Access::default() }
}

fn client(client: ClientLimits) -> Limits {
    Limits { client, ..Limits::default() }
}

fn broker(broker: BrokerLimits) -> Limits {
    Limits { broker, ..Limits::default() }
}

/// A server whose broker has these limits.
fn limited(limits: Limits) -> (Server, Database, u64) {
    let (database, id) = with_access(&access(limits));
    (Server::on(&database, |_| {}), database, id)
}

fn set_limits(database: &Database, id: u64, limits: Limits) {
    let access = access(limits);
    change(database, id, &async |tx: &Transaction| accounts::access(id).put(tx, ACCESS, &access).await);
}

/// How often a limit was reached.
fn reached(server: &Server, limit: &str) -> u64 {
    metric(server, "millrace_limits_reached_total", &format!("limit=\"{limit}\""))
}

/// The incidents of a kind that the tenant can read, the latest first. Waits for the first one.
pub(crate) fn incidents_of(database: &Database, id: u64, kind: StoredIncidentKind) -> Vec<IncidentRecord> {
    let store = Store::new(database.clone());
    let wanted = IncidentSearch { kind: Some(kind), ..IncidentSearch::default() };
    let read = || {
        let page = store.run(async |tx| incidents::page(&tx, id, wanted, None, 100).await);
        block_on(page).unwrap().0.into_iter().map(|(_, incident)| incident).collect::<Vec<_>>()
    };
    eventually(|| !read().is_empty(), || format!("the tenant has no incident {kind:?}"));
    read()
}

fn answer(server: &Server, connect: Connect<'_>) -> (Client, u8) {
    let mut client = Client::raw(server);
    client.send(&Packet::Connect(connect));
    let reason = client.recv_connack().reason.0;
    (client, reason)
}

#[test]
fn a_publisher_over_a_rate_waits_and_nothing_is_lost() {
    const COUNT: u64 = 300;
    let messages = Some(200);
    let bytes = Some(200 * 25);
    let limits = [
        ("client.publishes_per_s", client(ClientLimits { publishes_per_s: messages, ..Default::default() })),
        (
            "client.publish_bytes_per_s",
            client(ClientLimits { publish_bytes_per_s: bytes, ..Default::default() }),
        ),
        ("broker.publishes_per_s", broker(BrokerLimits { publishes_per_s: messages, ..Default::default() })),
        (
            "broker.publish_bytes_per_s",
            broker(BrokerLimits { publish_bytes_per_s: bytes, ..Default::default() }),
        ),
    ];
    for (name, limits) in limits {
        let (server, database, id) = limited(limits);
        for (version, qos) in [(V311, QoS::AtMostOnce), (V5, QoS::AtLeastOnce)] {
            let mut reader = Client::connect(&server, V5, "reader");
            reader.subscribe("f", qos);
            let mut publisher = Client::connect(&server, version, "publisher");
            let before = reached(&server, name);
            std::thread::scope(|scope| {
                scope.spawn(|| match qos {
                    QoS::AtMostOnce => publisher.send_bytes(&flood("f", COUNT, 20, version)),
                    _ => publish_all(&mut publisher, qos, "f", COUNT, 20),
                });
                let mut packets = Packets::of(&reader);
                for expected in 0..COUNT {
                    assert_eq!(packets.next_number(), Some(expected), "{name}");
                }
            });
            assert!(reached(&server, name) > before, "{name} {qos:?}\n{}", counted(&server));
        }
        let incidents = incidents_of(&database, id, StoredIncidentKind::LimitReached);
        assert_eq!(
            (incidents[0].what.as_deref(), incidents[0].client_id.as_deref()),
            (Some(name), Some("publisher"))
        );
    }
}

#[test]
fn a_publisher_that_waits_is_not_ended_by_its_keep_alive() {
    let limits = client(ClientLimits { publish_bytes_per_s: Some(1_000), ..Default::default() });
    let (server, ..) = limited(limits);
    for version in VERSIONS {
        let mut client = Client::open(&server, Connect { keep_alive_s: 1, ..connect(version, "slow") });
        // Paid for after almost four seconds; it would be ended after three.
        let payload = [0; 4_800];
        for number in 1..=2 {
            client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, number, "a", &payload)));
        }
        client.send(&Packet::PingReq);
        client.recv_ack(PacketType::PubAck, id(1));
        client.recv_ack(PacketType::PubAck, id(2));
        assert_eq!(client.recv(), Packet::PingResp);
    }
}

#[test]
fn a_client_that_connects_to_publish_waits_for_the_rate_of_its_broker_and_delays_no_other() {
    let limits = broker(BrokerLimits { publishes_per_s: Some(1), ..Default::default() });
    let (server, ..) = limited(limits);
    let mut device = Client::connect(&server, V5, "device");
    assert_eq!(
        device.publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"")),
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    );
    let names = ["one", "two", "three", "four"];
    let mut newcomers = names.map(|name| Client::connect(&server, V5, name));
    for client in &mut newcomers {
        client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"")));
    }
    newcomers[3].expect_silence(Duration::from_millis(1_500));
    // The device has waited for nothing yet.
    device.publish(publish_qos(QoS::AtLeastOnce, 2, "a", b""));
    device.ping();
    for client in &mut newcomers {
        client.recv_ack(PacketType::PubAck, id(1));
    }
    // A client that leaves before its turn is charged for nothing.
    let take_over = |name| {
        let mut client = Client::connect(&server, V5, name);
        client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "a", &[0; 10])));
        client
    };
    let left: Vec<_> = (0..60).map(|_| take_over("hasty")).collect();
    let mut last = Client::connect(&server, V5, "last");
    drop(Client::connect(&server, V5, "hasty"));
    last.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"")));
    last.recv_ack(PacketType::PubAck, id(1));
    drop(left);
}

#[test]
fn the_end_of_a_publisher_over_its_rate_is_seen_at_once() {
    let limits = client(ClientLimits { publish_bytes_per_s: Some(1), ..Default::default() });
    let (server, ..) = limited(limits);
    for version in VERSIONS {
        let over_its_rate = |qos| {
            let mut client = Client::connect(&server, version, "pump");
            client.publish(publish_qos(qos, 1, "a", &[0; 10_000]));
            client.ping();
            client
        };
        let mut leaves = over_its_rate(QoS::AtLeastOnce);
        leaves.send(&Packet::Disconnect(crate::common::disconnect(ReasonCode::SUCCESS)));
        leaves.expect_close();
        let mut is_lost = over_its_rate(QoS::ExactlyOnce);
        is_lost.stream().shutdown(std::net::Shutdown::Write).unwrap();
        is_lost.expect_close();
    }
}

#[test]
fn limits_change_for_those_who_wait() {
    let limits = client(ClientLimits { publishes_per_s: Some(1), ..Default::default() });
    let (server, database, broker) = limited(limits);
    let mut client = Client::connect(&server, V5, "slow");
    for number in 1..=60 {
        client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, number, "a", b"")));
    }
    eventually(|| reached(&server, "client.publishes_per_s") > 0, || counted(&server));
    set_limits(&database, broker, Limits::default());
    for number in 1..=60 {
        client.recv_ack(PacketType::PubAck, id(number));
    }
    // And the other way round.
    set_limits(
        &database,
        broker,
        self::client(ClientLimits { packet_bytes: Some(100), ..Default::default() }),
    );
    let mut sends_more = || {
        client.send(&Packet::Publish(publish("a", &[0; 200])));
        client.send(&Packet::PingReq);
        matches!(client.recv(), Packet::PingResp)
    };
    eventually(|| !sends_more(), || "a packet over the limit is taken".into());
}

#[test]
fn a_packet_over_the_servers_limit_is_an_incident_of_the_tenant() {
    let (server, database, id) = limited(Limits::default());
    for version in VERSIONS {
        let mut client = Client::connect(&server, version, "ann");
        client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "a", &vec![b'x'; 1_100_000])));
        match version {
            V5 => drop(client.expect_disconnect(ReasonCode::PACKET_TOO_LARGE)),
            _ => client.expect_close(),
        }
    }
    assert_eq!(reached(&server, "client.packet_bytes"), 2);
    assert_eq!(
        incidents_of(&database, id, StoredIncidentKind::LimitReached)[0].client_id.as_deref(),
        Some("ann")
    );
}

#[test]
fn a_packet_over_the_clients_limit_ends_its_connection() {
    let (server, database, id) =
        limited(client(ClientLimits { packet_bytes: Some(1_000), ..Default::default() }));
    for version in VERSIONS {
        let mut client = Client::connect(&server, version, "ann");
        if version == V5 {
            let told = list(client.connack.as_ref().unwrap().properties);
            assert!(told.contains(&Property::MaximumPacketSize(1_000)), "{told:?}");
        }
        let head = if version == V5 { 7 } else { 6 };
        client.publish(publish("a", &vec![b'x'; 1_000 - head]));
        client.send(&Packet::Publish(publish("a", &vec![b'x'; 1_001 - head])));
        match version {
            V5 => drop(client.expect_disconnect(ReasonCode::PACKET_TOO_LARGE)),
            _ => client.expect_close(),
        }
    }
    assert_eq!(reached(&server, "client.packet_bytes"), 2);
    assert_eq!(
        incidents_of(&database, id, StoredIncidentKind::LimitReached)[0].client_id.as_deref(),
        Some("ann")
    );
}

#[test]
fn subscriptions_over_a_limit_are_refused() {
    let limits = Limits {
        client: ClientLimits { subscriptions: Some(2), ..Default::default() },
        broker: BrokerLimits { subscriptions: Some(3), ..Default::default() },
    };
    let (server, ..) = limited(limits);
    let options = SubscribeOptions::default();
    let mut ann = Client::connect(&server, V5, "ann");
    let all = [("a", options), ("b", options), ("c", options)];
    assert_eq!(ann.subscribe_all(&all, Properties::EMPTY).reasons, [0, 0, QUOTA]);
    let mut bob = Client::connect(&server, V311, "bob");
    assert_eq!(bob.subscribe_all(&all[..2], Properties::EMPTY).reasons, [0, 0x80]);
    ann.unsubscribe(&["a"]);
    assert_eq!(bob.subscribe_all(&all[..2], Properties::EMPTY).reasons, [0, 0]);
    assert_eq!((reached(&server, "client.subscriptions"), reached(&server, "broker.subscriptions")), (1, 1));
}

/// Both packets are one edit of the filters.
#[test]
fn an_unsubscribe_makes_room_for_a_subscribe_behind_it() {
    let (server, ..) = limited(broker(BrokerLimits { subscriptions: Some(1), ..Default::default() }));
    let mut client = Client::connect(&server, V5, "ann");
    let options = SubscribeOptions::default();
    assert_eq!(client.subscribe_all(&[("a", options)], Properties::EMPTY).reasons, [0]);
    let mut bytes = Vec::new();
    encode::unsubscribe(id(2), Properties::EMPTY, ["a"], V5, &mut bytes);
    encode::subscribe(id(3), Properties::EMPTY, [("b", options)], V5, &mut bytes);
    client.send_bytes(&bytes);
    assert_eq!(client.recv_unsuback().reasons.to_vec(), [0]);
    assert_eq!(client.recv_suback().reasons.to_vec(), [0]);
}

#[test]
fn a_client_id_that_connects_too_often_is_told_to_come_later() {
    let (server, database, broker) =
        limited(client(ClientLimits { connects_per_min: Some(2), ..Default::default() }));
    for (version, code) in [(V5, 0x9F), (V311, 3)] {
        let name = format!("{version:?}");
        let often = || answer(&server, connect(version, &name)).1;
        assert_eq!([often(), often(), often()], [0, 0, code]);
    }
    assert_eq!(answer(&server, connect(V5, "another")).1, 0);
    assert_eq!(
        incidents_of(&database, broker, StoredIncidentKind::LimitReached)[0].what.as_deref(),
        Some("client.connects_per_min")
    );
}

#[test]
fn another_user_does_not_use_up_the_connects_of_a_client_id() {
    let limits = client(ClientLimits { connects_per_min: Some(2), ..Default::default() });
    let (database, id) = with_access(&Access { limits, ..Access::default() });
    for user in ["bob", "eve"] {
        put(&database, id, &Credential { user: user.into(), ..bob(vec![]) });
    }
    let server = Server::on(&database, |_| {});
    let connect = |user| answer(&server, connect_as(user, "right")).1;
    let _bob = Client::open(&server, connect_as("bob", "right"));
    assert_eq!([connect("eve"), connect("eve"), connect("eve")], [0x87, 0x87, 0x9F]);
    assert_eq!([connect("bob"), connect("bob")], [0, 0x9F]);
}

#[test]
fn connections_over_the_brokers_limit_are_refused() {
    let (server, ..) = limited(broker(BrokerLimits { connections: Some(2), ..Default::default() }));
    let (ann, _bob) = (Client::connect(&server, V5, "ann"), Client::connect(&server, V311, "bob"));
    assert_eq!(answer(&server, connect(V5, "eve")).1, QUOTA);
    assert_eq!(answer(&server, connect(V311, "eve")).1, 3);
    // A client that takes over its own connection adds none.
    assert_eq!(answer(&server, connect(V311, "bob")).1, 0);
    ann.disconnect();
    eventually(|| answer(&server, connect(V5, "eve")).1 == 0, || counted(&server));
}

#[test]
fn clients_that_connect_faster_than_the_broker_may_are_told_to_come_later() {
    let (server, ..) = limited(broker(BrokerLimits { connects_per_s: Some(1), ..Default::default() }));
    let mut clients: Vec<Client> = (0..20)
        .map(|number| {
            let mut client = Client::raw(&server);
            client.send(&Packet::Connect(connect(V5, &format!("c{number}"))));
            client
        })
        .collect();
    let answers: Vec<u8> = clients.iter_mut().map(|client| client.recv_connack().reason.0).collect();
    assert!(answers.contains(&0) && answers.contains(&0x9F), "{answers:?}");
    eventually(|| answer(&server, connect(V5, "later")).1 == 0, || counted(&server));
}

#[test]
fn retained_messages_over_the_brokers_limit_are_refused() {
    let (server, ..) = limited(broker(BrokerLimits { retained_messages: Some(1), ..Default::default() }));
    let mut client = Client::connect(&server, V5, "ann");
    let mut keep =
        |topic| client.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, topic, b"x") }).0;
    assert_eq!([keep("a"), keep("b"), keep("a")].map(|code| code == QUOTA), [false, true, false]);
}

#[test]
fn a_will_over_the_limit_of_retained_messages_is_delivered_and_not_retained() {
    let (server, database, id) =
        limited(broker(BrokerLimits { retained_messages: Some(1), ..Default::default() }));
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("w/#", QoS::AtMostOnce);
    for topic in ["w/1", "w/2", "w/1"] {
        let will = Will { retain: true, ..will(topic, b"gone") };
        Client::open(&server, Connect { will: Some(will), ..connect(V5, "ann") }).cut();
        assert_eq!(watcher.recv_publish().topic, topic);
    }
    let mut late = Client::connect(&server, V5, "late");
    late.subscribe("w/#", QoS::AtMostOnce);
    assert_eq!(late.recv_publish().topic, "w/1");
    Client::connect(&server, V5, "bob").publish(publish("w/end", b"x"));
    assert_eq!(late.recv_publish().topic, "w/end");
    assert_eq!(metric(&server, "millrace_publishes_refused_total", "reason=\"retained_limit\""), 1);
    assert_eq!(reached(&server, "broker.retained_messages"), 1);
    let incident = &incidents_of(&database, id, StoredIncidentKind::LimitReached)[0];
    assert_eq!(incident.what.as_deref(), Some("broker.retained_messages"));
}

/// Leaves ten messages for a session; the numbers that it gets once so many were removed.
fn left(server: &Server, version: Version, at_least: u64) -> Vec<u64> {
    let mut ann = Client::open(server, lasting(version, "ann"));
    ann.subscribe("a", QoS::AtLeastOnce);
    leave(&mut ann, true);
    let before = metric(server, "millrace_messages_trimmed_total", "");
    let mut bob = Client::connect(server, V5, "bob");
    for number in 0..10 {
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", &numbered(number, 100)));
    }
    let trimmed = || metric(server, "millrace_messages_trimmed_total", "") - before;
    eventually(|| trimmed() >= at_least, || counted(server));
    let trimmed = trimmed();
    let mut ann = come_back(server, version, "ann");
    (0..10 - trimmed).map(|_| number_of(ann.recv_publish().payload)).collect()
}

#[test]
fn the_oldest_messages_of_a_queue_over_its_limit_go_and_the_tenant_is_told() {
    let (server, database, id) =
        limited(client(ClientLimits { queue_messages: Some(4), ..Default::default() }));
    assert_eq!(left(&server, V311, 6), [6, 7, 8, 9]);
    assert_eq!(
        incidents_of(&database, id, StoredIncidentKind::LimitReached)[0].what.as_deref(),
        Some("client.queue")
    );
    assert_eq!(
        incidents_of(&database, id, StoredIncidentKind::MessagesDropped)[0].client_id.as_deref(),
        Some("ann")
    );
}

#[test]
fn messages_that_wait_too_long_go_though_nobody_publishes() {
    let (server, ..) = limited(client(ClientLimits { queue_age_s: Some(1), ..Default::default() }));
    assert_eq!(left(&server, V5, 10), [0; 0]);
}

#[test]
fn all_queues_of_a_broker_together_keep_so_many_bytes() {
    let (server, ..) = limited(broker(BrokerLimits { queue_bytes: Some(500), ..Default::default() }));
    let left = left(&server, V5, 1);
    assert!(!left.is_empty() && left.len() < 5 && left.is_sorted() && left.contains(&9), "{left:?}");
}

#[test]
fn the_tenant_sees_what_was_refused_and_the_true_reason() {
    let rules = vec![Rule::new(Effect::Allow, Action::Publish, "mine")];
    let (database, id) = with_access(&Access { rules, ..access(Limits::default()) });
    let server = Server::on(&database, |_| {});
    let with = Connect { user_name: Some("eve"), password: Some(b"guess"), ..connect(V5, "c1") };
    for _ in 0..3 {
        // The answer does not reveal which of the two is wrong.
        assert_eq!(answer(&server, with.clone()).1, 0x86);
    }
    let mut client = Client::connect(&server, V5, "c2");
    assert_eq!(client.publish(publish_qos(QoS::AtLeastOnce, 1, "theirs/1", b"x")).0, 0x87);
    client.publish(publish("theirs/0", b"x"));
    assert_eq!(
        client.subscribe_all(&[("all/#", SubscribeOptions::default())], Properties::EMPTY).reasons,
        [0x87]
    );
    let refused = incidents_of(&database, id, StoredIncidentKind::ConnectRefused);
    assert_eq!((refused[0].client_id.as_deref(), refused[0].user.as_deref()), (Some("c1"), Some("eve")));
    assert!(refused[0].reason.contains("the password is wrong"), "{refused:?}");
    let topics = || -> Vec<_> {
        incidents_of(&database, id, StoredIncidentKind::PublishRefused)
            .into_iter()
            .filter_map(|one| one.what)
            .collect()
    };
    eventually(|| topics().len() == 2, || format!("{:?}", topics()));
    assert!(topics().contains(&"theirs/0".into()), "{:?}", topics());
    assert_eq!(
        incidents_of(&database, id, StoredIncidentKind::SubscribeRefused)[0].what.as_deref(),
        Some("all/#")
    );
}

#[test]
fn pods_share_what_a_broker_may_have() {
    let limits = BrokerLimits { connections: Some(2), subscriptions: Some(1), ..Default::default() };
    let (database, _) = with_access(&access(broker(limits)));
    let pods = ["one", "two"].map(|name| Net::Absent.pod(&database, name, 2));
    let mut ann = Client::connect(&pods[0], V5, "ann");
    let mut bob = Client::connect(&pods[0], V5, "bob");
    ann.subscribe("a", QoS::AtMostOnce);
    let is_full = || answer(&pods[1], connect(V5, "eve")).1 == QUOTA;
    eventually(is_full, || "a pod does not hear of the connections of another".into());
    bob.send(&Packet::Disconnect(crate::common::disconnect(ReasonCode::SUCCESS)));
    bob.expect_close();
    let mut eve = None;
    let comes = || {
        let (client, reason) = answer(&pods[1], connect(V5, "eve"));
        eve = (reason == 0).then_some(client);
        eve.is_some()
    };
    eventually(comes, || "a pod does not hear that there is room".into());
    let options = SubscribeOptions::default();
    let suback = eve.unwrap().subscribe_all(&[("b", options)], Properties::EMPTY);
    assert_eq!(suback.reasons, [QUOTA]);
    // A pod that is gone has nothing.
    let [one, two] = pods;
    drop(one);
    let is_free = || answer(&two, connect(V5, "zoe")).1 == 0;
    eventually(is_free, || "what a pod had that is gone still counts".into());
}

#[test]
fn pods_share_a_rate_and_nothing_is_lost() {
    const COUNT: u64 = 150;
    let (database, _) =
        with_access(&access(broker(BrokerLimits { publishes_per_s: Some(100), ..Default::default() })));
    let pods = ["one", "two"].map(|name| Net::Absent.pod(&database, name, 1));
    std::thread::scope(|scope| {
        for (pod, name) in pods.iter().zip(["one", "two"]) {
            scope.spawn(move || {
                let mut reader = Client::connect(pod, V5, &format!("reader {name}"));
                reader.subscribe(name, QoS::AtLeastOnce);
                let mut publisher = Client::connect(pod, V311, &format!("publisher {name}"));
                scope.spawn(move || publish_all(&mut publisher, QoS::AtLeastOnce, name, COUNT, 20));
                let mut packets = Packets::of(&reader);
                for expected in 0..COUNT {
                    assert_eq!(packets.next_number(), Some(expected), "{name}");
                }
            });
        }
    });
    assert!(pods.iter().all(|pod| reached(pod, "broker.publishes_per_s") > 0));
}

#[test]
fn a_broker_with_as_many_stored_sessions_as_it_may_have_refuses_others_until_one_expires() {
    let (database, id) = with_access(&access(Limits::default()));
    let server = Server::on(&database, |config| config.limits.stored_sessions_per_broker_max = 1);
    let expiring = |name| {
        let expiry = [Property::SessionExpiryInterval(2)];
        Connect { properties: properties(&expiry), clean_start: false, ..connect(V5, name) }
    };
    let leave_it = |connect| leave(&mut Client::open(&server, connect), true);
    leave_it(expiring("first"));
    for (version, reason) in [(V5, QUOTA), (V311, 3)] {
        let (mut client, refused) = answer(&server, lasting(version, "second"));
        assert_eq!(refused, reason, "{version:?}");
        client.expect_close();
    }
    // Sessions in memory have room, and the first one continues.
    Client::connect(&server, V5, "second").disconnect();
    let mut first = Client::open(&server, Connect { clean_start: false, ..lasting(V5, "first") });
    assert!(is_present(&first));
    leave(&mut first, true);
    leave_it(Connect { clean_start: true, ..expiring("first") });
    assert!(reached(&server, "broker.stored_sessions") == 2);
    assert_eq!(metric(&server, "millrace_connects_refused_total", "reason=\"stored_quota\""), 2);
    let incidents = incidents_of(&database, id, StoredIncidentKind::LimitReached);
    assert!(
        incidents.iter().any(|incident| incident.client_id.as_deref() == Some("second")),
        "{incidents:?}"
    );
    let mut second = None;
    let comes_in = || {
        let (client, reason) = answer(&server, lasting(V5, "second"));
        second = (reason == 0).then_some(client);
        reason == 0
    };
    eventually(comes_in, || "the first session has not expired".into());
}

#[test]
fn a_broker_whose_wills_take_as_many_bytes_as_they_may_refuses_larger_ones() {
    const WILL: usize = 10_000;
    let (database, _) = with_access(&access(Limits::default()));
    let server = Server::on(&database, |config| config.limits.will_bytes_per_broker_max = 3 * WILL as u64);
    let payload = vec![7; WILL];
    let delay = [Property::WillDelayInterval(3600)];
    let with_will = |name, payload| {
        let will = Will { properties: properties(&delay), ..will("gone", payload) };
        Connect { will: Some(will), clean_start: false, ..lasting(V5, name) }
    };
    for name in ["a", "b"] {
        leave(&mut Client::open(&server, with_will(name, &payload)), false);
    }
    let (_, refused) = answer(&server, with_will("c", &payload));
    assert_eq!(refused, QUOTA);
    assert_eq!(reached(&server, "broker.will_bytes"), 1);
    // A session continues with a will of the same size or without one, but not with a larger one.
    let mut a = Client::open(&server, with_will("a", &payload));
    assert!(is_present(&a));
    leave(&mut a, false);
    let larger = vec![7; 2 * WILL];
    assert_eq!(answer(&server, with_will("b", &larger)).1, QUOTA);
    let b = Client::open(&server, Connect { clean_start: false, ..lasting(V5, "b") });
    assert!(is_present(&b));
    // Its former will is gone, so there is room.
    assert_eq!(answer(&server, with_will("c", &payload)).1, 0);
}
