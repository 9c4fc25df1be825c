//! Limits of the layers, most of which follow from the store's (10 MB and 5 s a transaction, 100 kB a value). They are
//! the same on every engine, so they are not settings.

/// Bytes of a client id, and of a filter with its `$share/group/`; with [`SUBSCRIPTIONS_MAX`] it lets one transaction
/// remove a whole session.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Bytes of the topic of a retained message: each level costs one byte more in the key, which must stay below the
/// store's longest key.
pub const TOPIC_BYTES_MAX: usize = 4_096;

/// Subscriptions of one session, which its owner enforces from memory, because reading the rows for each new
/// subscription would cost more than the limit saves.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;

/// Bytes of a cursor with the ranges of messages after it that are acknowledged, in one value of the store. They are
/// enough for 6,600 ranges of any length, more than a session or a group can have between its unacknowledged messages.
pub const ACKNOWLEDGED_BYTES_MAX: usize = 99_000;

/// Streams of one publish; a publish to more is refused, because it would delay all others.
pub const STREAMS_PER_PUBLISH_MAX: usize = 1_000;

/// Groups that share one filter, in one value.
pub const GROUPS_PER_FILTER_MAX: usize = 64;

/// A longer body that goes to several streams is stored once and referred to.
pub const INLINE_SHARED_BYTES_MAX: usize = 1_024;

/// Bytes of each value of a body in parts, and of the longest body that is stored within a stream.
pub const CHUNK_BYTES: usize = 90_000;

/// Bytes of a message, which must fit into one transaction with the rows written with it.
pub const BODY_BYTES_MAX: usize = 8_000_000;

/// Up to this number of subscribers of a filter, an unsubscribe reads the exact number, to notice the last one.
pub const EXACT_COUNT_MAX: u64 = 256;

/// Changes of a broker's filter index that pods can follow; a pod that missed more loads the whole index.
pub const INDEX_CHANGES_KEPT: usize = 10_000;

pub const PARTITIONS_MAX: u8 = 64;

/// Trims that a stream remembers one by one, to compute how much a cursor before its floor missed.
pub const TRIM_STEPS_MAX: usize = 16;
/// Losses of a stream whose time and reason are stored: 500 bytes.
pub const LOSSES_MAX: usize = 12;
/// Losses for one reason within this time are stored as one, because a stream at its limit loses entries with each
/// publish.
pub const LOSSES_JOINED_MS: u64 = 60_000;

/// Entries that one call of a trim removes at most.
pub const TRIM_ENTRIES_MAX: usize = 10_000;

/// Shared subscriptions whose claims one transaction may settle: each trims this part of what a transaction may.
pub const SETTLED_GROUPS_MAX: usize = 16;

/// Bytes of entries that a trim to a limit reads in one transaction: sessions wait for their reads meanwhile.
pub const TRIM_BYTES_MAX: usize = 4 << 20;

/// Keys that a page of retained messages reads for each message that it may return, before it ends early.
pub const RETAINED_SKIPS_PER_ITEM: usize = 8;

/// Least and most ranges that a page of retained messages may read: within these bounds, one for each message that it
/// may return. Each costs a round trip to the store, and all of them must be over before the transaction is too old,
/// after five seconds.
pub const RETAINED_READS: (usize, usize) = (16, 256);

pub const RETAINED_PAGE_BYTES: usize = 1 << 20;

/// One transaction reads up to this much when it counts the messages of an earlier build.
pub const RECOUNTED_STREAMS_MAX: usize = 100_000;
pub const RECOUNTED_BYTES_MAX: usize = 32 << 20;
/// Small messages take a read of the store for each 256 of them: some 0.6 s on FoundationDB, whose transactions end after 5 s.
pub const RECOUNTED_RETAINED_MAX: usize = 100_000;

/// Incidents of a broker; people look at the last ones.
pub const INCIDENTS_MAX: usize = 1_000;
/// Windows of usage of a broker: 400 days, so that a month can be compared with that of the year before.
pub const USAGE_WINDOWS_KEPT: u64 = 400 * 24;
/// Points of a minute in the history of a broker: an hour more than a day, so that a day can be read whole.
pub const HISTORY_MINUTES_KEPT: u64 = 25 * 60;
/// Points of an hour: a day more than 30 days.
pub const HISTORY_HOURS_KEPT: u64 = 31 * 24;
/// Dead letters of a webhook; above it the oldest are removed. A tenant can repair a service that fails for an hour,
/// but an abandoned service must not fill the store, and one transaction can remove all.
pub const DEAD_LETTERS_MAX: u32 = 1_000;
pub const WEBHOOK_DELIVERIES_MAX: u64 = 100;
/// Longest text of a delivery in the log, such as its error. With three texts in JSON, which may make six bytes of one,
/// the log takes less than 500 KB, and usually 30 KB.
pub const WEBHOOK_DELIVERY_TEXT_BYTES_MAX: usize = 256;
/// Bytes of dead letters, as [`DEAD_LETTERS_MAX`].
pub const DEAD_LETTERS_BYTES_MAX: u64 = 16 << 20;

/// How long a dead letter is stored: an abandoned service must not fill the store for ever.
pub const DEAD_LETTER_MS: u64 = 30 * 86_400_000;
/// Old dead letters of a broker that one transaction removes.
pub const DEAD_LETTERS_FORGOTTEN: usize = 100;

/// Bytes of the longest event that is kept as a dead letter; a longer one is only counted.
pub const DEAD_LETTER_BYTES_MAX: usize = 2 << 20;

/// Bytes of events after which a page of dead letters ends.
pub const DEAD_LETTERS_PAGE_BYTES: usize = 1 << 20;

/// Time for which a pod owns a webhook from each renewal, milliseconds. It exceeds the time of an attempt, so that no
/// other pod begins meanwhile; after a pod's death its webhooks wait this long.
pub const WEBHOOK_LEASE_MS: u64 = 30_000;
