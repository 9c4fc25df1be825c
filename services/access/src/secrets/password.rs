use smallvec::{SmallVec, smallvec};

use super::chosen;
use super::generated::{self, HashKeys};
use crate::model::{Credential, Secret};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordCheck<'a> {
    Right,
    Wrong,
    /// The password is right if [`chosen::verify`] accepts one of these.
    Slow(SmallVec<[&'a str; 2]>),
}

/// Checks a password against the secret of a credential, and until a rotation ends against the
/// previous secret, too.
///
/// The time of a refusal does not reveal which users exist, but for one case: a guess in the form of a generated secret costs a slow
/// hash if the user has a chosen password. It is refused at once otherwise, so that a fleet whose secrets were revoked costs little. Any
/// other wrong password costs a slow hash: that of the user, or
/// a dummy. The caller should cache wrong passwords, because clients that retry one cost as much as
/// an attacker.
#[must_use]
pub fn check<'a>(
    credential: Option<&'a Credential>,
    password: &[u8],
    keys: &HashKeys,
    now_ms: u64,
) -> PasswordCheck<'a> {
    let refused = match generated::is_likely(password) {
        true => PasswordCheck::Wrong,
        false => PasswordCheck::Slow(smallvec![chosen::dummy()]),
    };
    let Some(credential) = credential.filter(|credential| credential.is_active(now_ms)) else {
        return refused;
    };
    let mut slow = SmallVec::new();
    let previous = credential.previous_secret.as_ref().filter(|previous| now_ms < previous.until_ms);
    for secret in credential.secret.iter().chain(previous.map(|previous| &previous.secret)) {
        match secret {
            Secret::Generated { key, hash } if keys.verify(*key, hash, password) => {
                return PasswordCheck::Right;
            }
            Secret::Generated { .. } => {}
            Secret::Chosen { phc } => slow.push(phc.expose()),
        }
    }
    if slow.is_empty() { refused } else { PasswordCheck::Slow(slow) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PreviousSecret;

    #[test]
    fn a_rotated_secret_is_right_until_the_rotation_is_over() {
        let keys = HashKeys::new([(1, [1; 32])]).unwrap();
        let chosen = || Secret::Chosen { phc: "$argon2id$x".into() };
        let previous = |secret| Some(PreviousSecret { secret, until_ms: 10 });
        let rotated = Credential {
            secret: Some(keys.hash(b"new")),
            previous_secret: previous(keys.hash(b"old")),
            ..Credential::default()
        };
        let from_chosen = Credential { previous_secret: previous(chosen()), ..rotated.clone() };
        let only_chosen = Credential { secret: Some(chosen()), ..rotated.clone() };
        let without = Credential::default();
        let slow = || PasswordCheck::Slow(smallvec!["$argon2id$x"]);
        let refused = || PasswordCheck::Slow(smallvec![chosen::dummy()]);
        for (credential, password, now_ms, answer) in [
            (&rotated, "new", 5, PasswordCheck::Right),
            (&rotated, "old", 9, PasswordCheck::Right),
            (&rotated, "old", 10, refused()),
            (&rotated, "", 5, refused()),
            (&from_chosen, "new", 5, PasswordCheck::Right),
            (&from_chosen, "old", 5, slow()),
            (&from_chosen, "old", 10, refused()),
            (&only_chosen, "old", 5, PasswordCheck::Right),
            (&only_chosen, "x", 10, slow()),
            (&without, "", 5, refused()),
        ] {
            assert_eq!(
                check(Some(credential), password.as_bytes(), &keys, now_ms),
                answer,
                "{password} {now_ms}"
            );
        }
    }

    #[test]
    fn a_refusal_costs_the_same_whether_the_user_exists_or_not() {
        let keys = HashKeys::new([(1, [1; 32])]).unwrap();
        let active = Credential { secret: Some(keys.hash(b"s")), ..Credential::default() };
        let disabled = Credential { enabled: false, ..active.clone() };
        let expired = Credential { expires_at_ms: Some(5), ..active.clone() };
        let of_another = generated::generate(&[7; generated::RANDOM_BYTES]);
        for credential in [None, Some(&disabled), Some(&expired), Some(&active)] {
            let slow = PasswordCheck::Slow(smallvec![chosen::dummy()]);
            assert_eq!(check(credential, b"guess", &keys, 5), slow);
            assert_eq!(check(credential, of_another.as_bytes(), &keys, 5), PasswordCheck::Wrong);
        }
        for credential in [&disabled, &expired] {
            assert_ne!(check(Some(credential), b"s", &keys, 5), PasswordCheck::Right);
        }
    }
}
