//! The memory budget of the process. The kernel kills a process that takes more memory than its cgroup or the machine
//! has, which disconnects all clients of all tenants. So the process sheds load before that, in the order of
//! [`Pressure`] (P9).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::incomplete_packets::IncompletePackets;

/// The load that the process sheds. Each level includes the levels before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    #[default]
    None,
    /// QoS 0 messages to busy sockets, beyond an eighth of the usual soft limit; retained messages that are new or larger.
    QosZero,
    /// New connections, and those whose clients do not read.
    Connections,
    /// Reading from publishers, until memory is free again.
    Publishers,
}

impl Pressure {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::QosZero => "qos_zero",
            Self::Connections => "connections",
            Self::Publishers => "publishers",
        }
    }
}

/// Thresholds of the levels, in percent of the budget.
const LEVELS: [(u64, Pressure); 3] =
    [(70, Pressure::QosZero), (80, Pressure::Connections), (90, Pressure::Publishers)];

#[derive(Debug)]
pub(crate) struct Memory {
    /// In bytes; 0: no budget.
    budget: u64,
    used: AtomicU64,
    pressure: AtomicU8,
    pub(crate) input: Arc<IncompletePackets>,
}

impl Memory {
    /// A budget of `bytes`; 0: the limit of the cgroup or the machine.
    pub(crate) fn new(bytes: u64) -> Self {
        let budget = if bytes == 0 { available().unwrap_or(0) } else { bytes };
        let (used, pressure) = (AtomicU64::new(0), AtomicU8::new(0));
        Self { budget, used, pressure, input: IncompletePackets::new(u64::MAX) }
    }

    /// The same with a limit on the bytes of incomplete packets.
    #[must_use]
    pub(crate) fn with_input(self, bytes_max: u64) -> Self {
        Self { input: IncompletePackets::new(bytes_max), ..self }
    }

    pub(crate) fn budget(&self) -> u64 {
        self.budget
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn pressure(&self) -> Pressure {
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::QosZero,
            2 => Pressure::Connections,
            _ => Pressure::Publishers,
        }
    }

    /// Measures the process's memory; returns the level if it has changed.
    pub(crate) fn look(&self) -> Option<Pressure> {
        self.note(resident()?)
    }

    fn note(&self, used: u64) -> Option<Pressure> {
        self.used.store(used, Ordering::Relaxed);
        let percent = used.saturating_mul(100).checked_div(self.budget).unwrap_or(0);
        let old = self.pressure();
        let level = |percent: u64| {
            let reached = LEVELS.iter().rev().find(|(from, _)| percent >= *from);
            reached.map_or(Pressure::None, |(_, level)| *level)
        };
        // A level ends five percent below its threshold, so that it does not flap.
        let new = level(percent).max(level(percent + 5).min(old));
        self.pressure.store(new as u8, Ordering::Relaxed);
        (new != old).then_some(new)
    }
}

fn resident() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The smaller one of the cgroup's limit and the machine's memory, bytes.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = line.trim().split(' ').next()?.parse::<u64>().ok()? * 1024;
    Some(cgroup_limit().map_or(machine, |limit| limit.min(machine)))
}

fn cgroup_limit() -> Option<u64> {
    let of_cgroup = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = of_cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut limit: Option<u64> = None;
    // The limits of parent cgroups apply, too.
    let mut path = Some(std::path::Path::new(path));
    while let Some(at) = path {
        let file = std::path::Path::new("/sys/fs/cgroup")
            .join(at.strip_prefix("/").unwrap_or(at))
            .join("memory.max");
        let own = fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok());
        limit = limit.into_iter().chain(own).min();
        path = at.parent();
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_is_shed_in_order_and_taken_up_again_a_little_later() {
        let memory = Memory::new(1000);
        let looks = [
            (100, None),
            (699, None),
            (700, Some(Pressure::QosZero)),
            (690, None),
            (800, Some(Pressure::Connections)),
            (950, Some(Pressure::Publishers)),
            (870, None),
            (840, Some(Pressure::Connections)),
            (760, None),
            (740, Some(Pressure::QosZero)),
            (100, Some(Pressure::None)),
        ];
        for (used, expected) in looks {
            assert_eq!(memory.note(used), expected, "{used}");
        }
    }

    #[test]
    fn without_a_setting_the_budget_is_what_the_machine_has() {
        let memory = Memory::new(0);
        assert!(memory.budget() > 64 * 1024 * 1024, "{memory:?}");
        assert_eq!(memory.look(), None);
        assert!(memory.used() > 1024 * 1024 && memory.used() < memory.budget(), "{memory:?}");
    }
}
