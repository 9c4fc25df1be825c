//! Passkeys of people (WebAuthn): a second factor beside codes, and a way to sign in without a password.
//!
//! Passkeys are in the record of the second factor, so one transaction sees all factors of an account. A challenge is signed and not
//! stored: it names its ceremony, its account and its end. The transaction that accepts an answer stores the challenge as spent until
//! that end, so requests of strangers write nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq as _;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{UserRecord, audit_as, audit_everywhere, found, get as account, person, person_of};
use super::audit::Actor;
use super::change::Change;
use super::check::{Fields, room};
use super::second_factor::{self, Checked, Factors, Proof, Shown};
use super::web_sessions::shortened;
use super::{Caller, Control, Error, Once, RequestSource, Result, SignedIn, web_sessions};
use crate::limits::{
    ATTESTATION_BYTES_MAX, AUTHENTICATOR_DATA_BYTES_MAX, CLIENT_DATA_BYTES_MAX, CREDENTIAL_ID_BYTES_MAX,
    PASSKEY_CHALLENGE_MS, PASSKEY_SIGNATURE_BYTES_MAX, PASSKEYS_MAX, USER_HANDLE_BYTES_MAX,
};
use crate::secret::{Hash, Purpose, Secret, letters, random};
use crate::webauthn::{
    ALGORITHMS, Authentication, Ceremony, ClientData, PublicKey, Refusal, Registration, RelyingParty,
};

/// How a browser reaches an authenticator (WebAuthn Level 3 section 5.8.4). Others are not stored.
const TRANSPORTS: [&str; 6] = ["usb", "nfc", "ble", "smart-card", "hybrid", "internal"];

/// A passkey of the caller. The server knows its public key alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Passkey {
    pub id: Uuid,
    /// Name for its owner.
    #[schema(example = "Laptop")]
    pub name: String,
    /// When it was added, in unix milliseconds.
    pub created_at_ms: u64,
    /// When it was used last, in unix milliseconds; null: never.
    pub last_used_at_ms: Option<u64>,
    /// Whether its provider may copy it to other devices of its owner.
    pub is_synced: bool,
}

/// A credential that may answer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PasskeyCredential {
    /// Credential id in Base64 for URLs.
    #[schema(example = "kPbZl2rVbq0w3nQd8yYxXg")]
    pub id: String,
    /// How the browser may reach it: values of `AuthenticatorTransport`.
    #[schema(example = json!(["internal"]))]
    pub transports: Vec<String>,
}

/// A challenge for `navigator.credentials.get`. It can be answered once, within 5 minutes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PasskeyRequest {
    /// `challenge` in Base64 for URLs.
    pub challenge: String,
    /// `rpId`: the host of this server.
    #[schema(example = "console.example.org")]
    pub rp_id: String,
    /// `allowCredentials`. Empty: any passkey that names its account.
    pub credentials: Vec<PasskeyCredential>,
    /// `userVerification`: `required` without a password, otherwise `preferred`.
    #[schema(example = "preferred")]
    pub user_verification: &'static str,
    /// `timeout`, milliseconds.
    #[schema(example = 300_000)]
    pub timeout_ms: u64,
}

/// A challenge for `navigator.credentials.create`. It can be answered once, within 5 minutes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PasskeyCreation {
    /// `challenge` in Base64 for URLs.
    pub challenge: String,
    /// `rp.id`: the host of this server.
    #[schema(example = "console.example.org")]
    pub rp_id: String,
    /// `user.id` in Base64 for URLs.
    pub user_handle: String,
    /// `user.name` and `user.displayName`.
    #[schema(example = "ann@example.org")]
    pub user_name: String,
    /// `alg` of `pubKeyCredParams`, the preferred one first.
    #[schema(example = json!([-7, -8, -257]))]
    pub algorithms: Vec<i32>,
    /// `excludeCredentials`: passkeys that you have already.
    pub exclude: Vec<PasskeyCredential>,
    /// `timeout`, milliseconds.
    #[schema(example = 300_000)]
    pub timeout_ms: u64,
}

