//! The CONNACK: limits and features that a server announces (MQTT 5.0 section 3.2).

use millrace_mqtt::{ConnAck, Packet, Properties, Property, ReasonCode, Version, encode};

use crate::{Connection, Out, Session, SessionSettings};

#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    pub session_present: bool,
    pub assigned_client_id: Option<&'a str>,
    pub requested_expiry_s: u32,
    pub granted_expiry_s: u32,
    pub authentication_data: Option<&'a [u8]>,
}

impl Connection {
    //= [MQTT-3.2.0-1] [MQTT-3.1.4-5] v5
    //= [MQTT-3.1.4-4] [MQTT-3.2.0-1] v3.1.1
    pub fn accept(&mut self, accept: &Accept<'_>, settings: &SessionSettings, out: &mut impl Out) {
        self.encode_accept(accept, settings, out);
        self.open(accept.requested_expiry_s > 0);
    }

    /// False when the CONNACK of [`Connection::accept`] would exceed the client's Maximum Packet Size, so that the client can
    /// only be refused.
    //= [MQTT-3.1.2-24] v5
    pub fn takes_accept(&self, accept: &Accept<'_>, settings: &SessionSettings) -> bool {
        if !self.has_packet_size_max() {
            return true;
        }
        let mut connack = Vec::new();
        self.encode_accept(accept, settings, &mut connack);
        connack.len() <= self.packet_size_max()
    }

    fn encode_accept(&self, accept: &Accept<'_>, settings: &SessionSettings, out: &mut impl Out) {
        let mut properties = Vec::new();
        if self.version() == Version::V5 {
            self.accept_properties(accept, settings, &mut properties);
        }
        let connack = ConnAck {
            //= [MQTT-3.2.2-2] [MQTT-3.2.2-3] v5 v3.1.1
            //= [MQTT-3.2.2-1] v3.1.1
            session_present: accept.session_present && self.version() != Version::V31,
            reason: ReasonCode::SUCCESS,
            properties: Properties::from_validated(&properties),
        };
        encode::packet(&Packet::ConnAck(connack), self.version(), out.buffer());
    }

    fn accept_properties(&self, accept: &Accept<'_>, settings: &SessionSettings, out: &mut Vec<u8>) {
        if accept.granted_expiry_s != accept.requested_expiry_s {
            Property::SessionExpiryInterval(accept.granted_expiry_s).encode(out);
        }
        Property::ReceiveMaximum(settings.receive_maximum).encode(out);
        Property::MaximumPacketSize(settings.packet_size_max).encode(out);
        //= [MQTT-3.2.2-16] v5
        if let Some(client_id) = accept.assigned_client_id {
            Property::AssignedClientIdentifier(client_id).encode(out);
        }
        if settings.topic_alias_max > 0 {
            Property::TopicAliasMaximum(settings.topic_alias_max).encode(out);
        }
        //= [MQTT-3.1.2-21] [MQTT-3.2.2-22] v5
        if self.keep_alive_s() != self.requested_keep_alive_s() {
            Property::ServerKeepAlive(self.keep_alive_s()).encode(out);
        }
        self.authentication_properties(accept.authentication_data, settings, out);
    }

    /// The caller then closes the connection.
    //= [MQTT-3.2.2-7] v5
    //= [MQTT-3.2.2-5] v3.1.1
    pub fn refuse(&mut self, reason: ReasonCode, what: &str, out: &mut impl Out) {
        refusal(self.version(), reason, what, None, self.packet_size_max(), out);
    }

    /// Like [`Connection::refuse`], with a Server Reference for 5.0 clients.
    pub fn refuse_to(
        &mut self,
        reason: ReasonCode,
        what: &str,
        server_reference: Option<&str>,
        out: &mut impl Out,
    ) {
        refusal(self.version(), reason, what, server_reference, self.packet_size_max(), out);
    }
}

const PLAIN_CONNACK_BYTES: usize = 5;
/// Most bytes of a 5.0 CONNACK or DISCONNECT without its properties.
const FRAME_BYTES: usize = 13;

/// The properties of the last packet before the server closes, as far as the client accepts their size.
//= [MQTT-3.1.2-24] v5
pub(crate) fn closing_properties(
    server_reference: Option<&str>,
    what: &str,
    packet_size_max: usize,
) -> Vec<u8> {
    let reference = server_reference.map(Property::ServerReference);
    let what = (!what.is_empty()).then_some(Property::ReasonString(what));
    let mut properties = Vec::new();
    // The reference comes first, because it matters more than the reason.
    for property in reference.into_iter().chain(what) {
        let len = properties.len();
        property.encode(&mut properties);
        if properties.len() + FRAME_BYTES > packet_size_max {
            properties.truncate(len);
        }
    }
    properties
}

/// A 5.0 client gets `what` as reason string if it fits. A client that accepts no packet of that size gets nothing.
pub(crate) fn refusal(
    version: Version,
    reason: ReasonCode,
    what: &str,
    server_reference: Option<&str>,
    packet_size_max: usize,
    out: &mut impl Out,
) {
    //= [MQTT-3.2.2-6] v3.1.1
    let has_code = version == Version::V5 || reason.to_return_code().is_some();
    if packet_size_max < PLAIN_CONNACK_BYTES || !has_code {
        return;
    }
    //= [MQTT-3.2.2-19] v5
    let properties = match version {
        Version::V5 => closing_properties(server_reference, what, packet_size_max),
        Version::V31 | Version::V311 => Vec::new(),
    };
    //= [MQTT-3.2.2-6] v5
    let connack =
        ConnAck { session_present: false, reason, properties: Properties::from_validated(&properties) };
    encode::packet(&Packet::ConnAck(connack), version, out.buffer());
}

impl Session {
    /// The requested and the granted session expiry, seconds.
    pub fn expiry_of(
        version: Version,
        clean_start: bool,
        asked: Option<u32>,
        settings: &SessionSettings,
    ) -> (u32, u32) {
        let asked = match version {
            //= [MQTT-3.1.2-4] v3.1.1
            Version::V31 | Version::V311 if clean_start => 0,
            Version::V31 | Version::V311 => settings.session_expiry_v3_s,
            Version::V5 => asked.unwrap_or(0),
        };
        (asked, asked.min(settings.session_expiry_max_s))
    }
}

#[cfg(test)]
#[path = "connack_tests.rs"]
mod tests;
