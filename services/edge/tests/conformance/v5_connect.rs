//! CONNECT (section 3.1 of MQTT 5.0), but for wills.

use std::path::PathBuf;
use std::time::Duration;

use millrace_access::files::passwords;
use millrace_access::secrets::{chosen, generated};
use millrace_edge::Config;
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Packet, Property, Publish, QoS, ReasonCode, Will};

use crate::clock::Stopwatch;
use crate::common::{Client, Server, connect, properties, publish, will};

/// A CONNECT of version 5 with these bytes behind the protocol name and these in the payload.
fn raw_connect(version: u8, flags: u8, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = b"\0\x04MQTT".to_vec();
    body.extend([version, flags, 0, 0, u8::try_from(properties.len()).unwrap_or(u8::MAX)]);
    body.extend(properties);
    body.extend(payload);
    let mut bytes = vec![0x10, u8::try_from(body.len()).unwrap_or(u8::MAX)];
    bytes.extend(body);
    bytes
}

/// Admits ann with the password "secret" and nobody else.
fn only_ann(config: &mut Config, file: &str) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let hash = chosen::hash(b"secret", &[7; 16]).unwrap_or_default();
    let written = std::fs::write(&path, passwords::edit("", "ann", Some(&hash)).unwrap_or_default());
    assert!(written.is_ok(), "{written:?}");
    config.authentication.allow_anonymous = false;
    config.authentication.password_file = Some(path);
}

#[test]
fn credentials_are_checked_where_clients_without_any_may_connect() {
    let secret = generated::generate(&[7; generated::RANDOM_BYTES]);
    let cases = [
        (None, None, true, true),
        (Some("ann"), Some("secret"), true, true),
        // Nothing can check these without a password file.
        (Some("ann"), None, true, false),
        (Some("ann"), Some("wrong"), true, false),
        (None, Some("secret"), true, false),
        // A secret that the control plane made belongs to another broker.
        (Some("ann"), Some(&*secret), false, false),
        (None, Some(&*secret), false, false),
    ];
    let open = Server::start();
    let guarded = Server::with(|config| {
        only_ann(config, "anonymous-and-ann");
        config.authentication.allow_anonymous = true;
    });
    for (user, password, is_welcome_without_file, is_welcome_with_file) in cases {
        for (server, is_welcome) in [(&open, is_welcome_without_file), (&guarded, is_welcome_with_file)] {
            let mut client = Client::raw(server);
            let password = password.map(str::as_bytes);
            client.send(&Packet::Connect(Connect { user_name: user, password, ..connect(V5, "c") }));
            let expected = match is_welcome {
                true => ReasonCode::SUCCESS,
                false => ReasonCode::BAD_USER_NAME_OR_PASSWORD,
            };
            assert_eq!(client.recv_connack().reason, expected, "{user:?} {password:?}");
        }
    }
}

#[test]
fn the_first_packet_must_be_a_connect() {
    //= [MQTT-3.1.0-1] [MQTT-3.14.0-1] v5
    let server = Server::start();
    for packet in [Packet::PingReq, Packet::Publish(publish("a", b"x"))] {
        let mut client = Client::raw(&server);
        client.send(&packet);
        client.expect_close();
    }
}