/// A new passkey: the answer of `navigator.credentials.create`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPasskey {
    /// Name for you.
    #[schema(example = "Laptop", min_length = 1, max_length = 100)]
    pub name: String,
    /// `clientDataJSON` in Base64 for URLs.
    #[schema(max_length = 5464)]
    pub client_data: String,
    /// `attestationObject` in Base64 for URLs. Attestation `none` is enough; the server ignores another one.
    #[schema(max_length = 32768)]
    pub attestation_object: String,
    /// The answer of `getTransports()`.
    #[serde(default)]
    #[schema(example = json!(["internal"]), max_items = 16)]
    pub transports: Vec<String>,
}

/// A use of a passkey: the answer of `navigator.credentials.get`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasskeyAssertion {
    /// `id`: the credential id in Base64 for URLs.
    #[schema(max_length = 1364)]
    pub credential_id: String,
    /// `clientDataJSON` in Base64 for URLs.
    #[schema(max_length = 5464)]
    pub client_data: String,
    /// `authenticatorData` in Base64 for URLs.
    #[schema(max_length = 1368)]
    pub authenticator_data: String,
    /// `signature` in Base64 for URLs.
    #[schema(value_type = String, format = Password, max_length = 684)]
    pub signature: Secret,
    /// `userHandle` in Base64 for URLs. A sign-in without a password needs it.
    #[schema(max_length = 88)]
    pub user_handle: Option<String>,
}

/// A change of a passkey.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PasskeyChange {
    /// Name for you.
    #[schema(example = "Laptop", min_length = 1, max_length = 100)]
    pub name: String,
}

/// A passkey that was added.
#[derive(Debug, Serialize, ToSchema)]
pub struct PasskeyAdded {
    pub passkey: Passkey,
    /// With the first second factor of the account: recovery codes, which are shown once. Otherwise empty.
    #[schema(value_type = Vec<String>, example = json!(["k3vx-9m2c-t7qa-hd5w"]))]
    pub recovery_codes: Vec<Secret>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Stored {
    id: Uuid,
    name: String,
    /// Credential id in Base64.
    credential: String,
    key: PublicKey,
    counter: u32,
    is_backup_eligible: bool,
    transports: Vec<String>,
    created_at_ms: u64,
    last_used_at_ms: Option<u64>,
    /// Hash of the password after which the passkey was last used, in Base64. Only while it is the account's password does
    /// the passkey sign in alone, so that a new password ends the access of a thief who added a passkey.
    password: String,
}

/// The ceremony that a challenge is for. An answer to a challenge of another ceremony is refused.
#[derive(Clone, Copy)]
pub(super) enum Purposed<'a> {
    /// Adds a passkey to the account of a web session whose password was right.
    Addition(&'a Hash),
    SecondStep,
    /// Confirms a change in a web session.
    InSession(&'a Hash),
    /// Signs in without a password: no account is known yet.
    Discovery,
}

/// A challenge that this server has signed for a ceremony and that has not expired.
struct Open {
    signature: Hash,
    expires_at_ms: u64,
}

/// An assertion whose parts are decoded and of bounded size.
struct Decoded {
    credential_id: Vec<u8>,
    client_data: Vec<u8>,
    authenticator_data: Vec<u8>,
    signature: Vec<u8>,
    user_handle: Option<Vec<u8>>,
}

impl Stored {
    fn shown(&self) -> Passkey {
        let Self { id, created_at_ms, last_used_at_ms, is_backup_eligible: is_synced, .. } = *self;
        Passkey { id, name: self.name.clone(), created_at_ms, last_used_at_ms, is_synced }
    }

    pub(super) fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    fn credential(&self) -> PasskeyCredential {
        PasskeyCredential { id: self.credential.clone(), transports: self.transports.clone() }
    }
}

impl PasskeyAssertion {
    fn decode(&self) -> Option<Decoded> {
        Some(Decoded {
            credential_id: decoded(&self.credential_id, CREDENTIAL_ID_BYTES_MAX)?,
            client_data: decoded(&self.client_data, CLIENT_DATA_BYTES_MAX)?,
            authenticator_data: decoded(&self.authenticator_data, AUTHENTICATOR_DATA_BYTES_MAX)?,
            signature: decoded(self.signature.expose(), PASSKEY_SIGNATURE_BYTES_MAX)?,
            user_handle: match &self.user_handle {
                Some(handle) => Some(decoded(handle, USER_HANDLE_BYTES_MAX)?),
                None => None,
            },
        })
    }
}

/// Only the one way to write the bytes is read, so that a credential has one id.
fn decoded(text: &str, bytes_max: usize) -> Option<Vec<u8>> {
    if text.len() > bytes_max.div_ceil(3) * 4 {
        return None;
    }
    URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() <= bytes_max)
}

impl Control {
    /// The server in the terms of WebAuthn.
    ///
    /// # Errors
    /// [`Error::Conflict`] where the console's URL has no name that passkeys can be bound to.
    fn relying_party(&self) -> Result<RelyingParty> {
        self.0.console.get().and_then(|url| RelyingParty::of(url)).ok_or_else(|| {
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
        Ok(factors.iter().flat_map(|factors| &factors.passkeys).map(Stored::shown).collect())
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
        self.settle_factor(caller, user, checked).await?;
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
            exclude: factors.iter().flat_map(|factors| &factors.passkeys).map(Stored::credential).collect(),
            timeout_ms: PASSKEY_CHALLENGE_MS,
        })
    }

