//! Servers that go and connections that break: nothing is lost unnoticed.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use millrace_fabric::{Fabric, FabricDropReason, FabricSettings, Gap, Health, MessageBatch, Sent, Sink, To};

use crate::support::{Pod, Relay, Server, WAIT_MAX, needs_nats};

const BROKER: To = To::Broker(7);

/// Sends `count` messages as fast as they are taken, whatever becomes of them.
fn send(pod: &Pod, numbers: std::ops::Range<u64>, bytes: usize) {
    for number in numbers {
        let _ = pod.send(BROKER, number, bytes);
    }
}

/// Two pods on one server, the receiver behind a relay; it has joined.
fn behind_a_relay(server: &Server) -> (Pod, Pod, Relay) {
    let relay = Relay::start(server.port);
    let (sender, receiver) = (Pod::start(&server.url()), Pod::start(&relay.url()));
    receiver.until("to know the other", |seen| seen.pods.len() == 1);
    receiver.join(BROKER);
    (sender, receiver, relay)
}

#[test]
fn a_fabric_starts_without_a_server_and_finds_it_later() {
    needs_nats!();
    let mut server = Server::start("");
    server.kill();
    let pods = [0, 1].map(|_| Pod::start_with(&server.url(), |settings| settings.limits.join_wait_ms = 500));
    for pod in &pods {
        pod.until("to say what is wrong", |seen| {
            let problem = seen.health.last().and_then(|health| health.problem.clone());
            problem.is_some_and(|problem| problem.contains("no server listens there"))
        });
        let health = pod.fabric.health();
        assert!(!health.connected, "{health}");
        assert_eq!(pod.send(BROKER, 0, 0), Sent::Dropped(FabricDropReason::Outage));
        assert!(pod.fabric.join(BROKER));
        pod.until("a notice that the join is not confirmed", |seen| seen.joined.get(&BROKER) == Some(&false));
    }
    server.restart(None);
    crate::support::know_each_other(&pods.each_ref());
    let [a, b] = pods;
    b.join(To::Broker(8));
    a.send_all(To::Broker(8), 0..100, 10);
    a.until_accounted(&b, To::Broker(8), 100);
    let health = a.fabric.health();
    assert!(health.connected && health.problem.is_none() && health.reconnects == 0, "{health}");
    assert_eq!(health.server, Some(format!("127.0.0.1:{}", server.port)));
}

#[test]
fn losses_of_a_receiver_are_counted_exactly() {
    needs_nats!();
    let server = Server::start("");
    let (sender, receiver, relay) = behind_a_relay(&server);
    const ROUNDS: u64 = 10;
    const MESSAGES: u64 = 5000;
    std::thread::scope(|scope| {
        scope.spawn(|| send(&sender, 0..ROUNDS * MESSAGES, 300));
        for round in 1..ROUNDS {
            receiver.until("some messages", |seen| {
                seen.accounted(sender.id, BROKER) as u64 >= round * MESSAGES / 2
            });
            relay.cut();
        }
    });
    sender.until_accounted(&receiver, BROKER, ROUNDS * MESSAGES);
    receiver.seen(|seen| {
        assert!(!seen.gaps.is_empty(), "nothing was lost");
        assert!(seen.gaps.iter().all(|gap| gap.missing.is_some()), "{:?}", seen.gaps);
    });
}

#[test]
fn losses_of_a_sender_are_counted_exactly() {
    needs_nats!();
    let server = Server::start("");
    let relay = Relay::start(server.port);
    let (sender, receiver) = (Pod::start(&relay.url()), Pod::start(&server.url()));
    receiver.until("to know the other", |seen| seen.pods.len() == 1);
    receiver.join(BROKER);
    const MESSAGES: u64 = 50_000;
    std::thread::scope(|scope| {
        scope.spawn(|| send(&sender, 0..MESSAGES, 300));
        for round in 1..10 {
            receiver.until("some messages", |seen| {
                seen.accounted(sender.id, BROKER) as u64 >= round * MESSAGES / 20
            });
            relay.cut();
        }
    });
    sender.until_accounted(&receiver, BROKER, MESSAGES);
    assert!(sender.fabric.health().reconnects > 0);
}

#[test]
fn a_lost_last_message_shows_although_nothing_follows() {
    needs_nats!();
    let server = Server::start("");
    let (sender, receiver, relay) = behind_a_relay(&server);
    sender.send_all(BROKER, 0..3, 10);
    sender.until_accounted(&receiver, BROKER, 3);
    relay.refuse(true);
    receiver.until("to see that the connection broke", |seen| !seen.health.last().unwrap().connected);
    send(&sender, 3..5, 10);
    relay.refuse(false);
    sender.until_accounted(&receiver, BROKER, 5);
    receiver.seen(|seen| assert_eq!(seen.gaps.iter().filter_map(|gap| gap.missing).sum::<u64>(), 2));
}

