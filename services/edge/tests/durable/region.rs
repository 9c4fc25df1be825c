//! Pods connected by NATS: a live message of one pod is live on all, and messages that the network loses come from the store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrace_edge::fabric::FabricSettings;
use millrace_layers::Store;
use millrace_layers::sessions::{self, Attach, SessionId};
use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, Publish, QoS, ReasonCode, SubscribeOptions, Will};
use millrace_storage::{Database, block_on};

use crate::brokers::to;
use crate::common::{Client, Server, connect, properties, publish, publish_qos};
use crate::relay::Relay;
use crate::server as nats;
use crate::steps::{acknowledge, come_back, lasting, leave, say, take};
use crate::tools::{Packets, counted, eventually, expect_clients, flood, metric, publish_all};

/// The network between the pods of a test.
pub(crate) enum Net {
    /// There is none.
    Absent,
    Nats(nats::Server),
}

/// No network, and one if nats-server can be had.
pub(crate) fn nets() -> Vec<Net> {
    [Net::Absent].into_iter().chain(nats()).collect()
}

pub(crate) fn nats() -> Option<Net> {
    nats::is_installed().then(|| Net::Nats(nats::Server::start("")))
}

impl Net {
    pub(crate) fn pod(&self, database: &Database, name: &str, threads: usize) -> Server {
        match self {
            Self::Absent => pod_at(database, name, threads, None),
            Self::Nats(server) => pod_at(database, name, threads, Some(&server.url())),
        }
    }

    pub(crate) fn three(&self, database: &Database) -> [Server; 3] {
        let pods = ["one", "two", "three"].map(|name| self.pod(database, name, 2));
        if let Self::Nats(_) = self {
            know_each_other(&pods);
        }
        pods
    }
}

/// A pod that reaches NATS at this address.
pub(crate) fn pod_at(database: &Database, name: &str, threads: usize, nats: Option<&str>) -> Server {
    Server::on(database, |config| {
        config.pod = Some(name.into());
        config.threads = threads;
        config.fabric =
            nats.map(|url| FabricSettings { pod_name: name.into(), ..FabricSettings::new(url, "test") });
    })
}

/// Waits until the pods know each other, and what is wanted elsewhere.
pub(crate) fn know_each_other(pods: &[Server]) {
    let others = pods.len() - 1;
    let knows = |pod: &Server| {
        let is_notified = metric(pod, "millrace_region_peers_in_doubt", "") == 0;
        is_notified && metric(pod, "millrace_region_peers", "") >= others as u64
    };
    let know = || {
        pods.iter()
            .all(|pod| pod.edge.fabric_health().is_some_and(|health| health.pods == others) && knows(pod))
    };
    eventually(know, || "the pods do not know each other".into());
}

/// Pods on one store, of which the first reaches NATS by a relay that a test can close; none without nats-server.
pub(crate) fn with_relay<const N: usize>(
    names: [&str; N],
    threads: usize,
) -> Option<([Server; N], Relay, Net)> {
    let net = nats()?;
    let Net::Nats(server) = &net else { return None };
    let (database, relay) = (Database::memory(), Relay::start(server.port));
    let pods = names.map(|name| {
        if name == names[0] {
            pod_at(&database, name, threads, Some(&relay.url()))
        } else {
            net.pod(&database, name, threads)
        }
    });
    know_each_other(&pods);
    Some((pods, relay, net))
}

/// Three pods on one store and one NATS server; none without nats-server.
pub(crate) fn three() -> Option<([Server; 3], Net)> {
    let net = nats()?;
    Some((net.three(&Database::memory()), net))
}

