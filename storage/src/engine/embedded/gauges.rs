//! Reads the gauges of fjall and of the disk on a thread of its own.
//!
//! fjall holds a lock while it writes a table, and the lock lasts as long as a disk stalls. A scrape of `/metrics` that
//! waited for it would time out, so a slow disk would look like a dead process.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

pub(super) const GAUGES_THREAD: &str = "store-gauges";

/// After this time the reader gets the values of the last reading.
const WAIT: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Gauges {
    is_reading: Arc<AtomicBool>,
}

impl Gauges {
    /// Runs `read`, unless an earlier one still waits for the disk, and waits a moment for its end.
    pub(super) fn refresh(&self, read: impl FnOnce() + Send + 'static) {
        if self.is_reading.swap(true, Ordering::AcqRel) {
            return;
        }
        let (is_reading, (done, finished)) = (self.is_reading.clone(), mpsc::sync_channel(1));
        let reading = move || {
            // A panic inside fjall must not stop all later readings.
            let _ = panic::catch_unwind(AssertUnwindSafe(read));
            is_reading.store(false, Ordering::Release);
            let _ = done.send(());
        };
        match thread::Builder::new().name(GAUGES_THREAD.into()).spawn(reading) {
            Ok(_) => drop(finished.recv_timeout(WAIT)),
            Err(_) => self.is_reading.store(false, Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard};

    use super::*;

    #[test]
    fn a_reading_that_waits_for_the_disk_holds_up_no_reader_and_starts_no_other() {
        let (disk, readings) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(0)));
        let gauges = Gauges::default();
        let read = || {
            let (disk, readings) = (disk.clone(), readings.clone());
            move || {
                drop(disk.lock());
                *readings.lock().unwrap() += 1;
            }
        };
        let stalled: MutexGuard<'_, ()> = disk.lock().unwrap();
        // The disk stalls until these return.
        (0..3).for_each(|_| gauges.refresh(read()));
        assert_eq!(*readings.lock().unwrap(), 0);
        drop(stalled);
        while gauges.is_reading.load(Ordering::Acquire) {
            thread::yield_now();
        }
        assert_eq!(*readings.lock().unwrap(), 1);
        gauges.refresh(read());
        while gauges.is_reading.load(Ordering::Acquire) {
            thread::yield_now();
        }
        assert_eq!(*readings.lock().unwrap(), 2);
    }
}
