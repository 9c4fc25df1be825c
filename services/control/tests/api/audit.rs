//! The audit log: the entry of a change, the person behind a program, and what is left of a deleted organisation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use millrace_control::{Erasures, Live, LiveAnswer, LiveBroker};
use millrace_layers::accounts::audit;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::operator::{here, router};
use crate::tools::{Answer, Client, PASSWORD, Region, eventually};

/// The latest entry of an action.
fn entry<'a>(log: &'a Answer, action: &str) -> &'a Value {
    let entries = log.is(StatusCode::OK).body["items"].as_array().unwrap();
    entries.iter().find(|entry| entry["action"] == action).unwrap_or_else(|| panic!("no {action}: {log:#?}"))
}

#[tokio::test]
async fn a_change_of_rules_says_what_they_were_and_what_they_are() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let rule = |filter: &str| json!([{ "effect": "allow", "action": "publish", "filter": filter }]);
    let path = format!("{broker}/access");
    ann.put(&path, "*", json!({ "rules": rule("a") })).await.is(StatusCode::OK);
    let webhook = json!({ "url": "https://hooks.test/services/token", "signing_key": "a key that signs" });
    ann.put(&path, "*", json!({ "rules": rule("b"), "webhook": webhook })).await.is(StatusCode::OK);
    let log = ann.get(&ann.own("/audit")).await;
    let details = &entry(&log, "access.change")["details"];
    assert_eq!(details["before"]["rules"][0]["filter"], "a");
    assert_eq!(details["after"]["rules"][0]["filter"], "b");
    assert_eq!(details["after"]["webhook"]["url"], "https://hooks.test/(hidden)");
    assert_eq!(details["after"]["webhook"]["signing_key"], "(hidden)");
    assert_eq!(details["after"].get("anonymous"), None, "it has not changed");

    let user = json!({ "user": "pump", "rules": rule("c") });
    ann.post(&format!("{broker}/credentials"), user).await.is(StatusCode::CREATED);
    let changed = json!({ "enabled": false, "rules": rule("d") });
    ann.put(&format!("{broker}/credentials/pump"), "*", changed).await.is(StatusCode::OK);
    ann.put(&format!("{broker}/groups/g"), "", json!({ "rules": rule("e") })).await.is(StatusCode::CREATED);
    ann.delete(&format!("{broker}/groups/g")).await.is(StatusCode::NO_CONTENT);
    let limits = json!({ "limits": { "client": { "subscriptions": 7 } } });
    ann.patch(&broker, "*", limits).await.is(StatusCode::OK);
    let log = ann.get(&ann.own("/audit")).await;
    let of = |action: &str, path: &str| entry(&log, action)["details"].pointer(path).cloned();
    assert_eq!(of("credential.create", "/after/rules/0/filter"), Some(json!("c")));
    assert_eq!(of("credential.change", "/before/rules/0/filter"), Some(json!("c")));
    assert_eq!(of("credential.change", "/after/rules/0/filter"), Some(json!("d")));
    assert_eq!(of("credential.change", "/after/enabled"), Some(json!(false)));
    assert_eq!(of("group.create", "/after/rules/0/filter"), Some(json!("e")));
    assert_eq!(of("group.delete", "/before/rules/0/filter"), Some(json!("e")));
    assert_eq!(of("broker.change", "/after"), Some(json!({ "limits.client.subscriptions": 7 })));
    for secret in ["services/token", "a key that signs", "\"hash\""] {
        assert!(!log.body.to_string().contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn an_entry_names_the_person_and_the_program_behind_a_token() {
    let region = Region::new().await;
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let made = json!({ "name": "millrace on laptop", "scopes": ["brokers:write", "brokers:read"] });
    let made = ann.post(&ann.own("/tokens"), made).await;
    let program = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    program.with("user-agent", "millrace/0.1.0 (command line)").broker().await;
    let log = ann.get(&ann.own("/audit")).await;
    let actor = &entry(&log, "broker.create")["actor"];
    assert_eq!((&actor["kind"], &actor["name"]), (&json!("token"), &json!("millrace on laptop")));
    assert_eq!(actor["made_by"], json!(email));
    assert_eq!(actor["agent"], "millrace/0.1.0 (command line)");
}

#[tokio::test]
async fn operators_read_the_log_and_the_usage_of_a_deleted_organisation_for_400_days() {
    use millrace_layers::metering::{self, Unit};

    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let broker = ann.broker().await;
    let name = broker.rsplit('/').next().unwrap().as_bytes();
    let added = region.store.run(|tx| async move {
        let found = millrace_layers::catalog::get(&tx, name, millrace_storage::Read::Snapshot).await?;
        metering::add(&tx, found.unwrap().id, Unit::MessagesIn, 1_000_000_000_000, 3)
    });
    added.await.unwrap();
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    ann.delete(&ann.own("")).await.is(StatusCode::NO_CONTENT);
    region.clock.move_on(60_000);
    region.control.erase(&mut Erasures::default(), 1_000).await.unwrap();

    let operator = router(&region, None);
    let tenant = format!("/tenants/{}", ann.organisation);
    let (status, former) = here(&operator, "/former-tenants", None).await;
    assert_eq!((status, &former["items"][0]["id"]), (StatusCode::OK, &json!(ann.organisation)));
    let (status, log) = here(&operator, &format!("{tenant}/audit?limit=2"), None).await;
    assert_eq!((status, &log["items"][0]["action"]), (StatusCode::OK, &json!("organisation.delete")));
    assert_eq!(log["items"][1]["action"], "broker.delete");
    let (status, usage) = here(&operator, &format!("{tenant}/usage"), None).await;
    assert_eq!((status, &usage["deleted"]["messages_in"]), (StatusCode::OK, &json!(3)));
    // Operators read the log of a tenant that is there, too. Nobody else does.
    let (status, _) = here(&operator, &format!("/tenants/{}/audit", bob.organisation), None).await;
    assert_eq!(status, StatusCode::OK);
    let nobody = "/tenants/00000000-0000-7000-8000-000000000000";
    for path in ["audit", "usage"] {
        assert_eq!(here(&operator, &format!("{nobody}/{path}"), None).await.0, StatusCode::NOT_FOUND);
        ann.get(&ann.own(&format!("/{path}"))).await.is(StatusCode::NOT_FOUND);
    }

    region.clock.move_on(400 * 86_400_000);
    region.control.sweep().await.unwrap();
    assert_eq!(here(&operator, "/former-tenants", None).await.1["items"], json!([]));
    assert_eq!(here(&operator, &format!("{tenant}/audit"), None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_time_after_the_year_9999_is_refused() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    for name in ["from", "to"] {
        ann.get(&ann.own(&format!("/audit?{name}=253402300799999"))).await.is(StatusCode::OK);
        let late = format!("{name}=253402300800000");
        for path in [format!("{}?{late}", ann.own("/audit")), format!("/me/audit?{late}")] {
            let refused = ann.get(&path).await;
            assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).text("/fields/0/field"), name, "{path}");
        }
    }
    // Other routes with times give the same answer.
    let said = ann.get("/me/audit?to=253402300800000").await.body;
    for path in [ann.own("/usage"), format!("{broker}/usage"), format!("{broker}/metrics/history")] {
        let refused = ann.get(&format!("{path}?to=253402300800000")).await;
        assert_eq!(refused.is(StatusCode::UNPROCESSABLE_ENTITY).body["fields"], said["fields"], "{path}");
    }
}

#[tokio::test]
async fn who_may_not_change_a_url_does_not_see_the_token_in_it() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let url = "https://hooks.test/services/token?key=more";
    let webhook = json!({ "url": url, "events": ["connect"] });
    ann.put(&format!("{broker}/webhooks/w"), "", webhook).await.is(StatusCode::CREATED);
    let access = json!({ "webhook": { "url": url } });
    ann.put(&format!("{broker}/access"), "*", access).await.is(StatusCode::OK);
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "r", "scopes": ["access:read"] })).await;
    let viewer = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    for (path, pointer) in [("webhooks", "/items/0/url"), ("webhooks/w", "/url"), ("access", "/webhook/url")]
    {
        let path = format!("{broker}/{path}");
        assert_eq!(ann.get(&path).await.is(StatusCode::OK).text(pointer), url, "{path}");
        let seen = viewer.get(&path).await;
        assert_eq!(seen.is(StatusCode::OK).text(pointer), "https://hooks.test/(hidden)", "{path}");
    }
}

