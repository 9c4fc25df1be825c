//! Receive Maximum and Maximum Packet Size (sections 3.1.2.11, 3.3.4 and 4.9 of MQTT 5.0).

use millrace_mqtt::Version::V5;
use millrace_mqtt::{
    Ack, Connect, Packet, PacketType, Properties, Property, Publish, QoS, ReasonCode, SubscribeOptions,
};

use crate::common::{Client, Server, ack, connect, id, list, properties, publish, publish_qos};

/// ann with these properties of CONNECT.
fn ann(asked: &[Property<'_>]) -> Connect<'static> {
    Connect { properties: properties(asked), ..connect(V5, "ann") }
}

/// The packets that come until PINGRESP.
fn drain(client: &mut Client) -> Vec<Packet<'static>> {
    client.send(&Packet::PingReq);
    std::iter::from_fn(|| Some(client.recv()).filter(|packet| *packet != Packet::PingResp)).collect()
}

/// The payloads of these packets, which must all be messages.
fn payloads(packets: &[Packet<'static>]) -> Vec<u8> {
    let payload = |packet: &Packet<'static>| match packet {
        Packet::Publish(publish) => publish.payload[0],
        other => panic!("{other:?}"),
    };
    packets.iter().map(payload).collect()
}

#[test]
fn no_more_than_receive_maximum_messages_are_unacknowledged() {
    //= [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    let mut client = Client::open(&server, ann(&[Property::ReceiveMaximum(2)]));
    client.subscribe("a", QoS::ExactlyOnce);
    for payload in [b"1", b"2", b"3", b"4", b"5", b"6"] {
        let qos = if payload[0] % 2 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        bob.publish(publish_qos(qos, 1, "a", payload));
    }
    let first = drain(&mut client);
    assert_eq!(payloads(&first), b"12");
    let ids: Vec<_> = first
        .iter()
        .filter_map(|packet| match packet {
            Packet::Publish(publish) => publish.packet_id,
            _ => None,
        })
        .collect();
    // PUBACK makes room for one.
    client.send(&Packet::PubAck(ack(ids[0])));
    assert_eq!(payloads(&drain(&mut client)), b"3");
    // PUBREC does not, PUBCOMP does.
    client.send(&Packet::PubRec(ack(ids[1])));
    assert_eq!(client.recv(), Packet::PubRel(ack(ids[1])));
    client.expect_nothing();
    client.send(&Packet::PubComp(ack(ids[1])));
    let Packet::Publish(fourth) = client.recv() else { panic!("no message") };
    assert_eq!(fourth.payload, b"4");
    client.expect_nothing();
    // So does a PUBREC that refuses.
    let reason = ReasonCode::QUOTA_EXCEEDED;
    let packet_id = fourth.packet_id.unwrap();
    client.send(&Packet::PubRec(Ack { packet_id, reason, properties: Properties::EMPTY }));
    assert_eq!(payloads(&drain(&mut client)), b"5");
}

#[test]
fn receive_maximum_begins_anew_with_each_connection() {
    //= [MQTT-4.9.0-1] [MQTT-3.3.4-9] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    let with = |clean_start, maximum| Connect {
        clean_start,
        ..ann(&[Property::SessionExpiryInterval(60), Property::ReceiveMaximum(maximum)])
    };
    let mut client = Client::open(&server, with(true, 4));
    client.subscribe("a", QoS::AtLeastOnce);
    for payload in [b"1", b"2", b"3", b"4", b"5", b"6"] {
        bob.publish(publish_qos(QoS::AtLeastOnce, 1, "a", payload));
    }
    assert_eq!(payloads(&drain(&mut client)), b"1234");
    for (maximum, expected) in [(2, &b"12"[..]), (1, b"1"), (5, b"12345")] {
        client.cut();
        client = Client::open(&server, with(false, maximum));
        assert_eq!(payloads(&drain(&mut client)), expected, "{maximum}");
    }
}

