//! The protocol of a fabric, without NATS, threads or clocks. Received frames, changes of the
//! connection and the time come in. Frames go to the outbox; messages, gaps and notifications go to
//! the sink.
//!
//! A pod that joins a receiver sends `Joined` to all other pods. From then on each of them sends its messages for the
//! receiver. It replies with the number of its next message (`Answer`), and queues a heartbeat behind the messages
//! before it. Once every live pod has replied, the joining pod knows the next number of each sender, so every later
//! loss shows as a gap. Pods join again after each reconnect. A Hello announces a pod: `asks` makes the others announce
//! themselves, `begins_epoch` says that its numbers begin anew.

use std::sync::Arc;

use bytes::Bytes;

use crate::address::{PodId, To};
use crate::clock::Millis;
use crate::collections::HashMap;
use crate::counters::Counts;
use crate::frame::{self, ANNOUNCED_MAX, Bad, FabricFrame, FrameContent};
use crate::inbox::Inbox;
use crate::joins::Joins;
use crate::limits::FabricLimits;
use crate::outbox::{Destination, FabricOutbox};
use crate::sink::Sink;

/// Interval of dropping silent senders and incomplete batches from the inbox; short beside their
/// limits of 10 s and more.
const SWEEP_MS: u64 = 8_000;

struct PeerPod {
    name: String,
    /// Time of the last Hello, or of this pod's reconnect if that was later.
    last_seen_at: Millis,
    epoch: u32,
    /// False after [`FabricLimits::pod_gone_ms`] without a Hello, whatever other frames came.
    is_alive: bool,
    /// The pod began while this pod listened, or no join waits for its answer any more (even if all tries failed), so its later losses
    /// show.
    is_known: bool,
}

pub(crate) struct FabricCore {
    own: PodId,
    name: String,
    limits: FabricLimits,
    counts: Arc<Counts>,
    outbox: Arc<FabricOutbox>,
    sink: Arc<dyn Sink>,
    inbox: Inbox,
    joins: Joins,
    pods: HashMap<PodId, PeerPod>,
    is_connected: bool,
    was_connected: bool,
    /// How often this pod began its numbers anew, after outages longer than
    /// [`FabricLimits::outage_ms_max`]; sent in each Hello.
    epoch: u32,
    disconnected_at: Option<Millis>,
    /// No join is confirmed before this time, because some pods may not have announced themselves
    /// yet.
    settled_at: Millis,
    hello_at: Millis,
    sweep_at: Millis,
}

impl FabricCore {
    pub(crate) fn new(
        own: PodId,
        name: String,
        limits: FabricLimits,
        counts: Arc<Counts>,
        outbox: Arc<FabricOutbox>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let inbox = Inbox::new(limits.clone(), counts.clone(), sink.clone());
        Self {
            own,
            name,
            limits,
            counts,
            outbox,
            sink,
            inbox,
            joins: Joins::default(),
            pods: HashMap::default(),
            is_connected: false,
            was_connected: false,
            epoch: 0,
            disconnected_at: None,
            settled_at: 0,
            hello_at: 0,
            sweep_at: SWEEP_MS,
        }
    }

    /// Connected to a NATS server that accepts messages of `payload_max` bytes: says hello and
    /// joins again.
    pub(crate) fn connected(&mut self, now: Millis, payload_max: usize) {
        let outage = self.disconnected_at.take().map(|at| now - at);
        let is_first = !std::mem::replace(&mut self.was_connected, true);
        let is_reset = outage.is_some_and(|outage| outage > u64::from(self.limits.outage_ms_max));
        self.is_connected = true;
        self.outbox.connected(now, is_reset, payload_max);
        self.pods.values_mut().for_each(|pod| pod.last_seen_at = now);
        self.settled_at = now + u64::from(self.limits.settle_ms);
        if is_reset {
            // The other pods may not have noticed the outage; `Bye` makes them forget this pod's numbers. Their
            // messages of that time may be lost without a gap in their numbers.
            self.epoch += 1;
            self.bye();
            self.inbox.doubt_all();
        }
        self.hello_at = now + u64::from(self.limits.hello_ms);
        self.hello(Destination::Control, true, is_first || is_reset);
        self.joins.clear();
        let list = self.inbox.all_subscribed();
        self.announce(&list, now);
    }

    pub(crate) fn disconnected(&mut self, now: Millis) {
        self.is_connected = false;
        self.disconnected_at.get_or_insert(now);
        self.outbox.disconnected();
    }

