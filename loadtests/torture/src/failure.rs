//! What stops a run: a sentence for the person at the terminal.

use std::fmt;

/// A run that cannot go on, and why.
#[derive(Debug)]
pub(crate) struct Failure(String);

/// What every fallible step returns.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Says what was being done when the system refused.
pub(crate) trait While<T> {
    fn during(self, what: &str) -> Outcome<T>;
}

impl<T, E: fmt::Display> While<T> for Result<T, E> {
    fn during(self, what: &str) -> Outcome<T> {
        self.map_err(|cause| Failure(format!("{what}: {cause}")))
    }
}
