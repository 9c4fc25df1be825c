use millrace_mqtt::PacketType::{PubAck, PubComp, PubRec};
use millrace_mqtt::{Property, QoS, Version};

use super::*;
use crate::test_client::{Client, delivery, message, properties};
use crate::{Delivery, RemainingMessage, SessionSettings};

const DAY: u32 = 86_400;

#[test]
fn the_session_expiry_of_each_version() {
    let settings = SessionSettings {
        session_expiry_v3_s: 7 * DAY,
        session_expiry_max_s: 90 * DAY,
        ..SessionSettings::default()
    };
    // Version, clean start, asked for; what counts as asked for, what is granted.
    let cases = [
        (Version::V31, true, None, (0, 0)),
        (Version::V31, false, None, (7 * DAY, 7 * DAY)),
        (Version::V311, true, None, (0, 0)),
        (Version::V311, false, None, (7 * DAY, 7 * DAY)),
        (Version::V5, true, None, (0, 0)),
        (Version::V5, false, None, (0, 0)),
        (Version::V5, true, Some(60), (60, 60)),
        (Version::V5, false, Some(60), (60, 60)),
        (Version::V5, false, Some(91 * DAY), (91 * DAY, 90 * DAY)),
        (Version::V5, false, Some(u32::MAX), (u32::MAX, 90 * DAY)),
    ];
    for (version, clean, asked, expected) in cases {
        assert_eq!(
            Session::expiry_of(version, clean, asked, &settings),
            expected,
            "{version:?} {clean} {asked:?}"
        );
    }
    let short = SessionSettings { session_expiry_max_s: DAY, ..settings };
    assert_eq!(Session::expiry_of(Version::V311, false, None, &short), (7 * DAY, DAY));
    let endless = SessionSettings { session_expiry_max_s: u32::MAX, ..settings };
    let never = Session::NO_EXPIRY;
    assert_eq!(Session::expiry_of(Version::V5, false, Some(never), &endless), (never, never));
}

#[test]
fn a_will_is_due_after_its_delay_or_with_the_end_of_the_session_whichever_comes_first() {
    let in_memory = |delay_s| SessionWill::InMemory { message: message("w", 0, &[], "gone", 0), delay_s };
    let will = |delay_s| Some(Box::new(in_memory(delay_s)));
    let cases = [
        (None, 60, None),
        (will(0), 60, Some(100)),
        (will(10), 60, Some(110)),
        (will(90), 60, Some(160)),
        (will(90), 0, Some(100)),
        (will(90), Session::NO_EXPIRY, Some(190)),
    ];
    for (will, expiry_s, expected) in cases {
        let mut session = Session::new("c".into());
        (session.will, session.expiry_s) = (will, expiry_s);
        assert_eq!(session.will_due(100), expected);
    }
}

#[test]
fn a_subscription_is_replaced_by_one_with_the_same_filter() {
    //= [MQTT-3.8.4-3] v5
    let mut session = Session::new("c".into());
    let subscription = |qos, identifier| ClientSubscription {
        options: SubscribeOptions { qos, ..SubscribeOptions::default() },
        identifier,
    };
    assert!(session.subscribe("a/+", subscription(QoS::AtMostOnce, 1)));
    assert!(session.subscribe("$share/g/a/+", subscription(QoS::AtMostOnce, 2)));
    assert!(session.subscribe("a/b", subscription(QoS::AtMostOnce, 3)));
    assert!(!session.subscribe("a/+", subscription(QoS::ExactlyOnce, 4)));
    assert_eq!(session.subscription("a/+"), Some(&subscription(QoS::ExactlyOnce, 4)));
    assert_eq!(session.subscriptions_len(), 3);
    assert!(session.unsubscribe("a/+"));
    assert!(!session.unsubscribe("a/+"));
    let mut left: Vec<_> = session.subscriptions().map(|(filter, _)| filter).collect();
    left.sort_unstable();
    assert_eq!(left, ["$share/g/a/+", "a/b"]);
}

#[test]
fn the_shared_subscriptions_of_an_ended_session_are_taken_first() {
    let mut session = Session::new("c".into());
    let one = ClientSubscription { options: SubscribeOptions::default(), identifier: 0 };
    for number in 0..100 {
        session.subscribe(&format!("own/{number}"), one);
        session.subscribe(&format!("$share/g/{number}"), one);
    }
    let mut remains = session.into_remains();
    let taken = std::iter::from_fn(|| remains.next_filter()).filter_map(|next| match next {
        NextFilter::Taken(filter) => Some(filter),
        NextFilter::Later => None,
    });
    let taken: Vec<_> = taken.collect();
    assert!(taken.len() == 200 && !remains.has_filters());
    assert!(taken[..100].iter().all(|filter| filter.starts_with("$share/")), "{taken:?}");
}

/// A client with two messages under way and more waiting: QoS, group, payload.
fn busy_client() -> Client {
    let mut client = Client::with(Version::V5, &[Property::ReceiveMaximum(4)], SessionSettings::default());
    for (level, shared, payload) in [
        (1, 7, "sent1"),
        (2, 7, "sent2"),
        (2, 7, "released"),
        (1, 0, "sent own"),
        (1, 7, "waits1"),
        (2, 7, "waits2"),
        (1, 0, "waits own"),
        (1, 8, "waits other"),
    ] {
        let message = message("t", level, &[], payload, 1);
        client.deliver_as(&Delivery { shared, ..delivery(&message, level) });
    }
    client.ack(PubRec, 3);
    client.read();
    client
}

