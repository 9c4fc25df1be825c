//! Measures durable appends on the embedded engine: CPU time of the whole process, flushes and
//! merges included, and the time until a commit is acknowledged. The arguments are the number of
//! records and the row of the table to run: `cargo bench -p millrace-storage --bench engine --
//! [<records> [<row>]]`
//!
//! The feature `foundationdb` measures the cluster of `FDB_CLUSTER_FILE` instead. The CPU time is
//! then the client's only.
#![allow(clippy::print_stdout)]

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use millrace_storage::{Commit, Database, Embedded, KeyRange, Read, Transaction, block_on};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A row of the table: transactions of `batch` appends to `streams` streams in turn, `in_flight`
/// transactions at once.
struct Scenario {
    batch: usize,
    streams: u64,
    in_flight: usize,
    also: Also,
}

/// Further work beside the appends.
#[derive(Clone, Copy, PartialEq)]
enum Also {
    Nothing,
    /// Streams are read, and read records are cleared.
    Trim,
    /// As for a publish: each record is added to its stream's total, and one index key is read.
    CountAndRead,
}

struct Store {
    database: Database,
    embedded: Option<(Embedded, tempfile::TempDir)>,
}

impl Store {
    #[cfg(feature = "foundationdb")]
    fn open() -> Self {
        let host = std::sync::Arc::new(millrace_storage::System::new());
        let database = millrace_storage::FoundationDb::scratch(host).expect("a cluster");
        Self { database, embedded: None }
    }

    #[cfg(not(feature = "foundationdb"))]
    fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Embedded::open(folder.path().join("data"), millrace_storage::Options::default())
            .expect("a store");
        Self { database: store.database(), embedded: Some((store, folder)) }
    }

    fn megabytes(&self) -> u64 {
        let disk = self.embedded.as_ref().and_then(|(store, _)| store.disk_use().ok());
        disk.map_or(0, |disk| disk.used_bytes >> 20)
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let records = numbers.next().unwrap_or(1_000_000);
    let only = numbers.next();
    println!(
        "batch streams in-flight | us CPU/record  records/CPU s  records/s | p50 us  p99 us | MB on disk, most in memory"
    );
    let rows = [
        (1, 1_000, 1, Also::Nothing),
        (1, 1_000, 500, Also::Nothing),
        (10, 1_000, 50, Also::Nothing),
        (100, 1, 1, Also::Nothing),
        (100, 1, 8, Also::Nothing),
        (100, 1_000, 1, Also::Nothing),
        (100, 1_000, 8, Also::Nothing),
        (500, 1_000, 4, Also::Nothing),
        (100, 100, 8, Also::Trim),
        (100, 100, 4, Also::CountAndRead),
        (100, 1_000, 4, Also::CountAndRead),
        (1_000, 100, 2, Also::CountAndRead),
        (1_000, 1_000, 2, Also::CountAndRead),
    ];
    for (row, (batch, streams, in_flight, also)) in rows.into_iter().enumerate() {
        if only.is_some_and(|only| only != row) {
            continue;
        }
        let scenario = Scenario { batch, streams, in_flight, also };
        // Small transactions wait for a flush each, so a twentieth of the records takes as long.
        let records = if batch * in_flight < 100 { records / 20 } else { records };
        measure(&scenario, records);
    }
}

