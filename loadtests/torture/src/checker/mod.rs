//! Checks a history against MQTT and the broker's promises, with a module for each rule. Each
//! module opens with its rule and the exceptions.
//!
//! A rule is as strict as the standard and no stricter: where a kill allows two outcomes, both
//! pass.

mod answers;
mod connections;
mod facts;
mod filter;
mod missing;
mod order;
mod presence;
mod repeats;
mod retained;
mod strays;
mod verdict;
mod wills;

#[cfg(test)]
pub(crate) mod story;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod will_tests;

pub use filter::matches;
pub use verdict::{CheckCounts, CheckRule, Verdict, Violation};

use crate::history::History;
use facts::Facts;

/// Without violations, the counts show how much was checked.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let facts = Facts::gather(history);
    let mut verdict = Verdict::default();
    missing::check(&facts, &mut verdict);
    order::check(&facts, &mut verdict);
    repeats::check(&facts, &mut verdict);
    strays::check(&facts, &mut verdict);
    presence::check(&facts, &mut verdict);
    connections::check(&facts, &mut verdict);
    retained::check(&facts, &mut verdict);
    wills::check(&facts, &mut verdict);
    answers::check(&facts, &mut verdict);
    verdict
}
