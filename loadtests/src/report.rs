//! What a run found, as a line of JSON or a line to read.

use std::fmt::Write as _;

use crate::latency::Percentiles;
use crate::procfs::Memory;
use crate::receipts::Faults;

/// Whether more or less of the figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// The number a scenario is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// Its name in JSON.
    pub(crate) name: &'static str,
    /// Its unit for people.
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) better: Better,
}

/// One scenario run once against one broker.
pub(crate) struct Report {
    pub(crate) scenario: String,
    pub(crate) broker: String,
    pub(crate) figure: Figure,
    /// Numbers beside it that only this scenario has, by their names in JSON.
    pub(crate) extra: Vec<(&'static str, f64)>,
    /// What the figure counts: deliveries, acknowledged publishes, connections.
    pub(crate) count: u64,
    pub(crate) wall_seconds: f64,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) driver_cpu_seconds: f64,
    pub(crate) faults: Faults,
    pub(crate) timed_out: bool,
    pub(crate) latency: Option<Percentiles>,
    pub(crate) ack_latency: Option<Percentiles>,
    pub(crate) memory_before: Memory,
    pub(crate) memory_after: Memory,
}

enum Value {
    Text(String),
    Whole(u64),
    Real(f64),
    Flag(bool),
}

impl Report {
    fn fields(&self) -> Vec<(&'static str, Value)> {
        use Value::{Flag, Real, Text, Whole};
        let mut fields = vec![
            ("scenario", Text(self.scenario.clone())),
            ("broker", Text(self.broker.clone())),
            (self.figure.name, Real(self.figure.value)),
            ("count", Whole(self.count)),
            ("wall_s", Real(self.wall_seconds)),
            ("server_cpu_s", Real(self.server_cpu_seconds)),
            ("driver_cpu_s", Real(self.driver_cpu_seconds)),
            ("driver_us_each", Real(self.driver_us_each())),
            ("lost", Whole(self.faults.lost)),
            ("repeated", Whole(self.faults.repeated)),
            ("disordered", Whole(self.faults.disordered)),
            ("stray", Whole(self.faults.stray)),
            ("unacked", Whole(self.faults.unacked)),
            ("acks_disordered", Whole(self.faults.acks_disordered)),
            ("closed", Whole(self.faults.closed)),
            ("timed_out", Flag(self.timed_out)),
            ("rss_before_kb", Whole(self.memory_before.rss_kb)),
            ("rss_after_kb", Whole(self.memory_after.rss_kb)),
            ("rss_anon_before_kb", Whole(self.memory_before.anon_kb)),
            ("rss_anon_after_kb", Whole(self.memory_after.anon_kb)),
        ];
        let latencies = [
            (["p50_us", "p99_us", "p999_us"], self.latency),
            (["ack_p50_us", "ack_p99_us", "ack_p999_us"], self.ack_latency),
        ];
        fields.extend(self.extra.iter().map(|(name, value)| (*name, Real(*value))));
        for (names, percentiles) in latencies {
            let Some(p) = percentiles else { continue };
            let us = [p.p50_ns, p.p99_ns, p.p999_ns].map(|ns| Real(ns as f64 / 1000.0));
            fields.extend(names.into_iter().zip(us));
        }
        fields
    }

    /// Microseconds of the driver's own CPU for each thing counted: well below the broker's, or the driver
    /// is the bottleneck.
    pub(crate) fn driver_us_each(&self) -> f64 {
        self.driver_cpu_seconds * 1e6 / (self.count.max(1) as f64)
    }

    /// One JSON object on one line.
    pub(crate) fn json(&self) -> String {
        let members: Vec<String> = self
            .fields()
            .into_iter()
            .map(|(name, value)| match value {
                Value::Text(text) => format!("\"{name}\":{}", json_string(&text)),
                Value::Whole(n) => format!("\"{name}\":{n}"),
                Value::Real(r) if r.is_finite() => format!("\"{name}\":{}", (r * 1000.0).round() / 1000.0),
                Value::Real(_) => format!("\"{name}\":null"),
                Value::Flag(flag) => format!("\"{name}\":{flag}"),
            })
            .collect();
        format!("{{{}}}", members.join(","))
    }

