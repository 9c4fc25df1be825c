//! Limits of the control plane that are not settings. [`crate::ApiOptions`] has those that an operator may set.

use std::time::Duration;

use millrace_storage::limits::TRANSACTION_BYTES_MAX;

/// Fits a revocation list of 1 MiB in JSON, where a line end takes two bytes.
pub(crate) const BODY_BYTES_MAX: usize = 1_300_000;

/// Values in a body, twice as many as the largest batch has. A parsed value takes up to 600 bytes of memory for two of the body.
pub(crate) const BODY_VALUES_MAX: usize = 10_000;

/// Bytes of a text of a request that an answer quotes, and of the name of a wrong field.
pub(crate) const QUOTED_BYTES_MAX: usize = 256;
/// Bytes of what an answer says about one wrong field.
pub(crate) const PROBLEM_BYTES_MAX: usize = 2_048;

/// A request waits up to 10 s for a store that does not answer.
pub(crate) const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// Time in which the body of a request must come. It is shorter than [`REQUEST_TIME_MAX`], so that a slow client gets an answer.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(20);
const _: () = assert!(BODY_TIME_MAX.as_secs() < REQUEST_TIME_MAX.as_secs());

/// Rows of a page if the request names no number.
pub(crate) const PAGE_ROWS: usize = 50;
pub(crate) const PAGE_ROWS_MAX: usize = 200;
/// Bytes of long answers that clients have not read yet, of all callers and of one account.
pub(crate) const ANSWER_BYTES_MAX: usize = 128 << 20;
pub(crate) const ANSWER_BYTES_EACH_MAX: usize = 32 << 20;
/// A shorter answer is not counted: it takes about as much as the buffers of its connection.
pub(crate) const ANSWER_BYTES_COUNTED: usize = 64 * 1024;
/// Bytes of a long answer that a connection takes at a time.
pub(crate) const ANSWER_BYTES_WRITTEN: usize = 32 * 1024;
/// Stored bytes of the rows of a page; the row that reaches it is the last one. Rows of credentials, authorities or claim
/// tokens may have more than 1 MB.
pub(crate) const PAGE_BYTES_MAX: usize = 1 << 20;

/// As long as a name in the store may be.
pub(crate) const SEARCH_BYTES_MAX: usize = 1_024;

/// Entries that one request of a filtered audit log reads. The page then ends, and its cursor continues.
pub(crate) const AUDIT_SCAN_ROWS_MAX: usize = 2_000;
/// The same bound in bytes, because entries with changed PEMs are long. Reading goes a little beyond it.
pub(crate) const AUDIT_SCAN_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Entries that a filtered read takes from the store at once.
pub(crate) const AUDIT_SCAN_ROWS: usize = 200;
/// An entry may be committed this much later than its time: by a slow request, or a slow clock.
pub(crate) const AUDIT_LATE_MS: u64 = 600_000;

/// Shortest token of operator_token_file.
pub(crate) const OPERATOR_TOKEN_BYTES_MIN: usize = 32;

/// The longest cursor holds a topic.
pub(crate) const CURSOR_BYTES_MAX: usize = 4_096;

/// Least strength by zxcvbn, whose scores are 0 to 4: 3 is 10^8 guesses or more.
pub(crate) const PASSWORD_SCORE_MIN: u8 = 3;
/// NIST SP 800-63B-4 section 3.1.1.2, for a password without a second factor.
pub(crate) const PASSWORD_CHARS_MIN: usize = 15;
/// zxcvbn reads only this many characters, because its time grows fast with the length.
pub(crate) const PASSWORD_CHARS_READ: usize = 32;
/// Shorter parts of a person's address and name may be in their password.
pub(crate) const PASSWORD_PART_CHARS_MIN: usize = 3;
pub(crate) const PASSWORD_BYTES_MAX: usize = 1_024;
/// Password hashes that run at once: each takes 19 MiB.
pub(crate) const PASSWORDS_AT_ONCE: usize = 4;
/// Hashes for new passwords of devices that run at once, one of an organisation: fewer than [`PASSWORDS_AT_ONCE`], so
/// that sign-ins never wait behind them. As many requests of an organisation wait as [`EXPENSIVE_WAITING_MAX`] says.
pub(crate) const DEVICE_HASHES_AT_ONCE: usize = 2;

