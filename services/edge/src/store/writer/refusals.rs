//! Answers jobs that the store refused, with the reason.

use millrace_layers::{LayerError, pods as layer_pods};
use millrace_mqtt::QoS;
use millrace_storage::StoreError;

use crate::jobs::StoredTraces;
use crate::mailbox::Mail;
use crate::store::apply::WriteOutcome;
use crate::store::bugs::{WriterBug, has_bug};
use crate::store::{Job, PublishAck, PublishWrite, Write};

use super::Writer;

impl Writer<'_> {
    pub(super) fn log(&mut self, error: Option<&LayerError>) {
        match error {
            Some(error) if !self.refused => {
                tracing::error!(%error, "the store refuses writes: their publishers are notified, live delivery continues");
            }
            None if self.refused => tracing::info!("the store accepts writes again"),
            _ => {}
        }
        self.refused = error.is_some();
    }

    pub(super) fn refuse(&mut self, batch: Vec<Job>, why: Why) {
        for job in batch {
            self.refuse_job(job, why);
        }
        self.send(None);
    }

    pub(in crate::store) fn refuse_job(&mut self, job: Job, why: Why) {
        match job.write {
            Write::Publish(publish) => {
                match publish.message.qos() {
                    QoS::AtMostOnce => publish.message.set_position(None),
                    _ => publish.message.refuse(),
                }
                self.take_back(&publish);
                self.refuse_publish(&publish, job.ack, why);
            }
            // Tried again from `unwritten`: otherwise the session's will would never be published, and the session would never expire.
            write @ (Write::Detach(_) | Write::Webhooks(_)) if !has_bug(WriterBug::ForgetsDetach) => {
                self.unwritten.push(Job { write, ack: None });
            }
            write => {
                // Undoes of subscriptions are tried again, too: a SUBACK has said that these failed.
                if why != Why::Content {
                    self.undo_later(&write);
                }
                self.answer(write, WriteOutcome::Unstored);
            }
        }
    }

    /// A QoS 0 message still goes to its receivers.
    pub(super) fn refuse_publish(&mut self, publish: &PublishWrite, ack: Option<PublishAck>, why: Why) {
        if publish.waits_unstored() {
            self.deliver(&publish.routes, &publish.message, publish.from);
        }
        if publish.message.qos() == QoS::AtMostOnce {
            let unqueued = publish.routes.stored.webhooks.len();
            self.own_counters(&publish.routes.broker).unqueued.add(unqueued);
        }
        if let (Some(ack), Some(_)) = (&ack, publish.message.trace()) {
            let (core, now) = (ack.connection.core, self.shared.clock.micros());
            self.traced.push((core, StoredTraces::of(publish, false, now)));
        }
        if let Some(mut ack) = ack {
            // A message that no store can hold is refused again when it comes again, so later ones may pass it.
            ack.holds_back = ack.qos > QoS::AtMostOnce && why != Why::Content;
            if ack.holds_back {
                self.unconfirmed.add(&ack);
            }
            let stored = has_bug(WriterBug::AcknowledgesRefused);
            self.post(ack.connection.core, Mail::Stored { acks: vec![ack], stored });
        }
    }

    /// Refuses QoS 1 and 2 messages that come after a refused message of the same publisher, as long as it may not know
    /// of that refusal. It sends the refused message again if its connection ends before, and would find later ones
    /// stored before it (P4). Once the store accepts writes again, the publisher's connection is closed, so that it
    /// sends all of them again, in order.
    pub(super) fn without_refused(&mut self, jobs: Vec<Job>) -> Vec<Job> {
        if self.unconfirmed.is_empty() || has_bug(WriterBug::LetsPass) {
            return jobs;
        }
        let mut left = Vec::with_capacity(jobs.len());
        for job in jobs {
            match (&job.write, job.ack) {
                (Write::Confirmed { publisher, connection, count }, _) => {
                    self.unconfirmed.confirm(*publisher, *connection, *count);
                }
                // Nobody sends a message with QoS 0 again, so none can come in the wrong order.
                (Write::Publish(_), Some(ack))
                    if ack.qos > QoS::AtMostOnce && self.unconfirmed.holds_back(ack.publisher()) =>
                {
                    if !self.refused {
                        self.post(ack.connection.core, Mail::SendAgain(ack.connection));
                    }
                    self.refuse_job(job, Why::Passing);
                }
                _ => left.push(job),
            }
        }
        self.send(None);
        left
    }

    /// Finds out whether the store accepts writes again, while all publishers are refused because of an earlier refusal, so
    /// that no job of theirs would show it.
    pub(super) fn probe(&mut self) {
        let shared = self.shared;
        self.marked = None;
        let probe = shared.layers.run(async |tx| layer_pods::put_marker(&tx, &shared.owner, u128::MAX, None));
        if self.wait(probe).is_ok() {
            self.log(None);
        }
    }
}

