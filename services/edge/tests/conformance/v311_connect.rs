//! CONNECT and CONNACK (sections 3.1 and 3.2 of MQTT 3.1.1).

use std::time::Duration;

use millrace_mqtt::Version::V311;
use millrace_mqtt::{Connect, Packet, QoS, ReasonCode};

use crate::clock::Stopwatch;
use crate::common::{Client, Server, connect, publish, will};

/// The bytes of a CONNECT of 3.1.1 with these flags and this payload.
fn connect_bytes(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes =
        vec![0x10, u8::try_from(10 + payload.len()).unwrap(), 0, 4, b'M', b'Q', b'T', b'T', 4, flags, 0, 0];
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn a_valid_connect_is_answered_first_of_all_with_return_code_0() {
    //= [MQTT-3.1.4-4] [MQTT-3.2.0-1] [MQTT-3.2.2-1] v3.1.1
    let server = Server::start();
    for flags in [0x00, 0x02] {
        let mut client = Client::raw(&server);
        client.version = V311;
        // Packets behind the CONNECT are answered after it.
        let mut bytes = connect_bytes(flags, b"\0\x03ann");
        bytes.extend_from_slice(&[0xC0, 0]);
        client.send_bytes(&bytes);
        assert_eq!(client.recv_bytes().unwrap(), [0x20, 2, 0, 0]);
        assert_eq!(client.recv(), Packet::PingResp);
        client.disconnect();
        Client::connect(&server, V311, "ann").disconnect();
    }
}

#[test]
fn the_first_packet_must_be_connect() {
    //= [MQTT-3.1.0-1] v3.1.1
    let server = Server::start();
    for bytes in [&b"\xC0\0"[..], b"\x30\x04\0\x01tx", b"\x82\x06\0\x01\0\x01t\0", b"\xE0\0", b"\x20\x02\0\0"]
    {
        let mut client = Client::raw(&server);
        client.send_bytes(bytes);
        client.expect_close();
    }
}

#[test]
fn a_second_connect_ends_the_connection() {
    //= [MQTT-3.1.0-2] [MQTT-4.8.0-1] v3.1.1
    let server = Server::start();
    let mut client = Client::connect(&server, V311, "ann");
    client.send(&Packet::Connect(connect(V311, "ann")));
    client.expect_close();
}

#[test]
fn a_connect_of_another_protocol_is_not_answered() {
    //= [MQTT-3.1.2-1] v3.1.1
    let server = Server::start();
    for bytes in [
        &b"\x10\x0F\0\x04MQTX\x04\x02\0\0\0\x03ann"[..],
        b"\x10\x0F\0\x04mqtt\x04\x02\0\0\0\x03ann",
        b"\x10\x0E\0\x03MQT\x04\x02\0\0\0\x03ann",
        b"\x10\x10\0\x05MQTTX\x04\x02\0\0\0\x03ann",
    ] {
        let mut client = Client::raw(&server);
        client.send_bytes(bytes);
        client.expect_close();
    }
}

#[test]
fn a_protocol_level_that_is_not_supported_is_answered_with_return_code_1() {
    //= [MQTT-3.1.2-2] v3.1.1
    let server = Server::start();
    for level in [0, 1, 2, 3] {
        let mut client = Client::raw(&server);
        let mut bytes = connect_bytes(0x02, b"\0\x03ann");
        bytes[8] = level;
        client.send_bytes(&bytes);
        assert_eq!(client.recv_bytes().unwrap(), [0x20, 2, 0, 1]);
        client.expect_close();
    }
}

#[test]
fn a_connect_that_is_not_well_formed_is_closed_without_an_answer() {
    //= [MQTT-3.1.4-1] [MQTT-3.2.2-6] [MQTT-4.8.0-1] v3.1.1
    //= [MQTT-3.1.2-3] [MQTT-3.1.2-9] [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.2-14] [MQTT-3.1.2-15] v3.1.1
    //= [MQTT-3.1.2-18] [MQTT-3.1.2-19] [MQTT-3.1.2-20] [MQTT-3.1.2-21] [MQTT-3.1.2-22] v3.1.1
    //= [MQTT-3.1.3-1] [MQTT-3.1.3-3] [MQTT-3.1.3-4] [MQTT-3.1.3-10] [MQTT-3.1.3-11] v3.1.1
    let server = Server::start();
    let cases: [(&str, u8, &[u8]); 19] = [
        ("the reserved flag is set", 0x03, b"\0\x01a"),
        ("no client identifier", 0x02, b""),
        ("a client identifier that is cut", 0x02, b"\0\x03a"),
        ("a client identifier that is not UTF-8", 0x02, b"\0\x01\xFF"),
        ("will QoS without will", 0x0A, b"\0\x01a"),
        ("will retain without will", 0x22, b"\0\x01a"),
        ("will QoS 3", 0x1E, b"\0\x01a\0\x01w\0\x01x"),
        ("no will topic", 0x06, b"\0\x01a"),
        ("no will message", 0x06, b"\0\x01a\0\x01w"),
        ("will fields without will flag", 0x02, b"\0\x01a\0\x01w\0\x01x"),
        ("a will topic that is not UTF-8", 0x06, b"\0\x01a\0\x01\xC0\0\x01x"),
        ("a will topic with a wildcard", 0x06, b"\0\x01a\0\x01#\0\x01x"),
        ("no user name", 0x82, b"\0\x01a"),
        ("a user name without its flag", 0x02, b"\0\x01a\0\x01u"),
        ("a user name that is not UTF-8", 0x82, b"\0\x01a\0\x01\xFE"),
        ("no password", 0xC2, b"\0\x01a\0\x01u"),
        ("a password without its flag", 0x82, b"\0\x01a\0\x01u\0\x01p"),
        ("a password flag without a user name flag", 0x42, b"\0\x01a\0\x01p"),
        ("more than the fields", 0xC2, b"\0\x01a\0\x01u\0\x01pp"),
    ];
    for (what, flags, payload) in cases {
        let mut client = Client::raw(&server);
        client.send_bytes(&connect_bytes(flags, payload));
        assert_eq!(client.recv_bytes(), None, "{what}");
    }
}

#[test]
fn all_fields_of_a_connect_in_their_order_are_accepted() {
    //= [MQTT-3.1.3-1] [MQTT-3.1.2-9] [MQTT-3.1.2-19] [MQTT-3.1.2-21] v3.1.1
    let server = Server::start();
    let full = Connect {
        will: Some(will("will/ann", b"gone")),
        user_name: Some("ann"),
        password: Some(b"\0\xFF"),
        ..connect(V311, "ann")
    };
    for connect in [full.clone(), Connect { password: None, ..full.clone() }, Connect { will: None, ..full }]
    {
        Client::open(&server, connect).disconnect();
    }
}

#[test]
fn client_identifiers_of_1_to_23_letters_and_digits_are_allowed() {
    //= [MQTT-3.1.3-5] v3.1.1
    let server = Server::start();
    let all = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut open = Vec::new();
    for length in 1..=23 {
        for start in [0, 62 - length] {
            open.push(Client::connect(&server, V311, &all[start..start + length]));
        }
    }
    for client in &mut open[4..] {
        client.ping();
    }
}

#[test]
fn an_empty_client_identifier_with_a_clean_session_stands_for_a_unique_one() {
    //= [MQTT-3.1.3-6] v3.1.1
    let server = Server::start();
    let mut ann = Client::connect(&server, V311, "");
    ann.subscribe("t", QoS::AtMostOnce);
    // Another one: it neither takes over nor shares anything.
    let mut bob = Client::connect(&server, V311, "");
    bob.publish(publish("t", b"x"));
    assert_eq!(ann.recv_publish().payload, b"x");
    bob.expect_nothing();
}

#[test]
fn a_client_identifier_that_is_not_taken_is_refused_with_return_code_2() {
    //= [MQTT-3.1.3-8] [MQTT-3.1.3-9] [MQTT-3.2.2-5] [MQTT-3.2.2-4] v3.1.1
    let server = Server::with(|config| config.limits.client_id_bytes_max = 30);
    let too_long = "x".repeat(31);
    for client_id in ["", &too_long] {
        let mut client = Client::raw(&server);
        client.send(&Packet::Connect(Connect { clean_start: false, ..connect(V311, client_id) }));
        assert_eq!(client.recv_bytes().unwrap(), [0x20, 2, 0, 2]);
        client.expect_close();
    }
}

#[test]
fn nothing_that_follows_a_refused_connect_is_done() {
    //= [MQTT-3.1.4-5] [MQTT-3.2.2-5] v3.1.1
    let server = Server::start();
    let mut watcher = Client::connect(&server, V311, "watcher");
    watcher.subscribe("#", QoS::AtMostOnce);
    let mut client = Client::raw(&server);
    client.version = V311;
    let mut bytes = connect_bytes(0x00, b"\0\0");
    bytes.extend_from_slice(b"\x31\x04\0\x01tx\xC0\0");
    client.send_bytes(&bytes);
    assert_eq!(client.recv_connack().reason, ReasonCode(2));
    client.expect_close();
    watcher.expect_nothing();
}

#[test]
fn missing_credentials_are_return_code_5_and_wrong_ones_4() {
    //= [MQTT-3.2.2-5] [MQTT-3.2.2-4] [MQTT-3.1.4-5] v3.1.1
    let server = Server::with(|config| config.authentication.allow_anonymous = false);
    let missing = Connect { clean_start: false, ..connect(V311, "ann") };
    let wrong = Connect { user_name: Some("ann"), password: Some(b"guess"), ..missing.clone() };
    for (request, code) in [(missing, 5), (wrong, 4)] {
        let connack = Client::refused(&server, request);
        assert_eq!((connack.reason, connack.session_present), (ReasonCode(code), false));
    }
}

#[test]
fn a_client_that_is_silent_for_one_and_a_half_times_its_keep_alive_is_disconnected_as_if_the_network_had_failed()
 {
    //= [MQTT-3.1.2-24] [MQTT-3.1.2-8] v3.1.1
    let server = Server::start();
    let mut watcher = Client::connect(&server, V311, "watcher");
    watcher.subscribe("will/ann", QoS::AtMostOnce);
    let silence = Stopwatch::start();
    let asked = Connect { keep_alive_s: 1, will: Some(will("will/ann", b"gone")), ..connect(V311, "ann") };
    let mut ann = Client::open(&server, asked);
    ann.expect_close();
    let silence = silence.elapsed();
    assert!(silence >= Duration::from_millis(1500), "{silence:?}");
    // The watcher asked for no keep alive: it is still there.
    assert_eq!(watcher.recv_publish().payload, b"gone");
}
