//! Streams a broker's messages to a browser while clients publish them.
//!
//! A task reads as fast as the edge sends. It drops and counts messages that the browser does not
//! take in time, so a slow browser costs [`QUEUE_BYTES`] and delays no other client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use millrace_control::{LiveError, TailDropped, TailEnd, TailEvent, TailMessage, Visit};
use millrace_edge::stored;
use millrace_mqtt::{
    Ack, Packet, PacketId, Properties, Publish, QoS, ReasonCode, RetainHandling, SubscribeOptions, Version,
    encode,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, Interval, interval};

use super::inside::{Gone, Inside};
use super::live::LiveEdge;
use super::properties;
use crate::clock::now_ms;

const QUEUE_MESSAGES: usize = 500;
/// Bytes of payloads, topics and properties queued for a browser.
const QUEUE_BYTES: usize = 1024 * 1024;
/// More than a person can read; bounds what one tail costs the API.
const MESSAGES_PER_SECOND: u32 = 500;
/// Bytes of a payload that are shown; the rest is cut off.
const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
/// Interval of the notice about dropped messages while no message comes.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct TailCounts {
    dropped: AtomicU64,
    waiting_bytes: AtomicUsize,
}

pub(super) async fn tail(
    edge: &LiveEdge,
    visit: &Visit,
    filter: &str,
    retained: bool,
) -> Result<BoxStream<'static, TailEvent>, LiveError> {
    if !stored::is_filter(filter) || filter.starts_with("$share/") {
        let what = "is not a topic filter: + stands for one level, # for all levels at the end".into();
        return Err(LiveError::Invalid { field: "filter", what });
    }
    // The edge checks the filter against the rules of the visit's connect token, as for any client.
    let mut client = Inside::enter(&edge.running, visit).await?;
    subscribe(&mut client, filter, retained).await?;
    let (sender, receiver) = channel(QUEUE_MESSAGES);
    let shared = Arc::new(TailCounts::default());
    tokio::spawn(read(client, sender, Arc::clone(&shared)));
    let state = (receiver, shared, interval(NOTICE_INTERVAL), None);
    Ok(stream::unfold(state, |(receiver, shared, ticks, held)| next(receiver, shared, ticks, held)).boxed())
}

/// With QoS 2, each message comes with the QoS that it was published with. The session ends with the connection, so no
/// message comes twice.
async fn subscribe(client: &mut Inside, filter: &str, retained: bool) -> Result<(), LiveError> {
    let options = SubscribeOptions {
        qos: QoS::ExactlyOnce,
        no_local: false,
        retain_as_published: true,
        retain_handling: if retained { RetainHandling::Send } else { RetainHandling::DoNotSend },
    };
    let mut bytes = Vec::new();
    encode::subscribe(PacketId::MIN, Properties::EMPTY, [(filter, options)], Version::V5, &mut bytes);
    client.write(&bytes).await.map_err(Gone::refused)?;
    // Messages before the SUBACK are retained ones that the tail was not asked for.
    let reason = client
        .answer(|packet| match packet {
            Packet::SubAck(ack) => ack.reasons.first().copied().map(ReasonCode),
            _ => None,
        })
        .await?;
    if reason.is_error() {
        return Err(Gone { reason: Some(reason), said: None }.refused());
    }
    Ok(())
}

type State = (Receiver<TailEvent>, Arc<TailCounts>, Interval, Option<TailEvent>);

