//! Decodes DISCONNECT and AUTH.

use crate::{
    DecodeError, PacketType, Properties, ReasonCode, Version,
    property::{AllowedProperties, read_properties},
    wire::Reader,
};

/// Section 3.14. 3.x: reason 0, no properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

/// Section 3.15, 5.0 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

pub(super) fn decode_disconnect(body: &[u8], version: Version) -> Result<Disconnect<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let mut packet = Disconnect { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    if version == Version::V5 && !r.is_empty() {
        packet.reason = ReasonCode(r.u8()?);
        if !packet.reason.is_legal_in(PacketType::Disconnect) {
            return Err(DecodeError::Protocol("a reason code that DISCONNECT does not have"));
        }
        // A remaining length below 2 leaves out the property length.
        if !r.is_empty() {
            packet.properties = read_properties(&mut r, &AllowedProperties::DISCONNECT)?.0;
        }
    }
    r.end()?;
    Ok(packet)
}

pub(super) fn decode_auth(body: &[u8], version: Version) -> Result<Auth<'_>, DecodeError> {
    if version != Version::V5 {
        return Err(DecodeError::Protocol("AUTH is a packet of MQTT 5.0"));
    }
    let success = Auth { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    let mut r = Reader::new(body);
    if r.is_empty() {
        return Ok(success);
    }
    let reason = ReasonCode(r.u8()?);
    if !reason.is_legal_in(PacketType::Auth) {
        return Err(DecodeError::Protocol("a reason code that AUTH does not have"));
    }
    let (properties, seen) = read_properties(&mut r, &AllowedProperties::AUTH)?;
    r.end()?;
    let auth = Auth { reason, properties };
    // Section 3.15.2.2.2 always requires the method; section 3.15.2.1 lets a plain success leave
    // out everything.
    if auth != success && !seen.has_authentication_method() {
        return Err(DecodeError::Protocol("AUTH without an authentication method"));
    }
    Ok(auth)
}
