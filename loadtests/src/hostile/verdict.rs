//! Limits on the effects of an attack, and the comparison of measured figures with these limits.

use super::friends::{FriendSeen, Wait};

/// The limits of an attack; 0 means no limit.
#[derive(Clone, Copy)]
pub(super) struct AttackLimits {
    /// Longest wait of a friendly QoS 0 client of another broker.
    pub(super) other_ms: u64,
    /// Longest wait of a friendly QoS 0 client of the attacked broker.
    pub(super) same_ms: u64,
    /// Longest wait for a PUBACK of a friendly client with a persistent session at another broker.
    pub(super) durable_ms: u64,
    /// Longest wait from connect to CONNACK of a friendly client of another broker.
    pub(super) dial_ms: u64,
    /// Memory that may stay once the hostile clients have left, above that before the attack.
    pub(super) stays_mib: u64,
    /// Memory during the attack, above that before it.
    pub(super) peak_mib: u64,
    pub(super) log_lines_s: u64,
}

pub(super) const USUAL_LIMITS: AttackLimits = AttackLimits {
    other_ms: 50,
    same_ms: 0,
    durable_ms: 250,
    dial_ms: 1_000,
    stays_mib: 16,
    peak_mib: 0,
    log_lines_s: 10,
};

/// For an attack that writes much to the store, which keeps an open memtable of at most 60 MiB and a
/// block cache of at most 48 MiB. The allocator keeps some of what sealed memtables had.
pub(super) const STORE_LIMITS: AttackLimits = AttackLimits { stays_mib: 144, ..USUAL_LIMITS };

/// For CI, where other work shares the machine: limits above the figures of a busy machine, and far
/// below those of a server without budgets.
pub(super) const CI_LIMITS: AttackLimits = AttackLimits {
    other_ms: 300,
    same_ms: 0,
    durable_ms: 1_500,
    dial_ms: 2_500,
    stays_mib: 48,
    peak_mib: 0,
    log_lines_s: 50,
};

impl AttackLimits {
    /// Takes the looser limit of each pair.
    pub(super) fn loosened(self) -> Self {
        let pick = |own: u64, loose: u64| if own == 0 { 0 } else { own.max(loose) };
        Self {
            other_ms: pick(self.other_ms, CI_LIMITS.other_ms),
            same_ms: pick(self.same_ms, CI_LIMITS.other_ms),
            durable_ms: pick(self.durable_ms, CI_LIMITS.durable_ms),
            dial_ms: pick(self.dial_ms, CI_LIMITS.dial_ms),
            stays_mib: pick(self.stays_mib, CI_LIMITS.stays_mib),
            peak_mib: self.peak_mib,
            log_lines_s: pick(self.log_lines_s, CI_LIMITS.log_lines_s),
        }
    }
}

pub(super) const SERVER_ENDED: &str = "server ended";
pub(super) const MESSAGES_LOST: &str = "friendly messages lost";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Check {
    pub(super) what: &'static str,
    pub(super) seen: f64,
    pub(super) bound: Bound,
    pub(super) unit: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Check {
    /// A thing that no machine is too busy for.
    pub(super) fn is_of_loss(&self) -> bool {
        [SERVER_ENDED, MESSAGES_LOST].contains(&self.what)
    }

    pub(super) fn is_of_wait(&self) -> bool {
        self.what.starts_with("wait")
    }

    pub(super) fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(most) => self.seen <= most,
            Bound::AtLeast(least) => self.seen >= least,
        }
    }

    pub(super) fn text(&self) -> String {
        let (sign, limit) = match self.bound {
            Bound::AtMost(most) => ("at most", most),
            Bound::AtLeast(least) => ("at least", least),
        };
        let verdict = if self.holds() { "" } else { "**" };
        format!(
            "{verdict}{}: {}{verdict} ({sign} {} {})",
            self.what,
            round(self.seen),
            round(limit),
            self.unit
        )
    }
}

fn round(number: f64) -> String {
    if number.abs() >= 10.0 || number == 0.0 { format!("{number:.0}") } else { format!("{number:.2}") }
}

/// Waits of one friendly client in one part of a run, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Waits {
    pub(super) count: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) worst_ms: f64,
}

impl Waits {
    pub(super) fn of(seen: &FriendSeen, from_ns: u64, until_ns: u64) -> Self {
        let is_in = |wait: &&Wait| (from_ns..until_ns).contains(&wait.begun_ns);
        let mut waits: Vec<u64> = seen.waits.iter().filter(is_in).map(|wait| wait.wait_ns).collect();
        waits.sort_unstable();
        let at = |per_mille: usize| {
            let rank = (waits.len() * per_mille).div_ceil(1000).max(1) - 1;
            waits.get(rank).map_or(0.0, |ns| *ns as f64 / 1e6)
        };
        Self { count: waits.len(), p50_ms: at(500), p99_ms: at(990), worst_ms: at(1000) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_waits_of_the_time_asked_for_count() {
        let waits = (1..=100).map(|at| Wait { begun_ns: at, wait_ns: at * 1_000_000 }).collect();
        let seen = FriendSeen { waits, ..FriendSeen::default() };
        let all = Waits::of(&seen, 0, 1_000);
        assert_eq!((all.count, all.p50_ms, all.p99_ms, all.worst_ms), (100, 50.0, 99.0, 100.0));
        assert_eq!(Waits::of(&seen, 10, 20).worst_ms, 19.0);
        assert_eq!(Waits::of(&seen, 500, 600), Waits::default());
    }

    #[test]
    fn loose_limits_are_never_stricter_and_no_limit_stays_none() {
        let own = AttackLimits { dial_ms: 9_999, ..USUAL_LIMITS };
        let loose = own.loosened();
        assert_eq!((loose.dial_ms, loose.other_ms, loose.same_ms), (9_999, CI_LIMITS.other_ms, 0));
    }

    #[test]
    fn a_bound_holds_at_its_limit() {
        let check = |seen, bound| Check { what: "x", seen, bound, unit: "" }.holds();
        assert!(check(5.0, Bound::AtMost(5.0)) && check(5.0, Bound::AtLeast(5.0)));
        assert!(!check(5.1, Bound::AtMost(5.0)) && !check(4.9, Bound::AtLeast(5.0)));
    }
}
