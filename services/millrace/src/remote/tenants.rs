//! Commands of operators for the tenants, plans and pods of a region, over the operator API of the
//! admin port.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::args::{AuditFilterArgs, ListLimit, Sure};
use super::control::{changes, flat};
use super::operators::OfRegion;
use super::print::{TableColumns, say};
use super::site::{ListAnswer, pages, part};
use super::{audit, usage};
use crate::failure::Failure;
use crate::limits::whole_number;
use crate::terminal::confirm::{confirm, may_ask};

const TENANTS: TableColumns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("PLAN", "plan"),
    ("MEMBERS", "members"),
    ("BROKERS", "brokers"),
    ("SUSPENDED", "suspended"),
    ("MADE", "created_at_ms"),
];
const LOUDEST: TableColumns = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("IN", "messages_in"),
    ("DELIVERED", "messages_delivered"),
    ("BYTES IN", "bytes_in"),
    ("BYTES OUT", "bytes_out"),
];
/// The operator API's maximum.
const LOUDEST_MAX: usize = 100;
const PLANS: TableColumns = &[("NAME", "name"), ("PUBLIC", "is_public"), ("CEILING", "limits")];
const PODS: TableColumns = &[("NAME", "name"), ("ALIVE", "is_alive"), ("LEASE ENDS", "until_ms")];

#[derive(Debug, Args)]
pub(crate) struct TenantsArgs {
    #[command(subcommand)]
    what: TenantsCommand,
}

#[derive(Debug, Args)]
struct OneTenant {
    /// Id of the organisation, which `millrace tenants list` shows.
    #[arg(value_parser = id)]
    tenant: String,
    #[command(flatten)]
    region: OfRegion,
}

