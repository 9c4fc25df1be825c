//! Packets that no client may send, and unusual ones that MQTT 3.1.1 allows (sections 1.5.3, 2.2, 2.3, 4.8 and 7).

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Publish, QoS};

use crate::common::{Client, Server, publish};

/// Sends each case on a connection of its own: the server closes without an answer, and other clients notice nothing.
fn closes(cases: &[(&str, &[u8])]) {
    let server = Server::start();
    let mut watcher = Client::connect(&server, V311, "watcher");
    watcher.subscribe("#", QoS::AtMostOnce);
    for (what, bytes) in cases {
        let mut client = Client::connect(&server, V311, "ann");
        client.send_bytes(bytes);
        assert_eq!(client.recv_bytes(), None, "{what}");
    }
    watcher.expect_nothing();
}

#[test]
fn flags_that_are_reserved_end_the_connection() {
    //= [MQTT-2.2.2-1] [MQTT-2.2.2-2] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] v3.1.1
    //= [MQTT-4.8.0-1] v3.1.1
    let whole: [(u8, &[u8]); 9] = [
        (0x40, &[0, 1]),
        (0x50, &[0, 1]),
        (0x62, &[0, 1]),
        (0x70, &[0, 1]),
        (0x82, b"\0\x01\0\x01t\0"),
        (0xA2, b"\0\x01\0\x01t"),
        (0xC0, &[]),
        (0xE0, &[]),
        (0x10, b"\0\x04MQTT\x04\x02\0\0\0\x03ann"),
    ];
    let mut cases = Vec::new();
    for (first, body) in whole {
        for flags in (0..16).filter(|flags| first & 0x0F != *flags) {
            let mut bytes = vec![first & 0xF0 | flags, u8::try_from(body.len()).unwrap()];
            bytes.extend_from_slice(body);
            cases.push((format!("{:02X}", bytes[0]), bytes));
        }
    }
    let cases: Vec<(&str, &[u8])> = cases.iter().map(|(what, bytes)| (what.as_str(), &bytes[..])).collect();
    closes(&cases);
}

#[test]
fn packets_that_only_a_server_sends_or_that_do_not_exist_end_the_connection() {
    //= [MQTT-4.8.0-1] v3.1.1
    closes(&[
        ("type 0", &[0x00, 0]),
        ("type 15", &[0xF0, 0]),
        ("CONNACK", &[0x20, 2, 0, 0]),
        ("SUBACK", &[0x90, 3, 0, 1, 0]),
        ("UNSUBACK", &[0xB0, 2, 0, 1]),
        ("PINGRESP", &[0xD0, 0]),
        ("a remaining length of five bytes", &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]),
        ("a PINGREQ with content", &[0xC0, 1, 0]),
        ("a PUBACK that is cut", &[0x40, 1, 0]),
        ("a PUBACK with more than a packet id", &[0x40, 3, 0, 1, 0]),
    ]);
}

#[test]
fn a_packet_without_the_packet_id_it_needs_ends_the_connection() {
    //= [MQTT-2.3.1-1] [MQTT-4.8.0-1] v3.1.1
    closes(&[
        ("PUBLISH QoS 1 with 0", b"\x32\x05\0\x01t\0\0"),
        ("PUBLISH QoS 2 with 0", b"\x34\x05\0\x01t\0\0"),
        ("PUBLISH QoS 1 without", b"\x32\x03\0\x01t"),
        ("SUBSCRIBE with 0", b"\x82\x06\0\0\0\x01t\0"),
        ("UNSUBSCRIBE with 0", b"\xA2\x05\0\0\0\x01t"),
        ("PUBACK with 0", b"\x40\x02\0\0"),
        ("PUBREL with 0", b"\x62\x02\0\0"),
    ]);
}

