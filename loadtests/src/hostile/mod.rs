//! Attacks a server with hostile clients. Each attack runs against a server of its own, while
//! friendly clients of the attacked broker and of another broker measure how long they wait. An
//! attack must leave no memory or open files behind.
//!
//! `attacks` lists the attacks, `run` runs one, `report` prints the results. Attacks must not know
//! the server's inside, only MQTT and sockets.

mod attacks;
mod client;
mod friends;
mod http;
mod packets;
mod report;
mod ring;
mod run;
mod server;
mod soak;
mod traffic;
mod verdict;

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Outcome};
use attacks::Attack;
use report::{Row, Verdict};

/// Attacks that the server does not withstand yet, each with a check that it breaks. They are shown, and do not fail the run.
const KNOWN: &str = include_str!("known.txt");

/// Attempts of an attack in the short version, because other work on a CI machine can make friendly
/// clients wait, too. A server without budgets fails every attempt, and a loss is never repeated.
const SHORT_ATTEMPTS: usize = 3;

fn known_checks(attack: &str) -> Vec<&'static str> {
    let lines = KNOWN.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(name, _)| *name == attack).map(|(_, check)| check).collect()
}

#[derive(Args)]
pub(crate) struct Hostile {
    /// Attacks by name, separated by commas [default: all].
    #[arg(long, value_delimiter = ',')]
    attack: Vec<String>,
    /// Lists the attacks and ends.
    #[arg(long)]
    list: bool,
    /// The version for CI: some of the attacks, with smaller numbers and looser limits.
    #[arg(long)]
    short: bool,
    /// Attacks that fail and are in the list of known ones fail the run, too.
    #[arg(long)]
    strict: bool,
    /// Run random attacks at once for this number of minutes, instead of one after the other.
    #[arg(long, conflicts_with_all = ["list", "short"])]
    soak_minutes: Option<f64>,
    /// Repeats the choices of --soak-minutes.
    #[arg(long, requires = "soak_minutes")]
    seed: Option<u64>,
    /// Prints JSON, one object a line, before the table.
    #[arg(long)]
    json: bool,
    /// The program of the server.
    #[arg(long, default_value = "target/release/millrace")]
    millrace_bin: PathBuf,
    /// More arguments of `millrace serve`, such as --millrace-arg=--threads=2.
    #[arg(long, allow_hyphen_values = true)]
    millrace_arg: Vec<String>,
}

impl Hostile {
    /// # Errors
    /// An attack could not be run, or exceeded its limits.
    pub(crate) fn run(&self) -> Outcome<()> {
        if self.list {
            attacks::all()
                .for_each(|attack| println!("{:24} {:8} {}", attack.name, attack.by.name(), attack.what));
            return Ok(());
        }
        if let Some(minutes) = self.soak_minutes {
            let by_chance = || u64::from(std::process::id()) << 20 | crate::clock::now_ns() & 0xF_FFFF;
            let seed = self.seed.unwrap_or_else(by_chance);
            return soak::run(&self.millrace_bin, &self.millrace_arg, &self.chosen()?, minutes, seed);
        }
        let chosen = self.chosen()?;
        let (mut rows, mut not_made) = (Vec::new(), Vec::new());
        for attack in chosen {
            let Some(row) = self.attempts(attack) else {
                not_made.push(attack.name);
                continue;
            };
            if self.json {
                println!("{}", row.json());
            }
            eprintln!("{}", row.line());
            rows.push(row);
        }
        println!("{}", report::table(&rows));
        if !not_made.is_empty() {
            return Err(Failure::new(format!("these attacks could not be made: {}", not_made.join(", "))));
        }
        self.judge(&rows)
    }

    /// Repeats an attack of the short version until the server withstands it, at most
    /// `SHORT_ATTEMPTS` times. Returns `None` when the attack could not be run.
    fn attempts(&self, attack: &'static Attack) -> Option<Row> {
        let known = known_checks(attack.name);
        let most = if self.short && known.is_empty() { SHORT_ATTEMPTS } else { 1 };
        let mut last = None;
        for attempt in 1..=most {
            match run::attack(attack, &self.millrace_bin, &self.millrace_arg, self.short) {
                Ok(row) => {
                    let row = last.insert(Row { known: known.clone(), ..row });
                    if row.verdict() == Verdict::Pass || row.has_loss() {
                        break;
                    }
                    if attempt < most {
                        eprintln!("FLAKY: attack {} was not withstood: {}", attack.name, row.line());
                    }
                }
                Err(why) => eprintln!("FLAKY: attack {} could not be made: {why}", attack.name),
            }
        }
        last
    }

    fn chosen(&self) -> Outcome<Vec<&'static Attack>> {
        if self.attack.is_empty() {
            let is_chosen = |attack: &&Attack| match self.soak_minutes {
                Some(_) => attack.is_for_soak,
                None => attack.is_short || !self.short,
            };
            return Ok(attacks::all().filter(is_chosen).collect());
        }
        let find = |name: &String| {
            let found = attacks::all().find(|attack| attack.name == name);
            found.ok_or_else(|| Failure::new(format!("there is no attack {name}: see --list")))
        };
        self.attack.iter().map(find).collect()
    }

    fn judge(&self, rows: &[Row]) -> Outcome<()> {
        let names = |of: &dyn Fn(&&Row) -> bool| {
            rows.iter().filter(of).map(|row| row.name).collect::<Vec<_>>().join(", ")
        };
        let with = |verdict| names(&|row: &&Row| row.verdict() == verdict);
        let mended = names(&|row| !row.known.is_empty() && row.holds());
        // Only a full run shows that a known attack is mended, because the short version is weaker.
        if !self.short && !mended.is_empty() {
            println!(
                "Withstood although listed in loadtests/src/hostile/known.txt (remove them there): {mended}"
            );
        }
        let (known, not_judged) = (with(Verdict::Known), with(Verdict::NotJudged));
        if !known.is_empty() {
            println!("KNOWN, not withstood yet: {known}");
        }
        if !not_judged.is_empty() {
            println!("NOT JUDGED, because this machine is too busy: {not_judged}");
        }
        let fails = |verdict| match verdict {
            Verdict::Pass => false,
            Verdict::Fail => true,
            Verdict::Known | Verdict::NotJudged => self.strict,
        };
        let failed = names(&|row| fails(row.verdict()));
        if failed.is_empty() { Ok(()) } else { Err(Failure::new(format!("not withstood: {failed}"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_attacks_exist_and_name_a_check() {
        for line in KNOWN.lines().filter(|line| !line.starts_with('#')) {
            let (name, check) = line.split_once(": ").expect("attack and check");
            assert!(attacks::all().any(|attack| attack.name == name) && !check.is_empty(), "{line}");
            assert_eq!(known_checks(name), [check]);
        }
    }
}
