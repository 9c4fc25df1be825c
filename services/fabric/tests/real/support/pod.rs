//! A fabric that records the calls of its sink.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millrace_fabric::{
    Fabric, FabricLimits, FabricSettings, Gap, Health, MessageBatch, PodId, Sent, Sink, To,
};

/// Longer than anything should take, on a busy machine too.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(120);

/// FabricLimits that make a test short where nothing is slow, and that a machine which is busy with
/// other things does not reach.
fn limits() -> FabricLimits {
    FabricLimits {
        hello_ms: 500,
        pod_gone_ms: 30_000,
        settle_ms: 200,
        reconnect_ms_max: 300,
        join_wait_ms: 100_000,
        ping_ms: 20_000,
        connect_timeout_ms: 30_000,
        stop_ms: 60_000,
        ..FabricLimits::default()
    }
}

/// The recorded calls of a pod's sink.
#[derive(Default)]
pub(crate) struct Seen {
    /// The numbers of messages, by sender and receiver, in order; `None` for each that is missing.
    pub(crate) messages: BTreeMap<(PodId, To), Vec<Option<u64>>>,
    pub(crate) bytes: usize,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) joined: BTreeMap<To, bool>,
    pub(crate) pods: Vec<PodId>,
    pub(crate) health: Vec<Health>,
}

impl Seen {
    /// Messages that came, of one sender to one receiver.
    pub(crate) fn count(&self, from: PodId, to: To) -> usize {
        self.messages.get(&(from, to)).map_or(0, |messages| messages.iter().flatten().count())
    }

    /// Messages that came or are known to be missing.
    pub(crate) fn accounted(&self, from: PodId, to: To) -> usize {
        self.messages.get(&(from, to)).map_or(0, Vec::len)
    }
}

#[derive(Default)]
pub(crate) struct Recorder {
    seen: Mutex<Seen>,
    changed: Condvar,
    /// While held, nothing is received.
    pub(crate) gate: Mutex<()>,
}

impl Recorder {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
        self.changed.notify_all();
    }
}

impl Sink for Recorder {
    fn receive(&self, batch: &MessageBatch) {
        drop(self.gate.lock().unwrap());
        self.change(|seen| {
            let numbers = seen.messages.entry((batch.from(), batch.to())).or_default();
            assert_eq!(batch.messages().len(), batch.len());
            for message in batch.messages() {
                let (number, filling) = message.split_first_chunk().expect("a number");
                assert!(filling.iter().all(|byte| *byte == number[7]), "what came is not what was sent");
                numbers.push(Some(u64::from_be_bytes(*number)));
                seen.bytes += message.len();
            }
        });
    }

    fn gap(&self, gap: &Gap) {
        self.change(|seen| {
            seen.gaps.push(*gap);
            if let (Some(from), Some(missing)) = (gap.from, gap.missing) {
                let numbers = seen.messages.entry((from, gap.to)).or_default();
                numbers.extend((0..missing).map(|_| None));
            }
        });
    }

    fn joined(&self, to: To, complete: bool) {
        self.change(|seen| _ = seen.joined.insert(to, complete));
    }

    fn pod_came(&self, pod: PodId, _: &str, _: bool) {
        self.change(|seen| seen.pods.push(pod));
    }

    fn pod_gone(&self, pod: PodId) {
        self.change(|seen| seen.pods.retain(|other| *other != pod));
    }

    fn health_changed(&self, health: &Health) {
        self.change(|seen| seen.health.push(health.clone()));
    }
}

/// A fabric that records the calls of its sink.
pub(crate) struct Pod {
    pub(crate) fabric: Fabric,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) id: PodId,
}

impl Pod {
    pub(crate) fn start(url: &str) -> Self {
        Self::start_with(url, |_| {})
    }

    pub(crate) fn start_with(url: &str, change: impl FnOnce(&mut FabricSettings)) -> Self {
        let mut settings = FabricSettings::new(url, "test");
        settings.limits = limits();
        change(&mut settings);
        let recorder = Arc::new(Recorder::default());
        let id = settings.pod;
        let fabric = Fabric::start(settings, recorder.clone()).unwrap();
        Self { fabric, recorder, id }
    }

    /// So many pods that know each other.
    pub(crate) fn start_some<const N: usize>(url: &str) -> [Self; N] {
        let pods: [Self; N] = std::array::from_fn(|_| Self::start(url));
        know_each_other(&pods.each_ref());
        pods
    }

    /// Waits until `condition` holds for the recorded calls of this pod.
    #[track_caller]
    pub(crate) fn wait<T>(&self, what: &str, mut condition: impl FnMut(&mut Seen) -> Option<T>) -> T {
        let seen = self.recorder.seen.lock().unwrap();
        let mut found = None;
        let wait = self.recorder.changed.wait_timeout_while(seen, WAIT_MAX, |seen| {
            found = condition(seen);
            found.is_none()
        });
        drop(wait);
        let counters = self.fabric.counters();
        found.unwrap_or_else(|| panic!("{what}: it did not happen\n{}\n{counters:#?}", self.fabric.health()))
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut(&mut Seen) -> bool) {
        self.wait(what, |seen| condition(seen).then_some(()));
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.recorder.seen.lock().unwrap())
    }

    /// Joins, and waits until all have confirmed it.
    #[track_caller]
    pub(crate) fn join(&self, to: To) {
        // A pod whose join was not confirmed in time asks again.
        poll("to join", || {
            self.seen(|seen| _ = seen.joined.remove(&to));
            assert!(self.fabric.join(to));
            self.wait("a notice of the join", |seen| seen.joined.get(&to).copied())
        });
    }

    /// Sends a message with this number and so many bytes after it.
    pub(crate) fn send(&self, to: To, number: u64, bytes: usize) -> Sent {
        let number = number.to_be_bytes();
        self.fabric.send(to, &[&number, &vec![number[7]; bytes]])
    }

    /// Sends messages from `from` on and fails when one is not taken.
    #[track_caller]
    pub(crate) fn send_all(&self, to: To, numbers: std::ops::Range<u64>, bytes: usize) {
        for number in numbers {
            assert_eq!(self.send(to, number, bytes), Sent::Queued);
        }
    }

    /// Sends messages until `accounted` of them are known at `receiver`: come, or missing.
    #[track_caller]
    pub(crate) fn until_accounted(&self, receiver: &Self, to: To, sent: u64) {
        let sent = usize::try_from(sent).unwrap();
        receiver.until("a notice of all messages", |seen| seen.accounted(self.id, to) >= sent);
        receiver.seen(|seen| {
            let numbers = &seen.messages[&(self.id, to)];
            assert_eq!(numbers.len(), sent);
            for (place, number) in (0u64..).zip(numbers) {
                assert!(number.is_none_or(|number| number == place), "{number:?} came at place {place}");
            }
        });
    }
}

/// Waits until all pods know all others.
#[track_caller]
pub(crate) fn know_each_other(pods: &[&Pod]) {
    for pod in pods {
        pod.until("to know the others", |seen| seen.pods.len() == pods.len() - 1);
    }
}

/// Waits for a condition that no single pod is notified of.
#[track_caller]
pub(crate) fn poll(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..WAIT_MAX.as_millis() {
        if condition() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("{what}: it did not happen");
}
