//! Bytes that are not MQTT, MQTT that breaks the rules, and sockets that stay silent. The server answers each as the
//! protocol says or closes it, counts it by reason, and two well-behaved clients notice nothing.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use millrace_mqtt::Version::{V5, V31, V311};
use millrace_mqtt::{Connect, Disconnect, Packet, Properties, Property, QoS, ReasonCode, Version, encode};

use crate::common::{Client, Server, ack, connect, disconnect, id, properties, publish, publish_qos, will};
use crate::tools::{
    Pair, Rng, a_moment, counted, encoded, ended, expect_clients, expect_count, half_close, metric, now,
    read_to_close, refused, send_anyway, sum,
};

/// Counts connections that were refused before their CONNECT was accepted.
const REFUSED: &str = "millrace_connections_refused_total";
/// Counts ended connections of accepted clients.
const ENDED: &str = "millrace_disconnects_total";
/// Clients of [`Pair`].
const PAIR: u64 = 2;

/// One packet of every type that a client may send, after its CONNECT.
fn packets(version: Version) -> Vec<Vec<u8>> {
    let mut subscribe = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, [("a/+", Default::default())], version, &mut subscribe);
    let mut unsubscribe = Vec::new();
    encode::unsubscribe(id(2), Properties::EMPTY, ["a/+"], version, &mut unsubscribe);
    let mut packets = vec![
        subscribe,
        encoded(&Packet::Publish(publish("a/b", b"hi")), version),
        encoded(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 2, "a/b", b"hello")), version),
        encoded(&Packet::Publish(publish_qos(QoS::ExactlyOnce, 3, "a/b", b"once")), version),
        encoded(&Packet::PubAck(ack(id(9))), version),
        encoded(&Packet::PubRec(ack(id(9))), version),
        encoded(&Packet::PubRel(ack(id(3))), version),
        encoded(&Packet::PubComp(ack(id(9))), version),
        unsubscribe,
        encoded(&Packet::PingReq, version),
    ];
    if version == V5 {
        let about = properties(&[Property::ReasonString("because"), Property::UserProperty("a", "b")]);
        packets.push(encoded(
            &Packet::Disconnect(Disconnect { reason: ReasonCode::SUCCESS, properties: about }),
            version,
        ));
    } else {
        packets.push(encoded(&Packet::Disconnect(disconnect(ReasonCode::SUCCESS)), version));
    }
    packets
}

fn full_connect(version: Version, client_id: &str) -> Connect<'_> {
    Connect {
        will: Some(will("a/will", b"gone")),
        user_name: Some("ann"),
        password: Some(b"secret"),
        ..connect(version, client_id)
    }
}

#[test]
fn random_bytes_from_strangers_are_closed_and_counted_one_by_one() {
    let server = Server::start();
    let pair = Pair::start(&server);
    let mut rng = Rng(1);
    for _ in 0..300 {
        let mut bytes = vec![];
        // Half of them begin as a CONNECT does.
        if rng.below(2) == 0 {
            bytes.push(0x10);
        }
        let len = 1 + rng.below(300);
        bytes.extend(rng.bytes(len));
        let stranger = Client::raw(&server);
        send_anyway(stranger.stream(), &bytes);
        half_close(stranger.stream());
    }
    expect_count(sum, &server, REFUSED, 300);
    for reason in ["first_packet", "invalid_connect", "closed_by_peer"] {
        assert!(refused(&server, reason) > 0, "{}", counted(&server));
    }
    assert_eq!(sum(&server, ENDED), 0);
    pair.finish();
}

#[test]
fn random_bytes_from_clients_end_only_their_own_connection() {
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    let mut rng = Rng(2);
    for number in 0..200 {
        let name = format!("client-{}", number % 50);
        let client = Client::connect(&server, [V31, V311, V5][number % 3], &name);
        let len = 1 + rng.below(500);
        send_anyway(client.stream(), &rng.bytes(len));
        half_close(client.stream());
    }
    expect_count(sum, &server, ENDED, 200);
    expect_clients(&server, PAIR);
    assert!(ended(&server, "malformed_packet") > 0);
    pair.finish();
}