/// RFC 5321 section 4.5.3.1.3.
pub(crate) const EMAIL_BYTES_MAX: usize = 254;
/// RFC 5321 section 4.5.3.1.1: the part before the `@`.
pub(crate) const EMAIL_LOCAL_BYTES_MAX: usize = 64;
pub(crate) const NAME_CHARS_MAX: usize = 100;
/// The audit log shows a longer text, such as a PEM, by its length and digest.
pub(crate) const AUDIT_TEXT_BYTES_MAX: usize = 1_024;
/// Bound of one changed field in the audit log, whose entry is one value of the store: 100,000 bytes at most.
pub(crate) const AUDIT_FIELD_BYTES_MAX: usize = 8_192;
/// Bytes of the details of an audit entry, in JSON; longer ones are left out, and their size is noted.
pub(crate) const AUDIT_DETAILS_BYTES_MAX: usize = 32 * 1024;
/// Characters of an audit entry's target; the rest is left out.
pub(crate) const AUDIT_TARGET_CHARS_MAX: usize = 512;
/// Bytes of the user names in one entry about a batch of credentials, in JSON. Its settings fit beside them.
pub(crate) const AUDIT_USERS_BYTES_MAX: usize = 12 * 1024;
/// Logs from which one round of the sweep removes old entries.
pub(crate) const AUDIT_LOGS_AT_ONCE: usize = 100;
/// Transactions in which a round removes old entries of one log, [`SWEPT_ROWS`] in each; the rest waits for the next round.
pub(crate) const AUDIT_TRIMS_MAX: usize = 20;
/// How long operators can read the audit log and usage of a deleted organisation: as long as usage is stored.
pub(crate) const FORMER_ORGANISATION_MS: u64 = USAGE_DAYS_MAX * DAY_MS;

pub(crate) const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// Longest request id of a client that is logged. A UUID has 36 characters.
pub(crate) const CLIENT_REQUEST_ID_BYTES_MAX: usize = 64;

