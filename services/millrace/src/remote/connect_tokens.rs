//! `millrace connect-tokens`: short-lived passwords for MQTT, such as for a web page.

use clap::{Args, Subcommand};
use serde_json::json;

use super::args::BrokerArgs;
use super::site::Site;
use crate::failure::Failure;
use crate::limits::whole_number;

#[derive(Debug, Args)]
pub(crate) struct ConnectTokensArgs {
    #[command(subcommand)]
    what: ConnectTokensCommand,
}

#[derive(Debug, Subcommand)]
enum ConnectTokensCommand {
    /// Make a connect token. Its password is shown once, and cannot be revoked.
    Create {
        /// Topic filter that its client may publish to; it may be given several times.
        #[arg(long, value_name = "FILTER")]
        publish: Vec<String>,
        /// Topic filter that its client may subscribe to; it may be given several times [default: all
        /// topics, unless --publish is given].
        #[arg(long, value_name = "FILTER")]
        subscribe: Vec<String>,
        /// The only client id that can use it [default: a random one].
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// Seconds after which the broker disconnects its client.
        #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = whole_number::<u32>(10, 3_600))]
        expires_in_s: u32,
        #[command(flatten)]
        of: BrokerArgs,
    },
}

pub(crate) fn connect_tokens(args: &ConnectTokensArgs) -> Result<(), Failure> {
    let ConnectTokensCommand::Create { publish, subscribe, client_id, expires_in_s, of } = &args.what;
    let (site, broker) = Site::at_broker(of)?;
    let allow = |action: &'static str| move |filter: &String| json!({ "effect": "allow", "action": action, "filter": filter });
    let rules: Vec<_> =
        publish.iter().map(allow("publish")).chain(subscribe.iter().map(allow("subscribe"))).collect();
    let body = json!({
        "rules": (!rules.is_empty()).then_some(rules), "client_id": client_id, "expires_in_s": expires_in_s,
    });
    site.printer.secret(&site.make(&format!("{broker}/connect-tokens"), body)?)?;
    site.printer.did("The password is shown only now.");
    Ok(())
}
