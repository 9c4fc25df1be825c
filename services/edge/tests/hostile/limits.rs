//! Limits: a client at a limit gets the protocol's answer, the refusal is counted, and clients below the limit continue.

use std::net::TcpStream;
use std::time::Duration;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{
    Connect, Packet, PacketType, Properties, Property, Publish, QoS, REPEATED_PROPERTIES_MAX, ReasonCode,
    SubscribeOptions, encode,
};

use crate::common::{Client, STORED, Server, connect, id, list, properties, publish, publish_qos, will};
use crate::tools::{
    counted, dropped, ended, eventually, expect_clients, expect_count, metric, number_of, numbered,
    read_to_close, refused, send_anyway,
};

const QUOTA: u8 = ReasonCode::QUOTA_EXCEEDED.0;
const INVALID: u8 = ReasonCode::TOPIC_FILTER_INVALID.0;

/// A session that outlives its connection.
fn lasting(id: &str) -> Connect<'_> {
    let expiry = properties(&[Property::SessionExpiryInterval(60)]);
    Connect { clean_start: false, properties: expiry, ..connect(V5, id) }
}

fn subscribe_options(qos: QoS) -> SubscribeOptions {
    SubscribeOptions { qos, ..Default::default() }
}

#[test]
fn a_packet_of_the_largest_size_is_taken_and_one_byte_more_is_not() {
    let server = Server::with(|config| config.limits.packet_size_max = 10_000);
    let mut ann = Client::connect(&server, V5, "ann");
    let told = list(ann.connack.as_ref().unwrap().properties);
    assert!(told.contains(&Property::MaximumPacketSize(10_000)), "{told:?}");
    ann.subscribe("a", QoS::AtMostOnce);
    // Type, two bytes of length, two of the topic's, the topic, no properties.
    let largest = vec![b'x'; 10_000 - 7];
    ann.send(&Packet::Publish(publish("a", &largest)));
    assert_eq!(ann.recv_publish().payload, largest);
    ann.send(&Packet::Publish(publish("a", &[&largest[..], b"x"].concat())));
    ann.expect_disconnect(ReasonCode::PACKET_TOO_LARGE);
    expect_count(ended, &server, "packet_too_large", 1);
}

