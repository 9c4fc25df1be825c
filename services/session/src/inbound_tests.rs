use millrace_mqtt::PacketType::PubRel;
use millrace_mqtt::{Packet, Properties, Property, Publish, ReasonCode, Version};

use crate::SessionSettings;
use crate::settings::{ALIASED_TOPIC_BYTES_MAX, RECEIVED_MAX};
use crate::test_client::{Client, delivery, id, message, properties, publish};

const VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];

#[test]
fn a_qos_2_publish_is_routed_once_however_often_it_comes() {
    //= [MQTT-4.3.3-10] [MQTT-4.3.3-8] [MQTT-4.3.3-11] [MQTT-4.3.3-12] v5
    //= [MQTT-4.3.3-2] v3.1.1
    for version in VERSIONS {
        let mut client = Client::new(version);
        assert_eq!(client.publish(2, 7), "publish t");
        client.published(2, 7, ReasonCode::SUCCESS, "");
        for dup in [true, false, true] {
            let again = Publish { dup, ..publish(2, 7) };
            assert_eq!(client.send(Packet::Publish(again)), "nothing");
        }
        // The session remembers it, not the connection.
        client.reconnect();
        assert_eq!(client.read(), [""; 0]);
        assert_eq!(client.publish(2, 7), "nothing");
        assert_eq!(client.read(), ["PUBREC #7"]);
        assert!(client.session.is_receiving(id(7)));
        assert_eq!(client.ack(PubRel, 7), "nothing");
        assert!(!client.session.is_receiving(id(7)));
        assert_eq!(client.publish(2, 7), "publish t");
        let unknown = if version == Version::V5 { "PUBCOMP #9 0x92" } else { "PUBCOMP #9" };
        client.ack(PubRel, 9);
        assert_eq!(client.read(), ["PUBCOMP #7", unknown], "{version:?}");
    }
}

#[test]
fn a_qos_2_publish_is_not_answered_before_it_is_where_it_must_be() {
    let mut client = Client::new(Version::V5);
    assert_eq!(client.publish(2, 7), "publish t");
    assert_eq!(client.publish(2, 7), "nothing");
    client.reconnect();
    assert_eq!(client.publish(2, 7), "nothing");
    assert_eq!(client.read(), [""; 0]);
    client.published(2, 7, ReasonCode::SUCCESS, "");
    assert_eq!(client.publish(2, 7), "nothing");
    client.ack(PubRel, 7);
    // An answer that comes when the client no longer waits for it is none.
    client.published(2, 7, ReasonCode::SUCCESS, "");
    assert_eq!(client.read(), ["PUBREC #7", "PUBREC #7", "PUBCOMP #7"]);
}

#[test]
fn a_refused_qos_2_publish_leaves_its_packet_id_free() {
    //= [MQTT-4.3.3-9] v5
    let mut client = Client::new(Version::V5);
    client.publish(2, 7);
    client.published(2, 7, ReasonCode::NOT_AUTHORIZED, "");
    assert_eq!(client.publish(2, 7), "publish t");
    client.published(2, 7, ReasonCode::NO_MATCHING_SUBSCRIBERS, "");
    assert!(client.session.is_receiving(id(7)));
    assert_eq!(client.read(), ["PUBREC #7 0x87", "PUBREC #7 0x10"]);
}

#[test]
fn a_qos_1_publish_is_new_each_time() {
    //= [MQTT-4.3.2-4] [MQTT-4.3.2-5] v5
    //= [MQTT-4.3.2-2] v3.1.1
    for version in VERSIONS {
        let mut client = Client::new(version);
        for dup in [false, true, true] {
            assert_eq!(client.send(Packet::Publish(Publish { dup, ..publish(1, 7) })), "publish t");
            client.published(1, 7, ReasonCode::SUCCESS, "");
        }
        assert_eq!(client.read(), ["PUBACK #7"; 3], "{version:?}");
    }
}

