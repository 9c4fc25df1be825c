//! The threads that authenticate the clients of managed brokers, whose access records are in the store.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use futures_util::future::join_all;
use millrace_access::entry::{
    AccessRefusal, AuthenticationStep, BrokerAccess, ConnectAuthentication, PresentedCredentials,
};
use millrace_access::limits::USER_BYTES_MAX;
use millrace_access::model::Credential;
use millrace_access::webhook::WebhookAnswer;
use millrace_authentication::Pushed;
use millrace_authentication::passwords::PasswordCheckCounts;
use millrace_layers::{LayerError, Store, accounts};
use millrace_storage::{Read, block_on};
use millrace_transport::throttle::Throttle;
use tokio::sync::oneshot;

use super::calls::Calls;
use super::fetch::{self, KeySetFetcher, KeySetLookup};
use super::job_queue::{AccessJob, JobQueue};
use super::passwords::{self, Passwords};
use super::webhooks::{self, AccessWebhooks};
use super::{AuthenticationRequest, Review, ScramAttempt};
use super::{connect_token, scram, watch};
use crate::StartError;
use crate::authorization::{AccessDecision, Denied, Granted, LoadedAccess, Reviewed};
use crate::broker::{Broker, Brokers};
use crate::clock::Clock;
use crate::mailbox::{Mail, Mailbox};
use crate::metrics::Metric;

/// The queue of authentication jobs, and its threads, which end when it is dropped.
pub(crate) struct AuthenticationService {
    shared: Arc<AccessContext>,
    passwords: Arc<Passwords>,
    stop: Option<SyncSender<()>>,
    stop_calls: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

pub(super) struct AccessContext {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) brokers: Arc<Brokers>,
    pub(super) mailboxes: Arc<[Mailbox]>,
    pub(super) calls: Calls,
    pub(super) key_sets: KeySetFetcher,
    pub(super) webhooks: AccessWebhooks,
    jobs: JobQueue,
    unread: Throttle,
}

pub(super) struct PendingConnect {
    pub(super) request: Box<AuthenticationRequest>,
    pub(super) loaded: Arc<LoadedAccess>,
    pub(super) entry: ConnectAuthentication,
}

struct CredentialLookup {
    pending: PendingConnect,
    user: Box<str>,
}

enum LoginStep {
    Credential(Box<str>),
    Webhook(Option<Box<str>>),
    Over(Result<Granted, Denied>),
}

impl AuthenticationService {
    /// Starts the threads: one for each event loop that authenticates, some that check passwords, one that watches for changes.
    pub(crate) fn start(
        store: Store,
        clock: Clock,
        brokers: Arc<Brokers>,
        mailboxes: Arc<[Mailbox]>,
        outgoing: &millrace_outgoing::CallSettings,
    ) -> Result<Self, StartError> {
        let cores = mailboxes.len();
        let mut threads = Vec::new();
        let (calls, stop_calls) = Calls::start(outgoing, &mut threads)?;
        let shared = Arc::new(AccessContext {
            store,
            clock,
            brokers,
            mailboxes,
            calls,
            key_sets: KeySetFetcher::new(),
            webhooks: AccessWebhooks::new()?,
            jobs: JobQueue::new(),
            unread: Throttle::default(),
        });
        let passwords = Arc::new(passwords::start(&shared)?);
        let mut service = Self {
            shared: shared.clone(),
            passwords: passwords.clone(),
            stop: None,
            stop_calls: Some(stop_calls),
            threads,
        };
        for number in 0..cores {
            let (shared, passwords) = (shared.clone(), passwords.clone());
            service.threads.push(spawn(format!("access-{number}"), move || serve(&shared, &passwords))?);
        }
        let (stop, stopped) = sync_channel(0);
        service.threads.push(spawn("access-watch".into(), move || watch::run(&shared, &stopped))?);
        service.stop = Some(stop);
        Ok(service)
    }

