//! Herds of clients in a simulated time: when each is admitted, which are refused and come back, and that nobody is kept out.

use super::*;

fn limits(per_second: u32, burst: u32, waiting: u32, spread_ms: u16) -> EdgeLimits {
    EdgeLimits {
        connects_per_second_max: per_second,
        connects_burst: burst,
        connects_waiting_max: waiting,
        refusal_spread_ms: spread_ms,
        ..EdgeLimits::default()
    }
}

/// A client: its broker and its number.
type Client = (u64, u64);

/// Clients that all want in, and come back some time after they are refused.
struct Herd {
    admission: Admission<Client>,
    coming: BTreeMap<Millis, Vec<Client>>,
    /// Time after a refusal, milliseconds.
    comes_back_ms: Millis,
    /// The packet of each, bytes.
    bytes: usize,
    /// When each came in.
    admitted: HashMap<Client, Millis>,
    /// When each was refused, and why.
    refused: Vec<(Millis, Client, AdmissionRefusal)>,
    random: u32,
}

impl Herd {
    fn new(limits: &EdgeLimits, cores: usize, comes_back_ms: Millis) -> Self {
        Self {
            admission: Admission::new(limits, cores, 0),
            coming: BTreeMap::new(),
            comes_back_ms,
            bytes: 100,
            admitted: HashMap::new(),
            refused: Vec::new(),
            random: 1,
        }
    }

    /// So many clients of a broker come at this time.
    fn come(&mut self, at: Millis, broker: u64, count: u64) {
        self.coming.entry(at).or_default().extend((0..count).map(|number| (broker, number)));
    }

    /// One millisecond.
    fn pass(&mut self, now: Millis, keeps_up: bool) {
        for client in self.coming.remove(&now).unwrap_or_default() {
            self.random = self.random.wrapping_mul(0x9E37_79B1).wrapping_add(0x7F4A_7C15);
            match self.admission.ask(client, client.0, self.bytes, keeps_up, now, self.random) {
                AdmissionAnswer::Admitted => assert_eq!(self.admitted.insert(client, now), None),
                AdmissionAnswer::Waits => {}
                AdmissionAnswer::Refused(refusal) => self.refuse(now, client, refusal),
            }
        }
        while let Some((client, verdict)) = self.admission.next(keeps_up, now, |_| true) {
            match verdict {
                AdmissionOutcome::Admitted => assert_eq!(self.admitted.insert(client, now), None),
                AdmissionOutcome::Refused(refusal) => self.refuse(now, client, refusal),
                AdmissionOutcome::Gone => panic!("{client:?} is there"),
            }
        }
    }

    fn refuse(&mut self, now: Millis, client: Client, refusal: AdmissionRefusal) {
        self.refused.push((now, client, refusal));
        self.coming.entry(now + self.comes_back_ms.max(1)).or_default().push(client);
    }

    /// Until everybody is in: the time.
    fn settle(&mut self, count: usize) -> Millis {
        let mut now = 0;
        while self.admitted.len() < count {
            assert!(now < 1_000_000, "{} of {count} are in", self.admitted.len());
            self.pass(now, true);
            now += 1;
        }
        assert!(self.admission.is_idle());
        now - 1
    }

    /// How many of a broker had come in by then.
    fn admitted_by(&self, broker: u64, at: Millis) -> usize {
        self.admitted.iter().filter(|(client, when)| client.0 == broker && **when <= at).count()
    }
}

