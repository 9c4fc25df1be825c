//! Opens brokers: reads them from the store before their first client connects, or before a will or the end of a session
//! of theirs is due.
//!
//! A broker with many retained messages and filters takes seconds. So threads of their own open brokers, several at the
//! same time: neither other brokers, nor the pages of sessions, nor the writer wait for a large one.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use millrace_layers::{LayerError, catalog};
use millrace_storage::{Read, block_on};

use super::queue::{QueuedWork, TakenWork};
use super::{StoreContext, access, load};
use crate::broker::Broker;
use crate::mailbox::Mail;

pub(super) const THREADS: usize = 4;
const WAIT: Duration = Duration::from_secs(1);

pub(super) struct ToOpen {
    name: Arc<str>,
    /// The event loop that waits for it, if any.
    core: Option<u16>,
}

impl QueuedWork for ToOpen {
    fn size(&self) -> usize {
        0
    }
}

#[derive(Default)]
pub(super) struct Openings {
    /// Brokers that are being opened or closed, each with the event loops that wait for it.
    begun: Mutex<HashMap<Box<str>, Vec<u16>>>,
    ended: Condvar,
    /// Brokers for which [`StoreContext::are_open`] has asked: `false` while they are queued or being opened, `true` after
    /// that has failed.
    due: Mutex<HashMap<Arc<str>, bool>>,
    /// When idle brokers are looked for next.
    pub(super) look_at: AtomicU64,
}

impl Openings {
    /// Returns false if the broker is being opened or closed. Until [`Openings::end`] nobody else opens it.
    pub(super) fn begin(&self, name: &str) -> bool {
        let mut begun = self.begun();
        let is_free = !begun.contains_key(name);
        if is_free {
            begun.insert(name.into(), Vec::new());
        }
        is_free
    }

    /// Returns the event loops that have asked for the broker meanwhile.
    pub(super) fn end(&self, name: &str) -> Vec<u16> {
        let waiting = self.begun().remove(name);
        self.ended.notify_all();
        waiting.unwrap_or_default()
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<Box<str>, Vec<u16>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> MutexGuard<'_, HashMap<Arc<str>, bool>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An opening that has begun. Its drop answers all that wait for it, also after a panic: that of an API thread ends only its
/// request.
struct BrokerOpening<'s> {
    shared: &'s StoreContext,
    name: &'s str,
    /// `None`: the store has not said whether there is such a broker.
    opened: Option<Option<Arc<Broker>>>,
}

impl Drop for BrokerOpening<'_> {
    fn drop(&mut self) {
        let openings = &self.shared.openings;
        let waiting = openings.end(self.name);
        match &self.opened {
            Some(_) => drop(openings.due().remove(self.name)),
            None => openings.due().get_mut(self.name).into_iter().for_each(|has_failed| *has_failed = true),
        }
        for core in waiting {
            self.shared.answer_opened(core, self.name.into(), self.opened.as_ref().map(Option::as_ref));
        }
    }
}

pub(super) fn run(shared: &StoreContext) {
    let wait = shared.look_every_ms().map_or(WAIT, |every_ms| WAIT.min(Duration::from_millis(every_ms)));
    loop {
        match shared.opens.take_some(wait, 1) {
            TakenWork::Work(asked) => asked.into_iter().for_each(|one| shared.open_for(one)),
            TakenWork::Nothing => {}
            TakenWork::Closed => return,
        }
        shared.close_idle();
    }
}

impl StoreContext {
    /// The answer is [`Mail::Opened`].
    pub(super) fn ask_for_broker(&self, core: u16, name: Arc<str>) {
        self.opens.push(&mut vec![ToOpen { name, core: Some(core) }]);
    }

    /// Returns whether these brokers are open, as far as they exist and can be opened, so that
    /// [`StoreContext::open_all`] does not wait for other pods. If not, they are being opened now.
    pub(super) fn are_open(&self, ids: impl Iterator<Item = u64>) -> Result<bool, LayerError> {
        let (mut closed, mut are_joined) = (HashSet::new(), true);
        for id in ids {
            match (self.brokers.by_id(id), &self.region) {
                (None, _) => drop(closed.insert(id)),
                (Some(broker), Some(region)) => are_joined &= region.is_joined(&broker),
                (Some(_), None) => {}
            }
        }
        if closed.is_empty() {
            return Ok(are_joined);
        }
        let names = self.layers.run(async |tx| {
            let names = closed.iter().map(|id| catalog::name_of(&tx, *id));
            join_all(names).await.into_iter().collect::<Result<Vec<_>, _>>()
        });
        let names = block_on(names)?.into_iter().flatten();
        let names = names.filter_map(|name| Some(std::str::from_utf8(&name).ok()?.into()));
        let (mut asked, mut are_open) = (Vec::new(), are_joined);
        let mut due = self.openings.due();
        for name in names {
            let name: Arc<str> = name;
            match due.get(&name) {
                // The step finds the same error, and decides what becomes of the session.
                Some(true) => drop(due.remove(&name)),
                Some(false) => are_open = false,
                None => {
                    are_open = false;
                    due.insert(name.clone(), false);
                    asked.push(ToOpen { name, core: None });
                }
            }
        }
        drop(due);
        self.opens.push(&mut asked);
        Ok(are_open)
    }

