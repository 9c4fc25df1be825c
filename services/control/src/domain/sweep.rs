//! Background work of each server: removes expired records, and continues the erasure of deleted brokers.

use millrace_layers::accounts::expiring::{self, Expiring, ExpiringKind};
use millrace_storage::Transaction;
use tracing::{info, warn};

use super::{
    Control, Result, account_links, change, claim_tokens, former, invitations, passkeys, sign_ups,
    web_sessions,
};
use crate::limits::{SWEEP_EVERY, SWEPT_ROWS};

impl Control {
    pub async fn keep_swept(&self) -> std::convert::Infallible {
        let mut rounds = tokio::time::interval(SWEEP_EVERY);
        let mut history_from = None;
        loop {
            rounds.tick().await;
            if let Err(error) = self.sweep().await {
                warn!(%error, "what has ended could not be swept; it is tried again");
            }
            if let Err(error) = self.hold_caps().await {
                warn!(%error, "spend caps could not be looked at; it is tried again");
            }
            match self.forget_history(history_from.as_deref()).await {
                Ok(next) => history_from = next,
                Err(error) => warn!(%error, "old metrics could not be removed; it is tried again"),
            }
            match self.erase().await {
                Ok(0) => {}
                Ok(keys) => info!(keys, "erased what deleted brokers had"),
                Err(error) => warn!(%error, "deleted brokers could not be erased; it is tried again"),
            }
        }
    }

    pub async fn sweep(&self) -> Result<()> {
        let now_ms = self.now_ms();
        loop {
            let count = self
                .look(|tx| async move {
                    let due = expiring::due(&tx, now_ms, SWEPT_ROWS).await?;
                    for one in &due {
                        expire(&tx, one, now_ms).await?;
                    }
                    Ok(due.len())
                })
                .await?;
            if count < SWEPT_ROWS {
                return Ok(());
            }
        }
    }
}

async fn expire(tx: &Transaction, one: &Expiring, now_ms: u64) -> Result<()> {
    match one.kind {
        ExpiringKind::SignIn => web_sessions::expire(tx, &one.id).await?,
        ExpiringKind::Invitation => invitations::expire(tx, &one.id).await?,
        ExpiringKind::Receipt => change::forget(tx, &one.id, now_ms).await?,
        ExpiringKind::SignUp => sign_ups::expire(tx, &one.id).await?,
        ExpiringKind::AccountLink => account_links::expire(tx, &one.id).await?,
        ExpiringKind::ClaimToken => claim_tokens::expire(tx, &one.id).await?,
        ExpiringKind::FormerOrganisation => former::expire(tx, &one.id, now_ms).await?,
        ExpiringKind::SpentChallenge => passkeys::expire(tx, &one.id).await?,
    }
    Ok(one.cancel(tx)?)
}
