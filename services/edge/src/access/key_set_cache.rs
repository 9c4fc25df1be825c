//! A cache of issuers' key sets, and the clients that wait for a fetch. It reads no clock and does no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_access::entry::AccessRefusal;
use millrace_access::jwt::{self, KeySet, Refresh};

use super::limits::{
    KEY_SET_UNUSED_S_MAX, KEY_SETS_BYTES_MAX, KEY_SETS_LOOK_S, KEY_SETS_MAX, WAITING_FOR_KEYS_MAX,
    WAITING_FOR_KEYS_PART,
};
use crate::shares::TenantShares;

/// Key sets, and clients (`W`) that wait for them; times are whole seconds of a monotonic clock.
pub(super) struct KeySetCache<W> {
    sets: HashMap<KeySetId, CachedKeySet<W>>,
    bytes: usize,
    /// When unused key sets were last forgotten.
    looked_s: u64,
    waiting: TenantShares,
    fetches: u64,
}

/// Tenants share no key set, because a fetch fails when its tenant has too many calls in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeySetId {
    pub(super) tenant: Arc<str>,
    pub(super) url: Box<str>,
}

struct CachedKeySet<W> {
    refresh: Refresh,
    keys: Option<Arc<KeySet>>,
    has_failed: bool,
    waiting: Vec<W>,
    used_s: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waits<W> {
    Yes,
    /// A fetch has ended since its token was compared: begin again.
    Again(W),
    /// No fetch is in progress, or too many clients wait.
    No(W, AccessRefusal),
}

pub(super) type Fetched = Option<(KeySet, Option<u32>)>;

impl<W> KeySetCache<W> {
    pub(super) fn new() -> Self {
        let waiting = TenantShares::new(WAITING_FOR_KEYS_MAX, WAITING_FOR_KEYS_PART);
        Self { sets: HashMap::new(), bytes: 0, looked_s: 0, waiting, fetches: 0 }
    }

    /// The usable keys of a key set. The flag is true when the caller must fetch now.
    pub(super) fn get(&mut self, id: &KeySetId, now_s: u64) -> (Option<Arc<KeySet>>, bool) {
        let Some(set) = self.set(id, now_s) else { return (None, false) };
        let keys = set.keys.clone().filter(|_| set.refresh.is_usable(now_s));
        (keys, set.refresh.must_fetch(now_s))
    }

    /// Completed fetches; [`KeySetCache::wait`] needs the value from before the first lookup.
    pub(super) fn fetches(&self) -> u64 {
        self.fetches
    }

    /// Parks a client whose token names a key that none of these key sets has, if one of them is being fetched. Also returns the key
    /// sets to fetch now.
    pub(super) fn wait(
        &mut self,
        ids: &[KeySetId],
        client: W,
        fetches: u64,
        now_s: u64,
    ) -> (Vec<KeySetId>, Waits<W>) {
        if fetches != self.fetches {
            return (Vec::new(), Waits::Again(client));
        }
        let (mut to_fetch, mut under_way) = (Vec::new(), None);
        let mut refusal = AccessRefusal::Token(jwt::TokenRefusal::UnknownKey);
        for id in ids {
            let Some(set) = self.set(id, now_s) else {
                refusal = AccessRefusal::NoKeys;
                continue;
            };
            set.refresh.key_unknown();
            if set.refresh.must_fetch(now_s) {
                to_fetch.push(id.clone());
            }
            if set.has_failed || set.keys.is_none() {
                refusal = AccessRefusal::NoKeys;
            }
            if set.refresh.is_under_way() {
                under_way = under_way.or(Some(id));
            }
        }
        match under_way {
            Some(id) => (to_fetch, self.park(id, client)),
            None => (to_fetch, Waits::No(client, refusal)),
        }
    }

    fn park(&mut self, id: &KeySetId, client: W) -> Waits<W> {
        match self.sets.get_mut(id) {
            Some(set) if self.waiting.take(&id.tenant) => {
                set.waiting.push(client);
                Waits::Yes
            }
            _ => Waits::No(client, AccessRefusal::NoKeys),
        }
    }

