use millrace_mqtt::PacketType::{PubAck, PubComp, PubRec};
use millrace_mqtt::{Property, ReasonCode, Version};

use super::*;
use crate::InFlight;
use crate::outbox::Outbox;
use crate::settings::UNCOUNTED_BYTES_MAX;
use crate::test_client::{Client, delivery, message, properties};

#[test]
fn each_qos_is_sent_as_its_protocol_says() {
    //= [MQTT-4.3.1-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2] [MQTT-2.2.1-4] v5
    //= [MQTT-4.3.1-1] [MQTT-2.3.1-4] v3.1.1
    for version in [Version::V31, Version::V311, Version::V5] {
        let mut client = Client::new(version);
        for level in [0, 1, 2, 1] {
            assert_eq!(client.deliver(level, "x"), Delivered::Sent);
        }
        assert_eq!(
            client.read(),
            ["PUBLISH q0 a=x", "PUBLISH q1 #1 a=x", "PUBLISH q2 #2 a=x", "PUBLISH q1 #3 a=x"],
            "{version:?}"
        );
    }
}

#[test]
fn no_more_is_sent_than_the_receive_maximum_allows() {
    //= [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2] v5
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(2)], SessionSettings::default());
    client.deliver_all(1, "abcd");
    assert_eq!(client.read(), ["PUBLISH q1 #1 a=a", "PUBLISH q1 #2 a=b"]);
    assert_eq!((client.session.unacknowledged(), client.session.waiting()), (2, 2));
    // Each acknowledgement makes room for one, in whatever order they come.
    assert_eq!(client.ack(PubAck, 2), "acknowledged");
    assert_eq!(client.read(), ["PUBLISH q1 #3 a=c"]);
    assert_eq!(client.ack(PubAck, 2), "nothing");
    assert_eq!(client.read(), [""; 0]);
    client.ack(PubAck, 1);
    assert_eq!(client.read(), ["PUBLISH q1 #4 a=d"]);
}

#[test]
fn a_qos_2_message_holds_its_place_until_pubcomp() {
    //= [MQTT-4.9.0-2] [MQTT-4.3.3-4] v5
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(1)], SessionSettings::default());
    client.deliver_all(2, "ab");
    assert_eq!(client.read(), ["PUBLISH q2 #1 a=a"]);
    assert_eq!(client.ack(PubRec, 1), "nothing");
    assert_eq!(client.read(), ["PUBREL #1"]);
    assert_eq!(client.ack(PubComp, 1), "acknowledged");
    assert_eq!(client.read(), ["PUBLISH q2 #2 a=b"]);
    // A refusing PUBREC ends it at once.
    client.deliver(2, "c");
    assert_eq!(client.refuse(PubRec, 2, ReasonCode::QUOTA_EXCEEDED), "acknowledged");
    assert_eq!(client.read(), ["PUBLISH q2 #3 a=c"]);
}

#[test]
fn qos_0_and_acknowledgements_pass_a_full_receive_maximum() {
    //= [MQTT-4.9.0-3] v5
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(1)], SessionSettings::default());
    client.deliver_all(1, "ab");
    assert_eq!(client.deliver(0, "now"), Delivered::Sent);
    assert_eq!(client.publish(2, 9), "publish t");
    client.published(2, 9, ReasonCode::SUCCESS, "");
    assert_eq!(client.send(millrace_mqtt::Packet::PingReq), "nothing");
    assert_eq!(client.read(), ["PUBLISH q1 #1 a=a", "PUBLISH q0 a=now", "PUBREC #9", "PINGRESP"]);
}

#[test]
fn the_servers_own_maximum_holds_for_clients_that_cannot_say_one() {
    for version in [Version::V31, Version::V311, Version::V5] {
        let settings = SessionSettings { inflight_max: 2, ..SessionSettings::default() };
        let mut client = Client::with(version, &[], settings);
        client.deliver_all(1, "abc");
        assert_eq!(client.read().len(), 2, "{version:?}");
        client.ack(PubAck, 1);
        assert_eq!(client.read(), ["PUBLISH q1 #3 a=c"], "{version:?}");
    }
}

