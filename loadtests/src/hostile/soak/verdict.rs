//! Judges the rounds of a soak.

use crate::hostile::run::FriendWaits;

/// Rounds after which the server has allocated all that it reuses.
const WARM_ROUNDS: usize = 5;
/// Most growth of memory after the warm rounds, MiB.
const GROWTH_MIB_MAX: f64 = 64.0;
/// Longest turn of the event loop, seconds; the server's histogram has a bucket that ends there.
pub(super) const TURN_S_MAX: f64 = 0.02;
/// Stretch of the machine above which a long turn is not the server's fault.
const QUIET_STRETCH: f64 = 1.5;
/// The part of all rounds that must be quiet, as `1 / QUIET_SHARE`.
const QUIET_SHARE: usize = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    pub(super) all: u64,
    /// Turns that took longer than [`TURN_S_MAX`].
    pub(super) slow: u64,
}

impl Turns {
    pub(super) fn since(self, before: Self) -> Self {
        Self { all: self.all.saturating_sub(before.all), slow: self.slow.saturating_sub(before.slow) }
    }
}

/// Longest waits of friendly clients without the machine's part, milliseconds.
#[derive(Clone, Copy)]
pub(super) struct SoakLimits {
    pub(super) other_ms: f64,
    pub(super) durable_ms: f64,
    pub(super) dial_ms: f64,
}

pub(super) struct SoakRound {
    pub(super) waits: FriendWaits,
    pub(super) limits: SoakLimits,
    /// Beside strangers the server may refuse a CONNECT, because it does not know friends from
    /// strangers yet.
    pub(super) has_strangers: bool,
    /// `None` if the server's metrics have no turns.
    pub(super) turns: Option<Turns>,
    pub(super) left_mib: f64,
    /// The part of `left_mib` that the store may keep.
    pub(super) store_mib: f64,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Judged {
    /// For the reader, also about what could not be judged.
    pub(super) lines: Vec<String>,
    pub(super) broken: Vec<String>,
}

impl SoakRound {
    fn is_quiet(&self) -> bool {
        self.waits.stretch <= QUIET_STRETCH
    }

    /// The longest waits that the server caused, with their limits, milliseconds.
    fn own_waits(&self) -> [(&'static str, f64, f64); 3] {
        let waits = &self.waits;
        // The machine lets every thread wait, and a busy thread longer.
        let own = |worst_ms: f64| ((worst_ms - waits.machine.worst_ms) / waits.stretch.max(1.0)).max(0.0);
        [
            ("a message", own(waits.other.worst_ms), self.limits.other_ms),
            ("a PUBACK", own(waits.durable.worst_ms), self.limits.durable_ms),
            ("a CONNACK", own(waits.dial.worst_ms), self.limits.dial_ms),
        ]
    }

    pub(super) fn line(&self) -> String {
        let waits = &self.waits;
        let turns =
            self.turns.map_or_else(|| "no turns".to_owned(), |turns| format!("{} long turns", turns.slow));
        format!(
            "waits {:.0} / {:.0} / {:.0} ms (other, PUBACK, CONNACK), machine {:.0} ms x{:.1} | {turns}{} | lost {} | \
             refused {} | {:.0} MiB, {:.0} of them the store's",
            waits.other.worst_ms,
            waits.durable.worst_ms,
            waits.dial.worst_ms,
            waits.machine.worst_ms,
            waits.stretch,
            if self.is_quiet() { "" } else { " (not judged)" },
            waits.lost,
            waits.refused,
            self.left_mib,
            self.store_mib,
        )
    }
}

pub(super) fn judge(rounds: &[SoakRound]) -> Judged {
    let mut judged = Judged::default();
    judged.losses(rounds);
    judged.waits(rounds);
    judged.turns(rounds);
    judged.memory(rounds);
    judged
}

impl Judged {
    fn losses(&mut self, rounds: &[SoakRound]) {
        let lost: u64 = rounds.iter().map(|round| round.waits.lost).sum();
        let refused = |beside_strangers| -> u64 {
            let rounds = rounds.iter().filter(|round| round.has_strangers == beside_strangers);
            rounds.map(|round| round.waits.refused).sum()
        };
        let (judged, beside_strangers) = (refused(false), refused(true));
        self.lines.push(format!(
            "{} rounds: {lost} friendly messages lost, {judged} friendly connects refused, and {beside_strangers} beside \
             strangers (not judged)",
            rounds.len()
        ));
        if lost > 0 {
            self.broken.push(format!("{lost} friendly messages were lost"));
        }
        if judged > 0 {
            self.broken.push(format!("{judged} friendly connects were refused"));
        }
    }

