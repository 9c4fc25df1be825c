//! The operator's secret for the keys of the region: in a file, or printed by a command, such as one of a key management
//! service (KMS).
//!
//! The same secret gives the same keys, wherever it comes from. No log line or error has it.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::limits::{SECRET_COMMAND_BYTES_MAX, SECRET_COMMAND_TIME, SECRET_KEY_CHARS_MIN};
use crate::text;

/// Bytes of a command's error output that an error shows.
const SHOWN_BYTES: usize = 500;

#[derive(Clone, Debug, Args)]
pub(super) struct SecretKeyArgs {
    /// File with a secret of at least 32 characters, kept apart from the store and its backups. The
    /// server makes a key of the region with it. Without the file, a copy of the store cannot check
    /// secrets that were hashed with that key, and cannot forge connect tokens. Set it before the
    /// first start. If you set it later, the region stops for a moment (see
    /// runbooks/rotate-keys.md), people sign in again, and API tokens and invitations must be made
    /// again. The older key then stays readable in the store: a copy of the store can check device
    /// secrets that were hashed with it until you rotate them, but cannot forge connect tokens with
    /// it. Every process on the store needs the same file; without it a server does not start
    /// [default: none].
    #[arg(long, value_name = "FILE", value_parser = secret_key)]
    secret_key_file: Option<SecretKey>,

    /// Command that prints that secret, instead of secret_key_file, such as one of a key management service (KMS): a
    /// program and its arguments, separated by spaces, without a shell. The server runs it once, at its start, and leaves
    /// out spaces and line ends around the secret. The start fails if the command fails, prints less than 32 characters,
    /// or has not ended after 30 seconds [default: none].
    #[arg(long, value_name = "COMMAND", value_parser = command_line, conflicts_with = "secret_key_file")]
    secret_key_command: Option<CommandLine>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CommandLine {
    program: String,
    arguments: Vec<String>,
}

impl SecretKeyArgs {
    /// The key that is derived from the secret; `None`: there is no secret. Runs the command.
    pub(super) fn key(&self) -> Result<Option<[u8; 32]>, String> {
        let Some(command) = &self.secret_key_command else {
            return Ok(self.secret_key_file.as_ref().map(|key| key.0));
        };
        let failed = |what: String| {
            format!(
                "secret_key_command {} {what}, so the server does not start",
                text::escape(command.program.as_bytes())
            )
        };
        let printed = command.run(SECRET_COMMAND_TIME).map_err(failed)?;
        key_of(&printed).map(Some).map_err(|what| failed(format!("must print {what}")))
    }
}

/// The key that is derived from the operator's secret.
#[derive(Clone)]
struct SecretKey([u8; 32]);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(hidden)")
    }
}

fn secret_key(path: &str) -> Result<SecretKey, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))?;
    key_of(&text).map(SecretKey).map_err(|what| format!("{path} must have {what}"))
}

/// The error says what the secret must look like.
fn key_of(text: &str) -> Result<[u8; 32], String> {
    let text = text.trim();
    if text.chars().count() < SECRET_KEY_CHARS_MIN {
        return Err(format!(
            "at least {SECRET_KEY_CHARS_MIN} characters, such as `openssl rand -base64 32` makes"
        ));
    }
    Ok(millrace_control::outside_secret(text))
}

fn command_line(text: &str) -> Result<CommandLine, String> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let program = words.next().ok_or("a program and its arguments, separated by spaces, are allowed")?;
    Ok(CommandLine { program, arguments: words.collect() })
}

/// The end of a command.
struct CommandOutput {
    status: ExitStatus,
    printed: Vec<u8>,
    errors: Vec<u8>,
}

