//! Mails to people: their texts, and the interface to the service that sends them.

use std::sync::Arc;

use crate::secret::Secret;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailMessage {
    pub to: String,
    pub subject: &'static str,
    /// Plain text.
    pub text: Secret,
}

pub trait Mailer: Send + Sync + 'static {
    /// Queues a mail without waiting for it, so that the time of an answer reveals nothing about the mail.
    fn send(&self, mail: MailMessage);
}

/// `url`: the links of mails begin with it.
pub(super) struct Post {
    pub(super) mailer: Arc<dyn Mailer>,
    pub(super) url: String,
}

impl Post {
    pub(super) fn confirm(&self, to: &str, secret: &Secret) -> MailMessage {
        let text = format!(
            "Somebody, probably you, asked for an account with this e-mail address.\n\n\
             To make the account, open this link within a day and enter the password that you chose:\n\n\
             {}/confirm#{}\n\n\
             If it was not you, do nothing: without the password the link makes no account.\n",
            self.url,
            secret.expose()
        );
        mail(to, "Confirm your e-mail address", text)
    }

    pub(super) fn has_account(&self, to: &str) -> MailMessage {
        let text = format!(
            "Somebody, probably you, asked for an account with this e-mail address, which has one already.\n\n\
             Sign in at {}/\n\nIf it was not you, nothing has changed.\n",
            self.url
        );
        mail(to, "You have an account already", text)
    }

    pub(super) fn reset(&self, to: &str, secret: &Secret) {
        let text = format!(
            "Somebody, probably you, asked for a new password of your account.\n\n\
             To choose one, open this link within an hour:\n\n{}\n\n\
             It works once. If it was not you, do nothing: your password stays as it is.\n",
            reset_link(&self.url, secret)
        );
        self.mailer.send(mail(to, "Choose a new password", text));
    }

    pub(super) fn no_password(&self, to: &str) {
        let text = format!(
            "Somebody, probably you, asked for a new password of your account. The account has no password: you sign in with your \
             provider, at {}/\n\nIf it was not you, nothing has changed.\n",
            self.url
        );
        self.mailer.send(mail(to, "You sign in with your provider", text));
    }

    /// Mails the link to the new address, and a notice to the old one.
    pub(super) fn change_address(&self, old: &str, new: &str, secret: &Secret, is_new_mailed: bool) {
        if is_new_mailed {
            let text = format!(
                "Somebody, probably you, wants to sign in with this e-mail address from now on.\n\n\
                 To confirm it, open this link within a day, in a browser in which you are signed in:\n\n\
                 {}/confirm-address#token={}\n\n\
                 If it was not you, do nothing: only the account that asked can use the link.\n",
                self.url,
                secret.expose()
            );
            self.mailer.send(mail(new, "Confirm your new e-mail address", text));
        }
        let text = format!(
            "Your account shall have another e-mail address: {new}. The change is made when the link is opened that was mailed to it.\n\n\
             If it was not you, change your password now at {}/: that voids the link.\n",
            self.url
        );
        self.mailer.send(mail(old, "Your e-mail address is about to change", text));
    }

    pub(super) fn second_factor_changed(&self, to: &str, is_on: bool, has_factor: bool) {
        let (subject, what) = match (is_on, has_factor) {
            (true, _) => {
                ("Your second factor is on", "Signing in to your account now asks for a code of a device.")
            }
            (false, true) => (
                "Your authenticator app is off",
                "Signing in to your account asks for a passkey after the password.",
            ),
            (false, false) => {
                ("Your second factor is off", "Signing in to your account asks for the password alone.")
            }
        };
        let text = format!(
            "{what}\n\nIf it was not you, choose another password now at {}/: that ends all other sessions.\n",
            self.url
        );
        self.mailer.send(mail(to, subject, text));
    }

    pub(super) fn passkey_changed(&self, to: &str, name: &str, is_new: bool, has_factor: bool) {
        let (subject, what) = match (is_new, has_factor) {
            (true, _) => {
                ("A passkey was added", "added to your account. It can sign you in, and is a second factor")
            }
            (false, true) => {
                ("A passkey was removed", "removed from your account. It no longer signs you in")
            }
            (false, false) => (
                "Your last passkey was removed",
                "removed from your account. Signing in asks for the password alone, and your recovery codes no longer work",
            ),
        };
        let text = format!(
            "The passkey \"{name}\" was {what}.\n\n\
             If it was not you, reset your password at {}/: a new password ends all other sessions, and passkeys no longer \
             sign in without it. If the sign-in then asks for a passkey or code that you do not have, ask the operator to \
             remove the second factor.\n",
            self.url
        );
        self.mailer.send(mail(to, subject, text));
    }

    pub(super) fn invite(&self, to: &str, secret: &Secret) {
        let text = format!(
            "You are invited to an organisation. To join it, open this link within 7 days, and sign up or sign in \
             with this e-mail address:\n\n{}/sign-up#{}\n",
            self.url,
            secret.expose()
        );
        self.mailer.send(mail(to, "You are invited", text));
    }
}

/// The secret is in the fragment of the URL, which no browser sends to a server.
pub(super) fn reset_link(url: &str, secret: &Secret) -> String {
    format!("{url}/reset-password#token={}", secret.expose())
}

fn mail(to: &str, subject: &'static str, text: String) -> MailMessage {
    MailMessage { to: to.into(), subject, text: text.into() }
}
