use millrace_mqtt::PacketType::{PubAck, PubComp, PubRec};
use millrace_mqtt::{Connect, Packet, QoS, Subscribe, SubscribeFilters, SubscribeOptions, decode, frame};

use super::*;
use crate::test_client::{Client, Wire, connect, id};

const VERSIONS: [Version; 3] = [Version::V31, Version::V311, Version::V5];

#[test]
fn a_client_that_wants_no_problem_information_gets_reason_codes_alone() {
    //= [MQTT-3.1.2-29] v5
    let asked = [Property::RequestProblemInformation(0)];
    let mut client = Client::with(Version::V5, &asked, SessionSettings::default());
    for (level, number) in [(1, 1), (2, 2)] {
        client.publish(level, number);
        client.published(level, number, ReasonCode::QUOTA_EXCEEDED, "full");
    }
    assert_eq!(client.read(), ["PUBACK #1 0x97", "PUBREC #2 0x97"]);
}

#[test]
fn what_a_client_must_not_send_ends_the_connection() {
    //= [MQTT-3.1.0-2] v5
    //= [MQTT-3.1.0-2] [MQTT-4.8.0-1] v3.1.1
    let suback = millrace_mqtt::SubAck { packet_id: id(1), properties: Properties::EMPTY, reasons: &[0] };
    for version in VERSIONS {
        for packet in [
            Packet::Connect(connect(version)),
            Packet::PingResp,
            Packet::SubAck(suback.clone()),
            Packet::Auth(millrace_mqtt::Auth { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY }),
        ] {
            let mut client = Client::new(version);
            let effect = client.send(packet.clone());
            assert!(effect.starts_with("close 0x82"), "{version:?} {packet:?}: {effect}");
            let said = client.read();
            if version == Version::V5 {
                assert!(said.len() == 1 && said[0].starts_with("DISCONNECT 0x82"), "{said:?}");
            } else {
                assert_eq!(said, [""; 0]);
            }
        }
    }
}

#[test]
fn bytes_that_are_no_packet_end_an_open_connection_with_the_reason() {
    //= [MQTT-4.13.1-1] v5
    //= [MQTT-4.8.0-1] v3.1.1
    let cases: [(&[u8], u8); 4] = [
        (&[0x36, 0x03, 0, 1, b't'], 0x81),
        (&[0x30, 0x03, 0, 0, 0], 0x82),
        (&[0x30, 0x04, 0, 1, b'#', 0], 0x81),
        (&[0x60, 0x02, 0, 1], 0x81),
    ];
    for version in VERSIONS {
        for (bytes, reason) in cases {
            let error = match frame(bytes, 100) {
                Err(error) => error,
                Ok(framed) => {
                    let framed = framed.unwrap();
                    decode(framed.first, framed.body, Some(version)).unwrap_err()
                }
            };
            let mut client = Client::new(version);
            let connection = client.connection.as_mut().unwrap();
            let closing = connection.undecodable(error, None, &mut client.wire);
            let said = client.read();
            if version == Version::V5 {
                assert_eq!(closing.reason, ReasonCode(reason), "{bytes:02x?}");
                assert!(said[0].starts_with(&format!("DISCONNECT 0x{reason:02X}")), "{said:?}");
            } else {
                assert_eq!(said, [""; 0]);
            }
        }
    }
}

#[test]
fn an_acknowledgement_of_the_wrong_kind_is_a_protocol_error() {
    // QoS of the message, whether PUBREC came, what is sent; what follows.
    let cases = [
        (1, false, PubRec, "close 0x82: PUBREC for a QoS 1 message"),
        (1, false, PubComp, "close 0x82: PUBCOMP for a message that was not released"),
        (1, false, PubAck, "acknowledged"),
        (2, false, PubAck, "close 0x82: PUBACK for a QoS 2 message"),
        (2, true, PubAck, "close 0x82: PUBACK for a QoS 2 message"),
        (2, false, PubComp, "close 0x82: PUBCOMP for a message that was not released"),
        (2, true, PubComp, "acknowledged"),
    ];
    for (level, released, kind, expected) in cases {
        let mut client = Client::new(Version::V5);
        client.deliver(level, "x");
        if released {
            client.ack(PubRec, 1);
        }
        assert_eq!(client.ack(kind, 1), expected, "{level} {released} {kind:?}");
    }
}

