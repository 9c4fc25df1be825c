//! `compare`: the same scenarios against several brokers in turn, and a table of the medians.

use crate::broker::Broker;
use crate::failure::{Failure, Outcome};
use crate::preset::BrokerSpec;
use crate::report::Report;
use crate::scenario::{Scenario, Settings};
use crate::table;

/// What to compare.
pub(crate) struct Comparison {
    pub(crate) brokers: Vec<BrokerSpec>,
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) rounds: u32,
    pub(crate) baseline: String,
    /// Also print each run's JSON.
    pub(crate) json: bool,
}

/// All rounds of one scenario against one broker.
#[derive(Default)]
pub(crate) struct Cell {
    pub(crate) reports: Vec<Report>,
    /// Why runs are missing.
    pub(crate) failures: Vec<String>,
}

impl Comparison {
    /// Runs everything; rounds are the outer loop, so that a noisy minute does not hit one broker alone.
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
            self.scenarios.iter().map(|_| self.brokers.iter().map(|_| Cell::default()).collect()).collect();
        for round in 1..=self.rounds {
            for (scenario, row) in self.scenarios.iter().zip(&mut cells) {
                for (spec, cell) in self.brokers.iter().zip(row) {
                    eprintln!("round {round} of {}: {} against {}", self.rounds, scenario.name(), spec.name);
                    self.run_once(*scenario, spec, settings, cell);
                }
            }
        }
        let names: Vec<&str> = self.brokers.iter().map(|b| b.name.as_str()).collect();
        println!("{}", table::figures(&self.scenarios, &names, &cells, &self.baseline));
        println!("{}", table::details(&self.scenarios, &names, &cells));
        let failed: usize = cells.iter().flatten().map(|c| c.failures.len()).sum();
        if failed > 0 {
            return Err(Failure::new(format!("{failed} runs failed; see above")));
        }
        Ok(())
    }

    fn run_once(&self, scenario: Scenario, spec: &BrokerSpec, settings: &Settings, cell: &mut Cell) {
        match Broker::start(spec).and_then(|broker| crate::run_scenario(scenario, settings, &broker)) {
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
