//! Collections of documents that the control plane writes: accounts of people and organisations, and their settings.
//! The control plane defines the documents; this module defines their keys, and lists that are not documents.
//!
//! A collection whose function does not say its key is by id; `settings`, `plans`, `groups` and `bans` are by name.
//! Keys of documents about a broker begin with the broker's id, so the documents are erased with the broker and a pod
//! reads one range for all of them.

pub mod audit;
pub mod expiring;
pub mod keys;

use millrace_storage::{Read, Transaction};

use crate::{BrokerId, documents::Collection, error::LayerResult, rows, tags, tuple::Key};

#[must_use]
pub fn organisations() -> Collection {
    region(tags::ORGANISATION)
}

#[must_use]
pub fn users() -> Collection {
    region(tags::USER)
}

/// Ids of people by e-mail address.
#[must_use]
pub fn emails() -> Collection {
    region(tags::EMAIL)
}

/// Ids of people by identity provider and their name there.
#[must_use]
pub fn subjects() -> Collection {
    region(tags::SUBJECT)
}

/// The reverse of [`subjects`]: a person's accounts at identity providers.
#[must_use]
pub fn subjects_of(user: &[u8]) -> Collection {
    of(tags::SUBJECT_OF, user)
}

#[must_use]
pub fn members(organisation: &[u8]) -> Collection {
    of(tags::MEMBER, organisation)
}

#[must_use]
pub fn memberships(user: &[u8]) -> Collection {
    of(tags::MEMBERSHIP, user)
}

/// By the hash of their secret.
#[must_use]
pub fn sign_ins() -> Collection {
    region(tags::SIGN_IN)
}

/// Hashes of the web sessions of a person.
#[must_use]
pub fn sign_ins_of(user: &[u8]) -> Collection {
    of(tags::SIGN_IN_OF, user)
}

#[must_use]
pub fn invitations(organisation: &[u8]) -> Collection {
    of(tags::INVITATION, organisation)
}

/// Organisation and id of invitations by the hash of their secret.
#[must_use]
pub fn invitation_hashes() -> Collection {
    region(tags::INVITATION_HASH)
}

#[must_use]
pub fn tokens(organisation: &[u8]) -> Collection {
    of(tags::TOKEN, organisation)
}

/// Organisation and id of API tokens by the hash of their secret.
#[must_use]
pub fn token_hashes() -> Collection {
    region(tags::TOKEN_HASH)
}

/// Brokers of an organisation by name; the broker itself is in the catalog.
#[must_use]
pub fn brokers_of(organisation: &[u8]) -> Collection {
    of(tags::BROKER_OF, organisation)
}

/// Answers to changes by the hash of the request's key, so that a repeated request has no second effect.
#[must_use]
pub fn receipts() -> Collection {
    region(tags::RECEIPT)
}

#[must_use]
pub fn settings() -> Collection {
    region(tags::SETTING)
}

/// Spend caps by the id of the organisation and, for the cap of a broker, its name.
#[must_use]
pub fn spend_caps() -> Collection {
    region(tags::SPEND_CAP)
}

/// Deleted brokers whose usage is not yet in a ledger, by id (eight bytes, most significant first).
#[must_use]
pub fn former_brokers() -> Collection {
    region(tags::FORMER_BROKER)
}

#[must_use]
pub fn former_brokers_of(organisation: &[u8]) -> Collection {
    of(tags::FORMER_BROKER_OF, organisation)
}

/// Ledgers: the usage of an organisation's deleted brokers, as ids for [`crate::metering`].
#[must_use]
pub fn ledgers() -> Collection {
    region(tags::LEDGER)
}

#[must_use]
pub fn plans() -> Collection {
    region(tags::PLAN)
}

/// Sign-ups that wait for a confirmation, by the hash of the secret that confirms one.
#[must_use]
pub fn sign_ups() -> Collection {
    region(tags::SIGN_UP)
}

#[must_use]
pub fn second_factors() -> Collection {
    region(tags::SECOND_FACTOR)
}

/// Ids of people by the hash of the credential id of one of their passkeys.
#[must_use]
pub fn passkey_owners() -> Collection {
    region(tags::PASSKEY_OWNER)
}

