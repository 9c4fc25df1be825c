//! WebSocket: a packet may span frames and a frame packets, and other requests get an HTTP error.

use std::net::TcpStream;

use millrace_mqtt::Version::{V5, V311};
use millrace_mqtt::{Connect, Packet, PacketType, Properties, QoS, ReasonCode, encode};

use crate::common::{Client, Server, connect, disconnect, id, publish, publish_qos, will};
use crate::tools::{
    Pair, Rng, encoded, ended, eventually, expect_clients, expect_count, flood, half_close, metric,
    number_of, read_to_close, refused, send_anyway,
};
use crate::ws::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, TEXT, WebSocket, frame_of, request};

/// CONNECT, SUBSCRIBE, a message for each QoS up to 1, PINGREQ.
fn session(client_id: &str) -> Vec<u8> {
    let mut bytes = encoded(&Packet::Connect(connect(V5, client_id)), V5);
    encode::subscribe(id(1), Properties::EMPTY, [("a/#", Default::default())], V5, &mut bytes);
    bytes.extend(encoded(&Packet::Publish(publish("a/b", b"one")), V5));
    bytes.extend(encoded(&Packet::Publish(publish_qos(QoS::AtLeastOnce, 2, "a/c", &[7; 300])), V5));
    bytes.extend(encoded(&Packet::PingReq, V5));
    bytes
}

/// The answers that the server must give to [`session`].
fn expect_answers(client: &mut WebSocket) {
    assert_eq!(client.recv().packet_type(), PacketType::ConnAck);
    assert_eq!(client.recv().packet_type(), PacketType::SubAck);
    let Packet::Publish(one) = client.recv() else { panic!("no PUBLISH") };
    assert_eq!(one.payload, b"one");
    let Packet::Publish(two) = client.recv() else { panic!("no PUBLISH") };
    assert_eq!(two.payload, [7; 300]);
    assert_eq!(client.recv().packet_type(), PacketType::PubAck);
    assert_eq!(client.recv(), Packet::PingResp);
}

#[test]
fn many_packets_may_come_in_one_frame() {
    //= [MQTT-6.0.0-2] v5 v3.1.1
    let server = Server::with(|config| config.threads = 2);
    for number in 0..8 {
        let mut client = WebSocket::open(&server);
        client.send_bytes(&frame_of(FIN | BINARY, &session(&format!("client-{number}"))));
        expect_answers(&mut client);
    }
}

#[test]
fn a_packet_may_come_in_many_frames_and_fragments() {
    //= [MQTT-6.0.0-2] v5 v3.1.1
    let server = Server::with(|config| config.threads = 2);
    for number in 0..8 {
        let mut client = WebSocket::open(&server);
        let bytes = session(&format!("client-{number}"));
        let mut frames = Vec::new();
        for (index, piece) in bytes.chunks(3).enumerate() {
            // One message of many fragments, or many messages, with pings and empty frames in between.
            let last = index == bytes.len().div_ceil(3) - 1;
            frames.extend(match (number % 2, index) {
                (0, _) => frame_of(FIN | BINARY, piece),
                (_, 0) => frame_of(BINARY, piece),
                _ => frame_of(CONTINUATION | if last { FIN } else { 0 }, piece),
            });
            if index % 5 == 0 {
                frames.extend(frame_of(FIN | PONG, b"nobody asked"));
            }
            if number % 2 == 0 {
                frames.extend(frame_of(FIN | BINARY, b""));
            }
        }
        client.send_bytes(&frames);
        expect_answers(&mut client);
    }
}

#[test]
fn a_session_may_be_cut_at_every_byte() {
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    let bytes = [request("/mqtt", "mqtt").into_bytes(), frame_of(FIN | BINARY, &session("cut"))].concat();
    for cut in 1..bytes.len() {
        let stream = TcpStream::connect(server.ws()).unwrap();
        stream.set_nodelay(true).unwrap();
        send_anyway(&stream, &bytes[..cut]);
        send_anyway(&stream, &bytes[cut..]);
        expect_answers(&mut WebSocket::requested(stream));
    }
    let stream = TcpStream::connect(server.ws()).unwrap();
    stream.set_nodelay(true).unwrap();
    bytes.chunks(1).for_each(|byte| send_anyway(&stream, byte));
    expect_answers(&mut WebSocket::requested(stream));
    pair.finish();
}

