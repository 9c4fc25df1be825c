//! Messages that are longer than NATS takes (1 MiB by default): the fabric sends them in parts of 256 KiB, up to 16 MiB. A message to
//! a group is never split, because NATS could give each part to another pod.

use millrace_fabric::{FabricDropReason, Sent, To};

use crate::support::{Pod, Relay, Server, needs_nats, poll};

const BROKER: To = To::Broker(7);
const MIB: usize = 1 << 20;

#[test]
fn long_messages_come_whole_and_in_order_with_short_ones() {
    needs_nats!();
    let server = Server::start("");
    let [a, b]: [Pod; 2] = Pod::start_some(&server.url());
    b.join(BROKER);
    let sizes = [10, 3 * MIB, 10, 70_000, 10, 300_000, 7 * MIB + 1, 10];
    for (number, size) in (0..).zip(sizes) {
        a.send_all(BROKER, number..number + 1, size);
        if size > MIB {
            a.until_accounted(&b, BROKER, number + 1);
        }
    }
    a.until_accounted(&b, BROKER, 8);
    b.seen(|seen| {
        assert_eq!(seen.gaps, []);
        assert_eq!(seen.bytes, sizes.iter().sum::<usize>() + 8 * 8);
    });
    // 10 MiB and 300,000 bytes in parts of 256 KiB.
    assert!(a.fabric.counters().parts_sent >= 40);
    assert_eq!(a.send(BROKER, 8, 17 * MIB), Sent::Dropped(FabricDropReason::TooLarge));
    a.send_all(BROKER, 9..10, 10);
    a.until_accounted(&b, BROKER, 10);
    b.seen(|seen| assert_eq!(seen.gaps.len(), 1));
}

#[test]
fn a_group_takes_what_one_nats_message_takes() {
    needs_nats!();
    let server = Server::start("");
    let [a, b, c]: [Pod; 3] = Pod::start_some(&server.url());
    b.join(To::Group { broker: 7, group: 1 });
    c.join(To::Group { broker: 7, group: 1 });
    let group = To::Group { broker: 7, group: 1 };
    for number in 0..10 {
        assert_eq!(a.send(group, number, MIB - 100), Sent::Queued);
        let count = |pod: &Pod| pod.seen(|seen| seen.count(a.id, group));
        let all = usize::try_from(number).unwrap() + 1;
        poll("the message", || count(&b) + count(&c) == all);
    }
    assert_eq!(a.send(group, 10, MIB), Sent::Dropped(FabricDropReason::TooLarge));
}

#[test]
fn a_server_may_come_back_with_a_smaller_limit() {
    needs_nats!();
    let mut server = Server::start("");
    let [a, b]: [Pod; 2] = Pod::start_some(&server.url());
    b.join(BROKER);
    a.send_all(BROKER, 0..1, 500_000);
    a.until_accounted(&b, BROKER, 1);
    server.restart(Some("max_payload: 8192"));
    // Batches are longer than the limit too.
    for pod in [&a, &b] {
        pod.until("to be back", |seen| seen.health.last().unwrap().connected && seen.health.len() > 2);
    }
    b.join(To::Broker(8));
    a.send_all(To::Broker(8), 0..2000, 100);
    a.send_all(To::Broker(8), 2000..2001, 500_000);
    a.until_accounted(&b, To::Broker(8), 2001);
    b.seen(|seen| assert_eq!(seen.count(a.id, To::Broker(8)), 2001));
    assert!(a.fabric.counters().parts_sent > 60);
}

#[test]
fn half_a_message_is_none_and_its_loss_shows() {
    needs_nats!();
    let server = Server::start("");
    let relay = Relay::start(server.port);
    let (a, b) = (Pod::start(&server.url()), Pod::start(&relay.url()));
    b.until("to know the other", |seen| seen.pods.len() == 1);
    b.join(BROKER);
    for round in 0..5 {
        relay.pause(true);
        a.send_all(BROKER, 2 * round..2 * round + 1, 4 * MIB);
        relay.pause(false);
        // Some of it may be through.
        relay.cut();
        // Until the other pod is back, the server may report that nobody listens; the message then counts as missing.
        let sent = a.send(BROKER, 2 * round + 1, 10);
        assert!(matches!(sent, Sent::Queued | Sent::NoListener), "{sent:?}");
        a.until_accounted(&b, BROKER, 2 * round + 2);
    }
    b.seen(|seen| assert!(seen.gaps.iter().all(|gap| gap.missing.is_some()), "{:?}", seen.gaps));
}
