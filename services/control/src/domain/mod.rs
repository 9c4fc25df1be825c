//! The operations of the control plane. Each is one transaction with its entry in the audit log; nothing else in this
//! crate calls the layers. An operation finds its objects through the caller's organisation, so that another tenant's
//! id looks like a missing one.

mod access;
mod access_test;
mod account_links;
mod accounts;
mod audit;
mod brokers;
mod by_secret;
mod caller;
mod caps;
mod change;
mod change_log_limiter;
mod check;
mod claim_tokens;
mod claims;
mod connect_tokens;
mod credential_batches;
mod credential_room;
mod credentials;
mod delete_account;
mod difference;
mod endpoints;
mod erase;
mod error;
mod former;
mod history;
mod incidents;
mod invitations;
mod ledger;
mod limit_changes;
mod machine;
mod members;
mod month;
mod names;
mod on_folder;
mod operator;
mod operators;
mod organisations;
mod page;
mod parts;
mod passkeys;
mod passwords;
mod plans;
mod post;
mod prices;
mod second_factor;
mod server_start;
mod setup;
mod sign_in_networks;
mod sign_ups;
mod spend;
mod sweep;
mod tokens;
mod usage;
mod visit;
mod visitors;
mod web_sessions;
mod webhooks;

use std::sync::{Arc, OnceLock};

use millrace_access::secrets::generated::HashKeys;
use millrace_layers::{Store, accounts::keys};
use millrace_outgoing::{CallError, CallSettings};
use millrace_storage::{Database, Read, Transaction};
use tokio::sync::Semaphore;
use uuid::Uuid;

pub use access::{AccessBySettings, AccessSettings};
pub use access_test::{AccessAnswer, AccessQuestion, DecidedBy, TestedAction};
pub use account_links::{AddressChange, LinkToken, NewPasswordByLink, ResetLink, ResetRequest};
pub use accounts::{Me, Membership, NewPassword, SignIn, SignUp, SignedIn, SignedUp, User, UserChange};
pub use audit::{Actor, ActorKind, AuditEntry, AuditFilter};
pub use brokers::{Broker, BrokerChange, NewBroker};
pub use caller::{Caller, Permission, Role};
pub use change::Once;
pub use claim_tokens::{ClaimToken, NewClaimToken};
pub use claims::{Claim, ClaimAnswer};
pub use connect_tokens::{ConnectToken, NewConnectToken};
pub(crate) use credential_batches::MadeBatch;
pub use credential_batches::{BatchDevice, NewCredentialBatch};
pub use credentials::{CredentialChange, CredentialInfo, KeptPassword, NewCredential, Rotation};
pub use delete_account::DeleteAccount;
pub use endpoints::{Endpoint, Endpoints, Ports, Reach};
pub use erase::{Erasures, UnfinishedErasure};
pub use error::{Error, Result};
pub use former::FormerTenant;
pub use history::{Drops, HistoryPoint, HistorySpan, HistoryStep, HistoryValues, Latency, MetricsHistory};
pub use incidents::{Incident, IncidentKind};
pub use invitations::{Invitation, NewInvitation, OfferedInvitation};
pub use members::{Member, MemberChange};
pub use on_folder::{OnFolder, note_on_folder};
pub use operator::{LoudTenant, Loudest, NewSuspension, PodLease, Suspension, Tenant, TenantBroker};
pub use operators::{Operator, OperatorTokens};
pub use organisations::{NewOrganisation, Organisation};
pub use page::{Page, PageRequest};
pub use parts::Precondition;
pub use passkeys::{
    NewPasskey, Passkey, PasskeyAdded, PasskeyAssertion, PasskeyChange, PasskeyCreation, PasskeyCredential,
    PasskeyRequest,
};
pub use plans::{NewPlan, Plan, PlanChoice, TenantPlan};
pub use post::{MailMessage, Mailer};
pub use prices::{Currency, Price, Prices, UnitPrice};
pub use second_factor::{DeviceKey, FirstCode, Proof, RecoveryCodes, SecondFactor, SecondFactorRemoval};
pub use server_start::{ServerStart, StoreRecovery};
pub use sign_ups::Confirmation;
pub use spend::{CapAction, NewSpendCap, SpendCap};
pub use tokens::{NewToken, OwnToken, Token};
pub use usage::{BrokerUsage, Losses, OrganisationUsage, Span, Usage, UsageStep, UsageWindow, Used};
pub use visit::{LiveBroker, Visit};
pub use visitors::{ConnectIdentity, LinkedIdentity};
pub use web_sessions::{RequestSource, SignInSession};
pub use webhooks::{
    DeadLetter, DeadLetterCount, KeyRotation, RotatedKey, WebhookDelivery, WebhookFailure, WebhookStatus,
};