#[test]
fn a_packet_with_too_many_user_properties_is_refused_and_noted() {
    let server = Server::start();
    let mut ann = Client::connect(&server, V5, "ann");
    ann.subscribe("a", QoS::AtMostOnce);
    let user = Property::UserProperty("k", "v");
    let most = vec![user; REPEATED_PROPERTIES_MAX as usize];
    let send = |ann: &mut Client, list: &[Property<'_>]| {
        ann.send(&Packet::Publish(Publish { properties: properties(list), ..publish("a", b"x") }));
    };
    send(&mut ann, &most);
    assert_eq!(list(ann.recv_publish().properties), most);
    send(&mut ann, &[&most[..], &[user]].concat());
    ann.expect_disconnect(ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(metric(&server, "millrace_limits_reached_total", "packet.properties"), 1);
}

#[test]
fn subscriptions_over_the_limit_are_refused_one_by_one() {
    let server = Server::with(|config| config.limits.subscriptions_per_session_max = 3);
    let mut ann = Client::connect(&server, V5, "ann");
    let qos = subscribe_options(QoS::AtLeastOnce);
    let suback = ann.subscribe_all(&[("a", qos), ("b", qos), ("c", qos), ("d", qos)], Properties::EMPTY);
    assert_eq!(suback.reasons, [1, 1, 1, QUOTA]);
    // One that is there may be replaced, and one that has gone makes room.
    let qos = subscribe_options(QoS::ExactlyOnce);
    assert_eq!(ann.subscribe_all(&[("a", qos), ("e", qos)], Properties::EMPTY).reasons, [2, QUOTA]);
    ann.unsubscribe(&["b"]);
    assert_eq!(ann.subscribe_all(&[("e", qos), ("f", qos)], Properties::EMPTY).reasons, [2, QUOTA]);
    // 3.1.1 has one code for all failures.
    let mut old = Client::connect(&server, V311, "old");
    let all: Vec<_> = ["a", "b", "c", "d"].map(|filter| (filter, qos)).into();
    assert_eq!(old.subscribe_all(&all, Properties::EMPTY).reasons, [2, 2, 2, 0x80]);
    let by_limit =
        |server: &Server, reason: &str| metric(server, "millrace_subscribes_refused_total", reason);
    expect_count(by_limit, &server, "reason=\"subscriptions_limit\"", 4);
    assert_eq!(metric(&server, "millrace_subscriptions", ""), 6);
}

#[test]
fn topics_and_filters_with_too_many_levels_are_refused() {
    let server = Server::with(|config| config.limits.topic_levels_max = 4);
    let (mut ann, mut bob) = (Client::connect(&server, V5, "ann"), Client::connect(&server, V5, "bob"));
    let all = [("1/2/3/4", subscribe_options(QoS::AtMostOnce)), ("1/2/3/4/5", Default::default())];
    assert_eq!(bob.subscribe_all(&all, Properties::EMPTY).reasons, [0, INVALID]);
    assert!(!ann.publish(publish_qos(QoS::AtLeastOnce, 1, "1/2/3/4", b"")).is_error());
    assert_eq!(bob.recv_publish().topic, "1/2/3/4");
    let reason = ann.publish(publish_qos(QoS::AtLeastOnce, 1, "1/2/3/4/5", b""));
    assert_eq!(reason, ReasonCode::TOPIC_NAME_INVALID);
    ann.publish(publish("1/2/3/4/5", b""));
    assert_eq!(metric(&server, "millrace_publishes_refused_total", "topic_levels"), 2);
    assert_eq!(metric(&server, "millrace_subscribes_refused_total", "invalid_filter"), 1);
}

#[test]
fn topics_and_filters_with_too_many_bytes_are_refused() {
    let server = Server::with(|config| config.limits.topic_bytes_max = 10);
    let (mut ann, mut bob) = (Client::connect(&server, V5, "ann"), Client::connect(&server, V5, "bob"));
    let (longest, longer) = ("1234567/90", "1234567/901");
    let all = [(longest, subscribe_options(QoS::AtMostOnce)), (longer, Default::default())];
    assert_eq!(bob.subscribe_all(&all, Properties::EMPTY).reasons, [0, INVALID]);
    assert!(!ann.publish(publish_qos(QoS::AtLeastOnce, 1, longest, b"")).is_error());
    assert_eq!(bob.recv_publish().topic, longest);
    let reason = ann.publish(publish_qos(QoS::AtLeastOnce, 1, longer, b""));
    assert_eq!(reason, ReasonCode::TOPIC_NAME_INVALID);
    ann.publish(publish(longer, b""));
    // 3.1.1 has no code for it.
    let mut old = Client::connect(&server, V311, "old");
    assert_eq!(old.subscribe_all(&[(longer, Default::default())], Properties::EMPTY).reasons, [0x80]);
    old.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, longer, b"")));
    old.expect_close();
    assert_eq!(metric(&server, "millrace_publishes_refused_total", "topic_bytes"), 3);
    let with_will = |version, topic| Connect { will: Some(will(topic, b"")), ..connect(version, "mortal") };
    Client::open(&server, with_will(V5, longest)).disconnect();
    assert_eq!(Client::refused(&server, with_will(V5, longer)).reason, ReasonCode::TOPIC_NAME_INVALID);
    let mut old = Client::raw(&server);
    old.send(&Packet::Connect(with_will(V311, longer)));
    old.expect_close();
    assert_eq!(metric(&server, "millrace_connects_refused_total", "will_topic"), 2);
}

