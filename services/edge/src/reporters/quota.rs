//! Shares tenants' limits among pods. Each pod writes its usage to the store about once a second and reads the usage of the
//! others.
//!
//! A pod can use the connections and subscriptions that the others leave. The same holds for rates, but there each other pod counts with
//! an equal part at most. So a limit can be exceeded by the others' growth within two intervals ([`EVERY`]), but not longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use millrace_access::model::BrokerLimits;
use millrace_layers::shares::{self, PodUsage};
use millrace_layers::{LayerError, Store};
use millrace_storage::block_on;

use super::Reporter;
use crate::StartError;
use crate::broker::{Broker, Brokers, chunks};
use crate::clock::{Clock, Millis};
use crate::metrics::Count;

const EVERY: Duration = Duration::from_secs(1);
/// Lifetime of a pod's usage, milliseconds: the duration of its lease.
const COUNTS_MS: u64 = 5_000;
/// Brokers whose usage is exchanged at the same time, each in a transaction of its own.
const AT_ONCE: usize = 100;
/// How often usage of pods that are gone is removed, and of how many brokers.
const TIDY_EVERY_MS: Millis = 60_000;
const TIDIED: usize = 100;

pub(super) fn start(
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    pod: &str,
) -> Result<Reporter, StartError> {
    let (pod, last_at) = (pod.as_bytes().into(), clock.now());
    let mut exchange = UsageExchange { store, clock, brokers, pod, last_at, tidy_at: last_at, tidied: None };
    Reporter::start("shares", "shares limits with other pods", move |stopped| exchange.run(&stopped))
}

struct UsageExchange {
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    pod: Box<[u8]>,
    last_at: Millis,
    tidy_at: Millis,
    tidied: Option<Bytes>,
}

impl UsageExchange {
    fn run(&mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            self.exchange_usage();
            self.tidy();
        }
    }

    /// Removes usage of pods that are gone, some brokers at a time.
    fn tidy(&mut self) {
        let now = self.clock.now();
        if now < self.tidy_at {
            return;
        }
        self.tidy_at = now + TIDY_EVERY_MS;
        let (now_ms, from) = (self.clock.unix_now_ms(), self.tidied.take());
        let tidied =
            self.store.run(async |tx| shares::remove_stale(&tx, now_ms, from.as_deref(), TIDIED).await);
        match block_on(tidied) {
            Ok(next) => self.tidied = next,
            Err(error) => {
                tracing::warn!(%error, "the usage of pods that are gone could not be removed; the next round tries again");
            }
        }
    }

    fn exchange_usage(&mut self) {
        let now = self.clock.now();
        let elapsed_ms = now.saturating_sub(self.last_at).max(1);
        self.last_at = now;
        let is_limited = |broker: &Arc<Broker>| broker.quota.limits().broker != BrokerLimits::default();
        for brokers in chunks(self.brokers.each().filter(is_limited), AT_ONCE) {
            let exchange = |broker: &Arc<Broker>| self.exchange(broker.clone(), used(broker, elapsed_ms));
            let answers = block_on(join_all(brokers.iter().map(exchange)));
            for (broker, answers) in brokers.iter().zip(answers) {
                match answers {
                    Ok(others) => broker.quota.others.set(&broker.quota.limits().broker, &others),
                    Err(error) => {
                        tracing::warn!(%error, broker = &*broker.name, "the usage of other pods cannot be read: limits of the broker count with what was read last");
                    }
                }
            }
        }
    }

    async fn exchange(&self, broker: Arc<Broker>, used: PodUsage) -> Result<Vec<PodUsage>, LayerError> {
        let (now_ms, id) = (self.clock.unix_now_ms(), broker.id);
        self.store
            .run(async |tx| {
                if used == PodUsage::default() {
                    shares::clear(&tx, id, &self.pod)?;
                } else {
                    shares::report(&tx, id, &self.pod, used, now_ms + COUNTS_MS)?;
                }
                shares::usage_of_others(&tx, id, &self.pod, now_ms).await
            })
            .await
    }
}

fn used(broker: &Broker, elapsed_ms: u64) -> PodUsage {
    let passed = &broker.quota.passed;
    let rate = |count: &AtomicU64| count.swap(0, Ordering::Relaxed).saturating_mul(1_000) / elapsed_ms;
    PodUsage {
        connections: Count::sum(broker.counters.iter().map(|counters| &counters.connected)),
        connects_per_s: rate(&passed.connects),
        publishes_per_s: rate(&passed.messages),
        publish_bytes_per_s: rate(&passed.bytes),
        subscriptions: broker.router.subscriptions() as u64,
        filters_per_s: rate(&passed.filters),
    }
}