    /// Adds the passkey that has answered. The first second factor of an account ends the caller's other web sessions.
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
        let mut fields = Fields::default();
        fields.name("name", &input.name);
        fields.done()?;
        let too_long = |field| Error::field(field, "is not Base64 for URLs without padding, or is too long");
        let client_data =
            decoded(&input.client_data, CLIENT_DATA_BYTES_MAX).ok_or_else(|| too_long("client_data"))?;
        let attestation = decoded(&input.attestation_object, ATTESTATION_BYTES_MAX)
            .ok_or_else(|| too_long("attestation_object"))?;
        let refused = |refusal: Refusal| {
            let is_client_data = matches!(
                refusal,
                Refusal::ClientData | Refusal::Type | Refusal::Origin | Refusal::CrossOrigin
            );
            Error::field(
                if is_client_data { "client_data" } else { "attestation_object" },
                refusal.to_string(),
            )
        };
        let client_data = &ClientData::read(&client_data, Ceremony::Registration, &rp).map_err(refused)?;
        let registration = &Registration::read(&attestation, &rp).map_err(refused)?;
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
                let open = self.open_challenge(&client_data.challenge, Purposed::Addition(&bound), user)?;
                let over =
                    || Error::Conflict("this addition has expired, or was finished: begin again".into());
                spend(tx, &open.ok_or_else(over)?).await?.then_some(()).ok_or_else(over)?;
                room(factors.passkeys.len(), PASSKEYS_MAX, "passkeys of yours")?;
                if owner(tx, &registration.credential_id, Read::Serializable).await?.is_some() {
                    return Err(Error::Conflict("this passkey is registered already".into()));
                }
                let is_first = !factors.is_in_force();
                if is_first {
                    self.put_recovery_codes(&mut factors, user, codes)?;
                    web_sessions::end_all(tx, user, Some(sign_in)).await?;
                }
                let stored = Stored {
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

    pub(crate) async fn rename_passkey(
        &self,
        caller: &Caller,
        id: Uuid,
        input: &PasskeyChange,
        once: &Once,
    ) -> Result<Passkey> {
        let (user, _) = person_of(caller)?;
        let mut fields = Fields::default();
        fields.name("name", &input.name);
        fields.done()?;
        self.change(caller.into(), once, |change| async move {
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
                // It may have begun any of the others.
                web_sessions::end_all(tx, user, Some(sign_in)).await?;
                audit_everywhere(&change, user, "person.remove_passkey", json!({ "passkey": name })).await?;
                Ok((checked, name.to_owned()))
            })
            .await?;
        self.settle_factor(caller, user, checked).await?;
        self.mail_passkey(user, &name, false).await
    }

    /// A challenge by which the caller confirms a change of the account with a passkey.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a caller without a passkey.
    pub(crate) async fn passkey_request(&self, caller: &Caller) -> Result<PasskeyRequest> {
        let (user, sign_in) = person_of(caller)?;
        let request = self.request_of(user, Purposed::InSession(sign_in)).await?;
        request.ok_or_else(|| Error::Conflict("you have no passkey".into()))
    }

    /// A challenge for the second step of a sign-in; `None` for an account without passkeys.
    pub(super) async fn second_step(&self, user: Uuid) -> Result<Option<PasskeyRequest>> {
        if self.passkey_origin().is_none() {
            return Ok(None);
        }
        self.request_of(user, Purposed::SecondStep).await
    }

    async fn request_of(&self, user: Uuid, purpose: Purposed<'_>) -> Result<Option<PasskeyRequest>> {
        let rp = self.relying_party()?;
        let factors =
            self.look(|tx| async move { second_factor::get(&tx, user, Read::Snapshot).await }).await?;
        let credentials: Vec<_> =
            factors.iter().flat_map(|factors| &factors.passkeys).map(Stored::credential).collect();
        if credentials.is_empty() {
            return Ok(None);
        }
        Ok(Some(PasskeyRequest {
            challenge: self.new_challenge(purpose, user)?,
            rp_id: rp.id,
            credentials,
            user_verification: "preferred",
            timeout_ms: PASSKEY_CHALLENGE_MS,
        }))
    }

    /// A challenge for a sign-in without a password. It is the same for everybody, and is not stored.
    pub(crate) fn discovery(&self) -> Result<PasskeyRequest> {
        Ok(PasskeyRequest {
            challenge: self.new_challenge(Purposed::Discovery, Uuid::nil())?,
            rp_id: self.relying_party()?.id,
            credentials: Vec::new(),
            user_verification: "required",
            timeout_ms: PASSKEY_CHALLENGE_MS,
        })
    }

    /// Signs in the owner of a passkey, without a password. The authenticator must have verified its user, so two factors were shown.
    ///
    /// # Errors
    /// [`Error::Unauthenticated`], the same for an unknown passkey and for a wrong answer.
    pub(crate) async fn sign_in_with_passkey(
        &self,
        input: &PasskeyAssertion,
        source: &RequestSource,
    ) -> Result<SignedIn> {
        let wrong = || {
            let what =
                "the passkey is not known here, or its answer is not right or came too late: try again";
            Error::Unauthenticated(what)
        };
        self.relying_party()?;
        let id = &decoded(&input.credential_id, CREDENTIAL_ID_BYTES_MAX).ok_or_else(wrong)?;
        let found = self
            .look(|tx| async move {
                let Some(user) = owner(&tx, id, Read::Snapshot).await? else { return Ok(None) };
                Ok(account(&tx, user, Read::Snapshot).await?.map(|account| (user, account.value.email)))
            })
            .await?;
        let Some((user, email)) = &found else { return Err(wrong()) };
        let (user, session) = (*user, &self.new_session(source)?);
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(user, email, source.address) };
        let checked = self
            .change(actor, &Once::unnamed()?, |change| async move {
                let shown = Shown { code: None, passkey: Some(input), purpose: Purposed::Discovery };
                let checked = self.take_factor(&change, user, shown).await?;
                if checked.passes() {
                    session.begin(&change.tx, user).await?;
                    let details = json!({ "second_factor": true, "passkey": true, "password": false });
                    audit_as(&change, user, "sign_in", email, details).await?;
                }
                Ok(checked)
            })
            .await?;
        if checked != Checked::Passkey {
            let is_old = checked == Checked::PasskeyNeedsPassword;
            self.note_refused_sign_in(user, email, source, json!({ "passkey": true })).await?;
            let why = "your password was changed: sign in with it once, and the passkey works alone again";
            return Err(if is_old { Error::Unauthenticated(why) } else { wrong() });
        }
        self.welcome_person(user, session).await
    }

