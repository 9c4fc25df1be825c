//! Writes incidents to the store.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use millrace_layers::incidents::{self, IncidentRecord};
use millrace_layers::{LayerError, Store};
use millrace_storage::{StoreError, block_on_for};

use super::Reporter;
use crate::StartError;
use crate::broker::{Broker, Brokers};
use crate::clock::Clock;

const EVERY: Duration = Duration::from_secs(1);
/// Retention of incidents, milliseconds: 7 days.
const KEPT_MS: u64 = 7 * 86_400_000;
/// Longest wait for the store: incidents may be lost.
const PATIENCE: Duration = Duration::from_secs(3);
const TRIM_AFTER_ROWS: usize = 100;

pub(super) fn start(store: Store, clock: Clock, brokers: Arc<Brokers>) -> Result<Reporter, StartError> {
    let mut writer = IncidentWriter { store, clock, brokers, written: HashMap::new() };
    Reporter::start("incidents", "writes incidents", move |stopped| writer.run(&stopped))
}

struct IncidentWriter {
    store: Store,
    clock: Clock,
    brokers: Arc<Brokers>,
    /// Rows written since old ones were last removed, by broker.
    written: HashMap<u64, usize>,
}

impl IncidentWriter {
    fn run(&mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            self.write_all();
        }
        self.write_all();
    }

    fn write_all(&mut self) {
        let now_ms = self.clock.unix_now_ms();
        let brokers = self.brokers.clone();
        for broker in brokers.each() {
            let incidents = broker.incidents.take(now_ms);
            if incidents.is_empty() {
                continue;
            }
            // Webhooks for `EventKind::LimitReached` belong here: events once a window rather than once a packet.
            if let Err(error) = self.write(&broker, &incidents, now_ms) {
                let lost = incidents.len();
                tracing::warn!(%error, broker = &*broker.name, lost, "incidents of a broker are lost for its tenant, because the store does not accept them");
            }
        }
    }

    fn write(
        &mut self,
        broker: &Broker,
        incidents: &[IncidentRecord],
        now_ms: u64,
    ) -> Result<(), LayerError> {
        let id = broker.id;
        within_patience(self.store.run(async |tx| incidents::append(&tx, id, incidents)))?;
        let written = self.written.entry(id).or_insert(TRIM_AFTER_ROWS);
        *written += incidents.len();
        if *written >= TRIM_AFTER_ROWS {
            *written = 0;
            let before_ms = now_ms.saturating_sub(KEPT_MS);
            within_patience(self.store.run(async |tx| incidents::trim(&tx, id, before_ms).await))?;
        }
        Ok(())
    }
}

fn within_patience<T>(asked: impl Future<Output = Result<T, LayerError>>) -> Result<T, LayerError> {
    let unavailable = || Err(StoreError::Unavailable("it does not answer".into()).into());
    block_on_for(pin!(asked), PATIENCE).unwrap_or_else(unavailable)
}
