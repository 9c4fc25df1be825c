//! Reads citations such as `//= [MQTT-3.1.2-3] [MQTT-3.1.2-4] v5 v3.1.1`, each alone on its line.

use std::path::Path;

use crate::rust::Source;
use crate::standards::Standard;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    pub(crate) version: &'static str,
    pub(crate) id: String,
    /// Where the citation is, as `path:line`.
    pub(crate) place: String,
    pub(crate) proof: bool,
}

/// An error is a sentence for each wrong citation.
pub(crate) fn of(path: &Path, text: &str, standards: &[Standard]) -> Result<Vec<Citation>, Vec<String>> {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for (at, comment, proof) in comments(path, text) {
        let place = format!("{}:{}", path.display(), text[..at].lines().count().max(1));
        match parse(comment, standards) {
            Ok(cited) => found.extend(cited.into_iter().map(|(version, id)| Citation {
                version,
                id,
                place: place.clone(),
                proof,
            })),
            Err(sentence) => errors.push(format!("{place}: {sentence}")),
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// For each citation: its position (the last byte of `//=`), its text, and whether it is in a test.
fn comments<'a>(path: &Path, text: &'a str) -> Vec<(usize, &'a str, bool)> {
    let in_tests = path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "test");
    if path.extension().is_some_and(|ending| ending == "rs") {
        let source = Source::of(text);
        let marked = source.comments.iter().filter_map(|comment| {
            let cited = text[comment.clone()].strip_prefix("//=")?;
            Some((comment.start + 2, cited, in_tests || source.is_test(comment.start)))
        });
        return marked.collect();
    }
    let mark = match path.extension().and_then(|ending| ending.to_str()) {
        Some("py" | "sh") => "#=",
        _ => "//=",
    };
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let proof = in_tests || name.starts_with("test_") || name.ends_with("_test") || name.ends_with(".test");
    let mut at = 0;
    let mut marked = Vec::new();
    for line in text.split_inclusive('\n') {
        let indented = line.len() - line.trim_start().len();
        if let Some(cited) = line.trim().strip_prefix(mark) {
            marked.push((at + indented + mark.len() - 1, cited, proof));
        }
        at += line.len();
    }
    marked
}

/// Returns pairs of version and id.
fn parse(text: &str, standards: &[Standard]) -> Result<Vec<(&'static str, String)>, String> {
    let mut ids = Vec::new();
    let mut versions = Vec::new();
    for word in text.split_whitespace() {
        if let Some(id) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
            if !versions.is_empty() {
                return Err(format!("{word} stands behind a version: one citation a line, the ids first"));
            }
            ids.push(id);
        } else if let Some(standard) = standards.iter().find(|standard| standard.version == word) {
            versions.push(standard);
        } else {
            return Err(format!(
                "\"{word}\" is neither an id in brackets nor a version (v5, v3.1.1): write `[MQTT-3.1.2-3] v5`"
            ));
        }
    }
    if ids.is_empty() {
        return Err("the citation has no id: write `[MQTT-3.1.2-3] v5`".into());
    }
    if versions.is_empty() {
        return Err(format!("[{}] has no version: ids mean different things in v5 and v3.1.1", ids[0]));
    }
    let mut cited = Vec::new();
    for standard in versions {
        for id in &ids {
            if !standard.has(id) {
                return Err(format!("{} has no statement {id}", standard.name));
            }
            cited.push((standard.version, (*id).to_owned()));
        }
    }
    Ok(cited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standards;

    fn check(path: &str, text: &str) -> Result<Vec<Citation>, Vec<String>> {
        of(Path::new(path), text, &standards::all().unwrap())
    }

    #[test]
    fn one_line_may_cite_several_ids_and_versions() {
        let found = check("a.rs", "fn f() {\n    //= [MQTT-3.1.2-3] [MQTT-3.1.2-4] v5 v3.1.1\n}").unwrap();
        let expected = [
            ("v5", "MQTT-3.1.2-3"),
            ("v5", "MQTT-3.1.2-4"),
            ("v3.1.1", "MQTT-3.1.2-3"),
            ("v3.1.1", "MQTT-3.1.2-4"),
        ]
        .map(|(version, id)| Citation {
            version,
            id: id.into(),
            place: "a.rs:2".into(),
            proof: false,
        });
        assert_eq!(found, expected);
    }

    #[test]
    fn what_cannot_be_right_is_said_with_file_and_line() {
        let cases = [
            ("//= [MQTT-9.9.9-9] v5", "a.rs:2: MQTT 5.0 has no statement MQTT-9.9.9-9"),
            ("//= [MQTT-4.7.1-3] v3.1.1 v5", "a.rs:2: MQTT 5.0 has no statement MQTT-4.7.1-3"),
            ("//= [MQTT-3.1.2-3]", "a.rs:2: [MQTT-3.1.2-3] has no version"),
            ("//= v5", "a.rs:2: the citation has no id"),
            ("//=", "a.rs:2: the citation has no id"),
            ("//= [MQTT-3.1.2-3] v311", "a.rs:2: \"v311\" is neither"),
            ("//= MQTT-3.1.2-3 v5", "a.rs:2: \"MQTT-3.1.2-3\" is neither"),
            ("//= [MQTT-3.1.2-3] v5 [MQTT-3.1.2-4] v3.1.1", "a.rs:2: [MQTT-3.1.2-4] stands behind a version"),
        ];
        for (line, expected) in cases {
            let errors = check("a.rs", &format!("fn f() {{\n{line}\n}}")).unwrap_err();
            assert!(errors.len() == 1 && errors[0].starts_with(expected), "{line}: {errors:?}");
        }
    }

    #[test]
    fn tests_prove_in_every_language() {
        let cases = [
            ("src/a.rs", "//= [MQTT-3.1.2-3] v5", false),
            ("src/a.rs", "#[test]\nfn f() {\n//= [MQTT-3.1.2-3] v5\n}", true),
            ("tests/a.rs", "//= [MQTT-3.1.2-3] v5", true),
            ("tests/clients/a.py", "    #= [MQTT-3.1.2-3] v5", true),
            ("tools/a.py", "#= [MQTT-3.1.2-3] v5", false),
            ("tools/test_a.py", "#= [MQTT-3.1.2-3] v5", true),
            ("clients/a_test.go", "\t//= [MQTT-3.1.2-3] v5", true),
            ("clients/a.test.mjs", "//= [MQTT-3.1.2-3] v5", true),
        ];
        for (path, text, proof) in cases {
            let found = check(path, text).unwrap();
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!(found[0].proof, proof, "{path}");
        }
    }
}
