//! Publishes messages for the API.

use millrace_control::{LiveError, PublishRequest, Published, Visit};
use millrace_edge::stored;
use millrace_mqtt::{
    Ack, Disconnect, Packet, PacketId, Properties, Property, Publish, QoS, ReasonCode, Version, encode,
};

use super::inside::{Gone, Inside, said};
use super::live::LiveEdge;

const STRING_BYTES_MAX: usize = 65_535;

/// Publishes one message over a connection of its own, as the visitor that `visit` names.
pub(super) async fn publish(
    edge: &LiveEdge,
    visit: &Visit,
    publication: &PublishRequest,
) -> Result<Published, LiveError> {
    check(publication)?;
    let properties = properties(publication);
    let qos = QoS::from_bits(publication.qos).unwrap_or_default();
    let packet_id = PacketId::MIN;
    let publish = Packet::Publish(Publish {
        dup: false,
        qos,
        retain: publication.retain,
        topic: &publication.topic,
        packet_id: (qos > QoS::AtMostOnce).then_some(packet_id),
        properties: Properties::from_validated(&properties),
        payload: &publication.payload,
    });
    let mut bytes = Vec::new();
    encode::packet(&publish, Version::V5, &mut bytes);
    let mut client = Inside::enter(&edge.running, visit).await?;
    if !client.takes(bytes.len()) {
        let what = format!("makes a packet of {} bytes, and the broker accepts fewer", bytes.len());
        return Err(LiveError::Invalid { field: "payload", what });
    }
    client.write(&bytes).await.map_err(Gone::refused)?;
    let reason = wait_for_answer(&mut client, qos, packet_id).await?;
    let bye = Disconnect { reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    // A failure is ignored, because the message is published.
    let _ = client.send(&Packet::Disconnect(bye)).await;
    let matched = match reason {
        ReasonCode::NO_MATCHING_SUBSCRIBERS => Some(0),
        _ => edge.matching(&visit.broker.name, &publication.topic),
    };
    Ok(Published { stored: qos > QoS::AtMostOnce, matched })
}

/// Waits until the broker has taken a message of this QoS, and returns the reason code of its answer.
async fn wait_for_answer(
    client: &mut Inside,
    qos: QoS,
    packet_id: PacketId,
) -> Result<ReasonCode, LiveError> {
    match qos {
        QoS::AtMostOnce => {
            // A PINGREQ is answered after the message before it was forwarded, so its answer shows
            // that a QoS 0 message was published.
            client.send(&Packet::PingReq).await.map_err(Gone::refused)?;
            client.answer(|packet| matches!(packet, Packet::PingResp).then_some(())).await?;
            Ok(ReasonCode::SUCCESS)
        }
        QoS::AtLeastOnce => {
            acknowledged(client, |packet| match packet {
                Packet::PubAck(ack) => Some((ack.reason, said(ack.properties))),
                _ => None,
            })
            .await
        }
        QoS::ExactlyOnce => {
            let reason = acknowledged(client, |packet| match packet {
                Packet::PubRec(ack) => Some((ack.reason, said(ack.properties))),
                _ => None,
            })
            .await?;
            let release = Ack { packet_id, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
            client.send(&Packet::PubRel(release)).await.map_err(Gone::refused)?;
            client.answer(|packet| matches!(packet, Packet::PubComp(_)).then_some(())).await?;
            Ok(reason)
        }
    }
}

async fn acknowledged(
    client: &mut Inside,
    take: impl FnMut(&Packet<'_>) -> Option<(ReasonCode, Option<String>)>,
) -> Result<ReasonCode, LiveError> {
    let (reason, said) = client.answer(take).await?;
    if reason.is_error() {
        return Err(Gone { reason: Some(reason), said }.refused());
    }
    Ok(reason)
}

/// `topic_bytes_max` of the server bounds the bytes further; the broker then says that the topic is too long.
const NO_TOPIC: &str = "is not a topic: it has at least 1 byte, without + and #";

fn check(publication: &PublishRequest) -> Result<(), LiveError> {
    let invalid = |field, what: &str| Err(LiveError::Invalid { field, what: what.into() });
    if !stored::is_topic(&publication.topic) {
        return invalid("topic", NO_TOPIC);
    }
    if publication.response_topic.as_deref().is_some_and(|topic| !stored::is_topic(topic)) {
        return invalid("properties.response_topic", NO_TOPIC);
    }
    let fits = |text: &str| text.len() <= STRING_BYTES_MAX && !text.contains('\0');
    if !publication.content_type.as_deref().is_none_or(fits) {
        return invalid("properties.content_type", "is longer than 65535 bytes, or has a character U+0000");
    }
    if publication.correlation_data.as_ref().is_some_and(|data| data.len() > STRING_BYTES_MAX) {
        return invalid("properties.correlation_data_base64", "is longer than 65535 bytes");
    }
    if !publication.user_properties.iter().all(|property| fits(&property.name) && fits(&property.value)) {
        return invalid(
            "properties.user_properties",
            "are longer than 65535 bytes, or have a character U+0000",
        );
    }
    Ok(())
}

fn properties(publication: &PublishRequest) -> Vec<u8> {
    let PublishRequest { content_type, response_topic, correlation_data, message_expiry_s, .. } = publication;
    let all = [
        content_type.as_deref().map(Property::ContentType),
        response_topic.as_deref().map(Property::ResponseTopic),
        correlation_data.as_deref().map(Property::CorrelationData),
        message_expiry_s.map(Property::MessageExpiryInterval),
    ];
    let users = publication.user_properties.iter();
    let users = users.map(|property| Property::UserProperty(&property.name, &property.value));
    let mut bytes = Vec::new();
    all.into_iter().flatten().chain(users).for_each(|property| property.encode(&mut bytes));
    bytes
}