fn measure(scenario: &Scenario, records: usize) {
    let store = Store::open();
    let database = store.database.clone();
    fill(&database, scenario);
    let (cpu, start) = (cpu_seconds(), now());
    let mut latencies = Vec::with_capacity(records / scenario.batch);
    let mut flying: VecDeque<(Instant, Commit)> = VecDeque::new();
    let mut sequence = 0;
    while sequence < records as u64 || !flying.is_empty() {
        while flying.len() < scenario.in_flight && sequence < records as u64 {
            flying.push_back((now(), append(&database, scenario, &mut sequence)));
        }
        let (sent, mut commit) = flying.pop_front().expect("one is in flight");
        // Later commits are mostly in the same flush; a waker for each would measure the bench.
        let result = match Pin::new(&mut commit).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => block_on(commit),
        };
        result.expect("a commit");
        latencies.push(sent.elapsed());
    }
    let (cpu, wall) = (cpu_seconds() - cpu, start.elapsed().as_secs_f64());
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies[latencies.len() * percent / 100].as_micros();
    let count = sequence as f64;
    println!(
        "{:5} {:7} {:9} | {:13.2} {:14.0} {:10.0} | {:6} {:7} | {:4} {:4} {}",
        scenario.batch,
        scenario.streams,
        scenario.in_flight,
        cpu * 1e6 / count,
        count / cpu,
        count / wall,
        percentile(50),
        percentile(99),
        store.megabytes(),
        memory_megabytes(),
        match scenario.also {
            Also::Nothing => "",
            Also::Trim => "(read and cleared behind)",
            Also::CountAndRead => "(counted, with a read each)",
        },
    );
}

#[allow(clippy::disallowed_methods, reason = "a retry would be measured as one commit")]
fn append(database: &Database, scenario: &Scenario, sequence: &mut u64) -> Commit {
    let transaction = database.begin_unretried();
    let number = *sequence / scenario.batch as u64;
    for place in 0..scenario.batch {
        let prefix = stream(*sequence % scenario.streams);
        let user = u16::try_from(place).unwrap_or(u16::MAX).to_be_bytes();
        let payload = Bytes::copy_from_slice(&[7; 200]);
        transaction.set_versionstamped_key(prefix, user, [], payload).expect("an append");
        if scenario.also == Also::CountAndRead {
            count_and_read(&transaction, prefix);
        }
        *sequence += 1;
    }
    if scenario.also == Also::Trim && number.is_multiple_of(10) {
        // Clears one whole stream: what was appended since it was cleared last.
        let behind = number / 10 % scenario.streams;
        let newest = [&stream(behind)[..], &end_of_read(&transaction)].concat();
        transaction.clear_range(KeyRange::new(stream(behind), newest)).expect("a range");
    }
    transaction.commit()
}

/// Writes one key for each stream, which [`count_and_read`] reads.
#[allow(clippy::disallowed_methods, reason = "nothing conflicts with the only transaction")]
fn fill(database: &Database, scenario: &Scenario) {
    let transaction = database.begin_unretried();
    for number in 0..scenario.streams {
        let mut filter = stream(number);
        filter[0] = b'f';
        transaction.set(filter, vec![7; 20]).expect("a key");
    }
    block_on(transaction.commit()).expect("a commit");
}

fn count_and_read(transaction: &Transaction, prefix: [u8; 11]) {
    let mut total = prefix;
    total[0] = b't';
    transaction.atomic_add(total, 1).expect("a total");
    let mut filter = prefix;
    filter[0] = b'f';
    block_on(transaction.get(filter, Read::Serializable)).expect("a read");
}

/// The first version that the transaction cannot read: the exclusive end of a range.
fn end_of_read(transaction: &Transaction) -> [u8; 8] {
    (block_on(transaction.read_version()).expect("a version") + 1).to_be_bytes()
}

fn stream(number: u64) -> [u8; 11] {
    let mut prefix = *b"st........\0";
    prefix[2..10].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    prefix
}

#[allow(clippy::disallowed_methods, reason = "the bench measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Peak memory of the process.
fn memory_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

/// CPU time of the process on all cores; Linux counts it in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc");
    let after_name = stat.rsplit(") ").next().expect("a name");
    let mut fields = after_name.split(' ').skip(11).map(|field| field.parse::<u64>().expect("a number"));
    let ticks = fields.next().unwrap_or(0) + fields.next().unwrap_or(0);
    Duration::from_millis(10 * ticks).as_secs_f64()
}
