//! The second factors of people who sign in with a password: codes of a device (TOTP, RFC 6238: SHA-1, six digits, 30 s), passkeys
//! ([`super::passkeys`]), and recovery codes for a lost device. One record of an account has all of them.
//!
//! The device's secret is sealed with the region's key. Recovery codes have 80 random bits, so a keyed hash without salt and rounds hides
//! them. A code is spent in the transaction that takes it, so of two requests at once with the same code one is refused.

use std::net::IpAddr;

use millrace_layers::accounts;
use millrace_layers::accounts::keys::Key;
use millrace_storage::{Read, Transaction};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use totp_rs::{Builder, Secret as DeviceSecret, Totp};
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{audit_everywhere, by_email, person_of, shown};
use super::audit::{Actor, ActorKind};
use super::change::Change;
use super::passkeys::{self, PasskeyAssertion, PasskeyRequest, Purposed, Stored};
use super::{Caller, Control, Error, Once, Result, web_sessions};
use crate::limits::{
    RECOVERY_CODES, SECOND_FACTOR_PENDING_MS, WRONG_CODES_MAX, WRONG_CODES_MS, WRONG_FIRST_CODES_MAX,
};
use crate::secret::{self, Hash, Purpose, Sealed, Secret};

/// The name of this service in authenticator apps.
const ISSUER: &str = "Millrace";
/// Bytes of a device's secret: what RFC 4226 section 4 advises.
const SECRET_BYTES: usize = 20;
/// Bytes of a recovery code: 16 letters and digits.
const RECOVERY_CODE_BYTES: usize = 10;
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The second factor of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SecondFactor {
    /// Whether signing in with the password asks for a second factor: a code of an authenticator app, or a passkey.
    pub enabled: bool,
    /// Since when the oldest of them is in force, in unix milliseconds; null: there is none.
    pub enabled_at: Option<u64>,
    /// Since when the authenticator app is in force, in unix milliseconds; null: there is none.
    pub app_enabled_at: Option<u64>,
    /// Number of passkeys.
    pub passkeys: usize,
    /// Recovery codes that were not used.
    pub recovery_codes_left: usize,
}

/// The account whose second factor an operator removes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecondFactorRemoval {
    /// E-mail address of the account.
    #[schema(example = "ann@example.org", format = Email, max_length = 254)]
    pub email: String,
}

/// The first code of a device.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FirstCode {
    /// The six digits that the device shows.
    #[schema(value_type = String, format = Password, example = "492039")]
    pub code: Secret,
}

/// A password, and the second factor of an account that has one: it shows that the request comes from the person.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The password of the account.
    #[schema(value_type = String, format = Password)]
    pub password: Secret,
    /// The six digits that the device shows, or a recovery code.
    #[schema(value_type = Option<String>, format = Password, example = "492039", max_length = 64)]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge of POST /me/passkeys/challenge.
    pub passkey: Option<PasskeyAssertion>,
}

pub(super) struct Shown<'a> {
    pub(super) code: Option<&'a Secret>,
    pub(super) passkey: Option<&'a PasskeyAssertion>,
    /// The challenge of the passkey must have this purpose.
    pub(super) purpose: Purposed<'a>,
}

impl Proof {
    pub(super) fn shown<'a>(&'a self, sign_in: &'a Hash) -> Shown<'a> {
        let (code, passkey) = (self.code.as_ref(), self.passkey.as_ref());
        Shown { code, passkey, purpose: Purposed::InSession(sign_in) }
    }
}

/// The secret for a device. It is shown once, and in force when the first code is confirmed.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeviceKey {
    /// The secret in Base32, to be typed in.
    #[schema(value_type = String, example = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP")]
    pub secret: Secret,
    /// The same for authenticator apps, as a QR code shows it.
    #[schema(value_type = String, example = "otpauth://totp/Millrace:ann%40example%2Eorg?secret=JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP&issuer=Millrace&algorithm=SHA1&digits=6&period=30")]
    pub uri: Secret,
}