pub(crate) const SIGN_IN_MS: u64 = 14 * DAY_MS;
/// The oldest web session ends when another begins. 100 are more than the browsers of a person, and few enough for one
/// transaction.
pub(crate) const WEB_SESSIONS_MAX: usize = 100;
pub(crate) const USER_AGENT_CHARS_MAX: usize = 200;
/// Networks from which a person has signed in that the account's record remembers; the oldest gives way.
pub(crate) const SIGN_IN_NETWORKS_MAX: usize = 16;
/// How long the record remembers a network after a sign-in from there.
pub(crate) const SIGN_IN_NETWORK_MS: u64 = 90 * DAY_MS;
/// Time that a browser has to sign in at the provider and come back.
pub(crate) const OIDC_S: u64 = 600;
/// Time for one answer of a provider; a sign-in needs four.
pub(crate) const PROVIDER_TIMEOUT: Duration = Duration::from_secs(7);
const _: () = assert!(PROVIDER_TIMEOUT.as_secs() * 4 <= REQUEST_TIME_MAX.as_secs());
/// How long a provider's configuration counts, seconds. Its answers to people are never stored.
pub(crate) const PROVIDER_CONFIGURATION_S: u64 = 600;
/// Pause after a request for the configuration that failed, seconds.
pub(crate) const PROVIDER_FAILED_S: u64 = 5;
pub(crate) const PROVIDER_ANSWER_BYTES_MAX: usize = 256 * 1024;
/// OpenID Connect Core 1.0 section 2.
pub(crate) const PROVIDER_SUBJECT_BYTES_MAX: usize = 255;
/// Accounts of providers that one person may connect.
pub(crate) const IDENTITIES_MAX: usize = 20;
pub(crate) const INVITATION_MS: u64 = 7 * DAY_MS;
pub(crate) const SIGN_UP_MS: u64 = DAY_MS;
/// How long a second factor waits for its first code, milliseconds.
pub(crate) const SECOND_FACTOR_PENDING_MS: u64 = 10 * 60 * 1_000;
/// Wrong codes after which a second factor that waits for its first code is void: room for mistakes, and too few to guess.
pub(crate) const WRONG_FIRST_CODES_MAX: u32 = 10;
pub(crate) const RECOVERY_CODES: usize = 10;
/// Wrong codes of a person's device in [`WRONG_CODES_MS`], counted in the store for all servers together. Beyond it only recovery codes are
/// taken until the time is over; a right code does not clear the count. Three of a million codes are right at a time, so somebody who knows
/// the password finds one in a year with a chance of 2.2 in 100. A new password clears the count once in that time: somebody who can
/// set the password every day has a chance of 4.4 in 100.
pub(crate) const WRONG_CODES_MAX: u32 = 20;
pub(crate) const WRONG_CODES_MS: u64 = DAY_MS;
/// Passkeys of a person: all are in one record with the second factor.
pub(crate) const PASSKEYS_MAX: usize = 10;
/// Names of transports that a new passkey may come with. WebAuthn Level 3 has six, browsers may add others.
pub(crate) const PASSKEY_TRANSPORTS_MAX: usize = 16;
/// How long a challenge for a passkey can be answered, milliseconds: the timeout that WebAuthn Level 3 section 15.1 recommends.
pub(crate) const PASSKEY_CHALLENGE_MS: u64 = 5 * 60 * 1_000;
/// Bytes of a request that registers a passkey or signs in with one: room for the largest parts below in Base64.
pub(crate) const PASSKEY_BODY_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a request of somebody who has not signed in: a sign-in may have the answer of a passkey.
pub(crate) const UNAUTHENTICATED_BODY_BYTES_MAX: usize = PASSKEY_BODY_BYTES_MAX;
/// WebAuthn Level 3 section 4, "Credential ID".
pub(crate) const CREDENTIAL_ID_BYTES_MAX: usize = 1_023;
/// Browsers write type, challenge and origin: about 250 bytes.
pub(crate) const CLIENT_DATA_BYTES_MAX: usize = 4 * 1_024;
/// An attestation that was not asked for may hold certificates.
pub(crate) const ATTESTATION_BYTES_MAX: usize = 24 * 1_024;
/// 37 bytes, and outputs of extensions that were not asked for.
pub(crate) const AUTHENTICATOR_DATA_BYTES_MAX: usize = 1_024;
/// A signature with RSA of 4096 bits has 512 bytes.
pub(crate) const PASSKEY_SIGNATURE_BYTES_MAX: usize = 512;
/// WebAuthn Level 3 section 5.4.3.
pub(crate) const USER_HANDLE_BYTES_MAX: usize = 64;
pub(crate) const PASSWORD_RESET_MS: u64 = HOUR_MS;
/// Pause between two mails with a link for a new password to one address.
pub(crate) const PASSWORD_RESET_EVERY: Duration = Duration::from_secs(5 * 60);
pub(crate) const ADDRESS_CHANGE_MS: u64 = DAY_MS;
/// New e-mail addresses that a person may ask for an hour.
pub(crate) const ADDRESS_CHANGES_PER_HOUR: u32 = 5;
/// How long after signing in a person without a password may delete the account, milliseconds.
pub(crate) const RECENT_SIGN_IN_MS: u64 = 10 * 60 * 1_000;
/// Mails that sign-ups may cause to one e-mail address in an hour; later sign-ups are answered without a mail.
/// Invitations to an address have a budget of the same size.
pub(crate) const MAILS_PER_HOUR: u32 = 5;
/// Sign-ups of one address an hour that meet an account, where the server sends no mail: each of their answers reveals it.
/// Beyond it all sign-ups from there wait for the hour to be over.
pub(crate) const ACCOUNTS_MET_PER_HOUR: u32 = 5;
/// Invitations that an organisation may mail in an hour, and that a person may mail for all their organisations.
pub(crate) const INVITATIONS_PER_HOUR: u32 = 60;
/// Validity of the link for the first person, which each start prints.
pub(crate) const SETUP_MS: u64 = DAY_MS;
/// KiB of audit entries and kept receipts that the changes of one person, with their API tokens, may log in a second,
/// over time: 2.8 GB a day.
pub(crate) const CHANGE_LOG_KIB_PER_S: u32 = 32;
/// The same at once: 16 MiB, thousands of ordinary changes.
pub(crate) const CHANGE_LOG_KIB_AT_ONCE: u32 = 16 * 1_024;

