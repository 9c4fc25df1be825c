//! One delivery: its HTTP request, and the meaning of the response.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use millrace_access::model::Webhook;
use millrace_access::webhook::{SIGNATURE_HEADER, SIGNATURE_KEYS_HEADER, sign_with};
use millrace_layers::webhooks::{
    DeliveryFailure, DeliveryOutcome, DeliveryRecord, DeliveryWork, NewDeadLetter,
};
use millrace_outgoing::{Call, CallError, Response};
use serde::Deserialize;

use super::{ANSWER_BYTES_MAX, CALL_MAX, PAUSE_MS, PAUSE_MS_MAX, TRY_MS_MAX};

/// The id of a request's first event; the body has the ids of all.
const ID_HEADER: &str = "millrace-id";

pub(super) fn call<'a>(
    (webhook, tenant): (&'a Webhook, &'a str),
    events: &[Bytes],
    id: &str,
    now_ms: u64,
) -> Call<'a> {
    let (kind, body) = match events {
        [event] if webhook.batch_max <= 1 => ("application/cloudevents+json", event.clone()),
        _ => ("application/cloudevents-batch+json", array(events)),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(ID_HEADER, id);
    }
    let keys = webhook.keys(now_ms);
    let numbers = keys.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(",");
    let signature = sign_with(keys.iter().map(|(_, key)| *key), now_ms / 1_000, &body);
    if !keys.is_empty()
        && let (Ok(signature), Ok(numbers)) =
            (HeaderValue::try_from(signature), HeaderValue::try_from(numbers))
    {
        headers.insert(SIGNATURE_HEADER, signature);
        headers.insert(SIGNATURE_KEYS_HEADER, numbers);
    }
    Call {
        method: Method::POST,
        url: &webhook.url,
        share: tenant,
        headers,
        body,
        timeout: CALL_MAX,
        answer_bytes_max: ANSWER_BYTES_MAX,
    }
}

fn array(events: &[Bytes]) -> Bytes {
    let bytes: usize = events.iter().map(|event| event.len() + 1).sum();
    let mut body = Vec::with_capacity(bytes + 1);
    for event in events {
        body.push(if body.is_empty() { b'[' } else { b',' });
        body.extend_from_slice(event);
    }
    body.push(b']');
    body.into()
}

pub(super) fn outcome(
    work: &DeliveryWork,
    events: &[Bytes],
    answer: &Result<Response, CallError>,
    now_ms: u64,
    random: f64,
) -> DeliveryOutcome {
    let (failure, is_final) = match answer {
        Ok(answer) if answer.status.is_success() => return DeliveryOutcome::Delivered,
        Ok(answer) => (refused(answer.status), is_final(answer.status)),
        Err(error) => (DeliveryFailure { reason: error.to_string(), ..DeliveryFailure::default() }, false),
    };
    let failure = DeliveryFailure { at_ms: now_ms, signed_by: work.signed_by.clone(), ..failure };
    let failing_ms = match work.state.failing_since_ms {
        0 => 0,
        since => now_ms.saturating_sub(since),
    };
    if is_final && work.entries.len() > 1 {
        return DeliveryOutcome::Split(failure);
    }
    if is_final || failing_ms >= TRY_MS_MAX {
        let letters = letters(work, events, &failure);
        return DeliveryOutcome::Dead { failure, letters };
    }
    DeliveryOutcome::Failed { failure, next_attempt_ms: now_ms + pause_ms(work.state.attempts, random) }
}

/// The attempt for the log of the webhook, without its times.
pub(super) fn logged(
    work: &DeliveryWork,
    events: &[Bytes],
    id: &str,
    (answer, outcome): (&Result<Response, CallError>, &DeliveryOutcome),
) -> DeliveryRecord {
    #[derive(Deserialize)]
    struct EventHead {
        #[serde(rename = "type")]
        kind: String,
    }
    let head = events.first().and_then(|event| serde_json::from_slice::<EventHead>(event).ok());
    let failure = match outcome {
        DeliveryOutcome::Delivered => None,
        DeliveryOutcome::Failed { failure, .. }
        | DeliveryOutcome::Split(failure)
        | DeliveryOutcome::Dead { failure, .. } => Some(failure),
    };
    let before = work.letter.as_ref().map_or(work.state.attempts, |letter| letter.attempts);
    DeliveryRecord {
        event: id.to_owned(),
        kind: head.map(|head| head.kind).unwrap_or_default(),
        events: events.len(),
        attempt: before.saturating_add(1),
        status: answer.as_ref().ok().map(|answer| answer.status.as_u16()),
        error: failure.map(|failure| failure.reason.clone()),
        ..DeliveryRecord::default()
    }
}

