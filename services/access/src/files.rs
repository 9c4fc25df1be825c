//! Parsers of the password file and the rules file of a single machine, which people edit. Nothing
//! here opens a file.

pub mod passwords;
pub mod rules;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FileError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !says_nothing(line))
}

fn says_nothing(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}
