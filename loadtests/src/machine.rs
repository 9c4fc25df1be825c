//! How much other programs of this machine disturb a run: the part of a server's time that they
//! took, and how long the machine lets a thread of the driver wait.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::spawn;

use rustix::process::setpriority_process;

use crate::clock;

/// Priority of clients of other tenants: lower than the server's, because they would be on other
/// machines. A much lower priority would starve them on a busy machine, and then they disturb
/// nobody.
const NICE: i32 = 5;

/// CPU seconds that a thread must have run for its waiting time to mean anything.
const BUSY_SECONDS: f64 = 0.02;

/// CPU time and waiting time of one thread, by its id, as `procfs::threads` returns them.
pub(crate) type ThreadTimes = (u32, f64, f64);

/// The factor by which the machine slowed down the server's busiest thread, because other threads
/// had the CPU.
pub(crate) fn stretch(before: &[ThreadTimes], after: &[ThreadTimes]) -> f64 {
    let busiest = busiest(before, after);
    busiest.filter(|(ran, _)| *ran > BUSY_SECONDS).map_or(1.0, |(ran, waited)| (ran + waited) / ran)
}

/// Seconds for which the server's busiest thread ran, and for which it waited for a CPU.
pub(crate) fn busiest(before: &[ThreadTimes], after: &[ThreadTimes]) -> Option<(f64, f64)> {
    let start = |id: u32| {
        before.iter().find(|(other, ..)| *other == id).map_or((0.0, 0.0), |(_, ran, waited)| (*ran, *waited))
    };
    let spent = after.iter().map(|(id, ran, waited)| (ran - start(*id).0, waited - start(*id).1));
    spent.max_by(|one, other| one.0.total_cmp(&other.0))
}

/// Lowers the priority of the calling thread and of the threads that it starts.
pub(crate) fn stand_back() {
    // On Linux this sets the calling thread's priority. If it fails, the figures are higher.
    let _ = setpriority_process(None, NICE);
}

/// A connection to a thread that echoes.
pub(crate) fn echo() -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    spawn(move || {
        let mut byte = [0];
        while other.read_exact(&mut byte).is_ok() && other.write_all(&byte).is_ok() {}
    });
    Ok(stream)
}

/// Sends a byte through [`echo`] every `every_ms` until `done` is set. `record` gets the time of
/// each start and how long the byte took, both in nanoseconds.
pub(crate) fn ping(
    mut stream: &TcpStream,
    every_ms: u64,
    done: &AtomicBool,
    mut record: impl FnMut(u64, u64),
) {
    while !done.load(Ordering::Relaxed) {
        let begun_ns = clock::now_ns();
        let mut byte = [0];
        if stream.write_all(&byte).and_then(|()| stream.read_exact(&mut byte)).is_err() {
            break;
        }
        record(begun_ns, clock::now_ns() - begun_ns);
        clock::pause_ms(every_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_busiest_thread_and_only_its_growth_count() {
        let before = [(1, 10.0, 5.0), (2, 0.0, 0.0)];
        assert_eq!(stretch(&before, &[(1, 12.0, 7.0), (2, 1.0, 100.0)]), 2.0);
        assert_eq!(stretch(&before, &before), 1.0);
    }
}
