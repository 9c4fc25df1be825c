//! Limits the credentials of a broker: their number, and the bytes of their rules in JSON. Atomic counters hold both, so that
//! additions do not conflict.

use millrace_access::model::{self, Rule};
use millrace_layers::{BrokerId, accounts};
use millrace_storage::{Read, Transaction};

use super::{Error, Result};
use crate::limits::{CREDENTIAL_RULES_BYTES_MAX, CREDENTIALS_MAX};

/// Counts new credentials, unless they are too many. With a snapshot read, additions at the same time may exceed the limits.
pub(super) async fn add(
    tx: &Transaction,
    broker: BrokerId,
    new: impl IntoIterator<Item = &model::Credential>,
    read: Read,
) -> Result<()> {
    let (mut number, mut bytes) = (0, 0);
    for credential in new {
        number += 1;
        bytes += rules_bytes(&credential.rules);
    }
    if accounts::credential_count(tx, broker, read).await?.saturating_add_signed(number) > CREDENTIALS_MAX {
        let what = "a broker has no more than 100,000 credentials: delete some, or let devices show tokens";
        return Err(Error::Conflict(what.into()));
    }
    accounts::count_credentials(tx, broker, number)?;
    add_rules(tx, broker, bytes, read).await
}

/// Counts the changed rules of a credential, unless they are longer than before and too long.
pub(super) async fn change(
    tx: &Transaction,
    broker: BrokerId,
    before: &[Rule],
    after: &[Rule],
) -> Result<()> {
    add_rules(tx, broker, rules_bytes(after) - rules_bytes(before), Read::Snapshot).await
}

pub(super) fn remove(tx: &Transaction, broker: BrokerId, old: &model::Credential) -> Result<()> {
    accounts::count_credentials(tx, broker, -1)?;
    Ok(accounts::count_credential_rules(tx, broker, -rules_bytes(&old.rules))?)
}

async fn add_rules(tx: &Transaction, broker: BrokerId, more: i64, read: Read) -> Result<()> {
    if more > 0 && accounts::credential_rules(tx, broker, read).await? + more > CREDENTIAL_RULES_BYTES_MAX {
        let what = "the rules of all credentials of a broker have at most 64 MiB together, as JSON: put rules that many share into a group";
        return Err(Error::Conflict(what.into()));
    }
    Ok(accounts::count_credential_rules(tx, broker, more)?)
}

fn rules_bytes(rules: &[Rule]) -> i64 {
    if rules.is_empty() {
        return 0;
    }
    serde_json::to_vec(rules).map_or(0, |json| json.len().try_into().unwrap_or(i64::MAX))
}
