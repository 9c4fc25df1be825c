//! Passkeys of people (WebAuthn): a second factor beside codes, and a way to sign in without a password.
//!
//! Passkeys are in the record of the second factor, so one transaction sees all factors of an account. A challenge is signed and not
//! stored: it names its ceremony, its account and its end. The transaction that accepts an answer stores the challenge as spent until
//! that end, so requests of strangers write nothing.

mod answers;
mod challenges;
mod record;
mod shapes;

use millrace_layers::accounts::{self};
use millrace_storage::{Read, Transaction};
use serde_json::json;
use uuid::Uuid;

use super::accounts::{audit_everywhere, found, get as account, person_of};
use super::check::{FieldErrors, room};
use super::second_factor::{self, Factors, Proof};
use super::{Caller, Control, Error, Once, Result, web_sessions};
use crate::limits::{
    ATTESTATION_BYTES_MAX, CLIENT_DATA_BYTES_MAX, PASSKEY_CHALLENGE_MS, PASSKEY_TRANSPORTS_MAX, PASSKEYS_MAX,
};
use crate::secret::{Hash, letters};
use crate::webauthn::{ALGORITHMS, Ceremony, ClientData, PasskeyRefusal, Registration, RelyingParty};
use challenges::spend;
pub(super) use challenges::{Purposed, expire};
pub(super) use record::{StoredPasskey, forget};
use record::{index, owner};
use shapes::decoded;
pub use shapes::{
    NewPasskey, Passkey, PasskeyAdded, PasskeyAssertion, PasskeyChange, PasskeyCreation, PasskeyCredential,
    PasskeyRequest,
};

/// How a browser reaches an authenticator (WebAuthn Level 3 section 5.8.4). Others are not stored.
const TRANSPORTS: [&str; 6] = ["usb", "nfc", "ble", "smart-card", "hybrid", "internal"];

impl Control {
    /// The server in the terms of WebAuthn.
    ///
    /// # Errors
    /// [`Error::Conflict`] where the console's URL has no name that passkeys can be bound to.
    fn relying_party(&self) -> Result<RelyingParty> {
        self.0.console_url.get().and_then(|url| RelyingParty::of(url)).ok_or_else(|| {
            let what = "passkeys do not work here: the operator of this server must set public_url to an https URL with a host name";
            Error::Conflict(what.into())
        })
    }

    /// Origin of the pages on which passkeys work; `None`: they do not work here.
    pub(crate) fn passkey_origin(&self) -> Option<String> {
        self.relying_party().ok().map(|rp| rp.origin)
    }

    pub(crate) async fn passkeys(&self, caller: &Caller) -> Result<Vec<Passkey>> {
        let (user, _) = person_of(caller)?;
        let factors =
            self.look(|tx| async move { second_factor::get(&tx, user, Read::Snapshot).await }).await?;
        Ok(factors.iter().flat_map(|factors| &factors.passkeys).map(StoredPasskey::shown).collect())
    }

    /// Begins to add a passkey, for a caller who shows the password and the second factor in force.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a person without a password, and with [`PASSKEYS_MAX`] passkeys.
    pub(crate) async fn begin_passkey(&self, caller: &Caller, input: &Proof) -> Result<PasskeyCreation> {
        let ((user, sign_in), rp) = (person_of(caller)?, self.relying_party()?);
        let proof = &self.check_password(user, "password", &input.password).await?;
        let checked = self
            .change(caller.into(), &Once::unnamed()?, |change| async move {
                proof.holds(&change, caller).await?;
                let factors = second_factor::get(&change.tx, user, Read::Serializable).await?;
                room(factors.map_or(0, |factors| factors.passkeys.len()), PASSKEYS_MAX, "passkeys of yours")?;
                self.take_factor(&change, user, input.shown(sign_in)).await
            })
            .await?;
        // Only now is a wrong factor an error: it would undo the transaction, which counts the attempt.
        self.refuse_wrong_factor(caller, user, checked).await?;
        let (record, factors) = self
            .look(|tx| async move {
                let record = found(account(&tx, user, Read::Snapshot).await?)?;
                Ok((record, second_factor::get(&tx, user, Read::Snapshot).await?))
            })
            .await?;
        let is_in_force = factors.as_ref().is_some_and(Factors::is_in_force);
        let bound = self.addition_bound(sign_in, user, &record, is_in_force)?;
        Ok(PasskeyCreation {
            challenge: self.new_challenge(Purposed::Addition(&bound), user)?,
            rp_id: rp.id,
            user_handle: letters(user.as_bytes()),
            user_name: record.email,
            algorithms: ALGORITHMS.to_vec(),
            exclude: factors
                .iter()
                .flat_map(|factors| &factors.passkeys)
                .map(StoredPasskey::credential)
                .collect(),
            timeout_ms: PASSKEY_CHALLENGE_MS,
        })
    }

