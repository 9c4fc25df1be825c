//! Reads input from the terminal or standard input: secrets, and settings in JSON.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use serde_json::Value;

use crate::failure::Failure;
use crate::limits::{API_ANSWER_BYTES_MAX, SECRET_BYTES_MAX};

/// Without echo on a terminal, otherwise one line of standard input.
pub(super) fn secret(prompt: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("{prompt}: the input cannot be read: {error}"));
    let secret = if std::io::stdin().is_terminal() {
        rpassword::prompt_password(format!("{prompt}: ")).map_err(failed)?
    } else {
        line().map_err(failed)?
    };
    match secret.is_empty() {
        true => Err(Failure::Settings(format!(
            "{prompt}: nothing was given: type it at the terminal, or pass it as one line on standard input"
        ))),
        false => Ok(secret),
    }
}

/// Asks at the terminal; without one the error names the `option` to use instead.
pub(super) fn answer(question: &str, option: &str) -> Result<String, Failure> {
    let failed =
        |error: std::io::Error| Failure::Run(format!("{question}: the input cannot be read: {error}"));
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Settings(format!("{question}: standard input is not a terminal: use {option}")));
    }
    let mut aside = std::io::stderr();
    write!(aside, "{question}: ").and_then(|()| aside.flush()).map_err(failed)?;
    line().map_err(failed)
}

pub(super) fn json() -> Result<Value, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().take(API_ANSWER_BYTES_MAX as u64).read_to_string(&mut text);
    read.map_err(|error| Failure::Run(format!("standard input cannot be read: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Settings(format!("standard input must have the settings in JSON: {error}")))
}

fn line() -> std::io::Result<String> {
    let mut line = String::new();
    std::io::stdin().lock().take(SECRET_BYTES_MAX).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
