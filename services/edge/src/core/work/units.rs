//! Prices of work in units of about 0.1 µs, and the budgets of a turn. Decision 0001 says how they were measured.

use crate::routes::NODE_WORK;

/// Work that reading may cause in one turn, about 1 ms. Others wait for the rest of a turn and for the next one, whose end
/// sends their messages.
pub(in crate::core) const TURN: u64 = 10_000;
/// Work that one connection may cause before others are read.
pub(in crate::core) const SHARE: u64 = 5_000;
/// Work that delivering one message or run may cause before other work continues.
pub(in crate::core) const SLICE: u64 = 5_000;
/// Work of replays of retained messages in a turn that has little else to do. In other turns they may take half of what the other
/// work took, up to half of [`TURN`].
pub(in crate::core) const REPLAY: u64 = 1_000;
/// Adding or removing a subscription, with its check, besides the levels of its filter.
pub(in crate::core) const FILTER: u64 = 20;
/// Finding, copying or making one level of that filter in the trie.
pub(in crate::core) const LEVEL: u64 = 3;
/// Most work that one packet, edit or session does on filters in a turn.
pub(in crate::core) const FILTERS_WORK_MAX: u64 = 10_000;
/// Decoding a packet, or a WebSocket control frame, and its fixed cost.
pub(in crate::core) const PACKET: u64 = 4;
pub(in crate::core) const SEEN: u64 = 1;
/// Appending a message to one receiver's outbound buffer.
pub(in crate::core) const COPY: u64 = 2;
/// The same, encoded for this receiver alone.
pub(in crate::core) const SINGLE_COPY: u64 = 5;
/// Visiting a node in the tree of retained messages or of filters.
pub(in crate::core) const NODE: u64 = NODE_WORK;
/// Bytes that are copied for one unit.
pub(in crate::core) const COPIED_BYTES: usize = 512;
/// Bytes that are moved to memory which the kernel has to provide.
pub(in crate::core) const MOVED_BYTES: usize = 256;
/// Bytes that are checked for one unit: properties, topic filters, and headers of WebSocket frames, each as short as it can be.
pub(in crate::core) const CHECKED_BYTES: usize = 16;
/// Levels of filters that are compared for one unit, to find the one that matches a topic.
pub(in crate::core) const COMPARED_LEVELS: usize = 4;
/// Applying new limits and rules of its broker to a client, besides closing it.
pub(in crate::core) const VISIT: u64 = 10;
/// Beginning a look-up of retained messages, or ending one.
pub(in crate::core) const LOOKUP: u64 = 4;
/// Levels of rules that are compared with a topic for one unit.
pub(in crate::core) const COMPARED_RULE_LEVELS: usize = 16;
pub(in crate::core) const SYSTEM_CALL: u64 = 20;
/// Decrypting a short TLS record.
pub(in crate::core) const RECORD: u64 = 4;
/// Bytes of a TLS record besides its plaintext.
pub(in crate::core) const RECORD_OVERHEAD: usize = 22;
/// Such bytes of one read from which on the time that it took counts.
pub(in crate::core) const OVERHEAD_TIMED: usize = 100 * RECORD_OVERHEAD;
/// Writing to a socket: the kernel takes the packet to the network card, or to a receiver on the same machine, within the call.
pub(in crate::core) const SEND: u64 = 60;
/// Bytes written to a socket for one unit, besides [`SEND`]: a peer with a small window takes a megabyte in 1,000 segments.
pub(in crate::core) const WRITTEN_BYTES: usize = 64;
/// Output above this is timed while it is written.
pub(in crate::core) const TIMED_BYTES: usize = 16 * 1024;
pub(in crate::core) const UNITS_PER_US: u64 = 10;
/// Setting or removing a level of a retained message's topic.
pub(in crate::core) const RETAINED_LEVEL: u64 = 6;
pub(in crate::core) const ACCEPT: u64 = 100;
/// Carrying out a CONNECT, without reading it and without a stored session.
pub(in crate::core) const CONNECT: u64 = 50;
pub(in crate::core) const HANDSHAKE: u64 = 3_000;
pub(in crate::core) const END: u64 = 100;
/// Attaching a stored session to this loop, besides its filters and messages.
pub(in crate::core) const ATTACH: u64 = 200;
/// Filters of a finished or abandoned packet whose memory is freed for one unit.
pub(in crate::core) const FREED_FILTERS: usize = 8;
/// Asking the store for a page of a session's messages.
pub(in crate::core) const PAGE_REQUEST: u64 = 10;
/// Checking a subscription again, besides comparing it with each rule.
pub(in crate::core) const RULES: u64 = 3;
/// Subscriptions of a session that are passed over for one unit, to find the next one.
pub(in crate::core) const PASSED_FILTERS: usize = 50;
/// Collecting the progress of a persistent session, besides one unit for each unacknowledged message.
pub(in crate::core) const CHECKPOINT: u64 = 30;
/// Unacknowledged messages that are looked at for one unit, to store new packet ids.
pub(in crate::core) const OPEN_MESSAGES: usize = 4;
/// Up to this many ready sockets are read or written in their order, without a queue in which brokers take turns.
pub(in crate::core) const FEW: usize = 64;
