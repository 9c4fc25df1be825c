//! Reads sessions of a broker from the store, for the API.

use millrace_control::{
    LiveError, Page, PageRequest, SessionDetails, SessionInfo, SessionState, SubscriptionInfo,
};
use millrace_layers::limits::NAME_BYTES_MAX;
use millrace_layers::sessions::{self, EXPIRY_NEVER, SessionId};
use millrace_layers::{
    BrokerId,
    inspection::{self, StoredSession},
    qos2::{self, Direction},
    subscriptions,
};
use millrace_storage::Read;

use super::live::LiveEdge;
use crate::clock::now_ms;
use crate::text::name;

/// Queued messages that a list counts for each session and altogether: counting means reading them.
const WAITING_IN_LIST_MAX: usize = 1_000;
pub(super) const COUNTED_IN_LIST_MAX: usize = 5_000;
/// Queued messages that are counted for a session shown alone.
const WAITING_MAX: usize = 10_000;

pub(super) async fn list(
    edge: &LiveEdge,
    broker: BrokerId,
    search: Option<&str>,
    page: &PageRequest,
) -> Result<Page<SessionInfo>, LiveError> {
    let (start, after) = (search.unwrap_or_default().as_bytes(), page.after.as_deref());
    // One row more than requested shows whether there are more.
    let wanted = page.limit + 1;
    let mut clients: Vec<_> = edge
        .run(|tx| async move { sessions::list_beginning_with(&tx, broker, start, after, wanted).await })
        .await?;
    let more = clients.len() > page.limit;
    clients.truncate(page.limit);
    let next = clients.last().filter(|_| more).map(|(client, _)| client.to_vec());
    let mut items = Vec::with_capacity(clients.len());
    let mut left = COUNTED_IN_LIST_MAX;
    for (client, _) in &clients {
        let id = SessionId { broker, client };
        // Each session gets a transaction of its own, because all together may take longer than a
        // transaction may. A session that ended meanwhile is left out.
        let max = counted(left);
        if let Some(found) = edge.run(|tx| async move { inspection::session(&tx, id, max).await }).await? {
            left = left.saturating_sub(usize::try_from(found.waiting.totals.entries).unwrap_or(max));
            items.push(summary(client, &found));
        }
    }
    Ok(Page { items, next })
}

pub(super) async fn show(
    edge: &LiveEdge,
    broker: BrokerId,
    client_id: &str,
) -> Result<SessionDetails, LiveError> {
    let id = SessionId { broker, client: client_id.as_bytes() };
    if client_id.len() > NAME_BYTES_MAX {
        return Err(LiveError::NotFound("session"));
    }
    let details = edge.run(|tx| async move {
        let Some(found) = inspection::session(&tx, id, WAITING_MAX).await? else { return Ok(None) };
        let ids = async |direction| {
            let ids = qos2::list(&tx, id, direction, Read::Snapshot).await?;
            Ok::<_, millrace_layers::LayerError>(ids.into_iter().map(|(id, _)| id).collect())
        };
        Ok(Some(SessionDetails {
            session: summary(id.client, &found),
            filters: found.subscriptions.iter().map(subscription).collect(),
            missed_at_least: found.waiting.missed.at_least,
            will_delay_s: inspection::will(&tx, id).await?.map(|will| will.delay_s),
            outbound_packet_ids: ids(Direction::Outbound).await?,
            inbound_packet_ids: ids(Direction::Inbound).await?,
        }))
    });
    details.await?.ok_or(LiveError::NotFound("session"))
}

/// How many messages to count for the next row of a list: at least one, which shows whether there
/// are any.
pub(super) fn counted(left: usize) -> usize {
    left.clamp(1, WAITING_IN_LIST_MAX)
}

fn summary(client: &[u8], found: &StoredSession) -> SessionInfo {
    let StoredSession { record, subscriptions, waiting } = found;
    SessionInfo {
        client_id: name(client),
        state: state(record),
        offline_since_ms: record.is_detached().then_some(record.detached_at_ms),
        expiry_s: (record.expiry_s != EXPIRY_NEVER).then_some(record.expiry_s),
        expires_at_ms: record.expires_at_ms(),
        subscriptions: subscriptions.len() as u64,
        waiting_messages: waiting.totals.entries,
        waiting_bytes: waiting.totals.bytes,
        waiting_is_more: waiting.more,
        oldest_waiting_at_ms: waiting.oldest_at_ms,
    }
}

pub(super) fn state(record: &sessions::SessionRecord) -> SessionState {
    match record {
        record if record.is_expired(now_ms()) => SessionState::Expired,
        record if record.is_detached() => SessionState::Offline,
        _ => SessionState::Connected,
    }
}

fn subscription(of: &subscriptions::StoredSubscription) -> SubscriptionInfo {
    let options = millrace_edge::stored::subscription_options(of.options.bits);
    SubscriptionInfo {
        filter: name(&of.filter),
        qos: options.qos,
        no_local: options.no_local,
        retain_as_published: options.retain_as_published,
        retain_handling: options.retain_handling,
        identifier: of.options.identifier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of 200 sessions with many messages each.
    #[test]
    fn a_list_counts_a_bounded_number_of_messages_however_many_wait() {
        let (mut left, mut all) = (COUNTED_IN_LIST_MAX, 0);
        for _ in 0..200 {
            let found = counted(left);
            all += found;
            left = left.saturating_sub(found);
        }
        assert_eq!(all, COUNTED_IN_LIST_MAX + 195);
    }
}
