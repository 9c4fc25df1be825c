//! Subscribes at NATS to the receivers that the user joined, and passes their messages to the core.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, StatusCode, SubscribeError, Subscriber};
use futures_util::StreamExt;
use tokio::task::{AbortHandle, coop};
use tokio::time::timeout;

use crate::address::{Echo, To};
use crate::collections::HashMap;
use crate::state::FabricContext;

/// The NATS queue group that all groups share, because their subjects differ.
const QUEUE: &str = "g";
/// Joins handled before new joins and leaves are looked at.
const JOINS_AT_ONCE: usize = 500;
/// How long a subscription may block before new joins and leaves are looked at.
const SUBSCRIBE_WAIT: Duration = Duration::from_millis(100);

/// Joined receivers with the task that listens; `None` while a receiver waits for NATS.
type Tasks = HashMap<To, Option<AbortHandle>>;

pub(super) async fn run(shared: &Arc<FabricContext>, client: &Client) -> Result<(), String> {
    control(shared, client).await.map_err(|error| error.to_string())?;
    let brokers = client.subscribe(shared.subjects.own_brokers()).await.map_err(|error| error.to_string())?;
    spawn(shared.clone(), listen_for_brokers(shared.clone(), brokers));
    let mut tasks = Tasks::default();
    let mut waiting = VecDeque::new();
    for to in [To::Pods, To::Pod(shared.subjects.own())] {
        join(shared, to, &mut tasks, &mut waiting);
    }
    loop {
        for (to, request) in shared.take_join_requests() {
            if request.leaves
                && let Some(task) = tasks.remove(&to)
            {
                shared.core().leave(to);
                match task {
                    Some(task) => task.abort(),
                    None => waiting.retain(|other| *other != to),
                }
            }
            if request.joins {
                join(shared, to, &mut tasks, &mut waiting);
            }
        }
        let list = subscribe(shared, client, &mut tasks, &mut waiting).await?;
        if !list.is_empty() {
            shared.core().subscribed(list, shared.now());
        }
        if waiting.is_empty() {
            shared.join_requested.notified().await;
        } else if !shared.link.is_connected() {
            tokio::select! {
                () = shared.join_requested.notified() => {}
                () = shared.link.until(true) => {}
            }
        }
    }
}

fn join(shared: &FabricContext, to: To, tasks: &mut Tasks, waiting: &mut VecDeque<To>) {
    if shared.core().join(to, shared.now()) {
        tasks.insert(to, None);
        waiting.push_back(to);
    }
}

async fn subscribe(
    shared: &Arc<FabricContext>,
    client: &Client,
    tasks: &mut Tasks,
    waiting: &mut VecDeque<To>,
) -> Result<Vec<To>, String> {
    let mut done = Vec::new();
    while done.len() < JOINS_AT_ONCE
        && let Some(to) = waiting.pop_front()
    {
        let Some(task @ None) = tasks.get_mut(&to) else { continue };
        // This pod's one subscription for all brokers covers it.
        if matches!(to, To::BrokerOnPod { .. }) {
            done.push(to);
            continue;
        }
        let subject = shared.subjects.of(to);
        let subscription = async {
            if to.is_numbered() {
                client.subscribe(subject).await
            } else {
                client.queue_subscribe(subject, QUEUE.into()).await
            }
        };
        match timeout(SUBSCRIBE_WAIT, subscription).await {
            Ok(subscriber) => {
                let subscriber = subscriber.map_err(|error| error.to_string())?;
                *task = Some(spawn(shared.clone(), listen(shared.clone(), to, subscriber)));
                done.push(to);
            }
            Err(_) => {
                waiting.push_front(to);
                break;
            }
        }
    }
    Ok(done)
}

async fn control(shared: &Arc<FabricContext>, client: &Client) -> Result<(), SubscribeError> {
    for subject in [shared.subjects.control(), shared.subjects.own_control()] {
        let subscriber = client.subscribe(subject).await?;
        spawn(shared.clone(), listen_to_fabrics(shared.clone(), subscriber));
    }
    Ok(())
}

async fn listen(shared: Arc<FabricContext>, to: To, mut subscriber: Subscriber) {
    while let Some(message) = subscriber.next().await {
        shared.core().received(to, message.payload, shared.now());
    }
}

async fn listen_for_brokers(shared: Arc<FabricContext>, mut subscriber: Subscriber) {
    while let Some(message) = subscriber.next().await {
        match shared.subjects.broker_of(&message.subject) {
            Some(to) => shared.core().received(to, message.payload, shared.now()),
            None => shared.counts.malformed.add(1),
        }
    }
}

async fn listen_to_fabrics(shared: Arc<FabricContext>, mut subscriber: Subscriber) {
    while let Some(message) = subscriber.next().await {
        if message.status != Some(StatusCode::NO_RESPONDERS) {
            shared.core().received_control(message.payload, shared.now());
            continue;
        }
        match shared.subjects.parse_echo(&message.subject) {
            Some(Echo::Probe(to, probe)) => shared.core().no_responders(to, probe),
            Some(Echo::Nobody(number)) => shared.link.echoed(number),
            None => shared.counts.malformed.add(1),
        }
    }
}

/// Spawns a task that takes all waiting messages before other tasks run. The connection reads many
/// messages in one turn, which would otherwise fill the channel.
fn spawn(shared: Arc<FabricContext>, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    let watched = async move {
        let _watch = EndOnPanic(shared);
        task.await;
    };
    tokio::spawn(coop::unconstrained(watched)).abort_handle()
}

/// Ends the fabric when a task panics, because a receiver that stopped unnoticed would be worse.
struct EndOnPanic(Arc<FabricContext>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failed.notify_one();
        }
    }
}
