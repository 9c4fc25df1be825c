mod changes;

use millrace_access::model::{BrokerLimits, Limits};
use millrace_mqtt::QoS;

use crate::core::connection::Paused;
use crate::core::testing::{Loops, TestClient, packet, publish};
use crate::core::{ConnectionEnd, limits};
use crate::quota::limiter::{millis, nanos};

const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const UNSUBSCRIBE: u8 = 0xa2;
const UNSUBACK: u8 = 0xb0;
const DISCONNECT: u8 = 0xe0;

const NOW_MS: u64 = 10_000;

fn subscribe(client: &mut TestClient, filters: usize) {
    client.send(SUBSCRIBE, &filters_body(filters));
}

fn filters_body(filters: usize) -> Vec<u8> {
    let filter = [b"\x00\x03".as_slice(), b"f/1", b"\x00"].concat();
    [b"\x00\x01".as_slice(), &filter.repeat(filters)].concat()
}

/// One loop whose broker owes for a second of its clients' publishes, and a subscriber of everything.
fn in_debt() -> (Loops, TestClient) {
    in_debt_with(BrokerLimits { publishes_per_s: Some(1), ..BrokerLimits::default() })
}

fn in_debt_with(broker: BrokerLimits) -> (Loops, TestClient) {
    let mut loops = Loops::start(1, |_| {});
    loops.broker().quota.set(Limits { broker, ..Limits::default() });
    loops.now_ms = Some(NOW_MS);
    let mut subscriber = loops.connect_as("subscriber", true);
    loops.subscribe(&mut subscriber, "#", QoS::AtMostOnce);
    let mut loud = loops.connect_as("loud", true);
    loops.send_to(0, &mut loud, &publish(0, "t", b"loud").repeat(2));
    for _ in 0..2 {
        assert_eq!(message(&loops.answer(&mut subscriber, 0x30)), "loud");
    }
    (loops, subscriber)
}

fn message(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[b"__t".len()..]).into_owned()
}

fn publish_and_leave(loops: &mut Loops, payload: &str) -> TestClient {
    let mut client = loops.connect_with_will("brief", "w");
    loops.send_to(0, &mut client, &publish(0, "t", payload.as_bytes()));
    client.send(DISCONNECT, b"");
    client
}

fn skipped(loops: &Loops) -> u64 {
    loops.broker().counters[0].publish_rate.get()
}

#[test]
fn a_publish_that_waits_for_its_rate_passes_when_its_client_connects_again() {
    let (mut loops, mut subscriber) = in_debt();
    let first = publish_and_leave(&mut loops, "first");
    assert!(subscriber.next().is_none());
    let second = publish_and_leave(&mut loops, "second");
    assert_eq!(message(&loops.answer(&mut subscriber, 0x30)), "first");
    assert!(subscriber.next().is_none(), "the second one waits, and there is no will");
    loops.now_ms = Some(NOW_MS + 3_000);
    assert_eq!(message(&loops.answer(&mut subscriber, 0x30)), "second");
    assert_eq!(skipped(&loops), 0);
    drop((first, second));
}

#[test]
fn a_client_that_connects_again_and_again_makes_a_bounded_debt() {
    const TIMES: usize = 20;
    let (mut loops, mut subscriber) = in_debt();
    let clients: Vec<_> = (0..TIMES).map(|_| publish_and_leave(&mut loops, "x")).collect();
    let passed = std::iter::from_fn(|| subscriber.next()).filter(|(_, body)| message(body) == "x").count();
    assert_eq!((passed, skipped(&loops)), (4, (TIMES - 5) as u64));
    assert_eq!(millis(loops.broker().quota.paid_at(nanos(NOW_MS))), NOW_MS + 6_000);
    assert_eq!(loops.broker().counters[0].wills.get(), 0);
    drop(clients);
}

#[test]
fn filters_that_wait_do_not_let_a_client_that_connects_again_publish_above_the_rate() {
    const TIMES: usize = 20;
    let rate = Some(1);
    let (mut loops, mut subscriber) =
        in_debt_with(BrokerLimits { publishes_per_s: rate, filters_per_s: rate, ..BrokerLimits::default() });
    subscribe(&mut subscriber, 3);
    loops.answer(&mut subscriber, SUBACK);
    let clients: Vec<_> = (0..TIMES)
        .map(|_| {
            let mut client = loops.connect_as("brief", true);
            subscribe(&mut client, 1);
            loops.send_to(0, &mut client, &publish(0, "t", b"x"));
            client
        })
        .collect();
    let passed = std::iter::from_fn(|| subscriber.next()).filter(|(_, body)| message(body) == "x").count();
    assert_eq!((passed, skipped(&loops)), (5, (TIMES - 6) as u64));
    assert_eq!(millis(loops.broker().quota.paid_at(nanos(NOW_MS))), NOW_MS + 6_000);
    drop(clients);
}

fn held(loops: &Loops) -> u64 {
    loops.cores[0].process.memory.input.bytes()
}