    fn waits(&mut self, rounds: &[SoakRound]) {
        for kind in 0..3 {
            let waits = || rounds.iter().map(|round| round.own_waits()[kind]).enumerate();
            let longest = waits().max_by(|(_, one), (_, other)| one.1.total_cmp(&other.1));
            let Some((round, (what, own_ms, _))) = longest else { continue };
            self.lines.push(format!(
                "longest wait for {what}: {own_ms:.0} ms beyond the machine's own, in round {}",
                round + 1
            ));
            let broken = waits().filter(|(_, (_, own_ms, most_ms))| own_ms > most_ms);
            let broken: Vec<String> = broken.map(|(round, _)| (round + 1).to_string()).collect();
            if !broken.is_empty() {
                self.broken.push(format!(
                    "a friendly client waited too long for {what}, up to {own_ms:.0} ms, in rounds {}",
                    broken.join(", ")
                ));
            }
        }
    }

    fn turns(&mut self, rounds: &[SoakRound]) {
        if rounds.iter().any(|round| round.turns.is_none()) {
            self.broken.push("turns were not judged: /metrics does not show them".to_owned());
        }
        let quiet: Vec<&SoakRound> = rounds.iter().filter(|round| round.is_quiet()).collect();
        let sum = quiet.iter().filter_map(|round| round.turns).fold(Turns::default(), |sum, turns| Turns {
            all: sum.all + turns.all,
            slow: sum.slow + turns.slow,
        });
        self.lines.push(format!(
            "{} of {} rounds were quiet: {} turns, {} of them over {:.0} ms",
            quiet.len(),
            rounds.len(),
            sum.all,
            sum.slow,
            TURN_S_MAX * 1_000.0
        ));
        if sum.slow > 0 {
            self.broken.push(format!("{} turns of quiet rounds were too long", sum.slow));
        }
        if quiet.len() * QUIET_SHARE < rounds.len() || quiet.is_empty() {
            self.lines.push("NOT JUDGED: the turns: MACHINE TOO BUSY".to_owned());
            self.broken.push(format!(
                "turns were not judged: machine too busy in {} of {} rounds",
                rounds.len() - quiet.len(),
                rounds.len()
            ));
        }
    }

