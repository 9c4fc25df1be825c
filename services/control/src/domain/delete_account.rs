//! A person deletes their account. Audit logs of organisations keep the entries of that person.

use millrace_layers::accounts;
use millrace_storage::{Read, Transaction};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{found, get, person_of};
use super::passkeys::{PasskeyAssertion, Purposed};
use super::second_factor::{self, PresentedFactor};
use super::{
    Caller, Control, Error, Once, Result, Role, machine, members, operator, organisations, visitors,
    web_sessions,
};
use crate::limits::RECENT_SIGN_IN_MS;
use crate::secret::Secret;

/// That the account shall be deleted.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteAccount {
    /// The password of the account. Somebody who has none, because they sign in with a provider, must have signed in within 10 minutes.
    #[schema(value_type = Option<String>, format = Password)]
    pub password: Option<Secret>,
    /// For an account with a second factor: the six digits that the device shows, or a recovery code.
    #[schema(value_type = Option<String>, format = Password, example = "492039")]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge of POST /me/passkeys/challenge.
    pub passkey: Option<PasskeyAssertion>,
}

impl Control {
    /// Deletes the caller's account: its web sessions end, and it leaves its organisations, without which its API tokens are void.
    ///
    /// # Errors
    /// [`Error::Conflict`] with the names of the organisations that would have no owner any more; [`Error::Forbidden`] for an owner of a
    /// suspended one.
    pub(crate) async fn delete_account(&self, caller: &Caller, input: &DeleteAccount) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let since_ms = self.now_ms().saturating_sub(RECENT_SIGN_IN_MS);
        let (account, is_recent) = self
            .look(|tx| async move {
                let account = found(get(&tx, user, Read::Snapshot).await?)?;
                Ok((account, web_sessions::began_since(&tx, sign_in, since_ms).await?))
            })
            .await?;
        let proof = match (&account.password, &input.password) {
            (Some(_), Some(password)) => Some(self.check_password(user, "password", password).await?),
            (Some(_), None) => return Err(Error::field("password", "is missing")),
            (None, _) if is_recent => None,
            (None, _) => {
                let what = "you have no password here: sign in with your provider again, and delete the account within 10 minutes";
                return Err(Error::Forbidden(what.into()));
            }
        };
        let proof = proof.as_ref();
        let once = Once::unnamed()?;
        let checked = self.change(caller.into(), &once, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            match proof {
                Some(proof) => proof.holds(&change, caller).await.map(drop)?,
                None => web_sessions::still_there(tx, sign_in, change.now_ms, Read::Serializable).await?,
            }
            let (code, passkey) = (input.code.as_ref(), input.passkey.as_ref());
            let shown = PresentedFactor { code, passkey, purpose: Purposed::InSession(sign_in) };
            let checked = self.take_factor(&change, user, shown).await?;
            if !checked.passes() {
                return Ok(checked);
            }
            if machine::owner(tx).await? == Some(user) {
                return Err(Error::Conflict("the owner of this machine stays".into()));
            }
            let own = members::of_user(tx, user, Read::Serializable).await?;
            let ownerless = ownerless(tx, user, &own).await?;
            if !ownerless.is_empty() {
                return Err(Error::Conflict(format!(
                    "you are the last owner of {}: make somebody else an owner, or delete the organisation",
                    ownerless.join(", ")
                )));
            }
            let account = found(get(tx, user, Read::Serializable).await?)?;
            for (organisation, _) in own {
                change.audit(organisation, "person.delete", &account.email, json!({}))?;
                members::remove(tx, organisation, user).await?;
            }
            accounts::audit::clear(tx, user.as_bytes())?;
            accounts::emails().clear(tx, account.email.as_bytes()).await?;
            visitors::disconnect_all(tx, user).await?;
            second_factor::clear(tx, user).await?;
            web_sessions::end_all(tx, user, None).await?;
            accounts::users().clear(tx, user.as_bytes()).await?;
            Ok(checked)
        });
        self.refuse_wrong_factor(caller, user, checked.await?).await
    }
}

/// Names of the organisations among `own` that would have no owner without `user`; [`Error::Forbidden`] if an owned one is suspended.
async fn ownerless(tx: &Transaction, user: Uuid, own: &[(Uuid, Role)]) -> Result<Vec<String>> {
    let mut ownerless = Vec::new();
    for (organisation, _) in own.iter().filter(|(_, role)| *role == Role::Owner) {
        operator::is_open(tx, *organisation, Read::Serializable).await?;
        if !members::has_another_owner(tx, *organisation, user).await? {
            let found = organisations::find(tx, *organisation, Read::Serializable).await?;
            ownerless.extend(found.map(|found| format!("\"{}\"", found.value.name)));
        }
    }
    Ok(ownerless)
}
