//! The receivers of a message.

use millrace_fabric::{Sent, To};

use crate::support::{Pod, Server, needs_nats, poll};

const BROKER: To = To::Broker(7);
const GROUP: To = To::Group { broker: 7, group: 1 };

#[test]
fn a_message_to_a_broker_reaches_all_joined_pods_in_order() {
    needs_nats!();
    let server = Server::start("");
    let pods: [Pod; 4] = Pod::start_some(&server.url());
    pods.iter().for_each(|pod| pod.join(BROKER));
    std::thread::scope(|scope| {
        for pod in &pods {
            scope.spawn(|| pod.send_all(BROKER, 0..5000, 100));
        }
    });
    for receiver in &pods {
        for sender in pods.iter().filter(|sender| sender.id != receiver.id) {
            sender.until_accounted(receiver, BROKER, 5000);
        }
        receiver.seen(|seen| {
            assert_eq!(seen.gaps, []);
            assert_eq!(seen.count(receiver.id, BROKER), 0, "its own messages came back");
        });
        let counters = receiver.fabric.counters();
        assert!(counters.batches_sent < 5000, "{counters:?}");
        assert_eq!((counters.sent, counters.received), (5000, 15000));
    }
}

#[test]
fn one_pod_and_all_pods_can_be_meant() {
    needs_nats!();
    let server = Server::start("");
    let [a, b, c]: [Pod; 3] = Pod::start_some(&server.url());
    a.send_all(To::Pod(b.id), 0..100, 10);
    a.send_all(To::Pods, 0..100, 10);
    a.until_accounted(&b, To::Pod(b.id), 100);
    a.until_accounted(&b, To::Pods, 100);
    a.until_accounted(&c, To::Pods, 100);
    c.seen(|seen| assert_eq!(seen.messages.len(), 1));
    assert_eq!(a.send(To::Pod(a.id), 0, 0), Sent::NoListener);
}

#[test]
fn one_pod_can_be_meant_for_each_broker_by_itself() {
    needs_nats!();
    let server = Server::start("");
    let [a, b, c]: [Pod; 3] = Pod::start_some(&server.url());
    let at = |broker| To::BrokerOnPod { pod: b.id, broker };
    b.join(at(7));
    b.join(at(8));
    a.send_all(at(9), 0..10, 10);
    std::thread::scope(|scope| {
        for (pod, broker) in [(&a, 7), (&a, 8), (&c, 7)] {
            scope.spawn(move || pod.send_all(at(broker), 0..1000, 10));
        }
    });
    for (pod, broker) in [(&a, 7), (&a, 8), (&c, 7)] {
        pod.until_accounted(&b, at(broker), 1000);
    }
    b.seen(|seen| assert_eq!((&*seen.gaps, seen.messages.len()), (&[][..], 3)));
    c.seen(|seen| assert!(seen.messages.is_empty()));
    assert_eq!(b.send(at(7), 0, 0), Sent::NoListener);
}

#[test]
fn a_pod_that_has_not_joined_or_has_left_gets_nothing() {
    needs_nats!();
    let server = Server::start("");
    let [a, b, c]: [Pod; 3] = Pod::start_some(&server.url());
    b.join(BROKER);
    c.join(BROKER);
    a.send_all(BROKER, 0..10, 0);
    a.until_accounted(&c, BROKER, 10);
    c.fabric.leave(BROKER);
    // The same thread leaves and joins: when the other is joined, this one is left.
    c.join(To::Broker(8));
    let before = c.seen(|seen| seen.count(a.id, BROKER));
    a.send_all(BROKER, 10..20, 0);
    a.until_accounted(&b, BROKER, 20);
    a.send_all(To::Broker(8), 0..1, 0);
    a.until_accounted(&c, To::Broker(8), 1);
    c.seen(|seen| {
        assert_eq!(seen.count(a.id, BROKER), before);
        assert_eq!(seen.gaps, []);
    });
}

#[test]
fn one_of_a_group_gets_each_message() {
    needs_nats!();
    let server = Server::start("");
    let pods: [Pod; 4] = Pod::start_some(&server.url());
    let members = &pods[1..];
    members.iter().for_each(|pod| pod.join(GROUP));
    // A stranger sends, and a member, that gets none of its own.
    for (sender, receivers) in [(&pods[0], members), (&pods[3], &pods[1..3])] {
        let count = |pod: &Pod| pod.seen(|seen| seen.count(sender.id, GROUP));
        // Many batches: which member gets one is chance.
        for round in 1..=100 {
            for number in 10 * (round - 1)..10 * round {
                assert_eq!(sender.send(GROUP, number, 1000), Sent::Queued);
            }
            poll("all messages", || receivers.iter().map(count).sum::<usize>() as u64 == 10 * round);
        }
        let mut numbers: Vec<_> = receivers
            .iter()
            .flat_map(|pod| pod.seen(|seen| seen.messages[&(sender.id, GROUP)].clone()))
            .flatten()
            .collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..1000));
        assert_eq!(count(sender), 0);
        assert!(receivers.iter().all(|pod| count(pod) > 0), "one of them got nothing");
    }
}

#[test]
fn nothing_is_sent_as_long_as_nobody_listens() {
    needs_nats!();
    let server = Server::start("");
    let [a, b]: [Pod; 2] = Pod::start_some(&server.url());
    a.join(BROKER);
    let mut number = 0;
    let mut send = || {
        let sent = a.send(BROKER, number, 100);
        number += 1;
        sent
    };
    // Now and then the server is asked again; until it answers, messages are sent.
    poll("to send nothing for a while", || {
        let before = a.fabric.counters().batches_sent;
        (0..10_000).all(|_| send() == Sent::NoListener) && a.fabric.counters().batches_sent == before
    });
    poll("a notice of it before", || a.fabric.unwanted(BROKER, 0));

    b.join(BROKER);
    assert!(!a.fabric.unwanted(BROKER, 1));
    let first = number;
    for number in first..first + 100 {
        assert_eq!(a.send(BROKER, number, 100), Sent::Queued);
    }
    b.until("what was sent after it has joined", |seen| {
        let numbers = seen.messages.get(&(a.id, BROKER));
        numbers.is_some_and(|numbers| numbers.last() == Some(&Some(first + 99)))
    });
    b.seen(|seen| {
        assert_eq!(seen.gaps, []);
        let numbers: Vec<_> = seen.messages[&(a.id, BROKER)].iter().flatten().copied().collect();
        let after: Vec<_> = numbers.into_iter().filter(|number| *number >= first).collect();
        assert_eq!(after, (first..first + 100).collect::<Vec<_>>());
    });
}

#[test]
fn pods_come_and_go() {
    needs_nats!();
    let server = Server::start("");
    let [a, b]: [Pod; 2] = Pod::start_some(&server.url());
    assert_eq!(a.fabric.health().pods, 1);
    let gone = b.id;
    drop(b);
    a.until("the other to be gone", |seen| !seen.pods.contains(&gone));
}
