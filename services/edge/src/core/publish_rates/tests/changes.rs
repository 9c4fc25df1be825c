//! Debts of clients after their broker was changed.

use millrace_access::model::ClientLimits;

use super::*;

const PUBLISHES: usize = 30;

fn limits_of(broker: BrokerLimits, client: ClientLimits) -> Limits {
    Limits { broker, client }
}

/// Each limit of publishes at this rate of messages, or of bytes that pay for as many messages.
fn publish_limits(rate: u64) -> [Limits; 4] {
    let (messages, bytes) = (Some(rate), Some(rate * publish(0, "t", b"x").len() as u64));
    let (broker, client) = (BrokerLimits::default(), ClientLimits::default());
    [
        limits_of(BrokerLimits { publishes_per_s: messages, ..broker.clone() }, client.clone()),
        limits_of(BrokerLimits { publish_bytes_per_s: bytes, ..broker.clone() }, client.clone()),
        limits_of(broker.clone(), ClientLimits { publishes_per_s: messages, ..client.clone() }),
        limits_of(broker, ClientLimits { publish_bytes_per_s: bytes, ..client }),
    ]
}

/// One loop with these limits, a subscriber, and a publisher that has sent [`PUBLISHES`] messages.
fn publishing(limits: &Limits) -> (Loops, TestClient, TestClient) {
    let mut loops = Loops::start(1, |_| {});
    loops.broker().quota.set(limits.clone());
    loops.now_ms = Some(NOW_MS);
    let mut subscriber = loops.connect_as("subscriber", true);
    loops.subscribe(&mut subscriber, "#", QoS::AtMostOnce);
    let mut publisher = loops.connect_as("publisher", true);
    loops.send_to(0, &mut publisher, &publish(0, "t", b"x").repeat(PUBLISHES));
    (loops, subscriber, publisher)
}

fn change(loops: &mut Loops, limits: &Limits) {
    let broker = loops.broker();
    broker.quota.set(limits.clone());
    loops.cores[0].access_changed(&broker);
    loops.turn(0);
}

/// Messages that have passed at this time.
fn passed_at(loops: &mut Loops, subscriber: &mut TestClient, passed_ms: u64) -> usize {
    loops.now_ms = Some(NOW_MS + passed_ms);
    (0..10).for_each(|_| loops.turn(0));
    std::iter::from_fn(|| subscriber.next()).count()
}

#[test]
fn a_change_that_leaves_a_rate_as_it_is_cancels_no_debt() {
    for limits in publish_limits(1) {
        let (mut loops, mut subscriber, _publisher) = publishing(&limits);
        assert_eq!(passed_at(&mut loops, &mut subscriber, 0), 2, "{limits:?}");
        for times in 0..20 {
            let mut changed = limits.clone();
            changed.client.queue_age_s = (times % 2 == 0).then_some(86_400);
            change(&mut loops, &changed);
            assert_eq!(passed_at(&mut loops, &mut subscriber, 0), 0, "{limits:?}");
        }
        for seconds in 1..4 {
            assert_eq!(passed_at(&mut loops, &mut subscriber, 1_000 * seconds), 1, "{limits:?}");
        }
    }
}

#[test]
fn a_debt_is_paid_at_the_limit_of_today() {
    let (slow, fast) = (publish_limits(1), publish_limits(10));
    for (slow, fast) in slow.into_iter().zip(fast) {
        let (mut loops, mut subscriber, _publisher) = publishing(&slow);
        assert_eq!(passed_at(&mut loops, &mut subscriber, 0), 2, "{slow:?}");
        change(&mut loops, &fast);
        assert_eq!(passed_at(&mut loops, &mut subscriber, 0), 0, "{fast:?}");
        assert_eq!(passed_at(&mut loops, &mut subscriber, 100), 1, "{fast:?}");
        // One message that waited for a tenth of a second passes then, and the debt of two takes two seconds.
        change(&mut loops, &slow);
        assert_eq!(passed_at(&mut loops, &mut subscriber, 200), 1, "{slow:?}");
        assert_eq!(passed_at(&mut loops, &mut subscriber, 2_000), 0, "{slow:?}");
        assert_eq!(passed_at(&mut loops, &mut subscriber, 2_100), 1, "{slow:?}");
        change(&mut loops, &Limits::default());
        assert_eq!(passed_at(&mut loops, &mut subscriber, 2_100), PUBLISHES - 5, "{slow:?}");
    }
}

#[test]
fn limits_that_change_again_and_again_let_no_more_pass_than_the_highest_of_them() {
    const MOST: u64 = 10;
    for (slow, fast) in publish_limits(1).into_iter().zip(publish_limits(MOST)) {
        let (mut loops, mut subscriber, _publisher) = publishing(&fast);
        let mut passed = 0;
        for tenths in 0..10 {
            passed += passed_at(&mut loops, &mut subscriber, 100 * tenths);
            for limits in [&slow, &fast] {
                change(&mut loops, limits);
                passed += passed_at(&mut loops, &mut subscriber, 100 * tenths);
            }
        }
        // A second of the highest rate at once, one message of debt, and the rate.
        let most = MOST as usize + 1 + 9;
        assert_eq!(passed, most, "{fast:?}");
    }
}

#[test]
fn filters_and_connects_stay_paid_for_when_other_limits_change() {
    let rate = Some(10);
    let broker = BrokerLimits { filters_per_s: rate, connects_per_s: rate, ..BrokerLimits::default() };
    let limits = limits_of(broker, ClientLimits::default());
    let mut loops = Loops::start(1, |_| {});
    loops.broker().quota.set(limits.clone());
    loops.now_ms = Some(NOW_MS);
    let mut clients = ["a", "b"].map(|id| loops.connect_as(id, true));
    subscribe(&mut clients[0], 20);
    loops.answer(&mut clients[0], SUBACK);
    subscribe(&mut clients[1], 1);
    let broker = loops.broker();
    let connects = |now_ms| (0..20).filter(|_| broker.quota.take_connect(nanos(now_ms))).count();
    assert_eq!(connects(NOW_MS), 8);
    for queue_age_s in [Some(60), None] {
        let mut changed = limits.clone();
        changed.client.queue_age_s = queue_age_s;
        change(&mut loops, &changed);
        assert_eq!(passed_at(&mut loops, &mut clients[1], 900), 0);
    }
    assert_eq!(connects(NOW_MS), 0);
    loops.now_ms = Some(NOW_MS + 1_000);
    loops.answer(&mut clients[1], SUBACK);
}
