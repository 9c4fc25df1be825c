//! Prints answers of the API, for people or as JSON. The name of a field gives its kind: `_ms` is a time, `_s` a
//! duration, `_bytes` bytes.

use std::io::{self, ErrorKind, Write};

use serde_json::Value;

use super::site::List;
use crate::clock::now_ms;
use crate::failure::Failure;
use crate::terminal::table::{Align, Column, Table};
use crate::text;

/// Heads of columns, and the fields of the API below them.
pub(super) type Fields = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy)]
pub(super) struct Printer {
    pub(super) json: bool,
}

impl Printer {
    /// Prints `nothing` for an empty list.
    pub(super) fn list(self, fields: Fields, list: &List, nothing: &str) -> Result<(), Failure> {
        let written = match self.json {
            true => list.rows.iter().try_for_each(|row| writeln!(io::stdout(), "{row}")),
            false => table(&mut io::stdout().lock(), fields, &list.rows),
        };
        done(written)?;
        if list.rows.is_empty() && !self.json {
            say(nothing);
        }
        if list.more {
            say("There are more: ask for more rows with --limit.");
        }
        if !list.unanswered.is_empty() {
            say(&format!("Incomplete: {} did not answer in time.", list.unanswered.join(", ")));
        }
        Ok(())
    }

    pub(super) fn details(self, of: &Value) -> Result<(), Failure> {
        done(match self.json {
            true => writeln!(io::stdout(), "{of}"),
            false => details(&mut io::stdout().lock(), of),
        })
    }

    /// Like [`Self::details`], of what the server does not show again: a closed pipe is a failure.
    pub(super) fn secret(self, of: &Value) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = match self.json {
            true => writeln!(out, "{of}"),
            false => details(&mut out, of),
        };
        written.and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }

    /// Rows in several parts, which the server does not show again.
    pub(super) fn secrets(self, fields: Fields) -> Secrets {
        let columns = fields.iter().map(|(head, _)| (*head, Align::Left)).collect();
        Secrets { json: self.json, fields, table: Table::of(columns) }
    }

    pub(super) fn did(self, sentence: &str) {
        if !self.json {
            say(sentence);
        }
    }
}

/// Prints rows in several parts, in one table.
pub(super) struct Secrets {
    json: bool,
    fields: Fields,
    table: Table,
}

impl Secrets {
    /// # Errors
    /// For a write that fails, also to a closed pipe.
    pub(super) fn show(&mut self, out: &mut impl Write, rows: &[Value]) -> Result<(), Failure> {
        self.write(out, rows).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }

    fn write(&mut self, out: &mut impl Write, rows: &[Value]) -> io::Result<()> {
        for row in rows {
            match self.json {
                true => writeln!(out, "{row}")?,
                false => self.table.push(out, cells(self.fields, row))?,
            }
        }
        self.table.flush(out)
    }
}

/// A failed write to a closed pipe is ignored.
pub(super) fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "{sentence}");
}

fn done(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritten(&error)),
        _ => Ok(()),
    }
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::Run(format!("the answer cannot be written: {error}"))
}

fn cells(fields: Fields, row: &Value) -> Vec<String> {
    fields.iter().map(|(_, field)| cell(field, &row[*field], false)).collect()
}

fn table(out: &mut impl Write, fields: Fields, rows: &[Value]) -> io::Result<()> {
    let columns: Vec<Column> = fields
        .iter()
        .map(|(head, field)| {
            let is_number = rows.iter().all(|row| row[*field].is_number()) && !field.ends_with("_ms");
            (*head, if is_number { Align::Right } else { Align::Left })
        })
        .collect();
    let mut table = Table::of(columns);
    for row in rows {
        table.push(out, cells(fields, row))?;
    }
    table.flush(out)
}

fn details(out: &mut impl Write, of: &Value) -> io::Result<()> {
    let mut table = Table::of(vec![("FIELD", Align::Left), ("VALUE", Align::Left)]);
    for (name, value) in of.as_object().into_iter().flatten() {
        if let Some(items) = value.as_array().filter(|items| items.iter().any(Value::is_object)) {
            for (number, item) in items.iter().enumerate() {
                table.push(out, vec![format!("{name} {}", number + 1), cell("", item, true)])?;
            }
        } else {
            table.push(out, vec![name.clone(), cell(name, value, true)])?;
        }
    }
    table.flush(out)
}

/// With `whole` there is room for all of the value.
fn cell(name: &str, value: &Value, whole: bool) -> String {
    match (value, value.as_u64()) {
        (Value::Null, _) => "-".into(),
        (_, Some(0)) if name.ends_with("_at_ms") => "-".into(),
        (_, Some(at_ms)) if name.ends_with("_ms") && whole => text::time(at_ms, now_ms()),
        (_, Some(at_ms)) if name.ends_with("_ms") => text::distance(at_ms, now_ms()),
        (_, Some(number)) if name.ends_with("_bytes") => text::bytes(number),
        (_, Some(number)) if name.ends_with("_s") => text::duration(number),
        (_, Some(number)) => text::count(number),
        (Value::Bool(is_so), _) => if *is_so { "yes" } else { "no" }.into(),
        (Value::String(said), _) => text::escape(said.as_bytes()),
        (Value::Array(items), _) => {
            items.iter().map(|item| cell("", item, whole)).collect::<Vec<_>>().join(", ")
        }
        (Value::Object(fields), _) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| format!("{name}={}", cell(name, value, whole)))
            .collect::<Vec<_>>()
            .join(" "),
        (number, None) => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn rows_are_a_table_in_which_nothing_can_write_to_the_terminal_by_itself() {
        let rows =
            [json!({ "a": "x\u{1b}[2J", "n": 1200, "on": true }), json!({ "a": null, "n": 7, "on": false })];
        let fields: Fields = &[("A", "a"), ("NUMBER", "n"), ("ON", "on")];
        let text = written(|out| table(out, fields, &rows));
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(
            lines,
            [vec!["A", "NUMBER", "ON"], vec!["x\\x1b[2J", "1,200", "yes"], vec!["-", "7", "no"]]
        );
    }

    #[test]
    fn secrets_in_several_parts_have_one_head_and_need_an_open_pipe() {
        let fields: Fields = &[("USER", "user"), ("SECRET", "secret")];
        let rows = |user: &str| [json!({ "user": user, "secret": "s" })];
        for (json, expected) in [(false, 3), (true, 2)] {
            let (mut secrets, mut out) = (Printer { json }.secrets(fields), Vec::new());
            secrets.show(&mut out, &rows("a")).unwrap();
            secrets.show(&mut out, &rows("b")).unwrap();
            assert_eq!(String::from_utf8(out).unwrap().lines().count(), expected);
            let (reader, mut closed) = io::pipe().unwrap();
            drop(reader);
            assert!(secrets.show(&mut closed, &rows("c")).is_err());
        }
    }

    #[test]
    fn details_say_what_numbers_mean() {
        let of = json!({ "sent_bytes": 2048, "expiry_s": 120, "rules": [{ "effect": "deny", "x": null }], "tags": ["a", "b"] });
        let text = written(|out| details(out, &of));
        for line in
            ["sent_bytes  2.0 KiB", "expiry_s    2 min", "rules 1     effect=deny", "tags        a, b"]
        {
            assert!(text.contains(line), "{text}");
        }
    }
}
