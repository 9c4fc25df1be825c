//! Adds usage counts to the store, and writes the history of metrics with them.

mod points;

use std::collections::HashMap;
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
use points::{History, Span};

/// Brokers in one transaction: about 15 keys each.
const BROKERS_AT_ONCE: usize = 100;
const FAREWELL_MS: u64 = 5_000;
/// How often the thread checks meanwhile whether the process ends.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Flushes usage until the reporter is dropped, and then once more.
pub(super) fn start(
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    pod: &str,
    every_s: u16,
) -> Result<Reporter, StartError> {
    let (pod, every_ms) = (pod.as_bytes().into(), u64::from(every_s) * 1_000);
    let run = move |stopped| Task::new(store, clock, brokers, pod, stopped).run(every_ms);
    Reporter::start("metering", "writes usage to the store", run)
}

struct Task {
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    pod: Box<[u8]>,
    incarnation: u64,
    has_begun: bool,
    is_leaving: bool,
    is_replaced: bool,
    number: u64,
    known: HashMap<u64, Known>,
    /// Flushes whose result is unknown; they are repeated unchanged.
    unsaid: Vec<(u64, Vec<UsageReport>)>,
    began_ms: u64,
    /// Time of the last reading: present counts belong to its windows.
    since_ms: u64,
    stopped: Receiver<()>,
    gives_up_at: Option<u64>,
    is_refused: bool,
}

#[derive(Default)]
struct Known {
    reading: Reading,
    window_ms: u64,
    history: History,
}

impl Task {
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
            unsaid: Vec::new(),
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
            let told = self.tell();
            self.log(told.err().as_ref());
            if is_stopped {
                return self.leave();
            }
        }
    }

    /// Writes the usage, after earlier usage that could not be written.
    fn tell(&mut self) -> Result<(), LayerError> {
        if self.is_replaced {
            return Ok(());
        }
        self.begin()?;
        self.say()?;
        // The flush may have found that the store forgot this pod.
        self.begin()?;
        self.read();
        self.say()
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
        let span = Span { from_ms, to_ms, is_leaving: self.is_leaving };
        let brokers = self.brokers.all();
        let said: Vec<UsageReport> =
            brokers.iter().filter_map(|broker| self.read_broker(broker, span)).collect();
        for said in said.chunks(BROKERS_AT_ONCE) {
            self.number += 1;
            self.unsaid.push((self.number, said.to_vec()));
        }
    }

    fn read_broker(&mut self, broker: &Broker, span: Span) -> Option<UsageReport> {
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
        broker.acknowledged.add_to(&mut reading.latencies);
        let known = self.known.entry(broker.id).or_default();
        let old = std::mem::replace(&mut known.reading, reading);
        let points = known.history.points(&counted(&reading, &old), span, self.began_ms);
        if old == reading && points.is_empty() {
            return None;
        }
        let window_ms = window_of(span.from_ms);
        let is_new = std::mem::replace(&mut known.window_ms, window_ms) != window_ms;
        let said = since(&reading, &old);
        Some(UsageReport { broker: broker.id, at_ms: span.from_ms, is_new, points, ..said })
    }

    fn say(&mut self) -> Result<(), LayerError> {
        while let Some((number, said)) = self.unsaid.first() {
            let now_ms = self.clock.unix_now_ms();
            let flush = Flush { pod: &self.pod, incarnation: self.incarnation, number: *number, now_ms };
            let asked = self.store.run(async |tx| metering::flush(&tx, flush, said).await);
            let flushed = wait(asked, &self.stopped, &self.clock, &mut self.gives_up_at)?;
            if flushed != Flushed::Added {
                tracing::warn!(
                    "what this pod counted last is not charged: it was taken for dead, or is another process by now"
                );
                self.unsaid.clear();
                self.has_begun = false;
                self.is_replaced = flushed == Flushed::Replaced;
                return Ok(());
            }
            self.unsaid.remove(0);
        }
        Ok(())
    }

    fn leave(&mut self) {
        let pod = self.pod.clone();
        if self.has_begun && self.unsaid.is_empty() {
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

fn counted(now: &Reading, old: &Reading) -> Point {
    let mut point = Point {
        // A connection may have ended just before the last reading assumed.
        connected_ms: now.connected_ms.wrapping_sub(old.connected_ms).cast_signed().max(0).cast_unsigned(),
        messages_in: now.all_received[0].wrapping_sub(old.all_received[0]),
        messages_out: now.messages_delivered.wrapping_sub(old.messages_delivered),
        bytes_in: now.all_received[1].wrapping_sub(old.all_received[1]),
        bytes_out: now.delivered[1].wrapping_sub(old.delivered[1]),
        latencies: now.latencies,
        drops: now.drops,
        ..Point::default()
    };
    point.latencies.iter_mut().zip(old.latencies).for_each(|(count, old)| *count -= old.min(*count));
    point.drops.iter_mut().zip(old.drops).for_each(|(count, old)| *count -= old.min(*count));
    point
}

/// The counts between two readings, as the store adds them up.
fn since(now: &Reading, old: &Reading) -> UsageReport {
    let more = |now: u64, old: u64| now.wrapping_sub(old);
    let signed = |now, old| more(now, old).cast_signed();
    let dropped: [u64; DropCause::StoredLimit as usize] =
        std::array::from_fn(|reason| more(now.drops[reason], old.drops[reason]));
    UsageReport {
        units: [
            signed(now.connected_ms, old.connected_ms),
            signed(now.received[0], old.received[0]),
            signed(now.delivered[0], old.delivered[0]),
            signed(now.received[1], old.received[1]),
            signed(now.delivered[1], old.delivered[1]),
        ],
        counters: [
            more(now.all_received[0], old.all_received[0]),
            more(now.all_received[1], old.all_received[1]),
            more(now.messages_delivered, old.messages_delivered),
            more(now.delivered[1], old.delivered[1]),
            dropped.into_iter().sum(),
        ],
        drops: dropped,
        connections: now.connections,
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
