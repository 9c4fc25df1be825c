//! Traces: samples messages, and makes a span for each step of a sampled message. A sampled message carries a [`Trace`] from its
//! publisher's loop through the store and to other pods. Each step passes a finished [`MessageSpan`] to the [`SpanSink`]. Without
//! a [`Tracer`] no message carries a trace, so every step costs one branch. This module knows nothing of brokers, the store or
//! exporters.

mod sampler;
mod w3c;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrace_mqtt::QoS;
use millrace_session::{Message, Trace};

use crate::clock::Clock;
pub(crate) use sampler::Sampler;
pub(crate) use w3c::{Parent, requested};

/// Longest topic that a span shows, bytes; the rest is cut off.
const TOPIC_BYTES_MAX: usize = 256;

/// Event loops call it, so it must not block.
pub trait SpanSink: Send + Sync {
    fn span(&self, span: MessageSpan);

    /// False while the sink drops spans. No trace is begun then, because it would lack some of its spans.
    fn has_room(&self) -> bool {
        true
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// The whole way, from the publisher's bytes to its acknowledgement: the parent of the other steps.
    Publish,
    /// From the read of the socket to the decoded packet. For a message traced on request it may begin with the loop's turn.
    Decode,
    /// Rules and limits.
    Authorise,
    Match,
    /// The message waits for the thread that writes to the store.
    Append,
    /// The transaction that makes it durable.
    Commit,
    /// From another pod to this one.
    Fabric,
    /// Into the outbound buffers of the receivers of one event loop.
    Deliver,
    /// The acknowledgement, into the outbound buffer of the publisher.
    Acknowledge,
}

impl TraceStep {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Decode => "decode",
            Self::Authorise => "authorise",
            Self::Match => "match",
            Self::Append => "append",
            Self::Commit => "commit",
            Self::Fabric => "fabric",
            Self::Deliver => "deliver",
            Self::Acknowledge => "acknowledge",
        }
    }
}

#[derive(Clone, Debug)]
pub struct MessageSpan {
    /// The trace, as the publisher's `traceparent` has it where there is one.
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub parent: Option<[u8; 8]>,
    pub step: TraceStep,
    /// Nanoseconds since 1970.
    pub start_ns: u64,
    pub end_ns: u64,
    pub broker: Arc<str>,
    pub topic: Arc<str>,
    pub qos: QoS,
    /// Receivers of a delivery, messages of a commit, else 1.
    pub count: u64,
    pub is_error: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) broker: &'a Arc<str>,
    pub(crate) topic: &'a Arc<str>,
    pub(crate) qos: QoS,
    pub(crate) count: u64,
    pub(crate) is_error: bool,
}

impl<'a> About<'a> {
    pub(crate) fn message(broker: &'a Arc<str>, message: &'a Message) -> Self {
        Self { broker, topic: message.topic(), qos: message.qos(), count: 1, is_error: false }
    }
}

pub struct Tracer {
    sink: Arc<dyn SpanSink>,
    ratio: f64,
    per_second_max: u32,
    /// Ids are a permutation of a counter that starts at a random number.
    last_id: AtomicU64,
}

impl std::fmt::Debug for Tracer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tracer").field("ratio", &self.ratio).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Samples `ratio` of the messages (0 to 1) and messages whose publisher asks for a trace, together at most
    /// `per_second_max` a second.
    #[must_use]
    pub fn new(sink: Arc<dyn SpanSink>, ratio: f64, per_second_max: u32) -> Self {
        // Without system randomness two processes may use the same ids, but spans are still
        // exported.
        let seed = crate::random::bytes().map_or(1, u64::from_ne_bytes);
        Self { sink, ratio, per_second_max, last_id: AtomicU64::new(seed) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.sink.has_room()
    }

    /// Unique as far as 64 bits allow, and never 0.
    fn id(&self) -> u64 {
        // SplitMix64.
        let mut id = self.last_id.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        id = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        id = (id ^ (id >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (id ^ (id >> 31)).max(1)
    }

    pub(crate) fn begin(&self, parent: Option<Parent>, started_us: u64) -> Trace {
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&self.id().to_be_bytes());
        trace_id[8..].copy_from_slice(&self.id().to_be_bytes());
        Trace {
            trace_id: parent.map_or(trace_id, |parent| parent.trace_id),
            span_id: self.id().to_be_bytes(),
            parent: parent.map(|parent| parent.span_id),
            started_us,
        }
    }

    /// Times are microseconds of the process's clock.
    pub(crate) fn step(
        &self,
        clock: &Clock,
        trace: &Trace,
        step: TraceStep,
        (start, end): (u64, u64),
        about: About<'_>,
    ) {
        self.step_ns(trace, step, (clock.unix_ns(start), clock.unix_ns(end)), about);
    }

    /// Times are nanoseconds since 1970.
    pub(crate) fn step_ns(
        &self,
        trace: &Trace,
        step: TraceStep,
        (start_ns, end_ns): (u64, u64),
        about: About<'_>,
    ) {
        let (span_id, parent) = match step {
            TraceStep::Publish => (trace.span_id, trace.parent),
            _ => (self.id().to_be_bytes(), Some(trace.span_id)),
        };
        let About { broker, topic, qos, count, is_error } = about;
        let topic = match topic.len() {
            // A copy for each span would be a large part of its cost.
            ..=TOPIC_BYTES_MAX => topic.clone(),
            _ => topic[..topic.floor_char_boundary(TOPIC_BYTES_MAX)].into(),
        };
        self.sink.span(MessageSpan {
            trace_id: trace.trace_id,
            span_id,
            parent,
            step,
            start_ns,
            end_ns,
            broker: broker.clone(),
            topic,
            qos,
            count,
            is_error,
        });
    }
}
