//! The audit log of an organisation. A change writes its entry in its own transaction; the API reads entries by pages.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::{Position, accounts::audit};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::accounts::person_of;
use super::difference::without_secrets;
use super::{
    BrokerRef, Caller, Control, Error, Once, Operator, Page, PageRequest, Permission, Principal, Result,
    authorise, former, members,
};
use crate::limits::{AUDIT_LATE_MS, AUDIT_SCAN_BYTES_MAX, AUDIT_SCAN_ROWS, AUDIT_SCAN_ROWS_MAX};

/// The person or program that did something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Actor {
    pub kind: ActorKind,
    /// Id of the person or of the token; null for other kinds.
    pub id: Option<Uuid>,
    /// E-mail address of a person, or name of a token.
    #[schema(example = "ann@example.org")]
    pub name: String,
    pub address: Option<String>,
    /// The program that sent the request, by its User-Agent header: a browser, or `millrace` for the command line.
    #[serde(default)]
    pub agent: Option<String>,
    /// Creator of the token, by e-mail address or name; null for a person, and for tokens made before the server
    /// recorded it.
    #[serde(default)]
    pub made_by: Option<String>,
    #[serde(skip)]
    pub(super) scopes: Vec<Permission>,
    /// The person behind the caller; `None` for callers without credentials, and for the server itself.
    #[serde(skip)]
    pub(super) account: Option<Uuid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A person who has signed in.
    Person,
    Token,
    /// Millrace itself, without a request.
    Service,
    /// A client without credentials.
    Nobody,
    /// The operator of the region.
    Operator,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its position in the log.
    #[serde(default)]
    pub id: String,
    /// Time of the change, in unix milliseconds.
    pub at_ms: u64,
    /// The person or program that did it.
    pub actor: Actor,
    #[schema(example = "broker.create")]
    pub action: String,
    /// Name or id of the object of the action.
    #[schema(example = "k3v9x2mwqd7r")]
    pub target: String,
    /// Further facts. They never contain a secret.
    #[schema(example = json!({ "display_name": "Sensors of plant 7" }))]
    pub details: serde_json::Map<String, Value>,
}

/// Which entries of an audit log to read; the default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    actor: Option<String>,
    action: Option<String>,
    from_ms: Option<u64>,
    to_ms: Option<u64>,
}

impl Actor {
    pub(super) fn service() -> Self {
        Self::new(ActorKind::Service, "millrace", None)
    }

    pub(super) fn new(kind: ActorKind, name: &str, address: Option<IpAddr>) -> Self {
        let (name, address) = (name.into(), address.map(|address| address.to_string()));
        Self { kind, id: None, name, address, agent: None, made_by: None, scopes: Vec::new(), account: None }
    }
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        let (kind, id, name) = match &caller.who {
            Principal::Person { user, email, .. } => (ActorKind::Person, *user, email),
            Principal::Token { id, name, .. } => (ActorKind::Token, *id, name),
        };
        let (scopes, made_by) = match &caller.who {
            Principal::Person { .. } => (Vec::new(), None),
            Principal::Token { scopes, maker_name, .. } => (scopes.clone(), maker_name.clone()),
        };
        let (agent, account) = (caller.agent.clone(), Some(caller.account()));
        Self { id: Some(id), agent, made_by, scopes, account, ..Self::new(kind, name, caller.address) }
    }
}

/// Log of changes by operators that concern no single tenant.
pub(super) const REGION: Uuid = Uuid::nil();

