//! A page of clients: found in a pass over all sessions, then described.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use crate::clients::{ClientSearch, ClientsAnswer, ConnectedClient, Question};
use crate::core::connection::ClientUser;
use crate::core::{Core, LocalSession, work};

const ADDED: u64 = 4;
/// Work of describing a client, which asks the system for its address.
pub(super) const DESCRIBED: u64 = work::SYSTEM_CALL + 10;

pub(super) struct SearchedPage {
    pub(super) asked: Arc<ClientSearch>,
    /// The first matches so far, with their slots. One more than the page holds shows that there is a next page.
    found: BTreeMap<Arc<str>, u32>,
}

pub(super) struct FoundClients {
    asked: Arc<ClientSearch>,
    pub(super) left: btree_map::IntoIter<Arc<str>, u32>,
    clients: Vec<ConnectedClient>,
    pub(super) next: Option<String>,
}

impl From<SearchedPage> for FoundClients {
    fn from(SearchedPage { asked, mut found }: SearchedPage) -> Self {
        let more = found.len() > asked.question.limit();
        if more {
            found.pop_last();
        }
        let next = found.last_key_value().filter(|_| more).map(|(id, _)| String::from(&**id));
        Self { asked, left: found.into_iter(), clients: Vec::new(), next }
    }
}

impl SearchedPage {
    pub(super) fn new(asked: Arc<ClientSearch>) -> Self {
        Self { asked, found: BTreeMap::new() }
    }

    /// Adds a client of the page's broker if it belongs to the page, and returns the work.
    pub(super) fn see(&mut self, slot: u32, local: &LocalSession, who: &ClientUser) -> u64 {
        let Question::Page { after, search, .. } = &self.asked.question else { return 0 };
        let id = local.session.client_id();
        let begins = |text: &str| text.starts_with(&**search);
        if after.as_ref().is_some_and(|after| **id <= **after)
            || !(begins(id) || who.user().is_some_and(begins))
        {
            return work::SEEN;
        }
        // A client that came back into another slot meanwhile.
        if let Some(known) = self.found.get_mut(id) {
            *known = slot;
            return ADDED;
        }
        if self.found.len() > self.asked.question.limit() {
            if self.found.last_key_value().is_some_and(|(last, _)| last <= id) {
                return work::SEEN;
            }
            self.found.pop_last();
        }
        self.found.insert(id.clone(), slot);
        ADDED
    }
}

impl Core {
    /// Describes clients of pages until the turn has spent `end`, and answers complete pages.
    pub(super) fn describe(&mut self, end: u64) {
        while self.work.spent() < end
            && let Some(mut found) = self.unfinished.scans.found.pop_front()
        {
            let Some((id, slot)) = found.left.next() else {
                found.asked.answer(Some(ClientsAnswer { clients: found.clients, next: found.next }));
                continue;
            };
            self.spend(DESCRIBED);
            // The slot may belong to another session by now, even of another broker, and the client may have another slot.
            let broker = &found.asked.broker;
            let local = self.sessions.get(slot as usize);
            let is_same = local
                .is_some_and(|local| Arc::ptr_eq(&local.broker, broker) && *local.session.client_id() == id);
            let slot = if is_same { Some(slot) } else { self.session_of(broker, &id) };
            found.clients.extend(slot.and_then(|slot| self.shown(slot)));
            self.unfinished.scans.found.push_front(found);
        }
    }
}
