//! Strategies for every packet of every version. They leak what a packet borrows, so that packets
//! are `'static`: a test run makes some megabytes of them.
#![allow(dead_code, reason = "each test file uses a part")]

use millrace_mqtt::{
    Ack, Auth, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, Properties, Property, Publish,
    QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscribeFilters, SubscribeOptions, UnsubAck,
    Unsubscribe, UnsubscribeFilters, Version, Will, encode,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

pub(crate) fn version() -> impl Strategy<Value = Version> {
    select(vec![Version::V31, Version::V311, Version::V5])
}

/// The bytes of `packet`.
pub(crate) fn bytes(packet: &Packet<'_>, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    encode::packet(packet, version, &mut out);
    out
}

/// A packet of any type that the version has.
pub(crate) fn packet(version: Version) -> BoxedStrategy<Packet<'static>> {
    let ack = |kind| ack(kind, version);
    let any = prop_oneof![
        2 => connect(version),
        1 => connack(version),
        3 => publish(version),
        1 => ack(PacketType::PubAck).prop_map(Packet::PubAck),
        1 => ack(PacketType::PubRec).prop_map(Packet::PubRec),
        1 => ack(PacketType::PubRel).prop_map(Packet::PubRel),
        1 => ack(PacketType::PubComp).prop_map(Packet::PubComp),
        2 => subscribe(version),
        1 => suback(version),
        1 => unsubscribe(version),
        1 => unsuback(version),
        1 => select(vec![Packet::PingReq, Packet::PingResp]),
        1 => disconnect(version),
    ];
    match version {
        Version::V5 => prop_oneof![14 => any, 1 => auth()].boxed(),
        _ => any.boxed(),
    }
}

fn text() -> impl Strategy<Value = &'static str> {
    "[^\0]{0,12}".prop_map(|text| &*text.leak())
}

fn blob() -> impl Strategy<Value = &'static [u8]> {
    // Now and then over the sizes at which a remaining length gets another byte.
    let len = prop_oneof![8 => 0..20_usize, 1 => 100..300_usize, 1 => 16_300..16_500_usize];
    (any::<u8>(), len).prop_map(|(byte, len)| &*vec![byte; len].leak())
}

fn topic() -> impl Strategy<Value = &'static str> {
    "[^\0+#]{1,12}".prop_map(|text| &*text.leak())
}

fn filter() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        3 => topic(),
        1 => (topic(), topic()).prop_map(|(one, other)| &*format!("{one}/+/{other}").leak()),
        1 => topic().prop_map(|topic| &*format!("{topic}/#").leak()),
    ]
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    any::<PacketId>()
}

fn qos() -> impl Strategy<Value = QoS> {
    select(vec![QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

fn reason(kind: PacketType) -> impl Strategy<Value = ReasonCode> {
    select((0..=u8::MAX).map(ReasonCode).filter(|code| code.is_legal_in(kind)).collect::<Vec<_>>())
}

/// Each of `choices` once or not at all, in any order, with some user properties; none but for 5.0.
fn properties(
    version: Version,
    choices: Vec<BoxedStrategy<Property<'static>>>,
) -> BoxedStrategy<Properties<'static>> {
    if version != Version::V5 {
        return Just(Properties::EMPTY).boxed();
    }
    let user = (text(), text()).prop_map(|(key, value)| Property::UserProperty(key, value));
    let listed = choices.into_iter().map(|choice| option::of(choice).boxed()).collect::<Vec<_>>();
    let all = (listed, vec(user, 0..3)).prop_map(|(listed, user)| {
        let mut all = listed.into_iter().flatten().collect::<Vec<_>>();
        all.extend(user);
        all
    });
    prop_oneof![Just(Vec::new()), all.prop_shuffle()]
        .prop_map(|all| {
            let mut out = Vec::new();
            all.iter().for_each(|property| property.encode(&mut out));
            Properties::from_validated(out.leak())
        })
        .boxed()
}

/// A property made from a value.
fn p<T: std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
    property: impl Fn(T) -> Property<'static> + 'static,
) -> BoxedStrategy<Property<'static>> {
    value.prop_map(property).boxed()
}