    /// The first second factor of an account ends the caller's other web sessions.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a wrong answer, [`Error::Conflict`] for a challenge that is over and a credential that is registered.
    pub(crate) async fn add_passkey(
        &self,
        caller: &Caller,
        input: &NewPasskey,
        once: &Once,
    ) -> Result<PasskeyAdded> {
        let ((user, sign_in), rp) = (person_of(caller)?, self.relying_party()?);
        check(input)?;
        let (client_data, registration) = &read_registration(input, &rp)?;
        let known = TRANSPORTS.into_iter().filter(|name| input.transports.iter().any(|other| other == name));
        let transports: &Vec<String> = &known.map(Into::into).collect();
        let (id, set) = (self.new_id()?, self.new_id()?);
        let codes = &self.recovery_codes(once, user, Some(set))?.recovery_codes;
        let (passkey, set) = self
            .change(caller.into(), once, |change| async move {
                let tx = &change.tx;
                web_sessions::still_there(tx, sign_in, change.now_ms, Read::Serializable).await?;
                let record = found(account(tx, user, Read::Serializable).await?)?;
                let mut factors = second_factor::get(tx, user, Read::Serializable).await?.unwrap_or_default();
                let bound = self.addition_bound(sign_in, user, &record, factors.is_in_force())?;
                self.spend_addition(tx, &client_data.challenge, &bound, user).await?;
                room(factors.passkeys.len(), PASSKEYS_MAX, "passkeys of yours")?;
                if owner(tx, &registration.credential_id, Read::Serializable).await?.is_some() {
                    return Err(Error::Conflict("this passkey is registered already".into()));
                }
                let is_first = !factors.is_in_force();
                if is_first {
                    self.put_recovery_codes(&mut factors, user, codes)?;
                    web_sessions::end_all(tx, user, Some(sign_in)).await?;
                }
                let stored = StoredPasskey {
                    id,
                    name: input.name.clone(),
                    credential: letters(&registration.credential_id),
                    key: registration.key.clone(),
                    counter: registration.counter,
                    is_backup_eligible: registration.is_backup_eligible,
                    transports: transports.clone(),
                    created_at_ms: change.now_ms,
                    last_used_at_ms: None,
                    password: self.password_of(user, &record)?,
                };
                let passkey = stored.shown();
                factors.passkeys.push(stored);
                second_factor::put(tx, user, &factors).await?;
                accounts::passkey_owners().put(tx, &index(&registration.credential_id), &user).await?;
                audit_everywhere(&change, user, "person.add_passkey", json!({ "passkey": input.name }))
                    .await?;
                Ok((passkey, is_first.then_some(set)))
            })
            .await?;
        self.mail_passkey(user, &passkey.name, true).await?;
        let recovery_codes = match set {
            Some(set) => self.recovery_codes(once, user, Some(set))?.recovery_codes,
            None => Vec::new(),
        };
        Ok(PasskeyAdded { passkey, recovery_codes })
    }

    async fn spend_addition(
        &self,
        tx: &Transaction,
        challenge: &[u8],
        bound: &Hash,
        user: Uuid,
    ) -> Result<()> {
        let over = || Error::Conflict("this addition has expired, or was finished: begin again".into());
        let open = self.open_challenge(challenge, Purposed::Addition(bound), user)?;
        spend(tx, &open.ok_or_else(over)?).await?.then_some(()).ok_or_else(over)
    }

