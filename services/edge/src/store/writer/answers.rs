//! Sets positions after a commit, and sends mail to receivers and answers to clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrace_layers::Position;
use millrace_mqtt::QoS;
use millrace_storage::Versionstamp;

use crate::broker::Broker;
use crate::connection_id::ConnectionId;
use crate::jobs::{FoundInFlight, PageReader};
use crate::mailbox::Mail;
use crate::metrics::BrokerCounters;
use crate::store::apply::{Applied, IndexChange, WriteOutcome};
use crate::store::bugs::{WriterBug, has_bug};
use crate::store::costs::cost;
use crate::store::duties::Duty;
use crate::store::{
    AttachWrite, AttachedSession, Checkpoint, IdWrite, Job, PublishAck, PublishWrite, Purge, SessionKey,
    StreamRead, SubscribeWrite, Write, retained,
};

use super::Writer;
use super::refusals::Why;

impl Writer<'_> {
    /// In this order: set positions, update the filter index, deliver, advance `StoreContext::through`, acknowledge.
    /// `stamp`: the commit's version; `None`: the batch wrote nothing.
    pub(super) fn committed(&mut self, batch: Vec<Job>, applied: Applied, stamp: Option<Versionstamp>) {
        let version =
            stamp.map_or_else(|| self.shared.through.load(Ordering::Relaxed), |stamp| stamp.version());
        let small = batch.iter().filter_map(Job::broker_of_small_publish);
        let answered = small.filter(|broker| !self.backlog.has_jobs_of(*broker));
        self.gather.note_answers(answered, self.shared.writes.small_publishes());
        self.commit_times.note_end(self.shared.clock.micros());
        self.charge(&batch, &applied);
        let mut applied = self.settle(applied, stamp);
        let outcomes = std::mem::take(&mut applied.outcomes);
        let mut acks: Vec<Vec<PublishAck>> = self.mail.iter().map(|_| Vec::new()).collect();
        self.trace_committed(&batch);
        // Each job counts with the age of the oldest one.
        let age_us = self.shared.writes.taken_age_us();
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            if let WriteOutcome::Refused(error) = &outcome {
                tracing::warn!(%error, "a message is refused: the store can never hold it");
                self.refuse_job(job, Why::Content);
            } else if let Write::Publish(publish) = &job.write {
                let is_fenced = matches!(outcome, WriteOutcome::Fenced);
                let ack = job.ack.filter(|_| !is_fenced);
                self.published(publish, is_fenced, applied.has_retained_will(publish));
                if let Some(ack) = ack {
                    if ack.qos > QoS::AtMostOnce {
                        publish.routes.broker.latencies.acknowledged.note(age_us);
                    }
                    acks[usize::from(ack.connection.core)].push(ack);
                }
            } else if let Write::Barrier { core, number, .. } = job.write {
                // Earlier jobs of this batch are committed with it.
                self.post(core, Mail::BarrierPassed { number, through: Position::end_of(version) });
            } else if let Some((job, outcome)) = self.finish_part(job, outcome) {
                self.answer(job.write, outcome);
            }
        }
        let acknowledged = acks.iter().map(Vec::len).sum();
        if acknowledged > 0 {
            self.shared.transactions.acknowledged.note_many(age_us, acknowledged);
        }
        for (core, acks) in acks.into_iter().enumerate().filter(|(_, acks)| !acks.is_empty()) {
            self.stored[core] = acks;
        }
        self.send(stamp);
        self.serve_groups();
    }

    /// A publish is committed, or (`is_fenced`) another connection has the session, which sends the message again if it was not
    /// stored. `is_replaced`: a will of the same transaction is the topic's retained message now.
    fn published(&mut self, publish: &PublishWrite, is_fenced: bool, is_replaced: bool) {
        // Without effect on messages whose position [`Self::settle`] has set.
        publish.message.set_position(None);
        if is_fenced {
            self.take_back(publish);
            return;
        }
        self.retain_committed(&publish.routes.broker, &publish.message, publish.retains && !is_replaced);
        if publish.waits_for_commit {
            let routes = if publish.retains && self.shared.is_shared {
                // A subscriber that read the retained messages before this commit gets the message live.
                self.matched_now(&publish.routes)
            } else {
                publish.routes.clone()
            };
            self.deliver(&routes, &publish.message, publish.from);
        } else if let (true, Some(region)) = (publish.retains, &self.shared.region) {
            // With several pods only the API's removal of a retained message does not wait for its commit.
            region.cleared(&publish.routes.broker, &publish.message);
        }
        self.hand_on_to_groups(publish);
        if self.shared.is_shared {
            let is_live = !publish.waits_for_commit && publish.message.qos() == QoS::AtMostOnce;
            self.announce(&publish.routes, &publish.message, publish.from, publish.publisher, is_live);
        }
        self.charge_matches(publish.routes.broker.id);
    }

    /// Hands out what members of shared subscriptions may have now.
    pub(in crate::store) fn serve_groups(&mut self) {
        self.claim_all();
        self.read_for_groups();
        self.send(None);
    }

    /// Charges brokers for filters of ended sessions, which their jobs could not estimate: later jobs of the broker pay.
    pub(super) fn charge(&mut self, batch: &[Job], applied: &Applied) {
        let mut costs: HashMap<u64, (usize, usize)> = HashMap::new();
        let of_jobs = applied.changes_by_jobs.unwrap_or(applied.changes.len());
        for change in &applied.changes[..of_jobs] {
            costs.entry(change.broker.id).or_default().0 += 1;
        }
        for job in if costs.is_empty() { &[] } else { batch } {
            if let (filters @ 1.., Some(broker)) = (job.filters(), job.broker()) {
                costs.entry(broker.id).or_default().1 += filters;
            }
        }
        for (broker, (changed, said)) in costs {
            self.backlog.owe(broker, cost::FILTER * changed.saturating_sub(said));
        }
    }

    fn charge_matches(&mut self, broker: u64) {
        self.backlog
            .owe(broker, usize::try_from(self.routes.take_work()).unwrap_or(usize::MAX) / cost::MATCHING);
    }

    pub(super) fn settle(&mut self, mut applied: Applied, stamp: Option<Versionstamp>) -> Applied {
        if let Some(stamp) = stamp {
            for (message, number) in applied.numbers.drain(..) {
                message.set_position(Some(Position::new(stamp, number).0));
            }
        }
        for IndexChange { broker, filter, streams, subscribers } in applied.changes.drain(..) {
            let ended = broker.streams.set(&filter, &streams, &subscribers);
            ended.into_iter().for_each(|stream| self.groups.end((broker.id, stream)));
        }
        if let Some(stamp) = stamp {
            // Transactions of other pods with the same version may stand behind this one.
            let through = stamp.version().saturating_sub(u64::from(!has_bug(WriterBug::TrustsWholeVersion)));
            applied.watched.values().for_each(|broker| broker.streams.set_through(through));
        }
        applied.settled.take().into_iter().for_each(|settled| self.duties.passed.note(settled));
        self.shared.queued_webhooks.note(std::mem::take(&mut applied.queued_webhooks));
        if !applied.touched.is_empty() {
            let mut touched =
                self.shared.upkeep.touched.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            for stream in applied.touched.drain(..) {
                *touched.entry(stream).or_default() += 1;
            }
        }
        self.note_lost_wills(&mut applied);
        for (broker, will, _room_until_retained) in std::mem::take(&mut applied.wills) {
            will.set_position(None);
            let routes = self.retain_will(&broker, &will);
            self.own_counters(&broker).wills.add(1);
            self.deliver(&routes, &will, None);
            self.hand_to_groups(&routes, &will);
            if self.shared.is_shared {
                self.announce(&routes, &will, None, will.publisher(), false);
            }
            self.charge_matches(broker.id);
        }
        for (broker, counts) in applied.counts.drain(..) {
            let counters = self.own_counters(&broker);
            counters.sessions.add(counts.began);
            counters.sessions.sub(counts.ended);
            counters.stored.add(counts.stored);
            counters.unstored.add(counts.unstored);
            counters.dropped_queue.add(counts.lost);
        }
        applied.returned.drain(..).for_each(|stream| self.grew(stream));
        for (stream, through) in applied.trims.drain(..) {
            self.duties.trims.add(stream, through);
            self.duties.add(Duty::Trim);
        }
        applied
    }

    fn note_lost_wills(&mut self, applied: &mut Applied) {
        for (broker, error) in applied.wills_dropped.drain(..) {
            self.own_counters(&broker).wills_dropped.add(1);
            tracing::error!(%error, broker = &*broker.name, "a will is dropped: the store can never hold it");
        }
        for refused in applied.wills_refused.drain(..) {
            self.own_counters(&refused.broker).wills_refused.add(1);
            refused.note(self.shared.clock.unix_now_ms());
        }
        for (broker, limit) in applied.wills_not_retained.drain(..) {
            self.own_counters(&broker).publish_quota.add(1);
            // Any core notifies the tenant.
            self.post(0, Mail::LimitReached(broker, limit));
        }
    }

    /// A transaction of the store's own work is durable.
    pub(in crate::store) fn swept(&mut self, applied: Applied, stamp: Option<Versionstamp>) {
        self.settle(applied, stamp);
        self.send(stamp);
        self.serve_groups();
    }

    pub(in crate::store) fn send_now(&mut self) {
        self.send(None);
    }

    pub(super) fn send(&mut self, stamp: Option<Versionstamp>) {
        for (mailbox, mail) in self.shared.mailboxes.iter().zip(&mut self.mail) {
            if !mail.is_empty() {
                let bytes = mail.iter().map(Mail::size).sum();
                mailbox.deliver(mail, bytes);
            }
        }
        // Before any acknowledgement: a session that acknowledges afterwards has the message below its cursor.
        if let Some(stamp) = stamp {
            self.shared.through.store(stamp.version(), Ordering::Release);
        }
        // After all deliveries are in the mailboxes, because the publisher's next message goes straight to its
        // receivers.
        for (mailbox, acks) in self.shared.mailboxes.iter().zip(&mut self.stored) {
            if !acks.is_empty() {
                mailbox.post(Mail::Stored { acks: std::mem::take(acks), stored: true });
            }
        }
        for (core, traced) in self.traced.drain(..) {
            self.shared.mailboxes[usize::from(core)].post(Mail::Traced(Box::new(traced)));
        }
    }

    pub(in crate::store) fn answer(&mut self, write: Write, outcome: WriteOutcome) {
        let stored = !matches!(outcome, WriteOutcome::Fenced | WriteOutcome::Unstored);
        match (write, outcome) {
            (Write::Attach(attach), outcome) => self.answer_attach(attach, outcome),
            (Write::Subscribe(subscribe), outcome) => self.answer_subscribe(subscribe, outcome),
            (Write::Unsubscribe(unsubscribe), _) => {
                self.post(unsubscribe.target.core, Mail::Unsubscribed(unsubscribe, stored));
            }
            (Write::Ids(ids), _) => {
                if let (true, IdWrite::Reserve(reserve)) = (stored, &ids.write) {
                    self.taken(&reserve.taken);
                }
                self.post(ids.target.core, Mail::Ids(ids, stored));
            }
            // The jobs before it were refused with it.
            (Write::Barrier { core, number, .. }, _) => {
                let through = Position::end_of(self.shared.through.load(Ordering::Relaxed));
                self.post(core, Mail::BarrierPassed { number, through });
            }
            (Write::Shared(shared), _) => self.shared_messages(*shared),
            (Write::Notices, _) => self.notices_read_at = 0,
            (Write::Grown(broker, topic), _) => {
                let groups = &self.routes.get(&broker, &topic).stored.groups;
                groups.iter().for_each(|kept| self.claims.grew((broker.id, kept.stream)));
                self.charge_matches(broker.id);
            }
            (Write::Purge(purge), outcome) => self.answer_purge(&purge, outcome),
            (Write::Checkpoint(checkpoint), outcome) => self.answer_checkpoint(checkpoint, &outcome),
            (Write::Detach(detach), _) => {
                if let Some(connection) = detach.leaves.filter(|_| stored) {
                    self.post(connection.core, Mail::Left(connection));
                }
            }
            (Write::Publish(_) | Write::Confirmed { .. } | Write::Webhooks(_), _) => {}
        }
    }

    fn answer_purge(&self, purge: &Purge, outcome: WriteOutcome) {
        let answer = match outcome {
            WriteOutcome::Done => Ok(true),
            WriteOutcome::Elsewhere(owner, _) => {
                self.notify(&owner);
                Ok(true)
            }
            WriteOutcome::Nothing => Ok(purge.was_online),
            _ => Err("the session cannot be removed from the store now".into()),
        };
        let _ = purge.done.try_send(answer); // The caller may have stopped waiting.
    }

    pub(super) fn notify(&self, owner: &[u8]) {
        if let Some(region) = &self.shared.region {
            region.notify(owner);
        }
    }

    fn answer_checkpoint(&mut self, checkpoint: Box<Checkpoint>, outcome: &WriteOutcome) {
        match outcome {
            WriteOutcome::Fenced => self.lose(&checkpoint.session, true),
            WriteOutcome::Unstored => self.post(checkpoint.target.core, Mail::Unsaved(checkpoint)),
            _ => {}
        }
    }

    fn answer_subscribe(&mut self, mut subscribe: Box<SubscribeWrite>, outcome: WriteOutcome) {
        let subscribed = match outcome {
            WriteOutcome::Subscribed(subscribed)
                if self.shared.is_shared && !subscribe.pending.replays.is_empty() =>
            {
                return retained::read(self.shared, retained::RetainedRead::new(subscribe, subscribed));
            }
            WriteOutcome::Subscribed(subscribed) => subscribed,
            _ => {
                subscribe.pending.is_refused = true;
                // Earlier transactions may have written some of the filters.
                let mut subscribed = std::mem::take(&mut subscribe.written);
                subscribed.resize(subscribe.filters.len(), None);
                subscribed
            }
        };
        self.post(subscribe.target.core, Mail::Subscribed(subscribe, subscribed));
    }

    pub(super) fn answer_attach(&mut self, attach: Box<AttachWrite>, outcome: WriteOutcome) {
        match outcome {
            WriteOutcome::Attached(attached) => {
                attach.broker.has_sessions.fetch_or(attached.epoch != 0, Ordering::Relaxed);
                self.attached(&attach.broker, attach.connection, attached);
            }
            WriteOutcome::Elsewhere(owner, epoch) => self.wait_for_owner(attach, owner, epoch),
            WriteOutcome::OfAnotherUser => {
                let session = (attach.broker, attach.client);
                self.post(attach.connection.core, Mail::OfAnotherUser(attach.connection, session));
            }
            WriteOutcome::OverLimit(limit) => {
                let session = (attach.broker, attach.client);
                self.post(attach.connection.core, Mail::OverLimit(attach.connection, session, limit));
            }
            _ => {
                let session = (attach.broker, attach.client);
                self.post(attach.connection.core, Mail::Attached(attach.connection, session, None));
            }
        }
    }

    /// A session with streams or messages in flight gets its first page along with the answer.
    pub(super) fn attached(
        &mut self,
        broker: &Arc<Broker>,
        connection: ConnectionId,
        attached: Box<AttachedSession>,
    ) {
        let sources = sources(&attached);
        if sources.is_empty() && attached.rows.is_empty() {
            let session = (broker.clone(), attached.client.clone());
            return self.post(connection.core, Mail::Attached(connection, session, Some((attached, None))));
        }
        let cursor = attached.cursor;
        let reader = PageReader::Connection(connection, attached, FoundInFlight::default());
        let read =
            StreamRead { core: connection.core, broker: broker.clone(), sources, cursor, cuts: 0, reader };
        self.shared.reads.push(&mut vec![read]);
    }

    /// Another owner has the session, or wants it: its core closes the connection.
    pub(in crate::store) fn lose(&mut self, session: &SessionKey, is_lost: bool) {
        let was_dead = self.shared.is_shared && self.shared.leases.was_dead(self.shared.clock.now());
        for mail in &mut self.mail {
            mail.push(Mail::Lost { session: session.clone(), is_lost, was_dead });
        }
    }

    pub(super) fn own_counters<'b>(&self, broker: &'b Broker) -> &'b BrokerCounters {
        &broker.counters[self.mail.len()]
    }

    pub(super) fn post(&mut self, core: u16, mail: Mail) {
        self.mail[usize::from(core)].push(mail);
    }
}

fn sources(attached: &AttachedSession) -> Arc<[millrace_layers::streams::StreamSource]> {
    use millrace_layers::subscriptions::NO_STREAM;
    let with_stream = attached.subscriptions.iter().filter(|subscription| subscription.stream != NO_STREAM);
    let source = |subscription: &millrace_layers::subscriptions::StoredSubscription| {
        millrace_layers::streams::StreamSource { stream: subscription.stream, since: subscription.since }
    };
    with_stream.filter(|subscription| !subscription.filter.starts_with(b"$share/")).map(source).collect()
}
