//! Source addresses from which people have signed in, at most [`KEYS_MAX`]: the one with the oldest sign-in gives way.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::Email;
use super::limiter::KEYS_MAX;

type Place = (Email, Option<IpAddr>);

#[derive(Default)]
pub(super) struct KnownAddresses {
    /// Number of the last sign-in.
    of: HashMap<Place, u64>,
    by_number: BTreeMap<u64, Place>,
    last: u64,
}

impl KnownAddresses {
    pub(super) fn has(&self, from: &Place) -> bool {
        self.of.contains_key(from)
    }

    pub(super) fn note(&mut self, from: Place) {
        self.last += 1;
        if let Some(former) = self.of.insert(from, self.last) {
            self.by_number.remove(&former);
        }
        self.by_number.insert(self.last, from);
        if self.of.len() > KEYS_MAX
            && let Some((_, oldest)) = self.by_number.pop_first()
        {
            self.of.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_address_with_the_oldest_sign_in_gives_way() {
        let mut known = KnownAddresses::default();
        let from = |number: usize| {
            let mut email = [0; 32];
            email[..8].copy_from_slice(&number.to_be_bytes());
            (email, None)
        };
        (0..KEYS_MAX).for_each(|number| known.note(from(number)));
        known.note(from(0));
        known.note(from(KEYS_MAX));
        assert!(known.has(&from(0)) && !known.has(&from(1)) && known.has(&from(2)));
        assert_eq!((known.of.len(), known.by_number.len()), (KEYS_MAX, KEYS_MAX));
    }
}