/// How long a request's answer is stored for repetitions with the same `Idempotency-Key`: a day.
pub(crate) const RECEIPT_MS: u64 = DAY_MS;
/// The same without a key: only the store's own retries use it, and they give up after seconds.
pub(crate) const OWN_RECEIPT_MS: u64 = 5 * 60 * 1_000;
pub(crate) const ROTATION_OVERLAP_S_MAX: u32 = 30 * 86_400;

pub(crate) const ORGANISATIONS_MAX: usize = 20;
pub(crate) const MEMBERS_MAX: usize = 200;
pub(crate) const INVITATIONS_MAX: usize = 100;
pub(crate) const TOKENS_MAX: usize = 100;
/// Seconds of a broker's limit on publishes that one publish by HTTP may take, so that its caller never waits longer. A
/// larger message is refused.
pub(crate) const PUBLISH_DEBT_S_MAX: u64 = 60;
pub(crate) const BROKERS_MAX: usize = 100;
/// Each device has one.
pub(crate) const CREDENTIALS_MAX: u64 = 100_000;
/// Bytes of the rules of all credentials of a broker, in JSON: 670 for each of 100,000. Fleets have their rules in groups.
pub(crate) const CREDENTIAL_RULES_BYTES_MAX: i64 = 64 << 20;
/// Credentials that one request makes: one transaction of the store, which has 10 MB and 5 seconds.
pub(crate) const BATCH_CREDENTIALS_MAX: usize = 1_000;
/// The same with SCRAM: each verifier takes tens of milliseconds, and the request [`REQUEST_TIME_MAX`] at most.
pub(crate) const BATCH_SCRAM_MAX: usize = 100;
/// Devices of batches that an organisation may make in a second, over time.
pub(crate) const BATCH_DEVICES_PER_SECOND: u32 = 100;
/// The same at once: some full batches, so that a new line gets its credentials without a pause.
pub(crate) const BATCH_DEVICES_AT_ONCE: u32 = 5_000;
/// Bytes of the rules of a batch, each credential with its own copy.
pub(crate) const BATCH_RULES_BYTES_MAX: usize = 2 * 1024 * 1024;
pub(crate) const CLAIM_TOKENS_MAX: usize = 100;
/// Longest life of a claim token: copies of it lie in devices and factories.
pub(crate) const CLAIM_TOKEN_MS_MAX: u64 = 366 * DAY_MS;
/// Claims from one address in a minute: devices of one factory share an address.
pub(crate) const CLAIMS_PER_MINUTE: u32 = 300;
/// Claims by one claim token in a second: each writes the token's count of uses, so claims of one token wait for each other.
pub(crate) const CLAIMS_PER_SECOND: u32 = 20;
/// Bytes of a claim, which anybody may send: a token and a user name, with room for escapes.
pub(crate) const CLAIM_BYTES_MAX: usize = 4_096;
/// A device that guesses the key of another one gets its password.
pub(crate) const CLAIM_KEY_BYTES_MIN: usize = 32;
pub(crate) const GROUPS_MAX: usize = 1_000;
/// Bytes of all groups of a broker, in JSON: 1,000 groups of 20 rules.
pub(crate) const GROUPS_BYTES_MAX: usize = 2 << 20;
/// Bytes of all issuers, of all authorities, or of all webhooks of a broker, in JSON: eight authorities with long revocation lists.
pub(crate) const PARTS_BYTES_MAX: usize = 8 << 20;
/// Each message is sent to each webhook that matches.
pub(crate) const WEBHOOKS_MAX: usize = 16;

