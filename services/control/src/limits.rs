//! Every limit of the control plane: name, unit, why. Those that an operator may want to set are in [`crate::Options`].

use std::time::Duration;

/// Largest body of a request, bytes: a revocation list of 1 MiB in JSON, where line ends take two bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1_300_000;

/// How long a request may take to be read and answered. A store that is away is waited for 10 s.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// Rows of a page that asks for no number.
pub(crate) const PAGE_ROWS: usize = 50;
/// Most rows of a page: bounds what one request reads.
pub(crate) const PAGE_ROWS_MAX: usize = 200;

/// Longest cursor, bytes: a topic is the longest that one is made of.
pub(crate) const CURSOR_BYTES_MAX: usize = 4_096;

/// Least strength of a person's password, as zxcvbn estimates it: 3 of 0 to 4 is 10^8 guesses or more.
pub(crate) const PASSWORD_SCORE_MIN: u8 = 3;
/// Shortest password of a person, characters (NIST SP 800-63B-4 section 3.1.1.2 for a password alone).
pub(crate) const PASSWORD_CHARS_MIN: usize = 15;
/// Characters of a password that its strength is estimated from: the time of zxcvbn grows fast with them.
pub(crate) const PASSWORD_CHARS_READ: usize = 32;
/// Longest one, bytes: what is hashed must be bounded.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1_024;
/// Passwords that are hashed or checked at once: 19 MiB each.
pub(crate) const PASSWORDS_AT_ONCE: usize = 4;

/// Longest e-mail address, bytes (RFC 5321 section 4.5.3.1.3).
pub(crate) const EMAIL_BYTES_MAX: usize = 254;
/// Longest part of it before the `@`, bytes (RFC 5321 section 4.5.3.1.1).
pub(crate) const EMAIL_LOCAL_BYTES_MAX: usize = 64;
/// Longest name that people give to something, characters.
pub(crate) const NAME_CHARS_MAX: usize = 100;
/// Longest text of a change that the audit log shows, bytes: a longer one, such as a PEM, is shown by its length and digest.
pub(crate) const AUDIT_TEXT_BYTES_MAX: usize = 1_024;
/// Most that the audit log shows of one field that was changed, bytes. An entry is one value of the store, of 100,000 bytes at most.
pub(crate) const AUDIT_FIELD_BYTES_MAX: usize = 8_192;
/// How long the audit log and the usage of a deleted organisation are kept for operators, milliseconds: as long as usage is kept.
pub(crate) const FORMER_ORGANISATION_MS: u64 = USAGE_DAYS_MAX * DAY_MS;

