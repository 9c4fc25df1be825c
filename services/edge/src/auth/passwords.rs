//! The password file: `user:hash` lines, as `millrace passwd` writes them.
//!
//! The hash is a PHC string of Argon2id. It has no colon, so the last colon of a line ends the user name,
//! which may have some itself (a MAC address, say). Blank lines and lines that start with `#` are left alone.

use std::collections::HashMap;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _, try_generate_salt};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Params, Version};

pub use super::cache::VerifiedCache;
use super::{FileError, lines, says_nothing};

/// Memory of a new hash, KiB. With the two below, the smallest that OWASP advises for Argon2id.
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;

/// Memory that a hash in a file may ask for, KiB: it is taken at every connect.
const MEMORY_KIB_MAX: u32 = 1024 * 1024;

/// A hash of [`hash`]'s cost that no password is known to have.
const DUMMY: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// The users of a file and their hashes.
#[derive(Clone, Debug, Default)]
pub struct PasswordFile(HashMap<Box<str>, Box<str>>);

/// A password could not be hashed, or no random bytes were to be had: the system is out of memory or of
/// entropy.
#[derive(Debug, thiserror::Error)]
#[error("the password could not be hashed")]
pub struct HashError(#[from] argon2::password_hash::Error);

/// A user name that the file has no way to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// Nothing.
    #[error("the user name is empty")]
    Empty,
    /// It would be a comment.
    #[error("the user name starts with #, which makes the line a comment")]
    Comment,
    /// It would not be seen by whoever reads the file.
    #[error("the user name starts or ends with a space")]
    Space,
    /// Line ends above all.
    #[error("the user name has a control character")]
    Control,
}

impl PasswordFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// At the first line that is wrong: a user twice, a name or a hash that cannot be.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let mut users = HashMap::new();
        for (line, text) in lines(text) {
            let error = |what: String| FileError { line, what };
            let (user, phc) = split(text)
                .ok_or_else(|| error("not user:hash; `millrace passwd` writes such lines".to_owned()))?;
            check_user(user).map_err(|what| error(what.to_string()))?;
            check_hash(phc).map_err(|what| error(what.to_owned()))?;
            if users.insert(user.into(), phc.into()).is_some() {
                return Err(error(format!(
                    "the user {user:?} is in the file twice; delete one of the lines"
                )));
            }
        }
        Ok(Self(users))
    }

    /// The hash of a user. For an unknown one verify [`dummy`] and refuse, so that the time does not tell who
    /// exists.
    pub fn lookup(&self, user: &str) -> Option<&str> {
        self.0.get(user).map(|phc| &**phc)
    }
}

/// The hash of a new password, with a random salt: a PHC string of about 100 bytes.
///
/// # Errors
/// See [`HashError`].
pub fn hash(password: &[u8]) -> Result<String, HashError> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(argon2::password_hash::Error::from)?;
    let hash: PasswordHash =
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password(password)?;
    Ok(hash.to_string())
}

/// Whether a password is the one of a hash. Takes tens of milliseconds and the memory that the hash says: not
/// for an event loop.
pub fn verify(phc: &str, password: &[u8]) -> bool {
    PasswordHash::new(phc).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
}

/// A hash to verify when the user is unknown. It costs what [`hash`]'s do; no password is known to be right.
pub fn dummy() -> &'static str {
    DUMMY
}

/// Random bytes of the system, for [`VerifiedCache::new`].
///
/// # Errors
/// See [`HashError`].
pub fn random_key() -> Result<[u8; 64], HashError> {
    let mut key = [0; 64];
    for part in key.as_chunks_mut().0 {
        *part = try_generate_salt().map_err(|_| argon2::password_hash::Error::Internal)?;
    }
    Ok(key)
}

/// The text of a file with the line of a user added, replaced (`Some` hash) or deleted (`None`). All other
/// lines stay as they are, comments and wrong ones too.
///
/// # Errors
/// When the file cannot hold the user name.
pub fn edit(text: &str, user: &str, phc: Option<&str>) -> Result<String, UserError> {
    check_user(user)?;
    let mut out = String::with_capacity(text.len() + 128);
    let mut new = phc.map(|phc| format!("{user}:{phc}\n"));
    for line in text.split_inclusive('\n') {
        if !says_nothing(line) && split(line.trim_end()).is_some_and(|(name, _)| name == user) {
            out.extend(new.take());
        } else {
            out.push_str(line);
        }
    }
    if let Some(new) = new {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&new);
    }
    Ok(out)
}

fn split(line: &str) -> Option<(&str, &str)> {
    line.trim_end().rsplit_once(':')
}

fn check_user(user: &str) -> Result<(), UserError> {
    match user {
        "" => Err(UserError::Empty),
        _ if user.starts_with('#') => Err(UserError::Comment),
        _ if user.trim() != user => Err(UserError::Space),
        _ if user.contains(char::is_control) => Err(UserError::Control),
        _ => Ok(()),
    }
}