#[test]
fn a_3_x_client_is_never_told_a_refusal() {
    //= [MQTT-3.3.5-2] v3.1.1
    for version in [Version::V31, Version::V311] {
        let mut client = Client::new(version);
        for (level, number) in [(1, 1), (2, 2)] {
            client.publish(level, number);
            client.published(level, number, ReasonCode::NOT_AUTHORIZED, "no");
        }
        client.ack(PubRel, 2);
        assert_eq!(client.read(), ["PUBACK #1", "PUBREC #2", "PUBCOMP #2"]);
    }
}

#[test]
fn more_unacknowledged_messages_than_the_receive_maximum_end_the_connection() {
    //= [MQTT-3.3.4-8] [MQTT-4.9.0-3] v5
    let settings = SessionSettings { receive_maximum: 2, ..SessionSettings::default() };
    // Messages that are unacknowledged, and one more.
    for (before, one_more) in [([1, 1], 1), ([1, 2], 2), ([2, 2], 1), ([2, 2], 2)] {
        let mut client = Client::with(Version::V5, &[], settings);
        for (number, level) in [(1, before[0]), (2, before[1])] {
            assert_eq!(client.publish(level, number), "publish t");
        }
        // QoS 0, a repeat and what is no PUBLISH do not count.
        assert_eq!(client.publish(0, 0), "publish t");
        assert_eq!(client.send(Packet::PingReq), "nothing");
        if before[1] == 2 {
            assert_eq!(client.publish(2, 2), "nothing");
        }
        let effect = client.publish(one_more, 3);
        assert!(effect.starts_with("close 0x93"), "{before:?} {one_more}: {effect}");
        assert!(client.read().last().unwrap().starts_with("DISCONNECT 0x93"));
    }
    // A PUBREL completes nothing when its packet id is not in use.
    let mut client = Client::with(Version::V5, &[], settings);
    for number in [1, 2] {
        assert_eq!(client.publish(2, number), "publish t");
        client.published(2, number, ReasonCode::SUCCESS, "");
    }
    assert_eq!(client.ack(PubRel, 9), "nothing");
    assert_eq!(client.read().last().unwrap(), "PUBCOMP #9 0x92");
    let effect = client.publish(2, 3);
    assert!(effect.starts_with("close 0x93"), "{effect}");
    // An acknowledgement makes room: PUBACK, PUBCOMP, a refusing PUBREC.
    let mut client = Client::with(Version::V5, &[], settings);
    for round in 0..5 {
        assert_eq!(client.publish(1, 1), "publish t", "{round}");
        assert_eq!(client.publish(2, 2), "publish t", "{round}");
        client.published(1, 1, ReasonCode::SUCCESS, "");
        client.published(2, 2, ReasonCode::SUCCESS, "");
        client.ack(PubRel, 2);
        assert_eq!(client.publish(2, 3), "publish t", "{round}");
        client.published(2, 3, ReasonCode::QUOTA_EXCEEDED, "");
    }
    // A 3.x client was not given a Receive Maximum, so it may send more.
    let mut client = Client::with(Version::V311, &[], settings);
    for number in 1..100 {
        assert_eq!(client.publish(2, number), "publish t");
    }
}

