//! The result of a run, as a line of JSON or of text.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::broker::Broker;
use crate::latency::Percentiles;
use crate::measurement::Cost;
use crate::preset::Fsync;
use crate::receipts::Faults;
use crate::scenario::SizedScenario;

/// Appended to a guarantee that the kernel's counters contradict.
pub(crate) const BELIED: &str = " (**but it wrote nothing to a disk**)";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// Unit of the figure, as people read it.
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) better: Better,
}

pub(crate) struct Report {
    pub(crate) case: SizedScenario,
    pub(crate) broker: String,
    pub(crate) fsync: Fsync,
    pub(crate) figure: Figure,
    /// Further figures, by their names in the JSON.
    pub(crate) extra: Vec<(Cow<'static, str>, f64)>,
    /// Deliveries, acknowledged publishes, connections or sessions.
    pub(crate) count: u64,
    pub(crate) cost: Cost,
    pub(crate) faults: Faults,
    pub(crate) timed_out: bool,
    pub(crate) latency: Option<Percentiles>,
    pub(crate) ack_latency: Option<Percentiles>,
}

enum Value {
    Text(String),
    Whole(u64),
    Real(f64),
    Flag(bool),
}

impl Report {
    pub(crate) fn new(case: SizedScenario, broker: &Broker, figure: Figure, count: u64, cost: Cost) -> Self {
        Self {
            case,
            broker: broker.name.clone(),
            fsync: broker.fsync,
            figure,
            extra: Vec::new(),
            count,
            cost,
            faults: Faults::default(),
            timed_out: false,
            latency: None,
            ack_latency: None,
        }
    }

    pub(crate) fn extra(&self, name: &str) -> Option<f64> {
        self.extra.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    }

    /// True if the broker claims to store before it acknowledges, but wrote nothing.
    pub(crate) fn belies_its_promise(&self) -> bool {
        let promised = self.fsync == Fsync::BeforePuback && self.case.scenario.stores_messages();
        promised && self.count > 0 && self.cost.written_bytes == 0
    }

    fn fields(&self) -> Vec<(&str, Value)> {
        use Value::{Flag, Real, Text, Whole};
        let cost = &self.cost;
        let mut fields = vec![
            ("scenario", Text(self.case.scenario.name())),
            ("broker", Text(self.broker.clone())),
            (self.figure.name, Real(self.figure.value)),
            ("count", Whole(self.count)),
            ("wall_s", Real(cost.wall_seconds)),
            ("server_cpu_s", Real(cost.server_cpu_seconds)),
            ("driver_cpu_s", Real(cost.driver_cpu_seconds)),
            ("driver_us_each", Real(cost.driver_us_each(self.count))),
            ("disk_bytes_each", Real(cost.written_bytes_each(self.count))),
            ("lost", Whole(self.faults.lost)),
            ("repeated", Whole(self.faults.repeated)),
            ("disordered", Whole(self.faults.disordered)),
            ("stray", Whole(self.faults.stray)),
            ("unacked", Whole(self.faults.unacked)),
            ("acks_disordered", Whole(self.faults.acks_disordered)),
            ("closed", Whole(self.faults.closed)),
            ("forgotten", Whole(self.faults.forgotten)),
            ("timed_out", Flag(self.timed_out)),
            ("rss_before_kb", Whole(cost.memory_before.rss_kb)),
            ("rss_after_kb", Whole(cost.memory_after.rss_kb)),
            ("rss_anon_before_kb", Whole(cost.memory_before.anon_kb)),
            ("rss_anon_after_kb", Whole(cost.memory_after.anon_kb)),
        ];
        if self.case.scenario.is_durable() {
            fields.push(("fsync_before_puback", Text(self.fsync.to_string())));
        }
        let latencies = [
            (["p50_us", "p99_us", "p999_us"], self.latency),
            (["ack_p50_us", "ack_p99_us", "ack_p999_us"], self.ack_latency),
        ];
        fields.extend(self.extra.iter().map(|(name, value)| (name.as_ref(), Real(*value))));
        for (names, percentiles) in latencies {
            let Some(p) = percentiles else { continue };
            let us = [p.p50_ns, p.p99_ns, p.p999_ns].map(|ns| Real(ns as f64 / 1000.0));
            fields.extend(names.into_iter().zip(us));
        }
        fields
    }