#[test]
fn a_client_id_over_the_limit_is_refused() {
    let server = Server::with(|config| config.limits.client_id_bytes_max = 30);
    Client::connect(&server, V5, &"x".repeat(30)).disconnect();
    let refusal = Client::refused(&server, connect(V5, &"x".repeat(31)));
    assert_eq!(refusal.reason, ReasonCode::CLIENT_IDENTIFIER_NOT_VALID);
    let refusal = Client::refused(&server, connect(V311, &"x".repeat(31)));
    assert_eq!(refusal.reason, ReasonCode(2));
    expect_count(refused, &server, "invalid_connect", 2);
}

#[test]
fn more_unacknowledged_messages_than_the_receive_maximum_end_the_connection() {
    let server = Server::with(|config| config.limits.receive_maximum = 5);
    let mut ann = Client::connect(&server, V5, "ann");
    let told = list(ann.connack.as_ref().unwrap().properties);
    assert!(told.contains(&Property::ReceiveMaximum(5)), "{told:?}");
    for number in 1..=5 {
        ann.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, number, "a", b"")));
        ann.recv_ack(PacketType::PubRec, id(number));
    }
    // Sent again it is the same message.
    ann.send(&Packet::Publish(Publish { dup: true, ..publish_qos(QoS::ExactlyOnce, 3, "a", b"") }));
    ann.recv_ack(PacketType::PubRec, id(3));
    ann.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 6, "a", b"")));
    ann.expect_disconnect(ReasonCode::RECEIVE_MAXIMUM_EXCEEDED);
    expect_count(ended, &server, "receive_maximum", 1);
}

#[test]
fn topic_aliases_over_the_limit_end_the_connection() {
    let server = Server::with(|config| config.limits.topic_alias_max = 3);
    let mut wrong = 0;
    for alias in [0, 4, u16::MAX] {
        let mut ann = Client::connect(&server, V5, "ann");
        let with = |alias| properties(&[Property::TopicAlias(alias)]);
        ann.publish(Publish { properties: with(3), ..publish("a", b"") });
        ann.send(&Packet::Publish(Publish { properties: with(alias), ..publish("a", b"") }));
        ann.expect_disconnect(ReasonCode::TOPIC_ALIAS_INVALID);
        wrong += 1;
    }
    expect_count(ended, &server, "topic_alias", wrong);
}

#[test]
fn a_message_refused_for_its_topic_alias_leaves_its_packet_id_free() {
    let server = Server::with(|config| config.limits.topic_alias_bytes_max = 10);
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("#", QoS::AtMostOnce);
    let topic = "t".repeat(11);
    let message = publish_qos(QoS::ExactlyOnce, 7, &topic, b"x");
    let mut ann = Client::open(&server, lasting("ann"));
    ann.send(&Packet::Publish(Publish { properties: properties(&[Property::TopicAlias(1)]), ..message }));
    ann.expect_disconnect(ReasonCode::QUOTA_EXCEEDED);
    let mut ann = Client::open(&server, lasting("ann"));
    ann.send(&Packet::Publish(Publish { dup: true, ..message }));
    assert_eq!(watcher.recv_publish().payload, b"x");
}

/// Sets an alias for a topic of so many bytes.
fn set_alias(client: &mut Client, alias: u16, topic_bytes: usize) {
    let properties = properties(&[Property::TopicAlias(alias)]);
    client.send(&Packet::Publish(Publish { properties, ..publish(&"t".repeat(topic_bytes), b"") }));
}

