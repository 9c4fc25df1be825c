//! Decodes SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK. Filters stay as bytes, and are decoded
//! again by iterators.

use std::iter::FusedIterator;

use crate::{
    DecodeError, PacketId, PacketType, Properties, QoS, ReasonCode, RetainHandling, SubscribeOptions,
    Version,
    property::{AllowedProperties, read_properties},
    topic,
    wire::{Reader, utf8},
};

/// Section 3.8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// Never empty.
    pub filters: SubscribeFilters<'a>,
}

/// The filters and options of a SUBSCRIBE, all valid. A 3.x filter such as `$share/g` begins like a
/// shared subscription without being one: [`crate::topic::Filter::parse`] decides.
#[derive(Clone, Debug, Eq)]
pub struct SubscribeFilters<'a>(pub(crate) &'a [u8], pub(crate) Version);

/// Compares meanings, because different bytes can encode the same options in 3.1.
impl PartialEq for SubscribeFilters<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.1 == other.1 && self.clone().eq(other.clone())
    }
}

impl<'a> SubscribeFilters<'a> {
    /// The filters and options as they stood on the wire, without those that the iterator has passed.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// `bytes` must come from [`SubscribeFilters::as_bytes`] of a packet of the same version.
    pub const fn from_validated(bytes: &'a [u8], version: Version) -> Self {
        Self(bytes, version)
    }

    /// Whether a shared subscription has No Local.
    pub fn has_shared_no_local(&self) -> bool {
        let mut r = Reader::new(self.0);
        while let Ok((filter, options)) = read_filter(&mut r, self.1) {
            let share = || topic::Filter::parse(utf8(filter).ok()?)?.share;
            if options.no_local && filter.starts_with(b"$share/") && share().is_some() {
                return true;
            }
        }
        false
    }
}

impl<'a> Iterator for SubscribeFilters<'a> {
    type Item = (&'a str, SubscribeOptions);

    fn next(&mut self) -> Option<Self::Item> {
        let mut r = Reader::new(self.0);
        let item = read_filter(&mut r, self.1).and_then(|(filter, options)| Ok((utf8(filter)?, options)));
        self.0 = if item.is_ok() { r.rest() } else { &[] };
        item.ok()
    }

    fn count(self) -> usize {
        let mut r = Reader::new(self.0);
        std::iter::from_fn(|| read_filter(&mut r, self.1).ok()).fold(0, |count, _| count + 1)
    }
}

impl FusedIterator for SubscribeFilters<'_> {}

/// Section 3.9: one reason code for each filter of the SUBSCRIBE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAck<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    pub reasons: &'a [u8],
}

/// Section 3.10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    /// Never empty.
    pub filters: UnsubscribeFilters<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubscribeFilters<'a>(pub(crate) &'a [u8]);

impl<'a> UnsubscribeFilters<'a> {
    /// The filters as they stood on the wire, without those that the iterator has passed.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// `bytes` must come from [`UnsubscribeFilters::as_bytes`].
    pub const fn from_validated(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
}

impl<'a> Iterator for UnsubscribeFilters<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        let mut r = Reader::new(self.0);
        let item = r.string().ok();
        self.0 = if item.is_some() { r.rest() } else { &[] };
        item
    }

    fn count(self) -> usize {
        let mut r = Reader::new(self.0);
        std::iter::from_fn(|| r.string_bytes().ok()).fold(0, |count, _| count + 1)
    }
}

impl FusedIterator for UnsubscribeFilters<'_> {}

/// Section 3.11: one reason code for each filter of the UNSUBSCRIBE; none in 3.x.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsubAck<'a> {
    pub packet_id: PacketId,
    pub properties: Properties<'a>,
    pub reasons: &'a [u8],
}

pub(super) fn decode_subscribe(body: &[u8], version: Version) -> Result<Subscribe<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let (packet_id, properties) = read_head(&mut r, version, &AllowedProperties::SUBSCRIBE)?;
    let filters = SubscribeFilters(r.rest(), version);
    //= [MQTT-3.8.3-2] v5
    //= [MQTT-3.8.3-3] v3.1.1
    if r.is_empty() {
        return Err(DecodeError::Protocol("SUBSCRIBE without a topic filter"));
    }
    while !r.is_empty() {
        //= [MQTT-4.7.3-1] v5 v3.1.1
        topic::check_filter(read_filter(&mut r, version)?.0, version)?;
    }
    Ok(Subscribe { packet_id, properties, filters })
}

