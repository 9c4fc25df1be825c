//! WebSocket frames (RFC 6455 section 5) on the server's side. `ws` feeds the [`Decoder`] with what
//! it reads from a socket, and writes frames with [`header`], [`pong`] and [`close`].
//!
//! The decoder works in the read buffer: it unmasks in place and closes the gaps that frame headers
//! leave, so that MQTT gets one run of bytes and nothing is allocated. It accepts lengths in longer
//! forms than needed, because they are unambiguous.

use std::ops::{ControlFlow, Range};

/// Longest payload of a control frame (RFC 6455 section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Stands for a close frame without a code, in [`ControlFrame::Close`] and [`close`] (RFC 6455
/// section 7.4.1).
pub const CLOSE_WITHOUT_CODE: u16 = 1005;

pub const NORMAL_CLOSE: u16 = 1000;

/// A violation of the protocol, which ends the connection. Counters use the variant names as
/// reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the client sent a websocket text frame; MQTT packets go into binary frames")]
    Text,
    #[error("the client sent a websocket frame without mask")]
    NotMasked,
    #[error("the client used a websocket extension that was not agreed on")]
    ReservedBits,
    #[error("the client sent a websocket frame with an unknown opcode")]
    Opcode,
    #[error("the client sent a websocket fragment out of order")]
    Fragment,
    #[error("the client sent a websocket control frame that is too long or in fragments")]
    Control,
    #[error("the client sent a websocket close frame with a wrong code")]
    CloseCode,
    #[error("the client sent a websocket close reason that is not UTF-8")]
    CloseReason,
    #[error("the client sent a websocket frame of an impossible length")]
    Length,
    #[error("the client sent a websocket frame that is too large")]
    TooLarge,
}

impl FrameError {
    pub fn close_code(self) -> u16 {
        match self {
            //= [MQTT-6.0.0-1] v5 v3.1.1
            Self::Text => 1003,
            Self::CloseReason => 1007,
            Self::TooLarge => 1009,
            _ => 1002,
        }
    }
}

/// A control frame, reported between the data before it and the data after it.
#[derive(Debug, PartialEq, Eq)]
pub enum ControlFrame<'a> {
    /// The caller answers with [`pong`] and the same payload.
    Ping(&'a [u8]),
    Pong,
    /// The caller handles the data before the frame, then answers with [`close`] and the same code.
    /// Later bytes are ignored.
    Close(u16),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes of MQTT at the begin of the buffer.
    pub data: usize,
    /// Bytes that the caller must put before the next read; they end the buffer. They belong to an
    /// incomplete frame header or control frame (138 at most), or follow the control frame at which
    /// the caller broke off.
    pub rest: Range<usize>,
    /// The connection must end after the data: send [`close`] with [`FrameError::close_code`].
    /// Later bytes are ignored.
    pub error: Option<FrameError>,
}

#[derive(Debug, Default)]
pub struct Decoder {
    /// Payload bytes of the current data frame that have not arrived yet.
    left: u64,
    /// The frame's mask, rotated so that its first byte belongs to the next payload byte.
    mask: [u8; 4],
    /// The last data frame was not the end of its message, so a continuation must follow.
    fragmented: bool,
    closed: bool,
}