#[test]
fn a_second_connect_is_a_protocol_error() {
    //= [MQTT-3.1.0-2] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    client.send(&Packet::Connect(connect(V5, "ann")));
    client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
    // Also one that cannot be decoded: DISCONNECT has no 0x84.
    for (level, flags) in [(6, 0x02), (5, 0x03)] {
        let mut client = Client::connect(&server, V5, "ann");
        client.send_bytes(&raw_connect(level, flags, b"", b"\0\x01a"));
        client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_protocol_name_that_is_not_mqtt_is_a_close() {
    //= [MQTT-3.1.2-1] v5
    let server = Server::start();
    for name in [&b"MQTX"[..], b"mqtt", b"HTTP"] {
        let mut bytes = raw_connect(5, 0x02, b"", b"\0\x01a");
        bytes[4..8].copy_from_slice(name);
        let mut client = Client::raw(&server);
        client.send_bytes(&bytes);
        client.expect_close();
    }
}

#[test]
fn an_unknown_protocol_version_is_refused() {
    //= [MQTT-3.1.2-2] v5
    let server = Server::start();
    let mut client = Client::raw(&server);
    client.send_bytes(&raw_connect(6, 0x02, b"", b"\0\x01a"));
    assert_eq!(client.recv_connack().reason, ReasonCode::UNSUPPORTED_PROTOCOL_VERSION);
    client.expect_close();
}

#[test]
fn a_connect_of_the_wrong_form_is_refused_and_closed() {
    //= [MQTT-3.1.4-1] [MQTT-3.1.2-3] [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.3-3] [MQTT-3.1.3-4] v5
    //= [MQTT-3.2.2-7] [MQTT-3.2.2-6] [MQTT-4.13.1-1] [MQTT-4.13.2-1] v5
    let (malformed, protocol) = (ReasonCode::MALFORMED_PACKET, ReasonCode::PROTOCOL_ERROR);
    // The mistake, the connect flags, properties, payload, reason code.
    let cases = [
        ("the reserved flag", 0x03, &b""[..], &b"\0\x01a"[..], malformed),
        ("will QoS without a will", 0x0A, b"", b"\0\x01a", malformed),
        ("will retain without a will", 0x22, b"", b"\0\x01a", malformed),
        ("will QoS 3", 0x1E, b"", b"\0\x01a\0\0\x01t\0\0", malformed),
        ("a will that is not there", 0x06, b"", b"\0\x01a", malformed),
        ("a user name that is not there", 0x82, b"", b"\0\x01a", malformed),
        ("a password that is not there", 0x42, b"", b"\0\x01a", malformed),
        ("a user name that is not announced", 0x02, b"", b"\0\x01a\0\x01u", malformed),
        ("no client id", 0x02, b"", b"", malformed),
        ("a client id that is not UTF-8", 0x02, b"", b"\0\x01\xFF", malformed),
        ("a receive maximum of 0", 0x02, b"\x21\0\0", b"\0\x01a", protocol),
        ("a session expiry twice", 0x02, b"\x11\0\0\0\0\x11\0\0\0\0", b"\0\x01a", protocol),
    ];
    let server = Server::start();
    for (what, flags, properties, payload, reason) in cases {
        let mut client = Client::raw(&server);
        client.send_bytes(&raw_connect(5, flags, properties, payload));
        let connack = client.recv_connack();
        assert_eq!((connack.reason, connack.session_present), (reason, false), "{what}");
        client.expect_close();
    }
}

#[test]
fn keep_alive_is_one_and_a_half_times_what_the_client_said() {
    //= [MQTT-3.1.2-22] [MQTT-3.2.2-22] v5
    let server = Server::start();
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("gone", QoS::AtMostOnce);
    let mut client = Client::open(
        &server,
        Connect { keep_alive_s: 1, will: Some(will("gone", b"")), ..connect(V5, "silent") },
    );
    assert_eq!(server_keep_alive(&client), None);
    let silence = Stopwatch::start();
    client.expect_disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT);
    let silence = silence.elapsed();
    assert!((Duration::from_millis(1450)..Duration::from_millis(3500)).contains(&silence), "{silence:?}");
    // As if the network had failed: the will is sent.
    assert_eq!(watcher.recv_publish().topic, "gone");
}

#[test]
fn any_packet_keeps_a_connection_alive() {
    //= [MQTT-3.1.2-22] v5
    let server = Server::start();
    let keep_alive = |id| Client::open(&server, Connect { keep_alive_s: 1, ..connect(V5, id) });
    let (mut silent, mut client) = (keep_alive("silent"), keep_alive("pings"));
    for _ in 0..2 {
        client.expect_silence(Duration::from_millis(1000));
        client.ping();
    }
    // Meanwhile one that sends nothing is gone.
    silent.expect_disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT);
    client.ping();
}

#[test]
fn a_server_keep_alive_replaces_the_clients() {
    //= [MQTT-3.1.2-22] v5
    let server = Server::with(|config| config.limits.keep_alive_max_s = 1);
    let mut client = Client::open(&server, Connect { keep_alive_s: 600, ..connect(V5, "ann") });
    assert_eq!(server_keep_alive(&client), Some(1));
    client.expect_disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT);
}

fn server_keep_alive(client: &Client) -> Option<u16> {
    client.connack.as_ref()?.properties.iter().find_map(|property| match property {
        Property::ServerKeepAlive(seconds) => Some(seconds),
        _ => None,
    })
}

#[test]
fn client_ids_of_letters_and_digits_up_to_23_bytes_are_allowed() {
    //= [MQTT-3.1.3-5] v5
    let server = Server::start();
    let all = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for start in 0..all.len() {
        Client::connect(&server, V5, &all[start..=start]).disconnect();
        Client::connect(&server, V5, &all[start..all.len().min(start + 23)]).disconnect();
    }
}

#[test]
fn a_client_id_that_is_too_long_is_refused() {
    //= [MQTT-3.1.3-8] v5
    let server = Server::with(|config| config.limits.client_id_bytes_max = 23);
    let connack = Client::refused(&server, connect(V5, "0123456789abcdefghijklmn"));
    assert_eq!(connack.reason, ReasonCode::CLIENT_IDENTIFIER_NOT_VALID);
}