#[test]
fn topic_aliases_of_too_many_bytes_end_the_connection() {
    /// Bytes of each connection that do not count for its broker.
    const FREE: u64 = 4_096;
    let server = Server::with(|config| {
        config.limits.topic_alias_bytes_max = 10_000;
        config.limits.topic_alias_bytes_per_broker_max = 6_000;
    });
    let bytes = || metric(&server, "millrace_topic_alias_bytes", "");
    let mut ann = Client::connect(&server, V5, "ann");
    set_alias(&mut ann, 1, 6_000);
    set_alias(&mut ann, 2, 4_000);
    // The topic before is forgotten.
    set_alias(&mut ann, 1, 5_000);
    ann.ping();
    assert_eq!(bytes(), 9_000 - FREE);
    set_alias(&mut ann, 3, 1_001);
    ann.expect_disconnect(ReasonCode::QUOTA_EXCEEDED);
    let reached = |limit: &str| metric(&server, "millrace_limits_reached_total", limit);
    assert_eq!((bytes(), reached("client.topic_alias_bytes")), (0, 1));
    // Many clients with few bytes each do not count for their broker.
    let mut few: Vec<_> =
        (0..5).map(|number| Client::connect(&server, V5, &format!("few-{number}"))).collect();
    few.iter_mut().for_each(|client| set_alias(client, 1, FREE as usize));
    few.iter_mut().for_each(Client::ping);
    assert_eq!(bytes(), 0);
    // Several clients reach the limit of their broker.
    let mut all: Vec<_> = (0..3).map(|number| Client::connect(&server, V5, &format!("c-{number}"))).collect();
    all.iter_mut().for_each(|client| set_alias(client, 1, FREE as usize + 2_000));
    all.iter_mut().for_each(Client::ping);
    assert_eq!(bytes(), 6_000);
    // Another client may still set few bytes.
    let mut another = Client::connect(&server, V5, "another");
    set_alias(&mut another, 1, FREE as usize);
    another.ping();
    set_alias(&mut all[0], 2, 1);
    all[0].expect_disconnect(ReasonCode::QUOTA_EXCEEDED);
    assert_eq!((bytes(), reached("broker.topic_alias_bytes")), (4_000, 1));
    all[1..].iter_mut().for_each(Client::ping);
}

#[test]
fn retained_messages_over_the_limit_are_refused() {
    let server = Server::with(|config| {
        config.limits.retained_messages_max = 2;
        // Its topics are retained, too.
        config.limits.sys_interval_s = 0;
    });
    let mut ann = Client::connect(&server, V5, "ann");
    let mut keep = |topic, payload: &[u8]| {
        ann.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, topic, payload) })
    };
    assert!(!keep("a", b"1").is_error());
    assert!(!keep("b", b"1").is_error());
    assert_eq!(keep("c", b"1"), ReasonCode::QUOTA_EXCEEDED);
    // One that is there may be replaced, and one that has gone makes room.
    assert!(!keep("a", b"2").is_error());
    assert!(!keep("b", b"").is_error());
    assert!(!keep("c", b"1").is_error());
    assert_eq!(keep("d", b"1"), ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(metric(&server, "millrace_publishes_refused_total", "retained_limit"), 2);
    assert_eq!(metric(&server, "millrace_retained_messages", ""), 2);
}

/// Publishes ten messages of this size to an offline session; the numbers that it gets, and what was counted.
fn queued(server: &Server, len: usize) -> (Vec<u64>, u64) {
    let mut ann = Client::open(server, lasting("ann"));
    ann.subscribe("a", QoS::AtLeastOnce);
    ann.cut();
    let mut bob = Client::connect(server, V5, "bob");
    for number in 0..10 {
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", &numbered(number, len)));
    }
    let waited = if STORED {
        // The server looks for queues over their limits from time to time.
        let trimmed = || metric(server, "millrace_messages_trimmed_total", "");
        eventually(|| trimmed() > 0, || counted(server));
        trimmed()
    } else {
        dropped(server, "queue_full")
    };
    let mut ann = Client::open(server, lasting("ann"));
    let numbers = (0..10 - waited).map(|_| number_of(ann.recv_publish().payload)).collect();
    ann.expect_nothing();
    (numbers, waited)
}

#[test]
fn a_queue_keeps_so_many_messages_and_counts_what_it_drops() {
    let server = Server::with(|config| config.limits.queue_messages_max = 4);
    // In memory the newest are not queued; with a store ([`STORED`]) the oldest are trimmed.
    let kept = if STORED { vec![6, 7, 8, 9] } else { vec![0, 1, 2, 3] };
    assert_eq!(queued(&server, 8), (kept, 6));
}

