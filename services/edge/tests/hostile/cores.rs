//! Publishers and subscribers on several cores: order, and no gap between subscribing and publishing.

use std::collections::HashMap;
use std::sync::Barrier;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Packet, Publish, QoS};

use crate::common::{Client, Server, id, publish, publish_qos};
use crate::tools::{Packets, counted, dropped, metric, number_of, numbered, publish_all};

/// Clients enough to be on every core.
const CLIENTS: usize = 6;

fn clients(server: &Server, what: &str) -> Vec<Client> {
    (0..CLIENTS)
        .map(|number| {
            let version = if number % 2 == 0 { V5 } else { V311 };
            Client::connect(server, version, &format!("{what}-{number}"))
        })
        .collect()
}

/// Every message of each publisher reaches every subscriber, in order.
fn in_order(threads: usize, qos: QoS) {
    const COUNT: u64 = 400;
    let server = Server::with(|config| config.threads = threads);
    let mut subscribers = clients(&server, "subscriber");
    subscribers.iter_mut().for_each(|subscriber| subscriber.subscribe("load/#", qos));
    let mut publishers = clients(&server, "publisher");
    std::thread::scope(|scope| {
        for (number, publisher) in publishers.iter_mut().enumerate() {
            // To two topics in turn.
            scope.spawn(move || {
                for round in 0..COUNT / 100 {
                    for topic in 0..2 {
                        let topic = format!("load/{number}/{topic}/{round}");
                        publish_all(publisher, qos, &topic, 100, 60);
                    }
                }
            });
        }
        for subscriber in &subscribers {
            let server = &server;
            scope.spawn(move || {
                let mut packets = Packets::of(subscriber);
                let (mut next, mut rounds) = (HashMap::new(), HashMap::new());
                let mut received = 0;
                while received < CLIENTS as u64 * 2 * COUNT {
                    let Some((topic, number)) = packets.next_message() else {
                        panic!("nothing after {received}\n{}", counted(server))
                    };
                    let (flow, round) = topic.rsplit_once('/').unwrap();
                    let (flow, round): (_, u64) = (flow.to_owned(), round.parse().unwrap());
                    let expected = next.entry(flow.clone()).or_insert(0);
                    assert_eq!(round * 100 + number, *expected, "of {flow}");
                    *expected += 1;
                    *rounds.entry(flow).or_insert(0) += 1;
                    received += 1;
                }
                assert_eq!(rounds.len(), CLIENTS * 2);
            });
        }
    });
    assert_eq!(dropped(&server, "busy_socket") + dropped(&server, "queue_full"), 0);
}

#[test]
fn qos_0_arrives_in_order_across_cores() {
    [1, 2, 4].into_iter().for_each(|threads| in_order(threads, QoS::AtMostOnce));
}

#[test]
fn qos_1_arrives_in_order_across_cores() {
    //= [MQTT-4.6.0-5] v5
    //= [MQTT-4.6.0-6] v5 v3.1.1
    [1, 2, 4].into_iter().for_each(|threads| in_order(threads, QoS::AtLeastOnce));
}

#[test]
fn qos_2_arrives_once_and_in_order_across_cores() {
    //= [MQTT-4.6.0-5] v5
    //= [MQTT-4.6.0-6] v5 v3.1.1
    [1, 2, 4].into_iter().for_each(|threads| in_order(threads, QoS::ExactlyOnce));
}

#[test]
fn a_publisher_that_reconnects_in_a_hurry_keeps_its_order() {
    const COUNT: u64 = 2000;
    let server = Server::with(|config| config.threads = 4);
    let mut subscribers = clients(&server, "subscriber");
    subscribers.iter_mut().for_each(|subscriber| subscriber.subscribe("t", QoS::AtMostOnce));
    std::thread::scope(|scope| {
        for subscriber in &subscribers {
            scope.spawn(|| {
                let mut packets = Packets::of(subscriber);
                (0..COUNT).for_each(|number| assert_eq!(packets.next_number(), Some(number)));
            });
        }
        // Each connection takes over the one before, which may still have much on its way.
        let mut all = Vec::new();
        for first in (0..COUNT).step_by(100) {
            let mut publisher = Client::connect(&server, V5, "publisher");
            for number in first..first + 100 {
                let payload = numbered(number, 40);
                publisher.send(&Packet::Publish(publish("t", &payload)));
            }
            publisher.ping();
            all.push(publisher);
        }
    });
}

#[test]
fn a_publisher_that_reconnects_does_not_overtake_its_unfinished_fan_out() {
    const RECEIVERS: usize = 60;
    // Its copies take about ten turns.
    const LARGE: usize = 900_000;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let server = Server::with(|config| config.threads = 1);
        let mut receivers: Vec<Client> = (0..RECEIVERS)
            .map(|number| {
                let mut receiver = Client::connect(&server, V5, &format!("receiver-{number}"));
                receiver.subscribe("t", qos);
                receiver
            })
            .collect();
        let publishers = [LARGE, 8].map(|len| {
            let mut publisher = Client::connect(&server, V5, "publisher");
            publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", &vec![b'.'; len]));
            publisher
        });
        for receiver in &mut receivers {
            let lens = [(); 2].map(|()| receiver.recv_publish().payload.len());
            assert_eq!(lens, [LARGE, 8], "{qos:?}");
        }
        drop(publishers);
    }
}

