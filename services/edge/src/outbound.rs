//! Bytes that wait to be written to one socket.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use millrace_session::{Message, Out};

use crate::clock::Millis;
use crate::ws::frames;

/// Payloads from here on are referred to instead of copied, bytes.
const SHARE_BYTES_MIN: usize = 4096;
/// Slices in one system call.
const SLICES_MAX: usize = 64;
/// Buffers with more capacity than this are not kept for reuse, bytes.
const KEEP_CAPACITY_MAX: usize = 256 * 1024;
/// Buffers kept for reuse by one core.
const POOL_MAX: usize = 128;

/// A piece of outbound bytes.
#[derive(Debug)]
enum Chunk {
    Owned(Vec<u8>),
    Shared(Arc<[u8]>),
    Payload(Arc<Message>),
    /// A whole WebSocket frame that must not stand inside another.
    Control(Vec<u8>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) | Self::Control(bytes) => bytes,
            Self::Shared(bytes) => bytes,
            Self::Payload(message) => message.payload(),
        }
    }
}

/// Bytes that wait to be written to one socket. A connection has one only while something waits.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    chunks: VecDeque<Chunk>,
    /// Comes after the chunks: where packets are appended.
    tail: Vec<u8>,
    /// Bytes of the first chunk (or of `tail` when there is none) that are written.
    written: usize,
    /// Bytes that wait, all in all.
    len: usize,
    /// WebSocket: bytes left of the frame that was begun.
    frame_left: usize,
    /// Since when it has been over the soft limit with a busy socket, 0 when it is not.
    full_since: Millis,
    /// Bytes written since then.
    full_written: usize,
    answers: Answers,
}

/// Answers among what waits. Messages stand between answers, so an exact count would need the position of each answer.
/// Two groups are enough: a group counts until its last answer is written, and the second group collects meanwhile. The
/// count so falls even while messages keep the buffer long.
#[derive(Debug, Default)]
struct Answers {
    first: Group,
    second: Group,
}

#[derive(Debug, Default)]
struct Group {
    /// Bytes of its answers.
    bytes: usize,
    /// Bytes to write until its last answer is written.
    left: usize,
}

impl Answers {
    fn bytes(&self) -> usize {
        self.first.bytes + self.second.bytes
    }

    /// Adds an answer of `bytes`, which ends `left` bytes behind what is written.
    fn add(&mut self, bytes: usize, left: usize) {
        if bytes == 0 {
            return;
        }
        let group = if self.first.bytes == 0 { &mut self.first } else { &mut self.second };
        group.bytes += bytes;
        group.left = left;
    }

    fn written(&mut self, bytes: usize) {
        for group in [&mut self.first, &mut self.second] {
            group.left = group.left.saturating_sub(bytes);
            if group.left == 0 {
                group.bytes = 0;
            }
        }
        if self.first.bytes == 0 {
            self.first = std::mem::take(&mut self.second);
        }
    }

    /// Something is put before all that waits.
    fn moved_back(&mut self, bytes: usize) {
        self.first.left += bytes;
        self.second.left += bytes;
    }
}

/// Whether a QoS 0 message may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// Over the soft limit for a moment only: append, and do not read the publisher for a while.
    Congested,
    /// Over the soft limit and hardly moving: drop.
    Full,
}

/// How long a receiver that is over its soft limit may hold up its publishers before it loses messages instead,
/// milliseconds. One that takes a soft limit's worth of bytes in that time has it anew, so no publisher is slowed below
/// that rate by a receiver.
pub(crate) const GRACE_MS: Millis = 1000;

/// How a flush ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Everything is written.
    All,
    /// The socket takes no more for now.
    Busy,
}

impl Outbound {
    pub(crate) fn len(&self) -> usize {
        // `tail` grows behind our back while packets are appended.
        self.len + self.tail.len() - self.written
    }

    /// Bytes of answers to the client that wait, at most.
    pub(crate) fn answers(&self) -> usize {
        self.answers.bytes()
    }

    /// Counts the bytes that were appended since `before` bytes waited as answers.
    pub(crate) fn note_answers(&mut self, before: usize) {
        let len = self.len();
        self.answers.add(len.saturating_sub(before), len);
    }

    /// Room for a QoS 0 message while the socket is busy.
    pub(crate) fn room(&mut self, soft_bytes: usize, hard_bytes: usize, now: Millis) -> Room {
        let len = self.len();
        if len < soft_bytes {
            return Room::Free;
        }
        // Half of the buffer is for messages that publishers had sent before they were paused.
        if len > hard_bytes / 2 {
            return Room::Full;
        }
        if self.full_since == 0 {
            (self.full_since, self.full_written) = (now.max(1), 0);
        }
        if now - self.full_since < GRACE_MS { Room::Congested } else { Room::Full }
    }

