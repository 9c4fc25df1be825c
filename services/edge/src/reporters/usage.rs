//! Adds usage counts to the store, and writes the history of metrics with them.

mod points;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use millrace_layers::metering::{self, DropCause, Flush, Flushed, Point, Resolution, UsageReport, window_of};
use millrace_layers::{LayerError, Store};
use millrace_storage::{StoreError, block_on_for};

use super::Reporter;
use crate::StartError;
use crate::broker::{Broker, Brokers};
use crate::clock::Clock;
use crate::metering::Reading;
use crate::metrics::BrokerCounters;
use points::{History, ReadingSpan};

/// Brokers in one transaction: about 15 keys each.
const BROKERS_AT_ONCE: usize = 100;
/// Longest wait for the store once the process ends.
const FAREWELL_MS: u64 = 5_000;
/// How often a wait for the store checks whether the process ends.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Flushes usage until the reporter is dropped, and then once more.
pub(super) fn start(
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    pod: &str,
    every_s: u16,
) -> Result<Reporter, StartError> {
    brokers.write_usage_of_closed();
    let (pod, every_ms) = (pod.as_bytes().into(), u64::from(every_s) * 1_000);
    let run = move |stopped| UsageTask::new(store, clock, brokers, pod, stopped).run(every_ms);
    Reporter::start("metering", "writes usage to the store", run)
}

struct UsageTask {
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    pod: Box<[u8]>,
    /// Differs in each process of a pod name, so that a replaced process writes nothing more.
    incarnation: u64,
    has_begun: bool,
    is_leaving: bool,
    is_replaced: bool,
    number: u64,
    known: HashMap<u64, KnownUsage>,
    /// Flushes whose result is unknown; they are repeated unchanged.
    unwritten: Vec<(u64, Vec<UsageReport>)>,
    began_ms: u64,
    /// Time of the last reading: present counts belong to its windows.
    since_ms: u64,
    stopped: Receiver<()>,
    gives_up_at: Option<u64>,
    is_refused: bool,
}

#[derive(Default)]
struct KnownUsage {
    reading: Reading,
    window_ms: u64,
    history: History,
}

impl UsageTask {
    fn new(store: Store, clock: Clock, brokers: Arc<Brokers>, pod: Box<[u8]>, stopped: Receiver<()>) -> Self {
        Self {
            store,
            clock,
            brokers,
            pod,
            incarnation: RandomState::new().hash_one(clock.unix_now_ms()),
            has_begun: false,
            is_leaving: false,
            is_replaced: false,
            number: 0,
            known: HashMap::new(),
            unwritten: Vec::new(),
            began_ms: clock.unix_now_ms(),
            since_ms: clock.unix_now_ms(),
            stopped,
            gives_up_at: None,
            is_refused: false,
        }
    }

    /// A killed process loses the usage since the last flush, in the tenant's favour.
    fn run(&mut self, every_ms: u64) {
        loop {
            let minute_ms = Resolution::Minute.window_ms();
            let left_ms = minute_ms - self.clock.unix_now_ms() % minute_ms;
            // A flush must not span two minutes.
            let wait = Duration::from_millis(left_ms.min(every_ms));
            let is_stopped = self.stopped.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
            self.is_leaving = is_stopped;
            let written = self.write_usage();
            self.log(written.err().as_ref());
            if is_stopped {
                return self.leave();
            }
        }
    }

    fn write_usage(&mut self) -> Result<(), LayerError> {
        if self.is_replaced {
            drop(self.brokers.take_closed());
            return Ok(());
        }
        self.begin()?;
        self.write_reports()?;
        // The flush may have found that the store forgot this pod.
        self.begin()?;
        self.read();
        self.write_reports()
    }

    fn begin(&mut self) -> Result<(), LayerError> {
        if !self.has_begun {
            let (pod, incarnation) = (self.pod.clone(), self.incarnation);
            self.ask(async |store| store.run(async |tx| metering::begin(&tx, &pod, incarnation)).await)?;
            self.has_begun = true;
        }
        Ok(())
    }

    fn read(&mut self) {
        let to_ms = self.clock.unix_now_ms();
        let from_ms = std::mem::replace(&mut self.since_ms, to_ms);
        let span = ReadingSpan { from_ms, to_ms, is_leaving: self.is_leaving };
        // A broker that is closed between these two calls is in both lists, and is read as a closed one.
        let open = self.brokers.all();
        let closed = self.brokers.take_closed();
        let closed_at: HashSet<*const Broker> = closed.iter().map(Arc::as_ptr).collect();
        for broker in &closed {
            // Counting begins at zero when the broker is opened again.
            let last = self.reading_of(broker);
            let known = self.known.entry(broker.id).or_default();
            known.reading = known.reading.since(&last);
        }
        let (mut reports, mut are_open) = (Vec::new(), HashSet::new());
        for broker in open.iter().filter(|broker| !closed_at.contains(&Arc::as_ptr(broker))) {
            are_open.insert(broker.id);
            let reading = self.reading_of(broker);
            let known = self.known.entry(broker.id).or_default();
            reports.extend(known.report(broker.id, reading, span, self.began_ms));
        }
        self.known.retain(|id, known| {
            if are_open.contains(id) {
                return true;
            }
            reports.extend(known.report(*id, Reading::default(), span, self.began_ms));
            !known.history.is_written()
        });
        for part in reports.chunks(BROKERS_AT_ONCE) {
            self.number += 1;
            self.unwritten.push((self.number, part.to_vec()));
        }
    }

