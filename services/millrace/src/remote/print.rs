//! Prints answers of the API, for people or as JSON. The name of a field gives its unit: `_ms` is a
//! time, `_s` a duration, `_per_s` a rate, `_bytes` bytes, `_micros` money.

use std::io::{self, ErrorKind, Write};

use serde_json::Value;

use super::site::ListAnswer;
use crate::clock::now_ms;
use crate::failure::Failure;
use crate::terminal::table::{Align, Column, Table};
use crate::text;

/// Columns: the heading, and the field of the API below it.
pub(super) type TableColumns = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy)]
pub(super) struct Printer {
    pub(super) json: bool,
}

impl Printer {
    /// Prints `nothing` for an empty list.
    pub(super) fn list(self, fields: TableColumns, list: &ListAnswer, nothing: &str) -> Result<(), Failure> {
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

    /// Like [`Self::details`], for what the server does not show again: a closed pipe is a failure.
    pub(super) fn secret(self, of: &Value) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = match self.json {
            true => writeln!(out, "{of}"),
            false => details(&mut out, of),
        };
        written.and_then(|()| out.flush()).map_err(|error| unwritten(&error))
    }

    /// Rows in several parts, which the server does not show again.
    pub(super) fn secrets(self, fields: TableColumns) -> Secrets {
        let columns = fields.iter().map(|(head, _)| (*head, Align::Left)).collect();
        Secrets { json: self.json, fields, table: Table::new(columns) }
    }

    pub(super) fn text(self, text: &str) -> Result<(), Failure> {
        done(if self.json { Ok(()) } else { write!(io::stdout(), "{text}") })
    }

    pub(super) fn did(self, sentence: &str) {
        if !self.json {
            say(sentence);
        }
    }
}

pub(super) struct Secrets {
    json: bool,
    fields: TableColumns,
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

fn cells(fields: TableColumns, row: &Value) -> Vec<String> {
    fields.iter().map(|(_, field)| cell(field, &row[*field], false)).collect()
}

fn table(out: &mut impl Write, fields: TableColumns, rows: &[Value]) -> io::Result<()> {
    let columns: Vec<Column> = fields
        .iter()
        .map(|(head, field)| {
            let is_time = field.ends_with("_ms") && !DURATIONS.contains(field);
            let is_number = rows.iter().all(|row| row[*field].is_number()) && !is_time;
            (*head, if is_number { Align::Right } else { Align::Left })
        })
        .collect();
    let mut table = Table::new(columns);
    for row in rows {
        table.push(out, cells(fields, row))?;
    }
    table.flush(out)
}

fn details(out: &mut impl Write, of: &Value) -> io::Result<()> {
    let mut table = Table::new(vec![("FIELD", Align::Left), ("VALUE", Align::Left)]);
    let mut rows = Vec::new();
    for (name, value) in of.as_object().into_iter().flatten() {
        add_rows(&mut rows, name, value);
    }
    for row in rows {
        table.push(out, row)?;
    }
    table.flush(out)
}

/// Adds a row for each field of an object; fields without a value are left out.
fn add_rows(rows: &mut Vec<Vec<String>>, path: &str, value: &Value) {
    let name = path.rsplit('.').next().unwrap_or(path);
    match value {
        Value::Object(fields) if is_endpoint(value) => {
            rows.push(vec![path.into(), cell("", &fields["url"], true)]);
        }
        Value::Object(fields) => {
            let before = rows.len();
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                let whole = rows.len();
                add_rows(rows, &format!("{path}.{name}"), value);
                // An object without values is left out of another object.
                if value.is_object() && rows[whole..].iter().all(|row| row[1] == NOTHING) {
                    rows.truncate(whole);
                }
            }
            if rows.len() == before {
                rows.push(vec![path.into(), NOTHING.into()]);
            }
        }
        Value::Array(items) if items.is_empty() => rows.push(vec![path.into(), NOTHING.into()]),
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (number, item) in items.iter().enumerate() {
                rows.push(vec![format!("{path} {}", number + 1), cell("", item, true)]);
            }
        }
        Value::String(text) if text.starts_with("-----BEGIN ") => {
            rows.push(vec![path.into(), "PEM, which --json shows".into()]);
        }
        _ => rows.push(vec![path.into(), cell(name, value, true)]),
    }
}

/// The URL of an endpoint has its port, too.
fn is_endpoint(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| fields.len() == 2)
        && value["port"].is_u64()
        && value["url"].is_string()
}

const NOTHING: &str = "-";

/// Durations in milliseconds. All other fields whose names end with `_ms` are times.
const DURATIONS: &[&str] = &["duration_ms", "timeout_ms", "step_ms", "measured_ms"];

