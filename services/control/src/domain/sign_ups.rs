//! Sign-ups that wait until somebody opens the link that was mailed to their address.
//!
//! The link alone does not create the account: the person must also enter the password of the sign-up. Otherwise an
//! attacker could sign up with another person's address and a password of their own, and wait for that person to open
//! the link.

use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::accounts::{Newcomer, create, is_there_one_with, person};
use super::post::Post;
use super::{Control, Error, MailMessage, Once, RequestSource, Result, SignedIn, invitations, organisations};
use crate::limits::SIGN_UP_MS;
use crate::secret::{self, Hash, Purpose, Secret};

/// The secret and password that confirm a sign-up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The secret of the link that was mailed.
    #[schema(value_type = String, format = Password)]
    pub token: Secret,
    /// The password of the sign-up.
    #[schema(value_type = String, format = Password)]
    pub password: Secret,
}

pub(super) struct SignUpRequest<'a> {
    pub(super) newcomer: &'a Newcomer,
    /// Used without an invitation.
    pub(super) organisation: &'a str,
    pub(super) invitation: Option<&'a Secret>,
}

#[derive(Clone, Serialize, Deserialize)]
struct SignUpRecord {
    email: String,
    name: String,
    organisation: String,
    /// PHC string of Argon2id.
    password: Option<Secret>,
    invitation: Option<Hash>,
    expires_at_ms: u64,
}

impl Control {
    /// Returns a mail with the link that creates the account. If the address has an account, the mail says so instead.
    pub(super) async fn request_sign_up(
        &self,
        post: &Post,
        wanted: SignUpRequest<'_>,
    ) -> Result<MailMessage> {
        let SignUpRequest { newcomer, organisation, invitation } = &wanted;
        let (secret, now_ms) = (secret::generate()?, self.now_ms());
        let hash = &self.sign_up_hash(&secret)?;
        let invitation = invitation.map(|token| self.invitation_hash(token)).transpose()?;
        let record = &SignUpRecord {
            email: newcomer.email.clone(),
            name: newcomer.name.clone(),
            organisation: (*organisation).to_owned(),
            password: newcomer.password.clone(),
            invitation,
            expires_at_ms: now_ms + SIGN_UP_MS,
        };
        let is_new = self.write(|tx| async move {
            if let Some(hash) = &record.invitation {
                invitations::find(&tx, hash, Some(&record.email), now_ms).await?;
            }
            // The write is the same for an address that has an account, so that the time of the answer reveals nothing.
            // Nobody gets the secret of that record.
            accounts::sign_ups().put(&tx, hash, record).await?;
            expiring(hash, record.expires_at_ms).schedule(&tx)?;
            Ok(!is_there_one_with(&tx, &record.email).await?)
        });
        let email = &newcomer.email;
        Ok(if is_new.await? { post.confirm(email, &secret) } else { post.has_account(email) })
    }

    /// A link that has expired and a wrong password both get [`Error::Forbidden`].
    pub async fn confirm_sign_up(&self, input: &Confirmation, source: &RequestSource) -> Result<SignedIn> {
        let hash = &self.sign_up_hash(&input.token)?;
        let now_ms = self.now_ms();
        let found = self.look(|tx| async move { find(&tx, hash, now_ms).await }).await?;
        let phc =
            found.as_ref().and_then(|record| record.password.as_ref()).map(|phc| phc.expose().to_owned());
        let is_right = self.verify_password(phc, &input.password).await?;
        let Some(record) = found.filter(|_| is_right) else { return Err(wrong()) };
        let (id, organisation) = (self.new_id()?, self.new_id()?);
        let SignUpRecord { email, name, password, .. } = record.clone();
        let (newcomer, record) = (&Newcomer { id, email, name, password }, &record);
        let actor = person(id, &record.email, source.address);
        self.change(actor, &Once::unnamed()?, |change| async move {
            let tx = &change.tx;
            // Another request with the same link may have been quicker.
            find(tx, hash, change.now_ms).await?.ok_or_else(wrong)?;
            create(&change, newcomer).await?;
            match &record.invitation {
                Some(hash) => invitations::take(&change, hash, id).await.map(drop)?,
                None => organisations::create(&change, organisation, &record.organisation, id).await?,
            }
            accounts::sign_ups().clear(tx, hash).await?;
            Ok(expiring(hash, record.expires_at_ms).cancel(tx)?)
        })
        .await?;
        self.start(id, source).await
    }

    fn sign_up_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::SignUp, &[secret.expose().as_bytes()])
    }
}

pub(super) async fn expire(tx: &Transaction, hash: &[u8]) -> Result<()> {
    Ok(accounts::sign_ups().clear(tx, hash).await?)
}

async fn find(tx: &Transaction, hash: &Hash, now_ms: u64) -> Result<Option<SignUpRecord>> {
    let found = accounts::sign_ups().get::<SignUpRecord>(tx, hash, Read::Serializable).await?;
    Ok(found.map(|found| found.value).filter(|record| now_ms < record.expires_at_ms))
}

fn expiring(hash: &Hash, at_ms: u64) -> Expiring {
    Expiring { at_ms, kind: ExpiringKind::SignUp, id: hash.to_vec().into() }
}

fn wrong() -> Error {
    let what =
        "the password is not the one of the sign-up, or the link was used or has expired: sign up again";
    Error::Forbidden(what.into())
}
