//! Delivers committed messages: live, to shared subscriptions, and to sessions that follow their streams.

use std::hash::BuildHasher;
use std::sync::Arc;

use millrace_mqtt::QoS;
use millrace_session::Message;

use crate::connection_id::ConnectionId;
use crate::deliveries::CommittedMessage;
use crate::elsewhere::{is_here, pick};
use crate::jobs::StoredTraces;
use crate::mailbox::Mail;
use crate::routes::Routes;
use crate::store::{Job, PublishWrite, Write};
use crate::traces::{About, TraceStep};

use super::Writer;

impl Writer<'_> {
    /// A message is committed: announces it to sessions that follow its streams, and delivers it to shared
    /// subscriptions without a stream, unless they got it live.
    pub(super) fn announce(
        &mut self,
        routes: &Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
        publisher: u64,
        is_live: bool,
    ) {
        let routes = self.matched_now(routes);
        if !is_live {
            self.deliver_to_groups(&routes, message, from);
        }
        if message.qos() == QoS::AtMostOnce || routes.stored.streams.is_empty() {
            return;
        }
        // Unique among all connections of all pods, at any time.
        let sender = from.map_or(0, |from| self.senders.hash_one(from) | 1);
        let committed = Arc::new(CommittedMessage { routes, message: message.clone(), publisher, sender });
        if let Some(region) = &self.shared.region {
            region.committed(&committed);
        }
        for core in committed.routes.cores_that_keep() {
            self.mail[usize::from(core)].push(Mail::Committed(committed.clone()));
        }
    }

    /// The receivers of a topic as of now: those that the event loop has found, while they are valid.
    pub(super) fn matched_now(&mut self, routes: &Arc<Routes>) -> Arc<Routes> {
        if routes.is_still_valid_for(routes.broker.router.generation()) {
            return routes.clone();
        }
        self.routes.get(&routes.broker, &routes.topic)
    }

    /// For shared subscriptions whose streams store the message.
    pub(super) fn hand_on_to_groups(&mut self, publish: &PublishWrite) {
        let PublishWrite { message, routes, .. } = publish;
        // A stream that was created meanwhile has the message, too.
        if routes.stored.generation == routes.broker.streams.generation() {
            if !routes.stored.groups.is_empty() {
                self.hand_to_groups(routes, message);
            }
        } else {
            let routes = self.routes.get(&routes.broker, message.topic());
            self.hand_to_groups(&routes, message);
        }
    }

    pub(super) fn trace_committed(&mut self, batch: &[Job]) {
        let Some(tracer) = &self.shared.tracer else { return };
        let (clock, now) = (&self.shared.clock, self.shared.clock.micros());
        for job in batch {
            let Write::Publish(publish) = &job.write else { continue };
            let Some(trace) = publish.message.trace() else { continue };
            let about = About::message(&publish.routes.broker.name, &publish.message);
            tracer.step(clock, trace, TraceStep::Append, (publish.queued_us, self.began_us), about);
            let about = About { count: batch.len() as u64, ..about };
            tracer.step(clock, trace, TraceStep::Commit, (self.began_us, now), about);
            if let Some(ack) = &job.ack {
                self.traced.push((ack.connection.core, StoredTraces::of(publish, true, now)));
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        routes: &Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
    ) {
        for (core, _) in &routes.cores {
            let (routes, message) = (routes.clone(), message.clone());
            self.mail[usize::from(*core)].push(Mail::Publish { routes, message, from });
        }
        if let Some(region) = &self.shared.region {
            region.publish(routes, message);
        }
        if !self.shared.is_shared {
            self.deliver_to_groups(routes, message, from);
        }
    }

    /// For shared subscriptions that get the message live: those without a stream, and with QoS 0 all.
    pub(super) fn deliver_to_groups(
        &mut self,
        routes: &Arc<Routes>,
        message: &Arc<Message>,
        from: Option<ConnectionId>,
    ) {
        let is_alone = self.shared.region.as_ref().is_some_and(|region| region.is_alone());
        for (id, group) in routes.live_groups(message) {
            let Some(receiver) = pick(group, is_alone) else { continue };
            if let (false, Some(region)) = (is_here(receiver.target), &self.shared.region) {
                region.share(&routes.broker, group, &receiver, message);
                continue;
            }
            let (routes, message) = (routes.clone(), message.clone());
            let core = usize::from(receiver.target.core);
            self.mail[core].push(Mail::Shared { routes, receiver, message, from, group: id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreContext;

    #[test]
    fn the_writer_matches_a_topic_only_after_a_change_of_its_subscriptions() {
        let (shared, id) = StoreContext::with_broker(true);
        let broker = shared.open("default").unwrap().unwrap();
        let mut writer = Writer::new(&shared);
        let routes = Arc::new(Routes::new(broker, "t".into()));
        assert!(Arc::ptr_eq(&writer.matched_now(&routes), &routes));
        assert_eq!(writer.routes.take_work(), 0);
        shared.member(id, "group", "t");
        assert!(writer.matched_now(&routes).matched.groups.len() == 1);
        assert!(writer.routes.take_work() > 0);
    }
}
