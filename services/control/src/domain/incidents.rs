//! What a broker has refused or dropped. The pods write it; here it is read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::Position;
use millrace_layers::incidents::{self, IncidentSearch};
use millrace_storage::Read;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BrokerRef, Caller, Control, Page, PageRequest, Permission, Result, brokers, page};

/// Something that was refused or dropped, once or often: alike ones of about ten seconds are one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Incident {
    /// Its place in the list.
    pub id: String,
    /// When first, in unix milliseconds.
    pub at_ms: u64,
    /// When last, in unix milliseconds.
    pub last_at_ms: u64,
    /// How often, or how many messages.
    pub count: u64,
    /// What kind it is.
    pub kind: IncidentKind,
    /// Client id; null: of several clients, or of nobody's.
    pub client_id: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// The topic, the topic filter or the name of the limit.
    #[schema(example = "client.publishes_per_s")]
    pub what: Option<String>,
    /// Why. The client may have been told less.
    pub reason: String,
}

/// A kind of incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    /// A client was not let in, or may not stay.
    ConnectRefused,
    /// A message was not taken.
    PublishRefused,
    /// A subscription was not made.
    SubscribeRefused,
    /// A limit of the broker or of a client was reached.
    LimitReached,
    /// A client has missed messages.
    MessagesDropped,
}

impl From<incidents::Kind> for IncidentKind {
    fn from(kind: incidents::Kind) -> Self {
        match kind {
            incidents::Kind::ConnectRefused => Self::ConnectRefused,
            incidents::Kind::PublishRefused => Self::PublishRefused,
            incidents::Kind::SubscribeRefused => Self::SubscribeRefused,
            incidents::Kind::LimitReached => Self::LimitReached,
            incidents::Kind::MessagesDropped => Self::MessagesDropped,
        }
    }
}

impl From<IncidentKind> for incidents::Kind {
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
    /// What a broker has refused or dropped, the latest first.
    ///
    /// # Errors
    /// See [`super::Error`].
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

fn shown(at: Position, row: incidents::Incident) -> Incident {
    let incidents::Incident { at_ms, last_at_ms, count, kind, client_id, user, what, reason } = row;
    let id = URL_SAFE_NO_PAD.encode(at.0);
    Incident { id, at_ms, last_at_ms, count, kind: kind.into(), client_id, user, what, reason }
}

fn position(cursor: &[u8]) -> Result<Position> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).map(Position).ok_or_else(page::wrong_cursor)
}