#[test]
fn what_is_published_on_one_pod_comes_to_clients_of_all() {
    let Some((pods, _net)) = three() else { return };
    for (version, filter) in [(V5, "a/b"), (V311, "a/+"), (V5, "#"), (V311, "+/b")] {
        let mut readers: Vec<Client> = pods
            .iter()
            .enumerate()
            .map(|(number, pod)| {
                let mut reader = Client::connect(pod, version, &format!("reader {filter} {number}"));
                reader.subscribe(filter, QoS::ExactlyOnce);
                reader
            })
            .collect();
        for (number, from) in pods.iter().enumerate() {
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let text = format!("{number} {qos:?}");
                say(from, qos, "a/b", &[&text]);
                for reader in &mut readers {
                    let message = take(reader);
                    assert_eq!((message.payload, message.qos), (text.as_bytes(), qos), "{filter}");
                    acknowledge(reader, &message);
                }
            }
        }
        for mut reader in readers {
            reader.unsubscribe(&[filter]);
        }
    }
}

#[test]
fn the_delay_of_messages_from_other_pods_is_measured() {
    let Some((pods, _net)) = three() else { return };
    let mut reader = Client::connect(&pods[1], V5, "reader");
    reader.subscribe("a", QoS::AtMostOnce);
    let measured = |pod: &Server| metric(pod, "millrace_fabric_delay_seconds_count", "");
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let before = measured(&pods[1]);
        eventually(
            || {
                say(&pods[0], qos, "a", &["x"]);
                assert_eq!(take(&mut reader).payload, b"x");
                measured(&pods[1]) > before
            },
            || counted(&pods[1]),
        );
    }
}

#[test]
fn what_is_published_right_after_a_suback_arrives_also_in_a_broker_that_was_cold() {
    let Some(net) = nats() else { return };
    let database = Database::memory();
    let names: Vec<String> = (0..10).map(|number| format!("cold{number}")).collect();
    // Made, and opened by none of the other pods.
    drop(Server::on(&database, |config| {
        config.pod = Some("maker".into());
        config.brokers.clone_from(&names);
    }));
    let pods = ["one", "two"].map(|name| {
        let Net::Nats(server) = &net else { unreachable!() };
        Server::on(&database, |config| {
            config.pod = Some(name.into());
            config.fabric =
                Some(FabricSettings { pod_name: name.into(), ..FabricSettings::new(&server.url(), "test") });
            config.gateway_listen = vec![([127, 0, 0, 1], 0).into()];
            config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
        })
    });
    know_each_other(&pods);
    for name in &names {
        let mut ann = crate::brokers::open(&pods[0], name, connect(V5, "ann"));
        ann.subscribe("t", QoS::AtLeastOnce);
        let mut bob = crate::brokers::open(&pods[1], name, connect(V5, "bob"));
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "t", name.as_bytes()));
        assert_eq!(take(&mut ann).payload, name.as_bytes());
    }
}

#[test]
fn a_pod_that_has_just_started_hears_the_others_and_is_heard() {
    let Some(net) = nats() else { return };
    let database = Database::memory();
    let one = net.pod(&database, "one", 1);
    let mut ann = Client::connect(&one, V5, "ann");
    ann.subscribe("to/ann", QoS::AtMostOnce);
    for number in 0..5 {
        let two = net.pod(&database, &format!("two {number}"), 1);
        let mut bob = Client::connect(&two, V5, "bob");
        bob.subscribe("to/bob", QoS::AtMostOnce);
        for (from, topic, to) in [(&two, "to/ann", &mut ann), (&one, "to/bob", &mut bob)] {
            say(from, QoS::AtMostOnce, topic, &["at once"]);
            assert_eq!(take(to).payload, b"at once", "{topic} {number}");
        }
    }
}

#[test]
fn a_flood_of_one_pod_comes_to_the_other_whole_and_in_order() {
    const COUNT: u64 = 20_000;
    let Some((pods, _net)) = three() else { return };
    for version in [V311, V5] {
        let mut reader = Client::connect(&pods[1], version, "reader");
        reader.subscribe("f", QoS::AtMostOnce);
        let mut publisher = Client::connect(&pods[0], V5, "publisher");
        std::thread::scope(|scope| {
            scope.spawn(|| publisher.send_bytes(&flood("f", COUNT, 50, V5)));
            let mut packets = Packets::of(&reader);
            for expected in 0..COUNT {
                assert_eq!(packets.next_number(), Some(expected));
            }
        });
    }
}

