//! Turns socket bytes into MQTT bytes: PROXY header, WebSocket handshake, WebSocket frames.

use std::ops::ControlFlow;

use millrace_session::Out;
use millrace_transport::addresses::Address;

use super::accept::COST;
use super::connection::ConnectionState;
use super::input::Rest;
use super::work::PACKET;
use super::{ConnectionEnd, Core, parts};
use crate::handover::{Transport, WebSocket, WebSocketEnd};
use crate::origin::Origin;
use crate::proxy;
use crate::ws::frames::{self, ControlFrame};
use crate::ws::handshake;

impl Core {
    /// Processes the packets in `bytes`. The bytes before `raw_from` are MQTT; from there on they are as the socket delivered them,
    /// with headers and frames. Returns the incomplete rest; `None`: nothing must be kept, perhaps because the connection is gone.
    pub(super) fn digest(&mut self, slot: u32, bytes: &mut [u8], raw_from: usize) -> Option<Rest> {
        let mut start = 0;
        let mut raw_from = raw_from;
        loop {
            let size = match self.connections[slot as usize].transport {
                Transport::Tcp => {
                    return self.packets(slot, bytes, start..bytes.len(), bytes.len()..bytes.len());
                }
                Transport::WebSocket(_) => return self.frames(slot, bytes, start, raw_from),
                Transport::Proxy => self.proxy_header(slot, &bytes[raw_from..])?,
                Transport::Either if raw_from < bytes.len() => {
                    // A CONNECT begins with 0x10, an HTTP request with a capital letter.
                    let is_http = bytes[raw_from].is_ascii_uppercase();
                    let transport = if is_http { Transport::Handshake } else { Transport::Tcp };
                    self.connections[slot as usize].transport = transport;
                    continue;
                }
                Transport::Either => 0,
                Transport::Handshake => self.handshake(slot, &bytes[raw_from..])?,
            };
            if size == 0 {
                return Some(Rest { mqtt: 0..0, raw: raw_from..bytes.len(), needed: 0 });
            }
            raw_from += size;
            start = raw_from;
        }
    }

    /// Returns the size of the PROXY header, 0 when it is incomplete; `None`: the connection is gone.
    fn proxy_header(&mut self, slot: u32, bytes: &[u8]) -> Option<usize> {
        match proxy::parse(bytes) {
            Ok(None) => Some(0),
            Ok(Some(header)) => {
                let address = match header.source {
                    Some(source) => self.admit_address(source.ip(), COST),
                    None => Some(Address::NONE),
                };
                let Some(address) = address else {
                    self.remove_connection(slot);
                    return None;
                };
                if let (Some(source), Some(times)) = (header.source, self.connects.times.get_mut(&slot)) {
                    times.address = Address::of(source.ip()).number();
                }
                let connection = &mut self.connections[slot as usize];
                connection.counted_for = address;
                connection.origin = Origin::of(&header).map(Box::new);
                connection.transport = Transport::Either;
                Some(header.size)
            }
            Err(error) => {
                if let Some(unlogged) = self.process.log_throttles.proxy_header.occurred(self.now_ms) {
                    tracing::info!(%error, unlogged, "a connection of the gateway was closed for its PROXY header");
                }
                self.counters().refused_proxy.add(1);
                self.remove_connection(slot);
                None
            }
        }
    }

    /// Returns the size of the handshake request, 0 when it is incomplete; `None`: the connection is being closed.
    fn handshake(&mut self, slot: u32, bytes: &[u8]) -> Option<usize> {
        let head_bytes_max = usize::from(self.process.limits.http_head_bytes_max);
        let connection = &self.connections[slot as usize];
        // At a listener on loopback the name in the request must be a loopback name, too (DNS rebinding). Clients of the gateway name
        // their broker by TLS, which a page cannot fake.
        let is_loopback = connection.origin.is_none()
            && connection.stream.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
        let parsed = handshake::parse(bytes, head_bytes_max, &self.process.config.ws_origins, is_loopback);
        let (response, head_len) = match parsed {
            Ok(None) => return Some(0),
            Ok(Some(upgrade)) => (upgrade.response, Some(upgrade.head_len)),
            Err(refusal) => {
                tracing::debug!(refusal.reason, "WebSocket handshake refused");
                self.counters().refused_handshake.add(1);
                (refusal.response, None)
            }
        };
        let (_, mut out, _) = parts!(self, slot);
        match head_len {
            Some(_) => out.outbound().push_control(&response),
            None => out.buffer().extend_from_slice(&response),
        }
        let connection = &mut self.connections[slot as usize];
        match head_len {
            Some(_) => connection.transport = Transport::WebSocket(Box::default()),
            None => connection.state = ConnectionState::Draining,
        }
        head_len
    }

    fn frames(&mut self, slot: u32, bytes: &mut [u8], start: usize, raw_from: usize) -> Option<Rest> {
        // A frame may have any size, because `packet_size_max` bounds the packets in it.
        let data_max = u64::MAX >> 1;
        let mut replies = Vec::new();
        let mut is_interrupted = false;
        let work = &mut self.work;
        let Transport::WebSocket(websocket) = &mut self.connections[slot as usize].transport else {
            return None;
        };
        let WebSocket { decoder, closing } = &mut **websocket;
        let mut on_control = |control: ControlFrame<'_>| {
            match control {
                ControlFrame::Ping(payload) => frames::pong(payload, &mut replies),
                ControlFrame::Pong => {}
                ControlFrame::Close(code) => *closing = Some(WebSocketEnd::Closed(code)),
            }
            work.spend(PACKET);
            is_interrupted = work.is_share_used();
            if is_interrupted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let decoded = decoder.decode(&mut bytes[raw_from..], data_max, &mut on_control);
        if let Some(error) = decoded.error {
            tracing::debug!(%error, "closing a WebSocket");
            *closing = Some(WebSocketEnd::InvalidFrame(error.close_code()));
        }
        let closing = *closing;
        let headers = bytes.len() - raw_from - decoded.data - decoded.rest.len();
        self.spend_checked(headers);
        self.push_control(slot, &replies);
        let data_end = raw_from + decoded.data;
        let raw = raw_from + decoded.rest.start..raw_from + decoded.rest.end;
        let rest = self.packets(slot, bytes, start..data_end, raw)?;
        if let Some(end) = closing {
            let is_paused = self.is_open(slot) && !self.connections[slot as usize].is_reading();
            if is_paused && !rest.mqtt.is_empty() {
                // The packets before the frame are processed first: a DISCONNECT among them removes the will.
                //= [MQTT-3.14.4-3] v5
                return Some(rest);
            }
            if self.is_open(slot) {
                let ended = match end {
                    WebSocketEnd::Closed(code) => ConnectionEnd::WebSocketClosed(code),
                    WebSocketEnd::InvalidFrame(code) => ConnectionEnd::Frame(code),
                };
                self.end(slot, ended, true);
            }
            return None;
        }
        if is_interrupted && !rest.raw.is_empty() {
            self.pause_for_work(slot);
        }
        Some(rest)
    }

    fn push_control(&mut self, slot: u32, frames: &[u8]) {
        if !frames.is_empty() {
            let (_, mut out, _) = parts!(self, slot);
            let before = out.len();
            out.outbound().push_control(frames);
            out.note_answers(before);
        }
    }
}
