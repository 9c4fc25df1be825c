//! Knows what clients may see: the simulated clients report what they send and get, and a violated promise is a panic. It checks
//! P1, P2, P4 and P7 (PROMISES.md), and that a message with QoS 2 arrives exactly once (MQTT section 4.3.3).

use std::collections::{BTreeMap, BTreeSet};

use millrace_mqtt::topic;

use super::Plan;
use super::network::Will;

/// Identifies a message: the payload of each is "publisher:number", and a publisher counts its messages. A will has a
/// publisher from [`WILLS`] on, and the number that the model knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) publisher: u32,
    pub(super) number: u32,
}

pub(super) const WILLS: u32 = 1_000;
pub(super) const TOPICS: [&str; 3] = ["t/a", "t/b", "t/c"];
pub(super) const WILL_TOPIC: &str = "will/x";

impl Key {
    pub(super) fn topic(self) -> &'static str {
        if self.publisher >= WILLS { WILL_TOPIC } else { TOPICS[self.number as usize % TOPICS.len()] }
    }

    pub(super) fn payload(self) -> Vec<u8> {
        format!("{}:{}", self.publisher, self.number).into_bytes()
    }

    pub(super) fn of(payload: &[u8]) -> Self {
        let text = std::str::from_utf8(payload).unwrap();
        let (publisher, number) = text.split_once(':').unwrap();
        Self { publisher: publisher.parse().unwrap(), number: number.parse().unwrap() }
    }
}

#[derive(Debug)]
struct Sent {
    qos: u8,
    first_sent_at: u64,
    times: u32,
    is_acknowledged: bool,
    /// The client has sent it once, and the server has said that it is not stored.
    is_refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WillEnd {
    /// Its connection is there, or the answer to the CONNECT is missing.
    None,
    /// The client sent DISCONNECT; the version of the store when the server confirmed it.
    Clean(Option<u64>),
    /// The connection ended without a DISCONNECT at this time, ms.
    Lost(u64),
}

#[derive(Debug)]
struct WillSeen {
    delay_s: u32,
    client: usize,
    is_stored: bool,
    end: WillEnd,
    /// The next CONNECT of the client, ms.
    next_at: Option<u64>,
    /// Positions at which the will was published; more than one is a violation.
    positions: BTreeSet<[u8; 12]>,
}

/// A session of a client from its first CONNECT to its end.
#[derive(Default)]
pub(super) struct Session {
    /// The filters, and when the server granted them.
    filters: BTreeMap<String, u64>,
    delivered: BTreeMap<Key, u32>,
    /// The newest message that arrived from each publisher on each topic.
    last: BTreeMap<(u32, &'static str), u32>,
}

pub(super) struct Model {
    plan: Plan,
    /// Counts what happens, as the time of the model.
    now: u64,
    sent: BTreeMap<Key, Sent>,
    wills: BTreeMap<u32, WillSeen>,
    /// When the shared subscription began, and the times that its members got a message, by QoS.
    group_since: Option<u64>,
    group: BTreeMap<Key, [u32; 3]>,
    pub(super) delivered: u64,
    pub(super) acknowledged: u64,
}

impl Model {
    pub(super) fn new(plan: Plan) -> Self {
        let (sent, wills, group) = Default::default();
        Self { plan, now: 0, sent, wills, group_since: None, group, delivered: 0, acknowledged: 0 }
    }