/// Longest `Idempotency-Key`, bytes.
pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// How long somebody stays signed in, milliseconds: 14 days.
pub(crate) const SIGN_IN_MS: u64 = 14 * DAY_MS;
/// Longest name of a browser that is kept, characters.
pub(crate) const USER_AGENT_CHARS_MAX: usize = 200;
/// How long somebody may be on the way to their provider and back, seconds.
pub(crate) const OIDC_S: u64 = 600;
/// How long a provider may take for one answer; a sign-in needs four.
pub(crate) const PROVIDER_TIMEOUT: Duration = Duration::from_secs(7);
const _: () = assert!(PROVIDER_TIMEOUT.as_secs() * 4 <= REQUEST_TIME_MAX.as_secs());
/// Largest answer of a provider, bytes.
pub(crate) const PROVIDER_ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Longest name of somebody at their provider, bytes (OpenID Connect Core 1.0 section 2).
pub(crate) const PROVIDER_SUBJECT_BYTES_MAX: usize = 255;
/// Accounts of providers that one person signs in with.
pub(crate) const IDENTITIES_MAX: usize = 20;
/// How long an invitation can be taken, milliseconds: 7 days.
pub(crate) const INVITATION_MS: u64 = 7 * DAY_MS;
/// How long the link of a sign-up can be used, milliseconds: a day.
pub(crate) const SIGN_UP_MS: u64 = DAY_MS;
/// How long a second factor waits for its first code, milliseconds.
pub(crate) const SECOND_FACTOR_PENDING_MS: u64 = 10 * 60 * 1_000;
/// Recovery codes of a person.
pub(crate) const RECOVERY_CODES: usize = 10;
/// Wrong codes of a person's device in [`WRONG_CODES_MS`], counted in the store for all servers together. Beyond it only recovery codes are
/// taken until the time is over. Three of a million codes are right at a time, so somebody who knows the password finds one in a year with
/// a chance of 2 in 100.
pub(crate) const WRONG_CODES_MAX: u32 = 20;
/// The time for which wrong codes are counted, milliseconds: a day.
pub(crate) const WRONG_CODES_MS: u64 = DAY_MS;
/// How long the link that resets a password can be used, milliseconds: an hour.
pub(crate) const PASSWORD_RESET_MS: u64 = HOUR_MS;
/// Pause between two letters with such a link to one address.
pub(crate) const PASSWORD_RESET_EVERY: Duration = Duration::from_secs(5 * 60);
/// How long the link that confirms a new e-mail address can be used, milliseconds: a day.
pub(crate) const ADDRESS_CHANGE_MS: u64 = DAY_MS;
/// New e-mail addresses that a person may ask for an hour.
pub(crate) const ADDRESS_CHANGES_PER_HOUR: u32 = 5;
/// How long after signing in a person without a password may delete the account, milliseconds.
pub(crate) const RECENT_SIGN_IN_MS: u64 = 10 * 60 * 1_000;
/// Letters that sign-ups may send to one e-mail address an hour; later ones are answered and not sent. As many invitations may be
/// mailed to one address an hour.
pub(crate) const LETTERS_PER_HOUR: u32 = 5;
/// Sign-ups of one address an hour that meet an account, where the server sends no mail: each of their answers tells that there is one.
/// Beyond it all sign-ups from there wait for the hour to be over.
pub(crate) const ACCOUNTS_MET_PER_HOUR: u32 = 5;
/// Invitations that an organisation, and a person in all their organisations, may have mailed an hour.
pub(crate) const INVITATIONS_PER_HOUR: u32 = 60;
/// How long the link for the first person can be used, milliseconds: a day. Each start prints one.
pub(crate) const SETUP_MS: u64 = DAY_MS;
/// How long an answer is kept for a request that comes again with its key, milliseconds: a day.
pub(crate) const RECEIPT_MS: u64 = DAY_MS;
/// How long it is kept for one without a key, milliseconds: only the store's own retries look for it, which give up after seconds.
pub(crate) const OWN_RECEIPT_MS: u64 = 5 * 60 * 1_000;
/// How long a credential's former secret may stay good after a rotation, seconds: 30 days.
pub(crate) const ROTATION_OVERLAP_S_MAX: u32 = 30 * 86_400;

/// Organisations of one person.
pub(crate) const ORGANISATIONS_MAX: usize = 20;
/// Members of an organisation.
pub(crate) const MEMBERS_MAX: usize = 200;
/// Open invitations of an organisation.
pub(crate) const INVITATIONS_MAX: usize = 100;
/// API tokens of an organisation.
pub(crate) const TOKENS_MAX: usize = 100;
/// Brokers of an organisation.
pub(crate) const BROKERS_MAX: usize = 100;
/// Credentials of a broker: a device each.
pub(crate) const CREDENTIALS_MAX: u64 = 100_000;
/// Groups of a broker.
pub(crate) const GROUPS_MAX: usize = 1_000;
/// Webhooks of a broker: each message that one of them wants is sent to it.
pub(crate) const WEBHOOKS_MAX: usize = 16;

/// Keys of a condemned broker that one transaction removes: on the embedded engine a deletion costs 250 bytes of the 10 MB.
pub(crate) const ERASED_KEYS: usize = 2_000;
/// How long after its end a broker is erased, milliseconds: until then the count of its changes stands, by which pods see that it is
/// gone, and close its connections.
pub(crate) const ERASE_AFTER_MS: u64 = 5_000;
/// How long after its end a broker is erased again, milliseconds: pods that had it open may have written a little longer.
pub(crate) const ERASE_AGAIN_MS: u64 = 10 * 60 * 1_000;
/// Pause between two rounds of what is swept.
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// Rows that one transaction sweeps.
pub(crate) const SWEPT_ROWS: usize = 500;

