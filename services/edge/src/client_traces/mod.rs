//! Traces of clients: the packets of one client id, for the people who run its broker.
//!
//! A trace is registered for a client id, whether or not its client is connected. The event loops mark the connections
//! of that client id, so any other connection pays one branch. A loop turns each packet into a [`ClientTraceEvent`] and
//! offers it to the traces of the client. Each trace takes `EVENTS_PER_SECOND` events and counts the rest. An event
//! has no payload, no password and no authentication data.
//!
//! Another pod's trace is registered here too (`Traces::begin_for_pod`). Every trace ends unless its reader renews it.

mod event;
mod scanner;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_fabric::PodId;
use serde::{Deserialize, Serialize};

pub(crate) use event::cut;
pub use event::{ClientTraceEvent, ClientTraceFilter, Connecting, PacketDirection};
pub(crate) use scanner::Scanner;

/// More than a person reads; bounds the work of an event loop for a trace.
const EVENTS_PER_SECOND: u32 = 500;
/// A SUBSCRIBE and its answer name many filters, so events alone do not bound what a trace costs.
const BYTES_PER_SECOND: usize = 256 * 1024;
const TRACES_PER_CLIENT_MAX: usize = 4;
/// Traces on one pod, with those of other pods.
const TRACES_MAX: usize = 1_000;
/// A trace of another pod ends after this time, unless that pod renews it.
const LEASE_MS: u64 = 30_000;
const OWN_LEASE_MS: u64 = 120_000;
const PRUNED_EVERY_MS: u64 = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceReport {
    /// Events that were left out before this one.
    pub left_out: u64,
    pub event: Option<ClientTraceEvent>,
}

/// Events of a trace that a pod has had since it began the trace, sent with each of its reports. A report may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventCount {
    /// When the pod began the trace, unix milliseconds.
    pub(crate) since_ms: u64,
    pub(crate) events: u64,
}

#[derive(Default)]
struct KnownEvents {
    since_ms: u64,
    known: u64,
}

impl KnownEvents {
    /// Returns the events that are neither reported nor known to be left out.
    fn missing(&mut self, count: EventCount, reported: bool) -> u64 {
        if self.since_ms != count.since_ms {
            *self = Self { since_ms: count.since_ms, known: 0 };
        }
        self.known += u64::from(reported);
        let lost = count.events.saturating_sub(self.known);
        self.known += lost;
        lost
    }
}

/// Called on event loops, so it must not block.
type TraceSink = Box<dyn Fn(TraceReport) + Send + Sync>;

pub(crate) struct Tap {
    /// The pod that asked for it; `None`: this one.
    pod: Option<PodId>,
    number: u64,
    broker: u64,
    client_id: Box<str>,
    sink: TraceSink,
    rate: Mutex<TraceRate>,
    left_out: AtomicU64,
    known_events: Mutex<HashMap<PodId, KnownEvents>>,
    until_ms: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Default)]
struct TraceRate {
    second: u64,
    events: u32,
    bytes: usize,
}

impl TraceRate {
    fn has_room(&self) -> bool {
        self.events < EVENTS_PER_SECOND && self.bytes < BYTES_PER_SECOND
    }
}

impl Tap {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn rate(&self) -> MutexGuard<'_, TraceRate> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_room(&self, now_ms: u64) -> bool {
        let rate = self.rate();
        rate.second != now_ms / 1000 || rate.has_room()
    }

    fn take_room(&self, event: &ClientTraceEvent) -> bool {
        let second = event.at_ms / 1000;
        let mut rate = self.rate();
        if rate.second != second {
            *rate = TraceRate { second, ..TraceRate::default() };
        }
        let has_room = rate.has_room();
        if has_room {
            rate.events += 1;
            rate.bytes += event.bytes();
        }
        has_room
    }

    pub(crate) fn offer(&self, event: &ClientTraceEvent) {
        if self.take_room(event) {
            self.report(Some(event.clone()));
        } else {
            self.leave_out(1);
        }
    }

    pub(crate) fn leave_out(&self, events: u64) {
        self.left_out.fetch_add(events, Ordering::Relaxed);
    }

    fn report(&self, event: Option<ClientTraceEvent>) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        (self.sink)(TraceReport { left_out, event });
    }

    fn note_count(&self, pod: PodId, count: EventCount, reported: bool) -> u64 {
        let mut known_events = self.known_events.lock().unwrap_or_else(PoisonError::into_inner);
        known_events.entry(pod).or_default().missing(count, reported)
    }

    pub(crate) fn renew(&self, now_ms: u64) -> bool {
        let is_there = !self.is_over(now_ms);
        if is_there {
            self.until_ms.store(now_ms + OWN_LEASE_MS, Ordering::Relaxed);
        }
        is_there
    }

    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.until_ms.load(Ordering::Relaxed) < now_ms
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForPod {
    Begun,
    Renewed,
    TooMany,
}