#[test]
fn a_queue_keeps_so_many_bytes_and_counts_what_it_drops() {
    let server = Server::with(|config| config.limits.queue_bytes_max = 10_000);
    let (numbers, dropped) = queued(&server, 3000);
    assert_eq!((numbers, dropped), (if STORED { vec![7, 8, 9] } else { vec![0, 1, 2] }, 7));
}

#[test]
fn connections_over_the_limit_are_closed_at_once_and_those_below_go_on() {
    let server = Server::with(|config| {
        config.threads = 2;
        config.limits.connections_max = 5;
    });
    let mut all: Vec<_> =
        (0..5).map(|number| Client::connect(&server, V5, &format!("client-{number}"))).collect();
    for _ in 0..10 {
        assert_eq!(read_to_close(&TcpStream::connect(server.mqtt()).unwrap()), b"");
    }
    assert_eq!(read_to_close(&TcpStream::connect(server.ws()).unwrap()), b"");
    expect_count(refused, &server, "connections_max", 11);
    all.iter_mut().for_each(Client::ping);
    // One that goes makes room.
    all.pop().unwrap().disconnect();
    eventually(|| metric(&server, "millrace_connections_open", "") == 4, || "it has gone".to_owned());
    Client::connect(&server, V5, "another").ping();
    all.iter_mut().for_each(Client::ping);
    expect_clients(&server, 4);
}

#[test]
fn strangers_that_say_nothing_give_way_to_clients() {
    let server = Server::with(|config| {
        config.threads = 1;
        config.limits.connections_max = 5;
    });
    let mut first = Client::connect(&server, V5, "first");
    let strangers: Vec<_> = (0..4).map(|_| TcpStream::connect(server.mqtt()).unwrap()).collect();
    eventually(|| metric(&server, "millrace_connections_open", "") == 5, || "all are accepted".to_owned());
    assert_eq!(
        read_to_close(&TcpStream::connect(server.mqtt()).unwrap()),
        b"",
        "their CONNECT may be on its way"
    );
    first.expect_silence(Duration::from_millis(2_300));
    let mut clients: Vec<_> =
        (0..4).map(|number| Client::connect(&server, V5, &format!("client-{number}"))).collect();
    for stranger in &strangers {
        assert_eq!(read_to_close(stranger), b"");
    }
    expect_count(refused, &server, "connections_max", 5);
    assert_eq!(read_to_close(&TcpStream::connect(server.mqtt()).unwrap()), b"");
    clients.iter_mut().chain([&mut first]).for_each(Client::ping);
}

#[test]
fn a_session_that_hoards_holds_so_many_bytes_and_others_of_its_broker_go_on() {
    const MAX: u64 = 1_000_000;
    const COUNT: u64 = 500;
    let server = Server::with(|config| {
        config.limits.queue_memory_per_broker_max = MAX;
        config.limits.inflight_max = 1;
    });
    let bytes = || metric(&server, "millrace_queue_bytes", "");
    let mut hoarders: Vec<_> =
        (0..4).map(|number| Client::connect(&server, V5, &format!("hoarder-{number}"))).collect();
    hoarders.iter_mut().for_each(|hoarder| hoarder.subscribe("hoard", QoS::AtLeastOnce));
    let mut healthy = Client::connect(&server, V5, "healthy");
    healthy.subscribe("small", QoS::AtLeastOnce);
    let mut bob = Client::connect(&server, V5, "bob");
    for number in 0..COUNT {
        let payload = numbered(number, 10_000);
        let reason = bob.publish(publish_qos(QoS::AtLeastOnce, 1, "hoard", &payload));
        assert!(!reason.is_error(), "{reason}");
        assert!(bytes() <= MAX, "{} bytes", bytes());
    }
    // Each message counts once, so the four sessions hold nearly as many as one would.
    let held = 4 * COUNT - dropped(&server, "queue_memory");
    assert!((4 * 80..4 * 100).contains(&held), "{held} messages are held");
    assert!(bytes() > MAX / 10 * 9, "{} bytes", bytes());
    for number in 0..20 {
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "small", &numbered(number, 1_000)));
        let message = healthy.recv_publish();
        assert_eq!(number_of(message.payload), number);
        healthy.send(&Packet::PubAck(crate::common::ack(message.packet_id.unwrap())));
    }
    hoarders.into_iter().for_each(Client::cut);
    healthy.ping();
    eventually(|| bytes() == 0, || format!("{} bytes are held by nobody", bytes()));
}

