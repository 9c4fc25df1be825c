//! `millrace pub` and `millrace sub`: messages of a broker over the API, with the login of the
//! other commands.

use std::io::{self, Read as _, Write as _};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use serde_json::{Value, json};

use super::args::BrokerArgs;
use super::print::say;
use super::site::{Site, part};
use crate::failure::Failure;
use crate::limits::{API_ANSWER_BYTES_MAX, whole_number};
use crate::text;

#[derive(Debug, Args)]
pub(crate) struct PubArgs {
    /// The topic.
    topic: String,

    /// The payload [default: standard input].
    payload: Option<String>,

    /// Quality of service. With 1 and 2 the command ends when the message is stored.
    #[arg(long, value_name = "QOS", default_value_t = 1, value_parser = whole_number::<u8>(0, 2))]
    qos: u8,

    /// Make it the retained message of its topic.
    #[arg(long)]
    retain: bool,

    #[command(flatten)]
    properties: PropertyArgs,

    #[command(flatten)]
    of: BrokerArgs,
}

/// Properties of MQTT 5.0.
#[derive(Debug, Args)]
struct PropertyArgs {
    /// Media type of the payload, such as application/json.
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    /// Topic for the answer.
    #[arg(long, value_name = "TOPIC")]
    response_topic: Option<String>,

    /// Text that the answer repeats.
    #[arg(long, value_name = "TEXT")]
    correlation_data: Option<String>,

    /// User property; it may be given several times.
    #[arg(long = "user-property", value_name = "NAME=VALUE", value_parser = user_property)]
    user_properties: Vec<(String, String)>,

    /// Seconds after which the message is no longer delivered.
    #[arg(long, value_name = "SECONDS", value_parser = whole_number::<u32>(0, u32::MAX))]
    message_expiry_s: Option<u32>,
}

impl PropertyArgs {
    fn body(&self) -> Value {
        let user = self.user_properties.iter().map(|(name, value)| json!({ "name": name, "value": value }));
        json!({
            "content_type": self.content_type,
            "response_topic": self.response_topic,
            "correlation_data_base64": self.correlation_data.as_ref().map(|text| BASE64_STANDARD.encode(text)),
            "message_expiry_s": self.message_expiry_s,
            "user_properties": user.collect::<Vec<_>>(),
        })
    }
}

fn user_property(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a name, = and a value are allowed")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// `millrace sub`.
///
/// Shows messages as they are published until it is interrupted, at most 500 a second. It keeps no
/// session at the broker.
#[derive(Debug, Args)]
pub(crate) struct SubArgs {
    /// The topic filter.
    #[arg(default_value = "#")]
    filter: String,

    /// Begin with the retained messages.
    #[arg(long)]
    retained: bool,

    /// End after this number of messages.
    #[arg(long, value_name = "COUNT", value_parser = whole_number::<u64>(1, u64::MAX))]
    count: Option<u64>,

    #[command(flatten)]
    of: BrokerArgs,
}

pub(crate) fn publish(args: PubArgs) -> Result<(), Failure> {
    let payload = match args.payload {
        Some(text) => text.into_bytes(),
        None => {
            let mut bytes = Vec::new();
            let read = io::stdin().take(API_ANSWER_BYTES_MAX as u64).read_to_end(&mut bytes);
            read.map_err(|error| Failure::Run(format!("standard input cannot be read: {error}")))?;
            bytes
        }
    };
    let (site, broker) = Site::at_broker(&args.of)?;
    let body = json!({
        "topic": args.topic, "payload_base64": BASE64_STANDARD.encode(payload), "qos": args.qos, "retain": args.retain,
        "properties": args.properties.body(),
    });
    let published = site.send(http::Method::POST, &format!("{broker}/publish"), body)?;
    if args.of.api.json {
        return site.printer.details(&published);
    }
    site.printer.did(if published["matched"] == 0 {
        "Published; nobody subscribes to it."
    } else {
        "Published."
    });
    Ok(())
}

pub(crate) fn subscribe(args: &SubArgs) -> Result<(), Failure> {
    let (site, broker) = Site::at_broker(&args.of)?;
    let path = format!("{broker}/tail?filter={}&retained={}", part(&args.filter), args.retained);
    let (mut left, json) = (args.count, args.of.api.json);
    let mut out = io::stdout().lock();
    site.events(&path, &mut |event, data| {
        match event {
            "message" => {
                let written = match json {
                    true => writeln!(out, "{data}"),
                    false => writeln!(out, "{}", line(&data)),
                };
                // Nobody reads the output any more.
                if written.and_then(|()| out.flush()).is_err() {
                    return Ok(false);
                }
                left = left.map(|left| left - 1);
                Ok(left != Some(0))
            }
            "dropped" => {
                say(&format!("{} messages were left out", data["messages"]));
                Ok(true)
            }
            "end" => {
                Err(Failure::Run(format!("the stream has ended: {}", data["reason"].as_str().unwrap_or("?"))))
            }
            _ => Ok(true),
        }
    })
}

/// A line of topic and payload. Control characters are escaped, because a message must not control
/// the terminal.
fn line(message: &Value) -> String {
    let topic = text::escape(message["topic"].as_str().unwrap_or_default().as_bytes());
    let encoded = message["payload_base64"].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
    let payload = encoded.unwrap_or_else(|| message["payload"].as_str().unwrap_or_default().into());
    format!("{topic} {}", text::escape(&payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_cannot_write_to_the_terminal() {
        for (message, expected) in [
            (json!({ "topic": "a/b", "payload": "21 C" }), "a/b 21 C"),
            (json!({ "topic": "a", "payload": "\u{1b}[2J" }), "a \\x1b[2J"),
            (json!({ "topic": "a", "payload_base64": "/w==" }), "a \\xff"),
            (json!({ "topic": "a" }), "a "),
        ] {
            assert_eq!(line(&message), expected);
        }
    }
}
