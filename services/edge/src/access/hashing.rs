//! The thread that checks passwords which people chose.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use millrace_access::entry::Entry;
use millrace_access::model::Credential;
use millrace_access::secrets::{VerifiedCache, chosen};

use super::desk::{Shared, settle, spawn};
use super::turns::Turns;
use super::{Applicant, Entered, Loaded, Refused};
use crate::clock::seconds;
use crate::{StartError, random};

/// Passwords that wait; beyond it a CONNECT is refused as "server busy".
const JOBS_MAX: usize = 10_000;
/// Of these, passwords of one broker: four minutes of hashing.
const JOBS_OF_BROKER_MAX: usize = 1_000;
/// Passwords that were right, and as many that were wrong, that are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// How long one is remembered, seconds.
const REMEMBERED_S: u32 = 300;

struct Job {
    applicant: Box<Applicant>,
    loaded: Arc<Loaded>,
    entry: Entry,
    credential: Option<Credential>,
    hashes: Vec<Box<str>>,
}

/// What was found out a moment ago: so neither a storm of good clients nor one of clients with a password that is wrong by now
/// is one of hashing.
struct Remembered {
    right: VerifiedCache,
    wrong: VerifiedCache,
}

/// Where passwords are left.
#[derive(Clone)]
pub(super) struct Hasher {
    remembered: Arc<Mutex<Remembered>>,
    jobs: Arc<Entrance>,
}

/// Dropped to end the thread.
struct Entrance(Arc<Turns<Job>>);

impl Drop for Entrance {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Hasher {
    /// Starts the thread. It ends when the last of its users is gone.
    pub(super) fn start(shared: &Arc<Shared>, threads: &mut Vec<JoinHandle<()>>) -> Result<Self, StartError> {
        let key = random::bytes()
            .map_err(|error| StartError(format!("no random numbers from the system: {error}")))?;
        let cache = || VerifiedCache::new(&key, REMEMBERED_MAX, REMEMBERED_S);
        let remembered = Arc::new(Mutex::new(Remembered { right: cache(), wrong: cache() }));
        let turns = Arc::new(Turns::new(JOBS_MAX, JOBS_OF_BROKER_MAX));
        let (shared, known, jobs) = (shared.clone(), remembered.clone(), turns.clone());
        threads.push(spawn("access-hash".into(), move || run(&shared, &jobs, &known))?);
        Ok(Self { remembered, jobs: Arc::new(Entrance(turns)) })
    }

    /// Finds out whether the password is that of one of the hashes, and answers the client.
    pub(super) fn check(
        &self,
        shared: &Shared,
        applicant: Box<Applicant>,
        loaded: Arc<Loaded>,
        entry: Entry,
        credential: Option<Credential>,
        hashes: Vec<Box<str>>,
    ) {
        let job = Job { applicant, loaded, entry, credential, hashes };
        if let Some(is_right) = known(&self.remembered, &job, shared) {
            return answer(shared, job, is_right);
        }
        let (connection, broker) = (job.applicant.connection, job.applicant.broker.id);
        if !self.jobs.0.push(broker, job) {
            shared.tell(Entered { connection, outcome: Err(Refused::Busy) });
        }
    }
}

/// Until nobody leaves passwords any more.
fn run(shared: &Shared, jobs: &Turns<Job>, remembered: &Mutex<Remembered>) {
    while let Some(job) = jobs.next() {
        // Clients that come again while they wait are checked once.
        let is_right = known(remembered, &job, shared).unwrap_or_else(|| verify(shared, &job, remembered));
        answer(shared, job, is_right);
    }
}

fn verify(shared: &Shared, job: &Job, remembered: &Mutex<Remembered>) -> bool {
    let (user, password) = names(job);
    let mut is_right = false;
    for hash in &job.hashes {
        is_right = chosen::verify(hash, password);
        let now = seconds(shared.clock.now());
        let mut remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = if is_right { &mut remembered.right } else { &mut remembered.wrong };
        cache.insert(&user, password, hash, now);
        if is_right {
            break;
        }
    }
    is_right
}

/// Whether the password is right, when that was found out a moment ago.
fn known(remembered: &Mutex<Remembered>, job: &Job, shared: &Shared) -> Option<bool> {
    let (user, password) = names(job);
    let now = seconds(shared.clock.now());
    let remembered = remembered.lock().unwrap_or_else(PoisonError::into_inner);
    let has = |cache: &VerifiedCache, hash: &str| cache.contains(&user, password, hash, now);
    if job.hashes.iter().any(|hash| has(&remembered.right, hash)) {
        return Some(true);
    }
    job.hashes.iter().all(|hash| has(&remembered.wrong, hash)).then_some(false)
}

/// The user, of its broker, and the password.
fn names(job: &Job) -> (String, &[u8]) {
    let user = job.applicant.user.as_deref().unwrap_or_default();
    (format!("{}/{user}", job.applicant.broker.id), job.applicant.password.as_deref().unwrap_or_default())
}

fn answer(shared: &Shared, mut job: Job, is_right: bool) {
    let now_ms = shared.clock.unix_now_ms();
    let step = job.entry.hashed(&job.loaded.access, job.credential.as_ref(), is_right, now_ms);
    let outcome = settle(step, &job.loaded).unwrap_or(Err(Refused::Unread));
    shared.tell(Entered { connection: job.applicant.connection, outcome });
}
