//! Access to a broker, `millrace access`: the settings as a whole, and a test of one action.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::json;

use super::args::BrokerArgs;
use super::input;
use super::site::Site;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct AccessArgs {
    #[command(subcommand)]
    what: AccessCommand,
}

#[derive(Debug, Subcommand)]
enum AccessCommand {
    /// Show the authentication methods and rules.
    Show {
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Replace them; standard input has all of them in JSON, as `show --json` prints them.
    Set {
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show whether a client may publish or subscribe, and which rule decides.
    Test(TestArgs),
}

#[derive(Debug, Args)]
struct TestArgs {
    /// Id of the client.
    client: String,
    action: TestedAction,
    /// Topic to publish to, or filter to subscribe to.
    topic: String,
    /// User name of the client [default: it has none].
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    #[arg(long, value_name = "QOS", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// The message is to be retained.
    #[arg(long)]
    retain: bool,
    #[command(flatten)]
    of: BrokerArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TestedAction {
    Publish,
    Subscribe,
}

pub(crate) fn access(args: AccessArgs) -> Result<(), Failure> {
    match args.what {
        AccessCommand::Show { of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.printer.details(&site.get(&format!("{broker}/access"))?.body)
        }
        AccessCommand::Set { of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let settings = input::json()?;
            // `edit` reads the settings first for their ETag, so a change in between refuses this one.
            site.printer.details(&site.edit(Method::PUT, &format!("{broker}/access"), |_| Ok(settings))?)
        }
        AccessCommand::Test(TestArgs { client, action, topic, user, qos, retain, of }) => {
            let (site, broker) = Site::at_broker(&of)?;
            let action = match action {
                TestedAction::Publish => "publish",
                TestedAction::Subscribe => "subscribe",
            };
            let question = json!({
                "client_id": client, "user": user, "action": action, "topic": topic, "qos": qos, "retain": retain,
            });
            site.printer.details(&site.send(Method::POST, &format!("{broker}/access/test"), question)?)
        }
    }
}