fn message() -> Vec<BoxedStrategy<Property<'static>>> {
    vec![
        p(0..2_u8, Property::PayloadFormatIndicator),
        p(any::<u32>(), Property::MessageExpiryInterval),
        p(text(), Property::ContentType),
        p(topic(), Property::ResponseTopic),
        p(blob(), Property::CorrelationData),
    ]
}

fn limits() -> Vec<BoxedStrategy<Property<'static>>> {
    vec![
        p(any::<u32>(), Property::SessionExpiryInterval),
        p(1..=u16::MAX, Property::ReceiveMaximum),
        p(any::<u16>(), Property::TopicAliasMaximum),
        p(1..=u32::MAX, Property::MaximumPacketSize),
        p(text(), Property::AuthenticationMethod),
    ]
}

fn connect(version: Version) -> BoxedStrategy<Packet<'static>> {
    let mut choices = limits();
    choices.push(p(0..2_u8, Property::RequestProblemInformation));
    choices.push(p(0..2_u8, Property::RequestResponseInformation));
    let mut will_choices = message();
    will_choices.push(p(any::<u32>(), Property::WillDelayInterval));
    let will = (qos(), any::<bool>(), properties(version, will_choices), topic(), blob()).prop_map(
        |(qos, retain, properties, topic, payload)| Will { qos, retain, properties, topic, payload },
    );
    let credentials = (option::of(text()), option::of(blob())).prop_map(move |(user_name, password)| {
        (user_name, password.filter(|_| user_name.is_some() || version == Version::V5))
    });
    let head = ((any::<bool>(), any::<bool>()), any::<u16>(), properties(version, choices), text());
    (head, option::of(will), credentials)
        .prop_map(move |((flags, keep_alive_s, properties, client_id), will, (user_name, password))| {
            let (clean_start, is_bridge) = flags;
            Packet::Connect(Connect {
                version,
                is_bridge: is_bridge && version != Version::V5,
                clean_start,
                keep_alive_s,
                properties,
                client_id,
                will,
                user_name,
                password,
            })
        })
        .boxed()
}

fn connack(version: Version) -> BoxedStrategy<Packet<'static>> {
    let mut choices = limits();
    choices.extend([
        p(text(), Property::AssignedClientIdentifier),
        p(any::<u16>(), Property::ServerKeepAlive),
        p(text(), Property::ResponseInformation),
        p(text(), Property::ServerReference),
        p(text(), Property::ReasonString),
        p(0..2_u8, Property::MaximumQoS),
        p(0..2_u8, Property::RetainAvailable),
        p(0..2_u8, Property::WildcardSubscriptionAvailable),
        p(0..2_u8, Property::SubscriptionIdentifierAvailable),
        p(0..2_u8, Property::SharedSubscriptionAvailable),
    ]);
    let code = match version {
        Version::V5 => reason(PacketType::ConnAck).boxed(),
        _ => (0..=5_u8).prop_map(ReasonCode).boxed(),
    };
    (any::<bool>(), code, properties(version, choices))
        .prop_map(move |(present, reason, properties)| {
            let session_present = present && reason == ReasonCode::SUCCESS && version != Version::V31;
            Packet::ConnAck(ConnAck { session_present, reason, properties })
        })
        .boxed()
}

fn publish(version: Version) -> BoxedStrategy<Packet<'static>> {
    let mut choices = message();
    choices.push(p(1..=268_435_455_u32, Property::SubscriptionIdentifier));
    choices.push(p(1..=u16::MAX, Property::TopicAlias));
    (any::<[bool; 3]>(), qos(), topic(), packet_id(), properties(version, choices), blob())
        .prop_map(|([dup, retain, no_topic], qos, topic, packet_id, properties, payload)| {
            let has_alias = properties.iter().any(|property| matches!(property, Property::TopicAlias(_)));
            let acknowledged = qos > QoS::AtMostOnce;
            Packet::Publish(Publish {
                dup: dup && acknowledged,
                qos,
                retain,
                topic: if no_topic && has_alias { "" } else { topic },
                packet_id: acknowledged.then_some(packet_id),
                properties,
                payload,
            })
        })
        .boxed()
}

fn reason_string() -> Vec<BoxedStrategy<Property<'static>>> {
    vec![p(text(), Property::ReasonString)]
}