#[test]
fn messages_of_all_qualities_of_one_publisher_come_in_order_on_another_pod() {
    const COUNT: u64 = 300;
    let Some((pods, _net)) = three() else { return };
    let mut reader = Client::connect(&pods[2], V5, "reader");
    reader.subscribe("m", QoS::AtMostOnce);
    let pod = &pods[0];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut publisher = Client::connect(pod, V5, "publisher");
            for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().cycle().take(COUNT as usize / 50) {
                publish_all(&mut publisher, qos, "m", 50, 20);
            }
        });
        let mut packets = Packets::of(&reader);
        for number in 0..COUNT {
            assert_eq!(packets.next_number(), Some(number % 50));
        }
    });
}

#[test]
fn a_message_for_a_shared_subscription_goes_to_one_member_on_any_pod() {
    let Some((pods, _net)) = three() else { return };
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let filter = format!("$share/g/s{}/+", qos as u8);
        let topic = format!("s{}/x", qos as u8);
        // Two members on the first pod, one on each of the others.
        let mut members: Vec<Client> = [0, 0, 1, 2]
            .into_iter()
            .enumerate()
            .map(|(number, pod)| {
                let mut member = Client::connect(&pods[pod], V5, &format!("member {} {number}", qos as u8));
                member.subscribe(&filter, QoS::AtLeastOnce);
                member
            })
            .collect();
        let reached = |members: &mut [Client], from: &Server| -> HashMap<usize, usize> {
            for number in 0..40 {
                say(from, qos, &topic, &[&number.to_string()]);
            }
            let mut got = HashMap::new();
            let mut seen = Vec::new();
            for (number, member) in members.iter_mut().enumerate() {
                member.stream().set_read_timeout(Some(Duration::from_millis(500))).unwrap();
                let mut packets = Packets::of(member);
                while let Some(Packet::Publish(message)) = packets.next() {
                    seen.push(String::from_utf8_lossy(message.payload).into_owned());
                    *got.entry(number).or_default() += 1;
                    if let Some(id) = message.packet_id {
                        crate::tools::send_anyway(member.stream(), &puback(id.get()));
                    }
                }
            }
            seen.sort_by_key(|text| text.parse::<u32>().unwrap_or(u32::MAX));
            let expected: Vec<String> = (0..40).map(|number| number.to_string()).collect();
            assert_eq!(seen, expected, "{qos:?}");
            got
        };
        for from in &pods {
            eventually(|| reached(&mut members, from).len() == 4, || "not all members get messages".into());
        }
        // A pod without a member has no turn.
        drop(members.pop());
        expect_clients(&pods[2], 0);
        assert_eq!(reached(&mut members, &pods[2]).len(), 3);
    }
}

fn puback(id: u16) -> Vec<u8> {
    let [high, low] = id.to_be_bytes();
    vec![0x40, 2, high, low]
}

#[test]
fn a_retained_message_reaches_who_is_subscribed_on_another_pod_and_who_comes_later() {
    let Some((pods, _net)) = three() else { return };
    let mut there = Client::connect(&pods[1], V5, "there");
    there.subscribe("r", QoS::AtLeastOnce);
    for (number, text) in ["one", "two", ""].into_iter().enumerate() {
        let mut publisher = Client::connect(&pods[0], V5, "publisher");
        publisher.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, "r", text.as_bytes()) });
        let message = take(&mut there);
        assert_eq!((message.payload, message.retain), (text.as_bytes(), false));
        acknowledge(&mut there, &message);
        let mut later = Client::connect(&pods[2], V5, &format!("later {number}"));
        later.subscribe("r", QoS::AtLeastOnce);
        if text.is_empty() {
            later.expect_nothing();
        } else {
            let message = take(&mut later);
            assert_eq!((message.payload, message.retain), (text.as_bytes(), true));
        }
    }
}