    pub(super) fn violated(&self, what: &str) -> ! {
        panic!("{what} (seed {}, {} pods)", self.plan.seed, self.plan.pods)
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(super) fn sends(&mut self, key: Key, qos: u8) {
        let at = self.tick();
        let sent = Sent { qos, first_sent_at: at, times: 0, is_acknowledged: false, is_refused: false };
        self.sent.entry(key).or_insert(sent).times += 1;
    }

    pub(super) fn acknowledged(&mut self, key: Key) {
        self.acknowledged += 1;
        self.sent.get_mut(&key).unwrap().is_acknowledged = true;
    }

    pub(super) fn refused(&mut self, key: Key) {
        let sent = self.sent.get_mut(&key).unwrap();
        sent.is_refused = sent.times == 1;
    }

    /// A client gets a message; `qos` is that of the delivery.
    pub(super) fn delivers(&mut self, session: &mut Session, client: &str, key: Key, qos: u8) {
        self.delivered += 1;
        let count = session.delivered.entry(key).or_default();
        *count += 1;
        let (count, is_first) = (*count, *count == 1);
        if key.publisher >= WILLS {
            return;
        }
        let Some(sent) = self.sent.get(&key) else {
            self.violated(&format!("{client} got {key:?}, which nobody sent"));
        };
        if sent.is_refused {
            self.violated(&format!("{client} got {key:?}, which the store refused"));
        }
        if sent.qos == 2 && qos == 2 && count > 1 {
            self.violated(&format!("{client} got {key:?} {count} times with QoS 2"));
        }
        let last = session.last.entry((key.publisher, key.topic())).or_default();
        if is_first && key.number < *last {
            let last = *last;
            self.violated(&format!("P4: {client} got {key:?} after {last} of the same publisher"));
        }
        *last = key.number.max(*last);
    }

    pub(super) fn delivers_shared(&mut self, client: &str, key: Key, qos: u8) {
        self.delivered += 1;
        let count = &mut self.group.entry(key).or_default()[usize::from(qos)];
        *count += 1;
        let count = *count;
        let Some(sent) = self.sent.get(&key) else {
            self.violated(&format!("{client} got {key:?}, which nobody sent"));
        };
        if sent.qos == 2 && qos == 2 && count > 1 {
            self.violated(&format!("members got {key:?} {count} times with QoS 2, at last {client}"));
        }
        if sent.is_refused {
            self.violated(&format!("{client} got {key:?}, which the store refused"));
        }
    }

    pub(super) fn granted(&mut self, session: &mut Session, filter: &str) {
        let at = self.tick();
        session.filters.entry(filter.into()).or_insert(at);
        if filter.starts_with("$share/") {
            self.group_since.get_or_insert(at);
        }
    }

    pub(super) fn continues(&mut self, session: &mut Session, client: &str, filters: &[String]) {
        for filter in session.filters.keys() {
            if !filters.contains(filter) {
                self.violated(&format!("P2: the session of {client} has lost its filter {filter}"));
            }
        }
        for filter in filters {
            self.granted(session, filter);
        }
    }

    /// Call it at the end, when the session has read everything: it must have each message that was first sent after
    /// the SUBACK and acknowledged.
    pub(super) fn check_session(&self, session: &Session, client: &str) {
        for (filter, since) in &session.filters {
            for (key, sent) in &self.sent {
                let is_due = sent.is_acknowledged
                    && sent.first_sent_at > *since
                    && topic::matches(filter, key.topic());
                if is_due && !session.delivered.contains_key(key) {
                    self.violated(&format!("P1: {client} never got {key:?}, which was acknowledged"));
                }
            }
        }
    }

    /// Call it at the end: some member must have each message of the shared subscription.
    pub(super) fn check_group(&self) {
        let Some(since) = self.group_since else { return };
        for (key, sent) in &self.sent {
            if sent.is_acknowledged && sent.first_sent_at > since && !self.group.contains_key(key) {
                self.violated(&format!("P1: no member got {key:?}, which was acknowledged"));
            }
        }
    }

    pub(super) fn connects(&mut self, client: usize, will: Option<Will>, at_ms: u64) {
        for seen in self.wills.values_mut().filter(|seen| seen.client == client) {
            seen.next_at.get_or_insert(at_ms);
        }
        if let Some(Will { number, delay_s }) = will {
            let (end, positions) = (WillEnd::None, BTreeSet::new());
            self.wills.insert(
                number,
                WillSeen { delay_s, client, is_stored: false, end, next_at: None, positions },
            );
        }
    }

    pub(super) fn will_is_stored(&mut self, number: u32) {
        self.wills.get_mut(&number).unwrap().is_stored = true;
    }

    pub(super) fn leaves(&mut self, number: u32, confirmed_at: Option<u64>) {
        self.wills.get_mut(&number).unwrap().end = WillEnd::Clean(confirmed_at);
    }

    pub(super) fn is_lost(&mut self, number: u32, at_ms: u64) {
        let seen = self.wills.get_mut(&number).unwrap();
        if seen.end == WillEnd::None {
            seen.end = WillEnd::Lost(at_ms);
        }
    }

    pub(super) fn will_fires(&mut self, number: u32, position: [u8; 12]) {
        let seen = self.wills.get_mut(&number).unwrap();
        seen.positions.insert(position);
        if seen.positions.len() > 1 {
            self.violated(&format!("P7: the will {number} was published twice"));
        }
    }

    pub(super) fn check_wills(&self) {
        for (number, seen) in &self.wills {
            let is_silent = seen.positions.is_empty();
            let returned = |at_ms: u64| {
                seen.next_at.is_some_and(|next_ms| {
                    next_ms < at_ms + 1_000 * u64::from(seen.delay_s) + self.slack_ms()
                })
            };
            match seen.end {
                // Before the DISCONNECT, another pod may have taken the client's pod for dead and published the will.
                WillEnd::Clean(Some(version))
                    if seen.positions.iter().any(|position| position[..8] > version.to_be_bytes()[..]) =>
                {
                    self.violated(&format!("P7: the will {number} was published after a DISCONNECT"));
                }
                WillEnd::Lost(at_ms)
                    if seen.is_stored && is_silent && (seen.delay_s == 0 || !returned(at_ms)) =>
                {
                    self.violated(&format!(
                        "P7: the will {number} of client {} was never published: {seen:?}",
                        seen.client
                    ));
                }
                _ => {}
            }
        }
    }

    /// Time that the model allows beyond a will's delay: clocks differ, and the store may begin the delay late.
    fn slack_ms(&self) -> u64 {
        2 * self.plan.clocks_ms + 30_000
    }

    pub(super) fn fired(&self) -> usize {
        self.wills.values().filter(|seen| !seen.positions.is_empty()).count()
    }
}

impl Session {
    pub(super) fn unsubscribes(&mut self, filter: &str) {
        self.filters.remove(filter);
    }

    pub(super) fn forget_filters(&mut self) {
        self.filters.clear();
    }

    pub(super) fn has(&self, filter: &str) -> bool {
        self.filters.contains_key(filter)
    }
}
