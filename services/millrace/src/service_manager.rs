//! Notifies systemd (sd_notify) that the server is ready, stops, or is alive because every event
//! loop runs. With `WatchdogSec=`, systemd kills and restarts a server whose loops hang.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tracing::warn;

/// Its thread feeds the watchdog.
pub(crate) struct ServiceManager {
    socket: UnixDatagram,
    watchdog: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl ServiceManager {
    /// To be called when the server accepts clients, because systemd then starts services that wait for it. `None` without
    /// a service manager.
    pub(crate) fn ready(is_alive: impl Fn() -> bool + Send + 'static) -> Option<Self> {
        let address = std::env::var("NOTIFY_SOCKET").ok()?;
        let interval = std::env::var("WATCHDOG_USEC").ok().and_then(|value| value.parse().ok());
        Self::connect(&address, interval.map(Duration::from_micros), is_alive)
            .inspect_err(
                |error| warn!(%error, address, "the service manager cannot be notified that the server is ready, and may stop it: check NOTIFY_SOCKET"),
            )
            .ok()
    }

    /// Notifications are sent twice as often as the watchdog's `timeout` requires.
    fn connect(
        address: &str,
        timeout: Option<Duration>,
        is_alive: impl Fn() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let address = match address.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.send(b"READY=1")?;
        let watchdog = match timeout {
            Some(timeout) => Some(feed(socket.try_clone()?, timeout / 2, is_alive)?),
            None => None,
        };
        Ok(Self { socket, watchdog })
    }

    /// Announces the stop, and asks for `at_most` in case `TimeoutStopSec=` is shorter. systemd does
    /// not watch a service that is stopping, so the notifications end here.
    pub(crate) fn stopping(self, at_most: Duration) {
        let _ =
            self.socket.send(format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}", at_most.as_micros()).as_bytes());
        if let Some((end, thread)) = self.watchdog {
            drop(end);
            let _ = thread.join();
        }
    }
}

fn feed(
    socket: UnixDatagram,
    every: Duration,
    is_alive: impl Fn() -> bool + Send + 'static,
) -> std::io::Result<(SyncSender<()>, JoinHandle<()>)> {
    let (end, ended) = sync_channel(0);
    let feed = move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
            if is_alive() {
                let _ = socket.send(b"WATCHDOG=1");
            }
        }
    };
    Ok((end, std::thread::Builder::new().name("watchdog".into()).spawn(feed)?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let bytes = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..bytes]).into_owned()
    }

    #[test]
    fn the_watchdog_is_fed_only_while_the_server_is_alive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let alive = Arc::new(AtomicBool::new(true));
        let is_alive = Arc::clone(&alive);
        let service =
            ServiceManager::connect(path.to_str().unwrap(), Some(Duration::from_millis(20)), move || {
                is_alive.load(Ordering::Relaxed)
            })
            .unwrap();
        assert_eq!(received(&manager), "READY=1");
        assert_eq!(received(&manager), "WATCHDOG=1");
        alive.store(false, Ordering::Relaxed);
        // Notifications from before the change may still arrive; then nothing for ten times as
        // long.
        manager.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut buffer = [0; 64];
        let mut late = 0;
        while manager.recv(&mut buffer).is_ok() {
            late += 1;
            assert!(late < 5, "systemd is notified although the event loops hang");
        }
        service.stopping(Duration::from_secs(90));
        assert_eq!(received(&manager), "STOPPING=1\nEXTEND_TIMEOUT_USEC=90000000");
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error_and_no_end() {
        assert!(ServiceManager::connect("/nowhere/notify", None, || true).is_err());
    }
}
