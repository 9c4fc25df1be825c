//! A WebSocket client on which the test decides every frame.

use std::io::Read;
use std::net::TcpStream;

use millrace_mqtt::{Packet, Version, decode, frame};

use crate::common::{Server, connect};
use crate::tools::{PATIENCE, encoded, send_anyway};

pub(crate) const CONTINUATION: u8 = 0;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
/// Set in the first byte of a frame that ends its message.
pub(crate) const FIN: u8 = 0x80;

const MASK: [u8; 4] = [0x5A, 0x00, 0xFF, 0x13];

/// The bytes of a masked frame; `first` is FIN and opcode.
pub(crate) fn frame_of(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        len @ 0..=125 => bytes.push(0x80 | u8::try_from(len).unwrap()),
        len @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend(u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.into_iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// The request that opens a WebSocket.
pub(crate) fn request(path: &str, protocol: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\n\r\n"
    )
}

/// An open WebSocket.
pub(crate) struct WebSocket {
    pub(crate) stream: TcpStream,
    bytes: Vec<u8>,
    mqtt: Vec<u8>,
    version: Version,
}

impl WebSocket {
    /// Opens a WebSocket on a stream on which the server waits for the request.
    pub(crate) fn over(stream: TcpStream) -> Self {
        send_anyway(&stream, request("/mqtt", "mqtt").as_bytes());
        Self::requested(stream)
    }

    /// Takes the answer to a request that was sent.
    pub(crate) fn requested(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self { stream, bytes: Vec::new(), mqtt: Vec::new(), version: Version::V5 };
        let end = loop {
            if let Some(at) = client.bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(client.fill(), "closed instead of an answer");
        };
        let head = String::from_utf8(client.bytes.drain(..end).collect()).unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        client
    }

    /// An open WebSocket with nothing sent.
    pub(crate) fn open(server: &Server) -> Self {
        Self::over(TcpStream::connect(server.ws()).unwrap())
    }

    /// An accepted client.
    pub(crate) fn connect(server: &Server, version: Version, id: &str) -> Self {
        let mut client = Self::open(server);
        client.send(&Packet::Connect(connect(version, id)));
        let answer = client.recv();
        assert!(matches!(answer, Packet::ConnAck(connack) if !connack.reason.is_error()));
        client
    }

    fn fill(&mut self) -> bool {
        let mut chunk = [0; 64 * 1024];
        let count = self.stream.read(&mut chunk).unwrap_or(0);
        self.bytes.extend_from_slice(&chunk[..count]);
        count > 0
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        send_anyway(&self.stream, bytes);
    }

    /// Sends a packet in a frame of its own.
    pub(crate) fn send(&mut self, packet: &Packet<'_>) {
        if let Packet::Connect(connect) = packet {
            self.version = connect.version;
        }
        let bytes = encoded(packet, self.version);
        self.send_bytes(&frame_of(FIN | BINARY, &bytes));
    }

    /// The next frame: opcode and payload. `None` when the server closes.
    pub(crate) fn recv_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((size, opcode, payload)) = whole_frame(&self.bytes) {
                self.bytes.drain(..size);
                return Some((opcode, payload));
            }
            if !self.fill() {
                assert!(self.bytes.is_empty(), "closed within a frame");
                return None;
            }
        }
    }

    /// The next packet; frames in between must be binary.
    pub(crate) fn recv(&mut self) -> Packet<'static> {
        loop {
            if let Ok(found) = frame(&self.mqtt, u32::MAX).unwrap() {
                let size = found.size;
                let bytes: &'static [u8] = self.mqtt.drain(..size).collect::<Vec<u8>>().leak();
                let found = frame(bytes, u32::MAX).unwrap().unwrap();
                return decode(found.first, found.body, Some(self.version)).unwrap();
            }
            let (opcode, payload) = self.recv_frame().unwrap_or_else(|| panic!("closed instead of a packet"));
            assert_eq!(opcode, BINARY, "{payload:x?}");
            self.mqtt.extend(payload);
        }
    }

    /// A close frame with this code, then the close.
    pub(crate) fn expect_close(&mut self, code: u16) {
        assert_eq!(self.recv_frame(), Some((CLOSE, code.to_be_bytes().to_vec())));
        assert_eq!(self.recv_frame(), None);
    }
}

/// Size, opcode and payload of the frame at the start of `bytes`, which a server never masks or splits.
fn whole_frame(bytes: &[u8]) -> Option<(usize, u8, Vec<u8>)> {
    let (&[first, second], rest) = bytes.split_first_chunk()?;
    assert!(first & 0xF0 == FIN && second & 0x80 == 0, "{first:x} {second:x}");
    let (len, rest) = match second {
        126 => rest.split_first_chunk().map(|(len, rest)| (u64::from(u16::from_be_bytes(*len)), rest))?,
        127 => rest.split_first_chunk().map(|(len, rest)| (u64::from_be_bytes(*len), rest))?,
        len => (u64::from(len), rest),
    };
    let payload = rest.get(..usize::try_from(len).unwrap())?;
    Some((bytes.len() - rest.len() + payload.len(), first & 0x0F, payload.to_vec()))
}