fn send_to_wait(loops: &mut Loops, client: &mut TestClient, packet: &[u8]) {
    loops.send_to(0, client, packet);
    loops.until(|loops| loops.connection(0, client).paused == Paused::ForRate);
}

#[test]
fn filters_that_wait_count_as_held_until_their_client_has_gone() {
    let mut loops = limited_filters(10);
    let mut others = loops.connect_as("others", true);
    subscribe(&mut others, 10_000);
    loops.answer(&mut others, SUBACK);
    let paid_at = loops.broker().quota.filters_paid_at(nanos(NOW_MS));
    let mut client = loops.connect_as("client", true);
    send_to_wait(&mut loops, &mut client, &packet(SUBSCRIBE, &filters_body(20_000)));
    for minutes in 1..4 {
        assert!(held(&loops) > 100_000, "{} bytes count", held(&loops));
        loops.now_ms = Some(NOW_MS + minutes * 61_000);
        loops.turn(0);
    }
    drop(client);
    loops.until(|loops| loops.broker().counters[0].ended_lost.get() == 1);
    assert_eq!((held(&loops), loops.broker().quota.filters_paid_at(nanos(NOW_MS))), (0, paid_at));
}

#[test]
fn a_large_first_publish_that_waits_counts_as_held_until_its_client_has_gone() {
    let rate = Some(1_000);
    let (mut loops, mut subscriber) =
        in_debt_with(BrokerLimits { publish_bytes_per_s: rate, ..BrokerLimits::default() });
    loops.until(|loops| loops.broker().counters[0].ended_lost.get() == 1);
    let mut other = loops.connect_as("other", true);
    loops.send_to(0, &mut other, &publish(0, "t", &[b'x'; 3_000]));
    loops.answer(&mut subscriber, 0x30);
    let paid_at = loops.broker().quota.paid_at(nanos(NOW_MS));
    let mut client = loops.connect_as("client", true);
    send_to_wait(&mut loops, &mut client, &publish(0, "t", &[b'x'; 100_000]));
    assert!(held(&loops) > 90_000, "{} bytes count", held(&loops));
    drop(client);
    loops.until(|loops| loops.broker().counters[0].ended_lost.get() == 2);
    assert_eq!((held(&loops), skipped(&loops), loops.broker().quota.paid_at(nanos(NOW_MS))), (0, 1, paid_at));
    assert!(subscriber.next().is_none());
}

#[test]
fn a_small_publish_waits_for_its_rate_also_when_its_client_has_gone() {
    let (mut loops, mut subscriber) = in_debt();
    drop(publish_and_leave(&mut loops, "first"));
    for _ in 0..3 {
        loops.turn(0);
        assert!(subscriber.next().is_none());
    }
    loops.now_ms = Some(NOW_MS + 2_000);
    assert_eq!(message(&loops.answer(&mut subscriber, 0x30)), "first");
    assert_eq!(skipped(&loops), 0);
}

#[test]
fn a_publisher_does_not_wait_for_what_others_give_back() {
    let (mut loops, mut subscriber) = in_debt();
    let mut gone: Vec<TestClient> =
        (0..10).map(|number| loops.connect_as(&number.to_string(), true)).collect();
    for client in &mut gone {
        loops.send_to(0, client, &publish(0, "t", b"given back"));
    }
    let mut last = loops.connect_as("last", true);
    loops.send_to(0, &mut last, &publish(0, "t", b"last"));
    for client in &gone {
        let slot = loops.session(0, client).connection;
        loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    }
    assert_eq!(millis(loops.broker().quota.paid_at(nanos(NOW_MS))), NOW_MS + 2_000);
    for passed in [1_000, 2_000] {
        assert!(subscriber.next().is_none());
        loops.now_ms = Some(NOW_MS + passed);
        loops.turn(0);
    }
    assert_eq!(message(&loops.answer(&mut subscriber, 0x30)), "last");
}

fn limited_filters(filters_per_s: u64) -> Loops {
    let mut loops = Loops::start(1, |_| {});
    let broker = BrokerLimits { filters_per_s: Some(filters_per_s), ..BrokerLimits::default() };
    loops.broker().quota.set(Limits { broker, ..Limits::default() });
    loops.now_ms = Some(NOW_MS);
    loops
}

#[test]
fn packets_of_filters_wait_for_the_rate_of_their_broker_and_nothing_else_does() {
    let mut loops = limited_filters(10);
    let mut clients = ["a", "b", "c", "d"].map(|id| loops.connect_as(id, true));
    // A second of the rate at once, and what is too much passes and is paid for later.
    for (client, filters) in [(0, 10), (1, 15)] {
        subscribe(&mut clients[client], filters);
        loops.answer(&mut clients[client], SUBACK);
    }
    subscribe(&mut clients[2], 5);
    clients[3].send(UNSUBSCRIBE, b"\x00\x01\x00\x03f/1");
    loops.publish(&mut clients[0], "t", b"passes");
    for (passed_ms, client, answer) in [(1_500, 2, SUBACK), (2_000, 3, UNSUBACK)] {
        assert!(clients[2].next().is_none() && clients[3].next().is_none());
        loops.now_ms = Some(NOW_MS + passed_ms - 1);
        loops.turn(0);
        loops.turn(0);
        assert!(clients[client].next().is_none());
        loops.now_ms = Some(NOW_MS + passed_ms);
        loops.answer(&mut clients[client], answer);
    }
    assert_eq!(loops.cores[0].counters().limit_broker_filter_rate.get(), 2);
}

