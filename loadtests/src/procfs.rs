//! CPU time, memory, disk use and limits of processes, mostly from /proc.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failure::{Failure, Outcome};

/// Ticks of the kernel's CPU times, the same on all architectures of interest.
const TICKS_PER_SECOND: f64 = 100.0;
pub(crate) const TICK_SECONDS: f64 = 1.0 / TICKS_PER_SECOND;

/// The unit of block counts in `stat`, on every file system.
const DISK_BLOCK_BYTES: u64 = 512;

/// Descriptors that the driver and the broker need beside their connections.
const SPARE_DESCRIPTORS: usize = 500;

/// Fields of `/proc/<pid>/stat`, for the whole process with all threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u64,
    reaped_ticks: u64,
}

/// Memory of a process tree, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) rss_kb: u64,
    /// Without mapped program and library files.
    pub(crate) anon_kb: u64,
    /// Since [`reset_peak`], or since the start.
    pub(crate) peak_kb: u64,
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
    let kb = |name: &str| number_after(status, name).unwrap_or(0);
    Memory { rss_kb: kb("VmRSS:"), anon_kb: kb("RssAnon:"), peak_kb: kb("VmHWM:") }
}

fn stat(pid: &str) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

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

/// User and system time of a process, its threads and its children.
pub(crate) fn cpu_seconds(root: u32) -> Outcome<f64> {
    let tree = tree(root);
    if tree.is_empty() {
        return Err(Failure::new(format!("process {root} is gone: the broker stopped during the run")));
    }
    Ok(tree.iter().map(|(pid, stat)| stat.cpu_seconds(&pid.to_string())).sum())
}

/// CPU time of this process without its children.
pub(crate) fn own_cpu_seconds() -> f64 {
    stat("self").map_or(0.0, |s| Stat { reaped_ticks: 0, ..s }.cpu_seconds("self"))
}

impl Stat {
    /// Takes the larger of two figures: ticks round down, and the scheduler's finer clock forgets
    /// threads that ended.
    fn cpu_seconds(self, pid: &str) -> f64 {
        let own = self.own_ticks as f64 / TICKS_PER_SECOND;
        own.max(threads_seconds(pid)) + self.reaped_ticks as f64 / TICKS_PER_SECOND
    }
}

/// CPU time of the present threads of a process; 0 where the kernel does not report it.
fn threads_seconds(pid: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let on_cpu_ns = |thread: fs::DirEntry| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    threads.filter_map(on_cpu_ns).sum::<u64>() as f64 / 1e9
}

/// CPU time and waiting time by thread id, seconds.
pub(crate) fn threads(pid: u32) -> Vec<(u32, f64, f64)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let one = |thread: fs::DirEntry| {
        let id = thread.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let mut seconds =
            text.split_ascii_whitespace().filter_map(|ns| Some(ns.parse::<u64>().ok()? as f64 / 1e9));
        Some((id, seconds.next()?, seconds.next()?))
    };
    threads.filter_map(one).collect()
}

pub(crate) fn memory(root: u32) -> Memory {
    let mut sum = Memory::default();
    for (pid, _) in tree(root) {
        let one = parse_memory(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default());
        sum.rss_kb += one.rss_kb;
        sum.anon_kb += one.anon_kb;
        sum.peak_kb += one.peak_kb;
    }
    sum
}

pub(crate) fn memory_of(pid: u32) -> Memory {
    parse_memory(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// Where the kernel does not support this, the peak is since the start.
pub(crate) fn reset_peak(root: u32) {
    for (pid, _) in tree(root) {
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
    }
}

/// Bytes that a process and its children made the kernel write to disks; 0 where the kernel does
/// not report it.
pub(crate) fn written_bytes(root: u32) -> u64 {
    let io = |pid: u32| fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    tree(root).iter().filter_map(|(pid, _)| number_after(&io(*pid), "write_bytes:")).sum()
}

pub(crate) fn available_kb() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    number_after(&meminfo, "MemAvailable:").unwrap_or(0)
}

/// Counted as `du` does.
pub(crate) fn folder_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => folder_bytes(&entry.path()),
        Ok(meta) => meta.blocks() * DISK_BLOCK_BYTES,
        // The file was removed since the folder was listed.
        Err(_) => 0,
    };
    entries.map(size).sum()
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The limit of open files, which a broker that this process starts inherits.
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
    fn memory_is_read_from_its_lines() {
        let status = "Name:\tx\nVmHWM:\t  6000 kB\nVmRSS:\t  5120 kB\nRssAnon:\t  1024 kB\nRssFile:\t 9 kB\n";
        assert_eq!(parse_memory(status), Memory { rss_kb: 5120, anon_kb: 1024, peak_kb: 6000 });
    }

    #[test]
    fn a_folder_is_as_large_as_its_files() {
        let folder = std::env::temp_dir().join(format!("mqttload-du-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        fs::write(folder.join("inner/file"), vec![7; 100_000]).unwrap();
        let bytes = folder_bytes(&folder);
        fs::remove_dir_all(&folder).unwrap();
        // Some file systems allocate late; none may count the file twice.
        assert!(bytes < 200_000, "{bytes}");
        assert_eq!(folder_bytes(&folder), 0);
    }

    #[test]
    fn this_process_has_memory_and_a_missing_one_is_an_error() {
        assert!(memory(std::process::id()).rss_kb > 0);
        assert!(cpu_seconds(std::process::id()).is_ok());
        assert!(cpu_seconds(u32::MAX).is_err());
    }
}
