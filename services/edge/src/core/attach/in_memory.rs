//! Limits of sessions that wait for their clients in memory, and of their wills: without a store, nothing else bounds them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::will::bytes_of;
use crate::core::Core;
use crate::core::connection::ConnectRequest;
use crate::quota::Limit;

/// The users of sessions that wait in memory, by slot, beside the sessions so that others are no larger.
#[derive(Debug, Default)]
pub(in crate::core) struct InMemoryUsers(HashMap<u32, Arc<str>>);

impl InMemoryUsers {
    pub(super) fn get(&self, session: u32) -> Option<&str> {
        self.0.get(&session).map(|user| &**user)
    }

    pub(super) fn set(&mut self, session: u32, user: Option<Arc<str>>) {
        self.0.extend(user.map(|user| (session, user)));
    }

    pub(super) fn remove(&mut self, session: u32) {
        if !self.0.is_empty() {
            self.0.remove(&session);
        }
    }
}

impl Core {
    /// The limit that a session in memory, or its will, would exceed. A session that is there already, `found`, has room.
    pub(super) fn reaches_in_memory(&self, request: &ConnectRequest, found: Option<u32>) -> Option<Limit> {
        let (limits, memory) = (&self.process.limits, &request.broker.client_memory);
        let is_more = request.granted_expiry_s > 0 && found.is_none();
        let count = memory.memory_sessions.load(Ordering::Relaxed);
        if is_more && count >= limits.stored_sessions_per_broker_max.into() {
            return Some(Limit::BrokerSessions);
        }
        let will_bytes = request.will.as_ref().map_or(0, |(will, _)| will.size() as u64);
        let held = memory.will_bytes.load(Ordering::Relaxed);
        if will_bytes == 0 || held + will_bytes <= limits.will_bytes_per_broker_max {
            return None;
        }
        let former = found.and_then(|session| self.sessions[session as usize].session.will.as_deref());
        (will_bytes > bytes_of(former)).then_some(Limit::BrokerWills)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::Loops;

    const REFUSED: u8 = 3;

    fn held(loops: &Loops) -> (u64, u64) {
        let memory = &loops.broker().client_memory;
        let counts = [&memory.memory_sessions, &memory.will_bytes].map(|count| count.load(Ordering::Relaxed));
        (counts[0], counts[1])
    }

    #[test]
    fn sessions_in_memory_have_a_limit_for_each_broker_and_those_that_are_there_come_back() {
        let mut loops = Loops::start(2, |limits| limits.stored_sessions_per_broker_max = 10);
        let away: Vec<_> = (0..10).map(|number| loops.connect_as(&format!("s{number}"), false)).collect();
        drop(away);
        loops.until(|loops| loops.cores.iter().all(|core| core.connections.is_empty()));
        assert_eq!(held(&loops), (10, 0));
        assert_eq!(loops.connack("more", 0, "")[1], REFUSED);
        assert_eq!(loops.connack("clean", 0b10, "")[1], 0);
        assert_eq!(loops.connack("s3", 0, ""), [1, 0]);
        // A clean session replaces it, and there is room for another one.
        assert_eq!(loops.connack("s3", 0b10, "")[1], 0);
        assert_eq!(loops.connack("more", 0, "")[1], 0);
        assert_eq!(held(&loops).0, 10);
    }

    #[test]
    fn wills_in_memory_have_a_limit_for_each_broker_that_ends_with_them() {
        let will = "w".repeat(1_000);
        let mut loops = Loops::start(1, |limits| limits.will_bytes_per_broker_max = 10_500);
        let mut clients: Vec<_> =
            (0..10).map(|number| loops.connect_with_will(&format!("w{number}"), &will)).collect();
        let (_, bytes) = held(&loops);
        assert!((10_000..10_500).contains(&bytes), "{bytes}");
        assert_eq!(loops.connack("more", 0b110, &will)[1], REFUSED);
        assert_eq!(loops.connack("without", 0b10, "")[1], 0);
        // It takes its session over, with a will as large.
        clients[3] = loops.connect_with_will("w3", &will);
        assert_eq!(held(&loops), (0, bytes));
        clients.clear();
        loops.until(|loops| held(loops) == (0, 0));
        assert_eq!(loops.connack("more", 0b110, &will)[1], 0);
    }
}
