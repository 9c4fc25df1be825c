//! This process among the pods of a region: it says that it is alive, looks for those that are not, and hears which sessions it has
//! lost to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_layers::pods::{self, Pod};
use millrace_layers::{Error, metering, sessions, streams};
use millrace_storage::Transaction;

use super::writer::Writer;
use super::{SessionKey, Shared, sweep};

/// How often it listens.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How often it listens while it is told over the network, milliseconds.
pub(super) const TOLD_TICK_MS: u64 = 1_000;
/// A pod whose lease was not renewed for so long, by the clock of the pod that watches it, is dead. Clocks of two pods
/// are never compared.
const LEASE_MS: u64 = 5_000;
/// If two lease scans are further apart than this, the watcher itself was stalled, or the store was away and nobody could
/// renew: it watches all leases anew.
const GAP_MS: u64 = LEASE_MS / 2;
/// How often a pod renews its own lease at least, also while it recovers sessions.
const RENEW_MS: u64 = 1_000;
/// Pods of a region.
const PODS_MAX: usize = 1_000;
/// Notices of one transaction.
const NOTICES: usize = 500;

/// The leases of other pods, as this pod has seen them.
#[derive(Default)]
pub(super) struct Watch {
    last: u64,
    renewed_at: u64,
    /// By pod: its lease, and when it was first seen to be this.
    leases: HashMap<Bytes, (u64, u64)>,
}

impl Watch {
    /// The store has these pods now, in milliseconds of the process.
    fn note(&mut self, now: u64, pods: &[Pod]) {
        if self.last == 0 || now - self.last > GAP_MS {
            self.leases.clear();
        }
        self.last = now.max(1);
        self.leases.retain(|name, _| pods.iter().any(|pod| pod.name == *name));
        for pod in pods {
            let lease = self.leases.entry(pod.name.clone()).or_insert((pod.until_ms, now));
            if lease.0 != pod.until_ms {
                *lease = (pod.until_ms, now);
            }
        }
    }

    fn is_dead(&self, now: u64, pod: &Pod) -> bool {
        self.leases.get(&pod.name).is_some_and(|(_, since)| now - since >= LEASE_MS)
    }
}

/// Hears which sessions others want, or have taken.
pub(super) fn listen(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let asked = shared.layers.run(async |tx| pods::take(&tx, &shared.owner, NOTICES).await);
    let told = writer.wait(asked, &[]);
    let told = match told {
        Ok(told) if told.is_empty() => return,
        Ok(told) => told,
        Err(error) => return tracing::warn!(%error, "this pod cannot hear which sessions others want"),
    };
    for lost in told {
        let broker = shared.brokers.by_id(lost.session.broker);
        let client = std::str::from_utf8(&lost.session.client).map(Arc::from);
        if let (Some(broker), Ok(client)) = (broker, client) {
            writer.lose(&SessionKey { broker, client, epoch: lost.epoch }, false);
        }
    }
    writer.send_now();
}

/// Says that this pod is alive, and looks after the others.
pub(super) fn look(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let asked = shared.layers.run(async |tx| {
        // Now, and not when this was first tried: the store may have been away since.
        pods::renew(&tx, &shared.owner, shared.clock.unix_now_ms() + LEASE_MS)?;
        pods::list(&tx, PODS_MAX).await
    });
    let pods = writer.wait(asked, &[]);
    let pods = match pods {
        Ok(pods) => pods,
        Err(error) => return tracing::warn!(%error, "this pod cannot say that it is alive"),
    };
    let now = shared.clock.now();
    writer.watch.renewed_at = now;
    writer.watch.note(now, &pods);
    let (dead, alive): (Vec<&Pod>, Vec<&Pod>) =
        pods.iter().filter(|pod| *pod.name != *shared.owner).partition(|pod| writer.watch.is_dead(now, pod));
    if let Some(region) = &shared.region {
        region.leases(alive.iter().map(|pod| &*pod.name));
    }
    for pod in dead {
        bury(writer, pod);
    }
}

/// Renews the lease of this pod when it is time: called between the steps of what takes long.
pub(super) fn renew(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let now = shared.clock.now();
    if !shared.is_shared || now < writer.watch.renewed_at + RENEW_MS {
        return;
    }
    let until_ms = shared.clock.unix_now_ms() + LEASE_MS;
    let renewed = shared.layers.run(async |tx| pods::renew(&tx, &shared.owner, until_ms));
    match writer.wait(renewed, &[]) {
        Ok(()) => writer.watch.renewed_at = now,
        Err(error) => tracing::warn!(%error, "this pod cannot renew its lease"),
    }
}

