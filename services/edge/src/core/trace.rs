//! Spans (OpenTelemetry) of the steps that a message takes on an event loop, and the times of deliveries. Traces of clients,
//! which show a client's packets to people, are in `tapped.rs`; `Tracing` only holds their state.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_mqtt::{Publish, QoS};
use millrace_session::{DropReason, Message, Trace};

use super::Core;
use super::tapped::Tapped;
use crate::broker::Broker;
use crate::clock::Clock;
use crate::jobs::StoredTraces;
use crate::traces::Sampler;
use crate::traces::{self, About, TraceStep};

/// A traced PUBLISH, while its publisher's loop processes it.
pub(super) struct Traced {
    pub(super) trace: Trace,
    pub(super) step_us: u64,
    broker: Arc<Broker>,
    topic: Arc<str>,
    qos: QoS,
}

/// The first PUBLISH of one in so many reads is timed. A prime number, because many clients alternate between two packets.
const TIMED_READS: u32 = 17;

const PUBLISH_BYTES_MIN: usize = 5;

/// Microseconds modulo 2^32, but never 0, which marks a message that is not timed.
fn low(micros: u64) -> u32 {
    u32::try_from(micros & u64::from(u32::MAX)).unwrap_or_default().max(1)
}

pub(super) struct Tracing {
    pub(super) sampler: Sampler,
    pub(super) tapped: HashMap<u32, Box<Tapped>, foldhash::fast::FixedState>,
    pub(super) turn_us: u64,
    /// When the bytes being processed were read, microseconds, if they may hold a sampled message; otherwise `turn_us`.
    read_us: u64,
    reads: u32,
    /// The time of this read if its first PUBLISH is timed; otherwise 0.
    timed_us: u32,
}

impl Tracing {
    pub(super) fn new(sampler: Sampler) -> Self {
        Self { sampler, tapped: HashMap::default(), turn_us: 0, read_us: 0, reads: 0, timed_us: 0 }
    }

    /// Shows a dropped copy in the trace of its receiver, if the receiver is traced.
    pub(super) fn note_drop(&self, connection: u32, message: &Message, reason: DropReason, clock: &Clock) {
        if let Some(tapped) = self.tapped.get(&connection) {
            tapped.dropped(message.topic(), reason, 1, clock.unix_now_ms());
        }
    }
}

impl Core {
    /// Notes when `bytes` of packets were read, if the next sample may be in them. Reading the clock each time would cost all
    /// messages about 2 %.
    #[inline]
    pub(super) fn note_read(&mut self, bytes: usize) {
        self.tracing.reads = self.tracing.reads.wrapping_add(1);
        let is_timed = self.tracing.reads.is_multiple_of(TIMED_READS);
        self.tracing.read_us =
            if is_timed || self.tracing.sampler.is_near(bytes / PUBLISH_BYTES_MIN, self.now) {
                self.process.clock.micros()
            } else {
                self.tracing.turn_us
            };
        self.tracing.timed_us = if is_timed { low(self.tracing.read_us) } else { 0 };
    }

    /// The time for [`Message::received_at`] of the next message that the loop reads.
    #[inline]
    pub(super) fn take_timed(&mut self) -> u32 {
        std::mem::take(&mut self.tracing.timed_us)
    }

    /// Counts the time from `received_us` until all receivers of this loop had the message or run.
    #[inline]
    pub(super) fn note_delivery(&self, broker: &Broker, received_us: u32) {
        if received_us != 0 {
            let took_us = low(self.process.clock.micros()).wrapping_sub(received_us).into();
            self.process.core(self.index).delivery_times.note(took_us);
            broker.latencies.note_delivery(took_us);
        }
    }

    #[inline]
    pub(super) fn is_sample_due(&mut self) -> bool {
        self.tracing.sampler.is_due(self.now)
    }

    #[inline]
    pub(super) fn pass_samples(&mut self, messages: usize) {
        let left_out = self.tracing.sampler.pass(messages);
        if left_out > 0 {
            self.counters().traces_over_rate.add(left_out);
        }
    }

