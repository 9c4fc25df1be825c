//! Properties of MQTT 5.0 (section 2.2.2). The decoder checks them once and keeps their bytes;
//! [`PropertyIter`] decodes them again whenever somebody asks.

mod validate;

use crate::{
    DecodeError,
    wire::{Reader, put_binary, put_string, put_var_int},
};

pub use validate::REPEATED_PROPERTIES_MAX;
pub(crate) use validate::{AllowedProperties, read_properties};

const USER_PROPERTY: u8 = 0x26;

/// Validated properties of one packet, as on the wire, without their length prefix. Always empty in
/// 3.x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Properties<'a>(pub(crate) &'a [u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property<'a> {
    PayloadFormatIndicator(u8),
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    SubscriptionIdentifier(u32),
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(u8),
    WillDelayInterval(u32),
    RequestResponseInformation(u8),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    TopicAlias(u16),
    MaximumQoS(u8),
    RetainAvailable(u8),
    UserProperty(&'a str, &'a str),
    MaximumPacketSize(u32),
    WildcardSubscriptionAvailable(u8),
    SubscriptionIdentifierAvailable(u8),
    SharedSubscriptionAvailable(u8),
}

impl<'a> Properties<'a> {
    pub const EMPTY: Properties<'static> = Properties(&[]);

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Does not check `bytes`, which must come from [`Properties::as_bytes`] or
    /// [`Property::encode`]; iterating over other bytes may end early.
    #[inline]
    pub const fn from_validated(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[inline]
    pub fn iter(&self) -> PropertyIter<'a> {
        PropertyIter(self.0)
    }

    /// The properties that the standard gives a meaning. A packet can have 10,000 user properties, so code that does
    /// not need them passes over them without decoding them.
    #[inline]
    pub fn without_user_properties(&self) -> impl Iterator<Item = Property<'a>> + use<'a> {
        let mut rest = PropertyIter(self.0);
        std::iter::from_fn(move || {
            rest.skip_user_properties();
            rest.next()
        })
    }
}

impl<'a> IntoIterator for Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertyIter<'a>;

    fn into_iter(self) -> PropertyIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertyIter<'a>;

    fn into_iter(self) -> PropertyIter<'a> {
        self.iter()
    }
}

#[derive(Clone, Debug)]
pub struct PropertyIter<'a>(&'a [u8]);

impl<'a> Iterator for PropertyIter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        let mut reader = Reader::new(self.0);
        let property = if reader.is_empty() { None } else { Property::read(&mut reader).ok() };
        self.0 = if property.is_some() { reader.rest() } else { &[] };
        property
    }
}

impl std::iter::FusedIterator for PropertyIter<'_> {}

impl PropertyIter<'_> {
    fn skip_user_properties(&mut self) {
        let mut reader = Reader::new(self.0);
        while let Ok(USER_PROPERTY) = reader.u8()
            && reader.binary().is_ok()
            && reader.binary().is_ok()
        {
            self.0 = reader.rest();
        }
    }
}