    pub(crate) fn json(&self) -> String {
        let members: Vec<String> = self
            .fields()
            .into_iter()
            .map(|(name, value)| {
                let value = match value {
                    Value::Text(text) => json_string(&text),
                    Value::Whole(n) => n.to_string(),
                    Value::Real(r) if r.is_finite() => ((r * 1000.0).round() / 1000.0).to_string(),
                    Value::Real(_) => "null".into(),
                    Value::Flag(flag) => flag.to_string(),
                };
                format!("{}:{value}", json_string(name))
            })
            .collect();
        format!("{{{}}}", members.join(","))
    }

    /// The figure, then every number that is not zero.
    pub(crate) fn line(&self) -> String {
        let mut line = format!(
            "{} {}: {} {}; {} in {:.2} s, CPU server {:.2} s, driver {:.2} s ({:.2} µs each)",
            self.broker,
            self.case.name(),
            short(self.figure.value),
            self.figure.unit,
            self.count,
            self.cost.wall_seconds,
            self.cost.server_cpu_seconds,
            self.cost.driver_cpu_seconds,
            self.cost.driver_us_each(self.count),
        );
        for (name, percentiles) in [("latency", self.latency), ("PUBACK", self.ack_latency)] {
            if let Some(p) = percentiles {
                let [p50, p99, p999] = [p.p50_ns, p.p99_ns, p.p999_ns].map(|ns| ns as f64 / 1e6);
                let _ = write!(line, "; {name} p50/p99/p99.9 {p50:.2}/{p99:.2}/{p999:.2} ms");
            }
        }
        for (name, value) in &self.extra {
            let _ = write!(line, "; {name} {}", short(*value));
        }
        let (before, after) = (self.cost.memory_before.rss_kb, self.cost.memory_after.rss_kb);
        let _ = write!(line, "; RSS {before} to {after} KiB");
        if self.case.scenario.is_durable() {
            let bytes = short(self.cost.written_bytes_each(self.count));
            let belied = if self.belies_its_promise() { BELIED } else { "" };
            let _ = write!(line, "; disk {bytes} bytes each; fsync before PUBACK: {}{belied}", self.fsync);
        }
        line.push_str(&self.troubles());
        line
    }

    pub(crate) fn troubles(&self) -> String {
        let counted = [
            ("lost", self.faults.lost),
            ("repeated", self.faults.repeated),
            ("out of order", self.faults.disordered),
            ("stray", self.faults.stray),
            ("not acknowledged", self.faults.unacked),
            ("PUBACKs out of order", self.faults.acks_disordered),
            ("connections closed", self.faults.closed),
            ("sessions forgotten", self.faults.forgotten),
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

/// Three digits and a unit prefix.
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
    use crate::scenario::Scenario;

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
            case: SizedScenario { scenario: Scenario::Resume, sessions: Some(4) },
            broker: "a\"b\n".into(),
            fsync: Fsync::No("x"),
            figure,
            extra: vec![("own{a=\"b\"}".into(), 2.0)],
            count: 4,
            cost: Cost { written_bytes: 10, ..Cost::default() },
            faults,
            timed_out: true,
            latency: Some(latency),
            ack_latency: None,
        };
        let json = report.json();
        for part in [
            "\"broker\":\"a\\\"b\\u000a\"",
            "\"per_cpu_s\":null",
            "\"lost\":3",
            "\"p50_us\":1.5",
            r#""own{a=\"b\"}":2,"#,
            "\"disk_bytes_each\":2.5,",
            "\"fsync_before_puback\":\"no (x)\"",
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
        assert!(!json.contains("ack_p50"));
        assert_eq!(report.troubles(), "; 3 lost; 1 TIMED OUT");
    }
}