    /// The socket took some bytes and is busy again.
    pub(crate) fn note_progress(&mut self, written: usize, soft_bytes: usize, now: Millis) {
        self.full_written += written;
        if self.len() < soft_bytes / 2 {
            self.full_since = 0;
        } else if self.full_since != 0 && self.full_written >= soft_bytes {
            (self.full_since, self.full_written) = (now.max(1), 0);
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

    pub(crate) fn push_shared(&mut self, bytes: &Arc<[u8]>) {
        self.push(Chunk::Shared(bytes.clone()));
    }

    pub(crate) fn push_control(&mut self, frame: Vec<u8>) {
        self.push(Chunk::Control(frame));
    }

    /// Writes as much as the socket takes.
    pub(crate) fn flush(&mut self, socket: &mut impl Write, websocket: bool) -> io::Result<(usize, Flushed)> {
        let mut total = 0;
        loop {
            if self.len() == 0 {
                // TLS may hold what the socket did not take.
                return match socket.flush() {
                    Ok(()) => Ok((total, Flushed::All)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok((total, Flushed::Busy)),
                    Err(error) => Err(error),
                };
            }
            if websocket && self.frame_left == 0 {
                self.begin_frame();
            }
            let limit = if websocket { self.frame_left } else { usize::MAX };
            let (offered, result) = self.write_once(socket, limit);
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    total += n;
                    self.advance(n);
                    self.answers.written(n);
                    self.frame_left = self.frame_left.saturating_sub(n);
                    // Fewer than offered: the socket's buffer is full, and epoll will tell when it no longer is.
                    if n < offered {
                        self.compact();
                        return Ok((total, Flushed::Busy));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((total, Flushed::Busy)),
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
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
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
            if used == SLICES_MAX || offered == limit {
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

    /// Frees what is written of a tail that keeps growing because its socket is never quite drained.
    fn compact(&mut self) {
        if self.chunks.is_empty() && self.written > self.tail.len() / 2 {
            self.drop_written();
        }
    }

    /// Puts the header of a binary frame before everything that waits up to the next control frame.
    fn begin_frame(&mut self) {
        if let Some(Chunk::Control(frame)) = self.chunks.front() {
            self.frame_left = frame.len() - self.written;
            return;
        }
        let data = self.chunks.iter().take_while(|chunk| !matches!(chunk, Chunk::Control(_)));
        let mut len: usize = data.map(|chunk| chunk.bytes().len()).sum();
        if !self.chunks.iter().any(|chunk| matches!(chunk, Chunk::Control(_))) {
            len += self.tail.len();
        }
        // A frame that ended inside a piece: what is written of it is of that earlier frame.
        len -= self.written;
        self.drop_written();
        let mut header = Vec::with_capacity(10);
        frames::header(len, &mut header);
        self.frame_left = header.len() + len;
        self.len += header.len();
        self.answers.moved_back(header.len());
        self.chunks.push_front(Chunk::Owned(header));
    }

    /// Makes `written` zero, so that something can be put in front.
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
        (self.written, self.len, self.frame_left, self.full_since, self.full_written) = (0, 0, 0, 0, 0);
        self.answers = Answers::default();
    }
}

/// Empty buffers for reuse, so that idle connections have none.
#[derive(Debug, Default)]
#[allow(clippy::vec_box, reason = "connections hold boxes: a buffer moves in and out without being copied")]
pub(crate) struct Pool(Vec<Box<Outbound>>);

impl Pool {
    pub(crate) fn take(&mut self) -> Box<Outbound> {
        self.0.pop().unwrap_or_default()
    }

    pub(crate) fn give(&mut self, mut outbound: Box<Outbound>) {
        if self.0.len() < POOL_MAX && outbound.tail.capacity() <= KEEP_CAPACITY_MAX {
            outbound.reset();
            self.0.push(outbound);
        }
    }
}

/// The outbound side of one connection while the core works on it. The core writes the bytes at the end of the turn.
pub(crate) struct OutboundSlot<'a> {
    pub(crate) slot: &'a mut Option<Box<Outbound>>,
    pub(crate) pool: &'a mut Pool,
    /// Connections to flush at the end of the turn.
    pub(crate) dirty: &'a mut Vec<u32>,
    pub(crate) connection: u32,
    /// The socket takes no more for now.
    pub(crate) busy: bool,
    pub(crate) soft_bytes: usize,
}

impl OutboundSlot<'_> {
    /// The buffer. A connection has one exactly when it is in `dirty` or its socket is busy.
    #[inline]
    pub(crate) fn outbound(&mut self) -> &mut Outbound {
        if self.slot.is_none() {
            self.dirty.push(self.connection);
        }
        self.slot.get_or_insert_with(|| self.pool.take())
    }

    /// Bytes that wait.
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

    fn payload(&mut self, message: &Arc<Message>) {
        let outbound = self.outbound();
        if message.payload().len() < SHARE_BYTES_MIN {
            outbound.tail.extend_from_slice(message.payload());
        } else {
            outbound.push(Chunk::Payload(message.clone()));
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.busy && self.is_enough()
    }

    #[inline]
    fn is_enough(&self) -> bool {
        self.slot.as_ref().is_some_and(|outbound| outbound.len() >= self.soft_bytes)
    }
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
