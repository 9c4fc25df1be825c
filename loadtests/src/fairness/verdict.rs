//! Compares the phases: whether the steady tenant feels that its neighbour exceeds its limit.

use crate::failure::{Failure, Outcome};
use crate::latency::Percentiles;

/// Most p99 beside a neighbour over its limit, as a factor of p99 beside one at its limit.
const FACTOR_MAX: f64 = 1.1;
/// Least part of its limit that the neighbour must reach for a run to show something.
const REACHED_MIN: f64 = 0.7;

/// The figures of one kind of phase; one entry per phase. The median counts, so that a single
/// disturbed phase does not.
#[derive(Default)]
pub(super) struct PhaseSeen {
    pub(super) latency: Vec<Percentiles>,
    pub(super) sent: u64,
    pub(super) delivered: u64,
    /// p99 of the wait of a thread that does not use the server, microseconds.
    pub(super) machine_us: Vec<f64>,
    /// The factor by which other threads slowed down the server's busiest thread.
    pub(super) stretch: Vec<f64>,
    /// The part of the time for which the server's busiest thread ran.
    pub(super) busy: Vec<f64>,
    /// Units of work of the neighbour that the server did, and the seconds of its phases.
    pub(super) passed: u64,
    pub(super) tried: u64,
    pub(super) seconds: f64,
}

/// Medians of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) p99_us: f64,
    pub(super) machine_us: f64,
    pub(super) stretch: f64,
    pub(super) passed_per_s: f64,
    pub(super) lost: u64,
}

impl PhaseSeen {
    pub(super) fn row(&self, name: &str) -> (String, Figures) {
        let us =
            |of: fn(&Percentiles) -> u64| median(self.latency.iter().map(|all| of(all) as f64 / 1_000.0));
        let per_second = |units: u64| if units == 0 { 0.0 } else { units as f64 / self.seconds };
        let figures = Figures {
            p99_us: us(|all| all.p99_ns),
            machine_us: median(self.machine_us.iter().copied()),
            stretch: median(self.stretch.iter().copied()),
            passed_per_s: per_second(self.passed),
            lost: self.sent.saturating_sub(self.delivered),
        };
        let row = format!(
            "| {name} | {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} % | {:.2} | {:.0} |",
            self.sent,
            self.delivered,
            us(|all| all.p50_ns),
            figures.p99_us,
            us(|all| all.p999_ns),
            per_second(self.tried),
            figures.passed_per_s,
            100.0 * median(self.busy.iter().copied()),
            figures.stretch,
            figures.machine_us,
        );
        (row, figures)
    }
}

pub(super) const HEAD: &str = "| steady publisher | sent | delivered | p50 us | p99 us | p99.9 us | neighbour tried a second | \
     passed a second | loop busy | stretch | machine's p99 us |\n|---|---|---|---|---|---|---|---|---|---|---|";

/// The upper median, 0 without numbers.
fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Most p99 beside a neighbour over its limit, microseconds.
///
/// The machine's part of the difference is added, as for hostile clients: the factor by which other
/// programs slowed the server more than in the phases at the limit, and the longer wait of a thread
/// that does not use the server.
pub(super) fn allowed_us(at_limit: &Figures, over: &Figures) -> f64 {
    let slower = (over.stretch / at_limit.stretch.max(1.0)).max(1.0);
    at_limit.p99_us * FACTOR_MAX * slower + (over.machine_us - at_limit.machine_us).max(0.0)
}

/// `phases` are those of [`super::PHASES`]. `has_limit`: the server limits this kind of work, so twice the limit must not pass.
///
/// # Errors
/// The steady tenant lost a message or waited too long, or the neighbour did too little for the run
/// to show anything.
pub(super) fn judge(limit: u64, has_limit: bool, phases: &[Figures; 3]) -> Outcome<()> {
    let [_, at_limit, over] = phases;
    let mut broken = Vec::new();
    let lost: u64 = phases.iter().map(|phase| phase.lost).sum();
    if lost > 0 {
        broken.push(format!("{lost} messages of the steady publisher were lost"));
    }
    let allowed_us = allowed_us(at_limit, over);
    if over.p99_us > allowed_us {
        broken.push(format!(
            "p99 beside a neighbour over its limit is {:.0} us, which is more than {allowed_us:.0} us",
            over.p99_us
        ));
    }
    let least = REACHED_MIN * limit as f64;
    for (name, phase) in [("at its limit", at_limit), ("over its limit", over)] {
        if phase.passed_per_s < least {
            broken.push(format!(
                "not shown: the neighbour {name} got {:.0} of {limit} units a second through",
                phase.passed_per_s
            ));
        }
    }
    if has_limit && over.passed_per_s > 2.0 * limit as f64 {
        broken.push(format!("the server let {:.0} of {limit} units a second through", over.passed_per_s));
    }
    if broken.is_empty() { Ok(()) } else { Err(Failure::new(broken.join("; "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p99_us: f64) -> Figures {
        Figures { p99_us, machine_us: 50.0, stretch: 1.0, passed_per_s: 1_000.0, lost: 0 }
    }

    #[track_caller]
    fn check(at_limit: Figures, over: Figures, says: &str) {
        let said = judge(1_000, true, &[figures(0.0), at_limit, over]).map_err(|why| why.to_string());
        let said = said.err().unwrap_or_default();
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{said}");
    }

    #[test]
    fn a_tenth_more_holds_and_anything_beyond_fails() {
        check(figures(200.0), figures(219.0), "");
        check(figures(200.0), figures(100.0), "");
        check(figures(200.0), figures(222.0), "222 us, which is more than 220 us");
    }

    #[test]
    fn only_noise_that_the_other_phase_did_not_have_counts() {
        let slowed = Figures { stretch: 2.0, ..figures(400.0) };
        check(figures(200.0), slowed, "");
        check(Figures { stretch: 2.0, ..figures(200.0) }, slowed, "more than 220 us");
        check(figures(200.0), Figures { machine_us: 250.0, ..figures(400.0) }, "");
        check(Figures { machine_us: 900.0, ..figures(200.0) }, figures(300.0), "more than 220 us");
    }

    #[test]
    fn a_lost_message_fails() {
        check(figures(200.0), Figures { lost: 1, ..figures(200.0) }, "1 messages of the steady publisher");
    }

    #[test]
    fn a_neighbour_that_does_little_shows_nothing() {
        let idle = Figures { passed_per_s: 600.0, ..figures(200.0) };
        check(idle, figures(200.0), "not shown: the neighbour at its limit");
        check(figures(200.0), idle, "not shown: the neighbour over its limit");
    }

    #[test]
    fn a_limit_that_is_not_kept_fails_where_there_is_one() {
        let free = Figures { passed_per_s: 9_000.0, ..figures(200.0) };
        check(figures(200.0), free, "let 9000 of 1000 units");
        assert!(judge(1_000, false, &[figures(0.0), figures(200.0), free]).is_ok());
    }

    #[test]
    fn one_disturbed_phase_does_not_count() {
        assert_eq!(median([3.0, 900.0, 2.0].into_iter()), 3.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
