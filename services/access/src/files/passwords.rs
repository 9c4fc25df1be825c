//! The password file: `user:hash` lines, as `millrace passwd` writes them.
//!
//! The hash is a PHC string of Argon2id. It has no colon, so the last colon of a line ends the user
//! name, which may contain colons (a MAC address, say). Blank lines and lines that start with `#`
//! are skipped.

use std::collections::HashMap;

use super::{FileError, lines, says_nothing};

#[derive(Clone, Debug, Default)]
pub struct PasswordFile(HashMap<Box<str>, Box<str>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    #[error("the user name is empty")]
    Empty,
    #[error("the user name starts with #, which makes the line a comment")]
    Comment,
    #[error("the user name starts or ends with a space")]
    Space,
    #[error("the user name has a control character")]
    Control,
}

impl PasswordFile {
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let mut users = HashMap::new();
        for (line, text) in lines(text) {
            let error = |what: String| FileError { line, what };
            let (user, phc) = split(text)
                .ok_or_else(|| error("not user:hash; `millrace passwd` writes such lines".to_owned()))?;
            check_user(user).map_err(|what| error(what.to_string()))?;
            crate::phc::check(phc).map_err(|what| error(what.to_owned()))?;
            if users.insert(user.into(), phc.into()).is_some() {
                return Err(error(format!(
                    "the user {user:?} is in the file twice; delete one of the lines"
                )));
            }
        }
        Ok(Self(users))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(user, phc)| (&**user, &**phc))
    }

    /// Returns the user's hash. For an unknown user, verify
    /// [`dummy`](crate::secrets::chosen::dummy) and refuse, so that the response time does not
    /// reveal that the user is unknown.
    pub fn lookup(&self, user: &str) -> Option<&str> {
        self.0.get(user).map(|phc| &**phc)
    }
}

/// Returns `text` with one user's line added or replaced (`Some` hash), or deleted (`None`). Other
/// lines stay, even comments and invalid lines.
pub fn edit(text: &str, user: &str, phc: Option<&str>) -> Result<String, UserError> {
    check_user(user)?;
    let mut out = String::with_capacity(text.len() + 128);
    let mut new = phc.map(|phc| format!("{user}:{phc}\n"));
    for line in text.split_inclusive('\n') {
        if !says_nothing(line) && split(line.trim_end()).is_some_and(|(name, _)| name == user) {
            out.extend(new.take());
        } else {
            out.push_str(line);
        }
    }
    if let Some(new) = new {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&new);
    }
    Ok(out)
}

fn split(line: &str) -> Option<(&str, &str)> {
    line.trim_end().rsplit_once(':')
}

fn check_user(user: &str) -> Result<(), UserError> {
    match user {
        "" => Err(UserError::Empty),
        _ if user.starts_with('#') => Err(UserError::Comment),
        _ if user.trim() != user => Err(UserError::Space),
        _ if user.contains(char::is_control) => Err(UserError::Control),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::chosen::{cheap, verify};

    #[test]
    fn users_are_found_whatever_their_name() {
        let phc = cheap(b"secret");
        let text = format!("# users\n\nbob:{phc}\r\naa:bb:cc:{phc}\n \nJosé Ã:{phc}");
        let file = PasswordFile::parse(&text).unwrap();
        for user in ["bob", "aa:bb:cc", "José Ã"] {
            assert!(verify(file.lookup(user).unwrap(), b"secret"), "{user}");
        }
        for user in ["", "Bob", "aa", "# users"] {
            assert_eq!(file.lookup(user), None, "{user}");
        }
    }

    #[test]
    fn a_wrong_line_is_named_with_what_to_do() {
        let phc = cheap(b"secret");
        for (text, line, what) in [
            ("bob".to_owned(), 1, "not user:hash"),
            (format!("# x\nbob:{phc}\n\nbob:{phc}\n"), 4, "twice"),
            (format!("\n:{phc}"), 2, "empty"),
            (format!(" bob:{phc}"), 1, "space"),
            (format!("b\u{7}ob:{phc}"), 1, "control"),
            ("bob:secret".to_owned(), 1, "Argon2id"),
            (format!("bob:{}", phc.replace("argon2id", "argon2i")), 1, "Argon2id"),
            (format!("bob:{}", phc.replace("m=8", "m=7")), 1, "Argon2id"),
            (format!("bob:{}", phc.replace("m=8", "m=2000000")), 1, "1 GiB"),
            (format!("bob:{}", phc.rsplit_once('$').unwrap().0), 1, "Argon2id"),
            ("bob:$2y$05$Fmo5XtJ5pUKg0Ga7cFKbYO5S/V.y1Vj6oE0gkKUkA6hS7eFW9lDAa".to_owned(), 1, "Argon2id"),
        ] {
            let error = PasswordFile::parse(&text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.what.contains(what), "{text}: {}", error.what);
        }
    }

    #[test]
    fn an_edit_changes_one_user_and_keeps_the_rest() {
        for (text, user, phc, expected) in [
            ("", "bob", Some("$h"), "bob:$h\n"),
            ("# users\neve:$x", "bob", Some("$h"), "# users\neve:$x\nbob:$h\n"),
            ("bob:$x\r\n\n#bob:$y\neve:$z\n", "bob", Some("$h"), "bob:$h\n\n#bob:$y\neve:$z\n"),
            ("a:bob:$x\nbob:$y\nbob:$z\nwrong\n", "bob", Some("$h"), "a:bob:$x\nbob:$h\nwrong\n"),
            ("eve:$z\nbob:$x\n", "bob", None, "eve:$z\n"),
            ("eve:$z\n", "bob", None, "eve:$z\n"),
            ("aa:bb:$x\n", "aa:bb", None, ""),
        ] {
            assert_eq!(edit(text, user, phc).as_deref(), Ok(expected), "{text:?}");
        }
        for (user, error) in [
            ("", UserError::Empty),
            ("#bob", UserError::Comment),
            ("bob ", UserError::Space),
            ("bob\neve", UserError::Control),
        ] {
            assert_eq!(edit("", user, None), Err(error));
        }
    }
}