#[test]
fn a_server_that_is_killed_and_started_again_costs_what_was_on_its_way() {
    needs_nats!();
    let mut server = Server::start("");
    let [a, b]: [Pod; 2] = Pod::start_some(&server.url());
    b.join(BROKER);
    a.send_all(BROKER, 0..1000, 100);
    server.kill();
    a.until("to see that the server is gone", |seen| !seen.health.last().unwrap().connected);
    // More than may wait meanwhile.
    send(&a, 1000..21_000, 100);
    let counters = a.fabric.counters();
    assert!(counters.dropped_outage > 0, "{counters:?}");
    assert!(counters.queue_bytes <= 2 << 20, "{counters:?}");
    server.restart(None);
    a.until("to be back", |seen| seen.health.last().unwrap().connected);
    send(&a, 21_000..22_000, 100);
    a.until_accounted(&b, BROKER, 22_000);
    assert_eq!(b.fabric.health().reconnects, 1);
}

#[test]
fn a_network_that_swallows_everything_is_noticed_by_pings() {
    needs_nats!();
    let server = Server::start("");
    let relay = Relay::start(server.port);
    let sender = Pod::start(&server.url());
    let receiver = Pod::start_with(&relay.url(), |settings| settings.limits.ping_ms = 500);
    receiver.until("to know the other", |seen| seen.pods.len() == 1);
    receiver.join(BROKER);
    sender.send_all(BROKER, 0..10, 10);
    sender.until_accounted(&receiver, BROKER, 10);
    relay.pause(true);
    receiver.until("to give the connection up", |seen| !seen.health.last().unwrap().connected);
    send(&sender, 10..20, 10);
    relay.cut();
    relay.pause(false);
    sender.until_accounted(&receiver, BROKER, 20);
}

#[test]
fn after_a_long_outage_everything_is_in_doubt() {
    needs_nats!();
    let server = Server::start("");
    let relay = Relay::start(server.port);
    let long = 500;
    let sender = Pod::start(&server.url());
    let receiver = Pod::start_with(&relay.url(), |settings| settings.limits.outage_ms_max = long);
    receiver.until("to know the other", |seen| seen.pods.len() == 1);
    receiver.join(BROKER);
    relay.refuse(true);
    receiver.until("to see that the connection broke", |seen| !seen.health.last().unwrap().connected);
    let since = receiver.fabric.health().since;
    while let Some(left) = Duration::from_millis(2 * u64::from(long)).checked_sub(since.elapsed()) {
        std::thread::park_timeout(left);
    }
    relay.refuse(false);
    receiver.until("two notices that anything may be missing", |seen| {
        let gaps = seen.gaps.iter().filter(|gap| (gap.from, gap.to, gap.missing) == (None, BROKER, None));
        gaps.count() == 2
    });
    sender.send_all(BROKER, 0..10, 10);
    sender.until_accounted(&receiver, BROKER, 10);
}

#[test]
fn queued_messages_are_sent_when_the_fabric_ends() {
    needs_nats!();
    let server = Server::start("");
    let [a, b]: [Pod; 2] = Pod::start_some(&server.url());
    b.join(BROKER);
    a.send_all(BROKER, 0..10_000, 100);
    let Pod { fabric, id, .. } = a;
    drop(fabric);
    b.until("all of it", |seen| seen.count(id, BROKER) == 10_000);
    b.seen(|seen| assert_eq!(seen.gaps, []));
}

#[test]
fn a_batch_that_nats_had_no_room_for_is_sent_when_the_fabric_ends() {
    needs_nats!();
    let server = Server::start("");
    let relay = Relay::start(server.port);
    let (a, b) = (Pod::start(&relay.url()), Pod::start(&server.url()));
    crate::support::know_each_other(&[&a, &b]);
    let receivers = [BROKER, To::Broker(8), To::Pods, To::Pod(b.id)];
    receivers[..2].iter().for_each(|to| b.join(*to));
    relay.pause(true);
    receivers.iter().for_each(|to| a.send_all(*to, 0..7000, 1000));
    let Pod { fabric, id, .. } = a;
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fabric));
        relay.pause(false);
    });
    for to in receivers {
        b.until("all of it", |seen| seen.accounted(id, to) == 7000);
    }
    b.seen(|seen| assert_eq!(seen.gaps, []));
}

#[test]
fn a_sink_that_panics_ends_the_fabric_and_its_health_says_so() {
    needs_nats!();
    struct Broken(SyncSender<Health>);
    impl Sink for Broken {
        fn receive(&self, _: &MessageBatch) {
            panic!("as this test wants it");
        }
        fn gap(&self, _: &Gap) {}
        fn health_changed(&self, health: &Health) {
            let _ = self.0.try_send(health.clone());
        }
    }
    let (said, says) = sync_channel(100);
    let server = Server::start("");
    let a = Pod::start(&server.url());
    let settings = FabricSettings::new(&server.url(), "test");
    let to = To::Pod(settings.pod);
    let broken = Fabric::start(settings, Arc::new(Broken(said))).unwrap();
    a.until("to know the other", |seen| seen.pods.len() == 1);
    a.send_all(to, 0..1, 0);
    a.until("the other to be gone", |seen| seen.pods.is_empty());
    let is_last = |health: &Health| health.to_string().contains("must be restarted");
    let last = std::iter::from_fn(|| says.recv_timeout(WAIT_MAX).ok()).find(is_last);
    assert_eq!(last.map(|health| health.connected), Some(false));
    assert!(is_last(&broken.health()));
    assert_eq!(broken.send(To::Pods, &[b"x"]), Sent::Dropped(FabricDropReason::Stopped));
}
