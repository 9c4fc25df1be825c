use millrace_layers::due::{Due, SHARDS};

/// The last due times that this process has settled, one per shard. Reads begin there, because the embedded engine keeps
/// removed rows until a compaction: a read from the start of a shard passes those of each session that has ended. A
/// store of several pods always begins at the start (not `is_kept`), because a pod with a slower clock adds earlier due times.
pub(super) struct LastSettled {
    is_kept: bool,
    last: [Option<Due>; SHARDS as usize],
    sweeps: usize,
}

impl LastSettled {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, last: Default::default(), sweeps: 0 }
    }

    pub(super) fn note(&mut self, settled: Due) {
        if self.is_kept {
            let shard = usize::from(settled.shard());
            self.last[shard] = Some(settled);
        }
    }

    /// Where a sweep begins to read each shard: one of them at its start, because jobs that waited for the store may have
    /// added earlier due times.
    pub(super) fn begins(&mut self) -> [Option<Due>; SHARDS as usize] {
        self.sweeps = (self.sweeps + 1) % self.last.len();
        let mut begins = self.last.clone();
        begins[self.sweeps] = None;
        begins
    }

    /// Later reads must not begin behind an entry that is still there.
    pub(super) fn found(&mut self, due: &Due) {
        if let Some(last) = &mut self.last[usize::from(due.shard())]
            && due < last
        {
            last.clone_from(due);
        }
    }

    pub(super) fn last(&self, shard: u8) -> Option<Due> {
        self.last[usize::from(shard)].clone()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use millrace_layers::due::DueKind;

    use super::*;

    #[test]
    fn a_due_time_that_was_added_late_is_found_within_a_round_of_the_shards() {
        let due = |at_ms| Due { at_ms, broker: 1, client: Bytes::from_static(b"ann"), kind: DueKind::Will };
        let mut passed = LastSettled::new(true);
        let shard = usize::from(due(7).shard());
        let settled = (1..).map(due).filter(|one| usize::from(one.shard()) == shard).nth(5).unwrap();
        passed.note(settled.clone());
        let rounds: Vec<_> = (0..SHARDS).map(|_| passed.begins()[shard].is_none()).collect();
        assert_eq!(rounds.iter().filter(|from_start| **from_start).count(), 1);
        assert_eq!(passed.last(settled.shard()), Some(settled.clone()), "kept while nothing is due");
        let late = Due { at_ms: 0, ..settled.clone() };
        passed.found(&late);
        assert_eq!(passed.last(settled.shard()), Some(late));
    }
}