#[test]
fn everything_else_is_answered_while_the_quota_is_used_up() {
    //= [MQTT-4.9.0-3] [MQTT-3.3.4-10] [MQTT-3.12.4-1] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    let mut client = Client::open(&server, ann(&[Property::ReceiveMaximum(1)]));
    client.subscribe("a", QoS::ExactlyOnce);
    bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a", b"1"));
    bob.publish(publish_qos(QoS::ExactlyOnce, 1, "a", b"2"));
    let first = client.recv_publish();
    client.ping();
    client.subscribe("b", QoS::AtMostOnce);
    assert_eq!(client.unsubscribe(&["b"]).reasons, [0]);
    assert!(!client.publish(publish_qos(QoS::AtLeastOnce, 8, "c", b"x")).is_error());
    assert!(!client.publish(publish_qos(QoS::ExactlyOnce, 9, "c", b"x")).is_error());
    client.send(&Packet::PubRec(ack(first.packet_id.unwrap())));
    client.recv_ack(PacketType::PubRel, first.packet_id.unwrap());
    // QoS 0 needs no quota.
    bob.publish(publish("a", b"0"));
    assert_eq!(client.recv_publish().payload, b"0");
    client.send_bytes(&[0x00, 0x00]);
    client.expect_disconnect(ReasonCode::MALFORMED_PACKET);
}

#[test]
fn a_client_that_exceeds_the_servers_receive_maximum_is_disconnected() {
    //= [MQTT-4.13.1-1] [MQTT-4.13.2-1] v5
    let server = Server::with(|config| config.limits.receive_maximum = 2);
    let mut client = Client::connect(&server, V5, "ann");
    assert!(list(client.connack.as_ref().unwrap().properties).contains(&Property::ReceiveMaximum(2)));
    for number in [1, 2] {
        client.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, number, "a", b"x")));
        client.recv_ack(PacketType::PubRec, id(number));
    }
    client.send(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 3, "a", b"x")));
    client.expect_disconnect(ReasonCode::RECEIVE_MAXIMUM_EXCEEDED);
}

#[test]
fn a_message_that_is_too_large_for_a_client_is_left_out_for_it_alone() {
    //= [MQTT-3.1.2-24] [MQTT-3.1.2-25] v5
    let server = Server::start();
    let mut bob = Client::connect(&server, V5, "bob");
    let mut large = Client::connect(&server, V5, "large");
    // As completed: neither is it sent again nor does it take from the quota.
    let mut small = Client::open(
        &server,
        Connect {
            properties: properties(&[
                Property::MaximumPacketSize(100),
                Property::ReceiveMaximum(1),
                Property::SessionExpiryInterval(60),
            ]),
            ..connect(V5, "small")
        },
    );
    for client in [&mut large, &mut small] {
        client.subscribe("a", QoS::ExactlyOnce);
    }
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let head = if qos == QoS::AtMostOnce { 6 } else { 8 };
        for (size, fits) in [(100, true), (101, false), (5000, false)] {
            let payload = vec![b'x'; if size < 130 { size - head } else { size }];
            let packet_id = (qos != QoS::AtMostOnce).then(|| id(1));
            let reason = bob.publish(Publish { qos, packet_id, ..publish("a", &payload) });
            assert_eq!(reason, ReasonCode::SUCCESS);
            assert_eq!(large.recv_publish().payload.len(), payload.len());
            if fits {
                let bytes = small.recv_bytes().unwrap();
                assert_eq!(bytes.len(), size, "{qos:?}");
                match qos {
                    QoS::AtMostOnce => {}
                    QoS::AtLeastOnce => {
                        small.send_bytes(&[0x40, 2, bytes[5], bytes[6]]);
                    }
                    QoS::ExactlyOnce => {
                        small.send_bytes(&[0x50, 2, bytes[5], bytes[6]]);
                        assert_eq!(small.recv().packet_type(), PacketType::PubRel);
                        small.send_bytes(&[0x70, 2, bytes[5], bytes[6]]);
                    }
                }
            }
            small.expect_nothing();
        }
    }
    // A stored session may look at a QoS 2 message late. Once the next one has come, it has left the large one out.
    bob.publish(Publish { qos: QoS::ExactlyOnce, packet_id: Some(id(1)), ..publish("a", b"end") });
    let end = small.recv_bytes().unwrap();
    small.send_bytes(&[0x50, 2, end[5], end[6]]);
    assert_eq!(small.recv().packet_type(), PacketType::PubRel);
    small.send_bytes(&[0x70, 2, end[5], end[6]]);
    small.expect_nothing();
    small.cut();
    let resumed = Connect {
        clean_start: false,
        properties: properties(&[Property::SessionExpiryInterval(60)]),
        ..connect(V5, "small")
    };
    let mut small = Client::open(&server, resumed);
    assert!(small.connack.as_ref().unwrap().session_present);
    small.expect_nothing();
}

