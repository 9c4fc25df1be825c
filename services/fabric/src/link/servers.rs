//! Chooses the server to connect to next, and how long to wait before.

use std::time::Duration;

/// Longest wait before the first try after a lost connection, so that a failed server's clients do
/// not all arrive at once.
const SPREAD_MS: u64 = 50;
/// Wait before all servers are tried for the second time.
const WAIT_MS_MIN: u64 = 100;

/// The servers in random order, the position of the next one, and how many attempts have failed
/// since the last connection.
#[derive(Debug)]
pub(super) struct NatsServers {
    order: Vec<usize>,
    place: usize,
    failed: usize,
    was_connected: bool,
    wait_ms_max: u64,
}

impl NatsServers {
    pub(super) fn new(count: usize, wait_ms_max: u32) -> Self {
        let mut order: Vec<_> = (0..count).collect();
        fastrand::shuffle(&mut order);
        Self { order, place: 0, failed: 0, was_connected: false, wait_ms_max: wait_ms_max.into() }
    }

    pub(super) fn next(&mut self) -> (usize, Duration) {
        let server = self.order[self.place % self.order.len()];
        let round = self.failed / self.order.len();
        self.place += 1;
        self.failed += 1;
        let wait_ms = match round {
            0 if !self.was_connected => 0,
            0 => fastrand::u64(..=SPREAD_MS),
            _ => {
                let doubled = WAIT_MS_MIN << (round - 1).min(20);
                let most = doubled.min(self.wait_ms_max);
                fastrand::u64(most / 2..=most)
            }
        };
        (server, Duration::from_millis(wait_ms))
    }

    pub(super) fn connected(&mut self) {
        self.failed = 0;
        self.was_connected = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_tried_before_one_is_tried_again() {
        let mut servers = NatsServers::new(3, 5000);
        let mut first: Vec<_> = (0..3).map(|_| servers.next().0).collect();
        let second: Vec<_> = (0..3).map(|_| servers.next().0).collect();
        assert_eq!(first, second);
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
    }

    #[test]
    fn waits_double_up_to_the_limit_and_start_again_once_connected() {
        let mut servers = NatsServers::new(1, 1000);
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(u64::try_from(servers.next().1.as_millis()).unwrap());
        }
        assert_eq!(waits[0], 0);
        for (wait, most) in waits[1..].iter().zip([100, 200, 400, 800, 1000, 1000, 1000]) {
            assert!((most / 2..=most).contains(wait), "{waits:?}");
        }
        servers.connected();
        assert!(servers.next().1 <= Duration::from_millis(SPREAD_MS));
    }

    #[test]
    fn the_server_after_the_one_that_failed_is_next() {
        let mut servers = NatsServers::new(2, 1000);
        let (connected_to, _) = servers.next();
        servers.connected();
        assert_ne!(servers.next().0, connected_to);
    }
}