fn letters(work: &DeliveryWork, events: &[Bytes], failure: &DeliveryFailure) -> Vec<NewDeadLetter> {
    let letter = |(entry, event): (&millrace_layers::streams::StreamEntry, &Bytes)| NewDeadLetter {
        id: entry.position,
        attempts: work.state.attempts + 1,
        failure: Some(failure.clone()),
        event: event.clone(),
    };
    work.entries.iter().zip(events).map(letter).collect()
}

fn refused(status: StatusCode) -> DeliveryFailure {
    let reason = match status.canonical_reason() {
        _ if status.is_redirection() => "redirects are not followed".into(),
        Some(reason) => format!("the answer was {} {reason}", status.as_u16()),
        None => format!("the answer was {}", status.as_u16()),
    };
    DeliveryFailure { status: Some(status.as_u16()), reason, ..DeliveryFailure::default() }
}

/// True when a repetition would be refused, too: the request is wrong, or nobody wants it any more. Other refusals are retried,
/// because the tenant may repair wrong keys and paths.
fn is_final(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::GONE
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}

fn pause_ms(attempts: u32, random: f64) -> u64 {
    let longest = PAUSE_MS.saturating_mul(1 << attempts.min(20)).min(PAUSE_MS_MAX);
    longest / 2 + (longest as f64 / 2.0 * random) as u64
}

#[cfg(test)]
mod tests {
    use millrace_access::model::PreviousKey;
    use millrace_access::webhook::sign;

    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_are_never_the_same_for_all() {
        assert_eq!((pause_ms(0, 0.0), pause_ms(0, 1.0)), (500, 1_000));
        assert_eq!((pause_ms(3, 0.0), pause_ms(3, 1.0)), (4_000, 8_000));
        assert_eq!((pause_ms(99, 0.0), pause_ms(u32::MAX, 1.0)), (1_800_000, 3_600_000));
    }

    #[test]
    fn a_wrong_request_is_final_and_a_wrong_server_is_not() {
        for status in [400, 410, 413, 415, 422] {
            assert!(is_final(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        for status in [301, 401, 403, 404, 408, 429, 500, 502, 503, 504] {
            assert!(!is_final(StatusCode::from_u16(status).unwrap()), "{status}");
        }
    }

    #[test]
    fn several_events_are_an_array() {
        let webhook = Webhook { batch_max: 10, ..Webhook::default() };
        let call = call((&webhook, ""), &["{}".into(), "{\"a\":1}".into()], "id", 5_000);
        assert_eq!(&call.body[..], b"[{},{\"a\":1}]");
        assert_eq!(call.headers[CONTENT_TYPE], "application/cloudevents-batch+json");
        assert!(!call.headers.contains_key(SIGNATURE_HEADER));
        let signed = Webhook { signing_key: Some("key".into()), ..Webhook::default() };
        let call = super::call((&signed, ""), &["{}".into()], "id", 5_000);
        assert_eq!(&call.body[..], b"{}");
        assert_eq!(call.headers[SIGNATURE_HEADER], sign(&"key".into(), 5, b"{}"));
    }

    #[test]
    fn the_previous_key_signs_too_until_its_end() {
        let previous = PreviousKey { signing_key: "old".into(), number: 1, until_ms: 6_000 };
        let webhook = Webhook {
            signing_key: Some("new".into()),
            key_number: 2,
            previous_key: Some(previous),
            ..Webhook::default()
        };
        let signature = |key: &str| sign(&key.into(), 5, b"{}").trim_start_matches("t=5,").to_owned();
        let made = call((&webhook, ""), &["{}".into()], "id", 5_999);
        let both = format!("t=5,{},{}", signature("new"), signature("old"));
        assert_eq!(
            (made.headers[SIGNATURE_HEADER].as_bytes(), &made.headers[SIGNATURE_KEYS_HEADER]),
            (both.as_bytes(), &"2,1".parse().unwrap())
        );
        let made = call((&webhook, ""), &["{}".into()], "id", 6_000);
        assert_eq!(made.headers[SIGNATURE_HEADER], sign(&"new".into(), 6, b"{}"));
        assert_eq!(made.headers[SIGNATURE_KEYS_HEADER], "2");
    }
}
