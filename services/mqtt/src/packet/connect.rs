//! Decodes CONNECT and CONNACK.

use crate::{
    DecodeError, PacketType, Properties, QoS, ReasonCode, Version,
    property::{AllowedProperties, read_properties},
    topic,
    wire::Reader,
};

/// Section 3.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// All later packets of the connection have this version.
    pub version: Version,
    /// The client is a bridge to another server: the highest bit of the protocol level, in 3.1 and
    /// 3.1.1 only. The standard has no such bit. mosquitto sets it by default, and other servers
    /// apply No Local and Retain As Published to all its subscriptions, because 3.x has no options
    /// for them.
    pub is_bridge: bool,
    /// Clean Start (5.0) or Clean Session (3.x).
    pub clean_start: bool,
    /// Seconds; 0 switches the keep alive off.
    pub keep_alive_s: u16,
    /// Empty for 3.x.
    pub properties: Properties<'a>,
    pub client_id: &'a str,
    pub will: Option<Will<'a>>,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    pub qos: QoS,
    pub retain: bool,
    pub properties: Properties<'a>,
    pub topic: &'a str,
    pub payload: &'a [u8],
}

/// Section 3.2. For 3.x `reason` is the 3.x return code (0 to 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnAck<'a> {
    pub session_present: bool,
    pub reason: ReasonCode,
    pub properties: Properties<'a>,
}

/// Returns the version of a CONNECT that cannot be decoded, so that its refusal is written in that
/// version; `None` for an unknown version.
pub fn connect_version(body: &[u8]) -> Option<Version> {
    read_version(&mut Reader::new(body)).ok().map(|(version, _)| version)
}

/// The second value is true for a bridge.
fn read_version(r: &mut Reader<'_>) -> Result<(Version, bool), DecodeError> {
    //= [MQTT-3.1.2-1] v5 v3.1.1
    //= [MQTT-3.1.2-2] v5 v3.1.1
    let name = r.binary()?;
    match (name, r.u8()?) {
        (b"MQTT", 5) => Ok((Version::V5, false)),
        (b"MQTT", level @ (4 | 0x84)) => Ok((Version::V311, level & BRIDGE != 0)),
        (b"MQIsdp", level @ (3 | 0x83)) => Ok((Version::V31, level & BRIDGE != 0)),
        _ => Err(DecodeError::UnsupportedVersion),
    }
}

/// The bit of the protocol level that a bridge sets.
pub(crate) const BRIDGE: u8 = 0x80;

/// The flags of a CONNECT, checked for consistency.
struct ConnectFlags {
    user_name: bool,
    password: bool,
    will: Option<(QoS, bool)>,
    clean_start: bool,
}

impl ConnectFlags {
    fn read(mut bits: u8, version: Version) -> Result<Self, DecodeError> {
        if version == Version::V31 {
            // 3.1 does not use bit 0, and ignores QoS and RETAIN without a will.
            let unused = if bits & 0x04 == 0 { 0x39 } else { 0x01 };
            bits &= !unused;
        }
        //= [MQTT-3.1.2-3] v5 v3.1.1
        if bits & 0x01 != 0 {
            return Err(DecodeError::Malformed("the reserved flag of CONNECT is set"));
        }
        let will = match (bits & 0x04 != 0, bits & 0x38) {
            (false, 0) => None,
            //= [MQTT-3.1.2-11] v5 v3.1.1
            //= [MQTT-3.1.2-13] v5 v3.1.1
            //= [MQTT-3.1.2-15] v3.1.1
            (false, _) => return Err(DecodeError::Malformed("will QoS or will retain without a will")),
            (true, _) => {
                //= [MQTT-3.1.2-12] v5
                //= [MQTT-3.1.2-14] v3.1.1
                let qos = QoS::from_bits(bits >> 3 & 0x03).ok_or(DecodeError::Malformed("will QoS 3"))?;
                Some((qos, bits & 0x20 != 0))
            }
        };
        let flags = Self {
            user_name: bits & 0x80 != 0,
            password: bits & 0x40 != 0,
            will,
            clean_start: bits & 0x02 != 0,
        };
        //= [MQTT-3.1.2-22] v3.1.1
        if flags.password && !flags.user_name && version < Version::V5 {
            return Err(DecodeError::Malformed("a password without a user name"));
        }
        Ok(flags)
    }
}