#[test]
fn what_a_limit_refuses_to_retain_is_retained_on_no_pod_and_reaches_present_subscribers() {
    let Some(net) = nats() else { return };
    let Net::Nats(server) = &net else { return };
    let database = Database::memory();
    let pods = ["one", "two"].map(|name| {
        Server::on(&database, |config| {
            config.pod = Some(name.into());
            config.limits.retained_messages_max = 1;
            config.fabric =
                Some(FabricSettings { pod_name: name.into(), ..FabricSettings::new(&server.url(), "test") });
        })
    });
    know_each_other(&pods);
    let mut there = Client::connect(&pods[1], V5, "there");
    let as_published =
        SubscribeOptions { qos: QoS::AtLeastOnce, retain_as_published: true, ..Default::default() };
    there.subscribe_all(&[("r/#", as_published)], properties(&[]));
    let mut lasting_there = Client::open(&pods[1], lasting(V5, "lasting there"));
    lasting_there.subscribe("r/#", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&pods[0], V311, "publisher");
    for (topic, qos) in [("r/1", 1), ("r/2", 1), ("r/3", 0), ("r/4", 1)] {
        if qos == 0 {
            publisher.send(&Packet::Publish(Publish { retain: true, ..publish(topic, b"x") }));
        } else {
            publisher.publish(Publish { retain: true, ..publish_qos(QoS::AtLeastOnce, 1, topic, b"x") });
        }
        let message = take(&mut there);
        assert_eq!((message.topic, message.retain), (topic, true));
        if qos == 1 {
            acknowledge(&mut there, &message);
        }
    }
    let retained = |pod| metric(pod, "millrace_retained_messages", "");
    assert_eq!([retained(&pods[0]), retained(&pods[1])], [1, 1]);
    let mut late = Client::connect(&pods[1], V5, "late");
    late.subscribe("r/#", QoS::AtMostOnce);
    assert_eq!(take(&mut late).topic, "r/1");
    late.expect_nothing();
}

#[test]
fn a_new_subscription_gets_what_is_retained_and_then_everything_after_it_once() {
    let Some((pods, _net)) = three() else { return };
    // A session that is kept may get QoS 0 out of order: that does not go through its streams.
    let stored = [QoS::AtLeastOnce, QoS::ExactlyOnce];
    let all = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
    let readers = [(0, false), (1, false), (2, false)];
    let next = replay(&pods, &all, &readers, 0);
    let lasting = [(0, true), (1, true), (2, true)];
    replay(&pods, &stored, &[readers, lasting].concat(), next);
}

