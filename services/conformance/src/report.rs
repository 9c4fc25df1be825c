//! The report about one version: which statements are proven, implemented, excepted or missing.

use std::fmt::Write;

use crate::citations::Citation;
use crate::standards::{Standard, Statement};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Proven,
    Excepted,
    Implemented,
    Missing,
}

impl State {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Proven, "proven"),
        (Self::Implemented, "implemented only"),
        (Self::Excepted, "excepted"),
        (Self::Missing, "missing"),
    ];
}

pub(crate) struct Report<'a> {
    standard: &'a Standard,
    rows: Vec<(&'a Statement, State, Vec<&'a Citation>)>,
}

impl<'a> Report<'a> {
    pub(crate) fn of(standard: &'a Standard, citations: &'a [Citation]) -> Self {
        let row = |statement: &'a Statement| {
            let cited =
                |citation: &&Citation| citation.version == standard.version && citation.id == statement.id;
            let cited: Vec<_> = citations.iter().filter(cited).collect();
            let state = match (cited.iter().any(|citation| citation.proof), statement.exception) {
                (true, _) => State::Proven,
                (false, Some(_)) => State::Excepted,
                (false, None) if cited.is_empty() => State::Missing,
                (false, None) => State::Implemented,
            };
            (statement, state, cited)
        };
        Self { standard, rows: standard.statements.iter().map(row).collect() }
    }

    /// A complete version has every statement that binds a server proven or excepted.
    pub(crate) fn is_complete(&self) -> bool {
        self.open().next().is_none()
    }

    fn open(&self) -> impl Iterator<Item = &(&'a Statement, State, Vec<&'a Citation>)> {
        self.rows.iter().filter(|(statement, state, _)| {
            !statement.client_only && matches!(state, State::Implemented | State::Missing)
        })
    }

    /// Counts, and a line for each exception that is no longer needed because a test cites it.
    pub(crate) fn summary(&self) -> String {
        let counts: Vec<_> = State::ALL
            .iter()
            .map(|(state, name)| format!("{} {name}", self.rows.iter().filter(|row| row.1 == *state).count()))
            .collect();
        let mut text =
            format!("{:<11}{:>4} statements: {}\n", self.standard.name, self.rows.len(), counts.join(", "));
        for (statement, state, _) in &self.rows {
            if *state == State::Proven && !statement.client_only && statement.exception.is_some() {
                let _ = writeln!(text, "  {} is proven: its exception can go", statement.id);
            }
        }
        text
    }

    /// Every statement with state, reason and citations, tests first.
    pub(crate) fn list(&self) -> String {
        let mut text = String::new();
        for (statement, state, cited) in &self.rows {
            let name = State::ALL.iter().find(|(each, _)| each == state).map_or("", |(_, name)| name);
            let _ = write!(text, "  {:<15} {name:<16}", statement.id);
            if let (State::Excepted, Some(reason)) = (state, statement.exception) {
                let _ = write!(text, " {reason}");
            }
            for citation in
                cited.iter().filter(|cited| cited.proof).chain(cited.iter().filter(|cited| !cited.proof))
            {
                let _ = write!(text, " {}", citation.place);
            }
            text.push('\n');
        }
        text
    }

    /// The statements that are neither proven nor excepted.
    pub(crate) fn missing(&self) -> String {
        let mut text = String::new();
        for (statement, state, cited) in self.open() {
            let places: Vec<_> = cited.iter().map(|citation| citation.place.as_str()).collect();
            let what = if *state == State::Missing { "missing" } else { "implemented, no test proves it:" };
            let _ = writeln!(text, "  {:<15} {what} {}", statement.id, places.join(" "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standards;

    fn citation(id: &str, proof: bool) -> Citation {
        Citation { version: "v3.1.1", id: id.to_owned(), place: "a.rs:1".to_owned(), proof }
    }

    #[test]
    fn a_proof_beats_an_exception_beats_code() {
        let [v5, v311] = standards::all().unwrap();
        let cited = [
            citation("MQTT-3.1.2-3", true),
            citation("MQTT-3.1.2-3", false),
            citation("MQTT-3.1.2-4", false),
            citation("MQTT-3.8.3-2", true),
            citation("MQTT-7.0.0-1", false),
        ];
        let report = Report::of(&v311, &cited);
        assert_eq!(
            report.summary(),
            "MQTT 3.1.1  141 statements: 2 proven, 1 implemented only, 14 excepted, 124 missing\n  \
             MQTT-3.8.3-2 is proven: its exception can go\n"
        );
        assert!(!report.is_complete());
        let missing = report.missing();
        assert!(missing.contains("MQTT-3.1.2-4    implemented, no test proves it: a.rs:1\n"), "{missing}");
        assert!(!missing.contains("MQTT-3.1.2-3 ") && !missing.contains("MQTT-7.0.0-1"), "{missing}");
        assert!(Report::of(&v5, &cited).summary().contains(" 0 proven, 0 implemented only"));
    }

    #[test]
    fn a_version_is_complete_when_all_is_proven_or_excepted() {
        let [_, v311] = standards::all().unwrap();
        let cited: Vec<_> = v311.statements.iter().map(|statement| citation(statement.id, true)).collect();
        assert!(Report::of(&v311, &cited).is_complete());
    }
}