/// Recovery codes, which are shown once. Each replaces a code of the device or a passkey once.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecoveryCodes {
    /// The codes. Empty if the account has some already, because a passkey came first.
    #[schema(value_type = Vec<String>, example = json!(["k3vx-9m2c-t7qa-hd5w"]))]
    pub recovery_codes: Vec<Secret>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Factors {
    /// The secret of the device. A server from before passkeys cannot read a record without one, and then refuses the sign-in.
    device: Option<Sealed>,
    /// Key that hashes the recovery codes; records from before passkeys have none, see [`Self::with_recovery_key`].
    #[serde(default)]
    recovery_key: Option<u32>,
    #[serde(default)]
    pub(super) passkeys: Vec<Stored>,
    /// Of the device; `None`: it waits for its first code, until `pending_until_ms`.
    enabled_at_ms: Option<u64>,
    pending_until_ms: u64,
    /// Time step of the last code that was taken: it and those before are not taken again.
    last_step: u64,
    recovery: Vec<Hash>,
    /// Wrong codes since `wrong_since_ms`, or since it waits for its first code.
    wrong: u32,
    wrong_since_ms: u64,
    /// When a new password cleared the count last.
    #[serde(default)]
    cleared_at_ms: u64,
}

/// The part of the answer with recovery codes that the receipt stores.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredCheck {
    Set(Checked, Uuid),
    /// Of a server whose sets had no id. Receipts are stored for a day.
    NoId(Checked),
}

impl StoredCheck {
    fn split(self) -> (Checked, Option<Uuid>) {
        match self {
            Self::Set(checked, id) => (checked, Some(id)),
            Self::NoId(checked) => (checked, None),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Checked {
    NotNeeded,
    Missing,
    Right,
    /// The same, and the recovery codes from before stay.
    RightWithOldCodes,
    Wrong,
    Passkey,
    PasskeyWrong,
    /// The signature counter of the passkey went back.
    PasskeyCopied,
    /// The passkey has answered, but the password was changed since its last use after the password.
    PasskeyNeedsPassword,
    /// Too many were wrong before, so this one was not looked at.
    TooMany {
        until_ms: u64,
    },
}

impl Checked {
    pub(super) fn passes(self) -> bool {
        matches!(self, Self::NotNeeded | Self::Right | Self::RightWithOldCodes | Self::Passkey)
    }

    /// Whether a factor was shown, and refused.
    pub(super) fn is_refusal(self) -> bool {
        !self.passes() && self != Self::Missing
    }

    pub(super) fn at_sign_in(self, now_ms: u64, asked: Option<PasskeyRequest>) -> Result<()> {
        match self {
            Self::NotNeeded | Self::Right | Self::RightWithOldCodes | Self::Passkey => Ok(()),
            Self::Missing => Err(Error::CodeNeeded(asked.map(Box::new))),
            Self::Wrong => Err(Error::CodeWrong),
            Self::PasskeyWrong | Self::PasskeyNeedsPassword => Err(Error::PasskeyWrong(PASSKEY_WRONG)),
            Self::PasskeyCopied => Err(Error::PasskeyWrong(PASSKEY_COPIED)),
            Self::TooMany { until_ms } => Err(too_many(until_ms, now_ms)),
        }
    }

    pub(super) fn in_session(self, now_ms: u64) -> Result<()> {
        match self {
            Self::NotNeeded | Self::Right | Self::RightWithOldCodes | Self::Passkey => Ok(()),
            Self::Missing => Err(Error::field("code", "is missing: your account has a second factor")),
            Self::Wrong => Err(Error::field("code", "is not right, or was used before")),
            Self::PasskeyWrong | Self::PasskeyNeedsPassword => Err(Error::field("passkey", PASSKEY_WRONG)),
            Self::PasskeyCopied => Err(Error::field("passkey", PASSKEY_COPIED)),
            Self::TooMany { until_ms } => Err(too_many(until_ms, now_ms)),
        }
    }
}

const PASSKEY_WRONG: &str =
    "the answer of the passkey is not right, was used before, or came too late: try again";
const PASSKEY_COPIED: &str = "the passkey may have been copied, because its signature counter went back: use another factor, and remove it";

fn too_many(until_ms: u64, now_ms: u64) -> Error {
    Error::TooManyCodes(until_ms.saturating_sub(now_ms).div_ceil(1_000).max(1))
}

impl Control {
    pub(crate) async fn second_factor(&self, caller: &Caller) -> Result<SecondFactor> {
        let (user, _) = person_of(caller)?;
        let found = self.look(|tx| async move { in_force(&tx, user, Read::Snapshot).await }).await?;
        let found = found.unwrap_or_default();
        let oldest = found.passkeys.iter().map(Stored::created_at_ms).chain(found.enabled_at_ms).min();
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
        self.settle_factor(caller, user, checked).await?;
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
                return Ok(StoredCheck::Set(Checked::Wrong, id));
            };
            let checked = match record.is_in_force() {
                true => Checked::RightWithOldCodes,
                false => {
                    self.put_recovery_codes(&mut record, user, shown)?;
                    Checked::Right
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
            (Checked::Right, id) => {
                self.mail_second_factor(user, true).await?;
                self.recovery_codes(once, user, id)
            }
            (Checked::RightWithOldCodes, _) => {
                self.mail_second_factor(user, true).await?;
                Ok(RecoveryCodes { recovery_codes: Vec::new() })
            }
            _ => Err(Error::field("code", "is not the one that the device shows now")),
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
            if matches!(checked, Checked::Right | Checked::Passkey) {
                let record = in_force(&change.tx, user, Read::Serializable).await?;
                let mut record = record.ok_or(Error::NotFound("second factor"))?;
                self.put_recovery_codes(&mut record, user, shown)?;
                accounts::second_factors().put(&change.tx, user.as_bytes(), &record).await?;
                audit_everywhere(&change, user, "person.renew_recovery_codes", json!({})).await?;
            }
            Ok(StoredCheck::Set(checked, id))
        });
        let (checked, id) = checked.await?.split();
        self.settle_needed(caller, user, checked).await?;
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
            if matches!(checked, Checked::Right | Checked::Passkey) {
                let record = in_force(tx, user, Read::Serializable).await?;
                let mut record = record.ok_or(Error::NotFound("second factor"))?;
                (record.device, record.enabled_at_ms) = (None, None);
                put(tx, user, &record).await?;
                audit_everywhere(&change, user, "person.disable_second_factor", json!({})).await?;
            }
            Ok(checked)
        });
        self.settle_needed(caller, user, checked.await?).await?;
        self.mail_second_factor(user, false).await
    }

