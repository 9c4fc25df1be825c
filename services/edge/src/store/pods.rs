//! This process among the pods of a region: it hears which sessions it has lost to others, and recovers those of dead pods.

use std::sync::Arc;
use std::time::Duration;

use millrace_layers::pods::{self, Pod};
use millrace_layers::sessions::{self, OwnedSession};
use millrace_layers::{Error, metering, streams};
use millrace_storage::Transaction;

use super::sweep::{self, Abandoned};
use super::writer::Writer;
use super::{SessionKey, duties::Duty};

/// How often it listens.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How often it listens while it is told over the network, milliseconds.
pub(super) const TOLD_TICK_MS: u64 = 1_000;
/// How long a process that ends waits for the last renewal of its lease.
const FAREWELL: Duration = Duration::from_secs(5);
/// Pods of a region.
const PODS_MAX: usize = 1_000;
/// When a loop is told again of a session that it lost: it may still wait for the session's first page, and have no
/// connection to close before.
const AGAIN_MS: [u64; 3] = [500, 2_000, 10_000];
/// Rows that [`tidy`] looks at.
const TIDIED: usize = 100;
/// Notices of one transaction.
const NOTICES: usize = 500;

/// How far the recovery of a dead pod has come.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) pod: Pod,
    /// The last session that was recovered.
    after: Option<OwnedSession>,
    /// All sessions are recovered; claims of shared subscriptions may be left.
    has_sessions: bool,
}

/// Hears which sessions others want, or have taken. A notice stays in the store until the loops have it, so a lost answer
/// loses none.
pub(super) fn listen(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let now_ms = shared.clock.now();
    let later = writer.losing.split_off(&(now_ms + 1));
    for session in std::mem::replace(&mut writer.losing, later).into_values().flatten() {
        writer.lose(&session, false);
    }
    writer.send_now();
    let asked = shared.layers.run(async |tx| pods::told(&tx, &shared.owner, NOTICES).await);
    let told = writer.wait(asked, &[]);
    let told = match told {
        Ok(told) if told.is_empty() => return,
        Ok(told) => told,
        Err(error) => return tracing::warn!(%error, "this pod cannot hear which sessions others want"),
    };
    for lost in &told {
        let broker = shared.brokers.by_id(lost.session.broker);
        let client = std::str::from_utf8(&lost.session.client).map(Arc::from);
        if let (Some(broker), Ok(client)) = (broker, client) {
            let session = SessionKey { broker, client, epoch: lost.epoch };
            writer.lose(&session, false);
            for after_ms in AGAIN_MS {
                writer.losing.entry(now_ms + after_ms).or_default().push(session.clone());
            }
        }
    }
    writer.send_now();
    let heard = shared.layers.run(async |tx| pods::heard(&tx, &shared.owner, &told).await);
    if let Err(error) = writer.wait(heard, &[]) {
        tracing::warn!(%error, "notices of lost sessions stay in the store, and are read again");
    }
}

/// Begins to recover the pods that are dead.
pub(super) fn look(writer: &mut Writer<'_>) {
    for pod in writer.shared.leases.dead() {
        writer.duties.add(Duty::Recover(Recovery { pod, after: None, has_sessions: true }));
    }
}

/// One step of a recovery. Gives what is left of it.
pub(super) fn recover_some(writer: &mut Writer<'_>, mut recovery: Recovery) -> Option<Duty> {
    let pod = &recovery.pod;
    if !writer.shared.leases.is_dead(pod) {
        // It renewed its lease, or another pod has recovered it. A scan that failed finds it again.
        return None;
    }
    if recovery.after.is_none() && recovery.has_sessions {
        tracing::warn!(pod = %String::from_utf8_lossy(&pod.name), "a pod is not heard of any more; its connections are ended");
    }
    if recovery.has_sessions {
        match sweep::abandon_some(writer, &pod.name, Some(pod), recovery.after.as_ref()) {
            Abandoned::Through(last) => recovery.after = Some(last),
            Abandoned::Again => {}
            Abandoned::All => recovery.has_sessions = false,
            Abandoned::Unread => return None,
        }
        return Some(Duty::Recover(recovery));
    }
    if writer.free_some_claims(&pod.name) {
        return Some(Duty::Recover(recovery));
    }
    remove(writer, pod);
    None
}

/// Forgets a dead pod, in the transaction that finds nothing left of it. Sessions that a failure left are found by the next
/// scan.
fn remove(writer: &mut Writer<'_>, pod: &Pod) {
    let shared = writer.shared;
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
        Ok(true) => shared.leases.recovered(pod),
        Ok(false) => tracing::warn!("a dead pod stays listed because it still has sessions or messages"),
        Err(error) => tracing::warn!(%error, "a dead pod stays listed for now"),
    }
}

/// Removes marks and notices of pods that are gone, a page at a time.
pub(super) fn tidy(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let from = writer.tidied.take();
    let tidied = shared.layers.run(async |tx| {
        let before = tx.read_version().await?.saturating_sub(pods::MARK_VERSIONS);
        pods::tidy(&tx, before, from.as_deref(), TIDIED).await
    });
    match writer.wait(tidied, &[]) {
        Ok(next) => writer.tidied = next,
        Err(error) => tracing::warn!(%error, "what is left of pods that are gone stays in the store for now"),
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
    // A renewal after the removal would leave a lease without a pod.
    shared.leases.end(FAREWELL);
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