#[test]
fn acknowledgements_of_what_is_not_under_way_do_no_harm() {
    for version in VERSIONS {
        let mut client = Client::new(version);
        for kind in [PubAck, PubComp, PubRec] {
            assert_eq!(client.ack(kind, 9), "nothing");
        }
        // PUBREC wants an answer, else the client asks again for ever.
        let pubrel = if version == Version::V5 { "PUBREL #9 0x92" } else { "PUBREL #9" };
        assert_eq!(client.read(), [pubrel]);
        client.deliver(2, "x");
        client.ack(PubRec, 1);
        client.ack(PubRec, 1);
        assert_eq!(client.read(), ["PUBLISH q2 #1 a=x", "PUBREL #1", "PUBREL #1"]);
        client.ack(PubComp, 1);
        assert_eq!(client.ack(PubComp, 1), "nothing");
    }
    let mut client = Client::new(Version::V5);
    assert_eq!(client.refuse(PubRec, 9, ReasonCode::UNSPECIFIED_ERROR), "nothing");
    assert_eq!(client.read(), [""; 0]);
}

#[test]
fn a_pubrec_that_refuses_ends_the_message_without_pubrel() {
    //= [MQTT-4.4.0-2] v5
    let mut client = Client::new(Version::V5);
    client.deliver(2, "x");
    client.read();
    assert_eq!(client.refuse(PubRec, 1, ReasonCode::NOT_AUTHORIZED), "acknowledged");
    assert_eq!(client.refuse(PubAck, 1, ReasonCode::NOT_AUTHORIZED), "nothing");
    client.deliver(1, "y");
    assert_eq!(client.refuse(PubAck, 2, ReasonCode::NOT_AUTHORIZED), "acknowledged");
    client.read();
    client.reconnect();
    assert_eq!(client.read(), [""; 0]);
}

#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    //= [MQTT-3.8.3-4] v5
    // Filter, options; what follows.
    for (filter, options, expected) in [
        ("$share/g/t", 0x04, "close 0x82"),
        ("$share/g/t", 0x00, "subscribe"),
        ("t", 0x04, "subscribe"),
        // No share name: refused per filter, not here.
        ("$share//t", 0x04, "subscribe"),
    ] {
        let mut bytes = vec![0, filter.len() as u8];
        bytes.extend_from_slice(filter.as_bytes());
        bytes.push(options);
        let filters = SubscribeFilters::from_validated(&bytes, Version::V5);
        assert_eq!(filters.clone().count(), 1);
        let mut client = Client::new(Version::V5);
        let packet = Subscribe { packet_id: id(1), properties: Properties::EMPTY, filters };
        let effect = client.send(Packet::Subscribe(packet));
        assert!(effect.starts_with(expected), "{filter} {options}: {effect}");
    }
}

#[test]
fn a_subscribe_is_answered_with_a_code_for_each_filter_as_the_version_has_them() {
    //= [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.9.3-1] [MQTT-3.9.3-2] [MQTT-3.10.4-4] [MQTT-2.3.1-7] v3.1.1
    //= [MQTT-3.8.4-2] [MQTT-3.8.4-6] [MQTT-3.9.3-1] [MQTT-3.10.4-5] [MQTT-3.11.3-1] [MQTT-2.2.1-6] v5
    use ReasonCode as R;
    let granted = [R::SUCCESS, R::GRANTED_QOS_1, R::GRANTED_QOS_2];
    let mixed = [R::TOPIC_FILTER_INVALID, R::GRANTED_QOS_2, R::NOT_AUTHORIZED, R::QUOTA_EXCEEDED];
    let cases = [
        (Version::V31, &granted[..], "[00, 01, 02]"),
        (Version::V311, &granted, "[00, 01, 02]"),
        (Version::V5, &granted, "[00, 01, 02]"),
        (Version::V31, &mixed, "[80, 02, 80, 80]"),
        (Version::V311, &mixed, "[80, 02, 80, 80]"),
        (Version::V5, &mixed, "[8f, 02, 87, 97]"),
    ];
    for (version, reasons, expected) in cases {
        let mut client = Client::new(version);
        client.connection.as_ref().unwrap().subscribed(id(300), reasons, "", &mut client.wire);
        assert_eq!(client.read(), [format!("SUBACK #300 {expected}")], "{version:?}");
        let reasons = [R::SUCCESS, R::NO_SUBSCRIPTION_EXISTED];
        client.connection.as_ref().unwrap().unsubscribed(id(301), &reasons, &mut client.wire);
        let expected = if version == Version::V5 { "[00, 11]" } else { "[]" };
        assert_eq!(client.read(), [format!("UNSUBACK #301 {expected}")], "{version:?}");
    }
}

