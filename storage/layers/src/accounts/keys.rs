//! Secret keys of the region. Hashes of generated secrets are made with them, so that a copy of the hashes alone
//! opens nothing. One more key makes unknown users look like known ones.

use std::fmt;

use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};

use super::settings;
use crate::error::Result;

const KEYS: &[u8] = b"keys";
const DECOY: &[u8] = b"decoy";

/// A key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Hashes name their key by this number.
    pub id: u32,
    /// Must never be shown.
    pub key: [u8; 32],
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The keys, the current one last; empty before the first [`ensure`].
pub async fn get(tx: &Transaction, read: Read) -> Result<Vec<Key>> {
    Ok(settings().get(tx, KEYS, read).await?.map_or_else(Vec::new, |keys| keys.value))
}

/// The keys. Without any, `random` becomes the first.
pub async fn ensure(tx: &Transaction, random: [u8; 32]) -> Result<Vec<Key>> {
    let mut keys = get(tx, Read::Serializable).await?;
    if keys.is_empty() {
        keys.push(Key { id: 1, key: random });
        settings().put(tx, KEYS, &keys).await?;
    }
    Ok(keys)
}

/// The key for unknown users. Without one, `random` becomes it. It never changes, because the change would show which
/// users do not exist.
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
