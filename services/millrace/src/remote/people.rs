//! Organisations, their members, invitations and API tokens.

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::args::{ApiArgs, ListLimit, Sure};
use super::print::{TableColumns, say};
use super::site::{Site, part};
use crate::clock::now_ms;
use crate::failure::Failure;
use crate::limits::whole_number;
use crate::terminal::confirm::{confirm, may_ask};

const MEMBERS: TableColumns =
    &[("ID", "id"), ("E-MAIL", "email"), ("NAME", "name"), ("ROLE", "role"), ("SINCE", "since_ms")];
const INVITATIONS: TableColumns =
    &[("ID", "id"), ("E-MAIL", "email"), ("ROLE", "role"), ("EXPIRES", "expires_at_ms")];
const TOKENS: TableColumns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("SCOPES", "scopes"),
    ("MADE", "created_at_ms"),
    ("EXPIRES", "expires_at_ms"),
];

/// The rights of a member.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum RoleArg {
    Owner,
    Operator,
    Viewer,
}

impl RoleArg {
    fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Operator => "operator",
            Self::Viewer => "viewer",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct OrganisationsArgs {
    #[command(subcommand)]
    what: OrganisationsCommand,
}

#[derive(Debug, Subcommand)]
enum OrganisationsCommand {
    /// Show the organisation.
    Show {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Give the organisation another name.
    Update {
        /// The new name.
        #[arg(long, value_name = "TEXT")]
        name: String,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Write everything that the organisation owns to standard output, without secrets: one JSON
    /// object a line.
    Export {
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Delete the organisation, which has no brokers any more.
    Delete {
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        api: ApiArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    #[command(subcommand)]
    what: MembersCommand,
}

#[derive(Debug, Subcommand)]
enum MembersCommand {
    /// List the members of the organisation.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Change the role of a member.
    Update {
        /// E-mail address or id of the member.
        member: String,
        /// The new role.
        #[arg(long, value_name = "ROLE")]
        role: RoleArg,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Remove a member; the member's API tokens end.
    Remove {
        /// E-mail address or id of the member.
        member: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        api: ApiArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct InvitationsArgs {
    #[command(subcommand)]
    what: InvitationsCommand,
}

#[derive(Debug, Subcommand)]
enum InvitationsCommand {
    /// List open invitations.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Invite a person. The link is shown once.
    Create {
        /// E-mail address of the person, who must sign up or in with it.
        email: String,
        /// The role of the new member.
        #[arg(long, value_name = "ROLE")]
        role: RoleArg,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Take an invitation back.
    Delete {
        /// Its id.
        id: String,
        #[command(flatten)]
        api: ApiArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    what: TokensCommand,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// List the API tokens of the organisation.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Create an API token. Its secret is shown once.
    Create {
        /// Its name, for people.
        name: String,
        /// Its scopes, such as brokers:read,access:write.
        #[arg(long, value_name = "SCOPE", value_delimiter = ',', required = true)]
        scopes: Vec<String>,
        /// Days after which it expires [default: never].
        #[arg(long, value_name = "DAYS", value_parser = whole_number::<u32>(1, 36_500))]
        days: Option<u32>,
        #[command(flatten)]
        api: ApiArgs,
    },
    /// Revoke an API token.
    #[command(visible_alias = "delete")]
    Revoke {
        /// Its id.
        id: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        api: ApiArgs,
    },
}

pub(crate) fn organisations(args: OrganisationsArgs) -> Result<(), Failure> {
    match args.what {
        OrganisationsCommand::Show { api } => {
            let site = Site::open(&api)?;
            site.printer.details(&site.get("")?.body)
        }
        OrganisationsCommand::Update { name, api } => {
            let site = Site::open(&api)?;
            site.printer.details(&site.edit(Method::PATCH, "", |_| Ok(json!({ "name": name })))?)
        }
        OrganisationsCommand::Export { api } => {
            let last = Site::open(&api)?.lines("/export", &mut std::io::stdout().lock())?;
            let last: Value = serde_json::from_slice(&last).unwrap_or_default();
            match last["kind"].as_str() {
                Some("end") => Ok(()),
                Some("error") => {
                    let why = last["data"]["detail"].as_str().unwrap_or("the service had an error");
                    Err(Failure::Run(format!("the export is incomplete: {why}")))
                }
                _ => Err(Failure::Run(
                    "the export is incomplete, because the connection ended: try again".into(),
                )),
            }
        }
        OrganisationsCommand::Delete { sure, api } => {
            may_ask(sure.yes)?;
            let site = Site::open(&api)?;
            let name = site.get("")?.body["name"].as_str().unwrap_or_default().to_owned();
            confirm(&format!("Delete the organisation \"{name}\" with its members and tokens?"), sure.yes)?;
            site.act(Method::DELETE, "")?;
            site.printer.did("Deleted.");
            Ok(())
        }
    }
}

pub(crate) fn members(args: MembersArgs) -> Result<(), Failure> {
    match args.what {
        MembersCommand::List { limit, api } => {
            let site = Site::open(&api)?;
            site.printer.list(MEMBERS, &site.list("/members", "", limit.limit)?, "There are no members.")
        }
        MembersCommand::Update { member, role, api } => {
            let site = Site::open(&api)?;
            let path = member_path(&site, &member)?;
            site.printer.details(&site.send(Method::PATCH, &path, json!({ "role": role.name() }))?)
        }
        MembersCommand::Remove { member, sure, api } => {
            may_ask(sure.yes)?;
            let site = Site::open(&api)?;
            let path = member_path(&site, &member)?;
            confirm(&format!("Remove the member \"{member}\"?"), sure.yes)?;
            site.act(Method::DELETE, &path)?;
            site.printer.did("Removed.");
            Ok(())
        }
    }
}

fn member_path(site: &Site, wanted: &str) -> Result<String, Failure> {
    let all = site.list("/members", "", usize::MAX)?.rows;
    let found = all.iter().find(|one| one["id"] == wanted || one["email"] == wanted.to_lowercase());
    let id = found.and_then(|one| one["id"].as_str()).ok_or_else(|| {
        Failure::Run(format!(
            "there is no member \"{wanted}\"; `millrace members list` lists the members of the organisation"
        ))
    })?;
    Ok(format!("/members/{}", part(id)))
}

pub(crate) fn invitations(args: InvitationsArgs) -> Result<(), Failure> {
    match args.what {
        InvitationsCommand::List { limit, api } => {
            let site = Site::open(&api)?;
            let list = site.list("/invitations", "", limit.limit)?;
            site.printer.list(INVITATIONS, &list, "Nobody is invited.")
        }
        InvitationsCommand::Create { email, role, api } => {
            let site = Site::open(&api)?;
            let made = site.make("/invitations", json!({ "email": email, "role": role.name() }))?;
            site.printer.secret(&made)?;
            let token = made["token"].as_str().unwrap_or_default();
            site.printer.did(&format!("The link, shown only now: {}/sign-up#{token}", site.url()));
            Ok(())
        }
        InvitationsCommand::Delete { id, api } => {
            let site = Site::open(&api)?;
            site.act(Method::DELETE, &format!("/invitations/{}", part(&id)))?;
            site.printer.did("Taken back.");
            Ok(())
        }
    }
}

pub(crate) fn tokens(args: TokensArgs) -> Result<(), Failure> {
    match args.what {
        TokensCommand::List { limit, api } => {
            let site = Site::open(&api)?;
            site.printer.list(TOKENS, &site.list("/tokens", "", limit.limit)?, "There are no API tokens.")
        }
        TokensCommand::Create { name, scopes, days, api } => {
            let site = Site::open(&api)?;
            let expires_at_ms = days.map(|days| now_ms() + u64::from(days) * 86_400_000);
            let body = json!({ "name": name, "scopes": scopes, "expires_at_ms": expires_at_ms });
            site.printer.secret(&site.make("/tokens", body)?)?;
            site.printer.did("The secret is shown only now.");
            Ok(())
        }
        TokensCommand::Revoke { id, sure, api } => {
            may_ask(sure.yes)?;
            let site = Site::open(&api)?;
            confirm(&format!("Revoke the API token \"{id}\"?"), sure.yes)?;
            site.act(Method::DELETE, &format!("/tokens/{}", part(&id)))?;
            say("Deleted.");
            Ok(())
        }
    }
}