#[test]
fn a_session_with_flipped_bits_ends_only_its_own_connection() {
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    let mut rng = Rng(3);
    for number in 0..300 {
        let version = [V31, V311, V5][number % 3];
        let mut bytes = encoded(&Packet::Connect(full_connect(version, "flipped")), version);
        bytes.extend(packets(version).concat());
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        let client = Client::raw(&server);
        send_anyway(client.stream(), &bytes);
        half_close(client.stream());
    }
    let all = |server: &Server, _: &str| sum(server, REFUSED) + sum(server, ENDED);
    expect_count(all, &server, "refused or ended", 300);
    expect_clients(&server, PAIR);
    pair.finish();
}

#[test]
fn packets_of_every_type_cut_anywhere_are_thrown_away() {
    let server = Server::start();
    let pair = Pair::start(&server);
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("a/b", QoS::AtMostOnce);
    let (mut strangers, mut clients) = (0, 0);
    for version in [V31, V311, V5] {
        let bytes = encoded(&Packet::Connect(full_connect(version, "cut")), version);
        for cut in 1..bytes.len() {
            let stranger = Client::raw(&server);
            send_anyway(stranger.stream(), &bytes[..cut]);
            assert_eq!(half_close(stranger.stream()), b"");
            strangers += 1;
        }
        for packet in packets(version) {
            for cut in [1, 2, packet.len() / 2, packet.len() - 1] {
                if cut == 0 || cut >= packet.len() {
                    continue;
                }
                let client = Client::connect(&server, version, "cut");
                send_anyway(client.stream(), &packet[..cut]);
                assert_eq!(half_close(client.stream()), b"");
                clients += 1;
            }
        }
    }
    expect_count(refused, &server, "closed_by_peer", strangers);
    expect_count(ended, &server, "lost", clients);
    watcher.expect_nothing();
    pair.finish();
}

#[test]
fn a_first_packet_that_is_not_connect_is_closed_without_an_answer() {
    //= [MQTT-3.1.0-1] v5 v3.1.1
    let server = Server::start();
    let pair = Pair::start(&server);
    let mut wrong = 0;
    for version in [V311, V5] {
        for packet in packets(version) {
            let stranger = Client::raw(&server);
            send_anyway(stranger.stream(), &packet);
            assert_eq!(read_to_close(stranger.stream()), b"", "{packet:x?}");
            wrong += 1;
        }
    }
    expect_count(refused, &server, "first_packet", wrong);
    pair.finish();
}

#[test]
fn a_second_connect_is_a_protocol_error() {
    //= [MQTT-3.1.0-2] v5 v3.1.1
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    for (version, again) in [(V5, "ann"), (V5, "somebody-else"), (V311, "ann"), (V311, "")] {
        let mut ann = Client::connect(&server, version, "ann");
        send_anyway(ann.stream(), &encoded(&Packet::Connect(connect(version, again)), version));
        if version == V5 {
            ann.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
        } else {
            ann.expect_close();
        }
    }
    expect_count(ended, &server, "protocol_error", 4);
    expect_clients(&server, PAIR);
    pair.finish();
}

#[test]
fn a_second_connect_in_the_same_segment_is_a_protocol_error() {
    //= [MQTT-3.1.0-2] v5
    let server = Server::with(|config| config.threads = 2);
    for name in ["ann", "bob", "eve", "joe"] {
        let mut client = Client::raw(&server);
        let connect = encoded(&Packet::Connect(connect(V5, name)), V5);
        client.send_bytes(&[&connect[..], &connect].concat());
        client.recv_connack();
        client.expect_disconnect(ReasonCode::PROTOCOL_ERROR);
    }
    expect_count(ended, &server, "protocol_error", 4);
}

#[test]
fn a_packet_over_the_limit_is_refused_when_its_header_is_read() {
    let server = Server::with(|config| config.limits.packet_size_max = 1000);
    let pair = Pair::start(&server);
    for remaining in [&[0xE6, 0x07][..], &[0x80, 0x80, 0x80, 0x01], &[0xFF, 0xFF, 0xFF, 0x7F]] {
        let mut ann = Client::connect(&server, V5, "ann");
        ann.send_bytes(&[&[0x30], remaining].concat());
        ann.expect_disconnect(ReasonCode::PACKET_TOO_LARGE);
        let mut old = Client::connect(&server, V311, "ann");
        old.send_bytes(&[&[0x30], remaining].concat());
        old.expect_close();
        let mut stranger = Client::raw(&server);
        stranger.send_bytes(&[&[0x10], remaining].concat());
        stranger.expect_close();
    }
    expect_count(ended, &server, "packet_too_large", 6);
    expect_count(sum, &server, REFUSED, 3);
    pair.finish();
}

