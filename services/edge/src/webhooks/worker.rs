//! Schedules the deliveries of webhooks, and makes them.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use millrace_access::model::Webhook;
use millrace_layers::streams::{LossReason, StreamLimits, Totals};
use millrace_layers::webhooks::{
    self, DeliveryOutcome, DeliveryRecord, DeliveryWork, TakenDelivery, WebhookId,
};
use millrace_layers::{LayerError, Store, accounts, catalog};
use millrace_outgoing::{CallSettings, HttpClient};
use millrace_storage::Read;
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::sleep;

use super::QueuedWebhooks;
use super::{
    AT_ONCE, AT_ONCE_PART, COUNT_EVERY, LIMIT_EVERY_MS, LOOK_AGAIN_MS, LOOK_EVERY, QUEUE_MS_MAX, TURN,
    WebhookCounters, deliver, event::event, page,
};
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::limits::EdgeLimits;
use crate::shares::TenantShares;

const PAGE: usize = 1_000;
/// Brokers whose tenant is remembered, about 100 bytes each.
const TENANTS_KEPT: usize = 65_536;

type Name = (u64, Arc<str>);

/// The state of a webhook; an idle one has none.
enum Stand {
    Busy,
    /// It pauses until this time, milliseconds of the process.
    Until(u64),
}

#[derive(Clone, Copy)]
enum Turned {
    More,
    Until(u64),
    Over,
}

struct WebhookOwner {
    broker: String,
    tenant: String,
}

enum NextDelivery {
    Taken(TakenDelivery, Box<Webhook>, WebhookOwner),
    Gone,
}

pub(super) struct WorkerContext {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) queued_webhooks: Arc<QueuedWebhooks>,
    pub(super) owner: String,
    pub(super) brokers: Arc<Brokers>,
    pub(super) outgoing: CallSettings,
    pub(super) counters: Arc<WebhookCounters>,
}

pub(super) struct Worker {
    parts: WorkerContext,
    /// Created at the first call, because that reads the system's authorities.
    client: OnceCell<HttpClient>,
    keep: Totals,
    known: RefCell<HashMap<Name, Stand>>,
    /// When queues of pausing webhooks were held to their limits, milliseconds of the process.
    limited: RefCell<HashMap<Name, u64>>,
    ready: RefCell<VecDeque<Name>>,
    active: RefCell<TenantShares>,
    tenants: RefCell<HashMap<u64, Arc<str>>>,
    random: RandomState,
}

impl Worker {
    pub(super) fn new(parts: WorkerContext, limits: &EdgeLimits) -> Self {
        Self {
            parts,
            client: OnceCell::new(),
            keep: Totals { entries: limits.queue_messages_max.into(), bytes: limits.queue_bytes_max },
            known: RefCell::default(),
            limited: RefCell::default(),
            ready: RefCell::default(),
            active: RefCell::new(TenantShares::new(AT_ONCE, AT_ONCE_PART)),
            tenants: RefCell::default(),
            random: RandomState::new(),
        }
    }

    pub(super) async fn run(self: Rc<Self>, mut stopped: oneshot::Receiver<()>) {
        let (mut looked_at, mut counted_at) = (None, None);
        loop {
            let now = self.parts.clock.now();
            if looked_at.is_none_or(|at| now >= at + LOOK_EVERY.as_millis() as u64) {
                looked_at = Some(now);
                self.look().await;
            }
            for name in self.parts.queued_webhooks.take() {
                self.want(name);
            }
            self.begin();
            if counted_at.is_none_or(|at| now >= at + COUNT_EVERY.as_millis() as u64) {
                counted_at = Some(now);
                let worker = self.clone();
                spawn_local(async move { worker.count_waiting().await });
            }
            tokio::select! {
                () = self.parts.queued_webhooks.wait() => {}
                () = sleep(LOOK_EVERY) => {}
                _ = &mut stopped => return,
            }
        }
    }

