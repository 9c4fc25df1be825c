//! Measures reads and deletions on the embedded engine with a million rows of 50 bytes: CPU time of
//! the whole process for each operation, and memory. `cargo bench -p millrace-storage --bench reads -- [<rows>]`
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::{fs, time::Duration};

use millrace_storage::{Database, Embedded, KeyRange, Options, RangeOptions, Read, block_on};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows of one stream, or of one client.
const ROWS: u64 = 1_000;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let streams = numbers.next().unwrap_or(1_000_000) / ROWS;
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Embedded::open(folder.path().join("data"), Options::default()).expect("a store");
    let store = open();
    println!("empty: {} MB in memory", resident_megabytes());
    fill(&store.database(), streams);
    let disk = store.disk_use().map_or(0, |disk| disk.used_bytes >> 20);
    println!("{} rows: {} MB in memory, {disk} MB on disk", streams * ROWS, resident_megabytes());
    drop(store);
    let cpu = cpu_seconds();
    let store = open();
    println!("opened again: {:.2} s CPU, {} MB in memory", cpu_seconds() - cpu, resident_megabytes());
    let database = store.database();
    measure("get of a key that is there", 300_000, |number| {
        get(&database, &row(scattered(number) % streams, number % ROWS));
    });
    measure("get of a key that is not there", 300_000, |number| {
        get(&database, &row(scattered(number) % streams, ROWS + number));
    });
    for limit in [10, 100] {
        measure(&format!("page of {limit}"), 20_000, |number| {
            let transaction = database.begin_unretried();
            let rows = KeyRange::prefix(&row(scattered(number) % streams, 0)[..11]);
            let page = block_on(transaction.range(rows, RangeOptions::first(limit).snapshot()));
            assert_eq!(page.expect("a page").items.len(), limit);
        });
    }
    println!("read: {} MB in memory", resident_megabytes());
    for (name, from) in
        [("clear of 500 rows, with its commit", 0), ("the same again", 0), ("of the next 500", 500)]
    {
        measure(name, streams, |number| {
            let transaction = database.begin_unretried();
            let rows = KeyRange::new(row(number, from), row(number, from + 500));
            transaction.clear_range(rows).expect("a range");
            block_on(transaction.commit()).expect("a commit");
        });
    }
    let disk = store.disk_use().map_or(0, |disk| disk.used_bytes >> 20);
    println!("cleared: {} MB in memory, {disk} MB on disk", resident_megabytes());
}

/// Writes the rows as appends come: each stream gets one in turn.
fn fill(database: &Database, streams: u64) {
    for number in 0..ROWS {
        for first in (0..streams).step_by(500) {
            let transaction = database.begin_unretried();
            for stream in first..(first + 500).min(streams) {
                transaction.set(row(stream, number), vec![7; 50]).expect("a row");
            }
            block_on(transaction.commit()).expect("a commit");
        }
    }
}

fn get(database: &Database, key: &[u8]) {
    block_on(database.begin_unretried().get(key, Read::Snapshot)).expect("a read");
}

fn measure(name: &str, count: u64, mut each: impl FnMut(u64)) {
    let cpu = cpu_seconds();
    (0..count).for_each(&mut each);
    println!("{name}: {:.2} us CPU", (cpu_seconds() - cpu) * 1e6 / count as f64);
}

fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

fn row(stream: u64, number: u64) -> [u8; 19] {
    let mut key = *b"st........\0........";
    key[2..10].copy_from_slice(&scattered(stream + 1).to_be_bytes());
    key[11..].copy_from_slice(&number.to_be_bytes());
    key
}

fn resident_megabytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}

/// CPU time of the process on all cores; Linux counts it in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc");
    let after_name = stat.rsplit(") ").next().expect("a name");
    let mut fields = after_name.split(' ').skip(11).map(|field| field.parse::<u64>().expect("a number"));
    let ticks = fields.next().unwrap_or(0) + fields.next().unwrap_or(0);
    Duration::from_millis(10 * ticks).as_secs_f64()
}
