//! Members of organisations and their roles. An organisation always has at least one owner.

use millrace_layers::accounts;
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use uuid::Uuid;

use super::change::Change;
use super::check::room;
use super::{Caller, Control, Error, Once, Page, PageRequest, Permission, Result, Role, authorise};
use super::{accounts as people, accounts::User, operator};
use crate::limits::{MEMBERS_MAX, ORGANISATIONS_MAX};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// Id of the person.
    pub id: Uuid,
    /// E-mail address; null for the owner of this machine, who has none.
    pub email: Option<String>,
    pub name: String,
    pub role: Role,
    /// Start of the membership, in unix milliseconds.
    pub since_ms: u64,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemberChange {
    pub role: Role,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct MemberRecord {
    role: Role,
    since_ms: u64,
}

impl Control {
    pub async fn members(
        &self,
        caller: &Caller,
        organisation: Uuid,
        page: &PageRequest,
    ) -> Result<Page<Member>> {
        self.look(|tx| async move {
            authorise(&tx, caller, organisation, Permission::OrganisationRead, Read::Snapshot).await?;
            let all = accounts::members(organisation.as_bytes());
            let rows =
                all.page::<MemberRecord>(&tx, page.after.as_deref(), page.limit, Read::Snapshot).await?;
            let rows = Page::of(rows, |id, record| (id.to_vec(), record.value));
            let mut items = Vec::with_capacity(rows.items.len());
            for (id, record) in rows.items {
                if let Some(user) = people::shown(&tx, uuid(&id)?).await? {
                    items.push(record.shown(user));
                }
            }
            Ok(Page { items, next: rows.next })
        })
        .await
    }

    /// The last owner cannot give up the role.
    pub async fn change_member(
        &self,
        caller: &Caller,
        (organisation, user): (Uuid, Uuid),
        input: &MemberChange,
        once: &Once,
    ) -> Result<Member> {
        self.change(caller.into(), once, |change| async move {
            let tx = &change.tx;
            authorise(tx, caller, organisation, Permission::OrganisationWrite, Read::Serializable).await?;
            may_give(tx, caller, organisation, input.role).await?;
            let mut record = record(tx, organisation, user).await?;
            may_take(tx, caller, organisation, record.role).await?;
            if record.role == Role::Owner && input.role != Role::Owner {
                keeps_an_owner(tx, organisation, user).await?;
            }
            let before = std::mem::replace(&mut record.role, input.role);
            accounts::members(organisation.as_bytes()).put(tx, user.as_bytes(), &record).await?;
            let shown = people::shown(tx, user).await?.ok_or(Error::NotFound("member"))?;
            change.audit(
                organisation,
                "member.change",
                shown.known_as(),
                json!({ "role": input.role, "before": before }),
            )?;
            Ok(record.shown(shown))
        })
        .await
    }

    /// A member may always leave, except the last owner, and the owners of a suspended organisation.
    pub async fn remove_member(
        &self,
        caller: &Caller,
        (organisation, user): (Uuid, Uuid),
        once: &Once,
    ) -> Result<()> {
        let leaves = people::person_of(caller).is_ok_and(|(own, _)| own == user);
        let needed = if leaves { Permission::OrganisationRead } else { Permission::OrganisationWrite };
        self.change(caller.into(), once, |change| async move {
            change.use_reserve();
            let tx = &change.tx;
            authorise(tx, caller, organisation, needed, Read::Serializable).await?;
            let role = record(tx, organisation, user).await?.role;
            if !leaves {
                may_take(tx, caller, organisation, role).await?;
            }
            if role == Role::Owner {
                operator::is_open(tx, organisation, Read::Serializable).await?;
                keeps_an_owner(tx, organisation, user).await?;
            }
            let shown = people::shown(tx, user).await?;
            let email = shown.map_or_else(|| user.to_string(), |shown| shown.known_as().to_owned());
            change.audit(organisation, "member.remove", &email, json!({}))?;
            remove(tx, organisation, user).await
        })
        .await
    }
}

impl MemberRecord {
    fn shown(&self, user: User) -> Member {
        Member { id: user.id, email: user.email, name: user.name, role: self.role, since_ms: self.since_ms }
    }
}

/// The caller must have each permission of the role.
pub(super) async fn may_give(
    tx: &Transaction,
    caller: &Caller,
    organisation: Uuid,
    role: Role,
) -> Result<()> {
    for permission in Permission::ALL.into_iter().filter(|permission| role.may(*permission)) {
        authorise(tx, caller, organisation, permission, Read::Serializable).await?;
    }
    Ok(())
}

/// The same for a role that somebody has: otherwise a token that may little would end what an owner has.
async fn may_take(tx: &Transaction, caller: &Caller, organisation: Uuid, role: Role) -> Result<()> {
    may_give(tx, caller, organisation, role).await
}

/// A person without a role gets [`Error::NotFound`], and so learns nothing of the organisation.
pub(super) async fn role(tx: &Transaction, organisation: Uuid, user: Uuid, read: Read) -> Result<Role> {
    let found = find(tx, organisation, user, read).await?;
    found.map(|found| found.role).ok_or(Error::NotFound("organisation"))
}

/// The time of something that the caller makes as a member. It is not before the membership, whose start another server's clock has given.
pub(super) async fn creation_time_ms(change: &Change, caller: &Caller, organisation: Uuid) -> Result<u64> {
    let Some(person) = caller.person() else { return Ok(change.now_ms) };
    Ok(record(&change.tx, organisation, person).await?.since_ms.max(change.now_ms))
}

/// The role of a person who has made something at this time. [`Error::NotFound`] also if that membership has ended, and the person is a
/// member again.
pub(super) async fn role_of_maker(
    tx: &Transaction,
    organisation: Uuid,
    (user, made_at_ms): (Uuid, u64),
    read: Read,
) -> Result<Role> {
    let found = find(tx, organisation, user, read).await?.filter(|found| found.since_ms <= made_at_ms);
    found.map(|found| found.role).ok_or(Error::NotFound("organisation"))
}

pub(super) async fn add(change: &Change, organisation: Uuid, user: Uuid, role: Role) -> Result<()> {
    let tx = &change.tx;
    let (members, own) = (accounts::members(organisation.as_bytes()), accounts::memberships(user.as_bytes()));
    if members.get::<MemberRecord>(tx, user.as_bytes(), Read::Serializable).await?.is_some() {
        return Err(Error::Conflict("you are a member of this organisation already".into()));
    }
    let all = members.page::<MemberRecord>(tx, None, MEMBERS_MAX, Read::Serializable).await?;
    room(all.items.len(), MEMBERS_MAX, "members of this organisation")?;
    room(of_user(tx, user, Read::Serializable).await?.len(), ORGANISATIONS_MAX, "organisations of yours")?;
    members.put(tx, user.as_bytes(), &MemberRecord { role, since_ms: change.now_ms }).await?;
    own.put(tx, organisation.as_bytes(), &()).await?;
    Ok(())
}

pub(super) async fn of_user(tx: &Transaction, user: Uuid, read: Read) -> Result<Vec<(Uuid, Role)>> {
    let page = accounts::memberships(user.as_bytes()).page::<()>(tx, None, ORGANISATIONS_MAX, read).await?;
    let mut all = Vec::new();
    for (id, _) in page.items {
        let organisation = uuid(&id)?;
        all.push((organisation, role(tx, organisation, user, read).await?));
    }
    Ok(all)
}

pub(super) async fn remove_all(tx: &Transaction, organisation: Uuid) -> Result<()> {
    let all = accounts::members(organisation.as_bytes());
    for (id, _) in all.page::<MemberRecord>(tx, None, MEMBERS_MAX, Read::Serializable).await?.items {
        remove(tx, organisation, uuid(&id)?).await?;
    }
    Ok(())
}

pub(super) async fn remove(tx: &Transaction, organisation: Uuid, user: Uuid) -> Result<()> {
    accounts::members(organisation.as_bytes()).clear(tx, user.as_bytes()).await?;
    Ok(accounts::memberships(user.as_bytes()).clear(tx, organisation.as_bytes()).await?)
}

async fn record(tx: &Transaction, organisation: Uuid, user: Uuid) -> Result<MemberRecord> {
    find(tx, organisation, user, Read::Serializable).await?.ok_or(Error::NotFound("member"))
}

async fn find(tx: &Transaction, organisation: Uuid, user: Uuid, read: Read) -> Result<Option<MemberRecord>> {
    let members = accounts::members(organisation.as_bytes());
    Ok(members.get::<MemberRecord>(tx, user.as_bytes(), read).await?.map(|found| found.value))
}

async fn keeps_an_owner(tx: &Transaction, organisation: Uuid, leaving: Uuid) -> Result<()> {
    if has_another_owner(tx, organisation, leaving).await? {
        return Ok(());
    }
    Err(Error::Conflict("this is the last owner: make somebody else an owner first".into()))
}

pub(super) async fn has_another_owner(tx: &Transaction, organisation: Uuid, leaving: Uuid) -> Result<bool> {
    let members = accounts::members(organisation.as_bytes());
    let all = members.page::<MemberRecord>(tx, None, MEMBERS_MAX, Read::Serializable).await?;
    let stays = |(id, record): &(_, millrace_layers::documents::Document<MemberRecord>)| {
        let id: &bytes::Bytes = id;
        record.value.role == Role::Owner && id != &leaving.as_bytes()[..]
    };
    Ok(all.items.iter().any(stays))
}

pub(super) fn uuid(id: &[u8]) -> Result<Uuid> {
    Uuid::from_slice(id).map_err(|_| Error::Internal("a stored id cannot be read"))
}
