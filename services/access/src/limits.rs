//! Limits of access records: constants rather than settings, because they bound what one CONNECT
//! costs.

/// Longest user name, bytes: device names, fields of certificates and e-mail addresses fit.
pub const USER_BYTES_MAX: usize = 256;
/// Longest name of a record, bytes: names are parts of URLs and store keys.
pub const NAME_BYTES_MAX: usize = 64;
/// Rules of a list: a publish may be compared with each, at about 20 ns.
pub const RULES_MAX: usize = 100;
/// Longest filter of a new rule, bytes: the default limit of topics.
pub const RULE_FILTER_BYTES_MAX: usize = 4_096;
/// Bytes of the filters of a new list.
pub const RULES_BYTES_MAX: usize = 16 * 1024;
/// Longest URL, bytes: as long as browsers and proxies accept.
pub const URL_BYTES_MAX: usize = 2_048;
/// Largest PEM of a key, a CA chain or a revocation list, bytes: about 25,000 revoked certificates.
pub const PEM_BYTES_MAX: usize = 1024 * 1024;
/// Checking a client's certificate may try each chain that can be made of these.
pub const AUTHORITY_CERTIFICATES_MAX: usize = 16;
/// Certificates of one subject: two subjects that issue each other already have 3^6 chains of six certificates.
pub const SAME_SUBJECT_MAX: usize = 3;
pub const CLIENT_CERTIFICATES_MAX: usize = 5;
/// Issuers and CAs of a broker, because each may cost a signature check for each client.
pub const AUTHORITIES_MAX: usize = 8;
/// Shortest secret of HS256, bytes (RFC 7518 section 3.2).
pub const HS256_SECRET_BYTES_MIN: usize = 32;
/// Longest `iss` or `aud` that a record names, bytes: both are URLs as a rule.
pub const CLAIM_BYTES_MAX: usize = 2_048;
/// Audiences of an issuer, each compared with the token's.
pub const AUDIENCES_MAX: usize = 32;
/// Longest secret of HS256 or key of a webhook, bytes. HMAC replaces a key of more than 64 bytes
/// by its hash (RFC 2104 section 2).
pub const SIGNING_KEY_BYTES_MAX: usize = 1_024;
/// Largest clock difference of issuer and edge, seconds, by which tokens outlive their expiry.
pub const LEEWAY_S_MAX: u32 = 600;
/// Clients give up a CONNECT after about 10 s, so a longer wait would be in vain.
pub const WEBHOOK_TIMEOUT_MS_MAX: u32 = 8_000;
/// Longest lifetime of a cached webhook response, seconds: until then a client can reconnect that
/// the tenant locked out.
pub const WEBHOOK_CACHE_S_MAX: u32 = 3_600;
/// Smallest PBKDF2 iteration count of a SCRAM verifier (RFC 7677 section 4).
pub const SCRAM_ITERATIONS_MIN: u32 = 4_096;
/// Largest PBKDF2 iteration count of a verifier that a tenant uploads: a client computes for about a second at each
/// connect.
pub const SCRAM_ITERATIONS_MAX: u32 = 1_000_000;
/// Longest token, bytes: as long as proxies accept in a header.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Keys that are read from a key set; further ones are ignored.
pub const KEYS_MAX: usize = 64;
/// Longest `kid` of a key, bytes; a key with a longer one is ignored, and a thumbprint (RFC 7638) has 43.
pub const KEY_ID_BYTES_MAX: usize = 256;
/// Longest RSA exponent, bytes: verification accepts 33 bits.
pub const EXPONENT_BYTES_MAX: usize = 8;
/// Lifetime of a key set, seconds, if its HTTP response has no `max-age` (RFC 9111).
pub const KEY_SET_AGE_S: u32 = 3_600;
/// Longest lifetime of a key set, seconds, whatever `max-age` says: a withdrawn key must expire.
pub const KEY_SET_AGE_S_MAX: u32 = 24 * 3_600;
/// Shortest lifetime of a key set, seconds, whatever `max-age` says: a bound on the rate of
/// fetches.
pub const KEY_SET_AGE_S_MIN: u32 = 300;
/// Shortest interval between two fetches, seconds, however many tokens name unknown keys.
pub const KEY_SET_INTERVAL_S_MIN: u32 = 30;
/// Longest interval between failing fetches, seconds; it doubles from [`KEY_SET_INTERVAL_S_MIN`].
pub const KEY_SET_INTERVAL_S_MAX: u32 = 600;
/// How long expired keys are used while fetches fail, seconds: an issuer may be down for a night
/// without locking anybody out.
pub const KEY_SET_STALE_S_MAX: u32 = 24 * 3_600;
/// Age at which a fetch without a result counts as lost, seconds; longer than
/// [`KEY_SET_TIMEOUT_MS`].
pub const KEY_SET_FETCH_S_MAX: u32 = 30;
/// Timeout of a fetch, milliseconds; clients wait for it in their CONNECT.
pub const KEY_SET_TIMEOUT_MS: u32 = 5_000;
/// Largest key set, bytes: [`KEYS_MAX`] keys, each with a chain of certificates.
pub const KEY_SET_BYTES_MAX: usize = 512 * 1024;
/// PBKDF2 rounds of a new SCRAM verifier, and of the fake verifiers of unknown users. RFC 7677
/// section 4 advises a tenth of a second on a modern machine, which a client pays at every connect
/// unless it caches its key.
pub const SCRAM_ITERATIONS: u32 = 100_000;
/// Longest SCRAM message of a client, bytes: names, a nonce and a proof.
pub const SCRAM_MESSAGE_BYTES_MAX: usize = 2_048;
/// Largest webhook response, bytes: its longest part is rules.
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the rules in one webhook response: each connection holds its own rules, in memory that no tenant is charged for.
pub const WEBHOOK_RULES_BYTES_MAX: usize = RULES_BYTES_MAX;
/// Largest webhook response that is cached, bytes: the cache serves all tenants.
pub const WEBHOOK_CACHED_BYTES_MAX: usize = 4 * 1024;
/// Longest lifetime of a cached webhook refusal, seconds: a client that was just permitted must not
/// wait long, and one that retries at once must not cause a call each time.
pub const WEBHOOK_REFUSED_S_MAX: u32 = 10;
/// Smallest packet limit of a client, bytes, so that a SUBSCRIBE fits.
pub const PACKET_BYTES_MIN: u64 = 128;
/// Events in one webhook request: HTTP servers accept a body of that size by default.
pub const WEBHOOK_BATCH_MAX: u16 = 100;
/// Bans of a broker, which each of its pods keeps in memory and compares one by one at a CONNECT.
pub const BANS_MAX: usize = 1_000;
/// Longest client id in a ban or a credential, bytes: the default limit of client ids.
pub const CLIENT_ID_BYTES_MAX: usize = 1_024;
/// Longest reason of a ban, bytes: a sentence or two for people.
pub const BAN_REASON_BYTES_MAX: usize = 256;
