//! Decodes the acknowledgements of a PUBLISH: PUBACK, PUBREC, PUBREL and PUBCOMP.

use crate::{
    DecodeError, PacketId, PacketType, Properties, ReasonCode, Version,
    property::{AllowedProperties, read_properties},
    wire::Reader,
};

/// Sections 3.4 to 3.7. A 3.x acknowledgement has only a packet id, and is decoded as a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    pub packet_id: PacketId,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

#[inline]
pub(super) fn decode(kind: PacketType, body: &[u8], version: Version) -> Result<Ack<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let packet_id = r.packet_id()?;
    let mut ack = Ack { packet_id, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    if version == Version::V5 && !r.is_empty() {
        ack.reason = ReasonCode(r.u8()?);
        if !ack.reason.is_legal_in(kind) {
            return Err(DecodeError::Protocol("a reason code that this acknowledgement does not have"));
        }
        // A remaining length below 4 leaves out the property length.
        if !r.is_empty() {
            ack.properties = read_properties(&mut r, &AllowedProperties::ACK)?.0;
        }
    }
    r.end()?;
    Ok(ack)
}
