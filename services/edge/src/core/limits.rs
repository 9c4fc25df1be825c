//! Limits of an event loop that are constants and no settings: they bound what one client, session or other pod can make a loop
//! remember or do at once, and ordinary clients do not reach them.

/// Sessions that each loop may request from the store at once. More would not make the store faster.
pub(super) const ATTACHING_MAX: usize = 4096;
/// CONNECT packets with the same client id that wait for their session.
pub(super) const WAITING_CONNECTS_MAX: usize = 16;
/// The latest client ids whose CONNECTs a loop counts. It counts up to as many earlier ones, too.
pub(super) const COUNTED_CLIENT_IDS_MAX: usize = 50_000;
/// Names of brokers that a loop remembers not to exist.
pub(super) const ABSENT_BROKERS_MAX: usize = 1_000;

/// Searches for clients that may wait, and as many that may run; further ones are refused.
pub(super) const CLIENT_SEARCHES_MAX: usize = 32;
/// SUBSCRIBE and UNSUBSCRIBE packets of a traced client whose filters wait for the answer. A client that has more gets an answer
/// without filters in its trace.
pub(super) const TRACED_REQUESTS_MAX: usize = 4;

/// Messages of a run. It bounds the work for receivers that need packets of their own.
pub(super) const RUN_MESSAGES_MAX: usize = 2048;
/// Bytes of messages from other pods that may wait on one loop, twice as many of many brokers. Their publishers cannot be paused from here.
pub(super) const REMOTE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Messages that wait in a stored session; above it they are not queued, but read from the store later.
pub(super) const WAITING_MESSAGES_MAX: usize = 1000;
pub(super) const WAITING_BYTES_MAX: u64 = 1024 * 1024;
/// Live messages held for a session until it has its retained messages, or has read its queue from the store.
pub(super) const HELD_MESSAGES_MAX: usize = 1_000;
pub(super) const HELD_BYTES_MAX: usize = 1024 * 1024;
/// Live copies that a session may deliver before it reads those messages from the store.
pub(super) const UNREAD_COPIES_MAX: u32 = 100;
/// Publishers' connections that a session remembers. The next copy of a forgotten one is not taken, but read.
pub(super) const SENDERS_MAX: usize = 16;

/// Publishers whose receivers a loop watches, because some lag. A further one is paused for each topic by itself.
pub(super) const WATCHED_PUBLISHERS_MAX: usize = 4_096;
/// Receivers of a watched publisher that count; those of one topic are one.
pub(super) const WATCHED_RECEIVERS_MAX: usize = 16;

/// Slots for retained messages in the queue of one session. When it has so many, the look-ups of further SUBSCRIBE packets join
/// the last slot, at most one for each filter.
pub(super) const REPLAY_SLOTS_MAX: usize = 16;
/// The same for the look-ups in two slots or more. A client that does not read decides how long they wait, some 100 bytes each.
pub(super) const REPLAY_LOOKUPS_MAX: usize = 2_000;
/// Subscriptions of which a session remembers the retained messages that it has got.
pub(super) const REPLAYED_FILTERS_MAX: usize = 64;
/// Unsent retained messages that are stored when a connection ends.
pub(super) const UNSENT_RETAINED_MAX: usize = 2_000;
