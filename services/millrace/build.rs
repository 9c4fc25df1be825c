//! Builds two files into the program: the web console, and the commit of the source.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    // `make` builds the dependencies (src/dependencies.rs) while npm writes the console's files, so nothing is embedded.
    if std::env::var_os("CARGO_FEATURE_DEPENDENCIES").is_some() {
        println!("cargo::rerun-if-changed=build.rs");
        return Ok(());
    }
    commit();
    console()
}

fn commit() {
    println!("cargo::rerun-if-env-changed=MILLRACE_COMMIT");
    // A release is built from a tarball without git, and passes the commit itself.
    let commit = std::env::var("MILLRACE_COMMIT")
        .ok()
        .or_else(|| git(&["rev-parse", "--short=12", "HEAD"]))
        .unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=MILLRACE_COMMIT={commit}");
    // A commit or a checkout writes this file.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Writes services/console/dist/app as a table of files, empty without a built console.
fn console() -> Result<(), Box<dyn Error>> {
    let dist = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../console/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=build.rs");
    let app = dist.join("app");
    let mut files = BTreeMap::new();
    if app.exists() {
        collect(&app.canonicalize()?, "", &mut files)?;
    }
    // Copied, because the next build of the console replaces the files.
    let copies = Path::new(&std::env::var("OUT_DIR")?).join("console");
    fs::create_dir_all(&copies)?;
    for (number, file) in files.values_mut().enumerate() {
        let copy = copies.join(number.to_string());
        fs::copy(&*file, &copy)?;
        *file = copy;
    }
    let mut table = String::from("&[\n");
    for (path, file) in files.iter().filter(|(path, _)| !path.ends_with(".br")) {
        let brotli = match files.get(&format!("{path}.br")) {
            Some(file) => format!("Some(include_bytes!({file:?}))"),
            None => "None".to_owned(),
        };
        writeln!(
            table,
            "ConsoleFile {{ path: {path:?}, plain: include_bytes!({file:?}), brotli: {brotli} }},"
        )?;
    }
    table.push(']');
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("console.rs"), table)?;
    Ok(())
}

/// Files by their path on the HTTP port. The server searches the table, so the paths are sorted as
/// strings.
fn collect(folder: &Path, at: &str, files: &mut BTreeMap<String, PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{at}/{}", entry.file_name().to_str().ok_or("a name is not UTF-8")?);
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), &path, files)?,
            false => drop(files.insert(path, entry.path())),
        }
    }
    Ok(())
}
