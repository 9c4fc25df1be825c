//! Authenticator data (WebAuthn Level 3 section 6.1): hash of the RP ID, flags, signature counter, and at a registration the credential.

use super::cose::{self, PublicKey};
use super::{PasskeyRefusal, RelyingParty, sha256};
use crate::limits::CREDENTIAL_ID_BYTES_MAX;

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const HAS_CREDENTIAL: u8 = 1 << 6;
const HAS_EXTENSIONS: u8 = 1 << 7;

/// Hash, flags and counter.
const HEAD_BYTES: usize = 37;
const AAGUID_BYTES: usize = 16;

pub(super) struct AuthenticatorData<'a> {
    rp_id_hash: [u8; 32],
    flags: u8,
    pub(super) counter: u32,
    pub(super) credential: Option<AttestedCredential<'a>>,
}

pub(super) struct AttestedCredential<'a> {
    pub(super) id: &'a [u8],
    pub(super) key: PublicKey,
}

impl<'a> AuthenticatorData<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, PasskeyRefusal> {
        let (mut data, mut rest) = Self::head(bytes)?;
        if data.flags & HAS_CREDENTIAL != 0 {
            let credential;
            (credential, rest) = AttestedCredential::read(rest)?;
            data.credential = Some(credential);
        }
        if data.flags & HAS_EXTENSIONS != 0 {
            rest = cose::skip_map(rest).ok_or(PasskeyRefusal::AuthenticatorData)?;
        }
        if rest.is_empty() { Ok(data) } else { Err(PasskeyRefusal::AuthenticatorData) }
    }

    /// Reads the data of an assertion. The signature covers all bytes and the server uses none of the others, so it does not parse them.
    pub(super) fn read_head(bytes: &'a [u8]) -> Result<Self, PasskeyRefusal> {
        let (data, rest) = Self::head(bytes)?;
        let may_have_more = data.flags & (HAS_CREDENTIAL | HAS_EXTENSIONS) != 0;
        if rest.is_empty() != may_have_more { Ok(data) } else { Err(PasskeyRefusal::AuthenticatorData) }
    }

    fn head(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), PasskeyRefusal> {
        let (head, rest) =
            bytes.split_first_chunk::<HEAD_BYTES>().ok_or(PasskeyRefusal::AuthenticatorData)?;
        let [.., flags, a, b, c, d] = *head;
        let mut rp_id_hash = [0; 32];
        rp_id_hash.copy_from_slice(&head[..32]);
        let counter = u32::from_be_bytes([a, b, c, d]);
        Ok((Self { rp_id_hash, flags, counter, credential: None }, rest))
    }

    pub(super) fn check(&self, rp: &RelyingParty) -> Result<(), PasskeyRefusal> {
        if self.rp_id_hash != sha256(rp.id.as_bytes()) {
            return Err(PasskeyRefusal::RpId);
        }
        if self.flags & USER_PRESENT == 0 {
            return Err(PasskeyRefusal::UserAbsent);
        }
        if self.flags & BACKED_UP != 0 && !self.is_backup_eligible() {
            return Err(PasskeyRefusal::BackupState);
        }
        Ok(())
    }

    pub(super) fn is_user_verified(&self) -> bool {
        self.flags & USER_VERIFIED != 0
    }

    pub(super) fn is_backup_eligible(&self) -> bool {
        self.flags & BACKUP_ELIGIBLE != 0
    }
}

impl<'a> AttestedCredential<'a> {
    /// Attested credential data (section 6.5.1).
    fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), PasskeyRefusal> {
        let wrong = PasskeyRefusal::AuthenticatorData;
        let (_, rest) = bytes.split_at_checked(AAGUID_BYTES).ok_or(wrong)?;
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(wrong)?;
        let length = usize::from(u16::from_be_bytes(*length));
        if !(1..=CREDENTIAL_ID_BYTES_MAX).contains(&length) {
            return Err(wrong);
        }
        let (id, rest) = rest.split_at_checked(length).ok_or(wrong)?;
        let (key, rest) = PublicKey::read(rest).ok_or(PasskeyRefusal::PublicKey)?;
        Ok((Self { id, key }, rest))
    }
}