impl<'a> Property<'a> {
    /// Checks identifier, length and UTF-8; the module `validate` checks the range of the value.
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0x01 => Self::PayloadFormatIndicator(r.u8()?),
            0x02 => Self::MessageExpiryInterval(r.u32()?),
            //= [MQTT-3.3.2-19] v5
            0x03 => Self::ContentType(r.string()?),
            //= [MQTT-3.3.2-13] v5
            0x08 => Self::ResponseTopic(r.string()?),
            0x09 => Self::CorrelationData(r.binary()?),
            0x0B => Self::SubscriptionIdentifier(r.var_int()?),
            0x11 => Self::SessionExpiryInterval(r.u32()?),
            0x12 => Self::AssignedClientIdentifier(r.string()?),
            0x13 => Self::ServerKeepAlive(r.u16()?),
            0x15 => Self::AuthenticationMethod(r.string()?),
            0x16 => Self::AuthenticationData(r.binary()?),
            0x17 => Self::RequestProblemInformation(r.u8()?),
            0x18 => Self::WillDelayInterval(r.u32()?),
            0x19 => Self::RequestResponseInformation(r.u8()?),
            0x1A => Self::ResponseInformation(r.string()?),
            0x1C => Self::ServerReference(r.string()?),
            0x1F => Self::ReasonString(r.string()?),
            0x21 => Self::ReceiveMaximum(r.u16()?),
            0x22 => Self::TopicAliasMaximum(r.u16()?),
            0x23 => Self::TopicAlias(r.u16()?),
            0x24 => Self::MaximumQoS(r.u8()?),
            0x25 => Self::RetainAvailable(r.u8()?),
            //= [MQTT-1.5.7-1] v5
            USER_PROPERTY => Self::UserProperty(r.string()?, r.string()?),
            0x27 => Self::MaximumPacketSize(r.u32()?),
            0x28 => Self::WildcardSubscriptionAvailable(r.u8()?),
            0x29 => Self::SubscriptionIdentifierAvailable(r.u8()?),
            0x2A => Self::SharedSubscriptionAvailable(r.u8()?),
            _ => return Err(DecodeError::Malformed("unknown property")),
        })
    }

    pub const fn id(&self) -> u8 {
        match self {
            Self::PayloadFormatIndicator(_) => 0x01,
            Self::MessageExpiryInterval(_) => 0x02,
            Self::ContentType(_) => 0x03,
            Self::ResponseTopic(_) => 0x08,
            Self::CorrelationData(_) => 0x09,
            Self::SubscriptionIdentifier(_) => 0x0B,
            Self::SessionExpiryInterval(_) => 0x11,
            Self::AssignedClientIdentifier(_) => 0x12,
            Self::ServerKeepAlive(_) => 0x13,
            Self::AuthenticationMethod(_) => 0x15,
            Self::AuthenticationData(_) => 0x16,
            Self::RequestProblemInformation(_) => 0x17,
            Self::WillDelayInterval(_) => 0x18,
            Self::RequestResponseInformation(_) => 0x19,
            Self::ResponseInformation(_) => 0x1A,
            Self::ServerReference(_) => 0x1C,
            Self::ReasonString(_) => 0x1F,
            Self::ReceiveMaximum(_) => 0x21,
            Self::TopicAliasMaximum(_) => 0x22,
            Self::TopicAlias(_) => 0x23,
            Self::MaximumQoS(_) => 0x24,
            Self::RetainAvailable(_) => 0x25,
            Self::UserProperty(..) => USER_PROPERTY,
            Self::MaximumPacketSize(_) => 0x27,
            Self::WildcardSubscriptionAvailable(_) => 0x28,
            Self::SubscriptionIdentifierAvailable(_) => 0x29,
            Self::SharedSubscriptionAvailable(_) => 0x2A,
        }
    }

    /// Appends identifier and value. A value above the wire's limits panics in a debug build. A
    /// release build cuts a string or binary value to 65,535 bytes (a string between two
    /// characters) and lowers a subscription identifier to 268,435,455.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.id());
        match *self {
            Self::PayloadFormatIndicator(v)
            | Self::RequestProblemInformation(v)
            | Self::RequestResponseInformation(v)
            | Self::MaximumQoS(v)
            | Self::RetainAvailable(v)
            | Self::WildcardSubscriptionAvailable(v)
            | Self::SubscriptionIdentifierAvailable(v)
            | Self::SharedSubscriptionAvailable(v) => out.push(v),
            Self::ServerKeepAlive(v)
            | Self::ReceiveMaximum(v)
            | Self::TopicAliasMaximum(v)
            | Self::TopicAlias(v) => out.extend_from_slice(&v.to_be_bytes()),
            Self::MessageExpiryInterval(v)
            | Self::SessionExpiryInterval(v)
            | Self::WillDelayInterval(v)
            | Self::MaximumPacketSize(v) => out.extend_from_slice(&v.to_be_bytes()),
            Self::SubscriptionIdentifier(v) => put_var_int(v as usize, out),
            Self::ContentType(v)
            | Self::ResponseTopic(v)
            | Self::AssignedClientIdentifier(v)
            | Self::AuthenticationMethod(v)
            | Self::ResponseInformation(v)
            | Self::ServerReference(v)
            | Self::ReasonString(v) => put_string(v, out),
            Self::CorrelationData(v) | Self::AuthenticationData(v) => put_binary(v, out),
            Self::UserProperty(name, value) => {
                put_string(name, out);
                put_string(value, out);
            }
        }
    }
}

#[cfg(test)]
mod tests;
