//! Streams the packets of one client to a browser.
//!
//! The event loops of all pods report each packet, see [`millrace_edge::client_traces`]. A report
//! that the browser does not take in time is dropped and counted, so a slow browser costs
//! [`QUEUE_BYTES`] and delays no client.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use millrace_control::{
    LiveError, TailEnd, TraceBegun, TraceDirection, TraceEvent, TraceLeftOut, TracedConnect, TracedFilter,
    TracedPacket,
};
use millrace_edge::client_traces::{self, ClientTrace, PacketDirection, TraceReport};
use millrace_edge::clients::Question;
use millrace_layers::BrokerId;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::clients;
use super::live::LiveEdge;
use crate::running::Running;

const QUEUE_EVENTS: usize = 500;
/// Bytes of the texts of queued events.
const QUEUE_BYTES: usize = 1024 * 1024;
/// Interval of the notice about dropped events while no event comes.
const NOTICE_INTERVAL: Duration = Duration::from_secs(1);
/// Seconds after which the other pods are asked again; they forget a trace after 30 seconds.
const RENEWED_EVERY_S: u32 = 10;

#[derive(Default)]
struct TraceCounts {
    left_out: AtomicU64,
    waiting_bytes: AtomicUsize,
}

struct OpenTrace {
    receiver: Receiver<client_traces::ClientTraceEvent>,
    shared: Arc<TraceCounts>,
    trace: ClientTrace,
    broker: BrokerId,
    running: Running,
    ticks: Interval,
    ticked: u32,
    /// The next event, while the notice before it is being sent.
    held: Option<TraceEvent>,
    is_over: bool,
}

pub(super) async fn trace(
    edge: &LiveEdge,
    broker: BrokerId,
    client_id: &str,
) -> Result<BoxStream<'static, TraceEvent>, LiveError> {
    let (sender, receiver) = channel(QUEUE_EVENTS);
    let shared = Arc::new(TraceCounts::default());
    let counts = Arc::clone(&shared);
    let take = move |report: TraceReport| {
        counts.left_out.fetch_add(report.left_out, Ordering::Relaxed);
        let Some(event) = report.event else { return };
        let weight = weight(&event);
        let fits = counts.waiting_bytes.fetch_add(weight, Ordering::Relaxed) + weight <= QUEUE_BYTES;
        if !(fits && sender.try_send(event).is_ok()) {
            counts.waiting_bytes.fetch_sub(weight, Ordering::Relaxed);
            counts.left_out.fetch_add(1, Ordering::Relaxed);
        }
    };
    let begun = {
        let running = edge.running.read().unwrap_or_else(PoisonError::into_inner);
        let edge = running.as_ref().ok_or_else(|| LiveError::Unavailable("the server is stopping".into()))?;
        edge.trace_client(broker, client_id, take)
    };
    let trace = begun.ok_or_else(|| {
        LiveError::Unavailable(
            "this server has as many traces as it may, or the client has: try again later".into(),
        )
    })?;
    let (client, unanswered) = clients::begin_trace(edge, broker, question(&trace)).await?;
    let mut ticks = interval(NOTICE_INTERVAL);
    // A reader that stalled asks the other pods once, not once for each missed tick.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let open = OpenTrace {
        receiver,
        shared,
        trace,
        broker,
        running: Arc::clone(&edge.running),
        ticks,
        ticked: 0,
        held: Some(TraceEvent::Begun(Box::new(TraceBegun { client, unanswered }))),
        is_over: false,
    };
    Ok(stream::unfold(open, OpenTrace::next).boxed())
}

fn question(trace: &ClientTrace) -> Question {
    let (number, client_id) = trace.subject();
    Question::Trace { client_id: client_id.into(), number }
}

impl OpenTrace {
    async fn next(mut self) -> Option<(TraceEvent, Self)> {
        if self.is_over {
            return None;
        }
        if let Some(held) = self.held.take() {
            return Some((held, self));
        }
        loop {
            let event = tokio::select! {
                event = self.receiver.recv() => Some(event?),
                _ = self.ticks.tick() => None,
            };
            if event.is_none()
                && let Err(reason) = self.renew()
            {
                self.is_over = true;
                return Some((TraceEvent::End(TailEnd { reason: reason.into() }), self));
            }
            let event = event.map(|event| {
                self.shared.waiting_bytes.fetch_sub(weight(&event), Ordering::Relaxed);
                TraceEvent::Traced(Box::new(shown(event)))
            });
            let events = self.shared.left_out.swap(0, Ordering::Relaxed) + self.trace.take_left_out();
            if events > 0 {
                self.held = event;
                return Some((TraceEvent::LeftOut(TraceLeftOut { events }), self));
            }
            if let Some(event) = event {
                return Some((event, self));
            }
        }
    }

    /// Renews the trace here, and from time to time at the other pods, because all forget a trace
    /// whose reader stalls.
    ///
    /// # Errors
    /// The reason for the end of the trace.
    fn renew(&mut self) -> Result<(), &'static str> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let edge = running.as_ref().ok_or("the server is stopping")?;
        if !edge.renew_trace(&self.trace) {
            return Err("nothing was read for two minutes; trace the client again");
        }
        self.ticked += 1;
        if self.ticked.is_multiple_of(RENEWED_EVERY_S) {
            // The answers are not needed.
            drop(edge.ask_clients(self.broker, question(&self.trace), |_| {}));
        }
        Ok(())
    }
}

/// Estimated memory of an event, bytes.
fn weight(event: &client_traces::ClientTraceEvent) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let of_filter = |one: &client_traces::ClientTraceFilter| size_of::<TracedFilter>() + length(&one.filter);
    let filters: usize = event.filters.iter().map(of_filter).sum();
    let connect = event.connect.as_ref().map_or(0, |connect| {
        size_of::<TracedConnect>() + length(&connect.user) + length(&connect.will_topic)
    });
    size_of::<TracedPacket>() + length(&event.topic) + length(&event.reason) + filters + connect
}

fn shown(event: client_traces::ClientTraceEvent) -> TracedPacket {
    let direction = match event.direction {
        PacketDirection::In => TraceDirection::In,
        PacketDirection::Out => TraceDirection::Out,
        PacketDirection::Server => TraceDirection::Server,
    };
    let filter = |one: client_traces::ClientTraceFilter| TracedFilter {
        filter: one.filter,
        qos: one.qos,
        reason_code: one.reason_code,
    };
    let connect = event.connect.map(|connect| TracedConnect {
        user: connect.user,
        address: connect.address,
        protocol: connect.protocol,
        keep_alive_s: connect.keep_alive_s,
        clean_start: connect.clean_start,
        will_topic: connect.will_topic,
    });
    TracedPacket {
        at_ms: event.at_ms,
        direction,
        kind: event.kind.into_owned(),
        bytes: event.bytes,
        packet_id: event.packet_id,
        topic: event.topic,
        qos: event.qos,
        retain: event.retain,
        dup: event.dup,
        payload_bytes: event.payload_bytes,
        session_present: event.session_present,
        reason_code: event.reason_code,
        reason: event.reason,
        filters: event.filters.into_iter().map(filter).collect(),
        more_filters: Some(event.more_filters).filter(|more| *more > 0),
        messages: event.messages,
        connect,
    }
}