/// The last time that RFC 3339 can say, unix milliseconds.
pub(crate) const TIME_MS_MAX: u64 = 253_402_300_799_999;
/// Hours of usage that one request is shown: a month.
pub(crate) const USAGE_HOURS_MAX: u64 = 31 * 24;
/// Days of usage that one request is shown or that are added up: all that is kept.
pub(crate) const USAGE_DAYS_MAX: u64 = 400;
/// Deleted brokers whose usage is read one by one. Each waits half a minute at most until its usage is in the ledger.
pub(crate) const FORMER_BROKERS_READ: usize = 1_000;
/// Tenants that the operator API looks at for the loudest ones.
pub(crate) const LOUDEST_LOOKED_AT: usize = 1_000;
/// Tenants that it shows.
pub(crate) const LOUDEST_MAX: usize = 100;
/// Plans of a region.
pub(crate) const PLANS_MAX: usize = 100;
/// Pods of a region.
pub(crate) const PODS_MAX: usize = 1_000;
/// Spend caps that one transaction reads.
pub(crate) const CAPS_AT_ONCE: usize = 200;

/// Sign-ins, sign-ups and other uses of a password that one address may try a minute; as many at once.
pub(crate) const PASSWORDS_PER_MINUTE: u32 = 20;
/// Sign-ins that may be tried for one e-mail address a minute, from one address.
pub(crate) const SIGN_INS_PER_MINUTE: u32 = 10;
/// Sign-ins that may be tried for one e-mail address a minute, from all addresses together where nobody has signed in with it.
pub(crate) const GUESSES_PER_MINUTE: u32 = 30;
/// How long pods take at most to hear of a change that the API has answered, milliseconds: they look every 500 ms, and read what has
/// changed then.
pub(crate) const IN_FORCE_MS: u64 = 2_000;
/// Denials of one person or API token a minute that the audit log has: a program that goes on trying does not fill it.
pub(crate) const DENIALS_PER_MINUTE: u32 = 10;
/// Requests a second of one API token, person or, without either, address; ten times as many at once.
pub(crate) const REQUESTS_PER_SECOND: u32 = 50;

/// Expensive requests of one organisation that run at once: lists of sessions, clients and topics, usage, the audit log.
pub(crate) const EXPENSIVE_PER_ORGANISATION: usize = 1;
/// Those of all organisations: fewer than the API has threads, so that cheap requests always find one.
pub(crate) const EXPENSIVE_AT_ONCE: usize = 2;
/// Expensive requests of one organisation that wait. More are told to come later.
pub(crate) const EXPENSIVE_WAITING_MAX: usize = 32;

/// Pause between two rows of live metrics.
pub(crate) const METRICS_EVERY: Duration = Duration::from_secs(1);
/// Streams of events at once, on one server.
pub(crate) const STREAMS_MAX: usize = 256;
/// Those of one organisation, and those of one person with their tokens.
pub(crate) const STREAMS_EACH_MAX: usize = 32;
/// How often a stream looks whether its caller may still see it.
pub(crate) const STREAM_CHECKED_EVERY: Duration = Duration::from_secs(5);

/// How long a stream goes on at most.
pub(crate) const STREAM_MAX: Duration = Duration::from_secs(12 * 3_600);

/// How long a connect token lasts that asks for no time, seconds.
pub(crate) const CONNECT_TOKEN_S: u32 = 900;
/// Shortest one.
pub(crate) const CONNECT_TOKEN_S_MIN: u32 = 10;
/// Longest one: it cannot be taken back before.
pub(crate) const CONNECT_TOKEN_S_MAX: u32 = 3_600;
/// Rules of one.
pub(crate) const CONNECT_TOKEN_RULES_MAX: usize = 50;

pub(crate) const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Stored messages of a topic in an answer: as many as are asked for, or this many.
pub(crate) const STORED_MESSAGES: usize = 10;
/// Most of them: each names up to 100 sessions.
pub(crate) const STORED_MESSAGES_MAX: usize = 50;
