//! The threads that let clients in.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_util::future::join_all;
use millrace_access::entry::{Entry, KeySets, Refusal, Shown, Step};
use millrace_access::jwt::KeySet;
use millrace_access::model::Credential;
use millrace_layers::{Error, Store, accounts};
use millrace_storage::{Read, block_on};

use super::hashing::Hasher;
use super::{Applicant, Entered, Granted, Loaded, Refused, Review, Reviewed, watch};
use crate::StartError;
use crate::broker::Brokers;
use crate::clock::Clock;
use crate::mailbox::{Mail, Mailbox};

/// Clients, and reviews of 500 each, that wait for the threads; a CONNECT beyond it is refused as "server busy".
const JOBS_MAX: usize = 20_000;
/// What a thread takes at a time. Their credentials are read at once, so on a store over the network a thread lets in so many in a
/// millisecond or two.
const TAKEN: usize = 64;

pub(super) enum Job {
    Enter(Box<Applicant>),
    Review(Vec<Review>),
}

/// Where event loops leave clients. Its threads end with it.
pub(crate) struct Desk {
    jobs: Option<SyncSender<Job>>,
    /// Dropped to end the watch.
    stop: Option<SyncSender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) clock: Clock,
    pub(super) brokers: Arc<Brokers>,
    pub(super) mailboxes: Arc<[Mailbox]>,
}

/// A client, what it needs next, and its credential once that was read.
struct Case {
    applicant: Box<Applicant>,
    loaded: Arc<Loaded>,
    entry: Entry,
    user: Box<str>,
}

/// Key sets are not fetched yet: their tokens are refused as "server unavailable".
struct NoKeySets;

impl KeySets for NoKeySets {
    fn get(&self, _: &str) -> Option<Arc<KeySet>> {
        None
    }
}

impl Desk {
    /// Starts the threads: one that lets in for each event loop, one that hashes, one that looks for changes.
    pub(crate) fn start(
        store: Store,
        clock: Clock,
        brokers: Arc<Brokers>,
        mailboxes: Arc<[Mailbox]>,
    ) -> Result<Self, StartError> {
        let cores = mailboxes.len();
        let shared = Arc::new(Shared { store, clock, brokers, mailboxes });
        let mut desk = Self { jobs: None, stop: None, threads: Vec::new() };
        let hasher = Hasher::start(&shared, &mut desk.threads)?;
        let (sender, receiver) = sync_channel(JOBS_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..cores {
            let (shared, receiver, hasher) = (shared.clone(), receiver.clone(), hasher.clone());
            let name = format!("access-{number}");
            desk.threads.push(spawn(name, move || serve(&shared, &receiver, &hasher))?);
        }
        desk.jobs = Some(sender);
        let (stop, stopped) = sync_channel(0);
        desk.threads.push(spawn("access-watch".into(), move || watch::run(&shared, &stopped))?);
        desk.stop = Some(stop);
        Ok(desk)
    }

    /// Leaves a client; a [`Mail::Entered`] will tell. False when too many wait.
    pub(crate) fn enter(&self, applicant: Applicant) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(Job::Enter(Box::new(applicant))).is_ok())
    }

    /// Leaves clients whose rules may have changed; a [`Mail::Reviewed`] each will tell.
    ///
    /// # Errors
    /// Gives them back when too many wait.
    pub(crate) fn review(&self, reviews: Vec<Review>) -> Result<(), Vec<Review>> {
        let Some(jobs) = &self.jobs else { return Ok(()) };
        jobs.try_send(Job::Review(reviews)).map_err(|error| match error {
            std::sync::mpsc::TrySendError::Full(Job::Review(reviews)) => reviews,
            _ => Vec::new(),
        })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        (self.jobs, self.stop) = (None, None);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that lets clients in ended with a panic");
            }
        }
    }
}

impl Shared {
    pub(super) fn tell(&self, entered: Entered) {
        let core = usize::from(entered.connection.core);
        self.mailboxes[core].deliver(&mut vec![Mail::Entered(Box::new(entered))], 0);
    }

    async fn credential(&self, broker: u64, user: &str) -> Result<Option<Credential>, Error> {
        let read = async |tx| accounts::credentials(broker).get(&tx, user.as_bytes(), Read::Snapshot).await;
        Ok(self.store.run(read).await?.map(|document| document.value))
    }
}

