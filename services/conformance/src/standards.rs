//! The statements of both versions, the side that they bind, and the exceptions.

use std::collections::BTreeMap;

const CLIENT_ONLY: &str = "binds the client: ";

#[derive(Debug)]
pub(crate) struct Standard {
    /// The version as citations write it.
    pub(crate) version: &'static str,
    /// The version as the report writes it.
    pub(crate) name: &'static str,
    pub(crate) statements: Vec<Statement>,
}

#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) id: &'static str,
    /// True when only clients are bound, as the list or the exception's reason says.
    pub(crate) client_only: bool,
    /// The reason why no test of this server proves the statement.
    pub(crate) exception: Option<&'static str>,
}

impl Standard {
    fn new(
        version: &'static str,
        name: &'static str,
        ids: &'static str,
        exceptions: &'static str,
    ) -> Result<Self, String> {
        let mut reasons = BTreeMap::new();
        for line in lines(exceptions) {
            let (id, reason) = line.split_once(' ').unwrap_or((line, ""));
            if reason.trim().is_empty() {
                return Err(format!("exceptions of {version}: {id} has no reason"));
            }
            if reasons.insert(id, reason.trim()).is_some() {
                return Err(format!("exceptions of {version}: {id} stands twice"));
            }
        }
        let mut statements = Vec::new();
        for line in lines(ids) {
            let (id, party) = line.split_once('\t').unwrap_or((line, "both"));
            if !["client", "server", "both"].contains(&party) {
                return Err(format!("statements of {version}: {id} binds \"{party}\""));
            }
            let exception = reasons.remove(id);
            let client_only =
                party == "client" || exception.is_some_and(|reason| reason.starts_with(CLIENT_ONLY));
            statements.push(Statement { id, client_only, exception });
        }
        match reasons.keys().next() {
            Some(id) => Err(format!("exceptions of {version}: there is no {id}")),
            None => Ok(Self { version, name, statements }),
        }
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.statements.iter().any(|statement| statement.id == id)
    }
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// MQTT 3.1 has no numbered statements.
pub(crate) fn all() -> Result<[Standard; 2], String> {
    let v5 = include_str!("../statements/v5.ids");
    let v311 = include_str!("../statements/v311.ids");
    Ok([
        Standard::new("v5", "MQTT 5.0", v5, include_str!("../v5.exceptions"))?,
        Standard::new("v3.1.1", "MQTT 3.1.1", v311, include_str!("../v311.exceptions"))?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_whole_and_every_client_statement_has_its_reason() {
        let [v5, v311] = all().unwrap();
        assert_eq!((v5.statements.len(), v311.statements.len()), (251, 141));
        for statement in v5.statements.iter().filter(|statement| statement.client_only) {
            // Some can be proven: the server does not take what they forbid.
            let is_explained = statement.exception.is_none_or(|reason| reason.starts_with(CLIENT_ONLY));
            assert!(is_explained, "{}: {:?}", statement.id, statement.exception);
        }
        assert!(v311.statements.iter().any(|statement| statement.client_only));
        for statement in v5.statements.iter().chain(&v311.statements) {
            assert!(statement.id.starts_with("MQTT-"), "{}", statement.id);
        }
    }

    #[test]
    fn an_exception_needs_a_known_id_and_a_reason_and_stands_once() {
        let new =
            |exceptions| Standard::new("v5", "MQTT 5.0", "MQTT-1.1.1-1\tboth\nMQTT-1.1.1-2", exceptions);
        assert!(new("# why\nMQTT-1.1.1-1  because").is_ok());
        for (exceptions, words) in [
            ("MQTT-1.1.1-3  because", "there is no MQTT-1.1.1-3"),
            ("MQTT-1.1.1-1", "has no reason"),
            ("MQTT-1.1.1-1  a\nMQTT-1.1.1-1  b", "stands twice"),
        ] {
            let sentence = new(exceptions).unwrap_err();
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
