//! An application message, shared by all of its receivers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use millrace_mqtt::{Properties, Property, QoS};

use crate::budget::Holders;

/// Whole seconds of the caller's clock; only differences matter.
pub type Seconds = u32;

/// The position of a message in the store's order (a versionstamp), which only the store interprets.
pub type StoredPosition = [u8; 12];

/// The ids of a message in a distributed trace, which the session only carries.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    /// Microseconds of the caller's clock.
    pub started_us: u64,
}

#[derive(Debug)]
pub struct Message {
    topic: Arc<str>,
    body: Box<[u8]>,
    properties_len: u32,
    expires_at_ms: u64,
    publisher: u64,
    qos: QoS,
    retain: bool,
    /// A limit forbids to retain it.
    is_only_live: AtomicBool,
    /// Unset until the store's writer decides.
    stored: OnceLock<StoredAt>,
    acknowledged: AtomicU32,
    /// Set for sampled messages only.
    trace: Option<Box<Trace>>,
    received_us: u32,
    /// Sessions that hold the message, so that its memory counts once.
    holders: Holders,
}

#[derive(Clone, Copy, Debug)]
enum StoredAt {
    At(StoredPosition),
    Nowhere,
    Refused,
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        let key =
            |message: &Self| (message.properties_len, message.expires_at_ms, message.qos, message.retain);
        key(self) == key(other) && self.topic == other.topic && self.body == other.body
    }
}

impl Eq for Message {}

const NEVER: u64 = u64::MAX;

