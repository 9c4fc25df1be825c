use millrace_mqtt::{Connect, Disconnect, Version};

use super::*;
use crate::Accept;
use crate::test_client::{connect, lines, properties, words};

fn settings() -> SessionSettings {
    SessionSettings { authentication_method: Some("M"), ..SessionSettings::default() }
}

const ACCEPT: Accept<'static> = Accept {
    session_present: false,
    assigned_client_id: None,
    requested_expiry_s: 0,
    granted_expiry_s: 0,
    authentication_data: Some(b"end"),
};

/// A connection whose CONNECT named this method and takes packets of this size.
fn began(method: &str, packet_size_max: u32) -> (Connection, Vec<u8>) {
    let named =
        properties(&[Property::AuthenticationMethod(method), Property::MaximumPacketSize(packet_size_max)]);
    let request = Connect { properties: Properties::from_validated(&named), ..connect(Version::V5) };
    let (mut connection, mut out) = (Connection::new(), Vec::new());
    connection.input(Packet::Connect(request), None, &settings(), &mut out);
    (connection, out)
}

fn said(out: &mut Vec<u8>) -> Vec<String> {
    lines(&std::mem::take(out), Version::V5)
}

/// Sends an AUTH with this method, and returns a description of the effect.
fn auth(connection: &mut Connection, reason: ReasonCode, method: &str, out: &mut Vec<u8>) -> String {
    let properties = properties(&[Property::AuthenticationMethod(method)]);
    let auth = Auth { reason, properties: Properties::from_validated(&properties) };
    words_of(&connection.input(Packet::Auth(auth), None, &settings(), out))
}

fn words_of(effect: &SessionEffect<'_>) -> String {
    match effect {
        SessionEffect::Close(closing) => words(*closing),
        SessionEffect::Authenticate(_) => "authenticate".into(),
        SessionEffect::Disconnect { with_will } => format!("disconnect {with_will}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn an_exchange_goes_on_until_the_connack_and_each_packet_names_the_method() {
    //= [MQTT-4.12.0-2] [MQTT-4.12.0-5] v5
    let (mut connection, mut out) = began("M", 99);
    for _ in 0..2 {
        assert!(connection.challenge(b"go on", &settings(), &mut out));
        let line = said(&mut out).remove(0);
        assert!(
            line.starts_with(&format!("Auth(Auth {{ reason: {:?}", ReasonCode::CONTINUE_AUTHENTICATION)),
            "{line}"
        );
        assert_eq!(auth(&mut connection, ReasonCode::CONTINUE_AUTHENTICATION, "M", &mut out), "authenticate");
    }
    connection.accept(&ACCEPT, &settings(), &mut out);
    let line = said(&mut out).remove(0);
    assert!(line.ends_with(r#"AuthenticationMethod("M") AuthenticationData([101, 110, 100])"#), "{line}");
}

#[test]
fn another_method_is_refused() {
    //= [MQTT-4.12.0-1] v5
    let (_, mut out) = began("N", 99);
    assert!(said(&mut out)[0].starts_with("CONNACK 0x8C"));
}

#[test]
fn before_connack_only_auth_and_disconnect_are_taken() {
    //= [MQTT-3.1.2-30] [MQTT-4.12.0-3] [MQTT-4.12.0-4] v5
    let challenged = || {
        let (mut connection, mut out) = began("M", 99);
        connection.challenge(b"", &settings(), &mut out);
        (connection, Vec::new())
    };
    for (reason, method) in [
        (ReasonCode::SUCCESS, "M"),
        (ReasonCode::RE_AUTHENTICATE, "M"),
        (ReasonCode::CONTINUE_AUTHENTICATION, "N"),
    ] {
        let (mut connection, mut out) = challenged();
        let effect = auth(&mut connection, reason, method, &mut out);
        assert!(effect.starts_with("close 0x82"), "{effect}");
        assert!(said(&mut out)[0].starts_with("CONNACK 0x82"));
    }
    for packet in [Packet::Connect(connect(Version::V5)), Packet::PingReq] {
        let (mut connection, mut out) = challenged();
        let effect = words_of(&connection.input(packet, None, &settings(), &mut out));
        assert!(effect.starts_with("close 0x82"), "{effect}");
        assert!(said(&mut out)[0].starts_with("CONNACK 0x82"));
    }
    let (mut connection, mut out) = challenged();
    let leaves = Disconnect { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    let effect = words_of(&connection.input(Packet::Disconnect(leaves), None, &settings(), &mut out));
    assert_eq!((effect.as_str(), out.len()), ("disconnect false", 0));
}

#[test]
fn an_auth_that_the_client_does_not_take_is_not_sent() {
    //= [MQTT-3.1.2-24] v5
    let (mut connection, mut out) = began("M", 20);
    assert!(!connection.challenge(&[b'x'; 20], &settings(), &mut out));
    assert!(out.is_empty());
}
