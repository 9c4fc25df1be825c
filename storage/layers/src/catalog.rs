//! The catalog of the region's brokers: ids, names and details, and the list of condemned brokers, whose data is
//! being erased.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, TransactionOption, after};

use serde::{Deserialize, Serialize};

use crate::{
    BrokerId,
    documents::{Document, next_version},
    error::LayerResult,
    name, rows, tags,
    tuple::{Elements, Key},
};

/// Name of the broker that exists from the first start on.
pub const DEFAULT: &[u8] = b"default";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRecord {
    /// Never 0 and never reused.
    pub id: BrokerId,
    pub name: Bytes,
    /// [`Details`] as a [`Document`]; empty for a broker that only has a name.
    pub details: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Details {
    /// Id of the owning organisation; `None` for the operator's brokers.
    pub organisation: Option<String>,
    pub display_name: String,
    /// The owner or an operator stopped it: no client may connect.
    pub suspended: bool,
    pub created_at_ms: u64,
    /// A spend cap was reached: no client may connect or publish until the cap is raised or the month is over.
    pub is_over_cap: bool,
    /// The broker existed before an organisation owned it, so the server's settings decide who may connect until its
    /// owner does. The access record of the broker, once there is one, says whether they still do.
    pub by_settings: bool,
}

impl Details {
    /// Whether the broker's records decide who may connect; otherwise the server's settings do. `by_settings` is that
    /// field of the broker's access record. A record from before the field existed has taken the broker out of the
    /// settings, so it counts as false.
    #[must_use]
    pub fn is_managed(&self, by_settings: Option<bool>) -> bool {
        !by_settings.unwrap_or(self.by_settings || self.organisation.is_none())
    }
}

impl BrokerRecord {
    pub fn details(&self) -> LayerResult<Document<Details>> {
        if self.details.is_empty() {
            return Ok(Document { value: Details::default(), version: 0 });
        }
        Document::decode(&self.details)
    }
}

/// Writes a broker's details, which the transaction has read serializably, and returns their new version.
pub async fn describe(tx: &Transaction, broker: &BrokerRecord, value: &Details) -> LayerResult<u64> {
    let version = next_version(tx, Some(broker.details()?.version)).await?;
    let details = Document { value, version }.encode()?;
    set(tx, &BrokerRecord { details, ..broker.clone() })?;
    Ok(version)
}

/// Returns the broker of this name, and whether it was made because there was none.
///
/// # Errors
/// [`crate::LayerError::NameTooLong`], or the store's.
pub async fn ensure(tx: &Transaction, name: &[u8], details: Bytes) -> LayerResult<(BrokerRecord, bool)> {
    name::check(name)?;
    if let Some(broker) = get(tx, name, Read::Serializable).await? {
        return Ok((broker, false));
    }
    let broker = BrokerRecord { id: new_id(tx).await?, name: Bytes::copy_from_slice(name), details };
    tx.set(id_key(broker.id), broker.name.clone())?;
    set(tx, &broker)?;
    Ok((broker, true))
}

/// An id that no broker has or had.
pub async fn new_id(tx: &Transaction) -> LayerResult<BrokerId> {
    // Conflicts between concurrent creations do not matter, because they are rare.
    let id = rows::counter(tx, &last_id(), Read::Serializable).await? + 1;
    tx.set(last_id(), Bytes::copy_from_slice(&id.to_le_bytes()))?;
    Ok(id)
}

pub async fn get(tx: &Transaction, name: &[u8], read: Read) -> LayerResult<Option<BrokerRecord>> {
    let value = tx.get(names().bytes(name), read).await?;
    value.map(|value| decode(Bytes::copy_from_slice(name), value)).transpose()
}

pub async fn name_of(tx: &Transaction, id: BrokerId) -> LayerResult<Option<Bytes>> {
    Ok(tx.get(id_key(id), Read::Snapshot).await?)
}

pub fn set(tx: &Transaction, broker: &BrokerRecord) -> LayerResult<()> {
    let mut value = Vec::with_capacity(8 + broker.details.len());
    value.put_u64(broker.id);
    value.put_slice(&broker.details);
    Ok(tx.set(names().bytes(&broker.name), value)?)
}

/// Lists up to `limit` brokers after the name `from`, as a snapshot read.
pub async fn list(tx: &Transaction, from: Option<&[u8]>, limit: usize) -> LayerResult<Vec<BrokerRecord>> {
    let prefix = names();
    let begin = from.map_or(prefix.children().begin, |from| after(names().bytes(from).as_ref()));
    let options = RangeOptions::first(limit).snapshot();
    let page = tx.range(KeyRange::new(begin, prefix.end()), options).await?;
    let read = |row: millrace_storage::KeyValue| {
        decode(Elements::after(&prefix, &row.key)?.bytes()?.into(), row.value)
    };
    page.items.into_iter().map(read).collect()
}

/// Removes a broker with all its data, except the rows of its sessions that are ordered by pod or by time: they are
/// removed when they are next read.
///
/// # Errors
/// The store's for a large broker on an engine that clears keys one by one: [`erase`] must empty the broker first.
pub fn remove(tx: &Transaction, broker: &BrokerRecord) -> LayerResult<()> {
    tx.clear(names().bytes(&broker.name))?;
    tx.clear(id_key(broker.id))?;
    let all = Key::element(broker.id);
    Ok(tx.clear_range(all.children())?)
}

/// Removes a broker's name, so that it cannot be found any more, and leaves its data to [`erase`], which removes it in
/// parts because a large broker exceeds a transaction.
pub fn condemn(tx: &Transaction, broker: &BrokerRecord, now_ms: u64) -> LayerResult<()> {
    tx.clear(names().bytes(&broker.name))?;
    tx.clear(id_key(broker.id))?;
    condemn_id(tx, broker.id, now_ms)
}

/// As [`condemn`], for an id of [`new_id`] without a name.
pub fn condemn_id(tx: &Transaction, id: BrokerId, now_ms: u64) -> LayerResult<()> {
    Ok(tx.set(condemned_key(id), now_ms.to_be_bytes().to_vec())?)
}

/// Lists up to `limit` condemned brokers after `from` with the time of each in unix milliseconds, as a snapshot read.
pub async fn condemned(tx: &Transaction, from: BrokerId, limit: usize) -> LayerResult<Vec<(BrokerId, u64)>> {
    let prefix = Key::new(tags::REGION, tags::CONDEMNED);
    let range = KeyRange::new(condemned_key(from + 1), prefix.end());
    let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
    let read = |row: millrace_storage::KeyValue| {
        Ok((Elements::after(&prefix, &row.key)?.uint()?, row.value.clone().try_get_u64()?))
    };
    page.items.into_iter().map(read).collect()
}

/// Removes up to `limit` keys of a broker; returns their number, and where the next step begins. A step from the start
/// would pass all removed rows, because the embedded engine keeps them until a compaction.
pub async fn erase(
    tx: &Transaction,
    id: BrokerId,
    from: Option<Bytes>,
    limit: usize,
) -> LayerResult<(usize, Option<Bytes>)> {
    tx.set_option(TransactionOption::FreesSpace);
    let mut rest = Key::element(id).children();
    rest.begin = from.unwrap_or(rest.begin);
    let page = tx.range(rest.clone(), RangeOptions::first(limit).snapshot()).await?;
    let Some(last) = page.items.last() else { return Ok((0, None)) };
    let next = after(&last.key);
    tx.clear_range(KeyRange::new(rest.begin, &next))?;
    Ok((page.items.len(), page.more.then_some(next)))
}

/// Removes a condemned broker without data from the list.
pub fn forget(tx: &Transaction, id: BrokerId) -> LayerResult<()> {
    Ok(tx.clear(condemned_key(id))?)
}

fn decode(name: Bytes, mut value: Bytes) -> LayerResult<BrokerRecord> {
    Ok(BrokerRecord { id: value.try_get_u64()?, name, details: value })
}

fn names() -> Key {
    Key::new(tags::REGION, tags::BROKER)
}

fn id_key(id: BrokerId) -> Key {
    Key::new(tags::REGION, tags::BROKER_ID).uint(id)
}

fn condemned_key(id: BrokerId) -> Key {
    Key::new(tags::REGION, tags::CONDEMNED).uint(id)
}

fn last_id() -> Key {
    Key::new(tags::REGION, tags::LAST_BROKER)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{
        testing::{database, run},
        usage,
    };

    #[test]
    fn a_broker_is_made_once_and_its_id_is_never_given_again() {
        let database = database();
        let make =
            |name: &'static [u8]| run(&database, async |tx| ensure(tx, name, Bytes::from_static(b"x")).await);
        let (default, made) = make(DEFAULT);
        assert!(made && default.id == 1);
        assert_eq!(make(DEFAULT), (default.clone(), false));
        let other = make(b"other").0;
        assert_eq!(other.id, 2);
        run(&database, async |tx| {
            assert_eq!(list(tx, None, 10).await?, [default.clone(), other.clone()]);
            assert_eq!(list(tx, Some(DEFAULT), 10).await?, std::slice::from_ref(&other));
            assert_eq!(name_of(tx, 2).await?.as_deref(), Some(&b"other"[..]));
            usage::add(tx, 2, usage::Counter::PublishedMessages, 3)?;
            usage::add(tx, 2, usage::Counter::PublishedMessages, 4)?;
            assert_eq!(usage::get(tx, 2, usage::Counter::PublishedMessages).await?, 7);
            remove(tx, &other)
        });
        assert_eq!(make(b"third").0.id, 3);
        let usage = run(&database, async |tx| usage::get(tx, 2, usage::Counter::PublishedMessages).await);
        assert_eq!(usage, 0);
    }
    #[test]
    fn details_of_a_broker_have_a_version_and_a_new_broker_has_none() {
        let database = database();
        let details = Details { display_name: "Plant".into(), suspended: true, ..Details::default() };
        run(&database, async |tx| {
            let broker = ensure(tx, b"a", Bytes::new()).await?.0;
            assert_eq!(broker.details()?, Document { value: Details::default(), version: 0 });
            let version = describe(tx, &broker, &details).await?;
            let broker = get(tx, b"a", Read::Serializable).await?.unwrap();
            assert_eq!(broker.details()?, Document { value: details.clone(), version });
            assert!(describe(tx, &broker, &details).await? > version);
            Ok(())
        });
    }

    #[test]
    fn a_condemned_broker_is_erased_piece_by_piece_and_no_other() {
        let database = database();
        let make = |name: &'static [u8]| run(&database, async |tx| ensure(tx, name, Bytes::new()).await).0;
        let (broker, other) = (make(b"a"), make(b"b"));
        run(&database, async |tx| {
            for counter in usage::Counter::ALL {
                usage::add(tx, broker.id, counter, 1)?;
                usage::add(tx, other.id, counter, 1)?;
            }
            condemn(tx, &broker, 5)
        });
        run(&database, async |tx| {
            assert_eq!(get(tx, b"a", Read::Snapshot).await?, None);
            assert_eq!(name_of(tx, broker.id).await?, None);
            assert_eq!(condemned(tx, 0, 9).await?, [(broker.id, 5)]);
            assert_eq!(condemned(tx, broker.id, 9).await?, []);
            Ok(())
        });
        let mut from = None;
        let mut erased = || {
            let (count, next) = run(&database, async |tx| erase(tx, broker.id, from.clone(), 5).await);
            from.clone_from(&next);
            (count, next.is_some())
        };
        assert_eq!([erased(), erased(), erased(), erased()], [(5, true), (5, true), (3, false), (0, false)]);
        run(&database, async |tx| forget(tx, broker.id));
        run(&database, async |tx| {
            assert_eq!(condemned(tx, 0, 9).await?, []);
            assert_eq!(usage::get(tx, other.id, usage::Counter::PublishedBytes).await?, 1);
            Ok(())
        });
    }
}