#[tokio::test]
async fn a_person_without_an_organisation_has_a_log_all_the_same() {
    let region = Region::new().await;
    let mut ann = region.person().await;
    let me = ann.get("/me").await;
    let (id, email) = (me.text("/user/id").to_owned(), me.text("/user/email").to_owned());
    ann.delete(&ann.own("")).await.is(StatusCode::NO_CONTENT);
    let wrong = json!({ "email": email, "password": "not the password of Ann" });
    region.stranger().post("/sign-in", wrong).await.is(StatusCode::UNAUTHORIZED);
    eventually(async || {
        let mine = ann.get("/me/audit").await;
        (mine.column("action").first() == Some(&"sign_in.refuse")).then_some(())
    })
    .await;
    let again = ann.post("/sign-in", json!({ "email": email, "password": PASSWORD })).await;
    ann.welcome(again.is(StatusCode::OK));
    let new = "a lamp of forty dull geese";
    ann.post("/me/password", json!({ "current": PASSWORD, "new": new })).await.is(StatusCode::NO_CONTENT);
    let log = ann.get("/me/audit").await;
    let noted = log.is(StatusCode::OK).column("action");
    assert_eq!(noted[..3], ["person.change_password", "sign_in", "sign_in.refuse"], "{log:?}");
    let first = ann.get("/me/audit?limit=1").await;
    let cursor = first.text("/next_cursor");
    assert_eq!(ann.get(&format!("/me/audit?limit=1&cursor={cursor}")).await.column("action"), ["sign_in"]);
    assert!(!log.body.to_string().contains(new));

    // The log is nobody else's, and not an organisation's.
    let bob = region.person().await;
    assert!(!bob.get("/me/audit").await.body.to_string().contains(&email));
    for person in [&ann, &bob] {
        person.get(&format!("/organisations/{id}/audit")).await.is(StatusCode::NOT_FOUND);
    }
    let token = bob.post(&bob.own("/tokens"), json!({ "name": "a", "scopes": ["audit:read"] })).await;
    bob.with_token(token.text("/secret")).get("/me/audit").await.is(StatusCode::FORBIDDEN);
    ann.post("/me/delete", json!({ "password": new })).await.is(StatusCode::NO_CONTENT);
    let rows = region.store.run(|tx| {
        let id = Uuid::parse_str(&id).unwrap();
        async move { audit::page(&tx, id.as_bytes(), None, 9).await }
    });
    assert!(rows.await.unwrap().0.is_empty(), "the log ends with the account");
}

