//! Reads the filters of a SUBSCRIBE or UNSUBSCRIBE, over several turns when there are many: a SUBSCRIBE of 1 MB can have 250,000.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use millrace_mqtt::{QoS, RetainHandling, SubscribeFilters, SubscribeOptions, UnsubscribeFilters, Version};
use smallvec::SmallVec;

use crate::broker::Broker;
use crate::incomplete_packets::{Charge, IncompletePackets, OverLimit};

/// Filters of one packet that are read in one turn: 4,000 units of work, less than a connection's share.
const AT_ONCE: usize = 16_000;
/// Filters that are read, and compared with those before them, for one unit of work.
const PER_UNIT: usize = 4;
/// Memory of a filter that was read, with its index, its hash and its look-up of retained messages.
const FILTER_BYTES: usize = 160;

/// The part of a packet with the filters that are not read yet.
#[derive(Default)]
pub(super) struct Unread {
    bytes: Box<[u8]>,
    at: usize,
    charge: Option<Charge>,
}

impl Unread {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Charges the broker for the memory of a packet until it is carried out: for `filters` that were read, and the bytes that were not.
    pub(super) fn charge(
        &mut self,
        filters: usize,
        by: &Arc<IncompletePackets>,
        broker: &Arc<Broker>,
    ) -> Result<(), OverLimit> {
        self.charge = None;
        self.charge = by.charge(Some(broker), filters * FILTER_BYTES + self.bytes.len())?;
        Ok(())
    }

    fn keep(&mut self, rest: usize) {
        self.at = self.bytes.len() - rest;
        if self.is_empty() {
            (self.bytes, self.at) = Default::default();
        }
    }
}

//= [MQTT-3.8.4-5] v5
//= [MQTT-3.8.4-4] v3.1.1
// As if each filter came in a packet of its own: the last occurrence of a filter replaces the others.
pub(super) struct FiltersToAdd {
    /// Each filter once, with the options of its last occurrence.
    pub(super) filters: Vec<(Box<str>, SubscribeOptions)>,
    /// For each filter of the packet: its index in `filters`, and the requested QoS.
    pub(super) places: SmallVec<[(u32, QoS); 2]>,
    /// The hash of each filter and its index in `filters`. With the hash, a table that grows reads no filter again.
    known: HashTable<(u64, u32)>,
    hasher: RandomState,
    pub(super) unread: Unread,
    version: Version,
}

impl FiltersToAdd {
    pub(super) fn new(mut packet: SubscribeFilters<'_>, version: Version) -> Self {
        let (filters, places, known) = (Vec::new(), SmallVec::new(), HashTable::new());
        let hasher = RandomState::default();
        let mut this = Self { filters, places, known, hasher, unread: Unread::default(), version };
        this.add(&mut packet);
        this.unread.bytes = packet.as_bytes().into();
        this
    }

    /// Different filters, of no packet, so without `places`: subscriptions whose QoS a change of rules lowers.
    pub(super) fn of(filters: Vec<(Box<str>, SubscribeOptions)>) -> Self {
        let none = SubscribeFilters::from_validated(&[], Version::V5);
        Self { filters, ..Self::new(none, Version::V5) }
    }

    pub(super) fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn read_more(&mut self) -> u64 {
        if self.is_read() {
            return 0;
        }
        let mut unread = std::mem::take(&mut self.unread);
        let mut filters = SubscribeFilters::from_validated(unread.rest(), self.version);
        let work = self.add(&mut filters);
        let rest = filters.as_bytes().len();
        unread.keep(rest);
        self.unread = unread;
        work
    }

    fn add(&mut self, packet: &mut SubscribeFilters<'_>) -> u64 {
        let before = self.places.len();
        for (text, options) in packet.by_ref().take(AT_ONCE) {
            let hash = self.hasher.hash_one(text);
            let is_same = |known: &(u64, u32)| known.0 == hash && *self.filters[known.1 as usize].0 == *text;
            let place = match self.known.entry(hash, is_same, |known| known.0) {
                Entry::Occupied(known) => {
                    let place = known.get().1;
                    let before = self.filters[place as usize].1.retain_handling;
                    let retain_handling = both(before, options.retain_handling);
                    self.filters[place as usize].1 = SubscribeOptions { retain_handling, ..options };
                    place
                }
                Entry::Vacant(new) => {
                    let place = u32::try_from(self.filters.len()).unwrap_or(u32::MAX);
                    new.insert((hash, place));
                    self.filters.push((text.into(), options));
                    place
                }
            };
            self.places.push((place, options.qos));
        }
        ((self.places.len() - before) / PER_UNIT) as u64
    }
}

