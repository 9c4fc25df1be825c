//! The lease of this pod and those of the others, on a thread of its own: nothing that the writer waits for delays a
//! renewal.
//!
//! ```text
//! lease thread ── renews ──> lease rows <── other pods renew theirs
//!       └─ dead pods, at each scan ──> writer, which recovers their sessions
//! ```
//!
//! The time in a lease row is never compared with a clock. A pod is dead when its row has not changed for [`LEASE_MS`] of
//! the watcher's own clock, see decision 0006.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use millrace_layers::LayerError;
use millrace_layers::pods::{self, Pod};

use super::StoreContext;
use crate::jobs::FENCED_AFTER_MS;

/// Milliseconds after which a pod is dead if its lease row has not changed.
const LEASE_MS: u64 = 5_000;
/// If two scans are further apart than this, the watcher was stalled, or the store was unavailable and no pod could
/// renew. Then the watcher judges all leases from the start.
const GAP_MS: u64 = LEASE_MS / 2;
/// How long a pod that was taken for dead finds the sessions that others have recovered.
const AFTERMATH_MS: u64 = 10_000;
/// How often the lease is renewed and the others are scanned.
const EVERY: Duration = Duration::from_millis(500);
/// How often the thread looks whether the process ends, while the store does not answer.
const LOOK_UP: Duration = Duration::from_millis(100);
/// A dead pod is recovered by the first live pod in an order that all pods compute alike. Each later pod waits this
/// much longer, so that two pods recover the same sessions only if the first is slow.
const HEAD_START_MS: u64 = 10_000;
/// A pod waits for at most this many others, so a dead pod is recovered within `LEASE_MS` and three head starts.
const RANK_MAX: usize = 3;

#[derive(Default)]
pub(super) struct Leases {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    dead: Vec<Pod>,
    /// Names of the other pods that were alive at the last scan that succeeded.
    live: Vec<Bytes>,
    silent: Vec<Bytes>,
    /// The first and the last of the renewals that succeeded with no more than [`GAP_MS`] between two.
    renewed: (u64, u64),
    returned_at: Option<u64>,
    ends: bool,
    has_ended: bool,
}

impl Leases {
    /// The pods whose sessions this pod recovers now: none when the last scan failed.
    pub(super) fn dead(&self) -> Vec<Pod> {
        self.lock().dead.clone()
    }

    pub(super) fn live(&self) -> Vec<Bytes> {
        self.lock().live.clone()
    }

    /// Since when this pod can commit, as its renewals show; `None` if it cannot now. Only such a pod judges that another does not
    /// do its due work.
    pub(super) fn can_commit_since(&self, now: u64) -> Option<u64> {
        let (first, last) = self.lock().renewed;
        (now.saturating_sub(last) <= GAP_MS).then_some(first)
    }

    pub(super) fn note_renewal(&self, now: u64, live: Vec<Bytes>, silent: Vec<Bytes>) {
        let mut state = self.lock();
        let (first, last) = state.renewed;
        let is_gap = now.saturating_sub(last) > GAP_MS;
        if last > 0 && now.saturating_sub(last) > LEASE_MS {
            state.returned_at = Some(now);
        }
        state.renewed = (if is_gap { now } else { first }, now);
        (state.live, state.silent) = (live, silent);
    }

    /// Whether a pod's lease has ended, as of a moment ago: a pod that returns distrusts its sessions for longer than that.
    pub(super) fn is_silent(&self, pod: &[u8], now: u64) -> bool {
        let state = self.lock();
        let is_recent = now.saturating_sub(state.renewed.1) < FENCED_AFTER_MS;
        is_recent && state.silent.iter().any(|silent| *silent == *pod)
    }

    /// Whether other pods take this one for dead, or did so until a moment ago.
    pub(super) fn was_dead(&self, now: u64) -> bool {
        let state = self.lock();
        let (_, last) = state.renewed;
        last > 0 && now.saturating_sub(last) > LEASE_MS
            || state.returned_at.is_some_and(|at| now.saturating_sub(at) <= AFTERMATH_MS)
    }

    /// Whether a pod is still to be recovered. It may have been late, and have renewed its lease since.
    pub(super) fn is_dead(&self, pod: &Pod) -> bool {
        self.lock().dead.contains(pod)
    }

    pub(super) fn recovered(&self, pod: &Pod) {
        self.lock().dead.retain(|dead| dead != pod);
    }

    /// Waits until the last renewal has ended, but at most `at_most`.
    pub(super) fn end(&self, at_most: Duration) {
        let mut state = self.lock();
        state.ends = true;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(state, at_most, |state| !state.has_ended));
    }

    pub(super) fn note_end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }

    fn set_dead(&self, dead: Vec<Pod>) {
        self.lock().dead = dead;
    }

    fn ends(&self) -> bool {
        self.lock().ends
    }

    fn wait(&self) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), EVERY, |state| !state.ends);
        !waited.unwrap_or_else(PoisonError::into_inner).0.ends
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn run(shared: &StoreContext) {
    let _ended = EndGuard(&shared.leases);
    let mut watch = Watch::default();
    loop {
        step(shared, &mut watch);
        if !shared.leases.wait() {
            return;
        }
    }
}

pub(super) fn step(shared: &StoreContext, watch: &mut Watch) {
    let dead = turn(shared, watch).unwrap_or_else(|error| {
        tracing::warn!(%error, "this pod cannot renew its lease and tries again: other pods take over its sessions when the lease ends");
        Vec::new()
    });
    shared.leases.set_dead(dead);
}