/// Makes the server give reasons: an answer to each kind of packet, then a DISCONNECT.
fn provoke(client: &mut Client) -> Vec<Vec<u8>> {
    let refused = |qos| Packet::Publish(publish_qos(qos, 1, "$SYS/x", b"x"));
    client.send(&refused(QoS::AtLeastOnce));
    client.send(&refused(QoS::ExactlyOnce));
    client.send(&Packet::PubRec(ack(id(7))));
    client.send(&Packet::PubRel(ack(id(7))));
    // SUBSCRIBE to a filter with more levels than the server takes, and UNSUBSCRIBE from "x".
    let filter = "/".repeat(128);
    client.send_bytes(&[b"\x82\x86\x01\0\x01\0\0\x80", filter.as_bytes(), b"\0"].concat());
    client.send_bytes(b"\xA2\x06\0\x01\0\0\x01x");
    client.send_bytes(&[0x00, 0x00]);
    let packets: Vec<_> = std::iter::from_fn(|| client.recv_bytes()).collect();
    let types: Vec<u8> = packets.iter().map(|packet| packet[0] >> 4).collect();
    assert_eq!(types, [4, 5, 6, 7, 9, 11, 14]);
    packets
}

/// The same without reason strings and user properties.
const BARE: [&[u8]; 7] = [
    &[0x40, 3, 0, 1, 0x87],
    &[0x50, 3, 0, 1, 0x87],
    &[0x62, 3, 0, 7, 0x92],
    &[0x70, 3, 0, 7, 0x92],
    &[0x90, 4, 0, 1, 0, 0x8F],
    &[0xB0, 4, 0, 1, 0, 0x11],
    &[0xE0, 2, 0x81, 0],
];

#[test]
fn reasons_and_user_properties_are_left_out_where_they_would_not_fit() {
    //= [MQTT-3.4.2-2] [MQTT-3.4.2-3] [MQTT-3.5.2-2] [MQTT-3.5.2-3] v5
    //= [MQTT-3.6.2-2] [MQTT-3.6.2-3] [MQTT-3.7.2-2] [MQTT-3.7.2-3] v5
    //= [MQTT-3.9.2-1] [MQTT-3.9.2-2] [MQTT-3.11.2-1] [MQTT-3.11.2-2] v5
    //= [MQTT-3.14.2-3] [MQTT-3.14.2-4] [MQTT-3.1.2-24] v5
    let server = Server::start();
    let told = provoke(&mut Client::open(&server, ann(&[])));
    let longest = told.iter().map(Vec::len).max().unwrap();
    assert!(longest > 20, "some reason string is sent where there is room: {told:02x?}");
    for packet_size_max in 20..=longest {
        let maximum = Property::MaximumPacketSize(u32::try_from(packet_size_max).unwrap());
        let packets = provoke(&mut Client::open(&server, ann(&[maximum])));
        for ((packet, told), bare) in packets.iter().zip(&told).zip(BARE) {
            assert!(packet.len() <= packet_size_max, "{packet_size_max}: {packet:02x?}");
            // Whole or not at all.
            assert!(packet == told || packet == bare, "{packet_size_max}: {packet:02x?}");
        }
    }
}

#[test]
fn reasons_and_user_properties_are_left_out_when_they_are_not_wanted() {
    //= [MQTT-3.1.2-29] v5
    let server = Server::start();
    let mut client = Client::open(&server, ann(&[Property::RequestProblemInformation(0)]));
    let packets = provoke(&mut client);
    // Only DISCONNECT may have some all the same.
    assert_eq!(packets[..6], BARE[..6]);
}

#[test]
fn an_answer_that_the_client_could_not_take_ends_the_connection() {
    //= [MQTT-3.1.2-24] v5
    let server = Server::start();
    let filters: Vec<String> = (0..20).map(|number| format!("{number}")).collect();
    for subscribe in [true, false] {
        let mut client = Client::open(&server, ann(&[Property::MaximumPacketSize(24)]));
        let filters = filters.iter().map(String::as_str);
        let mut bytes = Vec::new();
        if subscribe {
            let filters = filters.map(|filter| (filter, SubscribeOptions::default()));
            millrace_mqtt::encode::subscribe(id(1), Properties::EMPTY, filters, V5, &mut bytes);
        } else {
            millrace_mqtt::encode::unsubscribe(id(1), Properties::EMPTY, filters, V5, &mut bytes);
        }
        client.send_bytes(&bytes);
        client.expect_disconnect(ReasonCode::PACKET_TOO_LARGE);
        // One less fits: 2 + 2 + 1 + 19.
        let mut client = Client::open(&server, ann(&[Property::MaximumPacketSize(25)]));
        client.send_bytes(&bytes);
        assert_eq!(client.recv_bytes().unwrap().len(), 25);
    }
}