#[test]
fn a_resumed_session_sends_what_is_unacknowledged_first_in_its_order_with_its_ids() {
    //= [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.3.3-6] v5
    //= [MQTT-4.4.0-1] [MQTT-3.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] v3.1.1
    for version in [Version::V31, Version::V311, Version::V5] {
        let settings = SessionSettings { inflight_max: 5, ..SessionSettings::default() };
        let mut client = Client::with(version, &[], settings);
        for (level, payload) in [(1, "a"), (2, "b"), (1, "c"), (2, "d"), (2, "e"), (1, "waits")] {
            client.deliver(level, payload);
        }
        client.read();
        client.ack(PubRec, 2);
        client.ack(PubAck, 3);
        client.ack(PubRec, 4);
        client.ack(PubComp, 4);
        client.cut();
        // Fewer than before the cut are under way, so there is room for what waited.
        client.deliver(1, "offline");
        client.reconnect();
        assert_eq!(
            client.read(),
            [
                "PUBLISH dup q1 #1 a=a",
                "PUBREL #2",
                "PUBLISH dup q2 #5 a=e",
                "PUBLISH dup q1 #6 a=waits",
                "PUBLISH q1 #7 a=offline"
            ],
            "{version:?}"
        );
    }
}

#[test]
fn what_is_sent_again_counts_against_the_receive_maximum_too() {
    //= [MQTT-3.3.4-9] v5
    let mut client = Client::with(Version::V5, &[], SessionSettings::default());
    client.deliver_all(1, "abc");
    client.cut();
    client.properties = properties(&[Property::ReceiveMaximum(2)]);
    client.reconnect();
    assert_eq!(client.read(), ["PUBLISH dup q1 #1 a=a", "PUBLISH dup q1 #2 a=b"]);
    client.deliver_all(1, "d");
    client.ack(PubAck, 1);
    assert_eq!(client.read(), ["PUBLISH dup q1 #3 a=c"]);
    client.ack(PubAck, 2);
    assert_eq!(client.read(), ["PUBLISH q1 #4 a=d"]);
}

#[test]
fn a_message_is_sent_again_with_every_reconnect_and_never_without_one() {
    //= [MQTT-4.4.0-1] v5
    let mut client = Client::new(Version::V5);
    client.deliver_all(2, "a");
    assert_eq!(client.read(), ["PUBLISH q2 #1 a=a"]);
    client.pump();
    assert_eq!(client.read(), [""; 0]);
    for _ in 0..3 {
        client.reconnect();
        assert_eq!(client.read(), ["PUBLISH dup q2 #1 a=a"]);
    }
    client.ack(PubRec, 1);
    client.read();
    for _ in 0..3 {
        client.reconnect();
        assert_eq!(client.read(), ["PUBREL #1"]);
    }
    client.ack(PubComp, 1);
    client.reconnect();
    assert_eq!(client.read(), [""; 0]);
}

#[test]
fn packet_ids_go_on_where_they_were_across_the_wrap() {
    let mut client = Client::new(Version::V311);
    client.session.outbox = Some(Box::new(Outbox::beginning_at(65_534)));
    client.deliver_all(1, "abcd");
    assert_eq!(
        client.read(),
        ["PUBLISH q1 #65534 a=a", "PUBLISH q1 #65535 a=b", "PUBLISH q1 #1 a=c", "PUBLISH q1 #2 a=d"]
    );
    client.ack(PubAck, 65_535);
    client.ack(PubAck, 1);
    client.reconnect();
    assert_eq!(client.read(), ["PUBLISH dup q1 #65534 a=a", "PUBLISH dup q1 #2 a=d"]);
    assert_eq!(client.ack(PubAck, 2), "acknowledged");
    assert_eq!(client.ack(PubAck, 65_534), "acknowledged");
    client.deliver_all(1, "e");
    assert_eq!(client.read(), ["PUBLISH q1 #3 a=e"]);
}

