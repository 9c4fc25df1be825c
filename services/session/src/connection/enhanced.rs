//! Enhanced authentication (MQTT 5.0 section 4.12) for any method: the order of AUTH packets and their contents.

use millrace_mqtt::{Auth, Packet, PacketType, Properties, Property, ReasonCode, encode};

use super::{Connection, Phase};
use crate::{Out, SessionEffect, SessionSettings};

const OTHER_METHOD: &str = "AUTH with another authentication method than CONNECT";

impl Connection {
    /// False when the client accepts no packet of that size and can only be refused.
    //= [MQTT-4.12.0-2] v5
    pub fn challenge(&mut self, data: &[u8], settings: &SessionSettings, out: &mut impl Out) -> bool {
        let is_said = self.write_auth(ReasonCode::CONTINUE_AUTHENTICATION, data, settings, out);
        if is_said && self.phase == Phase::Connecting {
            self.phase = Phase::Challenged;
        }
        is_said
    }

    /// Confirms a re-authentication. False when the client accepts no packet of that size.
    pub fn authenticated(&mut self, data: &[u8], settings: &SessionSettings, out: &mut impl Out) -> bool {
        self.write_auth(ReasonCode::SUCCESS, data, settings, out)
    }

    //= [MQTT-3.1.2-24] [MQTT-3.15.2-2] [MQTT-3.15.2-3] v5
    fn write_auth(
        &self,
        reason: ReasonCode,
        data: &[u8],
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> bool {
        let mut properties = Vec::new();
        self.authentication_properties(Some(data), settings, &mut properties);
        let auth = Auth { reason, properties: Properties::from_validated(&properties) };
        let mut packet = Vec::new();
        encode::packet(&Packet::Auth(auth), self.version, &mut packet);
        let fits = packet.len() <= self.packet_size_max();
        if fits {
            out.buffer().extend_from_slice(&packet);
        }
        fits
    }

    /// The properties that answer the CONNECT's authentication method, if it named one.
    //= [MQTT-4.12.0-5] [MQTT-4.12.0-6] v5
    pub(crate) fn authentication_properties(
        &self,
        data: Option<&[u8]>,
        settings: &SessionSettings,
        out: &mut Vec<u8>,
    ) {
        let Some(method) = settings.authentication_method.filter(|_| self.has_method) else { return };
        Property::AuthenticationMethod(method).encode(out);
        if let Some(data) = data {
            Property::AuthenticationData(data).encode(out);
        }
    }

    //= [MQTT-4.12.0-7] [MQTT-4.12.1-1] v5
    pub(super) fn auth<'a>(
        &mut self,
        auth: Auth<'a>,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        let what = if !self.has_method {
            "AUTH without an authentication method in CONNECT"
        } else if method(&auth) != settings.authentication_method {
            OTHER_METHOD
        } else if auth.reason == ReasonCode::SUCCESS {
            "AUTH with a reason code that only a server sends"
        } else {
            return SessionEffect::Authenticate(auth);
        };
        self.close(ReasonCode::PROTOCOL_ERROR, what, out)
    }

    /// Between challenge and CONNACK, only AUTH and DISCONNECT are allowed.
    //= [MQTT-3.1.2-30] [MQTT-4.12.0-3] [MQTT-4.12.0-4] v5
    pub(super) fn input_while_challenged<'a>(
        &mut self,
        packet: Packet<'a>,
        settings: &SessionSettings,
        out: &mut impl Out,
    ) -> SessionEffect<'a> {
        // The caller sends the next challenge, or CONNACK.
        self.phase = Phase::Connecting;
        let what = match packet {
            Packet::Auth(auth) if auth.reason != ReasonCode::CONTINUE_AUTHENTICATION => {
                "AUTH out of turn: the authentication is to be continued"
            }
            Packet::Auth(auth) if method(&auth) == settings.authentication_method => {
                return SessionEffect::Authenticate(auth);
            }
            Packet::Auth(_) => OTHER_METHOD,
            Packet::Disconnect(_) => return SessionEffect::Disconnect { with_will: false },
            packet if packet.packet_type() == PacketType::Connect => "a second CONNECT",
            _ => "another packet than AUTH before CONNACK",
        };
        self.refused(ReasonCode::PROTOCOL_ERROR, what, out)
    }
}

fn method<'a>(auth: &Auth<'a>) -> Option<&'a str> {
    auth.properties.iter().find_map(|property| match property {
        Property::AuthenticationMethod(method) => Some(method),
        _ => None,
    })
}

#[cfg(test)]
#[path = "enhanced_tests.rs"]
mod tests;