fn ack(kind: PacketType, version: Version) -> BoxedStrategy<Ack<'static>> {
    let code = match version {
        Version::V5 => reason(kind).boxed(),
        _ => Just(ReasonCode::SUCCESS).boxed(),
    };
    (packet_id(), code, properties(version, reason_string()))
        .prop_map(|(packet_id, reason, properties)| Ack { packet_id, reason, properties })
        .boxed()
}

fn options(version: Version) -> impl Strategy<Value = SubscribeOptions> {
    let handling = select(vec![RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend]);
    (qos(), any::<bool>(), any::<bool>(), handling).prop_map(
        move |(qos, no_local, retain_as_published, retain_handling)| match version {
            Version::V5 => SubscribeOptions { qos, no_local, retain_as_published, retain_handling },
            _ => SubscribeOptions { qos, ..SubscribeOptions::default() },
        },
    )
}

fn subscribe(version: Version) -> BoxedStrategy<Packet<'static>> {
    let id = p(1..=268_435_455_u32, Property::SubscriptionIdentifier);
    (packet_id(), properties(version, vec![id]), vec((filter(), options(version)), 1..5))
        .prop_map(move |(packet_id, properties, filters)| {
            let mut out = Vec::new();
            for (filter, options) in filters {
                out.extend_from_slice(&(filter.len() as u16).to_be_bytes());
                out.extend_from_slice(filter.as_bytes());
                out.push(options.to_bits(version));
            }
            let filters = SubscribeFilters::from_validated(out.leak(), version);
            Packet::Subscribe(Subscribe { packet_id, properties, filters })
        })
        .boxed()
}

fn unsubscribe(version: Version) -> BoxedStrategy<Packet<'static>> {
    (packet_id(), properties(version, Vec::new()), vec(filter(), 1..5))
        .prop_map(|(packet_id, properties, filters)| {
            let mut out = Vec::new();
            for filter in filters {
                out.extend_from_slice(&(filter.len() as u16).to_be_bytes());
                out.extend_from_slice(filter.as_bytes());
            }
            let filters = UnsubscribeFilters::from_validated(out.leak());
            Packet::Unsubscribe(Unsubscribe { packet_id, properties, filters })
        })
        .boxed()
}

fn suback(version: Version) -> BoxedStrategy<Packet<'static>> {
    let code = match version {
        Version::V5 => reason(PacketType::SubAck).prop_map(|code| code.0).boxed(),
        _ => select(vec![0, 1, 2, 0x80]).boxed(),
    };
    (packet_id(), properties(version, reason_string()), vec(code, 1..5))
        .prop_map(|(packet_id, properties, reasons)| {
            Packet::SubAck(SubAck { packet_id, properties, reasons: reasons.leak() })
        })
        .boxed()
}

fn unsuback(version: Version) -> BoxedStrategy<Packet<'static>> {
    let count = if version == Version::V5 { 1..5 } else { 0..1 };
    let code = reason(PacketType::UnsubAck).prop_map(|code| code.0);
    (packet_id(), properties(version, reason_string()), vec(code, count))
        .prop_map(|(packet_id, properties, reasons)| {
            Packet::UnsubAck(UnsubAck { packet_id, properties, reasons: reasons.leak() })
        })
        .boxed()
}

fn disconnect(version: Version) -> BoxedStrategy<Packet<'static>> {
    let mut choices = reason_string();
    choices.push(p(any::<u32>(), Property::SessionExpiryInterval));
    choices.push(p(text(), Property::ServerReference));
    let code = match version {
        Version::V5 => reason(PacketType::Disconnect).boxed(),
        _ => Just(ReasonCode::SUCCESS).boxed(),
    };
    (code, properties(version, choices))
        .prop_map(|(reason, properties)| Packet::Disconnect(Disconnect { reason, properties }))
        .boxed()
}

fn auth() -> BoxedStrategy<Packet<'static>> {
    let method = (text(), option::of(blob()), option::of(text())).prop_map(|(method, data, reason)| {
        let mut out = Vec::new();
        Property::AuthenticationMethod(method).encode(&mut out);
        data.into_iter().for_each(|data| Property::AuthenticationData(data).encode(&mut out));
        reason.into_iter().for_each(|reason| Property::ReasonString(reason).encode(&mut out));
        Properties::from_validated(out.leak())
    });
    (reason(PacketType::Auth), method)
        .prop_map(|(reason, properties)| Packet::Auth(Auth { reason, properties }))
        .boxed()
}