impl CommandLine {
    /// Returns what the command prints. After `time_max` it ends the command and the programs that it has started.
    fn run(&self, time_max: Duration) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that all its programs can be ended together.
        let mut child =
            command.process_group(0).spawn().map_err(|error| format!("cannot be run: {error}"))?;
        let group = Pid::from_child(&child);
        let (printed, errors) = (child.stdout.take(), child.stderr.take());
        let (send, receive) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let errors = thread::spawn(move || head_of(errors));
            let ended = head_of(printed).and_then(|printed| {
                let errors = errors.join().unwrap_or_else(|_| Ok(Vec::new()))?;
                Ok(CommandOutput { status: child.wait()?, printed, errors })
            });
            let _the_time_may_be_over = send.send(ended);
        });
        let Ok(ended) = receive.recv_timeout(time_max) else {
            let _the_group_may_have_ended = kill_process_group(group, Signal::KILL);
            return Err(format!("has not ended after {} s", time_max.as_secs_f32()));
        };
        let CommandOutput { status, printed, errors } =
            ended.map_err(|error| format!("cannot be read: {error}"))?;
        if !status.success() {
            let errors = text::head(errors.trim_ascii(), SHOWN_BYTES);
            let said = if errors.is_empty() { "it does not say why".into() } else { errors };
            return Err(format!("has failed ({status}: {said})"));
        }
        String::from_utf8(printed).map_err(|_| "must print text, such as Base64".into())
    }
}

/// The beginning of an output. The rest is not read, so a command that prints without end fails.
fn head_of(output: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(SECRET_COMMAND_BYTES_MAX).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: &str = "a secret of more than thirty-two characters";

    /// A KMS: a script that does what `does` says.
    fn kms(does: &str, time_max: Duration) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("kms");
        std::fs::write(&script, does).unwrap();
        let command = command_line(&format!("sh {}", script.display())).unwrap();
        command.run(time_max)
    }

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_secret_key_is_long_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let (one, same) = (file("one", LONG), file("same", &format!("{LONG}\n")));
        assert_eq!(secret_key(&one).unwrap().0, secret_key(&same).unwrap().0);
        assert_eq!(format!("{:?}", secret_key(&one).unwrap()), "(hidden)");
        assert!(secret_key(&file("short", "short")).unwrap_err().contains("at least 32"));
        assert!(secret_key("/nowhere/key").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn what_a_command_prints_is_the_secret_that_a_file_would_have() {
        let printed = kms(&format!("echo; echo '  {LONG}'"), SOON).unwrap();
        assert_eq!(key_of(&printed), key_of(LONG));
        let args = |command: &str| SecretKeyArgs {
            secret_key_file: None,
            secret_key_command: Some(command_line(command).unwrap()),
        };
        assert_eq!(
            args("echo 0123456789abcdef 0123456789abcdef").key().unwrap(),
            key_of("0123456789abcdef 0123456789abcdef").ok()
        );
        let short = args("echo short-secret").key().unwrap_err();
        assert!(short.contains("echo must print at least 32") && !short.contains("short-secret"), "{short}");
        assert!(command_line("  ").is_err());
    }

    #[test]
    fn a_command_that_fails_says_why_and_never_what_it_has_printed() {
        for (does, why) in [
            (
                "echo printed; echo 'AccessDenied \\033[2J' >&2; exit 3",
                "exit status: 3: AccessDenied \\x1b[2J",
            ),
            ("echo printed; exit 1", "it does not say why"),
            ("kill -9 $$", "signal: 9"),
            ("printf '\\377\\376'", "must print text"),
            // It gets no reader for the rest.
            ("yes printed", "has failed"),
        ] {
            let error = kms(does, SOON).unwrap_err();
            assert!(error.contains(why) && !error.contains("printed"), "{does}: {error}");
        }
        let missing = command_line("/nowhere/kms decrypt").unwrap().run(SOON).unwrap_err();
        assert!(missing.contains("cannot be run"), "{missing}");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "nothing announces that the inner program has ended")]
    fn a_command_that_does_not_end_is_ended_with_what_it_has_started() {
        let folder = tempfile::tempdir().unwrap();
        let alive = folder.path().join("alive");
        // The inner program holds the output open after the outer one has ended.
        let does = format!("(while :; do touch {0}; sleep 0.05; done) & exit 0", alive.display());
        let begun = Instant::now();
        let error = kms(&does, Duration::from_millis(500)).unwrap_err();
        assert!(error.contains("has not ended after 0.5 s"), "{error}");
        assert!(begun.elapsed() < SOON);
        // A touch that was under way may come after the removal, so that of a later round counts.
        let is_over = (0..100).any(|_| {
            let _ = std::fs::remove_file(&alive);
            thread::sleep(Duration::from_millis(200));
            !alive.exists()
        });
        assert!(is_over, "the inner program still runs");
    }
}
