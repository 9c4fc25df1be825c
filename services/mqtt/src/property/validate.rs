//! Checks the properties of a packet: which are allowed, how often, and with which values.

use super::{Properties, Property, USER_PROPERTY};
use crate::{DecodeError, topic, wire::Reader};

/// User properties and subscription identifiers of one packet. The standard sets no limit, but a user property of 5 bytes costs
/// as much time as a hundred bytes of payload, each time that the properties are passed over.
pub const REPEATED_PROPERTIES_MAX: u32 = 10_000;

/// A set of property identifiers, one bit each, because all are below 64 (the highest is 0x2A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdSet(u64);

impl IdSet {
    const NONE: Self = Self(0);

    const fn of(ids: &[u8]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < ids.len() {
            bits |= 1 << ids[i];
            i += 1;
        }
        Self(bits)
    }

    #[inline]
    const fn has(self, id: u8) -> bool {
        id < 64 && self.0 >> id & 1 == 1
    }

    pub(crate) const fn has_topic_alias(self) -> bool {
        self.has(0x23)
    }

    pub(crate) const fn has_authentication_method(self) -> bool {
        self.has(0x15)
    }
}

/// The allowed properties of a packet type, or of the will (table 2-4).
pub(crate) struct AllowedProperties {
    once: IdSet,
    /// A PUBLISH from the server names every subscription that matched, so this property may
    /// repeat.
    many_subscription_ids: bool,
}

impl AllowedProperties {
    const fn once(ids: &[u8]) -> Self {
        Self { once: IdSet::of(ids), many_subscription_ids: false }
    }

    pub(crate) const CONNECT: Self = Self::once(&[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27]);
    pub(crate) const CONNACK: Self = Self::once(&[
        0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A,
    ]);
    pub(crate) const WILL: Self = Self::once(&[0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26]);
    pub(crate) const PUBLISH: Self = Self {
        once: IdSet::of(&[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26]),
        many_subscription_ids: true,
    };
    /// PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK and UNSUBACK.
    pub(crate) const ACK: Self = Self::once(&[0x1F, 0x26]);
    pub(crate) const SUBSCRIBE: Self = Self::once(&[0x0B, 0x26]);
    pub(crate) const UNSUBSCRIBE: Self = Self::once(&[0x26]);
    pub(crate) const DISCONNECT: Self = Self::once(&[0x11, 0x1C, 0x1F, 0x26]);
    pub(crate) const AUTH: Self = Self::once(&[0x15, 0x16, 0x1F, 0x26]);

    const fn may_repeat(&self, id: u8) -> bool {
        id == 0x26 || (id == 0x0B && self.many_subscription_ids)
    }
}

/// Returns the properties and the set of their identifiers.
#[inline]
pub(crate) fn read_properties<'a>(
    r: &mut Reader<'a>,
    allowed: &AllowedProperties,
) -> Result<(Properties<'a>, IdSet), DecodeError> {
    let len = r.var_int()?;
    if len == 0 {
        return Ok((Properties::EMPTY, IdSet::NONE));
    }
    let bytes = r.take(len as usize)?;
    Ok((Properties(bytes), validate(bytes, allowed)?))
}

fn validate(bytes: &[u8], allowed: &AllowedProperties) -> Result<IdSet, DecodeError> {
    let mut seen = IdSet::NONE;
    let mut repeated = 0;
    let mut r = Reader::new(bytes);
    while let Some(&id) = r.rest().first() {
        // A property of another packet type is malformed (section 2.2.2.2), a repeated property is
        // a protocol error (the section of each packet).
        if !allowed.once.has(id) {
            return Err(DecodeError::Malformed("a property that this packet cannot have"));
        }
        if seen.has(id) {
            if !allowed.may_repeat(id) {
                return Err(DecodeError::Protocol("a property that is there twice"));
            }
            repeated += 1;
            if repeated >= REPEATED_PROPERTIES_MAX {
                return Err(DecodeError::TooManyProperties);
            }
        }
        seen.0 |= 1 << id;
        if id == USER_PROPERTY {
            r.u8()?;
            //= [MQTT-1.5.7-1] v5
            r.string_bytes()?;
            r.string_bytes()?;
        } else {
            check_value(Property::read(&mut r)?)?;
        }
    }
    if seen.has(0x16) && !seen.has_authentication_method() {
        return Err(DecodeError::Protocol("authentication data without a method"));
    }
    Ok(seen)
}

fn check_value(property: Property<'_>) -> Result<(), DecodeError> {
    use Property as P;
    let error = match property {
        P::PayloadFormatIndicator(2..) => "payload format indicator over 1",
        P::RequestProblemInformation(2..) => "request problem information over 1",
        P::RequestResponseInformation(2..) => "request response information over 1",
        P::MaximumQoS(2..) => "maximum QoS over 1",
        P::RetainAvailable(2..) => "retain available over 1",
        P::WildcardSubscriptionAvailable(2..) => "wildcard subscription available over 1",
        P::SubscriptionIdentifierAvailable(2..) => "subscription identifiers available over 1",
        P::SharedSubscriptionAvailable(2..) => "shared subscription available over 1",
        P::ReceiveMaximum(0) => "receive maximum 0",
        P::MaximumPacketSize(0) => "maximum packet size 0",
        // Section 3.3.4 gives this error a reason code of its own.
        //= [MQTT-3.3.2-8] v5
        P::TopicAlias(0) => return Err(DecodeError::TopicAlias),
        P::SubscriptionIdentifier(0) => "subscription identifier 0",
        //= [MQTT-3.3.2-14] v5
        P::ResponseTopic(topic) if !topic::is_valid_name(topic) => "response topic is not a topic name",
        _ => return Ok(()),
    };
    Err(DecodeError::Protocol(error))
}
