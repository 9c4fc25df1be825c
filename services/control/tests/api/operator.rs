//! The operator API: who gets in, and what it does to tenants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, StatusCode};
use millrace_control::{Operations, OperatorTokens, OwnPod, operator_router};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::tokens::member;
use crate::tools::{Client, PASSWORD, Region, interleaved};

/// A process with one pod.
#[derive(Default)]
struct Process(Mutex<Vec<String>>);

impl Operations for Process {
    fn pod(&self) -> Option<OwnPod> {
        Some(OwnPod {
            name: "pod-1".into(),
            version: "1.2.3".into(),
            started_at_ms: 1_790_000_000_000,
            recovery: None,
            problem: None,
            is_draining: false,
            connections: 7,
            gateway: vec!["127.0.0.1:1884".into()],
            gateway_peers: Vec::new(),
            health_checks: Vec::new(),
            fabric: None,
            drain_per_second: 50,
            drain_s_max: 60,
        })
    }

    fn drain(&self, pod: &str) -> bool {
        self.0.lock().unwrap().push(pod.to_owned());
        pod == "pod-1"
    }
}

pub(crate) fn router(region: &Region, token: Option<&str>) -> Router {
    operator_router(
        region.control.clone(),
        Arc::new(Process::default()),
        token.map(|token| OperatorTokens::parse(token).unwrap()),
    )
}

async fn ask(
    router: &Router,
    from: &str,
    headers: &[(&str, &str)],
    path: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    // A path may name its method.
    let (method, path) = path.split_once(' ').unwrap_or((if body.is_some() { "POST" } else { "GET" }, path));
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let mut request = request.body(body).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(from.parse().unwrap(), 50_000)));
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (parts.status, serde_json::from_slice(&body).unwrap_or_default())
}

const HERE: &[(&str, &str)] = &[("host", "127.0.0.1:8090")];

pub(crate) async fn here(router: &Router, path: &str, body: Option<Value>) -> (StatusCode, Value) {
    ask(router, "127.0.0.1", HERE, path, body).await
}

