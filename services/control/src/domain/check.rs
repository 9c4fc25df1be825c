//! Validation of the fields of a request.

use millrace_access::model::Invalid;

use super::{Error, Result, names};
use crate::limits::{
    EMAIL_BYTES_MAX, EMAIL_LOCAL_BYTES_MAX, END_MS_MAX, NAME_CHARS_MAX, PASSWORD_BYTES_MAX,
    PASSWORD_CHARS_MIN, PASSWORD_CHARS_READ, PASSWORD_PART_CHARS_MIN, PASSWORD_SCORE_MIN,
};
use crate::secret::Secret;

/// Collects the errors of all fields, so that one answer names them all.
#[derive(Default)]
pub(super) struct FieldErrors(Vec<Invalid>);

impl FieldErrors {
    pub(super) fn add(&mut self, field: &str, what: impl Into<String>) {
        self.0.push(Invalid { field: field.into(), what: what.into() });
    }

    pub(super) fn name(&mut self, field: &str, name: &str) {
        if name.trim().is_empty() || name.chars().count() > NAME_CHARS_MAX {
            self.add(field, format!("must have 1 to {NAME_CHARS_MAX} characters"));
        } else if let Err(what) = names::check(name) {
            self.add(field, what);
        }
    }

    pub(super) fn end(&mut self, field: &str, at_ms: Option<u64>, now_ms: u64) {
        match at_ms {
            Some(at_ms) if at_ms <= now_ms => {
                self.add(
                    field,
                    "is over already: send a later time in unix milliseconds, or null for no end",
                );
            }
            Some(at_ms) if at_ms > now_ms + END_MS_MAX => {
                self.add(field, "is more than 100 years ahead: send unix milliseconds, or null for no end");
            }
            _ => {}
        }
    }

    /// Checks an e-mail address: `Dot-string@Domain` (RFC 5321 section 4.1.2). A quoted local part and an address
    /// literal are refused, because either could contain another address. Returns the normal form, by which accounts
    /// are found.
    pub(super) fn email(&mut self, field: &str, email: &str) -> String {
        let fits = email
            .split_once('@')
            .is_some_and(|(local, domain)| is_dot_string(local) && domain.split('.').all(is_label));
        if !email.is_ascii() && email.contains('@') {
            // A look-alike character of another script would make another account with the same appearance.
            self.add(field, "has a letter that is not ASCII: write a domain in its form with xn--");
        } else if email.len() > EMAIL_BYTES_MAX {
            self.add(
                field,
                format!("has more than {EMAIL_BYTES_MAX} characters, the most of an e-mail address"),
            );
        } else if !fits {
            self.add(field, "is not an e-mail address, such as ann@example.org");
        }
        email.to_lowercase()
    }

    /// Checks only the length of a password; [`weakness`] estimates its strength.
    pub(super) fn password(&mut self, field: &str, password: &Secret) {
        let password = password.expose();
        if password.chars().count() < PASSWORD_CHARS_MIN {
            self.add(
                field,
                format!("must have at least {PASSWORD_CHARS_MIN} characters; a sentence is a good one"),
            );
        } else if password.len() > PASSWORD_BYTES_MAX {
            self.add(field, format!("must have at most {PASSWORD_BYTES_MAX} bytes"));
        }
    }

    pub(super) fn done(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Invalid(self.0)) }
    }
}

pub(super) fn check_end(at_ms: Option<u64>, now_ms: u64) -> Result<()> {
    let mut fields = FieldErrors::default();
    fields.end("expires_at_ms", at_ms, now_ms);
    fields.done()
}

fn is_dot_string(local: &str) -> bool {
    let is_atext = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    local.len() <= EMAIL_LOCAL_BYTES_MAX
        && local.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atext))
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Explains why a password is weak, or returns `None`. `known` are texts that an attacker knows of the person: without
/// their parts, the rest of the password must be strong.
pub(super) fn weakness(password: &str, known: &[&str]) -> Option<String> {
    let why = estimate(password, known).or_else(|| {
        // zxcvbn estimates 10^8 guesses for any three parts in a row.
        let rest = without_parts(password, known)?;
        estimate(&rest, known).map(|_| "Beside parts of your e-mail address or name it has little.".into())
    })?;
    Some(format!("is guessed too soon: {why} Take a sentence that nobody else has written"))
}

