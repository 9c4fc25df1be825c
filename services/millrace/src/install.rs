//! Prints the files that a package installs beside the program (completions, man pages, an example
//! settings file), and the version. Everything comes from the definition of the command line, so it
//! cannot be outdated.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command, Subcommand};
use clap_complete::{Shell, generate};

use crate::args::serve_command;
use crate::failure::Failure;
use crate::named_files;
use crate::settings::{self, Settings};

#[cfg(feature = "foundationdb")]
pub(crate) const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), "\ncommit: ", env!("MILLRACE_COMMIT"), "\nfeatures: foundationdb");
#[cfg(not(feature = "foundationdb"))]
pub(crate) const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), "\ncommit: ", env!("MILLRACE_COMMIT"), "\nfeatures: none");

/// Print completions for a shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Write a man page for each command.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, created when it is missing.
    folder: PathBuf,
}

/// Check a settings file, or print one to start from.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Say whether `millrace serve` would accept a settings file, with the environment as it is.
    Check {
        /// The TOML file; without it, that of MILLRACE_CONFIG.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print a settings file with every setting, its default and its description.
    Example,
}

/// `program` is the whole command line.
pub(crate) fn completions(args: &CompletionsArgs, mut program: Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(args.shell, &mut program, "millrace", &mut text);
    print(&text)
}

pub(crate) fn man(args: &ManArgs, program: Command) -> Result<(), Failure> {
    let command = program.disable_help_subcommand(true);
    fs::create_dir_all(&args.folder)
        .and_then(|()| clap_mangen::generate_to(command, &args.folder))
        .map_err(|error| Failure::Run(format!("{} cannot be written to: {error}", args.folder.display())))
}

pub(crate) fn config(args: ConfigArgs) -> Result<(), Failure> {
    match args.command {
        ConfigCommand::Example => print(example().as_bytes()),
        ConfigCommand::Check { config } => {
            let (settings, ignored) = check(config, settings::environment())?;
            let mut text = String::new();
            for name in ignored {
                text += &format!("{name} in the environment is not a setting, and is ignored\n");
            }
            text.extend(settings.exposed_files.iter().map(|exposed| format!("{exposed}\n")));
            print((text + "the settings are allowed\n").as_bytes())
        }
    }
}