#[derive(Debug, Subcommand)]
enum TenantsCommand {
    /// List the tenants of the region.
    List {
        #[command(flatten)]
        limit: ListLimit,
        #[command(flatten)]
        region: OfRegion,
    },
    /// Show a tenant.
    Show(OneTenant),
    /// Find the tenant of a broker, such as the broker of an alert.
    Find {
        /// Name of the broker, as metrics and alerts have it.
        broker: String,
        #[command(flatten)]
        region: OfRegion,
    },
    /// List the tenants that have published the most messages in this month, with their usage.
    Loudest {
        /// Rows to show at most.
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = whole_number::<usize>(1, LOUDEST_MAX))]
        limit: usize,
        #[command(flatten)]
        region: OfRegion,
    },
    /// Suspend a tenant: its clients are disconnected, and its members can only read.
    Suspend {
        /// The reason, which the tenant sees.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        of: OneTenant,
    },
    /// End the suspension of a tenant.
    Resume(OneTenant),
    /// Assign a plan to a tenant, whose limits are then bound by it.
    SetPlan {
        #[command(flatten)]
        of: OneTenant,
        /// Name of the plan.
        #[arg(required_unless_present = "none", conflicts_with = "none")]
        plan: Option<String>,
        /// The tenant has no plan any more.
        #[arg(long)]
        none: bool,
    },
    /// Usage of a tenant, or of a deleted one.
    Usage {
        #[command(flatten)]
        of: OneTenant,
        #[command(flatten)]
        span: usage::UsageSpan,
    },
    /// Audit log of a tenant, or of a deleted one.
    Audit {
        #[command(flatten)]
        of: OneTenant,
        #[command(flatten)]
        filter: AuditFilterArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RegionPlansArgs {
    #[command(subcommand)]
    what: RegionPlansCommand,
}

#[derive(Debug, Subcommand)]
enum RegionPlansCommand {
    /// List all plans of the region; `millrace plans` lists those that a tenant sees.
    List {
        #[command(flatten)]
        region: OfRegion,
    },
    /// Create or replace a plan. It applies at once to the tenants that have it.
    Put {
        name: String,
        /// Upper bounds of limits, such as broker.connections=500; the server's own limit applies
        /// to all others.
        #[arg(value_name = "LIMIT=NUMBER")]
        ceiling: Vec<String>,
        /// Whether every tenant sees the plan [default: as before; a new plan is seen by its
        /// tenants alone].
        #[arg(long, value_name = "BOOL")]
        public: Option<bool>,
        #[command(flatten)]
        region: OfRegion,
    },
    /// Delete a plan that no tenant has.
    Delete {
        name: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        region: OfRegion,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PodsArgs {
    #[command(subcommand)]
    what: PodsCommand,
}

#[derive(Debug, Subcommand)]
enum PodsCommand {
    /// List the pods of the region.
    List {
        #[command(flatten)]
        region: OfRegion,
    },
    /// Show the pod that has this admin port.
    Show {
        #[command(flatten)]
        region: OfRegion,
    },
    /// Disconnect the clients of a pod little by little. It accepts none until it is restarted.
    Drain {
        /// Name of the pod, which must be in the process that has this admin port; `self` for a
        /// server without a name.
        pod: String,
        #[command(flatten)]
        sure: Sure,
        #[command(flatten)]
        region: OfRegion,
    },
}

/// Checks the form of an id, so that the message for a name can say where ids are.
fn id(text: &str) -> Result<String, String> {
    let groups: Vec<_> = text.split('-').map(str::len).collect();
    let is_hexadecimal = text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    match groups == [8, 4, 4, 4, 12] && is_hexadecimal {
        true => Ok(text.into()),
        false => Err("it is not an id: `millrace tenants list` shows the ids of tenants".into()),
    }
}

pub(crate) fn tenants(args: TenantsArgs) -> Result<(), Failure> {
    match args.what {
        TenantsCommand::List { limit, region } => {
            let region = region.open()?;
            let mut list = pages(&region.client, "/tenants", "", limit.limit)?;
            if !region.printer.json {
                for tenant in &mut list.rows {
                    tenant["suspended"] = tenant["suspension"].is_object().into();
                }
            }
            region.printer.list(TENANTS, &list, "There are no tenants.")
        }
        TenantsCommand::Show(of) => {
            let region = of.region.open()?;
            region.printer.details(&region.get(&of.path(""))?)
        }
        TenantsCommand::Find { broker, region } => {
            let region = region.open()?;
            region.printer.details(&region.get(&format!("/brokers/{}", part(&broker)))?)
        }
        TenantsCommand::Loudest { limit, region } => loudest(limit, &region),
        TenantsCommand::Suspend { reason, sure, of } => {
            may_ask(sure.yes)?;
            let region = of.region.open()?;
            let name = region.get(&of.path(""))?["name"].take();
            confirm(&format!("Suspend the tenant {name} and disconnect its clients?"), sure.yes)?;
            let body = json!({ "reason": reason });
            region.printer.details(&region.send(Method::POST, &of.path("/suspend"), Some(body))?)
        }
        TenantsCommand::Resume(of) => {
            let region = of.region.open()?;
            region.printer.details(&region.send(Method::POST, &of.path("/resume"), None)?)
        }
        TenantsCommand::SetPlan { of, plan, .. } => {
            let region = of.region.open()?;
            let body = json!({ "plan": plan });
            region.printer.details(&region.send(Method::PUT, &of.path("/plan"), Some(body))?)
        }
        TenantsCommand::Usage { of, span } => {
            let region = of.region.open()?;
            usage::show(region.printer, &region.get(&of.path(&format!("/usage?{}", span.query())))?)
        }
        TenantsCommand::Audit { of, filter } => {
            let region = of.region.open()?;
            audit::of_operators(&region, &of.path("/audit"), &filter)
        }
    }
}

fn loudest(limit: usize, region: &OfRegion) -> Result<(), Failure> {
    let region = region.open()?;
    let answer = region.get(&format!("/loudest?limit={limit}"))?;
    let mut list = ListAnswer::of_answer(&answer);
    if !region.printer.json {
        for tenant in &mut list.rows {
            for (name, count) in tenant["used"].take().as_object().into_iter().flatten() {
                tenant[name] = count.clone();
            }
        }
    }
    region.printer.list(LOUDEST, &list, "There are no tenants.")?;
    if answer["incomplete"] == true {
        say("Incomplete: the server has not compared all tenants.");
    }
    Ok(())
}

impl OneTenant {
    fn path(&self, rest: &str) -> String {
        format!("/tenants/{}{rest}", self.tenant)
    }
}

pub(crate) fn region_plans(args: RegionPlansArgs) -> Result<(), Failure> {
    match args.what {
        RegionPlansCommand::List { region } => {
            let region = region.open()?;
            let mut list = ListAnswer::of_answer(&region.get("/plans")?);
            if !region.printer.json {
                for plan in &mut list.rows {
                    plan["limits"] = ceiling(&plan["ceiling"]).into();
                }
            }
            region.printer.list(PLANS, &list, "There is no plan: the limits of the server apply.")
        }
        RegionPlansCommand::Put { name, ceiling, public, region } => {
            let body = json!({ "ceiling": changes(&ceiling)?, "is_public": public });
            let region = region.open()?;
            region.printer.details(&region.send(Method::PUT, &plan(&name), Some(body))?)
        }
        RegionPlansCommand::Delete { name, sure, region } => {
            may_ask(sure.yes)?;
            let region = region.open()?;
            confirm(&format!("Delete the plan \"{name}\"?"), sure.yes)?;
            region.send(Method::DELETE, &plan(&name), None)?;
            region.printer.did("Deleted.");
            Ok(())
        }
    }
}

fn plan(name: &str) -> String {
    format!("/plans/{}", part(name))
}

/// The bounds that a plan sets, as `region-plans put` reads them.
fn ceiling(limits: &Value) -> String {
    let flat = flat(limits);
    let set = flat.as_object().into_iter().flatten().filter(|(_, limit)| !limit.is_null());
    set.map(|(name, limit)| format!("{name}={limit}")).collect::<Vec<_>>().join(" ")
}

pub(crate) fn pods(args: PodsArgs) -> Result<(), Failure> {
    match args.what {
        PodsCommand::List { region } => {
            let region = region.open()?;
            let list = ListAnswer::of_answer(&region.get("/pods")?);
            let nothing = "The server runs without other pods; `millrace pods show` shows it.";
            region.printer.list(PODS, &list, nothing)
        }
        PodsCommand::Show { region } => {
            let region = region.open()?;
            region.printer.details(&region.get("/pod")?)
        }
        PodsCommand::Drain { pod, sure, region } => {
            may_ask(sure.yes)?;
            let region = region.open()?;
            let question = format!(
                "Drain the pod \"{pod}\"? Its clients are disconnected, and it accepts none until it is restarted."
            );
            confirm(&question, sure.yes)?;
            region.send(Method::POST, &format!("/pods/{}/drain", part(&pod)), None)?;
            region.printer.did("It has begun: `millrace pods show` says how many clients are left.");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_id() {
        for (text, is_id) in [
            ("00000000-0000-4000-8000-00000000000A", true),
            ("acme", false),
            ("00000000-0000-4000-8000-00000000000", false),
            ("0000000z-0000-4000-8000-000000000000", false),
        ] {
            assert_eq!(id(text).is_ok(), is_id, "{text}");
        }
    }

    #[test]
    fn a_ceiling_is_shown_as_it_is_set() {
        let limits = json!({ "broker": { "connections": 500, "queue_bytes": null }, "client": { "subscriptions": 7 } });
        assert_eq!(ceiling(&limits), "broker.connections=500 client.subscriptions=7");
    }
}