#[test]
fn retained_messages_that_clients_do_not_acknowledge_have_a_limit_in_bytes_also_when_they_are_replaced() {
    const MAX: u64 = 1_000_000;
    const COUNT: u64 = 30;
    let server = Server::with(|config| config.limits.queue_memory_per_broker_max = MAX);
    let bytes = || metric(&server, "millrace_queue_bytes", "");
    let mut publisher = Client::connect(&server, V5, "publisher");
    let mut hoarders = Vec::new();
    for round in 0..4 {
        for number in 0..COUNT {
            let (topic, payload) = (format!("r/{number}"), numbered(number, 50_000));
            let retained = Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, &topic, &payload) };
            assert!(!publisher.publish(retained).is_error());
        }
        let mut hoarder = Client::connect(&server, V5, &format!("hoarder-{round}"));
        hoarder.subscribe("r/#", QoS::AtLeastOnce);
        assert!(bytes() <= MAX, "{} bytes", bytes());
        hoarders.push(hoarder);
    }
    eventually(|| bytes() > MAX * 9 / 10, || format!("{} bytes", bytes()));
    assert!(bytes() <= MAX, "{} bytes", bytes());
    // Each still gets its messages, as it acknowledges earlier ones.
    let hoarder = hoarders.last_mut().unwrap();
    let mut got: Vec<u64> = Vec::new();
    for _ in 0..COUNT {
        let message = hoarder.recv_publish();
        got.push(number_of(message.payload));
        hoarder.send(&Packet::PubAck(crate::common::ack(message.packet_id.unwrap())));
    }
    got.sort_unstable();
    assert!(got.iter().copied().eq(0..COUNT), "{got:?}");
    hoarders.into_iter().for_each(Client::cut);
    eventually(|| bytes() == 0, || format!("{} bytes are held by nobody", bytes()));
}

#[test]
fn a_user_name_that_is_longer_than_those_of_managed_brokers_is_refused() {
    let server = Server::start();
    let user = "u".repeat(256);
    let with = |user| Connect { user_name: Some(user), ..connect(V5, "ann") };
    Client::open(&server, with(&user)).ping();
    let long = format!("{user}u");
    let refusal = Client::refused(&server, with(&long));
    assert_eq!(refusal.reason, ReasonCode::BAD_USER_NAME_OR_PASSWORD);
    let old = Client::refused(&server, Connect { user_name: Some(&long), ..connect(V311, "old") });
    assert_eq!(old.reason, ReasonCode(4));
    let counted = metric(&server, "millrace_connects_refused_total", "reason=\"credentials\"");
    assert_eq!(counted, 2);
    // The name of the broker before it does not count.
    Client::open(&server, with(&format!("default/{}", "u".repeat(256)))).ping();
}

#[test]
fn the_messages_of_all_brokers_have_a_limit_that_spares_nobody() {
    let server = Server::with(|config| {
        config.limits.queue_memory_max = 100_000;
        config.limits.inflight_max = 1;
    });
    let mut ann = Client::connect(&server, V5, "ann");
    ann.subscribe("t", QoS::AtLeastOnce);
    let mut bob = Client::connect(&server, V5, "bob");
    for number in 0..200 {
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &numbered(number, 1_000)));
    }
    assert!(metric(&server, "millrace_queue_bytes", "") <= 100_000);
    let held = 200 - dropped(&server, "queue_memory");
    for number in 0..held {
        let message = ann.recv_publish();
        assert_eq!(number_of(message.payload), number, "the oldest stay");
        ann.send(&Packet::PubAck(crate::common::ack(message.packet_id.unwrap())));
    }
    bob.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &numbered(1_000, 8)));
    assert_eq!(number_of(ann.recv_publish().payload), 1_000, "there is room again");
}