    /// Begins to trace a PUBLISH: if its publisher says that it records the trace, or if the publisher says nothing
    /// and the sampler chooses it.
    #[inline]
    pub(super) fn begin_trace(
        &mut self,
        slot: u32,
        topic: &str,
        publish: &Publish<'_>,
    ) -> Option<Box<Traced>> {
        self.process.config.tracer.as_ref()?;
        if publish.properties.is_empty() && !self.is_sample_due() {
            return None;
        }
        self.sample(slot, topic, publish)
    }

    fn sample(&mut self, slot: u32, topic: &str, publish: &Publish<'_>) -> Option<Box<Traced>> {
        let tracer = self.process.config.tracer.as_ref()?;
        let broker = &self.sessions[self.connections[slot as usize].session as usize].broker;
        let parent = traces::requested(publish.properties);
        let broker = broker.clone();
        let sampler = &mut self.tracing.sampler;
        match parent {
            Some(parent) if parent.is_sampled => {
                if !sampler.requested(broker.id, self.now) {
                    self.counters().traces_over_rate.add(1);
                    return None;
                }
            }
            None if sampler.is_due(self.now) => sampler.choose(),
            _ => return None,
        }
        let counters = self.counters();
        if !tracer.has_room() {
            counters.traces_queue_full.add(1);
            return None;
        }
        counters.traces_followed.add(1);
        let trace = tracer.begin(parent, self.tracing.read_us);
        let (step_us, topic, qos) = (self.tracing.read_us, topic.into(), publish.qos);
        let mut traced = Some(Box::new(Traced { trace, step_us, broker, topic, qos }));
        self.trace_step(&mut traced, TraceStep::Decode, false);
        traced
    }

    /// Records a step that began at the end of the previous one.
    #[inline]
    pub(super) fn trace_step(&self, traced: &mut Option<Box<Traced>>, step: TraceStep, is_error: bool) {
        if let Some(traced) = traced {
            let now = self.process.clock.micros();
            self.trace_from(traced, step, (traced.step_us, now), is_error);
            traced.step_us = now;
        }
    }

    /// Ends the trace of a PUBLISH that is not stored.
    pub(super) fn end_trace(&self, mut traced: Option<Box<Traced>>, is_error: bool) {
        if traced.as_ref().is_some_and(|traced| traced.qos > QoS::AtMostOnce) {
            self.trace_step(&mut traced, TraceStep::Acknowledge, is_error);
        }
        if let Some(traced) = traced {
            let whole = (traced.trace.started_us, traced.step_us);
            self.trace_from(&traced, TraceStep::Publish, whole, is_error);
        }
    }

    fn trace_from(&self, traced: &Traced, step: TraceStep, times: (u64, u64), is_error: bool) {
        let Some(tracer) = &self.process.config.tracer else { return };
        let Traced { trace, broker, topic, qos, .. } = traced;
        let about = About { broker: &broker.name, topic, qos: *qos, count: 1, is_error };
        tracer.step(&self.process.clock, trace, step, times, about);
    }

    /// When a delivery begins, microseconds; `None` for a message that is not traced.
    #[inline]
    pub(super) fn trace_began(&self, message: &Message) -> Option<u64> {
        message.trace().map(|_| self.process.clock.micros())
    }

    #[inline]
    pub(super) fn trace_delivered(
        &self,
        began: Option<u64>,
        broker: &Broker,
        message: &Message,
        count: usize,
    ) {
        self.note_delivery(broker, message.received_us());
        if let (Some(began), Some(trace), Some(tracer)) =
            (began, message.trace(), &self.process.config.tracer)
        {
            let about = About { count: count as u64, ..About::message(&broker.name, message) };
            let times = (began, self.process.clock.micros());
            tracer.step(&self.process.clock, trace, TraceStep::Deliver, times, about);
        }
    }

    pub(super) fn end_stored_traces(&self, traced: &StoredTraces) {
        let Some(tracer) = &self.process.config.tracer else { return };
        let (clock, now) = (&self.process.clock, self.process.clock.micros());
        for (broker, message) in &traced.messages {
            let Some(trace) = message.trace() else { continue };
            let about = About { is_error: !traced.stored, ..About::message(&broker.name, message) };
            if message.qos() > QoS::AtMostOnce {
                tracer.step(clock, trace, TraceStep::Acknowledge, (traced.answered_us, now), about);
            }
            tracer.step(clock, trace, TraceStep::Publish, (trace.started_us, now), about);
        }
    }
}

#[cfg(test)]
mod tests;
