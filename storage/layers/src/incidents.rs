//! Incidents of a broker: refusals and lost messages that its tenant can read, the latest first. The edge appends them,
//! and trims them by number and age.

use bytes::Bytes;
use millrace_storage::{KeyRange, KeyValue, RangeOptions, Transaction, after};
use serde::{Deserialize, Serialize};

use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    limits::INCIDENTS_MAX,
    position::Position,
    tags,
    tuple::{Elements, Key},
};

/// The names are stored, so they must not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredIncidentKind {
    ConnectRefused,
    PublishRefused,
    SubscribeRefused,
    LimitReached,
    MessagesDropped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentRecord {
    pub at_ms: u64,
    pub last_at_ms: u64,
    /// Number of equal events that the record joins, or of dropped messages.
    pub count: u64,
    pub kind: StoredIncidentKind,
    pub client_id: Option<String>,
    pub user: Option<String>,
    /// The topic, the filter or the limit.
    pub what: Option<String>,
    pub reason: String,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct IncidentSearch<'a> {
    pub client_id: Option<&'a str>,
    pub kind: Option<StoredIncidentKind>,
}

impl IncidentSearch<'_> {
    fn has(&self, incident: &IncidentRecord) -> bool {
        self.client_id.is_none_or(|id| incident.client_id.as_deref() == Some(id))
            && self.kind.is_none_or(|kind| incident.kind == kind)
    }
}

/// Appends incidents under versionstamps, so that the write conflicts with no other transaction.
pub fn append(tx: &Transaction, broker: BrokerId, incidents: &[IncidentRecord]) -> LayerResult<()> {
    for (number, incident) in (0u16..).zip(incidents) {
        let json = serde_json::to_vec(incident).map_err(|_| CORRUPT)?;
        tx.set_versionstamped_key(log(broker).before_position(), number.to_be_bytes(), [], json)?;
    }
    Ok(())
}

/// Reads up to `limit` incidents before a position in a snapshot, the latest first; the flag says whether there may be
/// more.
pub async fn page(
    tx: &Transaction,
    broker: BrokerId,
    wanted: IncidentSearch<'_>,
    before: Option<Position>,
    limit: usize,
) -> LayerResult<(Vec<(Position, IncidentRecord)>, bool)> {
    let log = log(broker);
    let range = log.children();
    let end =
        before.map_or(range.end, |before| Bytes::copy_from_slice(log.clone().position(before).as_ref()));
    let (mut rows, mut found) = (LatestIncidents::of(KeyRange::new(range.begin, end)), Vec::new());
    while let Some(row) = rows.next(tx).await? {
        let incident = decode(&row.value)?;
        if wanted.has(&incident) {
            if found.len() == limit {
                return Ok((found, true));
            }
            found.push((Elements::after(&log, &row.key)?.position()?, incident));
        }
    }
    Ok((found, rows.has_more))
}

/// Removes incidents beyond [`INCIDENTS_MAX`], and those that last happened before `before_ms`.
pub async fn trim(tx: &Transaction, broker: BrokerId, before_ms: u64) -> LayerResult<()> {
    let range = log(broker).children();
    let mut rows = LatestIncidents::of(range.clone());
    while let Some(row) = rows.next(tx).await? {
        if rows.read > INCIDENTS_MAX || decode(&row.value)?.last_at_ms < before_ms {
            return Ok(tx.clear_range(KeyRange::new(range.begin, after(&row.key)))?);
        }
    }
    Ok(())
}

/// The latest rows of a range, the latest first. A page of the store ends after 1 MiB, so long incidents take several.
struct LatestIncidents {
    range: KeyRange,
    page: std::vec::IntoIter<KeyValue>,
    has_more: bool,
    read: usize,
}

impl LatestIncidents {
    /// Each pod trims after 100 rows of its own, so twice the limit covers what about nine pods append in between.
    const ROWS_MAX: usize = 2 * INCIDENTS_MAX;

    fn of(range: KeyRange) -> Self {
        Self { range, page: Vec::new().into_iter(), has_more: true, read: 0 }
    }

    async fn next(&mut self, tx: &Transaction) -> LayerResult<Option<KeyValue>> {
        if self.page.as_slice().is_empty() && self.has_more && self.read < Self::ROWS_MAX {
            let options = RangeOptions::last(Self::ROWS_MAX - self.read).snapshot();
            let page = tx.range(self.range.clone(), options).await?;
            self.has_more = page.more;
            if let Some(last) = page.items.last() {
                self.range.end = last.key.clone();
            }
            self.page = page.items.into_iter();
        }
        let row = self.page.next();
        self.read += usize::from(row.is_some());
        Ok(row)
    }
}

