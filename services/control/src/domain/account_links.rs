//! Links by which a person resets a forgotten password or confirms a new e-mail address.
//!
//! A link is stored by the hash of its secret and used once. It stops working when the account gets another password or address than when the
//! link was made. A link for a new address works for the person who asked alone, signed in: otherwise the owner of that address could
//! be made to give it to a stranger's account.

use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{UserRecord, audit_everywhere, by_email, get, is_there_one_with, person, person_of};
use super::audit::{Actor, ActorKind};
use super::change::Change;
use super::check::FieldErrors;
use super::passkeys::{PasskeyAssertion, Purposed};
use super::post::reset_link;
use super::second_factor::PresentedFactor;
use super::web_sessions::shortened;
use super::{Caller, Control, Error, Once, Operator, RequestSource, Result, second_factor, web_sessions};
use crate::limits::{ADDRESS_CHANGE_MS, EMAIL_BYTES_MAX, PASSWORD_RESET_MS};
use crate::secret::{self, Hash, Purpose, Secret};

/// The account whose password is reset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetRequest {
    #[schema(example = "ann@example.org", format = Email, max_length = 254)]
    pub email: String,
}

/// A new password, and the link that allows it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPasswordByLink {
    /// The secret of the link: what stands behind `#token=`.
    #[schema(value_type = String, format = Password)]
    pub token: Secret,
    /// The new password: at least 15 characters.
    #[schema(value_type = String, format = Password, min_length = 15, max_length = 1024)]
    pub password: Secret,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressChange {
    #[schema(example = "ann@example.org", format = Email, max_length = 254)]
    pub email: String,
    #[schema(value_type = String, format = Password)]
    pub password: Secret,
    /// For an account with a second factor: the six digits that the device shows, or a recovery code.
    #[schema(value_type = Option<String>, format = Password, example = "492039", max_length = 64)]
    pub code: Option<Secret>,
    /// Instead of `code`: the answer of a passkey to the challenge of POST /me/passkeys/challenge.
    pub passkey: Option<PasskeyAssertion>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkToken {
    /// The text behind `#token=` in the link.
    #[schema(value_type = String, format = Password)]
    pub token: Secret,
}

/// A link that an operator passes on to a person.
#[derive(Debug, Serialize, ToSchema)]
pub struct ResetLink {
    /// The link. Anybody who opens it can set the password of the account, once.
    #[schema(value_type = String, example = "https://console.example.org/reset-password#token=Xr2...")]
    pub url: Secret,
    /// Until when it works, in unix milliseconds.
    pub expires_at_ms: u64,
}

#[derive(Clone, Serialize, Deserialize)]
struct LinkRecord {
    user: Uuid,
    errand: Errand,
    /// Hash of the password and address that the account had when the link was made.
    account: Hash,
    expires_at_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Errand {
    ResetPassword,
    ChangeAddress { email: String },
}

impl Control {
    /// Mails a link for a new password, if there is an account with the address. The API answers before this has begun,
    /// so that the time of the answer reveals nothing.
    pub(crate) async fn mail_password_reset(
        &self,
        input: &ResetRequest,
        source: &RequestSource,
    ) -> Result<()> {
        let (email, secret) = (&input.email.to_lowercase(), secret::generate()?);
        let Some(post) = self.post().filter(|_| email.len() <= EMAIL_BYTES_MAX) else { return Ok(()) };
        let hash = &self.link_hash(&secret)?;
        let agent = source.user_agent.as_deref().map(shortened);
        let nobody = Actor { agent, ..Actor::new(ActorKind::Nobody, email, source.address) };
        let has_password = self
            .change(nobody, &Once::unnamed()?, |change| async move {
                let Some((user, record)) = by_email(&change.tx, email).await? else { return Ok(None) };
                let has_password = record.password.is_some();
                if has_password {
                    self.put_link(&change, hash, (user, &record), Errand::ResetPassword).await?;
                }
                audit_everywhere(&change, user, "person.ask_password_reset", json!({})).await?;
                Ok(Some(has_password))
            })
            .await?;
        match has_password {
            Some(true) => post.reset(email, &secret),
            Some(false) => post.no_password(email),
            None => {}
        }
        Ok(())
    }

    /// Makes a link for a new password, which an operator passes on.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an address without an account.
    pub(crate) async fn reset_link(&self, input: &ResetRequest, operator: &Operator) -> Result<ResetLink> {
        let (email, secret) = (&input.email.to_lowercase(), secret::generate()?);
        let hash = &self.link_hash(&secret)?;
        let expires_at_ms = self
            .change(operator.into(), &Once::unnamed()?, |change| async move {
                let account = by_email(&change.tx, email).await?;
                let (user, record) = account.ok_or(Error::NotFound("account with this e-mail address"))?;
                audit_everywhere(&change, user, "person.make_reset_link", json!({})).await?;
                self.put_link(&change, hash, (user, &record), Errand::ResetPassword).await
            })
            .await?;
        let console = self.post().map(|post| &post.url).or_else(|| self.0.console_url.get());
        let url = reset_link(console.map_or("", String::as_str), &secret);
        Ok(ResetLink { url: url.as_str().into(), expires_at_ms })
    }

    /// Sets a new password by a link, and ends all web sessions of the account. Its second factor stays.
    ///
    /// # Errors
    /// [`Error::Forbidden`] for a link that was used, has expired or is void.
    pub(crate) async fn reset_password(
        &self,
        input: &NewPasswordByLink,
        source: &RequestSource,
    ) -> Result<()> {
        let mut fields = FieldErrors::default();
        fields.password("password", &input.password);
        fields.done()?;
        let (hash, now_ms) = (&self.link_hash(&input.token)?, self.now_ms());
        let over = || Error::Forbidden("the link was used or has expired: ask for another one".into());
        let open = self.look(|tx| async move { self.open_link(&tx, hash, now_ms).await }).await?;
        let (link, account) =
            open.filter(|(link, _)| link.errand == Errand::ResetPassword).ok_or_else(over)?;
        self.refuse_weak("password", &input.password, &[&account.email, &account.name]).await?;
        let phc = &Secret::from(&*self.hash_password(&input.password).await?);
        let user = link.user;
        let agent = source.user_agent.as_deref().map(shortened);
        let actor = Actor { agent, ..person(user, &account.email, source.address) };
        self.change(actor, &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            // Another request with the same link may have been quicker.
            let (link, mut account) = self.open_link(tx, hash, change.now_ms).await?.ok_or_else(over)?;
            account.password = Some(phc.clone());
            accounts::users().put(tx, user.as_bytes(), &account).await?;
            web_sessions::end_all(tx, user, None).await?;
            second_factor::clear_wrong_codes(&change, user).await?;
            spend(tx, hash, &link).await?;
            audit_everywhere(&change, user, "person.reset_password", json!({})).await
        })
        .await
    }

    /// Mails a link to the caller's new address, and a notice to the old one. `is_mailed` says whether the new address
    /// may get another mail.
    ///
    /// # Errors
    /// [`Error::Conflict`] where the server neither sends nor prints links, [`Error::Invalid`] without the second factor of an account that has one.
    pub(crate) async fn request_address(
        &self,
        caller: &Caller,
        input: &AddressChange,
        is_mailed: impl FnOnce(&str) -> bool,
    ) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let mut fields = FieldErrors::default();
        let email = &fields.email("email", &input.email);
        fields.done()?;
        let post = self.post_or_printer().ok_or_else(|| {
            let what = "this server neither sends nor prints links, so it cannot find out whether the address is yours";
            Error::Conflict(what.into())
        })?;
        let proof = &self.check_password(user, "password", &input.password).await?;
        let secret = secret::generate()?;
        let hash = &self.link_hash(&secret)?;
        let (checked, old) = self
            .change(caller.into(), &Once::unnamed()?, |change| async move {
                let account = proof.holds(&change, caller).await?;
                if account.email == *email {
                    return Err(Error::field("email", "is your address already"));
                }
                let (code, passkey) = (input.code.as_ref(), input.passkey.as_ref());
                let shown = PresentedFactor { code, passkey, purpose: Purposed::InSession(sign_in) };
                let checked = self.take_factor(&change, user, shown).await?;
                if !checked.passes() {
                    return Ok((checked, String::new()));
                }
                let errand = Errand::ChangeAddress { email: email.clone() };
                self.put_link(&change, hash, (user, &account), errand).await?;
                audit_everywhere(&change, user, "person.ask_address", json!({ "email": email })).await?;
                Ok((checked, account.email))
            })
            .await?;
        self.refuse_wrong_factor(caller, user, checked).await?;
        post.change_address(&old, email, &secret, is_mailed(email));
        Ok(())
    }

    /// Gives the caller the address that a link was mailed to.
    ///
    /// # Errors
    /// [`Error::Conflict`], the same for a link that is over, that is another person's, and for an address that is taken.
    pub(crate) async fn confirm_address(&self, caller: &Caller, input: &LinkToken) -> Result<()> {
        let (user, sign_in) = person_of(caller)?;
        let hash = &self.link_hash(&input.token)?;
        let over = || {
            let what = "the link was used or has expired, or the address cannot be had: ask for another link";
            Error::Conflict(what.into())
        };
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            web_sessions::still_there(tx, sign_in, change.now_ms, Read::Serializable).await?;
            let open = self.open_link(tx, hash, change.now_ms).await?;
            let (link, mut account) = open.filter(|(link, _)| link.user == user).ok_or_else(over)?;
            let Errand::ChangeAddress { email } = &link.errand else { return Err(over()) };
            if is_there_one_with(tx, email).await? {
                return Err(over());
            }
            let before = std::mem::replace(&mut account.email, email.clone());
            accounts::emails().clear(tx, before.as_bytes()).await?;
            accounts::emails().put(tx, email.as_bytes(), &user).await?;
            accounts::users().put(tx, user.as_bytes(), &account).await?;
            spend(tx, hash, &link).await?;
            let details = json!({ "email": email, "before": before });
            audit_everywhere(&change, user, "person.change_address", details).await
        })
        .await
    }

    async fn put_link(
        &self,
        change: &Change,
        hash: &Hash,
        (user, account): (Uuid, &UserRecord),
        errand: Errand,
    ) -> Result<u64> {
        let lasts_ms = match errand {
            Errand::ResetPassword => PASSWORD_RESET_MS,
            Errand::ChangeAddress { .. } => ADDRESS_CHANGE_MS,
        };
        let (account, expires_at_ms) = (self.state_of(user, account)?, change.now_ms + lasts_ms);
        accounts::account_links()
            .put(&change.tx, hash, &LinkRecord { user, errand, account, expires_at_ms })
            .await?;
        expiring(hash, expires_at_ms).schedule(&change.tx)?;
        Ok(expires_at_ms)
    }

    /// The link with this hash and its account, while it can be used.
    async fn open_link(
        &self,
        tx: &Transaction,
        hash: &Hash,
        now_ms: u64,
    ) -> Result<Option<(LinkRecord, UserRecord)>> {
        let link = accounts::account_links().get::<LinkRecord>(tx, hash, Read::Serializable).await?;
        let Some(link) = link.map(|link| link.value).filter(|link| now_ms < link.expires_at_ms) else {
            return Ok(None);
        };
        let Some(account) = get(tx, link.user, Read::Serializable).await? else { return Ok(None) };
        let is_same = self.state_of(link.user, &account.value)? == link.account;
        Ok(is_same.then_some((link, account.value)))
    }

    pub(super) fn state_of(&self, user: Uuid, account: &UserRecord) -> Result<Hash> {
        let password = account.password.as_ref().map_or("", Secret::expose);
        self.hash(Purpose::Account, &[user.as_bytes(), account.email.as_bytes(), password.as_bytes()])
    }

    fn link_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::AccountLink, &[secret.expose().as_bytes()])
    }
}

async fn spend(tx: &Transaction, hash: &Hash, link: &LinkRecord) -> Result<()> {
    accounts::account_links().clear(tx, hash).await?;
    Ok(expiring(hash, link.expires_at_ms).cancel(tx)?)
}

pub(super) async fn expire(tx: &Transaction, hash: &[u8]) -> Result<()> {
    Ok(accounts::account_links().clear(tx, hash).await?)
}

fn expiring(hash: &[u8], at_ms: u64) -> Expiring {
    Expiring { at_ms, kind: ExpiringKind::AccountLink, id: hash.to_vec().into() }
}
