//! Rows of everything that expires (see [`ExpiringKind`]) in order of expiry, so that a sweep finds expired rows without reading all.

use bytes::Bytes;
use millrace_storage::{KeyRange, RangeOptions, Transaction, after};

use crate::{
    error::LayerResult,
    tags,
    tuple::{Elements, Key},
};

/// The numbers are in keys and never change. The id of a row is the hash of its secret, except for organisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExpiringKind {
    SignIn = 1,
    Invitation = 2,
    Receipt = 3,
    FormerOrganisation = 4,
    /// A sign-up that nobody has confirmed.
    SignUp = 5,
    /// A link that resets a password or confirms an e-mail address.
    AccountLink = 6,
    ClaimToken = 7,
    /// A spent challenge of a passkey; the id is its signature.
    SpentChallenge = 8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiring {
    pub at_ms: u64,
    pub kind: ExpiringKind,
    pub id: Bytes,
}

impl Expiring {
    pub fn schedule(&self, tx: &Transaction) -> LayerResult<()> {
        Ok(tx.set(self.key(), Bytes::new())?)
    }

    pub fn cancel(&self, tx: &Transaction) -> LayerResult<()> {
        Ok(tx.clear(self.key())?)
    }

    fn key(&self) -> Key {
        list().uint(self.at_ms).uint(self.kind as u64).bytes(&self.id)
    }
}

/// Reads up to `limit` rows that expire by `now_ms` in a snapshot, and leaves them on the list. Kinds that this version
/// does not know are skipped, so that they do not stop its sweep during an upgrade or after a rollback; the servers
/// that wrote them handle them.
pub async fn due(tx: &Transaction, now_ms: u64, limit: usize) -> LayerResult<Vec<Expiring>> {
    let prefix = list();
    let end = Bytes::copy_from_slice(list().uint(now_ms + 1).as_ref());
    let (mut begin, mut found) = (prefix.children().begin, Vec::new());
    loop {
        let range = KeyRange::new(begin, end.clone());
        let page = tx.range(range, RangeOptions::first(limit).snapshot()).await?;
        for row in &page.items {
            let mut key = Elements::after(&prefix, &row.key)?;
            let (at_ms, number) = (key.uint()?, key.uint()?);
            if let Some(kind) = kind(number).filter(|_| found.len() < limit) {
                found.push(Expiring { at_ms, kind, id: key.bytes()?.into() });
            }
        }
        match page.items.last().filter(|_| page.more && found.len() < limit) {
            Some(last) => begin = after(&last.key),
            None => return Ok(found),
        }
    }
}

fn kind(number: u64) -> Option<ExpiringKind> {
    let all = [
        ExpiringKind::SignIn,
        ExpiringKind::Invitation,
        ExpiringKind::Receipt,
        ExpiringKind::FormerOrganisation,
        ExpiringKind::SignUp,
        ExpiringKind::AccountLink,
        ExpiringKind::ClaimToken,
        ExpiringKind::SpentChallenge,
    ];
    all.into_iter().find(|kind| *kind as u64 == number)
}

fn list() -> Key {
    Key::new(tags::REGION, tags::EXPIRING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{database, run};

    #[test]
    fn due_rows_come_in_order_of_time_until_they_are_cancelled() {
        let database = database();
        let at = |at_ms, kind| Expiring { at_ms, kind, id: Bytes::from_static(b"id") };
        let all =
            [at(300, ExpiringKind::Receipt), at(5, ExpiringKind::SignIn), at(300, ExpiringKind::Invitation)];
        run(&database, async |tx| all.iter().try_for_each(|one| one.schedule(tx)));
        let due_by = |now_ms, limit| run(&database, async |tx| due(tx, now_ms, limit).await);
        assert_eq!(due_by(4, 9), []);
        assert_eq!(due_by(299, 9), [all[1].clone()]);
        assert_eq!(due_by(300, 9), [all[1].clone(), all[2].clone(), all[0].clone()]);
        assert_eq!(due_by(300, 1), [all[1].clone()]);
        run(&database, async |tx| all[1].cancel(tx));
        assert_eq!(due_by(299, 9), []);
    }

    #[test]
    fn a_kind_of_a_newer_version_does_not_stop_the_sweep() {
        let database = database();
        let known = Expiring { at_ms: 9, kind: ExpiringKind::SignUp, id: Bytes::from_static(b"id") };
        run(&database, async |tx| {
            for at_ms in 1..=5 {
                tx.set(list().uint(at_ms).uint(200).bytes(b"new"), Bytes::new())?;
            }
            known.schedule(tx)
        });
        for limit in [1, 2, 9] {
            let found = run(&database, async |tx| due(tx, 10, limit).await);
            assert_eq!(found, std::slice::from_ref(&known), "a page of {limit}");
        }
    }
}
