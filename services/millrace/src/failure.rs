//! How a command fails: a sentence for people, and an exit code.

use std::io::Write;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong, or asks for help or the version.
    Usage(clap::Error),
    /// A setting is wrong; the text says what to do.
    Settings(String),
    /// The command failed; the text says what to do.
    Run(String),
}

impl Failure {
    /// Exit code 2 means wrong settings, 1 a failure.
    pub(crate) fn report(self) -> ExitCode {
        let (sentence, code) = match self {
            Self::Usage(error) => {
                // Help and version come here as errors, too: clap prints them to stdout, and they
                // are no failure.
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
