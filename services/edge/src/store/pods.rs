//! This process among the pods of a region: it says that it is alive, looks for those that are not, and hears which sessions it has
//! lost to others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrace_layers::metering;
use millrace_layers::pods::{self, Pod};

use super::writer::Writer;
use super::{SessionKey, Shared, sweep};

/// How often it listens.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How often it listens while it is told over the network, milliseconds.
pub(super) const TOLD_TICK_MS: u64 = 1_000;
/// For so long a pod is alive after its last word.
const LEASE_MS: u64 = 5_000;
/// Who looks at the others looked away, when it is longer than this between two looks.
const GAP_MS: u64 = LEASE_MS / 2;
/// After that it takes nobody for dead for so long: all others say within it that they are alive, if they can.
const WATCH_MS: u64 = 3_000;
/// Pods of a region.
const PODS_MAX: usize = 1_000;
/// Notices of one transaction.
const NOTICES: usize = 500;

/// Since when this pod has looked at the others without a gap. After one it may have been the store that was away, and nobody could
/// say that he is alive.
#[derive(Default)]
pub(super) struct Watch {
    since: u64,
    last: u64,
}

impl Watch {
    /// It looks at them now, in milliseconds of the process. Whether all had the time to say so.
    fn is_long_enough(&mut self, now: u64) -> bool {
        if self.last == 0 || now - self.last > GAP_MS {
            self.since = now;
        }
        self.last = now.max(1);
        now - self.since >= WATCH_MS
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
    let now_ms = shared.clock.unix_now_ms();
    if let Some(region) = &shared.region {
        region.leases(alive(&pods, shared, now_ms).map(|name| &**name));
    }
    if !writer.watch.is_long_enough(shared.clock.now()) {
        return;
    }
    for pod in pods.iter().filter(|pod| pod.until_ms < now_ms && *pod.name != *shared.owner) {
        bury(writer, pod);
    }
}

/// The other pods that are alive, by their names.
pub(super) async fn others(shared: &Shared) -> Result<Vec<Bytes>, millrace_layers::Error> {
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
    let removed = writer.wait(
        shared.layers.run(async |tx| {
            metering::forget(&tx, &pod.name)?;
            pods::remove(&tx, pod).await
        }),
        &[],
    );
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
        pods::unmark(&tx, shared.owner.as_ref())?;
        Ok::<_, millrace_layers::Error>(())
    });
    if let Err(error) = writer.wait(asked, &[]) {
        tracing::warn!(%error, "this pod stays listed until its lease is over");
    }
}
