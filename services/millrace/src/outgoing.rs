//! Settings of the HTTP client that calls tenants' services.

use clap::Args;
use ipnet::IpNet;
use millrace_edge::outgoing::CallSettings;

use crate::values::{network, yes_or_no};

#[derive(Clone, Debug, Args)]
pub(crate) struct OutgoingArgs {
    /// Networks that URLs of tenants (key sets, webhooks) may reach beside the public internet,
    /// such as 127.0.0.0/8 or 10.20.0.0/16; http:// is allowed there, too [default: none].
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', value_parser = network)]
    outgoing_allow: Vec<IpNet>,

    /// Call http:// on the public internet, too; passwords and keys are then sent unencrypted
    /// [default: false].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[arg(value_parser = yes_or_no)]
    outgoing_http: Option<bool>,
}

impl OutgoingArgs {
    pub(crate) fn settings(self) -> CallSettings {
        CallSettings {
            allow: self.outgoing_allow,
            plain_http: self.outgoing_http.unwrap_or_default(),
            // The authorities of the system alone; tests add theirs.
            roots: Vec::new(),
        }
    }
}