impl Message {
    /// Leaves out properties of one hop (topic alias) and properties that change on the way (expiry).
    pub fn new(
        topic: Arc<str>,
        qos: QoS,
        retain: bool,
        properties: Properties<'_>,
        payload: &[u8],
        now_ms: u64,
    ) -> Self {
        let mut expires_at_ms = NEVER;
        let mut body = Vec::with_capacity(properties.as_bytes().len() + payload.len());
        if forwards_whole(properties) {
            body.extend_from_slice(properties.as_bytes());
        } else {
            //= [MQTT-3.3.2-17] [MQTT-3.3.2-18] v5
            for property in properties.iter() {
                match property {
                    Property::MessageExpiryInterval(seconds) => {
                        expires_at_ms = now_ms.saturating_add(1000 * u64::from(seconds)).min(NEVER - 1);
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
            expires_at_ms,
            publisher: 0,
            qos,
            retain,
            is_only_live: AtomicBool::new(false),
            stored: OnceLock::new(),
            acknowledged: AtomicU32::new(0),
            trace: None,
            received_us: 0,
            holders: Holders::default(),
        }
    }

    /// The same message with an expiry interval from `now_ms`, for a will, which is created at time 0 and published later.
    pub fn issued(self: &Arc<Self>, now_ms: u64) -> Arc<Self> {
        if self.expires_at_ms == NEVER {
            return self.clone();
        }
        Arc::new(Self {
            topic: self.topic.clone(),
            body: self.body.clone(),
            properties_len: self.properties_len,
            expires_at_ms: self.expires_at_ms.saturating_add(now_ms).min(NEVER - 1),
            publisher: self.publisher,
            qos: self.qos,
            retain: self.retain,
            is_only_live: AtomicBool::new(self.is_only_live.load(Ordering::Relaxed)),
            stored: OnceLock::new(),
            acknowledged: AtomicU32::new(0),
            trace: None,
            received_us: 0,
            holders: Holders::default(),
        })
    }

    /// `properties` must be those of [`Message::properties`].
    pub fn restored(
        topic: Arc<str>,
        qos: QoS,
        retain: bool,
        properties: Properties<'_>,
        payload: &[u8],
        expires_at_ms: Option<u64>,
    ) -> Self {
        let mut message = Self::new(topic, qos, retain, properties, payload, 0);
        message.expires_at_ms = expires_at_ms.unwrap_or(NEVER);
        message
    }

    /// Names the publisher of a message that No Local may apply to when its connection has ended: a retained message, or a will.
    #[must_use]
    pub fn published_by(mut self, publisher: u64) -> Self {
        self.publisher = publisher;
        self
    }

    /// The number of the publisher's client identifier; 0: not named.
    pub fn publisher(&self) -> u64 {
        self.publisher
    }

    #[must_use]
    pub fn traced(mut self, trace: Option<Trace>) -> Self {
        self.trace = trace.map(Box::new);
        self
    }

    #[inline]
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_deref()
    }

    /// When its PUBLISH was read, microseconds modulo 2^32, for a message whose delivery is timed; 0 for all others.
    #[must_use]
    pub fn received_at(mut self, at_us: u32) -> Self {
        self.received_us = at_us;
        self
    }

    #[inline]
    pub fn received_us(&self) -> u32 {
        self.received_us
    }

    /// `None` for a message that is not stored. Later calls have no effect.
    pub fn set_position(&self, position: Option<StoredPosition>) {
        let _ = self.stored.set(position.map_or(StoredAt::Nowhere, StoredAt::At));
    }

    /// The store refused the message, so its publisher sends it again. Later calls of [`Self::set_position`] have no effect.
    pub fn refuse(&self) {
        let _ = self.stored.set(StoredAt::Refused);
    }

    pub fn is_refused(&self) -> bool {
        matches!(self.stored.get(), Some(StoredAt::Refused))
    }

    pub fn position(&self) -> Option<StoredPosition> {
        match self.stored.get() {
            Some(StoredAt::At(position)) => Some(*position),
            _ => None,
        }
    }

    /// Whether the message is stored behind this position. One that waits for its commit will be.
    pub fn is_after(&self, position: StoredPosition) -> bool {
        match self.stored.get() {
            Some(StoredAt::At(own)) => *own > position,
            Some(StoredAt::Nowhere | StoredAt::Refused) => false,
            None => true,
        }
    }

    /// Whether the store's writer has decided: the position is known, or the message has none.
    pub fn is_decided(&self) -> bool {
        self.stored.get().is_some()
    }

    /// Number of stored sessions that received the message live with QoS 1 and have acknowledged it: if all have, the store
    /// need not write it.
    pub fn acknowledged(&self) -> u32 {
        self.acknowledged.load(Ordering::Acquire)
    }

    pub(crate) fn count_acknowledged(&self) {
        self.acknowledged.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn holders(&self) -> &Holders {
        &self.holders
    }

    pub fn expires_at_ms(&self) -> Option<u64> {
        (self.expires_at_ms != NEVER).then_some(self.expires_at_ms)
    }

    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub fn qos(&self) -> QoS {
        self.qos
    }

    pub fn retain(&self) -> bool {
        self.retain
    }

    /// A limit forbids to retain the message, which keeps its RETAIN flag for its present receivers.
    pub fn forbid_retaining(&self) {
        self.is_only_live.store(true, Ordering::Relaxed);
    }

    /// Whether it is its topic's retained message from now on, or removes that.
    pub fn is_retained(&self) -> bool {
        self.retain && !self.is_only_live.load(Ordering::Relaxed)
    }

    pub fn properties(&self) -> Properties<'_> {
        Properties::from_validated(&self.body[..self.properties_len as usize])
    }

    /// The payload, behind the properties if they are wanted.
    pub fn body(&self, with_properties: bool) -> &[u8] {
        if with_properties { &self.body } else { self.payload() }
    }

    pub fn payload(&self) -> &[u8] {
        &self.body[self.properties_len as usize..]
    }

    /// Topic, properties and payload, bytes: the size that limits count.
    pub fn size(&self) -> usize {
        self.topic.len() + self.body.len()
    }

    pub fn size_of(topic: &str, properties: Properties<'_>, payload: &[u8]) -> usize {
        let all = topic.len() + properties.as_bytes().len() + payload.len();
        let taken_out = |property| match property {
            Property::MessageExpiryInterval(_) | Property::WillDelayInterval(_) => 5,
            Property::TopicAlias(_) => 3,
            _ => 0,
        };
        all - properties.without_user_properties().map(taken_out).sum::<usize>()
    }

    pub fn is_expired(&self, now_ms: u64) -> bool {
        // A message with an interval of 0 still reaches receivers that are there when it is published.
        now_ms > self.expires_at_ms
    }

    /// The interval less the whole seconds that have passed; `None` when it never expires.
    pub fn expiry_left(&self, now_ms: u64) -> Option<u32> {
        let left_s = self.expires_at_ms.saturating_sub(now_ms).div_ceil(1000);
        (self.expires_at_ms != NEVER).then(|| u32::try_from(left_s).unwrap_or(u32::MAX))
    }
}

fn forwards_whole(properties: Properties<'_>) -> bool {
    properties.is_empty()
        || !properties.without_user_properties().any(|property| {
            matches!(
                property,
                Property::MessageExpiryInterval(_) | Property::TopicAlias(_) | Property::WillDelayInterval(_)
            )
        })
}
