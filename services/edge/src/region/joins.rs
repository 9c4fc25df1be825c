//! Tracks the brokers whose messages from other pods arrive here. Clients of a broker wait for that when its first client
//! connects.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::mailbox::{Mail, Mailbox};

#[derive(Default)]
pub(super) struct RegionJoins {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Brokers that nobody must wait for.
    done: HashSet<u64>,
    /// By broker: the event loops with waiting clients, and the broker's name for their mail.
    waiting: HashMap<u64, Vec<(u16, Arc<str>)>>,
}

impl RegionJoins {
    /// Ends the waiting for a broker, because its messages arrive, or will not for a while.
    pub(super) fn done(&self, broker: u64, mailboxes: &[Mailbox]) {
        let mut state = self.lock();
        state.done.insert(broker);
        let waiting = state.waiting.remove(&broker).unwrap_or_default();
        drop(state);
        self.changed.notify_all();
        for (core, name) in waiting {
            send_opened(core, name, mailboxes);
        }
    }

    pub(super) fn left(&self, broker: u64) {
        self.lock().done.remove(&broker);
    }

    pub(super) fn is_done(&self, broker: u64) -> bool {
        self.lock().done.contains(&broker)
    }

    /// Mails [`Mail::Opened`] to a loop once the waiting for the broker has ended.
    pub(super) fn when(&self, broker: u64, core: u16, name: Arc<str>, mailboxes: &[Mailbox]) {
        let mut state = self.lock();
        if state.done.contains(&broker) {
            drop(state);
            return send_opened(core, name, mailboxes);
        }
        state.waiting.entry(broker).or_default().push((core, name));
    }

    pub(super) fn wait(&self, brokers: &[u64], at_most: Duration) {
        let is_open = |state: &mut State| brokers.iter().any(|broker| !state.done.contains(broker));
        drop(self.changed.wait_timeout_while(self.lock(), at_most, is_open));
    }

    pub(super) fn pod_came(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    pub(super) fn wait_for_pods(&self, at_most: Duration, are_there: impl Fn() -> bool) {
        drop(self.changed.wait_timeout_while(self.lock(), at_most, |_| !are_there()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send_opened(core: u16, name: Arc<str>, mailboxes: &[Mailbox]) {
    mailboxes[usize::from(core)].post(Mail::Opened(name, Some(true)));
}
