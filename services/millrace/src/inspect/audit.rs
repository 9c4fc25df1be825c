//! Audit entries of the commands that change a broker's stored data, or show payloads.

use millrace_control::{OnFolder, Operator, note_on_folder};
use millrace_storage::block_on;

use super::open_folder::{AnswerError, OpenFolder};
use super::request::{InspectRequest, SocketCall};
use super::rows::InspectRow;
use crate::clock::now_ms;

/// Sessions or messages that a row is about; an audit entry has the sum over all rows of the answer.
pub(super) fn count(row: &InspectRow) -> u64 {
    match row {
        InspectRow::StreamPurged { messages, .. } => *messages,
        InspectRow::StreamDetails(details) => details.first.len() as u64,
        _ => 1,
    }
}

/// Writes an entry if the request is one that audit logs have. A request may take many transactions, so its entry has a
/// transaction of its own afterwards, and the operator is notified if that one fails.
pub(super) fn note(opened: &OpenFolder, call: &SocketCall, count: u64) -> Result<(), AnswerError> {
    let Some((broker, action, target)) = audited(&call.request) else { return Ok(()) };
    let by = Operator::on_folder(&call.by);
    let done = OnFolder { broker, action, target, count };
    block_on(note_on_folder(&opened.layers, now_ms(), &by, done)).map_err(|error| {
        AnswerError::Failed(format!(
            "it is done, but the audit log of \"{broker}\" has no entry of it: {error}"
        ))
    })
}

/// Broker, action and target of the entry. A new request that changes stored data or shows payloads needs a line here.
fn audited(request: &InspectRequest) -> Option<(&str, &'static str, &str)> {
    Some(match request {
        InspectRequest::PurgeSession { broker, client_id } => (broker, "session.purge", client_id),
        InspectRequest::PurgeExpired { broker } => (broker, "session.purge_expired", broker),
        InspectRequest::PurgeStream { broker, filter } => (broker, "stream.purge", filter),
        InspectRequest::PurgeRetained { broker, filter } => (broker, "retained.clear", filter),
        InspectRequest::ShowRetained { broker, topic } => (broker, "retained.show", topic),
        InspectRequest::ShowStream { broker, filter, .. } => (broker, "stream.show", filter),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use millrace_layers::{accounts, catalog};
    use millrace_storage::Read;
    use serde_json::Value;

    use super::*;
    use crate::inspect::testing::{opened, subscribed};

    const ORGANISATION: &str = "00000000-0000-0000-0000-000000000007";
    const ORGANISATION_BYTES: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

    fn owned(folder: &std::path::Path) -> OpenFolder {
        let opened = opened(folder, None);
        let own = |details| catalog::Details { organisation: Some(ORGANISATION.into()), ..details };
        let described = opened.run(|tx| async move {
            let found = catalog::get(&tx, b"default", Read::Serializable).await?.unwrap();
            let details = own(found.details()?.value);
            catalog::describe(&tx, &found, &details).await
        });
        described.unwrap();
        opened
    }

    fn log(opened: &OpenFolder) -> Vec<Value> {
        let page =
            opened.run(|tx| async move { accounts::audit::page(&tx, &ORGANISATION_BYTES, None, 10).await });
        page.unwrap().0.iter().map(|(_, entry)| serde_json::from_slice(entry).unwrap()).collect()
    }

    fn ask(opened: &OpenFolder, request: InspectRequest) -> Result<Option<String>, AnswerError> {
        opened.answer(&SocketCall { by: "ann".into(), request }, &mut |_| Ok(()))
    }

    #[test]
    fn a_command_on_a_data_folder_is_in_the_audit_log_with_its_user() {
        let folder = tempfile::tempdir().unwrap();
        let opened = owned(folder.path());
        subscribed(&opened.layers, "pump-7", "up/#");
        let (broker, client_id) = ("default".to_owned(), "pump-7".to_owned());
        let show = InspectRequest::ShowSession { broker: broker.clone(), client_id: client_id.clone() };
        ask(&opened, show).unwrap();
        assert_eq!(log(&opened), Vec::<Value>::new());
        let purge = InspectRequest::PurgeSession { broker, client_id };
        ask(&opened, purge.clone()).unwrap();
        let entries = log(&opened);
        assert_eq!(entries.len(), 1, "{entries:?}");
        let entry = &entries[0];
        for (at, expected) in [
            ("/action", "session.purge"),
            ("/target", "pump-7"),
            ("/actor/kind", "operator"),
            ("/actor/name", "ann"),
            ("/actor/agent", "millrace"),
            ("/details/broker", "default"),
        ] {
            assert_eq!(entry.pointer(at).unwrap(), expected, "{entry}");
        }
        // Nothing is done, so there is no entry.
        assert!(ask(&opened, purge).is_err());
        assert_eq!(log(&opened).len(), 1);
    }

    #[test]
    fn a_broker_of_no_organisation_has_no_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let opened = opened(folder.path(), None);
        subscribed(&opened.layers, "pump-7", "up/#");
        let purge = InspectRequest::PurgeSession { broker: "default".into(), client_id: "pump-7".into() };
        ask(&opened, purge).unwrap();
        assert!(log(&opened).is_empty());
    }
}
