//! Mail between the loops of a process: takes what arrived, and delivers what this turn queued for others.

use std::collections::VecDeque;

use millrace_layers::Position;

use super::{Core, work};
use crate::mailbox::Mail;
use crate::store::StoreService;

pub(super) struct MailQueues {
    /// Mail that this turn made, by receiving core.
    pub(super) outgoing: Vec<Vec<Mail>>,
    pub(super) outgoing_bytes: Vec<usize>,
    /// Mail that was taken from the mailbox and is not handled yet.
    incoming: VecDeque<Mail>,
    /// All mail about messages up to this position was taken from the mailbox.
    through: Option<Position>,
    /// Mail for the next turn: the rests of pages, sessions that become live or are compared with a page.
    put_off: Vec<Mail>,
}

impl MailQueues {
    pub(super) fn new(cores: usize) -> Self {
        let outgoing = (0..cores).map(|_| Vec::new()).collect();
        Self {
            outgoing,
            outgoing_bytes: vec![0; cores],
            incoming: VecDeque::new(),
            through: None,
            put_off: Vec::new(),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.outgoing.iter().all(Vec::is_empty)
    }

    pub(super) fn has_more(&self) -> bool {
        !(self.incoming.is_empty() && self.put_off.is_empty())
    }
}

impl Core {
    pub(super) fn put_off_mail(&mut self, mail: Mail) {
        self.mail.put_off.push(mail);
    }

    #[cfg(test)]
    pub(super) fn take_put_off(&mut self) -> Option<Mail> {
        self.mail.put_off.pop()
    }

    /// The mail that was left over, or else what is in the mailbox.
    fn next_mail(&mut self) -> VecDeque<Mail> {
        let mut mail = std::mem::take(&mut self.mail.incoming);
        if mail.is_empty() {
            // Reading this before the mail guarantees that no message up to `through` is still in the mailbox afterwards.
            self.mail.through = self.process.store.as_ref().map(StoreService::through);
            let mut taken = Vec::from(mail);
            self.mailbox().take(&mut taken);
            mail = taken.into();
        }
        mail
    }

    /// Handles mail until the turn has spent `end`; the rest is left to the next turn. Mail that was put off comes first and leaves work
    /// to the others.
    pub(super) fn take_mail(&mut self, end: u64) {
        let mut put_off = VecDeque::from(std::mem::take(&mut self.mail.put_off));
        self.handle_mail(&mut put_off, end - work::TURN / 2);
        put_off.extend(std::mem::take(&mut self.mail.put_off));
        self.mail.put_off = put_off.into();
        let mut queue = self.next_mail();
        self.handle_mail(&mut queue, end.max(self.work.spent() + work::TURN / 2));
        if queue.is_empty() {
            self.note_mail_is_done();
        }
        self.mail.incoming = queue;
    }

