//! Measures whether one tenant affects another: the latency of a steady publisher alone, beside a
//! neighbour at its limit, and beside a neighbour that tries ten times its limit. Both are brokers
//! of one server, which takes the driver for its gateway.
//!
//! The neighbour's threads have the lowest priority here, because in production its clients would
//! run on other machines.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use clap::Args;

use rustix::process::setpriority_process;

use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::latency::{Histogram, Percentiles};
use crate::packet::{self, PublishTemplate, Stamp, next_frame};

/// Timeout of a read, after which the reader looks whether the run is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;
/// Waits until the neighbour's last messages have arrived.
const PAUSE_MS: u64 = 1_000;
const TOPIC: &str = "fair";
const NICE: i32 = 19;
const PHASES: [(&str, Option<u64>); 3] = [
    ("alone", None),
    ("beside a neighbour at its limit", Some(1)),
    ("beside one at ten times its limit", Some(10)),
];

/// Size and duration.
#[derive(Args)]
pub(crate) struct Fairness {
    /// Port of the server's gateway listener on 127.0.0.1.
    #[arg(long)]
    gateway_port: u16,
    /// Server name of the broker whose latency is measured.
    #[arg(long)]
    steady: String,
    /// Server name of the neighbour's broker.
    #[arg(long)]
    neighbour: String,
    /// Messages a second that the neighbour may publish; it tries ten times as many.
    #[arg(long)]
    limit: u64,
    /// Its publishing connections.
    #[arg(long, default_value_t = 20)]
    publishers: u64,
    /// Messages a second of the steady publisher.
    #[arg(long, default_value_t = 500)]
    rate: u64,
    /// Quality of service of all messages, 0 or 1.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Bytes of a payload.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(16..=60_000))]
    payload_bytes: u32,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Phases of each kind, in turn.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

#[derive(Default)]
struct Seen {
    /// One entry per phase. The report uses the median, so that a single disturbed phase does not
    /// count.
    latency: Vec<Percentiles>,
    sent: u64,
    delivered: u64,
    /// Delivered messages of the neighbour, and the seconds of its phases.
    passed: u64,
    seconds: f64,
}

impl Fairness {
    pub(crate) fn run(&self) -> Outcome<()> {
        let mut seen = PHASES.map(|_| Seen::default());
        for round in 1..=self.rounds {
            for ((name, times), seen) in PHASES.into_iter().zip(&mut seen) {
                let neighbour = times.map(|times| Neighbour::start(self, times)).transpose()?;
                self.measure(seen)?;
                if let Some(neighbour) = neighbour {
                    let (passed, seconds) = neighbour.end();
                    seen.passed += passed;
                    seen.seconds += seconds;
                    clock::pause_ms(PAUSE_MS);
                }
                eprintln!("round {round}: {name}");
            }
        }
        println!(
            "| steady publisher | sent | delivered | p50 us | p99 us | p99.9 us | neighbour's messages/s |\n|---|---|---|---|---|---|---|"
        );
        let [alone, at_limit, over] = std::array::from_fn(|phase| seen[phase].row(PHASES[phase].0));
        println!(
            "\nThe neighbour may send {} messages a second. Percentiles are medians over {} phases.",
            self.limit, self.rounds
        );
        println!(
            "p99 beside one at ten times its limit: {:.2} of that beside one at its limit, {:.2} of that alone.",
            over / at_limit,
            over / alone
        );
        Ok(())
    }

