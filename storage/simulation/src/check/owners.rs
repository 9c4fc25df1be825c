//! Checks P5 of `PROMISES.md` on the history of a simulated run: a session has one owner, and writes
//! of earlier owners have no effect. A new owner finds the session as the last one left it. A tenure is
//! the time of one owner, between its epoch and the next; the tenures from the creation of a session to
//! its end are one life. `Before` is the record that an attach read and replaced, so it shows what the
//! earlier owner has written.

use std::collections::{BTreeMap, BTreeSet};

use millrace_layers::{BrokerId, Position};

use super::Violations;
use crate::history::{Before, Found, PodHistory, Subscribed, Tenure, Write};

/// Session expiry, seconds, that no simulated run reaches.
const LONG_S: u32 = 3_600;

/// The known tenures of each session in order of their epochs, with their attempts.
pub(super) fn in_order(history: &PodHistory) -> BTreeMap<(BrokerId, &str), Vec<(u64, &Tenure)>> {
    let mut sessions: BTreeMap<(BrokerId, &str), Vec<(u64, &Tenure)>> = BTreeMap::new();
    for (attempt, tenure) in history.tenures.iter().filter(|(_, tenure)| tenure.found.is_some()) {
        sessions.entry((tenure.broker, &tenure.client)).or_default().push((*attempt, tenure));
    }
    for tenures in sessions.values_mut() {
        tenures.sort_by_key(|(_, tenure)| tenure.found.as_ref().map(|found| found.epoch));
    }
    sessions
}

pub(super) fn check(history: &PodHistory) -> Violations {
    let mut violations = Vec::new();
    for ((_, client), tenures) in in_order(history) {
        for pair in tenures.windows(2) {
            let ((attempt, earlier), (_, later)) = (pair[0], pair[1]);
            let (Some(was), Some(is)) = (&earlier.found, &later.found) else { continue };
            if was.epoch >= is.epoch || was.stamp >= is.stamp {
                violations.push(format!("epochs: {client} has {} after {}", is.epoch, was.epoch));
            }
            let wrong = follows(history, (attempt, earlier, was), (later, is));
            violations.extend(wrong.map(|what| format!("owners: {client}, epoch {}: {what}", is.epoch)));
        }
    }
    violations
}

/// Returns what is wrong with a tenure that found the session right after another one, if anything
/// is.
fn follows(
    history: &PodHistory,
    (attempt, earlier, was): (u64, &Tenure, &Found),
    (later, is): (&Tenure, &Found),
) -> Option<String> {
    let goes_on = is.before.as_ref().is_some_and(|before| !later.clean && !before.is_expired(is.now_ms));
    if goes_on != is.present {
        return Some(format!("present is {}, not {goes_on}", is.present));
    }
    let Some(before) = &is.before else {
        return lost(history, earlier, was, is).then(|| "the session was lost".into());
    };
    let expected = if is.present { before.cursor } else { Position::MIN };
    if is.cursor != expected || (!is.present && !is.subscriptions.is_empty()) {
        return Some(format!("it begins at {:?} with {:?}", is.cursor, is.subscriptions));
    }
    if before.attempt == attempt && before.epoch != was.epoch {
        return Some(format!("the epoch was {} and not {}", before.epoch, was.epoch));
    }
    if before.attempt != attempt && !is_in_doubt(history, before, later) {
        return Some(format!("attempt {} came after {attempt} and was overwritten", before.attempt));
    }
    if before.life != was.life {
        let is_new = before.cursor == Position::MIN && (!is.present || is.subscriptions.is_empty());
        return (!is_new).then(|| "a new session has an old cursor or subscriptions".into());
    }
    cursor(earlier, was, before).or_else(|| subscriptions(earlier, is))
}

fn is_in_doubt(history: &PodHistory, before: &Before, later: &Tenure) -> bool {
    let found = history.tenures.get(&before.attempt);
    found.is_some_and(|t| t.found.is_none() && (t.broker, &t.client) == (later.broker, &later.client))
}

/// Whether a session disappeared without a reason.
fn lost(history: &PodHistory, earlier: &Tenure, was: &Found, is: &Found) -> bool {
    let expired = earlier.expiry_s == 0 || was.now_ms + u64::from(earlier.expiry_s) * 1_000 <= is.now_ms;
    !(earlier.ends || expired || may_have_ended(history, earlier))
}

/// Whether a connection with an unknown result may have ended the session.
pub(super) fn may_have_ended(history: &PodHistory, of: &Tenure) -> bool {
    let of_session = |t: &&Tenure| (t.broker, &t.client) == (of.broker, &of.client);
    let in_doubt = history.tenures.values().filter(of_session).filter(|tenure| tenure.found.is_none());
    in_doubt.into_iter().any(|tenure| tenure.ends || tenure.expiry_s < LONG_S)
}

/// The cursor is the last one that the owner wrote, or one whose write has no answer.
fn cursor(earlier: &Tenure, was: &Found, before: &Before) -> Option<String> {
    let acknowledged = earlier.cursors.iter().rposition(|(_, write)| *write == Write::Done);
    let mut allowed: BTreeSet<Position> = BTreeSet::new();
    allowed.extend(acknowledged.is_none().then_some(was.cursor));
    let last = &earlier.cursors[acknowledged.unwrap_or(0)..];
    allowed.extend(last.iter().filter(|(_, write)| *write != Write::Refused).map(|(cursor, _)| *cursor));
    let is_allowed = allowed.contains(&before.cursor);
    (!is_allowed).then(|| format!("the cursor was {:?}, not one of {allowed:?}", before.cursor))
}

/// The subscriptions are unchanged, except those whose change has no answer.
fn subscriptions(earlier: &Tenure, is: &Found) -> Option<String> {
    if !is.present {
        return None;
    }
    let is_sure = |subscribed: &&Subscribed| !earlier.doubtful.contains(&subscribed.filter);
    let expected: BTreeSet<&Subscribed> = earlier.subscriptions.values().filter(is_sure).collect();
    let found: BTreeSet<&Subscribed> = is.subscriptions.iter().filter(is_sure).collect();
    (expected != found).then(|| format!("the subscriptions were {expected:?} and are {found:?}"))
}