#[test]
fn a_remaining_length_of_five_bytes_is_malformed() {
    //= [MQTT-1.5.5-1] v5
    let server = Server::start();
    let pair = Pair::start(&server);
    for length in [[0xFF, 0xFF, 0xFF, 0xFF], [0x80, 0x80, 0x80, 0x80]] {
        let mut ann = Client::connect(&server, V5, "ann");
        ann.send_bytes(&[&[0x30], &length[..]].concat());
        ann.expect_disconnect(ReasonCode::MALFORMED_PACKET);
    }
    expect_count(ended, &server, "malformed_packet", 2);
    pair.finish();
}

/// A QoS 0 PUBLISH whose topic is these bytes.
fn publish_to(topic: &[u8], version: Version) -> Vec<u8> {
    let topic_len = u16::try_from(topic.len()).unwrap();
    let properties: &[u8] = if version == V5 { &[0] } else { &[] };
    let body = [&topic_len.to_be_bytes()[..], topic, properties, b"x"].concat();
    [&[0x30, u8::try_from(body.len()).unwrap()], &body[..]].concat()
}

#[test]
fn a_topic_that_is_not_utf_8_is_malformed() {
    //= [MQTT-1.5.4-1] [MQTT-1.5.4-2] v5
    //= [MQTT-1.5.3-1] [MQTT-1.5.3-2] v3.1.1
    let server = Server::start();
    let pair = Pair::start(&server);
    let bad: [&[u8]; 7] = [
        b"a\xFF",
        b"\xC3",
        // Overlong, a surrogate, over U+10FFFF, alone.
        b"\xC0\xAF",
        b"\xED\xA0\x80",
        b"\xF4\x90\x80\x80",
        b"\x80",
        b"a\0b",
    ];
    for topic in bad {
        let mut ann = Client::connect(&server, V5, "ann");
        ann.send_bytes(&publish_to(topic, V5));
        ann.expect_disconnect(ReasonCode::MALFORMED_PACKET);
        let mut old = Client::connect(&server, V311, "ann");
        old.send_bytes(&publish_to(topic, V311));
        old.expect_close();
    }
    expect_count(ended, &server, "malformed_packet", 14);
    pair.finish();
}

#[test]
fn a_topic_name_with_a_wildcard_or_without_anything_ends_the_connection() {
    //= [MQTT-3.3.2-2] v5 v3.1.1
    //= [MQTT-4.7.3-1] v3.1.1
    let server = Server::start();
    let pair = Pair::start(&server);
    for topic in ["a/+", "#", "a/#", "+", "a+b"] {
        let mut ann = Client::connect(&server, V5, "ann");
        ann.send_bytes(&publish_to(topic.as_bytes(), V5));
        ann.expect_disconnect(ReasonCode::MALFORMED_PACKET);
    }
    for topic in ["a/+", ""] {
        let mut old = Client::connect(&server, V311, "ann");
        old.send_bytes(&publish_to(topic.as_bytes(), V311));
        old.expect_close();
    }
    expect_count(ended, &server, "malformed_packet", 7);
    pair.finish();
}

