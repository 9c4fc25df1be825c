use millrace_mqtt::{Connect, decode};

use super::*;
use crate::SessionEffect;
use crate::test_client::{Client, connect, lines, properties, publish, words};

/// Sends a CONNECT to a new connection; returns a description of the effect, and the packets of the answer as lines.
fn connected(connect: Connect<'_>, settings: &SessionSettings) -> (String, Vec<String>) {
    let (mut connection, mut out) = (Connection::new(), Vec::new());
    let version = connect.version;
    let effect = match connection.input(Packet::Connect(connect), None, settings, &mut out) {
        SessionEffect::Connect(_) => "connect".into(),
        SessionEffect::Close(closing) => words(closing),
        other => panic!("{other:?}"),
    };
    (effect, lines(&out, version))
}

fn accepted(
    connect: Connect<'_>,
    accept: &Accept<'_>,
    settings: &SessionSettings,
) -> (Connection, Vec<String>) {
    let (mut connection, mut out) = (Connection::new(), Vec::new());
    let version = connect.version;
    let effect = connection.input(Packet::Connect(connect), None, settings, &mut out);
    assert!(matches!(effect, SessionEffect::Connect(_)) && out.is_empty(), "{effect:?}");
    connection.accept(accept, settings, &mut out);
    (connection, lines(&out, version))
}

const ACCEPT: Accept<'static> = Accept {
    session_present: false,
    assigned_client_id: None,
    requested_expiry_s: 0,
    granted_expiry_s: 0,
    authentication_data: None,
};

#[test]
fn a_client_identifier_is_refused_where_the_version_says_so() {
    //= [MQTT-3.1.3-8] [MQTT-3.1.3-9] [MQTT-3.1.3-5] v3.1.1
    //= [MQTT-3.1.3-8] [MQTT-3.1.3-5] v5
    let settings = SessionSettings { client_id_bytes_max: 30, ..SessionSettings::default() };
    let long = "x".repeat(31);
    let allowed = "0123456789abcdefghijklm";
    assert_eq!(allowed.len(), 23);
    // Version, clean session, client id, CONNACK; none when it is accepted.
    let cases = [
        (Version::V31, true, "", Some("CONNACK 0x02")),
        (Version::V31, false, "", Some("CONNACK 0x02")),
        (Version::V311, false, "", Some("CONNACK 0x02")),
        (Version::V311, true, "", None),
        (Version::V5, false, "", None),
        (Version::V5, true, "", None),
        (Version::V31, true, allowed, None),
        (Version::V311, false, allowed, None),
        (Version::V5, false, allowed, None),
        (Version::V31, false, &long, Some("CONNACK 0x02")),
        (Version::V311, false, &long, Some("CONNACK 0x02")),
        (Version::V5, false, &long, Some("CONNACK 0x85 ReasonString(\"client identifier too long\")")),
        (Version::V5, false, &long[..30], None),
    ];
    for (version, clean_start, client_id, refusal) in cases {
        let (effect, answer) = connected(Connect { clean_start, client_id, ..connect(version) }, &settings);
        assert_eq!(answer.first().map(String::as_str), refusal, "{version:?} {clean_start} {client_id}");
        assert_eq!(effect.starts_with("close 0x85"), refusal.is_some(), "{effect}");
    }
}

#[test]
fn a_connack_says_what_was_granted_and_only_that() {
    //= [MQTT-3.2.2-22] v5
    let settings = SessionSettings { keep_alive_max_s: 60, topic_alias_max: 0, ..SessionSettings::default() };
    let base = "ReceiveMaximum(1024) MaximumPacketSize(1048576)";
    let present = Accept { session_present: true, ..ACCEPT };
    let expiry = Accept { requested_expiry_s: 90, granted_expiry_s: 60, ..ACCEPT };
    let assigned = Accept { assigned_client_id: Some("auto-1"), ..ACCEPT };
    // Version, keep alive; CONNACK, keep alive that holds.
    let cases = [
        (Version::V5, 30, ACCEPT, format!("CONNACK 0x00 {base}"), 30),
        (Version::V5, 60, present, format!("CONNACK present 0x00 {base}"), 60),
        (Version::V5, 61, ACCEPT, format!("CONNACK 0x00 {base} ServerKeepAlive(60)"), 60),
        (Version::V5, 0, ACCEPT, format!("CONNACK 0x00 {base} ServerKeepAlive(60)"), 60),
        (Version::V5, 1, expiry, format!("CONNACK 0x00 SessionExpiryInterval(60) {base}"), 1),
        (Version::V5, 1, assigned, format!("CONNACK 0x00 {base} AssignedClientIdentifier(\"auto-1\")"), 1),
        // A 3.x CONNACK carries no keep alive, so the one of the client holds.
        (Version::V311, 61, expiry, "CONNACK 0x00".into(), 61),
        (Version::V311, 0, present, "CONNACK present 0x00".into(), 0),
        (Version::V31, 61, present, "CONNACK 0x00".into(), 61),
    ];
    for (version, keep_alive_s, accept, expected, holds) in cases {
        let (connection, answer) = accepted(Connect { keep_alive_s, ..connect(version) }, &accept, &settings);
        assert_eq!(answer, [expected], "{version:?}");
        assert_eq!(connection.keep_alive_s(), holds);
        assert!(connection.is_open());
    }
    let (_, answer) = accepted(
        connect(Version::V5),
        &ACCEPT,
        &SessionSettings { topic_alias_max: 7, keep_alive_max_s: 0, ..settings },
    );
    assert_eq!(answer, [format!("CONNACK 0x00 {base} TopicAliasMaximum(7)")]);
}

