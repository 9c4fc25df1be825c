//! The brokers of the region.

use bytes::{Buf, BufMut, Bytes};
use millrace_storage::{KeyRange, RangeOptions, Read, Transaction, after};

use crate::{
    BrokerId,
    error::Result,
    name, rows, tags,
    tuple::{Elements, Key},
};

/// The broker that is there from the first start on.
pub const DEFAULT: &[u8] = b"default";

/// A broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its id, the first element of all its keys. Never given twice, and never 0.
    pub id: BrokerId,
    /// Its name.
    pub name: Bytes,
    /// What only those who made it read.
    pub details: Bytes,
}

/// The broker of a name, made if there is none; and whether it was made.
///
/// # Errors
/// [`crate::Error::NameTooLong`], or the store's.
pub async fn ensure(tx: &Transaction, name: &[u8], details: Bytes) -> Result<(Broker, bool)> {
    name::check(name)?;
    if let Some(broker) = get(tx, name, Read::Serializable).await? {
        return Ok((broker, false));
    }
    // Brokers are made rarely: that two which are made at once conflict here does not matter.
    let last = rows::counter(tx, &last_id(), Read::Serializable).await?;
    let broker = Broker { id: last + 1, name: Bytes::copy_from_slice(name), details };
    tx.set(last_id(), Bytes::copy_from_slice(&broker.id.to_le_bytes()))?;
    tx.set(id_key(broker.id), broker.name.clone())?;
    set(tx, &broker)?;
    Ok((broker, true))
}

/// The broker of a name.
///
/// # Errors
/// The store's.
pub async fn get(tx: &Transaction, name: &[u8], read: Read) -> Result<Option<Broker>> {
    let value = tx.get(names().bytes(name), read).await?;
    value.map(|value| decode(Bytes::copy_from_slice(name), value)).transpose()
}

/// The name of a broker.
///
/// # Errors
/// The store's.
pub async fn name_of(tx: &Transaction, id: BrokerId) -> Result<Option<Bytes>> {
    Ok(tx.get(id_key(id), Read::Snapshot).await?)
}

/// Writes the details of a broker.
///
/// # Errors
/// The store's.
pub fn set(tx: &Transaction, broker: &Broker) -> Result<()> {
    let mut value = Vec::with_capacity(8 + broker.details.len());
    value.put_u64(broker.id);
    value.put_slice(&broker.details);
    Ok(tx.set(names().bytes(&broker.name), value)?)
}

/// Brokers in order of names, after `from`, at most `limit`. A snapshot read.
///
/// # Errors
/// The store's.
pub async fn list(tx: &Transaction, from: Option<&[u8]>, limit: usize) -> Result<Vec<Broker>> {
    let prefix = names();
    let begin = from.map_or(prefix.children().begin, |from| after(names().bytes(from).as_ref()));
    let options = RangeOptions::first(limit).snapshot();
    let page = tx.range(KeyRange::new(begin, prefix.end()), options).await?;
    let read = |row: millrace_storage::KeyValue| {
        decode(Elements::after(&prefix, &row.key)?.bytes()?.into(), row.value)
    };
    page.items.into_iter().map(read).collect()
}

/// Removes a broker with all that it has. What the region keeps of its sessions, by pod and by time, goes when it is looked at.
///
/// # Errors
/// The store's. On an engine that clears keys one by one a large broker must be emptied first.
pub fn remove(tx: &Transaction, broker: &Broker) -> Result<()> {
    tx.clear(names().bytes(&broker.name))?;
    tx.clear(id_key(broker.id))?;
    let all = Key::element(broker.id);
    Ok(tx.clear_range(all.children())?)
}

fn decode(name: Bytes, mut value: Bytes) -> Result<Broker> {
    Ok(Broker { id: value.try_get_u64()?, name, details: value })
}

fn names() -> Key {
    Key::new(tags::REGION, tags::BROKER)
}

fn id_key(id: BrokerId) -> Key {
    Key::new(tags::REGION, tags::BROKER_ID).uint(id)
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
}
