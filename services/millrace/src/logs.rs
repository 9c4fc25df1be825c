//! Writes log lines to standard error, and sends them to the collector if there is one.

use std::io::IsTerminal;

use clap::ValueEnum;
use millrace_telemetry::LogLayer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Checks the setting of log levels: a level, or levels per part of the program.
pub(crate) fn filter(text: &str) -> Result<String, String> {
    // `EnvFilter` takes a bare name for a module, but it is most likely a misspelt level.
    let levels = ["error", "warn", "info", "debug", "trace", "off"];
    let known = |word: &str| levels.contains(&word);
    let fits = text
        .split(',')
        .all(|part| part.rsplit_once('=').map_or_else(|| known(part), |(_, level)| known(level)));
    if fits && EnvFilter::try_new(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err(format!("{} is allowed, or per part such as \"warn,millrace_edge=debug\"", levels.join(", ")))
}

pub(crate) fn start(level: &str, format: LogFormat, collector: Option<LogLayer>) {
    let lines = fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_writer(std::io::stderr)
        // Otherwise a closed standard error would end the broker with a panic.
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_target(true).boxed(),
    };
    tracing_subscriber::registry().with(EnvFilter::new(level)).with(lines).with(collector).init();
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn levels_and_filters_per_part_are_accepted() {
        for text in [
            "off",
            "info",
            "trace",
            "warn,millrace_edge=debug",
            "millrace=info,millrace_edge=trace",
            "info,millrace::connections=debug",
        ] {
            assert!(filter(text).is_ok(), "{text}");
        }
        for text in ["", "loud", "info,edge", "edge=loud", "INFO!"] {
            assert!(filter(text).is_err(), "{text}");
        }
    }
}