#[test]
fn an_authentication_method_is_refused_as_long_as_none_is_supported() {
    //= [MQTT-4.12.0-1] v5
    let properties = properties(&[Property::AuthenticationMethod("SCRAM-SHA-256")]);
    let properties = Properties::from_validated(&properties);
    let (effect, answer) =
        connected(Connect { properties, ..connect(Version::V5) }, &SessionSettings::default());
    assert!(effect.starts_with("close 0x8C"), "{effect}");
    assert!(answer.len() == 1 && answer[0].starts_with("CONNACK 0x8C"), "{answer:?}");
}

#[test]
fn a_reason_string_is_left_out_where_it_does_not_fit() {
    //= [MQTT-3.2.2-19] [MQTT-3.14.2-3] [MQTT-3.4.2-2] v5
    for (maximum, told) in [(20, false), (200, true)] {
        let asked = properties(&[Property::MaximumPacketSize(maximum)]);
        let request = Connect { properties: Properties::from_validated(&asked), ..connect(Version::V5) };
        let what = "a reason of thirty characters.";
        let expected = |line: &str| if told { format!("{line} ReasonString({what:?})") } else { line.into() };

        let (mut connection, mut out) = (Connection::new(), Vec::new());
        connection.input(Packet::Connect(request.clone()), None, &SessionSettings::default(), &mut out);
        connection.refuse(ReasonCode::SERVER_BUSY, what, &mut out);
        assert_eq!(lines(&out, Version::V5), [expected("CONNACK 0x89")]);

        let mut client =
            Client::with(Version::V5, &[Property::MaximumPacketSize(maximum)], SessionSettings::default());
        client.publish(1, 1);
        client.published(1, 1, ReasonCode::QUOTA_EXCEEDED, what);
        let connection = client.connection.as_mut().unwrap();
        connection.disconnect(ReasonCode::QUOTA_EXCEEDED, what, &mut client.wire);
        assert_eq!(client.read(), [expected("PUBACK #1 0x97"), expected("DISCONNECT 0x97")]);
    }
}

#[test]
fn where_to_go_is_told_before_why_as_far_as_both_fit() {
    //= [MQTT-3.1.2-24] [MQTT-3.2.2-19] [MQTT-3.14.2-3] v5
    let (to, what) = ("other.example:8883", "a reason of thirty characters.");
    let reference = format!(" ServerReference({to:?})");
    let both = format!("{reference} ReasonString({what:?})");
    for (maximum, told) in [(20, ""), (40, &*reference), (200, &*both)] {
        let asked = properties(&[Property::MaximumPacketSize(maximum)]);
        let request = Connect { properties: Properties::from_validated(&asked), ..connect(Version::V5) };
        let (mut connection, mut out) = (Connection::new(), Vec::new());
        connection.input(Packet::Connect(request), None, &SessionSettings::default(), &mut out);
        connection.refuse_to(ReasonCode::USE_ANOTHER_SERVER, what, Some(to), &mut out);
        assert_eq!(lines(&out, Version::V5), [format!("CONNACK 0x9C{told}")]);

        let asked = [Property::MaximumPacketSize(maximum)];
        let mut client = Client::with(Version::V5, &asked, SessionSettings::default());
        let connection = client.connection.as_mut().unwrap();
        connection.disconnect_to(ReasonCode::USE_ANOTHER_SERVER, what, Some(to), &mut client.wire);
        assert_eq!(client.read(), [format!("DISCONNECT 0x9C{told}")]);
    }
    // A 3.x client only gets return code 3, server unavailable.
    let (mut connection, mut out) = (Connection::new(), Vec::new());
    connection.input(Packet::Connect(connect(Version::V311)), None, &SessionSettings::default(), &mut out);
    connection.refuse_to(ReasonCode::USE_ANOTHER_SERVER, what, Some(to), &mut out);
    assert_eq!(out, [0x20, 2, 0, 3]);
}

