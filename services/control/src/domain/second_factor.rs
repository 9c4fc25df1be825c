//! The second factors of people who sign in with a password: codes of a device (TOTP, RFC 6238: SHA-1, six digits, 30 s), passkeys
//! ([`super::passkeys`]), and recovery codes for a lost device. One record of an account has all of them.
//!
//! The device's secret is sealed with the region's key. Recovery codes have 80 random bits, so a keyed hash without salt and rounds hides
//! them. A code is spent in the transaction that takes it, so of two requests at once with the same code one is refused.

mod checked;
mod record;
mod recovery;
mod shapes;
mod totp;

use millrace_layers::accounts;
use millrace_layers::accounts::keys::HashKey;
use millrace_storage::Read;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use totp_rs::Secret as DeviceSecret;
use uuid::Uuid;

use super::accounts::{audit_everywhere, by_email, person_of, shown};
use super::change::Change;
use super::passkeys::{Purposed, StoredPasskey};
use super::{Caller, Control, Error, Once, Operator, Result, web_sessions};
use crate::limits::{SECOND_FACTOR_PENDING_MS, WRONG_FIRST_CODES_MAX};
use crate::secret::{self, Sealed};
pub(super) use checked::FactorCheck;
use record::in_force;
pub(super) use record::{Factors, clear, clear_wrong_codes, get, is_enabled, put};
use recovery::typed;
pub(super) use shapes::PresentedFactor;
pub use shapes::{DeviceKey, FirstCode, Proof, RecoveryCodes, SecondFactor, SecondFactorRemoval};

const ISSUER: &str = "Millrace";
/// Bytes of a device's secret: what RFC 4226 section 4 advises.
const SECRET_BYTES: usize = 20;

/// The part of the answer with recovery codes that the receipt stores.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredCheck {
    Set(FactorCheck, Uuid),
    /// Written by a server whose sets had no id. Receipts are stored for a day.
    NoId(FactorCheck),
}

impl StoredCheck {
    fn split(self) -> (FactorCheck, Option<Uuid>) {
        match self {
            Self::Set(checked, id) => (checked, Some(id)),
            Self::NoId(checked) => (checked, None),
        }
    }
}

impl Control {
    pub(crate) async fn second_factor(&self, caller: &Caller) -> Result<SecondFactor> {
        let (user, _) = person_of(caller)?;
        let found = self.look(|tx| async move { in_force(&tx, user, Read::Snapshot).await }).await?;
        let found = found.unwrap_or_default();
        let oldest = found.passkeys.iter().map(StoredPasskey::created_at_ms).chain(found.enabled_at_ms).min();
        Ok(SecondFactor {
            enabled: oldest.is_some(),
            enabled_at: oldest,
            app_enabled_at: found.enabled_at_ms,
            passkeys: found.passkeys.len(),
            recovery_codes_left: found.recovery.len(),
        })
    }

