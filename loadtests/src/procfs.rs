//! CPU time, memory and limits of processes, mostly from /proc.

use std::fs;

use crate::failure::{Failure, Outcome};

/// Linux tells user space about CPU time in ticks of this length on every architecture it runs brokers on.
const TICKS_PER_SECOND: f64 = 100.0;
/// The least CPU time that can be told from none.
pub(crate) const TICK_SECONDS: f64 = 1.0 / TICKS_PER_SECOND;

/// Descriptors the driver and the broker need beside their connections.
const SPARE_DESCRIPTORS: usize = 500;

/// What `/proc/<pid>/stat` says, of the whole process with all its threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u64,
    /// Of children that ended and were waited for.
    reaped_ticks: u64,
}

/// Memory of a process tree in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) rss_kb: u64,
    /// The anonymous part: without mapped program and library files.
    pub(crate) anon_kb: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name of the program is in parentheses and may contain spaces and parentheses.
    let (_, after_name) = text.rsplit_once(')')?;
    let field: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let number = |at: usize| field.get(at)?.parse::<u64>().ok();
    Some(Stat {
        parent: field.get(1)?.parse().ok()?,
        own_ticks: number(11)? + number(12)?,
        reaped_ticks: number(13)? + number(14)?,
    })
}

fn parse_memory(status: &str) -> Memory {
    let kb = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|l| l.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    Memory { rss_kb: kb("VmRSS:"), anon_kb: kb("RssAnon:") }
}

fn stat(pid: &str) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The process and all its descendants.
fn tree(root: u32) -> Vec<(u32, Stat)> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<(u32, Stat)> = pids
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, stat(&pid.to_string())?))
        })
        .collect();
    let mut found: Vec<(u32, Stat)> = all.iter().filter(|(pid, _)| *pid == root).copied().collect();
    let mut looked_at = 0;
    while let Some(&(parent, _)) = found.get(looked_at) {
        found.extend(all.iter().filter(|(pid, s)| s.parent == parent && *pid != root));
        looked_at += 1;
    }
    found
}

/// User and system time of a process, its threads and its children, in seconds.
pub(crate) fn cpu_seconds(root: u32) -> Outcome<f64> {
    let tree = tree(root);
    if tree.is_empty() {
        return Err(Failure::new(format!("process {root} is gone: the broker stopped during the run")));
    }
    let ticks: u64 = tree.iter().map(|(_, s)| s.own_ticks + s.reaped_ticks).sum();
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// User and system time of this process without its children, in seconds.
pub(crate) fn own_cpu_seconds() -> f64 {
    stat("self").map_or(0.0, |s| s.own_ticks as f64 / TICKS_PER_SECOND)
}

/// Resident memory of a process and its children.
pub(crate) fn memory(root: u32) -> Memory {
    let mut sum = Memory::default();
    for (pid, _) in tree(root) {
        let one = parse_memory(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default());
        sum.rss_kb += one.rss_kb;
        sum.anon_kb += one.anon_kb;
    }
    sum
}

/// Connections this process may hold, and a broker it starts, which inherits its limit of open files.
pub(crate) fn connections_max() -> usize {
    let limit = rlimit::getrlimit(rlimit::Resource::NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(SPARE_DESCRIPTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_may_look_like_fields() {
        let text = "42 (a) b (c 1 2) S 7 42 42 0 -1 4194304 1 2 3 4 100 20 3 1 20 0 5 0 99";
        assert_eq!(parse_stat(text), Some(Stat { parent: 7, own_ticks: 120, reaped_ticks: 4 }));
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn memory_is_read_from_its_two_lines() {
        let status = "Name:\tx\nVmRSS:\t  5120 kB\nRssAnon:\t  1024 kB\nRssFile:\t 9 kB\n";
        assert_eq!(parse_memory(status), Memory { rss_kb: 5120, anon_kb: 1024 });
    }

    #[test]
    fn this_process_has_memory_and_a_missing_one_is_told() {
        assert!(memory(std::process::id()).rss_kb > 0);
        assert!(cpu_seconds(std::process::id()).is_ok());
        assert!(cpu_seconds(u32::MAX).is_err());
    }
}
