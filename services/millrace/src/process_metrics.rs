//! Metrics of the process and of its build, under the names of Prometheus' client libraries. Without `/proc` most are absent.

use std::fmt::Write;
use std::fs;

pub(crate) fn text() -> String {
    let mut out = String::new();
    let features = if cfg!(feature = "foundationdb") { "foundationdb" } else { "" };
    let revision = env!("MILLRACE_COMMIT");
    let _ = writeln!(
        out,
        "# HELP millrace_build_info The build; the value is always 1.\n# TYPE millrace_build_info gauge\n\
         millrace_build_info{{version=\"{}\",revision=\"{revision}\",features=\"{features}\"}} 1",
        env!("CARGO_PKG_VERSION")
    );
    let process = ProcessStats::read().unwrap_or_default();
    let metrics: [(&str, &str, &str, Option<f64>); 7] = [
        (
            "process_cpu_seconds_total",
            "counter",
            "User and system CPU time of the process.",
            process.cpu_seconds,
        ),
        ("process_resident_memory_bytes", "gauge", "Resident memory of the process.", process.resident_bytes),
        ("process_virtual_memory_bytes", "gauge", "Virtual memory of the process.", process.virtual_bytes),
        ("process_threads", "gauge", "Threads of the process.", process.threads),
        (
            "process_start_time_seconds",
            "gauge",
            "Start of the process, in seconds since 1970.",
            process.started_at,
        ),
        ("process_open_fds", "gauge", "Open file descriptors of the process.", open_files()),
        ("process_max_fds", "gauge", "Most file descriptors that the process may open.", open_files_max()),
    ];
    for (name, kind, help, value) in metrics {
        if let Some(value) = value {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
    }
    out
}

#[derive(Default)]
struct ProcessStats {
    cpu_seconds: Option<f64>,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    threads: Option<f64>,
    started_at: Option<f64>,
}

impl ProcessStats {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let booted_at = fs::read_to_string("/proc/stat").ok().and_then(|text| booted_at(&text));
        Self::parse(&stat, booted_at)
    }

    /// The columns of proc(5), counted from the state after the program's name, which may contain
    /// spaces.
    #[allow(clippy::cast_precision_loss)]
    fn parse(stat: &str, booted_at: Option<f64>) -> Option<Self> {
        let columns: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let number = |column: usize| columns.get(column)?.parse::<f64>().ok();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: number(11).zip(number(12)).map(|(user, system)| (user + system) / ticks),
            threads: number(17),
            started_at: number(19).zip(booted_at).map(|(after_boot, booted)| booted + after_boot / ticks),
            virtual_bytes: number(20),
            resident_bytes: number(21).map(|pages| pages * rustix::param::page_size() as f64),
        })
    }
}

/// Seconds since 1970.
fn booted_at(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()
}

/// Linux reports the number as the folder's size since 6.2. Older kernels get no metric, because
/// listing a million files takes a second.
#[allow(clippy::cast_precision_loss)]
fn open_files() -> Option<f64> {
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    (size > 0).then_some(size as f64)
}

#[allow(clippy::cast_precision_loss)]
fn open_files_max() -> Option<f64> {
    rlimit::getrlimit(rlimit::Resource::NOFILE).ok().map(|(soft, _)| soft as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_counted_behind_a_name_with_spaces_and_brackets() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 1000 4096000 250 18446744073709551615";
        let process = ProcessStats::parse(stat, Some(1_000_000.0)).unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_seconds, Some(200.0 / ticks));
        assert_eq!(process.threads, Some(9.0));
        assert_eq!(process.started_at, Some(1_000_000.0 + 1000.0 / ticks));
        assert_eq!(process.virtual_bytes, Some(4_096_000.0));
        assert_eq!(process.resident_bytes, Some(250.0 * rustix::param::page_size() as f64));
        assert_eq!(booted_at("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000.0));
    }

    #[test]
    fn a_line_that_is_not_understood_gives_nothing() {
        assert!(ProcessStats::parse("", None).is_none());
        assert_eq!(ProcessStats::parse("1 (x) S", None).unwrap().threads, None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_all_metrics_that_are_declared() {
        let text = text();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_max_fds",
            "millrace_build_info",
        ] {
            assert!(text.contains(&format!("# TYPE {name} ")), "no {name} in\n{text}");
        }
        assert!(text.contains(concat!("revision=\"", env!("MILLRACE_COMMIT"), "\"")), "{text}");
    }
}