    /// Queues a CONNECT, whose result a [`Mail::AccessDecided`] brings; false when the queue is full.
    pub(crate) fn authenticate(&self, request: AuthenticationRequest) -> bool {
        self.shared.push(AccessJob::Connect(Box::new(request))).is_ok()
    }

    /// Queues a SCRAM message of a client, whose result a [`Mail::Attempted`] brings; false when the queue is full.
    pub(crate) fn attempt(&self, attempt: ScramAttempt) -> bool {
        self.shared.push(AccessJob::Attempt(Box::new(attempt))).is_ok()
    }

    pub(crate) fn metrics(&self) -> Vec<(Metric, u64)> {
        [self.shared.key_sets.metrics(), self.shared.webhooks.metrics()].concat()
    }

    pub(crate) fn password_checks(&self) -> PasswordCheckCounts {
        self.passwords.counts()
    }

    /// Queues clients of a broker whose rules may have changed, so that each gets a [`Mail::Reviewed`]; false when the queue is full.
    pub(crate) fn review(&self, reviews: Vec<Review>) -> bool {
        self.shared.push(AccessJob::Review(reviews)).is_ok()
    }
}

impl Drop for AuthenticationService {
    fn drop(&mut self) {
        self.shared.jobs.close();
        (self.stop, self.stop_calls) = (None, None);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!(
                    "a thread that authenticates clients ended with a panic: report it with the log before it"
                );
            }
        }
    }
}

impl AccessContext {
    pub(super) fn report(&self, decision: AccessDecision) {
        let core = usize::from(decision.connection.core);
        self.mailboxes[core].post(Mail::AccessDecided(Box::new(decision)));
    }

    /// Queues a client that has got what it waited for, or refuses it as "server busy" if the queue is full.
    pub(super) fn queue_again(&self, job: AccessJob) {
        if let Err(job) = self.push(job) {
            self.refuse(job);
        }
    }

    /// Returns the job if the queue has no room; an older job of the same address may have to make room for it.
    fn push(&self, job: AccessJob) -> Result<(), AccessJob> {
        match self.jobs.push(job) {
            Pushed::Waits => Ok(()),
            Pushed::Refused(job) => Err(job),
            Pushed::Instead(older) => {
                self.refuse(older);
                Ok(())
            }
        }
    }

    fn refuse(&self, job: AccessJob) {
        let connection = match job {
            AccessJob::Connect(request) => request.connection,
            AccessJob::Answered(answered) => answered.0.request.connection,
            AccessJob::Attempt(attempt) => {
                return scram::send_outcome(self, attempt.request.connection, Err(Denied::Busy));
            }
            // The watch then reviews all clients of the broker.
            AccessJob::Review(reviews) => {
                return reviews.iter().for_each(|review| review.broker.forget_changes());
            }
        };
        self.report(AccessDecision { connection, outcome: Err(Denied::Busy) });
    }

    pub(super) fn log_unread(&self, error: &LayerError, broker: &Broker) {
        if let Some(unlogged) = self.unread.occurred(self.clock.now()) {
            tracing::error!(%error, broker = &*broker.name, unlogged, "the store gives no credentials: new clients are refused and may try again, connected clients keep their permissions");
        }
    }

    pub(super) fn now_s(&self) -> u64 {
        self.clock.now() / 1_000
    }

    async fn credential(&self, broker: u64, user: &str) -> Result<Option<Credential>, LayerError> {
        if user.len() > USER_BYTES_MAX {
            return Ok(None);
        }
        let read = async |tx| accounts::credentials(broker).get(&tx, user.as_bytes(), Read::Snapshot).await;
        Ok(self.store.run(read).await?.map(|document| document.value))
    }
}

impl AuthenticationRequest {
    pub(super) fn credentials(&self) -> PresentedCredentials<'_> {
        PresentedCredentials {
            client_id: &self.client_id,
            user: self.user.as_deref(),
            password: self.password.as_deref(),
            certificate: self.certificate.as_deref(),
        }
    }
}

