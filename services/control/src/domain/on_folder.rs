//! Audit entries of commands that work on a data folder without the API.

use millrace_layers::{Store, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};
use uuid::Uuid;

use super::change::{Change, use_reserve};
use super::{Operator, Result};

#[derive(Clone, Copy, Debug)]
pub struct OnFolder<'a> {
    pub broker: &'a str,
    pub action: &'a str,
    pub target: &'a str,
    pub count: u64,
}

/// Writes an entry into the audit log of the broker's organisation. A broker without an organisation has no audit log.
pub async fn note_on_folder(
    store: &Store,
    now_ms: u64,
    operator: &Operator,
    done: OnFolder<'_>,
) -> Result<()> {
    let OnFolder { broker, action, target, count } = done;
    let details: &Value = &json!({ "broker": broker, "count": count, "on_data_folder": true });
    let run = store.database().run(|tx, _| async move {
        use_reserve(&tx);
        let found = catalog::get(&tx, broker.as_bytes(), Read::Serializable).await?;
        let owner = found.map(|found| found.details()).transpose()?;
        let owner = owner.and_then(|found| found.value.organisation?.parse::<Uuid>().ok());
        match owner {
            Some(owner) => Change::without_receipt(tx, now_ms, operator.into()).audit(
                owner,
                action,
                target,
                details.clone(),
            ),
            None => Ok(()),
        }
    });
    run.await
}
