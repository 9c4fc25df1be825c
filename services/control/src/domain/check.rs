//! What people may write into fields.

use millrace_access::model::Invalid;

use super::{Error, Result, names};
use crate::limits::{
    EMAIL_BYTES_MAX, NAME_CHARS_MAX, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN, PASSWORD_SCORE_MIN,
};
use crate::secret::Secret;

/// Gathers what is wrong with the fields of a request.
#[derive(Default)]
pub(super) struct Fields(Vec<Invalid>);

impl Fields {
    pub(super) fn add(&mut self, field: &str, what: impl Into<String>) {
        self.0.push(Invalid { field: field.into(), what: what.into() });
    }

    /// A name that people give to something.
    pub(super) fn name(&mut self, field: &str, name: &str) {
        if name.trim().is_empty() || name.chars().count() > NAME_CHARS_MAX {
            self.add(field, format!("must have 1 to {NAME_CHARS_MAX} characters"));
        } else if let Err(what) = names::check(name) {
            self.add(field, what);
        }
    }

    /// An e-mail address: only that mail could go there. Returns it in the form by which it is found.
    pub(super) fn email(&mut self, field: &str, email: &str) -> String {
        let parts = email.rsplit_once('@');
        let fits = parts.is_some_and(|(local, domain)| {
            !local.is_empty() && domain.len() > 1 && !domain.starts_with('.') && !domain.ends_with('.')
        });
        let shows = |char: char| !char.is_whitespace() && !char.is_control();
        if !fits || email.len() > EMAIL_BYTES_MAX || !email.chars().all(shows) {
            self.add(field, "is not an e-mail address, such as ann@example.org");
        } else if !email.is_ascii() {
            // Look-alikes of other scripts would be other accounts.
            self.add(field, "has a letter that is not ASCII: write a domain in its form with xn--");
        }
        email.to_lowercase()
    }

    /// A password that somebody chooses: long enough, and not one that is guessed soon. `known`: what others know of the person.
    pub(super) fn password(&mut self, field: &str, password: &Secret, known: &[&str]) {
        let password = password.expose();
        if password.chars().count() < PASSWORD_CHARS_MIN {
            self.add(
                field,
                format!("must have at least {PASSWORD_CHARS_MIN} characters; a sentence is a good one"),
            );
        } else if password.len() > PASSWORD_BYTES_MAX {
            self.add(field, format!("must have at most {PASSWORD_BYTES_MAX} bytes"));
        } else if let Some(why) = weakness(password, known) {
            self.add(field, why);
        }
    }

    pub(super) fn done(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Invalid(self.0)) }
    }
}

/// Why a password is guessed soon.
fn weakness(password: &str, known: &[&str]) -> Option<String> {
    let estimate = zxcvbn::zxcvbn(password, known);
    if u8::from(estimate.score()) >= PASSWORD_SCORE_MIN {
        return None;
    }
    let feedback = estimate.feedback();
    let warning = feedback.and_then(zxcvbn::feedback::Feedback::warning).map(|warning| warning.to_string());
    let warning = warning.unwrap_or_else(|| "It has few words or letters that are hard to guess.".into());
    Some(format!("is guessed too soon: {warning} Take a sentence that nobody else has written"))
}

/// Refuses one more when there are as many as there may be.
pub(super) fn room(count: usize, max: usize, what: &str) -> Result<()> {
    if count < max {
        return Ok(());
    }
    Err(Error::Conflict(format!("there are {max} {what} already, and that is the most: delete one first")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_that_is_guessed_soon_is_refused_with_the_reason() {
        for (weak, why) in [
            ("passwordpassword", "Repeats"),
            ("aaaaaaaaaaaaaaaaaaaa", "Repeats"),
            ("ann.archer@example.org", "guessed"),
            ("qwertyuiopasdfgh", "guessed"),
            ("123456789012345", "guessed"),
        ] {
            let mut fields = Fields::default();
            fields.password("password", &weak.into(), &["ann.archer@example.org", "Ann Archer"]);
            assert_eq!(fields.0.len(), 1, "{weak}");
            assert!(fields.0[0].what.contains(why), "{weak}: {}", fields.0[0].what);
        }
        for strong in ["correct horse battery staple", "a lamp of forty dull geese", "x7#kQ2!vR9@pL4$w"] {
            let mut fields = Fields::default();
            fields.password("password", &strong.into(), &["Ann"]);
            assert!(fields.done().is_ok(), "{strong}");
        }
    }

    #[test]
    fn fields_are_checked_all_at_once_and_each_is_named() {
        let mut fields = Fields::default();
        fields.name("name", "Plant 7");
        assert_eq!(fields.email("email", "Ann@Example.org"), "ann@example.org");
        fields.password("password", &"fifteen letters and a lamp".into(), &["Ann"]);
        assert!(fields.done().is_ok());

        for wrong in ["", " ", "a\nb", &"x".repeat(101)] {
            let mut fields = Fields::default();
            fields.name("name", wrong);
            assert_eq!(fields.0.len(), 1, "{wrong}");
        }
        for wrong in [
            "",
            "ann",
            "аnn@b.c",
            "a\u{200b}nn@b.c",
            "a@\u{202e}b.c",
            "@a.b",
            "ann@",
            "ann@.b",
            "a nn@b.c",
            "a@b.",
            &format!("{}@b.c", "a".repeat(300)),
        ] {
            let mut fields = Fields::default();
            fields.email("email", wrong);
            assert_eq!(fields.0.len(), 1, "{wrong}");
        }
        let mut fields = Fields::default();
        fields.name("name", "");
        fields.password("password", &"short".into(), &[]);
        fields.password("again", &Secret::from("x".repeat(1_025).as_str()), &[]);
        let Err(Error::Invalid(found)) = fields.done() else { panic!() };
        let names: Vec<_> = found.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(names, ["name", "password", "again"]);
    }
}
