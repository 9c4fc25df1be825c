use super::*;
use crate::{Properties, QoS, ReasonCode, RetainHandling, SubscribeOptions};

fn filters(version: Version, bytes: &[u8]) -> Vec<(&str, SubscribeOptions)> {
    match read(version, bytes) {
        Ok(Packet::Subscribe(subscribe)) => {
            assert_eq!(subscribe.packet_id, id(10));
            subscribe.filters.collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn filters_come_with_their_options() {
    let qos = |qos| SubscribeOptions { qos, ..SubscribeOptions::default() };
    for version in [V31, V311] {
        let bytes = b"\x82\x0E\0\x0A\0\x03a/b\x01\0\x03c/#\x02";
        assert_eq!(filters(version, bytes), [("a/b", qos(QoS::AtLeastOnce)), ("c/#", qos(QoS::ExactlyOnce))]);
    }
    let all = SubscribeOptions {
        qos: QoS::AtLeastOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    let new = SubscribeOptions { retain_handling: RetainHandling::SendIfNew, ..SubscribeOptions::default() };
    let bytes = b"\x82\x0D\0\x0A\x02\x0B\x05\0\x01a\x2D\0\x01b\x10";
    assert_eq!(filters(V5, bytes), [("a", all), ("b", new)]);
    let Ok(Packet::Subscribe(subscribe)) = read(V5, bytes) else { panic!() };
    assert_eq!(subscribe.properties, Properties(b"\x0B\x05"));
}

#[test]
fn a_filter_is_utf8() {
    //= [MQTT-3.8.3-1] v5 v3.1.1
    //= [MQTT-3.10.3-1] v5 v3.1.1
    for version in ALL {
        let empty: &[u8] = if version == V5 { b"\0" } else { b"" };
        malformed(version, &packet(0x82, &[b"\0\x01", empty, b"\0\x01\xFF\0"]));
        malformed(version, &packet(0x82, &[b"\0\x01", empty, b"\0\x01\0\0"]));
        malformed(version, &packet(0x82, &[b"\0\x01", empty, b"\0\x01a\0\0\x01\xFF\0"]));
        malformed(version, &packet(0xA2, &[b"\0\x01", empty, b"\0\x01\xFF"]));
        malformed(version, &packet(0xA2, &[b"\0\x01", empty, b"\0\x01\0"]));
    }
}

/// A SUBSCRIBE and an UNSUBSCRIBE of `a` and this filter.
fn with_filter(version: Version, filter: &str) -> [Vec<u8>; 2] {
    let empty: &[u8] = if version == V5 { b"\0" } else { b"" };
    let length = [0, filter.len() as u8];
    let filter = filter.as_bytes();
    [
        packet(0x82, &[b"\0\x01", empty, b"\0\x01a\0", &length, filter, b"\0"]),
        packet(0xA2, &[b"\0\x01", empty, b"\0\x01a", &length, filter]),
    ]
}

#[test]
fn a_filter_that_breaks_section_4_7_is_malformed() {
    //= [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] v5
    //= [MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.7.3-1] v3.1.1
    let bad =
        ["", "a#", "a/#/b", "#/", "#/a", "##", "a+", "+a/b", "ab/+e", "a/+b", "$share/g+/a", "$share/#/a"];
    let good = ["/", "//", "a//b", "+", "#", "+/a/#", "/+", "a /b", "$own/#", "$share/g/a", "$share/g/#"];
    for version in ALL {
        for bytes in bad.iter().flat_map(|filter| with_filter(version, filter)) {
            let error = read(version, &bytes).expect_err("a malformed filter");
            assert_eq!(error, DecodeError::TopicFilter, "{version:?} {bytes:02X?}");
            assert_eq!(error.reason(), ReasonCode::MALFORMED_PACKET);
        }
        for bytes in good.iter().flat_map(|filter| with_filter(version, filter)) {
            assert!(read(version, &bytes).is_ok(), "{version:?} {bytes:02X?}");
        }
    }
}

#[test]
fn a_shared_subscription_of_version_5_has_a_share_name_and_a_filter() {
    //= [MQTT-4.8.2-1] [MQTT-4.8.2-2] v5
    for filter in ["$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/"] {
        for bytes in with_filter(V5, filter) {
            protocol_error(V5, &bytes);
        }
        for version in [V31, V311] {
            for bytes in with_filter(version, filter) {
                assert!(read(version, &bytes).is_ok(), "{version:?} {filter}");
            }
        }
    }
}

#[test]
fn at_least_one_filter_is_there() {
    //= [MQTT-3.8.3-2] v5
    //= [MQTT-3.8.3-3] v3.1.1
    //= [MQTT-3.10.3-2] v5 v3.1.1
    for first in [0x82, 0xA2] {
        protocol_error(V5, &[first, 3, 0, 1, 0]);
        for version in [V31, V311] {
            protocol_error(version, &[first, 2, 0, 1]);
        }
    }
}

#[test]
fn reserved_bits_of_the_options_are_0() {
    //= [MQTT-3.8.3-5] v5
    //= [MQTT-3.8.3-4] v3.1.1
    for bits in 0..=u8::MAX {
        let bytes = [0x82, 6, 0, 1, 0, 1, b'a', bits];
        assert_eq!(read(V311, &bytes).is_ok(), bits <= 2, "{bits:02X}");
        if bits > 2 {
            malformed(V311, &bytes);
        }
        // 3.1 does not use the upper six bits.
        assert_eq!(read(V31, &bytes).is_ok(), bits & 0x03 != 0x03, "{bits:02X}");
        let bytes = [0x82, 7, 0, 1, 0, 0, 1, b'a', bits];
        match bits {
            0x40.. => malformed(V5, &bytes),
            // Maximum QoS 3, retain handling 3.
            _ if bits & 0x03 == 0x03 || bits & 0x30 == 0x30 => protocol_error(V5, &bytes),
            _ => assert!(read(V5, &bytes).is_ok(), "{bits:02X}"),
        }
    }
}

#[test]
fn flags_are_0010() {
    //= [MQTT-3.8.1-1] v5 v3.1.1
    //= [MQTT-3.10.1-1] v5 v3.1.1
    for flags in 0..16 {
        for version in ALL {
            // 3.1 has DUP here, and does not use RETAIN.
            let legal = flags == 2 || (version == V31 && flags & 0x06 == 0x02);
            let subscribe: &[u8] = if version == V5 { b"\0\x01\0\0\x01a\0" } else { b"\0\x01\0\x01a\0" };
            assert_eq!(decode(0x80 | flags, subscribe, Some(version)).is_ok(), legal, "{version:?} {flags}");
            let unsubscribe = &subscribe[..subscribe.len() - 1];
            assert_eq!(
                decode(0xA0 | flags, unsubscribe, Some(version)).is_ok(),
                legal,
                "{version:?} {flags}"
            );
        }
    }
}

#[test]
fn cut_filters_and_packet_identifier_0_are_malformed() {
    //= [MQTT-2.3.1-1] v3.1.1
    for version in ALL {
        let empty: &[u8] = if version == V5 { b"\0" } else { b"" };
        for filter in
            [&b"\0"[..], b"\0\x01", b"\0\x01a", b"\0\x01a\0\0", b"\0\x01a\0\0\x01", b"\0\x01a\0\0\x01b"]
        {
            malformed(version, &packet(0x82, &[b"\0\x01", empty, filter]));
        }
        for filter in [&b"\0"[..], b"\0\x01", b"\0\x01a\0", b"\0\x01a\0\x01"] {
            malformed(version, &packet(0xA2, &[b"\0\x01", empty, filter]));
        }
        malformed(version, &packet(0x82, &[b"\0\0", empty, b"\0\x01a\0"]));
        malformed(version, &packet(0xA2, &[b"\0\0", empty, b"\0\x01a"]));
    }
}

#[test]
fn unsubscribe_lists_filters() {
    for (version, bytes) in [
        (V31, &b"\xA2\x08\0\x0A\0\x01a\0\x01#"[..]),
        (V311, b"\xA2\x08\0\x0A\0\x01a\0\x01#"),
        (V5, b"\xA2\x09\0\x0A\0\0\x01a\0\x01#"),
    ] {
        let Ok(Packet::Unsubscribe(unsubscribe)) = read(version, bytes) else { panic!("{version:?}") };
        assert_eq!(unsubscribe.packet_id, id(10));
        assert_eq!(unsubscribe.filters.collect::<Vec<_>>(), ["a", "#"]);
    }
}

#[test]
fn iterators_over_bytes_that_are_no_filters_just_end() {
    for bytes in [&b"\0"[..], b"\0\x05a", b"\0\x01\xFF\0", b"\xFF\xFF\xFF"] {
        assert_eq!(SubscribeFilters::from_validated(bytes, V5).count(), 0);
        assert_eq!(UnsubscribeFilters::from_validated(bytes).count(), 0);
    }
}

#[test]
fn suback_has_the_reasons_of_its_version() {
    let suback =
        |reasons| Ok(Packet::SubAck(SubAck { packet_id: id(1), properties: Properties::EMPTY, reasons }));
    assert_eq!(read(V5, b"\x90\x06\0\x01\0\x00\x02\x87"), suback(b"\x00\x02\x87"));
    for version in [V31, V311] {
        assert_eq!(read(version, b"\x90\x06\0\x01\x00\x01\x02\x80"), suback(b"\x00\x01\x02\x80"));
        protocol_error(version, b"\x90\x03\0\x01\x87");
        protocol_error(version, b"\x90\x02\0\x01");
    }
    protocol_error(V5, b"\x90\x04\0\x01\0\x03");
    protocol_error(V5, b"\x90\x03\0\x01\0");
}

#[test]
fn unsuback_has_reasons_in_version_5_only() {
    let unsuback =
        |reasons| Ok(Packet::UnsubAck(UnsubAck { packet_id: id(1), properties: Properties::EMPTY, reasons }));
    assert_eq!(read(V5, b"\xB0\x05\0\x01\0\x00\x11"), unsuback(b"\x00\x11"));
    protocol_error(V5, b"\xB0\x04\0\x01\0\x01");
    protocol_error(V5, b"\xB0\x03\0\x01\0");
    for version in [V31, V311] {
        assert_eq!(read(version, b"\xB0\x02\0\x01"), unsuback(b""));
        malformed(version, b"\xB0\x03\0\x01\0");
    }
}