/// With `whole` there is room for all of the value.
fn cell(name: &str, value: &Value, whole: bool) -> String {
    match (value, value.as_u64()) {
        (Value::Null, _) => NOTHING.into(),
        (_, Some(duration_ms)) if DURATIONS.contains(&name) => text::count(duration_ms),
        (_, Some(0)) if name.ends_with("_at_ms") => NOTHING.into(),
        (_, Some(at_ms)) if name.ends_with("_ms") && whole => text::time(at_ms, now_ms()),
        (_, Some(at_ms)) if name.ends_with("_ms") => text::distance(at_ms, now_ms()),
        (_, Some(number)) if name.ends_with("_bytes_per_s") => format!("{}/s", text::bytes(number)),
        (_, Some(number)) if name.ends_with("_per_s") => format!("{}/s", text::count(number)),
        (_, Some(number)) if name.ends_with("_per_min") => format!("{}/min", text::count(number)),
        (_, Some(number)) if name.ends_with("_bytes") || name.starts_with("bytes_") => text::bytes(number),
        (_, Some(number)) if name.ends_with("_s") => text::duration(number),
        (_, Some(micros)) if name.ends_with("_micros") => money(micros),
        (_, Some(port)) if name == "port" => port.to_string(),
        (Value::Number(number), _) if name.ends_with("_minutes") => {
            format!("{:.1} min", number.as_f64().unwrap_or_default())
        }
        (Value::Number(number), _) if name.ends_with("_byte_hours") => {
            let bytes = text::bytes(number.as_f64().unwrap_or_default() as u64);
            if whole { format!("{bytes} for an hour") } else { format!("{bytes} h") }
        }
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

/// Units of the region's currency, with at least two decimals.
fn money(micros: u64) -> String {
    let decimals = format!("{:06}", micros % 1_000_000);
    let (cents, rest) = decimals.split_at(2);
    format!("{}.{cents}{}", text::count(micros / 1_000_000), rest.trim_end_matches('0'))
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
        let fields: TableColumns = &[("A", "a"), ("NUMBER", "n"), ("ON", "on")];
        let text = written(|out| table(out, fields, &rows));
        let lines: Vec<_> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(
            lines,
            [vec!["A", "NUMBER", "ON"], vec!["x\\x1b[2J", "1,200", "yes"], vec!["-", "7", "no"]]
        );
    }

    #[test]
    fn secrets_in_several_parts_have_one_head_and_need_an_open_pipe() {
        let fields: TableColumns = &[("USER", "user"), ("SECRET", "secret")];
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
    fn a_duration_is_no_time() {
        let fields: TableColumns = &[("AT", "made_at_ms"), ("MS", "duration_ms")];
        let text = written(|out| table(out, fields, &[json!({ "made_at_ms": 0, "duration_ms": 1200 })]));
        assert!(text.contains("1,200") && !text.contains("ago"), "{text}");
        let text = written(|out| details(out, &json!({ "timeout_ms": 1200 })));
        assert!(text.contains("timeout_ms  1,200"), "{text}");
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
    #[test]
    fn objects_are_rows_with_units_and_limits_that_are_not_set_are_left_out() {
        let of = json!({
            "endpoints": {
                "host": "127.0.0.1", "mqtt": { "port": 46_600, "url": "mqtt://127.0.0.1:46600" }, "ws": null,
                "ca_pem": "-----BEGIN CERTIFICATE-----\nMII",
            },
            "limits": { "broker": { "connections": 5_000, "queue_bytes": null }, "client": { "queue_age_s": null } },
            "ceiling": { "broker": { "connections": null } },
            "used": {
                "bytes_in": 2_048, "connected_session_minutes": 0.191_316_666, "stored_byte_hours": 1_024.7,
                "cost_micros": 1_234_500_000,
            },
            "client.publishes_per_s": 10, "client.publish_bytes_per_s": 1_024,
        });
        let text = written(|out| details(out, &of));
        let mut lines: Vec<_> = text.lines().skip(1).filter_map(|line| line.split_once("  ")).collect();
        lines.iter_mut().for_each(|(_, value)| *value = value.trim());
        let mut expected = [
            ("endpoints.host", "127.0.0.1"),
            ("endpoints.mqtt", "mqtt://127.0.0.1:46600"),
            ("endpoints.ca_pem", "PEM, which --json shows"),
            ("limits.broker.connections", "5,000"),
            ("ceiling", "-"),
            ("used.bytes_in", "2.0 KiB"),
            ("used.connected_session_minutes", "0.2 min"),
            ("used.stored_byte_hours", "1.0 KiB for an hour"),
            ("used.cost_micros", "1,234.50"),
            ("client.publishes_per_s", "10/s"),
            ("client.publish_bytes_per_s", "1.0 KiB/s"),
        ];
        lines.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{text}");
        assert_eq!((money(0), money(1_234_567)), ("0.00".into(), "1.234567".into()));
    }
}