    fn open(&self, server_name: &str, client_id: &str, subscribes: bool) -> Outcome<TcpStream> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.gateway_port));
        let mut stream = TcpStream::connect(address).during("connecting to the gateway's port")?;
        stream.set_nodelay(true).during("setting TCP_NODELAY")?;
        stream.set_read_timeout(Some(PATIENCE)).during("setting a time-out")?;
        let hello = [proxy_header(server_name), packet::connect(client_id, true)].concat();
        stream.write_all(&hello).during("sending CONNECT")?;
        let mut connack = [0; packet::CONNACK_BYTES];
        stream.read_exact(&mut connack).during("waiting for CONNACK")?;
        if connack[3] != 0 {
            return Err(Failure::new(format!("{server_name} answered CONNECT with {connack:?}")));
        }
        if subscribes {
            let mut suback = [0; packet::SUBACK_BYTES];
            stream.write_all(&packet::subscribe(1, TOPIC, self.qos)).during("sending SUBSCRIBE")?;
            stream.read_exact(&mut suback).during("waiting for SUBACK")?;
        }
        stream.set_read_timeout(Some(LOOK_EVERY)).during("setting a time-out")?;
        Ok(stream)
    }

    fn template(&self) -> PublishTemplate {
        PublishTemplate::new(TOPIC, self.qos, 0, self.payload_bytes as usize)
    }

    fn measure(&self, seen: &mut Seen) -> Outcome<()> {
        let done = Arc::new(AtomicBool::new(false));
        let reader = self.open(&self.steady, "steady-reader", true)?;
        let reader = {
            let done = done.clone();
            spawn(move || read(&reader, &done))
        };
        let stream = self.open(&self.steady, "steady-publisher", false)?;
        let sent = publish(&stream, &self.template(), self.rate, clock::seconds_ns(self.seconds), &done)?;
        clock::pause_ms(PAUSE_MS);
        done.store(true, Ordering::Relaxed);
        let (latency, delivered) = joined(reader)?;
        seen.latency.extend(latency.percentiles());
        seen.sent += sent;
        seen.delivered += delivered;
        Ok(())
    }
}

impl Seen {
    fn row(&self, name: &str) -> f64 {
        let us = |of: fn(&Percentiles) -> u64| median(self.latency.iter().map(of).collect()) as f64 / 1_000.0;
        let (sent, delivered, p99) = (self.sent, self.delivered, us(|all| all.p99_ns));
        let (p50, p999) = (us(|all| all.p50_ns), us(|all| all.p999_ns));
        let per_second = if self.passed == 0 { 0.0 } else { self.passed as f64 / self.seconds };
        println!("| {name} | {sent} | {delivered} | {p50:.0} | {p99:.0} | {p999:.0} | {per_second:.0} |");
        p99
    }
}

struct Neighbour {
    done: Arc<AtomicBool>,
    started_ns: u64,
    reader: JoinHandle<(Histogram, u64)>,
    publishers: Vec<JoinHandle<()>>,
    tried: Arc<AtomicU64>,
}

impl Neighbour {
    fn start(fairness: &Fairness, times: u64) -> Outcome<Self> {
        let (done, tried) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let reader = fairness.open(&fairness.neighbour, "reader", true)?;
        let reader = {
            let done = done.clone();
            spawn(move || {
                stand_back();
                read(&reader, &done)
            })
        };
        let rate = (times * fairness.limit).div_ceil(fairness.publishers.max(1));
        let publisher = |number: u64| {
            let stream = fairness.open(&fairness.neighbour, &format!("publisher-{number}"), false)?;
            let (template, done, tried) = (fairness.template(), done.clone(), tried.clone());
            Ok(spawn(move || {
                stand_back();
                // Setting `done` ends the publisher, even in the middle of a write.
                let sent = publish(&stream, &template, rate, u64::MAX, &done).unwrap_or(0);
                tried.fetch_add(sent, Ordering::Relaxed);
            }))
        };
        let publishers = (0..fairness.publishers.max(1)).map(publisher).collect::<Outcome<_>>()?;
        Ok(Self { done, started_ns: clock::now_ns(), reader, publishers, tried })
    }

    fn end(self) -> (u64, f64) {
        self.done.store(true, Ordering::Relaxed);
        self.publishers.into_iter().for_each(|thread| drop(thread.join()));
        let passed = self.reader.join().map_or(0, |(_, delivered)| delivered);
        let seconds = (clock::now_ns() - self.started_ns) as f64 / 1e9;
        eprintln!(
            "the neighbour sent {} in {seconds:.1} s, {passed} came through",
            self.tried.load(Ordering::Relaxed)
        );
        (passed, seconds)
    }
}

