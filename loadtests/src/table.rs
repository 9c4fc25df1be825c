//! The Markdown tables of `compare`.

use std::fmt::Write as _;

use crate::receipts::Faults;
use crate::report::{Better, Report, short};
use crate::scenario::{SizedScenario, Target};

const TARGETED: &str = "millrace";

/// The mean of the two middle values of an even number.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

/// The runs of one case against one broker.
#[derive(Default)]
pub(crate) struct Cell {
    pub(crate) reports: Vec<Report>,
    pub(crate) failures: Vec<String>,
}

impl Cell {
    pub(crate) fn median(&self, of: impl Fn(&Report) -> f64) -> Option<f64> {
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

    fn is_sound(&self) -> bool {
        let doubtful = |r: &Report| r.timed_out || r.belies_its_promise();
        self.failures.is_empty() && !self.faults().any() && !self.reports.iter().any(doubtful)
    }

    /// The text of a cell, with a sign if its median cannot be trusted.
    pub(crate) fn text(&self) -> String {
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
        if self.reports.iter().any(Report::belies_its_promise) {
            text.push_str(" (**nothing stored**)");
        }
        if !self.failures.is_empty() {
            let _ = write!(text, " (**{} failed**)", self.failures.len());
        }
        text
    }
}

pub(crate) fn figures(
    cases: &[SizedScenario],
    names: &[&str],
    cells: &[Vec<Cell>],
    baseline: &str,
) -> String {
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
    for (case, row) in cases.iter().zip(cells) {
        let figure = row.iter().flat_map(|c| &c.reports).map(|r| r.figure).next();
        let _ = write!(out, "| {} | {} |", case.name(), figure.map_or("", |f| f.unit));
        let base_value = base.and_then(|b| row[b].figure());
        let target = case.scenario.target();
        let mut target_text = target.map_or("-".to_owned(), target_name);
        for (name, cell) in names.iter().zip(row) {
            let _ = write!(out, " {} |", cell.text());
            let ratio = cell.figure().zip(base_value).map(|(value, base)| value / base);
            if base.is_some() && *name != baseline {
                let _ = write!(out, " {} |", ratio.map_or("-".to_owned(), |r| format!("{r:.2}")));
            }
            let reached = match target {
                Some(Target::Ratio(_)) => ratio,
                Some(Target::AtMost(_)) => cell.figure(),
                None => None,
            };
            if let (true, Some(reached), Some(target), Some(figure)) =
                (*name == TARGETED && *name != baseline, reached, target, figure)
            {
                // A broker that loses messages does not meet a target.
                let met = cell.is_sound() && is_met(reached, target, figure.better);
                target_text.push_str(if met { ", met" } else { ", **missed**" });
            }
        }
        let _ = writeln!(out, " {target_text} |");
    }
    out
}

fn target_name(target: Target) -> String {
    match target {
        Target::Ratio(ratio) => format!("{ratio:.2}"),
        Target::AtMost(most) => format!("at most {}", short(most)),
    }
}

fn is_met(reached: f64, target: Target, better: Better) -> bool {
    match (target, better) {
        (Target::Ratio(ratio), Better::More) => reached >= ratio,
        (Target::Ratio(most), Better::Less) | (Target::AtMost(most), _) => reached <= most,
    }
}

/// The driver's own cost, latencies and every error show whether the results can be trusted.
pub(crate) fn details(cases: &[SizedScenario], names: &[&str], cells: &[Vec<Cell>]) -> String {
    let head = "scenario | broker | rounds | driver µs each | server µs each | disk bytes each \
                | p50 ms | p99 ms | p99.9 ms | PUBACK p50 ms | PUBACK p99 ms | faults, all rounds";
    let mut out = format!("| {head} |\n|{}\n", "---|".repeat(head.matches('|').count() + 1));
    for (case, row) in cases.iter().zip(cells) {
        for (name, cell) in names.iter().zip(row) {
            let of =
                |f: &dyn Fn(&Report) -> f64| cell.median(f).map_or("-".to_owned(), |v| format!("{v:.2}"));
            let ms = |f: &dyn Fn(&Report) -> Option<u64>| {
                let values: Vec<f64> = cell.reports.iter().filter_map(|r| Some(f(r)? as f64 / 1e6)).collect();
                median(values).map_or("-".to_owned(), |v| format!("{v:.2}"))
            };
            let numbers = [
                cell.reports.len().to_string(),
                of(&|r| r.cost.driver_us_each(r.count)),
                of(&|r| r.cost.server_us_each(r.count)),
                of(&|r| r.cost.written_bytes_each(r.count)),
                ms(&|r| Some(r.latency?.p50_ns)),
                ms(&|r| Some(r.latency?.p99_ns)),
                ms(&|r| Some(r.latency?.p999_ns)),
                ms(&|r| Some(r.ack_latency?.p50_ns)),
                ms(&|r| Some(r.ack_latency?.p99_ns)),
            ];
            let mut faults: String = cell.reports.iter().map(Report::troubles).collect();
            cell.failures.iter().for_each(|f| {
                let _ = write!(faults, "; failed: {}", f.replace(['|', '\n'], " "));
            });
            let faults = if faults.is_empty() { "none" } else { faults.trim_start_matches("; ") };
            let _ = writeln!(out, "| {} | {name} | {} | {faults} |", case.name(), numbers.join(" | "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::Cost;
    use crate::preset::Fsync;
    use crate::report::Figure;
    use crate::scenario::Scenario;

    fn case(scenario: Scenario) -> SizedScenario {
        SizedScenario { scenario, sessions: None }
    }

    fn cell(values: &[f64], better: Better, lost: u64) -> Cell {
        let report = |value: &f64| Report {
            case: case(Scenario::Idle),
            broker: String::new(),
            fsync: Fsync::Unknown,
            figure: Figure { name: "n", unit: "u", value: *value, better },
            extra: Vec::new(),
            count: 99,
            cost: Cost::default(),
            faults: Faults { lost, ..Faults::default() },
            timed_out: false,
            latency: None,
            ack_latency: None,
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
        let cases = [Scenario::Idle, Scenario::Qos0Flood, Scenario::Fanout, Scenario::Reconnect].map(case);
        let cells = [
            vec![cell(&[736.0, 700.0, 800.0], Better::Less, 0), cell(&[512.0], Better::Less, 0)],
            vec![cell(&[100.0], Better::More, 0), cell(&[1700.0], Better::More, 0)],
            vec![cell(&[100.0], Better::More, 0), cell(&[2500.0], Better::More, 1)],
            vec![cell(&[50.0], Better::Less, 0), cell(&[100.0], Better::Less, 0)],
        ];
        let table = figures(&cases, &["mosquitto", "millrace"], &cells, "mosquitto");
        let expected = "\
| scenario | unit | mosquitto | millrace | x mosquitto | target for millrace |
|---|---|---|---|---|---|
| idle | u | 736 | 512 | 0.70 | 1.00, met |
| qos0-flood | u | 100 | 1700 | 17.00 | 18.00, **missed** |
| fanout | u | 100 | 2500 (**1.00 % lost**) | 25.00 | 20.00, **missed** |
| reconnect | u | 50.0 | 100 | 2.00 | at most 111, met |
";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_broker_that_promises_to_store_and_does_not_meets_no_target() {
        let mut silent = cell(&[200.0], Better::More, 0);
        silent.reports[0].case = case(Scenario::DurablePublish);
        silent.reports[0].fsync = Fsync::BeforePuback;
        let cells = [vec![cell(&[100.0], Better::More, 0), silent]];
        let table =
            figures(&[case(Scenario::DurablePublish)], &["mosquitto", "millrace"], &cells, "mosquitto");
        assert!(table.contains("| 200 (**nothing stored**) | 2.00 | 1.04, **missed** |"), "{table}");
    }

    #[test]
    fn a_failed_run_is_not_hidden() {
        let cells = [vec![Cell { reports: Vec::new(), failures: vec!["a|b".into()] }]];
        assert!(figures(&[case(Scenario::Idle)], &["x"], &cells, "mosquitto").contains("**failed**"));
        assert!(details(&[case(Scenario::Idle)], &["x"], &cells).contains("failed: a b"));
    }
}
