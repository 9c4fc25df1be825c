//! Gives the program the commit that it is built from, for `millrace --version`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MILLRACE_COMMIT");
    // A release is built from a tarball without git, and says the commit itself.
    let commit = std::env::var("MILLRACE_COMMIT")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=MILLRACE_COMMIT={commit}");
    // A commit or a checkout writes this file.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && std::path::Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    } else {
        println!("cargo::rerun-if-changed=build.rs");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