impl PublishWrite {
    /// Whether the message is not stored itself, and its receivers wait for the commit of earlier messages of its publisher.
    fn waits_unstored(&self) -> bool {
        self.waits_for_commit && self.message.qos() == QoS::AtMostOnce
    }
}

pub(super) fn is_unknown(error: &LayerError) -> bool {
    matches!(error, LayerError::Store(error) if error.is_maybe_committed())
}

/// For attempts of which none was committed: an unknown result counts as a failure.
pub(super) fn known(error: LayerError) -> LayerError {
    if is_unknown(&error) { StoreError::Unavailable("the commit failed".into()).into() } else { error }
}

/// Whether a transaction may have failed because of its content, so that a part of it may succeed. A failure of the
/// store itself affects every part.
pub(in crate::store) fn may_be_of_content(error: &LayerError) -> bool {
    use StoreError::{Busy, Closed, CommitUnknown, DiskFull, Io, Unavailable};
    !matches!(
        error,
        LayerError::Store(Busy | Closed | CommitUnknown | DiskFull { .. } | Io(_) | Unavailable(_))
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Why {
    /// The store can never hold it.
    Content,
    /// The store failed, as with a full disk or a missing permission.
    Failure,
    /// The next attempt may succeed.
    Passing,
}

impl Why {
    pub(super) fn of(error: &LayerError) -> Self {
        match error {
            error if may_pass(error) => Self::Passing,
            LayerError::Store(StoreError::Cluster { .. }) => Self::Failure,
            error if may_be_of_content(error) => Self::Content,
            _ => Self::Failure,
        }
    }
}

/// Whether the write can never succeed, because of its content.
pub(in crate::store) fn is_hopeless(error: &LayerError) -> bool {
    use millrace_storage::StoreError as Store;
    match error {
        LayerError::NameTooLong { .. }
        | LayerError::BodyTooLarge(_)
        | LayerError::TooManyStreams(_)
        | LayerError::Corrupt(_) => true,
        LayerError::Store(error) => {
            matches!(error, Store::KeyNotAllowed(_) | Store::ValueTooLarge(_) | Store::TransactionTooLarge)
        }
        _ => false,
    }
}

/// Whether the store may accept the same writes later.
pub(in crate::store) fn may_pass(error: &LayerError) -> bool {
    match error {
        LayerError::Store(error) => error.is_retryable(),
        LayerError::Contended(_) => true,
        _ => false,
    }
}

/// Whether other pods wrote what the transaction read, or it took too long: the transactions of others need not.
pub(in crate::store) fn is_contention(error: &LayerError) -> bool {
    matches!(error, LayerError::Contended(_) | LayerError::Store(StoreError::Conflict | StoreError::TooOld))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use millrace_layers::retained as layer_retained;
    use millrace_layers::sessions::{self, SessionId};
    use millrace_mqtt::Properties;
    use millrace_session::Message;
    use millrace_storage::Read::Snapshot;
    use millrace_storage::block_on;

    use super::*;
    use crate::broker::{Broker, Reserved};
    use crate::routes::RouteCache;
    use crate::store::queue::TakenWork;
    use crate::store::{Purge, StoreContext, record};

    fn message(payload: &[u8]) -> Arc<Message> {
        Message::new("t".into(), QoS::AtLeastOnce, true, Properties::EMPTY, payload, 0).into()
    }

    fn job(broker: &Arc<Broker>, payload: &[u8]) -> Job {
        let message = message(payload);
        let reserved = broker.reserve_retained(&message);
        job_with(broker, message, reserved)
    }

    fn job_with(broker: &Arc<Broker>, message: Arc<Message>, reserved: Reserved) -> Job {
        let routes = RouteCache::default().get(broker, "t");
        let publish = PublishWrite {
            message,
            routes,
            from: None,
            publisher: 1,
            retains: true,
            reserved,
            waits_for_commit: true,
            fence: None,
            skip_if: None,
            queued_us: 0,
        };
        Job { write: Write::Publish(publish), ack: None }
    }

    fn retained(broker: &Broker) -> Option<String> {
        broker.retained.get("t").map(|message| String::from_utf8(message.payload().to_vec()).unwrap())
    }

    /// A job whose message is in memory, as in one process.
    fn publish(shared: &StoreContext, broker: &Arc<Broker>, payload: &[u8]) -> Job {
        let (message, reserved) = (message(payload), Some(shared.reserve_in_memory()));
        drop(broker.retain(&message));
        job_with(broker, message, reserved)
    }

    fn stored(shared: &StoreContext, broker: u64) -> Option<String> {
        let get = shared.layers.run(async |tx| layer_retained::get(&tx, broker, b"t", Snapshot).await);
        let message = record::decode("t".into(), &block_on(get).unwrap()?, &shared.clock)?;
        Some(String::from_utf8(message.payload().to_vec()).unwrap())
    }

    #[test]
    fn memory_follows_the_commits_of_all_pods_whatever_the_store_refuses() {
        let (shared, id) = StoreContext::with_broker(true);
        let broker = Arc::new(Broker::new(id, "default", 1));
        let mut writer = Writer::new(&shared);
        let other_pod = |payload, position| {
            let message = message(payload);
            message.set_position(Some(position));
            drop(broker.retain_at(&message, position));
        };
        other_pod(b"former", [0; 12]);
        for payload in [&b"refused"[..], b""] {
            writer.refuse_job(job(&broker, payload), Why::Content);
            assert_eq!(retained(&broker).as_deref(), Some("former"), "it is still stored");
        }
        let refused = job(&broker, b"refused");
        other_pod(b"newer", [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        writer.refuse_job(refused, Why::Content);
        assert_eq!(retained(&broker).as_deref(), Some("newer"));

        let (earlier, later) = (job(&broker, b"earlier"), job(&broker, b"later"));
        writer.write(vec![later, earlier]);
        assert_eq!(retained(&broker).as_deref(), Some("earlier"), "it was committed last");
        let committed = job(&broker, b"committed");
        other_pod(b"last", [u8::MAX; 12]);
        writer.write(vec![committed]);
        assert_eq!(retained(&broker).as_deref(), Some("last"));
    }

    #[test]
    fn memory_and_store_agree_on_what_was_committed_last_after_a_refusal() {
        // Texts of messages to one topic, the former one and those in the order of their jobs. `false`: it is refused before the
        // others are written.
        type Case<'c> = (&'c str, &'c [(&'c str, bool)], &'c str);
        let cases: &[Case<'_>] = &[
            ("", &[("else", false), ("one", true), ("", true)], ""),
            ("former", &[("one", true), ("two", false)], "one"),
            ("", &[("one", true), ("two", false)], "one"),
            ("former", &[("", false), ("", true)], ""),
            ("former", &[("", true), ("two", false)], ""),
            ("former", &[("one", true), ("", false)], "one"),
            ("former", &[("", false)], "former"),
            ("former", &[("one", true), ("two", true), ("three", false)], "two"),
        ];
        for together in [true, false] {
            for (former, messages, last) in cases {
                let (shared, id) = StoreContext::with_broker(false);
                let broker = Arc::new(Broker::new(id, "default", 1));
                let mut writer = Writer::new(&shared);
                writer.write(vec![publish(&shared, &broker, former.as_bytes())]);
                let jobs: Vec<(Job, bool)> = messages
                    .iter()
                    .map(|(payload, is_accepted)| {
                        (publish(&shared, &broker, payload.as_bytes()), *is_accepted)
                    })
                    .collect();
                let (accepted, refused): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|(_, is)| *is);
                for (job, _) in refused {
                    writer.refuse_job(job, Why::Passing);
                }
                let mut accepted: Vec<Job> = accepted.into_iter().map(|(job, _)| job).collect();
                if together {
                    writer.write(accepted);
                } else {
                    accepted.drain(..).for_each(|job| writer.write(vec![job]));
                }
                let case = format!("{former:?} {messages:?}, together {together}");
                assert_eq!(retained(&broker).unwrap_or_default(), *last, "memory, {case}");
                assert_eq!(stored(&shared, id).unwrap_or_default(), *last, "store, {case}");
            }
        }
    }

    #[test]
    fn memory_lags_until_the_turn_of_an_earlier_message_has_ended() {
        let (shared, id) = StoreContext::with_broker(false);
        let broker = Arc::new(Broker::new(id, "default", 1));
        let mut writer = Writer::new(&shared);
        writer.write(vec![publish(&shared, &broker, b"former")]);
        let (earlier, refused) = (publish(&shared, &broker, b"one"), publish(&shared, &broker, b"two"));
        writer.refuse_job(refused, Why::Passing);
        assert!(writer.step(TakenWork::Nothing).is_continue());
        writer.write(vec![earlier]);
        assert_eq!((retained(&broker), stored(&shared, id)), (Some("one".into()), Some("one".into())));
        assert!(writer.step(TakenWork::Nothing).is_continue());
        assert!(!writer.taken_back.memory_lags());
    }

    #[test]
    fn memory_and_store_agree_on_what_was_retained_last_when_a_will_comes_due() {
        for (is_first, lags) in [(true, false), (false, false), (true, true), (false, true)] {
            let (shared, id) = StoreContext::with_broker(false);
            let broker = Arc::new(Broker::new(id, "default", 1));
            let mut writer = Writer::new(&shared);
            writer.write(vec![publish(&shared, &broker, b"former")]);
            if lags {
                writer.refuse_job(publish(&shared, &broker, b"refused"), Why::Passing);
            }
            let body = record::encode_will(&message(b"gone"), false).into();
            let session = SessionId { broker: id, client: b"ann" };
            shared.run(&async |tx| {
                let will = Some(sessions::PendingWill { delay_s: 0, body: Bytes::clone(&body) });
                let (owner, details) = (Bytes::copy_from_slice(&shared.owner), None);
                let attach = sessions::Attach { owner, clean: true, expiry_s: 9, now_ms: 1, will, details };
                sessions::attach(tx, session, attach).await.map(drop)
            });
            let (done, _answer) = std::sync::mpsc::sync_channel(1);
            let purge = Purge { broker: broker.clone(), client: "ann".into(), was_online: false, done };
            let purge = Job { write: Write::Purge(Box::new(purge)), ack: None };
            let other = publish(&shared, &broker, b"other");
            writer.write(if is_first { vec![purge, other] } else { vec![other, purge] });
            let case = format!("the will is first: {is_first}, memory lags: {lags}");
            assert_eq!(retained(&broker).as_deref(), Some("gone"), "memory, {case}");
            assert_eq!(stored(&shared, id).as_deref(), Some("gone"), "store, {case}");
        }
    }

    #[test]
    fn only_an_error_of_the_content_lets_later_messages_pass_a_refused_one() {
        let why = |error: StoreError| Why::of(&error.into());
        assert_eq!(why(StoreError::Cluster { code: 6000, reason: "permission denied" }), Why::Failure);
        assert_eq!(why(StoreError::Io("full".into())), Why::Failure);
        assert_eq!(why(StoreError::Conflict), Why::Passing);
        assert_eq!(Why::of(&LayerError::Corrupt("a row")), Why::Content);
    }
}
