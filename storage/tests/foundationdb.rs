//! Behaviour that only the FoundationDB engine has: prefixes, network settings, and an unreachable cluster. `make test-fdb`
//! starts a cluster for it. `engines/` has the tests of all engines.
#![cfg(feature = "foundationdb")]
#![allow(clippy::unwrap_used)]

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use millrace_storage::{
    ClusterOptions, ClusterTls, ConnectError, Database, FoundationDb, KeyRange, NetworkOptions, RetryPolicy,
    StoreError, System, block_on, limits::PREFIX_BYTES_MAX,
};

fn set(database: &Database, key: &str) -> Result<(), StoreError> {
    block_on(database.run(async |tx, _| tx.set(key, "v")))
}

fn get(database: &Database, key: &str) -> Result<bool, StoreError> {
    block_on(database.run(async |tx, _| Ok(tx.get(key, Default::default()).await?.is_some())))
}

fn cluster(prefix: &[u8]) -> ClusterOptions {
    let file = std::env::var_os("FDB_CLUSTER_FILE").expect("FDB_CLUSTER_FILE; `make test-fdb` sets it");
    ClusterOptions { cluster_file: Some(file.into()), prefix: prefix.into(), ..ClusterOptions::default() }
}

/// A cluster file of servers that are not there.
fn nowhere() -> (tempfile::NamedTempFile, ClusterOptions) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // Port 1 accepts no connections.
    writeln!(file, "nowhere:nowhere@127.0.0.1:1").unwrap();
    let cluster_file = Some(file.path().into());
    let read_timeout = Duration::from_millis(200);
    (file, ClusterOptions { cluster_file, read_timeout, ..ClusterOptions::default() })
}

#[test]
fn stores_of_two_prefixes_do_not_meet() {
    let host = Arc::new(System::new());
    let (one, other) = (FoundationDb::scratch(host.clone()).unwrap(), FoundationDb::scratch(host).unwrap());
    set(&one, "k").unwrap();
    assert_eq!((get(&one, "k"), get(&other, "k")), (Ok(true), Ok(false)));
    drop(one);
    assert_eq!(get(&other, "k"), Ok(false));
}

#[test]
fn the_prefix_stands_before_every_key() {
    let name = std::process::id().to_string();
    let within = FoundationDb::open(&cluster(format!("t/{name}").as_bytes())).unwrap().database();
    let around = FoundationDb::open(&cluster(b"t/")).unwrap().database();
    set(&within, "/k").unwrap();
    assert_eq!(get(&around, &format!("{name}/k")), Ok(true));
    block_on(within.run(async |tx, _| tx.clear("/k") as Result<(), StoreError>)).unwrap();
    assert_eq!(get(&around, &format!("{name}/k")), Ok(false));
}

#[test]
#[allow(clippy::disallowed_methods)]
fn reads_do_not_wait_for_an_unreachable_cluster() {
    let (_file, options) = nowhere();
    let retry = RetryPolicy { attempts_max: 2, ..RetryPolicy::default() };
    let database = FoundationDb::open(&options).unwrap().database_on(Arc::new(System::new()), retry);
    let start = Instant::now();
    let error = get(&database, "k").unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)) && error.is_retryable(), "{error}");
    assert!((Duration::from_millis(400)..Duration::from_secs(20)).contains(&start.elapsed()));
    let failures = database.stats().into_iter().find(|stat| stat.name.contains("read_failures")).unwrap();
    assert_eq!(failures.value, 2.0);
}

#[test]
#[allow(clippy::disallowed_methods)]
fn waits_for_an_unreachable_cluster_end_in_time() {
    let (_file, options) = nowhere();
    let store = FoundationDb::open(&options).unwrap();
    let start = Instant::now();
    let refused = store.prepare(Duration::from_secs(1)).unwrap_err();
    assert_eq!(refused.to_string(), "the FoundationDB cluster did not answer within 1 s");
    let retry = RetryPolicy { unavailable_max: Duration::from_secs(1), ..RetryPolicy::default() };
    let database = store.database_on(Arc::new(System::new()), retry);
    assert!(matches!(
        set(&database, "k").and(get(&database, "k").map(drop)),
        Err(StoreError::Unavailable(_))
    ));
    assert!((Duration::from_secs(2)..Duration::from_secs(20)).contains(&start.elapsed()));
}

#[test]
fn a_prefix_of_a_cluster_is_a_store_from_its_first_start_on() {
    let options = cluster(format!("t/f{}/", std::process::id()).as_bytes());
    let store = FoundationDb::open(&options).unwrap();
    let patience = Duration::from_secs(10);
    for _ in 0..2 {
        store.prepare(patience).unwrap();
        set(&store.database(), "k").unwrap();
    }
    // A prefix that is shorter by one byte contains these keys, but no marker.
    let prefix = options.prefix[..options.prefix.len() - 1].into();
    let around = FoundationDb::open(&ClusterOptions { prefix, ..options }).unwrap();
    assert!(matches!(around.prepare(patience), Err(ConnectError::NotAStore)));
    block_on(
        around.database().run(async |tx, _| tx.clear_range(KeyRange::prefix("/")) as Result<(), StoreError>),
    )
    .unwrap();
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let (_file, options) = nowhere();
    let missing = ClusterOptions { cluster_file: Some("/nowhere/fdb.cluster".into()), ..options.clone() };
    let refused = FoundationDb::open(&missing).map(drop).unwrap_err();
    assert!(matches!(refused, ConnectError::ClusterFile { .. }), "{refused}");
    assert_eq!(refused.to_string(), "the cluster file /nowhere/fdb.cluster cannot be read");
    for prefix in [vec![b'p'; PREFIX_BYTES_MAX + 1], vec![0xff], vec![]] {
        let refused = FoundationDb::open(&ClusterOptions { prefix, ..options.clone() }).map(drop);
        assert!(matches!(refused, Err(ConnectError::PrefixNotAllowed)));
    }
}

#[test]
fn a_process_has_one_set_of_network_settings() {
    let (_file, options) = nowhere();
    FoundationDb::open(&options).unwrap();
    let tls = ClusterTls { ca_file: Some("ca.pem".into()), ..ClusterTls::default() };
    let network = NetworkOptions { tls, ..NetworkOptions::default() };
    let other = FoundationDb::open(&ClusterOptions { network, ..options.clone() }).map(drop);
    assert!(matches!(other, Err(ConnectError::NetworkSettings)));
    FoundationDb::open(&options).unwrap();
}

#[test]
fn commits_are_counted() {
    let database = FoundationDb::scratch(Arc::new(System::new())).unwrap();
    for _ in 0..3 {
        set(&database, "k").unwrap();
    }
    let stats = database.stats();
    let value = |name: &str| stats.iter().find(|stat| stat.name == name).unwrap().value;
    assert!((value("millrace_store_transactions_total") - 3.0).abs() < f64::EPSILON);
    assert!(value("millrace_store_waiting_transactions").abs() < f64::EPSILON);
    assert!(value("millrace_store_commit_seconds_total") > 0.0);
    assert!(value("millrace_store_client_busy_ratio") <= 1.0);
}
