//! `compare`: the same scenarios against several brokers in turn, and a table of the medians.

use std::fmt::Write as _;

use crate::broker::Broker;
use crate::failure::{Failure, Outcome};
use crate::preset::BrokerSpec;
use crate::report::Report;
use crate::scenario::SizedScenario;
use crate::settings::Settings;
use crate::table::Cell;
use crate::{populations, report, table};

const SMALLER: &str = "The scenarios about sessions have fewer of them here than in a run of their own, because \
    the time of some brokers grows with the square of the number: see --sessions.";

pub(crate) struct Comparison {
    pub(crate) brokers: Vec<BrokerSpec>,
    pub(crate) cases: Vec<SizedScenario>,
    pub(crate) rounds: u32,
    /// Name of the broker with which the table compares the others.
    pub(crate) baseline: String,
    /// Also print each run's JSON.
    pub(crate) json: bool,
}

impl Comparison {
    /// Runs each scenario once per round, so that a noisy minute does not hit one broker alone.
    pub(crate) fn run(mut self, settings: &Settings) -> Outcome<()> {
        self.brokers.retain(|spec| match spec.program() {
            Ok(_) => true,
            Err(why) => {
                eprintln!("!!! SKIPPED: {why}");
                false
            }
        });
        if self.brokers.is_empty() {
            return Err(Failure::new("none of the brokers is installed"));
        }
        let mut cells: Vec<Vec<Cell>> =
            self.cases.iter().map(|_| self.brokers.iter().map(|_| Cell::default()).collect()).collect();
        for round in 1..=self.rounds {
            for (case, row) in self.cases.iter().zip(&mut cells) {
                for (spec, cell) in self.brokers.iter().zip(row) {
                    eprintln!("round {round} of {}: {} against {}", self.rounds, case.name(), spec.name);
                    self.run_once(*case, spec, settings, cell);
                }
            }
        }
        let names: Vec<&str> = self.brokers.iter().map(|b| b.name.as_str()).collect();
        println!("{}", table::figures(&self.cases, &names, &cells, &self.baseline));
        print!("{}", self.notes(&cells, settings));
        println!("{}", table::details(&self.cases, &names, &cells));
        println!("{}", populations::tables(&self.cases, &names, &cells));
        let failed: usize = cells.iter().flatten().map(|c| c.failures.len()).sum();
        if failed > 0 {
            return Err(Failure::new(format!("{failed} runs failed; see above")));
        }
        Ok(())
    }

    fn notes(&self, cells: &[Vec<Cell>], settings: &Settings) -> String {
        let mut notes = String::new();
        if self.cases.iter().any(|case| case.scenario.is_durable()) {
            let promise = |(at, spec): (usize, &BrokerSpec)| {
                let mut reports = cells.iter().flat_map(|row| &row[at].reports);
                let belied = reports.any(Report::belies_its_promise);
                format!("{} {}{}", spec.name, spec.fsync(), if belied { report::BELIED } else { "" })
            };
            let promises: Vec<String> = self.brokers.iter().enumerate().map(promise).collect();
            let _ = writeln!(notes, "fsync before PUBACK: {}.\n", promises.join("; "));
        }
        let smaller = self.cases.iter().any(|case| case.is_smaller_when_compared());
        if smaller && settings.sessions.is_empty() {
            let _ = writeln!(notes, "{SMALLER}\n");
        }
        notes
    }

    fn run_once(&self, case: SizedScenario, spec: &BrokerSpec, settings: &Settings, cell: &mut Cell) {
        match Broker::start(spec).and_then(|broker| crate::run_case(case, settings, &broker)) {
            Ok(report) => {
                eprintln!("  {}", report.line());
                if self.json {
                    println!("{}", report.json());
                }
                cell.reports.push(report);
            }
            Err(why) => {
                eprintln!("!!! FAILED: {why}");
                cell.failures.push(why.to_string());
            }
        }
    }
}
