//! MQTT over WebSocket (section 6 of MQTT 3.1.1).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::Server;

const BINARY: u8 = 2;
const CLOSE: u8 = 8;

const CONNECT: &[u8] = b"\x10\x0F\0\x04MQTT\x04\x02\0\0\0\x03ann";
const CONNACK: &[u8] = b"\x20\x02\0\0";
const PINGREQ: &[u8] = b"\xC0\0";
const PINGRESP: &[u8] = b"\xD0\0";

/// A WebSocket on which the test decides every frame.
struct Socket {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Socket {
    /// The handshake, with this line for the subprotocol; the head of the server's answer.
    fn open(server: &Server, subprotocol: &str) -> (Self, String) {
        let stream = TcpStream::connect(server.ws()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut socket = Self { stream, received: Vec::new() };
        let request = format!(
            "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{subprotocol}\r\n"
        );
        socket.stream.write_all(request.as_bytes()).unwrap();
        let end = |socket: &Self| socket.received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        while end(&socket).is_none() {
            assert!(socket.fill(), "no whole answer: {:?}", String::from_utf8_lossy(&socket.received));
        }
        let head = socket.received.drain(..end(&socket).unwrap() + 4).collect();
        (socket, String::from_utf8(head).unwrap())
    }

    fn mqtt(server: &Server) -> Self {
        Self::open(server, "Sec-WebSocket-Protocol: mqtt\r\n").0
    }

    /// False at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut chunk = [0; 1024];
        let count = self.stream.read(&mut chunk).unwrap();
        self.received.extend_from_slice(&chunk[..count]);
        count > 0
    }

    /// Sends one whole, masked frame.
    fn send(&mut self, kind: u8, payload: &[u8]) {
        let mask = [0x12, 0x34, 0x56, 0x78];
        let mut bytes = vec![0x80 | kind, 0x80 | u8::try_from(payload.len()).unwrap()];
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next frame: its kind and payload.
    fn recv(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let [first, length @ 0..=125, rest @ ..] = &self.received[..]
                && let Some(payload) = rest.get(..usize::from(*length))
            {
                let frame = (first & 0x0F, payload.to_vec());
                self.received.drain(..2 + frame.1.len());
                return frame;
            }
            assert!(self.fill(), "closed without a whole frame: {:02x?}", self.received);
        }
    }

    /// These bytes of MQTT, in binary frames however they are cut.
    fn expect(&mut self, expected: &[u8]) {
        let mut got = Vec::new();
        while got.len() < expected.len() {
            let (kind, payload) = self.recv();
            assert_eq!(kind, BINARY, "{payload:02x?}");
            got.extend(payload);
        }
        assert_eq!(got, expected);
    }
}

#[test]
fn the_server_selects_the_subprotocol_mqtt() {
    //= [MQTT-6.0.0-4] [MQTT-6.0.0-3] v3.1.1 v5
    let server = Server::start();
    for offered in ["mqtt", "mqttv3.1, mqtt", "soap, mqtt, wamp"] {
        let (mut socket, head) = Socket::open(&server, &format!("Sec-WebSocket-Protocol: {offered}\r\n"));
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let chosen = head.lines().filter_map(|line| line.split_once(": "));
        let chosen: Vec<_> =
            chosen.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-protocol")).collect();
        assert!(matches!(chosen[..], [(_, "mqtt")]), "{head}");
        socket.send(BINARY, CONNECT);
        socket.expect(CONNACK);
    }
}

#[test]
fn packets_are_sent_in_binary_frames_and_any_other_data_frame_ends_the_connection() {
    //= [MQTT-6.0.0-1] v3.1.1 v5
    let server = Server::start();
    let mut socket = Socket::mqtt(&server);
    socket.send(BINARY, CONNECT);
    socket.expect(CONNACK);
    for (before, kind) in [(None, 1), (Some(CONNECT), 1), (Some(CONNECT), 3)] {
        let mut socket = Socket::mqtt(&server);
        if let Some(bytes) = before {
            socket.send(BINARY, bytes);
            socket.expect(CONNACK);
        }
        socket.send(kind, PINGREQ);
        assert_eq!(socket.recv().0, CLOSE);
        while socket.fill() {}
    }
}

#[test]
fn frames_need_not_be_cut_where_packets_are() {
    //= [MQTT-6.0.0-2] v3.1.1 v5
    let server = Server::start();
    let mut socket = Socket::mqtt(&server);
    for byte in CONNECT {
        socket.send(BINARY, &[*byte]);
    }
    socket.expect(CONNACK);
    socket.send(BINARY, &[PINGREQ, PINGREQ, &PINGREQ[..1]].concat());
    socket.send(BINARY, &[]);
    socket.send(BINARY, &[&PINGREQ[1..], PINGREQ].concat());
    socket.expect(&PINGRESP.repeat(4));
}
