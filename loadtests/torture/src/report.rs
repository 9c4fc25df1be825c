//! Prints the result of a run.

use std::collections::BTreeMap;

use crate::failure::Outcome;
use crate::hazards::HazardCounts;
use millrace_torture::checker::{self, CheckRule, Verdict, Violation};
use millrace_torture::history::{Event, History};

pub(crate) fn print(
    history: &History,
    outcome: &Outcome<Verdict>,
    hazards: Option<HazardCounts>,
    explained_max: usize,
) -> bool {
    let unfinished;
    let verdict = match outcome {
        Ok(verdict) => verdict,
        Err(failure) => {
            println!("\nSTOPPED: {failure}");
            unfinished = of_unfinished(history);
            &unfinished
        }
    };
    println!();
    for (what, count) in verdict.counts.rows() {
        println!("{count:>10} {what}");
    }
    println!("{:>10} events", history.events.len());
    for (what, count) in hazards.iter().flat_map(HazardCounts::rows) {
        println!("{count:>10} {what}");
    }
    let mut by_rule: BTreeMap<CheckRule, Vec<&Violation>> = BTreeMap::new();
    for violation in &verdict.violations {
        by_rule.entry(violation.rule).or_default().push(violation);
    }
    let kills = kills(history);
    for (rule, violations) in &by_rule {
        println!("\nVIOLATED {} times: {rule}", violations.len());
        for violation in violations.iter().take(explained_max) {
            println!("  {}", violation.explain(history, &kills));
        }
    }
    if outcome.is_ok() && by_rule.is_empty() {
        println!("\nok: everything promised was kept");
        return true;
    }
    println!("\nFAILED: {} violations", verdict.violations.len());
    false
}

/// A run that stopped early need not have all answers and deliveries.
fn of_unfinished(history: &History) -> Verdict {
    let mut verdict = checker::check(history);
    let ends = |rule| matches!(rule, CheckRule::Missing | CheckRule::Unanswered | CheckRule::WillLost);
    verdict.violations.retain(|violation| !ends(violation.rule));
    verdict
}

fn kills(history: &History) -> Vec<usize> {
    let events = history.events.iter().enumerate();
    events.filter(|(_, stamped)| matches!(stamped.event, Event::Kill { .. })).map(|(at, _)| at).collect()
}