impl Decoder {
    /// Decodes `buf`, which begins with the `rest` of the last call, up to a control frame at which
    /// `control` breaks off. Payload is returned before its frame is complete.
    ///
    /// `data_max` bounds a data frame, in bytes, but not MQTT packets: a packet may span frames,
    /// and a frame may hold many packets.
    pub fn decode(
        &mut self,
        buf: &mut [u8],
        data_max: u64,
        control: &mut impl FnMut(ControlFrame<'_>) -> ControlFlow<()>,
    ) -> Decoded {
        let mut data = 0;
        let mut at = 0;
        let error = self.decode_frames(buf, data_max, control, (&mut data, &mut at)).err();
        self.closed |= error.is_some();
        if self.closed {
            return Decoded { data, rest: data..data, error };
        }
        let rest = data..data + (buf.len() - at);
        buf.copy_within(at.., data);
        Decoded { data, rest, error }
    }

    fn decode_frames(
        &mut self,
        buf: &mut [u8],
        data_max: u64,
        control: &mut impl FnMut(ControlFrame<'_>) -> ControlFlow<()>,
        (data, at): (&mut usize, &mut usize),
    ) -> Result<(), FrameError> {
        while !self.closed {
            //= [MQTT-6.0.0-2] v5 v3.1.1
            let payload = *at..*at + self.payload_in(buf.len() - *at);
            *data += self.take(buf, payload.clone(), *data);
            *at = payload.end;
            let Some(head) = FrameHead::read(&buf[*at..]) else { break };
            self.check(&head, data_max)?;
            let end = *at + head.size;
            if head.opcode < 8 {
                self.left = head.payload;
                self.mask = head.mask;
                self.fragmented = !head.fin;
                *at = end;
                continue;
            }
            let Some(payload) = buf.get_mut(end..end + head.payload as usize) else { break };
            unmask(payload, head.mask);
            let flow = control(control_frame(head.opcode, payload)?);
            self.closed = head.opcode == CLOSE;
            *at = end + payload.len();
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn payload_in(&self, available: usize) -> usize {
        usize::try_from(self.left).map_or(available, |left| left.min(available))
    }

    fn take(&mut self, buf: &mut [u8], payload: Range<usize>, to: usize) -> usize {
        let len = payload.len();
        unmask(&mut buf[payload.clone()], self.mask);
        if payload.start != to {
            buf.copy_within(payload, to);
        }
        self.mask.rotate_left(len % 4);
        self.left -= len as u64;
        len
    }

    fn check(&self, head: &FrameHead, data_max: u64) -> Result<(), FrameError> {
        if head.reserved {
            return Err(FrameError::ReservedBits);
        }
        match head.opcode {
            TEXT => return Err(FrameError::Text),
            CONTINUATION if !self.fragmented => return Err(FrameError::Fragment),
            BINARY if self.fragmented => return Err(FrameError::Fragment),
            CONTINUATION | BINARY if head.payload >> 63 != 0 => return Err(FrameError::Length),
            CONTINUATION | BINARY if head.payload > data_max => return Err(FrameError::TooLarge),
            CLOSE..=PONG if !head.fin || head.payload > CONTROL_BYTES_MAX as u64 => {
                return Err(FrameError::Control);
            }
            CONTINUATION | BINARY | CLOSE..=PONG => {}
            _ => return Err(FrameError::Opcode),
        }
        if head.masked { Ok(()) } else { Err(FrameError::NotMasked) }
    }
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

struct FrameHead {
    fin: bool,
    reserved: bool,
    opcode: u8,
    masked: bool,
    mask: [u8; 4],
    payload: u64,
    size: usize,
}

impl FrameHead {
    /// `None` while the header is incomplete. A header without a mask is read to its end, so that
    /// it can be refused.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (&[first, second], after) = bytes.split_first_chunk()?;
        let (payload, after) = match second & 0x7F {
            126 => after.split_first_chunk().map(|(b, after)| (u64::from(u16::from_be_bytes(*b)), after))?,
            127 => after.split_first_chunk().map(|(b, after)| (u64::from_be_bytes(*b), after))?,
            short => (u64::from(short), after),
        };
        let masked = second & 0x80 != 0;
        let (mask, after) = match masked {
            true => after.split_first_chunk().map(|(b, after)| (*b, after))?,
            false => ([0; 4], after),
        };
        Some(Self {
            fin: first & FIN != 0,
            reserved: first & 0x70 != 0,
            opcode: first & 0x0F,
            masked,
            mask,
            payload,
            size: bytes.len() - after.len(),
        })
    }
}

/// Eight bytes at a time compile to vector instructions.
fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, tail) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in tail.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}

fn control_frame(opcode: u8, payload: &[u8]) -> Result<ControlFrame<'_>, FrameError> {
    match opcode {
        PING => Ok(ControlFrame::Ping(payload)),
        PONG => Ok(ControlFrame::Pong),
        _ if payload.is_empty() => Ok(ControlFrame::Close(CLOSE_WITHOUT_CODE)),
        _ => {
            let (code, reason) = payload.split_first_chunk().ok_or(FrameError::CloseCode)?;
            let code = u16::from_be_bytes(*code);
            // RFC 6455 section 7.4, and IANA's registry of close codes.
            if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
                return Err(FrameError::CloseCode);
            }
            std::str::from_utf8(reason).map_err(|_| FrameError::CloseReason)?;
            Ok(ControlFrame::Close(code))
        }
    }
}

/// Appends the head of a binary frame; the payload must follow.
pub fn header(payload_len: usize, out: &mut Vec<u8>) {
    //= [MQTT-6.0.0-1] v5 v3.1.1
    out.push(FIN | BINARY);
    match (u8::try_from(payload_len), u16::try_from(payload_len)) {
        (Ok(len @ 0..=125), _) => out.push(len),
        (_, Ok(len)) => {
            out.push(126);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(payload_len as u64).to_be_bytes());
        }
    }
}

/// Appends a close frame with as much of `reason` as fits; [`CLOSE_WITHOUT_CODE`] makes it empty.
pub fn close(code: u16, reason: &str, out: &mut Vec<u8>) {
    if code == CLOSE_WITHOUT_CODE {
        return out.extend_from_slice(&[FIN | CLOSE, 0]);
    }
    let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
    out.extend_from_slice(&[FIN | CLOSE, reason.len() as u8 + 2]);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}

pub fn pong(payload: &[u8], out: &mut Vec<u8>) {
    let payload = &payload[..payload.len().min(CONTROL_BYTES_MAX)];
    out.extend_from_slice(&[FIN | PONG, payload.len() as u8]);
    out.extend_from_slice(payload);
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
