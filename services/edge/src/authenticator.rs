//! Authentication and authorization by the configured files, of clients of brokers without access settings in the store.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use millrace_access::files::passwords::PasswordFile;
use millrace_access::files::rules;
use millrace_access::rules::{ClientIdentity, Permissions};
use millrace_access::secrets::{chosen, generated};
use millrace_authentication::passwords::{
    CheckOutcome, CheckedPassword, Checker, PasswordCheckCounts, PasswordRequest,
};
use millrace_authentication::{Cancellation, ClientSource};
use millrace_mqtt::QoS;

use crate::access::checker_threads;
use crate::authorization::LoginOutcome;
use crate::clock::{Clock, seconds};
use crate::config::Authentication;
use crate::connection_id::ConnectionId;
use crate::mailbox::{Mail, Mailbox};
use crate::{StartError, random};

pub(crate) struct ConnectLogin<'a> {
    pub(crate) connection: ConnectionId,
    pub(crate) broker: u64,
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a [u8]>,
    /// The user's [`Authenticator::hash_of`].
    pub(crate) hash: Option<&'a str>,
}

struct Context {
    connection: ConnectionId,
    /// False for an unknown user, whose password is checked against a dummy hash, so that it takes as long.
    is_user: bool,
}

pub(crate) struct Authenticator {
    allow_anonymous: bool,
    passwords: ArcSwapOption<PasswordFile>,
    rules: ArcSwap<Permissions>,
    /// Exists if a password file is configured; a reload reads that file again and cannot add one.
    checker: Option<Checker<Context>>,
}

impl Authenticator {
    pub(crate) fn start(
        config: &Authentication,
        clock: Clock,
        mailboxes: &Arc<[Mailbox]>,
    ) -> Result<Self, StartError> {
        let passwords = read_passwords(config).map_err(StartError)?;
        let rules = read_rules(config).map_err(StartError)?;
        let key = random::bytes()
            .map_err(|error| StartError(format!("no random numbers from the system: {error}")))?;
        let start = || {
            let mailboxes = mailboxes.clone();
            let answered = move |answer: CheckedPassword<Context>| {
                let (connection, outcome) = (answer.context.connection, outcome(&answer));
                mailboxes[usize::from(connection.core)].post(Mail::Authenticated { connection, outcome });
            };
            let now = Box::new(move || seconds(clock.now()));
            Checker::start(checker_threads(), &key, now, Box::new(answered))
        };
        let checker = passwords.as_ref().map(|_| start()).transpose();
        let checker = checker.map_err(|error| StartError(error.to_string()))?;
        let (passwords, rules) = (ArcSwapOption::from_pointee(passwords), ArcSwap::from_pointee(rules));
        let authenticator = Self { allow_anonymous: config.allow_anonymous, passwords, rules, checker };
        authenticator.warn_of_unproven_names(&authenticator.rules.load());
        Ok(authenticator)
    }

    pub(crate) fn check_files(config: &Authentication) -> Result<(), StartError> {
        read_passwords(config).map_err(StartError)?;
        read_rules(config).map_err(StartError)?;
        Ok(())
    }

    /// Returns the users whose password was changed or removed, in order.
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

    pub(crate) fn reload_rules(&self, config: &Authentication) -> Result<(), String> {
        let rules = read_rules(config)?;
        self.warn_of_unproven_names(&rules);
        self.rules.store(Arc::new(rules));
        Ok(())
    }

    fn warn_of_unproven_names(&self, rules: &Permissions) {
        if self.allow_anonymous && !self.checks_passwords() && rules.names_users() {
            tracing::warn!(
                "the rules file names users, but without a password file any client can use their names: set `password_file`"
            );
        }
    }

    pub(crate) fn checks_passwords(&self) -> bool {
        self.checker.is_some()
    }

    /// The hash of a user's password in the file; `None` without a file, too.
    pub(crate) fn hash_of(&self, user: &str) -> Option<Box<str>> {
        self.passwords.load().as_deref()?.lookup(user).map(Into::into)
    }

    /// After `Later`, [`Mail::Authenticated`] brings the outcome. `source` is called only then: the address takes a system call.
    //= [MQTT-3.1.4-2] v5 v3.1.1
    pub(crate) fn check(
        &self,
        login: &ConnectLogin<'_>,
        source: impl FnOnce() -> (Option<IpAddr>, Cancellation),
    ) -> LoginOutcome {
        let (Some(user), Some(checker)) = (login.user, &self.checker) else {
            // Without a password file a name is only a name, and no password is checked (access decision 0011). A generated secret
            // is of a broker with access settings, so its client is at the wrong broker.
            let password = login.password.unwrap_or_default();
            return match login.user {
                None if self.checks_passwords() && !password.is_empty() => LoginOutcome::Refused,
                _ if generated::is_likely(password) => LoginOutcome::Refused,
                _ if self.allow_anonymous => LoginOutcome::Accepted,
                None => LoginOutcome::Anonymous,
                Some(_) => LoginOutcome::Refused,
            };
        };
        let (address, cancellation) = source();
        let request = PasswordRequest {
            tenant: Arc::default(),
            broker: login.broker,
            source: ClientSource::new(address),
            user: user.into(),
            password: login.password.unwrap_or_default().into(),
            hashes: vec![login.hash.unwrap_or(chosen::dummy()).into()],
            cancellation,
            context: Context { connection: login.connection, is_user: login.hash.is_some() },
        };
        checker.check(request).map_or(LoginOutcome::Later, |answer| outcome(&answer))
    }

    pub(crate) fn password_checks(&self) -> Option<PasswordCheckCounts> {
        self.checker.as_ref().map(Checker::counts)
    }

    #[inline]
    pub(crate) fn may_publish(
        &self,
        client: ClientIdentity<'_>,
        topic: &str,
        retain: bool,
        qos: QoS,
    ) -> bool {
        self.rules.load().publish(client, topic, retain, qos).is_ok()
    }

    pub(crate) fn may_subscribe(&self, client: ClientIdentity<'_>, filter: &str, qos: QoS) -> Option<QoS> {
        self.rules.load().subscribe(client, filter, qos).ok()
    }
}

fn outcome(answer: &CheckedPassword<Context>) -> LoginOutcome {
    match answer.outcome {
        CheckOutcome::Right if answer.context.is_user => LoginOutcome::Accepted,
        CheckOutcome::Right | CheckOutcome::Wrong => LoginOutcome::Refused,
        CheckOutcome::Busy => LoginOutcome::Busy,
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
