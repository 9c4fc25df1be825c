//! CONNACK (section 3.2 of MQTT 5.0) and what follows it.

use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, PacketType, Property, QoS, ReasonCode};

use crate::common::{Client, Server, connect, list, properties, publish_qos};

fn kept(clean_start: bool) -> Connect<'static> {
    Connect {
        clean_start,
        properties: properties(&[Property::SessionExpiryInterval(60)]),
        ..connect(V5, "ann")
    }
}

#[test]
fn session_present_says_whether_a_session_was_there() {
    //= [MQTT-3.2.2-1] [MQTT-3.2.2-2] [MQTT-3.2.2-3] [MQTT-3.1.4-4] [MQTT-3.1.4-5] v5
    let server = Server::start();
    let steps = [(false, 0), (false, 1), (true, 0), (false, 1), (true, 0), (true, 0)];
    for (step, (clean_start, session_present)) in steps.into_iter().enumerate() {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(kept(clean_start)));
        let bytes = client.recv_bytes().unwrap();
        // Type and flags; then the acknowledge flags, all bits of them, and the reason code.
        assert_eq!((bytes[0], bytes[2], bytes[3]), (0x20, session_present, 0), "step {step}");
        client.disconnect();
    }
}

#[test]
fn connack_comes_first_and_once() {
    //= [MQTT-3.2.0-1] [MQTT-3.2.0-2] v5
    let server = Server::start();
    let mut ann = Client::open(&server, kept(true));
    ann.subscribe("a", QoS::AtLeastOnce);
    ann.disconnect();
    let mut bob = Client::connect(&server, V5, "bob");
    for id in 1..=3 {
        assert_eq!(bob.publish(publish_qos(QoS::AtLeastOnce, id, "a", b"x")), ReasonCode::SUCCESS);
    }
    let mut ann = Client::raw(&server);
    // Packets right behind the CONNECT, and messages that wait: the CONNACK is still the first answer.
    ann.send(&Packet::Connect(kept(false)));
    ann.send(&Packet::PingReq);
    ann.send(&Packet::PingReq);
    let kinds: Vec<PacketType> = (0..6).map(|_| ann.recv().packet_type()).collect();
    assert_eq!(kinds[0], PacketType::ConnAck);
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    let counts = [PacketType::ConnAck, PacketType::Publish, PacketType::PingResp].map(count);
    assert_eq!(counts, [1, 3, 2], "{kinds:?}");
    ann.expect_nothing();
}

#[test]
fn no_disconnect_before_a_successful_connack() {
    //= [MQTT-3.14.0-1] v5
    let server = Server::start();
    let mut client = Client::raw(&server);
    // The reserved bit of the connect flags is set.
    client.send_bytes(b"\x10\x0E\0\x04MQTT\x05\x03\0\0\0\0\x01a");
    assert_eq!(client.recv_connack().reason, ReasonCode::MALFORMED_PACKET);
    client.expect_close();
    let mut client = Client::raw(&server);
    client.send_bytes(&[0x00, 0x00]);
    client.expect_close();
}

#[test]
fn response_information_is_not_returned_unasked() {
    //= [MQTT-3.1.2-28] v5
    let server = Server::start();
    for asked in [&[][..], &[Property::RequestResponseInformation(0)]] {
        let client = Client::open(&server, Connect { properties: properties(asked), ..connect(V5, "ann") });
        let sent = list(client.connack.as_ref().unwrap().properties);
        assert!(!sent.iter().any(|sent| matches!(sent, Property::ResponseInformation(_))), "{sent:?}");
    }
}

#[test]
fn a_refusal_leaves_out_what_would_make_it_too_large() {
    //= [MQTT-3.2.2-19] [MQTT-3.2.2-20] [MQTT-3.1.2-24] v5
    let server = Server::start();
    let refused = |packet_size_max| {
        let asked =
            [Property::MaximumPacketSize(packet_size_max), Property::AuthenticationMethod("SCRAM-SHA-256")];
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(Connect { properties: properties(&asked), ..connect(V5, "ann") }));
        let bytes = client.recv_bytes().unwrap();
        client.expect_close();
        bytes
    };
    let whole = refused(1000);
    assert!(whole.len() > 5, "a reason string: {whole:02x?}");
    for packet_size_max in [5, 6, 16, u32::try_from(whole.len()).unwrap() - 1] {
        // Neither reason string nor user property.
        assert_eq!(refused(packet_size_max), [0x20, 3, 0, 0x8C, 0], "{packet_size_max}");
    }
}

#[test]
fn a_connack_that_the_client_could_not_take_is_not_sent() {
    //= [MQTT-3.1.2-24] v5
    let server = Server::start();
    for packet_size_max in 1..=40 {
        let asked = properties(&[Property::MaximumPacketSize(packet_size_max)]);
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(Connect { properties: asked, ..connect(V5, "") }));
        if let Some(bytes) = client.recv_bytes() {
            assert!(bytes.len() <= packet_size_max as usize, "{packet_size_max}: {bytes:02x?}");
        }
    }
}