#[test]
fn a_filter_that_breaks_the_rules_ends_the_connection_and_is_counted() {
    //= [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.8.2-1] [MQTT-4.8.2-2] [MQTT-4.13.1-1] v5
    //= [MQTT-4.7.1-2] [MQTT-4.7.1-3] v3.1.1
    let server = Server::start();
    let pair = Pair::start(&server);
    let malformed = ["a/#/b", "a#", "a+", "+a/b", "#/a", ""];
    let not_shared = ["$share//a", "$share/g", "$share/g/", "$share/+/a"];
    let packets = |filter: &'static str, version| {
        let (mut subscribe, mut unsubscribe) = (Vec::new(), Vec::new());
        encode::subscribe(id(1), Properties::EMPTY, [(filter, Default::default())], version, &mut subscribe);
        encode::unsubscribe(id(1), Properties::EMPTY, [filter], version, &mut unsubscribe);
        [subscribe, unsubscribe]
    };
    for (bad, reason) in
        [(&malformed[..], ReasonCode::MALFORMED_PACKET), (&not_shared, ReasonCode::PROTOCOL_ERROR)]
    {
        for bytes in bad.iter().flat_map(|filter| packets(filter, V5)) {
            let mut ann = Client::connect(&server, V5, "ann");
            ann.send_bytes(&bytes);
            ann.expect_disconnect(reason);
        }
    }
    for version in [V31, V311] {
        for bytes in malformed.iter().flat_map(|filter| packets(filter, version)) {
            let mut old = Client::connect(&server, version, "old");
            old.send_bytes(&bytes);
            old.expect_close();
        }
    }
    expect_count(ended, &server, "malformed_packet", 3 * 2 * malformed.len() as u64);
    expect_count(ended, &server, "protocol_error", 2 * not_shared.len() as u64);
    assert_eq!(metric(&server, "millrace_subscriptions", ""), 1, "that of the well-behaved clients");
    pair.finish();
}

/// Everything that the server answers to a session whose bytes come in these pieces.
fn answers<'b>(server: &Server, pieces: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
    let client = Client::raw(server);
    for piece in pieces {
        send_anyway(client.stream(), piece);
    }
    half_close(client.stream())
}

#[test]
fn a_session_cut_at_every_byte_is_answered_as_one_in_one_piece() {
    for threads in [1, 2] {
        let server = Server::with(|config| config.threads = threads);
        let pair = Pair::start(&server);
        for version in [V31, V311, V5] {
            let mut bytes = encoded(&Packet::Connect(connect(version, "dribble")), version);
            bytes.extend(packets(version).concat());
            let whole = answers(&server, std::iter::once(&bytes[..]));
            assert!(whole.len() > 40, "{whole:x?}");
            assert_eq!(answers(&server, bytes.chunks(1)), whole);
            for cut in 1..bytes.len() {
                let (one, two) = bytes.split_at(cut);
                assert_eq!(answers(&server, [one, two].into_iter()), whole, "cut at {cut}");
            }
        }
        pair.finish();
    }
}

#[test]
fn a_client_that_falls_silent_is_ended_after_its_keep_alive() {
    //= [MQTT-3.1.2-22] v5
    //= [MQTT-3.1.2-24] v3.1.1
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    let start = now();
    let mut silent: Vec<Client> = (0..20)
        .map(|number| {
            let version = if number % 2 == 0 { V5 } else { V311 };
            Client::open(
                &server,
                Connect { keep_alive_s: 1, ..connect(version, &format!("silent-{number}")) },
            )
        })
        .collect();
    for client in &mut silent {
        if client.version == V5 {
            client.expect_disconnect(ReasonCode::KEEP_ALIVE_TIMEOUT);
        } else {
            client.expect_close();
        }
    }
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1500), "{took:?}");
    expect_count(ended, &server, "keep_alive", 20);
    expect_clients(&server, PAIR);
    pair.finish();
}

#[test]
fn a_client_that_will_send_no_more_is_lost() {
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    for number in 0..20 {
        let mut client = Client::connect(&server, V5, &format!("half-{number}"));
        client.send(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 1, "nobody", b"x")));
        // The server answers the PUBLISH that came before the end.
        let answer = half_close(client.stream());
        assert_eq!(answer.first(), Some(&0x40), "{answer:x?}");
    }
    expect_count(ended, &server, "lost", 20);
    expect_clients(&server, PAIR);
    pair.finish();
}

