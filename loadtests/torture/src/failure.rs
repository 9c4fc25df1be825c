//! A failed run, as a sentence for the person at the terminal.

use std::fmt;

#[derive(Debug)]
pub(crate) enum Failure {
    Stopped(String),
    /// The run says neither that the server kept its promises nor that it broke one.
    NoVerdict(String),
}

pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self::Stopped(what.into())
    }

    pub(crate) fn no_verdict(what: impl Into<String>) -> Self {
        Self::NoVerdict(what.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Stopped(what) | Self::NoVerdict(what)) = self;
        f.write_str(what)
    }
}

impl std::error::Error for Failure {}

pub(crate) trait While<T> {
    fn during(self, what: &str) -> Outcome<T>;
}

impl<T, E: fmt::Display> While<T> for Result<T, E> {
    fn during(self, what: &str) -> Outcome<T> {
        self.map_err(|cause| Failure::Stopped(format!("{what}: {cause}")))
    }
}