#[test]
fn a_publish_that_breaks_the_rules_ends_the_connection() {
    //= [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT-3.3.2-1] [MQTT-3.3.2-2] [MQTT-4.7.1-1] [MQTT-4.7.3-1] v3.1.1
    closes(&[
        ("DUP with QoS 0", b"\x38\x04\0\x01tx"),
        ("QoS 3", b"\x36\x06\0\x01t\0\x01x"),
        ("QoS 3 with DUP and RETAIN", b"\x3F\x06\0\x01t\0\x01x"),
        ("no topic", b"\x30\x00"),
        ("half a topic", b"\x30\x03\0\x05t"),
        ("an empty topic", b"\x30\x03\0\0x"),
        ("a topic with +", b"\x30\x06\0\x03a/+x"),
        ("a topic with #", b"\x30\x06\0\x03a/#x"),
        ("a topic that is not UTF-8", b"\x30\x04\0\x01\xFFx"),
    ]);
}

#[test]
fn text_that_is_not_utf_8_or_has_u_0000_ends_the_connection() {
    //= [MQTT-1.5.3-1] [MQTT-1.5.3-2] [MQTT-4.7.3-2] [MQTT-3.8.3-1] [MQTT-3.10.3-1] v3.1.1
    let bad: [(&str, &[u8]); 6] = [
        ("a lone continuation", b"\x80"),
        ("a surrogate", b"\xED\xA0\x80"),
        ("an overlong form", b"\xC0\xAF"),
        ("over U+10FFFF", b"\xF4\x90\x80\x80"),
        ("cut in a character", b"\xE2\x82"),
        ("U+0000", b"a\0b"),
    ];
    let mut cases = Vec::new();
    for (what, text) in bad {
        let length = u8::try_from(text.len()).unwrap();
        for (kind, first, id, more) in [
            ("PUBLISH", 0x30, &b""[..], &b""[..]),
            ("SUBSCRIBE", 0x82, b"\0\x01", b"\0"),
            ("UNSUBSCRIBE", 0xA2, b"\0\x01", b""),
        ] {
            let body = [id, &[0, length], text, more].concat();
            let bytes = [&[first, u8::try_from(body.len()).unwrap()], &body[..]].concat();
            cases.push((format!("{kind}: {what}"), bytes));
        }
    }
    let cases: Vec<(&str, &[u8])> = cases.iter().map(|(what, bytes)| (what.as_str(), &bytes[..])).collect();
    closes(&cases);
}

#[test]
fn a_subscribe_or_unsubscribe_that_breaks_the_rules_ends_the_connection() {
    //= [MQTT-3.8.3-3] [MQTT-3.8.3-4] [MQTT-3.10.3-2] [MQTT-4.8.0-1] v3.1.1
    closes(&[
        ("SUBSCRIBE without a filter", b"\x82\x02\0\x01"),
        ("SUBSCRIBE without QoS", b"\x82\x05\0\x01\0\x01t"),
        ("QoS 3", b"\x82\x06\0\x01\0\x01t\x03"),
        ("reserved bits", b"\x82\x06\0\x01\0\x01t\x04"),
        ("the highest reserved bit", b"\x82\x06\0\x01\0\x01t\x81"),
        ("a bad one behind a good one", b"\x82\x0A\0\x01\0\x01t\x00\0\x01u\x08"),
        ("UNSUBSCRIBE without a filter", b"\xA2\x02\0\x01"),
        ("half a filter", b"\xA2\x06\0\x01\0\x05tt"),
    ]);
}

#[test]
fn a_packet_that_the_server_has_no_room_for_ends_its_connection() {
    //= [MQTT-4.8.0-2] v3.1.1
    let server = Server::with(|config| config.limits.packet_size_max = 100);
    let mut watcher = Client::connect(&server, V311, "watcher");
    watcher.subscribe("t", QoS::AtMostOnce);
    let mut client = Client::connect(&server, V311, "ann");
    client.publish(publish("t", &[b'x'; 95]));
    assert_eq!(watcher.recv_publish().payload.len(), 95);
    // The fixed header alone shows the violation, so the server does not wait for the rest.
    client.send_bytes(&[0x30, 99]);
    client.expect_close();
    watcher.expect_nothing();
}