#[test]
fn a_ping_is_answered_with_its_payload() {
    let server = Server::with(|config| config.threads = 2);
    let mut client = WebSocket::open(&server);
    // Before the CONNECT, after it, and within a fragmented packet.
    client.send_bytes(&frame_of(FIN | PING, b"before"));
    assert_eq!(client.recv_frame(), Some((PONG, b"before".to_vec())));
    client.send(&Packet::Connect(connect(V5, "ann")));
    assert_eq!(client.recv().packet_type(), PacketType::ConnAck);
    client.send_bytes(
        &[frame_of(BINARY, &[0xC0]), frame_of(FIN | PING, &[1; 125]), frame_of(FIN | CONTINUATION, &[0])]
            .concat(),
    );
    assert_eq!(client.recv_frame(), Some((PONG, vec![1; 125])));
    assert_eq!(client.recv(), Packet::PingResp);
}

#[test]
fn pings_cost_work_as_packets_do_and_all_of_them_are_answered_in_order() {
    /// Work of one share: a read of thousands of pings has more.
    const SHARE: u64 = 5_000;
    let server = Server::with(|config| config.threads = 1);
    let (mut stranger, mut client) = (WebSocket::open(&server), WebSocket::connect(&server, V5, "pings"));
    let last = encoded(&Packet::PingReq, V5);
    let first = encoded(&Packet::Connect(connect(V5, "late")), V5);
    // A connection without a CONNECT (`stranger`) waits for its turn as a client does. Its answers fit into the socket.
    for (socket, pings, packet) in [(&mut client, 50_000u32, last), (&mut stranger, 2_500, first)] {
        let mut bytes = Vec::new();
        for number in 0..pings {
            bytes.extend(frame_of(FIN | PING, &number.to_be_bytes()));
            if number % 1_000 == 0 {
                bytes.extend(frame_of(FIN | PONG, b"nobody asked"));
            }
        }
        bytes.extend(frame_of(FIN | BINARY, &packet));
        let stream = socket.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || send_anyway(&stream, &bytes));
            for number in 0..pings {
                assert_eq!(socket.recv_frame(), Some((PONG, number.to_be_bytes().to_vec())));
            }
        });
    }
    assert_eq!(client.recv(), Packet::PingResp);
    assert_eq!(stranger.recv().packet_type(), PacketType::ConnAck);
    let work = metric(&server, "millrace_edge_turn_work_max", "");
    assert!((SHARE..200_000).contains(&work), "a turn did {work} units of work");
}

#[test]
fn frames_without_payload_cost_work() {
    const FRAMES: usize = 5_000;
    const ROUNDS: usize = 20;
    let server = Server::with(|config| config.threads = 1);
    let mut client = WebSocket::connect(&server, V5, "empty");
    let mut bytes = frame_of(FIN | BINARY, &[]).repeat(FRAMES);
    bytes.extend(frame_of(FIN | BINARY, &encoded(&Packet::PingReq, V5)));
    for _ in 0..ROUNDS {
        client.send_bytes(&bytes);
        assert_eq!(client.recv(), Packet::PingResp);
    }
    // A read may have a part of the frames. All have 1,875 units, and the client's connect has less than 250.
    let work = || metric(&server, "millrace_edge_turn_work_max", "");
    eventually(|| work() >= 500, || format!("{} units of work for {FRAMES} frames", work()));
}

#[test]
fn a_close_is_answered_with_its_code_and_loses_the_client() {
    let server = Server::with(|config| config.threads = 2);
    for (number, code) in [1000, 1001, 3000].into_iter().enumerate() {
        let mut client = WebSocket::connect(&server, V5, "ann");
        // Packets before it are carried out.
        let mut bytes = frame_of(FIN | BINARY, &encoded(&Packet::PingReq, V5));
        bytes.extend(frame_of(FIN | CLOSE, &u16::to_be_bytes(code)));
        client.send_bytes(&bytes);
        assert_eq!(client.recv(), Packet::PingResp);
        client.expect_close(code);
        expect_count(ended, &server, "lost", number as u64 + 1);
    }
    let mut client = WebSocket::open(&server);
    client.send_bytes(&frame_of(FIN | CLOSE, b""));
    assert_eq!(client.recv_frame(), Some((CLOSE, vec![])));
    assert_eq!(client.recv_frame(), None);
    expect_count(refused, &server, "closed_by_peer", 1);
}

#[test]
fn a_disconnect_closes_the_websocket_in_order() {
    let server = Server::start();
    let mut client = WebSocket::connect(&server, V5, "ann");
    client.send(&Packet::Disconnect(disconnect(ReasonCode::SUCCESS)));
    client.expect_close(1000);
    expect_count(ended, &server, "client", 1);
}