fn check_hash(phc: &str) -> Result<(), &'static str> {
    const WRONG: &str =
        "the hash is not a PHC string of Argon2id ($argon2id$v=19$m=...); `millrace passwd` makes one";
    let hash = PasswordHash::new(phc).map_err(|_| WRONG)?;
    if hash.algorithm != ARGON2ID_IDENT || hash.salt.is_none() || hash.hash.is_none() {
        return Err(WRONG);
    }
    match Params::try_from(&hash) {
        Ok(params) if params.m_cost() <= MEMORY_KIB_MAX => Ok(()),
        Ok(_) => Err("the hash asks for more than 1 GiB of memory at every connect; hash the password anew"),
        Err(_) => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash of the lowest cost there is: these tests are about files.
    fn cheap(password: &[u8]) -> String {
        let params = Params::new(8, 1, 1, None).unwrap();
        let hash: PasswordHash =
            Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password(password).unwrap();
        hash.to_string()
    }

    #[test]
    fn a_new_hash_has_the_cost_of_owasp_and_its_own_salt() {
        let phc = hash(b"secret").unwrap();
        assert!(phc.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{phc}");
        assert!(!phc.contains(':'));
        assert!(verify(&phc, b"secret"));
        assert!(!verify(&phc, b"Secret"));
        assert_ne!(hash(b"secret").unwrap(), phc);
    }

    #[test]
    fn the_dummy_costs_the_same_and_is_never_right() {
        check_hash(dummy()).unwrap();
        let cost = |phc: &str| Params::try_from(&PasswordHash::new(phc).unwrap()).unwrap();
        assert_eq!(cost(dummy()), cost(&hash(b"").unwrap()));
        assert!(!verify(dummy(), b""));
    }

    #[test]
    fn hashes_of_other_tools_are_verified_with_their_own_cost() {
        // From the tests of the reference implementation (phc-winner-argon2, test.c).
        let phc = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(verify(phc, b"password"));
        assert!(PasswordFile::parse(&format!("bob:{phc}")).is_ok());
    }

    #[test]
    fn what_is_no_hash_is_never_right() {
        for phc in ["", "secret", "$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAAAAAAAAAAAAA", "$2b$10$x"] {
            assert!(!verify(phc, b"") && !verify(phc, b"secret"), "{phc}");
        }
    }

    #[test]
    fn users_are_found_whatever_their_name() {
        let phc = cheap(b"secret");
        let text = format!("# users\n\nbob:{phc}\r\naa:bb:cc:{phc}\n \nJosé Ã:{phc}");
        let file = PasswordFile::parse(&text).unwrap();
        for user in ["bob", "aa:bb:cc", "José Ã"] {
            assert!(verify(file.lookup(user).unwrap(), b"secret"), "{user}");
        }
        for user in ["", "Bob", "aa", "# users"] {
            assert_eq!(file.lookup(user), None, "{user}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_what_to_do() {
        let phc = cheap(b"secret");
        for (text, line, what) in [
            ("bob".to_owned(), 1, "not user:hash"),
            (format!("# x\nbob:{phc}\n\nbob:{phc}\n"), 4, "twice"),
            (format!("\n:{phc}"), 2, "empty"),
            (format!(" bob:{phc}"), 1, "space"),
            (format!("b\u{7}ob:{phc}"), 1, "control"),
            ("bob:secret".to_owned(), 1, "Argon2id"),
            (format!("bob:{}", phc.replace("argon2id", "argon2i")), 1, "Argon2id"),
            (format!("bob:{}", phc.replace("m=8", "m=7")), 1, "Argon2id"),
            (format!("bob:{}", phc.replace("m=8", "m=2000000")), 1, "1 GiB"),
            (format!("bob:{}", phc.rsplit_once('$').unwrap().0), 1, "Argon2id"),
            ("bob:$2y$05$Fmo5XtJ5pUKg0Ga7cFKbYO5S/V.y1Vj6oE0gkKUkA6hS7eFW9lDAa".to_owned(), 1, "Argon2id"),
        ] {
            let error = PasswordFile::parse(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.what.contains(what), "{text}: {}", error.what);
        }
    }

    #[test]
    fn an_edit_changes_one_user_and_keeps_the_rest() {
        for (text, user, phc, expected) in [
            ("", "bob", Some("$h"), "bob:$h\n"),
            ("# users\neve:$x", "bob", Some("$h"), "# users\neve:$x\nbob:$h\n"),
            ("bob:$x\r\n\n#bob:$y\neve:$z\n", "bob", Some("$h"), "bob:$h\n\n#bob:$y\neve:$z\n"),
            ("a:bob:$x\nbob:$y\nbob:$z\nwrong\n", "bob", Some("$h"), "a:bob:$x\nbob:$h\nwrong\n"),
            ("eve:$z\nbob:$x\n", "bob", None, "eve:$z\n"),
            ("eve:$z\n", "bob", None, "eve:$z\n"),
            ("aa:bb:$x\n", "aa:bb", None, ""),
        ] {
            assert_eq!(edit(text, user, phc).as_deref(), Ok(expected), "{text:?}");
        }
        for (user, error) in [
            ("", UserError::Empty),
            ("#bob", UserError::Comment),
            ("bob ", UserError::Space),
            ("bob\neve", UserError::Control),
        ] {
            assert_eq!(edit("", user, None), Err(error));
        }
    }

    #[test]
    fn keys_are_random() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }
}
