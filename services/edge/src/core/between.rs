//! Restores the order of a session's in-flight messages after a crash. The store knows the packet ids of its QoS 2
//! messages and sends those again under the same ids. Its QoS 1 messages are read again. Each of them must go before
//! the messages published after it (P4), under a packet id that is free there: mostly the one it had.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_mqtt::{PacketId, QoS};
use millrace_session::{ClientSubscription, Entry, InFlight, Message};
use smallvec::SmallVec;

use super::resume::place_of;

const IDS: usize = u16::MAX as usize;

/// The outbox entry of a message for those of the session's subscriptions that match it. `None` when no subscription
/// takes the message, and with QoS 0, which is never read. `own`: the session's client published it.
pub(super) fn entry<'s>(
    message: &Arc<Message>,
    own: bool,
    subscriptions: impl Iterator<Item = &'s ClientSubscription>,
) -> Option<Entry> {
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
    let entry = Entry { message: message.clone(), qos, retain, replay: false, shared: 0, identifiers };
    (qos > QoS::AtMostOnce).then_some(entry)
}

/// Inserts QoS 1 messages, in commit order, between the in-flight ones. Returns all of them, and the positions of the
/// inserted ones; the rest is delivered when it is read.
pub(super) fn interleave(
    in_flight: Vec<(PacketId, InFlight)>,
    read: impl Iterator<Item = Entry>,
) -> (Vec<(PacketId, InFlight)>, Vec<Position>) {
    let (mut read, mut all, mut placed) = (read.peekable(), Vec::with_capacity(in_flight.len()), Vec::new());
    let (Some((first, _)), Some((end, _))) = (in_flight.first(), in_flight.last()) else {
        return (in_flight, placed);
    };
    let mut free = IDS - 1 - distance(*first, *end);
    let (mut last, mut is_full) = (None, false);
    for (id, state) in in_flight {
        if let Some(last) = last {
            free = distance(last, id) - 1;
        }
        let place = place_of(&state);
        let is_before = |entry: &Entry| {
            let of_entry = entry.message.place().map(Position);
            place.is_some_and(|place| of_entry.is_some_and(|of_entry| of_entry < place))
        };
        let mut before = Vec::new();
        while let Some(entry) = read.next_if(|entry| !is_full && is_before(entry)) {
            before.push(entry);
        }
        if before.len() > free {
            // Without a free id, this message and all later ones are read later.
            before.truncate(free);
            is_full = true;
        }
        let count = before.len();
        for (number, entry) in before.into_iter().enumerate() {
            placed.extend(entry.message.place().map(Position));
            all.push((earlier(id, count - number), InFlight::Published(entry)));
        }
        all.push((id, state));
        last = Some(id);
    }
    (all, placed)
}

fn distance(from: PacketId, to: PacketId) -> usize {
    (usize::from(to.get()) + IDS - usize::from(from.get())) % IDS
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

    fn entry(place: u64, qos: QoS) -> Entry {
        let message = Message::new("t".into(), qos, false, Properties::EMPTY, b"x", 0);
        message.set_place(Some(Position::end_of(place).0));
        let identifiers = SmallVec::new();
        Entry { message: Arc::new(message), qos, retain: false, replay: false, shared: 0, identifiers }
    }

    /// Packet ids and places of what is in flight, places of what is read: ids and places of all.
    fn check(in_flight: &[(u16, u64)], read: &[u64], expected: &[(u16, u64)]) {
        let of = |(id, place): &(u16, u64)| {
            let state = InFlight::Published(entry(*place, QoS::ExactlyOnce));
            (PacketId::new(*id).unwrap(), state)
        };
        let read = read.iter().map(|place| entry(*place, QoS::AtLeastOnce));
        let (all, placed) = interleave(in_flight.iter().map(of).collect(), read);
        let found: Vec<_> = all.iter().map(|(id, state)| (id.get(), place_of(state).unwrap())).collect();
        let expected: Vec<_> = expected.iter().map(|(id, place)| (*id, Position::end_of(*place))).collect();
        assert_eq!(found, expected);
        assert_eq!(placed.len(), expected.len() - in_flight.len());
    }

    #[test]
    fn what_was_read_goes_before_what_was_published_after_it_while_there_are_ids() {
        check(&[], &[1, 2], &[]);
        check(&[(5, 20)], &[10, 30], &[(4, 10), (5, 20)]);
        check(&[(1, 20)], &[10, 11], &[(65_534, 10), (65_535, 11), (1, 20)]);
        check(&[(5, 20), (8, 50)], &[30, 40, 60], &[(5, 20), (6, 30), (7, 40), (8, 50)]);
        check(&[(5, 20), (7, 50)], &[10, 30, 40], &[(4, 10), (5, 20), (6, 30), (7, 50)]);
        check(&[(5, 20), (6, 50), (9, 80)], &[30, 60], &[(5, 20), (6, 50), (9, 80)]);
        check(&[(65_535, 20), (2, 50)], &[30], &[(65_535, 20), (1, 30), (2, 50)]);
        check(&[(5, 50), (6, 20)], &[30], &[(4, 30), (5, 50), (6, 20)]);
    }
}