/// Keys of a deleted broker that one transaction removes. In the embedded engine a deletion takes 250 bytes of a
/// transaction's 10 MB.
pub(crate) const ERASED_KEYS: usize = 2_000;
/// Transactions of [`ERASED_KEYS`] in one round of the sweep: about 5 s.
pub(crate) const ERASE_STEPS_MAX: usize = 250;
/// Delay before a deleted broker's data is erased. Until then its version remains, by which servers notice the deletion
/// and close its connections.
pub(crate) const ERASE_AFTER_MS: u64 = 5_000;
/// Delay before the second erasure: servers that had the broker open may have written for a short time after the first.
pub(crate) const ERASE_AGAIN_MS: u64 = 10 * 60 * 1_000;
/// Brokers in one round of the sweep.
pub(crate) const HISTORY_BROKERS: usize = 100;
/// Time until servers have written the points of a minute that is over, milliseconds.
pub(crate) const HISTORY_LATE_MS: u64 = 5_000;
pub(crate) const SWEEP_EVERY: Duration = Duration::from_secs(30);
pub(crate) const SWEPT_ROWS: usize = 500;

/// The latest end of a token or a credential, from now: 100 years.
pub(crate) const END_MS_MAX: u64 = 36_525 * DAY_MS;

/// The last time that RFC 3339 can express.
pub(crate) const TIME_MS_MAX: u64 = 253_402_300_799_999;
/// Largest limit and amount that a request may set: the largest number up to which every reader of JSON sees whole numbers as
/// they are (RFC 8259 section 6).
pub(crate) const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Detail of a problem about a time after [`TIME_MS_MAX`].
pub(crate) const TOO_LATE: &str = "is after the year 9999: send unix milliseconds";
pub(crate) const USAGE_HOURS_MAX: u64 = 31 * 24;
pub(crate) const USAGE_DAYS_MAX: u64 = 400;
/// Deleted brokers whose usage is read one by one. A sweep moves each to the ledger within half a minute, unless many were deleted.
pub(crate) const FORMER_BROKERS_READ: usize = 1_000;
/// Deleted brokers of an organisation that are not settled; a further deletion is refused. Less than [`FORMER_BROKERS_READ`], because
/// deletions at the same time do not see each other.
pub(crate) const FORMER_BROKERS_MAX: usize = 500;
/// Tenants whose usage the operator API compares to find the loudest.
pub(crate) const LOUDEST_LOOKED_AT: usize = 1_000;
pub(crate) const LOUDEST_MAX: usize = 100;
pub(crate) const PLANS_MAX: usize = 100;
/// Bytes of a broker's access record, in JSON: 100 rules take half of it. An operator who gives a tenant a plan changes all its brokers at once.
pub(crate) const ACCESS_BYTES_MAX: usize = 64 * 1024;
const _: () = assert!(BROKERS_MAX * (ACCESS_BYTES_MAX + 4_096) < TRANSACTION_BYTES_MAX);
/// Tenants that a plan's copy has passed over and tries again.
pub(crate) const PLAN_COPIES_FAILED_MAX: usize = 1_000;
pub(crate) const CAPS_AT_ONCE: usize = 200;