    /// True when the caller must subscribe at NATS and then call [`Self::subscribed`].
    pub(crate) fn join(&mut self, to: To, now: Millis) -> bool {
        let is_new = self.inbox.join(to);
        if is_new {
            self.joins.requested(to, now + u64::from(self.limits.join_wait_ms));
        }
        is_new
    }

    pub(crate) fn subscribed(&mut self, mut list: Vec<To>, now: Millis) {
        self.inbox.subscribed(&mut list);
        if self.is_connected {
            self.announce(&list, now);
        }
    }

    pub(crate) fn leave(&mut self, to: To) {
        self.inbox.leave(to);
    }

    /// NATS reports that nobody listens to `to`; only a join after this probe contradicts it.
    pub(crate) fn no_responders(&self, to: To, probe: u64) {
        self.outbox.no_responders(to, probe);
    }

    pub(crate) fn received(&mut self, to: To, payload: Bytes, now: Millis) {
        if let Some(frame) = self.decode(payload) {
            let is_known = self.is_known(frame.from);
            self.inbox.receive(to, frame, is_known, now);
        }
    }

    pub(crate) fn received_control(&mut self, payload: Bytes, now: Millis) {
        let Some(FabricFrame { from, content }) = self.decode(payload) else { return };
        match content {
            FrameContent::Hello { asks, begins_epoch, epoch, name } => {
                self.pod_seen(from, &name, (begins_epoch, epoch), now);
                if asks {
                    // The pod was disconnected and may have missed this pod's announcements.
                    self.hello(Destination::ControlOf(from), false, false);
                    self.repeat_announcements(from);
                }
            }
            FrameContent::Bye => self.remove_pod(from, now),
            FrameContent::Joined { announcement, list } => {
                let positions = self.outbox.pod_joined(&list);
                let frame = frame::answer(self.own, announcement, &positions);
                self.outbox.control(Destination::ControlOf(from), frame);
            }
            FrameContent::Answer { announcement, positions } => {
                let from = (from, self.is_known(from));
                if let Some(list) = self.joins.answered(announcement, from.0) {
                    self.inbox.answered(from, (announcement, list), &positions, now);
                    self.end_joins(now);
                }
            }
            FrameContent::Batch { .. } | FrameContent::Part { .. } => self.counts.malformed.add(1),
        }
    }