#[derive(Default)]
pub(crate) struct Traces {
    /// False without traces, so that a CONNECT then takes no lock.
    any: AtomicBool,
    last: AtomicU64,
    pruned_ms: AtomicU64,
    by_broker: Mutex<HashMap<u64, Vec<Arc<Tap>>>>,
}

impl Traces {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Vec<Arc<Tap>>>> {
        self.by_broker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Forgets the traces that are over, so that [`Traces::any`] becomes false again.
    pub(crate) fn of(&self, broker: u64, client_id: &str, now_ms: u64) -> Vec<Arc<Tap>> {
        let mut by_broker = self.lock();
        if now_ms >= self.pruned_ms.load(Ordering::Relaxed) + PRUNED_EVERY_MS {
            self.pruned_ms.store(now_ms, Ordering::Relaxed);
            self.prune(&mut by_broker, now_ms);
        }
        let taps = by_broker.get(&broker).into_iter().flatten();
        taps.filter(|tap| *tap.client_id == *client_id).cloned().collect()
    }

    fn prune(&self, by_broker: &mut HashMap<u64, Vec<Arc<Tap>>>, now_ms: u64) {
        by_broker.retain(|_, taps| {
            taps.retain(|tap| !tap.is_over(now_ms));
            !taps.is_empty()
        });
        self.any.store(!by_broker.is_empty(), Ordering::Relaxed);
    }

    /// Registers a trace of this pod, which ends unless [`Tap::renew`] is called; `None`: the pod has too many.
    pub(crate) fn begin(
        &self,
        broker: u64,
        client_id: &str,
        now_ms: u64,
        sink: TraceSink,
    ) -> Option<Arc<Tap>> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        self.add(None, number, (broker, client_id), (now_ms, now_ms + OWN_LEASE_MS), sink)
    }

    pub(crate) fn begin_for_pod(
        &self,
        (pod, number): (PodId, u64),
        (broker, client_id): (u64, &str),
        now_ms: u64,
        sink: TraceSink,
    ) -> ForPod {
        let until_ms = now_ms + LEASE_MS;
        let known = self.find(Some(pod), number);
        if let Some(tap) = known.filter(|tap| !tap.is_over(now_ms)) {
            tap.until_ms.store(until_ms, Ordering::Relaxed);
            // The report's count shows the pod whether earlier reports were lost.
            tap.report(None);
            return ForPod::Renewed;
        }
        match self.add(Some(pod), number, (broker, client_id), (now_ms, until_ms), sink) {
            Some(_) => ForPod::Begun,
            None => ForPod::TooMany,
        }
    }

    fn add(
        &self,
        pod: Option<PodId>,
        number: u64,
        (broker, client_id): (u64, &str),
        (now_ms, until_ms): (u64, u64),
        sink: TraceSink,
    ) -> Option<Arc<Tap>> {
        let mut by_broker = self.lock();
        self.prune(&mut by_broker, now_ms);
        let of_client =
            by_broker.get(&broker).into_iter().flatten().filter(|tap| *tap.client_id == *client_id);
        if of_client.count() >= TRACES_PER_CLIENT_MAX
            || by_broker.values().map(Vec::len).sum::<usize>() >= TRACES_MAX
        {
            return None;
        }
        let tap = Arc::new(Tap {
            pod,
            number,
            broker,
            client_id: client_id.into(),
            sink,
            rate: Mutex::default(),
            left_out: AtomicU64::new(0),
            known_events: Mutex::default(),
            until_ms: AtomicU64::new(until_ms),
            is_over: AtomicBool::new(false),
        });
        by_broker.entry(broker).or_default().push(tap.clone());
        self.any.store(true, Ordering::Relaxed);
        Some(tap)
    }

