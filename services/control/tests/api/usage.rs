//! Usage, and spend caps that hold brokers to it.

use axum::http::StatusCode;
use millrace_control::{Erasures, Prices};
use millrace_layers::metering::{self, Level, Unit, WINDOW_MS};
use millrace_layers::{BrokerId, catalog};
use millrace_storage::Read;
use serde_json::{Value, json};

use crate::tools::{Client, Region, interleaved};

const DAY_MS: u64 = 24 * WINDOW_MS;
/// The clock of tests stands at 01:46:40 on 9 September 2001.
const NOW_MS: u64 = 1_000_000_000_000;
const TODAY_MS: u64 = NOW_MS - NOW_MS % DAY_MS;
/// To the beginning of October.
const TO_NEXT_MONTH_MS: u64 = 22 * DAY_MS - NOW_MS % DAY_MS;

async fn id_of(region: &Region, broker: &str) -> BrokerId {
    let name = broker.rsplit('/').next().unwrap().as_bytes();
    let found = region.store.run(|tx| async move { catalog::get(&tx, name, Read::Snapshot).await });
    found.await.unwrap().unwrap().id
}

/// The broker has used so many units.
async fn publish(region: &Region, broker: &str, at_ms: u64, count: i64) {
    let id = id_of(region, broker).await;
    let added = region.store.run(|tx| async move { metering::add(&tx, id, Unit::MessagesIn, at_ms, count) });
    added.await.unwrap();
}

async fn usage(client: &Client, path: &str) -> Value {
    client.get(path).await.is(StatusCode::OK).body.clone()
}

