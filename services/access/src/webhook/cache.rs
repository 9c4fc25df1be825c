use std::collections::HashMap;

use super::{WebhookAnswer, WebhookQuestion};
use crate::limits::{WEBHOOK_CACHE_S_MAX, WEBHOOK_CACHED_BYTES_MAX, WEBHOOK_REFUSED_S_MAX};
use crate::model::WebhookAuth;

/// Caches what the webhook answered about a client with the same names and password. Keys are keyed
/// hashes, so no password stays in memory. When the younger of two generations is full or older
/// than any answer lives, the older is dropped, which bounds the size without a list of ages.
#[derive(Debug)]
pub struct AnswerCache {
    key: [u8; 32],
    young: CacheGeneration,
    old: CacheGeneration,
    half_max: usize,
    half_bytes_max: usize,
}

#[derive(Debug, Default)]
struct CacheGeneration {
    entries: HashMap<[u8; 16], Entry>,
    bytes: usize,
    began_s: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    answer: WebhookAnswer,
    until_s: u64,
}

impl AnswerCache {
    /// `key` must be random; `bytes` counts the contents of the answers.
    #[must_use]
    pub fn new(key: [u8; 32], entries: usize, bytes: usize) -> Self {
        let (young, old) = Default::default();
        Self { key, young, old, half_max: entries / 2, half_bytes_max: bytes / 2 }
    }

    #[must_use]
    pub fn get(
        &self,
        webhook: &WebhookAuth,
        question: &WebhookQuestion<'_>,
        now_s: u64,
    ) -> Option<&WebhookAnswer> {
        let tag = self.tag(webhook, question)?;
        let entry = self.young.entries.get(&tag).or_else(|| self.old.entries.get(&tag))?;
        (now_s < entry.until_s).then_some(&entry.answer)
    }

    /// Remembers an answer as long as the record says, a permission until it expires at the latest, a
    /// refusal for [`WEBHOOK_REFUSED_S_MAX`] at most, a failure or an answer of more than
    /// [`WEBHOOK_CACHED_BYTES_MAX`] never.
    pub fn insert(
        &mut self,
        webhook: &WebhookAuth,
        question: &WebhookQuestion<'_>,
        answer: &WebhookAnswer,
        (now_s, unix_now_ms): (u64, u64),
    ) {
        let cache_s = match answer {
            WebhookAnswer::Allowed(grant) => {
                let left_ms = grant.expires_at_ms.map_or(u64::MAX, |at_ms| at_ms.saturating_sub(unix_now_ms));
                u64::from(webhook.cache_s).min(left_ms / 1_000)
            }
            WebhookAnswer::Refused => webhook.cache_s.min(WEBHOOK_REFUSED_S_MAX).into(),
            WebhookAnswer::Failed(_) => 0,
        };
        let bytes = answer.bytes();
        let is_kept = cache_s > 0 && self.half_max > 0 && bytes <= WEBHOOK_CACHED_BYTES_MAX;
        let Some(tag) = self.tag(webhook, question).filter(|_| is_kept) else { return };
        let young = &self.young;
        if young.entries.len() >= self.half_max
            || young.bytes + bytes > self.half_bytes_max
            || now_s >= young.began_s + u64::from(WEBHOOK_CACHE_S_MAX)
        {
            let next = CacheGeneration { began_s: now_s, ..CacheGeneration::default() };
            self.old = std::mem::replace(&mut self.young, next);
        }
        let entry = Entry { answer: answer.clone(), until_s: now_s + cache_s };
        self.young.bytes += bytes;
        if let Some(former) = self.young.entries.insert(tag, entry) {
            self.young.bytes -= former.answer.bytes();
        }
    }

    /// A keyed hash of the URL and the request without the address, which changes.
    #[must_use]
    pub fn tag(&self, webhook: &WebhookAuth, question: &WebhookQuestion<'_>) -> Option<[u8; 16]> {
        let asked = WebhookQuestion {
            broker: question.broker,
            client_id: question.client_id,
            user: question.user,
            password: question.password.clone(),
            certificate_user: question.certificate_user,
            address: None,
        };
        let input = serde_json::to_vec(&(&webhook.url, asked)).ok()?;
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&input);
        let mut tag = [0; 16];
        hasher.finalize_xof().fill(&mut tag);
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::webhook::WebhookGrant;

    /// 2026-06-01.
    const UNIX_MS: u64 = 1_780_272_000_000;

    fn question<'a>(client_id: &'a str, password: &'a [u8]) -> WebhookQuestion<'a> {
        WebhookQuestion {
            broker: "acme",
            client_id,
            user: None,
            password: Some(password.into()),
            certificate_user: None,
            address: Some(client_id.into()),
        }
    }

    fn webhook(cache_s: u32) -> WebhookAuth {
        WebhookAuth { url: "https://who.test".into(), cache_s, ..WebhookAuth::default() }
    }