#[test]
fn packets_before_a_close_or_an_invalid_frame_count_even_if_they_take_many_turns() {
    /// Packets in one read that take more work than a turn's share.
    const PINGS: usize = 8_000;
    let server = Server::with(|config| config.threads = 1);
    let mut watcher = Client::connect(&server, V5, "watcher");
    watcher.subscribe("#", QoS::AtMostOnce);
    let pings = encoded(&Packet::PingReq, V5).repeat(PINGS);
    let last = encoded(&Packet::Publish(publish("last", b"")), V5);
    let farewell = encoded(&Packet::Disconnect(disconnect(ReasonCode::SUCCESS)), V5);
    for end in [frame_of(FIN | CLOSE, &[3, 0xE8]), frame_of(FIN | TEXT, b"x")] {
        let mut client = WebSocket::open(&server);
        let will = Some(will("will", b""));
        client.send(&Packet::Connect(Connect { will, ..connect(V5, "ann") }));
        assert_eq!(client.recv().packet_type(), PacketType::ConnAck);
        let packets = [&pings[..], &last, &farewell].concat();
        client.send_bytes(&[frame_of(FIN | BINARY, &packets), end].concat());
        for _ in 0..PINGS {
            assert_eq!(client.recv(), Packet::PingResp);
        }
        client.expect_close(1000);
        assert_eq!(watcher.recv_publish().topic, "last");
    }
    expect_count(ended, &server, "client", 2);
    watcher.expect_nothing();
}

#[test]
fn a_frame_that_breaks_the_rules_is_closed_with_its_code() {
    //= [MQTT-6.0.0-1] v5 v3.1.1
    let server = Server::with(|config| config.threads = 2);
    let pair = Pair::start(&server);
    let connect = |id| encoded(&Packet::Connect(connect(V5, id)), V5);
    let mut not_masked = frame_of(FIN | BINARY, b"");
    not_masked[1] &= 0x7F;
    let bad = [
        (frame_of(FIN | TEXT, &connect("text")), 1003),
        (not_masked, 1002),
        (frame_of(FIN | BINARY | 0x40, b"x"), 1002),
        (frame_of(FIN | 3, b"x"), 1002),
        (frame_of(FIN | CONTINUATION, b"x"), 1002),
        (frame_of(PING, b"x"), 1002),
        (frame_of(FIN | PING, &[0; 126]), 1002),
        (frame_of(FIN | CLOSE, &[3]), 1002),
        (frame_of(FIN | CLOSE, &[3, 0xE8, 0xFF]), 1007),
        (vec![FIN | BINARY, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1002),
    ];
    let count = bad.len() as u64;
    for (bytes, code) in bad {
        let mut stranger = WebSocket::open(&server);
        stranger.send_bytes(&bytes);
        stranger.expect_close(code);
        let mut client = WebSocket::connect(&server, V5, "ann");
        client.send_bytes(&bytes);
        client.expect_close(code);
    }
    expect_count(refused, &server, "websocket_frame", count);
    expect_count(ended, &server, "websocket_frame", count);
    expect_clients(&server, 2);
    pair.finish();
}

#[test]
fn a_protocol_error_is_answered_before_the_websocket_is_closed() {
    let server = Server::start();
    let mut client = WebSocket::connect(&server, V5, "ann");
    // Also when the client closes in the same breath.
    client.send_bytes(&[frame_of(FIN | BINARY, &[0, 0]), frame_of(FIN | CLOSE, &[3, 0xE8])].concat());
    let Packet::Disconnect(answer) = client.recv() else { panic!("no DISCONNECT") };
    assert_eq!(answer.reason, ReasonCode::MALFORMED_PACKET);
    client.expect_close(1000);
    expect_count(ended, &server, "malformed_packet", 1);
}

#[test]
fn what_is_no_handshake_is_refused_with_an_http_answer() {
    //= [MQTT-6.0.0-4] v5 v3.1.1
    let server = Server::with(|config| config.limits.http_head_bytes_max = 1000);
    let pair = Pair::start(&server);
    let good = request("/mqtt", "mqtt");
    let bad = [
        (request("/", "mqtt"), "404"),
        (request("/mqtt/", "mqtt"), "404"),
        (request("/mqtt", "chat"), "400"),
        (good.replace("Sec-WebSocket-Protocol: mqtt\r\n", ""), "400"),
        (good.replace("GET", "POST"), "405"),
        (good.replace("HTTP/1.1", "HTTP/1.0"), "400"),
        (good.replace("Upgrade: websocket\r\n", ""), "426"),
        (good.replace("Version: 13", "Version: 8"), "426"),
        (good.replace("dGhl", ""), "400"),
        (good.replace("Host: localhost\r\n", ""), "400"),
        (good.replace("Host", &format!("Cookie: {}\r\nHost", "x".repeat(2000))), "431"),
        // A header that never ends is too large at some time.
        (format!("GET /mqtt HTTP/1.1\r\nA: {}", "x".repeat(2000)), "431"),
        ("\0\0\0\0".to_owned(), "400"),
    ];
    let count = bad.len() as u64;
    for (request, status) in bad {
        let stream = TcpStream::connect(server.ws()).unwrap();
        send_anyway(&stream, request.as_bytes());
        let answer = String::from_utf8(half_close(&stream)).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
        assert!(answer.ends_with(".\n"), "a sentence: {answer}");
    }
    expect_count(refused, &server, "websocket_handshake", count);
    pair.finish();
}

#[test]
fn a_handshake_that_is_cut_off_is_counted() {
    let server = Server::start();
    let good = request("/mqtt", "mqtt");
    for cut in [1, 10, good.len() - 1] {
        let stream = TcpStream::connect(server.ws()).unwrap();
        send_anyway(&stream, &good.as_bytes()[..cut]);
        assert_eq!(half_close(&stream), b"");
    }
    // And one that ends before the CONNECT.
    let stream = TcpStream::connect(server.ws()).unwrap();
    send_anyway(&stream, good.as_bytes());
    assert!(half_close(&stream).starts_with(b"HTTP/1.1 101 "));
    expect_count(refused, &server, "closed_by_peer", 4);
}

#[test]
fn large_messages_pass_both_ways() {
    let server = Server::with(|config| {
        config.threads = 2;
        config.limits.packet_size_max = 16 * 1024 * 1024;
    });
    let mut browser = WebSocket::connect(&server, V5, "browser");
    let mut subscribe = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, [("down", Default::default())], V5, &mut subscribe);
    browser.send_bytes(&frame_of(FIN | BINARY, &subscribe));
    assert_eq!(browser.recv().packet_type(), PacketType::SubAck);
    let mut device = Client::connect(&server, V311, "device");
    device.subscribe("up", QoS::AtMostOnce);
    let mut rng = Rng(4);
    for len in [0, 125, 126, 65_535, 65_536, 1_000_000, 8_000_000] {
        let payload = rng.bytes(len);
        browser.send(&Packet::Publish(publish("up", &payload)));
        assert!(device.recv_publish().payload == payload, "{len} up");
        device.send(&Packet::Publish(publish("down", &payload)));
        let Packet::Publish(message) = browser.recv() else { panic!("no PUBLISH") };
        assert!(message.payload == payload, "{len} down");
    }
}