    fn handle_mail(&mut self, queue: &mut VecDeque<Mail>, end: u64) {
        while self.work.spent() < end
            && let Some(mail) = queue.pop_front()
        {
            let began = self.begin_work(|core| core.broker_of_mail(&mail));
            match mail {
                Mail::Adopt(adopted) => self.adopt(*adopted),
                Mail::Run(run) => self.deliver_mailed_run(&run),
                Mail::Publish { routes, message, from } => self.deliver_here(&routes, &message, from),
                Mail::Shared { routes, receiver, message, from, group } => {
                    self.deliver_mailed_share(&routes.broker, &receiver, &message, from, group);
                }
                Mail::Congested { publisher, progress } => self.pause_if_most_lag(publisher, progress),
                Mail::Relieved(id) => self.relieved(id),
                Mail::Fanout { id, has_begun } => self.note_fanout(id, has_begun),
                Mail::Stored { acks, stored } => self.stored(&acks, stored),
                Mail::SendAgain(connection) => self.send_again(connection),
                Mail::Traced(traced) => self.end_stored_traces(&traced),
                Mail::Lost { session, is_lost, was_dead } => self.lose(&session, is_lost, was_dead),
                Mail::Grown(routes) => self.grown(&routes),
                Mail::Committed(committed) => self.committed(&committed),
                Mail::LookAround(broker) => self.look_around(broker),
                Mail::Opened(name, found) => self.opened(&name, found),
                Mail::Attached(connection, session, found) => self.attached(connection, session, found),
                Mail::OfAnotherUser(connection, session) => self.not_attached(connection, &session),
                Mail::LimitReached(broker, limit) => self.reached_by(&broker, limit, None, None),
                Mail::OverLimit(connection, session, limit) => self.no_room(connection, &session, limit),
                Mail::Subscribed(subscribe, subscribed) => {
                    self.subscribed_when_confirmed(subscribe, subscribed);
                }
                Mail::Suback(connection, pending) => self.filters_confirmed(connection, *pending),
                Mail::Reread(target, shared) => self.reread(target, shared),
                Mail::Unsubscribed(unsubscribe, stored) => self.unsubscribed(*unsubscribe, stored),
                Mail::Ids(ids, stored) => self.ids_written(*ids, stored),
                Mail::Unsaved(checkpoint) => self.unsaved(*checkpoint),
                Mail::Left(connection) => self.left(connection),
                Mail::BarrierPassed { number, through } => self.barrier_passed(number, through),
                Mail::FannedOut(target, number) => self.fanned_out(target, number),
                Mail::Page(target, version, page) => self.page(target, version, page),
                Mail::Purge(purge, claim) => self.purge(purge, claim),
                Mail::AccessDecided(decision) => self.access_decided(*decision),
                Mail::Attempted(attempted) => self.attempted(*attempted),
                Mail::AccessChanged(broker) => self.access_changed(&broker),
                Mail::FilesChanged(users) => self.files_changed(&users),
                Mail::Clients(asked) => self.asked_for_clients(asked),
                Mail::Reviewed(reviewed) => self.reviewed(*reviewed),
                Mail::Authenticated { connection, outcome } => self.authenticated(connection, outcome),
            }
            self.flush_overfull();
            self.end_work(began);
        }
    }

    /// All messages up to `through` have arrived at this core, and its live sessions got those before the oldest unfinished
    /// fan-out.
    fn note_mail_is_done(&mut self) {
        let Some(through) = self.mail.through else { return };
        self.following.met = through;
        let handed_over = self.unfinished.fanouts.oldest().map_or(through, |oldest| oldest.min(through));
        self.following.handed_over = self.following.handed_over.max(handed_over);
    }

    /// The broker that mail causes work for; 0 when the work is little, or for several brokers.
    fn broker_of_mail(&self, mail: &Mail) -> u64 {
        match mail {
            Mail::Run(run) => run.routes.broker.id,
            Mail::Publish { routes, .. } | Mail::Shared { routes, .. } | Mail::Grown(routes) => {
                routes.broker.id
            }
            Mail::Committed(committed) => committed.routes.broker.id,
            Mail::LookAround(broker) => broker.unwrap_or(0),
            Mail::Attached(_, (broker, _), _) => broker.id,
            Mail::Page(target, ..) | Mail::FannedOut(target, _) | Mail::Reread(target, _) => {
                self.sessions.get(target.slot as usize).map_or(0, |local| local.broker.id)
            }
            Mail::Congested { publisher: id, .. } | Mail::Relieved(id) | Mail::Fanout { id, .. } => {
                self.broker_of(id.slot)
            }
            _ => 0,
        }
    }

    pub(super) fn post(&mut self, core: u16, mail: Mail) {
        self.mail.outgoing_bytes[usize::from(core)] += mail.size();
        self.mail.outgoing[usize::from(core)].push(mail);
    }

    pub(super) fn send_mail(&mut self) {
        for (core, batch) in self.mail.outgoing.iter_mut().enumerate() {
            if batch.is_empty() {
                continue;
            }
            let bytes = std::mem::take(&mut self.mail.outgoing_bytes[core]);
            if self.process.mailboxes[core].deliver(batch, bytes) {
                self.process.core(self.index).counters.wakes.add(1);
            }
        }
    }
}