pub(crate) use brokers::BrokerRef;
pub(crate) use caller::Principal;
use change_log_limiter::ChangeLogLimiter;
pub(crate) use claims::ShownClaimToken;
pub(crate) use operators::shown_name;
pub(crate) use parts::BrokerPart;
use post::Post;
pub(crate) use spend::CapOf;
pub(crate) use web_sessions::shortened;
pub(crate) use webhooks::{Settling, Which};

use crate::limits::{DAY_MS, PASSWORDS_AT_ONCE, WRITES_ASIDE_MAX};
use crate::secret::{self, Hash, Purpose};

pub trait UnixClock: Send + Sync + 'static {
    fn now_ms(&self) -> u64;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignUpBy {
    /// Also with the link that the first start prints.
    #[default]
    Invitation,
    Anybody,
    /// Anybody whose e-mail address is confirmed, without mail by a link that an operator passes on.
    Confirmed,
}

/// Cloning is cheap. Each setting (`charge`, `calls_by` and the like) is set once: a second call does nothing.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    store: Store,
    clock: Arc<dyn UnixClock>,
    /// For secrets of people and of the API, the current one last; the older ones open what they have sealed.
    keys: Vec<keys::HashKey>,
    /// The same keys, for secrets of MQTT clients.
    mqtt_secret_keys: HashKeys,
    sign_up_by: SignUpBy,
    passwords: Semaphore,
    /// Limits the audit entries and receipts of each person.
    change_log: ChangeLogLimiter,
    late_audit_entries: Arc<Semaphore>,
    prices: OnceLock<Prices>,
    currency: OnceLock<Currency>,
    reach: OnceLock<Reach>,
    by_settings: OnceLock<AccessBySettings>,
    post: OnceLock<Post>,
    post_without_mail: OnceLock<Post>,
    /// For passkeys, and without `post` for links that an operator passes on.
    console_url: OnceLock<String>,
    audit_kept_ms: OnceLock<u64>,
    calls: OnceLock<CallSettings>,
    start: OnceLock<ServerStart>,
}

