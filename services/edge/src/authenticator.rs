//! Who may connect and what they may do, from the configured files. Password hashes are checked on a thread of their
//! own: one takes longer than thousands of messages.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use millrace_access::files::passwords::PasswordFile;
use millrace_access::files::rules;
use millrace_access::rules::{Client, Permissions};
use millrace_access::secrets::{VerifiedCache, chosen};
use millrace_mqtt::QoS;
use millrace_session::Seconds;

use crate::StartError;
use crate::config::Authentication;
use crate::core::connection::ConnectionId;
use crate::mailbox::{Mail, Mailbox};
use crate::random;

/// Passwords that wait to be checked; beyond it a CONNECT is refused as "server busy".
const JOBS_MAX: usize = 10_000;
/// Passwords that were right and are remembered, so that a reconnect storm is not one of password hashing.
const VERIFIED_MAX: usize = 100_000;
/// How long one is remembered, seconds.
const VERIFIED_S: u32 = 300;

/// What can be said of a user name and password at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Refused,
    /// A [`Mail::Authenticated`] will tell.
    Later,
    /// Too many wait already.
    Busy,
}

struct Job {
    connection: ConnectionId,
    user: Box<str>,
    password: Box<[u8]>,
    phc: Box<str>,
    known: bool,
    now: Seconds,
}

/// Who may connect and what they may do.
pub(crate) struct Authenticator {
    allow_anonymous: bool,
    passwords: ArcSwapOption<PasswordFile>,
    rules: ArcSwap<Permissions>,
    verified: Arc<Mutex<VerifiedCache>>,
    jobs: Option<SyncSender<Job>>,
}

impl Authenticator {
    /// Reads the files and starts the thread that checks passwords.
    pub(crate) fn start(config: &Authentication, mailboxes: &Arc<[Mailbox]>) -> Result<Self, StartError> {
        let passwords = read_passwords(config).map_err(StartError)?;
        let rules = read_rules(config).map_err(StartError)?;
        let key = random::bytes()
            .map_err(|error| StartError(format!("no random numbers from the system: {error}")))?;
        let verified = Arc::new(Mutex::new(VerifiedCache::new(&key, VERIFIED_MAX, VERIFIED_S)));
        let jobs = match &passwords {
            None => None,
            Some(_) => {
                let (sender, receiver) = sync_channel(JOBS_MAX);
                let (verified, mailboxes) = (verified.clone(), mailboxes.clone());
                std::thread::Builder::new()
                    .name("passwords".into())
                    .spawn(move || check_passwords(&receiver, &verified, &mailboxes))
                    .map_err(|error| StartError(format!("cannot start a thread: {error}")))?;
                Some(sender)
            }
        };
        let (passwords, rules) = (ArcSwapOption::from_pointee(passwords), ArcSwap::from_pointee(rules));
        Ok(Self { allow_anonymous: config.allow_anonymous, passwords, rules, verified, jobs })
    }

    /// Reads the password file again. Returns the users whose password has changed or is gone, in order.
    pub(crate) fn reload_passwords(&self, config: &Authentication) -> Result<Vec<Box<str>>, String> {
        let new = read_passwords(config)?;
        let old = self.passwords.swap(new.clone().map(Arc::new));
        let (old, new) = (old.as_deref(), new.unwrap_or_default());
        let changed =
            old.into_iter().flat_map(PasswordFile::iter).filter(|(user, phc)| new.lookup(user) != Some(*phc));
        let mut changed: Vec<Box<str>> = changed.map(|(user, _)| user.into()).collect();
        changed.sort_unstable();
        Ok(changed)
    }

    /// Reads the rules file again.
    pub(crate) fn reload_rules(&self, config: &Authentication) -> Result<(), String> {
        self.rules.store(Arc::new(read_rules(config)?));
        Ok(())
    }

    /// Whether a client with these credentials may connect.
    //= [MQTT-3.1.4-2] v5 v3.1.1
    pub(crate) fn check(
        &self,
        connection: ConnectionId,
        user: Option<&str>,
        password: Option<&[u8]>,
        now: Seconds,
    ) -> Verdict {
        let passwords = self.passwords.load();
        let (Some(user), Some(file)) = (user, passwords.as_deref()) else {
            // Without a password file a name is only a name.
            let accepted = self.allow_anonymous;
            return if accepted { Verdict::Accepted } else { Verdict::Refused };
        };
        let password = password.unwrap_or_default();
        let phc = file.lookup(user);
        if let Some(phc) = phc
            && self.verified.lock().unwrap_or_else(PoisonError::into_inner).contains(user, password, phc, now)
        {
            return Verdict::Accepted;
        }
        let job = Job {
            connection,
            user: user.into(),
            password: password.into(),
            // An unknown user takes as long as a wrong password.
            phc: phc.unwrap_or(chosen::dummy()).into(),
            known: phc.is_some(),
            now,
        };
        match self.jobs.as_ref().map(|jobs| jobs.try_send(job)) {
            Some(Ok(())) => Verdict::Later,
            Some(Err(TrySendError::Full(_))) => Verdict::Busy,
            Some(Err(TrySendError::Disconnected(_))) | None => Verdict::Refused,
        }
    }

    #[inline]
    pub(crate) fn may_publish(&self, client: Client<'_>, topic: &str, retain: bool, qos: QoS) -> bool {
        self.rules.load().publish(client, topic, retain, qos).is_ok()
    }

    /// The QoS that a subscription is granted.
    pub(crate) fn may_subscribe(&self, client: Client<'_>, filter: &str, qos: QoS) -> Option<QoS> {
        self.rules.load().subscribe(client, filter, qos).ok()
    }
}

/// Until the authenticator is gone.
fn check_passwords(jobs: &Receiver<Job>, verified: &Mutex<VerifiedCache>, mailboxes: &[Mailbox]) {
    while let Ok(job) = jobs.recv() {
        let accepted = chosen::verify(&job.phc, &job.password) && job.known;
        if accepted {
            let mut verified = verified.lock().unwrap_or_else(PoisonError::into_inner);
            verified.insert(&job.user, &job.password, &job.phc, job.now);
        }
        let mut mail = vec![Mail::Authenticated { connection: job.connection, accepted }];
        mailboxes[usize::from(job.connection.core)].deliver(&mut mail, 0);
    }
}

fn read_passwords(config: &Authentication) -> Result<Option<PasswordFile>, String> {
    read(config.password_file.as_deref(), "password file", PasswordFile::parse)
}

fn read_rules(config: &Authentication) -> Result<Permissions, String> {
    let rules = read(config.rules_file.as_deref(), "rules file", rules::parse)?;
    Ok(Permissions::new(rules.map(Arc::new)))
}

fn read<T, E: std::fmt::Display>(
    path: Option<&Path>,
    what: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, String> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read the {what} {}: {error}", path.display()))?;
    parse(&text).map(Some).map_err(|error| format!("{what} {}: {error}", path.display()))
}
