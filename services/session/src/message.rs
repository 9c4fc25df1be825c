//! An application message on its way from one publisher to its receivers.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_mqtt::{Properties, Property, QoS};

use crate::budget::Holders;

/// Whole seconds of a clock that the caller keeps; only differences matter.
pub type Seconds = u32;

/// Where a message stands in the order of a store that keeps messages; the store's to interpret.
pub type Place = [u8; 12];

/// An application message: what is the same for every receiver. Shared behind an [`Arc`].
#[derive(Debug)]
pub struct Message {
    topic: Arc<str>,
    /// Properties that are forwarded as they are, then the payload.
    body: Box<[u8]>,
    properties_len: u32,
    expires_at: Seconds,
    qos: QoS,
    retain: bool,
    /// Known once the store has it, or it is clear that the store will not get it.
    place: OnceLock<Option<Place>>,
    /// Sessions of a store that have acknowledged it.
    acknowledged: AtomicU32,
    /// Sessions in memory that hold it.
    holders: Holders,
}

impl PartialEq for Message {
    /// What was published, not what became of it.
    fn eq(&self, other: &Self) -> bool {
        let key = |message: &Self| (message.properties_len, message.expires_at, message.qos, message.retain);
        key(self) == key(other) && self.topic == other.topic && self.body == other.body
    }
}

impl Eq for Message {}

/// `expires_at` of a message that never does.
const NEVER: Seconds = Seconds::MAX;

impl Message {
    /// A message from the fields of a PUBLISH or a will. Properties that concern one hop only (topic alias) or change
    /// on the way (expiry) are taken out of `properties`.
    pub fn new(
        topic: Arc<str>,
        qos: QoS,
        retain: bool,
        properties: Properties<'_>,
        payload: &[u8],
        now: Seconds,
    ) -> Self {
        let mut expires_at = NEVER;
        let mut body = Vec::with_capacity(properties.as_bytes().len() + payload.len());
        if forwards_whole(properties) {
            body.extend_from_slice(properties.as_bytes());
        } else {
            //= [MQTT-3.3.2-17] [MQTT-3.3.2-18] v5
            for property in properties.iter() {
                match property {
                    Property::MessageExpiryInterval(seconds) => {
                        expires_at = now.saturating_add(seconds).min(NEVER - 1);
                    }
                    Property::TopicAlias(_) | Property::WillDelayInterval(_) => {}
                    other => other.encode(&mut body),
                }
            }
        }
        let properties_len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        body.extend_from_slice(payload);
        let body = body.into_boxed_slice();
        Self {
            topic,
            body,
            properties_len,
            expires_at,
            qos,
            retain,
            place: OnceLock::new(),
            acknowledged: AtomicU32::new(0),
            holders: Holders::default(),
        }
    }

    /// The same message with its expiry interval beginning at `now`. For a will, which is made at `now` 0 and published
    /// later.
    pub fn issued(self: &Arc<Self>, now: Seconds) -> Arc<Self> {
        if self.expires_at == NEVER {
            return self.clone();
        }
        Arc::new(Self {
            topic: self.topic.clone(),
            body: self.body.clone(),
            properties_len: self.properties_len,
            expires_at: self.expires_at.saturating_add(now).min(NEVER - 1),
            qos: self.qos,
            retain: self.retain,
            place: OnceLock::new(),
            acknowledged: AtomicU32::new(0),
            holders: Holders::default(),
        })
    }

    /// A message as it was kept elsewhere. `properties` are those of [`Message::properties`].
    pub fn restored(
        topic: Arc<str>,
        qos: QoS,
        retain: bool,
        properties: Properties<'_>,
        payload: &[u8],
        expires_at: Option<Seconds>,
    ) -> Self {
        let mut message = Self::new(topic, qos, retain, properties, payload, 0);
        message.expires_at = expires_at.unwrap_or(NEVER);
        message
    }

    /// Says where the store has it, or with `None` that the store does not have it. Said once; later words are ignored.
    pub fn set_place(&self, place: Option<Place>) {
        let _ = self.place.set(place);
    }

    /// Where the store has it, as far as that is known.
    pub fn place(&self) -> Option<Place> {
        self.place.get().copied().flatten()
    }

    /// Whether it is known where, or that the store does not have it.
    pub fn is_placed(&self) -> bool {
        self.place.get().is_some()
    }

    /// Sessions of a store that got it live and have acknowledged it, with QoS 1.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub(crate) fn count_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn holders(&self) -> &Holders {
        &self.holders
    }

    /// When it expires, if it does.
    pub fn expires_at(&self) -> Option<Seconds> {
        (self.expires_at != NEVER).then_some(self.expires_at)
    }

    /// Topic name.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// Quality of service of the publisher.
    pub fn qos(&self) -> QoS {
        self.qos
    }

    /// RETAIN as the publisher set it.
    pub fn retain(&self) -> bool {
        self.retain
    }

    /// The properties that every receiver gets.
    pub fn properties(&self) -> Properties<'_> {
        Properties::from_validated(&self.body[..self.properties_len as usize])
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.body[self.properties_len as usize..]
    }

    /// Bytes that the message stands for in limits: topic, properties and payload.
    pub fn size(&self) -> usize {
        self.topic.len() + self.body.len()
    }

    /// The size of a message with these fields.
    pub fn size_of(topic: &str, properties: Properties<'_>, payload: &[u8]) -> usize {
        let all = topic.len() + properties.as_bytes().len() + payload.len();
        let taken_out = |property| match property {
            Property::MessageExpiryInterval(_) | Property::WillDelayInterval(_) => 5,
            Property::TopicAlias(_) => 3,
            _ => 0,
        };
        all - properties.iter().map(taken_out).sum::<usize>()
    }

    /// True when its expiry interval has passed.
    pub fn is_expired(&self, now: Seconds) -> bool {
        // The second in which it was published had begun: only with the next one has the interval surely passed.
        now > self.expires_at
    }

    /// Seconds left until it expires; `None` when it never does.
    pub fn expiry_left(&self, now: Seconds) -> Option<u32> {
        (self.expires_at != NEVER).then(|| self.expires_at.saturating_sub(now))
    }
}

/// The common case: no property that must be taken out.
fn forwards_whole(properties: Properties<'_>) -> bool {
    properties.is_empty()
        || !properties.iter().any(|property| {
            matches!(
                property,
                Property::MessageExpiryInterval(_) | Property::TopicAlias(_) | Property::WillDelayInterval(_)
            )
        })
}