pub(super) fn decode_suback(body: &[u8], version: Version) -> Result<SubAck<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let (packet_id, properties) = read_head(&mut r, version, &AllowedProperties::ACK)?;
    let reasons = r.rest();
    let legal = |&byte: &u8| match version {
        Version::V5 => ReasonCode(byte).is_legal_in(PacketType::SubAck),
        //= [MQTT-3.9.3-2] v3.1.1
        Version::V31 | Version::V311 => matches!(byte, 0..=2 | 0x80),
    };
    if reasons.is_empty() || !reasons.iter().all(legal) {
        return Err(DecodeError::Protocol("no reason code, or one that SUBACK does not have"));
    }
    Ok(SubAck { packet_id, properties, reasons })
}

pub(super) fn decode_unsubscribe(body: &[u8], version: Version) -> Result<Unsubscribe<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let (packet_id, properties) = read_head(&mut r, version, &AllowedProperties::UNSUBSCRIBE)?;
    let filters = UnsubscribeFilters(r.rest());
    //= [MQTT-3.10.3-2] v5 v3.1.1
    if r.is_empty() {
        return Err(DecodeError::Protocol("UNSUBSCRIBE without a topic filter"));
    }
    while !r.is_empty() {
        //= [MQTT-3.10.3-1] v5 v3.1.1
        topic::check_filter(r.string_bytes()?, version)?;
    }
    Ok(Unsubscribe { packet_id, properties, filters })
}

pub(super) fn decode_unsuback(body: &[u8], version: Version) -> Result<UnsubAck<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let (packet_id, properties) = read_head(&mut r, version, &AllowedProperties::ACK)?;
    let reasons = r.rest();
    if version != Version::V5 {
        r.end()?;
    } else if reasons.is_empty() || !reasons.iter().all(|&b| ReasonCode(b).is_legal_in(PacketType::UnsubAck))
    {
        return Err(DecodeError::Protocol("no reason code, or one that UNSUBACK does not have"));
    }
    Ok(UnsubAck { packet_id, properties, reasons })
}

fn read_head<'a>(
    r: &mut Reader<'a>,
    version: Version,
    allowed: &AllowedProperties,
) -> Result<(PacketId, Properties<'a>), DecodeError> {
    let packet_id = r.packet_id()?;
    let properties = match version {
        Version::V5 => read_properties(r, allowed)?.0,
        Version::V31 | Version::V311 => Properties::EMPTY,
    };
    Ok((packet_id, properties))
}

#[inline]
fn read_filter<'a>(
    r: &mut Reader<'a>,
    version: Version,
) -> Result<(&'a [u8], SubscribeOptions), DecodeError> {
    //= [MQTT-3.8.3-1] v5 v3.1.1
    let filter = r.string_bytes()?;
    let bits = r.u8()?;
    let options = match version {
        Version::V5 => options_5(bits)?,
        // The upper six bits are reserved in 3.1.1, but unused in 3.1.
        Version::V311 => options_3(bits)?,
        Version::V31 => options_3(bits & 0x03)?,
    };
    Ok((filter, options))
}

#[inline]
fn options_3(bits: u8) -> Result<SubscribeOptions, DecodeError> {
    //= [MQTT-3.8.3-4] v3.1.1
    let qos = QoS::from_bits(bits).ok_or(DecodeError::Malformed("requested QoS over 2"))?;
    Ok(SubscribeOptions { qos, ..SubscribeOptions::default() })
}

#[inline]
fn options_5(bits: u8) -> Result<SubscribeOptions, DecodeError> {
    //= [MQTT-3.8.3-5] v5
    if bits & 0xC0 != 0 {
        return Err(DecodeError::Malformed("reserved bits of the subscription options"));
    }
    Ok(SubscribeOptions {
        qos: QoS::from_bits(bits & 0x03).ok_or(DecodeError::Protocol("maximum QoS 3"))?,
        no_local: bits & 0x04 != 0,
        retain_as_published: bits & 0x08 != 0,
        retain_handling: RetainHandling::from_bits(bits >> 4)
            .ok_or(DecodeError::Protocol("retain handling 3"))?,
    })
}
