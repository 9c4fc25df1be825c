//! Delivers runs: QoS 0 messages of one publisher to one topic, whose bytes several receivers share.

use std::sync::Arc;

use millrace_mqtt::encode::PublishHead;
use millrace_mqtt::{Properties, QoS, Version};
use millrace_router::Receiver;
use millrace_session::{Delivered, DropReason, Message, Out};

use super::{Publisher, local_session};
use crate::clock::Clock;
use crate::connection_id::ConnectionId;
use crate::core::connection::NONE;
use crate::core::fanout::Copies;
use crate::core::notes::note_dropped;
use crate::core::output::FLUSH_BYTES;
use crate::core::tapped::Tapped;
use crate::core::{Core, LocalSession, parts, work};
use crate::deliveries::{Run, each_publish};
use crate::metering::Amount;
use crate::outbound::{OutboundRoom, OutboundSlot};
use crate::routes::{RouteProgress, Routes};

/// Runs of at least this many bytes are shared by several receivers instead of copied for each.
const SHARE_RUN_BYTES_MIN: usize = 2048;

/// A run, and the buffers that its receivers of 3.x and of 5.0 share in all slices.
pub(in crate::core) struct RunCopies<'r> {
    pub(in crate::core) bytes: &'r [u8],
    pub(in crate::core) is_v5: bool,
    pub(in crate::core) amount: Amount,
    pub(in crate::core) shared: &'r mut SharedRun,
}

pub(in crate::core) type SharedRun = [Option<Arc<Vec<u8>>>; 2];

impl Core {
    pub(in crate::core) fn deliver_mailed_run(&mut self, run: &Run) {
        let publisher = Publisher::of(&run.routes, run.from, run.publisher);
        let must_wait = self.unfinished.fanouts.delays(run.routes.broker.id, publisher);
        let (is_v5, amount, received_us) = (run.is_v5, run.amount, run.received_us);
        let mut shared = SharedRun::default();
        let copies = RunCopies { bytes: &run.bytes, is_v5, amount, shared: &mut shared };
        let next = if must_wait { 0 } else { self.deliver_run_from(&run.routes, copies, publisher, 0) };
        if next < run.routes.receivers(self.index).len() {
            let copies = Copies::Run { bytes: run.bytes.clone(), is_v5, amount, received_us, shared };
            self.put_off(&run.routes, copies, publisher, next);
        } else {
            self.note_delivery(&run.routes.broker, received_us);
        }
    }

    pub(in crate::core) fn deliver_run(
        &mut self,
        routes: &Arc<Routes>,
        bytes: &[u8],
        is_v5: bool,
        amount: Amount,
        (from, client): (ConnectionId, u64),
        received_us: u32,
    ) {
        let publisher = Publisher::of(routes, Some(from), client);
        let must_wait = self.unfinished.fanouts.delays(routes.broker.id, publisher);
        let mut shared = SharedRun::default();
        let copies = RunCopies { bytes, is_v5, amount, shared: &mut shared };
        let next = if must_wait { 0 } else { self.deliver_run_from(routes, copies, publisher, 0) };
        if next < routes.receivers(self.index).len() {
            let bytes = bytes.into();
            let copies = Copies::Run { bytes, is_v5, amount, received_us, shared };
            self.put_off(routes, copies, publisher, next);
        } else {
            self.note_delivery(&routes.broker, received_us);
        }
    }

    /// Delivers to the receivers of this loop from index `start` on, until they or a slice of work end. Returns the index of the next
    /// receiver. Each receiver gets the run, pauses the publisher, loses the run, or gets its messages singly.
    pub(in crate::core) fn deliver_run_from(
        &mut self,
        routes: &Routes,
        run: RunCopies<'_>,
        publisher: Publisher,
        start: usize,
    ) -> usize {
        let RunCopies { bytes, is_v5, amount, shared } = run;
        let from = publisher.id;
        let receivers = routes.receivers(self.index);
        let end = self.work.spent() + work::SLICE;
        let counters = &routes.broker.counters[usize::from(self.index)];
        let soft_bytes = self.output.soft_bytes;
        let hard_bytes = self.output.hard_bytes;
        let mut encodings =
            RunEncodings { routes, bytes, is_v5, share: receivers.len() > 1, other: None, shared };
        let (mut single, mut lagging) = (Vec::new(), Vec::new());
        let (mut copies, mut accepting) = (0, 0);
        let mut next = start;
        while let Some(receiver) = receivers.get(next)
            && self.work.spent() < end
        {
            next += 1;
            self.work.spend(work::COPY);
            let Some(local) = local_session(&mut self.sessions, receiver) else { continue };
            if local.connection == NONE || !receiver.takes(local.publisher == publisher.client) {
                continue;
            }
            // The session must get its retained messages first.
            let is_replaying = local.session.delays_qos_0()
                || local.persistent.as_ref().is_some_and(|persistent| persistent.subscribing > 0)
                || local.new_subscriptions.as_ref().is_some_and(|new| new.reading > 0);
            let (protocol, mut out, _) = parts!(self, local.connection);
            if is_replaying || !protocol.takes_shared_bytes() || !receiver.identifiers.is_empty() {
                self.work.spend(amount.messages as u64 * work::single_copy(receiver));
                accepting += 1;
                single.push(receiver);
                continue;
            }
            if out.busy {
                match out.outbound().room(soft_bytes, hard_bytes, self.now_ms) {
                    OutboundRoom::Free => {}
                    OutboundRoom::Congested => {
                        lagging.push(receiver);
                        continue;
                    }
                    OutboundRoom::Full => {
                        let tapped = self.tracing.tapped.get(&local.connection).map(Box::as_ref);
                        drop_run(routes, self.index, local, tapped, amount, &self.process.clock);
                        continue;
                    }
                }
            }
            encodings.append(protocol.version() == Version::V5, &mut out);
            copies += 1;
            accepting += 1;
            let is_large = !out.busy && out.outbound().len() >= FLUSH_BYTES;
            let connection = local.connection;
            self.connections[connection as usize].count_out(amount.messages, amount.bytes);
            if is_large {
                self.flush(connection);
            }
        }
        // If most receivers lag and the publisher is a client of this process, it waits for them. Otherwise the lagging receivers
        // lose the messages, because a slow reader costs only itself (P9).
        let waits = self.note_lag(routes, from, accepting, lagging.len());
        for receiver in lagging {
            let Some(local) = local_session(&mut self.sessions, receiver) else { continue };
            let connection = local.connection;
            if connection == NONE {
                continue;
            }
            match waits {
                Some((from, progress)) => {
                    let (protocol, mut out, _) = parts!(self, connection);
                    encodings.append(protocol.version() == Version::V5, &mut out);
                    copies += 1;
                    self.connections[connection as usize].count_out(amount.messages, amount.bytes);
                    self.pause_until_drained(connection, from, progress);
                }
                _ => {
                    let tapped = self.tracing.tapped.get(&connection).map(Box::as_ref);
                    drop_run(routes, self.index, local, tapped, amount, &self.process.clock);
                }
            }
        }
        counters.sent.add(amount.messages * copies);
        routes.broker.meters[usize::from(self.index)].delivered.add(amount, copies);
        if !single.is_empty() {
            self.deliver_run_singly(routes, bytes, is_v5, &single, publisher);
        }
        next
    }

