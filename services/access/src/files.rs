//! Parsers of the two files by which a single machine authenticates clients: passwords and rules.
//! People edit them, so errors name the line; the caller reads the files.

pub mod passwords;
pub mod rules;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FileError {
    pub line: usize,
    pub what: String,
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !says_nothing(line))
}

fn says_nothing(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with('#')
}