    /// Returns the clients that waited for the fetch and now begin again.
    pub(super) fn fetched(&mut self, id: &KeySetId, fetched: Fetched, now_s: u64) -> Vec<W> {
        self.fetches += 1;
        let Some(set) = self.sets.get_mut(id) else { return Vec::new() };
        set.has_failed = fetched.is_none();
        match fetched {
            Some((keys, age_s)) => {
                set.refresh.fetched(now_s, age_s);
                self.bytes = self.bytes - set.bytes() + keys.bytes();
                set.keys = Some(Arc::new(keys));
            }
            None => set.refresh.fetch_failed(),
        }
        let waited = std::mem::take(&mut set.waiting);
        waited.iter().for_each(|_| self.waiting.give_back(&id.tenant));
        while self.bytes > KEY_SETS_BYTES_MAX && self.forget_one().is_some() {}
        waited
    }

    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.sets.len(), self.waiting.taken())
    }

    /// `None` when the cache is full.
    fn set(&mut self, id: &KeySetId, now_s: u64) -> Option<&mut CachedKeySet<W>> {
        if !self.sets.contains_key(id) {
            self.forget_unused(now_s);
            if self.sets.len() >= KEY_SETS_MAX {
                self.forget_one()?;
            }
            let set = CachedKeySet {
                refresh: Refresh::default(),
                keys: None,
                has_failed: false,
                waiting: Vec::new(),
                used_s: 0,
            };
            self.sets.insert(id.clone(), set);
        }
        let set = self.sets.get_mut(id)?;
        set.used_s = now_s;
        Some(set)
    }

    fn forget_one(&mut self) -> Option<()> {
        let idle = self.sets.iter().filter(|(_, set)| !set.refresh.is_under_way());
        let id = idle.min_by_key(|(_, set)| set.used_s)?.0.clone();
        self.bytes -= self.sets.remove(&id)?.bytes();
        Some(())
    }

    fn forget_unused(&mut self, now_s: u64) {
        if now_s < self.looked_s + KEY_SETS_LOOK_S {
            return;
        }
        self.looked_s = now_s;
        let is_used = |set: &CachedKeySet<W>| now_s < set.used_s + KEY_SET_UNUSED_S_MAX;
        self.sets.retain(|_, set| {
            let stays = is_used(set) || set.refresh.is_under_way();
            self.bytes -= if stays { 0 } else { set.bytes() };
            stays
        });
    }
}

impl<W> CachedKeySet<W> {
    fn bytes(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.bytes())
    }
}

#[cfg(test)]
mod tests {
    use millrace_access::limits::{KEY_ID_BYTES_MAX, KEY_SET_AGE_S_MAX, KEYS_MAX};

    use super::*;

    const JWKS: &[u8] = br#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1",
        "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

    fn came(age_s: Option<u32>) -> Fetched {
        Some((KeySet::parse(JWKS).unwrap(), age_s))
    }

    fn id(name: &str) -> [KeySetId; 1] {
        [KeySetId { tenant: "ann".into(), url: format!("https://{name}.test/").into() }]
    }

    /// Whether there are keys, and whether they must be fetched.
    fn get(cache: &mut KeySetCache<u32>, name: &str, now_s: u64) -> (bool, bool) {
        let (keys, fetch) = cache.get(&id(name)[0], now_s);
        (keys.is_some(), fetch)
    }

    fn wait(
        cache: &mut KeySetCache<u32>,
        ids: &[KeySetId],
        client: u32,
        now_s: u64,
    ) -> (Vec<KeySetId>, Waits<u32>) {
        let fetches = cache.fetches();
        cache.wait(ids, client, fetches, now_s)
    }

    fn why(waited: (Vec<KeySetId>, Waits<u32>)) -> Option<AccessRefusal> {
        if let (_, Waits::No(_, refusal)) = waited { Some(refusal) } else { None }
    }

    #[test]
    fn clients_wait_for_one_fetch_and_all_go_on_after_it() {
        let mut cache = KeySetCache::new();
        assert_eq!(get(&mut cache, "a", 0), (false, true));
        for client in 0..1_000 {
            assert_eq!(get(&mut cache, "a", 0), (false, false), "once");
            assert_eq!(wait(&mut cache, &id("a"), client, 0), (Vec::new(), Waits::Yes));
        }
        assert_eq!(cache.fetched(&id("a")[0], came(None), 1), Vec::from_iter(0..1_000));
        assert_eq!((get(&mut cache, "a", 1), cache.sizes()), ((true, false), (1, 0)));
    }

