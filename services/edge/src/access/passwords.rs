//! Passes chosen passwords to the threads that check them, and the results back to the clients.

use std::num::NonZero;
use std::sync::Arc;

use millrace_access::entry::ConnectAuthentication;
use millrace_access::model::Credential;
use millrace_authentication::ClientSource;
use millrace_authentication::passwords::limits::THREADS_MAX;
use millrace_authentication::passwords::{
    CheckOutcome, CheckedPassword, Checker, PasswordCheckCounts, PasswordRequest,
};

use super::AuthenticationRequest;
use super::service::{AccessContext, settle};
use crate::authorization::{AccessDecision, Denied, LoadedAccess};
use crate::clock::seconds;
use crate::metrics::Metric;
use crate::{StartError, random};

pub(super) struct CheckedLogin {
    pub(super) request: Box<AuthenticationRequest>,
    pub(super) loaded: Arc<LoadedAccess>,
    pub(super) entry: ConnectAuthentication,
    pub(super) credential: Option<Credential>,
}

pub(super) type Passwords = Checker<CheckedLogin>;

pub(crate) fn checker_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX)
}

pub(super) fn start(shared: &Arc<AccessContext>) -> Result<Passwords, StartError> {
    let key =
        random::bytes().map_err(|error| StartError(format!("no random numbers from the system: {error}")))?;
    let clock = shared.clock;
    let now = Box::new(move || seconds(clock.now()));
    let shared = shared.clone();
    let answered = Box::new(move |answer| answered(&shared, answer));
    Checker::start(checker_threads(), &key, now, answered).map_err(|error| StartError(error.to_string()))
}

pub(super) fn check(
    shared: &AccessContext,
    passwords: &Passwords,
    waiting: CheckedLogin,
    hashes: Vec<Box<str>>,
) {
    let request = &waiting.request;
    let check = PasswordRequest {
        tenant: request.broker.tenant(),
        broker: request.broker.id,
        source: ClientSource::new(request.address.map(|address| address.ip())),
        user: request.user.as_deref().unwrap_or_default().into(),
        password: request.password.as_deref().unwrap_or_default().into(),
        hashes,
        cancellation: request.cancellation.clone(),
        context: waiting,
    };
    if let Some(answer) = passwords.check(check) {
        answered(shared, answer);
    }
}

fn answered(shared: &AccessContext, answer: CheckedPassword<CheckedLogin>) {
    let CheckedLogin { request, loaded, mut entry, credential } = answer.context;
    let is_right = match answer.outcome {
        CheckOutcome::Right => true,
        CheckOutcome::Wrong => false,
        CheckOutcome::Busy => {
            let outcome = Err(Denied::Busy);
            return shared.report(AccessDecision { connection: request.connection, outcome });
        }
    };
    let now_ms = shared.clock.unix_now_ms();
    let step = entry.password_checked(&loaded.access, credential.as_ref(), is_right, now_ms);
    let outcome = settle(step, &loaded).unwrap_or(Err(Denied::Unread));
    shared.report(AccessDecision { connection: request.connection, outcome });
}

pub(crate) fn counts_as_metrics(all: impl IntoIterator<Item = PasswordCheckCounts>) -> Vec<(Metric, u64)> {
    const NAME: &str = "millrace_password_checks_total";
    const HELP: &str =
        "Passwords checked against Argon2id hashes, by result: right and wrong cost a hash each.";
    let mut sums = [0; 6];
    for counts in all {
        let PasswordCheckCounts { right, wrong, remembered, cancelled, busy, waiting } = counts;
        for (sum, count) in sums.iter_mut().zip([right, wrong, remembered, cancelled, busy, waiting]) {
            *sum += count;
        }
    }
    let [counters @ .., waiting] = sums;
    let labels = [
        "result=\"right\"",
        "result=\"wrong\"",
        "result=\"remembered\"",
        "result=\"cancelled\"",
        "result=\"busy\"",
    ];
    let counter = |labels| Metric { kind: "counter", name: NAME, labels, help: HELP };
    let mut metrics: Vec<_> = labels.into_iter().map(counter).zip(counters).collect();
    let (name, help) = ("millrace_password_checks_waiting", "Passwords that wait to be checked.");
    metrics.push((Metric { kind: "gauge", name, labels: "", help }, waiting));
    metrics
}