#[test]
fn connections_that_never_send_connect_are_closed_when_their_time_is_up() {
    const SILENT: usize = 2000;
    let server = Server::with(|config| {
        config.threads = 2;
        config.limits.connect_timeout_s = 1;
    });
    let pair = Pair::start(&server);
    let start = now();
    let mut connect = encoded(&Packet::Connect(connect(V5, "too-late")), V5);
    connect.truncate(connect.len() - 1);
    let silent: Vec<TcpStream> = (0..SILENT)
        .map(|number| {
            let address = if number % 10 == 0 { server.ws() } else { server.mqtt() };
            let stream = TcpStream::connect(address).unwrap();
            // A CONNECT that lacks its last byte does not stop the timer either.
            if number % 3 == 0 {
                send_anyway(&stream, &connect);
            }
            stream
        })
        .collect();
    // The WebSocket port answers the bytes of a CONNECT with an HTTP error.
    let not_http = (0..SILENT).filter(|number| number % 30 == 0).count();
    for stream in &silent {
        read_to_close(stream);
    }
    expect_count(refused, &server, "websocket_handshake", not_http as u64);
    expect_count(refused, &server, "connect_timeout", (SILENT - not_http) as u64);
    drop(silent);
    // Every one of them is forgotten.
    let open = || metric(&server, "millrace_connections_open", "");
    while open() > PAIR {
        assert!(start.elapsed() < Duration::from_secs(60), "{} connections", open());
        a_moment();
    }
    pair.finish();
}

#[test]
fn a_second_is_enough_for_a_client_that_may_take_one() {
    let server = Server::with(|config| config.limits.connect_timeout_s = 1);
    // The connections begin at different times within a second, because the server counts whole seconds.
    for number in 0..12 {
        let mut client = Client::raw(&server);
        client.expect_silence(Duration::from_millis(300));
        client.send(&Packet::Connect(connect(V5, &format!("slow-{number}"))));
        assert_eq!(client.recv_connack().reason, ReasonCode::SUCCESS);
    }
}

#[test]
fn http_on_the_mqtt_port_is_closed() {
    let server = Server::start();
    let pair = Pair::start(&server);
    for request in
        ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /mqtt HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\n"]
    {
        let stranger = Client::raw(&server);
        send_anyway(stranger.stream(), request.as_bytes());
        assert_eq!(read_to_close(stranger.stream()), b"");
    }
    expect_count(refused, &server, "first_packet", 3);
    pair.finish();
}

/// The beginning of a TLS 1.2 or 1.3 ClientHello.
const CLIENT_HELLO: &[u8] =
    b"\x16\x03\x01\x00\xC8\x01\x00\x00\xC4\x03\x03\x5C\x8A\x11\xF3\x77\x10\x9B\x00\x01\x02\x03\x04\x05\x06";

#[test]
fn tls_on_the_plain_ports_is_closed() {
    let server = Server::start();
    let pair = Pair::start(&server);
    let stranger = Client::raw(&server);
    send_anyway(stranger.stream(), CLIENT_HELLO);
    assert_eq!(read_to_close(stranger.stream()), b"");
    expect_count(refused, &server, "first_packet", 1);
    let stranger = TcpStream::connect(server.ws()).unwrap();
    send_anyway(&stranger, CLIENT_HELLO);
    assert!(read_to_close(&stranger).starts_with(b"HTTP/1.1 400 "));
    expect_count(refused, &server, "websocket_handshake", 1);
    pair.finish();
}

#[test]
fn mqtt_on_the_websocket_port_is_told_where_it_is() {
    let server = Server::start();
    let pair = Pair::start(&server);
    let stranger = TcpStream::connect(server.ws()).unwrap();
    send_anyway(&stranger, &encoded(&Packet::Connect(connect(V5, "ann")), V5));
    let answer = String::from_utf8(read_to_close(&stranger)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("WebSocket"), "{answer}");
    expect_count(refused, &server, "websocket_handshake", 1);
    pair.finish();
}

#[test]
fn a_refused_client_that_keeps_sending_is_cut_off() {
    let server = Server::start();
    let pair = Pair::start(&server);
    let mut stranger = Client::raw(&server);
    stranger.send_bytes(&[0; 16]);
    stranger.expect_close();
    // The server has closed its side. It discards further input for a limited time only.
    let start = now();
    let mut stream = stranger.stream();
    loop {
        let sent = std::io::Write::write(&mut stream, &[0; 1024]);
        match sent.and_then(|_| stream.read(&mut [0])) {
            Ok(0) => {}
            Ok(_) => panic!("an answer after the close"),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset),
                    "{error}"
                );
                break;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(60), "it may send for ever");
        a_moment();
    }
    pair.finish();
}
