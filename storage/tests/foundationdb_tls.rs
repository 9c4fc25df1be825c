//! A cluster that speaks TLS. `FDB_TEST_TLS` is a folder with its cluster file and certificates:
//! `make test-fdb` makes one. Certificates are settings of the whole process, so each test is run
//! by itself.
#![cfg(feature = "foundationdb")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{path::PathBuf, sync::Arc, time::Duration};

use millrace_storage::{
    ClusterOptions, ClusterTls, Database, FoundationDb, NetworkOptions, RetryPolicy, StoreError, System,
    block_on,
};

/// A store whose servers must be of an authority.
fn open(authority: &str) -> Option<Database> {
    let Some(folder) = std::env::var_os("FDB_TEST_TLS").map(PathBuf::from) else {
        println!("SKIPPED: no cluster that speaks TLS; `make test-fdb` starts one");
        return None;
    };
    let file = |name: &str| Some(folder.join(name));
    let tls = ClusterTls {
        certificate_file: file("cert.pem"),
        key_file: file("key.pem"),
        ca_file: file(authority),
        verify_peers: Some("Check.Valid=1,S.CN=fdb.test".into()),
        ..ClusterTls::default()
    };
    let options = ClusterOptions {
        cluster_file: file("fdb.cluster"),
        network: NetworkOptions { tls, ..NetworkOptions::default() },
        read_timeout: Duration::from_secs(3),
        ..ClusterOptions::default()
    };
    let retry = RetryPolicy { attempts_max: 2, ..RetryPolicy::default() };
    Some(FoundationDb::open(&options).unwrap().database_on(Arc::new(System::new()), retry))
}

fn get(database: &Database) -> Result<bool, StoreError> {
    block_on(database.run(async |tx, _| Ok(tx.get("k", Default::default()).await?.is_some())))
}

#[test]
fn a_cluster_is_reached_with_certificates() {
    let Some(database) = open("ca.pem") else { return };
    let set: Result<(), StoreError> = block_on(database.run(async |tx, _| tx.set("k", "v")));
    assert_eq!((set, get(&database)), (Ok(()), Ok(true)));
}

#[test]
fn a_server_of_another_authority_is_not_believed() {
    let Some(database) = open("other.pem") else { return };
    assert!(matches!(get(&database), Err(StoreError::Unavailable(_))));
}
