//! Restores the order of a session's in-flight messages after a crash. The store knows the packet ids of its QoS 2
//! messages and sends those again under the same ids. Its QoS 1 messages are read again. Each of them must go before
//! the messages published after it (P4), under the nearest free packet id before theirs, which mostly is the one it had.

use std::collections::HashSet;
use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{ClientSubscription, InFlight, Message, OutboxEntry};
use smallvec::SmallVec;

use super::resume::position_of;

const IDS: usize = u16::MAX as usize;

/// The outbox entry of a message for those of the session's subscriptions that match it; `None` when no subscription
/// takes the message, and with QoS 0, which is never read. `own`: the session's client published it.
pub(super) fn entry<'s>(
    message: &Arc<Message>,
    own: bool,
    subscriptions: impl Iterator<Item = &'s ClientSubscription>,
) -> Option<OutboxEntry> {
    let mut qos = None;
    let (mut retain, mut identifiers) = (false, SmallVec::new());
    //= [MQTT-3.8.3-3] v5
    for subscription in subscriptions.filter(|subscription| !(subscription.options.no_local && own)) {
        qos = qos.max(Some(subscription.options.qos));
        retain |= subscription.options.retain_as_published && message.retain();
        if subscription.identifier != 0 {
            identifiers.push(subscription.identifier);
        }
    }
    let qos = qos?.min(message.qos());
    let (message, replay, maybe_sent) = (message.clone(), false, false);
    let entry = OutboxEntry { message, qos, retain, replay, maybe_sent, shared: 0, identifiers };
    (qos > QoS::AtMostOnce).then_some(entry)
}

/// Inserts QoS 1 messages, in commit order, between the in-flight ones. Returns all of them, and the positions of the
/// inserted ones; `resume_session` delivers the rest. `maybe_sent_to`: a crashed owner may have sent messages up to here.
pub(super) fn interleave(
    in_flight: Vec<(PacketId, InFlight)>,
    read: impl Iterator<Item = OutboxEntry>,
    maybe_sent_to: Position,
) -> (Vec<(PacketId, InFlight)>, Vec<Position>) {
    let (mut read, mut all, mut placed) = (read.peekable(), Vec::with_capacity(in_flight.len()), Vec::new());
    let mut used: HashSet<PacketId> = in_flight.iter().map(|(id, _)| *id).collect();
    for (id, state) in in_flight {
        let position = position_of(&state);
        let is_before = |entry: &OutboxEntry| {
            let of_entry = entry.message.position().map(Position);
            position.is_some_and(|position| of_entry.is_some_and(|of_entry| of_entry < position))
        };
        let mut before = Vec::new();
        while let Some(entry) = read.next_if(is_before) {
            before.push(entry);
        }
        let free: Vec<PacketId> = (1..IDS)
            .map(|by| earlier(id, by))
            .filter(|free| !used.contains(free))
            .take(before.len())
            .collect();
        used.extend(&free);
        // Without enough ids, `resume_session` delivers the last ones.
        before.truncate(free.len());
        placed.extend(before.iter().filter_map(|entry| entry.message.position()).map(Position));
        let state_of = |entry: OutboxEntry| match entry.message.position().map(Position) {
            Some(position) if position > maybe_sent_to => InFlight::Unsent(entry),
            _ => InFlight::Published(entry),
        };
        all.extend(free.into_iter().rev().zip(before).map(|(free, entry)| (free, state_of(entry))));
        all.push((id, state));
    }
    (all, placed)
}

/// The packet id `by` ids before `id`; before 1 comes 65,535.
fn earlier(id: PacketId, by: usize) -> PacketId {
    let zero_based = (usize::from(id.get()) - 1 + IDS - by % IDS) % IDS;
    // At most 65,534, so the conversion cannot fail.
    PacketId::MIN.saturating_add(u16::try_from(zero_based).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::Properties;

    use super::*;

    fn entry(position: u64, qos: QoS) -> OutboxEntry {
        let message = Message::new("t".into(), qos, false, Properties::EMPTY, b"x", 0);
        message.set_position(Some(Position::end_of(position).0));
        let identifiers = SmallVec::new();
        OutboxEntry {
            message: Arc::new(message),
            qos,
            retain: false,
            replay: false,
            maybe_sent: false,
            shared: 0,
            identifiers,
        }
    }

    const MAYBE_SENT: u64 = 1_000;

    #[test]
    fn a_message_that_no_connection_can_have_sent_is_not_sent_again() {
        let in_flight = vec![(PacketId::MIN, InFlight::Published(entry(2_000, QoS::ExactlyOnce)))];
        let read = [MAYBE_SENT, MAYBE_SENT + 1].map(|position| entry(position, QoS::AtLeastOnce));
        let (all, _) = interleave(in_flight, read.into_iter(), Position::end_of(MAYBE_SENT));
        let unsent: Vec<bool> = all.iter().map(|(_, state)| matches!(state, InFlight::Unsent(_))).collect();
        assert_eq!(unsent, [false, true, false]);
    }

    #[test]
    fn messages_without_a_free_packet_id_wait() {
        let state = || InFlight::Published(entry(100, QoS::ExactlyOnce));
        let in_flight: Vec<_> = (3..=u16::MAX).filter_map(PacketId::new).map(|id| (id, state())).collect();
        let read = (1..=5).map(|position| entry(position, QoS::AtLeastOnce));
        let (all, placed) = interleave(in_flight, read, Position::MIN);
        assert_eq!((all.len(), placed), (u16::MAX.into(), [1, 2].map(Position::end_of).to_vec()));
    }

    /// Packet ids and positions of what is in flight, positions of what is read: ids and positions of all.
    fn check(in_flight: &[(u16, u64)], read: &[u64], expected: &[(u16, u64)]) {
        let of = |(id, position): &(u16, u64)| {
            let state = InFlight::Published(entry(*position, QoS::ExactlyOnce));
            (PacketId::new(*id).unwrap(), state)
        };
        let read = read.iter().map(|position| entry(*position, QoS::AtLeastOnce));
        let (all, placed) =
            interleave(in_flight.iter().map(of).collect(), read, Position::end_of(MAYBE_SENT));
        let found: Vec<_> = all.iter().map(|(id, state)| (id.get(), position_of(state).unwrap())).collect();
        let expected: Vec<_> =
            expected.iter().map(|(id, position)| (*id, Position::end_of(*position))).collect();
        assert_eq!(found, expected);
        assert_eq!(placed.len(), expected.len() - in_flight.len());
    }

    #[test]
    fn what_was_read_goes_before_what_was_published_after_it() {
        check(&[], &[1, 2], &[]);
        check(&[(5, 20)], &[10, 30], &[(4, 10), (5, 20)]);
        check(&[(1, 20)], &[10, 11], &[(65_534, 10), (65_535, 11), (1, 20)]);
        check(&[(5, 20), (8, 50)], &[30, 40, 60], &[(5, 20), (6, 30), (7, 40), (8, 50)]);
        check(&[(5, 20), (7, 50)], &[10, 30, 40], &[(4, 10), (5, 20), (3, 30), (6, 40), (7, 50)]);
        check(&[(5, 20), (6, 50), (9, 80)], &[30, 60], &[(5, 20), (4, 30), (6, 50), (8, 60), (9, 80)]);
        check(&[(65_535, 20), (2, 50)], &[30], &[(65_535, 20), (1, 30), (2, 50)]);
        check(&[(5, 50), (6, 20)], &[30], &[(4, 30), (5, 50), (6, 20)]);
    }
}
