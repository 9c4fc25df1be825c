//! The Markdown tables of scenarios that vary a population: how many sessions or connections a broker has.
//!
//! In: the reports of all runs, by case and broker. Out: text for the report. The other scenarios have the table of `table.rs`.

use std::fmt::Write as _;

use crate::report::{Report, short};
use crate::scenario::{Scenario, SizedScenario};
use crate::table::{Cell, median};

/// A table for each scenario with figures of its own, then the cost of a publish by the number of
/// sessions. `cells` has a row for each case and a column for each broker of `names`.
pub(crate) fn tables(cases: &[SizedScenario], names: &[&str], cells: &[Vec<Cell>]) -> String {
    let mut scenarios: Vec<Scenario> = cases.iter().map(|case| case.scenario).collect();
    scenarios.dedup();
    let mut out: String = scenarios.into_iter().map(|s| own_numbers(s, cases, names, cells)).collect();
    out.push_str(&flatness(cases, names, cells));
    out
}

/// A scenario's table: a row for each case and broker, a column for each figure, headed by its name in JSON.
fn own_numbers(scenario: Scenario, cases: &[SizedScenario], names: &[&str], cells: &[Vec<Cell>]) -> String {
    let rows: Vec<(SizedScenario, &str, &Cell)> = cases
        .iter()
        .zip(cells)
        .filter(|(case, _)| case.scenario == scenario)
        .flat_map(|(case, row)| names.iter().zip(row).map(|(name, cell)| (*case, *name, cell)))
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    for name in
        rows.iter().flat_map(|(_, _, cell)| &cell.reports).flat_map(|r| &r.extra).map(|(name, _)| name)
    {
        if !columns.contains(&name.as_ref()) {
            columns.push(name);
        }
    }
    if columns.is_empty() {
        return String::new();
    }
    let head = columns.join(" | ").replace('{', " {");
    let mut out = format!("| scenario | broker | {head} |\n|{}\n", "---|".repeat(columns.len() + 2));
    for (case, name, cell) in rows {
        let number = |column: &&str| extra_median(cell, column).map_or("-".to_owned(), short);
        let numbers: Vec<String> = columns.iter().map(number).collect();
        let _ = writeln!(out, "| {} | {name} | {} |", case.name(), numbers.join(" | "));
    }
    out.push('\n');
    out
}

fn extra_median(cell: &Cell, name: &str) -> Option<f64> {
    median(cell.reports.iter().filter_map(|r| r.extra(name)).collect())
}

/// A table of the server's CPU per publish, with a column for each number of offline sessions. The last column is the ratio of the ends: 1
/// means that sessions cost nothing. Empty for fewer than two numbers.
fn flatness(cases: &[SizedScenario], names: &[&str], cells: &[Vec<Cell>]) -> String {
    let sizes: Vec<(u32, &Vec<Cell>)> = cases
        .iter()
        .zip(cells)
        .filter(|(case, _)| case.scenario == Scenario::OfflineSessions)
        .filter_map(|(case, row)| Some((case.sessions?, row)))
        .collect();
    if sizes.len() < 2 {
        return String::new();
    }
    let heads: Vec<String> = sizes.iter().map(|(sessions, _)| format!("{sessions} sessions")).collect();
    let mut out = format!("| server µs per publish to | {} | last / first |\n", heads.join(" | "));
    let _ = writeln!(out, "|{}", "---|".repeat(sizes.len() + 2));
    for (at, name) in names.iter().enumerate() {
        // A closed loop: each publish waits for the PUBACK of the one before.
        let closed = |cell: &Cell| cell.median(|r: &Report| r.figure.value);
        let window = |cell: &Cell| extra_median(cell, "window_us_per_publish");
        let one_by_one: Vec<Option<f64>> = sizes.iter().map(|(_, row)| closed(&row[at])).collect();
        let in_a_window: Vec<Option<f64>> = sizes.iter().map(|(_, row)| window(&row[at])).collect();
        for (how, values) in [("one by one", one_by_one), ("in a window", in_a_window)] {
            let texts: Vec<String> = values.iter().map(|v| v.map_or("-".to_owned(), short)).collect();
            let ends = values.last().copied().flatten().zip(values.first().copied().flatten());
            let ratio = ends.map_or("-".to_owned(), |(last, first)| short(last / first));
            let _ = writeln!(out, "| {name}, {how} | {} | {ratio} |", texts.join(" | "));
        }
    }
    out
}
