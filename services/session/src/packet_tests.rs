//! A PUBLISH to a client: aliases, properties, and how large it may be.

use millrace_mqtt::PacketType::PubAck;
use millrace_mqtt::{Property, Version};

use crate::test_client::{Client, delivery, message, properties};
use crate::{Delivered, Delivery, DropReason, SessionSettings};

#[test]
fn topics_are_replaced_by_aliases_as_far_as_the_client_allows() {
    //= [MQTT-3.1.2-26] [MQTT-3.1.2-27] v5
    let cases: [(u16, u16, [&str; 5]); 4] = [
        // Aliases that the client allows, most that the server sets, and the packets for the topics a, a, b, b, a.
        (0, 16, ["a=x", "a=x", "b=x", "b=x", "a=x"]),
        (1, 16, ["a=x TopicAlias(1)", "=x TopicAlias(1)", "b=x", "b=x", "=x TopicAlias(1)"]),
        (2, 1, ["a=x TopicAlias(1)", "=x TopicAlias(1)", "b=x", "b=x", "=x TopicAlias(1)"]),
        (
            2,
            16,
            [
                "a=x TopicAlias(1)",
                "=x TopicAlias(1)",
                "b=x TopicAlias(2)",
                "=x TopicAlias(2)",
                "=x TopicAlias(1)",
            ],
        ),
    ];
    for (allowed, set, expected) in cases {
        let settings = SessionSettings { topic_alias_outbound_max: set, ..SessionSettings::default() };
        let mut client = Client::with(Version::V5, &[Property::TopicAliasMaximum(allowed)], settings);
        for topic in ["a", "a", "b", "b", "a"] {
            let message = message(topic, 0, &[], "x", 1);
            client.deliver_as(&delivery(&message, 0));
        }
        let expected = expected.map(|rest| format!("PUBLISH q0 {rest}"));
        assert_eq!(client.read(), expected, "{allowed} {set}");
    }
}

#[test]
fn aliases_end_with_the_connection() {
    //= [MQTT-3.3.2-7] v5
    let mut client = Client::with(Version::V5, &[Property::TopicAliasMaximum(1)], SessionSettings::default());
    client.deliver_all(1, "xy");
    assert_eq!(client.read(), ["PUBLISH q1 #1 a=x TopicAlias(1)", "PUBLISH q1 #2 =y TopicAlias(1)"]);
    client.reconnect();
    assert_eq!(client.read(), ["PUBLISH dup q1 #1 a=x TopicAlias(1)", "PUBLISH dup q1 #2 =y TopicAlias(1)"]);
}

/// The size of a PUBLISH to topic "a" with a payload of ten bytes, without and with an alias.
const PLAIN: u32 = 16;

const PLAIN_QOS_1: u32 = PLAIN + 2;

#[test]
fn nothing_larger_than_the_maximum_packet_size_is_sent() {
    //= [MQTT-3.1.2-24] [MQTT-3.1.2-25] v5
    for (level, size) in [(0, PLAIN), (1, PLAIN_QOS_1), (2, PLAIN_QOS_1)] {
        for (maximum, sent) in [(size - 1, false), (size, true), (size + 1, true)] {
            let asked = [Property::MaximumPacketSize(maximum)];
            let mut client = Client::with(Version::V5, &asked, SessionSettings::default());
            let outcome = client.deliver(level, "0123456789");
            let expected = if sent { Delivered::Sent } else { Delivered::Dropped(DropReason::TooLarge) };
            assert_eq!(outcome, expected, "QoS {level}, maximum {maximum}");
            // As if it had been sent: the session continues, and no packet id is lost.
            assert_eq!(client.session.unacknowledged(), usize::from(sent && level > 0));
            client.deliver(1, "y");
            assert!(client.read().last().unwrap().starts_with("PUBLISH q1 #"));
        }
    }
}

