//! Errors and DISCONNECT (sections 3.14 and 4.13 of MQTT 5.0): which reason each mistake is answered with.

use std::time::Duration;

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, Property, QoS, ReasonCode};

use crate::common::{Client, Server, ack, connect, disconnect, id, list, properties, publish, publish_qos};

/// Each of these from a connected client must be answered with a DISCONNECT of this reason and the close.
const MISTAKES: [(&str, &[u8], u8); 60] = [
    ("packet type 0", &[0x00, 0x00], 0x81),
    ("reserved flags of PINGREQ", &[0xC1, 0x00], 0x81),
    ("reserved flags of DISCONNECT", &[0xE1, 0x00], 0x81),
    ("reserved flags of AUTH", &[0xF1, 0x00], 0x81),
    ("reserved flags of PUBREL", &[0x60, 0x02, 0x00, 0x01], 0x81),
    ("reserved flags of PUBACK", &[0x42, 0x02, 0x00, 0x01], 0x81),
    ("reserved flags of SUBSCRIBE", b"\x80\x07\0\x01\0\0\x01a\0", 0x81),
    ("reserved flags of UNSUBSCRIBE", b"\xA0\x06\0\x01\0\0\x01a", 0x81),
    ("a remaining length of five bytes", &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], 0x81),
    ("a remaining length that could be shorter", &[0xC0, 0x80, 0x00], 0x81),
    ("PUBLISH with QoS 3", b"\x36\x06\0\x01a\0\x01\0", 0x81),
    ("PUBLISH with DUP and QoS 0", b"\x38\x04\0\x01a\0", 0x81),
    ("PUBLISH with a wildcard", b"\x30\x04\0\x01+\0", 0x81),
    ("PUBLISH with a wildcard in a level", b"\x30\x06\0\x03a#b\0", 0x81),
    ("PUBLISH with U+0000 in the topic", b"\x30\x05\0\x02a\0\0", 0x81),
    ("PUBLISH with a topic that is not UTF-8", b"\x30\x04\0\x01\xFF\0", 0x81),
    ("PUBLISH with a surrogate in the topic", b"\x30\x06\0\x03\xED\xA0\x80\0", 0x81),
    ("PUBLISH without topic and alias", b"\x30\x03\0\0\0", 0x82),
    ("PUBLISH with an alias of 0", b"\x30\x07\0\x01a\x03\x23\0\0", 0x94),
    ("PUBLISH with an alias over the maximum", b"\x30\x07\0\x01a\x03\x23\xFF\xFF", 0x94),
    ("PUBLISH with an alias that is not set", b"\x30\x06\0\0\x03\x23\0\x01", 0x82),
    ("PUBLISH with two aliases", b"\x30\x0A\0\x01a\x06\x23\0\x01\x23\0\x01", 0x82),
    ("PUBLISH with a subscription identifier", b"\x30\x06\0\x01a\x02\x0B\x01", 0x82),
    ("PUBLISH with a response topic with a wildcard", b"\x30\x08\0\x01a\x04\x08\0\x01#", 0x82),
    ("PUBLISH with a property of CONNECT", b"\x30\x09\0\x01a\x05\x11\0\0\0\x01", 0x81),
    ("PUBLISH with an unknown property", b"\x30\x06\0\x01a\x02\x7F\x01", 0x81),
    ("SUBSCRIBE without filter", b"\x82\x03\0\x01\0", 0x82),
    ("SUBSCRIBE with reserved option bits", b"\x82\x07\0\x01\0\0\x01a\x40", 0x81),
    ("SUBSCRIBE with an empty filter", b"\x82\x06\0\x01\0\0\0\0", 0x81),
    ("SUBSCRIBE with + in a level", b"\x82\x0B\0\x01\0\0\x05ab/+e\0", 0x81),
    ("SUBSCRIBE with # before the end", b"\x82\x09\0\x01\0\0\x03#/a\0", 0x81),
    ("SUBSCRIBE to a shared subscription of nothing", b"\x82\x0E\0\x01\0\0\x08$share/g\0", 0x82),
    ("UNSUBSCRIBE with + in a level", b"\xA2\x0A\0\x01\0\0\x05ab/+e", 0x81),
    ("SUBSCRIBE with QoS 3", b"\x82\x07\0\x01\0\0\x01a\x03", 0x82),
    ("SUBSCRIBE with retain handling 3", b"\x82\x07\0\x01\0\0\x01a\x30", 0x82),
    ("SUBSCRIBE with a subscription identifier of 0", b"\x82\x09\0\x01\x02\x0B\0\0\x01a\0", 0x82),
    ("SUBSCRIBE with a filter that is not UTF-8", b"\x82\x07\0\x01\0\0\x01\xFF\0", 0x81),
    ("UNSUBSCRIBE without filter", b"\xA2\x03\0\x01\0", 0x82),
    ("UNSUBSCRIBE with a filter that is not UTF-8", b"\xA2\x06\0\x01\0\0\x01\xFF", 0x81),
    ("PUBACK with a reason it does not have", &[0x40, 0x03, 0x00, 0x01, 0x01], 0x82),
    ("PUBREC with a reason it does not have", &[0x50, 0x03, 0x00, 0x01, 0x92], 0x82),
    ("PUBREL with a reason it does not have", &[0x62, 0x03, 0x00, 0x01, 0x80], 0x82),
    ("PUBCOMP with a reason it does not have", &[0x70, 0x03, 0x00, 0x01, 0x10], 0x82),
    ("PUBACK with packet identifier 0", &[0x40, 0x02, 0x00, 0x00], 0x81),
    ("PUBACK with properties longer than the packet", b"\x40\x08\0\x01\0\x05\x1F\0\x01a", 0x81),
    ("PUBACK with bytes behind its properties", b"\x40\x05\0\x01\0\0a", 0x81),
    ("PUBACK with two reason strings", b"\x40\x0A\0\x01\0\x06\x1F\0\0\x1F\0\0", 0x82),
    ("PUBLISH with properties longer than the packet", b"\x30\x06\0\x01a\x05\x01\x01", 0x81),
    ("PUBLISH with two expiry intervals", b"\x30\x0E\0\x01a\x0A\x02\0\0\0\x01\x02\0\0\0\x01", 0x82),
    ("PUBLISH with a surrogate in a user property", b"\x30\x0C\0\x01a\x08\x26\0\x03\xED\xA0\x80\0\0", 0x81),
    ("SUBSCRIBE with two subscription identifiers", b"\x82\x0B\0\x01\x04\x0B\x01\x0B\x01\0\x01a\0", 0x82),
    ("PINGREQ with content", &[0xC0, 0x01, 0x00], 0x81),
    ("DISCONNECT with a reason it does not have", &[0xE0, 0x01, 0x01], 0x82),
    ("DISCONNECT with a reason of the server", &[0xE0, 0x01, 0x8E], 0x82),
    ("DISCONNECT with two session expiries", b"\xE0\x0C\0\x0A\x11\0\0\0\0\x11\0\0\0\0", 0x82),
    ("DISCONNECT with a server reference", b"\xE0\x06\0\x04\x1C\0\x01a", 0x82),
    ("AUTH without a method in CONNECT", &[0xF0, 0x00], 0x82),
    ("a packet of the server", &[0xD0, 0x00], 0x82),
    ("a CONNACK", &[0x20, 0x03, 0x00, 0x00, 0x00], 0x82),
    ("a packet that is too large", &[0x30, 0xFF, 0xFF, 0xFF, 0x7F], 0x95),
];