    /// Makes a secret for the caller's device, which waits ten minutes for its first code.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a device is in force.
    pub(crate) async fn begin_second_factor(&self, caller: &Caller, input: &Proof) -> Result<DeviceKey> {
        let (user, sign_in) = person_of(caller)?;
        let proof = &self.check_password(user, "password", &input.password).await?;
        let bytes = secret::random::<SECRET_BYTES>()?;
        let device = &Sealed::new(self.key()?, user.as_bytes(), &bytes)?;
        let (checked, name) = self
            .change(caller.into(), &Once::unnamed()?, |change| async move {
                let tx = &change.tx;
                proof.holds(&change, caller).await?;
                let before = in_force(tx, user, Read::Serializable).await?;
                if before.as_ref().is_some_and(|before| before.enabled_at_ms.is_some()) {
                    return Err(Error::Conflict("you have an authenticator app: turn it off first".into()));
                }
                let checked = self.take_factor(&change, user, input.shown(sign_in)).await?;
                if !checked.passes() {
                    return Ok((checked, String::new()));
                }
                // Read again, because the factor that was shown is spent.
                let passkeys = in_force(tx, user, Read::Serializable).await?.unwrap_or_default();
                let record = Factors {
                    device: Some(device.clone()),
                    pending_until_ms: change.now_ms + SECOND_FACTOR_PENDING_MS,
                    last_step: 0,
                    wrong: 0,
                    ..passkeys
                };
                accounts::second_factors().put(tx, user.as_bytes(), &record).await?;
                audit_everywhere(&change, user, "person.begin_second_factor", json!({})).await?;
                let user = shown(tx, user).await?.ok_or(Error::NotFound("person"))?;
                Ok((checked, user.email.unwrap_or(user.name)))
            })
            .await?;
        self.refuse_wrong_factor(caller, user, checked).await?;
        let secret = DeviceSecret::from(bytes.to_vec()).to_base32();
        let name = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        let uri = format!(
            "otpauth://totp/{ISSUER}:{name}?secret={secret}&issuer={ISSUER}&algorithm=SHA1&digits=6&period=30"
        );
        Ok(DeviceKey { secret: secret.as_str().into(), uri: uri.as_str().into() })
    }

    /// Puts the second factor that waits in force, and ends the caller's other web sessions.
    ///
    /// # Errors
    /// [`Error::Conflict`] when none waits, also after too many wrong codes.
    pub(crate) async fn confirm_second_factor(
        &self,
        caller: &Caller,
        input: &FirstCode,
        once: &Once,
    ) -> Result<RecoveryCodes> {
        let (user, sign_in) = person_of(caller)?;
        let id = self.new_id()?;
        let shown = &self.recovery_codes(once, user, Some(id))?.recovery_codes;
        let checked = self.change(caller.into(), once, |change| async move {
            let (tx, now_ms) = (&change.tx, change.now_ms);
            web_sessions::still_there(tx, sign_in, now_ms, Read::Serializable).await?;
            let waits = |record: &Factors| {
                record.device.is_some() && record.enabled_at_ms.is_none() && now_ms < record.pending_until_ms
            };
            let mut record = get(tx, user, Read::Serializable).await?.filter(waits).ok_or_else(|| {
                let what = "no second factor waits for its first code: begin again";
                Error::Conflict(what.into())
            })?;
            let Some(step) = self.step_of(user, &record, &typed(&input.code), now_ms)? else {
                record.wrong += 1;
                if record.wrong >= WRONG_FIRST_CODES_MAX {
                    record.device = None;
                }
                match record.device.is_some() || record.is_in_force() {
                    true => accounts::second_factors().put(tx, user.as_bytes(), &record).await.map(drop)?,
                    false => accounts::second_factors().clear(tx, user.as_bytes()).await?,
                }
                audit_everywhere(&change, user, "person.refuse_code", json!({})).await?;
                return Ok(StoredCheck::Set(FactorCheck::Wrong, id));
            };
            let checked = match record.is_in_force() {
                true => FactorCheck::RightWithOldCodes,
                false => {
                    self.put_recovery_codes(&mut record, user, shown)?;
                    FactorCheck::Right
                }
            };
            (record.last_step, record.wrong) = (step, 0);
            record.enabled_at_ms = Some(now_ms);
            accounts::second_factors().put(tx, user.as_bytes(), &record).await?;
            web_sessions::end_all(tx, user, Some(sign_in)).await?;
            audit_everywhere(&change, user, "person.enable_second_factor", json!({})).await?;
            Ok(StoredCheck::Set(checked, id))
        });
        match checked.await?.split() {
            (FactorCheck::Right, id) => {
                self.mail_second_factor(user, true).await?;
                self.recovery_codes(once, user, id)
            }
            (FactorCheck::RightWithOldCodes, _) => {
                self.mail_second_factor(user, true).await?;
                Ok(RecoveryCodes { recovery_codes: Vec::new() })
            }
            _ => Err(Error::field(
                "code",
                "is not the one that the device shows now: try the next one, and check the device's clock",
            )),
        }
    }

