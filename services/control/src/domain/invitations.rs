//! Invitations to an organisation. An invitation is a link with a secret, valid once and for one e-mail address.

use millrace_layers::{
    accounts::{
        self,
        expiring::{Expiring, ExpiringKind},
    },
    documents::Document,
};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::{person_of, shown as shown_person};
use super::by_secret::{self, BySecret, IndexEntry};
use super::change::Change;
use super::check::{FieldErrors, room};
use super::{
    Caller, Control, Error, Once, Page, PageRequest, Permission, Result, Role, authorise, members, operator,
    organisations, web_sessions,
};
use crate::limits::{INVITATION_MS, INVITATIONS_MAX};
use crate::secret::{Hash, Purpose, Secret};

/// An open invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    pub id: Uuid,
    pub email: String,
    /// Their role once they accept.
    pub role: Role,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
    /// Id of the person who made it; null: a server of an earlier version did not note it. It is not valid once this person may not give
    /// the role any more.
    #[serde(default)]
    pub made_by: Option<Uuid>,
    /// Id of the API token that made it; null: the person did. After deleting a leaked token, delete what it made.
    #[serde(default)]
    pub api_token: Option<Uuid>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvitation {
    /// E-mail address that the invited person signs in or signs up with.
    #[schema(example = "bob@example.org", format = Email, max_length = 254)]
    pub email: String,
    /// Their role once they accept.
    pub role: Role,
}

/// An invitation, as the invited person sees it before accepting.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OfferedInvitation {
    pub organisation: Uuid,
    /// Name of the organisation. Its owners choose it, and several organisations may have the same.
    #[schema(example = "Plant 7")]
    pub name: String,
    /// Your role once you accept.
    pub role: Role,
    /// E-mail address of the person who made it; null: the person has none, or no account any more.
    #[schema(example = "ann@example.org")]
    pub invited_by: Option<String>,
}

const INVITATIONS: BySecret = BySecret { all: accounts::invitations, index: accounts::invitation_hashes };

pub(super) type InvitationRecord = by_secret::SecretRecord<Invitation>;

impl Control {
    pub async fn invitations(
        &self,
        caller: &Caller,
        organisation: Uuid,
        page: &PageRequest,
    ) -> Result<Page<Invitation>> {
        let now_ms = self.now_ms();
        self.look(|tx| async move {
            authorise(&tx, caller, organisation, Permission::OrganisationRead, Read::Snapshot).await?;
            let all = INVITATIONS.of(organisation);
            let rows =
                all.page::<InvitationRecord>(&tx, page.after.as_deref(), page.limit, Read::Snapshot).await?;
            let mut page = Page::of(rows, |_, record| record.value.shown);
            page.items.retain(|it| now_ms < it.expires_at_ms);
            Ok(page)
        })
        .await
    }

    pub async fn invite(
        &self,
        caller: &Caller,
        organisation: Uuid,
        input: &NewInvitation,
        (once, is_mailed): (&Once, bool),
    ) -> Result<(Invitation, Secret)> {
        let mut fields = FieldErrors::default();
        let email = &fields.email("email", &input.email);
        fields.done()?;
        let id = self.new_id()?;
        let shown = self
            .change(caller.into(), once, |change| async move {
                let tx = &change.tx;
                authorise(tx, caller, organisation, Permission::OrganisationWrite, Read::Serializable)
                    .await?;
                members::may_give(tx, caller, organisation, input.role).await?;
                let all = INVITATIONS.of(organisation);
                let count = all
                    .page::<InvitationRecord>(tx, None, INVITATIONS_MAX, Read::Serializable)
                    .await?
                    .items
                    .len();
                room(count, INVITATIONS_MAX, "open invitations")?;
                let created_at_ms = members::creation_time_ms(&change, caller, organisation).await?;
                let expires_at_ms = created_at_ms + INVITATION_MS;
                let (made_by, api_token) = (caller.person(), caller.api_token());
                let (email, role) = (email.clone(), input.role);
                let shown = Invitation { id, email, role, created_at_ms, expires_at_ms, made_by, api_token };
                let hash = self.invitation_hash(&self.secret_of(once, id.as_bytes())?)?;
                let record = InvitationRecord { shown: shown.clone(), hash };
                INVITATIONS.put(tx, &IndexEntry { organisation, id }, &record).await?;
                expiring(&hash, expires_at_ms).schedule(tx)?;
                change.audit(
                    organisation,
                    "invitation.create",
                    &shown.email,
                    json!({ "role": input.role }),
                )?;
                Ok(shown)
            })
            .await?;
        // Derived again, because a repeated request gets the stored invitation, whose id differs.
        let secret = self.secret_of(once, shown.id.as_bytes())?;
        if let Some(post) = self.post().filter(|_| is_mailed) {
            post.invite(&shown.email, &secret);
        }
        Ok((shown, secret))
    }