impl Control {
    /// Records what the caller is about to do to a broker's clients or messages. It has a transaction of its own, because the
    /// server acts outside of the store's transactions.
    pub(crate) async fn note(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        action: &str,
        target: &str,
    ) -> Result<()> {
        let said = serde_json::json!({ "broker": at.name });
        let said = &said;
        self.change(caller.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            change.audit(at.organisation, action, target, said.clone())
        })
        .await
    }

    /// Records what an operator did to the region outside of the store's transactions.
    pub(crate) async fn note_of_region(&self, operator: &Operator, action: &str, target: &str) -> Result<()> {
        self.change(operator.into(), &Once::unnamed()?, |change| async move {
            change.use_reserve();
            change.audit_of_region(action, target, serde_json::json!({}))
        })
        .await
    }

    /// Records that the caller was refused something in an organisation. Callers from outside of the organisation leave
    /// no entry, so that strangers cannot fill its log. These entries have a rate of their own, so a caller who has used up the bytes of
    /// [`ChangeLogLimiter`](super::change_log_limiter::ChangeLogLimiter) is recorded too.
    pub(crate) async fn note_denied(
        &self,
        caller: &Caller,
        organisation: Uuid,
        (what, reason): (&str, &str),
    ) -> Result<()> {
        let actor = Actor { account: None, ..caller.into() };
        self.change(actor, &Once::unnamed()?, |change| async move {
            let belongs = match &caller.who {
                Principal::Token { organisation: own, .. } => *own == organisation,
                Principal::Person { user, .. } => {
                    members::role(&change.tx, organisation, *user, Read::Snapshot).await.is_ok()
                }
            };
            match belongs {
                true => change.audit(organisation, "denied", what, serde_json::json!({ "reason": reason })),
                false => Ok(()),
            }
        })
        .await
    }

    pub(crate) async fn may(
        &self,
        caller: &Caller,
        organisation: Uuid,
        permission: Permission,
    ) -> Result<()> {
        self.look(|tx| async move { authorise(&tx, caller, organisation, permission, Read::Snapshot).await })
            .await
    }

    pub async fn audit_log(
        &self,
        caller: &Caller,
        organisation: Uuid,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>> {
        let before = page.after.as_deref().map(position).transpose()?;
        self.look(|tx| async move {
            authorise(&tx, caller, organisation, Permission::AuditRead, Read::Snapshot).await?;
            entries(&tx, organisation, filter, (before, page.limit)).await
        })
        .await
    }

    pub(crate) async fn own_audit_log(
        &self,
        caller: &Caller,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>> {
        let (user, _) = person_of(caller)?;
        let before = page.after.as_deref().map(position).transpose()?;
        self.look(|tx| async move { entries(&tx, user, filter, (before, page.limit)).await }).await
    }

    /// The same as [`Control::audit_log`] for operators, who may also read a deleted organisation's log.
    pub async fn tenant_audit_log(
        &self,
        id: Uuid,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>> {
        let before = page.after.as_deref().map(position).transpose()?;
        self.look(|tx| async move {
            former::check_known(&tx, id).await?;
            entries(&tx, id, filter, (before, page.limit)).await
        })
        .await
    }

    pub async fn region_audit_log(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>> {
        let before = page.after.as_deref().map(position).transpose()?;
        self.look(|tx| async move { entries(&tx, REGION, filter, (before, page.limit)).await }).await
    }
}

/// The latest entries before a position that the filter lets through. The rows that a filtered read takes are bounded,
/// so its page may end early, even without an entry: its cursor continues from there.
async fn entries(
    tx: &Transaction,
    log: Uuid,
    filter: &AuditFilter,
    (mut before, limit): (Option<Position>, usize),
) -> Result<Page<AuditEntry>> {
    let (mut items, mut rows_read, mut bytes_read) = (Vec::new(), 0, 0);
    let is_filtered = *filter != AuditFilter::default();
    let at_once = if is_filtered { AUDIT_SCAN_ROWS } else { limit };
    loop {
        let (rows, more) = audit::page(tx, log.as_bytes(), before, at_once).await?;
        let last = rows.last().map(|(at, _)| *at);
        rows_read += rows.len();
        for (at, row) in rows {
            bytes_read += row.len();
            let entry = entry(at, &row)?;
            if filter.is_too_early(&entry) {
                return Ok(Page { items, next: None });
            }
            if filter.lets(&entry) {
                items.push(entry);
            }
            if items.len() == limit {
                let is_last = Some(at) == last && !more;
                return Ok(Page { items, next: (!is_last).then(|| cursor(at)) });
            }
        }
        before = last;
        if !more || rows_read >= AUDIT_SCAN_ROWS_MAX || bytes_read >= AUDIT_SCAN_BYTES_MAX {
            return Ok(Page { items, next: last.filter(|_| more).map(cursor) });
        }
    }
}

impl AuditFilter {
    /// Empty texts let everything through. The comparison ignores upper and lower case.
    pub(crate) fn new(
        actor: Option<&str>,
        action: Option<&str>,
        from_ms: Option<u64>,
        to_ms: Option<u64>,
    ) -> Self {
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_lowercase);
        Self { actor: text(actor), action: text(action), from_ms, to_ms }
    }

    fn lets(&self, entry: &AuditEntry) -> bool {
        let is_actor = |wanted: &String| {
            entry.actor.name.to_lowercase().starts_with(wanted)
                || entry.actor.id.is_some_and(|id| id.to_string() == *wanted)
        };
        self.actor.as_ref().is_none_or(is_actor)
            && self.action.as_ref().is_none_or(|wanted| entry.action.starts_with(wanted))
            && self.from_ms.is_none_or(|from_ms| entry.at_ms >= from_ms)
            && self.to_ms.is_none_or(|to_ms| entry.at_ms < to_ms)
    }

    /// Whether all entries before this one are earlier than the wanted time.
    fn is_too_early(&self, entry: &AuditEntry) -> bool {
        self.from_ms.is_some_and(|from_ms| entry.at_ms.saturating_add(AUDIT_LATE_MS) < from_ms)
    }
}

/// An entry that cannot be read counts as later, so that it stays.
pub(super) fn is_before(entry: &[u8], at_ms: u64) -> bool {
    #[derive(Deserialize)]
    struct At {
        at_ms: u64,
    }

    serde_json::from_slice::<At>(entry).is_ok_and(|entry| entry.at_ms < at_ms)
}

fn cursor(at: Position) -> Vec<u8> {
    URL_SAFE_NO_PAD.encode(at.0).into_bytes()
}

fn entry(at: Position, row: &[u8]) -> Result<AuditEntry> {
    let mut entry: AuditEntry = serde_json::from_slice(row)
        .map_err(|_| Error::Internal("an entry of the audit log cannot be read"))?;
    // Earlier versions stored the whole URL, which may contain a token of the tenant's service.
    if entry.action == "access.change"
        && let Some(Value::String(url)) = entry.details.get_mut("webhook")
    {
        *url = without_secrets(url);
    }
    Ok(AuditEntry { id: URL_SAFE_NO_PAD.encode(at.0), ..entry })
}

fn position(cursor: &[u8]) -> Result<Position> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).map(Position).ok_or_else(super::page::wrong_cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_earlier_version_shows_no_path_of_a_webhook() {
        let row = |action: &str| {
            let actor = Actor::service();
            let details =
                serde_json::json!({ "scram": true, "webhook": "https://h.test/hooks/token", "rules": 2 });
            let row = serde_json::json!({
                "at_ms": 1, "actor": actor, "action": action, "target": "b", "details": details,
            });
            entry(Position::MIN, row.to_string().as_bytes()).unwrap().details
        };
        assert_eq!(row("access.change")["webhook"], "https://h.test/(hidden)");
        assert_eq!(row("access.change")["rules"], 2);
        assert_eq!(row("webhook.test")["webhook"], "https://h.test/hooks/token");
    }
}