#[tokio::test]
async fn the_log_is_filtered_by_actor_action_and_time() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    region.clock.move_on(3_600_000);
    let token = json!({ "name": "CI of plant", "scopes": ["access:write"] });
    let token = ann.post(&ann.own("/tokens"), token).await;
    let program = ann.with_token(token.text("/secret"));
    program.post(&format!("{broker}/credentials"), json!({ "user": "a" })).await.is(StatusCode::CREATED);
    let found = async |query: &str| {
        let log = ann.get(&ann.own(&format!("/audit?{query}"))).await;
        log.is(StatusCode::OK).column("action").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found("actor=ci%20of").await, ["credential.create"]);
    assert_eq!(found(&format!("actor={}", token.text("/id"))).await, ["credential.create"]);
    assert_eq!(found("action=broker.").await, ["broker.create"]);
    assert_eq!(found("action=credential.create&actor=nobody").await, [""; 0]);
    let later = 1_000_000_000_000_u64 + 3_600_000;
    assert_eq!(found(&format!("from={later}")).await, ["credential.create", "token.create"]);
    assert_eq!(found(&format!("from={later}&action=token")).await, ["token.create"]);
    assert!(!found(&format!("to={later}")).await.contains(&"token.create".to_owned()));
    assert_eq!(found(&format!("from={later}&to={later}")).await, [""; 0]);
    assert_eq!(found("actor=&action=&limit=1").await, ["credential.create"]);
    let own = ann.get("/me/audit?action=no").await;
    assert_eq!(own.is(StatusCode::OK).body["items"], json!([]));
}

