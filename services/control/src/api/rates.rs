//! Rate limits of requests, by caller, address and e-mail address. They bound guessing, mails and load. Requests without a known
//! address share one bucket.

mod limiter;
mod publishes;
mod shown;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use governor::Quota;
use governor::clock::{Clock as _, MonotonicClock};
use millrace_access::model::ClientLimits;
use uuid::Uuid;

use super::problem::{ApiResult, Problem};
use crate::domain::{Caller, Result};
use crate::forgetting::Forgetting;
use crate::limits::{
    ACCOUNT_DENIALS_PER_MINUTE, ACCOUNT_REQUESTS_PER_SECOND, ACCOUNTS_MET_PER_HOUR, ADDRESS_CHANGES_PER_HOUR,
    BATCH_DEVICES_AT_ONCE, BATCH_DEVICES_PER_SECOND, CLAIMS_PER_MINUTE, CLAIMS_PER_SECOND,
    DENIALS_PER_MINUTE, GUESSES_PER_MINUTE, INVITATIONS_PER_HOUR, MAILS_PER_HOUR, PASSWORD_RESET_EVERY,
    PASSWORDS_PER_MINUTE, REQUESTS_PER_SECOND, SIGN_INS_PER_MINUTE,
};
use crate::network::network;
use crate::secret::Hash as SecretHash;
use limiter::{Limiter, count, every};
pub(crate) use publishes::PublishCharge;
use publishes::Publishes;
pub(crate) use shown::with_rate_limits;

const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) struct Rates {
    passwords: Limiter<Option<IpAddr>>,
    sign_ins: Limiter<(Email, Option<IpAddr>)>,
    /// Sign-ins by e-mail address alone, from everywhere. The record of the account has the networks from which its person has signed
    /// in, so that attackers who guess elsewhere do not lock the person out.
    guesses: Limiter<Email>,
    /// Sign-ups that met an account, by address, and since when they are counted.
    met: Mutex<HashMap<Option<IpAddr>, (u32, Instant)>>,
    forgetting_met: Forgetting,
    requests: Limiter<Uuid>,
    requests_by_person: Limiter<Uuid>,
    /// Mails that unauthenticated requests cause, by e-mail address.
    mails: Limiter<Email>,
    resets: Limiter<Email>,
    address_changes: Limiter<Uuid>,
    /// Links that confirm a new e-mail address, by that address.
    new_addresses: Limiter<Email>,
    invitations: Limiter<Uuid>,
    /// Mailed invitations, by e-mail address. It is separate from `mails`, so that a stranger who signs up with an
    /// address cannot keep it from being invited.
    invited: Limiter<Email>,
    /// Entries of denied requests and of repeated claims in the audit log, by caller or claim token.
    audit_entries: Limiter<Uuid>,
    /// The same by account, because a person may make many API tokens.
    audit_entries_of_account: Limiter<Uuid>,
    claims: Limiter<Option<IpAddr>>,
    /// Claims of devices, by the hash of the claim token that they show.
    claims_by: Limiter<SecretHash>,
    /// Devices in batches of credentials, by organisation: one for each, because a batch costs as much as its devices.
    devices: Limiter<Uuid>,
    publishes: Publishes,
    unauthenticated: Limiter<Option<IpAddr>>,
}

type Email = [u8; 32];