pub(super) fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let spawned = std::thread::Builder::new().name(name).spawn(run);
    spawned.map_err(|error| StartError(format!("cannot start a thread: {error}")))
}

fn serve(shared: &Arc<AccessContext>, passwords: &Passwords) {
    while let Some(taken) = shared.jobs.take() {
        let (mut lookups, mut attempts) = (Vec::new(), Vec::new());
        for job in taken {
            match job {
                AccessJob::Connect(request) if request.cancellation.is_cancelled() => {}
                AccessJob::Connect(request) => lookups.extend(begin(shared, request)),
                AccessJob::Attempt(attempt) => attempts.extend(scram::begin(shared, attempt)),
                AccessJob::Answered(answered) => lookups.extend(answered_by_webhook(shared, *answered)),
                AccessJob::Review(reviews) => review(shared, &reviews),
            }
        }
        let users: Vec<_> = attempts.iter().map(scram::ScramLookup::read).collect();
        let reads = users.iter().map(|(broker, user)| shared.credential(*broker, user));
        for (lookup, credential) in attempts.into_iter().zip(block_on(join_all(reads))) {
            scram::proceed(shared, lookup, credential);
        }
        // A client whose webhook has just responded may have a credential under the user name in the response.
        while !lookups.is_empty() {
            let reads = lookups
                .iter()
                .map(|lookup| shared.credential(lookup.pending.request.broker.id, &lookup.user));
            let credentials = block_on(join_all(reads));
            let read = std::mem::take(&mut lookups).into_iter().zip(credentials);
            lookups = read
                .filter_map(|(lookup, credential)| proceed(shared, lookup, credential, passwords))
                .collect();
        }
    }
}

fn begin(shared: &Arc<AccessContext>, request: Box<AuthenticationRequest>) -> Option<CredentialLookup> {
    if request.password.as_deref().is_some_and(connect_token::is_likely) {
        let outcome = connect_token::check(shared, &request);
        shared.report(AccessDecision { connection: request.connection, outcome });
        return None;
    }
    let Some(loaded) = request.broker.access() else {
        // The broker stopped being managed after the client connected.
        shared.report(AccessDecision { connection: request.connection, outcome: Err(Denied::Unread) });
        return None;
    };
    let mut entry = ConnectAuthentication::default();
    let now_ms = shared.clock.unix_now_ms();
    let lookup = KeySetLookup::new(shared, request.broker.tenant());
    let step = entry.begin(&loaded.access, request.credentials(), &lookup, now_ms);
    if let AuthenticationStep::Keys(issuers) = step {
        let urls = issuers.iter().filter_map(|issuer| issuer.key_set_url()).map(Into::into).collect();
        fetch::wait(shared, request, urls, lookup.fetches());
        return None;
    }
    let next = next(step, &loaded);
    continue_with(shared, PendingConnect { request, loaded, entry }, next)
}

fn proceed(
    shared: &Arc<AccessContext>,
    lookup: CredentialLookup,
    credential: Result<Option<Credential>, LayerError>,
    passwords: &Passwords,
) -> Option<CredentialLookup> {
    let mut pending = lookup.pending;
    let PendingConnect { request, loaded, entry } = &mut pending;
    let next = match credential {
        Ok(credential) => {
            let now_ms = shared.clock.unix_now_ms();
            let credentials = request.credentials();
            let step =
                entry.credential(&loaded.access, credential.as_ref(), credentials, &loaded.hash_keys, now_ms);
            if let AuthenticationStep::Hash(hashes) = step {
                let hashes = hashes.into_iter().map(Into::into).collect();
                let PendingConnect { request, loaded, entry } = pending;
                let waiting = passwords::CheckedLogin { request, loaded, entry, credential };
                passwords::check(shared, passwords, waiting, hashes);
                return None;
            }
            next(step, loaded)
        }
        Err(error) => {
            shared.log_unread(&error, &request.broker);
            LoginStep::Over(Err(Denied::Unread))
        }
    };
    continue_with(shared, pending, next)
}