#[tokio::test]
async fn a_filtered_request_reads_a_bounded_part_of_the_log_and_its_cursor_goes_on() {
    let region = Region::new().await.unlimited();
    let ann = region.person().await;
    let organisation = Uuid::parse_str(&ann.organisation).unwrap();
    for _ in 0..5 {
        let added = region.store.run(|tx| async move {
            let actor = json!({ "kind": "service", "id": null, "name": "millrace", "address": null });
            let row = json!({ "at_ms": 1, "actor": actor, "action": "noise", "target": "", "details": {} });
            let append = |place| audit::append(&tx, organisation.as_bytes(), place, row.to_string());
            (100..1_100).try_for_each(append)
        });
        added.await.unwrap();
    }
    let path = ann.own("/audit?action=organisation.create");
    let mut answer = ann.get(&path).await;
    assert_eq!(answer.is(StatusCode::OK).body["items"], json!([]));
    let mut requests = 1;
    while answer.body["items"] == json!([]) {
        answer = ann.get(&format!("{path}&cursor={}", answer.text("/next_cursor"))).await;
        requests += 1;
    }
    assert_eq!((requests, answer.column("action")), (3, vec!["organisation.create"]));
    // Each page of noise is full, and no entry is skipped or repeated between two pages.
    let (mut seen, mut cursor) = (std::collections::HashSet::new(), String::new());
    loop {
        let page = ann.get(&ann.own(&format!("/audit?action=noise&limit=150{cursor}"))).await;
        let fresh =
            page.is(StatusCode::OK).column("id").iter().filter(|id| seen.insert((**id).to_owned())).count();
        assert_eq!(fresh, page.body["items"].as_array().unwrap().len());
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5_000);
}

#[tokio::test]
async fn old_entries_of_audit_logs_are_removed_and_others_stay() {
    let region = Region::new().await.unlimited();
    let (ann, bob) = (region.person().await, region.person().await);
    let email = async |of: &Client| of.get("/me").await.text("/user/email").to_owned();
    let emails = [email(&ann).await, email(&bob).await];
    let organisation = Uuid::parse_str(&ann.organisation).unwrap();
    // More than one transaction removes.
    let added = region.store.run(|tx| async move {
        let actor = json!({ "kind": "service", "id": null, "name": "millrace", "address": null });
        let row = json!({ "at_ms": 1, "actor": actor, "action": "noise", "target": "", "details": {} });
        (0..1_200).try_for_each(|place| audit::append(&tx, organisation.as_bytes(), place, row.to_string()))
    });
    added.await.unwrap();
    let trim = async || {
        let mut from = None;
        loop {
            from = region.control.trim_audit(from.as_deref()).await.unwrap();
            if from.is_none() {
                break;
            }
        }
    };
    let day_ms = 86_400_000;
    region.clock.move_on(13 * day_ms);
    trim().await;
    assert!(!ann.get(&ann.own("/audit?action=noise")).await.column("action").is_empty(), "no time is set");
    region.control.keep_audit_for(30);
    region.clock.move_on(day_ms / 2);
    let broker = ann.broker().await;
    region.clock.move_on(17 * day_ms);
    let (mut ann, mut bob) = (ann, bob);
    for (person, email) in [(&mut ann, emails[0].clone()), (&mut bob, emails[1].clone())] {
        let again = person.post("/sign-in", json!({ "email": email, "password": PASSWORD })).await;
        person.welcome(again.is(StatusCode::OK));
    }
    trim().await;
    let log = ann.get(&ann.own("/audit")).await;
    assert_eq!(log.is(StatusCode::OK).column("action"), ["sign_in", "broker.create"], "{log:?}");
    assert_eq!(bob.get("/me/audit").await.column("action"), ["sign_in"]);
    ann.get(&broker).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_denied_request_with_a_long_path_takes_little_of_the_log() {
    let region = Region::new().await;
    let ann = region.person().await;
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "r", "scopes": ["audit:read"] })).await;
    let reader = ann.with_token(made.text("/secret"));
    let path = ann.own(&format!("/brokers/{}/suspend", "x".repeat(10_000)));
    reader.post(&path, Value::Null).await.is(StatusCode::FORBIDDEN);
    let log = ann.get(&ann.own("/audit")).await;
    let (action, target) = (log.text("/items/0/action"), log.text("/items/0/target"));
    assert_eq!(action, "denied");
    assert!(target.starts_with("POST /") && target.ends_with("xxx...") && target.len() < 600, "{target}");
}