/// How retained messages are sent for a filter that one packet has twice: if the first or the second occurrence asks for
/// them, once.
fn both(first: RetainHandling, second: RetainHandling) -> RetainHandling {
    match (first, second) {
        (RetainHandling::Send, _) | (_, RetainHandling::Send) => RetainHandling::Send,
        // The second occurrence asks for them if the subscription is new, which it is not any more.
        (first, _) => first,
    }
}

pub(super) struct FiltersToEnd {
    pub(super) filters: Vec<Box<str>>,
    pub(super) unread: Unread,
}

impl FiltersToEnd {
    pub(super) fn new(mut packet: UnsubscribeFilters<'_>) -> Self {
        let filters = packet.by_ref().take(AT_ONCE).map(Into::into).collect();
        Self { filters, unread: Unread { bytes: packet.as_bytes().into(), ..Unread::default() } }
    }

    pub(super) fn is_read(&self) -> bool {
        self.unread.is_empty()
    }

    pub(super) fn read_more(&mut self) -> u64 {
        let before = self.filters.len();
        let mut packet = UnsubscribeFilters::from_validated(self.unread.rest());
        self.filters.extend(packet.by_ref().take(AT_ONCE).map(Into::into));
        let rest = packet.as_bytes().len();
        self.unread.keep(rest);
        ((self.filters.len() - before) / PER_UNIT) as u64
    }
}

impl From<Vec<Box<str>>> for FiltersToEnd {
    fn from(filters: Vec<Box<str>>) -> Self {
        Self { filters, unread: Unread::default() }
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::{Packet, decode};

    use super::*;

    /// The body of a packet with packet identifier 1 and no properties.
    fn body(filters: impl Iterator<Item = String>, options: Option<u8>) -> Vec<u8> {
        let mut body = vec![0, 1, 0];
        for filter in filters {
            body.extend_from_slice(&(filter.len() as u16).to_be_bytes());
            body.extend_from_slice(filter.as_bytes());
            body.extend(options);
        }
        body
    }

    #[test]
    fn a_large_subscribe_is_read_in_parts_that_cost_the_same() {
        let all = 3 * AT_ONCE;
        let body = body((0..all).map(|number| format!("f/{}", number % 20_000)), Some(1));
        let Ok(Packet::Subscribe(packet)) = decode(0x82, &body, Some(Version::V5)) else { panic!() };
        let mut read = FiltersToAdd::new(packet.filters, Version::V5);
        assert_eq!((read.places.len(), read.filters.len(), read.is_read()), (AT_ONCE, AT_ONCE, false));
        let work = (AT_ONCE / PER_UNIT) as u64;
        assert_eq!([read.read_more(), read.read_more(), read.read_more()], [work, work, 0]);
        assert_eq!((read.places.len(), read.filters.len(), read.is_read()), (all, 20_000, true));
        assert!((0..all).all(|at| read.places[at] == ((at % 20_000) as u32, QoS::AtLeastOnce)));
    }

    #[test]
    fn the_last_of_the_same_filters_counts_in_whatever_part_it_comes() {
        let mut bytes = body(std::iter::repeat_n("a".into(), AT_ONCE + 1), Some(0));
        *bytes.last_mut().unwrap() = 2;
        let Ok(Packet::Subscribe(packet)) = decode(0x82, &bytes, Some(Version::V5)) else { panic!() };
        let mut read = FiltersToAdd::new(packet.filters, Version::V5);
        assert_eq!(read.filters[0].1.qos, QoS::AtMostOnce);
        read.read_more();
        assert_eq!((read.filters.len(), read.filters[0].1.qos), (1, QoS::ExactlyOnce));
        assert_eq!((read.places[0], read.places[AT_ONCE]), ((0, QoS::AtMostOnce), (0, QoS::ExactlyOnce)));
    }

    #[test]
    fn a_large_unsubscribe_is_read_in_parts() {
        let body = body((0..=AT_ONCE).map(|number| number.to_string()), None);
        let Ok(Packet::Unsubscribe(packet)) = decode(0xA2, &body, Some(Version::V5)) else { panic!() };
        let mut read = FiltersToEnd::new(packet.filters);
        assert_eq!((read.filters.len(), read.is_read()), (AT_ONCE, false));
        assert_eq!((read.read_more(), read.filters.len(), read.is_read()), (0, AT_ONCE + 1, true));
        assert_eq!(read.filters[AT_ONCE], AT_ONCE.to_string().into());
    }
}