pub(super) fn decode(body: &[u8]) -> Result<Connect<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let (version, is_bridge) = read_version(&mut r)?;
    let flags = ConnectFlags::read(r.u8()?, version)?;
    let keep_alive_s = r.u16()?;
    let properties = match version {
        Version::V5 => read_properties(&mut r, &AllowedProperties::CONNECT)?.0,
        _ => Properties::EMPTY,
    };
    //= [MQTT-3.1.3-1] v5 v3.1.1
    //= [MQTT-3.1.3-3] v5 v3.1.1
    //= [MQTT-3.1.3-4] v5 v3.1.1
    let client_id = r.string()?;
    //= [MQTT-3.1.2-9] v5 v3.1.1
    let will = flags.will.map(|(qos, retain)| decode_will(&mut r, qos, retain, version)).transpose()?;
    // In 3.1 the remaining length takes precedence over these two flags: a field may be missing although its flag is set.
    let here = |r: &Reader<'_>, flag: bool| flag && !(version == Version::V31 && r.is_empty());
    //= [MQTT-3.1.2-16] v5
    //= [MQTT-3.1.2-17] v5
    //= [MQTT-3.1.2-18] v3.1.1
    //= [MQTT-3.1.2-19] v3.1.1
    //= [MQTT-3.1.3-12] v5
    //= [MQTT-3.1.3-11] v3.1.1
    let user_name = if here(&r, flags.user_name) { Some(r.string()?) } else { None };
    //= [MQTT-3.1.2-18] v5
    //= [MQTT-3.1.2-19] v5
    //= [MQTT-3.1.2-20] v3.1.1
    //= [MQTT-3.1.2-21] v3.1.1
    let password = if here(&r, flags.password) { Some(r.binary()?) } else { None };
    r.end()?;
    Ok(Connect {
        version,
        is_bridge,
        clean_start: flags.clean_start,
        keep_alive_s,
        properties,
        client_id,
        will,
        user_name,
        password,
    })
}

fn decode_will<'a>(
    r: &mut Reader<'a>,
    qos: QoS,
    retain: bool,
    version: Version,
) -> Result<Will<'a>, DecodeError> {
    let properties = match version {
        Version::V5 => read_properties(r, &AllowedProperties::WILL)?.0,
        _ => Properties::EMPTY,
    };
    //= [MQTT-3.1.3-11] v5
    //= [MQTT-3.1.3-10] v3.1.1
    let topic = r.string()?;
    if !topic::is_valid_name(topic) {
        return Err(DecodeError::TopicName);
    }
    let payload = r.binary()?;
    Ok(Will { qos, retain, properties, topic, payload })
}

pub(super) fn decode_connack(body: &[u8], version: Version) -> Result<ConnAck<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let flags = r.u8()?;
    // 3.1 does not use this byte, because it has no session present.
    //= [MQTT-3.2.2-1] v5
    if flags > 1 && version != Version::V31 {
        return Err(DecodeError::Malformed("a reserved flag of CONNACK is set"));
    }
    let session_present = flags == 1 && version != Version::V31;
    let reason = ReasonCode(r.u8()?);
    let known = if version == Version::V5 { reason.is_legal_in(PacketType::ConnAck) } else { reason.0 <= 5 };
    if !known {
        return Err(DecodeError::Protocol("a reason code that CONNACK does not have"));
    }
    //= [MQTT-3.2.2-6] v5
    //= [MQTT-3.2.2-4] v3.1.1
    if session_present && reason != ReasonCode::SUCCESS {
        return Err(DecodeError::Protocol("a session is present but the connection is refused"));
    }
    let properties = match version {
        Version::V5 => read_properties(&mut r, &AllowedProperties::CONNACK)?.0,
        _ => Properties::EMPTY,
    };
    r.end()?;
    Ok(ConnAck { session_present, reason, properties })
}