    /// Returns the publisher if it waits for its lagging receivers.
    fn note_lag(
        &mut self,
        routes: &Routes,
        publisher: Option<ConnectionId>,
        accepting: usize,
        lagging: usize,
    ) -> Option<(ConnectionId, RouteProgress)> {
        routes.note_progress(self.index, accepting + lagging, lagging, self.now_ms);
        let (publisher, progress) = (publisher?, routes.progress(self.index, self.now_ms)?);
        if lagging == 0 || !routes.are_most_behind(self.now_ms) {
            self.pauses.watched.note(Some(publisher), progress, self.now_ms);
            return None;
        }
        let waits = self.pauses.watched.are_most_behind(publisher, progress, self.now_ms);
        waits.then_some((publisher, progress))
    }

    /// For receivers that cannot share the bytes, because of identifiers, topic aliases, a packet size, or replayed messages.
    fn deliver_run_singly(
        &mut self,
        routes: &Routes,
        bytes: &[u8],
        is_v5: bool,
        receivers: &[&Receiver],
        from: Publisher,
    ) {
        let now = self.now_ms;
        each_publish(bytes, is_v5, |payload| {
            let qos = QoS::AtMostOnce;
            let message =
                Arc::new(Message::new(routes.topic.clone(), qos, false, Properties::EMPTY, payload, now));
            for receiver in receivers {
                self.deliver_one(&routes.broker, receiver, &message, from, 0);
            }
        });
    }
}

fn drop_run(
    routes: &Routes,
    core: u16,
    local: &LocalSession,
    tapped: Option<&Tapped>,
    amount: Amount,
    clock: &Clock,
) {
    let broker = &routes.broker;
    broker.counters[usize::from(core)].dropped_busy.add(amount.messages);
    if let Some(tapped) = tapped {
        tapped.dropped(&routes.topic, DropReason::Busy, amount.messages, clock.unix_now_ms());
    }
    if broker.incidents.is_on() {
        let busy = Delivered::Dropped(DropReason::Busy);
        let client_id = local.session.client_id();
        note_dropped(broker, busy, client_id, amount.messages as u64, clock.unix_now_ms());
    }
}

/// A run in the encodings of 5.0 and of 3.x. The encoding that the publisher did not use is made for the first receiver that needs it.
struct RunEncodings<'r> {
    routes: &'r Routes,
    bytes: &'r [u8],
    is_v5: bool,
    /// Whether several receivers may share one buffer.
    share: bool,
    other: Option<Vec<u8>>,
    shared: &'r mut SharedRun,
}

impl RunEncodings<'_> {
    fn append(&mut self, v5: bool, out: &mut OutboundSlot<'_>) {
        if let Some(shared) = &self.shared[usize::from(v5)] {
            return out.outbound().push_shared(shared);
        }
        let bytes = if v5 == self.is_v5 {
            self.bytes
        } else {
            self.other.get_or_insert_with(|| transcode(&self.routes.topic, self.bytes, self.is_v5))
        };
        if self.share && bytes.len() >= SHARE_RUN_BYTES_MIN {
            let shared = self.shared[usize::from(v5)].insert(out.pool.share(bytes));
            out.outbound().push_shared(shared);
        } else {
            out.buffer().extend_from_slice(bytes);
        }
    }
}

/// Encodes a run for the versions that its publisher does not use: 5.0 has a length byte for the empty properties.
fn transcode(topic: &str, bytes: &[u8], is_v5: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    let to = if is_v5 { Version::V311 } else { Version::V5 };
    each_publish(bytes, is_v5, |payload| {
        let head = PublishHead {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: false,
            topic,
            packet_id: None,
            properties: Properties::EMPTY,
            more: Properties::EMPTY,
            payload_len: payload.len(),
        };
        head.encode(to, &mut out);
        out.extend_from_slice(payload);
    });
    out
}