    pub(crate) async fn renew_recovery_codes(
        &self,
        caller: &Caller,
        input: &Proof,
        once: &Once,
    ) -> Result<RecoveryCodes> {
        let (user, sign_in) = person_of(caller)?;
        let proof = &self.check_password(user, "password", &input.password).await?;
        let id = self.new_id()?;
        let shown = &self.recovery_codes(once, user, Some(id))?.recovery_codes;
        let checked = self.change(caller.into(), once, |change| async move {
            proof.holds(&change, caller).await?;
            let checked = self.take_factor(&change, user, input.shown(sign_in)).await?;
            if matches!(checked, FactorCheck::Right | FactorCheck::Passkey) {
                let record = in_force(&change.tx, user, Read::Serializable).await?;
                let mut record = record.ok_or(Error::NotFound("second factor"))?;
                self.put_recovery_codes(&mut record, user, shown)?;
                accounts::second_factors().put(&change.tx, user.as_bytes(), &record).await?;
                audit_everywhere(&change, user, "person.renew_recovery_codes", json!({})).await?;
            }
            Ok(StoredCheck::Set(checked, id))
        });
        let (checked, id) = checked.await?.split();
        self.require_factor(caller, user, checked).await?;
        self.recovery_codes(once, user, id)
    }

    /// Turns the authenticator app off. Passkeys stay, and with them the recovery codes.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a caller without an authenticator app.
    pub(crate) async fn disable_second_factor(&self, caller: &Caller, input: &Proof) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let proof = &self.check_password(user, "password", &input.password).await?;
        let once = Once::unnamed()?;
        let checked = self.change(caller.into(), &once, |change| async move {
            let tx = &change.tx;
            proof.holds(&change, caller).await?;
            let before = in_force(tx, user, Read::Serializable).await?;
            if before.is_some_and(|before| before.enabled_at_ms.is_none()) {
                return Err(Error::Conflict(
                    "you have no authenticator app: remove your passkeys instead".into(),
                ));
            }
            let checked = self.take_factor(&change, user, input.shown(sign_in)).await?;
            if matches!(checked, FactorCheck::Right | FactorCheck::Passkey) {
                let record = in_force(tx, user, Read::Serializable).await?;
                let mut record = record.ok_or(Error::NotFound("second factor"))?;
                (record.device, record.enabled_at_ms) = (None, None);
                put(tx, user, &record).await?;
                audit_everywhere(&change, user, "person.disable_second_factor", json!({})).await?;
            }
            Ok(checked)
        });
        self.require_factor(caller, user, checked.await?).await?;
        self.mail_second_factor(user, false).await
    }

    /// Removes the second factor of a person who has lost the device and the recovery codes, and ends all web sessions of the account.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an address without an account, [`Error::Conflict`] for an account without a second factor.
    pub(crate) async fn remove_second_factor(
        &self,
        input: &SecondFactorRemoval,
        operator: &Operator,
    ) -> Result<()> {
        let email = &input.email.to_lowercase();
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            let account = by_email(tx, email).await?;
            let (user, _) = account.ok_or(Error::NotFound("account with this e-mail address"))?;
            if !is_enabled(tx, user).await? {
                return Err(Error::Conflict("the account has no second factor".into()));
            }
            clear(tx, user).await?;
            web_sessions::end_all(tx, user, None).await?;
            audit_everywhere(&change, user, "person.remove_second_factor", json!({})).await
        })
        .await?;
        if let Some(post) = self.post() {
            post.second_factor_changed(email, false, false);
        }
        Ok(())
    }

    async fn mail_second_factor(&self, user: Uuid, is_on: bool) -> Result<()> {
        let Some(post) = self.post() else { return Ok(()) };
        if let Some((email, has_factor)) = self.address_and_factor(user).await? {
            post.second_factor_changed(&email, is_on, has_factor);
        }
        Ok(())
    }

    pub(super) async fn address_and_factor(&self, user: Uuid) -> Result<Option<(String, bool)>> {
        self.look(|tx| async move {
            let email = shown(&tx, user).await?.and_then(|user| user.email);
            let has_factor = in_force(&tx, user, Read::Snapshot).await?.is_some();
            Ok(email.map(|email| (email, has_factor)))
        })
        .await
    }

    /// [`Self::refuse_wrong_factor`] where an account without a second factor is a mistake of the caller.
    async fn require_factor(&self, caller: &Caller, user: Uuid, checked: FactorCheck) -> Result<()> {
        if checked == FactorCheck::NotNeeded {
            return Err(Error::Conflict("you have no second factor: turn one on first".into()));
        }
        self.refuse_wrong_factor(caller, user, checked).await
    }

    /// The answer to somebody who is signed in and has shown a factor. The audit log has an entry for a wrong factor.
    pub(super) async fn refuse_wrong_factor(
        &self,
        caller: &Caller,
        user: Uuid,
        checked: FactorCheck,
    ) -> Result<()> {
        if checked.passes() {
            return Ok(());
        }
        // The transaction that found a copied passkey has written its entry.
        if checked.is_refusal() && checked != FactorCheck::PasskeyCopied {
            let action = match checked {
                FactorCheck::PasskeyWrong => "person.refuse_passkey",
                _ => "person.refuse_code",
            };
            self.change(caller.into(), &Once::unnamed()?, |change| async move {
                audit_everywhere(&change, user, action, json!({})).await
            })
            .await?;
        }
        checked.in_session(self.now_ms())
    }

    /// Checks the second factor that a request shows, and spends it. A wrong code is counted, so the transaction has to be committed
    /// then, too.
    pub(super) async fn take_factor(
        &self,
        change: &Change,
        user: Uuid,
        shown: PresentedFactor<'_>,
    ) -> Result<FactorCheck> {
        let (tx, now_ms) = (&change.tx, change.now_ms);
        let Some(mut record) = in_force(tx, user, Read::Serializable).await? else {
            return Ok(match shown.purpose {
                Purposed::Discovery => FactorCheck::PasskeyWrong,
                _ => FactorCheck::NotNeeded,
            });
        };
        if let Some(passkey) = shown.passkey {
            let checked = self.take_passkey(change, user, &mut record, passkey, shown.purpose).await?;
            if checked.passes() {
                accounts::second_factors().put(tx, user.as_bytes(), &record).await?;
            }
            return Ok(checked);
        }
        let Some(code) = shown.code.map(typed).filter(|code| !code.expose().is_empty()) else {
            return Ok(FactorCheck::Missing);
        };
        let is_digits = code.expose().bytes().all(|byte| byte.is_ascii_digit()) && code.expose().len() == 6;
        let checked = if is_digits && record.enabled_at_ms.is_some() {
            self.take_step(user, &mut record, &code, now_ms)?
        } else {
            let shown = self.recovery_hash(user, &record, &code)?;
            let found = record.recovery.iter().position(|hash| hash.ct_eq(&shown).into());
            found.map_or(FactorCheck::Wrong, |at| {
                record.recovery.remove(at);
                FactorCheck::Right
            })
        };
        accounts::second_factors().put(tx, user.as_bytes(), &record).await?;
        Ok(checked)
    }

    fn key_with(&self, id: u32) -> Result<&HashKey> {
        let found = self.0.keys.iter().find(|key| key.id == id);
        found.ok_or(Error::Internal("the key of a second factor is not there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_of_a_server_whose_sets_had_no_id_can_be_read() {
        let id = Uuid::from_u128(7);
        let read = |receipt| serde_json::from_value::<StoredCheck>(receipt).unwrap().split();
        assert_eq!(read(json!("Right")), (FactorCheck::Right, None));
        assert_eq!(read(json!(["Wrong", id])), (FactorCheck::Wrong, Some(id)));
        let stored = serde_json::to_value(StoredCheck::Set(FactorCheck::Right, id)).unwrap();
        assert_eq!(stored, json!(["Right", id]));
    }
}
