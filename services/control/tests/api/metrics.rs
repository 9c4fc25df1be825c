//! The history of a broker's metrics.

use axum::body::Bytes;
use axum::http::StatusCode;
use millrace_layers::metering::{self, Flush, Flushed, NewPoint, Point, Resolution, UsageReport};
use millrace_layers::{BrokerId, catalog, retained};
use millrace_storage::{KeyRange, RangeOptions, Read};
use serde_json::{Value, json};

use crate::tools::{Client, Region};

const NOW_MS: u64 = 1_000_000_000_000;
const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const MINUTE: u64 = NOW_MS - NOW_MS % MINUTE_MS;
const HOUR: u64 = NOW_MS - NOW_MS % HOUR_MS;

async fn id_of(region: &Region, broker: &str) -> BrokerId {
    let name = broker.rsplit('/').next().unwrap().as_bytes();
    let found = region.store.run(|tx| async move { catalog::get(&tx, name, Read::Snapshot).await });
    found.await.unwrap().unwrap().id
}

async fn count(region: &Region, broker: BrokerId, resolution: Resolution, from_ms: u64, messages_in: u64) {
    let mut latencies = Point::default().latencies;
    latencies[6] = messages_in;
    let mut deliveries = Point::default().deliveries;
    deliveries[0] = 1;
    let point = Point {
        end_ms: resolution.window_ms(),
        connected_ms: 3 * resolution.window_ms(),
        messages_in,
        drops: [0, 2, 0, 0, 0, 1],
        latencies,
        deliveries,
        ..Point::default()
    };
    let said = UsageReport {
        broker,
        at_ms: from_ms,
        points: vec![NewPoint { resolution, from_ms, point }],
        ..UsageReport::default()
    };
    let incarnation = from_ms;
    let written = region.store.run(|tx| {
        let said = said.clone();
        async move {
            metering::begin(&tx, b"pod", incarnation)?;
            metering::flush(&tx, Flush { pod: b"pod", incarnation, number: 1, now_ms: NOW_MS }, &[said]).await
        }
    });
    assert_eq!(written.await.unwrap(), Flushed::Added);
}

async fn points(client: &Client, path: &str) -> Vec<(u64, Value)> {
    let history = client.get(path).await.is(StatusCode::OK).body.clone();
    let all = history["points"].as_array().unwrap();
    all.iter()
        .map(|point| (point["from_ms"].as_u64().unwrap(), point["values"]["messages_in"].clone()))
        .collect()
}

#[tokio::test]
async fn each_step_has_the_sum_of_its_points_and_a_step_without_points_is_null() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let id = id_of(&region, &broker).await;
    for (at_ms, messages) in
        [(MINUTE - 11 * MINUTE_MS, 1), (MINUTE - 3 * MINUTE_MS, 2), (MINUTE - MINUTE_MS, 4)]
    {
        count(&region, id, Resolution::Minute, at_ms, messages).await;
    }
    for (at_ms, messages) in [(HOUR - 25 * HOUR_MS, 8), (HOUR - 24 * HOUR_MS, 16), (HOUR, 32)] {
        count(&region, id, Resolution::Hour, at_ms, messages).await;
    }
    let history = format!("{broker}/metrics/history");
    let last = points(&ann, &format!("{history}?from={}", MINUTE - 3 * MINUTE_MS)).await;
    let at = |back: u64| MINUTE - back * MINUTE_MS;
    assert_eq!(last, [(at(3), json!(2)), (at(2), Value::Null), (at(1), json!(4))]);
    assert_eq!(points(&ann, &history).await.len(), 60, "the last hour, without the present minute");
    let until = points(&ann, &format!("{history}?from={}&to={}", at(3), at(2) + 1)).await;
    assert_eq!(until, [(at(3), json!(2)), (at(2), Value::Null)]);
    let tens = points(&ann, &format!("{history}?step=ten_minutes&from={}", at(11))).await;
    assert_eq!(tens.iter().map(|(_, sum)| sum.clone()).collect::<Vec<_>>(), [json!(1), json!(6)]);
    let hours = points(&ann, &format!("{history}?step=hour&from={}", HOUR - HOUR_MS)).await;
    assert_eq!(hours, [(HOUR - HOUR_MS, Value::Null), (HOUR, json!(32))]);
    let days = points(&ann, &format!("{history}?step=day")).await;
    let with_values: Vec<_> =
        days.iter().filter(|(_, sum)| !sum.is_null()).map(|(_, sum)| sum.clone()).collect();
    assert_eq!((days.len(), with_values), (31, vec![json!(24), json!(32)]));

    let all = ann.get(&format!("{history}?from={}", at(1))).await.is(StatusCode::OK).body.clone();
    let values = &all["points"][0]["values"];
    assert_eq!((&all["step"], &all["step_ms"]), (&json!("minute"), &json!(MINUTE_MS)));
    assert_eq!((&values["connections"], &values["measured_ms"]), (&json!(3.0), &json!(MINUTE_MS)));
    assert_eq!((&values["drops"]["queue_full"], &values["drops"]["stored_limit"]), (&json!(2), &json!(1)));
    let puback = &values["puback"];
    assert_eq!((&puback["messages"], &puback["p50_ms"]), (&json!(4), &json!(3.75)));
    let delivery = &values["delivery"];
    assert_eq!((&delivery["messages"], &delivery["p50_ms"]), (&json!(1), &json!(0.05)));
}

