//! Checks the fabric's promise at the end of a simulated run: of the messages sent to a receiver
//! after its join is complete, each has arrived in order, or a gap was reported. A window is the
//! time of one join; it begins with the request.

use std::collections::HashSet;

use crate::address::{PodId, To};

use super::pod::{Pod, Seen, Stamp};

pub(super) fn all(pods: &[Pod], is_lossless: bool, seed: u64) {
    let mut of_groups = HashSet::new();
    for receiver in pods {
        let seen = receiver.recorder.seen.lock().unwrap();
        for (start, to) in windows(&seen) {
            if !to.is_numbered() {
                continue;
            }
            for sender in pods.iter().filter(|sender| sender.id != receiver.id) {
                let sent = sender.sent.get(&to).map_or(&[][..], Vec::as_slice);
                let checked = window(&seen, start, to, sender.id, sent, is_lossless);
                if let Err(wrong) = checked {
                    let events: Vec<_> =
                        seen[start..].iter().filter(|(_, event)| concerns(event, to, sender.id)).collect();
                    println!("seen {events:#?}\nsent {sent:?}");
                    panic!("{to:?} from {} to {}, FABRIC_SEED={seed}: {wrong}", sender.id, receiver.id);
                }
            }
        }
        for (_, event) in seen.iter() {
            if let Seen::Message { from, to: to @ To::Group { .. }, index } = event {
                assert!(
                    of_groups.insert((*from, *to, *index)),
                    "{to:?} {index} came twice, FABRIC_SEED={seed}"
                );
            }
        }
    }
    assert!(!is_lossless || !of_groups.is_empty(), "nothing came to any group, FABRIC_SEED={seed}");
}

fn concerns(event: &Seen, window: To, sender: PodId) -> bool {
    match *event {
        Seen::Message { from, to, .. } => to == window && from == sender,
        Seen::Gap(gap) => gap.to == window && gap.from.is_none_or(|from| from == sender),
        Seen::JoinRequested(to) | Seen::Left(to) | Seen::Joined { to, .. } => to == window,
        Seen::Came(pod, _) | Seen::Gone(pod) => pod == sender,
        Seen::Connecting | Seen::Connected | Seen::Disconnected => true,
    }
}

fn windows(seen: &[(Stamp, Seen)]) -> Vec<(usize, To)> {
    let asked = seen.iter().enumerate().filter_map(|(place, (_, event))| match event {
        Seen::JoinRequested(to) => Some((place, *to)),
        _ => None,
    });
    asked.collect()
}

/// Checks one join against one sender's messages; `sent` has a stamp for each.
fn window(
    seen: &[(Stamp, Seen)],
    start: usize,
    window: To,
    sender: PodId,
    sent: &[Stamp],
    is_lossless: bool,
) -> Result<(), String> {
    let mut next = 0;
    // Messages sent before the join was complete, which need not arrive.
    let mut before = None;
    let mut reported = 0;
    let mut is_vague = false;
    // Reported only at the end, because the fabric reports doubts late: a later notification can
    // excuse the violation.
    let mut wrong = Ok(());
    // The fabric promises nothing about a pod that it has not reported yet.
    let mut is_there = false;
    for (_, event) in &seen[..start] {
        match *event {
            Seen::Gone(pod) if pod == sender => is_there = false,
            Seen::Came(pod, _) if pod == sender => is_there = true,
            _ => {}
        }
    }
    // After a long outage nothing is promised until all pods have confirmed the join again.
    let (mut is_connecting, mut is_doubtful) = (false, false);
    for (place, (stamp, event)) in (start..).zip(&seen[start..]) {
        let sent_by_now = || sent.iter().take_while(|sent| *sent < stamp).count() as u64;
        match *event {
            Seen::Joined { to, complete } if to == window => {
                if complete {
                    before = Some(sent_by_now());
                }
                (reported, is_vague) = (0, false);
            }
            Seen::Connecting => is_connecting = true,
            Seen::Connected => is_connecting = false,
            Seen::Left(to) if to == window => {
                let doubts = |event: &Seen| matches!(*event, Seen::Gone(pod) | Seen::Came(pod, false) if pod == sender);
                return if seen[place..].iter().any(|(_, event)| doubts(event)) { Ok(()) } else { wrong };
            }
            Seen::Gap(gap) if gap.to == window && gap.from.is_none_or(|from| from == sender) => {
                if is_lossless {
                    return Err(format!("{gap:?} though nothing was lost"));
                }
                match gap.missing {
                    Some(more) => reported += more,
                    None if gap.from.is_none() => {
                        (is_doubtful, is_vague, wrong) = (is_connecting, true, Ok(()));
                        // Earlier messages may arrive or not.
                        before = before.map(|_| sent_by_now());
                    }
                    None => is_vague = true,
                }
            }
            Seen::Gone(pod) if pod == sender => (is_there, is_vague, wrong) = (false, true, Ok(())),
            Seen::Came(pod, is_new) if pod == sender => {
                is_there = true;
                if !is_new {
                    (is_vague, wrong) = (true, Ok(()));
                    before = before.map(|_| sent_by_now());
                }
            }
            Seen::Message { from, to, index } if to == window && from == sender => {
                if index < next {
                    return Err(format!("{index} after {next}"));
                }
                wrong =
                    wrong.and(covered(next, before, index, reported, is_vague || is_doubtful || !is_there));
                (next, reported, is_vague) = (index + 1, 0, false);
            }
            _ => {}
        }
    }
    wrong?;
    if is_doubtful {
        return Err("its doubt never ended".into());
    }
    covered(next, before, sent.len() as u64, reported, is_vague || is_doubtful || !is_there)
        .map_err(|wrong| format!("in the end, {wrong}"))
}

/// Fails when a message up to `index` is missing and was not reported.
fn covered(next: u64, before: Option<u64>, index: u64, reported: u64, is_vague: bool) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    let missing = index.saturating_sub(next.max(before))..=index - next;
    if is_vague || missing.contains(&reported) {
        return Ok(());
    }
    Err(format!("{next} to {index} did not come ({before} sent before), {reported} reported"))
}