    /// Checks an answer of a passkey, and spends its challenge; the caller stores `factors`.
    pub(super) async fn take_passkey(
        &self,
        change: &Change,
        user: Uuid,
        factors: &mut Factors,
        shown: &PasskeyAssertion,
        purpose: Purposed<'_>,
    ) -> Result<Checked> {
        let wrong = Ok(Checked::PasskeyWrong);
        // An error would undo the audit entry that somebody knows the password.
        let Ok(rp) = self.relying_party() else { return wrong };
        let Some(answer) = shown.decode() else { return wrong };
        let is_discovery = matches!(purpose, Purposed::Discovery);
        let is_handle_right =
            answer.user_handle.as_ref().map_or(!is_discovery, |handle| handle == user.as_bytes());
        let id = letters(&answer.credential_id);
        let passkey = factors.passkeys.iter_mut().find(|passkey| passkey.credential == id);
        let Some(passkey) = passkey.filter(|_| is_handle_right) else { return wrong };
        let Ok(client_data) = ClientData::read(&answer.client_data, Ceremony::Authentication, &rp) else {
            return wrong;
        };
        let named = if is_discovery { Uuid::nil() } else { user };
        let Some(open) = self.open_challenge(&client_data.challenge, purpose, named)? else { return wrong };
        let (data, signature) = (&answer.authenticator_data, &answer.signature);
        let verified = Authentication::verify(&client_data, data, signature, &passkey.key, &rp);
        let verified = verified.and_then(|used| match used.is_user_verified || !is_discovery {
            true => Ok(used),
            false => Err(Refusal::UserNotVerified),
        });
        let Ok(used) = verified else { return wrong };
        if used.is_backup_eligible != passkey.is_backup_eligible || !spend(&change.tx, &open).await? {
            return wrong;
        }
        // Section 6.1.1: authenticators without a counter send 0.
        if (used.counter, passkey.counter) != (0, 0) && used.counter <= passkey.counter {
            let details = json!({
                "passkey": passkey.name, "why": "signature counter went back", "counter": used.counter, "before": passkey.counter,
            });
            audit_everywhere(change, user, "person.refuse_passkey", details).await?;
            return Ok(Checked::PasskeyCopied);
        }
        let record = found(account(&change.tx, user, Read::Serializable).await?)?;
        let password = self.password_of(user, &record)?;
        if is_discovery && passkey.password != password {
            return Ok(Checked::PasskeyNeedsPassword);
        }
        (passkey.counter, passkey.last_used_at_ms) = (used.counter, Some(change.now_ms));
        passkey.password = password;
        Ok(Checked::Passkey)
    }