impl Control {
    /// Creates the region's key on first use.
    pub async fn open(database: Database, clock: Arc<dyn UnixClock>, sign_up_by: SignUpBy) -> Result<Self> {
        let store = Store::new(database);
        let random = secret::random()?;
        let keys = store.run(|tx| async move { keys::ensure(&tx, random).await }).await?;
        let mqtt_secret_keys = HashKeys::new(keys.iter().map(|key| (key.id, key.key)));
        let mqtt_secret_keys = mqtt_secret_keys.ok_or(Error::Internal("the region has no key"))?;
        let passwords = Semaphore::new(PASSWORDS_AT_ONCE);
        let inner = Inner {
            store,
            clock,
            keys,
            mqtt_secret_keys,
            sign_up_by,
            passwords,
            change_log: ChangeLogLimiter::new(),
            late_audit_entries: Arc::new(Semaphore::new(WRITES_ASIDE_MAX)),
            prices: OnceLock::new(),
            currency: OnceLock::new(),
            reach: OnceLock::new(),
            by_settings: OnceLock::new(),
            post: OnceLock::new(),
            post_without_mail: OnceLock::new(),
            console_url: OnceLock::new(),
            audit_kept_ms: OnceLock::new(),
            calls: OnceLock::new(),
            start: OnceLock::new(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Sets the prices of usage, which is free by default.
    pub fn charge(&self, prices: Prices) {
        let _ = self.0.prices.set(prices);
    }

    pub fn charge_in(&self, currency: Currency) {
        let _ = self.0.currency.set(currency);
    }

    /// Makes sign-ups confirm their e-mail address by a mailed link to this server at `url`.
    pub fn confirm_addresses(&self, mailer: Arc<dyn Mailer>, url: String) {
        let _ = self.0.post.set(Post { mailer, url });
    }

    /// Without mail, gives the mails that confirm an e-mail address to `printer`, which shows them to operators. Their links are of no
    /// use to a reader of the log: they need the password of the sign-up, or a web session of the account.
    pub fn print_links(&self, printer: Arc<dyn Mailer>, url: String) {
        let _ = self.0.post_without_mail.set(Post { mailer: printer, url });
    }

    pub fn console_at(&self, url: String) {
        let _ = self.0.console_url.set(url);
    }

    /// Sets after how many days entries of audit logs are removed; by default they stay.
    pub fn keep_audit_for(&self, days: u32) {
        let _ = self.0.audit_kept_ms.set(u64::from(days) * DAY_MS);
    }

    pub fn calls_by(&self, settings: CallSettings) {
        let _ = self.0.calls.set(settings);
    }

    /// Refuses a new URL that no server would call; a stored one stays, because the operator's settings may have changed.
    fn check_called(&self, field: &str, url: &str, stored: Option<&str>) -> Result<()> {
        if stored == Some(url) {
            return Ok(());
        }
        let checked = match self.0.calls.get() {
            Some(settings) => settings.check(url),
            None => CallSettings::default().check(url),
        };
        let what = match checked {
            Ok(()) => return Ok(()),
            Err(CallError::Forbidden) => {
                "has a private or loopback address, which this server does not call; its operator can allow networks with \
                 the setting outgoing_allow"
                    .to_owned()
            }
            Err(CallError::Insecure) => "must start with https://".to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Error::field(field, what))
    }

    fn audit_kept_ms(&self) -> Option<u64> {
        self.0.audit_kept_ms.get().copied()
    }

    pub(crate) fn mail(&self, mail: MailMessage) {
        if let Some(post) = self.post_or_printer() {
            post.mailer.send(mail);
        }
    }

    /// Without mail, nobody can confirm an e-mail address or reset a password.
    pub(crate) fn can_send_mail(&self) -> bool {
        self.post().is_some()
    }

    /// Whether the answer to a sign-up reveals that an address has an account. With confirmed addresses the mail says it instead.
    pub(crate) fn reveals_accounts(&self) -> bool {
        !self.can_send_mail() && self.0.sign_up_by != SignUpBy::Confirmed
    }

    fn post(&self) -> Option<&Post> {
        self.0.post.get()
    }

    fn post_or_printer(&self) -> Option<&Post> {
        self.post().or_else(|| self.0.post_without_mail.get())
    }

    fn prices(&self) -> Prices {
        self.0.prices.get().copied().unwrap_or_default()
    }

    pub(crate) fn currency(&self) -> Option<String> {
        self.0.currency.get().map(Currency::to_string)
    }

    pub(crate) fn sign_up_by(&self) -> SignUpBy {
        self.0.sign_up_by
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.0.clock.now_ms()
    }

    fn key(&self) -> Result<&keys::HashKey> {
        self.0.keys.last().ok_or(Error::Internal("the region has no key"))
    }

    /// With the current key, so that a new key, which a later `secret_key_file` makes, ends web sessions, tokens and links.
    pub(crate) fn hash(&self, purpose: Purpose, parts: &[&[u8]]) -> Result<Hash> {
        Ok(secret::hash(self.key()?, purpose, parts))
    }

    fn new_id(&self) -> Result<Uuid> {
        let random = secret::random::<10>()?;
        Ok(uuid::Builder::from_unix_timestamp_millis(self.now_ms(), &random).into_uuid())
    }

    /// Runs a transaction that only reads.
    async fn look<T, F, Body>(&self, body: F) -> Result<T>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = Result<T>>,
    {
        self.transact(body).await
    }

    /// Runs a transaction whose writes need no audit entry. The store may run it again after it has committed, so it must
    /// do no harm then.
    async fn write<T, F, Body>(&self, body: F) -> Result<T>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = Result<T>>,
    {
        self.transact(body).await
    }

    async fn transact<T, F, Body>(&self, mut body: F) -> Result<T>
    where
        F: FnMut(Transaction) -> Body,
        Body: Future<Output = Result<T>>,
    {
        self.0.store.database().run(|tx, _| body(tx)).await
    }
}

/// Unix time 0, when nothing has expired yet: a request whose sign-in ends while it runs may finish.
const STILL_VALID: u64 = 0;

/// Checks the caller's permission in an organisation. A caller outside of the organisation gets [`Error::NotFound`], a
/// member without the permission [`Error::Forbidden`]. Nobody changes anything in a suspended organisation.
async fn authorise(
    tx: &Transaction,
    caller: &Caller,
    organisation: Uuid,
    permission: Permission,
    read: Read,
) -> Result<()> {
    permits(tx, caller, organisation, permission, read).await?;
    if permission.is_write() { operator::is_open(tx, organisation, read).await } else { Ok(()) }
}

/// As [`authorise`], also in a suspended organisation. The caller was authenticated before the body of the request came, so a change
/// reads the web session or the token again.
///
/// # Errors
/// [`Error::Unauthenticated`] for a change by a web session or a token that has ended since.
async fn permits(
    tx: &Transaction,
    caller: &Caller,
    organisation: Uuid,
    permission: Permission,
    read: Read,
) -> Result<()> {
    let is_change = read == Read::Serializable || permission.is_write();
    let allowed = match &caller.who {
        Principal::Token { organisation: own, id, scopes, .. } if *own == organisation => {
            scopes.contains(&permission)
                && (!is_change
                    || tokens::scopes(tx, organisation, *id, STILL_VALID, read).await?.contains(&permission))
        }
        Principal::Token { .. } => return Err(Error::NotFound("organisation")),
        Principal::Person { user, sign_in, .. } => {
            if is_change {
                web_sessions::still_there(tx, sign_in, STILL_VALID, read).await?;
            }
            members::role(tx, organisation, *user, read).await?.may(permission)
        }
    };
    if allowed {
        return Ok(());
    }
    let name = serde_json::to_value(permission).ok();
    let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default();
    Err(Error::Forbidden(format!("this needs the permission {name}, which your role or token does not have")))
}