#[tokio::test]
async fn only_operators_get_in() {
    let region = Region::new().await;
    let open = router(&region, None);
    assert_eq!(here(&open, "/tenants", None).await.0, StatusCode::OK);
    for (from, headers) in [
        ("192.0.2.1", HERE),
        ("127.0.0.1", &[("host", "evil.example")][..]),
        ("127.0.0.1", &[("host", "127.0.0.1:8090"), ("origin", "http://evil.example")]),
        ("127.0.0.1", &[("host", "127.0.0.1:8090"), ("x-forwarded-for", "192.0.2.1")]),
        // A page of another port of this machine.
        ("127.0.0.1", &[("host", "127.0.0.1:8090"), ("sec-fetch-site", "same-site")]),
        ("127.0.0.1", &[("host", "127.0.0.1:8090"), ("sec-fetch-site", "cross-site")]),
    ] {
        assert_eq!(ask(&open, from, headers, "/tenants", None).await.0, StatusCode::FORBIDDEN, "{headers:?}");
    }
    for site in ["same-origin", "none"] {
        let headers = [("host", "127.0.0.1:8090"), ("sec-fetch-site", site)];
        assert_eq!(ask(&open, "127.0.0.1", &headers, "/tenants", None).await.0, StatusCode::OK, "{site}");
    }
    let guarded = router(&region, Some("the-token-of-the-operators-which-is-long"));
    for (shown, expected) in [
        ("Bearer the-token-of-the-operators-which-is-long", StatusCode::OK),
        ("Bearer another", StatusCode::UNAUTHORIZED),
        ("Bearer ", StatusCode::UNAUTHORIZED),
    ] {
        let headers = [("host", "admin.example:8090"), ("authorization", shown)];
        assert_eq!(ask(&guarded, "192.0.2.1", &headers, "/tenants", None).await.0, expected, "{shown}");
    }
    assert_eq!(here(&guarded, "/tenants", None).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(here(&open, "/nothing", None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_path_that_cannot_be_read_is_answered_with_a_problem() {
    let open = router(&Region::new().await, None);
    for path in ["/brokers/%ff", "/brokers/%zz", "/tenants/%ff"] {
        let (status, problem) = here(&open, path, None).await;
        assert!(
            status
                == problem["status"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
            "{path}: {problem}"
        );
        assert!(status.is_client_error(), "{path}: {status}");
    }
}

#[tokio::test]
async fn a_suspended_tenant_is_stopped_until_it_is_resumed() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let (one, other, of_bob) = (ann.broker().await, ann.broker().await, bob.broker().await);
    let post = |path: String| {
        let ann = ann.clone();
        async move { ann.send(axum::http::Method::POST, &path, None).await }
    };
    post(format!("{other}/suspend")).await.is(StatusCode::OK);
    let operator = router(&region, None);
    let path = format!("/tenants/{}", ann.organisation);
    let reason = json!({ "reason": "not paid" });
    let (status, tenant) = here(&operator, &format!("{path}/suspend"), Some(reason.clone())).await;
    assert_eq!((status, &tenant["suspension"]["reason"]), (StatusCode::OK, &json!("not paid")), "{tenant}");
    // A broker that runs all the same is stopped by the next one, and continues with the others.
    let name = one.rsplit('/').next().unwrap().as_bytes();
    let resumed = region.store.run(|tx| async move {
        use millrace_layers::catalog;
        let found = catalog::get(&tx, name, millrace_storage::Read::Serializable).await?.unwrap();
        let details = catalog::Details { suspended: false, ..found.details()?.value };
        catalog::describe(&tx, &found, &details).await
    });
    resumed.await.unwrap();
    assert_eq!(ann.get(&one).await.body["suspended"], false);
    let (status, again) = here(&operator, &format!("{path}/suspend"), Some(reason)).await;
    assert_eq!((status, &again["suspension"]), (StatusCode::OK, &tenant["suspension"]));
    assert_eq!(ann.get(&one).await.body["suspended"], true);
    assert_eq!(bob.get(&of_bob).await.body["suspended"], false);
    let refused = post(format!("{one}/resume")).await;
    assert!(refused.is(StatusCode::FORBIDDEN).text("/detail").contains("not paid"));
    ann.post(&ann.own("/brokers"), json!({ "display_name": "x" })).await.is(StatusCode::FORBIDDEN);
    ann.post("/organisations", json!({ "name": "Elsewhere" })).await.is(StatusCode::FORBIDDEN);
    bob.post("/organisations", json!({ "name": "Elsewhere" })).await.is(StatusCode::CREATED);
    ann.delete(&ann.own("")).await.is(StatusCode::FORBIDDEN);
    // Its members only read, and nothing of theirs is removed.
    ann.delete(&one).await.is(StatusCode::FORBIDDEN);
    ann.patch(&one, "*", json!({ "display_name": "x" })).await.is(StatusCode::FORBIDDEN);
    ann.put(&format!("{one}/groups/g"), "*", json!({ "rules": [] })).await.is(StatusCode::FORBIDDEN);
    let invite = json!({ "email": "carl@example.org", "role": "viewer" });
    ann.post(&ann.own("/invitations"), invite).await.is(StatusCode::FORBIDDEN);
    ann.get(&format!("{one}/groups")).await.is(StatusCode::OK);
    let log = ann.get(&ann.own("/audit")).await;
    let entries = log.body["items"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["action"] == "organisation.suspend").unwrap();
    assert_eq!(entry["actor"]["kind"], "operator");

    let (status, tenant) = here(&operator, &format!("{path}/resume"), Some(json!({}))).await;
    assert_eq!((status, &tenant["suspension"]), (StatusCode::OK, &Value::Null));
    assert_eq!(ann.get(&one).await.body["suspended"], false);
    assert_eq!(ann.get(&other).await.body["suspended"], true, "the tenant had suspended it");
    post(format!("{other}/resume")).await.is(StatusCode::OK);
    assert_eq!(here(&operator, &format!("{path}/resume"), Some(json!({}))).await.0, StatusCode::CONFLICT);
    for wrong in [json!({ "reason": " " }), json!({ "resaon": "x" }), json!({})] {
        let (status, problem) = here(&operator, &format!("{path}/suspend"), Some(wrong)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    }
}

#[tokio::test]
async fn tenants_are_listed_and_the_loudest_come_first() {
    use millrace_layers::metering::{self, Unit};

    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let (one, other) = (ann.broker().await, bob.broker().await);
    for (broker, count) in [(&one, 1), (&other, 2)] {
        let name = broker.rsplit('/').next().unwrap().as_bytes();
        let added = region.store.run(|tx| async move {
            let found = millrace_layers::catalog::get(&tx, name, millrace_storage::Read::Snapshot).await?;
            metering::add(&tx, found.unwrap().id, Unit::MessagesIn, 1_000_000_000_000, count)
        });
        added.await.unwrap();
    }
    let operator = router(&region, None);
    let (_, loudest) = here(&operator, "/loudest?limit=1", None).await;
    assert_eq!(
        (&loudest["items"][0]["id"], &loudest["incomplete"]),
        (&json!(bob.organisation), &json!(false))
    );
    let (_, first) = here(&operator, "/tenants?limit=1", None).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, next) = here(&operator, &format!("/tenants?limit=1&cursor={cursor}"), None).await;
    assert_eq!((&first["items"][0]["brokers"], &next["next_cursor"]), (&json!(1), &Value::Null));
    let mut listed = [&first, &next].map(|page| page["items"][0]["id"].as_str().unwrap());
    let mut expected = [&*ann.organisation, &*bob.organisation];
    listed.sort_unstable();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    for wrong in ["/tenants?limit=0", "/tenants?cursor=%21", "/loudest?limit=101"] {
        assert_eq!(here(&operator, wrong, None).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let missing = "/tenants/00000000-0000-7000-8000-000000000000";
    assert_eq!(here(&operator, missing, None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(here(&operator, "/tenants/nobody", None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(here(&operator, "/pods", None).await.1, json!({ "items": [] }));
    let (_, own) = here(&operator, "/pod", None).await;
    assert_eq!(
        (&own["name"], &own["connections"], &own["fabric"]),
        (&json!("pod-1"), &json!(7), &Value::Null)
    );
    assert_eq!(here(&operator, "/pods/pod-1/drain", Some(json!({}))).await.0, StatusCode::ACCEPTED);
    assert_eq!(here(&operator, "/pods/pod-9/drain", Some(json!({}))).await.0, StatusCode::NOT_FOUND);
    let log = here(&operator, "/audit", None).await.1;
    assert_eq!(log["items"].as_array().map(Vec::len), Some(1), "{log}");
    let entry = &log["items"][0];
    assert_eq!((&entry["action"], &entry["target"]), (&json!("pod.drain"), &json!("pod-1")));
    assert_eq!(entry["actor"]["kind"], "operator");
    let (_, described) = here(&operator, "/openapi.json", None).await;
    assert!(described["paths"]["/tenants/{tenant}/suspend"]["post"].is_object());
}

#[tokio::test]
async fn operators_find_a_tenant_by_the_name_of_a_broker() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    region.store.ensure_broker(b"default").await.unwrap();
    let operator = router(&region, None);
    let name = broker.rsplit('/').next().unwrap();
    let (status, found) = here(&operator, &format!("/brokers/{name}"), None).await;
    assert_eq!((status, &found["tenant"]["id"]), (StatusCode::OK, &json!(ann.organisation)), "{found}");
    let (status, found) = here(&operator, "/brokers/default", None).await;
    assert_eq!((status, &found["tenant"]), (StatusCode::OK, &Value::Null));
    assert_eq!(here(&operator, "/brokers/nothing", None).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_request_with_two_tokens_is_refused_whichever_of_them_is_right() {
    let region = Region::new().await;
    let right = "0123456789abcdef0123456789abcdef";
    let operator = router(&region, Some(right));
    let (right, wrong) = (format!("Bearer {right}"), "Bearer fedcba9876543210fedcba9876543210");
    let with = async |tokens: [&str; 2]| {
        let headers = tokens.map(|token| ("authorization", token));
        ask(&operator, "127.0.0.1", &headers, "/pods", None).await.0
    };
    assert_eq!(
        ask(&operator, "127.0.0.1", &[("authorization", &right)], "/pods", None).await.0,
        StatusCode::OK
    );
    for tokens in [[right.as_str(), wrong], [wrong, &right], [&right, &right]] {
        assert_eq!(with(tokens).await, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn a_plan_is_the_ceiling_of_the_limits_of_a_tenant() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let (old, of_bob) = (ann.broker().await, bob.broker().await);
    let operator = router(&region, None);
    let ceiling = |connections: u64| json!({ "ceiling": { "broker": { "connections": connections } } });
    let (status, plan) = here(&operator, "PUT /plans/small", Some(ceiling(10))).await;
    assert_eq!((status, &plan["ceiling"]["broker"]["connections"]), (StatusCode::OK, &json!(10)), "{plan}");
    let choose = async |plan: Value| {
        let path = format!("PUT /tenants/{}/plan", ann.organisation);
        here(&operator, &path, Some(json!({ "plan": plan }))).await
    };
    assert_eq!(choose(json!("none of these")).await.0, StatusCode::NOT_FOUND);
    let (status, tenant) = choose(json!("small")).await;
    assert_eq!((status, &tenant["plan"]), (StatusCode::OK, &json!("small")));
    let path = format!("PUT /tenants/{}/plan", ann.organisation);
    let (status, wrong) = here(&operator, &path, Some(json!({}))).await;
    assert_eq!((status, &wrong["fields"][0]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("plan")));

    let new = ann.broker().await;
    let limit = |connections: u64| json!({ "limits": { "broker": { "connections": connections } } });
    for broker in [&old, &new] {
        assert_eq!(ann.get(broker).await.body["ceiling"]["broker"]["connections"], 10);
        let refused = ann.patch(broker, "*", limit(11)).await;
        refused.is(StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(refused.text("/fields/0/field"), "limits.broker.connections");
        ann.patch(broker, "*", limit(9)).await.is(StatusCode::OK);
    }
    assert_eq!(bob.get(&of_bob).await.body["ceiling"], Value::Null);

    // A smaller plan holds at once, and the tenant's own limit comes back with a larger one.
    let in_force = async |broker: &str| {
        let name = broker.rsplit('/').next().unwrap().as_bytes();
        let read = region.store.run(|tx| async move {
            use millrace_layers::{accounts, catalog};
            let read = millrace_storage::Read::Snapshot;
            let id = catalog::get(&tx, name, read).await?.unwrap().id;
            let all = accounts::access(id);
            all.get::<millrace_access::model::Access>(&tx, accounts::ACCESS, read).await
        });
        read.await.unwrap().unwrap().value.limits_in_force().broker.connections
    };
    here(&operator, "PUT /plans/small", Some(ceiling(5))).await;
    assert_eq!(in_force(&old).await, Some(5));
    // Other limits can still be changed, and the stored one can be sent again, but not raised.
    let other = json!({ "limits": { "broker": { "subscriptions": 7 } } });
    ann.patch(&old, "*", other).await.is(StatusCode::OK);
    ann.patch(&old, "*", limit(9)).await.is(StatusCode::OK);
    ann.patch(&old, "*", limit(10)).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    here(&operator, "PUT /plans/small", Some(ceiling(50))).await;
    assert_eq!(in_force(&old).await, Some(9));
    assert_eq!(here(&operator, "DELETE /plans/small", None).await.0, StatusCode::CONFLICT);
    assert_eq!(choose(Value::Null).await.0, StatusCode::OK);
    assert_eq!(ann.get(&old).await.body["ceiling"], Value::Null);
    assert_eq!(here(&operator, "DELETE /plans/small", None).await.0, StatusCode::NO_CONTENT);
    assert_eq!(here(&operator, "/plans", None).await.1["items"], json!([]));
    let log = here(&operator, "/audit", None).await.1;
    let entries = log["items"].as_array().unwrap();
    let actions = entries.iter().map(|entry| entry["action"].as_str().unwrap());
    assert_eq!(actions.collect::<Vec<_>>(), ["plan.delete", "plan.set", "plan.set", "plan.set"]);
    let set = |number: usize| {
        let details = &entries[number]["details"];
        let connections = ["before", "after"].map(|of| &details[of]["broker"]["connections"]);
        (connections, &details["is_public"], &entries[number]["target"])
    };
    let private = (&json!(false), &json!("small"));
    assert_eq!(set(3), ([&Value::Null, &json!(10)], private.0, private.1));
    assert_eq!(set(1), ([&json!(5), &json!(50)], private.0, private.1));
    let entry = &entries[0];
    assert_eq!((&entry["action"], &entry["target"]), (&json!("plan.delete"), &json!("small")));
    assert_eq!(
        (&entry["actor"]["kind"], &entry["details"]["before"]["broker"]["connections"]),
        (&json!("operator"), &json!(50))
    );
    let log = ann.get(&ann.own("/audit")).await;
    assert!(log.column("action").contains(&"organisation.plan"), "{log:?}");
    assert_eq!(log.column("action").iter().filter(|action| **action == "plan.change").count(), 2, "{log:?}");
}

#[tokio::test]
async fn a_new_organisation_has_the_plan_of_its_owner_or_the_default_one() {
    let region = Region::new().await;
    let ann = region.person().await;
    let operator = router(&region, None);
    let ceiling = |connections: u64| json!({ "ceiling": { "broker": { "connections": connections } } });
    let tenant = |id: &str| format!("/tenants/{id}");
    let plan_of = async |id: &str| here(&operator, &tenant(id), None).await.1["plan"].clone();
    let new_one = async |name: &str| {
        let made = ann.post("/organisations", json!({ "name": name })).await;
        made.is(StatusCode::CREATED).text("/id").to_owned()
    };
    assert_eq!(plan_of(&new_one("Free").await).await, Value::Null);
    for (name, connections) in [("small", 10), ("large", 100), ("default", 50)] {
        here(&operator, &format!("PUT /plans/{name}"), Some(ceiling(connections))).await;
    }
    assert_eq!(plan_of(&new_one("Default").await).await, "default");
    let choose = async |id: &str, plan: &str| {
        let path = format!("PUT {}/plan", tenant(id));
        assert_eq!(here(&operator, &path, Some(json!({ "plan": plan }))).await.0, StatusCode::OK);
    };
    choose(&ann.organisation, "large").await;
    assert_eq!(plan_of(&new_one("Strictest of two").await).await, "default");
    choose(&ann.organisation, "small").await;
    assert_eq!(plan_of(&new_one("Strictest of three").await).await, "small");
    assert_eq!(plan_of(&region.person().await.organisation).await, "default");
}

#[tokio::test]
async fn tenants_see_public_plans_and_their_own_and_no_others() {
    let region = Region::new().await;
    let operator = router(&region, None);
    let (ann, bob) = (region.person().await, region.person().await);
    let plan = |connections: u64| json!({ "ceiling": { "broker": { "connections": connections } } });
    let public = json!({ "ceiling": { "broker": { "connections": 5 } }, "is_public": true });
    for (name, body) in [("of-ann", plan(10)), ("of-nobody", plan(20)), ("open", public)] {
        let (status, made) = here(&operator, &format!("PUT /plans/{name}"), Some(body)).await;
        assert_eq!(status, StatusCode::OK, "{made}");
    }
    let path = format!("PUT /tenants/{}/plan", ann.organisation);
    let (status, _) = here(&operator, &path, Some(json!({ "plan": "of-ann" }))).await;
    assert_eq!(status, StatusCode::OK);
    let token = json!({ "name": "t", "scopes": ["audit:read"] });
    let token = ann.post(&ann.own("/tokens"), token).await;
    for client in [&ann, &ann.with_token(token.text("/secret"))] {
        let seen = client.get("/plans").await;
        assert_eq!(seen.is(StatusCode::OK).column("name"), ["of-ann", "open"]);
        assert_eq!(seen.body["items"][0]["organisations"], json!([ann.organisation]));
        assert_eq!(seen.body["items"][0]["ceiling"]["broker"]["connections"], 10);
        assert_eq!(seen.body["items"][1]["organisations"], json!([]));
    }
    assert_eq!(bob.get("/plans").await.column("name"), ["open"]);
    region.stranger().get("/plans").await.is(StatusCode::UNAUTHORIZED);
    // A change of the ceiling alone leaves the plan public.
    here(&operator, "PUT /plans/open", Some(plan(6))).await;
    assert_eq!(bob.get("/plans").await.column("name"), ["open"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_plan_that_was_interrupted_is_finished_by_another_server() {
    let region = Region::new().await;
    let operator = router(&region, None);
    let ceiling = |connections: usize| json!({ "ceiling": { "broker": { "connections": connections } } });
    here(&operator, "PUT /plans/small", Some(ceiling(1_000))).await;
    let people = [region.person().await, region.person().await, region.person().await];
    let mut brokers = Vec::new();
    for person in &people {
        let path = format!("PUT /tenants/{}/plan", person.organisation);
        assert_eq!(here(&operator, &path, Some(json!({ "plan": "small" }))).await.0, StatusCode::OK);
        brokers.push((person, person.broker().await));
    }
    for stop in 0.. {
        let (changed, plan) = (operator.clone(), ceiling(100 + stop));
        let change = async move { here(&changed, "PUT /plans/small", Some(plan)).await };
        // The change stands still, as after a crash, while another server sweeps.
        let others = async {
            region.control.spread_plans().await.unwrap();
            let plan = here(&operator, "/plans", None).await.1["items"][0]["ceiling"].clone();
            for (person, broker) in &brokers {
                assert_eq!(person.get(broker).await.body["ceiling"], plan, "{stop}");
            }
        };
        let Some(((status, _), ())) = interleaved(stop, change, others).await else {
            assert!(stop > 2, "the change looks at the clock for each tenant");
            break;
        };
        assert_eq!(status, StatusCode::OK);
        for (person, broker) in &brokers {
            let shown = person.get(broker).await;
            assert_eq!(shown.body["ceiling"]["broker"]["connections"], 100 + stop);
            let log = person.get(&person.own("/audit?action=plan.change&limit=200")).await;
            assert_eq!(log.column("action").len(), stop + 1, "each change is noted once: {log:?}");
        }
    }
}

#[tokio::test]
async fn the_audit_log_names_the_operator() {
    const OF_ANN: &str = "0123456789abcdef0123456789abcdef";
    const OF_BOB: &str = "fedcba9876543210fedcba9876543210";
    let region = Region::new().await;
    let tenant = region.person().await;
    tenant.broker().await;
    let path = format!("/tenants/{}/suspend", tenant.organisation);
    let suspend = async |router: &Router, headers: &[(&str, &str)]| {
        let headers = [HERE, headers].concat();
        let reason = json!({ "reason": "not paid" });
        let (status, problem) = ask(router, "127.0.0.1", &headers, &path, Some(reason)).await;
        assert_eq!(status, StatusCode::OK, "{problem}");
        tenant.get(&tenant.own("/audit?limit=1")).await.body["items"][0]["actor"].clone()
    };
    let named = router(&region, Some(&format!("Ann Archer {OF_ANN}\nBob {OF_BOB}\n")));
    for (token, name) in [(OF_ANN, "Ann Archer"), (OF_BOB, "Bob")] {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", &*bearer), ("millrace-operator", "Eve"), ("user-agent", "curl/8")];
        let actor = suspend(&named, &headers).await;
        assert_eq!((&actor["kind"], &actor["name"]), (&json!("operator"), &json!(name)));
        assert_eq!((&actor["address"], &actor["agent"]), (&json!("127.0.0.1"), &json!("curl/8")));
    }
    let headers = [("authorization", "Bearer Ann Archer")];
    let (status, _) = ask(&named, "127.0.0.1", &[HERE, &headers].concat(), "/tenants", None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let unnamed = router(&region, None);
    for (said, name) in [("Cem", "Cem"), ("", "operator"), ("a\tb", "operator")] {
        let actor = suspend(&unnamed, &[("millrace-operator", said)]).await;
        assert_eq!(actor["name"], name, "{said:?}");
    }
    assert_eq!(suspend(&unnamed, &[]).await["name"], "operator");
    // A plan reaches the tenant's log from the sweep, too, which knows the operator.
    let plan = json!({ "ceiling": { "broker": { "connections": 5 } } });
    let put = |path: String, body: Value| {
        let headers = [HERE, &[("millrace-operator", "Cem")]].concat();
        let unnamed = unnamed.clone();
        async move { ask(&unnamed, "127.0.0.1", &headers, &path, Some(body)).await.0 }
    };
    assert_eq!(put("PUT /plans/small".into(), plan.clone()).await, StatusCode::OK);
    let choice = format!("PUT /tenants/{}/plan", tenant.organisation);
    assert_eq!(put(choice, json!({ "plan": "small" })).await, StatusCode::OK);
    assert_eq!(put("PUT /plans/small".into(), plan).await, StatusCode::OK);
    let log = tenant.get(&tenant.own("/audit?limit=2")).await;
    for entry in log.body["items"].as_array().unwrap() {
        assert_eq!(entry["actor"]["name"], "Cem", "{entry}");
    }
}

#[tokio::test]
async fn a_tenant_whose_brokers_fill_more_than_a_transaction_gets_the_ceiling_and_so_do_those_after_it() {
    use millrace_access::model::{Access, Action, Effect, Rule};
    use millrace_layers::{accounts, catalog};
    use millrace_storage::Read;

    let region = Region::new().await;
    let operator = router(&region, None);
    let ceiling = |connections: u64| json!({ "ceiling": { "broker": { "connections": connections } } });
    here(&operator, "PUT /plans/small", Some(ceiling(100))).await;
    here(&operator, "PUT /plans/tiny", Some(ceiling(100))).await;
    let mut brokers = Vec::new();
    for (plan, count) in [("small", 8), ("small", 1), ("tiny", 1)] {
        let person = region.person().await;
        region.clock.move_on(1);
        let path = format!("PUT /tenants/{}/plan", person.organisation);
        assert_eq!(here(&operator, &path, Some(json!({ "plan": plan }))).await.0, StatusCode::OK);
        for _ in 0..count {
            brokers.push((person.clone(), person.broker().await));
        }
    }
    // Rules of earlier versions are longer than the API accepts.
    let rules = &vec![Rule::new(Effect::Allow, Action::All, &"a".repeat(64_000)); 20];
    for (_, broker) in &brokers[..8] {
        let name = broker.rsplit('/').next().unwrap().as_bytes();
        let aged = region.store.run(|tx| async move {
            let all = accounts::access(catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id);
            let access = all.get::<Access>(&tx, accounts::ACCESS, Read::Serializable).await?.unwrap().value;
            all.put(&tx, accounts::ACCESS, &Access { rules: rules.clone(), ..access }).await
        });
        aged.await.unwrap();
    }
    for plan in ["small", "tiny"] {
        assert_eq!(here(&operator, &format!("PUT /plans/{plan}"), Some(ceiling(5))).await.0, StatusCode::OK);
    }
    for (person, broker) in &brokers {
        assert_eq!(person.get(broker).await.body["ceiling"]["broker"]["connections"], 5, "{broker}");
    }
}

#[tokio::test]
async fn a_tenant_whose_broker_cannot_get_a_ceiling_is_passed_over_and_tried_again() {
    use millrace_layers::{accounts, catalog};
    use millrace_storage::Read;

    let region = Region::new().await;
    let operator = router(&region, None);
    let ceiling = |connections: u64| json!({ "ceiling": { "broker": { "connections": connections } } });
    here(&operator, "PUT /plans/small", Some(ceiling(100))).await;
    let people = [region.person().await, region.person().await, region.person().await];
    let mut brokers = Vec::new();
    for person in &people {
        let path = format!("PUT /tenants/{}/plan", person.organisation);
        assert_eq!(here(&operator, &path, Some(json!({ "plan": "small" }))).await.0, StatusCode::OK);
        brokers.push(person.broker().await);
    }
    let name = brokers[1].rsplit('/').next().unwrap().as_bytes();
    let (region, operator) = (&region, &operator);
    let put = async |access: &Value| {
        let written = region.store.run(|tx| async move {
            let all = accounts::access(catalog::get(&tx, name, Read::Snapshot).await?.unwrap().id);
            let before = all.get::<Value>(&tx, accounts::ACCESS, Read::Serializable).await?.unwrap().value;
            all.put(&tx, accounts::ACCESS, access).await?;
            Ok(before)
        });
        written.await.unwrap()
    };
    let before = put(&json!("unreadable")).await;
    assert_eq!(here(operator, "PUT /plans/small", Some(ceiling(5))).await.0, StatusCode::OK);
    for number in [0, 2] {
        let shown = people[number].get(&brokers[number]).await;
        assert_eq!(shown.body["ceiling"]["broker"]["connections"], 5, "{number}");
    }
    put(&before).await;
    region.control.spread_plans().await.unwrap();
    for (person, broker) in people.iter().zip(&brokers) {
        assert_eq!(person.get(broker).await.body["ceiling"]["broker"]["connections"], 5);
        let log = person.get(&person.own("/audit?action=plan.change")).await;
        assert_eq!(log.column("action").len(), 1, "{log:?}");
    }
}

#[tokio::test]
async fn an_owner_does_not_leave_a_suspended_organisation() {
    let region = Region::new().await;
    let ann = region.person().await;
    let (eve, bob) = (member(&region, &ann, "owner").await, member(&region, &ann, "viewer").await);
    let operator = router(&region, None);
    let path = format!("/tenants/{}/suspend", ann.organisation);
    assert_eq!(here(&operator, &path, Some(json!({ "reason": "not paid" }))).await.0, StatusCode::OK);
    let leave = async |client: &Client| {
        let id = client.get("/me").await.text("/user/id").to_owned();
        client.delete(&ann.own(&format!("/members/{id}"))).await
    };
    assert!(leave(&eve).await.is(StatusCode::FORBIDDEN).text("/detail").contains("not paid"));
    let gone = eve.post("/me/delete", json!({ "password": PASSWORD })).await;
    assert!(gone.is(StatusCode::FORBIDDEN).text("/detail").contains("not paid"));
    eve.post("/organisations", json!({ "name": "Elsewhere" })).await.is(StatusCode::FORBIDDEN);
    leave(&bob).await.is(StatusCode::NO_CONTENT);
}
