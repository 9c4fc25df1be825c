//! A stored passkey, and the index of credentials over all accounts.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use millrace_layers::accounts::{self};
use millrace_storage::{Read, Transaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::Result;
use super::super::second_factor::{self, Factors};
use super::{Passkey, PasskeyCredential};
use crate::secret::{Hash, letters};
use crate::webauthn::PublicKey;

#[derive(Clone, Serialize, Deserialize)]
pub(in crate::domain) struct StoredPasskey {
    pub(super) id: Uuid,
    pub(super) name: String,
    /// Credential id in Base64.
    pub(super) credential: String,
    pub(super) key: PublicKey,
    pub(super) counter: u32,
    pub(super) is_backup_eligible: bool,
    pub(super) transports: Vec<String>,
    pub(super) created_at_ms: u64,
    pub(super) last_used_at_ms: Option<u64>,
    /// Hash of the password after which the passkey was last used, in Base64. Only while it is the account's password does
    /// the passkey sign in alone, so that a new password ends the access of a thief who added a passkey.
    pub(super) password: String,
}

impl StoredPasskey {
    pub(super) fn shown(&self) -> Passkey {
        let Self { id, created_at_ms, last_used_at_ms, is_backup_eligible: is_synced, .. } = *self;
        Passkey { id, name: self.name.clone(), created_at_ms, last_used_at_ms, is_synced }
    }

    pub(in crate::domain) fn created_at_ms(&self) -> u64 {
        self.created_at_ms
    }

    pub(super) fn credential(&self) -> PasskeyCredential {
        PasskeyCredential { id: self.credential.clone(), transports: self.transports.clone() }
    }
}

/// Key of a credential in the index over all accounts: ids are up to 1023 bytes long.
pub(super) fn index(credential_id: &[u8]) -> Hash {
    blake3::derive_key("millrace 2026-11 credential id of a passkey", credential_id)
}

/// The person with this credential; an entry of the index counts only while the person's record has the credential.
pub(super) async fn owner(tx: &Transaction, credential_id: &[u8], read: Read) -> Result<Option<Uuid>> {
    let user = accounts::passkey_owners().get::<Uuid>(tx, &index(credential_id), read).await?;
    let Some(user) = user.map(|user| user.value) else { return Ok(None) };
    let (factors, id) = (second_factor::get(tx, user, read).await?, letters(credential_id));
    let has = |factors: &Factors| factors.passkeys.iter().any(|passkey| passkey.credential == id);
    Ok(factors.as_ref().is_some_and(has).then_some(user))
}

pub(in crate::domain) async fn forget(tx: &Transaction, passkeys: &[StoredPasskey]) -> Result<()> {
    for passkey in passkeys {
        if let Ok(id) = URL_SAFE_NO_PAD.decode(&passkey.credential) {
            accounts::passkey_owners().clear(tx, &index(&id)).await?;
        }
    }
    Ok(())
}
