//! Groups, token issuers and client CAs of a broker: objects with a name that are set as a whole.

use clap::{Args, Subcommand};
use http::Method;

use super::args::{BrokerArgs, ListLimit, Sure};
use super::input;
use super::print::TableColumns;
use super::site::{Site, part};
use crate::failure::Failure;
use crate::terminal::confirm::{confirm, may_ask};

struct AccessKind {
    path: &'static str,
    name: &'static str,
    columns: TableColumns,
}

const GROUPS: AccessKind = AccessKind {
    path: "groups",
    name: "group",
    columns: &[("NAME", "name"), ("RULES", "rules"), ("MADE", "created_at_ms")],
};
const ISSUERS: AccessKind = AccessKind {
    path: "jwt-issuers",
    name: "token issuer",
    columns: &[("NAME", "name"), ("ENABLED", "enabled"), ("ISSUER", "issuer"), ("GROUP", "group")],
};
const CAS: AccessKind = AccessKind {
    path: "client-cas",
    name: "client CA",
    columns: &[("NAME", "name"), ("ENABLED", "enabled"), ("GROUP", "group"), ("MADE", "created_at_ms")],
};

#[derive(Debug, Args)]
pub(crate) struct NamedArgs {
    #[command(subcommand)]
    what: NamedCommand,
}

#[derive(Debug, Subcommand)]
enum NamedCommand {
    /// List all of a broker.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Show one.
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Make or replace one; standard input has its settings in JSON, as in the API.
    Put {
        /// Its name.
        name: String,
        #[command(flatten)]
        of: BrokerArgs,
    },
    /// Delete one.
    Delete {
        /// Its name.
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: BrokerArgs,
    },
}

pub(crate) fn groups(args: NamedArgs) -> Result<(), Failure> {
    named(&GROUPS, args)
}

pub(crate) fn issuers(args: NamedArgs) -> Result<(), Failure> {
    named(&ISSUERS, args)
}

pub(crate) fn cas(args: NamedArgs) -> Result<(), Failure> {
    named(&CAS, args)
}

fn named(kind: &AccessKind, args: NamedArgs) -> Result<(), Failure> {
    let path = |broker: &str, name: &str| format!("{broker}/{}/{}", kind.path, part(name));
    match args.what {
        NamedCommand::List { limit, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            let list = site.list(&format!("{broker}/{}", kind.path), "", limit.limit)?;
            site.printer.list(kind.columns, &list, &format!("There is no {}.", kind.name))
        }
        NamedCommand::Show { name, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.printer.details(&site.get(&path(&broker, &name))?.body)
        }
        NamedCommand::Put { name, of } => {
            let (site, broker) = Site::at_broker(&of)?;
            site.put(&path(&broker, &name), &input::json()?)?;
            site.printer.did("Set.");
            Ok(())
        }
        NamedCommand::Delete { name, sure, of } => {
            may_ask(sure.yes)?;
            let (site, broker) = Site::at_broker(&of)?;
            confirm(&format!("Delete the {} \"{name}\"?", kind.name), sure.yes)?;
            site.act(Method::DELETE, &path(&broker, &name))?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}