fn payloads(entries: impl IntoIterator<Item = OutboxEntry>) -> Vec<(u64, String)> {
    let text = |entry: &OutboxEntry| String::from_utf8(entry.message.payload().to_vec()).unwrap();
    entries.into_iter().map(|entry| (entry.shared, text(&entry))).collect()
}

#[test]
fn another_member_gets_what_was_not_sent_when_a_member_goes_offline() {
    //= [MQTT-4.8.2-4] v5
    let mut client = busy_client();
    client.cut();
    let taken = payloads(client.session.take_shared());
    assert_eq!(taken, [(7, "waits1".into()), (7, "waits2".into()), (8, "waits other".into())]);
    assert!(client.session.take_shared().is_empty());
    // Messages that were sent stay with the session, and so do those that are not of a shared subscription.
    client.reconnect();
    client.ack(PubAck, 1);
    assert_eq!(
        client.read(),
        [
            "PUBLISH dup q1 #1 t=sent1",
            "PUBLISH dup q2 #2 t=sent2",
            "PUBREL #3",
            "PUBLISH dup q1 #4 t=sent own",
            "PUBLISH q1 #5 t=waits own"
        ]
    );
}

#[test]
fn another_member_gets_what_an_ended_session_did_not_acknowledge_but_never_a_begun_qos_2_message() {
    //= [MQTT-4.8.2-5] v5
    let client = busy_client();
    let mut remains = client.session.into_remains();
    let left = std::iter::from_fn(|| remains.next_message()).filter_map(|left| match left {
        RemainingMessage::Shared(entry) => Some(entry),
        RemainingMessage::Discarded => None,
    });
    assert_eq!(
        payloads(left),
        [(7, "sent1".into()), (7, "waits1".into()), (7, "waits2".into()), (8, "waits other".into())]
    );
    assert!(!remains.has_messages());
    assert!(Session::new("c".into()).into_remains().next_message().is_none());
}

#[test]
fn an_idle_session_gives_its_memory_back_and_a_busy_one_keeps_everything() {
    let mut client = Client::new(Version::V311);
    client.deliver(1, "a");
    client.session.shrink();
    assert_eq!(client.session.unacknowledged(), 1);
    client.ack(PubAck, 1);
    assert!(client.session.outbox.is_some());
    client.session.shrink();
    assert!(client.session.outbox.is_none());
    assert!(!client.session.has_backlog() && !client.session.is_replaying());
    // Late acknowledgements find nothing and do no harm.
    assert_eq!(client.ack(PubAck, 1), "nothing");
    client.cut();
    client.deliver(1, "waits");
    client.session.shrink();
    assert_eq!(client.session.waiting(), 1);
}

#[test]
fn the_expiry_interval_of_a_will_begins_when_it_is_published() {
    let will = message("w", 0, &properties(&[Property::MessageExpiryInterval(10)]), "gone", 0);
    let issued = will.issued(1_000);
    for (now, expired, left) in
        [(1_000, false, 10), (1_999, false, 10), (2_000, false, 9), (11_000, false, 0), (11_001, true, 0)]
    {
        assert_eq!((issued.is_expired(now), issued.expiry_left(now)), (expired, Some(left)), "{now}");
    }
    let endless = message("w", 0, &[], "gone", 0);
    assert_eq!(endless.issued(1_000).expiry_left(2_000), None);
    assert!(!endless.is_expired(u64::MAX - 1));
}

#[test]
fn subscriptions_that_are_gone_leave_no_memory() {
    const COUNT: usize = 10_000;
    let mut client = Client::new(Version::V5);
    let subscription = || ClientSubscription { options: SubscribeOptions::default(), identifier: 0 };
    let filters: Vec<String> = (0..COUNT).map(|number| format!("filter/{number}")).collect();
    for filter in &filters {
        client.session.subscribe(filter, subscription());
    }
    for filter in &filters[10..] {
        assert!(client.session.unsubscribe(filter));
    }
    let capacity = client.session.subscriptions.as_ref().map_or(0, |all| all.capacity());
    assert!((10..200).contains(&capacity), "{capacity}");
    for filter in &filters[..10] {
        assert!(client.session.unsubscribe(filter) && !client.session.unsubscribe(filter));
    }
    assert!(client.session.subscriptions.is_none());
}

#[test]
fn a_smaller_receive_maximum_holds_back_no_pubrel_of_a_resumed_session() {
    //= [MQTT-4.4.0-1] [MQTT-4.9.0-3] v5
    let mut client = Client::new(Version::V5);
    client.deliver_all(2, "abcd");
    client.ack(PubRec, 1);
    client.ack(PubRec, 2);
    client.ack(PubRec, 4);
    client.cut();
    client.properties = properties(&[Property::ReceiveMaximum(1)]);
    client.reconnect();
    // The released messages count until PUBCOMP, as on the earlier connection.
    assert_eq!(client.read(), ["PUBREL #1", "PUBREL #2", "PUBREL #4"]);
    client.deliver_all(1, "e");
    assert_eq!(client.ack(PubComp, 4), "acknowledged");
    client.ack(PubComp, 1);
    assert_eq!(client.read(), [""; 0]);
    client.ack(PubComp, 2);
    assert_eq!(client.read(), ["PUBLISH dup q2 #3 a=c"]);
    client.ack(PubRec, 3);
    client.ack(PubComp, 3);
    assert_eq!(client.read(), ["PUBREL #3", "PUBLISH q1 #5 a=e"]);
    assert_eq!(client.session.unacknowledged(), 1);
}