#[test]
fn a_packet_may_come_in_any_pieces_and_many_packets_in_one() {
    //= [MQTT-7.1.1-1] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtMostOnce);
    for byte in b"\x30\x09\0\x01tpiece" {
        ann.send_bytes(&[*byte]);
        bob.expect_nothing();
    }
    ann.send_bytes(b"s\x30\x06\0\x01tone\xC0\0\x30\x06\0\x01ttwo\xC0");
    ann.send_bytes(b"\0");
    for payload in [&b"pieces"[..], b"one", b"two"] {
        assert_eq!(bob.recv_publish().payload, payload);
    }
    assert_eq!(ann.recv_bytes().unwrap(), [0xD0, 0]);
    assert_eq!(ann.recv_bytes().unwrap(), [0xD0, 0]);
}

#[test]
fn a_remaining_length_may_take_more_bytes_than_it_needs() {
    let server = Server::start();
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtMostOnce);
    let mut ann = Client::raw(&server);
    ann.version = V311;
    ann.send_bytes(b"\x10\x8F\0\0\x04MQTT\x04\x02\0\0\0\x03ann");
    assert_eq!(ann.recv_bytes().unwrap(), b"\x20\x02\0\0");
    ann.send_bytes(b"\x32\x86\x80\0\0\x01u\0\x02x");
    assert_eq!(ann.recv_bytes().unwrap(), b"\x40\x02\0\x02");
    // Bob gets the short form, whether the packet comes alone or among others.
    ann.send_bytes(b"\x30\x84\0\0\x01t1\x30\x04\0\x01t2\x30\x84\x80\x80\0\0\x01t3\xC0\x80\0");
    assert_eq!(ann.recv_bytes().unwrap(), [0xD0, 0]);
    for packet in [b"\x30\x04\0\x01t1", b"\x30\x04\0\x01t2", b"\x30\x04\0\x01t3"] {
        assert_eq!(bob.recv_bytes().unwrap(), packet);
    }
}

#[test]
fn large_messages_arrive_whole_and_in_order() {
    //= [MQTT-7.1.1-1] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "ann");
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtMostOnce);
    for size in [0, 1, 127, 128, 16_383, 16_384, 200_000, 1_000_000] {
        let payload: Vec<u8> = (0..size).map(|at: u32| (at % 251) as u8).collect();
        ann.send(&millrace_mqtt::Packet::Publish(publish("t", &payload)));
        assert!(bob.recv_publish().payload == payload, "{size}");
    }
}

#[test]
fn a_client_with_nothing_but_the_standard_can_do_everything() {
    //= [MQTT-7.0.0-2] v3.1.1
    let server = Server::start();
    let mut ann = Client::raw(&server);
    ann.version = V311;
    for (sent, answer) in [
        (&b"\x10\x0F\0\x04MQTT\x04\x02\0\0\0\x03ann"[..], &b"\x20\x02\0\0"[..]),
        (b"\x82\x06\0\x01\0\x01t\x02", b"\x90\x03\0\x01\x02"),
        (b"\x32\x06\0\x01u\0\x02x", b"\x40\x02\0\x02"),
        (b"\x34\x06\0\x01u\0\x03x", b"\x50\x02\0\x03"),
        (b"\x62\x02\0\x03", b"\x70\x02\0\x03"),
        (b"\x30\x04\0\x01tx", b"\x30\x04\0\x01tx"),
        (b"\xA2\x05\0\x04\0\x01t", b"\xB0\x02\0\x04"),
        (b"\xC0\0", b"\xD0\0"),
    ] {
        ann.send_bytes(sent);
        assert_eq!(ann.recv_bytes().unwrap(), answer);
    }
    ann.send_bytes(b"\xE0\0");
    ann.expect_close();
}

#[test]
fn a_client_that_breaks_the_rules_harms_nobody_else() {
    //= [MQTT-4.8.0-1] v3.1.1
    let server = Server::start();
    let mut bob = Client::connect(&server, V311, "bob");
    bob.subscribe("t", QoS::AtMostOnce);
    // Good packets before a bad one in the same bytes are carried out, those behind it are not.
    let mut ann = Client::connect(&server, V311, "ann");
    ann.send_bytes(b"\x30\x09\0\x01tbefore\xF0\x00\x30\x08\0\x01tafter");
    ann.expect_close();
    assert_eq!(bob.recv_publish(), Publish { payload: b"before", ..publish("t", b"") });
    bob.expect_nothing();
}
