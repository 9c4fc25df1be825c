//! A key that says which format the store below a prefix has. It sorts after all keys of the store,
//! where users' transactions cannot reach it.

use std::time::Duration;

use bytes::Bytes;

use super::{FoundationDb, error::ConnectError};
use crate::{
    clock::instant,
    completion::{Completion, block_on},
    error::StoreError,
    interface::Engine,
    key::KeyRange,
    limits::KEY_SPACE_END,
    read::{RangeOptions, Read},
};

/// Format 1 has the store's keys unchanged, and this key after them.
const FORMAT: u32 = 1;
const FORMAT_PREFIX: &str = "millrace-store ";
const KEY: &[u8] = b"\xff/format";

impl FoundationDb {
    /// Checks that the cluster has a store of a readable format, and makes one if the prefix has no
    /// keys. Retries for about `patience`; a read that is then under way may take longer.
    ///
    /// # Errors
    /// The cluster does not answer, or has other keys there.
    pub fn prepare(&self, patience: Duration) -> Result<(), ConnectError> {
        let began = instant();
        loop {
            match block_on(self.check_format()) {
                Ok(checked) => return checked,
                Err(error) if error.is_retryable() && began.elapsed() < patience => {}
                Err(StoreError::Cluster { code, reason }) => {
                    return Err(ConnectError::Refused { code, reason });
                }
                Err(error) => return Err(ConnectError::Unreachable { within: patience, source: error }),
            }
        }
    }

    async fn check_format(&self) -> Result<Result<(), ConnectError>, StoreError> {
        let transaction = self.begin();
        if let Some(text) = transaction.get(KEY, Read::Serializable).await? {
            return Ok(known(&text));
        }
        let all = KeyRange::new(Bytes::new(), Bytes::from_static(KEY_SPACE_END));
        if !transaction.range(all, RangeOptions::first(1)).await?.items.is_empty() {
            return Ok(Err(ConnectError::NotAStore));
        }
        transaction.set(Bytes::from_static(KEY), format!("{FORMAT_PREFIX}{FORMAT}").into());
        let (done, commit) = Completion::future();
        transaction.commit(done);
        commit.await.map(|_| Ok(()))
    }
}

fn known(text: &[u8]) -> Result<(), ConnectError> {
    let text = String::from_utf8_lossy(text);
    match text.strip_prefix(FORMAT_PREFIX).and_then(|number| number.parse().ok()) {
        Some(found) if found > FORMAT => Err(ConnectError::NewerFormat { found, known: FORMAT }),
        Some(found) if found > 0 => Ok(()),
        _ => Err(ConnectError::NotAStore),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_later_versions_and_other_things_are_refused() {
        assert!(known(b"millrace-store 1").is_ok());
        let newer = ConnectError::NewerFormat { found: 2, known: FORMAT };
        assert_eq!(known(b"millrace-store 2").unwrap_err().to_string(), newer.to_string());
        for other in [&b"millrace-store 0"[..], b"millrace-store x", b"something", b"", b"\xff"] {
            assert!(matches!(known(other), Err(ConnectError::NotAStore)));
        }
    }
}