fn turn(shared: &StoreContext, watch: &mut Watch) -> Result<Vec<Pod>, LayerError> {
    let Some(pods) = renew(shared) else { return Ok(Vec::new()) };
    let pods = pods?;
    let now = shared.clock.now();
    watch.note(now, &pods);
    let (dead, live): (Vec<&Pod>, Vec<&Pod>) =
        pods.iter().filter(|pod| *pod.name != *shared.owner).partition(|pod| watch.is_dead(now, pod));
    if let Some(region) = &shared.region {
        // Sessions poll the store while a live pod is not connected to this one.
        region.note_leases(live.iter().map(|pod| &*pod.name));
    }
    let names = |pods: &[&Pod]| pods.iter().map(|pod| pod.name.clone()).collect();
    shared.leases.note_renewal(now, names(&live), names(&dead));
    let is_turn =
        |pod: &&Pod| watch.silent_ms(now, pod) >= LEASE_MS + head_start_ms(&shared.owner, pod, &live);
    Ok(dead.into_iter().filter(is_turn).cloned().collect())
}

/// Returns `None` when the process ends before the store has answered.
fn renew(shared: &StoreContext) -> Option<Result<Vec<Pod>, LayerError>> {
    let asked = shared.layers.run(async |tx| {
        // The time of this attempt, so that each renewal changes the row.
        pods::renew(&tx, &shared.owner, shared.clock.unix_now_ms() + LEASE_MS)?;
        pods::list(&tx).await
    });
    let mut asked = pin!(asked);
    loop {
        if let Some(pods) = shared.clock.block_on_for(asked.as_mut(), LOOK_UP) {
            return Some(pods);
        }
        if shared.leases.ends() {
            return None;
        }
    }
}

/// The names of the other pods that have a lease. A dead pod is among them until it is recovered.
pub(super) async fn others(shared: &StoreContext) -> Result<Vec<Bytes>, LayerError> {
    let pods = shared.layers.run(async |tx| pods::list(&tx).await).await?;
    Ok(pods.into_iter().map(|pod| pod.name).filter(|name| **name != *shared.owner).collect())
}

/// How much longer than others `own` waits before it recovers a dead pod.
fn head_start_ms(own: &[u8], dead: &Pod, live: &[&Pod]) -> u64 {
    // Pods of builds that hash differently may recover a pod together: conflicts make that slow, not wrong.
    let weight = |name: &[u8]| {
        let mut hasher = DefaultHasher::new();
        (&*dead.name, name).hash(&mut hasher);
        hasher.finish()
    };
    let before = live.iter().filter(|pod| weight(&pod.name) < weight(own)).count();
    before.min(RANK_MAX) as u64 * HEAD_START_MS
}

#[derive(Default)]
pub(super) struct Watch {
    last: u64,
    /// By pod: its lease, and when it was first seen to be this.
    leases: HashMap<Bytes, (u64, u64)>,
}

impl Watch {
    /// Notes the leases that the store has at `now`, in milliseconds of the process.
    fn note(&mut self, now: u64, pods: &[Pod]) {
        if self.last == 0 || now.saturating_sub(self.last) > GAP_MS {
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

    fn silent_ms(&self, now: u64, pod: &Pod) -> u64 {
        self.leases.get(&pod.name).map_or(0, |(_, since)| now - since)
    }

    fn is_dead(&self, now: u64, pod: &Pod) -> bool {
        self.silent_ms(now, pod) >= LEASE_MS
    }
}

/// Notifies the waiting thread that this one has ended. A pod without a lease must not continue, so a panic ends the
/// process.
struct EndGuard<'l>(&'l Leases);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
        self.0.note_end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &'static str, until_ms: u64) -> Pod {
        Pod { name: name.into(), until_ms }
    }

    #[test]
    fn a_pod_is_dead_when_its_lease_stays_as_it_is_whatever_the_clock_of_that_pod_says() {
        let mut watch = Watch::default();
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

    #[test]
    fn a_pod_knows_for_a_while_that_others_took_it_for_dead() {
        let leases = Leases::default();
        assert!(!leases.was_dead(60_000), "it begins");
        (1..=5).for_each(|second| leases.note_renewal(1_000 * second, Vec::new(), Vec::new()));
        let end = 5_000 + LEASE_MS;
        assert_eq!([end, end + 1].map(|now| leases.was_dead(now)), [false, true]);
        let over = 20_000 + AFTERMATH_MS;
        (20_000..=over).step_by(500).for_each(|now| leases.note_renewal(now, Vec::new(), Vec::new()));
        assert_eq!([20_500, over, over + 1].map(|now| leases.was_dead(now)), [true, true, false]);
    }

    #[test]
    fn only_a_recent_scan_shows_that_a_pod_is_silent() {
        let leases = Leases::default();
        leases.note_renewal(8_000, vec!["live".into()], vec!["silent".into()]);
        assert!(leases.is_silent(b"silent", 8_999) && !leases.is_silent(b"silent", 9_000));
        assert!(!leases.is_silent(b"live", 8_000) && !leases.is_silent(b"unknown", 8_000));
    }

    #[test]
    fn one_live_pod_recovers_a_dead_one_at_once_and_the_others_wait_for_it() {
        let live = ["one", "two", "three", "four", "five"].map(|name| pod(name, 1));
        for dead in ["a", "b", "c"].map(|name| pod(name, 1)) {
            let waits = live.iter().map(|own| {
                let others: Vec<&Pod> = live.iter().filter(|pod| pod.name != own.name).collect();
                head_start_ms(&own.name, &dead, &others) / HEAD_START_MS
            });
            let mut waits: Vec<u64> = waits.collect();
            waits.sort_unstable();
            assert_eq!(waits, [0, 1, 2, 3, 3]);
        }
    }
}
