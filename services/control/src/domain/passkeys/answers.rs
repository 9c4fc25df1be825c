//! Signing in and confirming changes with a passkey: the requests to the browser, and the check of its answers.

use super::super::accounts::{
    UserRecord, audit_as, audit_everywhere, found, get as account, person, person_of,
};
use super::super::audit::Actor;
use super::super::change::Change;
use super::super::second_factor::{self, FactorCheck, Factors, PresentedFactor};
use super::super::web_sessions::shortened;
use super::super::{Caller, Control, Error, Once, RequestSource, Result, SignedIn};
use super::challenges::spend;
use super::record::owner;
use super::shapes::decoded;
use super::{PasskeyAssertion, PasskeyRequest, Purposed, StoredPasskey};
use crate::limits::{CREDENTIAL_ID_BYTES_MAX, PASSKEY_CHALLENGE_MS};
use crate::secret::{Purpose, Secret, letters};
use crate::webauthn::{Ceremony, ClientData, PasskeyAuthentication, PasskeyRefusal};
use millrace_storage::Read;
use serde_json::json;
use uuid::Uuid;

impl Control {
    /// A challenge by which the caller confirms a change of the account with a passkey.
    ///
    /// # Errors
    /// [`Error::Conflict`] for a caller without a passkey.
    pub(crate) async fn passkey_request(&self, caller: &Caller) -> Result<PasskeyRequest> {
        let (user, sign_in) = person_of(caller)?;
        let request = self.request_of(user, Purposed::InSession(sign_in)).await?;
        request.ok_or_else(|| {
            Error::Conflict("you have no passkey: send a code instead, or register a passkey".into())
        })
    }

    /// A challenge for the second step of a sign-in; `None` for an account without passkeys.
    pub(in crate::domain) async fn second_step(&self, user: Uuid) -> Result<Option<PasskeyRequest>> {
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
            factors.iter().flat_map(|factors| &factors.passkeys).map(StoredPasskey::credential).collect();
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

    /// The authenticator must have verified its user, so two factors were shown.
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
        let found = self.owner_of_passkey(&input.credential_id).await?;
        let Some((user, UserRecord { email, .. })) = &found else { return Err(wrong()) };
        let (user, session) = (*user, &self.new_session(source)?);
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(user, email, source.address) };
        let checked = self
            .change(actor, &Once::unnamed()?, |change| async move {
                change.use_reserve();
                let shown =
                    PresentedFactor { code: None, passkey: Some(input), purpose: Purposed::Discovery };
                let checked = self.take_factor(&change, user, shown).await?;
                if checked.passes() {
                    session.begin(&change.tx, user).await?;
                    let details = json!({ "second_factor": true, "passkey": true, "password": false });
                    audit_as(&change, user, "sign_in", email, details).await?;
                }
                Ok(checked)
            })
            .await?;
        if checked != FactorCheck::Passkey {
            let is_old = checked == FactorCheck::PasskeyNeedsPassword;
            self.note_refused_sign_in(user, email, source, json!({ "passkey": true })).await?;
            let why = "your password was changed: sign in with it once, and the passkey works alone again";
            return Err(if is_old { Error::Unauthenticated(why) } else { wrong() });
        }
        self.welcome_person(user, session).await
    }

    pub(in crate::domain) async fn owner_of_passkey(
        &self,
        credential_id: &str,
    ) -> Result<Option<(Uuid, UserRecord)>> {
        let Some(id) = &decoded(credential_id, CREDENTIAL_ID_BYTES_MAX) else { return Ok(None) };
        self.look(|tx| async move {
            let Some(user) = owner(&tx, id, Read::Snapshot).await? else { return Ok(None) };
            Ok(account(&tx, user, Read::Snapshot).await?.map(|account| (user, account.value)))
        })
        .await
    }

    /// Checks an answer of a passkey, and spends its challenge; the caller stores `factors`.
    pub(in crate::domain) async fn take_passkey(
        &self,
        change: &Change,
        user: Uuid,
        factors: &mut Factors,
        shown: &PasskeyAssertion,
        purpose: Purposed<'_>,
    ) -> Result<FactorCheck> {
        let wrong = Ok(FactorCheck::PasskeyWrong);
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
        let verified = PasskeyAuthentication::verify(&client_data, data, signature, &passkey.key, &rp);
        let verified = verified.and_then(|used| match used.is_user_verified || !is_discovery {
            true => Ok(used),
            false => Err(PasskeyRefusal::UserNotVerified),
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
            return Ok(FactorCheck::PasskeyCopied);
        }
        let record = found(account(&change.tx, user, Read::Serializable).await?)?;
        let password = self.password_of(user, &record)?;
        if is_discovery && passkey.password != password {
            return Ok(FactorCheck::PasskeyNeedsPassword);
        }
        (passkey.counter, passkey.last_used_at_ms) = (used.counter, Some(change.now_ms));
        passkey.password = password;
        Ok(FactorCheck::Passkey)
    }

    pub(super) fn password_of(&self, user: Uuid, record: &UserRecord) -> Result<String> {
        let password = record.password.as_ref().map_or("", Secret::expose);
        let hash =
            self.hash(Purpose::PasskeyChallenge, &[b"password", user.as_bytes(), password.as_bytes()])?;
        Ok(letters(&hash))
    }
}