/// The other pods that are alive, by their names.
pub(super) async fn others(shared: &Shared) -> Result<Vec<Bytes>, Error> {
    let pods = shared.layers.run(async |tx| pods::list(&tx, PODS_MAX).await).await?;
    Ok(alive(&pods, shared, shared.clock.unix_now_ms()).cloned().collect())
}

/// Those of them that hold a lease; but this one.
fn alive<'p>(pods: &'p [Pod], shared: &Shared, now_ms: u64) -> impl Iterator<Item = &'p Bytes> {
    let others = pods.iter().filter(move |pod| pod.until_ms >= now_ms && *pod.name != *shared.owner);
    others.map(|pod| &pod.name)
}

/// Ends what a dead pod had.
fn bury(writer: &mut Writer<'_>, pod: &Pod) {
    tracing::warn!(pod = %String::from_utf8_lossy(&pod.name), "a pod is not heard of any more; its connections are ended");
    sweep::abandoned(writer, &pod.name);
    writer.free_claims(&pod.name);
    let shared = writer.shared;
    // In one transaction: sessions that a failure left are found by the next scan.
    let removed = writer.wait(
        shared.layers.run(async |tx| {
            if has_any(&tx, &pod.name).await? {
                return Ok(false);
            }
            metering::forget(&tx, &pod.name)?;
            pods::remove(&tx, pod).await.map(|()| true)
        }),
        &[],
    );
    match removed {
        Ok(true) => {}
        Ok(false) => tracing::warn!("a dead pod stays listed because it still has sessions or messages"),
        Err(error) => tracing::warn!(%error, "a dead pod stays listed for now"),
    }
}

/// Whether a pod has sessions, or messages of shared subscriptions.
async fn has_any(tx: &Transaction, pod: &[u8]) -> Result<bool, Error> {
    Ok(sessions::owns_any(tx, pod).await? || streams::has_any(tx, pod).await?)
}

/// This process ends in order: its sessions are left already.
pub(super) fn leave(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    if !shared.is_shared {
        return;
    }
    writer.free_claims(&shared.owner);
    let asked = shared.layers.run(async |tx| {
        if has_any(&tx, &shared.owner).await? {
            // Another pod ends them once the lease is over.
            return Ok(());
        }
        for pod in pods::list(&tx, PODS_MAX).await?.iter().filter(|pod| *pod.name == *shared.owner) {
            pods::remove(&tx, pod).await?;
        }
        pods::unmark(&tx, shared.owner.as_ref())?;
        Ok(())
    });
    if let Err(error) = writer.wait(asked, &[]) {
        tracing::warn!(%error, "this pod stays listed until its lease is over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_dead_when_its_lease_stays_as_it_is_whatever_the_clock_of_that_pod_says() {
        let mut watch = Watch::default();
        let pod = |name: &'static str, until_ms| Pod { name: name.into(), until_ms };
        let dead = |watch: &mut Watch, now, pods: &[Pod]| {
            watch.note(now, pods);
            pods.iter().map(|pod| watch.is_dead(now, pod)).collect::<Vec<_>>()
        };
        // One renews with a clock that is far behind, the other one is silent with a clock that is far ahead.
        for now in (1_000..6_000).step_by(500) {
            assert_eq!(dead(&mut watch, now, &[pod("late", now), pod("silent", u64::MAX)]), [false, false]);
        }
        assert_eq!(dead(&mut watch, 6_000, &[pod("late", 6_000), pod("silent", u64::MAX)]), [false, true]);
        // Another one begins, and the watcher is stalled: all leases are watched anew.
        assert_eq!(dead(&mut watch, 6_500, &[pod("new", 1)]), [false]);
        assert_eq!(dead(&mut watch, 12_000, &[pod("new", 1), pod("silent", u64::MAX)]), [false, false]);
        for now in (12_500..17_000).step_by(500) {
            assert_eq!(dead(&mut watch, now, &[pod("new", 1)]), [false], "{now}");
        }
        assert_eq!(dead(&mut watch, 17_000, &[pod("new", 1)]), [true]);
    }
}