/// Numbers, retained, on one pod, while readers, lasting or not, come and go on pods. Gives the next number.
fn replay(pods: &[Server], qualities: &[QoS], readers: &[(usize, bool)], first: usize) -> usize {
    let left = AtomicUsize::new(readers.len());
    std::thread::scope(|scope| {
        for (pod, lasts) in readers {
            let (pod, lasts, left) = (&pods[*pod], *lasts, &left);
            scope.spawn(move || {
                for round in 0..15 {
                    let id = format!("reader {first} {round} {:?}", std::thread::current().id());
                    let asks = if lasts { lasting(V5, &id) } else { connect(V5, &id) };
                    let mut reader = Client::open(pod, asks);
                    reader.subscribe("r", QoS::AtLeastOnce);
                    let mut last = None;
                    for _ in 0..10 {
                        let message = take(&mut reader);
                        acknowledge(&mut reader, &message);
                        let number: u64 = std::str::from_utf8(message.payload).unwrap().parse().unwrap();
                        let follows = last.is_none_or(|last| number == last + 1);
                        assert!(follows, "{number} after {last:?}, lasting: {lasts}, {message:?}");
                        last = Some(number);
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut publisher = Client::connect(&pods[0], V5, "publisher");
        let mut number = first;
        while left.load(Ordering::Relaxed) > 0 && number < first + 20_000 {
            let payload = number.to_string();
            let message = match qualities[number % qualities.len()] {
                QoS::AtMostOnce => publish("r", payload.as_bytes()),
                qos => publish_qos(qos, 1, "r", payload.as_bytes()),
            };
            publisher.publish(Publish { retain: true, ..message });
            number += 1;
        }
        number
    })
}

#[test]
fn a_pod_without_nats_serves_its_own_clients_and_keeps_every_durable_message() {
    let Some((pods, relay, _net)) = with_relay(["cut", "two"], 2) else { return };
    let mut own = Client::connect(&pods[0], V5, "own");
    own.subscribe("t", QoS::AtLeastOnce);
    let mut kept = [Client::open(&pods[0], lasting(V5, "ann")), Client::open(&pods[1], lasting(V5, "bob"))];
    kept.iter_mut().for_each(|kept| kept.subscribe("t", QoS::AtLeastOnce));
    relay.refuse(true);
    for round in 0..10 {
        let texts = [format!("cut {round}"), format!("two {round}")];
        for (pod, text) in pods.iter().zip(&texts) {
            say(pod, QoS::AtLeastOnce, "t", &[text]);
        }
        let message = take(&mut own);
        assert_eq!(message.payload, texts[0].as_bytes(), "live, on its own pod");
        acknowledge(&mut own, &message);
    }
    for kept in &mut kept {
        let mut got: Vec<String> = Vec::new();
        // Others notice within seconds that a pod is unreachable.
        kept.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        while got.len() < 20 {
            let message = take(kept);
            acknowledge(kept, &message);
            got.push(String::from_utf8(message.payload.into()).unwrap());
        }
        for pod in ["cut", "two"] {
            let of_pod: Vec<_> = got.iter().filter(|text| text.starts_with(pod)).collect();
            assert_eq!(
                of_pod,
                (0..10).map(|round| format!("{pod} {round}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
            );
        }
    }
    let health = pods[0].edge.fabric_health().unwrap();
    assert!(!health.connected && pods[0].edge.health().is_ok(), "{health}");
    relay.refuse(false);
    own.stream().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let is_live = || {
        say(&pods[1], QoS::AtMostOnce, "t", &["live again"]);
        Packets::of(&own).next().is_some()
    };
    eventually(is_live, || "the pod that was cut off hears nothing".into());
}

#[test]
fn a_pod_without_nats_hands_all_messages_of_a_shared_subscription_to_its_own_members() {
    let Some((pods, relay, _net)) = with_relay(["cut", "two"], 2) else { return };
    // With a stored group, QoS 0 goes to the members that are online, too.
    for (round, is_stored) in [false, true].into_iter().enumerate() {
        let (filter, topic) = (format!("$share/g{round}/s{round}"), format!("s{round}"));
        if is_stored {
            crate::steps::subscribe_and_leave(&pods[1], V5, "kept", &[(&filter, QoS::AtLeastOnce)]);
        }
        let mut members = [0, 1].map(|pod| {
            let mut member = Client::connect(&pods[pod], V5, &format!("member {round} {pod}"));
            member.subscribe(&filter, QoS::AtMostOnce);
            member.stream().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            member
        });
        let both_get = || {
            say(&pods[0], QoS::AtMostOnce, &topic, &["one", "two"]);
            members.iter().all(|member| Packets::of(member).next().is_some())
        };
        eventually(both_get, || "the pods do not know each other's members".into());
        relay.refuse(true);
        let is_connected = || pods[0].edge.fabric_health().is_some_and(|health| health.connected);
        eventually(|| !is_connected(), || "the pod does not notice".into());
        while Packets::of(&members[0]).next().is_some() {}
        members[0].stream().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let texts: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for qos in if is_stored { &[QoS::AtMostOnce][..] } else { &[QoS::AtMostOnce, QoS::AtLeastOnce] } {
            for text in &texts {
                say(&pods[0], *qos, &topic, &[text]);
            }
            let got: Vec<String> = texts.iter().map(|_| text_of(&take(&mut members[0]))).collect();
            assert_eq!(got, texts, "{qos:?}, with a stored group: {is_stored}");
        }
        relay.refuse(false);
        eventually(is_connected, || "the pod stays cut off".into());
        know_each_other(&pods);
    }
}

fn text_of(message: &Publish<'_>) -> String {
    String::from_utf8_lossy(message.payload).into_owned()
}

/// Copies of what a pod committed may come late, or never, while those of others come at once (P3, P4).
#[test]
fn messages_of_a_publisher_that_moves_between_pods_come_in_order_to_a_session_on_a_third() {
    const ROUNDS: usize = 24;
    let Some((pods, relay, _net)) = with_relay(["cut", "two", "three"], 1) else { return };
    for version in [V5, V311] {
        let mut ann = Client::open(&pods[2], lasting(version, &format!("ann {version:?}")));
        ann.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        ann.subscribe("t/+", QoS::AtLeastOnce);
        let texts: Vec<String> = (0..ROUNDS).map(|round| format!("{version:?} {round}")).collect();
        for (round, text) in texts.iter().enumerate() {
            // From 2 to 5 all that the pod "cut" sends is lost, and nobody knows that yet; then the network works again.
            match round % 8 {
                2 => relay.refuse(true),
                5 => {
                    relay.refuse(false);
                    eventually(
                        || pods[0].edge.fabric_health().is_some_and(|health| health.connected),
                        || "the pod stays cut off".into(),
                    );
                }
                _ => {}
            }
            say(&pods[round % 2], QoS::AtLeastOnce, "t/a", &[text]);
        }
        let mut got: Vec<String> = Vec::new();
        while got.len() < ROUNDS {
            let message = take(&mut ann);
            acknowledge(&mut ann, &message);
            got.push(String::from_utf8(message.payload.into()).unwrap());
        }
        assert_eq!(got, texts);
        leave(&mut ann, true);
    }
}

/// Sessions of one stream share what is read of it for a moment: a session must also find messages that were committed since.
#[test]
fn a_session_that_comes_back_does_not_take_what_another_has_read_for_all_there_is() {
    let Some((pods, relay, _net)) = with_relay(["cut", "two", "three"], 1) else { return };
    for round in 0..10 {
        let [mut ann, mut bob] =
            ["ann", "bob"].map(|name| Client::open(&pods[2], lasting(V5, &format!("{name} {round}"))));
        let (filter, topic) = (format!("{round}/+"), format!("{round}/a"));
        for reader in [&mut ann, &mut bob] {
            reader.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            reader.subscribe(&filter, QoS::AtLeastOnce);
        }
        leave(&mut bob, true);
        for number in 0..8 {
            // Each of another connection: the first of it is read.
            say(&pods[1], QoS::AtLeastOnce, &topic, &[&format!("{number}")]);
            acknowledge_next(&mut ann);
        }
        relay.refuse(true);
        say(&pods[0], QoS::AtLeastOnce, &topic, &["8"]);
        let mut bob = come_back(&pods[2], V5, &format!("bob {round}"));
        let mut got = vec![acknowledge_next(&mut bob)];
        say(&pods[1], QoS::AtLeastOnce, &topic, &["9", "10", "11"]);
        got.extend((1..12).map(|_| acknowledge_next(&mut bob)));
        assert_eq!(got, (0..12).map(|number| format!("{number}")).collect::<Vec<_>>(), "round {round}");
        leave(&mut ann, true);
        leave(&mut bob, true);
        relay.refuse(false);
        know_each_other(&pods);
    }
}

fn acknowledge_next(client: &mut Client) -> String {
    let message = take(client);
    acknowledge(client, &message);
    String::from_utf8(message.payload.into()).unwrap()
}

/// The session takes copies, and what it took comes again neither from the store nor on its next connection.
#[test]
fn a_session_that_took_copies_gets_no_message_twice() {
    const ROUNDS: usize = 350;
    let Some((pods, _net)) = three() else { return };
    for (version, qos) in [(V5, QoS::AtLeastOnce), (V311, QoS::AtLeastOnce), (V5, QoS::ExactlyOnce)] {
        let name = format!("ann {version:?} {qos:?}");
        let mut ann = Client::open(&pods[2], lasting(version, &name));
        ann.subscribe("t/+", qos);
        let mut publishers =
            [0, 1, 2].map(|pod| Client::connect(&pods[pod], V5, &format!("publisher {pod}")));
        for round in 0..ROUNDS {
            let text = format!("{round}");
            let from = &mut publishers[round % 7 % 3];
            from.publish(publish_qos(QoS::AtLeastOnce, 1, "t/a", text.as_bytes()));
            let message = take(&mut ann);
            assert_eq!((message.payload, message.dup), (text.as_bytes(), false), "{name}");
            acknowledge(&mut ann, &message);
            if round % 100 == 99 {
                leave(&mut ann, round % 200 == 99);
                ann = come_back(&pods[round % 3], version, &name);
            }
        }
        crate::steps::expect_no_rest(&pods[0], &mut ann, "t/end");
        leave(&mut ann, true);
    }
}

#[test]
fn a_pod_that_starts_again_after_a_kill_says_the_wills_to_clients_that_others_only_have_in_memory() {
    let Some(net) = nats() else { return };
    let database = Database::memory();
    let [one, two] = ["one", "two"].map(|name| net.pod(&database, name, 1));
    let mut watcher = Client::connect(&two, V5, "watcher");
    watcher.subscribe("will", QoS::AtLeastOnce);
    let will = Will {
        topic: "will",
        payload: b"gone",
        qos: QoS::AtLeastOnce,
        retain: false,
        properties: properties(&[]),
    };
    let _ann = Client::open(&one, Connect { will: Some(will), ..lasting(V5, "ann") });
    // The session that a killed pod leaves. The store gives its will to the pod that takes the session.
    let store = Store::new(database.clone());
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    let id = SessionId { broker, client: b"ann" };
    let attach = |will: Option<sessions::PendingWill>| {
        let will = &will;
        let request = || Attach {
            owner: "one".into(),
            clean: false,
            expiry_s: 3600,
            now_ms: crate::pods::now_ms(),
            will: will.clone(),
            details: None,
        };
        block_on(store.run(async |tx| sessions::attach(&tx, id, request()).await)).unwrap().will
    };
    let body = attach(None).unwrap();
    drop(one);
    attach(Some(sessions::PendingWill { delay_s: 0, body }));
    let _one = net.pod(&database, "one", 1);
    assert_eq!(take(&mut watcher).payload, b"gone");
}

#[test]
fn a_killed_nats_server_loses_no_durable_message() {
    let Some(first) = nats::is_installed().then(|| nats::Server::start_in_cluster("one", None)) else {
        return;
    };
    let mut first = first;
    let second = nats::Server::start_in_cluster("two", Some(&first));
    let database = Database::memory();
    let pods = ["a", "b"].map(|name| {
        Server::on(&database, |config| {
            config.pod = Some(name.into());
            config.threads = 2;
            let settings = FabricSettings::new(&first.url(), "test");
            let servers = vec![first.url(), second.url()];
            config.fabric = Some(FabricSettings { pod_name: name.into(), servers, ..settings });
        })
    });
    know_each_other(&pods);
    let mut ann = Client::open(&pods[1], lasting(V5, "ann"));
    ann.subscribe("t", QoS::AtLeastOnce);
    let mut expected = Vec::new();
    for number in 0..60 {
        if number == 20 {
            first.kill();
        }
        let text = number.to_string();
        say(&pods[0], QoS::AtLeastOnce, "t", &[&text]);
        expected.push(text);
    }
    ann.stream().set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut got = Vec::new();
    while got.len() < expected.len() {
        let message = take(&mut ann);
        acknowledge(&mut ann, &message);
        got.push(String::from_utf8(message.payload.into()).unwrap());
    }
    assert_eq!(got, expected);
    leave(&mut ann, true);
    say(&pods[1], QoS::AtLeastOnce, "t", &["offline"]);
    assert_eq!(take(&mut come_back(&pods[0], V5, "ann")).payload, b"offline");
}

#[test]
fn clients_of_a_broker_that_is_being_opened_are_answered_whichever_loop_they_come_to() {
    const CLIENTS: usize = 48;
    let Some(net) = nats() else { return };
    let Net::Nats(nats) = &net else { return };
    let (database, relay) = (Database::memory(), Relay::start(nats.port));
    let one = Server::on(&database, |config| {
        config.pod = Some("one".into());
        config.threads = 4;
        config.limits.home_clients_max = 1_000;
        config.gateway_listen = vec![([127, 0, 0, 1], 0).into()];
        config.gateway_from = vec!["127.0.0.1/32".parse().unwrap()];
        config.fabric =
            Some(FabricSettings { pod_name: "one".into(), ..FabricSettings::new(&relay.url(), "test") });
    });
    let pods = [one, net.pod(&database, "two", 1)];
    know_each_other(&pods);
    // The pod waits for the answer of the other one while it opens a broker.
    relay.pause(true);
    let waiting = || -> Vec<Client> { (0..CLIENTS).map(|_| to(&pods[0], "new.mqtt.example")).collect() };
    let (strangers, clients) = (waiting(), waiting());
    let ask = |mut clients: Vec<Client>| -> Vec<ReasonCode> {
        clients.iter_mut().for_each(|client| client.send(&Packet::Connect(connect(V5, ""))));
        clients.iter_mut().map(|client| client.recv_connack().reason).collect()
    };
    assert_eq!(ask(strangers), [ReasonCode::NOT_AUTHORIZED; CLIENTS]);
    block_on(Store::new(database.clone()).ensure_broker(b"new")).unwrap();
    let _answer = pods[0].edge.purge_session("new", "nobody").unwrap();
    for reason in ask(clients) {
        assert!([ReasonCode::NOT_AUTHORIZED, ReasonCode::SUCCESS].contains(&reason), "{reason}");
    }
    relay.pause(false);
    let accepts = || {
        let mut client = to(&pods[0], "new.mqtt.example");
        client.send(&Packet::Connect(connect(V5, "")));
        client.recv_connack().reason == ReasonCode::SUCCESS
    };
    eventually(accepts, || "the broker does not open".into());
}

#[test]
fn a_retained_message_that_an_operator_clears_leaves_the_memory_of_all_pods() {
    let Some((pods, _net)) = three() else { return };
    let mut watcher = Client::connect(&pods[2], V5, "watcher");
    watcher.subscribe("r", QoS::AtLeastOnce);
    let mut publisher = Client::connect(&pods[0], V5, "publisher");
    let message = publish_qos(QoS::AtLeastOnce, 1, "r", b"here");
    assert!(!publisher.publish(Publish { retain: true, ..message }).is_error());
    assert_eq!(take(&mut watcher).payload, b"here");
    let retained = |pod: &Server| metric(pod, "millrace_retained_messages", "");
    let all_have =
        |count| eventually(|| pods.iter().all(|pod| retained(pod) == count), || format!("{count}"));
    all_have(1);
    assert_eq!(pods[1].edge.clear_retained("default", "r"), Ok(true));
    all_have(0);
    watcher.expect_nothing();
}