/// Subscribes to filters of 3,000 bytes each; how many were granted.
fn subscribe_to_long_filters(client: &mut Client, prefix: &str, count: usize) -> usize {
    let filters: Vec<String> =
        (0..count).map(|number| format!("{prefix}-{number}/{}", "f".repeat(2_900))).collect();
    let filters: Vec<_> = filters.iter().map(|filter| (&**filter, SubscribeOptions::default())).collect();
    let reasons = client.subscribe_all(&filters, Properties::EMPTY).reasons;
    assert!(reasons.iter().all(|reason| [0, QUOTA].contains(reason)), "{reasons:?}");
    reasons.iter().filter(|reason| **reason == 0).count()
}

#[test]
fn filters_over_a_limit_of_bytes_are_refused() {
    const MAX: u64 = 100_000;
    // Per broker and of all, and which of them is reached.
    for (per_broker, of_all, limit) in
        [(MAX, 10 * MAX, "broker.filter_bytes"), (10 * MAX, MAX, "server.filter_bytes")]
    {
        let server = Server::with(|config| {
            config.limits.filter_memory_per_broker_max = per_broker;
            config.limits.filter_memory_max = of_all;
        });
        let bytes = || metric(&server, "millrace_subscription_bytes", "");
        let reached = || metric(&server, "millrace_limits_reached_total", limit);
        let mut ann = Client::connect(&server, V5, "ann");
        let mut bob = Client::connect(&server, V5, "bob");
        let granted = subscribe_to_long_filters(&mut ann, "a", 100);
        assert!((10..20).contains(&granted), "{granted} of 100 filters");
        assert!((MAX..MAX + 10_000).contains(&bytes()), "{} bytes", bytes());
        assert_eq!((subscribe_to_long_filters(&mut bob, "b", 1), reached()), (0, 2));
        // One that is there may be replaced, and one that has gone makes room.
        assert_eq!(subscribe_to_long_filters(&mut ann, "a", granted), granted);
        ann.disconnect();
        let has_gone = || metric(&server, "millrace_subscriptions", "") == 0;
        eventually(has_gone, || "the filters of a client that has left".to_owned());
        assert_eq!((bytes(), subscribe_to_long_filters(&mut bob, "b", 1)), (0, 1));
    }
}

/// The start of a PUBLISH with QoS 0 whose payload has `bytes` bytes, of which the last one is missing.
fn incomplete(bytes: usize) -> Vec<u8> {
    let payload = vec![b'x'; bytes];
    let mut packet = Vec::new();
    encode::packet(&Packet::Publish(publish("t", &payload)), V5, &mut packet);
    packet.pop();
    packet
}

#[test]
fn incomplete_packets_of_one_broker_take_a_bounded_memory() {
    const BYTES: usize = 250_000;
    let server = Server::with(|config| config.limits.input_memory_max = 1_000_000);
    let held = || metric(&server, "millrace_input_held_bytes", "");
    let mut all: Vec<_> =
        (0..20).map(|number| Client::connect(&server, V5, &format!("c-{number}"))).collect();
    for client in &mut all {
        send_anyway(client.stream(), &incomplete(BYTES));
    }
    let reached = || metric(&server, "millrace_limits_reached_total", "server.input_bytes");
    eventually(|| reached() >= 10, || format!("{} reached", reached()));
    assert!((1..=1_000_000).contains(&held()), "{}", held());
    // A client with whole packets continues.
    let mut other = Client::connect(&server, V5, "other");
    other.subscribe("t", QoS::AtMostOnce);
    other.send(&Packet::Publish(publish("t", b"small")));
    assert_eq!(other.recv_publish().payload, b"small");
    drop(all);
    eventually(|| held() == 0, || format!("{} bytes held", held()));
}

