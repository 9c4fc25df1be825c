//! Finds line comments and test code in the text of a Rust file, with just enough syntax to skip
//! strings and block comments. A file that does not compile is no error: fewer comments and tests
//! are found in it.

use std::ops::Range;

pub(crate) struct Source {
    /// The source, with comments, strings and characters replaced by spaces so that byte positions
    /// stay.
    code: Vec<u8>,
    /// Byte ranges of line comments; a citation in a block comment is not recorded.
    pub(crate) comments: Vec<Range<usize>>,
    /// Byte ranges of `proptest!` blocks, and of test functions without `#[ignore]` from their
    /// first attribute on.
    tests: Vec<Range<usize>>,
}

impl Source {
    pub(crate) fn of(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut source = Self { code: bytes.to_vec(), comments: Vec::new(), tests: Vec::new() };
        let mut at = 0;
        while at < bytes.len() {
            let end = match &bytes[at..] {
                [b'/', b'/', ..] => {
                    let end = find(bytes, at, b"\n");
                    source.comments.push(at..end);
                    end
                }
                [b'/', b'*', ..] => block_comment(bytes, at),
                [b'"', ..] => string(bytes, at),
                [b'r', b'"' | b'#', ..] if !identifier_before(bytes, at) => raw_string(bytes, at),
                [b'\'', ..] => character(bytes, at),
                _ => {
                    at += 1;
                    continue;
                }
            };
            for byte in &mut source.code[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        }
        source.find_tests();
        source
    }

    /// True for a position in a test, and before a test with only comments and attributes in
    /// between.
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.tests.iter().any(|test| test.contains(&at) || self.attributes_only(at..test.start))
    }

    fn attributes_only(&self, range: Range<usize>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.code[at] {
                byte if byte.is_ascii_whitespace() => at += 1,
                b'#' => at = self.attribute_end(at),
                _ => return false,
            }
        }
        range.start < range.end
    }

    fn find_tests(&mut self) {
        let mut at = 0;
        while at < self.code.len() {
            match &self.code[at..] {
                [b'#', b'[', ..] => {
                    let start = at;
                    let mut test = false;
                    let mut ignored = false;
                    // `#[ignore]` may come before or after `#[test]`, so all attributes are read.
                    while self.code.get(at) == Some(&b'#') {
                        let end = self.attribute_end(at);
                        let attribute = String::from_utf8_lossy(&self.code[at..end]);
                        let path = attribute.trim_matches(|char| "#[] \n".contains(char));
                        let path = path.split(['(', '=']).next().unwrap_or_default().trim();
                        test |= path == "test" || path.ends_with("::test");
                        ignored |= path == "ignore";
                        at = end;
                        while self.code.get(at).is_some_and(u8::is_ascii_whitespace) {
                            at += 1;
                        }
                    }
                    if test && !ignored {
                        let end = closing(&self.code, find(&self.code, at, b"{"));
                        self.tests.push(start..end);
                        at = end;
                    }
                }
                code if code.starts_with(b"proptest!") && !identifier_before(&self.code, at) => {
                    let end = closing(&self.code, find(&self.code, at, b"{"));
                    self.tests.push(at..end);
                    at = end;
                }
                _ => at += 1,
            }
        }
    }

    fn attribute_end(&self, at: usize) -> usize {
        closing(&self.code, find(&self.code, at, b"["))
    }
}

fn find(bytes: &[u8], at: usize, what: &[u8]) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.windows(what.len()).position(|window| window == what).map_or(bytes.len(), |found| at + found)
}

/// The position after the bracket or brace that closes the one at `at`.
fn closing(code: &[u8], at: usize) -> usize {
    let Some(&open) = code.get(at) else { return code.len() };
    let close = if open == b'[' { b']' } else { b'}' };
    let mut depth = 0_usize;
    for (offset, &byte) in code[at..].iter().enumerate() {
        if byte == open {
            depth += 1;
        } else if byte == close {
            depth -= 1;
            if depth == 0 {
                return at + offset + 1;
            }
        }
    }
    code.len()
}

fn identifier_before(bytes: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    // `br"..."` is a raw string too.
    let before = if before == Some(b'b') { at.checked_sub(2).map(|before| bytes[before]) } else { before };
    before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        // A raw identifier such as `r#type`.
        return open;
    }
    let end = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    (find(bytes, open + 1, &end) + end.len()).min(bytes.len())
}

/// The position after a character literal, or after the tick of a lifetime.
fn character(bytes: &[u8], at: usize) -> usize {
    match &bytes[at + 1..] {
        [b'\\', ..] => (find(bytes, at + 3, b"'") + 1).min(bytes.len()),
        [first, rest @ ..] => {
            let more = if *first < 0x80 { 0 } else { (first.leading_ones() as usize).saturating_sub(1) };
            if rest.get(more) == Some(&b'\'') { at + 3 + more } else { at + 1 }
        }
        [] => at + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::Source;

    /// For each `//=` of the source: whether it belongs to a test.
    fn proofs(text: &str) -> Vec<bool> {
        let source = Source::of(text);
        let cited = source.comments.iter().filter(|comment| text[(*comment).clone()].starts_with("//="));
        cited.map(|comment| source.is_test(comment.start)).collect()
    }

    #[test]
    fn only_what_belongs_to_a_test_is_a_proof() {
        let cases: [(&str, &[bool]); 15] = [
            ("fn f() {\n//= a\n}", &[false]),
            ("#[test]\nfn f() {\n//= a\n}", &[true]),
            ("//= a\n#[test]\nfn f() {}", &[true]),
            ("//= a\n//= b\n/// Doc.\n#[test]\n//= c\nfn f() {}\n//= d\n", &[true, true, true, false]),
            ("//= a\nfn g() {}\n#[test]\nfn f() {}", &[false]),
            ("//= a\n#[inline]\nfn g() {}", &[false]),
            ("#[test]\n#[ignore]\nfn f() {\n//= a\n}", &[false]),
            ("#[ignore = \"slow\"]\n#[test]\nfn f() {\n//= a\n}", &[false]),
            (
                "#[test]\nfn f() { g(\"}\"); g('}'); g(r#\"}\"}\"#); /* } */\n//= a\n}\nfn g() {\n//= b\n}",
                &[true, false],
            ),
            (
                "#[test]\nfn f<'a>(b: &'a str) { let _ = '\\''; let _ = 'é';\n//= a\n}\n//= b\n",
                &[true, false],
            ),
            ("proptest! {\nfn f(a in 0..3) {\n//= a\n}\n}\nfn g() {\n//= b\n}", &[true, false]),
            (
                "#[cfg(test)]\nmod tests {\nfn helper() {\n//= a\n}\n#[test]\nfn f() {\n//= b\n}\n}",
                &[false, true],
            ),
            ("#[tokio::test(flavor = \"x\")]\nasync fn f() {\n//= a\n}", &[true]),
            ("let text = \"\n//= a\n\";", &[]),
            ("fn r#type() { var\"x\" }\n//= a\n", &[false]),
        ];
        for (text, expected) in cases {
            assert_eq!(proofs(text), expected, "{text}");
        }
    }
}
