//! Sends the control plane's e-mails by SMTP: its settings, and one thread with a bounded queue.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use lettre::address::Envelope;
use lettre::message::{Mailbox, header::ContentType};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{Address, Message, SmtpTransport, Transport as _};
use millrace_control::{MailMessage, Mailer, Secret};
use tracing::{info, warn};

use crate::limits::{QUEUED_MAILS_MAX, SMTP_TIMEOUT};

#[derive(Clone, Debug, Args)]
pub(super) struct SmtpArgs {
    /// SMTP: host of the server that sends mail to people. With it, people confirm their e-mail
    /// address by a mailed link when they sign up, reset a forgotten password by a mailed link, and
    /// get invitations by mail. It needs public_url and smtp_from [default: no mail is sent].
    #[arg(long, value_name = "HOST")]
    smtp_host: Option<String>,

    /// SMTP: port of smtp_host [default: 587 with starttls, 465 with tls, 25 with off].
    #[arg(long, value_name = "PORT")]
    smtp_port: Option<u16>,

    /// SMTP: encryption of the connection. With off, the network can read the mailed links.
    #[arg(long, value_name = "HOW", default_value = "starttls")]
    smtp_tls: SmtpTls,

    /// SMTP: user name, with smtp_password_file [default: none].
    #[arg(long, value_name = "NAME")]
    smtp_user: Option<String>,

    /// SMTP: file with the password of smtp_user.
    #[arg(long, value_name = "FILE")]
    smtp_password_file: Option<PathBuf>,