    /// Asks once more for a broker that [`StoreContext::are_open`] has asked for.
    pub(super) fn open_if_due(&self, name: &str) {
        let found =
            self.openings.due().get_key_value(name).map(|(name, has_failed)| (name.clone(), *has_failed));
        if let Some((name, false)) = found {
            self.opens.push(&mut vec![ToOpen { name, core: None }]);
        }
    }

    fn open_for(&self, ToOpen { name, core }: ToOpen) {
        // A thread that waited for another one to open the broker could not open others.
        if let Some(waiting) = self.openings.begun().get_mut(&*name) {
            return waiting.extend(core);
        }
        if let Err(error) = self.open_with(&name, core) {
            tracing::error!(%error, broker = &*name, "a broker cannot be read; its clients are refused and may retry");
        }
    }

    /// `None`: the store did not say whether there is such a broker.
    fn answer_opened(&self, core: u16, name: Arc<str>, opened: Option<Option<&Arc<Broker>>>) {
        if let (Some(region), Some(Some(broker))) = (&self.region, opened) {
            return region.when_joined(broker, core, name);
        }
        let is_there = opened.map(|broker| broker.is_some());
        self.mailboxes[usize::from(core)].post(Mail::Opened(name, is_there));
    }

    /// Opens a broker, or waits until another thread has done so; `None`: there is no such broker.
    pub(super) fn open(&self, name: &str) -> Result<Option<Arc<Broker>>, LayerError> {
        self.open_with(name, None)
    }

    /// The same; `core` gets the answer, too.
    fn open_with(&self, name: &str, core: Option<u16>) -> Result<Option<Arc<Broker>>, LayerError> {
        let mut begun = self.openings.begun();
        loop {
            if let Some(broker) = self.brokers.get(name) {
                self.openings.due().remove(name);
                if let Some(core) = core {
                    self.answer_opened(core, name.into(), Some(Some(&broker)));
                }
                return Ok(Some(broker));
            }
            if !begun.contains_key(name) {
                break;
            }
            begun = self.openings.ended.wait(begun).unwrap_or_else(PoisonError::into_inner);
        }
        begun.insert(name.into(), core.into_iter().collect());
        drop(begun);
        let mut opening = BrokerOpening { shared: self, name, opened: None };
        let opened = self.read_broker(name);
        opening.opened = opened.as_ref().ok().cloned();
        opened
    }

    fn read_broker(&self, name: &str) -> Result<Option<Arc<Broker>>, LayerError> {
        let found =
            block_on(self.layers.run(async |tx| catalog::get(&tx, name.as_bytes(), Read::Snapshot).await))?;
        let Some(found) = found else { return Ok(None) };
        let began = self.clock.now();
        let broker = Broker::new(found.id, name, self.mailboxes.len());
        broker.elsewhere.own.lock().begin(self.brokers.closings());
        let broker = Arc::new(broker);
        self.brokers.count_retained_of(&broker);
        let sessions = load::all(&self.layers, &self.clock, &self.brokers, &broker, self.is_shared)?;
        broker.counters[self.mailboxes.len()].sessions.add(sessions);
        broker.set_records(access::load(&self.layers, &broker)?);
        let id = broker.id;
        if block_on(self.layers.run(async |tx| millrace_layers::webhooks::has_any(&tx, id).await))? {
            self.brokers.note_changed_webhooks(id);
        }
        broker.note_opening(self.clock.now().saturating_sub(began));
        self.brokers.insert(&broker);
        if let Some(region) = &self.region {
            region.join(&broker);
        }
        Ok(Some(broker))
    }

    /// Opens brokers, then waits once for all until other pods have announced their filters.
    pub(super) fn open_all(&self, ids: impl Iterator<Item = u64>) -> Result<(), LayerError> {
        let Some(region) = &self.region else { return Ok(()) };
        let mut opened = Vec::new();
        for id in ids {
            opened.extend(self.open_by_id(id)?);
        }
        region.wait_for_joins(&opened);
        Ok(())
    }

    /// `None`: the broker was deleted.
    pub(super) fn open_by_id(&self, id: u64) -> Result<Option<Arc<Broker>>, LayerError> {
        if let Some(broker) = self.brokers.by_id(id) {
            return Ok(Some(broker));
        }
        let name = block_on(self.layers.run(async |tx| catalog::name_of(&tx, id).await))?;
        match name.as_deref().map(std::str::from_utf8) {
            Some(Ok(name)) => self.open(name),
            _ => Ok(None),
        }
    }
}
