//! Confirming a change of an account with its password. The API counts each attempt by address before (`Rates::password`).

use super::super::change::Change;
use super::super::{Caller, Control, Error, Result, web_sessions};
use super::record::still_has_hash;
use super::{UserRecord, found, get, person_of};
use crate::secret::Secret;
use millrace_storage::Read;
use uuid::Uuid;

/// Proof that a caller has shown the right password: the stored hash (PHC string) that it matched.
pub(in crate::domain) struct PasswordProof {
    field: &'static str,
    phc: Secret,
}

impl Control {
    /// Checks the password in the field `field` of a request. Hashing takes long and happens outside of a transaction, so the
    /// transaction of the change has to check that [`PasswordProof::holds`].
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
    /// Reads the caller's account in the transaction of a change. Fails if a reset has committed while the password was
    /// hashed, because a reset changes the password or ends the caller's web session.
    pub(in crate::domain) async fn holds(&self, change: &Change, caller: &Caller) -> Result<UserRecord> {
        let (user, sign_in) = person_of(caller)?;
        web_sessions::still_there(&change.tx, sign_in, change.now_ms, Read::Serializable).await?;
        let record = found(get(&change.tx, user, Read::Serializable).await?)?;
        match still_has_hash(&record, self.phc.expose()) {
            true => Ok(record),
            false => Err(not_the_password(self.field)),
        }
    }
}

pub(super) fn not_the_password(field: &str) -> Error {
    Error::field(field, "is not your password")
}
