//! The Markdown tables of `compare`.

use std::fmt::Write as _;

use crate::compare::Cell;
use crate::receipts::Faults;
use crate::report::{Better, Report, short};
use crate::scenario::Scenario;

/// The broker whose ratios the project's targets are about.
const TARGETED: &str = "millrace";

/// The middle value, or the mean of the two middle ones.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

impl Cell {
    fn median(&self, of: impl Fn(&Report) -> f64) -> Option<f64> {
        median(self.reports.iter().map(of).collect())
    }

    fn figure(&self) -> Option<f64> {
        self.median(|r| r.figure.value)
    }

    fn faults(&self) -> Faults {
        let mut sum = Faults::default();
        self.reports.iter().for_each(|r| sum.add(r.faults));
        sum
    }

    /// Nothing went wrong in any round.
    fn is_sound(&self) -> bool {
        self.failures.is_empty() && !self.faults().any() && !self.reports.iter().any(|r| r.timed_out)
    }

    /// The median; marked when it cannot be taken at face value.
    fn text(&self) -> String {
        let Some(figure) = self.figure() else {
            return if self.failures.is_empty() { "-".into() } else { "**failed**".into() };
        };
        let mut text = short(figure);
        let faults = self.faults();
        if faults.lost > 0 {
            let due = faults.lost + self.reports.iter().map(|r| r.count).sum::<u64>();
            let _ = write!(text, " (**{:.2} % lost**)", faults.lost as f64 * 100.0 / due as f64);
        } else if faults.any() {
            text.push_str(" (**faults**)");
        }
        if self.reports.iter().any(|r| r.timed_out) {
            text.push_str(" (**timed out**)");
        }
        if !self.failures.is_empty() {
            let _ = write!(text, " (**{} failed**)", self.failures.len());
        }
        text
    }
}

/// Figures, ratios to the baseline and the targets of those ratios.
pub(crate) fn figures(scenarios: &[Scenario], names: &[&str], cells: &[Vec<Cell>], baseline: &str) -> String {
    let base = names.iter().position(|n| *n == baseline);
    let mut out = String::from("| scenario | unit |");
    for name in names {
        let _ = write!(out, " {name} |");
        if base.is_some() && *name != baseline {
            let _ = write!(out, " x {baseline} |");
        }
    }
    let columns = out.matches('|').count();
    let _ = writeln!(out, " target for {TARGETED} |\n|{}", "---|".repeat(columns));
    for (scenario, row) in scenarios.iter().zip(cells) {
        let figure = row.iter().flat_map(|c| &c.reports).map(|r| r.figure).next();
        let _ = write!(out, "| {} | {} |", scenario.name(), figure.map_or("", |f| f.unit));
        let base_value = base.and_then(|b| row[b].figure());
        let mut target_text = scenario.target_ratio().map_or("-".to_owned(), |t| format!("{t:.2}"));
        for (name, cell) in names.iter().zip(row) {
            let _ = write!(out, " {} |", cell.text());
            if base.is_none() || *name == baseline {
                continue;
            }
            let ratio = cell.figure().zip(base_value).map(|(value, base)| value / base);
            let _ = write!(out, " {} |", ratio.map_or("-".to_owned(), |r| format!("{r:.2}")));
            if let (true, Some(ratio), Some(target), Some(figure)) =
                (*name == TARGETED, ratio, scenario.target_ratio(), figure)
            {
                // A broker that loses is not fast.
                let met = cell.is_sound() && is_met(ratio, target, figure.better);
                target_text.push_str(if met { ", met" } else { ", **missed**" });
            }
        }
        let _ = writeln!(out, " {target_text} |");
    }
    out
}

fn is_met(ratio: f64, target: f64, better: Better) -> bool {
    match better {
        Better::More => ratio >= target,
        Better::Less => ratio <= target,
    }
}