    fn reading_of(&self, broker: &Broker) -> Reading {
        let mut reading = Reading::default();
        let now = self.clock.now();
        broker.meters.iter().for_each(|meter| reading.add(meter, now));
        if self.is_leaving {
            // Including clients whose disconnection was not counted in time.
            reading.connections = 0;
        }
        for drops in broker.counters.iter().map(BrokerCounters::drops) {
            reading.drops.iter_mut().zip(drops).for_each(|(sum, drops)| *sum += drops);
        }
        broker.latencies.acknowledged.add_to(&mut reading.latencies);
        reading.deliveries = broker.latencies.deliveries();
        reading
    }

    fn write_reports(&mut self) -> Result<(), LayerError> {
        while let Some((number, reports)) = self.unwritten.first() {
            let now_ms = self.clock.unix_now_ms();
            let flush = Flush { pod: &self.pod, incarnation: self.incarnation, number: *number, now_ms };
            let asked = self.store.run(async |tx| metering::flush(&tx, flush, reports).await);
            let flushed = wait(asked, &self.stopped, &self.clock, &mut self.gives_up_at)?;
            if flushed != Flushed::Added {
                tracing::warn!(
                    "what this pod counted last is not charged: it was taken for dead, or is another process by now"
                );
                self.unwritten.clear();
                self.has_begun = false;
                self.is_replaced = flushed == Flushed::Replaced;
                return Ok(());
            }
            self.unwritten.remove(0);
        }
        Ok(())
    }

    fn leave(&mut self) {
        let pod = self.pod.clone();
        if self.has_begun && self.unwritten.is_empty() {
            let left = self.ask(async |store| store.run(async |tx| metering::forget(&tx, &pod)).await);
            self.log(left.err().as_ref());
        }
    }

    fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&Store) -> Result<T, LayerError>,
    ) -> Result<T, LayerError> {
        wait(question(&self.store), &self.stopped, &self.clock, &mut self.gives_up_at)
    }

    fn log(&mut self, error: Option<&LayerError>) {
        match error {
            Some(error) if !self.is_refused => {
                tracing::warn!(%error, "usage cannot be written to the store; the server tries again");
            }
            None if self.is_refused => tracing::info!("usage was written to the store again"),
            _ => {}
        }
        self.is_refused = error.is_some();
    }
}

impl KnownUsage {
    fn report(
        &mut self,
        broker: u64,
        reading: Reading,
        span: ReadingSpan,
        began_ms: u64,
    ) -> Option<UsageReport> {
        let old = std::mem::replace(&mut self.reading, reading);
        let more = reading.since(&old);
        let points = self.history.points(&counted(&more), span, began_ms);
        if old == reading && points.is_empty() {
            return None;
        }
        let window_ms = window_of(span.from_ms);
        let is_new = std::mem::replace(&mut self.window_ms, window_ms) != window_ms;
        Some(UsageReport { broker, at_ms: span.from_ms, is_new, points, ..usage(&more) })
    }
}

fn counted(more: &Reading) -> Point {
    Point {
        // A connection may have ended before the time up to which the last reading counted it.
        connected_ms: more.connected_ms.cast_signed().max(0).cast_unsigned(),
        messages_in: more.all_received[0],
        messages_out: more.messages_delivered,
        bytes_in: more.all_received[1],
        bytes_out: more.delivered[1],
        latencies: more.latencies,
        drops: more.drops,
        deliveries: more.deliveries,
        ..Point::default()
    }
}

/// The counts between two readings, as the store adds them up.
fn usage(more: &Reading) -> UsageReport {
    let dropped: [u64; DropCause::StoredLimit as usize] = std::array::from_fn(|reason| more.drops[reason]);
    let units = [more.connected_ms, more.received[0], more.delivered[0], more.received[1], more.delivered[1]];
    UsageReport {
        units: units.map(u64::cast_signed),
        counters: [
            more.all_received[0],
            more.all_received[1],
            more.messages_delivered,
            more.delivered[1],
            dropped.into_iter().sum(),
        ],
        drops: dropped,
        connections: more.connections,
        ..UsageReport::default()
    }
}

/// Waits for the store; once the process ends, only for a while.
fn wait<T>(
    asked: impl Future<Output = Result<T, LayerError>>,
    stopped: &Receiver<()>,
    clock: &Clock,
    gives_up_at: &mut Option<u64>,
) -> Result<T, LayerError> {
    let mut asked = pin!(asked);
    loop {
        if let Some(answer) = block_on_for(asked.as_mut(), LOOK_EVERY) {
            return answer;
        }
        let is_stopped = stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected);
        if is_stopped && clock.now() >= *gives_up_at.get_or_insert(clock.now() + FAREWELL_MS) {
            return Err(StoreError::Unavailable("it did not answer before the end".into()).into());
        }
    }
}
