//! A change of rules ends the subscriptions that it no longer allows, of connected clients and of offline sessions.

use millrace_access::model::{Access, Action, Rule};
use millrace_mqtt::{Connect, Packet, Properties, Property, QoS, SubscribeOptions, Version};
use millrace_storage::Database;

use crate::access::{allow, bob, put, with_access};
use crate::common::{Client, Server, ack, connect, properties, publish_qos};
use crate::tools::{TURN_WORK_MAX, eventually, metric};

fn set_up() -> (Database, u64) {
    let (database, id) = with_access(&Access::default());
    put(&database, id, &bob(vec![]));
    (database, id)
}

fn open(server: &Server, id: &'static str, clean_start: bool, expiry_s: u32) -> Client {
    let expiry = properties(&[Property::SessionExpiryInterval(expiry_s)]);
    let connect = Connect { properties: expiry, clean_start, ..connect(Version::V5, id) };
    Client::open(server, Connect { user_name: Some("bob"), password: Some(b"right"), ..connect })
}

/// From now on, bob may subscribe to these filters alone; he may publish to every topic.
fn allow_only(database: &Database, id: u64, filters: &[&str]) {
    let mut rules = vec![allow(Action::Publish, "#")];
    rules.extend(filters.iter().map(|filter| allow(Action::Subscribe, filter)));
    put(database, id, &bob(rules));
}

fn send(publisher: &mut Client, topic: &'static str) {
    publisher.publish(publish_qos(QoS::AtLeastOnce, 7, topic, b"x"));
}

/// Receives and acknowledges messages until one to `end`; returns the topics of those before it.
fn received(client: &mut Client) -> Vec<&'static str> {
    let mut topics = Vec::new();
    loop {
        let message = client.recv_publish();
        if let Some(id) = message.packet_id {
            client.send(&Packet::PubAck(ack(id)));
        }
        if message.topic == "end" {
            return topics;
        }
        topics.push(message.topic);
    }
}

fn has_revoked(server: &Server) -> bool {
    metric(server, "millrace_subscriptions_revoked_total", "") > 0
}

#[test]
fn a_subscription_that_is_not_allowed_any_more_ends_at_once() {
    for expiry_s in [0, 60] {
        let (database, id) = set_up();
        let server = Server::on(&database, |_| {});
        let (mut client, mut publisher) =
            (open(&server, "sub", true, expiry_s), open(&server, "pub", true, 0));
        for filter in ["a/#", "b", "$share/g/a/x", "end"] {
            client.subscribe(filter, QoS::AtLeastOnce);
        }
        allow_only(&database, id, &["b", "end"]);
        eventually(|| has_revoked(&server), || "nothing is revoked".into());
        for topic in ["a/x", "b", "end"] {
            send(&mut publisher, topic);
        }
        assert_eq!(received(&mut client), ["b"], "{expiry_s}");
        // The resumed session has no revoked subscription either, even when the rules allow it again.
        drop(client);
        let mut client = open(&server, "sub", false, expiry_s);
        if expiry_s > 0 {
            allow_only(&database, id, &["#"]);
            eventually(
                || client.subscribe_all(&[("c", Default::default())], properties(&[])).reasons == [0],
                || "the new rules are not in force".into(),
            );
            for topic in ["a/x", "b", "end"] {
                send(&mut publisher, topic);
            }
            assert_eq!(received(&mut client), ["b"]);
        }
    }
}

#[test]
fn a_resumed_session_has_only_the_subscriptions_still_allowed() {
    let (database, id) = set_up();
    let server = Server::on(&database, |_| {});
    let mut client = open(&server, "sub", true, 60);
    for filter in ["a", "b", "end"] {
        client.subscribe(filter, QoS::AtLeastOnce);
    }
    client.disconnect();
    allow_only(&database, id, &["b", "end"]);
    let mut publisher = open(&server, "pub", true, 0);
    for topic in ["a", "b"] {
        send(&mut publisher, topic);
    }
    // Wait until the server applies the new rules to a client that connects.
    eventually(
        || publisher.subscribe_all(&[("a", Default::default())], properties(&[])).reasons == [0x87],
        || "the new rules are not in force".into(),
    );
    let mut client = open(&server, "sub", false, 60);
    for topic in ["a", "end"] {
        send(&mut publisher, topic);
    }
    assert_eq!(received(&mut client), ["b"]);
}

const TOPICS: [&str; 5] = ["a/1", "a/2/x", "a/s", "b", "end"];

/// Bob may subscribe to everything, but with at most this QoS where the filter begins with `a`.
fn allow_qos(database: &Database, id: u64, qos_max: u8) {
    let a = Rule { qos_max, ..allow(Action::Subscribe, "a/#") };
    let others = ["b", "end"].map(|filter| allow(Action::Subscribe, filter));
    put(database, id, &bob([vec![allow(Action::Publish, "#"), a], others.to_vec()].concat()));
}

/// The topics and QoS of messages until all of these topics have come, all of them acknowledged.
fn qos_received(client: &mut Client, topics: &[&str]) -> Vec<(&'static str, u8)> {
    let (mut found, mut unreleased) = (Vec::<(&str, u8)>::new(), 0);
    let lacks =
        |found: &[(&str, u8)]| topics.iter().any(|topic| found.iter().all(|(found, _)| found != topic));
    while unreleased > 0 || lacks(&found) {
        match client.recv() {
            Packet::Publish(message) => {
                found.push((message.topic, message.qos as u8));
                match (message.qos, message.packet_id) {
                    (QoS::AtLeastOnce, Some(id)) => client.send(&Packet::PubAck(ack(id))),
                    (QoS::ExactlyOnce, Some(id)) => {
                        client.send(&Packet::PubRec(ack(id)));
                        unreleased += 1;
                    }
                    _ => {}
                }
            }
            Packet::PubRel(answer) => {
                client.send(&Packet::PubComp(answer));
                unreleased -= 1;
            }
            other => panic!("{other:?}"),
        }
    }
    found.sort_unstable();
    found
}

