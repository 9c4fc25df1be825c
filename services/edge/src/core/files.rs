//! Checks the clients of unmanaged brokers again after the password file or the rules file has changed.

use millrace_mqtt::ReasonCode;

use super::connection::{ClientUser, NONE};
use super::{ConnectionEnd, Core};
use crate::incidents::{NewIncident, StoredIncidentKind};

impl Core {
    /// Closes `users`, whose password has changed or is gone, and removes subscriptions that the rules no longer
    /// allow.
    pub(super) fn files_changed(&mut self, users: &[Box<str>]) {
        let slots: Vec<u32> = (self.connections.iter())
            .filter(|(_, connection)| connection.session != NONE && connection.who.granted().is_none())
            .filter_map(|(slot, _)| u32::try_from(slot).ok())
            .collect();
        for slot in slots {
            let Some(connection) = self.connections.get(slot as usize) else { continue };
            let is_gone = match &connection.who {
                ClientUser::Named(user) => users.binary_search_by(|other| (**other).cmp(user)).is_ok(),
                ClientUser::Granted(_) => false,
            };
            if is_gone {
                let reason = ReasonCode::NOT_AUTHORIZED;
                let what = "the password has changed";
                self.note_of(slot, NewIncident::new(StoredIncidentKind::ConnectRefused, "", what));
                self.say_and_close(slot, reason, what, ConnectionEnd::Error(reason));
            } else {
                self.revoke(slot);
            }
        }
    }
}
