//! The keys of the region: those with which hashes of generated secrets are made, so that a copy of the hashes alone opens nothing, and
//! the one that makes users which do not exist look like others.

use std::fmt;

use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};

use super::settings;
use crate::error::Result;

/// The setting's name.
const KEYS: &[u8] = b"keys";
/// That of the key of users which do not exist.
const DECOY: &[u8] = b"decoy";

/// A key, with the number that hashes name it by.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its number.
    pub id: u32,
    /// The key. Never to be shown.
    pub key: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The keys, the current one last; empty before the first [`ensure`].
///
/// # Errors
/// The store's.
pub async fn get(tx: &Transaction, read: Read) -> Result<Vec<Key>> {
    Ok(settings().get(tx, KEYS, read).await?.map_or_else(Vec::new, |keys| keys.value))
}

/// The keys; `random` becomes the first one if there is none.
///
/// # Errors
/// The store's.
pub async fn ensure(tx: &Transaction, random: [u8; 32]) -> Result<Vec<Key>> {
    let mut keys = get(tx, Read::Serializable).await?;
    if keys.is_empty() {
        keys.push(Key { id: 1, key: random });
        settings().put(tx, KEYS, &keys).await?;
    }
    Ok(keys)
}

/// The key of users that do not exist; `random` becomes it if there is none. It never changes: else the change would show who they are.
///
/// # Errors
/// The store's.
pub async fn decoy(tx: &Transaction, random: [u8; 32]) -> Result<[u8; 32]> {
    if let Some(key) = settings().get(tx, DECOY, Read::Serializable).await? {
        return Ok(key.value);
    }
    settings().put(tx, DECOY, &random).await?;
    Ok(random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, run};

    #[test]
    fn the_first_key_stays_and_is_not_shown() {
        let database = database();
        let first = run(&database, async |tx| ensure(tx, [7; 32]).await);
        assert_eq!(first, [Key { id: 1, key: [7; 32] }]);
        assert_eq!(run(&database, async |tx| ensure(tx, [8; 32]).await), first);
        assert_eq!(run(&database, async |tx| get(tx, Read::Snapshot).await), first);
        assert!(!format!("{first:?}").contains('7'));
    }

    #[test]
    fn the_key_of_users_that_do_not_exist_stays() {
        let database = database();
        assert_eq!(run(&database, async |tx| decoy(tx, [7; 32]).await), [7; 32]);
        assert_eq!(run(&database, async |tx| decoy(tx, [8; 32]).await), [7; 32]);
    }
}
