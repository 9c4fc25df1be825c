//! The letters to people: their words, and the interface to whatever sends them.

use std::sync::Arc;

use crate::secret::Secret;

/// A letter to one person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// E-mail address.
    pub to: String,
    /// Subject.
    pub subject: &'static str,
    /// Plain text.
    pub text: Secret,
}

/// Sends letters.
pub trait Mailer: Send + Sync + 'static {
    /// Queues a letter. It does not wait, so that the time of an answer says nothing about the letter.
    fn send(&self, letter: Letter);
}

/// The mailer, and the URL below which links are.
pub(super) struct Post {
    pub(super) mailer: Arc<dyn Mailer>,
    pub(super) url: String,
}

impl Post {
    /// The link that confirms a sign-up.
    pub(super) fn confirm(&self, to: &str, secret: &Secret) -> Letter {
        let text = format!(
            "Somebody, probably you, asked for an account with this e-mail address.\n\n\
             To make the account, open this link within a day and enter the password that you chose:\n\n\
             {}/confirm#{}\n\n\
             If it was not you, do nothing: without the password the link makes no account.\n",
            self.url,
            secret.expose()
        );
        letter(to, "Confirm your e-mail address", text)
    }

    /// That there is an account already.
    pub(super) fn has_account(&self, to: &str) -> Letter {
        let text = format!(
            "Somebody, probably you, asked for an account with this e-mail address, which has one already.\n\n\
             Sign in at {}/\n\nIf it was not you, nothing has changed.\n",
            self.url
        );
        letter(to, "You have an account already", text)
    }

    /// Mails an invitation.
    pub(super) fn invite(&self, to: &str, secret: &Secret) {
        let text = format!(
            "You are invited to an organisation. To join it, open this link within 7 days, and sign up or sign in \
             with this e-mail address:\n\n{}/sign-up#{}\n",
            self.url,
            secret.expose()
        );
        self.mailer.send(letter(to, "You are invited", text));
    }
}

fn letter(to: &str, subject: &'static str, text: String) -> Letter {
    Letter { to: to.into(), subject, text: text.into() }
}