    /// SMTP: sender of the mail, such as "Millrace <millrace@example.org>".
    #[arg(long, value_name = "ADDRESS")]
    smtp_from: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SmtpTls {
    /// From the first byte on.
    Tls,
    /// After the command STARTTLS; without it no mail is sent.
    Starttls,
    /// None.
    Off,
}

#[derive(Clone, Debug)]
pub(crate) struct SmtpSettings {
    host: String,
    port: Option<u16>,
    tls: SmtpTls,
    login: Option<(String, Secret)>,
    from: Mailbox,
    pub(crate) public_url: String,
}

impl SmtpArgs {
    /// `None` when no mail server is set.
    pub(super) fn settings(&self, public_url: Option<&str>) -> Result<Option<SmtpSettings>, String> {
        let Some(host) = self.smtp_host.clone() else {
            return match (&self.smtp_user, &self.smtp_password_file, &self.smtp_from, self.smtp_port) {
                (None, None, None, None) => Ok(None),
                _ => Err("smtp_host is not set, and other smtp settings are: set it, or none of them".into()),
            };
        };
        let public_url =
            public_url.ok_or("smtp_host is set and public_url is not: links in mails lead there")?;
        let from =
            self.smtp_from.as_deref().ok_or("smtp_host is set and smtp_from is not: mails need a sender")?;
        let from =
            from.parse().map_err(|error| format!("smtp_from = \"{from}\" is not an address: {error}"))?;
        let login = match (&self.smtp_user, &self.smtp_password_file) {
            (None, None) => None,
            (Some(user), Some(file)) => {
                let password = std::fs::read_to_string(file).map_err(|error| {
                    format!("smtp_password_file {} cannot be read: {error}", file.display())
                })?;
                Some((user.clone(), password.trim_end_matches(['\r', '\n']).into()))
            }
            _ => return Err("smtp_user and smtp_password_file go together: set both, or neither".into()),
        };
        let public_url = public_url.to_owned();
        Ok(Some(SmtpSettings { host, port: self.smtp_port, tls: self.smtp_tls, login, from, public_url }))
    }
}

pub(crate) struct Smtp(SyncSender<MailMessage>);

impl Smtp {
    /// Starts the thread, which ends when this is dropped.
    pub(crate) fn start(settings: &SmtpSettings) -> Result<Self, String> {
        let transport = transport(settings)?;
        let from = settings.from.clone();
        let (sender, emails) = sync_channel(QUEUED_MAILS_MAX);
        let thread = std::thread::Builder::new().name("smtp".into());
        thread.spawn(move || send_all(&transport, &from, &emails)).map_err(|error| error.to_string())?;
        Ok(Self(sender))
    }
}

impl Mailer for Smtp {
    fn send(&self, email: MailMessage) {
        if let Err(TrySendError::Full(_)) = self.0.try_send(email) {
            warn!(
                waiting = QUEUED_MAILS_MAX,
                "an e-mail is dropped because the mail server accepts too few: check the mail server at smtp_host"
            );
        }
    }
}

fn transport(settings: &SmtpSettings) -> Result<SmtpTransport, String> {
    let SmtpSettings { host, port, tls, login, .. } = settings;
    let parameters = || {
        TlsParameters::new(host.clone())
            .map_err(|error| format!("TLS cannot be used with smtp_host ({error}): check its name"))
    };
    let (tls, default_port) = match tls {
        SmtpTls::Tls => (Tls::Wrapper(parameters()?), 465),
        SmtpTls::Starttls => (Tls::Required(parameters()?), 587),
        SmtpTls::Off => (Tls::None, 25),
    };
    let builder = SmtpTransport::builder_dangerous(host).port(port.unwrap_or(default_port)).tls(tls);
    let builder = builder.timeout(Some(SMTP_TIMEOUT));
    Ok(match login {
        Some((user, password)) => {
            builder.credentials(Credentials::new(user.clone(), password.expose().to_owned())).build()
        }
        None => builder.build(),
    })
}

/// An e-mail that the mail server has not taken yet.
struct Delayed {
    email: MailMessage,
    at: Instant,
    failed: usize,
}

/// Sends e-mails in the order in which they come. An e-mail that the mail server defers is sent again later, and does not delay the
/// others.
#[allow(clippy::disallowed_methods, reason = "the thread has no clock but the system's")]
fn send_all(transport: &SmtpTransport, from: &Mailbox, emails: &Receiver<MailMessage>) {
    let mut delayed: Vec<Delayed> = Vec::new();
    loop {
        let next = delayed.iter().enumerate().min_by_key(|(_, delayed)| delayed.at);
        let next = next.map(|(place, delayed)| (place, delayed.at.saturating_duration_since(Instant::now())));
        let received = match next {
            Some((_, wait)) => emails.recv_timeout(wait),
            None => emails.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let (email, failed) = match (received, next) {
            (Ok(email), _) => (email, 0),
            (Err(RecvTimeoutError::Timeout), Some((place, _))) => {
                let due = delayed.swap_remove(place);
                (due.email, due.failed)
            }
            (Err(_), _) => return,
        };
        let subject = email.subject;
        // The address is a person's and the text holds a secret, so neither is logged.
        match send(transport, from, &email) {
            Ok(()) => info!(subject, "an e-mail was sent"),
            Err(Unsent { error, is_permanent }) => match RETRY_AFTER.get(failed) {
                Some(wait) if !is_permanent && delayed.len() < QUEUED_MAILS_MAX => {
                    delayed.push(Delayed { email, at: Instant::now() + *wait, failed: failed + 1 });
                }
                _ => warn!(
                    error,
                    subject,
                    "an e-mail was not sent, and is dropped: check the smtp settings and the mail server's log"
                ),
            },
        }
    }
}

/// Waits before the second and the third attempt at one e-mail; then it is dropped.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

#[derive(Debug)]
struct Unsent {
    error: String,
    is_permanent: bool,
}

fn send(transport: &SmtpTransport, from: &Mailbox, email: &MailMessage) -> Result<(), Unsent> {
    let never = |error: String| Unsent { error, is_permanent: true };
    // Parsed as an address, because a `Mailbox` would accept `name <address>` and send to the
    // address in it.
    let to: Address =
        email.to.parse().map_err(|error| never(format!("the address cannot be written to: {error}")))?;
    let envelope = Envelope::new(Some(from.email.clone()), vec![to.clone()]);
    let message = Message::builder()
        .from(from.clone())
        .to(Mailbox::new(None, to))
        .subject(email.subject)
        .header(ContentType::TEXT_PLAIN)
        .body(email.text.expose().to_owned())
        .map_err(|error| never(error.to_string()))?;
    let envelope = envelope.map_err(|error| never(error.to_string()))?;
    transport.send_raw(&envelope, &message.formatted()).map(drop).map_err(|error| {
        let is_permanent = error.is_permanent();
        Unsent { error: error.to_string(), is_permanent }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn args(host: Option<&str>) -> SmtpArgs {
        SmtpArgs {
            smtp_host: host.map(Into::into),
            smtp_port: None,
            smtp_tls: SmtpTls::Off,
            smtp_user: None,
            smtp_password_file: None,
            smtp_from: host.map(|_| "Millrace <millrace@example.org>".into()),
        }
    }

    #[test]
    fn a_mail_server_needs_a_sender_and_where_links_lead() {
        let here = Some("https://console.example.org");
        assert!(args(None).settings(here).unwrap().is_none());
        assert!(args(Some("mail.example.org")).settings(here).unwrap().is_some());
        let without_from = SmtpArgs { smtp_from: None, ..args(Some("mail.example.org")) };
        let only_port = SmtpArgs { smtp_port: Some(25), ..args(None) };
        let only_user = SmtpArgs { smtp_user: Some("ann".into()), ..args(Some("mail.example.org")) };
        let wrong_from = SmtpArgs { smtp_from: Some("nobody".into()), ..args(Some("mail.example.org")) };
        for (args, here, said) in [
            (args(Some("mail.example.org")), None, "public_url"),
            (without_from, here, "smtp_from"),
            (only_port, here, "smtp_host"),
            (only_user, here, "smtp_password_file"),
            (wrong_from, here, "is not an address"),
        ] {
            let refused = args.settings(here).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    /// Answers one client as an SMTP server does: RCPT by what `rcpt` says. Returns what the client
    /// has said until it quits or a mail is taken.
    fn serve(listener: &TcpListener, rcpt: impl Fn(&str) -> &'static [u8]) -> String {
        let (stream, _) = listener.accept().unwrap();
        let mut out = stream.try_clone().unwrap();
        let mut said = String::new();
        out.write_all(b"220 test\r\n").unwrap();
        let mut is_data = false;
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            said += &line;
            said.push('\n');
            let answer: &[u8] = match (is_data, &*line) {
                (true, ".") => {
                    out.write_all(b"250 taken\r\n").unwrap();
                    return said;
                }
                (true, _) => b"",
                (false, "DATA") => {
                    is_data = true;
                    b"354 go on\r\n"
                }
                (false, line) if line.starts_with("RCPT") => rcpt(line),
                (false, _) => b"250 yes\r\n",
            };
            if out.write_all(answer).is_err() {
                break;
            }
        }
        said
    }

    fn local() -> (TcpListener, SmtpSettings) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let args = SmtpArgs { smtp_port: Some(port), ..args(Some("127.0.0.1")) };
        let settings = args.settings(Some("https://console.example.org")).unwrap().unwrap();
        (listener, settings)
    }

    fn email(to: &str) -> MailMessage {
        MailMessage { to: to.into(), subject: "Confirm", text: "Hello\n".into() }
    }

    #[test]
    fn the_next_email_does_not_wait_for_one_that_is_refused_or_deferred() {
        let (listener, settings) = local();
        let smtp = Smtp::start(&settings).unwrap();
        for to in ["nobody@example.org", "later@example.org", "not an address", "ann@example.org"] {
            smtp.send(email(to));
        }
        let mut asked = Vec::new();
        let rcpt = |line: &str| -> &'static [u8] {
            match line {
                "RCPT TO:<nobody@example.org>" => b"550 nobody of that name\r\n",
                "RCPT TO:<later@example.org>" => b"450 come again\r\n",
                _ => b"250 yes\r\n",
            }
        };
        // The deferred email is tried three times in all.
        while asked.len() < 5 {
            let said = serve(&listener, rcpt);
            asked.extend(said.lines().filter(|line| line.starts_with("RCPT")).map(ToOwned::to_owned));
        }
        let of = |name: &str| asked.iter().filter(|line| line.contains(name)).count();
        assert_eq!((of("nobody"), of("later"), of("ann")), (1, 3, 1), "{asked:?}");
        let place = |name: &str| asked.iter().rposition(|line| line.contains(name));
        assert!(place("ann") < place("later"), "{asked:?}");
    }

    #[test]
    fn a_mail_goes_to_the_whole_address_and_not_to_a_part_of_it() {
        let (listener, settings) = local();
        let transport = transport(&settings).unwrap();
        drop(listener);
        for wrong in ["a1<victim@example.org>", "not an address", "", "a@b@example.org"] {
            let unsent = send(&transport, &settings.from, &email(wrong)).unwrap_err();
            assert!(unsent.is_permanent, "{wrong}: {unsent:?}");
        }
    }

    #[test]
    fn an_email_reaches_the_mail_server() {
        let (listener, settings) = local();
        let smtp = Smtp::start(&settings).unwrap();
        let text = "Open https://console.example.org/confirm#secret\n";
        smtp.send(MailMessage { to: "ann@example.org".into(), subject: "Confirm", text: text.into() });
        let said = serve(&listener, |_| b"250 yes\r\n");
        for expected in [
            "MAIL FROM:<millrace@example.org>",
            "RCPT TO:<ann@example.org>",
            "Subject: Confirm",
            "https://console.example.org/confirm#secret",
        ] {
            assert!(said.contains(expected), "{said}");
        }
    }
}
