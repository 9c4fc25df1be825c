use super::*;
use crate::wire::Reader;

/// Validates `bytes` as the properties of a packet.
fn check<'a>(allowed: &AllowedProperties, bytes: &'a [u8]) -> Result<Vec<Property<'a>>, DecodeError> {
    let mut block = Vec::new();
    put_var_int(bytes.len(), &mut block);
    block.extend_from_slice(bytes);
    read_properties(&mut Reader::new(&block), allowed)?;
    Ok(Properties(bytes).iter().collect())
}

/// One of each property and the packets that may have it, in the columns of [`COLUMNS`].
const EVERY: [(Property<'static>, &str); 27] = [
    (Property::PayloadFormatIndicator(1), "pw"),
    (Property::MessageExpiryInterval(0x0102_0304), "pw"),
    (Property::ContentType("text/plain"), "pw"),
    (Property::ResponseTopic("re/ply"), "pw"),
    (Property::CorrelationData(b"\0\xFF"), "pw"),
    (Property::SubscriptionIdentifier(268_435_455), "ps"),
    (Property::SessionExpiryInterval(u32::MAX), "cad"),
    (Property::AssignedClientIdentifier("id"), "a"),
    (Property::ServerKeepAlive(300), "a"),
    (Property::AuthenticationMethod("SCRAM"), "cax"),
    (Property::AuthenticationData(b"\0"), ""),
    (Property::RequestProblemInformation(0), "c"),
    (Property::WillDelayInterval(5), "w"),
    (Property::RequestResponseInformation(1), "c"),
    (Property::ResponseInformation("r/"), "a"),
    (Property::ServerReference("other:1883"), "ad"),
    (Property::ReasonString("why"), "akdx"),
    (Property::ReceiveMaximum(1), "ca"),
    (Property::TopicAliasMaximum(0), "ca"),
    (Property::TopicAlias(65_535), "p"),
    (Property::MaximumQoS(1), "a"),
    (Property::RetainAvailable(0), "a"),
    (Property::UserProperty("k", "v"), "cawpksudx"),
    (Property::MaximumPacketSize(1), "ca"),
    (Property::WildcardSubscriptionAvailable(1), "a"),
    (Property::SubscriptionIdentifierAvailable(1), "a"),
    (Property::SharedSubscriptionAvailable(1), "a"),
];

const COLUMNS: [(char, AllowedProperties); 9] = [
    ('c', AllowedProperties::CONNECT),
    ('a', AllowedProperties::CONNACK),
    ('w', AllowedProperties::WILL),
    ('p', AllowedProperties::PUBLISH),
    ('k', AllowedProperties::ACK),
    ('s', AllowedProperties::SUBSCRIBE),
    ('u', AllowedProperties::UNSUBSCRIBE),
    ('d', AllowedProperties::DISCONNECT),
    ('x', AllowedProperties::AUTH),
];

fn bytes(properties: &[Property<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for property in properties {
        property.encode(&mut out);
    }
    out
}

#[test]
fn each_property_stands_in_its_packets_only_and_reads_as_written() {
    for (property, packets) in EVERY {
        // Authentication data needs a method beside it: see below.
        if property.id() == 0x16 {
            continue;
        }
        for (name, allowed) in &COLUMNS {
            let result = check(allowed, &bytes(&[property])).map(|read| assert_eq!(read, [property]));
            match packets.contains(*name) {
                true => assert_eq!(result, Ok(()), "{property:?} in {name}"),
                false => assert!(matches!(result, Err(DecodeError::Malformed(_))), "{property:?} in {name}"),
            }
        }
    }
}

#[test]
fn a_property_stands_once_but_for_two() {
    for (property, packets) in EVERY {
        for (name, allowed) in COLUMNS.iter().filter(|(name, _)| packets.contains(*name)) {
            let bytes = bytes(&[property, property]);
            let twice = check(allowed, &bytes);
            let may = property.id() == 0x26 || (property.id() == 0x0B && *name == 'p');
            match may {
                true => assert_eq!(twice, Ok(vec![property, property]), "{property:?} in {name}"),
                false => assert!(matches!(twice, Err(DecodeError::Protocol(_))), "{property:?} in {name}"),
            }
        }
    }
}

#[test]
fn values_out_of_range_are_protocol_errors() {
    //= [MQTT-3.3.2-8] v5
    //= [MQTT-3.3.2-14] v5
    for (allowed, property) in [
        (&AllowedProperties::PUBLISH, Property::PayloadFormatIndicator(2)),
        (&AllowedProperties::PUBLISH, Property::SubscriptionIdentifier(0)),
        (&AllowedProperties::SUBSCRIBE, Property::SubscriptionIdentifier(0)),
        (&AllowedProperties::PUBLISH, Property::ResponseTopic("a/#")),
        (&AllowedProperties::PUBLISH, Property::ResponseTopic("+")),
        (&AllowedProperties::PUBLISH, Property::ResponseTopic("")),
        (&AllowedProperties::WILL, Property::ResponseTopic("a/+/b")),
        (&AllowedProperties::CONNECT, Property::ReceiveMaximum(0)),
        (&AllowedProperties::CONNECT, Property::MaximumPacketSize(0)),
        (&AllowedProperties::CONNECT, Property::RequestProblemInformation(2)),
        (&AllowedProperties::CONNECT, Property::RequestResponseInformation(255)),
        (&AllowedProperties::CONNACK, Property::MaximumQoS(2)),
        (&AllowedProperties::CONNACK, Property::RetainAvailable(2)),
        (&AllowedProperties::CONNACK, Property::WildcardSubscriptionAvailable(2)),
        (&AllowedProperties::CONNACK, Property::SubscriptionIdentifierAvailable(2)),
        (&AllowedProperties::CONNACK, Property::SharedSubscriptionAvailable(2)),
        (&AllowedProperties::CONNECT, Property::AuthenticationData(b"x")),
        (&AllowedProperties::AUTH, Property::AuthenticationData(b"x")),
    ] {
        let bytes = bytes(&[property]);
        let result = check(allowed, &bytes);
        assert!(matches!(result, Err(DecodeError::Protocol(_))), "{property:?}: {result:?}");
    }
    assert_eq!(
        check(&AllowedProperties::PUBLISH, &bytes(&[Property::TopicAlias(0)])),
        Err(DecodeError::TopicAlias)
    );
}

#[test]
fn authentication_data_goes_with_a_method_in_any_order() {
    let (method, data) = (Property::AuthenticationMethod("m"), Property::AuthenticationData(b""));
    for allowed in [&AllowedProperties::CONNECT, &AllowedProperties::CONNACK, &AllowedProperties::AUTH] {
        assert_eq!(check(allowed, &bytes(&[method, data])), Ok(vec![method, data]));
        assert_eq!(check(allowed, &bytes(&[data, method])), Ok(vec![data, method]));
    }
}

#[test]
fn strings_of_properties_are_utf8() {
    //= [MQTT-1.5.7-1] v5
    //= [MQTT-3.3.2-13] v5
    //= [MQTT-3.3.2-19] v5
    for bytes in [
        &b"\x26\0\x01\xFF\0\x01v"[..],
        b"\x26\0\x01k\0\x01\xFF",
        b"\x26\0\x01k\0\x01\0",
        b"\x08\0\x01\xFF",
        b"\x03\0\x02\xC0\xAF",
        b"\x03\0\x01\0",
    ] {
        let result = check(&AllowedProperties::PUBLISH, bytes);
        assert!(matches!(result, Err(DecodeError::Malformed(_))), "{bytes:02X?}: {result:?}");
    }
}

#[test]
fn unknown_and_cut_properties_are_malformed() {
    for bytes in [
        &b"\0"[..],
        b"\x04\0",
        b"\x2B\0",
        b"\x7F\0",
        b"\xA6\0",
        b"\x02\0\0\0",
        b"\x23\0",
        b"\x26\0\x01k",
        b"\x0B\x80",
    ] {
        let result = check(&AllowedProperties::PUBLISH, bytes);
        assert!(matches!(result, Err(DecodeError::Malformed(_))), "{bytes:02X?}: {result:?}");
    }
    // A property length over what is there.
    let result = read_properties(&mut Reader::new(b"\x03\x01\x01"), &AllowedProperties::PUBLISH);
    assert!(matches!(result, Err(DecodeError::Malformed(_))));
}

#[test]
fn a_packet_has_so_many_user_properties_and_subscription_identifiers() {
    let of = |count: u32, property: Property<'_>| {
        let properties = vec![property; count as usize];
        check(&AllowedProperties::PUBLISH, &bytes(&properties)).map(|read| read.len())
    };
    for property in [Property::UserProperty("", ""), Property::SubscriptionIdentifier(1)] {
        assert_eq!(of(REPEATED_PROPERTIES_MAX, property), Ok(REPEATED_PROPERTIES_MAX as usize));
        assert_eq!(of(REPEATED_PROPERTIES_MAX + 1, property), Err(DecodeError::TooManyProperties));
    }
}

#[test]
fn user_properties_are_passed_over_wherever_they_stand() {
    let (user, alias) = (Property::UserProperty("k", "\u{e9}"), Property::TopicAlias(7));
    let expiry = Property::MessageExpiryInterval(9);
    for properties in [&[][..], &[user], &[alias], &[user, user, alias, user, expiry, user], &[alias, expiry]]
    {
        let bytes = bytes(properties);
        let read: Vec<_> = Properties(&bytes).without_user_properties().collect();
        let wanted: Vec<_> = properties.iter().copied().filter(|property| *property != user).collect();
        assert_eq!(read, wanted);
    }
}

#[test]
fn an_iterator_over_bytes_that_are_no_properties_just_ends() {
    let bytes = b"\x01\x01\xFF\x01\x01";
    let mut iter = Properties::from_validated(bytes).iter();
    assert_eq!(iter.next(), Some(Property::PayloadFormatIndicator(1)));
    assert_eq!(iter.next(), None);
    assert_eq!(iter.next(), None);
}