    pub(crate) fn end(&self, pod: Option<PodId>, number: u64) {
        let Some(tap) = self.find(pod, number) else { return };
        tap.is_over.store(true, Ordering::Relaxed);
        let mut by_broker = self.lock();
        if let Some(taps) = by_broker.get_mut(&tap.broker) {
            taps.retain(|other| !Arc::ptr_eq(other, &tap));
            if taps.is_empty() {
                by_broker.remove(&tap.broker);
            }
        }
        self.any.store(!by_broker.is_empty(), Ordering::Relaxed);
    }

    /// Another pod reports about a trace of this pod. `count`: `None` from a pod of an older build.
    pub(crate) fn said(&self, pod: PodId, number: u64, mut report: TraceReport, count: Option<EventCount>) {
        let Some(tap) = self.find(None, number) else { return };
        if let Some(count) = count {
            report.left_out = tap.note_count(pod, count, report.event.is_some());
        }
        if report != TraceReport::default() {
            (tap.sink)(report);
        }
    }

    fn find(&self, pod: Option<PodId>, number: u64) -> Option<Arc<Tap>> {
        let by_broker = self.lock();
        by_broker.values().flatten().find(|tap| tap.pod == pod && tap.number == number).cloned()
    }
}

/// Dropping it ends the trace.
pub struct ClientTrace {
    pub(crate) tap: Arc<Tap>,
    pub(crate) on_end: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl ClientTrace {
    /// The number and the client id for [`crate::clients::Question::Trace`].
    #[must_use]
    pub fn subject(&self) -> (u64, &str) {
        (self.tap.number, &self.tap.client_id)
    }

    /// Events left out on this pod since the last report.
    #[must_use]
    pub fn take_left_out(&self) -> u64 {
        self.tap.left_out.swap(0, Ordering::Relaxed)
    }
}

impl Drop for ClientTrace {
    fn drop(&mut self) {
        if let Some(end) = self.on_end.take() {
            end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;

    fn sink() -> (TraceSink, Receiver<TraceReport>) {
        let (sender, receiver) = sync_channel(1_000);
        (Box::new(move |report| drop(sender.try_send(report))), receiver)
    }

    fn event(at_ms: u64) -> ClientTraceEvent {
        ClientTraceEvent { at_ms, ..ClientTraceEvent::default() }
    }

    #[test]
    fn a_trace_takes_so_many_events_a_second_and_counts_the_rest() {
        let traces = Traces::default();
        let (sink, said) = sink();
        let tap = traces.begin(1, "pump", 0, sink).unwrap();
        for _ in 0..EVENTS_PER_SECOND + 7 {
            tap.offer(&event(1_500));
        }
        assert!(!tap.has_room(1_999) && tap.has_room(2_000));
        assert_eq!(said.try_iter().count(), EVENTS_PER_SECOND as usize);
        tap.leave_out(3);
        tap.offer(&event(2_000));
        assert_eq!(said.try_recv(), Ok(TraceReport { left_out: 10, event: Some(event(2_000)) }));
    }

    #[test]
    fn a_trace_is_of_one_client_of_one_broker_until_it_ends() {
        let traces = Traces::default();
        assert!(!traces.any());
        let tap = traces.begin(1, "pump", 0, sink().0).unwrap();
        assert!(traces.any() && Arc::ptr_eq(&traces.of(1, "pump", 0)[0], &tap));
        assert!(traces.of(2, "pump", 0).is_empty() && traces.of(1, "other", 0).is_empty());
        traces.end(None, tap.number);
        assert!(tap.is_over(0) && !traces.any() && traces.of(1, "pump", 0).is_empty());
    }

    #[test]
    fn a_trace_of_another_pod_ends_unless_it_is_renewed() {
        let traces = Traces::default();
        let pod = PodId(7);
        let begin = |now_ms| traces.begin_for_pod((pod, 1), (1, "pump"), now_ms, sink().0);
        assert_eq!(begin(0), ForPod::Begun);
        let tap = traces.of(1, "pump", 0).pop().unwrap();
        assert_eq!(begin(LEASE_MS), ForPod::Renewed);
        assert_eq!(traces.of(1, "pump", 0).len(), 1, "renewed, not doubled");
        assert!(!tap.is_over(2 * LEASE_MS) && tap.is_over(2 * LEASE_MS + 1));
        assert_eq!(begin(3 * LEASE_MS), ForPod::Begun, "begun again");
        assert!(traces.of(1, "pump", 0).len() == 1 && tap.is_over(3 * LEASE_MS));
        let own = traces.begin(1, "pump", 3 * LEASE_MS, sink().0).unwrap();
        traces.end(Some(pod), 1);
        assert!(traces.of(1, "pump", 0).iter().all(|tap| Arc::ptr_eq(tap, &own)));
    }

    #[test]
    fn a_trace_of_this_pod_ends_unless_its_reader_renews_it() {
        let traces = Traces::default();
        let (sink, said) = sink();
        let tap = traces.begin(1, "pump", 0, sink).unwrap();
        assert!(tap.renew(OWN_LEASE_MS) && !tap.is_over(2 * OWN_LEASE_MS));
        let late = 2 * OWN_LEASE_MS + 1;
        assert!(traces.any() && traces.of(1, "pump", late).is_empty());
        assert!(!traces.any(), "a CONNECT takes no lock any more");
        assert!(!tap.renew(late));
        drop(tap);
        assert!(said.recv().is_err(), "the reader has its end");
    }

    #[test]
    fn events_of_lost_reports_are_left_out() {
        let traces = Traces::default();
        let (sink, said) = sink();
        let tap = traces.begin(1, "pump", 0, sink).unwrap();
        let say = |pod, since_ms, events, has_event: bool| {
            let report = TraceReport { left_out: 0, event: has_event.then(|| event(1)) };
            traces.said(PodId(pod), tap.number, report, Some(EventCount { since_ms, events }));
            said.try_recv().ok().map(|report| report.left_out)
        };
        assert_eq!(say(1, 5, 1, true), Some(0));
        assert_eq!(say(1, 5, 4, true), Some(2), "the second and third one are lost");
        assert_eq!(say(2, 5, 1, true), Some(0), "another pod has its own count");
        assert_eq!(say(1, 5, 4, false), None, "renewed, and nothing is lost");
        assert_eq!(say(1, 5, 7, false), Some(3), "the last ones are lost");
        assert_eq!(say(1, 9, 1, true), Some(0), "the pod has begun the trace again");
    }

    #[test]
    fn events_with_many_filters_use_up_a_second_by_their_bytes() {
        let traces = Traces::default();
        let (sink, said) = sink();
        let tap = traces.begin(1, "pump", 0, sink).unwrap();
        let filter = ClientTraceFilter { filter: Some("x".repeat(1_000)), ..ClientTraceFilter::default() };
        let large =
            ClientTraceEvent { at_ms: 1_500, filters: vec![filter; 100], ..ClientTraceEvent::default() };
        (0..10).for_each(|_| tap.offer(&large));
        assert_eq!(said.try_iter().count(), 3);
        assert!(!tap.has_room(1_999) && tap.has_room(2_000));
    }

    #[test]
    fn a_client_has_so_many_traces_at_once() {
        let traces = Traces::default();
        for _ in 0..TRACES_PER_CLIENT_MAX {
            assert!(traces.begin(1, "pump", 0, sink().0).is_some());
        }
        assert!(traces.begin(1, "pump", 0, sink().0).is_none());
        assert!(
            traces.begin(1, "other", 0, sink().0).is_some() && traces.begin(2, "pump", 0, sink().0).is_some()
        );
    }

    #[test]
    fn so_many_traces_and_no_more() {
        let traces = Traces::default();
        for number in 0..TRACES_MAX as u64 {
            assert_eq!(traces.begin_for_pod((PodId(1), number), (number, "c"), 0, sink().0), ForPod::Begun);
        }
        assert!(traces.begin(1, "c", 0, sink().0).is_none());
        assert!(traces.begin(1, "c", LEASE_MS + 1, sink().0).is_some(), "the others are over");
    }
}
