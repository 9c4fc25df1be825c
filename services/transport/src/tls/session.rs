//! One TLS connection over a non-blocking socket. Reads and writes behave like those of the socket:
//! `WouldBlock` without progress, and a short read when the socket has no more data.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus, WriteTraffic};
use rustls::{HandshakeKind, ServerConfig};

use super::encode::{encode, invalid};
use super::resolver::take_asked_name;

/// Bytes of ciphertext read at once, after the rest of an incomplete record.
const READ_BYTES: usize = 32 * 1024;
/// Bytes besides plaintext of 1,000 records, whose decryption takes 0.4 ms; a read ends after them.
const OVERHEAD_MAX: usize = 1_000 * 22;
const RECORD_MAX: usize = 5 + 16_384 + 2_048;
/// The longest handshake message with its records: five large certificates take a third of it.
const HANDSHAKE_MAX: usize = 2 * RECORD_MAX;
const WRITE_BYTES: usize = 4 * 16 * 1024;

/// Buffers that all connections of a thread share, because they are empty between calls.
struct Scratch {
    ciphertext: Vec<u8>,
    plaintext: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch { ciphertext: Vec::new(), plaintext: Vec::new() })
    };
}

#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    pub server_name: Option<Box<str>>,
    /// DER; the handshake proved that the client has the key.
    pub certificate: Option<Box<[u8]>>,
    pub is_resumed: bool,
}

pub struct TlsSession {
    tls: UnbufferedServerConnection,
    /// Ciphertext of an incomplete record, whose rest the peer has not sent yet.
    incomplete: Vec<u8>,
    /// Plaintext that did not fit into the caller's buffer.
    unread: Vec<u8>,
    unsent: Vec<u8>,
    /// Set from the handshake until [`TlsSession::take_peer`].
    server_name: Option<Box<str>>,
    stage: Stage,
    closed: bool,
    /// Data that came before the error is read first.
    has_failed: bool,
    /// The last read ended although the socket may have more.
    is_cut: bool,
    overhead: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Handshake,
    /// The handshake is over, and [`TlsSession::take_peer`] was not called yet.
    Introduced,
    Established,
}

impl Stage {
    fn end_handshake(&mut self) {
        if *self == Self::Handshake {
            *self = Self::Introduced;
        }
    }
}

