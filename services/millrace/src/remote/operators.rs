//! The operator API of the admin port, as the arguments of a command select it.

use std::path::{Path, PathBuf};

use clap::Args;
use http::{HeaderName, Method, header};
use serde_json::Value;

use super::client::{ApiClient, Ask};
use super::login::checked;
use super::print::Printer;
use super::profiles::variable;
use crate::failure::Failure;
use crate::user::own_name;

/// The audit log has this name, unless the operator's token has a name of its own.
const OPERATOR: HeaderName = HeaderName::from_static("millrace-operator");

#[derive(Debug, Args)]
pub(super) struct OperatorArgs {
    /// URL of the server's admin port (admin_listen).
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8090")]
    admin: String,
    /// File with the operators' token, where the server has operator_token_file [default:
    /// MILLRACE_OPERATOR_TOKEN_FILE].
    #[arg(long, value_name = "FILE")]
    operator_token_file: Option<PathBuf>,
    /// Allow HTTP without TLS to another machine; anybody on the way can then read the answer and
    /// the token.
    #[arg(long)]
    insecure: bool,
}

/// The admin port, and how its answers are printed.
#[derive(Debug, Args)]
pub(super) struct OfRegion {
    #[command(flatten)]
    operator: OperatorArgs,
    /// Write one JSON object a line; times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

/// The operator API of a region.
pub(super) struct RegionApi {
    pub(super) client: ApiClient,
    pub(super) printer: Printer,
}

impl OfRegion {
    pub(super) fn open(&self) -> Result<RegionApi, Failure> {
        Ok(RegionApi { client: self.operator.client()?, printer: Printer { json: self.json } })
    }
}

impl RegionApi {
    pub(super) fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.client.ask(&Ask::get(path))?.body)
    }

    pub(super) fn send(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, Failure> {
        Ok(self.client.ask(&Ask::new(method, path, body))?.body)
    }
}

impl OperatorArgs {
    pub(super) fn client(&self) -> Result<ApiClient, Failure> {
        let mut client = ApiClient::of_operators(&checked(&self.admin, self.insecure)?)?;
        let name = own_name();
        // A header carries ASCII.
        if name.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            client.who.push((OPERATOR, name));
        }
        let file = self.operator_token_file.clone();
        if let Some(file) = file.or_else(|| Some(variable("MILLRACE_OPERATOR_TOKEN_FILE")?.into())) {
            client.who.push((header::AUTHORIZATION, format!("Bearer {}", token(&file)?)));
        }
        Ok(client)
    }
}

fn token(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file);
    let text =
        text.map_err(|error| Failure::Settings(format!("{} cannot be read: {error}", file.display())))?;
    // A line has the operator's name before the token, where a server knows several.
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = lines.next().and_then(|line| line.split_whitespace().next_back());
    let missing = || Failure::Settings(format!("{} has no token", file.display()));
    token.map(str::to_owned).ok_or_else(missing)
}