    fn password_of(&self, user: Uuid, record: &UserRecord) -> Result<String> {
        let password = record.password.as_ref().map_or("", Secret::expose);
        let hash =
            self.hash(Purpose::PasskeyChallenge, &[b"password", user.as_bytes(), password.as_bytes()])?;
        Ok(letters(&hash))
    }

    /// The challenge of an addition is bound to the web session, to the account's password and address, and to whether a
    /// second factor is in force.
    fn addition_bound(
        &self,
        sign_in: &Hash,
        user: Uuid,
        record: &UserRecord,
        is_in_force: bool,
    ) -> Result<Hash> {
        let state = self.state_of(user, record)?;
        self.hash(Purpose::PasskeyChallenge, &[b"addition", sign_in, &state, &[u8::from(is_in_force)]])
    }

    /// A challenge: ceremony (1 byte), end (8), account (16), random bytes (16), and the signature over them and the web session (32).
    fn new_challenge(&self, purpose: Purposed<'_>, user: Uuid) -> Result<String> {
        let ends = (self.now_ms() + PASSKEY_CHALLENGE_MS).to_be_bytes();
        let said = [&[purpose.number()][..], &ends, user.as_bytes(), &random::<16>()?].concat();
        let signature = self.challenge_signature(&said, purpose)?;
        Ok(letters(&[&said[..], &signature].concat()))
    }

