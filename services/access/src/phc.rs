//! Decides which stored password hashes are accepted: PHC strings of Argon2id with bounded cost.

use argon2::password_hash::phc::PasswordHash;
use argon2::{ARGON2ID_IDENT, Params};

/// Most memory that a hash may ask for, KiB, because every connect allocates it.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;
/// Most memory that the passes of a hash may fill together, KiB: about 4 s of a core.
const FILLED_KIB_MAX: u64 = 4 * 1024 * 1024;

pub(crate) fn check(phc: &str) -> Result<(), &'static str> {
    const WRONG: &str =
        "the hash is not a PHC string of Argon2id ($argon2id$v=19$m=...); `millrace passwd` makes one";
    let hash = PasswordHash::new(phc).map_err(|_| WRONG)?;
    if hash.algorithm != ARGON2ID_IDENT || hash.salt.is_none() || hash.hash.is_none() {
        return Err(WRONG);
    }
    match Params::try_from(&hash) {
        Ok(params) if params.m_cost() > MEMORY_KIB_MAX => {
            Err("the hash asks for more than 1 GiB of memory at every connect; hash the password anew")
        }
        Ok(params) if u64::from(params.m_cost()) * u64::from(params.t_cost()) > FILLED_KIB_MAX => {
            Err("the hash asks for seconds of computing at every connect; hash the password anew")
        }
        Ok(_) => Ok(()),
        Err(_) => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::chosen::cheap;

    #[test]
    fn a_hash_that_would_cost_too_much_or_nothing_is_not_taken() {
        let phc = cheap(b"secret");
        assert_eq!(check(&phc), Ok(()));
        for (wrong, what) in [
            ("secret".to_owned(), "Argon2id"),
            (phc.replace("argon2id", "argon2i"), "Argon2id"),
            (phc.replace("m=8", "m=7"), "Argon2id"),
            (phc.replace("m=8", "m=2000000"), "1 GiB"),
            (phc.replace("m=8,t=1", "m=65536,t=4294967295"), "seconds"),
            (phc.rsplit_once('$').unwrap().0.to_owned(), "Argon2id"),
            ("$2y$05$Fmo5XtJ5pUKg0Ga7cFKbYO5S/V.y1Vj6oE0gkKUkA6hS7eFW9lDAa".to_owned(), "Argon2id"),
        ] {
            assert!(check(&wrong).unwrap_err().contains(what), "{wrong}");
        }
    }
}
