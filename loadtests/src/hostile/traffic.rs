//! Steps that many attacks share: read and discard, publish as fast as the server reads, send many
//! messages at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use super::client::Client;
use super::packets::{PINGRESP, PUBACK, Publish};
use super::ring::Ring;
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::link::is_pause;
use crate::machine::stand_back;

const LOOK_EVERY: Duration = Duration::from_millis(50);
const READ_BYTES: usize = 256 * 1024;
/// Most bytes that may still arrive after an attack: messages of the friendly client of the same
/// broker.
const TRICKLE_BYTES: u64 = 4096;

pub(super) struct Sink {
    bytes: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sink {
    /// Reads and discards on a thread of its own; `None`: as fast as the server sends.
    pub(super) fn start(stream: &TcpStream, bytes_a_second: Option<u64>) -> Self {
        let (bytes, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, is_done) = (bytes.clone(), done.clone());
        let thread = stream.try_clone().ok().map(|stream| {
            spawn(move || {
                stand_back();
                swallow(stream, bytes_a_second, &count, &is_done);
            })
        });
        Self { bytes, done, thread }
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads and discards until `done`, at most `bytes_a_second`, and counts the bytes.
fn swallow(mut stream: TcpStream, bytes_a_second: Option<u64>, count: &AtomicU64, done: &AtomicBool) {
    let mut buffer = vec![0; READ_BYTES];
    let begun_ns = clock::now_ns();
    let _ = stream.set_read_timeout(Some(LOOK_EVERY));
    while !done.load(Ordering::Relaxed) {
        let mut room = READ_BYTES;
        if let Some(rate) = bytes_a_second {
            let allowed = (clock::ns_seconds(clock::now_ns() - begun_ns) * rate as f64) as u64;
            let left = allowed.saturating_sub(count.load(Ordering::Relaxed));
            if left < 4096 {
                clock::pause_ms(5);
                continue;
            }
            room = room.min(left as usize);
        }
        match stream.read(&mut buffer[..room]) {
            Ok(0) => return,
            Ok(read) => {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(error) if is_pause(&error) => {}
            Err(_) => return,
        }
    }
}

/// Repeats `bytes` for `seconds`; returns how often. Gives up a write that the server does not read
/// for long.
pub(super) fn flood(stream: &mut TcpStream, bytes: &[u8], seconds: f64) -> u64 {
    let until_ns = clock::now_ns() + clock::seconds_ns(seconds);
    let mut times = 0;
    while clock::now_ns() < until_ns && stream.write_all(bytes).is_ok() {
        times += 1;
    }
    times
}

pub(super) fn messages(topic: &str, count: usize, payload_bytes: usize) -> Vec<u8> {
    Publish { topic, payload: &vec![b'x'; payload_bytes], ..Publish::default() }.bytes().repeat(count)
}

/// All topics with this number of levels: 2^levels for two choices.
pub(super) fn combinations(levels: u32, choices: [&str; 2]) -> Vec<String> {
    let level = |number: usize, at: u32| choices[number >> at & 1];
    (0..1usize << levels)
        .map(|number| (0..levels).map(|at| level(number, at)).collect::<Vec<_>>().join("/"))
        .collect()
}

/// Waits for the answer to a PINGREQ, which shows that the server has read all packets before.
pub(super) fn finish(client: &mut Client, seconds: f64) -> bool {
    client.send(&[0xC0, 0]) && client.wait_for(PINGRESP, seconds).is_some()
}

pub(super) fn retain(ring: &Ring<'_>, topics: impl Iterator<Item = String>, payload: &[u8]) -> Outcome<()> {
    let mut publisher = ring.client("retainer")?;
    let mut batch = Vec::new();
    for topic in topics {
        batch.extend(Publish { topic: &topic, payload, retain: true, ..Publish::default() }.bytes());
        if batch.len() > 64 * 1024 {
            publisher.send(&batch);
            batch.clear();
        }
    }
    // Its PUBACK comes when all messages before it are stored.
    let last = Publish { topic: "last", payload, qos: 1, packet_id: 1, retain: true, ..Publish::default() };
    publisher.send(&batch);
    publisher.send(&last.bytes());
    let stored = publisher.wait_for(PUBACK, 60.0).is_some();
    stored.then_some(()).ok_or_else(|| Failure::new("the retained messages were not taken"))
}

pub(super) fn unretain(ring: &Ring<'_>, topics: impl Iterator<Item = String>) -> Outcome<()> {
    retain(ring, topics, b"")
}

/// Waits until bytes came and then hardly any came for `quiet_ms`, or the server has closed.
pub(super) fn wait_until_quiet(sink: &Sink, quiet_ms: u64, seconds_max: f64) {
    let until_ns = clock::now_ns() + clock::seconds_ns(seconds_max);
    let (mut last, mut since_ns) = (sink.bytes(), clock::now_ns());
    while clock::now_ns() < until_ns && !sink.is_over() {
        clock::pause_ms(20);
        let bytes = sink.bytes();
        if bytes > last + TRICKLE_BYTES || bytes == 0 {
            (last, since_ns) = (bytes, clock::now_ns());
        } else if clock::now_ns() - since_ns > quiet_ms * 1_000_000 {
            return;
        }
    }
}
