//! The command line: which commands there are, and how a command that failed ends.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::args::ServeArgs;
use crate::{dev_certs, inspect, install, passwd, remote, serve, settings};

/// Millrace, an MQTT broker for MQTT 3.1, 3.1.1 and 5.0 over TCP and WebSocket.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, long_version = install::LONG_VERSION)]
#[command(max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker.
    #[command(after_help = SERVE_HELP)]
    Serve(Box<ServeArgs>),
    /// Add, change or delete a user of a password file.
    Passwd(passwd::PasswdArgs),
    /// Make certificates for a gateway on this machine.
    DevCerts(dev_certs::DevCertsArgs),
    /// Look into sessions, or end them; of a data folder, or of a service with --api.
    Sessions(inspect::SessionsArgs),
    /// Look into streams: what is kept for the sessions of a filter.
    Streams(inspect::StreamsArgs),
    /// Look into retained messages, or remove them; of a data folder, or of a service with --api.
    Retained(inspect::RetainedArgs),
    /// Log in to a service, for the commands that ask its API.
    Login(remote::LoginArgs),
    /// Give up the login.
    Logout(remote::LogoutArgs),
    /// Make, show, change and delete brokers of a service.
    Brokers(remote::BrokersArgs),
    /// Who may connect to a broker of a service.
    Credentials(remote::CredentialsArgs),
    /// What clients may do at a broker of a service.
    Rules(remote::RulesArgs),
    /// Connected clients of a broker of a service: list, show, disconnect, ban.
    Clients(remote::ClientsArgs),
    /// What a broker of a service has used.
    Usage(remote::UsageArgs),
    /// Where a broker of a service tells what happens.
    Webhooks(remote::WebhooksArgs),
    /// Who has done what in an organisation of a service.
    Audit(remote::AuditArgs),
    /// Copy everything that is stored into a new folder, also while the server runs.
    Backup(inspect::BackupArgs),
    /// Make a data folder of a backup.
    Restore(inspect::RestoreArgs),
    /// Check a settings file, or print one to start from.
    Config(install::ConfigArgs),
    /// Print completions for a shell.
    Completions(install::CompletionsArgs),
    /// Write a man page for each command.
    Man(install::ManArgs),
}

const SERVE_HELP: &str = "\
Every setting is also a key of the TOML file and an environment variable: --packet-size-max is
packet_size_max in the file and MILLRACE_PACKET_SIZE_MAX in the environment. A flag beats the
environment, the environment beats the file, the file beats the default. Lists are written with
commas (in the file: as an array).

Example:
  millrace serve --mqtt-listen 0.0.0.0:1883 --ws-listen off --password-file users.txt";

/// Why a command ended without doing what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line itself: help, version, an unknown flag, a value that is not allowed.
    Usage(clap::Error),
    /// A setting or a combination of settings that is not allowed; a sentence that says what to do.
    Settings(String),
    /// What was asked is allowed and did not work; a sentence that says what to do.
    Run(String),
}

impl Failure {
    /// Says it on the terminal and gives the exit code: 2 for what is wrong in the settings, 1 for what did not work.
    pub(crate) fn report(self) -> ExitCode {
        let (sentence, code) = match self {
            Self::Usage(error) => {
                // Help and version come this way too: they go to stdout and are no failure. A closed pipe is nobody
                // left to tell.
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

/// Runs the command line `args` (the first is the program's name).
pub(crate) fn run(args: Vec<OsString>) -> Result<(), Failure> {
    let matches = Cli::command().try_get_matches_from(&args)?;
    match Cli::from_arg_matches(&matches)?.command {
        Command::Passwd(args) => passwd::run(&args),
        Command::DevCerts(args) => dev_certs::run(&args),
        Command::Sessions(args) => inspect::sessions(args),
        Command::Streams(args) => inspect::streams(args),
        Command::Retained(args) => inspect::retained(args),
        Command::Login(args) => remote::login(&args),
        Command::Logout(args) => remote::logout(&args),
        Command::Brokers(args) => remote::brokers(args),
        Command::Credentials(args) => remote::credentials(args),
        Command::Rules(args) => remote::rules(args),
        Command::Clients(args) => remote::clients(args),
        Command::Usage(args) => remote::usage(&args),
        Command::Webhooks(args) => remote::webhooks(args),
        Command::Audit(args) => remote::audit(&args),
        Command::Backup(args) => inspect::backup(&args),
        Command::Restore(args) => inspect::restore(&args),
        Command::Config(args) => install::config(args),
        Command::Completions(args) => install::completions(&args),
        Command::Man(args) => install::man(&args),
        Command::Serve(_) => {
            let (settings, ignored) = settings::load(args, settings::environment())?;
            serve::run(&settings, &ignored)
        }
    }
}

/// The command line's definition of `millrace serve`: the names, defaults and descriptions of every setting.
pub(crate) fn serve_command() -> clap::Command {
    Cli::command().find_subcommand("serve").cloned().unwrap_or_default()
}

/// The serve settings of a whole command line.
pub(crate) fn serve_args(args: &[OsString]) -> Result<(ServeArgs, clap::ArgMatches), clap::Error> {
    let mut matches = Cli::command().try_get_matches_from(args)?;
    let Some((_, serve)) = matches.remove_subcommand() else {
        return Err(Cli::command().error(clap::error::ErrorKind::MissingSubcommand, "no command is given"));
    };
    Ok((ServeArgs::from_arg_matches(&serve)?, serve))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_each_setting_with_its_default() {
        let help = serve_command().render_long_help().to_string();
        for argument in serve_command().get_arguments().filter_map(|argument| argument.get_long()) {
            assert!(help.contains(&format!("--{argument}")), "{argument} is missing in the help");
        }
        assert!(help.contains("[default: 127.0.0.1:1883]"), "{help}");
    }
}