fn answered_by_webhook(
    shared: &Arc<AccessContext>,
    (mut pending, answer): (PendingConnect, WebhookAnswer),
) -> Option<CredentialLookup> {
    let PendingConnect { request, loaded, entry } = &mut pending;
    let step = entry.webhook(&loaded.access, request.credentials(), answer, shared.clock.unix_now_ms());
    let next = next(step, loaded);
    continue_with(shared, pending, next)
}

fn next(step: AuthenticationStep<'_>, loaded: &LoadedAccess) -> LoginStep {
    match step {
        AuthenticationStep::Credential(user) => LoginStep::Credential(user),
        AuthenticationStep::Webhook(certificate_user) => LoginStep::Webhook(certificate_user),
        // `Keys` and `Hash` do not come here: their callers have taken them.
        step => LoginStep::Over(settle(step, loaded).unwrap_or(Err(Denied::Unread))),
    }
}

/// Returns a client that needs its credential; others wait elsewhere or have their result.
fn continue_with(
    shared: &Arc<AccessContext>,
    pending: PendingConnect,
    next: LoginStep,
) -> Option<CredentialLookup> {
    match next {
        LoginStep::Credential(user) => return Some(CredentialLookup { pending, user }),
        LoginStep::Webhook(certificate_user) => {
            let known = webhooks::ask(shared, pending, certificate_user.as_deref());
            return known.and_then(|answered| answered_by_webhook(shared, answered));
        }
        LoginStep::Over(outcome) => {
            shared.report(AccessDecision { connection: pending.request.connection, outcome });
        }
    }
    None
}

/// The result of the last step; `None`: the authentication has further steps.
pub(super) fn settle(step: AuthenticationStep<'_>, loaded: &LoadedAccess) -> Option<Result<Granted, Denied>> {
    Some(match step {
        AuthenticationStep::Accept(accepted) => {
            let (identity, grant) = *accepted;
            Ok(Granted { identity: Arc::new(identity), grant, changes: loaded.changes, anew: None })
        }
        AuthenticationStep::Refuse(refusal) => Err(refusal.into()),
        AuthenticationStep::Keys(_) => Err(AccessRefusal::NoKeys.into()),
        AuthenticationStep::Credential(_) | AuthenticationStep::Hash(_) | AuthenticationStep::Webhook(_) => {
            return None;
        }
    })
}

/// A client whose credential cannot be read keeps its permissions until the watch tries again.
fn review(shared: &AccessContext, reviews: &[Review]) {
    let user = |review: &Review| review.identity.user.clone();
    let users: Vec<_> = reviews.iter().map(user).collect();
    let reads = reviews.iter().zip(&users).map(async |(review, user)| match user {
        Some(user) => shared.credential(review.broker.id, user).await,
        None => Ok(None),
    });
    let credentials = block_on(join_all(reads));
    let mut unread = None;
    for (review, credential) in reviews.iter().zip(credentials) {
        let loaded = review.broker.access();
        let unmanaged = BrokerAccess::default();
        // Connect tokens also authenticate clients of brokers that are not managed.
        let access = loaded.as_ref().map_or(&unmanaged, |loaded| &loaded.access);
        let credential = match credential {
            Ok(credential) => credential,
            Err(error) => {
                unread = Some((error, &review.broker));
                continue;
            }
        };
        let now_ms = shared.clock.unix_now_ms();
        let outcome = access.review(&review.identity, credential.as_ref(), &review.client_id, now_ms);
        let core = usize::from(review.connection.core);
        let reviewed = Reviewed { connection: review.connection, outcome };
        shared.mailboxes[core].post(Mail::Reviewed(Box::new(reviewed)));
    }
    if let Some((error, broker)) = unread {
        shared.log_unread(&error, broker);
        broker.forget_changes();
    }
}
