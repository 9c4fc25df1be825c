//! Hashes passwords that people choose, as PHC strings of Argon2id.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};

/// Memory of a new hash, KiB: with [`PASSES`] and [`LANES`] the smallest cost that OWASP recommends
/// for Argon2id.
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Salt of a new hash, bytes, as in the reference implementation.
pub const SALT_BYTES: usize = 16;

/// No known password has this hash, and verifying it costs as much as verifying one of [`hash`].
const DUMMY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[derive(Debug, thiserror::Error)]
#[error("the password could not be hashed")]
pub struct HashError(#[from] argon2::password_hash::Error);

/// `salt` must be random.
pub fn hash(password: &[u8], salt: &[u8; SALT_BYTES]) -> Result<String, HashError> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(argon2::password_hash::Error::from)?;
    hash_with(params, password, salt)
}

fn hash_with(params: Params, password: &[u8], salt: &[u8; SALT_BYTES]) -> Result<String, HashError> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash: PasswordHash = argon2.hash_password_with_salt(password, salt)?;
    Ok(hash.to_string())
}

/// Takes tens of milliseconds and the memory that the hash asks for, so it must not run on an event
/// loop.
#[must_use]
pub fn verify(phc: &str, password: &[u8]) -> bool {
    PasswordHash::new(phc).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// The hash to verify for an unknown user, so that the response takes as long as for a known user.
#[must_use]
pub fn dummy() -> &'static str {
    DUMMY
}

#[cfg(test)]
pub(crate) fn cheap(password: &[u8]) -> String {
    hash_with(Params::new(8, 1, 1, None).unwrap(), password, &[7; SALT_BYTES]).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phc::check;

    #[test]
    fn a_new_hash_has_the_cost_of_owasp_and_its_own_salt() {
        let phc = hash(b"secret", &[1; SALT_BYTES]).unwrap();
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        assert!(!phc.contains(':'), "the last colon of a line in a password file ends the user name");
        assert!(verify(&phc, b"secret"));
        assert!(!verify(&phc, b"Secret"));
        assert_ne!(hash(b"secret", &[2; SALT_BYTES]).unwrap(), phc);
    }

    #[test]
    fn the_dummy_costs_the_same_and_is_never_right() {
        check(dummy()).unwrap();
        let cost = |phc: &str| Params::try_from(&PasswordHash::new(phc).unwrap()).unwrap();
        assert_eq!(cost(dummy()), cost(&hash(b"", &[1; SALT_BYTES]).unwrap()));
        assert!(!verify(dummy(), b""));
    }

    #[test]
    fn hashes_of_other_tools_are_verified_with_their_own_cost() {
        // From the tests of the reference implementation (phc-winner-argon2, test.c).
        let phc = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(verify(phc, b"password"));
        assert_eq!(check(phc), Ok(()));
    }

    #[test]
    fn other_text_than_a_hash_never_verifies() {
        for phc in ["", "secret", "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA", "$2b$10$x"] {
            assert!(!verify(phc, b"") && !verify(phc, b"secret"), "{phc}");
        }
    }
}
