//! Asks before a permanent removal.

use std::io::{BufRead, IsTerminal, Write};

use crate::failure::Failure;

/// Fails when nobody can answer a question; called before anything is looked up.
pub(crate) fn may_ask(yes: bool) -> Result<(), Failure> {
    if yes || std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::Run(
        "this command asks before it changes anything, and standard input is not a terminal: add --yes if you are sure; nothing was changed"
            .into(),
    ))
}

pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    ask(question, &mut std::io::stdin().lock(), &mut std::io::stderr())
}

fn ask(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Run(format!("the answer cannot be read: {error}"));
    write!(output, "{question} [y/N] ").and_then(|()| output.flush()).map_err(failed)?;
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(failed)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Run("nothing was changed".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, is_yes) in
            [("y\n", true), ("Yes\n", true), ("y", true), ("\n", false), ("", false), ("no\n", false)]
        {
            let mut output = Vec::new();
            let result = ask("Remove it?", &mut answer.as_bytes(), &mut output);
            assert_eq!(result.is_ok(), is_yes, "{answer:?}");
            assert_eq!(output, b"Remove it? [y/N] ");
        }
    }
}
