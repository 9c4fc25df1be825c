//! Dead letters: events that left the queue of a webhook without a delivery.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};
use serde::{Deserialize, Serialize};

use super::{WebhookId, enqueue, state, state::DeliveryFailure, state::WebhookState};
use crate::{
    BrokerId,
    error::{LayerError, LayerResult},
    limits::{
        DEAD_LETTER_BYTES_MAX, DEAD_LETTER_MS, DEAD_LETTERS_BYTES_MAX, DEAD_LETTERS_FORGOTTEN,
        DEAD_LETTERS_MAX, DEAD_LETTERS_PAGE_BYTES,
    },
    position::Position,
    rows::{self, Blob},
    tags,
    tuple::{Elements, Key},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDeadLetter {
    pub id: Position,
    pub at_ms: u64,
    pub attempts: u32,
    /// The last failure; `None` for an event that was never tried.
    pub failure: Option<DeliveryFailure>,
    /// It waits to be sent once more.
    pub is_retried: bool,
    pub event: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDeadLetter {
    pub id: Position,
    pub attempts: u32,
    pub failure: Option<DeliveryFailure>,
    pub event: Bytes,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct DeadLetterHead {
    at_ms: u64,
    attempts: u32,
    failure: Option<DeliveryFailure>,
}

/// Up to `limit` dead letters after the one at `from`, oldest first, read in snapshots; and whether there may be more.
pub async fn dead_letters(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    from: Option<Position>,
    limit: usize,
) -> LayerResult<(Vec<StoredDeadLetter>, bool)> {
    let prefix = webhook.key(tags::DEAD_LETTER);
    let range = prefix.children();
    let begin = from.map_or(range.begin, |from| after(prefix.clone().position(from).as_ref()));
    let page = tx.range(KeyRange::new(begin, range.end), RangeOptions::first(limit).snapshot()).await?;
    let (mut letters, mut bytes, mut more) = (Vec::new(), 0, page.more);
    for row in page.items {
        if bytes > DEAD_LETTERS_PAGE_BYTES {
            more = true;
            break;
        }
        let id = Elements::after(&prefix, &row.key)?.position()?;
        let is_retried =
            tx.get(webhook.key(tags::WEBHOOK_AGAIN).position(id), Read::Snapshot).await?.is_some();
        let letter = decode(id, is_retried, blob(webhook, id).rest(tx, row.value).await?)?;
        bytes += letter.event.len();
        letters.push(letter);
    }
    Ok((letters, more))
}

/// Marks one dead letter, or all, to be sent once more; returns how many.
pub async fn send_again(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    id: Option<Position>,
) -> LayerResult<usize> {
    let ids = ids(tx, webhook, id).await?;
    for id in &ids {
        tx.set(webhook.key(tags::WEBHOOK_AGAIN).position(*id), Bytes::new())?;
    }
    if !ids.is_empty() {
        enqueue(tx, webhook)?;
    }
    Ok(ids.len())
}

pub async fn remove(tx: &Transaction, webhook: WebhookId<'_>, id: Option<Position>) -> LayerResult<usize> {
    let mut state = state::get(tx, webhook, Read::Serializable).await?;
    let count = match id {
        Some(id) => usize::from(remove_one(tx, webhook, &mut state, id).await?),
        None => {
            clear(tx, webhook)?;
            std::mem::take(&mut state.dead_letters) as usize
        }
    };
    if id.is_none() {
        state.dead_letter_bytes = 0;
    }
    state::set(tx, webhook, &state)?;
    Ok(count)
}

/// Sends an event once that is in no queue; if the receiver refuses it, it becomes a dead letter.
pub async fn add_test(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    event: &Bytes,
    now_ms: u64,
) -> LayerResult<()> {
    let mut state = state::get(tx, webhook, Read::Serializable).await?;
    make_room(tx, webhook, &mut state, event.len()).await?;
    // A [`Blob`] without further chunks; its position is known only at the commit, so `Blob::set` cannot write it.
    let mut row = vec![0, 0];
    row.extend_from_slice(&encode(&DeadLetterHead { at_ms: now_ms, ..DeadLetterHead::default() }, event)?);
    let number = [0, 0];
    tx.set_versionstamped_key(webhook.key(tags::DEAD_LETTER).before_position(), number, [], row)?;
    tx.set_versionstamped_key(webhook.key(tags::WEBHOOK_AGAIN).before_position(), number, [], Bytes::new())?;
    state::set(tx, webhook, &state)?;
    enqueue(tx, webhook)
}

pub(super) async fn add(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    state: &mut WebhookState,
    letter: &NewDeadLetter,
) -> LayerResult<()> {
    if letter.event.len() > DEAD_LETTER_BYTES_MAX {
        state.dead_letters_lost += 1;
        return Ok(());
    }
    make_room(tx, webhook, state, letter.event.len()).await?;
    let at_ms = letter.failure.as_ref().map_or(0, |failure| failure.at_ms);
    let head = DeadLetterHead { at_ms, attempts: letter.attempts, failure: letter.failure.clone() };
    blob(webhook, letter.id).set(tx, &encode(&head, &letter.event)?).await
}

/// Removes the oldest dead letters until there is room for `bytes`, which it counts.
async fn make_room(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    state: &mut WebhookState,
    bytes: usize,
) -> LayerResult<()> {
    let is_full = |state: &WebhookState| {
        state.dead_letters >= DEAD_LETTERS_MAX
            || state.dead_letter_bytes + bytes as u64 > DEAD_LETTERS_BYTES_MAX
    };
    while state.dead_letters > 0 && is_full(state) {
        let options = RangeOptions { limit: 1, reverse: false, read: Read::Serializable };
        let page = tx.range(webhook.key(tags::DEAD_LETTER).children(), options).await?;
        let Some(first) = page.items.first() else { break };
        let id = Elements::after(&webhook.key(tags::DEAD_LETTER), &first.key)?.position()?;
        remove_one(tx, webhook, state, id).await?;
        state.dead_letters_lost += 1;
    }
    state.dead_letters += 1;
    state.dead_letter_bytes += bytes as u64;
    Ok(())
}

/// Removes the oldest dead letters of each webhook of a broker while they are older than [`DEAD_LETTER_MS`], at most
/// [`DEAD_LETTERS_FORGOTTEN`] of the broker, and returns how many.
pub async fn forget_dead_letters(tx: &Transaction, broker: BrokerId, now_ms: u64) -> LayerResult<usize> {
    let all = Key::new(broker, tags::DEAD_LETTER);
    let (mut begin, mut removed) = (all.children().begin, 0);
    while removed < DEAD_LETTERS_FORGOTTEN {
        let options = RangeOptions { limit: 1, reverse: false, read: Read::Serializable };
        let page = tx.range(KeyRange::new(begin.clone(), all.end()), options).await?;
        let Some(row) = page.items.first() else { break };
        let name = Elements::after(&all, &row.key)?.bytes()?;
        let webhook = WebhookId { broker, name: std::str::from_utf8(&name).map_err(|_| CORRUPT)? };
        let prefix = webhook.key(tags::DEAD_LETTER);
        if take_head(&mut row.value.slice(2..))?.at_ms.saturating_add(DEAD_LETTER_MS) > now_ms {
            begin = prefix.end().into();
            continue;
        }
        let mut state = state::get(tx, webhook, Read::Serializable).await?;
        remove_one(tx, webhook, &mut state, Elements::after(&prefix, &row.key)?.position()?).await?;
        state.dead_letters_lost += 1;
        state::set(tx, webhook, &state)?;
        removed += 1;
    }
    Ok(removed)
}

/// Returns whether there was such a dead letter.
pub(super) async fn remove_one(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    state: &mut WebhookState,
    id: Position,
) -> LayerResult<bool> {
    tx.clear(webhook.key(tags::WEBHOOK_AGAIN).position(id))?;
    let Some(row) = tx.get(blob(webhook, id).row, Read::Serializable).await? else { return Ok(false) };
    let bytes = u64::from(row.slice(2..).try_get_u32()?);
    blob(webhook, id).clear(tx).await?;
    state.dead_letters = state.dead_letters.saturating_sub(1);
    state.dead_letter_bytes = state.dead_letter_bytes.saturating_sub(bytes);
    Ok(true)
}

/// Stores that the receiver refused a dead letter once more.
pub(super) async fn refused_again(
    tx: &Transaction,
    webhook: WebhookId<'_>,
    letter: &StoredDeadLetter,
    failure: &DeliveryFailure,
) -> LayerResult<()> {
    tx.clear(webhook.key(tags::WEBHOOK_AGAIN).position(letter.id))?;
    let blob = blob(webhook, letter.id);
    if tx.get(&blob.row, Read::Serializable).await?.is_none() {
        return Ok(());
    }
    let head =
        DeadLetterHead { at_ms: letter.at_ms, attempts: letter.attempts + 1, failure: Some(failure.clone()) };
    blob.set(tx, &encode(&head, &letter.event)?).await
}

pub(super) async fn next_retried(
    tx: &Transaction,
    webhook: WebhookId<'_>,
) -> LayerResult<Option<StoredDeadLetter>> {
    let prefix = webhook.key(tags::WEBHOOK_AGAIN);
    let options = RangeOptions { limit: 1, reverse: false, read: Read::Serializable };
    let page = tx.range(prefix.children(), options).await?;
    let Some(row) = page.items.first() else { return Ok(None) };
    let id = Elements::after(&prefix, &row.key)?.position()?;
    match blob(webhook, id).get(tx, Read::Serializable).await? {
        Some(row) => decode(id, true, row).map(Some),
        None => {
            tx.clear(&row.key)?;
            Ok(None)
        }
    }
}

/// Removes all dead letters, and keeps their counters.
pub(super) fn clear(tx: &Transaction, webhook: WebhookId<'_>) -> LayerResult<()> {
    for tag in [tags::DEAD_LETTER, tags::DEAD_LETTER_CHUNK, tags::WEBHOOK_AGAIN] {
        tx.clear_range(webhook.key(tag).children())?;
    }
    Ok(())
}

async fn ids(tx: &Transaction, webhook: WebhookId<'_>, only: Option<Position>) -> LayerResult<Vec<Position>> {
    let prefix = webhook.key(tags::DEAD_LETTER);
    let Some(id) = only else {
        let rows = rows::all(tx, prefix.children(), Read::Snapshot).await?;
        return rows.iter().map(|row| Elements::after(&prefix, &row.key)?.position()).collect();
    };
    let is_there = tx.get(blob(webhook, id).row, Read::Serializable).await?.is_some();
    Ok(is_there.then_some(id).into_iter().collect())
}

fn blob(webhook: WebhookId<'_>, id: Position) -> Blob {
    Blob {
        row: webhook.key(tags::DEAD_LETTER).position(id),
        chunks: webhook.key(tags::DEAD_LETTER_CHUNK).position(id),
    }
}

fn encode(head: &DeadLetterHead, event: &Bytes) -> LayerResult<Bytes> {
    let head = serde_json::to_vec(head).map_err(|_| CORRUPT)?;
    let mut row = Vec::with_capacity(6 + head.len() + event.len());
    row.put_u32(u32::try_from(event.len()).map_err(|_| CORRUPT)?);
    rows::put_sized(&mut row, &head);
    row.put_slice(event);
    Ok(row.into())
}

fn decode(id: Position, is_retried: bool, mut row: Bytes) -> LayerResult<StoredDeadLetter> {
    let DeadLetterHead { at_ms, attempts, failure } = take_head(&mut row)?;
    Ok(StoredDeadLetter { id, at_ms, attempts, failure, is_retried, event: row })
}

fn take_head(row: &mut Bytes) -> LayerResult<DeadLetterHead> {
    row.try_get_u32()?;
    serde_json::from_slice(&rows::take_sized(row)?).map_err(|_| CORRUPT)
}

const CORRUPT: LayerError = LayerError::Corrupt("letter");
