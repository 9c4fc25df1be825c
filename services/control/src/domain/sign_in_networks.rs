//! Networks from which a person has signed in. They are in the record of the account, so that a server knows them after a restart,
//! and guesses from elsewhere do not lock the person out. The record has hashes with a key, not addresses.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::accounts::by_email;
use super::{Control, Result};
use crate::limits::{DAY_MS, SIGN_IN_NETWORK_MS, SIGN_IN_NETWORKS_MAX};
use crate::network::network;
use crate::secret::{Hash, Purpose};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct KnownNetwork {
    pub(super) hash: u64,
    /// The last sign-in from there, to the day.
    at_ms: u64,
}

/// The hash of a network, before it is bound to a person.
pub(super) struct SignInNetwork(Hash);

impl Control {
    pub(super) fn sign_in_network(&self, address: Option<IpAddr>) -> Result<SignInNetwork> {
        let network = address.map(network).map(|address| address.to_string()).unwrap_or_default();
        Ok(SignInNetwork(self.hash(Purpose::SignInNetwork, &[network.as_bytes()])?))
    }

    pub(crate) async fn has_signed_in_from(&self, email: &str, address: Option<IpAddr>) -> Result<bool> {
        let (network, email) = (&self.sign_in_network(address)?, &email.to_lowercase());
        let found = self.look(|tx| async move { by_email(&tx, email).await }).await?;
        Ok(found.is_some_and(|(id, account)| network.is_known(id, &account.networks, self.now_ms())))
    }

    pub(crate) async fn has_passkey_signed_in_from(
        &self,
        credential_id: &str,
        address: Option<IpAddr>,
    ) -> Result<bool> {
        let network = &self.sign_in_network(address)?;
        let found = self.owner_of_passkey(credential_id).await?;
        Ok(found.is_some_and(|(id, account)| network.is_known(id, &account.networks, self.now_ms())))
    }
}

impl SignInNetwork {
    /// The same network has different hashes for different people.
    pub(super) fn of(&self, user: Uuid) -> u64 {
        let hash = blake3::keyed_hash(&self.0, user.as_bytes());
        u64::from_be_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
    }

    fn is_known(&self, user: Uuid, known: &[KnownNetwork], now_ms: u64) -> bool {
        let hash = self.of(user);
        known.iter().any(|known| known.hash == hash && now_ms < known.at_ms + SIGN_IN_NETWORK_MS)
    }

    /// Returns whether the record has changed: once a day at most for each network.
    pub(super) fn note(&self, user: Uuid, known: &mut Vec<KnownNetwork>, now_ms: u64) -> bool {
        let (hash, at_ms) = (self.of(user), now_ms - now_ms % DAY_MS);
        if known.iter().any(|known| known.hash == hash && known.at_ms == at_ms) {
            return false;
        }
        known.retain(|known| known.hash != hash && now_ms < known.at_ms + SIGN_IN_NETWORK_MS);
        known.push(KnownNetwork { hash, at_ms });
        known.drain(..known.len().saturating_sub(SIGN_IN_NETWORKS_MAX));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Uuid = Uuid::from_u128(1);
    const NOW_MS: u64 = 20_000 * DAY_MS;

    #[test]
    fn the_networks_of_a_person_are_bounded_in_number_and_age() {
        let from = |number: u8| SignInNetwork([number; 32]);
        let mut known = Vec::new();
        for number in 0..30 {
            assert!(from(number).note(ANN, &mut known, NOW_MS));
        }
        assert_eq!(known.len(), SIGN_IN_NETWORKS_MAX);
        assert!(from(29).is_known(ANN, &known, NOW_MS) && !from(0).is_known(ANN, &known, NOW_MS));
        assert!(!from(29).is_known(Uuid::from_u128(2), &known, NOW_MS));
        assert!(!from(29).note(ANN, &mut known, NOW_MS + 1), "once a day");
        let later = NOW_MS + SIGN_IN_NETWORK_MS;
        assert!(!from(29).is_known(ANN, &known, later));
        assert!(from(1).note(ANN, &mut known, later));
        assert_eq!(known.len(), 1);
    }
}
