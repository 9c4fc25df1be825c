//! Prints the results of attacks, as rows of a table and as JSON.

use super::attacks::By;
use super::run::{FriendWaits, STRETCH_MAX};
use super::server::Server;
use super::verdict::{Bound, Check, Waits};

#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) rss_kb: u64,
    pub(super) open_files: u64,
}

impl Usage {
    pub(super) fn of(server: &Server) -> Self {
        Self { rss_kb: server.memory().rss_kb, open_files: server.open_files() }
    }
}

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) by: By,
    pub(super) seconds: f64,
    pub(super) waits: FriendWaits,
    pub(super) before: Usage,
    pub(super) peak: Usage,
    pub(super) after: Usage,
    pub(super) log_lines_s: f64,
    pub(super) checks: Vec<Check>,
    pub(super) notes: Vec<String>,
    /// Checks that `known.txt` lists for this attack.
    pub(super) known: Vec<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Fail,
    /// Only checks that `known.txt` lists are broken.
    Known,
    /// Only waits are broken, on a machine too busy to judge them.
    NotJudged,
}

impl Row {
    pub(super) fn holds(&self) -> bool {
        self.checks.iter().all(Check::holds)
    }

    fn broken(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| !check.holds())
    }

    pub(super) fn has_loss(&self) -> bool {
        self.broken().any(Check::is_of_loss)
    }

    pub(super) fn verdict(&self) -> Verdict {
        let others: Vec<&Check> =
            self.broken().filter(|check| check.is_of_loss() || !self.known.contains(&check.what)).collect();
        if self.holds() {
            Verdict::Pass
        } else if others.is_empty() {
            Verdict::Known
        } else if self.waits.stretch > STRETCH_MAX && others.iter().all(|check| check.is_of_wait()) {
            Verdict::NotJudged
        } else {
            Verdict::Fail
        }
    }

    fn verdict_name(&self) -> &'static str {
        match self.verdict() {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Known => "KNOWN",
            Verdict::NotJudged => "NOT JUDGED",
        }
    }

    pub(super) fn line(&self) -> String {
        let broken: Vec<String> = self.broken().map(Check::text).collect();
        let notes = self.notes.join("; ");
        format!(
            "{} {} in {:.1} s: {} [{notes}]",
            self.verdict_name(),
            self.name,
            self.seconds,
            broken.join(", ")
        )
    }

    pub(super) fn json(&self) -> String {
        let FriendWaits { other, same, durable, dial, machine, lost, refused, stretch } = &self.waits;
        let waits: Vec<String> =
            [("other", other), ("same", same), ("durable", durable), ("dial", dial), ("machine", machine)]
                .into_iter()
                .map(|(name, waits)| json_waits(name, waits))
                .collect();
        let usage: Vec<String> = [("before", self.before), ("peak", self.peak), ("after", self.after)]
            .into_iter()
            .map(|(name, usage)| {
                format!("\"{name}\":{{\"rss_kb\":{},\"open_files\":{}}}", usage.rss_kb, usage.open_files)
            })
            .collect();
        let checks: Vec<String> = self.checks.iter().map(json_check).collect();
        let notes: Vec<String> = self.notes.iter().map(|note| quoted(note)).collect();
        format!(
            "{{\"attack\":{},\"by\":{},\"verdict\":{},\"seconds\":{:.3},\"lost\":{lost},\"refused\":{refused},\"stretch\":{stretch:.2},\
             \"log_lines_s\":{:.1},{},{},\"checks\":[{}],\"notes\":[{}]}}",
            quoted(self.name),
            quoted(self.by.name()),
            quoted(self.verdict_name()),
            self.seconds,
            self.log_lines_s,
            waits.join(","),
            usage.join(","),
            checks.join(","),
            notes.join(",")
        )
    }

    fn cells(&self) -> String {
        let waits =
            |waits: &Waits| format!("{:.1} / {:.0} / {:.0}", waits.p50_ms, waits.p99_ms, waits.worst_ms);
        let mib = |usage: Usage| usage.rss_kb / 1024;
        let own: Vec<String> =
            self.checks.iter().filter(|check| !check.holds() || !is_common(check)).map(Check::text).collect();
        format!(
            "| {} | {} | {} | {} | {} | {} | {} | {:.0} x{:.1} | {} | {} / {} / {} | {} / {} / {} | {:.0} | {} |",
            self.name,
            self.by.name(),
            self.verdict_name(),
            waits(&self.waits.other),
            waits(&self.waits.same),
            waits(&self.waits.durable),
            waits(&self.waits.dial),
            self.waits.machine.worst_ms,
            self.waits.stretch,
            self.waits.lost,
            mib(self.before),
            mib(self.peak),
            mib(self.after),
            self.before.open_files,
            self.peak.open_files,
            self.after.open_files,
            self.log_lines_s,
            own.join(", "),
        )
    }
}

