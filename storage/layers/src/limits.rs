//! Limits of the layers. Those of the store below (10 MB and 5 s a transaction, 100 kB a value) are why most of them exist;
//! they are the same on every engine, so they are no settings.

/// Bytes of a client id, and of a filter with its `$share/group/`. With [`SUBSCRIPTIONS_MAX`] it lets a whole session be
/// removed in one transaction.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Bytes of the topic of a retained message. Each level costs one byte more in a key, so it stays below the longest key.
pub const TOPIC_BYTES_MAX: usize = 4_096;

/// Subscriptions of one session, kept by its owner, who knows them all: reading them for each new one would cost more than
/// the limit saves.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;

/// Messages that a session remembers as acknowledged beyond its cursor: they stand in one value. What is over it may be
/// delivered again.
pub const ACKNOWLEDGED_MAX: usize = 8_000;

/// Streams of one publish. One that matches more is refused: it would be slow for everybody.
pub const STREAMS_PER_PUBLISH_MAX: usize = 1_000;

/// Groups that share one filter: they stand in one value.
pub const GROUPS_PER_FILTER_MAX: usize = 64;

/// A body that is longer, and goes to several streams, is stored once and referred to.
pub const INLINE_SHARED_BYTES_MAX: usize = 1_024;

/// Bytes of one value of a longer body, and longest body that stands in its stream.
pub const CHUNK_BYTES: usize = 90_000;

/// Bytes of a message: one transaction must hold it, with room for what is written beside it.
pub const BODY_BYTES_MAX: usize = 8_000_000;

/// Subscribers of a filter up to which one that leaves reads their exact number.
pub const EXACT_COUNT_MAX: u64 = 256;

/// Changes of a broker's filter index that are kept for pods to follow; one that has missed more loads the index.
pub const INDEX_CHANGES_KEPT: usize = 10_000;

/// Partitions of a stream.
pub const PARTITIONS_MAX: u8 = 64;

/// Trims that a stream remembers one by one, to tell a cursor behind its floor how much it missed.
pub const TRIM_STEPS_MAX: usize = 16;

/// Entries that one call of a trim removes, whatever it is asked for.
pub const TRIM_ENTRIES_MAX: usize = 10_000;

/// Keys that a page of retained messages looks at for each one that it may return, before it ends early.
pub const RETAINED_SKIPS_PER_ITEM: usize = 8;

/// Bytes after which a page of retained messages ends.
pub const RETAINED_PAGE_BYTES: usize = 1 << 20;

/// Incidents of a broker that are kept: people look at the last ones.
pub const INCIDENTS_MAX: usize = 1_000;
/// Windows of usage that a broker keeps: 400 days, so that a month can be seen beside that of the year before.
pub const USAGE_WINDOWS_KEPT: u64 = 400 * 24;
/// Dead letters of a webhook, and their bytes: over it the oldest go. A tenant's service that is wrong for an hour can be repaired; one
/// that nobody looks after must not fill the store. All of them can be removed in one transaction.
pub const HOOK_LETTERS_MAX: u32 = 1_000;
/// See [`HOOK_LETTERS_MAX`].
pub const HOOK_LETTERS_BYTES_MAX: u64 = 16 << 20;

/// Longest event that is kept as a dead letter, bytes; a longer one is only counted.
pub const HOOK_LETTER_BYTES_MAX: usize = 2 << 20;

/// Bytes of events after which a page of dead letters ends.
pub const HOOK_LETTERS_PAGE_BYTES: usize = 1 << 20;

/// For so long a pod has a webhook from each sign of life on, milliseconds. More than an attempt may take, so nobody else begins
/// while one is under way; after a pod's death its webhooks wait that long.
pub const HOOK_LEASE_MS: u64 = 30_000;
