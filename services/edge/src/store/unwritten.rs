//! Ends of connections and new webhooks that the store refused, and that the writer tries again.

use std::collections::HashSet;
use std::sync::Arc;

use super::writer::Writer;
use crate::jobs::{Job, Write};

impl Writer<'_> {
    /// Tries the oldest of them in one transaction. Returns whether others are left and some of these were written.
    pub(super) fn retry_unwritten(&mut self) -> bool {
        let (before, count) = (self.unwritten.len(), self.duties.sessions().min(self.unwritten.len()));
        let jobs: Vec<Job> = self.unwritten.drain(..count).collect();
        self.write_whole(jobs);
        !self.unwritten.is_empty() && self.unwritten.len() < before
    }

    /// Tries the refused ends of connections again whose clients return in `jobs`. Otherwise such a client would find its
    /// connection unended, and the server would publish its will.
    pub(super) fn end_connections_before(&mut self, jobs: &[Job]) {
        if self.unwritten.is_empty() {
            return;
        }
        let attaching = |job: &Job| match &job.write {
            Write::Attach(attach) => Some((attach.broker.id, attach.client.clone())),
            _ => None,
        };
        let returning: HashSet<(u64, Arc<str>)> = jobs.iter().filter_map(attaching).collect();
        let returns = |job: &mut Job| match &job.write {
            Write::Detach(detach) => {
                returning.contains(&(detach.session.broker.id, detach.session.client.clone()))
            }
            _ => false,
        };
        let jobs: Vec<Job> = self.unwritten.extract_if(.., returns).collect();
        self.write_whole(jobs);
    }

    /// Writes all of these jobs before anything else, in as many transactions as they need.
    fn write_whole(&mut self, mut jobs: Vec<Job>) {
        while !jobs.is_empty() {
            self.write(jobs);
            jobs = std::mem::take(&mut self.unfinished);
        }
    }
}
