//! The password file and the rules file of a single machine: text that people edit.
//!
//! Nothing here opens a file.

pub mod passwords;
pub mod rules;

/// What is wrong with a line of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FileError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub what: String,
}

/// The lines that say something, with their numbers: neither blank nor a comment.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !says_nothing(line))
}

fn says_nothing(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}
