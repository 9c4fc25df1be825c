//! Challenges of passkeys: signed by this server, bound to a ceremony, and spent by the answer that it accepts.

use super::super::accounts::UserRecord;
use super::super::{Control, Result};
use crate::limits::PASSKEY_CHALLENGE_MS;
use crate::secret::{Hash, Purpose, letters, random};
use millrace_layers::accounts::{
    self,
    expiring::{Expiring, ExpiringKind},
};
use millrace_storage::{Read, Transaction};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

/// The ceremony that a challenge is for, with what it is bound to. An answer to a challenge of another ceremony is refused.
#[derive(Clone, Copy)]
pub(in crate::domain) enum Purposed<'a> {
    /// Adds a passkey to the account of a web session whose password was right.
    Addition(&'a Hash),
    SecondStep,
    /// Confirms a change in a web session.
    InSession(&'a Hash),
    /// Signs in without a password: no account is known yet.
    Discovery,
}

/// A challenge that this server has signed for a ceremony and that has not expired.
pub(super) struct OpenChallenge {
    signature: Hash,
    expires_at_ms: u64,
}

impl Control {
    /// The bound of an addition: its challenge depends on the web session, the account's password and address, and on whether
    /// a second factor is in force.
    pub(super) fn addition_bound(
        &self,
        sign_in: &Hash,
        user: Uuid,
        record: &UserRecord,
        is_in_force: bool,
    ) -> Result<Hash> {
        let state = self.state_of(user, record)?;
        self.hash(Purpose::PasskeyChallenge, &[b"addition", sign_in, &state, &[u8::from(is_in_force)]])
    }

    /// A challenge: ceremony (1 byte), end (8), account (16), random bytes (16), and the signature over them and the web session (32).
    pub(super) fn new_challenge(&self, purpose: Purposed<'_>, user: Uuid) -> Result<String> {
        let ends = (self.now_ms() + PASSKEY_CHALLENGE_MS).to_be_bytes();
        let body = [&[purpose.number()][..], &ends, user.as_bytes(), &random::<16>()?].concat();
        let signature = self.challenge_signature(&body, purpose)?;
        Ok(letters(&[&body[..], &signature].concat()))
    }

    /// The challenge, if this server has signed it for this ceremony, account and web session, and it has not expired.
    pub(super) fn open_challenge(
        &self,
        challenge: &[u8],
        purpose: Purposed<'_>,
        user: Uuid,
    ) -> Result<Option<OpenChallenge>> {
        let Some((body, signature)) = challenge.split_last_chunk::<32>() else { return Ok(None) };
        let is_signed: bool = self.challenge_signature(body, purpose)?.ct_eq(signature).into();
        let Some((&[number, ref ends @ ..], rest)) = body.split_first_chunk::<9>().filter(|_| is_signed)
        else {
            return Ok(None);
        };
        let mut end = [0; 8];
        end.copy_from_slice(ends);
        let expires_at_ms = u64::from_be_bytes(end);
        let is_open = number == purpose.number()
            && rest.len() == 32
            && rest[..16] == *user.as_bytes()
            && self.now_ms() < expires_at_ms;
        Ok(is_open.then_some(OpenChallenge { signature: *signature, expires_at_ms }))
    }

    fn challenge_signature(&self, body: &[u8], purpose: Purposed<'_>) -> Result<Hash> {
        let bound = match purpose {
            Purposed::Addition(bound) | Purposed::InSession(bound) => &bound[..],
            Purposed::SecondStep | Purposed::Discovery => &[],
        };
        self.hash(Purpose::PasskeyChallenge, &[body, bound])
    }
}

impl Purposed<'_> {
    fn number(self) -> u8 {
        match self {
            Self::Addition(_) => 1,
            Self::SecondStep => 2,
            Self::InSession(_) => 3,
            Self::Discovery => 4,
        }
    }
}

/// Stores that a challenge was answered; `false`: it was before.
pub(super) async fn spend(tx: &Transaction, open: &OpenChallenge) -> Result<bool> {
    let spent = accounts::spent_challenges();
    if spent.get::<u64>(tx, &open.signature, Read::Serializable).await?.is_some() {
        return Ok(false);
    }
    spent.put(tx, &open.signature, &open.expires_at_ms).await?;
    let id = open.signature.to_vec().into();
    // Another server's clock may be behind.
    let at_ms = open.expires_at_ms + PASSKEY_CHALLENGE_MS;
    Expiring { at_ms, kind: ExpiringKind::SpentChallenge, id }.schedule(tx)?;
    Ok(true)
}

pub(in crate::domain) async fn expire(tx: &Transaction, signature: &[u8]) -> Result<()> {
    Ok(accounts::spent_challenges().clear(tx, signature).await?)
}