#[test]
fn a_herd_is_in_after_the_stated_time_and_never_faster_than_the_rate() {
    // Rate, burst, room to wait, spread and pause of the clients (ms), clients.
    let cases = [
        (10_000, 20_000, 20_000, 1_000, 2_000, 100_000),
        (10_000, 20_000, 20_000, 1_000, 0, 18_000),
        (1_000, 1_000, 4_000, 500, 2_500, 20_000),
        (1_000, 1, 2_000, 1_000, 0, 5_000),
        (2_000, 500, 0, 200, 50, 9_000),
        (100, 10, 50, 0, 100, 500),
    ];
    for case in cases {
        let (rate, burst, waiting, spread_ms, pause_ms, count) = case;
        // The room that the formula in `admission.rs` asks for.
        let room_ms = 1000 * u64::from(waiting / 2 + burst) / u64::from(rate);
        assert!(u64::from(spread_ms) + pause_ms <= room_ms, "{case:?}");
        let mut herd = Herd::new(&limits(rate, burst, waiting, spread_ms), 1, pause_ms);
        herd.come(0, 7, count);
        let settled_ms = herd.settle(count as usize);
        let owed_ms = 1000 * count.saturating_sub(u64::from(burst)) / u64::from(rate);
        // One millisecond for each turn that begins in its middle.
        let stated_ms = owed_ms + u64::from(spread_ms) + pause_ms + 2;
        assert!((owed_ms..=stated_ms).contains(&settled_ms), "{case:?}: {settled_ms} ms, not {stated_ms}");
        let mut times: Vec<Millis> = herd.admitted.values().copied().collect();
        times.sort_unstable();
        for (number, at) in times.into_iter().enumerate() {
            let allowed = u64::from(burst) + at * u64::from(rate) / 1000;
            assert!((number as u64) < allowed, "{case:?}: the {number}th comes in at {at} ms");
        }
    }
}

#[test]
fn a_storm_of_one_broker_keeps_nobody_else_out() {
    const STORM: u64 = 1;
    let mut herd = Herd::new(&limits(1_000, 1_000, 2_000, 500), 1, 200);
    herd.come(0, STORM, 20_000);
    // While it lasts, others come: each is in within a turn of the brokers, and none is refused.
    for broker in 2..12 {
        herd.come(1_000 + broker, broker, 50);
    }
    (0..5_000).for_each(|now| herd.pass(now, true));
    for broker in 2..12 {
        // Eleven brokers take turns at one CONNECT a millisecond.
        assert_eq!(herd.admitted_by(broker, 1_000 + broker + 11 * 50), 50, "{broker}");
    }
    assert!(herd.refused.iter().all(|(_, client, _)| client.0 == STORM));
    // The storm gets the rest: nothing of the rate is lost.
    assert!((5_995..=6_000).contains(&herd.admitted.len()), "{}", herd.admitted.len());
}

#[test]
fn many_storms_share_the_rate_evenly() {
    let mut herd = Herd::new(&limits(1_000, 1, 1_000, 100), 1, 50);
    (0..10).for_each(|broker| herd.come(broker, broker, 2_000));
    (0..10_000).for_each(|now| herd.pass(now, true));
    for broker in 0..10 {
        let count = herd.admitted_by(broker, 10_000);
        assert!((900..=1_100).contains(&count), "{broker}: {count} of 10,000");
    }
}

#[test]
fn the_loops_shares_are_the_rate() {
    for (rate, burst, cores) in [(1_000, 100, 4), (3, 8, 2), (1, 1, 3)] {
        let limits = limits(rate, burst, 100_000, 0);
        let mut herds: Vec<Herd> = (0..cores).map(|_| Herd::new(&limits, cores, 0)).collect();
        for herd in &mut herds {
            herd.come(0, 1, 10_000);
            (0..=6_000).for_each(|now| herd.pass(now, true));
        }
        let admitted: usize = herds.iter().map(|herd| herd.admitted.len()).sum();
        // Each loop admits at least one client of the burst, however small the whole burst is.
        let expected = 6 * rate as usize + (burst as usize).max(cores);
        assert!(admitted.abs_diff(expected) < cores, "{rate} {burst} {cores}: {admitted}, not {expected}");
    }
}