/// Common figures have columns of their own.
fn is_common(check: &Check) -> bool {
    ["wait", "memory", "log lines", "friendly"].iter().any(|start| check.what.starts_with(start))
}

pub(super) fn table(rows: &[Row]) -> String {
    let head = "Waits are p50 / p99 / worst in ms, memory in MiB and open files before / at the peak / after. A limit that is\n\
                broken stands in bold. `machine` is the longest wait of a thread that does not speak to the server, and how\n\
                many times longer other programs made the server's busiest thread take: limits of waits are raised by both, at most x2.\n\n\
                | attack | by | verdict | another broker | the same broker | PUBACK | CONNACK | machine | lost | memory | open files | log lines/s | figures |\n\
                |---|---|---|---|---|---|---|---|---|---|---|---|---|";
    let rows: Vec<String> = rows.iter().map(Row::cells).collect();
    format!("{head}\n{}", rows.join("\n"))
}

fn json_waits(name: &str, waits: &Waits) -> String {
    format!(
        "\"{name}\":{{\"count\":{},\"p50_ms\":{:.3},\"p99_ms\":{:.3},\"worst_ms\":{:.3}}}",
        waits.count, waits.p50_ms, waits.p99_ms, waits.worst_ms
    )
}

fn json_check(check: &Check) -> String {
    let (bound, limit) = match check.bound {
        Bound::AtMost(limit) => ("at_most", limit),
        Bound::AtLeast(limit) => ("at_least", limit),
    };
    format!(
        "{{\"what\":{},\"seen\":{:.3},\"{bound}\":{limit:.3},\"unit\":{},\"holds\":{}}}",
        quoted(check.what),
        check.seen,
        quoted(check.unit),
        check.holds()
    )
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::verdict::{MESSAGES_LOST, SERVER_ENDED};

    fn row(what: &'static str, stretch: f64, known: &[&'static str]) -> Row {
        Row {
            name: "attack",
            by: By::Tenant,
            seconds: 1.0,
            waits: FriendWaits { stretch, ..FriendWaits::default() },
            before: Usage::default(),
            peak: Usage::default(),
            after: Usage::default(),
            log_lines_s: 0.0,
            checks: vec![Check { what, seen: 2.0, bound: Bound::AtMost(1.0), unit: "" }],
            notes: Vec::new(),
            known: known.to_vec(),
        }
    }

    #[test]
    fn neither_a_busy_machine_nor_a_known_attack_excuses_a_loss() {
        let wait = "wait for a PUBACK";
        assert!(row(wait, 1.0, &[]).verdict() == Verdict::Fail);
        assert!(row(wait, 3.0, &[]).verdict() == Verdict::NotJudged);
        assert!(row(wait, 1.0, &[wait]).verdict() == Verdict::Known);
        for loss in [SERVER_ENDED, MESSAGES_LOST] {
            let row = row(loss, 3.0, &[loss]);
            assert!(row.verdict() == Verdict::Fail && row.has_loss());
        }
        assert!(row("filters granted", 3.0, &[wait]).verdict() == Verdict::Fail);
    }

    #[test]
    fn text_of_a_server_is_valid_json() {
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c d\"");
    }
}
