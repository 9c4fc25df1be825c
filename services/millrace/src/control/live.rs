//! The part of the API that needs the running edge. It reads stored data from the store, and asks
//! the edge to change data that the edge has in memory.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::stream::BoxStream;
use millrace_control::{
    AccessQuestion, ClientDetails, Clients, Latency, Live, LiveAnswer, LiveBroker, LiveError, Metrics, Page,
    PageRequest, PublishRequest, Published, Retained, RetainedMessage, SessionDetails, SessionInfo,
    StoredMessages, StreamBacklog, StreamBacklogDetails, TailEvent, TestedAction, TopicBranch, TraceEvent,
    Visit,
};
use millrace_layers::metering::{self, Point, Resolution};
use millrace_layers::{Store, limits::NAME_BYTES_MAX};
use millrace_storage::{Database, Host as _, System, Transaction};
use tokio::task::spawn_blocking;

use super::{clients, messages, publish, retained, sessions, streams, tail, trace};
use crate::running::LiveChanges as _;
use crate::running::Running;

/// Longest wait until the store shows a change by the edge.
const STORED_WITHIN: Duration = Duration::from_secs(10);
/// Interval of reading the store meanwhile.
const READ_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct LiveEdge {
    store: Store,
    pub(super) running: Running,
    host: System,
}

impl LiveEdge {
    pub(super) fn new(database: Database, running: Running) -> Self {
        Self { store: Store::new(database), running, host: System::new() }
    }

    pub(super) async fn run<T, F, Body>(&self, body: F) -> Result<T, LiveError>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = millrace_layers::LayerResult<T>>,
    {
        self.store.run(body).await.map_err(|error| LiveError::Unavailable(format!("the store says: {error}")))
    }

    /// Runs `change` on a thread that may block. Returns whether the object to change existed.
    async fn change(
        &self,
        change: impl FnOnce(&Running) -> Result<bool, String> + Send + 'static,
    ) -> Result<bool, LiveError> {
        let running = Arc::clone(&self.running);
        let answer = spawn_blocking(move || change(&running)).await;
        answer.unwrap_or_else(|_| Err("the server is stopping".into())).map_err(LiveError::Unavailable)
    }

    /// `None` when there are other pods, because this pod does not know their subscribers.
    pub(super) fn matching(&self, broker: &str, topic: &str) -> Option<u64> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().filter(|edge| !edge.has_peers())?.matching(broker, topic)
    }

    /// Waits until the message is gone, or the store has a newer message of the topic.
    async fn wait_until_removed(
        &self,
        broker: &LiveBroker,
        topic: &str,
        was: &[u8],
    ) -> Result<(), LiveError> {
        let began = self.host.now();
        while retained::body(self, broker.id, topic).await?.is_some_and(|body| body == was) {
            if self.host.now() > began + STORED_WITHIN {
                let what = "clients do not get the message any more, but the store has not removed it yet: see the server's log";
                return Err(LiveError::Unavailable(what.into()));
            }
            self.host.pause(READ_INTERVAL).await;
        }
        Ok(())
    }
}