impl Applicant {
    pub(super) fn shown(&self) -> Shown<'_> {
        Shown {
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

/// Until the desk is gone.
fn serve(shared: &Shared, jobs: &Mutex<Receiver<Job>>, hasher: &Hasher) {
    loop {
        let taken: Vec<Job> = {
            let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(first) = jobs.recv() else { return };
            std::iter::once(first).chain(jobs.try_iter().take(TAKEN - 1)).collect()
        };
        let mut cases = Vec::new();
        for job in taken {
            match job {
                Job::Enter(applicant) => cases.extend(begin(shared, applicant)),
                Job::Review(reviews) => review(shared, &reviews),
            }
        }
        let read = |case: &Case| (case.applicant.broker.id, case.user.clone());
        let users: Vec<_> = cases.iter().map(read).collect();
        let reads = users.iter().map(|(broker, user)| shared.credential(*broker, user));
        let credentials = block_on(join_all(reads));
        for (case, credential) in cases.into_iter().zip(credentials) {
            proceed(shared, case, credential, hasher);
        }
    }
}

/// What is needed of a client's credential; `None` when it was answered already.
fn begin(shared: &Shared, applicant: Box<Applicant>) -> Option<Case> {
    let Some(loaded) = applicant.broker.access() else {
        // Since it came the broker has stopped being managed.
        shared.tell(Entered { connection: applicant.connection, outcome: Err(Refused::Unread) });
        return None;
    };
    let mut entry = Entry::default();
    let step = entry.begin(&loaded.access, applicant.shown(), &NoKeySets, shared.clock.unix_now_ms());
    let outcome = match step {
        Step::Credential(user) => return Some(Case { applicant, loaded, entry, user }),
        step => settle(step, &loaded).unwrap_or(Err(Refused::Unread)),
    };
    shared.tell(Entered { connection: applicant.connection, outcome });
    None
}

fn proceed(shared: &Shared, mut case: Case, credential: Result<Option<Credential>, Error>, hasher: &Hasher) {
    let Case { applicant, loaded, entry, .. } = &mut case;
    let connection = applicant.connection;
    let outcome = match credential {
        Ok(credential) => {
            let now_ms = shared.clock.unix_now_ms();
            let shown = applicant.shown();
            let step = entry.credential(&loaded.access, credential.as_ref(), shown, &loaded.keys, now_ms);
            if let Step::Hash(hashes) = step {
                let hashes = hashes.into_iter().map(Into::into).collect();
                return hasher.check(shared, case.applicant, case.loaded, case.entry, credential, hashes);
            }
            settle(step, loaded).unwrap_or(Err(Refused::Unread))
        }
        Err(error) => {
            tracing::error!(%error, broker = &*applicant.broker.name, "a credential cannot be read");
            Err(Refused::Unread)
        }
    };
    shared.tell(Entered { connection, outcome });
}

/// What a step means that needs nothing more which we can do; `None` for others.
pub(super) fn settle(step: Step<'_>, loaded: &Loaded) -> Option<Result<Granted, Refused>> {
    Some(match step {
        Step::Accept(accepted) => {
            let (standing, grant) = *accepted;
            Ok(Granted { standing: Arc::new(standing), grant, changes: loaded.changes })
        }
        Step::Refuse(refusal) => Err(refusal.into()),
        Step::Keys(_) => Err(Refusal::NoKeys.into()),
        Step::Webhook(_) => Err(Refusal::WebhookFailed("webhooks are not called yet").into()),
        Step::Credential(_) | Step::Hash(_) => return None,
    })
}

/// What the clients may do now. One whose credential cannot be read keeps what it has: the watch comes again.
fn review(shared: &Shared, reviews: &[Review]) {
    let user = |review: &Review| review.standing.user.clone();
    let users: Vec<_> = reviews.iter().map(user).collect();
    let reads = reviews.iter().zip(&users).map(async |(review, user)| match user {
        Some(user) => shared.credential(review.broker.id, user).await,
        None => Ok(None),
    });
    let credentials = block_on(join_all(reads));
    let mut unread = None;
    for (review, credential) in reviews.iter().zip(credentials) {
        let Some(loaded) = review.broker.access() else { continue };
        let credential = match credential {
            Ok(credential) => credential,
            Err(error) => {
                unread = Some((error, &review.broker));
                continue;
            }
        };
        let now_ms = shared.clock.unix_now_ms();
        let outcome = loaded.access.review(&review.standing, credential.as_ref(), now_ms);
        let core = usize::from(review.connection.core);
        let reviewed = Reviewed { connection: review.connection, outcome };
        shared.mailboxes[core].deliver(&mut vec![Mail::Reviewed(Box::new(reviewed))], 0);
    }
    if let Some((error, broker)) = unread {
        tracing::error!(%error, broker = &*broker.name, "credentials cannot be read again");
        broker.forget_changes();
    }
}