#[test]
fn a_flood_to_a_websocket_arrives_whole_and_in_order_with_pings_in_between() {
    const COUNT: u64 = 20_000;
    let server = Server::with(|config| config.threads = 2);
    let mut browser = WebSocket::connect(&server, V5, "browser");
    let mut subscribe = Vec::new();
    encode::subscribe(id(1), Properties::EMPTY, [("t", Default::default())], V5, &mut subscribe);
    browser.send_bytes(&frame_of(FIN | BINARY, &subscribe));
    assert_eq!(browser.recv().packet_type(), PacketType::SubAck);
    let device = Client::connect(&server, V311, "device");
    let publisher = std::thread::spawn(move || {
        send_anyway(device.stream(), &flood("t", COUNT, 300, V311));
        device
    });
    let (mut bytes, mut numbers, mut pongs) = (Vec::new(), 0, 0);
    while numbers < COUNT || pongs < 50 {
        if pongs < 50 {
            browser.send_bytes(&frame_of(FIN | PING, b"?"));
        }
        let Some((opcode, payload)) = browser.recv_frame() else { panic!("closed after {numbers}") };
        if opcode == PONG {
            pongs += 1;
            continue;
        }
        bytes.extend(payload);
        let mut at = 0;
        while let Ok(found) = millrace_mqtt::frame(&bytes[at..], u32::MAX).unwrap() {
            let Ok(Packet::Publish(message)) = millrace_mqtt::decode(found.first, found.body, Some(V5))
            else {
                panic!("no PUBLISH")
            };
            assert_eq!(number_of(message.payload), numbers);
            numbers += 1;
            at += found.size;
        }
        bytes.drain(..at);
    }
    drop(publisher.join().unwrap());
}

#[test]
fn a_websocket_client_that_is_taken_over_gets_a_disconnect_and_is_closed() {
    let server = Server::with(|config| config.threads = 2);
    let mut first = WebSocket::connect(&server, V5, "ann");
    let _second = WebSocket::connect(&server, V5, "ann");
    let Packet::Disconnect(answer) = first.recv() else { panic!("no DISCONNECT") };
    assert_eq!(answer.reason, ReasonCode::SESSION_TAKEN_OVER);
    first.expect_close(1000);
    assert_eq!(read_to_close(&first.stream), b"");
}