#[test]
fn a_connection_that_is_closed_for_its_incomplete_packet_is_told() {
    let server = Server::with(|config| config.limits.input_memory_max = 100_000);
    let mut ann = Client::connect(&server, V5, "ann");
    send_anyway(ann.stream(), &incomplete(250_000));
    ann.expect_disconnect(ReasonCode::QUOTA_EXCEEDED);
}

#[test]
fn filters_of_packets_that_take_several_turns_count_like_incomplete_packets() {
    const MAX: u64 = 4_000_000;
    let server = Server::with(|config| config.limits.input_memory_max = MAX);
    let held = || metric(&server, "millrace_input_held_bytes", "");
    let filters: Vec<String> = (0..40_000).map(|number| format!("{number:x}")).collect();
    let options = SubscribeOptions::default();
    let mut subscribe = Vec::new();
    let all = filters.iter().map(|filter| (&**filter, options));
    encode::subscribe(id(1), Properties::EMPTY, all, V5, &mut subscribe);
    assert!((subscribe.len() as u64) < MAX / 2, "the packet itself fits");
    let mut ann = Client::connect(&server, V5, "ann");
    send_anyway(ann.stream(), &subscribe);
    ann.expect_disconnect(ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(metric(&server, "millrace_limits_reached_total", "server.input_bytes"), 1);
    eventually(|| held() == 0, || format!("{} bytes held", held()));
    let mut bob = Client::connect(&server, V5, "bob");
    let few: Vec<_> = filters.iter().take(5_000).map(|filter| (&**filter, options)).collect();
    assert_eq!(bob.subscribe_all(&few, Properties::EMPTY).reasons.len(), few.len());
    eventually(|| held() == 0, || format!("{} bytes held", held()));
}

#[test]
fn incomplete_connects_take_a_bounded_memory_and_ordinary_ones_are_accepted() {
    let server = Server::with(|config| config.limits.input_memory_max = 1_000_000);
    let password = vec![b'x'; 200_000];
    let connect = Connect { password: Some(password[..60_000].into()), ..connect(V5, "stranger") };
    let mut packet = Vec::new();
    encode::packet(&Packet::Connect(connect), V5, &mut packet);
    packet.pop();
    let mut all: Vec<_> = (0..20).map(|_| Client::raw(&server)).collect();
    all.iter_mut().for_each(|client| send_anyway(client.stream(), &packet));
    let closed = || metric(&server, "millrace_connections_refused_total", "input_memory");
    eventually(|| closed() >= 10, || format!("{} closed", closed()));
    assert!(metric(&server, "millrace_input_held_bytes", "") <= 250_000);
    Client::connect(&server, V5, "bystander").ping();
}

#[test]
fn retained_messages_of_all_brokers_share_one_memory() {
    let server = Server::with(|config| config.limits.retained_memory_max = 1_000_000);
    let mut ann = Client::connect(&server, V5, "ann");
    let mut set = |topic: &str, bytes: usize| {
        let payload = vec![b'x'; bytes];
        let publish = publish_qos(QoS::AtLeastOnce, 1, topic, &payload);
        ann.publish(Publish { retain: true, ..publish }).0
    };
    // Small ones first: a larger message on a topic that has one counts, too.
    for topic in ["a", "b", "c"] {
        assert!(set(topic, 1) < 0x80, "{topic}");
    }
    // One broker leaves a quarter to others.
    assert!(set("a", 300_000) < 0x80 && set("b", 300_000) < 0x80);
    assert_eq!(set("c", 300_000), QUOTA);
    assert_eq!(metric(&server, "millrace_limits_reached_total", "server.retained_bytes"), 1);
    // A smaller message, and none, are always accepted, and make room.
    assert!(set("a", 100) < 0x80 && set("c", 300_000) < 0x80);
}
