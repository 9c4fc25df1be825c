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

const LOOK_UPS_MAX: usize = 1_000;

pub(super) struct ToOpen {
    name: Arc<str>,
    /// The event loop that waits for it, if any.
    core: Option<u16>,
    /// A client has sent the name.
    may_be_absent: bool,
}

impl QueuedWork for ToOpen {
    fn size(&self) -> usize {
        0
    }

    fn work(&self) -> usize {
        if self.may_be_absent { 1 } else { LOOK_UPS_MAX }
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
        match shared.opens.take_some(wait, LOOK_UPS_MAX) {
            TakenWork::Work(asked) => shared.open_existing(asked),
            TakenWork::Nothing => {}
            TakenWork::Closed => return,
        }
        shared.close_idle();
    }
}

impl StoreContext {
    /// The answer is [`Mail::Opened`].
    pub(super) fn ask_for_broker(&self, core: u16, name: Arc<str>) {
        self.opens.push(&mut vec![ToOpen { name, core: Some(core), may_be_absent: true }]);
    }

    /// Opens the first of these brokers that exists, and queues the others again. Names without a broker are answered at
    /// once, so that a flood of them delays nobody.
    fn open_existing(&self, asked: Vec<ToOpen>) {
        let (unknown, mut existing): (Vec<_>, Vec<_>) = asked.into_iter().partition(|one| one.may_be_absent);
        let found = self.layers.run(async |tx| {
            let found = unknown.iter().map(|one| catalog::get(&tx, one.name.as_bytes(), Read::Snapshot));
            join_all(found).await.into_iter().collect::<Result<Vec<_>, _>>()
        });
        // A single name is looked up with its broker.
        let found = (unknown.len() > 1).then(|| block_on(found));
        let is_there = match found {
            None => vec![Some(true)],
            Some(Ok(found)) => found.iter().map(|record| Some(record.is_some())).collect(),
            Some(Err(error)) => {
                tracing::error!(%error, "brokers cannot be looked up; their clients are refused and may retry");
                vec![None; unknown.len()]
            }
        };
        for (one, is_there) in unknown.into_iter().zip(is_there) {
            match (is_there, one.core) {
                (Some(false), Some(core)) => self.answer_opened(core, one.name, Some(None)),
                (None, Some(core)) => self.answer_opened(core, one.name, None),
                _ => existing.push(ToOpen { may_be_absent: false, ..one }),
            }
        }
        let mut later = existing.split_off(existing.len().min(1));
        self.opens.push(&mut later);
        existing.into_iter().for_each(|one| self.open_for(one));
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
                    asked.push(ToOpen { name, core: None, may_be_absent: false });
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
            self.opens.push(&mut vec![ToOpen { name, core: None, may_be_absent: false }]);
        }
    }

    fn open_for(&self, ToOpen { name, core, .. }: ToOpen) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_looked_up_together_and_an_existing_broker_does_not_wait_for_all() {
        let (shared, _) = StoreContext::with_broker(false);
        (0..3 * LOOK_UPS_MAX).for_each(|number| shared.ask_for_broker(0, format!("unknown-{number}").into()));
        for name in ["default", "other"] {
            shared.ask_for_broker(0, name.into());
        }
        let mut steps = 0;
        while shared.brokers.get("default").is_none() {
            let TakenWork::Work(asked) = shared.opens.take_some(Duration::ZERO, LOOK_UPS_MAX) else {
                panic!("the broker was not opened");
            };
            shared.open_existing(asked);
            steps += 1;
        }
        assert_eq!(steps, 4);
        assert!(matches!(shared.opens.take_some(Duration::ZERO, LOOK_UPS_MAX), TakenWork::Nothing));
    }
}
