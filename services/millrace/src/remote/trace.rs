//! `millrace clients trace`: the packets of one client, a line for each.

use std::io::{self, Write as _};

use serde_json::Value;

use super::args::BrokerArgs;
use super::print::say;
use super::site::{Site, client_part};
use crate::failure::Failure;
use crate::text;

pub(super) fn trace(client: &str, of: &BrokerArgs) -> Result<(), Failure> {
    let (site, broker) = Site::at_broker(of)?;
    let path = format!("{broker}/clients/{}/trace", client_part(client));
    let json = of.api.json;
    let mut out = io::stdout().lock();
    site.events(&path, &mut |event, data| {
        match event {
            "begun" => {
                for server in data["unanswered"].as_array().into_iter().flatten() {
                    let server = text::escape(server.as_str().unwrap_or_default().as_bytes());
                    say(&format!("The server {server} does not answer: what happens there is not shown."));
                }
                say(match data["client"].is_null() {
                    true => "The client is not connected. Waiting for it.",
                    false => "The client is connected.",
                });
            }
            "trace" => {
                let written = match json {
                    true => writeln!(out, "{data}"),
                    false => writeln!(out, "{}", line(&data)),
                };
                // Nobody reads the output any more.
                return Ok(written.and_then(|()| out.flush()).is_ok());
            }
            "left_out" => say(&format!("{} events were left out", data["events"])),
            "end" => {
                let reason = data["reason"].as_str().unwrap_or("?");
                return Err(Failure::Run(format!("the stream has ended: {reason}")));
            }
            _ => {}
        }
        Ok(true)
    })
}

/// One line, with control characters escaped, because clients choose topics and user names.
fn line(event: &Value) -> String {
    let said = |value: &Value| match value {
        Value::String(said) => text::escape(said.as_bytes()),
        other => other.to_string(),
    };
    let arrow = match event["direction"].as_str() {
        Some("in") => "->",
        Some("out") => "<-",
        _ => "--",
    };
    let mut line =
        format!("{} {arrow} {}", time_of_day(event["at_ms"].as_u64().unwrap_or(0)), said(&event["kind"]));
    let mut add = |name: &str, value: &Value| {
        if !value.is_null() {
            line.push_str(&format!(" {name}={}", said(value)));
        }
    };
    for name in ["user", "address", "protocol", "keep_alive_s", "clean_start", "will_topic"] {
        add(name, &event["connect"][name]);
    }
    for name in ["topic", "qos", "retain", "dup", "packet_id", "messages", "session_present"] {
        if event[name] != false {
            add(name, &event[name]);
        }
    }
    for filter in event["filters"].as_array().into_iter().flatten() {
        for name in ["filter", "qos", "reason_code"] {
            add(name, &filter[name]);
        }
    }
    for name in ["more_filters", "payload_bytes", "bytes", "reason_code"] {
        add(name, &event[name]);
    }
    if event["reason"].is_string() {
        line.push_str(&format!(" ({})", said(&event["reason"])));
    }
    line
}

fn time_of_day(at_ms: u64) -> String {
    let (ms, seconds) = (at_ms % 1_000, at_ms / 1_000 % 86_400);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_that_cannot_write_to_the_terminal() {
        for (event, expected) in [
            (
                json!({ "at_ms": 3_723_004, "direction": "in", "kind": "PUBLISH", "topic": "a\u{1b}[2J", "qos": 1,
                    "retain": false, "packet_id": 7, "payload_bytes": 3, "bytes": 10 }),
                "01:02:03.004 -> PUBLISH topic=a\\x1b[2J qos=1 packet_id=7 payload_bytes=3 bytes=10",
            ),
            (
                json!({ "at_ms": 0, "direction": "out", "kind": "SUBACK", "packet_id": 1,
                    "filters": [{ "filter": "a/#", "qos": 2, "reason_code": 1 }] }),
                "00:00:00.000 <- SUBACK packet_id=1 filter=a/# qos=2 reason_code=1",
            ),
            (
                json!({ "at_ms": 0, "direction": "server", "kind": "closed", "reason": "lost" }),
                "00:00:00.000 -- closed (lost)",
            ),
        ] {
            assert_eq!(line(&event), expected);
        }
    }
}