#[test]
fn a_suback_says_why_when_the_client_wants_it_and_it_fits() {
    //= [MQTT-3.1.2-29] [MQTT-3.9.2-1] v5
    use Property::{MaximumPacketSize, RequestProblemInformation};
    let cases: [(Version, &[Property<'_>], bool); 5] = [
        (Version::V311, &[], false),
        (Version::V5, &[], true),
        (Version::V5, &[RequestProblemInformation(0)], false),
        (Version::V5, &[MaximumPacketSize(19)], false),
        (Version::V5, &[MaximumPacketSize(20)], true),
    ];
    for (version, asked, expected) in cases {
        let mut client = Client::with(version, asked, SessionSettings::default());
        let denied = [ReasonCode::NOT_AUTHORIZED];
        client.connection.as_ref().unwrap().subscribed(id(1), &denied, "why", &mut client.wire);
        let said = client.wire.bytes.windows(3).any(|bytes| bytes == b"why");
        assert_eq!(said, expected, "{version:?} {asked:?}");
    }
}

#[test]
fn the_subscriptions_of_a_bridge_get_nothing_of_its_own_and_keep_retain() {
    let options = SubscribeOptions { qos: QoS::AtLeastOnce, ..Default::default() };
    let bridged = SubscribeOptions { no_local: true, retain_as_published: true, ..options };
    for version in [Version::V31, Version::V311] {
        for is_bridge in [false, true] {
            let mut connection = Connection::new();
            let connect = Connect { is_bridge, ..connect(version) };
            let (settings, wire) = (SessionSettings::default(), &mut Wire::default());
            connection.input(Packet::Connect(connect), None, &settings, wire);
            let expected = if is_bridge { bridged } else { options };
            assert_eq!(connection.options_of("a/#", options), expected);
            let shared = SubscribeOptions { no_local: false, ..expected };
            assert_eq!(connection.options_of("$share/g/a", options), shared);
        }
    }
}

#[test]
fn a_ping_is_answered() {
    //= [MQTT-3.12.4-1] v5 v3.1.1
    for version in VERSIONS {
        let mut client = Client::new(version);
        assert_eq!(client.send(Packet::PingReq), "nothing");
        assert_eq!(client.read(), ["PINGRESP"]);
    }
}

#[test]
fn a_disconnect_may_shorten_the_session_but_not_make_one_last() {
    use Property::{ServerReference, SessionExpiryInterval};
    let settings = SessionSettings { session_expiry_max_s: 100, ..SessionSettings::default() };
    // Expiry granted, reason, property; what follows, expiry that holds. With -1 one was asked for, and none granted.
    let cases = [
        (-1, 0x00, Some(SessionExpiryInterval(30)), "disconnect", 0),
        (60, 0x00, None, "disconnect", 60),
        (60, 0x04, None, "disconnect with will", 60),
        (60, 0x00, Some(SessionExpiryInterval(0)), "disconnect", 0),
        (60, 0x00, Some(SessionExpiryInterval(30)), "disconnect", 30),
        (60, 0x04, Some(SessionExpiryInterval(90)), "disconnect with will", 90),
        (60, 0x00, Some(SessionExpiryInterval(u32::MAX)), "disconnect", 100),
        (0, 0x00, Some(SessionExpiryInterval(0)), "disconnect", 0),
        (0, 0x00, Some(SessionExpiryInterval(1)), "close 0x82", 0),
        (60, 0x00, Some(ServerReference("other")), "close 0x82", 60),
        (60, 0x80, None, "disconnect with will", 60),
    ];
    for (granted, reason, property, expected, holds) in cases {
        let mut client = Client::with(Version::V5, &[], settings);
        client.session.expiry_s = u32::try_from(granted).unwrap_or(0);
        client.connection.as_mut().unwrap().has_requested_expiry = granted != 0;
        let effect = client.disconnect(ReasonCode(reason), property.as_slice());
        assert!(effect.starts_with(expected), "{granted} {reason} {property:?}: {effect}");
        assert!(expected != "disconnect" || effect == expected, "{effect}");
        assert_eq!(client.session.expiry_s, holds, "{granted} {reason} {property:?}");
    }
    for version in [Version::V31, Version::V311] {
        assert_eq!(Client::new(version).disconnect(ReasonCode::SUCCESS, &[]), "disconnect");
    }
}

#[test]
fn only_a_plain_5_0_client_takes_bytes_as_they_are() {
    let cases: [(&[Property<'_>], bool); 4] = [
        (&[], true),
        (&[Property::ReceiveMaximum(1)], true),
        (&[Property::TopicAliasMaximum(1)], false),
        (&[Property::MaximumPacketSize(1_000_000)], false),
    ];
    for (asked, expected) in cases {
        let client = Client::with(Version::V5, asked, SessionSettings::default());
        assert_eq!(client.connection.unwrap().takes_shared_bytes(), expected, "{asked:?}");
    }
    assert!(!Connection::new().takes_shared_bytes());
}