fn decode(value: &[u8]) -> LayerResult<IncidentRecord> {
    serde_json::from_slice(value).map_err(|_| CORRUPT)
}

const CORRUPT: LayerError = LayerError::Corrupt("incident");

fn log(broker: BrokerId) -> Key {
    Key::new(broker, tags::INCIDENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BROKER, database, run};

    fn incident(number: u64) -> IncidentRecord {
        let kind = if number.is_multiple_of(2) {
            StoredIncidentKind::PublishRefused
        } else {
            StoredIncidentKind::LimitReached
        };
        IncidentRecord {
            at_ms: number,
            last_at_ms: number,
            count: 1,
            kind,
            client_id: Some(format!("c{}", number % 3)),
            user: None,
            what: None,
            reason: "why".into(),
        }
    }

    #[test]
    fn the_latest_comes_first_and_those_that_are_asked_for() {
        let database = database();
        for number in 0..4 {
            let two = [incident(2 * number), incident(2 * number + 1)];
            run(&database, async |tx| append(tx, BROKER, &two));
        }
        run(&database, async |tx| append(tx, BROKER + 1, &[incident(99)]));
        let numbers = |wanted: IncidentSearch<'_>, before, limit| {
            let (found, more) = run(&database, async |tx| page(tx, BROKER, wanted, before, limit).await);
            let next = found.last().map(|(at, _)| *at);
            (found.iter().map(|(_, incident)| incident.at_ms).collect::<Vec<_>>(), next, more)
        };
        let (first, next, more) = numbers(IncidentSearch::default(), None, 5);
        assert_eq!((first, more), (vec![7, 6, 5, 4, 3], true));
        assert_eq!(numbers(IncidentSearch::default(), next, 5).0, [2, 1, 0]);
        let odd =
            IncidentSearch { kind: Some(StoredIncidentKind::LimitReached), ..IncidentSearch::default() };
        assert_eq!(numbers(odd, None, 9).0, [7, 5, 3, 1]);
        let both = IncidentSearch { client_id: Some("c1"), ..odd };
        assert_eq!((numbers(both, None, 9).0, numbers(both, None, 9).2), (vec![7, 1], false));
    }

    #[test]
    fn only_so_many_are_kept_and_for_so_long() {
        let database = database();
        let all: Vec<IncidentRecord> = (0..INCIDENTS_MAX as u64 + 7).map(incident).collect();
        run(&database, async |tx| append(tx, BROKER, &all));
        let rest = |before_ms| {
            run(&database, async |tx| trim(tx, BROKER, before_ms).await);
            let (rest, _) =
                run(&database, async |tx| page(tx, BROKER, IncidentSearch::default(), None, 9_999).await);
            (rest.len(), rest.last().map(|(_, last)| last.at_ms))
        };
        assert_eq!(rest(0), (INCIDENTS_MAX, Some(7)));
        assert_eq!(rest(1_000), (7, Some(1_000)));
        assert_eq!(rest(10_000), (0, None));
    }

    #[test]
    fn long_incidents_are_trimmed_and_searched_as_short_ones() {
        let database = database();
        let number = INCIDENTS_MAX as u64 + 7;
        for number in 0..number {
            let text = Some("\"".repeat(256));
            let client_id = if number == 10 { Some("c".into()) } else { text.clone() };
            let long = IncidentRecord { client_id, user: text.clone(), what: text, ..incident(number) };
            run(&database, async |tx| append(tx, BROKER, std::slice::from_ref(&long)));
        }
        let rest = |before_ms| {
            run(&database, async |tx| trim(tx, BROKER, before_ms).await);
            run(&database, async |tx| page(tx, BROKER, IncidentSearch::default(), None, 9_999).await).0.len()
        };
        assert_eq!(rest(0), INCIDENTS_MAX);
        let wanted = IncidentSearch { client_id: Some("c"), ..IncidentSearch::default() };
        let (found, more) = run(&database, async |tx| page(tx, BROKER, wanted, None, 5).await);
        assert_eq!((found.len(), more), (1, false));
        assert_eq!(rest(number - 3), 3);
    }
}