/// Counts what it is asked to do to clients, sessions and retained messages.
#[derive(Default)]
pub(crate) struct Counts(AtomicUsize);

impl Counts {
    fn count(&self) -> LiveAnswer<'_, ()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(()) })
    }
}

impl Live for Counts {
    fn kick<'a>(&'a self, _: &'a LiveBroker, _: &'a str) -> LiveAnswer<'a, ()> {
        self.count()
    }

    fn purge_session<'a>(&'a self, _: &'a LiveBroker, _: &'a str) -> LiveAnswer<'a, ()> {
        self.count()
    }

    fn clear_retained<'a>(&'a self, _: &'a LiveBroker, _: &'a str) -> LiveAnswer<'a, ()> {
        self.count()
    }
}

/// Makes changes until the person has left behind as much as they may at once. Several tokens, so that no rate of requests refuses.
async fn use_up_the_log(broker: &str, tokens: &[Client]) {
    let rule = json!({ "effect": "allow", "action": "publish", "filter": "a/".repeat(80) });
    let rules = vec![rule; 100];
    for number in 0..1_500 {
        let token = tokens[number % tokens.len()].with("idempotency-key", &format!("k{number}"));
        let made = json!({ "user": format!("u{number}"), "rules": rules });
        if token.post(&format!("{broker}/credentials"), made).await.status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
    }
    panic!("all changes are stored");
}

#[tokio::test]
async fn nothing_is_done_to_clients_or_messages_without_an_entry() {
    let counts = Arc::new(Counts::default());
    let region = Region::new().await.live(Arc::clone(&counts));
    let ann = region.person().await;
    let broker = ann.broker().await;
    let token = async |scope: &str| {
        let made = ann.post(&ann.own("/tokens"), json!({ "name": scope, "scopes": [scope] })).await;
        region.stranger().with_token(made.text("/secret"))
    };
    let (writer, reader) = (token("clients:write").await, token("audit:read").await);
    let makers = [token("access:write").await, token("access:write").await, token("access:write").await];
    use_up_the_log(&broker, &makers).await;
    let long = "%F0%9F%90%98".repeat(250);
    let paths =
        [format!("clients/{long}"), format!("sessions/{long}"), format!("retained/message?topic={long}")];
    for path in paths {
        let (before, mut done) = (counts.0.load(Ordering::Relaxed), 0);
        let refused = loop {
            let answer = writer.delete(&format!("{broker}/{path}")).await;
            if answer.status != StatusCode::NO_CONTENT {
                break answer;
            }
            done += 1;
        };
        refused.is(StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(counts.0.load(Ordering::Relaxed) - before, done, "{path:.8}");
    }
    reader.post(&format!("{broker}/suspend"), Value::Null).await.is(StatusCode::FORBIDDEN);
    assert_eq!(reader.get(&ann.own("/audit")).await.column("action")[0], "denied");
}
