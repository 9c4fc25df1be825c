//! Checks the will of a client that is gone against bans, its credential, and the files of the settings as they are now.

use std::sync::Arc;

use millrace_access::bans::BanQuery;
use millrace_access::entry::{Method, ProvenIdentity};
use millrace_access::model::Credential;
use millrace_access::rules::ClientIdentity;
use millrace_layers::incidents::StoredIncidentKind;
use millrace_layers::{LayerError, accounts};
use millrace_session::Message;
use millrace_storage::Read;

use super::Applier;
use crate::authenticator::Authenticator;
use crate::broker::Broker;
use crate::encoding::owner;
use crate::incidents::NewIncident;
use crate::store::record;

const BANNED: &str = "its client is banned from this broker, so the will is not published";
const DISABLED: &str = "the credential of its user is disabled or deleted, so the will is not published";
const NOT_ALLOWED: &str = "its client is not allowed to publish the will any more";

pub(in crate::store) struct RefusedWill {
    pub(in crate::store) broker: Arc<Broker>,
    client: Box<str>,
    user: Option<Box<str>>,
    topic: Arc<str>,
    why: &'static str,
}

impl RefusedWill {
    pub(in crate::store) fn note(&self, now_ms: u64) {
        let note = NewIncident::new(StoredIncidentKind::PublishRefused, &self.topic, self.why);
        self.broker.incidents.note(&note.of(&self.client, self.user.as_deref()), 1, now_ms);
    }
}

/// Whether a client has lost the right to its will. `left_by`: the client id, and the owner as the session's record names it. An event
/// loop has checked the will of a connection that it ends.
pub(super) async fn refuse(
    applier: &Applier<'_>,
    broker: &Arc<Broker>,
    left_by: (&[u8], &[u8]),
    body: &[u8],
) -> Result<Option<RefusedWill>, LayerError> {
    let (Ok(client), Some(will)) = (str::from_utf8(left_by.0), record::decode_will(body)) else {
        return Ok(None);
    };
    let client = ClientIdentity { user: owner::user(left_by.1), id: client };
    let why = reason(applier, broker, client, (&will, record::is_will_by_password(body))).await?;
    Ok(why.map(|why| RefusedWill {
        broker: broker.clone(),
        client: client.id.into(),
        user: client.user.map(Into::into),
        topic: will.topic().clone(),
        why,
    }))
}

async fn reason(
    applier: &Applier<'_>,
    broker: &Broker,
    client: ClientIdentity<'_>,
    (will, by_password): (&Message, bool),
) -> Result<Option<&'static str>, LayerError> {
    let suspect = BanQuery { client_id: Some(client.id), user: client.user, address: None };
    let now_ms = applier.shared.clock.unix_now_ms();
    if broker.bans().is_some_and(|bans| bans.is_banned(suspect, now_ms)) {
        return Ok(Some(BANNED));
    }
    let Some(user) = client.user else { return Ok(None) };
    let (topic, retain, qos) = (will.topic(), will.retain(), will.qos());
    let Some(loaded) = broker.access() else {
        let files = applier.shared.authenticator.as_deref().filter(|files| files.checks_passwords());
        let may = |files: &Authenticator| {
            files.hash_of(user).is_some() && files.may_publish(client, topic, retain, qos)
        };
        return Ok(files.is_some_and(|files| !may(files)).then_some(NOT_ALLOWED));
    };
    let credentials = accounts::credentials(broker.id);
    let found = credentials.get::<Credential>(applier.tx, user.as_bytes(), Read::Snapshot).await?;
    let credential = found.map(|document| document.value);
    if credential.as_ref().map_or(by_password, |credential| !credential.enabled) {
        return Ok(Some(DISABLED));
    }
    if !by_password {
        return Ok(None);
    }
    let identity = ProvenIdentity::new(Method::Password, Some(user.into()));
    let permissions = loaded.access.permissions(&identity, credential.as_ref());
    let may = permissions.is_ok_and(|all| all.publish(client, topic, retain, qos).is_ok());
    Ok((!may).then_some(NOT_ALLOWED))
}