#[tokio::test]
async fn a_history_has_bounds() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let history = format!("{broker}/metrics/history");
    for wrong in ["step=second", "form=1", "from=-1"] {
        ann.get(&format!("{history}?{wrong}")).await.is(StatusCode::BAD_REQUEST);
    }
    for wrong in [
        format!("from={}", NOW_MS - 26 * HOUR_MS),
        format!("step=hour&from={}", NOW_MS - 32 * 24 * HOUR_MS),
        format!("from={NOW_MS}&to={}", NOW_MS - 1),
        "to=18446744073709551615".into(),
    ] {
        ann.get(&format!("{history}?{wrong}")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    let later =
        points(&ann, &format!("{history}?from={}&to={}", NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS)).await;
    assert_eq!(later, []);
    // It is older than what is stored, so its points are null even while they are still there.
    let old_ms = MINUTE - 40 * HOUR_MS;
    count(&region, id_of(&region, &broker).await, Resolution::Minute, old_ms, 1).await;
    let old = points(&ann, &format!("{history}?from={old_ms}&to={}", old_ms + MINUTE_MS)).await;
    assert_eq!(old, [(old_ms, Value::Null)]);
}

#[tokio::test]
async fn a_sweep_removes_old_points() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let id = id_of(&region, &broker).await;
    let old_ms = MINUTE - 26 * HOUR_MS;
    count(&region, id, Resolution::Minute, old_ms, 1).await;
    count(&region, id, Resolution::Hour, HOUR, 1).await;
    assert_eq!(region.control.forget_history(None).await.unwrap(), None);
    let left = async |resolution| {
        let all =
            region.store.run(|tx| async move { metering::history(&tx, id, resolution, 0, NOW_MS).await });
        all.await.unwrap().len()
    };
    assert_eq!((left(Resolution::Minute).await, left(Resolution::Hour).await), (0, 1));
}

#[tokio::test]
async fn a_broker_that_cannot_be_swept_does_not_stop_the_sweep_of_others() {
    let region = Region::new().await;
    let ann = region.person().await;
    let mut brokers = [ann.broker().await, ann.broker().await];
    // The sweep goes through them in order of names.
    brokers.sort();
    let [first, second] = [id_of(&region, &brokers[0]).await, id_of(&region, &brokers[1]).await];
    let broken = region.store.run(|tx| async move {
        retained::set(&tx, first, b"t", &Bytes::from_static(b"text")).await?;
        let rows = tx.range(KeyRange::new([0], [255]), RangeOptions::first(10_000)).await?.items;
        for row in rows.iter().filter(|row| row.value.ends_with(b"text")) {
            tx.set(row.key.clone(), Bytes::from_static(b""))?;
        }
        Ok(())
    });
    broken.await.unwrap();
    count(&region, second, Resolution::Minute, MINUTE - 26 * HOUR_MS, 1).await;
    assert_eq!(region.control.forget_history(None).await.unwrap(), None);
    let left = region
        .store
        .run(|tx| async move { metering::history(&tx, second, Resolution::Minute, 0, NOW_MS).await });
    assert_eq!(left.await.unwrap().len(), 0);
}