    /// One line for a person: the figure, then whatever is not zero.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            "{} {}: {} {}; {} in {:.2} s, CPU server {:.2} s, driver {:.2} s ({:.2} µs each)",
            self.broker,
            self.scenario,
            short(self.figure.value),
            self.figure.unit,
            self.count,
            self.wall_seconds,
            self.server_cpu_seconds,
            self.driver_cpu_seconds,
            self.driver_us_each(),
        );
        for (name, percentiles) in [("latency", self.latency), ("PUBACK", self.ack_latency)] {
            if let Some(p) = percentiles {
                let [p50, p99, p999] = [p.p50_ns, p.p99_ns, p.p999_ns].map(|ns| ns as f64 / 1e6);
                let _ = write!(line, "; {name} p50/p99/p99.9 {p50:.2}/{p99:.2}/{p999:.2} ms");
            }
        }
        for (name, value) in &self.extra {
            let _ = write!(line, "; {name} {value:.1}");
        }
        let (before, after) = (self.memory_before.rss_kb, self.memory_after.rss_kb);
        let _ = write!(line, "; RSS {before} to {after} KiB");
        line.push_str(&self.troubles());
        line
    }

    /// Every fault that occurred, or nothing.
    pub(crate) fn troubles(&self) -> String {
        let counted = [
            ("lost", self.faults.lost),
            ("repeated", self.faults.repeated),
            ("out of order", self.faults.disordered),
            ("stray", self.faults.stray),
            ("not acknowledged", self.faults.unacked),
            ("PUBACKs out of order", self.faults.acks_disordered),
            ("connections closed", self.faults.closed),
            ("TIMED OUT", u64::from(self.timed_out)),
        ];
        let mut text = String::new();
        for (name, count) in counted.into_iter().filter(|(_, count)| *count > 0) {
            let _ = write!(text, "; {count} {name}");
        }
        text
    }
}

fn json_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Three digits and a thousands letter, as in the tables people compare.
pub(crate) fn short(value: f64) -> String {
    let (scaled, letter) = match value {
        v if v >= 999_500.0 => (v / 1e6, " M"),
        v if v >= 9_999.5 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let decimals = match scaled {
        s if s >= 99.95 => 0,
        s if s >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shortened_to_three_digits() {
        let table = [(0.0, "0.00"), (21.34, "21.3"), (736.0, "736"), (5023.0, "5023"), (9_999.6, "10.0 k")];
        let large = [(53_210.0, "53.2 k"), (107_400.0, "107 k"), (999_600.0, "1.00 M"), (2.51e6, "2.51 M")];
        for (value, expected) in table.into_iter().chain(large) {
            assert_eq!(short(value), expected, "{value}");
        }
    }

    #[test]
    fn json_names_the_figure_and_escapes_the_broker() {
        let figure = Figure { name: "per_cpu_s", unit: "msg/s", value: f64::NAN, better: Better::More };
        let latency = Percentiles { p50_ns: 1500, p99_ns: 2_000_000, p999_ns: 3 };
        let faults = Faults { lost: 3, ..Faults::default() };
        let report = Report {
            scenario: "idle".into(),
            broker: "a\"b\n".into(),
            figure,
            extra: Vec::new(),
            count: 4,
            wall_seconds: 0.5,
            server_cpu_seconds: 0.0,
            driver_cpu_seconds: 0.25,
            faults,
            timed_out: true,
            latency: Some(latency),
            ack_latency: None,
            memory_before: Memory::default(),
            memory_after: Memory::default(),
        };
        let json = report.json();
        for part in ["\"broker\":\"a\\\"b\\u000a\"", "\"per_cpu_s\":null", "\"lost\":3", "\"p50_us\":1.5"] {
            assert!(json.contains(part), "{part} in {json}");
        }
        assert!(!json.contains("ack_p50"));
        assert_eq!(report.troubles(), "; 3 lost; 1 TIMED OUT");
    }
}