    fn memory(&mut self, rounds: &[SoakRound]) {
        let left_mib: Vec<f64> = rounds.iter().map(|round| round.left_mib - round.store_mib).collect();
        match growth(&left_mib) {
            Some(growth) => {
                self.lines.push(format!("memory grew by {growth:.0} MiB"));
                if growth > GROWTH_MIB_MAX {
                    self.broken.push(format!("memory grew by {growth:.0} MiB"));
                }
            }
            None => self.lines.push(format!(
                "NOT JUDGED: the growth of memory: {} rounds are too few, {} are needed",
                rounds.len(),
                WARM_ROUNDS + 3
            )),
        }
    }
}

/// How much more memory the last third of the rounds left than the first third, without the warm
/// rounds, MiB. `None` with too few rounds.
fn growth(left_mib: &[f64]) -> Option<f64> {
    let late = &left_mib[left_mib.len().min(WARM_ROUNDS)..];
    let third = late.len() / 3;
    if third == 0 {
        return None;
    }
    let median = |some: &[f64]| {
        let mut some = some.to_vec();
        some.sort_by(f64::total_cmp);
        some[some.len() / 2]
    };
    Some(median(&late[late.len() - third..]) - median(&late[..third]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::verdict::Waits;

    fn round() -> SoakRound {
        SoakRound {
            waits: FriendWaits { stretch: 1.0, ..FriendWaits::default() },
            limits: SoakLimits { other_ms: 50.0, durable_ms: 250.0, dial_ms: 1_000.0 },
            has_strangers: false,
            turns: Some(Turns { all: 1_000, slow: 0 }),
            left_mib: 150.0,
            store_mib: 50.0,
        }
    }

    /// Judges nine good rounds and one that `change` has changed.
    fn broken(change: impl Fn(&mut SoakRound)) -> String {
        let mut rounds: Vec<SoakRound> = (0..10).map(|_| round()).collect();
        change(&mut rounds[6]);
        judge(&rounds).broken.join("; ")
    }

    fn waits(worst_ms: f64) -> Waits {
        Waits { worst_ms, ..Waits::default() }
    }

    #[test]
    fn good_rounds_break_nothing() {
        assert_eq!(broken(|_| {}), "");
    }

    #[test]
    fn every_wait_is_judged_with_its_own_limit() {
        let wait = |change: fn(&mut FriendWaits)| broken(|round| change(&mut round.waits));
        assert!(wait(|all| all.other = waits(51.0)).contains("for a message, up to 51 ms, in rounds 7"));
        assert!(wait(|all| all.durable = waits(251.0)).contains("for a PUBACK"));
        assert!(wait(|all| all.dial = waits(1_001.0)).contains("for a CONNACK"));
        assert_eq!(wait(|all| all.dial = waits(999.0)), "");
    }

    #[test]
    fn the_machine_s_part_of_a_wait_does_not_count() {
        let noisy = |all: &mut FriendWaits| (all.machine, all.stretch) = (waits(40.0), 2.0);
        let wait = |ms| {
            broken(|round| {
                noisy(&mut round.waits);
                round.waits.other = waits(ms);
            })
        };
        assert_eq!(wait(139.0), "");
        assert!(wait(142.0).contains("up to 51 ms"));
    }

    #[test]
    fn a_refused_connect_breaks_a_round_without_strangers() {
        assert!(broken(|round| round.waits.refused = 1).contains("1 friendly connects were refused"));
        assert_eq!(broken(|round| (round.waits.refused, round.has_strangers) = (1, true)), "");
        assert!(broken(|round| round.waits.lost = 2).contains("2 friendly messages were lost"));
    }

    #[test]
    fn one_noisy_round_does_not_excuse_the_long_turns_of_quiet_rounds() {
        let long = Some(Turns { all: 9, slow: 1 });
        assert!(broken(|round| round.turns = long).contains("1 turns of quiet rounds"));
        assert_eq!(broken(|round| (round.turns, round.waits.stretch) = (long, 3.0)), "");
        let mut rounds: Vec<SoakRound> = (0..10).map(|_| round()).collect();
        rounds[0].waits.stretch = 3.0;
        rounds[1].turns = long;
        assert_eq!(judge(&rounds).broken, ["1 turns of quiet rounds were too long"]);
    }

    #[test]
    fn a_soak_with_few_quiet_rounds_fails() {
        let mut rounds: Vec<SoakRound> = (0..9).map(|_| round()).collect();
        rounds[3..].iter_mut().for_each(|round| round.waits.stretch = 1.6);
        assert_eq!(judge(&rounds).broken, [""; 0]);
        rounds[2].waits.stretch = 1.6;
        let judged = judge(&rounds);
        assert_eq!(judged.broken, ["turns were not judged: machine too busy in 7 of 9 rounds"]);
        assert!(judged.lines.iter().any(|line| line.contains("NOT JUDGED")));
        assert!(!judge(&[]).broken.is_empty());
        assert!(broken(|round| round.turns = None).contains("/metrics does not show them"));
    }

    #[test]
    fn flat_memory_does_not_grow_and_a_leak_does() {
        assert_eq!(growth(&[10.0, 500.0, 90.0]), None);
        let flat: Vec<f64> = (0..30).map(|round| 100.0 + f64::from(round % 3)).collect();
        assert!(growth(&flat).unwrap().abs() <= 2.0);
        let leak: Vec<f64> = (0..30).map(|round| 100.0 + 10.0 * f64::from(round)).collect();
        assert!(growth(&leak).unwrap() > GROWTH_MIB_MAX);
        let few: Vec<SoakRound> = (0..7).map(|_| round()).collect();
        assert!(judge(&few).lines.iter().any(|line| line.contains("growth of memory: 7 rounds are too few")));
    }
}
