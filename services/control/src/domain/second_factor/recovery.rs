//! Recovery codes of a second factor: made from the request, written in groups, and stored as keyed hashes.

use uuid::Uuid;

use super::super::{Control, Error, Once, Result};
use super::{Factors, RecoveryCodes};
use crate::limits::RECOVERY_CODES;
use crate::secret::{self, Hash, Purpose, Secret};

/// Bytes of a recovery code: 16 letters and digits.
const RECOVERY_CODE_BYTES: usize = 10;
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

impl Control {
    /// Derives the codes from the request, so that a repeated request gets the same codes although only hashes are stored.
    /// The receipt of the request stores the random `id`: an idempotency key that is used again after its receipt has
    /// expired gives other codes.
    pub(in crate::domain) fn recovery_codes(
        &self,
        once: &Once,
        user: Uuid,
        id: Option<Uuid>,
    ) -> Result<RecoveryCodes> {
        let code = |number: usize| {
            let id = id.as_ref().map_or(&[][..], |id| id.as_bytes());
            let made = [&b"recovery code"[..], user.as_bytes(), id, &number.to_be_bytes()].concat();
            Ok(Secret::from(written(&self.bytes_of(once, &made)?).as_str()))
        };
        Ok(RecoveryCodes { recovery_codes: (0..RECOVERY_CODES).map(code).collect::<Result<_>>()? })
    }

    pub(in crate::domain) fn put_recovery_codes(
        &self,
        record: &mut Factors,
        user: Uuid,
        codes: &[Secret],
    ) -> Result<()> {
        record.recovery_key = Some(self.key()?.id);
        let hashes = codes.iter().map(|code| self.recovery_hash(user, record, &typed(code)));
        record.recovery = hashes.collect::<Result<_>>()?;
        Ok(())
    }

    pub(super) fn recovery_hash(&self, user: Uuid, record: &Factors, code: &Secret) -> Result<Hash> {
        let key = record.recovery_key.ok_or(Error::Internal("a second factor has no recovery codes"))?;
        let key = self.key_with(key)?;
        Ok(secret::hash(key, Purpose::RecoveryCode, &[user.as_bytes(), code.expose().as_bytes()]))
    }
}

/// A code as people type it: apps and our own page write it in groups.
pub(super) fn typed(code: &Secret) -> Secret {
    let plain = code.expose().chars().filter(|char| !char.is_whitespace() && *char != '-');
    let plain: String = plain.map(|char| char.to_ascii_lowercase()).collect();
    plain.as_str().into()
}

/// 80 bits in four groups of letters and digits that cannot be mistaken for each other.
fn written(bytes: &Hash) -> String {
    let mut bits = bytes[..RECOVERY_CODE_BYTES].iter().fold(0_u128, |all, byte| all << 8 | u128::from(*byte));
    let mut text = String::new();
    for index in 0..RECOVERY_CODE_BYTES * 8 / 5 {
        if index > 0 && index % 4 == 0 {
            text.push('-');
        }
        text.push(char::from(ALPHABET[(bits & 31) as usize]));
        bits >>= 5;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_code_is_80_bits_in_groups_and_may_be_typed_in_any_case() {
        let code = written(&[0xff; 32]);
        assert_eq!(code, "9999-9999-9999-9999");
        assert_eq!(written(&[0; 32]), "aaaa-aaaa-aaaa-aaaa");
        assert_eq!(typed(&" AAAA-aaaa aaaa-AAAA\n".into()).expose(), "aaaaaaaaaaaaaaaa");
    }
}
