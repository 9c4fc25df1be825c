//! Counts the bytes that wait in outbound buffers. At the end of a turn only connections with a busy socket have a buffer.

use super::Core;

impl Core {
    /// The socket of the connection accepts no more for now.
    pub(super) fn note_busy(&mut self, slot: u32) {
        self.busy.insert(slot);
    }

    /// Called once a second.
    pub(super) fn count_outbound(&mut self) {
        let (connections, mut bytes) = (&self.connections, 0);
        self.busy.retain(|slot| {
            let waiting = connections.get(*slot as usize).filter(|connection| connection.busy);
            let outbound = waiting.and_then(|connection| connection.outbound.as_deref());
            bytes += outbound.map_or(0, |outbound| outbound.len() as u64);
            outbound.is_some()
        });
        self.counters().outbound_bytes.set(bytes);
    }
}
