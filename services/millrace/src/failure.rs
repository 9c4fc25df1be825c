//! The failure of a command: its sentence and its exit code.

use std::io::Write;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong command line, help or version.
    Usage(clap::Error),
    /// Wrong settings; the text says what to do.
    Settings(String),
    /// A command that failed; the text says what to do.
    Run(String),
}

impl Failure {
    /// Exit code 2 means wrong settings, 1 a failure.
    pub(crate) fn report(self) -> ExitCode {
        let (sentence, code) = match self {
            Self::Usage(error) => {
                // Help and version arrive here, too: they go to stdout and are no failure.
                let _ = error.print();
                return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
            }
            Self::Settings(sentence) => (sentence, 2),
            Self::Run(sentence) => (sentence, 1),
        };
        let _ = writeln!(std::io::stderr(), "millrace: {sentence}");
        ExitCode::from(code)
    }
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}