#[test]
fn nothing_but_connect_opens_a_connection() {
    //= [MQTT-3.1.0-1] v5 v3.1.1
    //= [MQTT-3.14.0-1] v5
    for packet in [Packet::PingReq, Packet::Publish(publish(0, 0)), Packet::PingResp] {
        let (mut connection, mut out) = (Connection::new(), Vec::new());
        let effect = connection.input(packet, None, &SessionSettings::default(), &mut out);
        assert!(matches!(effect, SessionEffect::Close(_)), "{effect:?}");
        assert!(out.is_empty() && !connection.is_open() && connection.decoding_version().is_none());
    }
}

#[test]
fn nothing_is_done_between_connect_and_its_answer() {
    for packet in [Packet::PingReq, Packet::Publish(publish(1, 1)), Packet::Connect(connect(Version::V5))] {
        let (mut connection, mut out) = (Connection::new(), Vec::new());
        connection.input(Packet::Connect(connect(Version::V5)), None, &SessionSettings::default(), &mut out);
        let effect = connection.input(packet, None, &SessionSettings::default(), &mut out);
        assert!(matches!(effect, SessionEffect::Close(_)) && out.is_empty(), "{effect:?}");
    }
}

#[test]
fn a_connect_that_cannot_be_decoded_is_answered_where_the_version_has_an_answer() {
    //= [MQTT-3.1.2-1] [MQTT-3.1.2-2] [MQTT-3.1.4-1] [MQTT-3.2.2-6] v3.1.1
    //= [MQTT-3.1.2-2] [MQTT-3.1.4-1] v5
    // Protocol name, level, connect flags; the answer.
    let cases = [
        (&b"MQTT"[..], 6, 0x02, Some((Version::V5, "CONNACK 0x84"))),
        (b"MQTT", 255, 0x02, Some((Version::V5, "CONNACK 0x84"))),
        (b"MQTT", 3, 0x02, Some((Version::V311, "CONNACK 0x01"))),
        (b"MQTT", 0, 0x02, Some((Version::V311, "CONNACK 0x01"))),
        // Bridges of versions before 5.0 cannot read a CONNACK of 5.0.
        (b"MQTT", 0x83, 0x02, Some((Version::V311, "CONNACK 0x01"))),
        (b"MQTT", 0x80, 0x02, Some((Version::V311, "CONNACK 0x01"))),
        (b"MQTT", 0x85, 0x02, Some((Version::V5, "CONNACK 0x84"))),
        (b"MQIsdp", 4, 0x02, Some((Version::V311, "CONNACK 0x01"))),
        (b"mqtt", 4, 0x02, None),
        (b"HTTP", 4, 0x02, None),
        // The reserved flag is set.
        (b"MQTT", 5, 0x03, Some((Version::V5, "CONNACK 0x81"))),
        (b"MQTT", 4, 0x03, None),
        (b"MQIsdp", 3, 0x03, None),
    ];
    for (name, level, flags, expected) in cases {
        let mut body = vec![0, name.len() as u8];
        body.extend_from_slice(name);
        body.extend_from_slice(&[level, flags, 0, 0, 0, 0, 0, 0]);
        let error = decode(0x10, &body, None).unwrap_err();
        let (mut connection, mut out) = (Connection::new(), Vec::new());
        connection.undecodable(error, Some((0x10, &body)), &mut out);
        match expected {
            None => assert!(out.is_empty(), "{name:?} {level}: {out:02x?}"),
            Some((version, line)) => {
                let said = lines(&out, version);
                assert!(said.len() == 1 && said[0].starts_with(line), "{name:?} {level}: {said:?}");
                //= [MQTT-3.2.2-19] v5
                let size = if version == Version::V5 { 5 } else { 4 };
                assert_eq!(out.len(), size, "{name:?} {level}: no reason string");
            }
        }
    }
}

#[test]
fn a_connect_of_an_unknown_version_is_answered_in_its_own_layout() {
    //= [MQTT-3.1.2-2] v3.1.1 v5
    for (rest, expected) in [
        // Client id "a".
        (&b"\x02\0\x3c\0\x01a"[..], &b"\x20\x02\0\x01"[..]),
        // No properties, client id "a".
        (b"\x02\0\x3c\0\0\x01a", b"\x20\x03\0\x84\0"),
    ] {
        for level in [6, 99] {
            let body = [b"\0\x04MQTT", &[level][..], rest].concat();
            let error = decode(0x10, &body, None).unwrap_err();
            let (mut connection, mut out) = (Connection::new(), Vec::new());
            connection.undecodable(error, Some((0x10, &body)), &mut out);
            assert_eq!(out, expected, "{level}");
        }
    }
}
