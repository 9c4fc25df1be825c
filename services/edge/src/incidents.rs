//! Incidents: refused or dropped packets of a broker, aggregated for its tenant. Equal incidents share a row, so a storm of them
//! costs little. A thread of its own writes them to the store (`reporters/incidents.rs`); event loops only count.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use millrace_layers::incidents::IncidentRecord;
pub(crate) use millrace_layers::incidents::StoredIncidentKind;

use crate::quota::Limit;

/// Rows per broker; further incidents share one row per kind.
const ROWS_MAX: usize = 100;
/// Rows of refused CONNECTs, which anybody can cause: they must not displace a tenant's other incidents from the log.
const REFUSED_ROWS_MAX: usize = 25;
/// Equal incidents share a row for this time, milliseconds.
const WINDOW_MS: u64 = 10_000;
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, Hash)]
pub(crate) struct NewIncident<'a> {
    pub(crate) kind: StoredIncidentKind,
    pub(crate) client_id: Option<&'a str>,
    pub(crate) user: Option<&'a str>,
    /// The topic, the filter or the limit that it is about; empty if there is none.
    pub(crate) what: &'a str,
    /// A sentence for the tenant, without its full stop.
    pub(crate) reason: &'a str,
}

#[derive(Default)]
pub(crate) struct Incidents {
    /// The broker has a tenant who can see incidents.
    is_on: AtomicBool,
    has_any: AtomicBool,
    rows: Mutex<HashMap<u64, IncidentRow>>,
}

struct IncidentRow {
    incident: IncidentRecord,
    /// When the row was last written to the store, unix milliseconds.
    written_at: Option<u64>,
}

impl<'a> NewIncident<'a> {
    pub(crate) fn new(kind: StoredIncidentKind, what: &'a str, reason: &'a str) -> Self {
        Self { kind, client_id: None, user: None, what, reason }
    }

    pub(crate) fn limit(limit: Limit) -> Self {
        Self::new(StoredIncidentKind::LimitReached, limit.name(), limit.meaning())
    }

    pub(crate) fn of(self, client_id: &'a str, user: Option<&'a str>) -> Self {
        Self { client_id: Some(client_id), user, ..self }
    }

    fn unlisted(self) -> NewIncident<'static> {
        NewIncident::new(self.kind, "", "more of this kind, of other clients or topics")
    }

    fn hashed(&self) -> u64 {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        KEYS.hash_one(self)
    }

    fn incident(&self, now_ms: u64) -> IncidentRecord {
        let text = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        IncidentRecord {
            at_ms: now_ms,
            last_at_ms: now_ms,
            count: 0,
            kind: self.kind,
            client_id: self.client_id.map(text),
            user: self.user.map(text),
            what: Some(text(self.what)).filter(|what| !what.is_empty()),
            reason: text(self.reason),
        }
    }
}

impl Incidents {
    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Counts an incident; true for the first one, if none was in the window before: a reached limit then causes an event for
    /// webhooks.
    pub(crate) fn note(&self, note: &NewIncident<'_>, count: u64, now_ms: u64) -> bool {
        if !self.is_on() || count == 0 {
            return false;
        }
        let mut rows = self.rows();
        let (mut note, mut key) = (*note, note.hashed());
        let is_stranger = note.kind == StoredIncidentKind::ConnectRefused;
        let refused = || rows.values().filter(|row| row.incident.kind == note.kind).count();
        let is_full = rows.len() >= ROWS_MAX || is_stranger && refused() >= REFUSED_ROWS_MAX;
        if is_full && !rows.contains_key(&key) {
            note = note.unlisted();
            key = note.hashed();
        }
        let is_new = !rows.contains_key(&key);
        let new = || IncidentRow { incident: note.incident(now_ms), written_at: None };
        let incident = &mut rows.entry(key).or_insert_with(new).incident;
        if incident.count == 0 {
            incident.at_ms = now_ms;
        }
        incident.count = incident.count.saturating_add(count);
        incident.last_at_ms = now_ms;
        self.has_any.store(true, Ordering::Relaxed);
        is_new
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Relaxed)
    }

    /// The rows to write now: new ones, and repeated ones whose window is over.
    pub(crate) fn take(&self, now_ms: u64) -> Vec<IncidentRecord> {
        if !self.has_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        let mut rows = self.rows();
        rows.retain(|_, row| {
            let is_over = row.written_at.is_none_or(|at| now_ms >= at + WINDOW_MS);
            if is_over && row.incident.count > 0 {
                taken.push(row.incident.clone());
                (row.incident.count, row.written_at) = (0, Some(now_ms));
                return true;
            }
            !is_over
        });
        self.has_any.store(!rows.is_empty(), Ordering::Relaxed);
        taken
    }

    fn rows(&self) -> MutexGuard<'_, HashMap<u64, IncidentRow>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(incidents: &Incidents, now_ms: u64) -> Vec<(Option<String>, u64)> {
        let mut taken: Vec<_> =
            incidents.take(now_ms).into_iter().map(|one| (one.client_id, one.count)).collect();
        taken.sort();
        taken
    }

    #[test]
    fn alike_ones_are_one_row_in_a_window() {
        let incidents = Incidents::default();
        let note = NewIncident::new(StoredIncidentKind::PublishRefused, "a", "no").of("ann", None);
        incidents.note(&note, 1, 5);
        assert_eq!(counts(&incidents, 5), [], "nobody may see it");
        incidents.set_on(true);
        for now_ms in 0..100 {
            incidents.note(&note, 1, now_ms);
        }
        let ann = |count| vec![(Some("ann".to_owned()), count)];
        assert_eq!(counts(&incidents, 100), ann(100));
        incidents.note(&note, 2, 200);
        incidents.note(&note, 3, 300);
        assert_eq!(counts(&incidents, 10_099), []);
        assert_eq!(counts(&incidents, 10_100), ann(5));
        assert_eq!(counts(&incidents, 30_000), []);
        assert!(incidents.rows().is_empty());
    }

    #[test]
    fn a_storm_of_many_clients_is_so_many_rows_and_none_is_uncounted() {
        let incidents = Incidents::default();
        incidents.set_on(true);
        for kind in [StoredIncidentKind::ConnectRefused, StoredIncidentKind::PublishRefused] {
            for number in 0..1_000 {
                let (id, topic) = (format!("c{number}"), "é".repeat(1_000));
                incidents.note(&NewIncident::new(kind, &topic, "no").of(&id, None), 1, 1);
            }
        }
        let taken = incidents.take(1);
        let refused = taken.iter().filter(|one| one.kind == StoredIncidentKind::ConnectRefused);
        assert_eq!((refused.count(), taken.len()), (REFUSED_ROWS_MAX + 1, ROWS_MAX + 1));
        assert_eq!(taken.iter().map(|one| one.count).sum::<u64>(), 2_000);
        assert!(taken.iter().all(|one| one.what.as_ref().is_none_or(|what| what.len() <= TEXT_BYTES_MAX)));
    }
}
