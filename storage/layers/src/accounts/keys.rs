//! Keys of the region that hash generated secrets, so that a copy of the hashes alone opens nothing. The decoy key
//! makes users that do not exist look like others.
//!
//! An operator can keep a secret of the region in a file outside the store. Keys made with it are only half of what
//! hashes, and the secret is the other half, so a copy of the store checks no secret.

use std::fmt;
use std::sync::OnceLock;

use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};

use super::settings;
use crate::error::{LayerError, LayerResult};

const KEYS: &[u8] = b"keys";
const DECOY: &[u8] = b"decoy";

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashKey {
    /// Hashes name their key by this number.
    pub id: u32,
    /// Must never be shown.
    pub key: [u8; 32],
    /// Proof that the operator's secret is the right one, for a key that needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<[u8; 32]>,
}

static OUTSIDE: OnceLock<[u8; 32]> = OnceLock::new();

/// Sets the operator's secret, before the first key is read; later calls are ignored.
pub fn set_outside_secret(secret: [u8; 32]) {
    let _ = OUTSIDE.set(secret);
}

impl HashKey {
    fn halved(id: u32, key: [u8; 32], outside: &[u8; 32]) -> Self {
        Self { id, key, check: Some(half(outside, b"check", &key)) }
    }

    /// The key that hashes: both halves together, if there is a second one.
    fn whole(self, outside: Option<&[u8; 32]>) -> LayerResult<Self> {
        let Some(check) = self.check else { return Ok(self) };
        let outside = outside.ok_or(LayerError::SecretKey("is needed"))?;
        if half(outside, b"check", &self.key) != check {
            return Err(LayerError::SecretKey("is another one than before"));
        }
        Ok(Self { key: half(outside, b"key", &self.key), ..self })
    }
}

fn half(outside: &[u8; 32], purpose: &[u8], key: &[u8; 32]) -> [u8; 32] {
    blake3::Hasher::new_keyed(outside).update(purpose).update(key).finalize().into()
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The keys, the current one last; empty before the first [`ensure`].
pub async fn get(tx: &Transaction, read: Read) -> LayerResult<Vec<HashKey>> {
    stored(tx, read).await?.into_iter().map(|key| key.whole(OUTSIDE.get())).collect()
}

async fn stored(tx: &Transaction, read: Read) -> LayerResult<Vec<HashKey>> {
    Ok(settings().get(tx, KEYS, read).await?.map_or_else(Vec::new, |keys| keys.value))
}

/// Reads the keys, after adding `random` if there is none yet, or if an operator's secret is set and the current key
/// does not need it.
///
/// # Errors
/// [`LayerError::SecretKey`].
pub async fn ensure(tx: &Transaction, random: [u8; 32]) -> LayerResult<Vec<HashKey>> {
    ensure_with(tx, random, OUTSIDE.get()).await
}

async fn ensure_with(
    tx: &Transaction,
    random: [u8; 32],
    outside: Option<&[u8; 32]>,
) -> LayerResult<Vec<HashKey>> {
    let mut keys = stored(tx, Read::Serializable).await?;
    let is_enough = |key: &HashKey| outside.is_none() || key.check.is_some();
    if !keys.last().is_some_and(is_enough) {
        let id = keys.last().map_or(1, |last| last.id + 1);
        keys.push(match outside {
            Some(outside) => HashKey::halved(id, random, outside),
            None => HashKey { id, key: random, check: None },
        });
        settings().put(tx, KEYS, &keys).await?;
    }
    keys.into_iter().map(|key| key.whole(outside)).collect()
}

/// The key for unknown users, which becomes `random` on the first call and never changes, because a change would show
/// which users do not exist.
pub async fn decoy(tx: &Transaction, random: [u8; 32]) -> LayerResult<[u8; 32]> {
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
        assert_eq!(first, [HashKey { id: 1, key: [7; 32], check: None }]);
        assert_eq!(run(&database, async |tx| ensure(tx, [8; 32]).await), first);
        assert_eq!(run(&database, async |tx| get(tx, Read::Snapshot).await), first);
        assert!(!format!("{first:?}").contains('7'));
    }

    #[test]
    fn a_key_that_needs_the_operators_secret_is_none_without_it() {
        let database = database();
        let before = run(&database, async |tx| ensure_with(tx, [7; 32], None).await);
        let with = |secret: Option<[u8; 32]>| {
            let tried = database.run(|tx, _| async move {
                Ok::<_, LayerError>(ensure_with(&tx, [8; 32], secret.as_ref()).await)
            });
            millrace_storage::block_on(tried).unwrap()
        };
        let keys = with(Some([1; 32])).unwrap();
        assert_eq!(keys[0], before[0], "what was hashed before is checked all the same");
        assert_eq!((keys.len(), keys[1].id), (2, 2));
        assert_ne!(keys[1].key, [8; 32], "the stored half hashes nothing");
        assert_eq!(with(Some([1; 32])).unwrap(), keys);
        assert_eq!(with(None), Err(LayerError::SecretKey("is needed")));
        assert_eq!(with(Some([2; 32])), Err(LayerError::SecretKey("is another one than before")));
    }

    #[test]
    fn the_key_of_users_that_do_not_exist_stays() {
        let database = database();
        assert_eq!(run(&database, async |tx| decoy(tx, [7; 32]).await), [7; 32]);
        assert_eq!(run(&database, async |tx| decoy(tx, [8; 32]).await), [7; 32]);
    }
}