/// A PUBLISH with an alias.
fn aliased(topic: &'static str, alias: u16) -> Publish<'static> {
    let properties = Properties::from_validated(properties(&[Property::TopicAlias(alias)]).leak());
    Publish { topic, properties, ..publish(0, 0) }
}

#[test]
fn a_topic_alias_stands_for_the_topic_it_was_last_set_to() {
    //= [MQTT-3.3.2-7] v5
    let mut client = Client::new(Version::V5);
    for (topic, alias, expected) in [
        ("a", 2, "publish a"),
        ("", 2, "publish a"),
        ("b", 2, "publish b"),
        ("", 2, "publish b"),
        ("c", 1, "publish c"),
    ] {
        assert_eq!(client.send(Packet::Publish(aliased(topic, alias))), expected);
    }
    client.reconnect();
    let effect = client.send(Packet::Publish(aliased("", 2)));
    assert!(effect.starts_with("close 0x82"), "an alias outlived its connection: {effect}");
}

#[test]
fn the_bytes_of_topic_aliases_are_those_of_their_topics() {
    let mut client = Client::new(Version::V5);
    let bytes = |client: &Client| client.connection.as_ref().unwrap().alias_bytes();
    for (topic, alias, expected) in [("abc", 2, 3), ("", 2, 3), ("a", 1, 4), ("b", 2, 2), ("abcd", 2, 5)] {
        client.send(Packet::Publish(aliased(topic, alias)));
        assert_eq!(bytes(&client), expected, "{topic} {alias}");
    }
    client.reconnect();
    assert_eq!(bytes(&client), 0);
}

#[test]
fn a_topic_alias_that_was_not_allowed_or_not_set_ends_the_connection() {
    //= [MQTT-3.3.2-12] [MQTT-3.3.2-9] v5
    let cases = [
        (3, "t", 3, "publish t"),
        (3, "t", 4, "close 0x94"),
        (3, "t", 0, "close 0x94"),
        (0, "t", 1, "close 0x94"),
        (3, "", 3, "close 0x82"),
    ];
    for (topic_alias_max, topic, alias, expected) in cases {
        let settings = SessionSettings { topic_alias_max, ..SessionSettings::default() };
        let mut client = Client::with(Version::V5, &[], settings);
        let effect = client.send(Packet::Publish(aliased(topic, alias)));
        assert!(effect.starts_with(expected), "{topic_alias_max} {topic} {alias}: {effect}");
        assert_eq!(client.read().len(), usize::from(expected.starts_with("close")));
    }
}

#[test]
fn a_subscription_identifier_from_a_client_is_a_protocol_error() {
    //= [MQTT-3.3.4-6] v5
    let mut client = Client::new(Version::V5);
    let properties = properties(&[Property::SubscriptionIdentifier(1)]);
    let properties = Properties::from_validated(&properties);
    let effect = client.send(Packet::Publish(Publish { properties, ..publish(0, 0) }));
    assert!(effect.starts_with("close 0x82"), "{effect}");
}

#[test]
fn a_session_remembers_a_limited_number_of_packet_ids_that_its_client_does_not_release() {
    for version in VERSIONS {
        let settings = SessionSettings { receive_maximum: 1_000, ..SessionSettings::default() };
        let mut client = Client::with(version, &[], settings);
        for number in 1..=RECEIVED_MAX {
            // On each connection as many as a 5.0 client may send.
            if number % 1_000 == 0 {
                client.reconnect();
            }
            assert_eq!(client.publish(2, number), "publish t", "{version:?}");
            client.published(2, number, ReasonCode::SUCCESS, "");
        }
        client.reconnect();
        client.read();
        assert_eq!(client.publish(2, 1), "nothing", "a known one is answered again");
        assert_eq!(client.publish(1, RECEIVED_MAX + 1), "publish t");
        let closed = client.publish(2, RECEIVED_MAX + 2);
        assert!(closed.contains("more unacknowledged messages"), "{version:?}: {closed}");
    }
}

#[test]
fn a_long_topic_gets_no_alias_towards_a_client() {
    let asked = [Property::TopicAliasMaximum(10)];
    let mut client = Client::with(Version::V5, &asked, SessionSettings::default());
    let topics = [ALIASED_TOPIC_BYTES_MAX, ALIASED_TOPIC_BYTES_MAX + 1].map(|len| "t".repeat(len));
    for topic in &topics {
        let message = message(topic, 0, &[], "x", client.now);
        client.deliver_as(&delivery(&message, 0));
    }
    let topic_of = |alias| client.connection.as_ref().unwrap().topic_of_outbound_alias(alias);
    assert_eq!((topic_of(1).as_deref(), topic_of(2)), (Some(&*topics[0]), None));
}
