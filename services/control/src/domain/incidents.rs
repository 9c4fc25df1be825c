//! Incidents: requests and messages that a broker has refused or dropped. Servers record them; this file reads them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::Position;
use millrace_layers::incidents::{self, IncidentSearch};
use millrace_storage::Read;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BrokerRef, Caller, Control, Page, PageRequest, Permission, Result, brokers, page};

/// An incident. Equal incidents within about ten seconds are one, with a count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Incident {
    /// Its position in the list.
    pub id: String,
    /// Time of the first occurrence, in unix milliseconds.
    pub at_ms: u64,
    /// Time of the last occurrence, in unix milliseconds.
    pub last_at_ms: u64,
    /// Number of occurrences, or of messages.
    pub count: u64,
    pub kind: IncidentKind,
    /// Client id; null: several clients, or no client.
    pub client_id: Option<String>,
    pub user: Option<String>,
    /// The topic, the topic filter or the name of the limit.
    #[schema(example = "broker.connections")]
    pub what: Option<String>,
    /// The reason. The client may have received a shorter one.
    #[schema(example = "the broker has as many clients as its limit allows")]
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// The broker refused a client, or disconnected it.
    ConnectRefused,
    /// The broker refused a message.
    PublishRefused,
    /// The broker refused a subscription.
    SubscribeRefused,
    /// A limit of the broker or of a client was reached.
    LimitReached,
    /// The broker dropped messages for a client.
    MessagesDropped,
}

impl From<incidents::StoredIncidentKind> for IncidentKind {
    fn from(kind: incidents::StoredIncidentKind) -> Self {
        match kind {
            incidents::StoredIncidentKind::ConnectRefused => Self::ConnectRefused,
            incidents::StoredIncidentKind::PublishRefused => Self::PublishRefused,
            incidents::StoredIncidentKind::SubscribeRefused => Self::SubscribeRefused,
            incidents::StoredIncidentKind::LimitReached => Self::LimitReached,
            incidents::StoredIncidentKind::MessagesDropped => Self::MessagesDropped,
        }
    }
}

impl From<IncidentKind> for incidents::StoredIncidentKind {
    fn from(kind: IncidentKind) -> Self {
        match kind {
            IncidentKind::ConnectRefused => Self::ConnectRefused,
            IncidentKind::PublishRefused => Self::PublishRefused,
            IncidentKind::SubscribeRefused => Self::SubscribeRefused,
            IncidentKind::LimitReached => Self::LimitReached,
            IncidentKind::MessagesDropped => Self::MessagesDropped,
        }
    }
}

impl Control {
    pub(crate) async fn incidents(
        &self,
        caller: &Caller,
        at: &BrokerRef,
        client_id: Option<&str>,
        kind: Option<IncidentKind>,
        page: &PageRequest,
    ) -> Result<Page<Incident>> {
        let before = page.after.as_deref().map(position).transpose()?;
        let wanted = IncidentSearch { client_id, kind: kind.map(Into::into) };
        self.look(|tx| async move {
            let broker = brokers::find(&tx, caller, at, Permission::ClientsRead, Read::Snapshot).await?;
            let (rows, more) = incidents::page(&tx, broker.id, wanted, before, page.limit).await?;
            let items: Vec<Incident> = rows.into_iter().map(|(at, row)| shown(at, row)).collect();
            let next = items.last().filter(|_| more).map(|last| last.id.clone().into_bytes());
            Ok(Page { items, next })
        })
        .await
    }
}

fn shown(at: Position, row: incidents::IncidentRecord) -> Incident {
    let incidents::IncidentRecord { at_ms, last_at_ms, count, kind, client_id, user, what, reason } = row;
    let id = URL_SAFE_NO_PAD.encode(at.0);
    Incident { id, at_ms, last_at_ms, count, kind: kind.into(), client_id, user, what, reason }
}

fn position(cursor: &[u8]) -> Result<Position> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).map(Position).ok_or_else(page::wrong_cursor)
}