impl Rates {
    pub(crate) fn new() -> Self {
        let a_second =
            Quota::per_second(count(REQUESTS_PER_SECOND)).allow_burst(count(REQUESTS_PER_SECOND * 10));
        Self {
            passwords: Limiter::in_headers("passwords", Quota::per_minute(count(PASSWORDS_PER_MINUTE))),
            sign_ins: Limiter::in_headers("sign-ins", Quota::per_minute(count(SIGN_INS_PER_MINUTE))),
            guesses: Limiter::hidden(Quota::per_minute(count(GUESSES_PER_MINUTE))),
            met: Mutex::default(),
            forgetting_met: Forgetting::new(),
            requests: Limiter::in_headers("requests", a_second),
            requests_by_person: Limiter::hidden(
                Quota::per_second(count(ACCOUNT_REQUESTS_PER_SECOND))
                    .allow_burst(count(ACCOUNT_REQUESTS_PER_SECOND * 10)),
            ),
            publishes: Publishes::new(),
            unauthenticated: Limiter::in_headers("unauthenticated", a_second),
            resets: Limiter::hidden(every(PASSWORD_RESET_EVERY)),
            address_changes: Limiter::in_headers(
                "address-changes",
                Quota::per_hour(count(ADDRESS_CHANGES_PER_HOUR)),
            ),
            new_addresses: Limiter::hidden(Quota::per_hour(count(MAILS_PER_HOUR))),
            mails: Limiter::hidden(Quota::per_hour(count(MAILS_PER_HOUR))),
            invitations: Limiter::in_headers("invitations", Quota::per_hour(count(INVITATIONS_PER_HOUR))),
            invited: Limiter::hidden(Quota::per_hour(count(MAILS_PER_HOUR))),
            claims: Limiter::in_headers("claims", Quota::per_minute(count(CLAIMS_PER_MINUTE))),
            claims_by: Limiter::hidden(Quota::per_second(count(CLAIMS_PER_SECOND))),
            devices: Limiter::in_headers(
                "devices",
                Quota::per_second(count(BATCH_DEVICES_PER_SECOND)).allow_burst(count(BATCH_DEVICES_AT_ONCE)),
            ),
            audit_entries: Limiter::hidden(Quota::per_minute(count(DENIALS_PER_MINUTE))),
            audit_entries_of_account: Limiter::hidden(Quota::per_minute(count(ACCOUNT_DENIALS_PER_MINUTE))),
        }
    }

    pub(crate) fn password(&self, address: Option<IpAddr>) -> ApiResult<()> {
        self.passwords.take(&address.map(network))
    }

    /// `who`: an e-mail address or the id of a passkey. `has_signed_in` says whether its person has signed in from this network.
    pub(crate) async fn sign_in(
        &self,
        who: &str,
        address: Option<IpAddr>,
        has_signed_in: impl Future<Output = Result<bool>>,
    ) -> ApiResult<()> {
        self.sign_ins.take(&(named(who), address.map(network)))?;
        match self.guesses.take(&named(who)) {
            Err(refused) if !has_signed_in.await? => Err(refused),
            _ => Ok(()),
        }
    }