    pub async fn delete_invitation(
        &self,
        caller: &Caller,
        organisation: Uuid,
        id: Uuid,
        once: &Once,
    ) -> Result<()> {
        self.change(caller.into(), once, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            authorise(tx, caller, organisation, Permission::OrganisationWrite, Read::Serializable).await?;
            let all = INVITATIONS.of(organisation);
            let record = all.get::<InvitationRecord>(tx, id.as_bytes(), Read::Serializable).await?;
            let record = record.ok_or(Error::NotFound("invitation"))?.value;
            change.audit(organisation, "invitation.delete", &record.shown.email, json!({}))?;
            remove(tx, organisation, &record).await
        })
        .await
    }

    pub async fn accept_invitation(&self, caller: &Caller, secret: &Secret, once: &Once) -> Result<Uuid> {
        let (user, sign_in) = person_of(caller)?;
        self.change(caller.into(), once, |change| async move {
            web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
            self.take_invitation(&change, secret, user).await
        })
        .await
    }

    /// Checks what [`Self::accept_invitation`] checks.
    pub async fn offered_invitation(&self, caller: &Caller, secret: &Secret) -> Result<OfferedInvitation> {
        let (user, sign_in) = person_of(caller)?;
        let (hash, now_ms) = (self.invitation_hash(secret)?, self.now_ms());
        self.look(|tx| async move {
            web_sessions::still_there(&tx, sign_in, now_ms, Read::Snapshot).await?;
            let email = shown_person(&tx, user).await?.and_then(|user| user.email);
            let (organisation, InvitationRecord { shown, .. }) =
                find(&tx, &hash, email.as_deref(), now_ms).await?;
            let found = organisations::find(&tx, organisation, Read::Snapshot).await?.ok_or_else(gone)?;
            let maker = match shown.made_by {
                Some(maker) => shown_person(&tx, maker).await?,
                None => None,
            };
            let invited_by = maker.and_then(|maker| maker.email);
            Ok(OfferedInvitation { organisation, name: found.value.name, role: shown.role, invited_by })
        })
        .await
    }

    pub(super) async fn take_invitation(&self, change: &Change, secret: &Secret, user: Uuid) -> Result<Uuid> {
        take(change, &self.invitation_hash(secret)?, user).await
    }

    pub(super) fn invitation_hash(&self, secret: &Secret) -> Result<Hash> {
        self.hash(Purpose::Invitation, &[secret.expose().as_bytes()])
    }
}

/// Finds the invitation with this secret's hash. It must be for this e-mail address; the owner of this machine has no
/// address and needs only the secret.
pub(super) async fn find(
    tx: &Transaction,
    hash: &Hash,
    email: Option<&str>,
    now_ms: u64,
) -> Result<(Uuid, InvitationRecord)> {
    let found = INVITATIONS.find::<Invitation>(tx, hash, Read::Serializable).await?;
    let (organisation, record) = found.filter(|(_, it)| now_ms < it.shown.expires_at_ms).ok_or_else(gone)?;
    if !is_in_force(tx, organisation, &record.shown).await? {
        return Err(gone());
    }
    if email.is_none_or(|email| email == record.shown.email) {
        return Ok((organisation, record));
    }
    let what = "this invitation is for another e-mail address: sign in with that one, or ask for an invitation for yours";
    Err(Error::Forbidden(what.into()))
}

/// Whether the inviter may still give the role: a member who was removed must not come back by an invitation of their own.
async fn is_in_force(tx: &Transaction, organisation: Uuid, of: &Invitation) -> Result<bool> {
    let Some(person) = of.made_by else { return Ok(true) };
    let maker = (person, of.created_at_ms);
    match members::role_of_maker(tx, organisation, maker, Read::Serializable).await {
        Ok(role) => {
            let mut gives = Permission::ALL.into_iter().filter(|permission| of.role.may(*permission));
            Ok(role.may(Permission::OrganisationWrite) && gives.all(|permission| role.may(permission)))
        }
        Err(Error::NotFound(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) async fn take(change: &Change, hash: &Hash, user: Uuid) -> Result<Uuid> {
    let tx = &change.tx;
    let email = shown_person(tx, user).await?.and_then(|user| user.email);
    let (organisation, record) = find(tx, hash, email.as_deref(), change.now_ms).await?;
    operator::is_open(tx, organisation, Read::Serializable).await?;
    members::add(change, organisation, user, record.shown.role).await?;
    let details = json!({ "invitation": record.shown.email, "role": record.shown.role });
    change.audit(organisation, "invitation.accept", &user.to_string(), details)?;
    remove(tx, organisation, &record).await?;
    Ok(organisation)
}

pub(super) async fn expire(tx: &Transaction, hash: &[u8]) -> Result<()> {
    match INVITATIONS.look_up(tx, hash, Read::Serializable).await? {
        Some(entry) => INVITATIONS.clear(tx, &entry, hash).await,
        None => Ok(()),
    }
}

pub(super) async fn remove_all(tx: &Transaction, organisation: Uuid) -> Result<()> {
    let all = INVITATIONS.of(organisation);
    let page = all.page(tx, None, INVITATIONS_MAX, Read::Serializable).await?;
    for (_, Document { value, .. }) in page.items {
        remove(tx, organisation, &value).await?;
    }
    Ok(())
}

async fn remove(tx: &Transaction, organisation: Uuid, record: &InvitationRecord) -> Result<()> {
    expiring(&record.hash, record.shown.expires_at_ms).cancel(tx)?;
    INVITATIONS.clear(tx, &IndexEntry { organisation, id: record.shown.id }, &record.hash).await
}

fn expiring(hash: &Hash, at_ms: u64) -> Expiring {
    Expiring { at_ms, kind: ExpiringKind::Invitation, id: hash.to_vec().into() }
}

fn gone() -> Error {
    Error::Forbidden("this link was used, has expired, or is not whole: ask for another one".into())
}