    pub(crate) async fn rename_passkey(
        &self,
        caller: &Caller,
        id: Uuid,
        input: &PasskeyChange,
        once: &Once,
    ) -> Result<Passkey> {
        let (user, sign_in) = person_of(caller)?;
        let mut fields = FieldErrors::default();
        fields.name("name", &input.name);
        fields.done()?;
        self.change(caller.into(), once, |change| async move {
            web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
            let mut factors =
                second_factor::get(&change.tx, user, Read::Serializable).await?.unwrap_or_default();
            let passkey = factors.passkeys.iter_mut().find(|passkey| passkey.id == id);
            let passkey = passkey.ok_or(Error::NotFound("passkey"))?;
            let before = std::mem::replace(&mut passkey.name, input.name.clone());
            let shown = passkey.shown();
            second_factor::put(&change.tx, user, &factors).await?;
            let details = json!({ "passkey": input.name, "before": before });
            audit_everywhere(&change, user, "person.rename_passkey", details).await?;
            Ok(shown)
        })
        .await
    }

    /// Without another factor the recovery codes go, too.
    pub(crate) async fn remove_passkey(&self, caller: &Caller, id: Uuid, input: &Proof) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let proof = &self.check_password(user, "password", &input.password).await?;
        let (checked, name) = self
            .change(caller.into(), &Once::unnamed()?, |change| async move {
                change.use_reserve();
                let tx = &change.tx;
                proof.holds(&change, caller).await?;
                let has = |factors: &Factors| factors.passkeys.iter().any(|passkey| passkey.id == id);
                if !second_factor::get(tx, user, Read::Serializable).await?.as_ref().is_some_and(has) {
                    return Err(Error::NotFound("passkey"));
                }
                let checked = self.take_factor(&change, user, input.shown(sign_in)).await?;
                if !checked.passes() {
                    return Ok((checked, String::new()));
                }
                let mut factors = second_factor::get(tx, user, Read::Serializable).await?.unwrap_or_default();
                let (gone, left) =
                    factors.passkeys.into_iter().partition::<Vec<_>, _>(|passkey| passkey.id == id);
                factors.passkeys = left;
                forget(tx, &gone).await?;
                second_factor::put(tx, user, &factors).await?;
                let name = gone.first().map_or("", |passkey| &passkey.name);
                // Somebody who had the passkey may have opened any of the other web sessions with it.
                web_sessions::end_all(tx, user, Some(sign_in)).await?;
                audit_everywhere(&change, user, "person.remove_passkey", json!({ "passkey": name })).await?;
                Ok((checked, name.to_owned()))
            })
            .await?;
        self.refuse_wrong_factor(caller, user, checked).await?;
        self.mail_passkey(user, &name, false).await
    }

    async fn mail_passkey(&self, user: Uuid, name: &str, is_new: bool) -> Result<()> {
        let Some(post) = self.post() else { return Ok(()) };
        if let Some((email, has_factor)) = self.address_and_factor(user).await? {
            post.passkey_changed(&email, name, is_new, has_factor);
        }
        Ok(())
    }
}

fn check(input: &NewPasskey) -> Result<()> {
    let mut fields = FieldErrors::default();
    fields.name("name", &input.name);
    if input.transports.len() > PASSKEY_TRANSPORTS_MAX {
        fields.add("transports", format!("has more than {PASSKEY_TRANSPORTS_MAX} entries"));
    }
    fields.done()
}

/// Decodes and verifies the browser's answer to the creation of a passkey. An error names the field that is wrong.
fn read_registration(input: &NewPasskey, rp: &RelyingParty) -> Result<(ClientData, Registration)> {
    let bytes = |field, text, bytes_max: usize| {
        decoded(text, bytes_max).ok_or_else(|| {
            let most = bytes_max.div_ceil(3) * 4;
            Error::field(
                field,
                format!("must be Base64 for URLs without padding, of at most {most} characters"),
            )
        })
    };
    let client_data = bytes("client_data", &input.client_data, CLIENT_DATA_BYTES_MAX)?;
    let attestation = bytes("attestation_object", &input.attestation_object, ATTESTATION_BYTES_MAX)?;
    let refused = |refusal: PasskeyRefusal| {
        let is_client_data = matches!(
            refusal,
            PasskeyRefusal::ClientData
                | PasskeyRefusal::Type
                | PasskeyRefusal::Origin
                | PasskeyRefusal::CrossOrigin
        );
        Error::field(if is_client_data { "client_data" } else { "attestation_object" }, refusal.to_string())
    };
    let client_data = ClientData::read(&client_data, Ceremony::Registration, rp).map_err(refused)?;
    let registration = Registration::read(&attestation, rp).map_err(refused)?;
    Ok((client_data, registration))
}