/// What tells whether the figures can be trusted: the driver's own cost, latencies and every fault.
pub(crate) fn details(scenarios: &[Scenario], names: &[&str], cells: &[Vec<Cell>]) -> String {
    let head = "scenario | broker | rounds | driver µs each | server µs each | p50 ms | p99 ms | p99.9 ms";
    let mut out = format!("| {head} | PUBACK p99 ms | faults, all rounds |\n|{}\n", "---|".repeat(10));
    for (scenario, row) in scenarios.iter().zip(cells) {
        for (name, cell) in names.iter().zip(row) {
            let of =
                |f: &dyn Fn(&Report) -> f64| cell.median(f).map_or("-".to_owned(), |v| format!("{v:.2}"));
            let ms = |f: &dyn Fn(&Report) -> Option<u64>| {
                let values: Vec<f64> = cell.reports.iter().filter_map(|r| Some(f(r)? as f64 / 1e6)).collect();
                median(values).map_or("-".to_owned(), |v| format!("{v:.2}"))
            };
            let driver = of(&Report::driver_us_each);
            let server = of(&|r| r.server_cpu_seconds * 1e6 / r.count.max(1) as f64);
            let p50 = ms(&|r| Some(r.latency?.p50_ns));
            let p99 = ms(&|r| Some(r.latency?.p99_ns));
            let p999 = ms(&|r| Some(r.latency?.p999_ns));
            let ack = ms(&|r| Some(r.ack_latency?.p99_ns));
            let rounds = cell.reports.len();
            let mut faults: String = cell.reports.iter().map(Report::troubles).collect();
            cell.failures.iter().for_each(|f| {
                let _ = write!(faults, "; failed: {}", f.replace(['|', '\n'], " "));
            });
            let faults = if faults.is_empty() { "none" } else { faults.trim_start_matches("; ") };
            let numbers = format!("{driver} | {server} | {p50} | {p99} | {p999} | {ack}");
            let _ = writeln!(out, "| {} | {name} | {rounds} | {numbers} | {faults} |", scenario.name());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::Memory;
    use crate::report::Figure;

    fn cell(values: &[f64], better: Better, lost: u64) -> Cell {
        let report = |value: &f64| Report {
            scenario: String::new(),
            broker: String::new(),
            figure: Figure { name: "n", unit: "u", value: *value, better },
            extra: Vec::new(),
            count: 99,
            wall_seconds: 1.0,
            server_cpu_seconds: 1.0,
            driver_cpu_seconds: 1.0,
            faults: Faults { lost, ..Faults::default() },
            timed_out: false,
            latency: None,
            ack_latency: None,
            memory_before: Memory::default(),
            memory_after: Memory::default(),
        };
        Cell { reports: values.iter().map(report).collect(), failures: Vec::new() }
    }

    #[test]
    fn medians_of_odd_even_and_nothing() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn the_table_compares_medians_with_the_targets() {
        let scenarios = [Scenario::Idle, Scenario::Qos0Flood, Scenario::Fanout];
        let cells = [
            vec![cell(&[736.0, 700.0, 800.0], Better::Less, 0), cell(&[512.0], Better::Less, 0)],
            vec![cell(&[100.0], Better::More, 0), cell(&[1700.0], Better::More, 0)],
            vec![cell(&[100.0], Better::More, 0), cell(&[2500.0], Better::More, 1)],
        ];
        let table = figures(&scenarios, &["mosquitto", "millrace"], &cells, "mosquitto");
        let expected = "\
| scenario | unit | mosquitto | millrace | x mosquitto | target for millrace |
|---|---|---|---|---|---|
| idle | u | 736 | 512 | 0.70 | 1.00, met |
| qos0-flood | u | 100 | 1700 | 17.00 | 18.00, **missed** |
| fanout | u | 100 | 2500 (**1.00 % lost**) | 25.00 | 20.00, **missed** |
";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_failed_run_is_not_hidden() {
        let cells = [vec![Cell { reports: Vec::new(), failures: vec!["a|b".into()] }]];
        assert!(figures(&[Scenario::Idle], &["x"], &cells, "mosquitto").contains("**failed**"));
        assert!(details(&[Scenario::Idle], &["x"], &cells).contains("failed: a b"));
    }
}
