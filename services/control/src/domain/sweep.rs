//! Background work of each server, in rounds: removes expired records, old metrics and old audit entries, enforces spend caps,
//! copies changed plans to their tenants, and continues the erasure of deleted brokers. Several servers may do it at once.

use std::convert::Infallible;

use millrace_layers::accounts::audit as logs;
use millrace_layers::accounts::expiring::{self, Expiring, ExpiringKind};
use millrace_storage::Transaction;
use tracing::{info, warn};
use uuid::Uuid;

use super::error::of_one_tenant;
use super::{
    Control, Erasures, Result, account_links, audit, change, claim_tokens, former, invitations, passkeys,
    sign_ups, web_sessions,
};
use crate::limits::{AUDIT_LOGS_AT_ONCE, AUDIT_TRIMS_MAX, ERASE_STEPS_MAX, SWEEP_EVERY, SWEPT_ROWS};

impl Control {
    /// Spend caps have rounds of their own, which no other work delays.
    pub async fn keep_swept(&self) -> Infallible {
        tokio::join!(self.keep_caps(), self.keep_clean()).0
    }

    async fn keep_caps(&self) -> Infallible {
        let mut rounds = tokio::time::interval(SWEEP_EVERY);
        loop {
            rounds.tick().await;
            if let Err(error) = self.hold_caps().await {
                warn!(%error, "spend caps could not be compared with usage; the next round tries again");
            }
        }
    }

    async fn keep_clean(&self) -> Infallible {
        let mut rounds = tokio::time::interval(SWEEP_EVERY);
        let (mut history_from, mut audit_from, mut erasures) = (None, None, Erasures::default());
        loop {
            rounds.tick().await;
            if let Err(error) = self.sweep().await {
                warn!(%error, "expired records could not be removed; the next round tries again");
            }
            match self.forget_history(history_from.as_deref()).await {
                Ok(next) => history_from = next,
                Err(error) => warn!(%error, "old metrics could not be removed; the next round tries again"),
            }
            match self.trim_audit(audit_from.as_deref()).await {
                Ok(next) => audit_from = next,
                Err(error) => {
                    warn!(%error, "old entries of audit logs could not be removed; the next round tries again");
                }
            }
            if let Err(error) = self.spread_plans().await {
                warn!(%error, "a changed plan does not hold for all of its tenants yet; the next round tries again");
            }
            match self.erase(&mut erasures, ERASE_STEPS_MAX).await {
                Ok(0) => {}
                Ok(keys) => info!(keys, "erased data of deleted brokers"),
                Err(error) => {
                    warn!(%error, "deleted brokers could not be erased; the next round tries again");
                }
            }
        }
    }

    pub async fn sweep(&self) -> Result<()> {
        let now_ms = self.now_ms();
        loop {
            let count = self
                .write(|tx| async move {
                    change::use_reserve(&tx);
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

impl Control {
    /// Removes old entries from the audit logs after the log `from`, a bounded number of them, and returns the log to continue after:
    /// `None` after the last one.
    pub async fn trim_audit(&self, from: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let Some(kept_ms) = self.audit_kept_ms() else { return Ok(None) };
        let before_ms = self.now_ms().saturating_sub(kept_ms);
        let mut from = from.map(<[u8]>::to_vec);
        for _ in 0..AUDIT_LOGS_AT_ONCE {
            let after = from.as_deref();
            let next = self.look(|tx| async move { Ok(logs::next_log(&tx, after).await?) }).await?;
            let Some(log) = &next else { return Ok(None) };
            if let Err(error) = of_one_tenant(self.trim_log(log, before_ms).await)? {
                let log = Uuid::from_slice(log).unwrap_or_default();
                warn!(%error, %log, "old entries of an audit log could not be removed; a later round tries again");
            }
            from = Some(log.to_vec());
        }
        Ok(from)
    }

    async fn trim_log(&self, log: &[u8], before_ms: u64) -> Result<()> {
        let is_old = |entry: &[u8]| audit::is_before(entry, before_ms);
        for _ in 0..AUDIT_TRIMS_MAX {
            let trimmed = self.write(|tx| async move { Ok(logs::trim(&tx, log, SWEPT_ROWS, is_old).await?) });
            if !trimmed.await? {
                break;
            }
        }
        Ok(())
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