/// Uses of a password from one address in a minute; the burst is as large.
pub(crate) const PASSWORDS_PER_MINUTE: u32 = 20;
/// Audit entries of refused sign-ins that are written after their answers at once.
pub(crate) const WRITES_ASIDE_MAX: usize = 64;
/// Sign-ins to one e-mail address from one address in a minute.
pub(crate) const SIGN_INS_PER_MINUTE: u32 = 10;
/// Sign-ins to one e-mail address in a minute from all addresses from which nobody has signed in to it.
pub(crate) const GUESSES_PER_MINUTE: u32 = 30;
/// Time until servers apply a change that the API has answered: they poll every 500 ms, and then read the changed
/// settings.
pub(crate) const IN_FORCE_MS: u64 = 2_000;
/// Denials of one caller in a minute that the audit log records, so that a program that repeats a request does not fill
/// it.
pub(crate) const DENIALS_PER_MINUTE: u32 = 10;
pub(crate) const ACCOUNT_DENIALS_PER_MINUTE: u32 = 6 * DENIALS_PER_MINUTE;
/// Requests of one API token, person or (without credentials) address in a second; the burst is ten times as large.
pub(crate) const REQUESTS_PER_SECOND: u32 = 50;
/// Requests of one person with all their API tokens in a second; the burst is ten times as large. Otherwise the tokens of one
/// tenant could use up the API.
pub(crate) const ACCOUNT_REQUESTS_PER_SECOND: u32 = 200;

/// Changes by the API that run at once on one server, each with a body of at most 1.3 MB, and of 64 KiB from strangers. At
/// the limit, the oldest change whose body has not arrived gives way; without one, further changes get 503.
pub const CHANGES_MAX: usize = 256;
/// Expensive requests of one organisation that run at once: lists of sessions, clients and topics, usage, the audit
/// log.
pub(crate) const EXPENSIVE_PER_ORGANISATION: usize = 1;
/// Expensive requests that run at once, of reads and of changes each: fewer than the API's threads, so that cheap requests always
/// find a thread. Most reads have threads of low priority.
pub(crate) const EXPENSIVE_AT_ONCE: usize = 2;
/// Expensive requests of one organisation that wait; the server refuses more. Reads and changes are counted each.
pub(crate) const EXPENSIVE_WAITING_MAX: usize = 32;
/// The same for the reads of one person.
pub(crate) const EXPENSIVE_WAITING_EACH_MAX: usize = EXPENSIVE_WAITING_MAX / 2;

pub(crate) const METRICS_EVERY: Duration = Duration::from_secs(1);
/// Event streams on one server.
pub(crate) const STREAMS_MAX: usize = 256;
/// Event streams of one organisation, and of one person with their tokens.
pub(crate) const STREAMS_EACH_MAX: usize = 32;
/// One holder gets more of something shared only while it has less than a fourth of what is free: eight that take all they get
/// leave a fifth of it to others.
pub(crate) const HOLDER_DIVISOR: usize = 4;
/// How often a stream checks whether its caller may still read it.
pub(crate) const STREAM_CHECKED_EVERY: Duration = Duration::from_secs(5);

/// Time of an export, however slowly its client reads it.
pub(crate) const EXPORT_MAX: Duration = Duration::from_secs(3_600);
pub(crate) const STREAM_MAX: Duration = Duration::from_secs(12 * 3_600);

pub(crate) const CONNECT_TOKEN_S: u32 = 900;
pub(crate) const CONNECT_TOKEN_S_MIN: u32 = 10;
/// A connect token cannot be revoked, so its life is short.
pub(crate) const CONNECT_TOKEN_S_MAX: u32 = 3_600;
pub(crate) const CONNECT_TOKEN_RULES_MAX: usize = 50;

pub(crate) const HOUR_MS: u64 = 3_600_000;
pub(crate) const DAY_MS: u64 = 24 * HOUR_MS;

pub(crate) const STORED_MESSAGES: usize = 10;
/// Each message names up to 100 sessions.
pub(crate) const STORED_MESSAGES_MAX: usize = 50;
