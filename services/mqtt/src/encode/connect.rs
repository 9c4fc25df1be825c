//! Encodes CONNECT and CONNACK.

use super::{first_byte, properties_len, put_header, put_properties};
use crate::{
    ConnAck, Connect, PacketType, ReasonCode, Version, Will,
    packet::BRIDGE,
    wire::{FIELD_BYTES_MAX, fit, put_binary, put_string},
};

pub(super) fn connect(connect: &Connect<'_>, out: &mut Vec<u8>) {
    let version = connect.version;
    // 3.x has no password without a user name.
    let password = connect.password.filter(|_| connect.user_name.is_some() || version == Version::V5);
    let name = if version == Version::V31 { "MQIsdp" } else { "MQTT" };

    let mut body_len = 2 + name.len() + 4 + string_len(connect.client_id);
    if version == Version::V5 {
        body_len += properties_len(connect.properties);
    }
    body_len += connect.will.as_ref().map_or(0, |will| will_len(will, version));
    body_len += connect.user_name.map_or(0, string_len) + password.map_or(0, binary_len);

    put_header(first_byte(PacketType::Connect), body_len, out);
    put_string(name, out);
    // 5.0 has no bridge bit.
    let bridge = if connect.is_bridge && version != Version::V5 { BRIDGE } else { 0 };
    out.push(version as u8 | bridge);
    out.push(flags(connect, password.is_some()));
    out.extend_from_slice(&connect.keep_alive_s.to_be_bytes());
    if version == Version::V5 {
        put_properties(connect.properties, out);
    }
    put_string(connect.client_id, out);
    if let Some(will) = &connect.will {
        if version == Version::V5 {
            put_properties(will.properties, out);
        }
        put_string(will.topic, out);
        put_binary(will.payload, out);
    }
    if let Some(user_name) = connect.user_name {
        put_string(user_name, out);
    }
    if let Some(password) = password {
        put_binary(password, out);
    }
}

fn flags(connect: &Connect<'_>, password: bool) -> u8 {
    let will =
        connect.will.as_ref().map_or(0, |will| 0x04 | (will.qos as u8) << 3 | u8::from(will.retain) << 5);
    u8::from(connect.user_name.is_some()) << 7
        | u8::from(password) << 6
        | will
        | u8::from(connect.clean_start) << 1
}

fn will_len(will: &Will<'_>, version: Version) -> usize {
    let properties = if version == Version::V5 { properties_len(will.properties) } else { 0 };
    properties + string_len(will.topic) + binary_len(will.payload)
}

fn string_len(text: &str) -> usize {
    2 + fit(text).len()
}

fn binary_len(bytes: &[u8]) -> usize {
    2 + bytes.len().min(FIELD_BYTES_MAX)
}

/// In 3.x a reason of 5.0 becomes the return code of the same meaning, or "server unavailable" when
/// none has it. A refusal never says that a session is present.
pub(super) fn connack(connack: &ConnAck<'_>, version: Version, out: &mut Vec<u8>) {
    let first = first_byte(PacketType::ConnAck);
    //= [MQTT-3.2.2-6] v5
    //= [MQTT-3.2.2-4] v3.1.1
    let session_present = u8::from(connack.session_present && connack.reason == ReasonCode::SUCCESS);
    if version == Version::V5 {
        put_header(first, 2 + properties_len(connack.properties), out);
        out.extend_from_slice(&[session_present, connack.reason.0]);
        put_properties(connack.properties, out);
    } else {
        let session_present = if version == Version::V31 { 0 } else { session_present };
        let return_code = connack.reason.to_return_code().map_or(3, |code| code.0);
        out.extend_from_slice(&[first, 2, session_present, return_code]);
    }
}
