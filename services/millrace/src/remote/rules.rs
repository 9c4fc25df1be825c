//! `millrace rules` lists, adds and deletes rules of a broker or of a credential. `millrace brokers manage` has a broker use its
//! own credentials and rules instead of the settings of the server.

use http::Method;
use serde_json::{Value, json};

use super::args::{ActionArg, ApiArgs, EffectArg, OfRules, RulesArgs, RulesCommand, Sure};
use super::print::TableColumns;
use super::site::{ListAnswer, Site, part};
use crate::failure::Failure;
use crate::terminal::confirm::{confirm, may_ask};

const RULES: TableColumns =
    &[("NUMBER", "number"), ("EFFECT", "effect"), ("ACTION", "action"), ("FILTER", "filter")];

pub(crate) fn rules(args: RulesArgs) -> Result<(), Failure> {
    match args.what {
        RulesCommand::List { of } => {
            let (site, owner) = RulesOwner::of(&of)?;
            owner.print(&site, &site.get(&owner.path())?.body)
        }
        RulesCommand::Add { effect, action, filter, before, qos_max, no_retain, of } => {
            if matches!(effect, EffectArg::Deny) && (no_retain || qos_max.is_some()) {
                let what = "--no-retain and --qos-max limit an allow rule: a deny rule denies everything that it matches";
                return Err(Failure::Settings(what.into()));
            }
            let (site, owner) = RulesOwner::of(&of)?;
            let mut rule = rule(effect, action, &filter);
            (rule["qos_max"], rule["retain"]) = (json!(qos_max.unwrap_or(2)), json!(!no_retain));
            let changed = owner.change(&site, |rules| {
                let index = before.map_or(rules.len(), |number| number - 1);
                if index > rules.len() {
                    return Err(no_rule(index + 1));
                }
                rules.insert(index, rule);
                Ok(())
            })?;
            owner.print(&site, &changed)
        }
        RulesCommand::Delete { number, sure, of } => {
            may_ask(sure.yes)?;
            let (site, owner) = RulesOwner::of(&of)?;
            let changed = owner.change(&site, |rules| {
                let rule = rules.get(number - 1).ok_or_else(|| no_rule(number))?;
                let said = ["effect", "action", "filter"].map(|name| rule[name].as_str().unwrap_or_default());
                confirm(&format!("Delete the rule \"{}\"?", said.join(" ")), sure.yes)?;
                rules.remove(number - 1);
                Ok(())
            })?;
            owner.print(&site, &changed)
        }
    }
}

/// A broker, or one of its credentials: paths of the API.
struct RulesOwner {
    broker: String,
    credential: Option<String>,
}

impl RulesOwner {
    fn of(of: &OfRules) -> Result<(Site, Self), Failure> {
        let (site, broker) = Site::at_broker(&of.broker)?;
        Ok((site, Self { broker, credential: of.credential.clone() }))
    }

    fn path(&self) -> String {
        match &self.credential {
            Some(user) => format!("{}/credentials/{}", self.broker, part(user)),
            None => access(&self.broker),
        }
    }

    /// The body of the PUT, from the answer to the GET. A credential has further fields there, which a PUT refuses.
    fn settings(&self, found: Value) -> Result<Value, Failure> {
        if self.credential.is_some() {
            let fields = ["enabled", "group", "rules", "client_id", "expires_at_ms"];
            return Ok(fields.iter().map(|name| ((*name).to_owned(), found[*name].clone())).collect());
        }
        if is_by_settings(&found) {
            let name = self.broker.rsplit('/').next().unwrap_or_default();
            return Err(Failure::Run(manage_first(name)));
        }
        Ok(found)
    }

    fn change(
        &self,
        site: &Site,
        change: impl FnOnce(&mut Vec<Value>) -> Result<(), Failure>,
    ) -> Result<Value, Failure> {
        site.edit(Method::PUT, &self.path(), |found| {
            let mut settings = self.settings(found)?;
            if let Some(rules) = settings["rules"].as_array_mut() {
                change(rules)?;
            }
            Ok(settings)
        })
    }

    fn print(&self, site: &Site, found: &Value) -> Result<(), Failure> {
        let rules = found["rules"].as_array().into_iter().flatten().cloned().enumerate();
        let numbered = |(index, mut rule): (usize, Value)| {
            rule["number"] = json!(index + 1);
            rule
        };
        let list = ListAnswer::whole(rules.map(numbered).collect());
        let empty = if self.credential.is_some() {
            "The credential has no rules of its own: those of its group and of the broker apply."
        } else if is_by_settings(found) {
            "The broker has no rules: the rules file of the server applies, if there is one."
        } else {
            "There are no rules: clients may do what their own rules allow, or everything."
        };
        site.printer.list(RULES, &list, empty)
    }
}

fn access(broker: &str) -> String {
    format!("{broker}/access")
}

fn rule(effect: EffectArg, action: ActionArg, filter: &str) -> Value {
    let effect = match effect {
        EffectArg::Allow => "allow",
        EffectArg::Deny => "deny",
    };
    let action = match action {
        ActionArg::Publish => "publish",
        ActionArg::Subscribe => "subscribe",
        ActionArg::All => "all",
    };
    json!({ "effect": effect, "action": action, "filter": filter })
}

fn no_rule(number: usize) -> Failure {
    Failure::Run(format!("there is no rule {number}; `millrace rules list` lists them"))
}

/// Whether the settings of the server decide about a broker with this access.
fn is_by_settings(access: &Value) -> bool {
    access["by_settings"] == true
}

pub(super) fn manage(broker: &str, sure: &Sure, api: &ApiArgs) -> Result<(), Failure> {
    may_ask(sure.yes)?;
    let site = Site::open(api)?;
    let path = access(&site.broker(Some(broker))?);
    if !is_by_settings(&site.get(&path)?.body) {
        site.printer.did("The broker uses its own credentials already.");
        return Ok(());
    }
    confirm(
        &format!(
            "Let \"{broker}\" use its own credentials from now on, for good? The server disconnects its clients, refuses those \
             without a credential, and no longer applies its rules file: until you add rules, clients without rules of their \
             credential or group may do everything."
        ),
        sure.yes,
    )?;
    site.edit(Method::PUT, &path, |access| {
        // Somebody may have set the access meanwhile, and it must not be replaced.
        let is_still = is_by_settings(&access);
        is_still.then(|| json!({ "by_settings": false })).ok_or_else(|| {
            Failure::Run(format!(
                "\"{broker}\" uses its own credentials already: somebody has just set its access"
            ))
        })
    })?;
    site.printer.did(&format!(
        "\"{broker}\" uses its own credentials now. Create one with `millrace credentials create NAME --broker {broker}`."
    ));
    Ok(())
}

pub(super) fn manage_first(broker: &str) -> String {
    format!(
        "this broker follows the settings of the server and its rules file, until you run `millrace brokers manage {broker}`, which \
         disconnects its clients"
    )
}