#[test]
fn every_mistake_is_answered_with_its_reason_and_the_close() {
    //= [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT-3.14.1-1] [MQTT-3.14.2-1] [MQTT-3.14.4-2] v5
    //= [MQTT-2.1.3-1] [MQTT-3.3.1-4] [MQTT-3.3.1-2] [MQTT-3.3.2-1] [MQTT-3.3.2-2] [MQTT-3.3.2-14] v5
    //= [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.8.3-1] [MQTT-3.8.3-2] [MQTT-3.8.3-5] v5
    //= [MQTT-3.10.1-1] [MQTT-3.10.3-1] [MQTT-3.10.3-2] [MQTT-3.15.1-1] [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-1.5.5-1] v5
    //= [MQTT-4.7.0-1] [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.8.2-2] v5
    let server = Server::start();
    let mut neighbour = Client::connect(&server, V5, "neighbour");
    neighbour.subscribe("#", QoS::AtMostOnce);
    for (what, bytes, reason) in MISTAKES {
        let mut client = Client::connect(&server, V5, "ann");
        client.send_bytes(bytes);
        let told = client.recv_disconnect();
        assert_eq!(told.reason, ReasonCode(reason), "{what}");
        client.expect_close();
    }
    // Nobody else notices.
    neighbour.expect_nothing();
}

