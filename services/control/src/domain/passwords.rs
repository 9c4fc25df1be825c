//! Passwords that people choose: Argon2id, on threads that may wait.

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use argon2::{Algorithm, Argon2, Params, Version};
use tokio::task::spawn_blocking;

use super::{Control, Error, Result};
use crate::secret::Secret;

/// Memory of a hash, KiB. With the two below, the smallest that OWASP advises for Argon2id.
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// A hash of the same cost that no password is known to have.
const DUMMY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

impl Control {
    /// The hash of a new password, with a salt of its own: a PHC string.
    pub(super) async fn hash_password(&self, password: &Secret) -> Result<String> {
        let password = password.clone();
        self.aside(move || hash(password.expose().as_bytes())).await?
    }

    /// Whether a password is the one of a hash. Without a hash it takes as long, and is not.
    pub(super) async fn verify_password(&self, phc: Option<String>, password: &Secret) -> Result<bool> {
        let password = password.clone();
        self.aside(move || {
            let hash = phc.as_deref().unwrap_or(DUMMY);
            let verify = |hash: PasswordHash| {
                Argon2::default().verify_password(password.expose().as_bytes(), &hash).is_ok()
            };
            PasswordHash::new(hash).is_ok_and(verify) && phc.is_some()
        })
        .await
    }

    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let _permit = self.0.passwords.acquire().await.map_err(|_| BROKEN)?;
        spawn_blocking(work).await.map_err(|_| BROKEN)
    }
}

fn hash(password: &[u8]) -> Result<String> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|_| BROKEN)?;
    let hash: PasswordHash = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password(password)
        .map_err(|_| BROKEN)?;
    Ok(hash.to_string())
}

const BROKEN: Error = Error::Internal("the password could not be hashed");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dummy_costs_what_a_hash_does() {
        let cost = |phc: &str| Params::try_from(&PasswordHash::new(phc).unwrap()).unwrap();
        assert_eq!(cost(DUMMY), cost(&hash(b"x").unwrap()));
    }
}
