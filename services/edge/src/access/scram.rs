//! SCRAM authentication of a client in two steps: `begin` and `proceed` answer its user name with a challenge, and then check its
//! proof. Each step reads the credential, so nothing waits in memory between them (decision 0030).

use std::sync::Arc;

use millrace_access::entry::{AccessRefusal, AuthenticationStep, ConnectAuthentication, ProvenIdentity};
use millrace_access::model::Credential;
use millrace_access::scram::{Enhanced, ScramAccepted};
use millrace_layers::LayerError;

use super::AuthenticationRequest;
use super::service::{AccessContext, settle};
use crate::authorization::{Attempted, Denied, ExchangeStep, LoadedAccess};
use crate::connection_id::ConnectionId;
use crate::mailbox::Mail;
use crate::random;

pub(crate) struct ScramAttempt {
    pub(crate) request: AuthenticationRequest,
    pub(crate) enhanced: Box<Enhanced>,
    pub(crate) data: Box<[u8]>,
    /// Set when a connected client authenticates anew.
    pub(crate) identity: Option<Arc<ProvenIdentity>>,
}

pub(super) struct ScramLookup {
    attempt: Box<ScramAttempt>,
    loaded: Arc<LoadedAccess>,
    user: Box<str>,
    /// The data for an accepted client; `None` before the challenge.
    proven: Option<Vec<u8>>,
}

impl ScramLookup {
    pub(super) fn read(&self) -> (u64, Box<str>) {
        (self.attempt.request.broker.id, self.user.clone())
    }
}

pub(super) fn begin(shared: &AccessContext, mut attempt: Box<ScramAttempt>) -> Option<ScramLookup> {
    let connection = attempt.request.connection;
    let Some(loaded) = attempt.request.broker.access() else {
        send_outcome(shared, connection, Err(Denied::Unread));
        return None;
    };
    let has_users = loaded.access.access().scram;
    let understood = if has_users { understand(&mut attempt) } else { Err(AccessRefusal::NoMethod) };
    match understood {
        Ok((user, proven)) => Some(ScramLookup { attempt, loaded, user, proven }),
        Err(refusal) => {
            send_outcome(shared, connection, Err(refusal.into()));
            None
        }
    }
}

/// The user whose credential is needed, and the data for a valid proof.
fn understand(attempt: &mut ScramAttempt) -> Result<(Box<str>, Option<Vec<u8>>), AccessRefusal> {
    if attempt.enhanced.is_challenged() {
        let ScramAccepted { user, data } = attempt.enhanced.verify_proof(&attempt.data)?;
        return Ok((user, Some(data)));
    }
    let user: Box<str> = attempt.enhanced.begin(&attempt.data)?.into();
    match attempt.request.user.as_deref() {
        // The CONNECT names a user, too.
        Some(named) if !named.is_empty() && *named != *user => Err(AccessRefusal::OtherUser),
        _ => Ok((user, None)),
    }
}

pub(super) fn proceed(
    shared: &AccessContext,
    mut lookup: ScramLookup,
    credential: Result<Option<Credential>, LayerError>,
) {
    let connection = lookup.attempt.request.connection;
    let outcome = match credential {
        Ok(credential) => {
            let now_ms = shared.clock.unix_now_ms();
            match lookup.proven.take() {
                None => challenge(lookup, credential.as_ref(), now_ms),
                Some(data) => decide(&lookup, credential, data.into(), now_ms),
            }
        }
        Err(error) => {
            shared.log_unread(&error, &lookup.attempt.request.broker);
            Err(Denied::Unread)
        }
    };
    send_outcome(shared, connection, outcome);
}

/// The challenge for a user. An unknown or disabled user gets one, too, so that it cannot be told apart.
fn challenge(
    lookup: ScramLookup,
    credential: Option<&Credential>,
    now_ms: u64,
) -> Result<ExchangeStep, Denied> {
    let mut enhanced = lookup.attempt.enhanced;
    let active = credential.filter(|credential| credential.is_active(now_ms));
    let verifier = active.and_then(|credential| credential.scram.as_ref());
    let random = random::bytes().map_err(|_| Denied::Unread)?;
    let data = enhanced.challenge(verifier, &lookup.loaded.fake, &random).map_err(AccessRefusal::from)?;
    Ok(ExchangeStep::Challenged(enhanced, data.into()))
}

fn decide(
    lookup: &ScramLookup,
    credential: Option<Credential>,
    data: Box<[u8]>,
    now_ms: u64,
) -> Result<ExchangeStep, Denied> {
    let access = &lookup.loaded.access;
    let credential = credential.ok_or(AccessRefusal::Password)?;
    if let Some(identity) = &lookup.attempt.identity {
        let grant = access.review(identity, Some(&credential), &lookup.attempt.request.client_id, now_ms)?;
        return Ok(ExchangeStep::Renewed(grant, data));
    }
    let step: AuthenticationStep<'_> = ConnectAuthentication::default().proven_by_scram(
        access,
        &credential,
        lookup.attempt.request.credentials(),
        now_ms,
    );
    let granted = settle(step, &lookup.loaded).unwrap_or(Err(Denied::Unread))?;
    Ok(ExchangeStep::Granted(Box::new(granted), data))
}

pub(super) fn send_outcome(
    shared: &AccessContext,
    connection: ConnectionId,
    outcome: Result<ExchangeStep, Denied>,
) {
    let attempted = Attempted { connection, outcome };
    let mail = Mail::Attempted(Box::new(attempted));
    shared.mailboxes[usize::from(connection.core)].post(mail);
}