#[test]
fn after_its_disconnect_the_server_sends_nothing_and_closes() {
    //= [MQTT-3.14.4-1] [MQTT-3.14.4-2] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    client.subscribe("a", QoS::AtLeastOnce);
    // The packets behind the mistake would be answered, and somebody publishes to the subscription.
    client.send_bytes(b"\xC0\0\0\0\xC0\0\x82\x07\0\x01\0\0\x01b\0");
    assert_eq!(client.recv(), Packet::PingResp);
    assert_eq!(client.recv_disconnect().reason, ReasonCode::MALFORMED_PACKET);
    Client::connect(&server, V5, "bob").publish(publish("a", b"x"));
    client.expect_close();
}

#[test]
fn a_disconnect_of_the_server_never_has_a_session_expiry() {
    //= [MQTT-3.14.2-2] [MQTT-3.14.2-1] v5
    let server = Server::start();
    let kept = || Connect {
        properties: properties(&[Property::SessionExpiryInterval(u32::MAX)]),
        ..connect(V5, "ann")
    };
    let no_expiry = |properties| {
        let told = list(properties);
        assert!(!told.iter().any(|told| matches!(told, Property::SessionExpiryInterval(_))), "{told:?}");
    };
    let mut client = Client::open(&server, kept());
    client.send_bytes(&[0x00, 0x00]);
    no_expiry(client.expect_disconnect(ReasonCode::MALFORMED_PACKET));
    let mut client = Client::open(&server, kept());
    let mut other = Client::open(&server, kept());
    no_expiry(client.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER));
    // The shutdown is a disconnect, too.
    server.edge.shutdown(Duration::from_secs(5));
    no_expiry(other.expect_disconnect(ReasonCode::SERVER_SHUTTING_DOWN));
}

#[test]
fn a_session_expiry_that_was_0_cannot_be_raised_at_the_end() {
    //= [MQTT-4.13.1-1] [MQTT-4.13.2-1] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    let expiry = properties(&[Property::SessionExpiryInterval(1)]);
    client.send(&Packet::Disconnect(millrace_mqtt::Disconnect {
        properties: expiry,
        ..disconnect(ReasonCode::SUCCESS)
    }));
    client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
}

#[test]
fn every_ping_is_answered() {
    //= [MQTT-3.12.4-1] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    client.send_bytes(&[0xC0, 0, 0xC0, 0, 0xC0, 0]);
    for _ in 0..3 {
        assert_eq!(client.recv_bytes().unwrap(), [0xD0, 0]);
    }
}

#[test]
fn an_acknowledgement_of_the_wrong_kind_is_a_protocol_error() {
    //= [MQTT-4.13.1-1] [MQTT-4.13.2-1] v5
    let server = Server::start();
    for wrong in [Packet::PubRec(ack(id(1))), Packet::PubComp(ack(id(1)))] {
        let mut client = Client::connect(&server, V5, "ann");
        client.subscribe("a", QoS::AtLeastOnce);
        Client::connect(&server, V5, "bob").publish(publish_qos(QoS::AtLeastOnce, 1, "a", b"x"));
        assert_eq!(client.recv_publish().packet_id, Some(id(1)));
        client.send(&wrong);
        client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
    }
}
