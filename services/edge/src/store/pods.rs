//! This process among the pods of a region: it says that it is alive, looks for those that are not, and hears which sessions it has
//! lost to others.

use std::sync::Arc;
use std::time::Duration;

use millrace_layers::pods::{self, Pod};

use super::writer::Writer;
use super::{SessionKey, sweep};

/// How often it listens.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How often it listens while it is told over the network, milliseconds.
pub(super) const TOLD_TICK_MS: u64 = 1_000;
/// For so long a pod is alive after its last word.
const LEASE_MS: u64 = 5_000;
/// Pods of a region.
const PODS_MAX: usize = 1_000;
/// Notices of one transaction.
const NOTICES: usize = 500;

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
    let now_ms = shared.clock.unix_now_ms();
    let asked = shared.layers.run(async |tx| {
        pods::renew(&tx, &shared.owner, now_ms + LEASE_MS)?;
        pods::list(&tx, PODS_MAX).await
    });
    let pods = writer.wait(asked, &[]);
    let pods = match pods {
        Ok(pods) => pods,
        Err(error) => return tracing::warn!(%error, "this pod cannot say that it is alive"),
    };
    if let Some(region) = &shared.region {
        let others = pods.iter().filter(|pod| pod.until_ms >= now_ms && *pod.name != *shared.owner);
        region.leases(others.map(|pod| &*pod.name));
    }
    for pod in pods.iter().filter(|pod| pod.until_ms < now_ms && *pod.name != *shared.owner) {
        bury(writer, pod);
    }
}

/// Ends what a dead pod had.
fn bury(writer: &mut Writer<'_>, pod: &Pod) {
    tracing::warn!(pod = %String::from_utf8_lossy(&pod.name), "a pod is not heard of any more; its connections are ended");
    sweep::abandoned(writer, &pod.name);
    writer.free_claims(&pod.name);
    let shared = writer.shared;
    let removed = writer.wait(shared.layers.run(async |tx| pods::remove(&tx, pod).await), &[]);
    if let Err(error) = removed {
        tracing::warn!(%error, "a dead pod stays listed for now");
    }
}

/// This process ends in order: its sessions are left already.
pub(super) fn leave(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    if !shared.is_shared {
        return;
    }
    writer.free_claims(&shared.owner);
    let asked = shared.layers.run(async |tx| {
        for pod in pods::list(&tx, PODS_MAX).await?.iter().filter(|pod| *pod.name == *shared.owner) {
            pods::remove(&tx, pod).await?;
        }
        Ok::<_, millrace_layers::Error>(())
    });
    if let Err(error) = writer.wait(asked, &[]) {
        tracing::warn!(%error, "this pod stays listed until its lease is over");
    }
}