    /// Timers, called every 100 ms.
    pub(crate) fn tick(&mut self, now: Millis) {
        self.outbox.tick(now);
        if self.is_connected {
            if now >= self.hello_at {
                self.hello_at = now + u64::from(self.limits.hello_ms);
                self.hello(Destination::Control, false, false);
            }
            self.mark_gone(now);
            self.end_joins(now);
        }
        // The user of an overdue join continues without confirmation.
        while let Some(to) = self.joins.overdue(now) {
            self.inbox.report(to);
        }
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP_MS;
            self.inbox.sweep(now);
        }
    }

    pub(crate) fn bye(&self) {
        self.outbox.control(Destination::Control, frame::bye(self.own));
    }

    fn decode(&self, payload: Bytes) -> Option<FabricFrame> {
        self.counts.bytes_received.add(payload.len());
        match frame::decode(payload) {
            Ok(frame) => (frame.from != self.own).then_some(frame),
            Err(Bad::Version) => {
                self.counts.version.add(1);
                None
            }
            Err(Bad::Malformed) => {
                self.counts.malformed.add(1);
                None
            }
        }
    }

    fn hello(&self, destination: Destination, asks: bool, begins_epoch: bool) {
        self.outbox.control(destination, frame::hello(self.own, asks, begins_epoch, self.epoch, &self.name));
    }

    fn is_known(&self, pod: PodId) -> bool {
        self.pods.get(&pod).is_some_and(|pod| pod.is_known)
    }

    fn pod_seen(&mut self, pod: PodId, name: &str, (begins_epoch, epoch): (bool, u32), now: Millis) {
        if self.pods.get(&pod).is_some_and(|known| known.epoch != epoch) {
            self.remove_pod(pod, now);
        }
        if let Some(known) = self.pods.get_mut(&pod) {
            known.last_seen_at = now;
            if !std::mem::replace(&mut known.is_alive, true) {
                self.sink.pod_came(pod, name, false);
                self.count_pods();
                // Announcements made while the pod was gone did not wait for its answer.
                self.joins.pod_found(pod);
                self.repeat_announcements(pod);
            }
            return;
        }
        if self.pods.len() >= self.limits.pods_max as usize {
            self.counts.pods_limit.add(1);
            return;
        }
        self.pods.insert(
            pod,
            PeerPod { name: name.into(), last_seen_at: now, epoch, is_alive: true, is_known: begins_epoch },
        );
        self.count_pods();
        if begins_epoch {
            let is_new = epoch == 0;
            self.sink.pod_came(pod, name, is_new);
            self.inbox.sends_all(pod, is_new);
        } else if now >= self.settled_at {
            // This Hello of an earlier pod came late. Confirmed joins lack that pod's answer, so
            // they are announced again.
            self.joins.clear();
            self.announce(&self.inbox.all_subscribed(), now);
            return;
        }
        self.joins.pod_found(pod);
        self.repeat_announcements(pod);
    }

    fn repeat_announcements(&self, pod: PodId) {
        for (number, list) in self.joins.unanswered(pod) {
            self.outbox.control(Destination::ControlOf(pod), frame::joined(self.own, number, list));
        }
    }

    /// Marks pods as gone that sent no Hello in time. A known pod is removed only after an outage so long that it must return with
    /// another epoch; twice `outage_ms_max`, because the pod notices its outage later.
    fn mark_gone(&mut self, now: Millis) {
        let gone_ms = u64::from(self.limits.pod_gone_ms);
        let forgotten_ms = gone_ms + 2 * u64::from(self.limits.outage_ms_max);
        let mut gone = Vec::new();
        self.pods.retain(|id, pod| {
            let silent_ms = now - pod.last_seen_at;
            if silent_ms >= gone_ms && std::mem::take(&mut pod.is_alive) {
                gone.push((*id, pod.is_known));
            }
            silent_ms < if pod.is_known { forgotten_ms } else { gone_ms }
        });
        gone.into_iter().for_each(|(pod, is_known)| self.report_gone(pod, is_known, now));
    }

    fn remove_pod(&mut self, pod: PodId, now: Millis) {
        if let Some(PeerPod { is_alive: true, is_known, .. }) = self.pods.remove(&pod) {
            self.report_gone(pod, is_known, now);
        }
    }

    fn report_gone(&mut self, pod: PodId, is_known: bool, now: Millis) {
        self.count_pods();
        self.joins.pod_gone(pod);
        if is_known {
            self.sink.pod_gone(pod);
        }
        self.end_joins(now);
    }

    fn count_pods(&self) {
        self.counts.pods.set(self.alive().count());
    }

    fn alive(&self) -> impl Iterator<Item = PodId> {
        self.pods.iter().filter(|(_, pod)| pod.is_alive).map(|(id, _)| *id)
    }

    fn announce(&mut self, list: &[To], now: Millis) {
        for list in list.chunks(ANNOUNCED_MAX) {
            let pods = self.alive().collect();
            let number = self.joins.announce(list.to_vec(), pods, now);
            self.inbox.announced(number, list);
            self.outbox.control(Destination::Control, frame::joined(self.own, number, list));
        }
    }

    fn end_joins(&mut self, now: Millis) {
        if now < self.settled_at {
            return;
        }
        let outcome = self.joins.outcome(now);
        if !outcome.complete.is_empty() {
            // A pod that is gone has not confirmed these joins, so it must be unknown when it
            // returns.
            self.pods.retain(|_, pod| pod.is_alive);
        }
        for mut announcement in outcome.unanswered {
            self.inbox.subscribed(&mut announcement.list);
            let frame = frame::joined(self.own, announcement.number, &announcement.list);
            for pod in &announcement.waits_for {
                self.outbox.control(Destination::ControlOf(*pod), frame.clone());
            }
            self.joins.repeat(announcement, now);
        }
        // Reports pods before joins, so that the user knows which pods a confirmed join covers.
        for (id, pod) in &mut self.pods {
            if !pod.is_known && !self.joins.waits_for(*id) {
                pod.is_known = true;
                self.inbox.sends_all(*id, true);
                self.sink.pod_came(*id, &pod.name, false);
            }
        }
        for announcement in outcome.complete {
            self.inbox.complete(announcement.number, &announcement.list);
        }
        for announcement in outcome.failed {
            for pod in announcement.waits_for {
                self.inbox.unanswered(pod, announcement.number, &announcement.list);
            }
            self.inbox.complete(announcement.number, &announcement.list);
        }
    }
}