#[test]
fn one_unacknowledged_message_does_not_hold_up_later_ones_when_packet_ids_begin_again() {
    //= [MQTT-4.4.0-1] v5 v3.1.1
    let mut client = Client::new(Version::V311);
    client.deliver_all(1, "s");
    for number in 2..=u16::MAX {
        client.deliver(1, "x");
        client.ack(PubAck, number);
    }
    client.read();
    assert_eq!(client.deliver(1, "new"), Delivered::Sent);
    assert_eq!(client.read(), ["PUBLISH q1 #2 a=new"]);
    client.reconnect();
    assert_eq!(client.read(), ["PUBLISH dup q1 #1 a=s", "PUBLISH dup q1 #2 a=new"]);
    client.ack(PubAck, 1);
    assert_eq!(client.deliver(1, "next"), Delivered::Sent);
    assert_eq!(client.read(), ["PUBLISH q1 #3 a=next"]);
}

#[test]
fn a_message_that_may_have_been_sent_before_a_crash_says_so() {
    //= [MQTT-3.3.1-1] v5 v3.1.1
    let mut client = Client::new(Version::V5);
    for (level, expected) in [(0, "PUBLISH q0 a=x"), (1, "PUBLISH dup q1 #1 a=x"), (2, "PUBLISH q2 #2 a=x")] {
        let message = message("a", level, &[], "x", 0);
        client.deliver_as(&Delivery { maybe_sent: true, ..delivery(&message, level) });
        assert_eq!(client.read(), [expected]);
    }
}

#[test]
fn live_messages_wait_behind_retained_ones() {
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(1)], SessionSettings::default());
    for payload in ["r1", "r2"] {
        client.replay(1, payload);
    }
    assert!(client.session.is_replaying());
    assert_eq!(client.replay(0, "r3"), Delivered::Queued);
    assert_eq!(client.deliver(0, "live0"), Delivered::Queued);
    assert_eq!(client.deliver(1, "live1"), Delivered::Queued);
    assert_eq!(client.read(), ["PUBLISH retain q1 #1 a=r1"]);
    client.ack(PubAck, 1);
    assert!(!client.session.is_replaying());
    assert_eq!(client.read(), ["PUBLISH retain q1 #2 a=r2", "PUBLISH retain q0 a=r3", "PUBLISH q0 a=live0"]);
    // Nothing retained waits any longer: QoS 0 goes at once.
    assert_eq!(client.deliver(0, "fast"), Delivered::Sent);
    client.ack(PubAck, 2);
    assert_eq!(client.read(), ["PUBLISH q0 a=fast", "PUBLISH q1 #3 a=live1"]);
}

#[test]
fn what_cannot_be_kept_says_why() {
    let limits = SessionSettings { queue_messages_max: 2, inflight_max: 1, ..SessionSettings::default() };
    let bytes = SessionSettings { queue_bytes_max: 5, inflight_max: 1, ..SessionSettings::default() };
    use Delivered::{Dropped, Queued, Sent};
    use DropReason::{Busy, Offline, QueueFull};
    // SessionSettings, connected, busy; QoS and payload of messages with what becomes of each.
    #[rustfmt::skip]
    let cases = [
        (limits, true, false, &[(1, "s", Sent), (1, "a", Queued), (2, "b", Queued), (1, "c", Dropped(QueueFull)), (0, "d", Sent)][..]),
        (limits, false, false, &[(0, "a", Dropped(Offline)), (1, "a", Queued), (1, "b", Queued), (2, "c", Dropped(QueueFull))]),
        (limits, true, true, &[(0, "a", Dropped(Busy)), (1, "a", Queued), (2, "b", Queued), (1, "c", Dropped(QueueFull))]),
        // The topic's one byte counts as well.
        (bytes, false, false, &[(1, "12345", Dropped(QueueFull)), (1, "1234", Queued), (1, "", Dropped(QueueFull))]),
        (bytes, false, false, &[(1, "1", Queued), (1, "12", Queued), (1, "", Dropped(QueueFull)), (2, "", Dropped(QueueFull))]),
        (bytes, true, true, &[(1, "1234", Queued), (0, "x", Dropped(Busy))]),
    ];
    for (settings, connected, busy, steps) in cases {
        let mut client = Client::with(Version::V5, &[], settings);
        if !connected {
            client.cut();
        }
        client.wire.full = busy;
        for (level, payload, expected) in steps {
            assert_eq!(client.deliver(*level, payload), *expected, "{settings:?} {level} {payload}");
        }
        assert!(client.session.waiting() <= 2);
    }
}

