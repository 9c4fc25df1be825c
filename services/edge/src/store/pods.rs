//! This pod among the pods that share a store: it notices the sessions that other pods have taken over, and recovers
//! the sessions of dead pods.

use std::sync::Arc;
use std::time::Duration;

use millrace_layers::pods::{self, Pod};
use millrace_layers::sessions::{self, OwnedSession};
use millrace_layers::{LayerError, metering, streams};
use millrace_storage::Transaction;

use super::bugs::{WriterBug, has_bug};
use super::sweep::{self, Abandoned};
use super::writer::Writer;
use super::{SessionKey, duties::Duty};

/// How often the pod reads its notices from the store.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// The same while the fabric announces notices.
pub(super) const NOTIFIED_TICK_MS: u64 = 1_000;
/// How long an ending process waits for the last renewal of its lease.
const FAREWELL: Duration = Duration::from_secs(5);
/// Delays after which an event loop is notified again of a lost session: at first it may still wait for the session's
/// first page, and have no connection to close.
const AGAIN_MS: [u64; 3] = [500, 2_000, 10_000];
const TIDIED: usize = 100;
const NOTICES: usize = 500;

#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) pod: Pod,
    after: Option<OwnedSession>,
    /// All sessions are recovered; claims of shared subscriptions may remain.
    has_sessions: bool,
}

/// Reads which sessions other pods want or have taken over. A notice stays in the store until the event loops have it,
/// so a lost answer loses no notice.
pub(super) fn listen(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let now_ms = shared.clock.now();
    let later = writer.losing.split_off(&(now_ms + 1));
    for session in std::mem::replace(&mut writer.losing, later).into_values().flatten() {
        writer.lose(&session, false);
    }
    writer.send_now();
    let asked = shared.layers.run(async |tx| pods::lost_sessions(&tx, &shared.owner, NOTICES).await);
    let notices = writer.wait(asked);
    let notices = match notices {
        Ok(notices) if notices.is_empty() => return,
        Ok(notices) => notices,
        Err(error) => {
            return tracing::warn!(%error, "this pod cannot read which of its sessions other pods want; the next round tries again");
        }
    };
    for lost in &notices {
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
    let acknowledged =
        shared.layers.run(async |tx| pods::acknowledge_lost(&tx, &shared.owner, &notices).await);
    match writer.wait(acknowledged) {
        // A pod that was paused may have lost all its sessions, and the next page must not wait for a tick.
        Ok(()) if notices.len() == NOTICES => writer.notices_read_at = 0,
        Ok(()) => {}
        Err(error) => {
            tracing::warn!(%error, "notices of lost sessions stay in the store, and are read again");
        }
    }
}

pub(super) fn look(writer: &mut Writer<'_>) {
    for pod in writer.shared.leases.dead() {
        writer.duties.add(Duty::Recover(Recovery { pod, after: None, has_sessions: true }));
    }
}

pub(super) fn recover_some(writer: &mut Writer<'_>, mut recovery: Recovery) -> Option<Duty> {
    let pod = &recovery.pod;
    if !writer.shared.leases.is_dead(pod) {
        // The pod has renewed its lease, or another pod has recovered it. If only this scan failed, a later scan finds
        // the pod again.
        return None;
    }
    if recovery.after.is_none() && recovery.has_sessions {
        tracing::warn!(pod = %name(pod), "a pod no longer renews its lease; its sessions are recovered");
    }
    if recovery.has_sessions && !has_bug(WriterBug::RemovesLeaseEarly) {
        match sweep::abandon_some(writer, &pod.name, Some(pod), recovery.after.as_ref()) {
            Abandoned::Through(last) => recovery.after = Some(last),
            Abandoned::Again => {}
            Abandoned::All => recovery.has_sessions = false,
            Abandoned::Alive | Abandoned::Failed(_) => return None,
        }
        return Some(Duty::Recover(recovery));
    }
    if writer.free_some_claims(&pod.name).unwrap_or(false) {
        return Some(Duty::Recover(recovery));
    }
    remove(writer, pod);
    None
}

fn name(pod: &Pod) -> &str {
    std::str::from_utf8(&pod.name).unwrap_or("a name that is no text")
}

/// Removes a dead pod in the transaction that finds none of its sessions or claims. A failure in between is repaired by
/// the next scan.
fn remove(writer: &mut Writer<'_>, pod: &Pod) {
    let shared = writer.shared;
    let removed = writer.wait(shared.layers.run(async |tx| {
        if has_any(&tx, &pod.name).await? && !has_bug(WriterBug::RemovesLeaseEarly) {
            return Ok(false);
        }
        metering::forget(&tx, &pod.name)?;
        pods::remove(&tx, pod).await.map(|()| true)
    }));
    match removed {
        Ok(true) => shared.leases.recovered(pod),
        Ok(false) => {
            tracing::warn!(
                pod = %name(pod),
                "a dead pod still has sessions or messages: the next scan recovers them"
            );
        }
        Err(error) => {
            tracing::warn!(pod = %name(pod), %error, "a dead pod could not be removed; the next scan tries again");
        }
    }
}

/// Removes commit markers and notices of former pods, one page at a time.
pub(super) fn tidy(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    let from = writer.tidied.to.take();
    let tidied = shared.layers.run(async |tx| {
        let before = tx.read_version().await?.saturating_sub(pods::MARKER_VERSIONS);
        pods::remove_stale_rows(&tx, before, from.as_deref(), TIDIED).await
    });
    match writer.wait(tidied) {
        Ok(next) => writer.tidied.to = next,
        Err(error) => {
            tracing::warn!(%error, "rows of pods that are gone could not be removed; the next round tries again");
        }
    }
}

async fn has_any(tx: &Transaction, pod: &[u8]) -> Result<bool, LayerError> {
    Ok(sessions::owns_any(tx, pod).await? || streams::has_any(tx, pod).await?)
}

/// Removes this pod at an orderly end: it has no sessions any more.
pub(super) fn leave(writer: &mut Writer<'_>) {
    let shared = writer.shared;
    if !shared.is_shared {
        return;
    }
    while writer.free_some_claims(&shared.owner).unwrap_or(false) {}
    // A renewal after the removal would leave a lease without a pod.
    shared.leases.end(FAREWELL);
    let asked = shared.layers.run(async |tx| {
        if has_any(&tx, &shared.owner).await? {
            // Another pod ends them once the lease is over.
            return Ok(());
        }
        if let Some(pod) = pods::get(&tx, &shared.owner).await? {
            pods::remove(&tx, &pod).await?;
        }
        pods::clear_marker(&tx, shared.owner.as_ref())?;
        Ok(())
    });
    if let Err(error) = writer.wait(asked) {
        tracing::warn!(%error, "this pod could not be removed from the list of pods: other pods remove it when its lease has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreContext;

    #[test]
    fn a_pod_that_has_lost_many_sessions_reads_the_next_page_at_once() {
        let (shared, broker) = StoreContext::with_broker(true);
        let mut writer = Writer::new(&shared);
        shared.run(&async |tx| {
            (0..=NOTICES).try_for_each(|number| {
                let client = number.to_string();
                let id = sessions::SessionId { broker, client: client.as_bytes() };
                pods::notify_lost(tx, &shared.owner, id, 1)
            })
        });
        let mut listen_to_a_page = || {
            writer.notices_read_at = 7;
            listen(&mut writer);
            let left = shared.run(&async |tx| pods::lost_sessions(tx, &shared.owner, NOTICES).await).len();
            (left, writer.notices_read_at)
        };
        assert_eq!((listen_to_a_page(), listen_to_a_page()), ((1, 0), (0, 7)));
    }
}