    /// Refuses a sign-up whose answer would reveal an account, after too many of these from one address.
    pub(crate) fn revealing_sign_up(&self, address: Option<IpAddr>) -> ApiResult<()> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((_, since)) =
            met.get(&address.map(network)).filter(|(count, _)| *count >= ACCOUNTS_MET_PER_HOUR)
        else {
            return Ok(());
        };
        let left = HOUR.saturating_sub(MonotonicClock.now().saturating_duration_since(*since));
        if left.is_zero() { Ok(()) } else { Err(Problem::later(left.as_secs() + 1)) }
    }

    pub(crate) fn account_revealed(&self, address: Option<IpAddr>) {
        let now = MonotonicClock.now();
        let is_old = |since: &Instant| HOUR <= now.saturating_duration_since(*since);
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        self.forgetting_met.if_many(met.len(), || {
            met.retain(|_, (_, since)| !is_old(since));
            met.len()
        });
        let (count, since) = met.entry(address.map(network)).or_insert((0, now));
        if is_old(since) {
            (*count, *since) = (0, now);
        }
        *count += 1;
    }

    /// `account`: the person behind the caller.
    pub(crate) fn request(&self, who: Uuid, account: Uuid) -> ApiResult<()> {
        self.requests.take(&who)?;
        self.requests_by_person.take(&account)
    }

    pub(crate) fn mail(&self, email: &str) -> bool {
        self.mails.take(&named(email)).is_ok()
    }

    pub(crate) fn password_reset(&self, email: &str) -> bool {
        self.resets.take(&named(email)).is_ok()
    }

    pub(crate) fn address_change(&self, who: Uuid) -> ApiResult<()> {
        self.address_changes.take(&who)
    }

    pub(crate) fn new_address(&self, email: &str) -> bool {
        self.new_addresses.take(&named(email)).is_ok()
    }

    /// `person` is the inviting person, or the creator of the inviting token; a person with many organisations has one
    /// budget. Returns whether the invitation is mailed: beyond the budget of the address it is not, and the answer is the same, so that
    /// tenants neither keep each other from inviting a person nor learn that somebody else does.
    pub(crate) fn invitation(
        &self,
        organisation: Uuid,
        person: Option<Uuid>,
        email: &str,
    ) -> ApiResult<bool> {
        self.invitations.take(&organisation)?;
        person.map_or(Ok(()), |person| self.invitations.take(&person))?;
        Ok(self.invited.take(&named(email)).is_ok())
    }

    pub(crate) fn audit_entry(&self, who: Uuid) -> bool {
        self.audit_entries.take(&who).is_ok()
    }

    pub(crate) fn denial(&self, caller: &Caller) -> bool {
        self.audit_entry(caller.id()) && self.audit_entries_of_account.take(&caller.account()).is_ok()
    }

    pub(crate) fn claim(&self, address: Option<IpAddr>) -> ApiResult<()> {
        self.claims.take(&address.map(network))
    }

    /// Unknown tokens are counted too.
    pub(crate) fn claim_by(&self, token: SecretHash) -> ApiResult<()> {
        self.claims_by.take(&token)
    }

    /// The batch itself refuses more devices than the burst.
    pub(crate) fn devices(&self, organisation: Uuid, devices: usize) -> ApiResult<()> {
        let devices = u32::try_from(devices).unwrap_or(u32::MAX).clamp(1, BATCH_DEVICES_AT_ONCE);
        self.devices.take_many(&organisation, count(devices))
    }

    /// A publish by HTTP of `who` at a broker, with so many bytes of topic, properties and payload.
    pub(crate) fn publish(
        &self,
        broker: u64,
        who: Uuid,
        limits: &ClientLimits,
        bytes: usize,
    ) -> ApiResult<PublishCharge> {
        self.publishes.take((broker, who), limits, bytes as u64)
    }

    /// For a message that was not published.
    pub(crate) fn not_published(&self, charge: &PublishCharge) {
        self.publishes.give_back(charge);
    }

    pub(crate) fn unauthenticated(&self, address: Option<IpAddr>) -> ApiResult<()> {
        self.unauthenticated.take(&address.map(network))
    }
}