#[test]
fn what_a_session_holds_counts_until_the_client_has_it() {
    let budget = Arc::new(Budget::new(1_000_000, None));
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(2)], SessionSettings::default());
    client.budget = Some(budget.clone());
    assert_eq!(client.deliver(0, "not held"), Delivered::Sent);
    assert_eq!(budget.used(), 0);
    client.deliver_all(1, "a");
    let one = budget.used();
    assert!(one > 0);
    client.deliver_all(2, "bc");
    assert_eq!((client.session.waiting(), budget.used()), (1, 3 * one));
    client.replay(1, "d");
    assert_eq!(budget.used(), 3 * one, "a retained message is there anyway");
    // The one that waited is sent instead.
    client.ack(PubAck, 1);
    assert_eq!(budget.used(), 2 * one);
    client.ack(PubRec, 2);
    assert_eq!(budget.used(), one, "what was received with QoS 2 is no longer held");
    client.session = Session::new("a".into());
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_session_that_hoards_gets_no_more_beyond_the_budget_and_qos_0_goes_on() {
    let settings = SessionSettings { inflight_max: 1, ..SessionSettings::default() };
    let mut client = Client::with(Version::V5, &[], settings);
    let budget = Arc::new(Budget::new(10_000, None));
    client.budget = Some(budget.clone());
    let outcomes: Vec<_> = (0..100).map(|_| client.deliver(1, &"x".repeat(500))).collect();
    assert_eq!(outcomes[0], Delivered::Sent);
    assert_eq!(outcomes[99], Delivered::Dropped(DropReason::Memory));
    assert!(budget.used() < 20_000, "{budget:?}");
    assert_eq!(client.deliver(0, "live"), Delivered::Sent);
    client.session.is_stored = true;
    assert_eq!(client.deliver(1, "of a store"), Delivered::Queued);
}

/// Bytes of the payloads that a client has not acknowledged.
fn sent_bytes(client: &Client) -> usize {
    let sent = client.session.entries().map(|entry| entry.message.payload().len()).sum::<usize>();
    sent - client.session.waiting() * LARGE
}

const LARGE: usize = 20_000;

/// Acknowledges all, in order, and returns how many messages came.
fn acknowledge_all(client: &mut Client) -> usize {
    let mut count = 0;
    while client.session.has_backlog() || client.session.unacknowledged() > 0 {
        let lines = client.read();
        assert!(!lines.is_empty(), "a message waits although all are acknowledged");
        for line in lines {
            count += 1;
            assert!(line.starts_with(&format!("PUBLISH q1 #{count} ")), "{line:.40}");
            client.ack(PubAck, count);
        }
    }
    usize::from(count)
}

#[test]
fn what_a_stored_session_sends_without_an_acknowledgement_counts_and_waits_beyond_the_budget() {
    let budget = Arc::new(Budget::new(300_000, None));
    let mut client = Client::new(Version::V5);
    client.session.is_stored = true;
    client.budget = Some(budget.clone());
    let outcomes: Vec<_> = (0..60).map(|_| client.deliver(1, &"x".repeat(LARGE))).collect();
    assert!(
        outcomes.iter().all(|outcome| *outcome != Delivered::Dropped(DropReason::Memory)),
        "{outcomes:?}"
    );
    assert!((200_000..=300_000).contains(&budget.used()), "{budget:?}");
    assert!(sent_bytes(&client) <= 300_000 + UNCOUNTED_BYTES_MAX as usize, "{}", sent_bytes(&client));
    assert_eq!(acknowledge_all(&mut client), 60);
    assert_eq!(budget.used(), 0);
}

