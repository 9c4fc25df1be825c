//! Incidents: requests that a broker has refused, as its tenant sees them.

use axum::http::StatusCode;
use millrace_control::Erasures;
use millrace_layers::incidents::{self, IncidentRecord, StoredIncidentKind};
use millrace_layers::{BrokerId, catalog};
use millrace_storage::Read;
use serde_json::json;

use crate::tools::{Client, Region};

async fn id_of(region: &Region, client: &Client, broker: &str) -> BrokerId {
    let name = client.get(broker).await.text("/name").to_owned();
    let name = name.as_bytes();
    let found = region.store.run(|tx| async move { catalog::get(&tx, name, Read::Snapshot).await }).await;
    found.unwrap().unwrap().id
}

fn incident(number: u64) -> IncidentRecord {
    IncidentRecord {
        at_ms: number,
        last_at_ms: number,
        count: 1,
        kind: if number < 3 { StoredIncidentKind::ConnectRefused } else { StoredIncidentKind::LimitReached },
        client_id: Some(format!("c{}", number % 2)),
        user: None,
        what: None,
        reason: "the user name or the password is wrong".into(),
    }
}

#[tokio::test]
async fn incidents_come_in_pages_the_latest_first_and_only_those_that_are_asked_for() {
    let region = Region::new().await;
    let (ann, bob) = (region.person().await, region.person().await);
    let (broker, other) = (ann.broker().await, bob.broker().await);
    let id = id_of(&region, &ann, &broker).await;
    let all: Vec<IncidentRecord> = (0..6).map(incident).collect();
    region
        .store
        .run(|tx| {
            let all = &all;
            async move { incidents::append(&tx, id, all) }
        })
        .await
        .unwrap();
    let times = async |query: &str| {
        let answer = ann.get(&format!("{broker}/incidents{query}")).await;
        let items = answer.is(StatusCode::OK).body["items"].as_array().unwrap().clone();
        let times: Vec<u64> = items.iter().map(|item| item["at_ms"].as_u64().unwrap()).collect();
        (times, answer.body["next_cursor"].as_str().map(str::to_owned))
    };
    let (first, next) = times("?limit=4").await;
    assert_eq!(first, [5, 4, 3, 2]);
    assert_eq!(times(&format!("?limit=4&cursor={}", next.unwrap())).await, (vec![1, 0], None));
    assert_eq!(times("?client_id=c1").await.0, [5, 3, 1]);
    assert_eq!(times("?kind=connect_refused&client_id=c0").await.0, [2, 0]);
    ann.get(&format!("{broker}/incidents?kind=x")).await.is(StatusCode::BAD_REQUEST);
    let others = bob.get(&format!("{other}/incidents")).await;
    assert_eq!(others.is(StatusCode::OK).body["items"], json!([]));

    // They go with the broker.
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    region.clock.move_on(5_000);
    region.control.erase(&mut Erasures::default(), 1_000).await.unwrap();
    let left = region.store.run(|tx| async move {
        incidents::page(&tx, id, incidents::IncidentSearch::default(), None, 10).await
    });
    assert_eq!(left.await.unwrap(), (vec![], false));
}