/// Challenges of passkeys that were answered, by their signature, until they expire.
#[must_use]
pub fn spent_challenges() -> Collection {
    region(tags::SPENT_CHALLENGE)
}

/// Links that reset a password or confirm a new e-mail address, by the hash of the secret in the link.
#[must_use]
pub fn account_links() -> Collection {
    region(tags::ACCOUNT_LINK)
}

/// Deleted organisations whose audit log and ledger are kept, by their id.
#[must_use]
pub fn former_organisations() -> Collection {
    region(tags::FORMER_ORGANISATION)
}

/// Increments, without conflicts, the counter by which pods notice changes of a broker's documents.
pub fn touch(tx: &Transaction, broker: BrokerId) -> LayerResult<()> {
    Ok(tx.atomic_add(Key::new(broker, tags::ACCESS_CHANGES), 1)?)
}

pub async fn changes(tx: &Transaction, broker: BrokerId, read: Read) -> LayerResult<u64> {
    rows::counter(tx, &Key::new(broker, tags::ACCESS_CHANGES), read).await
}

/// Adds to the number of credentials, which has a limit, without a conflict with concurrent additions.
pub fn count_credentials(tx: &Transaction, broker: BrokerId, more: i64) -> LayerResult<()> {
    Ok(tx.atomic_add(Key::new(broker, tags::CREDENTIAL_COUNT), more)?)
}

/// With a snapshot read, concurrent additions may exceed a limit; a serializable read conflicts with them.
pub async fn credential_count(tx: &Transaction, broker: BrokerId, read: Read) -> LayerResult<u64> {
    rows::counter(tx, &Key::new(broker, tags::CREDENTIAL_COUNT), read).await
}

/// Adds to the bytes of the credentials' rules, as [`count_credentials`].
pub fn count_credential_rules(tx: &Transaction, broker: BrokerId, more: i64) -> LayerResult<()> {
    Ok(tx.atomic_add(Key::new(broker, tags::CREDENTIAL_RULES), more)?)
}

/// Negative if an earlier build, which did not count, has stored rules that were removed since.
pub async fn credential_rules(tx: &Transaction, broker: BrokerId, read: Read) -> LayerResult<i64> {
    Ok(rows::counter(tx, &Key::new(broker, tags::CREDENTIAL_RULES), read).await?.cast_signed())
}

#[must_use]
pub fn credentials(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::CREDENTIAL)
}

/// Authentication settings of a broker: one document, [`ACCESS`].
#[must_use]
pub fn access(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::ACCESS)
}

pub const ACCESS: &[u8] = b"";

#[must_use]
pub fn groups(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::ACCESS_GROUP)
}

/// Authorities whose client certificates a broker accepts, by name.
#[must_use]
pub fn client_cas(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::CLIENT_CA)
}

/// Issuers whose JWTs a broker accepts, by name.
#[must_use]
pub fn jwt_issuers(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::JWT_ISSUER)
}

#[must_use]
pub fn webhooks(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::WEBHOOK)
}

#[must_use]
pub fn claim_tokens(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::CLAIM_TOKEN)
}

/// Broker and id of claim tokens by the hash of their secret.
#[must_use]
pub fn claim_token_hashes() -> Collection {
    region(tags::CLAIM_TOKEN_HASH)
}

#[must_use]
pub fn bans(broker: BrokerId) -> Collection {
    Collection::new(broker, tags::BAN)
}

fn region(tag: &[u8]) -> Collection {
    Collection::new(tags::REGION, tag)
}

fn of(tag: &[u8], owner: &[u8]) -> Collection {
    region(tag).of(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BROKER, database, run};

    #[test]
    fn changes_of_a_broker_are_counted() {
        let database = database();
        run(&database, async |tx| {
            touch(tx, BROKER)?;
            touch(tx, BROKER)
        });
        let count = |broker| run(&database, async |tx| changes(tx, broker, Read::Snapshot).await);
        assert_eq!((count(BROKER), count(BROKER + 1)), (2, 0));
    }
}
