//! The share of a broker's limits that each pod uses. Pods write their own row about once a second and read the others', so each knows
//! how much is left.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{Read, Transaction};

use crate::{BrokerId, error::LayerResult, rows, tags, tuple::Key};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    pub connections: u64,
    pub connects_per_s: u64,
    pub publishes_per_s: u64,
    pub publish_bytes_per_s: u64,
    pub subscriptions: u64,
}

/// The row counts until `until_ms`; conflicts with no other transaction.
pub fn report(
    tx: &Transaction,
    broker: BrokerId,
    pod: &[u8],
    used: PodUsage,
    until_ms: u64,
) -> LayerResult<()> {
    let mut value = Vec::with_capacity(48);
    let PodUsage { connections, connects_per_s, publishes_per_s, publish_bytes_per_s, subscriptions } = used;
    for number in [until_ms, connections, connects_per_s, publishes_per_s, publish_bytes_per_s, subscriptions]
    {
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

fn decode(mut value: Bytes) -> LayerResult<(u64, PodUsage)> {
    let until_ms = value.try_get_u64()?;
    let used = PodUsage {
        connections: value.try_get_u64()?,
        connects_per_s: value.try_get_u64()?,
        publishes_per_s: value.try_get_u64()?,
        publish_bytes_per_s: value.try_get_u64()?,
        subscriptions: value.try_get_u64()?,
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
        let used = |connections| PodUsage { connections, subscriptions: 7, ..PodUsage::default() };
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
