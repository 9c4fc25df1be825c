//! Sessions whose end the store can never hold as it is: they end without their will, and those behind them do not wait.

use bytes::Bytes;
use millrace_layers::due::{self, Due, DueRange, SHARDS};
use millrace_layers::{Store, sessions};
use millrace_mqtt::Version::V5;
use millrace_mqtt::{Connect, Property, QoS, Will};
use millrace_storage::{Database, KeyRange, RangeOptions, block_on};

use crate::away::{Far, Mended, Way};
use crate::common::{Client, Server, connect, properties, will};
use crate::pods::now_ms;
use crate::steps::{start, subscribe_and_leave};
use crate::tools::{eventually, half_close, metric};

/// A session that expires so long after its connection, with a will that fires with its end.
fn expiring<'a>(id: &'a str, payload: &'a [u8], expiry_s: u32) -> Connect<'a> {
    let expiry = properties(&[Property::SessionExpiryInterval(expiry_s)]);
    let delay = properties(&[Property::WillDelayInterval(60)]);
    let last = Will { qos: QoS::AtLeastOnce, properties: delay, ..will("w", payload) };
    Connect { clean_start: false, properties: expiry, will: Some(last), ..connect(V5, id) }
}

fn clients(store: &Store) -> Vec<Bytes> {
    let broker = block_on(store.ensure_broker(b"default")).unwrap().id;
    let all = block_on(store.run(async |tx| sessions::list(&tx, broker, None, 1_000).await)).unwrap();
    all.into_iter().map(|(client, _)| client).collect()
}

fn dues(store: &Store) -> Vec<Due> {
    let until_ms = now_ms() + 86_400_000;
    let list = |shard| {
        block_on(store.run(async |tx| due::list_due(&tx, DueRange::until(shard, until_ms), 1_000).await))
    };
    (0..SHARDS).flat_map(|shard| list(shard).unwrap()).collect()
}

#[test]
fn a_session_ends_without_a_will_that_the_store_can_never_hold() {
    let far = Far::new();
    let server = Server::on(&far.database(), |_| {});
    let _mended = Mended(far.clone());
    let store = Store::new(far.near().clone());
    subscribe_and_leave(&server, V5, "watcher", &[("w", QoS::AtLeastOnce)]);
    let ann = Client::open(&server, expiring("ann", b"poison", 1));
    far.set(Way::Poisoned);
    half_close(ann.stream());
    eventually(|| clients(&store) == ["watcher"], || format!("{:?}", clients(&store)));
    let dropped = || metric(&server, "millrace_wills_dropped_total", "");
    eventually(|| dropped() == 1, || format!("{} wills are dropped", dropped()));
    assert!(dues(&store).iter().all(|due| due.client == "watcher"), "{:?}", dues(&store));
}

fn row(database: &Database, client: &str) -> (Bytes, Bytes) {
    let end = format!("\u{1}s\0\u{1}{client}\0");
    let all = RangeOptions::first(10_000).snapshot();
    let read = database.run(|tx, _| async move { tx.range(KeyRange::prefix([]), all).await });
    let page = block_on(read).unwrap();
    let row = page.items.into_iter().find(|row| row.key.ends_with(end.as_bytes())).unwrap();
    (row.key, row.value)
}

fn write(database: &Database, key: &Bytes, value: &Bytes) {
    let written = database.run(|tx, _| async move {
        tx.set(key.clone(), value.clone())?;
        Ok::<_, millrace_storage::StoreError>(())
    });
    block_on(written).unwrap();
}

#[test]
fn a_session_that_cannot_be_read_is_put_off_and_ends_when_it_can() {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let server = start(&database, 1);
    let others: Vec<String> = (0..40).map(|number| format!("other {number}")).collect();
    for (id, expiry_s) in others.iter().map(|id| (id.as_str(), 1)).chain([("ann", 3)]) {
        half_close(Client::open(&server, expiring(id, b"gone", expiry_s)).stream());
    }
    eventually(|| dues(&store).iter().any(|due| due.client == "ann"), || "ann is online".into());
    let (key, value) = row(&database, "ann");
    write(&database, &key, &Bytes::from_static(b"torn"));
    let is_put_off = |due: &Due| due.client == "ann" && due.at_ms > now_ms() + 60_000;
    eventually(|| dues(&store).iter().all(is_put_off), || format!("{:?}", dues(&store)));
    assert_eq!(dues(&store).len(), 2);
    assert_eq!(metric(&server, "millrace_wills_dropped_total", ""), 0);
    write(&database, &key, &value);
    drop(server);
    let server = Server::on(&database, |config| config.clock_ahead_ms = 7_200_000);
    eventually(|| clients(&store).is_empty(), || format!("{:?}", clients(&store)));
    let published = || metric(&server, "millrace_wills_published_total", "");
    eventually(|| published() == 1, || format!("{} wills are published", published()));
}
