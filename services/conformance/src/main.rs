//! Checks the citations of MQTT statements in the sources against the standards' lists of
//! statements.
//!
//! For each version it reports which statements are proven, implemented, excepted and missing. In
//! the code around a citation it only looks whether it is a test.

mod citations;
mod report;
mod rust;
mod standards;
mod walk;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: millrace-conformance [--root DIR] [--list] [--missing] [--check]

Reads the citations `//= [MQTT-3.1.2-3] v5 v3.1.1` (`#=` in Python and shell) of all sources under DIR (default: the
current folder) and counts the statements of MQTT 5.0 and 3.1.1. A citation in a test proves its statements.
Unknown ids and citations that cannot be read end with exit code 1.

  --list     every statement with its state and where it is cited
  --missing  the statements that bind a server and are neither proven nor excepted
  --check    exit code 1 when there are such statements
";

struct Options {
    root: PathBuf,
    list: bool,
    missing: bool,
    check: bool,
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { root: ".".into(), list: false, missing: false, check: false };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => options.list = true,
            "--missing" => options.missing = true,
            "--check" => options.check = true,
            "--root" => options.root = args.next().ok_or("--root needs a folder")?.into(),
            _ => return Err(format!("unknown argument {arg}\n\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Returns the text to print, and whether every check passed.
fn run(options: &Options) -> Result<(String, bool), String> {
    let standards = standards::all()?;
    let files =
        walk::sources(&options.root).map_err(|error| format!("{}: {error}", options.root.display()))?;
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.strip_prefix(&options.root).unwrap_or(&path);
        match citations::of(name, &text, &standards) {
            Ok(citations) => found.extend(citations),
            Err(wrong) => errors.extend(wrong),
        }
    }
    if !errors.is_empty() {
        return Err(errors.join("\n"));
    }
    let mut text = String::new();
    let mut complete = true;
    for standard in &standards {
        let report = report::Report::of(standard, &found);
        text += &report.summary();
        complete &= report.is_complete();
        if options.list {
            text += &report.list();
        }
        if options.missing {
            text += &report.missing();
        }
    }
    Ok((text, complete || !options.check))
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        let _ = std::io::stdout().write_all(USAGE.as_bytes());
        return ExitCode::SUCCESS;
    }
    match options(args.into_iter()).and_then(|options| run(&options)) {
        Ok((text, well)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(sentences) => {
            let _ = writeln!(std::io::stderr(), "{sentences}");
            ExitCode::FAILURE
        }
    }
}