#[test]
fn retained_messages_that_wait_for_acknowledgements_count_and_the_next_ones_wait_beyond_the_budget() {
    let budget = Arc::new(Budget::new(300_000, None));
    let mut client = Client::new(Version::V5);
    client.budget = Some(budget.clone());
    for _ in 0..60 {
        client.replay(1, &"x".repeat(LARGE));
    }
    assert!((200_000..=300_000).contains(&budget.used()), "{budget:?}");
    assert!(sent_bytes(&client) <= 300_000 + UNCOUNTED_BYTES_MAX as usize, "{}", sent_bytes(&client));
    client.session.begin_replay();
    assert!(!client.session.wants_replay(), "it waits behind the others");
    client.session.end_replay();
    client.session = Session::new("another".into());
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_session_whose_broker_has_no_memory_left_gets_its_messages_one_by_one() {
    let budget = Arc::new(Budget::new(0, None));
    let mut client = Client::new(Version::V5);
    client.budget = Some(budget.clone());
    client.session.is_stored = true;
    let large = "x".repeat(100_000);
    assert_eq!(client.deliver(1, &large), Delivered::Sent);
    assert_eq!(client.deliver(1, &large), Delivered::Queued);
    // A message of QoS 2 gets its packet id only when it has room.
    assert_eq!(client.deliver(2, &large), Delivered::Queued);
    client.ack(PubAck, 1);
    assert_eq!((client.session.unacknowledged(), client.session.waiting()), (1, 1));
    assert!(!client.session.has_reserved());
    client.ack(PubAck, 2);
    assert_eq!((client.session.waiting(), client.session.take_reserved().len()), (0, 1));
    // Ordinary messages cost the budget nothing.
    client.session = Session::new("small".into());
    client.session.is_stored = true;
    client.deliver_all(1, &"m".repeat(200));
    assert_eq!((client.session.unacknowledged(), budget.used()), (200, 0));
}

#[test]
fn all_that_fits_the_window_gets_its_packet_ids_with_one_write_also_with_qos_1_in_between() {
    let mut client = Client::new(Version::V5);
    client.session.is_stored = true;
    client.deliver(2, "0");
    client.pump();
    let first = client.session.take_reserved();
    let levels = [1, 2, 2, 1, 2, 1];
    for (number, level) in (1..).zip(levels) {
        client.deliver(level, &number.to_string());
    }
    client.pump();
    assert_eq!(client.read(), [""; 0], "nothing overtakes the first");
    client.ack(PubAck, 2);
    assert!(
        client.session.is_sending(crate::test_client::id(2)),
        "an acknowledgement of what was never sent does nothing"
    );
    let second = client.session.take_reserved();
    assert_eq!(second.iter().map(|(id, _)| id.get()).collect::<Vec<_>>(), [3, 4, 6]);
    first.iter().for_each(|(id, _)| client.session.confirm(*id));
    client.pump();
    assert_eq!(client.read(), ["PUBLISH q2 #1 a=0", "PUBLISH q1 #2 a=1"]);
    second.iter().for_each(|(id, _)| client.session.confirm(*id));
    client.pump();
    let rest = [
        "PUBLISH q2 #3 a=2",
        "PUBLISH q2 #4 a=3",
        "PUBLISH q1 #5 a=4",
        "PUBLISH q2 #6 a=5",
        "PUBLISH q1 #7 a=6",
    ];
    assert_eq!(client.read(), rest);
    client.ack(PubAck, 2);
    client.ack(PubAck, 7);
    assert_eq!(client.session.unacknowledged(), 5);
}

#[test]
fn qos_1_that_waits_behind_a_reserved_packet_id_counts_as_never_sent() {
    let mut client = Client::new(Version::V5);
    client.session.is_stored = true;
    client.deliver_all(2, "a");
    client.pump();
    client.session.take_reserved();
    client.deliver_all(1, "b");
    client.pump();
    let (sent, unsent) = client.session.in_flight();
    assert_eq!((sent.len(), unsent.len()), (0, 2));
    assert_eq!(client.session.take_begun(|_| true).len(), 1, "the store knows the id of QoS 2 alone");
    client.pump();
    assert_eq!(client.read(), ["PUBLISH q1 #2 a=b"]);
}

#[test]
fn what_waits_in_a_stored_session_counts_beyond_a_few_messages() {
    let budget = Arc::new(Budget::new(300_000, None));
    let settings = SessionSettings { inflight_max: 1, ..SessionSettings::default() };
    let mut client = Client::with(Version::V5, &[], settings);
    client.session.is_stored = true;
    client.budget = Some(budget.clone());
    assert!(!client.session.lacks_memory(1_000_000, Some(&budget)), "the first message always comes");
    for number in 0..100 {
        if client.session.lacks_memory(LARGE, Some(&budget)) {
            break;
        }
        client.deliver(1, &"x".repeat(LARGE));
        if number == 3 {
            assert_eq!(budget.used(), 0);
        }
    }
    let waiting = client.session.waiting() * LARGE;
    assert!((300_000..300_000 + UNCOUNTED_BYTES_MAX as usize).contains(&waiting), "{waiting}");
    assert!((250_000..=300_000).contains(&budget.used()), "{budget:?}");
    assert_eq!(acknowledge_all(&mut client), waiting / LARGE + 1);
    assert_eq!(budget.used(), 0);
}

#[test]
fn retained_messages_are_not_kept_from_a_client_by_a_full_queue() {
    let settings = SessionSettings { queue_messages_max: 1, inflight_max: 1, ..SessionSettings::default() };
    let mut client = Client::with(Version::V5, &[], settings);
    client.deliver_all(1, "ab");
    assert_eq!(client.replay(1, "r"), Delivered::Queued);
    assert_eq!(client.deliver(0, "live"), Delivered::Dropped(DropReason::QueueFull));
    client.session.is_stored = true;
    assert_eq!(client.deliver(0, "live"), Delivered::Dropped(DropReason::QueueFull), "QoS 0 is never stored");
    assert_eq!(client.deliver(1, "of a store"), Delivered::Queued);
}

#[test]
fn a_busy_socket_gets_the_rest_when_it_is_free_again() {
    let mut client = Client::new(Version::V311);
    client.wire.full = true;
    client.deliver_all(1, "ab");
    client.pump();
    assert_eq!(client.read(), [""; 0]);
    assert!(client.session.has_backlog());
    client.wire.full = false;
    client.pump();
    assert_eq!(client.read(), ["PUBLISH q1 #1 a=a", "PUBLISH q1 #2 a=b"]);
    assert!(!client.session.has_backlog());
}

#[test]
fn an_expired_message_is_not_sent_and_one_on_its_way_is() {
    //= [MQTT-3.3.2-5] [MQTT-3.3.2-6] [MQTT-4.3.3-7] v5
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(1)], SessionSettings::default());
    let expiring = |seconds, payload, client: &Client| {
        message("a", 2, &properties(&[Property::MessageExpiryInterval(seconds)]), payload, client.now)
    };
    for (level, seconds, payload) in
        [(2, 10, "under way"), (1, 10, "too late"), (1, 30, "in time"), (1, u32::MAX, "far")]
    {
        let message = expiring(seconds, payload, &client);
        client.deliver_as(&delivery(&message, level));
    }
    assert_eq!(client.read(), ["PUBLISH q2 #1 a=under way MessageExpiryInterval(10)"]);
    client.now += 20_000;
    // It was sent before it expired: it is sent again until it is acknowledged.
    client.reconnect();
    assert_eq!(client.read(), ["PUBLISH dup q2 #1 a=under way MessageExpiryInterval(0)"]);
    client.ack(PubRec, 1);
    client.read();
    client.ack(PubComp, 1);
    assert_eq!(client.dropped, [DropReason::Expired]);
    assert_eq!(client.read(), ["PUBLISH q1 #2 a=in time MessageExpiryInterval(10)"]);
    client.now += 10_000;
    client.ack(PubAck, 2);
    let far = client.read();
    assert_eq!(far.len(), 1);
    assert!(far[0].starts_with("PUBLISH q1 #3 a=far MessageExpiryInterval(42949"), "{far:?}");
    let message = expiring(5, "dead", &client);
    client.now += 6_000;
    client.ack(PubAck, 3);
    assert_eq!(client.deliver_as(&delivery(&message, 1)), Delivered::Dropped(DropReason::Expired));
    // The packet id was not used up.
    client.deliver(1, "next");
    assert_eq!(client.read(), ["PUBLISH q1 #4 a=next"]);
}

