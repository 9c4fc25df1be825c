use std::sync::Arc;

use millrace_layers::streams;

use super::*;
use crate::inspect::request::InspectRequest;
use crate::inspect::testing::{Asked, append, call, opened, rows, subscribed};

#[test]
fn lists_are_cut_at_their_limit_and_go_on_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(folder.path(), None);
    for number in 0..PAGE + 5 {
        subscribed(&opened.layers, &format!("c{number:03}"), &format!("f{number:03}"));
    }
    for (limit, lists) in [(1_000, 1), (PAGE + 5, 1), (PAGE, 2), (50, 3)] {
        for streams in [false, true] {
            let (mut found, mut counted, mut after) = (Vec::new(), 0, None::<String>);
            loop {
                let broker = "default".into();
                let request = if streams {
                    let after = after.map(|after| after.parse().unwrap());
                    InspectRequest::ListStreams { broker, after, limit }
                } else {
                    InspectRequest::ListSessions { broker, after, limit }
                };
                after = opened
                    .answer(&call(&request), &mut |row| {
                        match row {
                            InspectRow::Session(session) => found.push(session.client_id),
                            InspectRow::Stream(stream) => found.push(stream.filter),
                            other => panic!("{other:?}"),
                        }
                        Ok(())
                    })
                    .unwrap();
                counted += 1;
                if after.is_none() {
                    break;
                }
            }
            found.sort();
            found.dedup();
            assert_eq!((found.len(), counted), (PAGE + 5, lists), "{limit} {streams}");
        }
    }
}

#[test]
fn what_waits_is_counted_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let opened = opened(folder.path(), None);
    let stream = subscribed(&opened.layers, "c", "a");
    let body = Bytes::from_static(b"12345");
    let (half, all) = (WAITING_MAX as u16 / 2, WAITING_MAX as u16);
    for numbers in [0..=half, half + 1..=all] {
        let appended = opened.run(|tx| {
            let (stream, body, numbers) = ([stream], &body, numbers.clone());
            async move {
                for number in numbers {
                    let publish = streams::NewEntry { number, now_ms: 5, body };
                    streams::append(&tx, 1, &stream, publish)?;
                }
                Ok(())
            }
        });
        appended.unwrap();
    }
    let request = InspectRequest::ShowSession { broker: "default".into(), client_id: "c".into() };
    let [InspectRow::SessionDetails(details)] = &rows(&opened, &request).unwrap()[..] else { panic!() };
    let session = &details.session;
    assert_eq!((session.waiting, session.waiting_is_more), (WAITING_MAX as u64, true));
    assert_eq!((session.waiting_bytes, session.oldest_waiting_at_ms), (5 * WAITING_MAX as u64, Some(5)));
}

#[test]
fn a_running_server_is_asked_to_change_what_it_has_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(Asked::default());
    let opened = opened(folder.path(), Some(asked.clone()));
    let stream = subscribed(&opened.layers, "c", "a");
    append(&opened.layers, &[stream], &Bytes::from_static(b"x"));
    let broker = || "default".to_owned();
    let purged =
        rows(&opened, &InspectRequest::PurgeSession { broker: broker(), client_id: "c".into() }).unwrap();
    assert_eq!(
        purged,
        [InspectRow::SessionPurged(SessionPurged { client_id: "c".into(), will_lost: false })]
    );
    assert_eq!(*asked.0.lock().unwrap(), ["session default c"]);
    // A stream is in the store alone, so the server is not asked.
    let purged =
        rows(&opened, &InspectRequest::PurgeStream { broker: broker(), filter: "a".into() }).unwrap();
    assert_eq!(purged, [InspectRow::StreamPurged { filter: "a".into(), messages: 1, bytes: 1 }]);
    assert_eq!(asked.0.lock().unwrap().len(), 1);
    let [InspectRow::SessionDetails(details)] =
        &rows(&opened, &InspectRequest::ShowSession { broker: broker(), client_id: "c".into() }).unwrap()[..]
    else {
        panic!()
    };
    assert_eq!((details.session.waiting, details.missed_at_most), (0, 1));
    assert_eq!(details.session.state, RowState::Connected);
}
