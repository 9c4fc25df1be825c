//! The share of a broker's limits that each pod uses. Pods write their own row about once a second and read the others', so each knows
//! how much is left.

use std::collections::HashSet;

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use crate::{
    BrokerId, catalog,
    error::LayerResult,
    pods as leases, rows, tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    pub connections: u64,
    pub connects_per_s: u64,
    pub publishes_per_s: u64,
    pub publish_bytes_per_s: u64,
    pub subscriptions: u64,
    pub filters_per_s: u64,
}

/// The row counts until `until_ms`; conflicts with no other transaction.
pub fn report(
    tx: &Transaction,
    broker: BrokerId,
    pod: &[u8],
    used: PodUsage,
    until_ms: u64,
) -> LayerResult<()> {
    let mut value = Vec::with_capacity(56);
    let PodUsage {
        connections,
        connects_per_s,
        publishes_per_s,
        publish_bytes_per_s,
        subscriptions,
        filters_per_s,
    } = used;
    for number in [
        until_ms,
        connections,
        connects_per_s,
        publishes_per_s,
        publish_bytes_per_s,
        subscriptions,
        filters_per_s,
    ] {
        value.put_u64(number);
    }
    Ok(tx.set(pods(broker).bytes(pod), value)?)
}

pub fn clear(tx: &Transaction, broker: BrokerId, pod: &[u8]) -> LayerResult<()> {
    Ok(tx.clear(pods(broker).bytes(pod))?)
}

/// Longer than the clocks of pods differ; older rows are removed.
const STALE_MS: u64 = 600_000;

/// Reads the current usage of all other pods in a snapshot, and removes rows that are too old.
pub async fn usage_of_others(
    tx: &Transaction,
    broker: BrokerId,
    pod: &[u8],
    now_ms: u64,
) -> LayerResult<Vec<PodUsage>> {
    let prefix = pods(broker);
    let own = prefix.clone().bytes(pod);
    let rows = rows::all(tx, prefix.children(), Read::Snapshot).await?;
    let mut used = Vec::new();
    for row in rows.into_iter().filter(|row| *row.key != *own.as_ref()) {
        let (until_ms, of_pod) = decode(row.value)?;
        if until_ms >= now_ms {
            used.push(of_pod);
        } else if until_ms + STALE_MS < now_ms {
            tx.clear(row.key)?;
        }
    }
    Ok(used)
}

/// Removes rows that count no more: those of pods without a lease, and those that are too old. Looks at up to `limit`
/// brokers after the name `from`, and returns the last name, or `None` at the end. A row that a live pod loses here comes
/// back within a second.
pub async fn remove_stale(
    tx: &Transaction,
    now_ms: u64,
    from: Option<&[u8]>,
    limit: usize,
) -> LayerResult<Option<Bytes>> {
    let leased: HashSet<Bytes> = leases::list(tx).await?.into_iter().map(|pod| pod.name).collect();
    let brokers = catalog::list(tx, from, limit).await?;
    for broker in &brokers {
        let prefix = pods(broker.id);
        for row in rows::all(tx, prefix.children(), Read::Snapshot).await? {
            let pod = Elements::after(&prefix, &row.key)?.bytes()?;
            let (until_ms, _) = decode(row.value)?;
            if until_ms + STALE_MS < now_ms || !leased.contains(&*pod) {
                tx.clear(row.key)?;
            }
        }
    }
    Ok(brokers.last().filter(|_| brokers.len() == limit).map(|broker| broker.name.clone()))
}

fn decode(mut value: Bytes) -> LayerResult<(u64, PodUsage)> {
    let until_ms = value.try_get_u64()?;
    let used = PodUsage {
        connections: value.try_get_u64()?,
        connects_per_s: value.try_get_u64()?,
        publishes_per_s: value.try_get_u64()?,
        publish_bytes_per_s: value.try_get_u64()?,
        subscriptions: value.try_get_u64()?,
        // Pods of older versions do not report it.
        filters_per_s: value.try_get_u64().unwrap_or(0),
    };
    Ok((until_ms, used))
}

fn pods(broker: BrokerId) -> Key {
    Key::new(broker, tags::SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BROKER, database, run};

    #[test]
    fn the_usage_of_a_pod_counts_for_other_pods_until_its_row_is_old() {
        let database = database();
        let used =
            |connections| PodUsage { connections, subscriptions: 7, filters_per_s: 8, ..PodUsage::default() };
        run(&database, async |tx| {
            report(tx, BROKER, b"a", used(1), 10)?;
            report(tx, BROKER, b"b", used(2), 20)?;
            report(tx, BROKER + 1, b"b", used(3), 20)
        });
        let others = |pod: &'static [u8], now_ms| {
            run(&database, async |tx| usage_of_others(tx, BROKER, pod, now_ms).await)
        };
        assert_eq!((others(b"a", 10), others(b"b", 10)), (vec![used(2)], vec![used(1)]));
        assert_eq!((others(b"c", 11), others(b"c", 21)), (vec![used(2)], vec![]));
        run(&database, async |tx| clear(tx, BROKER, b"b"));
        assert_eq!(others(b"a", 0), []);
        assert_eq!(others(b"b", 11 + STALE_MS), []);
        assert_eq!(others(b"b", 10), [], "nothing is left of a pod that is gone");
    }

    #[test]
    fn rows_of_pods_without_a_lease_and_old_rows_are_removed_whoever_has_their_brokers() {
        for limit in [1, 2, 100] {
            let database = database();
            let now_ms = 2 * STALE_MS;
            let brokers = [&b"a"[..], b"b", b"c"]
                .map(|name| run(&database, async |tx| catalog::ensure(tx, name, Bytes::new()).await).0.id);
            run(&database, async |tx| {
                leases::renew(tx, b"lives", 1)?;
                for broker in brokers {
                    report(tx, broker, b"gone", PodUsage::default(), now_ms)?;
                    report(tx, broker, b"lives", PodUsage::default(), now_ms)?;
                }
                report(tx, brokers[1], b"lives", PodUsage::default(), 1)
            });
            let mut from: Option<Bytes> = None;
            for _ in 0..5 {
                let at = from.take();
                from = run(&database, async |tx| remove_stale(tx, now_ms, at.as_deref(), limit).await);
                if from.is_none() {
                    break;
                }
            }
            assert_eq!(from, None, "it ends");
            let left = brokers.map(|broker| {
                run(&database, async |tx| Ok(rows::all(tx, pods(broker).children(), Read::Snapshot).await?))
                    .len()
            });
            assert_eq!(left, [1, 0, 1], "{limit}");
        }
    }

    #[test]
    fn the_usage_of_more_than_a_thousand_pods_counts() {
        let database = database();
        run(&database, async |tx| {
            (0..1_200u64).try_for_each(|pod| {
                report(tx, BROKER, &pod.to_be_bytes(), PodUsage { connections: 1, ..PodUsage::default() }, 10)
            })
        });
        let used = run(&database, async |tx| usage_of_others(tx, BROKER, b"own", 10).await);
        assert_eq!(used.iter().map(|used| used.connections).sum::<u64>(), 1_200);
    }
}