    #[test]
    fn an_answer_counts_for_the_same_client_for_its_time() {
        let (webhook, allowed) = (webhook(60), WebhookAnswer::Allowed(Box::default()));
        let mut cache = AnswerCache::new([1; 32], 100, 100_000);
        cache.insert(&webhook, &question("a", b"s"), &allowed, (10, UNIX_MS));
        let elsewhere = WebhookQuestion { address: None, ..question("a", b"s") };
        assert_eq!(cache.get(&webhook, &elsewhere, 69), Some(&allowed));
        assert_eq!(cache.get(&webhook, &elsewhere, 70), None);
        for other in
            [question("b", b"s"), question("a", b"S"), WebhookQuestion { broker: "b", ..question("a", b"s") }]
        {
            assert_eq!(cache.get(&webhook, &other, 10), None);
        }
        let moved = WebhookAuth { url: "https://other.test".into(), ..webhook };
        assert_eq!(cache.get(&moved, &elsewhere, 10), None);
    }

    #[test]
    fn a_permission_counts_no_longer_than_it_lasts() {
        let question = question("a", b"s");
        for (lasts_ms, counts_s) in [(4_999, 4), (999, 0), (0, 0), (90_000, 60)] {
            let mut cache = AnswerCache::new([1; 32], 100, 100_000);
            let grant = WebhookGrant { expires_at_ms: Some(UNIX_MS + lasts_ms), ..WebhookGrant::default() };
            let allowed = WebhookAnswer::Allowed(Box::new(grant));
            cache.insert(&webhook(60), &question, &allowed, (10, UNIX_MS));
            let counts = |now_s| cache.get(&webhook(60), &question, now_s).is_some();
            assert_eq!((10..100).take_while(|now_s| counts(*now_s)).count(), counts_s, "{lasts_ms}");
        }
    }

    #[test]
    fn a_no_counts_for_a_short_time_and_a_failure_for_none() {
        let mut cache = AnswerCache::new([1; 32], 100, 100_000);
        cache.insert(&webhook(60), &question("a", b"s"), &WebhookAnswer::Refused, (0, UNIX_MS));
        assert_eq!(cache.get(&webhook(60), &question("a", b"s"), 9), Some(&WebhookAnswer::Refused));
        assert_eq!(cache.get(&webhook(60), &question("a", b"s"), 10), None);
        cache.insert(&webhook(60), &question("b", b"s"), &WebhookAnswer::Failed("x"), (0, UNIX_MS));
        assert_eq!(cache.get(&webhook(60), &question("b", b"s"), 0), None);
        cache.insert(
            &webhook(0),
            &question("c", b"s"),
            &WebhookAnswer::Allowed(Box::default()),
            (0, UNIX_MS),
        );
        assert_eq!(cache.get(&webhook(0), &question("c", b"s"), 0), None);
    }

    #[test]
    fn its_size_is_bounded_and_the_young_stay() {
        let mut cache = AnswerCache::new([1; 32], 20, 100_000);
        let names: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
        for name in &names {
            cache.insert(&webhook(60), &question(name, b"s"), &WebhookAnswer::Refused, (0, UNIX_MS));
            assert!(cache.young.entries.len() + cache.old.entries.len() <= 20);
        }
        for name in &names[990..] {
            assert!(cache.get(&webhook(60), &question(name, b"s"), 0).is_some(), "{name}");
        }
    }

    fn with_rules(bytes: usize) -> WebhookAnswer {
        let filter = "r".repeat(bytes);
        let body = format!(
            r#"{{"result":"allow","rules":[{{"effect":"allow","action":"all","filter":"{filter}"}}]}}"#
        );
        WebhookAnswer::of(200, body.as_bytes())
    }

    #[test]
    fn long_answers_are_bounded_by_their_bytes() {
        const BYTES: usize = 100_000;
        let mut cache = AnswerCache::new([1; 32], 20_000, BYTES);
        for number in 0..200 {
            let name = number.to_string();
            cache.insert(&webhook(60), &question(&name, b"s"), &with_rules(3_000), (0, UNIX_MS));
            cache.insert(&webhook(60), &question(&name, b"s"), &with_rules(3_000), (0, UNIX_MS));
            let all = cache.young.entries.values().chain(cache.old.entries.values());
            let held: usize = all.map(|entry| entry.answer.bytes()).sum();
            assert!(held <= BYTES && held == cache.young.bytes + cache.old.bytes, "{held}");
            assert!(cache.get(&webhook(60), &question(&name, b"s"), 0).is_some());
        }
        cache.insert(&webhook(60), &question("long", b"s"), &with_rules(5_000), (0, UNIX_MS));
        assert_eq!(cache.get(&webhook(60), &question("long", b"s"), 0), None);
    }

    #[test]
    fn answers_of_the_past_go_although_the_cache_is_not_full() {
        let mut cache = AnswerCache::new([1; 32], 20_000, 100_000_000);
        let hour_s = u64::from(WEBHOOK_CACHE_S_MAX);
        for at_s in 0..10 * hour_s {
            let name = (at_s / 60).to_string();
            if at_s % 60 == 0 {
                cache.insert(
                    &webhook(WEBHOOK_CACHE_S_MAX),
                    &question(&name, b"s"),
                    &with_rules(1),
                    (at_s, UNIX_MS),
                );
            }
        }
        assert!(cache.young.entries.len() + cache.old.entries.len() <= 2 * 60);
        let last_s = 10 * hour_s - 60;
        for minute in last_s / 60 - 58..=last_s / 60 {
            let name = minute.to_string();
            assert!(cache.get(&webhook(60), &question(&name, b"s"), last_s).is_some(), "{name}");
        }
    }
}