#[test]
fn a_message_that_fits_only_without_an_alias_is_sent_without() {
    //= [MQTT-3.1.2-24] v5
    for level in [0, 1] {
        let size = if level == 0 { PLAIN } else { PLAIN_QOS_1 };
        for (maximum, expected) in [
            (size - 1, vec![]),
            (size, vec!["a=0123456789"]),
            (size + 2, vec!["a=0123456789"]),
            (size + 3, vec!["a=0123456789 TopicAlias(1)"]),
        ] {
            let asked = [Property::MaximumPacketSize(maximum), Property::TopicAliasMaximum(1)];
            let mut client = Client::with(Version::V5, &asked, SessionSettings::default());
            client.deliver(level, "0123456789");
            let got: Vec<_> =
                client.read().iter().map(|line| line[line.find("a=").unwrap()..].to_owned()).collect();
            assert_eq!(got, expected, "QoS {level}, maximum {maximum}");
            // An alias that no packet set is still free.
            client.deliver(0, "y");
            let next = client.read();
            let alias = if expected == ["a=0123456789 TopicAlias(1)"] {
                "=y TopicAlias(1)"
            } else {
                "a=y TopicAlias(1)"
            };
            assert_eq!(next, [format!("PUBLISH q0 {alias}")], "QoS {level}, maximum {maximum}");
        }
    }
}

#[test]
fn a_known_alias_is_left_out_where_the_name_is_shorter_and_only_that_fits() {
    //= [MQTT-3.1.2-24] v5
    let asked = [Property::MaximumPacketSize(PLAIN), Property::TopicAliasMaximum(1)];
    let mut client = Client::with(Version::V5, &asked, SessionSettings::default());
    client.deliver_all(0, "x");
    client.deliver(0, "0123456789");
    client.deliver_all(0, "y");
    assert_eq!(
        client.read(),
        ["PUBLISH q0 a=x TopicAlias(1)", "PUBLISH q0 a=0123456789", "PUBLISH q0 =y TopicAlias(1)"]
    );
}

#[test]
fn what_became_too_large_for_a_new_connection_is_dropped_on_resume_and_counted() {
    //= [MQTT-3.1.2-25] v5
    let mut client = Client::new(Version::V5);
    for payload in ["0123456789", "ok", "0123456789"] {
        client.deliver(1, payload);
    }
    client.cut();
    client.deliver(1, "0123456789");
    client.properties = properties(&[Property::MaximumPacketSize(PLAIN)]);
    client.reconnect();
    assert_eq!(client.read(), ["PUBLISH dup q1 #2 a=ok"]);
    assert_eq!(client.dropped, [DropReason::TooLarge; 3]);
    assert_eq!(client.session.unacknowledged(), 1);
    client.ack(PubAck, 2);
    assert!(!client.session.has_backlog());
    assert_eq!(client.session.unacknowledged(), 0);
}

#[test]
fn identifiers_of_all_subscriptions_stand_in_the_packet_of_a_5_0_client() {
    //= [MQTT-3.3.4-3] [MQTT-3.3.4-4] v5
    for (version, expected) in [
        (Version::V5, "PUBLISH q0 a=x SubscriptionIdentifier(7) SubscriptionIdentifier(9)"),
        (Version::V311, "PUBLISH q0 a=x"),
    ] {
        let mut client = Client::new(version);
        let message = message("a", 0, &[], "x", 1);
        client.deliver_as(&Delivery { identifiers: &[7, 9], ..delivery(&message, 0) });
        assert_eq!(client.read(), [expected]);
    }
}

#[test]
fn properties_of_the_publisher_are_forwarded_unchanged_and_in_order() {
    //= [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20] v5
    let sent = [
        Property::UserProperty("k", "1"),
        Property::PayloadFormatIndicator(1),
        Property::ContentType("text/plain"),
        Property::ResponseTopic("r"),
        Property::CorrelationData(b"c"),
        Property::UserProperty("k", "2"),
    ];
    // An alias is of one hop only.
    let mut with_alias = sent.to_vec();
    with_alias.insert(1, Property::TopicAlias(3));
    for received in [&sent[..], &with_alias] {
        let mut client = Client::new(Version::V5);
        let message = message("a", 0, &properties(received), "x", 1);
        client.deliver_as(&delivery(&message, 0));
        let listed: String = sent.iter().map(|property| format!(" {property:?}")).collect();
        assert_eq!(client.read(), [format!("PUBLISH q0 a=x{listed}")]);
    }
}