impl std::fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSession")
            .field("stage", &self.stage)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl TlsSession {
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(config)?,
            incomplete: Vec::new(),
            unread: Vec::new(),
            unsent: Vec::new(),
            server_name: None,
            stage: Stage::Handshake,
            closed: false,
            has_failed: false,
            is_cut: false,
            overhead: 0,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.stage == Stage::Handshake
    }

    pub fn has_unread(&self) -> bool {
        self.closed || self.has_failed || self.is_cut || !self.unread.is_empty()
    }

    pub fn take_record_overhead(&mut self) -> usize {
        std::mem::take(&mut self.overhead)
    }

    pub fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    pub fn incomplete_bytes(&self) -> usize {
        self.incomplete.len()
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.incomplete.capacity() + self.unread.capacity() + self.unsent.capacity()
    }

    pub fn take_peer(&mut self) -> Option<Peer> {
        if self.stage != Stage::Introduced {
            return None;
        }
        self.stage = Stage::Established;
        let certificate = self.tls.peer_certificates().and_then(<[_]>::first);
        Some(Peer {
            server_name: self.server_name.take(),
            certificate: certificate.map(|certificate| certificate.as_ref().into()),
            is_resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Bounds ciphertext and records, too, because records may be empty or short.
    ///
    /// # Errors
    /// As for a non-blocking socket; `InvalidData` when the peer breaks the TLS protocol.
    pub fn read(&mut self, socket: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        let mut filled = self.take_unread(into);
        if self.has_failed && filled == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let (mut most, before) = (into.len() + READ_BYTES, self.overhead);
        self.is_cut = false;
        while filled < into.len() && !self.closed && !self.has_failed {
            if most == 0 || self.overhead - before > OVERHEAD_MAX {
                self.is_cut = true;
                return if filled > 0 { Ok(filled) } else { Err(io::ErrorKind::WouldBlock.into()) };
            }
            let result = SCRATCH.with_borrow_mut(|scratch| {
                self.read_once(socket, &mut scratch.ciphertext, into, &mut filled, &mut most)
            });
            match result {
                Ok(More::Perhaps) => {}
                // A peer that has closed sends nothing more, so no event would lead to another read.
                Ok(More::No) if filled > 0 || self.closed => return Ok(filled),
                Ok(More::No) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(error) => {
                    self.has_failed = true;
                    return if filled > 0 { Ok(filled) } else { Err(error) };
                }
            }
        }
        Ok(filled)
    }

    fn take_unread(&mut self, into: &mut [u8]) -> usize {
        let count = self.unread.len().min(into.len());
        into[..count].copy_from_slice(&self.unread[..count]);
        self.unread.drain(..count);
        if self.unread.is_empty() {
            self.unread = Vec::new();
        }
        count
    }

    fn read_once(
        &mut self,
        socket: &mut (impl Read + Write),
        scratch: &mut Vec<u8>,
        into: &mut [u8],
        filled: &mut usize,
        most: &mut usize,
    ) -> io::Result<More> {
        scratch.resize(HANDSHAKE_MAX + READ_BYTES, 0);
        let held = self.incomplete.len();
        scratch[..held].copy_from_slice(&self.incomplete);
        // Plaintext is shorter than its ciphertext, so it fits, unless `into` has hardly any room.
        let room = (into.len() - *filled).clamp(1024, READ_BYTES).min(*most);
        let count = match socket.read(&mut scratch[held..held + room]) {
            Ok(0) => {
                self.closed = true;
                return Ok(More::Perhaps);
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(More::Perhaps),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(More::No),
            Err(error) => return Err(error),
        };
        *most -= count;
        let before = *filled + self.unread.len();
        let processed = self.process(&mut scratch[..held + count], into, filled);
        let plaintext = *filled + self.unread.len() - before;
        self.overhead += processed.as_ref().map_or(0, |used| used.saturating_sub(plaintext));
        // Sent even after a failed handshake, because the alert says why it failed.
        let sent = self.send(socket);
        let left = processed?;
        sent?;
        let rest = &scratch[left..held + count];
        let most = if self.stage == Stage::Handshake { HANDSHAKE_MAX } else { RECORD_MAX };
        if rest.len() > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.incomplete = rest.to_vec();
        Ok(if count == room { More::Perhaps } else { More::No })
    }

    /// Decrypts `bytes` into `into` from `filled` on and queues answers in `unsent`; returns how
    /// many of `bytes` rustls has used.
    fn process(&mut self, bytes: &mut [u8], into: &mut [u8], filled: &mut usize) -> io::Result<usize> {
        let mut start = 0;
        loop {
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(&mut bytes[start..]);
            // Before any error returns, because a name that stays behind would be taken for that of the
            // thread's next client.
            if let Some(name) = take_asked_name() {
                self.server_name = Some(name);
            }
            let mut is_done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    // Data may come with the end of the handshake, before rustls says that it may be answered.
                    self.stage.end_handshake();
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid)?;
                        discard += record.discard;
                        let fits = record.payload.len().min(into.len() - *filled);
                        let (now, later) = record.payload.split_at(fits);
                        into[*filled..*filled + fits].copy_from_slice(now);
                        *filled += fits;
                        self.unread.extend_from_slice(later);
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.unsent, |out| data.encode(out))?;
                }
                // The caller sends `unsent` later.
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(_)) => {
                    self.stage.end_handshake();
                    is_done = true;
                }
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.closed = true;
                    is_done = true;
                }
                Ok(_) => is_done = true,
                Err(error) => {
                    self.encode_alert();
                    return Err(invalid(error));
                }
            }
            start += discard;
            if is_done {
                return Ok(start);
            }
        }
    }

    fn encode_alert(&mut self) {
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = self.tls.process_tls_records(&mut []).state {
            let _ = encode(&mut self.unsent, |out| data.encode(out));
        }
    }

    /// Returns the number of bytes taken: all of them, unless the socket is busy.
    pub fn write(&mut self, socket: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(socket)?;
        let (mut total, mut pieces) = (0, slices.iter().map(|slice| &**slice));
        let mut rest: &[u8] = &[];
        while self.unsent.is_empty() {
            let count = SCRATCH.with_borrow_mut(|scratch| {
                let plaintext = &mut scratch.plaintext;
                plaintext.clear();
                while plaintext.len() < WRITE_BYTES {
                    if rest.is_empty() {
                        let Some(next) = pieces.next() else { break };
                        rest = next;
                    }
                    let (now, later) = rest.split_at(rest.len().min(WRITE_BYTES - plaintext.len()));
                    plaintext.extend_from_slice(now);
                    rest = later;
                }
                self.encrypt(plaintext).map(|()| plaintext.len())
            })?;
            if count == 0 {
                break;
            }
            total += count;
            self.send(socket)?;
        }
        Ok(total)
    }

    fn encrypt(&mut self, plaintext: &[u8]) -> io::Result<()> {
        let unsent = &mut self.unsent;
        let mut encrypt =
            |mut traffic: WriteTraffic<'_, _>| encode(unsent, |out| traffic.encrypt(plaintext, out));
        match self.tls.process_tls_records(&mut []).state.map_err(invalid)? {
            ConnectionState::WriteTraffic(traffic) => encrypt(traffic),
            ConnectionState::TransmitTlsData(mut data) => match data.may_encrypt_app_data() {
                Some(traffic) => encrypt(traffic),
                None => Err(io::ErrorKind::NotConnected.into()),
            },
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns `WouldBlock` until the socket has taken all bytes.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        self.send(socket)?;
        if !self.unsent.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    }

    fn send(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match socket.write(&self.unsent[sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if sent == self.unsent.len() {
            self.unsent = Vec::new();
        } else {
            self.unsent.drain(..sent);
        }
        Ok(())
    }

    pub fn close(&mut self, socket: &mut impl Write) {
        if self.stage != Stage::Handshake
            && let Ok(ConnectionState::WriteTraffic(mut traffic)) =
                self.tls.process_tls_records(&mut []).state
        {
            let _ = encode(&mut self.unsent, |out| traffic.queue_close_notify(out));
        }
        let _ = self.send(socket);
    }
}

enum More {
    Perhaps,
    No,
}
