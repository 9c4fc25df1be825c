//! Links that confirm an e-mail address, on the log of a server that sends no mail. An operator passes them on.

use millrace_control::{MailMessage, Mailer};
use millrace_telemetry::SECRET_TARGET;
use tracing::info;

pub(super) struct Links;

impl Mailer for Links {
    fn send(&self, mail: MailMessage) {
        let MailMessage { to, subject, text } = mail;
        match link(text.expose()) {
            Some(link) => info!(
                target: SECRET_TARGET,
                %to,
                "no smtp_host is set, so pass this link on to the owner of the e-mail address ({subject}): {link}"
            ),
            None => info!(%to, "no smtp_host is set, so a mail was not sent: {subject}"),
        }
    }
}

/// The line of a mail with a secret, which is in the fragment of a URL.
fn link(text: &str) -> Option<&str> {
    text.lines().find(|line| line.starts_with("http") && line.contains('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_a_secret_is_the_link_of_a_mail() {
        let mail = "Somebody asked.\n\nOpen this:\n\nhttp://127.0.0.1:8080/confirm#secret\n\nBye: http://127.0.0.1:8080/\n";
        assert_eq!(link(mail), Some("http://127.0.0.1:8080/confirm#secret"));
        assert_eq!(link("Your address is about to change. See http://127.0.0.1:8080/"), None);
    }
}