/// Threads that the calling thread starts later inherit the priority.
fn stand_back() {
    // On Linux this sets the calling thread's priority. If it fails, both phases with a neighbour
    // show higher figures.
    let _ = setpriority_process(None, NICE);
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn joined<T>(thread: JoinHandle<T>) -> Outcome<T> {
    thread.join().map_err(|_| Failure::new("a thread of the driver panicked"))
}

/// Sends `rate` messages a second, as far as the socket takes them, and discards the answers.
fn publish(
    mut stream: &TcpStream,
    template: &PublishTemplate,
    rate: u64,
    for_ns: u64,
    done: &AtomicBool,
) -> Outcome<u64> {
    stream.set_write_timeout(Some(LOOK_EVERY)).during("setting a time-out")?;
    let mut answers = stream.try_clone().during("sharing a socket")?;
    let (start_ns, mut sent) = (clock::now_ns(), 0u64);
    let (mut batch, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    let reader_done = Arc::new(AtomicBool::new(false));
    let reader = {
        let done = reader_done.clone();
        spawn(move || {
            while !done.load(Ordering::Relaxed) {
                match answers.read(&mut buffer) {
                    Ok(0) => return,
                    Err(error) if !is_pause(&error) => return,
                    _ => {}
                }
            }
        })
    };
    loop {
        let passed_ns = clock::now_ns() - start_ns;
        if passed_ns >= for_ns || done.load(Ordering::Relaxed) {
            break;
        }
        let due = u64::try_from(u128::from(passed_ns) * u128::from(rate) / 1_000_000_000).unwrap_or(u64::MAX);
        if sent >= due {
            clock::pause_ms(1);
            continue;
        }
        batch.clear();
        let next = due.min(sent + 64);
        for number in sent..next {
            template.append(&mut batch, number as u32, (number % 60_000 + 1) as u16, clock::now_ns());
        }
        sent = next;
        if !write_all(&mut stream, &batch, done) {
            break;
        }
    }
    reader_done.store(true, Ordering::Relaxed);
    joined(reader)?;
    Ok(sent)
}

/// Returns false when `done` is set or the server has closed.
fn write_all(stream: &mut &TcpStream, mut bytes: &[u8], done: &AtomicBool) -> bool {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if is_pause(&error) => {}
            Err(_) => return false,
        }
        if !bytes.is_empty() && done.load(Ordering::Relaxed) {
            return false;
        }
    }
    true
}

fn is_pause(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Receives and acknowledges until `done` is set; returns the latencies and how many there were.
fn read(mut stream: &TcpStream, done: &AtomicBool) -> (Histogram, u64) {
    let (mut latency, mut delivered) = (Histogram::new(), 0);
    let (mut buffer, mut end, mut acks) = (vec![0; READ_BYTES], 0, Vec::new());
    while !done.load(Ordering::Relaxed) {
        match stream.read(&mut buffer[end..]) {
            Ok(0) => break,
            Ok(read) => end += read,
            Err(error) if is_pause(&error) => continue,
            Err(_) => break,
        }
        let (now_ns, mut at) = (clock::now_ns(), 0);
        while let Ok(Some(frame)) = next_frame(&buffer[at..end]) {
            if let Some((id, payload)) = frame.publish().filter(|_| frame.kind() == packet::PUBLISH) {
                delivered += 1;
                let stamp = Stamp::read(payload);
                stamp.into_iter().for_each(|stamp| latency.record(now_ns.saturating_sub(stamp.sent_ns)));
                if id != 0 {
                    acks.extend_from_slice(&packet::puback(id));
                }
            }
            at += frame.length;
        }
        buffer.copy_within(at..end, 0);
        end -= at;
        // A failure is ignored: acknowledgements that the socket does not take are missing, and
        // then the run fails.
        let _ = stream.write_all(&acks);
        acks.clear();
    }
    (latency, delivered)
}

/// A PROXY protocol header, version 2, of a client with this server name (`PP2_TYPE_AUTHORITY`).
fn proxy_header(server_name: &str) -> Vec<u8> {
    let name = server_name.as_bytes();
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    let length = 12 + 3 + name.len();
    header.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    header.extend_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1, 0xD4, 0x31, 0x22, 0xB3, 0x02]);
    header.extend_from_slice(&u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
    header.extend_from_slice(name);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_says_its_length_and_the_server() {
        let header = proxy_header("a.mqtt.test");
        assert_eq!(usize::from(u16::from_be_bytes([header[14], header[15]])), header.len() - 16);
        assert!(header.ends_with(b"\x02\0\x0Ba.mqtt.test"));
    }
}