    /// Searches for queues with events, whichever pod queued them.
    async fn look(&self) {
        let now = self.parts.clock.now();
        self.known.borrow_mut().retain(|_, stand| !matches!(stand, Stand::Until(at) if *at <= now));
        self.limited.borrow_mut().retain(|_, at| now < *at + LIMIT_EVERY_MS);
        let mut last: Option<(u64, String)> = None;
        loop {
            let from = last.as_ref().map(|(broker, name)| WebhookId { broker: *broker, name });
            let page =
                self.parts.store.run(|tx| async move { webhooks::queued(&tx, from, PAGE).await }).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => {
                    return tracing::warn!(%error, "the queues of webhooks cannot be listed; the next round tries again");
                }
            };
            for (broker, name) in &page {
                self.want((*broker, name.as_str().into()));
            }
            if page.len() < PAGE {
                return;
            }
            last = page.into_iter().next_back();
        }
    }

    async fn count_waiting(&self) {
        let queued = self.parts.store.run(|tx| async move { webhooks::queued(&tx, None, PAGE).await }).await;
        // A store that does not answer leaves the last count; `look` logs its failure.
        let Ok(queued) = queued else { return };
        let (mut events, mut bytes, mut oldest_ms) = (0, 0, None);
        for (broker, name) in queued {
            let webhook_id = WebhookId { broker, name: &name };
            let found =
                self.parts.store.run(|tx| async move { webhooks::status(&tx, webhook_id).await }).await;
            let Ok((_, waiting)) = found else { return };
            events += waiting.totals.entries;
            bytes += waiting.totals.bytes;
            oldest_ms = [oldest_ms, waiting.oldest_at_ms].into_iter().flatten().min();
        }
        let age_ms = oldest_ms.map_or(0, |at_ms| self.parts.clock.unix_now_ms().saturating_sub(at_ms));
        self.parts.counters.events_waiting.set(events);
        self.parts.counters.queue_bytes.set(bytes);
        self.parts.counters.oldest_s.set(age_ms / 1_000);
    }

    fn want(&self, name: Name) {
        let mut known = self.known.borrow_mut();
        match known.get(&name) {
            Some(Stand::Busy) => return,
            Some(Stand::Until(at)) if *at > self.parts.clock.now() => return,
            _ => {}
        }
        known.insert(name.clone(), Stand::Busy);
        self.ready.borrow_mut().push_back(name);
    }

    fn begin(self: &Rc<Self>) {
        while let Some((name, tenant)) = self.next() {
            let worker = self.clone();
            spawn_local(async move {
                let turned = worker.turn(&name).await;
                worker.active.borrow_mut().give_back(&tenant);
                worker.turned(name, turned);
                worker.begin();
            });
        }
    }

    /// The first waiting webhook whose tenant may deliver more.
    fn next(&self) -> Option<(Name, Arc<str>)> {
        let (mut ready, mut active) = (self.ready.borrow_mut(), self.active.borrow_mut());
        let tenants = self.tenants.borrow();
        let mut place = |name: &Name| {
            let known = tenants.get(&name.0).cloned();
            let tenant = known.unwrap_or_else(|| name.0.to_string().into());
            active.take(&tenant).then_some(tenant)
        };
        let found = ready.iter().enumerate().find_map(|(at, name)| Some((at, place(name)?)));
        found.and_then(|(at, tenant)| Some((ready.remove(at)?, tenant)))
    }

    fn note_tenant(&self, broker: u64, tenant: &str) {
        let mut tenants = self.tenants.borrow_mut();
        if tenants.len() >= TENANTS_KEPT {
            tenants.clear();
        }
        if tenants.get(&broker).is_none_or(|known| **known != *tenant) {
            tenants.insert(broker, tenant.into());
        }
    }

    fn turned(&self, name: Name, turned: Turned) {
        match turned {
            Turned::More => self.ready.borrow_mut().push_back(name),
            Turned::Until(at) => drop(self.known.borrow_mut().insert(name, Stand::Until(at))),
            Turned::Over => drop(self.known.borrow_mut().remove(&name)),
        }
    }

    async fn turn(&self, name: &Name) -> Turned {
        let webhook_id = WebhookId { broker: name.0, name: &name.1 };
        for _ in 0..TURN {
            let again = self.parts.clock.now() + LOOK_AGAIN_MS;
            let (taken, webhook, owner) = match self.take(webhook_id).await {
                Ok(NextDelivery::Taken(taken, webhook, owner)) => {
                    self.note_tenant(name.0, &owner.tenant);
                    (taken, webhook, owner)
                }
                Ok(NextDelivery::Gone) => return Turned::Over,
                Err(error) => {
                    tracing::warn!(%error, "a webhook's queue cannot be read; it waits");
                    return Turned::Until(again);
                }
            };
            let work = match taken {
                TakenDelivery::Work(mut work) => {
                    let keys = webhook.keys(self.parts.clock.unix_now_ms());
                    work.signed_by = keys.into_iter().map(|(number, _)| number).collect();
                    work
                }
                TakenDelivery::Empty => return Turned::Over,
                TakenDelivery::LeasedUntil(at_ms) | TakenDelivery::RetryAt(at_ms) => {
                    if matches!(taken, TakenDelivery::RetryAt(_)) {
                        self.limit(name).await;
                    }
                    let wait_ms = at_ms.saturating_sub(self.parts.clock.unix_now_ms());
                    return Turned::Until(again.min(self.parts.clock.now() + wait_ms));
                }
            };
            match self.deliver(webhook_id, &webhook, &owner, &work).await {
                Ok(DeliveryOutcome::Failed { .. }) => {}
                Ok(_) => continue,
                Err(LayerError::Fenced { .. }) => return Turned::Until(again),
                Err(error) => {
                    tracing::warn!(%error, "the result of a delivery cannot be stored; its events are delivered again");
                    return Turned::Until(again);
                }
            }
        }
        Turned::More
    }

    async fn take(&self, webhook_id: WebhookId<'_>) -> Result<NextDelivery, LayerError> {
        let now_ms = self.parts.clock.unix_now_ms();
        let found = self
            .parts
            .store
            .run(|tx| async move {
                let broker = catalog::name_of(&tx, webhook_id.broker).await?;
                let all = accounts::webhooks(webhook_id.broker);
                let record = all.get::<Webhook>(&tx, webhook_id.name.as_bytes(), Read::Snapshot).await?;
                let record = record.map(|document| document.value).filter(|webhook| webhook.enabled);
                let (Some(broker), Some(webhook)) = (broker, record) else {
                    webhooks::remove_queued(&tx, webhook_id)?;
                    return Ok(NextDelivery::Gone);
                };
                let taken =
                    webhooks::take(&tx, webhook_id, &self.parts.owner, now_ms, page(webhook.batch_max))
                        .await?;
                let found = catalog::get(&tx, &broker, Read::Snapshot).await?;
                let organisation = found.map(|found| found.details()).transpose()?;
                let organisation = organisation.and_then(|details| details.value.organisation);
                let broker = String::from_utf8_lossy(&broker).into_owned();
                let tenant = organisation.unwrap_or_else(|| broker.clone());
                Ok(NextDelivery::Taken(taken, Box::new(webhook), WebhookOwner { broker, tenant }))
            })
            .await?;
        if matches!(found, NextDelivery::Gone) {
            // Removes its queue, if the broker is open here.
            self.parts.brokers.note_changed_webhooks(webhook_id.broker);
        }
        Ok(found)
    }

    async fn deliver(
        &self,
        webhook_id: WebhookId<'_>,
        webhook: &Webhook,
        WebhookOwner { broker, tenant }: &WebhookOwner,
        work: &DeliveryWork,
    ) -> Result<DeliveryOutcome, LayerError> {
        let (events, id) = self.events(broker, work);
        let mut made = None;
        let outcome = if events.is_empty() {
            DeliveryOutcome::Delivered
        } else {
            let (begun, at_ms) = (self.parts.clock.now(), self.parts.clock.unix_now_ms());
            let call = deliver::call((webhook, tenant), &events, &id, self.parts.clock.unix_now_ms());
            let client = self.client.get_or_init(|| HttpClient::new(self.parts.outgoing.clone()));
            let answer = client.call(call).await;
            let now_ms = self.parts.clock.unix_now_ms();
            let outcome = deliver::outcome(work, &events, &answer, now_ms, self.random(work.epoch));
            let duration_ms = self.parts.clock.now().saturating_sub(begun);
            let delivery = deliver::logged(work, &events, &id, (&answer, &outcome));
            made = Some(DeliveryRecord { at_ms, duration_ms, ..delivery });
            outcome
        };
        let (settled, now_ms) = ((&outcome, made.as_ref()), self.parts.clock.unix_now_ms());
        let settle = |tx| async move { webhooks::settle(&tx, webhook_id, work, settled, now_ms).await };
        let state = self.parts.store.run(settle).await?;
        self.count(&outcome, work, state.lost - work.state.lost.min(state.lost));
        if let DeliveryOutcome::Failed { failure, .. } = &outcome {
            tracing::debug!(
                broker,
                webhook = webhook_id.name,
                reason = failure.reason,
                "a delivery to a webhook failed"
            );
        }
        Ok(outcome)
    }

    /// Holds the queue of a pausing webhook to its limits. Its pause is up to an hour, in which events continue arriving.
    async fn limit(&self, name: &Name) {
        let now = self.parts.clock.now();
        let limited_at = self.limited.borrow().get(name).copied();
        if limited_at.is_some_and(|at| now < at + LIMIT_EVERY_MS) {
            return;
        }
        self.limited.borrow_mut().insert(name.clone(), now);
        let webhook_id = WebhookId { broker: name.0, name: &name.1 };
        let now_ms = self.parts.clock.unix_now_ms();
        let (before_ms, keep) = (now_ms.saturating_sub(QUEUE_MS_MAX), self.keep);
        let limits = StreamLimits { now_ms, before_ms, keep, over_keep: LossReason::Size };
        if let Err(error) = webhook_id.limit(&self.parts.store, limits).await {
            tracing::warn!(%error, "a webhook's queue could not be trimmed to its limits; the next round tries again");
        }
    }

    fn events(&self, broker: &str, work: &DeliveryWork) -> (Vec<Bytes>, String) {
        if let Some(letter) = &work.letter {
            return (vec![letter.event.clone()], letter.id.to_string());
        }
        let id = work.entries.first().map_or_else(String::new, |entry| entry.position.to_string());
        let read: Vec<Bytes> =
            work.entries.iter().filter_map(|entry| event(broker, entry, &self.parts.clock)).collect();
        if read.len() < work.entries.len() {
            tracing::error!(
                broker,
                "an event for a webhook cannot be read and is left out: report it, because the service of the tenant lacks it"
            );
        }
        (read, id)
    }

    fn count(&self, outcome: &DeliveryOutcome, work: &DeliveryWork, lost: u64) {
        let counters = &self.parts.counters;
        let events = work.entries.len().max(1);
        match outcome {
            DeliveryOutcome::Delivered => {
                counters.calls_accepted.add(1);
                counters.events_delivered.add(events);
            }
            DeliveryOutcome::Failed { .. } => counters.calls_failed.add(1),
            DeliveryOutcome::Split(_) => counters.calls_refused.add(1),
            DeliveryOutcome::Dead { .. } => {
                counters.calls_refused.add(1);
                counters.events_dead.add(events);
            }
        }
        counters.events_lost.add(usize::try_from(lost).unwrap_or(0));
    }

    /// Between 0 and 1.
    fn random(&self, epoch: u64) -> f64 {
        (self.random.hash_one((epoch, self.parts.clock.now())) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