/// Checks the settings and the files that they name. Also returns variables that are no setting.
fn check(
    config: Option<PathBuf>,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(Settings, Vec<String>), Failure> {
    let mut line: Vec<OsString> = vec!["millrace".into(), "serve".into()];
    line.extend(config.into_iter().flat_map(|path| ["--config".into(), path.into_os_string()]));
    let (settings, ignored) = settings::load(line, environment)?;
    named_files::check(&settings)?;
    Ok((settings, ignored))
}

/// A failed write to a closed pipe is ignored.
fn print(text: &[u8]) -> Result<(), Failure> {
    let _ = std::io::stdout().write_all(text);
    Ok(())
}

fn example() -> String {
    let mut text = String::from(
        "# Settings of `millrace serve`. Each line that begins with \"#name =\" shows a default: to change it, remove the \"#\".\n\
         # Check the file with: millrace config check --config FILE\n",
    );
    for argument in serve_command().get_arguments() {
        let name = argument.get_id().as_str();
        if matches!(name, "config" | "help" | "version") {
            continue;
        }
        text += "\n";
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        for line in wrapped(&help, 98) {
            text += &format!("# {line}\n");
        }
        let defaults: Vec<_> =
            argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let is_list = argument.get_value_delimiter().is_some();
        let value = match (defaults.as_slice(), is_list) {
            ([], _) => {
                let kind = argument.get_value_names().unwrap_or_default().join(" ").to_lowercase();
                text += &format!("#{name} = ({kind}; not set)\n");
                continue;
            }
            (values, true) => {
                let parts = values.iter().flat_map(|value| value.split(','));
                format!("[{}]", parts.map(quoted).collect::<Vec<_>>().join(", "))
            }
            (values, false) => plain(&values[0]),
        };
        text += &format!("#{name} = {value}\n");
    }
    text
}

fn plain(value: &str) -> String {
    if value.parse::<i64>().is_ok() || matches!(value, "true" | "false") {
        value.to_owned()
    } else {
        quoted(value)
    }
}

fn quoted(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + word.len() >= columns {
            lines.push(word.to_owned());
            continue;
        }
        let space = if lines[last].is_empty() { "" } else { " " };
        lines[last] += &format!("{space}{word}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_example_has_each_setting_once_and_its_defaults_are_accepted() {
        let example = example();
        let names: Vec<_> = serve_command()
            .get_arguments()
            .map(|argument| argument.get_id().to_string())
            .filter(|name| !matches!(name.as_str(), "config" | "help" | "version"))
            .collect();
        for name in &names {
            assert_eq!(example.matches(&format!("\n#{name} = ")).count(), 1, "{name}");
        }
        let set = example
            .lines()
            .filter(|line| line.starts_with('#') && !line.starts_with("# ") && !line.ends_with("not set)"));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), set.map(|line| format!("{}\n", &line[1..])).collect::<String>()).unwrap();
        let line = vec!["millrace".into(), "serve".into(), "--config".into(), file.path().into()];
        let (settings, ignored) = settings::load(line, std::iter::empty()).unwrap();
        assert!(ignored.is_empty());
        assert_eq!(settings.pods, 1);
    }

    /// The error of `config check` for lines of a settings file, in which `{}` is a folder.
    fn refusal(folder: &std::path::Path, lines: &str) -> Option<String> {
        let file = folder.join("millrace.toml");
        fs::write(&file, lines.replace("{}", folder.to_str().unwrap())).unwrap();
        match check(Some(file), std::iter::empty()) {
            Ok(_) => None,
            Err(Failure::Settings(said)) => Some(said),
            Err(other) => panic!("{lines}: {other:?}"),
        }
    }

    #[test]
    fn a_check_refuses_files_that_are_missing_or_wrong() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let cut = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        for (name, text) in [
            ("tls.crt", cut.cert.pem()),
            ("tls.key", cut.signing_key.serialize_pem()),
            ("other.key", other.signing_key.serialize_pem()),
            ("users", "# nobody\n".into()),
            ("rules", "allow subscribe $anonymous public/#\n".into()),
            ("text", "no such thing".into()),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let pair = "tls_cert = \"{}/tls.crt\"\ntls_key = \"{}/tls.key\"\n";
        let nats = "pods = 2\nnats = \"nats://127.0.0.1:4222\"\n";
        let users = "password_file = \"{}/users\"\nrules_file = \"{}/rules\"\n";
        let off = "tls_dir = \"{}/none\"\nmqtts_listen = \"off\"\nwss_listen = \"off\"\n";
        for right in ["", pair, "tls_dir = \"{}\"", off, users, nats] {
            assert_eq!(refusal(folder, right), None, "{right}");
        }
        for (lines, file) in [
            ("password_file = \"{}/none\"".to_owned(), "none"),
            ("password_file = \"{}\"".to_owned(), "password file"),
            ("password_file = \"{}/text\"".to_owned(), "text"),
            ("rules_file = \"{}/none\"".to_owned(), "none"),
            ("rules_file = \"{}/text\"".to_owned(), "text"),
            ("tls_dir = \"{}/none\"".to_owned(), "none/tls.crt"),
            ("tls_cert = \"{}/none\"\ntls_key = \"{}/tls.key\"".to_owned(), "none"),
            ("tls_cert = \"{}/tls.crt\"\ntls_key = \"{}/none\"".to_owned(), "none"),
            ("tls_cert = \"{}/tls.crt\"\ntls_key = \"{}/other.key\"".to_owned(), "other.key"),
            (format!("{pair}tls_client_ca = \"{{}}/none\""), "none"),
            (format!("{pair}tls_client_ca = \"{{}}/text\""), "text"),
            (format!("{nats}nats_tls_ca = \"{{}}/none\""), "none"),
            (format!("{nats}nats_nkey = \"{{}}/none\""), "none"),
            (format!("{nats}nats_creds = \"{{}}/none\""), "none"),
        ] {
            let said = refusal(folder, &lines).unwrap_or_else(|| panic!("allowed: {lines}"));
            assert!(said.contains(file), "{lines}: {said}");
        }
    }

    #[test]
    fn completions_and_pages_know_each_command() {
        let mut text = Vec::new();
        generate(Shell::Bash, &mut Cli::command(), "millrace", &mut text);
        let folder = tempfile::tempdir().unwrap();
        man(&ManArgs { folder: folder.path().into() }, Cli::command()).unwrap();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(String::from_utf8_lossy(&text).contains(name), "{name} has no completion");
            assert!(folder.path().join(format!("millrace-{name}.1")).exists(), "{name} has no page");
        }
    }

    #[test]
    fn the_version_names_the_commit() {
        let version = Cli::command().render_long_version();
        assert!(version.contains("\ncommit: ") && version.contains("\nfeatures: "), "{version}");
    }
}
