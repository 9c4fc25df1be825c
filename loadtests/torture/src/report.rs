//! Prints the result of a run.

use std::collections::BTreeMap;

use crate::failure::{Failure, Outcome};
use crate::hazards::HazardCounts;
use crate::run::Plan;
use millrace_torture::checker::{self, CheckRule, Verdict, Violation};
use millrace_torture::history::{Event, History};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Kept,
    Failed,
    /// Nothing broke a promise in a run that could not be judged to its end.
    NoVerdict,
}

pub(crate) fn print(
    history: &History,
    outcome: Outcome<Verdict>,
    plan: &Plan,
    hazards: Option<HazardCounts>,
    explained_max: usize,
) -> Judgement {
    let (mut verdict, failure) = match outcome {
        Ok(verdict) => (verdict, None),
        Err(failure) => (of_unfinished(history), Some(failure)),
    };
    plan.excuse(&mut verdict);
    if let Some(failure) = &failure {
        let how = if matches!(failure, Failure::NoVerdict(_)) { "NO VERDICT" } else { "STOPPED" };
        println!("\n{how}: {failure}");
    }
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
    match failure {
        None if by_rule.is_empty() => {
            println!("\nok: everything promised was kept");
            Judgement::Kept
        }
        Some(Failure::NoVerdict(_)) if by_rule.is_empty() => {
            println!("\nno verdict: no promise was seen broken");
            Judgement::NoVerdict
        }
        _ => {
            println!("\nFAILED: {} violations", verdict.violations.len());
            Judgement::Failed
        }
    }
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