#[test]
fn an_empty_client_id_is_given_one_that_is_like_any_other() {
    //= [MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16] v5
    let server = Server::start();
    let kept = || Connect {
        clean_start: false,
        properties: properties(&[Property::SessionExpiryInterval(60)]),
        ..connect(V5, "")
    };
    let assigned = |client: &Client| {
        let properties = client.connack.as_ref()?.properties;
        properties.iter().find_map(|property| match property {
            Property::AssignedClientIdentifier(id) => Some(id),
            _ => None,
        })
    };
    let first = Client::open(&server, kept());
    let second = Client::open(&server, kept());
    let id = assigned(&first).unwrap();
    assert!(!id.is_empty());
    assert_ne!(Some(id), assigned(&second));
    // A client that names the id gets the session, so it is the id of the first client.
    let mut again = Client::open(&server, Connect { client_id: id, ..kept() });
    assert!(again.connack.as_ref().unwrap().session_present);
    assert_eq!(assigned(&again), None);
    again.ping();
    let mut first = first;
    first.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
}

#[test]
fn a_client_id_is_compared_byte_by_byte() {
    //= [MQTT-3.1.3-2] v5
    let server = Server::start();
    let kept = |id| Connect {
        clean_start: false,
        properties: properties(&[Property::SessionExpiryInterval(60)]),
        ..connect(V5, id)
    };
    Client::open(&server, kept("Ann")).disconnect();
    for (id, present) in [("ann", false), ("Ann ", false), ("Ann", true)] {
        let client = Client::open(&server, kept(id));
        assert_eq!(client.connack.as_ref().unwrap().session_present, present, "{id:?}");
    }
}

#[test]
fn a_new_connection_takes_the_session_over() {
    //= [MQTT-3.1.4-3] v5
    let server = Server::start();
    let mut first = Client::connect(&server, V5, "ann");
    let mut second = Client::connect(&server, V5, "ann");
    first.expect_disconnect(ReasonCode::SESSION_TAKEN_OVER);
    second.ping();
}

#[test]
fn who_does_not_know_the_password_is_refused_and_nothing_more_is_read() {
    //= [MQTT-3.1.4-2] [MQTT-3.1.4-6] [MQTT-3.2.2-6] [MQTT-3.2.2-7] [MQTT-3.2.2-8] v5
    let server = Server::with(|config| only_ann(config, "only_ann"));
    let ann = |password| Connect { user_name: Some("ann"), password, ..connect(V5, "ann") };
    for (wrong, reason) in [(ann(Some(&b"guess"[..])), 0x86), (ann(None), 0x86), (connect(V5, "ann"), 0x87)] {
        let mut client = Client::raw(&server);
        // The PUBLISH comes while the password is being checked.
        client.send(&Packet::Connect(wrong));
        client.send(&Packet::Publish(Publish { retain: true, ..publish("smuggled", b"x") }));
        let connack = client.recv_connack();
        assert_eq!((connack.reason.0, connack.session_present), (reason, false));
        client.expect_close();
    }
    let mut ann = Client::open(&server, ann(Some(b"secret")));
    ann.subscribe("#", QoS::AtMostOnce);
    ann.expect_nothing();
}

#[test]
fn who_may_not_publish_the_will_is_refused() {
    //= [MQTT-3.1.4-2] [MQTT-3.2.2-7] [MQTT-3.2.2-8] v5
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no_secrets");
    std::fs::write(&path, "deny all * secret/#\nallow all * #\n").unwrap();
    let server = Server::with(|config| config.authentication.rules_file = Some(path));
    let with_will =
        |topic| Connect { will: Some(Will { retain: true, ..will(topic, b"x") }), ..connect(V5, "ann") };
    assert_eq!(Client::refused(&server, with_will("secret/a")).reason.0, 0x87);
    Client::open(&server, with_will("open/a")).disconnect();
}

#[test]
fn an_authentication_method_that_is_not_offered_is_refused() {
    //= [MQTT-4.12.0-1] [MQTT-3.2.2-7] [MQTT-3.2.2-8] v5
    let server = Server::start();
    let method = properties(&[Property::AuthenticationMethod("SCRAM-SHA-256")]);
    let connack = Client::refused(&server, Connect { properties: method, ..connect(V5, "ann") });
    assert_eq!(connack.reason.0, 0x8C);
}

#[test]
fn without_an_authentication_method_auth_is_neither_sent_nor_taken() {
    //= [MQTT-4.12.0-6] v5
    let server = Server::start();
    let mut client = Client::connect(&server, V5, "ann");
    let properties = client.connack.as_ref().unwrap().properties;
    assert!(!properties.iter().any(|property| matches!(property, Property::AuthenticationMethod(_))));
    client.send_bytes(&[0xF0, 0]);
    client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
}
