//! Remembers, for operators, the addresses that recently connected to a port: gateways, and clients of `/healthz`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// A newer address replaces the one that was silent for the longest time.
const PEERS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct RecentPeers(Mutex<HashMap<IpAddr, RecentPeer>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecentPeer {
    pub accepted: u64,
    pub refused: u64,
    pub last_at_ms: u64,
}

impl RecentPeers {
    pub fn note(&self, address: IpAddr, is_accepted: bool, now_ms: u64) {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = address.to_canonical();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&address) {
            let silent = peers.iter().min_by_key(|(_, peer)| peer.last_at_ms).map(|(address, _)| *address);
            silent.and_then(|silent| peers.remove(&silent));
        }
        let peer = peers.entry(address).or_default();
        let counter = if is_accepted { &mut peer.accepted } else { &mut peer.refused };
        *counter += 1;
        peer.last_at_ms = now_ms;
    }

    pub fn list(&self) -> Vec<(IpAddr, RecentPeer)> {
        let peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = peers.iter().map(|(address, peer)| (*address, *peer)).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_was_silent_longest_makes_room() {
        let (peers, at) = (RecentPeers::default(), |last| IpAddr::from([192, 0, 2, last]));
        for number in 0..=64 {
            peers.note(at(0), number % 2 == 0, 1_000 + u64::from(number));
            peers.note(at(1 + number), true, 1_000 + u64::from(number));
        }
        let all = peers.list();
        assert_eq!(all.len(), PEERS_MAX);
        assert_eq!(all[0], (at(0), RecentPeer { accepted: 33, refused: 32, last_at_ms: 1_064 }));
        assert!(all.iter().all(|(address, _)| *address != at(1) && *address != at(2)), "{all:?}");
    }
}