/// The next event for the browser. A message that arrives with a notice about dropped messages is
/// held and follows the notice.
async fn next(
    mut receiver: Receiver<TailEvent>,
    shared: Arc<TailCounts>,
    mut ticks: Interval,
    held: Option<TailEvent>,
) -> Option<(TailEvent, State)> {
    if let Some(event) = held {
        return Some((event, (receiver, shared, ticks, None)));
    }
    loop {
        let event = tokio::select! {
            event = receiver.recv() => Some(event?),
            _ = ticks.tick() => None,
        };
        if let Some(TailEvent::Message(message)) = &event {
            shared.waiting_bytes.fetch_sub(weight(message), Ordering::Relaxed);
        }
        let messages = shared.dropped.swap(0, Ordering::Relaxed);
        if messages > 0 {
            let dropped = TailEvent::Dropped(TailDropped { messages });
            return Some((dropped, (receiver, shared, ticks, event)));
        }
        if let Some(event) = event {
            return Some((event, (receiver, shared, ticks, None)));
        }
    }
}

/// Ends when the browser leaves or the edge closes.
async fn read(mut client: Inside, sender: Sender<TailEvent>, shared: Arc<TailCounts>) {
    let (mut second, mut shown) = (Instant::now(), 0);
    let gone = loop {
        let read = tokio::select! {
            read = client.next(taken) => read,
            () = sender.closed() => return,
        };
        let (message, answer) = match read {
            Ok(read) => read,
            Err(gone) => break gone,
        };
        if let Some(answer) = answer
            && let Err(gone) = client.write(&answer).await
        {
            break gone;
        }
        let Some(message) = message else { continue };
        if second.elapsed() >= Duration::from_secs(1) {
            (second, shown) = (Instant::now(), 0);
        }
        shown += 1;
        let weight = weight(&message);
        let fits = shared.waiting_bytes.fetch_add(weight, Ordering::Relaxed) + weight <= QUEUE_BYTES;
        let is_sent =
            fits && shown <= MESSAGES_PER_SECOND && sender.try_send(TailEvent::Message(message)).is_ok();
        if !is_sent {
            shared.waiting_bytes.fetch_sub(weight, Ordering::Relaxed);
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    };
    let reason = gone.refused().to_string();
    // Fails when the browser has left.
    let _ = sender.send(TailEvent::End(TailEnd { reason })).await;
}

/// Returns the message, and the acknowledgement to send if the packet needs one.
fn taken(packet: &Packet<'_>) -> (Option<TailMessage>, Option<Vec<u8>>) {
    let ack = |packet_id| Ack { packet_id, reason: ReasonCode::SUCCESS, properties: Properties::EMPTY };
    let (message, answer) = match packet {
        Packet::Publish(publish) => {
            let answer = publish.packet_id.map(|id| match publish.qos {
                QoS::ExactlyOnce => Packet::PubRec(ack(id)),
                _ => Packet::PubAck(ack(id)),
            });
            (Some(message(publish)), answer)
        }
        Packet::PubRel(release) => (None, Some(Packet::PubComp(ack(release.packet_id)))),
        _ => (None, None),
    };
    let answer = answer.map(|packet| {
        let mut bytes = Vec::new();
        encode::packet(&packet, Version::V5, &mut bytes);
        bytes
    });
    (message, answer)
}

fn message(publish: &Publish<'_>) -> TailMessage {
    let cut = &publish.payload[..publish.payload.len().min(PAYLOAD_BYTES_MAX)];
    let text = match std::str::from_utf8(cut) {
        Ok(text) => Some(text),
        // A cut payload may end within a character.
        Err(error) if error.error_len().is_none() && cut.len() < publish.payload.len() => {
            std::str::from_utf8(&cut[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    TailMessage {
        at_ms: now_ms(),
        topic: publish.topic.into(),
        qos: publish.qos as u8,
        retain: publish.retain,
        payload: text.map(Into::into),
        payload_base64: text.is_none().then(|| BASE64_STANDARD.encode(cut)),
        payload_bytes: publish.payload.len() as u64,
        properties: properties::shown(publish.properties),
    }
}

/// Estimated memory of a message, bytes.
fn weight(message: &TailMessage) -> usize {
    let payload = message.payload.as_ref().or(message.payload_base64.as_ref()).map_or(0, String::len);
    message.topic.len() + payload + properties::weight(&message.properties) + size_of::<TailMessage>()
}