    /// The challenge, if this server has signed it for this ceremony, account and web session, and it has not expired.
    fn open_challenge(&self, challenge: &[u8], purpose: Purposed<'_>, user: Uuid) -> Result<Option<Open>> {
        let Some((said, signature)) = challenge.split_last_chunk::<32>() else { return Ok(None) };
        let is_signed: bool = self.challenge_signature(said, purpose)?.ct_eq(signature).into();
        let Some((&[number, ref ends @ ..], rest)) = said.split_first_chunk::<9>().filter(|_| is_signed)
        else {
            return Ok(None);
        };
        let mut end = [0; 8];
        end.copy_from_slice(ends);
        let expires_at_ms = u64::from_be_bytes(end);
        let is_open = number == purpose.number()
            && rest.len() == 32
            && rest[..16] == *user.as_bytes()
            && self.now_ms() < expires_at_ms;
        Ok(is_open.then_some(Open { signature: *signature, expires_at_ms }))
    }

    fn challenge_signature(&self, said: &[u8], purpose: Purposed<'_>) -> Result<Hash> {
        let bound = match purpose {
            Purposed::Addition(bound) | Purposed::InSession(bound) => &bound[..],
            Purposed::SecondStep | Purposed::Discovery => &[],
        };
        self.hash(Purpose::PasskeyChallenge, &[said, bound])
    }

    /// Mails the owner of an account that a passkey was added or removed, where the server sends mail.
    async fn mail_passkey(&self, user: Uuid, name: &str, is_new: bool) -> Result<()> {
        let Some(post) = self.post() else { return Ok(()) };
        if let Some((email, has_factor)) = self.address_and_factor(user).await? {
            post.passkey_changed(&email, name, is_new, has_factor);
        }
        Ok(())
    }
}

impl Purposed<'_> {
    fn number(self) -> u8 {
        match self {
            Self::Addition(_) => 1,
            Self::SecondStep => 2,
            Self::InSession(_) => 3,
            Self::Discovery => 4,
        }
    }
}

/// Stores that a challenge was answered; `false`: it was before.
async fn spend(tx: &Transaction, open: &Open) -> Result<bool> {
    let spent = accounts::spent_challenges();
    if spent.get::<u64>(tx, &open.signature, Read::Serializable).await?.is_some() {
        return Ok(false);
    }
    spent.put(tx, &open.signature, &open.expires_at_ms).await?;
    let id = open.signature.to_vec().into();
    // Another server's clock may be behind.
    let at_ms = open.expires_at_ms + PASSKEY_CHALLENGE_MS;
    Expiring { at_ms, kind: ExpiringKind::SpentChallenge, id }.schedule(tx)?;
    Ok(true)
}

pub(super) async fn expire(tx: &Transaction, signature: &[u8]) -> Result<()> {
    Ok(accounts::spent_challenges().clear(tx, signature).await?)
}

/// Key of a credential in the index over all accounts: ids are up to 1023 bytes long.
fn index(credential_id: &[u8]) -> Hash {
    blake3::derive_key("millrace 2026-11 credential id of a passkey", credential_id)
}

/// The person with this credential; an entry of the index counts only while the person's record has the credential.
async fn owner(tx: &Transaction, credential_id: &[u8], read: Read) -> Result<Option<Uuid>> {
    let user = accounts::passkey_owners().get::<Uuid>(tx, &index(credential_id), read).await?;
    let Some(user) = user.map(|user| user.value) else { return Ok(None) };
    let (factors, id) = (second_factor::get(tx, user, read).await?, letters(credential_id));
    let has = |factors: &Factors| factors.passkeys.iter().any(|passkey| passkey.credential == id);
    Ok(factors.as_ref().is_some_and(has).then_some(user))
}

pub(super) async fn forget(tx: &Transaction, passkeys: &[Stored]) -> Result<()> {
    for passkey in passkeys {
        if let Ok(id) = URL_SAFE_NO_PAD.decode(&passkey.credential) {
            accounts::passkey_owners().clear(tx, &index(&id)).await?;
        }
    }
    Ok(())
}