#[test]
fn a_rule_that_lowers_the_qos_lowers_it_for_present_subscriptions_and_for_sessions_that_come_back() {
    for (name, lowered) in [(None, 1), (None, 0), (Some("pod"), 1)] {
        for expiry_s in [0, 60] {
            let (database, id) = set_up();
            allow_qos(&database, id, 2);
            let server = Server::on(&database, |config| config.pod = name.map(Into::into));
            let (mut client, mut publisher) =
                (open(&server, "sub", true, expiry_s), open(&server, "pub", true, 0));
            let plain = |qos| SubscribeOptions { qos, ..SubscribeOptions::default() };
            for (number, filter) in (1..).zip(["a/1", "a/+/x", "$share/g/a/s", "b", "end"]) {
                let identifier = properties(&[Property::SubscriptionIdentifier(number)]);
                client.subscribe_all(&[(filter, plain(QoS::ExactlyOnce))], identifier);
            }
            let mut publish_all = || {
                for topic in TOPICS {
                    publisher.publish(publish_qos(QoS::ExactlyOnce, 7, topic, b"x"));
                }
            };
            publish_all();
            assert_eq!(
                qos_received(&mut client, &TOPICS),
                [("a/1", 2), ("a/2/x", 2), ("a/s", 2), ("b", 2), ("end", 2)]
            );
            allow_qos(&database, id, lowered);
            let mut last = Vec::new();
            eventually(
                || {
                    publish_all();
                    last = qos_received(&mut client, &TOPICS);
                    last == [("a/1", lowered), ("a/2/x", lowered), ("a/s", lowered), ("b", 2), ("end", 2)]
                },
                || "the QoS stays".into(),
            );
            if expiry_s > 0 && lowered > 0 {
                client.disconnect();
                publish_all();
                let mut client = open(&server, "sub", false, expiry_s);
                assert_eq!(qos_received(&mut client, &TOPICS), last);
                client.disconnect();
                allow_qos(&database, id, 0);
                eventually(|| granted_now(&server) == 0, || "the new rules are not in force".into());
                publish_all();
                let mut client = open(&server, "sub", false, expiry_s);
                assert!(
                    qos_received(&mut client, &["b", "end"])
                        .iter()
                        .all(|(topic, qos)| !topic.starts_with('a') || *qos == 0)
                );
            }
        }
    }
}

/// The QoS that a subscription of another client of bob is granted now.
fn granted_now(server: &Server) -> u8 {
    let qos_2 = SubscribeOptions { qos: QoS::ExactlyOnce, ..SubscribeOptions::default() };
    open(server, "asks", true, 0).subscribe_all(&[("a/asks", qos_2)], properties(&[])).reasons[0]
}

#[test]
fn the_subscriptions_of_a_session_are_checked_over_several_turns() {
    const FILTERS: usize = 20_000;
    const FORBIDDEN: usize = 50;
    let (database, id) = set_up();
    // Each is compared with each filter.
    let mut rules = vec![allow(Action::Publish, "#"), allow(Action::Subscribe, "f/#")];
    let others = (0..90).map(|number| allow(Action::Subscribe, &format!("other/{number}/+/+/+/+/+/+")));
    rules.extend(others);
    put(&database, id, &bob([rules.clone(), vec![allow(Action::Subscribe, "g/#")]].concat()));
    let server = Server::on(&database, |config| config.threads = 1);
    let mut client = open(&server, "sub", true, 0);
    let name = |number: usize| {
        let first = if number.is_multiple_of(FILTERS / FORBIDDEN) { 'g' } else { 'f' };
        format!("{first}/{number}/+/+/+/+/+")
    };
    let names: Vec<String> = (0..FILTERS).map(name).collect();
    for some in names.chunks(500) {
        let filters: Vec<_> = some.iter().map(|name| (&**name, SubscribeOptions::default())).collect();
        assert_eq!(client.subscribe_all(&filters, Properties::EMPTY).reasons, vec![0; some.len()]);
    }
    put(&database, id, &bob(rules));
    let revoked = || metric(&server, "millrace_subscriptions_revoked_total", "");
    eventually(|| revoked() == FORBIDDEN as u64, || format!("{} are revoked", revoked()));
    client.ping();
    // Checking them all takes about 900,000.
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!(work < TURN_WORK_MAX / 2, "a turn did {work} units of work");
    client.subscribe("f/end", QoS::AtMostOnce);
    let mut publisher = open(&server, "pub", true, 0);
    for number in (0..FILTERS).step_by(FILTERS / FORBIDDEN) {
        for (topic, reason) in
            [(format!("g/{number}/a/b/c/d/e"), 0x10), (name(number + 1).replace('+', "x"), 0)]
        {
            let answer = publisher.publish(publish_qos(QoS::AtLeastOnce, 7, &topic, b"x"));
            assert_eq!(answer.0, reason, "{topic}");
        }
        assert_eq!(client.recv_publish().topic, name(number + 1).replace('+', "x"));
    }
}