/// Hashes an e-mail address, so that keys have a bounded length.
fn named(email: &str) -> Email {
    blake3::hash(email.to_lowercase().as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::BATCH_CREDENTIALS_MAX;

    #[tokio::test]
    async fn who_asks_too_often_is_told_when_to_come_again_and_others_are_not_held_up() {
        let rates = Rates::new();
        let sign_in = async |email| rates.sign_in(email, None, async { Ok(true) }).await;
        for _ in 0..SIGN_INS_PER_MINUTE {
            assert!(sign_in("ann@example.org").await.is_ok());
        }
        assert!(sign_in("Ann@example.org").await.is_err());
        assert!(sign_in("bob@example.org").await.is_ok());
    }

    #[test]
    fn invitations_are_limited_by_address_by_organisation_and_by_person() {
        let (rates, ann, plant) = (Rates::new(), Some(Uuid::from_u128(1)), Uuid::from_u128(2));
        let organisations = (10..).map(Uuid::from_u128);
        let bob = organisations.clone().take(100);
        let bob = bob.filter(|id| rates.invitation(*id, Some(*id), "bob@example.org").ok().unwrap());
        assert_eq!(bob.count(), MAILS_PER_HOUR as usize);
        let others = organisations.take(100).enumerate();
        let anns = others
            .filter(|(number, id)| rates.invitation(*id, ann, &format!("p{number}@b.c")).is_ok())
            .count();
        assert!((60..=61).contains(&anns), "{anns}");
        let plants =
            (0..100).filter(|number| rates.invitation(plant, None, &format!("q{number}@b.c")).is_ok());
        assert!((60..=61).contains(&plants.count()));
    }

    #[test]
    fn an_address_that_has_met_many_accounts_signs_nobody_up_for_a_while() {
        let rates = Rates::new();
        let (here, there) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        for _ in 0..ACCOUNTS_MET_PER_HOUR {
            assert!(rates.revealing_sign_up(here).is_ok());
            rates.account_revealed(here);
        }
        assert!(rates.revealing_sign_up(here).is_err());
        assert!(rates.revealing_sign_up(there).is_ok());
        // An hour later.
        rates.met.lock().unwrap().get_mut(&here).unwrap().1 -= HOUR;
        assert!(rates.revealing_sign_up(here).is_ok());
        rates.account_revealed(here);
        assert!(rates.revealing_sign_up(here).is_ok());
    }

    #[tokio::test]
    async fn guesses_from_elsewhere_do_not_lock_the_owner_out() {
        let rates = Rates::new();
        let sign_in = async |number: u32| {
            let from = Some(IpAddr::from((0xC000_0200 + number).to_be_bytes()));
            rates.sign_in("ann@example.org", from, async { Ok(number == 0) }).await.is_ok()
        };
        let mut guessed = 0;
        for number in 1..=1_000 {
            guessed += u32::from(sign_in(number).await);
        }
        assert!(guessed <= GUESSES_PER_MINUTE + 1);
        assert!(!sign_in(2_000).await && sign_in(0).await);
    }

    #[test]
    fn the_tokens_of_one_person_share_a_limit() {
        let (rates, ann, bob) = (Rates::new(), Uuid::from_u128(1), Uuid::from_u128(2));
        let tokens = (10..110).map(Uuid::from_u128);
        let requests = tokens.flat_map(|token| std::iter::repeat_n(token, 100));
        let taken = requests.filter(|token| rates.request(*token, ann).is_ok()).count();
        assert!((ACCOUNT_REQUESTS_PER_SECOND as usize * 10..5_000).contains(&taken), "{taken}");
        assert!(rates.request(Uuid::from_u128(200), bob).is_ok());
    }

    #[test]
    fn claims_are_limited_by_address_and_by_claim_token() {
        let rates = Rates::new();
        let (here, there) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let taken = (0..100_000).filter(|_| rates.claim(here).is_ok()).count();
        assert!((CLAIMS_PER_MINUTE as usize..100_000).contains(&taken), "{taken}");
        assert!(rates.claim(there).is_ok());
        let (one, other) = ([1; 32], [2; 32]);
        let taken = (0..100_000).filter(|_| rates.claim_by(one).is_ok()).count();
        assert!((CLAIMS_PER_SECOND as usize..100_000).contains(&taken), "{taken}");
        assert!(rates.claim_by(other).is_ok());
    }

    #[test]
    fn a_batch_counts_each_of_its_devices() {
        let (rates, plant, other) = (Rates::new(), Uuid::from_u128(1), Uuid::from_u128(2));
        let largest = BATCH_CREDENTIALS_MAX;
        // The limiter gives some back while the test runs.
        let taken = (0..1_000).filter(|_| rates.devices(plant, largest).is_ok()).count();
        assert!((BATCH_DEVICES_AT_ONCE as usize / largest..1_000).contains(&taken), "{taken}");
        assert!(rates.devices(other, largest).is_ok());
        assert!(rates.devices(other, usize::MAX).is_err());
    }
}
