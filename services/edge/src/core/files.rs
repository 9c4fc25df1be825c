//! Checks the clients of unmanaged brokers again after the password file or the rules file has changed, a slice of them at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use millrace_mqtt::ReasonCode;

use super::connection::{ClientUser, NONE};
use super::{ConnectionEnd, Core, work};
use crate::incidents::{NewIncident, StoredIncidentKind};

/// Connections that cost one unit of work to put into the list.
const LISTED: usize = 16;

/// The connections that had a session when the files changed.
pub(super) struct FilesChange {
    /// Users whose password has changed or is gone, in order.
    users: Arc<[Box<str>]>,
    slots: VecDeque<u32>,
    /// A connection with a later generation in one of the slots was checked against the new files.
    generation: u32,
}

impl Core {
    /// Closes `users`, whose password has changed or is gone, and removes subscriptions that the rules no longer
    /// allow.
    pub(super) fn files_changed(&mut self, users: &Arc<[Box<str>]>) {
        let slots: VecDeque<u32> = self.by_broker.slots().collect();
        self.spend((slots.len() / LISTED) as u64);
        let change = FilesChange { users: users.clone(), slots, generation: self.generation };
        self.unfinished.slices.files.push_back(change);
        self.visit_after_files();
    }

    /// For a client whose CONNECT was checked against a file before the last one.
    pub(super) fn close_for_old_password(&mut self, slot: u32, user: &str) {
        let users = Arc::from([Box::from(user)]);
        let change = FilesChange { users, slots: [slot].into(), generation: self.generation };
        self.unfinished.slices.files.push_back(change);
    }

    pub(super) fn visit_after_files(&mut self) {
        let Some(mut change) = self.unfinished.slices.files.pop_front() else { return };
        let end = self.work.spent() + work::SLICE;
        while self.work.spent() < end
            && let Some(slot) = change.slots.pop_front()
        {
            self.spend(work::VISIT);
            self.files_changed_for(slot, &change);
        }
        if !change.slots.is_empty() {
            self.unfinished.slices.files.push_front(change);
        }
    }

    fn files_changed_for(&mut self, slot: u32, change: &FilesChange) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let is_later = connection.generation.wrapping_sub(change.generation).cast_signed() > 0;
        if is_later || connection.session == NONE || connection.who.granted().is_some() {
            return;
        }
        let is_gone = match &connection.who {
            ClientUser::Named(user) => change.users.binary_search_by(|other| (**other).cmp(user)).is_ok(),
            ClientUser::Granted(_) => false,
        };
        if is_gone {
            let reason = ReasonCode::NOT_AUTHORIZED;
            let what = "the password has changed";
            self.note_of(slot, NewIncident::new(StoredIncidentKind::ConnectRefused, "", what));
            self.close_without_will(slot, reason, what, ConnectionEnd::Error(reason));
        } else {
            self.revoke(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use millrace_access::files::passwords;
    use millrace_access::secrets::chosen;
    use millrace_mqtt::QoS;
    use millrace_storage::Database;

    use super::*;
    use crate::core::testing::{Loops, SUBACK, TestClient, subscribe};
    use crate::core::work;

    const CLIENTS: usize = 300;
    const FILTERS: usize = 50;
    /// A slice ends after the client that uses it up.
    const SLICE_MAX: u64 = work::SLICE + 500;

    const REFUSED: u8 = 4;

    #[test]
    fn a_password_that_is_replaced_while_its_client_connects_opens_no_session_that_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let write = |salt: u8| {
            let hash = chosen::hash(b"secret", &[salt; 16]).unwrap();
            std::fs::write(&file, passwords::edit("", "ann", Some(&hash)).unwrap()).unwrap();
        };
        write(1);
        let mut loops = Loops::start_with(1, Some(Database::memory()), |config| {
            config.authentication.password_file = Some(file.clone());
        });
        let replace = |loops: &mut Loops, salt: u8| {
            write(salt);
            let core = &mut loops.cores[0];
            let process = core.process.clone();
            let users = process.authenticator.reload_passwords(&process.config.authentication).unwrap();
            assert_eq!(*users, ["ann".into()]);
            core.files_changed(&users.into());
        };
        let mut checked = loops.dial_as("checked", "ann", "secret");
        loops.until(|loops| loops.cores[0].connections.iter().any(|(_, one)| one.is_being_checked()));
        replace(&mut loops, 2);
        assert_eq!(loops.answer(&mut checked, 0x20)[1], REFUSED);
        let mut opened = loops.dial_as("opened", "ann", "secret");
        loops.until(|loops| !loops.cores[0].connects.attaching.is_empty());
        replace(&mut loops, 3);
        assert_eq!(loops.answer(&mut opened, 0x20)[1], 0);
        loops.until(|loops| loops.cores[0].sessions.is_empty());
        let mut anew = loops.dial_as("opened", "ann", "secret");
        assert_eq!(loops.answer(&mut anew, 0x20)[1], 0);
        (0..10).for_each(|_| loops.turn(0));
        assert_eq!(loops.cores[0].sessions.len(), 1);
    }

    #[test]
    fn new_files_reach_many_clients_over_several_turns() {
        let mut loops = Loops::start(1, |_| {});
        let filters: Vec<String> = (0..FILTERS).map(|number| number.to_string()).collect();
        let connect = |loops: &mut Loops, number: usize| {
            let mut client = loops.connect_as(&format!("client{number}"), true);
            client.send_all(&subscribe(&filters, QoS::AtMostOnce));
            loops.answer(&mut client, SUBACK);
            let slot = loops.session(0, &client).connection;
            loops.cores[0].connections[slot as usize].who = ClientUser::Named("ann".into());
            client
        };
        let mut clients: Vec<TestClient> = (0..CLIENTS).map(|number| connect(&mut loops, number)).collect();
        let gone = |loops: &Loops| CLIENTS - loops.cores[0].sessions.len();
        let before = loops.cores[0].work.spent();
        let users: Arc<[Box<str>]> = Arc::from(["ann".into()]);
        loops.cores[0].files_changed(&users);
        let spent = loops.cores[0].work.spent() - before;
        assert!(spent <= SLICE_MAX, "{spent} units of work at once");
        assert!(gone(&loops) < CLIENTS);
        loops.until(|loops| gone(loops) == CLIENTS);
        (0..CLIENTS).for_each(|number| clients.push(connect(&mut loops, number)));
        let users: Arc<[Box<str>]> = Arc::from([]);
        loops.cores[0].files_changed(&users);
        let mut turns = 0;
        loops.until(|loops| {
            let core = &loops.cores[0];
            assert!(core.work.counted() <= 2 * SLICE_MAX, "{} units in a turn", core.work.counted());
            turns += 1;
            core.unfinished.slices.next_at().is_none()
        });
        assert_eq!((gone(&loops), turns > 5), (0, true), "{turns} turns");
    }
}
