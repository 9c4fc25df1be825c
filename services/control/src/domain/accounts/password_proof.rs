//! Confirming a change of an account with its password.

use super::super::change::Change;
use super::super::{Caller, Control, Error, Result, web_sessions};
use super::record::is_hash_of;
use super::{UserRecord, found, get, person_of};
use crate::secret::Secret;
use millrace_storage::Read;
use uuid::Uuid;

/// A password that a caller has shown, by the PHC string that it matched.
pub(in crate::domain) struct PasswordProof {
    field: &'static str,
    phc: Secret,
}

impl Control {
    /// Checks the password of a person, which the request has in `field`. The hash takes long, so the transaction of the change has to
    /// check that [`PasswordProof::holds`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for another password, [`Error::Conflict`] for a person without a password.
    pub(in crate::domain) async fn check_password(
        &self,
        user: Uuid,
        field: &'static str,
        password: &Secret,
    ) -> Result<PasswordProof> {
        let record = self.look(|tx| async move { found(get(&tx, user, Read::Snapshot).await?) }).await?;
        let none = || Error::Conflict("you have no password here: you sign in with your provider".into());
        let phc = record.password.ok_or_else(none)?;
        match self.verify_password(Some(phc.expose().to_owned()), password).await? {
            true => Ok(PasswordProof { field, phc }),
            false => Err(not_the_password(field)),
        }
    }
}

impl PasswordProof {
    /// The caller's account, read in the transaction of a change. A reset may have committed while the password was hashed: then the
    /// password that was shown is a wrong one, or the caller's web session has ended.
    pub(in crate::domain) async fn holds(&self, change: &Change, caller: &Caller) -> Result<UserRecord> {
        let (user, sign_in) = person_of(caller)?;
        web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
        let record = found(get(&change.tx, user, Read::Serializable).await?)?;
        match is_hash_of(&record, self.phc.expose()) {
            true => Ok(record),
            false => Err(not_the_password(self.field)),
        }
    }
}

pub(super) fn not_the_password(field: &str) -> Error {
    Error::field(field, "is not your password")
}
