/// Entries of a set. A tag determines its set, so a lookup compares at most this many entries.
const WAYS: usize = 4;

/// Remembers which passwords were verified recently, so that a reconnecting client does not cost an
/// Argon2 hash each time (tens of milliseconds and 19 MiB).
///
/// An entry is a hash of user, password and stored hash under a key of this process. A changed
/// stored hash makes another entry, so a new password file needs no clearing. Only verified
/// passwords become entries, so attackers without a correct password evict nobody.
#[derive(Debug)]
pub struct VerifiedCache {
    hasher: blake3::Hasher,
    sets: Box<[[Entry; WAYS]]>,
    ttl_s: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 marks an empty slot; a tag of 0 is not remembered.
    tag: u128,
    since_s: u32,
}

impl VerifiedCache {
    /// Makes at least `entries` slots (0 remembers nothing), which expire after `ttl_s` seconds;
    /// `key` must be random.
    pub fn new(key: &[u8; 32], entries: usize, ttl_s: u32) -> Self {
        let sets = vec![[Entry::default(); WAYS]; entries.div_ceil(WAYS)];
        Self { hasher: blake3::Hasher::new_keyed(key), sets: sets.into(), ttl_s }
    }

    pub fn contains(&self, user: &str, password: &[u8], phc: &str, now_s: u32) -> bool {
        let tag = self.tag(user, password, phc);
        tag != 0
            && self
                .set(tag)
                .is_some_and(|at| self.sets[at].iter().any(|e| e.tag == tag && self.is_valid(e, now_s)))
    }

    /// Call this only after [`super::chosen::verify`] accepted the password.
    pub fn insert(&mut self, user: &str, password: &[u8], phc: &str, now_s: u32) {
        let tag = self.tag(user, password, phc);
        let Some(at) = self.set(tag) else { return };
        let set = &mut self.sets[at];
        let age = |e: &Entry| if e.tag == 0 { u32::MAX } else { now_s.wrapping_sub(e.since_s) };
        let same = set.iter().position(|e| e.tag == tag);
        let oldest = || (0..WAYS).max_by_key(|i| age(&set[*i])).unwrap_or(0);
        let place = same.unwrap_or_else(oldest);
        set[place] = Entry { tag, since_s: now_s };
    }

    fn is_valid(&self, entry: &Entry, now_s: u32) -> bool {
        now_s.wrapping_sub(entry.since_s) < self.ttl_s
    }

    fn set(&self, tag: u128) -> Option<usize> {
        (tag >> 64).checked_rem(self.sets.len() as u128).map(|at| at as usize)
    }

    /// Length prefixes make different inputs hash differently.
    fn tag(&self, user: &str, password: &[u8], phc: &str) -> u128 {
        let mut hasher = self.hasher.clone();
        for part in [user.as_bytes(), password, phc.as_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut tag = [0; 16];
        hasher.finalize_xof().fill(&mut tag);
        u128::from_le_bytes(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: usize) -> VerifiedCache {
        VerifiedCache::new(&[7; 32], entries, 60)
    }

    #[test]
    fn only_the_same_user_password_and_line_are_known() {
        let mut cache = cache(16);
        cache.insert("bob", b"secret", "$line", 100);
        assert!(cache.contains("bob", b"secret", "$line", 100));
        for (user, password, phc) in [
            ("eve", &b"secret"[..], "$line"),
            ("bob", b"secreT", "$line"),
            ("bob", b"secret", "$other"),
            ("bobs", b"ecret", "$line"),
            ("bob", b"secret$line", ""),
        ] {
            assert!(!cache.contains(user, password, phc, 100), "{user}");
        }
        assert!(!self::cache(16).contains("bob", b"secret", "$line", 100));
    }

    #[test]
    fn an_entry_counts_for_its_time_and_again_when_renewed() {
        let mut cache = cache(16);
        // Over the end of the seconds, too.
        for start in [0, 1000, u32::MAX - 10] {
            cache.insert("bob", b"s", "$", start);
            assert!(cache.contains("bob", b"s", "$", start.wrapping_add(59)));
            assert!(!cache.contains("bob", b"s", "$", start.wrapping_add(60)));
            cache.insert("bob", b"s", "$", start.wrapping_add(60));
            assert!(cache.contains("bob", b"s", "$", start.wrapping_add(61)));
        }
    }

    #[test]
    fn its_size_is_bounded_and_the_oldest_goes_first() {
        let mut cache = cache(4);
        for n in 0..5u32 {
            cache.insert(&n.to_string(), b"s", "$", n);
        }
        assert!(!cache.contains("0", b"s", "$", 5));
        assert!((1..5).all(|n| cache.contains(&n.to_string(), b"s", "$", 5)));
    }

    #[test]
    fn without_places_it_remembers_nothing() {
        let mut cache = cache(0);
        cache.insert("bob", b"s", "$", 0);
        assert!(!cache.contains("bob", b"s", "$", 0));
    }
}
