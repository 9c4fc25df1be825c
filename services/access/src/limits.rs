//! Every limit of access records: name, unit, why. They bound what one CONNECT can cost, so they are no settings.

/// Longest user name, bytes. A device's name, a certificate's field and an e-mail address all fit.
pub const USER_BYTES_MAX: usize = 256;
/// Longest name of a group, an issuer or a CA, bytes: people type it.
pub const NAME_BYTES_MAX: usize = 64;
/// Rules of one list. A publish is compared with all of them in the worst case, about 20 ns each.
pub const RULES_MAX: usize = 100;
/// Longest URL, bytes: what browsers and proxies take.
pub const URL_BYTES_MAX: usize = 2_048;
/// Largest PEM of a key, a CA chain or a revocation list, bytes. A revocation list of 1 MiB names about 25,000 certificates.
pub const PEM_BYTES_MAX: usize = 1024 * 1024;
/// Issuers a token is tried with, and CAs a certificate is tried with: each may cost a signature.
pub const AUTHORITIES_MAX: usize = 8;
/// Shortest secret of HS256, bytes (RFC 7518 section 3.2).
pub const HS256_SECRET_BYTES_MIN: usize = 32;
/// Clocks of issuer and edge may differ by that much at most, seconds: longer is a token without an end.
pub const LEEWAY_S_MAX: u32 = 600;
/// Longest time a webhook may take, milliseconds: a client's CONNECT waits for it, for 10 s as a rule.
pub const WEBHOOK_TIMEOUT_MS_MAX: u32 = 8_000;
/// Longest time that an answer of a webhook counts, seconds: so long a client that was shut out may come back.
pub const WEBHOOK_CACHE_S_MAX: u32 = 3_600;
/// Fewest rounds of PBKDF2 behind a SCRAM verifier (RFC 7677 section 4).
pub const SCRAM_ITERATIONS_MIN: u32 = 4_096;
/// Most rounds: the client pays for each.
pub const SCRAM_ITERATIONS_MAX: u32 = 1_000_000;
/// Longest token, bytes: rules in it are the longest part, and proxies take no more in a header either.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Keys of one key set. Issuers have two or three; more are not looked at.
pub const KEYS_MAX: usize = 64;
/// A key set is fetched anew after that, seconds, when its HTTP answer does not say (RFC 9111 `max-age`).
pub const KEY_SET_AGE_S: u32 = 3_600;
/// And at the most and at the least, whatever it says: a withdrawn key must not count for ever, and nobody may have us ask all the time.
pub const KEY_SET_AGE_S_MAX: u32 = 24 * 3_600;
/// See [`KEY_SET_AGE_S_MAX`].
pub const KEY_SET_AGE_S_MIN: u32 = 300;
/// Seconds between two fetches of a key set at least, however many tokens name keys that are not in it.
pub const KEY_SET_INTERVAL_S_MIN: u32 = 30;
/// Seconds between two fetches when one after the other fails: it doubles from the one above to this.
pub const KEY_SET_INTERVAL_S_MAX: u32 = 600;
/// For so long the keys of a set count when it cannot be fetched anew, seconds: an issuer that is away for a night shuts nobody out.
pub const KEY_SET_STALE_S_MAX: u32 = 24 * 3_600;
/// A fetch that is not answered by then was lost, seconds. Longer than [`KEY_SET_TIMEOUT_MS`].
pub const KEY_SET_FETCH_S_MAX: u32 = 30;
/// Longest time that the answer of a fetch may take, milliseconds: clients wait for it.
pub const KEY_SET_TIMEOUT_MS: u32 = 5_000;
/// Largest key set, bytes: 64 keys, with a chain of certificates each.
pub const KEY_SET_BYTES_MAX: usize = 512 * 1024;
/// Rounds of a new SCRAM verifier, and of the ones that users which do not exist seem to have. RFC 7677 section 4 advises what takes a
/// modern machine a tenth of a second. A client that does not cache its key pays for them at every connect.
pub const SCRAM_ITERATIONS: u32 = 100_000;
/// Longest message of a SCRAM client, bytes: names, a nonce and a proof.
pub const SCRAM_MESSAGE_BYTES_MAX: usize = 2_048;
/// Largest answer of a webhook, bytes: rules are the longest part.
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// For so long a webhook's "no" counts at the most, seconds: whoever was just let in at the tenant's must not wait long, but a client that
/// tries again at once must not ask each time.
pub const WEBHOOK_REFUSED_S_MAX: u32 = 10;
/// Smallest limit of a client's packets, bytes: it must be able to subscribe.
pub const PACKET_BYTES_MIN: u64 = 128;
/// Events that a webhook may be told in one request: what an HTTP server takes without a thought.
pub const WEBHOOK_BATCH_MAX: u16 = 100;
/// Bans of a broker: all are in the memory of each pod that has the broker, and addresses are compared one by one at a CONNECT.
pub const BANS_MAX: usize = 1_000;
/// Longest client id that can be banned, bytes: as long as one may be unless an operator allows more.
pub const BANNED_CLIENT_ID_BYTES_MAX: usize = 1_024;
/// Longest reason of a ban, bytes: a sentence.
pub const BAN_REASON_BYTES_MAX: usize = 256;