#[test]
fn a_publish_after_the_suback_is_always_seen_wherever_it_comes_from() {
    for threads in [2, 4] {
        let server = Server::with(|config| config.threads = threads);
        let mut subscribers = clients(&server, "subscriber");
        let mut publishers = clients(&server, "publisher");
        for round in 0..500 {
            let subscriber = &mut subscribers[round % CLIENTS];
            let publisher = &mut publishers[round / CLIENTS % CLIENTS];
            let topic = format!("seen/{}/{round}", round % 7);
            let filter = match round % 3 {
                0 => topic.clone(),
                1 => format!("seen/+/{round}"),
                _ => format!("$share/g/{topic}"),
            };
            // The publisher's core knows that there is nobody.
            publisher.send(&Packet::Publish(publish(&topic, b"too early")));
            if round % 2 == 0 {
                publisher.ping();
            }
            subscriber.subscribe(&filter, QoS::AtMostOnce);
            publisher.send(&Packet::Publish(publish(&topic, b"seen")));
            let Publish { topic: got, payload, .. } = loop {
                let message = subscriber.recv_publish();
                if message.payload != b"too early" {
                    break message;
                }
            };
            assert_eq!((got, payload), (&topic[..], &b"seen"[..]));
        }
    }
}

#[test]
fn nothing_comes_after_the_unsuback_has_been_followed_by_a_ping() {
    let server = Server::with(|config| config.threads = 4);
    let mut subscribers = clients(&server, "subscriber");
    let mut publishers = clients(&server, "publisher");
    for round in 0..200 {
        let subscriber = &mut subscribers[round % CLIENTS];
        let publisher = &mut publishers[round / CLIENTS % CLIENTS];
        subscriber.subscribe("t", QoS::AtMostOnce);
        assert_eq!(subscriber.unsubscribe(&["t"]).reasons.len(), usize::from(subscriber.version == V5));
        publisher.publish(publish_qos(QoS::AtLeastOnce, 1, "t", b"x"));
        subscriber.expect_nothing();
    }
}

#[test]
fn a_subscriber_gets_a_retained_message_or_the_live_copy_and_never_both() {
    for threads in [1, 2, 4] {
        let server = Server::with(|config| config.threads = threads);
        let mut subscribers = clients(&server, "subscriber");
        let mut publisher = Client::connect(&server, V5, "publisher");
        let gate = Barrier::new(CLIENTS + 1);
        const ROUNDS: u64 = 200;
        std::thread::scope(|scope| {
            for subscriber in &mut subscribers {
                scope.spawn(|| {
                    for round in 0..ROUNDS {
                        gate.wait();
                        let mut seen = subscriber.subscribe_and_collect(&format!("kept/{round}"));
                        gate.wait();
                        // It is on its way by now, if it is not here. One ping may overtake it, two do not.
                        seen.extend(subscriber.ping_and_collect());
                        seen.extend(subscriber.ping_and_collect());
                        let seen: Vec<_> = seen.iter().map(|message| number_of(message.payload)).collect();
                        assert_eq!(seen, [round]);
                    }
                });
            }
            for round in 0..ROUNDS {
                let (topic, payload) = (format!("kept/{round}"), numbered(round, 8));
                let message = publish_qos(QoS::AtLeastOnce, 1, &topic, &payload);
                gate.wait();
                publisher.publish(Publish { retain: true, ..message });
                gate.wait();
            }
        });
    }
}

#[test]
fn a_subscriber_sees_a_topic_that_changes_all_the_time_only_forwards() {
    const COUNT: u64 = 3000;
    let server = Server::with(|config| config.threads = 4);
    let mut subscribers = clients(&server, "subscriber");
    let mut publisher = Client::connect(&server, V5, "publisher");
    std::thread::scope(|scope| {
        for subscriber in &mut subscribers {
            scope.spawn(|| {
                subscriber.subscribe("t", QoS::AtMostOnce);
                let mut packets = Packets::of(subscriber);
                // The retained one as of the subscription, then everything after it.
                let mut next = None;
                while next != Some(COUNT) {
                    let number = packets.next_number().unwrap();
                    assert_eq!(number, next.unwrap_or(number));
                    next = Some(number + 1);
                }
            });
        }
        for number in 0..COUNT {
            let payload = numbered(number, 8);
            let message = publish_qos(QoS::AtLeastOnce, 1, "t", &payload);
            publisher.publish(Publish { retain: true, ..message });
        }
    });
}

#[test]
fn the_delivery_of_a_sample_of_messages_is_timed() {
    for (threads, qos) in
        [(1, QoS::AtMostOnce), (2, QoS::AtMostOnce), (2, QoS::AtLeastOnce), (1, QoS::ExactlyOnce)]
    {
        let server = Server::with(|config| config.threads = threads);
        let mut subscribers = clients(&server, "subscriber");
        subscribers.iter_mut().for_each(|subscriber| subscriber.subscribe("t", qos));
        let mut publisher = Client::connect(&server, V5, "publisher");
        let timed = || metric(&server, "millrace_edge_delivery_seconds_count", "");
        // Each PUBLISH is read alone, so one in 17 is timed, on each loop with receivers.
        for _ in 0..100 {
            let packet_id = (qos > QoS::AtMostOnce).then(|| id(1));
            publisher.publish(Publish { qos, packet_id, ..publish("t", b"x") });
        }
        let most = 100 * threads as u64;
        assert!((2..most).contains(&timed()), "{} with {threads} loops, {qos:?}", timed());
    }
}

impl Client {
    /// Subscribes; what has come by the time of a ping after that.
    fn subscribe_and_collect(&mut self, filter: &str) -> Vec<Publish<'static>> {
        self.subscribe(filter, QoS::AtMostOnce);
        self.ping_and_collect()
    }

    /// The messages that come before the answer to a ping.
    fn ping_and_collect(&mut self) -> Vec<Publish<'static>> {
        let mut messages = Vec::new();
        self.send(&Packet::PingReq);
        loop {
            match self.recv() {
                Packet::PingResp => return messages,
                Packet::Publish(message) => messages.push(message),
                other => panic!("{other:?}"),
            }
        }
    }
}