    #[test]
    fn a_new_key_is_fetched_but_invented_ones_cause_no_more() {
        let mut cache = KeySetCache::new();
        assert_eq!(get(&mut cache, "a", 0), (false, true));
        cache.fetched(&id("a")[0], came(None), 0);
        let refusal = why(wait(&mut cache, &id("a"), 1, 29));
        assert_eq!(
            refusal,
            Some(AccessRefusal::Token(jwt::TokenRefusal::UnknownKey)),
            "it was fetched just now"
        );
        assert_eq!(wait(&mut cache, &id("a"), 1, 30), (id("a").to_vec(), Waits::Yes));
        assert_eq!(wait(&mut cache, &id("a"), 2, 31), (Vec::new(), Waits::Yes));
        assert_eq!(cache.fetched(&id("a")[0], came(None), 32), [1, 2]);
        assert!(why(wait(&mut cache, &id("a"), 1, 33)).is_some_and(|refusal| !refusal.is_temporary()));
    }

    #[test]
    fn old_keys_count_while_new_ones_cannot_be_had_and_nobody_waits_for_them() {
        let mut cache = KeySetCache::new();
        assert_eq!(get(&mut cache, "a", 0), (false, true));
        cache.fetched(&id("a")[0], came(Some(600)), 0);
        assert_eq!(get(&mut cache, "a", 599), (true, false));
        assert_eq!(get(&mut cache, "a", 600), (true, true));
        cache.fetched(&id("a")[0], None, 605);
        assert_eq!((get(&mut cache, "a", 629), get(&mut cache, "a", 630)), ((true, false), (true, true)));
        cache.fetched(&id("a")[0], None, 630);
        // A key that is not in the old set may be in the new one.
        assert_eq!(why(wait(&mut cache, &id("a"), 1, 631)), Some(AccessRefusal::NoKeys));
        assert!(get(&mut cache, "a", 86_999).0);
        assert!(!get(&mut cache, "a", 87_000).0);
    }

    #[test]
    fn a_fetch_that_failed_sends_all_away_and_is_not_repeated_at_once() {
        let mut cache = KeySetCache::new();
        assert_eq!(wait(&mut cache, &id("a"), 1, 0), (id("a").to_vec(), Waits::Yes));
        assert_eq!(cache.fetched(&id("a")[0], None, 5), [1]);
        let (to_fetch, waits) = wait(&mut cache, &id("a"), 1, 5);
        assert_eq!((to_fetch, waits), (Vec::new(), Waits::No(1, AccessRefusal::NoKeys)));
        assert_eq!(wait(&mut cache, &id("a"), 1, 30), (id("a").to_vec(), Waits::Yes));
    }

    #[test]
    fn a_fetch_that_failed_for_one_tenant_delays_no_other() {
        let mut cache = KeySetCache::new();
        let anns = id("a");
        let [bobs] = anns.clone().map(|id| KeySetId { tenant: "bob".into(), ..id });
        assert_eq!(wait(&mut cache, std::slice::from_ref(&bobs), 1, 0).1, Waits::Yes);
        assert_eq!(get(&mut cache, "a", 0), (false, true), "bob's fetch is not ann's");
        assert_eq!(wait(&mut cache, &anns, 2, 0).1, Waits::Yes);
        assert_eq!(cache.fetched(&bobs, None, 5), [1]);
        assert_eq!(cache.fetched(&anns[0], came(None), 5), [2]);
        assert!(get(&mut cache, "a", 5).0 && !cache.get(&bobs, 5).1);
    }

    #[test]
    fn of_several_issuers_all_are_fetched_and_one_that_is_under_way_is_waited_for() {
        let mut cache = KeySetCache::new();
        let both = [id("a"), id("b")].concat();
        assert_eq!(wait(&mut cache, &both, 1, 0), (both.clone(), Waits::Yes));
        assert_eq!(cache.fetched(&both[0], None, 1), [1]);
        assert_eq!(wait(&mut cache, &both, 1, 1), (Vec::new(), Waits::Yes));
        assert_eq!(cache.fetched(&both[1], came(None), 2), [1]);
        assert_eq!(
            why(wait(&mut cache, &both, 1, 2)),
            Some(AccessRefusal::NoKeys),
            "the first may have its key"
        );
    }