impl Live for LiveEdge {
    fn publish<'a>(&'a self, visit: &'a Visit, publication: &'a PublishRequest) -> LiveAnswer<'a, Published> {
        Box::pin(publish::publish(self, visit, publication))
    }

    fn by_settings(&self, question: &AccessQuestion) -> Result<Option<u8>, LiveError> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        let edge = running.as_ref().ok_or_else(|| LiveError::Unavailable("the server is stopping".into()))?;
        let AccessQuestion { client_id, user, topic, qos, retain, action } = question;
        let publishes = *action == TestedAction::Publish;
        let retain = publishes.then_some(*retain);
        Ok(edge.allowed_by_settings(client_id, user.as_deref(), topic, *qos, retain))
    }

    fn tail<'a>(
        &'a self,
        visit: &'a Visit,
        filter: &'a str,
        retained: bool,
    ) -> LiveAnswer<'a, BoxStream<'static, TailEvent>> {
        Box::pin(tail::tail(self, visit, filter, retained))
    }

    fn trace<'a>(
        &'a self,
        broker: &'a LiveBroker,
        client_id: &'a str,
    ) -> LiveAnswer<'a, BoxStream<'static, TraceEvent>> {
        Box::pin(trace::trace(self, broker.id, client_id))
    }

    fn metrics<'a>(&'a self, broker: &'a LiveBroker) -> LiveAnswer<'a, Metrics> {
        Box::pin(async move {
            let (id, at_ms) = (broker.id, crate::clock::now_ms());
            let (live, puback, delivery) = self
                .run(|tx| async move {
                    // At the start of a minute its point is nearly empty, so the latency is of the last two.
                    let from_ms = at_ms.saturating_sub(2 * Resolution::Minute.window_ms());
                    let last_two = metering::history(&tx, id, Resolution::Minute, from_ms, at_ms).await?;
                    let mut sum = Point::default();
                    last_two.iter().for_each(|(_, point)| sum.add(point));
                    let live = metering::live(&tx, id, at_ms).await?;
                    Ok((live, Latency::of(&sum.latencies), Latency::of(&sum.deliveries)))
                })
                .await?;
            Ok(Metrics {
                at_ms,
                connections: live.connections,
                messages_in: live.messages_in,
                messages_out: live.messages_out,
                bytes_in: live.bytes_in,
                bytes_out: live.bytes_out,
                dropped: live.dropped,
                drops: live.drops.into(),
                stored_messages: live.stored_messages,
                stored_bytes: live.stored_bytes,
                puback,
                delivery,
            })
        })
    }

    fn clients<'a>(
        &'a self,
        broker: &'a LiveBroker,
        search: Option<&'a str>,
        page: &'a PageRequest,
    ) -> LiveAnswer<'a, Clients> {
        Box::pin(clients::list(self, broker.id, search.unwrap_or_default(), page))
    }

    fn client<'a>(&'a self, broker: &'a LiveBroker, client_id: &'a str) -> LiveAnswer<'a, ClientDetails> {
        Box::pin(clients::show(self, broker.id, client_id))
    }

    fn kick<'a>(&'a self, broker: &'a LiveBroker, client_id: &'a str) -> LiveAnswer<'a, ()> {
        Box::pin(clients::kick(self, broker.id, client_id))
    }

    fn sessions<'a>(
        &'a self,
        broker: &'a LiveBroker,
        search: Option<&'a str>,
        page: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<SessionInfo>> {
        Box::pin(sessions::list(self, broker.id, search, page))
    }

    fn session<'a>(&'a self, broker: &'a LiveBroker, client_id: &'a str) -> LiveAnswer<'a, SessionDetails> {
        Box::pin(sessions::show(self, broker.id, client_id))
    }

    fn purge_session<'a>(&'a self, broker: &'a LiveBroker, client_id: &'a str) -> LiveAnswer<'a, ()> {
        Box::pin(async move {
            if client_id.len() > NAME_BYTES_MAX {
                return Err(LiveError::NotFound("session"));
            }
            let (broker, client) = (broker.name.clone(), client_id.to_owned());
            match self.change(move |running| running.purge_session(&broker, &client)).await? {
                true => Ok(()),
                false => Err(LiveError::NotFound("session")),
            }
        })
    }

    fn retained<'a>(
        &'a self,
        broker: &'a LiveBroker,
        filter: Option<&'a str>,
        page: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<Retained>> {
        Box::pin(retained::list(self, broker.id, filter, page))
    }

    fn topics<'a>(
        &'a self,
        broker: &'a LiveBroker,
        below: Option<&'a str>,
        page: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<TopicBranch>> {
        Box::pin(retained::topics(self, broker.id, below, page))
    }

    fn retained_message<'a>(
        &'a self,
        broker: &'a LiveBroker,
        topic: &'a str,
    ) -> LiveAnswer<'a, RetainedMessage> {
        Box::pin(retained::show(self, broker.id, topic))
    }

    fn messages<'a>(
        &'a self,
        broker: &'a LiveBroker,
        topic: &'a str,
        limit: usize,
    ) -> LiveAnswer<'a, StoredMessages> {
        Box::pin(messages::list(self, broker.id, topic, limit))
    }

    fn streams<'a>(
        &'a self,
        broker: &'a LiveBroker,
        page: &'a PageRequest,
    ) -> LiveAnswer<'a, Page<StreamBacklog>> {
        Box::pin(streams::list(self, broker.id, page))
    }

    fn stream<'a>(&'a self, broker: &'a LiveBroker, filter: &'a str) -> LiveAnswer<'a, StreamBacklogDetails> {
        Box::pin(streams::show(self, broker.id, filter))
    }

    fn clear_retained<'a>(&'a self, broker: &'a LiveBroker, topic: &'a str) -> LiveAnswer<'a, ()> {
        Box::pin(async move {
            let body = retained::body(self, broker.id, topic)
                .await?
                .ok_or(LiveError::NotFound("retained message"))?;
            let (name, of_topic) = (broker.name.clone(), topic.to_owned());
            let _was_in_memory = self.change(move |running| running.clear_retained(&name, &of_topic)).await?;
            self.wait_until_removed(broker, topic, &body).await
        })
    }
}