#[test]
fn a_subscriber_does_not_wait_for_filters_that_others_give_back() {
    let mut loops = limited_filters(10);
    let mut clients = ["a", "b", "c"].map(|id| loops.connect_as(id, true));
    for (client, filters) in [(0, 20), (1, 1_000), (2, 1)] {
        subscribe(&mut clients[client], filters);
        loops.turn(0);
        loops.turn(0);
    }
    let slot = loops.session(0, &clients[1]).connection;
    loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
    for passed_ms in [1_000, 1_100] {
        assert!(clients[2].next().is_none());
        loops.now_ms = Some(NOW_MS + passed_ms);
        loops.turn(0);
    }
    loops.answer(&mut clients[2], SUBACK);
}

#[test]
fn a_disconnect_behind_filters_that_wait_is_seen_when_the_client_connects_again() {
    let mut loops = limited_filters(10);
    let mut others = loops.connect_as("others", true);
    subscribe(&mut others, 30);
    loops.answer(&mut others, SUBACK);
    let mut client = loops.connect_with_will("brief", "w");
    subscribe(&mut client, 1);
    client.send(DISCONNECT, b"");
    loops.turn(0);
    let again = loops.connect_with_will("brief", "w");
    for _ in 0..3 {
        loops.turn(0);
    }
    assert_eq!(loops.broker().counters[0].wills.get(), 0);
    assert!(client.next().is_none(), "no SUBACK");
    drop(again);
}

/// Publishers whose messages wait for their turn, and many receivers of each message.
fn many_that_wait(publishers: usize) -> (Loops, Vec<TestClient>, Vec<TestClient>) {
    let (mut loops, _) = in_debt();
    let receivers = (0..60).map(|number| {
        let mut receiver = loops.connect_as(&format!("receiver{number}"), true);
        loops.subscribe(&mut receiver, "w", QoS::AtMostOnce);
        receiver
    });
    let receivers: Vec<TestClient> = receivers.collect();
    let waiting = (0..publishers).map(|number| {
        let mut client = loops.connect_as(&format!("waits{number}"), true);
        send_to_wait(&mut loops, &mut client, &publish(0, "w", b"x"));
        client
    });
    let waiting = waiting.collect();
    (loops, receivers, waiting)
}

fn still_waiting(loops: &Loops, clients: &[TestClient]) -> usize {
    clients.iter().filter(|client| loops.connection(0, client).paused == Paused::ForRate).count()
}

#[test]
fn publishers_whose_turn_has_come_go_on_over_several_turns() {
    let (mut loops, receivers, clients) = many_that_wait(200);
    loops.now_ms = Some(NOW_MS + 1_000_000);
    loops.turn(0);
    let waiting = still_waiting(&loops, &clients);
    assert!((40..200).contains(&waiting), "{waiting} are left after one turn");
    loops.until(|loops| still_waiting(loops, &clients) == 0);
    drop(receivers);
}

#[test]
fn publishers_whose_limit_is_lifted_go_on_over_several_turns() {
    let (mut loops, mut receivers, clients) = many_that_wait(200);
    let broker = loops.broker();
    broker.quota.set(Limits::default());
    loops.cores[0].access_changed(&broker);
    loops.turn(0);
    let waiting = still_waiting(&loops, &clients);
    assert!((40..200).contains(&waiting), "{waiting} are left after one turn");
    loops.until(|loops| still_waiting(loops, &clients) == 0);
    let mut passed = 0;
    loops.until(|_| {
        passed += std::iter::from_fn(|| receivers[0].next()).count();
        passed == clients.len()
    });
}

#[test]
fn a_loop_with_many_client_ids_still_counts_those_of_the_last_minute() {
    let mut loops = Loops::start(1, |_| {});
    let mut limits_of = Limits::default();
    limits_of.client.connects_per_min = Some(1);
    loops.broker().quota.set(limits_of);
    loops.now_ms = Some(NOW_MS);
    let client = loops.connect_as("client", true);
    let [coming, former] = &mut loops.cores[0].pauses.rates.coming;
    assert_eq!((coming.len(), former.len()), (1, 0));
    coming.extend((0..limits::COUNTED_CLIENT_IDS_MAX as u64).map(|id| ((0, id), nanos(0))));
    loops.now_ms = Some(NOW_MS + 55_000);
    let other = loops.connect_as("other", true);
    let again = loops.connect_as("client", true);
    assert_eq!(loops.broker().counters[0].refused_client_rate.get(), 1);
    let [coming, former] = &loops.cores[0].pauses.rates.coming;
    assert_eq!((coming.len(), former.len()), (1, limits::COUNTED_CLIENT_IDS_MAX + 1));
    drop((client, other, again));
}