    #[test]
    fn keys_that_came_while_a_token_was_compared_are_looked_at() {
        let mut cache = KeySetCache::new();
        assert_eq!(get(&mut cache, "a", 0), (false, true));
        let fetches = cache.fetches();
        cache.fetched(&id("a")[0], came(None), 0);
        assert_eq!(cache.wait(&id("a"), 1, fetches, 0), (Vec::new(), Waits::Again(1)));
        assert_eq!(get(&mut cache, "a", 40), (true, false), "nothing is said of other keys");
    }

    /// The largest set that is read: 64 keys of 4,096 bits with long ids.
    fn large() -> KeySet {
        let (kid, n) = ("k".repeat(KEY_ID_BYTES_MAX), "_".repeat(682) + "8");
        let key = format!(r#"{{"kty":"RSA","kid":"{kid}","n":"{n}","e":"AQAB"}}"#);
        KeySet::parse(format!(r#"{{"keys":[{}]}}"#, vec![key; KEYS_MAX].join(",")).as_bytes()).unwrap()
    }

    #[test]
    fn large_key_sets_are_bounded_by_their_bytes_and_the_last_used_stay() {
        const SETS: usize = 1_000;
        let mut cache = KeySetCache::new();
        for n in 0..SETS {
            let (name, now_s) = (format!("x{n}"), n as u64);
            assert_eq!(get(&mut cache, &name, now_s), (false, true));
            cache.fetched(&id(&name)[0], Some((large(), None)), now_s);
            let held: usize = cache.sets.values().map(CachedKeySet::bytes).sum();
            assert!(held <= KEY_SETS_BYTES_MAX && held == cache.bytes, "{held}");
        }
        let kept = KEY_SETS_BYTES_MAX / large().bytes();
        assert!((200..SETS).contains(&kept), "{kept}");
        for n in SETS - kept..SETS {
            assert!(get(&mut cache, &format!("x{n}"), SETS as u64).0, "{n}");
        }
    }

    #[test]
    fn a_key_set_that_nobody_uses_is_forgotten_after_its_keys_have_ended() {
        let mut cache = KeySetCache::new();
        for name in ["unused", "used"] {
            get(&mut cache, name, 0);
            cache.fetched(&id(name)[0], came(Some(KEY_SET_AGE_S_MAX)), 0);
        }
        let end_s = KEY_SET_UNUSED_S_MAX;
        assert!(get(&mut cache, "used", end_s - 1).0);
        get(&mut cache, "another", end_s - 1);
        assert_eq!(cache.sizes().0, 3);
        get(&mut cache, "one more", end_s - 1 + KEY_SETS_LOOK_S);
        assert_eq!(cache.sizes().0, 3, "one is forgotten");
        assert!(cache.sets.contains_key(&id("used")[0]) && !cache.sets.contains_key(&id("unused")[0]));
        assert_eq!(cache.bytes, cache.sets.values().map(CachedKeySet::bytes).sum::<usize>());
    }

    #[test]
    fn however_many_clients_of_one_tenant_wait_those_of_another_may_wait_too() {
        let mut cache = KeySetCache::new();
        let mut waiting = 0;
        for url in 0..8 {
            let ids = id(&url.to_string()).map(|id| KeySetId { tenant: "mallory".into(), ..id });
            waiting += (0..2_000).filter(|client| wait(&mut cache, &ids, *client, 0).1 == Waits::Yes).count();
        }
        assert_eq!(wait(&mut cache, &id("a"), 1, 0).1, Waits::Yes, "{waiting} clients of mallory wait");
        assert_eq!(waiting, 2_000);
    }

    #[test]
    fn who_waits_and_what_is_kept_is_bounded() {
        let mut cache = KeySetCache::new();
        let sent_away =
            (0..2_500).filter(|client| why(wait(&mut cache, &id("a"), *client, 0)).is_some()).count();
        assert_eq!((sent_away, cache.sizes()), (500, (1, 2_000)));
        for n in 0..KEY_SETS_MAX + 50 {
            let name = format!("x{n}");
            assert_eq!(get(&mut cache, &name, 1), (false, true));
            cache.fetched(&id(&name)[0], None, 1);
        }
        assert_eq!(cache.sizes(), (KEY_SETS_MAX, 2_000));
        assert_eq!(cache.fetched(&id("a")[0], came(None), 2).len(), 2_000);
    }
}
