//! A pod uses the store as an edge does, step after step, but without connections. It may die at
//! any await, or be silent for longer than its lease.

mod duties;
mod groups;
mod once;
mod publish;
mod readers;
mod sessions;

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use millrace_layers::{
    BrokerId, LayerError, Position, Store, once::MarkerNumbers, sessions::SessionId, streams::StreamId,
};
use millrace_storage::{Database, Transaction};

use crate::{
    history::{SharedHistory, Subscribed},
    plan::{CLIENTS, LEASE_MS, Plant, RunPlan},
    tasks::until,
    world::World,
};

pub(crate) use publish::Filters;
pub(crate) use sessions::Connect;

pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) store: Store,
    pub(crate) world: World,
    pub(crate) history: SharedHistory,
    pub(crate) brokers: Vec<BrokerId>,
    pub(crate) plant: Option<Plant>,
    /// The sessions that the pod believes it owns.
    sessions: RefCell<BTreeMap<(BrokerId, &'static str), Mine>>,
    filters: RefCell<Filters>,
    /// Messages of groups that its members have or have acknowledged.
    claims: RefCell<BTreeMap<(BrokerId, StreamId), Claims>>,
    /// Names the pod as a publisher; unique among all runs of pods.
    publisher: u64,
    marks: RefCell<MarkerNumbers>,
    renewed_ms: Cell<u64>,
}

/// A session that the pod believes it owns, as it has it in memory.
#[derive(Clone)]
pub(crate) struct Mine {
    pub(crate) broker: BrokerId,
    pub(crate) client: &'static str,
    /// The attempt to attach, by which the history names this tenure.
    pub(crate) attempt: u64,
    /// Attempt at which the session began; it stays while the session continues.
    pub(crate) life: u64,
    pub(crate) epoch: u64,
    pub(crate) cursor: Position,
    pub(crate) subscriptions: BTreeMap<String, Subscribed>,
    pub(crate) received: BTreeSet<u16>,
}

impl Mine {
    pub(crate) fn id(&self) -> SessionId<'_> {
        SessionId { broker: self.broker, client: self.client.as_bytes() }
    }
}

#[derive(Default)]
struct Claims {
    outstanding: BTreeSet<Position>,
    acknowledged: BTreeSet<Position>,
}

type Done = Result<(), LayerError>;

impl Pod {
    pub(crate) fn new(
        name: String,
        database: &Database,
        world: &World,
        history: &SharedHistory,
        plant: Option<Plant>,
    ) -> Self {
        let (brokers, publisher) = {
            let mut all = history.borrow_mut();
            if !all.pods.contains(&name) {
                all.pods.push(name.clone());
            }
            (all.brokers.clone(), all.next())
        };
        Self {
            name,
            store: Store::new(database.clone()),
            world: world.clone(),
            history: history.clone(),
            brokers,
            plant,
            sessions: RefCell::default(),
            filters: RefCell::default(),
            claims: RefCell::default(),
            publisher,
            marks: RefCell::new(MarkerNumbers::new(publisher)),
            renewed_ms: Cell::new(0),
        }
    }

    async fn act(&self) -> Done {
        let now_ms = self.world.now_ms();
        if now_ms >= self.renewed_ms.get() + LEASE_MS / 4 {
            self.look(now_ms).await?;
        }
        match self.world.below(100) {
            0..12 => self.connect().await,
            12..22 => self.subscribe().await,
            22..28 => self.unsubscribe().await,
            28..48 => self.publish().await,
            48..54 => self.publish_once().await,
            54..68 => self.read_and_checkpoint().await,
            68..72 => self.disconnect().await,
            72..88 => self.work_for_groups().await,
            88..93 => self.sweep_due().await,
            93..96 => self.limit_streams().await,
            96..98 => self.listen().await,
            98 => self.clean_up().await,
            _ => {
                // The pod lives but renews no lease.
                self.world.pause_ms(self.world.below(2 * LEASE_MS)).await;
                Ok(())
            }
        }
    }

    async fn live(&self) {
        self.start().await;
        loop {
            let done = self.act().await;
            self.history.borrow_mut().count("operations");
            if done.is_err() {
                self.history.borrow_mut().count("failed operations");
            }
            self.world.pause_ms(self.world.below(120)).await;
        }
    }

    pub(crate) fn broker(&self) -> BrokerId {
        self.world.pick(&self.brokers)
    }

    pub(crate) fn any_client(&self) -> (BrokerId, &'static str) {
        (self.broker(), self.world.pick(&CLIENTS))
    }

    pub(crate) fn mine(&self, broker: BrokerId, client: &'static str) -> Option<Mine> {
        self.sessions.borrow().get(&(broker, client)).cloned()
    }

    pub(crate) fn any_session(&self) -> Option<Mine> {
        let sessions: Vec<Mine> = self.sessions.borrow().values().cloned().collect();
        if sessions.is_empty() {
            return None;
        }
        let at = self.world.below(sessions.len() as u64);
        sessions.into_iter().nth(usize::try_from(at).unwrap_or(0))
    }

    pub(crate) fn keep(&self, mine: Mine) {
        self.sessions.borrow_mut().insert((mine.broker, mine.client), mine);
    }

    pub(crate) fn forget(&self, broker: BrokerId, client: &str) {
        self.sessions.borrow_mut().retain(|key, _| *key != (broker, client));
    }

    /// Ends the connection of a session after an error.
    pub(crate) fn lost(&self, mine: &Mine, error: LayerError) -> LayerError {
        if matches!(error, LayerError::Fenced { .. }) {
            self.history.borrow_mut().count("fenced writes");
        }
        self.forget(mine.broker, mine.client);
        error
    }

    /// Runs a transaction without a commit marker, because running it twice does no harm.
    pub(crate) async fn read<T>(
        &self,
        body: impl AsyncFn(&Transaction) -> millrace_layers::LayerResult<T>,
    ) -> millrace_layers::LayerResult<T> {
        let body = &body;
        self.store.run(|tx| async move { body(&tx).await }).await
    }
}

/// Successive pods of one instance: each dies after a while, and the next one has its name or
/// another.
pub(crate) async fn lives(
    database: &Database,
    world: &World,
    history: &SharedHistory,
    plan: RunPlan,
    place: &str,
) {
    let end_ms = world.now_ms() + plan.seconds * 1_000;
    let mut generation = 0;
    while world.now_ms() < end_ms {
        let pod = Pod::new(format!("pod-{place}-{generation}"), database, world, history, plan.plant);
        let life_ms = 3_000 + world.below(40_000);
        until(pod.live(), world.pause_ms(life_ms.min(end_ms.saturating_sub(world.now_ms())))).await;
        history.borrow_mut().count("pods that died");
        generation += world.below(2);
    }
}