#[test]
fn a_client_of_3_1_1_is_not_told_the_expiry_but_spared_what_expired() {
    let mut client = Client::new(Version::V311);
    let message = message("a", 1, &properties(&[Property::MessageExpiryInterval(5)]), "x", client.now);
    assert_eq!(client.deliver_as(&delivery(&message, 1)), Delivered::Sent);
    client.now += 6_000;
    assert_eq!(client.deliver_as(&delivery(&message, 1)), Delivered::Dropped(DropReason::Expired));
    assert_eq!(client.read(), ["PUBLISH q1 #1 a=x"]);
}

#[test]
fn a_pump_sends_and_drops_a_bounded_number_of_messages() {
    let settings = SessionSettings { inflight_max: u16::MAX, ..SessionSettings::default() };
    let mut client = Client::with(Version::V5, &[], settings);
    let mut connection = client.connection.take().unwrap();
    for number in 0..=PUMP_MAX {
        assert_eq!(client.deliver(1, &number.to_string()), Delivered::Queued);
    }
    let mut sent = 0;
    for expected in [PUMP_MAX, 1, 0] {
        let mut note = |_, _: &Message| sent += 1;
        let count = client.session.pump(&mut connection, &settings, None, 0, &mut Vec::new(), &mut note);
        assert_eq!(count, expected);
    }
    assert_eq!(sent, PUMP_MAX + 1);
}