#[test]
fn refusals_are_spread_over_their_time_and_those_that_find_no_room_are_not_delayed() {
    // One broker: half of the room is used to wait, and all of it again to be refused.
    let mut herd = Herd::new(&limits(1, 10, 1_000, 1_000), 1, 100_000);
    herd.come(0, 1, 3_000);
    (0..=1_000).for_each(|now| herd.pass(now, true));
    assert_eq!((herd.admitted.len(), herd.refused.len()), (11, 3_000 - 10 - 500));
    let at_once: Vec<_> = herd.refused.drain(..3_000 - 10 - 500 - 1_000).collect();
    assert!(at_once.iter().all(|(at, ..)| *at == 0));
    for tenth in 0..10 {
        let within = |at: Millis| (tenth * 100..(tenth + 1) * 100).contains(&at);
        let count = herd.refused.iter().filter(|(at, ..)| within(*at)).count();
        assert!((60..=140).contains(&count), "{count} of 1000 in tenth {tenth}");
    }
    assert!(herd.refused.iter().all(|(.., refusal)| *refusal == AdmissionRefusal::Rate));
}

#[test]
fn a_server_that_is_behind_lets_nobody_in_and_refuses_as_busy() {
    let mut herd = Herd::new(&limits(1_000, 1_000, 20, 0), 1, 100_000);
    herd.come(0, 1, 50);
    (0..WAIT_MS_MAX).for_each(|now| herd.pass(now, false));
    // The queued clients still wait; the others were refused.
    assert_eq!((herd.admitted.len(), herd.refused.len()), (0, 40));
    herd.pass(WAIT_MS_MAX, false);
    assert_eq!(herd.refused.len(), 50);
    assert!(herd.refused.iter().all(|(.., refusal)| *refusal == AdmissionRefusal::Busy));
    // Once it has caught up the next ones come in.
    herd.come(WAIT_MS_MAX + 1, 2, 50);
    herd.pass(WAIT_MS_MAX + 1, true);
    assert_eq!(herd.admitted.len(), 50);
}

#[test]
fn without_a_rate_everybody_comes_in_at_once() {
    let mut herd = Herd::new(&limits(0, 1, 0, 0), 2, 0);
    herd.come(0, 1, 100_000);
    herd.pass(0, true);
    assert_eq!(herd.admitted.len(), 100_000);
}

#[test]
fn what_is_too_large_to_be_kept_is_refused_at_once() {
    for (bytes, waits) in [(HELD_BYTES_MAX, true), (HELD_BYTES_MAX + 1, false)] {
        let mut admission = Admission::new(&limits(1, 1, 100, 1_000), 1, 0);
        assert_eq!(admission.ask(1, 1, bytes, true, 0, 0), AdmissionAnswer::Admitted);
        let expected =
            if waits { AdmissionAnswer::Waits } else { AdmissionAnswer::Refused(AdmissionRefusal::Rate) };
        assert_eq!(admission.ask(2, 1, bytes, true, 0, 0), expected, "{bytes}");
        let expected =
            if waits { AdmissionAnswer::Waits } else { AdmissionAnswer::Refused(AdmissionRefusal::SpendCap) };
        assert_eq!(admission.refuse(3, AdmissionRefusal::SpendCap, bytes, 0, 0), expected, "{bytes}");
    }
}

#[test]
fn who_has_left_while_it_waited_costs_nothing() {
    let mut admission = Admission::new(&limits(1, 1, 100, 0), 1, 0);
    assert_eq!(admission.ask(0, 1, 10, true, 0, 0), AdmissionAnswer::Admitted);
    (1..10).for_each(|client| assert_eq!(admission.ask(client, 1, 10, true, 0, 0), AdmissionAnswer::Waits));
    let is_there = |client: &u32| *client == 9;
    let mut told = Vec::new();
    while let Some(verdict) = admission.next(true, 1_000, is_there) {
        told.push(verdict);
    }
    let gone = (1..9).map(|client| (client, AdmissionOutcome::Gone));
    assert_eq!(told, gone.chain([(9, AdmissionOutcome::Admitted)]).collect::<Vec<_>>());
    assert!(admission.is_idle());
}

#[test]
fn everybody_that_waits_can_be_taken_out() {
    let mut admission = Admission::new(&limits(1, 1, 10, 1_000), 1, 0);
    for client in 0..12u32 {
        admission.ask(client, u64::from(client % 3), 10, true, 0, u32::MAX);
    }
    let mut all = admission.take_all();
    all.sort_unstable();
    assert_eq!((all, admission.is_idle()), ((1..12).collect(), true));
}
