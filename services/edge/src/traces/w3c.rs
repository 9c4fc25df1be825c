//! W3C Trace Context in the User Properties of a PUBLISH: <https://www.w3.org/TR/trace-context/>. The server forwards
//! `traceparent` and `tracestate` unaltered, as it does every User Property [MQTT-3.3.2-17].

use millrace_mqtt::{Properties, Property};

const PROPERTIES_MAX: usize = 16;
/// `traceparent` of version 00, bytes.
const LENGTH: usize = 55;
/// Longest `traceparent` of a later version, bytes.
const LENGTH_MAX: usize = 128;
/// Flag: the caller records this trace.
const SAMPLED: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace_id: [u8; 16],
    pub(crate) span_id: [u8; 8],
    pub(crate) is_sampled: bool,
}

/// `None` when the publisher's trace context is missing or invalid.
pub(crate) fn requested(properties: Properties<'_>) -> Option<Parent> {
    properties.iter().take(PROPERTIES_MAX).find_map(|property| match property {
        Property::UserProperty("traceparent", value) => Some(parse(value)),
        _ => None,
    })?
}

/// `version "-" trace-id "-" parent-id "-" trace-flags`, in lower-case hexadecimal; a later version can append fields after
/// another hyphen.
fn parse(text: &str) -> Option<Parent> {
    let (head, rest) = text.as_bytes().split_at_checked(LENGTH)?;
    let [a, b, b'-', rest_of_head @ ..] = head else { return None };
    let [version] = hex::<1>(&[*a, *b])?;
    let is_whole = match version {
        0xff => false,
        0 => rest.is_empty(),
        _ => text.len() <= LENGTH_MAX && (rest.is_empty() || rest[0] == b'-'),
    };
    let (trace_id, rest) = rest_of_head.split_at_checked(32)?;
    let (span_id, flags) = rest.strip_prefix(b"-")?.split_at_checked(16)?;
    let (trace_id, span_id) = (hex::<16>(trace_id)?, hex::<8>(span_id)?);
    let [flags] = hex::<1>(flags.strip_prefix(b"-")?)?;
    let is_valid = is_whole && trace_id != [0; 16] && span_id != [0; 8];
    is_valid.then_some(Parent { trace_id, span_id, is_sampled: flags & SAMPLED != 0 })
}

fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_example_of_the_specification_is_understood() {
        let parent = parse(VALID).unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7], parent.is_sampled), (0x4b, 0xb7, true));
        assert!(!parse(&VALID.replace("-01", "-00")).unwrap().is_sampled);
        assert!(parse(&format!("cc{}-later", &VALID[2..])).is_some(), "a later version");
    }

    #[test]
    fn what_is_not_valid_is_as_if_it_was_not_there() {
        let zeroes = |text: &str| VALID.replace(text, &"0".repeat(text.len()));
        for text in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-more"),
            &VALID.to_uppercase(),
            &format!("ff{}", &VALID[2..]),
            &format!("cc{}more", &VALID[2..]),
            &format!("cc{}-{}", &VALID[2..], "x".repeat(100)),
            &VALID.replace('-', "_"),
            &zeroes("4bf92f3577b34da6a3ce929d0e0e4736"),
            &zeroes("00f067aa0ba902b7"),
            "00-4bf92f3577b34da6a3ce929d0e0e473ä-00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_the_first_properties_are_looked_through() {
        for (before, found) in [(0, true), (PROPERTIES_MAX - 1, true), (PROPERTIES_MAX, false)] {
            let mut bytes = Vec::new();
            (0..before).for_each(|_| Property::UserProperty("a", "b").encode(&mut bytes));
            Property::UserProperty("traceparent", VALID).encode(&mut bytes);
            assert_eq!(requested(Properties::from_validated(&bytes)).is_some(), found, "{before}");
        }
    }
}