#[test]
fn a_restored_message_that_expired_before_it_was_sent_is_dropped() {
    //= [MQTT-3.3.2-5] v5
    let mut client = Client::new(Version::V5);
    client.cut();
    let expiring = message("a", 1, &properties(&[Property::MessageExpiryInterval(2)]), "late", 1);
    let lasting = message("a", 1, &[], "lasts", 1);
    let in_flight = [(1, &expiring), (2, &expiring), (3, &lasting)].map(|(id, message)| {
        let entry = delivery(message, 1).to_entry();
        let id = PacketId::new(id).unwrap();
        (id, if id.get() == 1 { InFlight::Published(entry) } else { InFlight::Unsent(entry) })
    });
    client.session = Session::restored("c".into(), in_flight.into(), Vec::new());
    client.now = 10_000;
    client.reconnect();
    // The first may have been delivered, so the receiver must get it again.
    let read = client.read();
    assert_eq!(read.len(), 2, "{read:?}");
    assert!(read[0].contains("late") && read[1].contains("lasts"), "{read:?}");
}

#[test]
fn properties_of_a_message_are_referred_to_like_its_payload() {
    let mut client = Client::new(Version::V5);
    let value = "v".repeat(50_000);
    let large = properties(&[Property::UserProperty("k", &value), Property::MessageExpiryInterval(9)]);
    let message = message("a", 0, &large, "x", client.now);
    assert_eq!(client.deliver_as(&delivery(&message, 0)), Delivered::Sent);
    let copied = client.wire.bytes.len() - client.wire.referred;
    assert!(copied < 100, "{copied} bytes were copied");
    let read = client.read();
    assert!(read.len() == 1 && read[0].starts_with("PUBLISH q0 a=x"), "{} packets", read.len());
}