    /// Removes the second factor of a person who has lost the device and the recovery codes, and ends all web sessions of the account.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an address without an account, [`Error::Conflict`] for an account without a second factor.
    pub(crate) async fn remove_second_factor(
        &self,
        input: &SecondFactorRemoval,
        address: Option<IpAddr>,
    ) -> Result<()> {
        let email = &input.email.to_lowercase();
        let operator = Actor::new(ActorKind::Operator, "operator", address);
        self.change(operator, &Once::unnamed()?, |change| async move {
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

    /// Mails the owner of an account that its second factor was turned on or off, where the server sends mail.
    async fn mail_second_factor(&self, user: Uuid, is_on: bool) -> Result<()> {
        let Some(post) = self.post() else { return Ok(()) };
        if let Some((email, has_factor)) = self.address_and_factor(user).await? {
            post.second_factor_changed(&email, is_on, has_factor);
        }
        Ok(())
    }

    /// The address for mails to a person, and whether a second factor is in force.
    pub(super) async fn address_and_factor(&self, user: Uuid) -> Result<Option<(String, bool)>> {
        self.look(|tx| async move {
            let email = shown(&tx, user).await?.and_then(|user| user.email);
            let has_factor = in_force(&tx, user, Read::Snapshot).await?.is_some();
            Ok(email.map(|email| (email, has_factor)))
        })
        .await
    }

    /// [`Self::settle_factor`] where an account without a second factor is a mistake of the caller.
    async fn settle_needed(&self, caller: &Caller, user: Uuid, checked: Checked) -> Result<()> {
        if checked == Checked::NotNeeded {
            return Err(Error::Conflict("you have no second factor".into()));
        }
        self.settle_factor(caller, user, checked).await
    }

    /// The answer to somebody who is signed in and has shown a factor. The audit log has those that were wrong.
    pub(super) async fn settle_factor(&self, caller: &Caller, user: Uuid, checked: Checked) -> Result<()> {
        if checked.passes() {
            return Ok(());
        }
        // The transaction that found a copied passkey has written its entry.
        if checked.is_refusal() && checked != Checked::PasskeyCopied {
            let action = match checked {
                Checked::PasskeyWrong => "person.refuse_passkey",
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
    pub(super) async fn take_factor(&self, change: &Change, user: Uuid, shown: Shown<'_>) -> Result<Checked> {
        let (tx, now_ms) = (&change.tx, change.now_ms);
        let Some(mut record) = in_force(tx, user, Read::Serializable).await? else {
            return Ok(match shown.purpose {
                Purposed::Discovery => Checked::PasskeyWrong,
                _ => Checked::NotNeeded,
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
            return Ok(Checked::Missing);
        };
        let is_digits = code.expose().bytes().all(|byte| byte.is_ascii_digit()) && code.expose().len() == 6;
        let checked = if is_digits && record.enabled_at_ms.is_some() {
            self.take_step(user, &mut record, &code, now_ms)?
        } else {
            let shown = self.recovery_hash(user, &record, &code)?;
            let found = record.recovery.iter().position(|hash| hash.ct_eq(&shown).into());
            found.map_or(Checked::Wrong, |at| {
                record.recovery.remove(at);
                Checked::Right
            })
        };
        accounts::second_factors().put(tx, user.as_bytes(), &record).await?;
        Ok(checked)
    }

    fn take_step(&self, user: Uuid, record: &mut Factors, code: &Secret, now_ms: u64) -> Result<Checked> {
        let until_ms = record.wrong_since_ms + WRONG_CODES_MS;
        if until_ms <= now_ms {
            (record.wrong, record.wrong_since_ms) = (0, now_ms);
        } else if record.wrong >= WRONG_CODES_MAX {
            return Ok(Checked::TooMany { until_ms });
        }
        Ok(match self.step_of(user, record, code, now_ms)?.filter(|step| *step > record.last_step) {
            Some(step) => {
                record.last_step = step;
                Checked::Right
            }
            None => {
                record.wrong += 1;
                Checked::Wrong
            }
        })
    }

    /// The time step that a code of the device is of: the present one, or one beside it.
    fn step_of(&self, user: Uuid, record: &Factors, code: &Secret, now_ms: u64) -> Result<Option<u64>> {
        let device = record.device.as_ref().ok_or(Error::NotFound("authenticator app"))?;
        let opened = device.open(self.key_with(device.key)?, user.as_bytes());
        let device = opened.ok_or(Error::Internal("a second factor cannot be opened"))?;
        Ok(totp(device).check(code.expose(), now_ms / 1_000))
    }

    /// The codes of a request: sent again, it gets the same. The receipt stores the random `id` of the set, so that a key
    /// that is used again after its receipt has expired gives other codes.
    pub(super) fn recovery_codes(&self, once: &Once, user: Uuid, id: Option<Uuid>) -> Result<RecoveryCodes> {
        let code = |number: usize| {
            let id = id.as_ref().map_or(&[][..], |id| id.as_bytes());
            let made = [&b"recovery code"[..], user.as_bytes(), id, &number.to_be_bytes()].concat();
            Ok(Secret::from(written(&self.bytes_of(once, &made)?).as_str()))
        };
        Ok(RecoveryCodes { recovery_codes: (0..RECOVERY_CODES).map(code).collect::<Result<_>>()? })
    }

    pub(super) fn put_recovery_codes(
        &self,
        record: &mut Factors,
        user: Uuid,
        codes: &[Secret],
    ) -> Result<()> {
        record.recovery_key = Some(self.key()?.id);
        let hashes = codes.iter().map(|code| self.recovery_hash(user, record, &typed(code)));
        record.recovery = hashes.collect::<Result<_>>()?;
        Ok(())
    }

    fn recovery_hash(&self, user: Uuid, record: &Factors, code: &Secret) -> Result<Hash> {
        let key = record.recovery_key.ok_or(Error::Internal("a second factor has no recovery codes"))?;
        let key = self.key_with(key)?;
        Ok(secret::hash(key, Purpose::RecoveryCode, &[user.as_bytes(), code.expose().as_bytes()]))
    }

    fn key_with(&self, id: u32) -> Result<&Key> {
        let found = self.0.keys.iter().find(|key| key.id == id);
        found.ok_or(Error::Internal("the key of a second factor is not there"))
    }
}

fn totp(device: Vec<u8>) -> Totp {
    Builder::new().with_secret(device).build_noncompliant()
}

/// A code as people type it: apps and our own page write it in groups.
fn typed(code: &Secret) -> Secret {
    let plain = code.expose().chars().filter(|char| !char.is_whitespace() && *char != '-');
    let plain: String = plain.map(|char| char.to_ascii_lowercase()).collect();
    plain.as_str().into()
}

/// 80 bits in four groups of letters and digits that cannot be mistaken for each other.
fn written(bytes: &Hash) -> String {
    let mut bits = bytes[..RECOVERY_CODE_BYTES].iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
    let mut text = String::new();
    for place in 0..RECOVERY_CODE_BYTES * 8 / 5 {
        if place > 0 && place % 4 == 0 {
            text.push('-');
        }
        text.push(char::from(ALPHABET[(bits & 31) as usize]));
        bits >>= 5;
    }
    text
}

impl Factors {
    /// In records from before passkeys the key of the device hashes the recovery codes. They stay valid without the device.
    fn with_recovery_key(mut self) -> Self {
        self.recovery_key = self.recovery_key.or(self.device.as_ref().map(|device| device.key));
        self
    }

    /// Whether a sign-in with the password asks for a second factor.
    pub(super) fn is_in_force(&self) -> bool {
        self.enabled_at_ms.is_some() || !self.passkeys.is_empty()
    }
}

async fn in_force(tx: &Transaction, user: Uuid, read: Read) -> Result<Option<Factors>> {
    Ok(get(tx, user, read).await?.filter(Factors::is_in_force))
}

/// Without a factor in force the whole record goes, with its recovery codes.
pub(super) async fn put(tx: &Transaction, user: Uuid, record: &Factors) -> Result<()> {
    match record.is_in_force() {
        true => accounts::second_factors().put(tx, user.as_bytes(), record).await.map(drop)?,
        false => accounts::second_factors().clear(tx, user.as_bytes()).await?,
    }
    Ok(())
}

pub(super) async fn clear(tx: &Transaction, user: Uuid) -> Result<()> {
    if let Some(record) = get(tx, user, Read::Serializable).await? {
        passkeys::forget(tx, &record.passkeys).await?;
    }
    Ok(accounts::second_factors().clear(tx, user.as_bytes()).await?)
}

/// Clears the count of wrong codes, because somebody who knew the old password may have used it up. It does so once in [`WRONG_CODES_MS`]:
/// otherwise somebody who can set the password again and again, such as a reader of the person's mail, could try codes without end.
pub(super) async fn clear_wrong_codes(change: &Change, user: Uuid) -> Result<()> {
    let Some(mut record) = in_force(&change.tx, user, Read::Serializable).await? else { return Ok(()) };
    if record.cleared_at_ms + WRONG_CODES_MS <= change.now_ms {
        (record.wrong, record.cleared_at_ms) = (0, change.now_ms);
        accounts::second_factors().put(&change.tx, user.as_bytes(), &record).await?;
    }
    Ok(())
}

pub(super) async fn is_enabled(tx: &Transaction, user: Uuid) -> Result<bool> {
    Ok(in_force(tx, user, Read::Serializable).await?.is_some())
}

pub(super) async fn get(tx: &Transaction, user: Uuid, read: Read) -> Result<Option<Factors>> {
    let found = accounts::second_factors().get::<Factors>(tx, user.as_bytes(), read).await?;
    Ok(found.map(|found| found.value.with_recovery_key()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_code_is_80_bits_in_groups_and_may_be_typed_in_any_case() {
        let code = written(&[0xff; 32]);
        assert_eq!(code, "9999-9999-9999-9999");
        assert_eq!(written(&[0; 32]), "aaaa-aaaa-aaaa-aaaa");
        assert_eq!(typed(&" AAAA-aaaa aaaa-AAAA\n".into()).expose(), "aaaaaaaaaaaaaaaa");
    }

    #[test]
    fn recovery_codes_from_before_passkeys_have_the_key_of_the_device_also_without_it() {
        let with_device = |recovery_key| {
            let device = serde_json::from_value(json!({ "key": 3, "text": "" })).unwrap();
            let record = Factors { device: Some(device), recovery_key, ..Factors::default() };
            let mut record = serde_json::to_value(record).unwrap();
            if recovery_key.is_none() {
                record.as_object_mut().unwrap().remove("recovery_key");
            }
            serde_json::from_value::<Factors>(record).unwrap().with_recovery_key()
        };
        assert_eq!(with_device(Some(4)).recovery_key, Some(4));
        let mut old = with_device(None);
        old.device = None;
        assert_eq!(old.with_recovery_key().recovery_key, Some(3));
    }

    #[test]
    fn codes_are_those_of_rfc_6238() {
        // Appendix B, whose codes have eight digits: the last six of them.
        let totp = totp(b"12345678901234567890".to_vec());
        for (time, code) in [(59, "287082"), (1_111_111_109, "081804"), (20_000_000_000, "353130")] {
            assert_eq!(totp.check(code, time), Some(time / 30));
            assert_eq!(totp.check(code, time + 30), Some(time / 30));
            assert_eq!(totp.check(code, time + 60 + 30), None);
        }
    }

    #[test]
    fn a_receipt_of_a_server_whose_sets_had_no_id_can_be_read() {
        let id = Uuid::from_u128(7);
        let read = |receipt| serde_json::from_value::<StoredCheck>(receipt).unwrap().split();
        assert_eq!(read(json!("Right")), (Checked::Right, None));
        assert_eq!(read(json!(["Wrong", id])), (Checked::Wrong, Some(id)));
        let stored = serde_json::to_value(StoredCheck::Set(Checked::Right, id)).unwrap();
        assert_eq!(stored, json!(["Right", id]));
    }
}
