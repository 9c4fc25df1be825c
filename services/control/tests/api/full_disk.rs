//! A disk that is nearly full: changes that free space, restrain somebody or sign somebody in are accepted, others are not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;
use millrace_control::{ApiOptions, Erasures, LocalDoor, OnFolder, Operator, SignUpBy, note_on_folder};
use millrace_storage::{Embedded, Options};
use serde_json::{Value, json};

use crate::audit::Counts;
use crate::local;
use crate::operator::{here, router};
use crate::tools::{Client, PASSWORD, Region};

const RESERVE_BYTES: u64 = 1 << 20;

struct Disk {
    free: Arc<AtomicU64>,
    store: Embedded,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn new() -> Self {
        let (folder, free) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU64::new(1 << 40)));
        let asked = Arc::clone(&free);
        let options = Options {
            memtable_bytes: 4 << 20,
            cache_bytes: 4 << 20,
            disk_reserve_bytes: RESERVE_BYTES,
            free_bytes: Arc::new(move |_| Ok(asked.load(Ordering::SeqCst))),
            ..Options::default()
        };
        Self { free, store: Embedded::open(&folder, options).unwrap(), _folder: folder }
    }

    async fn region(&self, by: SignUpBy, options: ApiOptions) -> Region {
        Region::over(self.store.database(), by, options).await
    }

    fn leave(&self, bytes: u64) {
        self.free.store(bytes, Ordering::SeqCst);
    }
}

async fn sign_in(region: &Region, email: &str) -> StatusCode {
    region.stranger().post("/sign-in", json!({ "email": email, "password": PASSWORD })).await.status
}

/// A person with an e-mail address, a broker with a credential, and an API token.
async fn tenant(region: &Region) -> (Client, String, String, String) {
    let ann = region.person().await;
    let email = ann.get("/me").await.text("/user/email").to_owned();
    let broker = ann.broker().await;
    ann.post(&format!("{broker}/credentials"), json!({ "user": "pump" })).await.is(StatusCode::CREATED);
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "t", "scopes": ["brokers:read"] })).await;
    let token = ann.own(&format!("/tokens/{}", made.text("/id")));
    (ann, email, broker, token)
}

#[tokio::test]
async fn a_tenant_restrains_clients_and_deletes_on_a_nearly_full_disk() {
    let disk = Disk::new();
    let region = disk.region(SignUpBy::Anybody, ApiOptions::default()).await.live(Arc::<Counts>::default());
    let (ann, email, broker, token) = tenant(&region).await;
    disk.leave(RESERVE_BYTES / 2);

    let new = json!({ "display_name": "Plant" });
    ann.post(&ann.own("/brokers"), new).await.is(StatusCode::SERVICE_UNAVAILABLE);
    let new = json!({ "user": "valve" });
    ann.post(&format!("{broker}/credentials"), new).await.is(StatusCode::SERVICE_UNAVAILABLE);
    let group = ann.put(&format!("{broker}/groups/g"), "", json!({ "rules": [] })).await;
    group.is(StatusCode::SERVICE_UNAVAILABLE);

    assert_eq!(sign_in(&region, &email).await, StatusCode::OK);
    let login = json!({ "name": "millrace on a laptop", "scopes": ["brokers:write"] });
    ann.post(&ann.own("/tokens"), login).await.is(StatusCode::CREATED);
    let ban = json!({ "client_id": "pump" });
    ann.put(&format!("{broker}/bans/pump"), "", ban).await.is(StatusCode::CREATED);
    let limits = json!({ "limits": { "client": { "queue_bytes": 1_000 } } });
    ann.patch(&broker, "*", limits).await.is(StatusCode::OK);
    let cap = json!({ "monthly_micros": 1_000, "action": "stop" });
    ann.put(&ann.own("/spend-cap"), "", cap).await.is(StatusCode::OK);
    ann.post(&format!("{broker}/suspend"), Value::Null).await.is(StatusCode::OK);
    let below =
        ["clients/pump", "sessions/pump", "retained/message?topic=t", "credentials/pump", "bans/pump"];
    for path in below {
        ann.delete(&format!("{broker}/{path}")).await.is(StatusCode::NO_CONTENT);
    }
    for path in [&token, &broker, "/me/sessions"] {
        ann.delete(path).await.is(StatusCode::NO_CONTENT);
    }
    // A deleted broker frees its space after ten minutes.
    region.clock.move_on(11 * 60 * 1_000);
    assert!(region.control.erase(&mut Erasures::default(), 1_000).await.unwrap() > 0);
    region.control.sweep().await.unwrap();
    ann.post("/sign-out", Value::Null).await.is(StatusCode::NO_CONTENT);

    disk.leave(RESERVE_BYTES / 4 - 1);
    assert_eq!(sign_in(&region, &email).await, StatusCode::SERVICE_UNAVAILABLE);
    disk.leave(1 << 40);
    assert_eq!(sign_in(&region, &email).await, StatusCode::OK);
}

#[tokio::test]
async fn operators_restrain_tenants_on_a_nearly_full_disk() {
    let disk = Disk::new();
    let region = disk.region(SignUpBy::Anybody, ApiOptions::default()).await;
    let (ann, _, broker, _) = tenant(&region).await;
    let operator = router(&region, None);
    let of_ann = format!("/tenants/{}", ann.organisation);
    disk.leave(RESERVE_BYTES / 2);

    let ceiling = json!({ "ceiling": { "client": { "queue_bytes": 1_000 } } });
    assert_eq!(here(&operator, "PUT /plans/small", Some(ceiling)).await.0, StatusCode::OK);
    for (path, body) in [
        (format!("PUT {of_ann}/plan"), json!({ "plan": "small" })),
        (format!("{of_ann}/suspend"), json!({ "reason": "fills the disk" })),
        (format!("{of_ann}/resume"), json!({})),
        ("/pods/pod-1/drain".to_owned(), json!({})),
    ] {
        let (status, answer) = here(&operator, &path, Some(body)).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
    }
    let (name, by) = (broker.rsplit('/').next().unwrap(), Operator::on_folder("ann"));
    let done = OnFolder { broker: name, action: "session.purge", target: "pump", count: 1 };
    note_on_folder(&region.store, 1, &by, done).await.unwrap();
    let actions = ann.get(&ann.own("/audit")).await;
    assert_eq!(
        actions.column("action")[..4],
        ["session.purge", "organisation.resume", "organisation.suspend", "organisation.plan"]
    );
}

#[tokio::test]
async fn the_owner_of_the_machine_signs_in_on_a_nearly_full_disk() {
    let disk = Disk::new();
    let door = LocalDoor { token: local::TOKEN.into(), machine: "bench-7".into() };
    let options = ApiOptions { local: Some(door), ..ApiOptions::default() };
    let region = disk.region(SignUpBy::Invitation, options).await;
    disk.leave(RESERVE_BYTES / 2);
    let owner = local::owner(&region).await;
    owner.get("/me").await.is(StatusCode::OK);
}
