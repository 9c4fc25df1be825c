//! Repeats writes that the store refused: ends of connections, undoes of SUBSCRIBE packets, and new webhooks.
//!
//! The SUBACK has said that the subscriptions failed, so the session must not have them when it comes back.

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

use super::writer::{Contention, Writer};
use crate::jobs::{Job, PendingSubscribe, SessionKey, SubscribeWrite, UnsubscribeWrite, Write};

const FILTERS_OF_JOB: usize = 100;
const FILTERS_OF_STEP: usize = 500;

impl Writer<'_> {
    /// Tries the oldest of them in one transaction, and returns whether others are left and some of these were written.
    pub(super) fn retry_unwritten(&mut self) -> bool {
        let (before, mut filters) = (self.unwritten.len(), 0);
        let fits = |job: &&Job| {
            filters += job.filters();
            filters <= FILTERS_OF_STEP
        };
        let count = self.unwritten.iter().take(self.duties.sessions()).take_while(fits).count();
        let jobs: Vec<Job> = self.unwritten.drain(..count).collect();
        self.write_whole(jobs);
        !self.unwritten.is_empty() && self.unwritten.len() < before
    }

    /// Tries the refused jobs again whose clients return in `jobs`. Otherwise such a client would find its connection unended, and
    /// the server would publish its will.
    pub(super) fn end_connections_before(&mut self, jobs: &[Job]) {
        if self.unwritten.is_empty() {
            return;
        }
        let attaching = |job: &Job| match &job.write {
            Write::Attach(attach) => Some((attach.broker.id, attach.client.clone())),
            _ => None,
        };
        let returning: HashSet<(u64, Arc<str>)> = jobs.iter().filter_map(attaching).collect();
        let returns = |job: &mut Job| {
            let session = match &job.write {
                Write::Detach(detach) => &detach.session,
                Write::Unsubscribe(undo) => &undo.session,
                Write::Subscribe(undo) => &undo.session,
                _ => return false,
            };
            returning.contains(&(session.broker.id, session.client.clone()))
        };
        let jobs: Vec<Job> = self.unwritten.extract_if(.., returns).collect();
        self.write_whole(jobs);
    }

    pub(super) fn undo_later(&mut self, write: &Write) {
        let undoes: Vec<Write> = match write {
            Write::Unsubscribe(undo) if undo.packet_id.is_none() => {
                let job = |filters: &[Box<str>]| {
                    let (session, filters) = (undo.session.clone(), filters.to_vec());
                    UnsubscribeWrite::new(session, undo.target, filters, None, SmallVec::new())
                };
                let parts = undo.filters[undo.written..].chunks(FILTERS_OF_JOB);
                parts.map(|filters| Write::Unsubscribe(Box::new(job(filters)))).collect()
            }
            Write::Subscribe(undo) if undo.pending.goes_back => {
                let job = |filters: &[_]| {
                    let pending =
                        PendingSubscribe { goes_back: true, is_retry: true, ..PendingSubscribe::new(None) };
                    let (session, filters) = (undo.session.clone(), filters.to_vec());
                    SubscribeWrite::new(session, undo.target, filters, Vec::new(), pending)
                };
                let parts = undo.filters[undo.written.len()..].chunks(FILTERS_OF_JOB);
                parts.map(|filters| Write::Subscribe(Box::new(job(filters)))).collect()
            }
            _ => return,
        };
        self.unwritten.extend(undoes.into_iter().map(|write| Job { write, ack: None }));
    }

    /// The store has changed these filters after a refused undo, so the undo leaves them out.
    pub(super) fn forget_undo(&mut self, write: &Write) {
        if self.unwritten.is_empty() {
            return;
        }
        let (session, filters): (&SessionKey, HashSet<&str>) = match write {
            Write::Subscribe(new) => {
                (&new.session, new.part().iter().map(|(filter, ..)| &**filter).collect())
            }
            Write::Unsubscribe(new) => (&new.session, new.part().iter().map(|filter| &**filter).collect()),
            _ => return,
        };
        self.unwritten.retain_mut(|job| match &mut job.write {
            Write::Unsubscribe(undo) if undo.session.name() == session.name() => {
                undo.filters.retain(|filter| !filters.contains(&**filter));
                undo.until = undo.filters.len();
                undo.until > 0
            }
            Write::Subscribe(undo) if undo.session.name() == session.name() => {
                undo.filters.retain(|(filter, ..)| !filters.contains(&**filter));
                undo.until = undo.filters.len();
                undo.until > 0
            }
            _ => true,
        });
    }

    /// Writes all of these jobs before anything else, in as many transactions as they need.
    fn write_whole(&mut self, mut jobs: Vec<Job>) {
        while !jobs.is_empty() {
            self.write_together(jobs, Contention::Refuses);
            jobs = std::mem::take(&mut self.unfinished);
        }
    }
}