/// The password in small letters without the parts of `known`; `None` if it has none.
fn without_parts(password: &str, known: &[&str]) -> Option<String> {
    let known: Vec<String> = known.iter().map(|text| text.to_lowercase()).collect();
    let is_separator = |letter: char| !letter.is_alphanumeric();
    let words = known.iter().flat_map(|text| text.split(is_separator));
    // "smith" is a part of "smith9", too.
    let letters = known.iter().flat_map(|text| text.split(|letter: char| !letter.is_alphabetic()));
    let mut parts: Vec<&str> = known.iter().map(String::as_str).chain(words).chain(letters).collect();
    parts.retain(|part| part.chars().count() >= PASSWORD_PART_CHARS_MIN);
    parts.sort_unstable_by_key(|part| std::cmp::Reverse(part.len()));
    let password = password.to_lowercase();
    let rest = parts.into_iter().fold(password.clone(), |rest, part| rest.replace(part, " "));
    (rest != password).then(|| rest.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// zxcvbn's time grows fast with the length, so only the first characters are read: the rest could only add strength.
fn estimate(password: &str, known: &[&str]) -> Option<String> {
    let first: String = password.chars().take(PASSWORD_CHARS_READ).collect();
    let estimate = zxcvbn::zxcvbn(&first, known);
    if u8::from(estimate.score()) >= PASSWORD_SCORE_MIN {
        return None;
    }
    let feedback = estimate.feedback();
    let warning = feedback.and_then(zxcvbn::feedback::Feedback::warning).map(|warning| warning.to_string());
    Some(warning.unwrap_or_else(|| "It has few words or letters that are hard to guess.".into()))
}

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
            let found = weakness(weak, &["ann.archer@example.org", "Ann Archer"]).unwrap();
            assert!(found.contains(why), "{weak}: {found}");
        }
        for strong in ["correct horse battery staple", "a lamp of forty dull geese", "x7#kQ2!vR9@pL4$w"] {
            assert_eq!(weakness(strong, &["Ann"]), None, "{strong}");
        }
        // Characters behind a weak start do not make up for it, and leaving them out bounds the work.
        assert!(weakness(&format!("{}x7#kQ2!vR9@pL4$w", "a".repeat(PASSWORD_CHARS_READ)), &[]).is_some());
    }

    #[test]
    fn a_password_that_is_a_part_of_the_address_or_name_is_refused() {
        let smith = ["ann.smith9@example.org", "Ann Smith"];
        let long = ["averylongname.smith@example.org", "A"];
        for (weak, known) in [
            ("annsmith9example", smith),
            ("Ann.Smith9@Example.org", smith),
            ("smith9annexample", smith),
            ("averylongname.smith@example.org", long),
            ("averylongnamesmith1", long),
            ("q3@example.org q3@example.org", ["q3@example.org", "Q"]),
            ("Featherstonehaugh", ["f@example.org", "Fiona Featherstonehaugh"]),
            ("featherstonehaugh!", ["f@featherstonehaugh.example", "F"]),
        ] {
            assert!(weakness(weak, &known).is_some(), "{weak}");
        }
        let strong = ["correct horse battery staple", "example of forty dull geese", "ann x7#kQ2!vR9@pL4$w"];
        for strong in strong {
            assert_eq!(weakness(strong, &smith), None, "{strong}");
        }
        // A long name neither takes long nor makes single characters count as known parts.
        let many = "a b c d e f g h ".repeat(100);
        assert_eq!(weakness("a lamp of forty dull geese", &[&many]), None);
    }

    #[test]
    fn fields_are_checked_all_at_once_and_each_is_named() {
        let mut fields = FieldErrors::default();
        fields.name("name", "Plant 7");
        assert_eq!(fields.email("email", "Ann@Example.org"), "ann@example.org");
        fields.password("password", &"fifteen letters and a lamp".into());
        assert!(fields.done().is_ok());

        for right in
            ["ann+plant.7@mail.example.org", "o'neil_{x}@b.c", "ann@localhost", "a@xn--bcher-kva.example"]
        {
            let mut fields = FieldErrors::default();
            fields.email("email", right);
            assert!(fields.done().is_ok(), "{right}");
        }
        for wrong in ["", " ", "a\nb", &"x".repeat(101)] {
            let mut fields = FieldErrors::default();
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
            "a1<victim@b.c",
            "a1<victim@b.c>",
            "\"a\"@b.c",
            "a(c)@b.c",
            "a,b@b.c",
            "a@b@b.c",
            ".a@b.c",
            "a..b@b.c",
            "a@b..c",
            "a@-b.c",
            "a@[192.0.2.1]",
            &format!("{}@b.c", "a".repeat(65)),
            &format!("{}@b.c", "a".repeat(300)),
        ] {
            let mut fields = FieldErrors::default();
            fields.email("email", wrong);
            assert_eq!(fields.0.len(), 1, "{wrong}");
        }
        let mut fields = FieldErrors::default();
        fields.name("name", "");
        fields.password("password", &"short".into());
        fields.password("again", &Secret::from("x".repeat(1_025).as_str()));
        let Err(Error::Invalid(found)) = fields.done() else { panic!() };
        let names: Vec<_> = found.iter().map(|one| one.field.as_str()).collect();
        assert_eq!(names, ["name", "password", "again"]);
    }
}