fn counts(usage: &Value) -> Vec<u64> {
    let windows = usage["windows"].as_array().unwrap();
    windows.iter().map(|window| window["used"]["messages_in"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn usage_is_added_up_by_hours_by_days_and_for_all_brokers() {
    let region = Region::new().await;
    let ann = region.person().await;
    let (one, other) = (ann.broker().await, ann.broker().await);
    let yesterday = TODAY_MS - WINDOW_MS;
    publish(&region, &one, yesterday, 1).await;
    publish(&region, &one, TODAY_MS, 2).await;
    publish(&region, &one, NOW_MS, 4).await;
    publish(&region, &other, NOW_MS, 8).await;
    let id = id_of(&region, &one).await;
    let more = region.store.run(|tx| async move {
        metering::add(&tx, id, Unit::ConnectedMs, NOW_MS, 90_000)?;
        metering::change(&tx, id, Level::Sessions, 3, NOW_MS - 60_000)?;
        metering::change(&tx, id, Level::Bytes, 7_200, NOW_MS - 2_000)?;
        metering::change(&tx, id, Level::Retained, 3_600, NOW_MS - 5_000)
    });
    more.await.unwrap();

    let total = usage(&ann, &format!("{one}/usage")).await;
    let used = &total["total"]["used"];
    assert_eq!(used["messages_in"], 7);
    assert_eq!(used["connected_session_minutes"], 1.5);
    assert_eq!(used["stored_session_minutes"], 3.0);
    assert_eq!(used["stored_byte_hours"], 4.0);
    assert_eq!(used["retained_byte_hours"], 5.0);
    let hours = usage(&ann, &format!("{one}/usage?step=hour&from={yesterday}")).await;
    assert_eq!(counts(&hours), [1, 2, 4]);
    let until = usage(&ann, &format!("{one}/usage?step=hour&from={yesterday}&to={}", TODAY_MS + 1)).await;
    assert_eq!(counts(&until), [1, 2]);
    let days = usage(&ann, &format!("{one}/usage?step=day&from={yesterday}")).await;
    assert_eq!(counts(&days), [1, 6]);
    assert_eq!(days["windows"][1]["from_ms"], TODAY_MS);
    let all = usage(&ann, &ann.own(&format!("/usage?step=day&from={yesterday}"))).await;
    assert_eq!((counts(&all), &all["total"]["used"]["messages_in"]), (vec![1, 14], &json!(15)));
    let brokers = all["brokers"].as_array().unwrap();
    let of = |path: &str| {
        let name = path.rsplit('/').next().unwrap();
        brokers.iter().find(|broker| broker["name"] == name).unwrap()["used"]["messages_in"].clone()
    };
    assert_eq!((of(&one), of(&other)), (json!(7), json!(8)));
}

#[tokio::test]
async fn usage_can_be_had_as_a_table() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    publish(&region, &broker, TODAY_MS, 2).await;
    publish(&region, &broker, NOW_MS, 4).await;
    let path = format!("{broker}/usage?step=hour&from={TODAY_MS}");
    let answer = ann.with("accept", "text/csv").get(&path).await;
    assert_eq!(answer.headers["content-type"], "text/csv; charset=utf-8");
    let hour = TODAY_MS + WINDOW_MS;
    let expected = format!(
        "from_ms,to_ms,connected_session_minutes,stored_session_minutes,messages_in,messages_delivered,bytes_in,bytes_out,stored_byte_hours,cost_micros,retained_byte_hours\n\
         {TODAY_MS},{hour},0,0,2,0,0,0,0,0,0\n{hour},{},0,0,4,0,0,0,0,0,0\n",
        hour + WINDOW_MS
    );
    assert_eq!(answer.table, expected);
}

#[tokio::test]
async fn usage_of_too_long_a_time_or_of_none_is_refused() {
    let ann = Region::new().await.person().await;
    let broker = ann.broker().await;
    let (month, years) = (NOW_MS - 32 * DAY_MS, NOW_MS - 402 * DAY_MS);
    for wrong in [
        format!("step=hour&from={month}"),
        format!("from={years}"),
        "to=9223372036854775808".to_owned(),
        format!("from={}", NOW_MS + WINDOW_MS),
    ] {
        ann.get(&format!("{broker}/usage?{wrong}")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    for wrong in ["step=year", "from=x", "to=-1"] {
        ann.get(&format!("{broker}/usage?{wrong}")).await.is(StatusCode::BAD_REQUEST);
    }
    ann.get(&format!("{broker}/usage?step=day&from={month}")).await.is(StatusCode::OK);
}

/// A region where a million messages cost a million, and somebody in it.
async fn priced() -> (Region, Client) {
    let region = Region::new().await;
    region.control.charge(Prices::from_iter(["messages_in=1000000".parse().unwrap()]));
    let ann = region.person().await;
    (region, ann)
}

fn cap(monthly_micros: u64, action: &str) -> Value {
    json!({ "monthly_micros": monthly_micros, "action": action })
}

async fn is_stopped(client: &Client, broker: &str) -> bool {
    usage(client, broker).await["is_over_cap"].as_bool().unwrap()
}

async fn actions(client: &Client) -> Vec<String> {
    let log = client.get(&client.own("/audit")).await;
    log.column("action").into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_cap_stops_a_broker_until_the_month_is_over() {
    let (region, ann) = priced().await;
    // Somebody who signed in would have to do so again before the month is over.
    let scopes = ["organisation:write", "brokers:read", "brokers:write", "audit:read"];
    let token = ann.post(&ann.own("/tokens"), json!({ "name": "ci", "scopes": scopes })).await;
    let ann = ann.with_token(token.text("/secret"));
    let (one, other) = (ann.broker().await, ann.broker().await);
    let path = format!("{one}/spend-cap");
    let set = ann.put(&path, "", cap(10, "stop")).await;
    assert_eq!(set.is(StatusCode::OK).body["is_reached"], false);
    publish(&region, &one, NOW_MS, 9).await;
    region.control.hold_caps().await.unwrap();
    assert!(!is_stopped(&ann, &one).await);
    publish(&region, &one, NOW_MS, 1).await;
    region.control.hold_caps().await.unwrap();
    assert!(is_stopped(&ann, &one).await && !is_stopped(&ann, &other).await);
    let shown = usage(&ann, &path).await;
    assert_eq!((&shown["spent_micros"], &shown["is_reached"]), (&json!(10), &json!(true)));
    assert_eq!(actions(&ann).await[..2], ["broker.stop_at_cap", "spend_cap.reach"]);
    region.control.hold_caps().await.unwrap();
    assert_eq!(actions(&ann).await[..2], ["broker.stop_at_cap", "spend_cap.reach"], "it is told once");
    region.clock.move_on(TO_NEXT_MONTH_MS - 1);
    region.control.hold_caps().await.unwrap();
    assert!(is_stopped(&ann, &one).await);
    region.clock.move_on(1);
    region.control.hold_caps().await.unwrap();
    assert!(!is_stopped(&ann, &one).await);
    assert_eq!(usage(&ann, &path).await["spent_micros"], 0);
}

#[tokio::test]
async fn a_cap_of_an_organisation_is_of_all_its_brokers_and_goes_with_its_limit() {
    let (region, ann) = priced().await;
    let (one, other) = (ann.broker().await, ann.broker().await);
    publish(&region, &one, NOW_MS, 6).await;
    publish(&region, &other, NOW_MS, 6).await;
    let path = ann.own("/spend-cap");
    ann.put(&path, "", cap(12, "stop")).await.is(StatusCode::OK);
    assert!(is_stopped(&ann, &one).await && is_stopped(&ann, &other).await, "it holds at once");
    let refused = ann.post(&ann.own("/brokers"), json!({ "display_name": "Plant" })).await;
    assert!(refused.is(StatusCode::CONFLICT).text("/detail").contains("spend cap"));
    ann.put(&path, "*", cap(13, "stop")).await.is(StatusCode::OK);
    let later = ann.broker().await;
    assert!(!is_stopped(&ann, &one).await && !is_stopped(&ann, &later).await);
    ann.put(&path, "*", cap(12, "stop")).await.is(StatusCode::OK);
    assert!(is_stopped(&ann, &one).await && is_stopped(&ann, &later).await);
    ann.delete(&path).await.is(StatusCode::NO_CONTENT);
    assert!(!is_stopped(&ann, &one).await && !is_stopped(&ann, &later).await);
    ann.get(&path).await.is(StatusCode::NOT_FOUND);
    ann.put(&path, "", cap(100, "stop")).await.is(StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_that_changes_while_it_is_compared_with_the_usage_stops_no_broker() {
    for is_deleted in [false, true] {
        for stop in 0.. {
            let (region, ann) = priced().await;
            let broker = ann.broker().await;
            let path = format!("{broker}/spend-cap");
            ann.put(&path, "", cap(10, "stop")).await.is(StatusCode::OK);
            publish(&region, &broker, NOW_MS, 10).await;
            let change = async {
                match is_deleted {
                    true => ann.delete(&path).await.is(StatusCode::NO_CONTENT).status,
                    false => ann.put(&path, "*", cap(100, "stop")).await.is(StatusCode::OK).status,
                }
            };
            let control = region.control.clone();
            let Some((held, _)) = interleaved(stop, async move { control.hold_caps().await }, change).await
            else {
                assert!(stop > 1, "it looks at the clock before and after it has read the caps");
                break;
            };
            held.unwrap();
            assert!(!is_stopped(&ann, &broker).await, "{is_deleted} {stop}");
        }
    }
}

#[tokio::test]
async fn usage_has_its_cost_by_the_prices_of_spend_caps() {
    let region = Region::new().await;
    region.control.charge(Prices::from_iter(["messages_in=1500000".parse().unwrap()]));
    let ann = region.person().await;
    let (one, other) = (ann.broker().await, ann.broker().await);
    publish(&region, &one, NOW_MS, 3).await;
    publish(&region, &other, NOW_MS, 1).await;
    let used = usage(&ann, &format!("{one}/usage?step=hour&from={TODAY_MS}")).await;
    assert_eq!((&used["total"]["cost_micros"], &used["currency"]), (&json!(4), &Value::Null));
    assert_eq!(
        (&used["windows"][0]["cost_micros"], &used["windows"][1]["cost_micros"]),
        (&json!(0), &json!(4))
    );
    // 4.5 and 1.5, each rounded down: the whole is what the cap counts.
    let all = usage(&ann, &ann.own("/usage")).await;
    assert_eq!(all["total"]["cost_micros"], 5);
    ann.put(&ann.own("/spend-cap"), "", cap(100, "continue")).await.is(StatusCode::OK);
    assert_eq!(usage(&ann, &ann.own("/spend-cap")).await["spent_micros"], 5);
    ann.delete(&one).await.is(StatusCode::NO_CONTENT);
    let all = usage(&ann, &ann.own("/usage")).await;
    assert_eq!((&all["total"]["cost_micros"], &all["deleted_cost_micros"]), (&json!(5), &json!(4)));
    assert_eq!(all["brokers"][0]["cost_micros"], 1);

    region.control.charge_in("EUR".parse().unwrap());
    for path in [ann.own("/usage"), format!("{other}/usage"), "/prices".into()] {
        assert_eq!(usage(&ann, &path).await["currency"], "EUR");
    }
}

#[tokio::test]
async fn a_cap_that_only_tells_stops_nobody() {
    let (region, ann) = priced().await;
    let broker = ann.broker().await;
    ann.put(&format!("{broker}/spend-cap"), "", cap(10, "continue")).await.is(StatusCode::OK);
    publish(&region, &broker, NOW_MS, 10).await;
    region.control.hold_caps().await.unwrap();
    assert!(!is_stopped(&ann, &broker).await);
    assert_eq!(actions(&ann).await[0], "spend_cap.reach");
    let log = ann.get(&ann.own("/audit")).await;
    assert_eq!(log.body["items"][0]["actor"]["kind"], "service");
    assert_eq!(log.body["items"][0]["details"]["spent_micros"], 10);
}

#[tokio::test]
async fn nothing_is_reached_where_nothing_costs_anything() {
    let region = Region::new().await;
    let ann = region.person().await;
    let broker = ann.broker().await;
    let path = format!("{broker}/spend-cap");
    ann.put(&path, "", cap(1, "stop")).await.is(StatusCode::OK);
    publish(&region, &broker, NOW_MS, 1_000_000).await;
    region.control.hold_caps().await.unwrap();
    assert!(!is_stopped(&ann, &broker).await);
    ann.put(&path, "*", cap(0, "stop")).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    ann.get(&path).await.is(StatusCode::NOT_FOUND);
    region.control.hold_caps().await.unwrap();
}

#[tokio::test]
async fn what_a_deleted_broker_used_still_counts_for_the_bill_and_the_cap() {
    let (region, ann) = priced().await;
    let (one, other) = (ann.broker().await, ann.broker().await);
    let path = ann.own("/spend-cap");
    ann.put(&path, "", cap(10, "stop")).await.is(StatusCode::OK);
    publish(&region, &one, NOW_MS, 6).await;
    publish(&region, &other, NOW_MS, 4).await;
    region.control.hold_caps().await.unwrap();
    assert!(is_stopped(&ann, &other).await);
    ann.delete(&one).await.is(StatusCode::NO_CONTENT);
    let holds = async || {
        region.control.hold_caps().await.unwrap();
        assert!(is_stopped(&ann, &other).await);
        assert_eq!(usage(&ann, &path).await["spent_micros"], 10);
        let all = usage(&ann, &ann.own(&format!("/usage?step=hour&from={TODAY_MS}"))).await;
        assert_eq!(all["total"]["used"]["messages_in"], 10);
        assert_eq!(all["deleted"]["messages_in"], 6);
        assert_eq!(counts(&all), [0, 10]);
        ann.post(&ann.own("/brokers"), json!({ "display_name": "Anew" })).await.is(StatusCode::CONFLICT);
    };
    holds().await;
    // The broker's keys are erased a moment later.
    region.clock.move_on(60_000);
    assert!(region.control.erase(&mut Erasures::default(), 1_000).await.unwrap() > 0);
    holds().await;
    region.clock.move_on(WINDOW_MS);
    region.control.erase(&mut Erasures::default(), 1_000).await.unwrap();
    assert_eq!(usage(&ann, &path).await["spent_micros"], 10);
}

#[tokio::test]
async fn an_organisation_stays_until_the_month_is_over_that_it_is_to_pay_for() {
    let (region, ann) = priced().await;
    let broker = ann.broker().await;
    publish(&region, &broker, NOW_MS, 6).await;
    ann.delete(&broker).await.is(StatusCode::NO_CONTENT);
    let refused = ann.delete(&ann.own("")).await;
    assert!(refused.is(StatusCode::CONFLICT).text("/detail").contains("to be paid"));
    // A web session does not last as long.
    let made = ann.post(&ann.own("/tokens"), json!({ "name": "ci", "scopes": ["organisation:write"] })).await;
    let program = ann.with_token(made.is(StatusCode::CREATED).text("/secret"));
    region.clock.move_on(31 * 24 * 3_600_000);
    program.delete(&ann.own("")).await.is(StatusCode::NO_CONTENT);
}
