//! The outbound buffer of one connection: encoded packets that its socket has not accepted yet.
//!
//! Small packets are copied into one growing tail, and long messages are shared by reference. The buffer also decides
//! whether a QoS 0 message still fits ([`Outbound::room`]).

mod answers;
mod pool;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use millrace_session::{Message, Out};

use self::answers::Answers;
pub(crate) use self::pool::Pool;
use crate::clock::Millis;
use crate::ws::frames;

/// A payload of at least this size, with its properties, is shared instead of copied.
const SHARE_BYTES_MIN: usize = 4096;
const WRITEV_PIECES_MAX: usize = 64;

#[derive(Debug)]
enum Chunk {
    Owned(Vec<u8>),
    Shared(Arc<Vec<u8>>),
    Body(Arc<Message>, bool),
    /// A WebSocket Close frame, after which nothing is sent.
    Close(Vec<u8>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) | Self::Close(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Body(message, with_properties) => message.body(*with_properties),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbound {
    chunks: VecDeque<Chunk>,
    tail: Vec<u8>,
    /// WebSocket: control frames that leave when no other frame is begun, all in one piece, because each ping may come alone.
    control: Vec<u8>,
    /// Written bytes of the first chunk, or of `tail` if there is no chunk.
    written: usize,
    len: usize,
    encrypted: usize,
    /// WebSocket: bytes left until another frame may begin.
    frame_left: usize,
    /// Time since which it is over the soft limit with a busy socket; 0: it is not.
    full_since: Millis,
    full_written: usize,
    /// When the busy socket accepted bytes for the last time.
    accepted_at: Millis,
    answers: Answers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboundRoom {
    Free,
    /// Over the soft limit for a short time: append, and pause reading from the publisher.
    Congested,
    /// Over half of the hard limit, or over the soft limit for `GRACE_MS` without draining: drop the message.
    Full,
}

/// How long a receiver over its soft limit may pause its publishers before it loses messages instead. The timer restarts
/// whenever the receiver has drained another soft limit's number of bytes, and stops below half of the soft limit. So a
/// receiver pauses its publishers for at most this time for each soft limit that it drains.
pub(crate) const GRACE_MS: Millis = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketFlush {
    All,
    Busy,
    /// As many bytes as one call may write.
    Enough,
}

impl Outbound {
    pub(crate) fn len(&self) -> usize {
        // Callers append to `tail` directly, so `len` lacks it.
        self.len + self.tail.len() - self.written
    }

    /// How many bytes [`Self::each_after`] skips to begin with those that are appended next.
    pub(crate) fn len_without_control(&self) -> usize {
        self.len() - self.control.len()
    }

    #[cfg(test)]
    pub(crate) fn addresses(&self) -> impl Iterator<Item = *const u8> {
        self.chunks.iter().map(|chunk| chunk.bytes().as_ptr())
    }

    pub(crate) fn held(&self) -> usize {
        self.len() + self.encrypted
    }

    /// Upper bound of the waiting bytes that are answers.
    pub(crate) fn answers(&self) -> usize {
        self.answers.bytes()
    }

    /// Counts the bytes after the first `before` waiting ones as answers.
    pub(crate) fn note_answers(&mut self, before: usize) {
        let len = self.len();
        self.answers.add(len.saturating_sub(before), len);
    }

    /// Whether a QoS 0 message may be appended while the socket is busy.
    pub(crate) fn room(&mut self, soft_bytes: usize, hard_bytes: usize, now: Millis) -> OutboundRoom {
        let len = self.held();
        if len < soft_bytes {
            return OutboundRoom::Free;
        }
        // The other half is for messages that publishers had sent before they were paused.
        if len > hard_bytes / 2 {
            return OutboundRoom::Full;
        }
        if self.full_since == 0 {
            (self.full_since, self.full_written) = (now.max(1), 0);
        }
        if now - self.full_since < GRACE_MS { OutboundRoom::Congested } else { OutboundRoom::Full }
    }

    pub(crate) fn waits_since(&self) -> Millis {
        self.accepted_at
    }

    /// The socket has accepted some bytes and is busy again; TLS holds `encrypted` bytes that it has not accepted.
    pub(crate) fn note_written(&mut self, written: usize, encrypted: usize, soft_bytes: usize, now: Millis) {
        self.encrypted = encrypted;
        if written > 0 || self.accepted_at == 0 {
            self.accepted_at = now;
        }
        self.full_written += written;
        if self.held() < soft_bytes / 2 {
            self.full_since = 0;
        } else if self.full_since != 0 && self.full_written >= soft_bytes {
            (self.full_since, self.full_written) = (now.max(1), 0);
        }
    }

    /// Calls `on_bytes` with the MQTT bytes after the first `skip` waiting ones, which must include all headers of frames.
    pub(crate) fn each_after(&self, skip: usize, mut on_bytes: impl FnMut(&[u8])) {
        let mut skip = skip + self.written;
        let chunks = self.chunks.iter().map(|chunk| (chunk.bytes(), matches!(chunk, Chunk::Close(_))));
        for (bytes, is_close) in chunks.chain([(&self.tail[..], false)]) {
            let from = skip.min(bytes.len());
            skip -= from;
            if !is_close && from < bytes.len() {
                on_bytes(&bytes[from..]);
            }
        }
    }

    fn seal_tail(&mut self) {
        if !self.tail.is_empty() {
            self.len += self.tail.len();
            self.chunks.push_back(Chunk::Owned(std::mem::take(&mut self.tail)));
        }
    }

    fn push(&mut self, chunk: Chunk) {
        // `written` counts in the first piece, which stays first when the tail becomes a chunk.
        self.seal_tail();
        self.len += chunk.bytes().len();
        self.chunks.push_back(chunk);
    }

    pub(crate) fn push_shared(&mut self, bytes: &Arc<Vec<u8>>) {
        self.push(Chunk::Shared(bytes.clone()));
    }

    pub(crate) fn push_control(&mut self, frames: &[u8]) {
        self.len += frames.len();
        self.answers.moved_back(frames.len());
        self.control.extend_from_slice(frames);
    }

    pub(crate) fn push_close(&mut self, frame: Vec<u8>) {
        self.push(Chunk::Close(frame));
    }

    pub(crate) fn flush(
        &mut self,
        socket: &mut impl Write,
        websocket: bool,
        most: usize,
    ) -> io::Result<(usize, SocketFlush)> {
        let mut total = 0;
        loop {
            if self.len() == 0 {
                // TLS may hold bytes that the socket has not accepted.
                return match socket.flush() {
                    Ok(()) => Ok((total, SocketFlush::All)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((total, SocketFlush::Busy)),
                    Err(error) => Err(error),
                };
            }
            if total >= most {
                return Ok((total, SocketFlush::Enough));
            }
            if websocket && self.frame_left == 0 {
                self.begin_frame();
            }
            let limit = if websocket { self.frame_left.min(most - total) } else { most - total };
            let (offered, result) = self.write_once(socket, limit);
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    total += n;
                    self.advance(n);
                    self.answers.written(n);
                    self.frame_left = self.frame_left.saturating_sub(n);
                    // The socket accepted fewer bytes than offered: its buffer is full, and epoll wakes the core when
                    // it has room.
                    if n < offered {
                        self.compact();
                        return Ok((total, SocketFlush::Busy));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((total, SocketFlush::Busy));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write_once(&self, socket: &mut impl Write, limit: usize) -> (usize, io::Result<usize>) {
        if self.chunks.is_empty() {
            let bytes = &self.tail[self.written..];
            let bytes = &bytes[..bytes.len().min(limit)];
            return (bytes.len(), socket.write(bytes));
        }
        let mut slices = [IoSlice::new(&[]); WRITEV_PIECES_MAX];
        let (mut used, mut offered, mut skip) = (0, 0, self.written);
        let pieces = self.chunks.iter().map(Chunk::bytes).chain([&self.tail[..]]);
        for piece in pieces {
            let piece = &piece[skip..];
            skip = 0;
            let piece = &piece[..piece.len().min(limit - offered)];
            if piece.is_empty() {
                continue;
            }
            slices[used] = IoSlice::new(piece);
            offered += piece.len();
            used += 1;
            if used == WRITEV_PIECES_MAX || offered == limit {
                break;
            }
        }
        (offered, socket.write_vectored(&slices[..used]))
    }

    fn advance(&mut self, mut n: usize) {
        n += self.written;
        self.written = 0;
        while let Some(chunk) = self.chunks.front() {
            let len = chunk.bytes().len();
            if n < len {
                self.written = n;
                return;
            }
            n -= len;
            self.len -= len;
            self.chunks.pop_front();
        }
        self.written = n;
        if n == self.tail.len() {
            self.tail.clear();
            self.written = 0;
        }
    }

    /// Frees the written part of a tail that keeps growing because its socket is never quite drained.
    fn compact(&mut self) {
        if self.chunks.is_empty() && self.written > self.tail.len() / 2 {
            self.drop_written();
        }
    }

    /// Inserts the control frames and the header of a binary frame, which contains everything up to a Close frame.
    fn begin_frame(&mut self) {
        // A frame ended inside this piece: the written bytes belong to that frame.
        self.drop_written();
        let close = match self.chunks.back() {
            Some(Chunk::Close(frame)) => frame.len(),
            _ => 0,
        };
        let mut head = std::mem::take(&mut self.control);
        let control = head.len();
        let data = self.len() - control - close;
        if data > 0 {
            frames::header(data, &mut head);
            self.len += head.len() - control;
            self.answers.moved_back(head.len() - control);
        }
        if !head.is_empty() {
            self.chunks.push_front(Chunk::Owned(head));
        }
        self.frame_left = self.len();
    }

    /// Makes `written` zero, so that bytes can be inserted in front.
    fn drop_written(&mut self) {
        let written = std::mem::take(&mut self.written);
        if written == 0 {
            return;
        }
        match self.chunks.front_mut() {
            Some(chunk) => {
                let rest = chunk.bytes()[written..].to_vec();
                *chunk = Chunk::Owned(rest);
                self.len -= written;
            }
            None => drop(self.tail.drain(..written)),
        }
    }

    fn reset(&mut self) {
        self.chunks.clear();
        self.tail.clear();
        self.control.clear();
        (self.written, self.len, self.encrypted, self.frame_left) = (0, 0, 0, 0);
        (self.full_since, self.full_written, self.accepted_at) = (0, 0, 0);
        self.answers = Answers::default();
    }
}

/// The buffer of one connection while the core works on it.
pub(crate) struct OutboundSlot<'a> {
    pub(crate) slot: &'a mut Option<Box<Outbound>>,
    pub(crate) pool: &'a mut Pool,
    pub(crate) dirty: &'a mut Vec<u32>,
    pub(crate) connection: u32,
    pub(crate) busy: bool,
    pub(crate) soft_bytes: usize,
}

impl OutboundSlot<'_> {
    /// A connection has a buffer exactly while it is in `dirty` or `CoreWork::unwritten`, or its socket is busy.
    #[inline]
    pub(crate) fn outbound(&mut self) -> &mut Outbound {
        if self.slot.is_none() {
            self.dirty.push(self.connection);
        }
        self.slot.get_or_insert_with(|| self.pool.take())
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slot.as_ref().map_or(0, |outbound| outbound.len())
    }

    #[inline]
    pub(crate) fn note_answers(&mut self, before: usize) {
        if let Some(outbound) = self.slot {
            outbound.note_answers(before);
        }
    }
}

impl Out for OutboundSlot<'_> {
    #[inline]
    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.outbound().tail
    }

    fn body(&mut self, message: &Arc<Message>, with_properties: bool) {
        let (outbound, body) = (self.outbound(), message.body(with_properties));
        if body.len() < SHARE_BYTES_MIN {
            outbound.tail.extend_from_slice(body);
        } else {
            outbound.push(Chunk::Body(message.clone(), with_properties));
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.busy && self.is_enough()
    }

    #[inline]
    fn is_enough(&self) -> bool {
        self.slot.as_ref().is_some_and(|outbound| outbound.held() >= self.soft_bytes)
    }
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
