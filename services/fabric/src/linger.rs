//! Keeps the sending rounds at least `linger_us` apart, so that messages of that time share a batch.
//! It needs a timer of its own, because the runtime's timers count milliseconds.

use std::io;
use std::time::{Duration, Instant};

use crate::clock::instant;

pub(crate) struct Linger {
    interval: Duration,
    last: Instant,
    timer: timer::LingerTimer,
}

impl Linger {
    /// `interval` is the shortest time between two rounds; call it within a runtime.
    pub(crate) fn new(interval: Duration) -> io::Result<Self> {
        let now = instant();
        Ok(Self {
            interval,
            last: now.checked_sub(interval).unwrap_or(now),
            timer: timer::LingerTimer::new()?,
        })
    }

    pub(crate) fn start(&mut self) {
        self.last = instant();
    }

    /// Waits until `interval` has passed since [`Self::start`].
    pub(crate) async fn wait(&mut self) -> io::Result<()> {
        match self.interval.checked_sub(self.last.elapsed()) {
            Some(left) if !left.is_zero() => self.timer.wait(left).await,
            _ => Ok(()),
        }
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    pub(super) struct LingerTimer(AsyncFd<OwnedFd>);

    impl LingerTimer {
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for descriptors that are not owned; this one is"
        )]
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            Ok(Self(AsyncFd::with_interest(timer, Interest::READABLE)?))
        }

        pub(super) async fn wait(&self, left: Duration) -> io::Result<()> {
            let never = Timespec { tv_sec: 0, tv_nsec: 0 };
            let once = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let time = Itimerspec { it_interval: never, it_value: once };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &time)?;
            loop {
                let mut ready = self.0.readable().await?;
                let mut expirations = [0; 8];
                let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
                if let Ok(read) = read {
                    return read.map(|_| ());
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::io;
    use std::time::Duration;

    pub(super) struct LingerTimer;

    impl LingerTimer {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn wait(&self, left: Duration) -> io::Result<()> {
            tokio::time::sleep(left).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_an_interval_apart_and_the_first_one_starts_at_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let start = instant();
            let mut linger = Linger::new(Duration::from_millis(300)).unwrap();
            linger.wait().await.unwrap();
            assert!(start.elapsed() < Duration::from_millis(300));
            for _ in 0..3 {
                linger.start();
                linger.wait().await.unwrap();
            }
            assert!(start.elapsed() >= Duration::from_millis(900));
        });
    }
}
