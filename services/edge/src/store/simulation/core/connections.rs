//! How the imitated event loop opens a session for a CONNECT, and what it writes when the connection ends.

use std::sync::Arc;

use millrace_mqtt::{Properties, QoS};
use millrace_session::Message;

use super::{Asked, Core, Turn, connection};
use crate::jobs::{AttachWrite, AttachedSession, Checkpoint, DetachWrite, Job, StoredPage, Write};
use crate::store::simulation::model::{Key, WILL_TOPIC, WILLS};
use crate::store::simulation::network::{ToClient, Will};
use crate::store::simulation::session::Local;

impl Core {
    pub(super) fn connect(
        &mut self,
        turn: &Turn<'_>,
        from: u32,
        client: usize,
        (clean, expiry_s): (bool, u32),
        will: Option<Will>,
    ) {
        let local = Local::new(client, from, expiry_s, will.is_some());
        let client: Arc<str> = local.client_id(turn.world).into();
        let asker = local.asker.as_ref().map(Arc::downgrade).unwrap_or_default();
        self.locals.insert(from, local);
        self.ask(turn, Asked::Attach(from));
        let will = will.map(|will| (will_message(will), will.delay_s));
        let attach = AttachWrite {
            broker: turn.broker.clone(),
            client,
            connection: connection(from),
            clean,
            expiry_s,
            will,
            by_password: false,
            user: None,
            is_visitor: false,
            asked: None,
            ask_at: 0,
            asker,
        };
        self.jobs.push(Job { write: Write::Attach(Box::new(attach)), ack: None });
    }

    pub(super) fn attached(
        &mut self,
        turn: &Turn<'_>,
        number: u32,
        attached: Option<(Box<AttachedSession>, Option<StoredPage>)>,
    ) {
        let Some(local) = self.locals.get_mut(&number) else { return };
        let Some((attached, page)) = attached else {
            let is_cut = self.locals.remove(&number).is_some_and(|local| local.is_cut);
            return match is_cut {
                true => turn.world.forget_connection(number),
                false => turn.world.send_down(number, ToClient::Closed),
            };
        };
        if local.is_cut {
            self.locals.remove(&number);
            turn.world.forget_connection(number);
            if attached.epoch != 0 {
                let now_ms = turn.pod.shared().clock.unix_now_ms();
                let detach = DetachWrite::unused(turn.broker.clone(), *attached, now_ms);
                self.jobs.push(Job { write: Write::Detach(Box::new(detach)), ack: None });
            }
            return;
        }
        let (client, present) = (local.client, attached.present);
        let filters =
            attached.subscriptions.iter().map(|of| String::from_utf8_lossy(&of.filter).into_owned());
        let filters: Vec<String> = filters.collect();
        local.open(turn, *attached);
        let others: Vec<u32> =
            self.locals.iter().filter(|(other, _)| **other != number).map(|(other, _)| *other).collect();
        for other in others {
            if self.locals.get(&other).is_some_and(|of| of.client == client && of.is_open()) {
                self.close(turn, other, true);
            }
        }
        filters.iter().for_each(|filter| self.join(turn, filter));
        turn.world.send_down(number, ToClient::ConnAck { present, filters });
        if let Some(page) = page {
            let version = self.locals[&number].reading.version;
            self.page(turn, number, version, Some(page));
        }
    }

    /// `is_lost`: another owner has the session now, so nothing is written.
    pub(in crate::store::simulation) fn close(&mut self, turn: &Turn<'_>, number: u32, is_lost: bool) {
        let Some(local) = self.locals.get(&number).filter(|local| local.is_open()) else { return };
        if local.is_cut {
            turn.world.forget_connection(number);
        } else {
            turn.world.send_down(number, ToClient::Closed);
        }
        if is_lost {
            self.end(turn, number, true, false);
        } else {
            self.detach(turn, number, true, false);
        }
    }

    pub(super) fn detach(&mut self, turn: &Turn<'_>, number: u32, keep_will: bool, leaves: bool) {
        if let Some((checkpoint, detach)) = self.end(turn, number, keep_will, leaves) {
            if let Some(checkpoint) = checkpoint {
                self.jobs.push(Job { write: Write::Checkpoint(Box::new(checkpoint)), ack: None });
            }
            self.jobs.push(Job { write: Write::Detach(Box::new(detach)), ack: None });
        }
    }

    fn end(
        &mut self,
        turn: &Turn<'_>,
        number: u32,
        keep_will: bool,
        leaves: bool,
    ) -> Option<(Option<Checkpoint>, DetachWrite)> {
        self.forget_unconfirmed(number);
        let mut local = self.locals.remove(&number)?;
        local.leave_groups(turn);
        let (checkpoint, detach, mut ended) =
            local.detach(turn, keep_will, leaves.then(|| connection(number)));
        self.shared.settled.extend(ended.outbox.take_settled(turn.broker.id));
        for entry in ended.left {
            self.give_back(turn, &entry.message, entry.shared);
        }
        for entry in ended.begun {
            self.return_to_group(turn, &entry.message, entry.shared);
        }
        Some((checkpoint, detach))
    }
}

fn will_message(will: Will) -> Arc<Message> {
    let key = Key { publisher: WILLS, number: will.number };
    let message =
        Message::new(WILL_TOPIC.into(), QoS::AtLeastOnce, false, Properties::EMPTY, &key.payload(), 0);
    Arc::new(message)
}
