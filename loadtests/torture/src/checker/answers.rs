//! Rule: every request gets its answer in the end.
//!
//! At the end all clients are connected, and resend until they have their answers. So a message
//! without an answer is stuck in the server.

use super::facts::Facts;
use super::verdict::{CheckRule, Verdict};
use crate::history::MessageKind;

pub(crate) fn check(facts: &Facts<'_>, verdict: &mut Verdict) {
    for (message, publish) in facts.history.messages.iter().zip(&facts.publishes) {
        if matches!(message.kind, MessageKind::Will { .. }) {
            continue;
        }
        verdict.counts.retransmitted += publish.sends.saturating_sub(1);
        let counts = &mut verdict.counts;
        match (publish.acknowledged, publish.refused, publish.last_sent) {
            (Some(_), ..) if message.qos == 1 => counts.acknowledged_qos1 += 1,
            (Some(_), ..) => counts.acknowledged_qos2 += 1,
            (None, Some(refused), _) => {
                let what = facts.history.name(message.id);
                verdict.report(CheckRule::Refused, what, vec![refused]);
            }
            (None, None, Some(sent)) => {
                let what = facts.history.name(message.id);
                verdict.report(CheckRule::Unanswered, what, vec![sent]);
            }
            (None, None, None) => {}
        }
    }
    for (client, session) in facts.persistent() {
        let last_of = |filter: &str| session.spans.iter().rev().find(|span| span.filter == filter);
        for span in &session.spans {
            let is_last = last_of(&span.filter).is_some_and(|last| last.sent == span.sent);
            let open = match (span.unsubscribe_sent, span.unsubscribed) {
                (None, _) => span.acknowledged.is_none(),
                (Some(_), answer) => answer.is_none(),
            };
            if is_last && open {
                let name = &facts.history.who(client).name;
                let what = format!("subscription of {name} to {}", span.filter);
                verdict.report(CheckRule::Unanswered, what, vec![span.unsubscribe_sent.unwrap_or(span.sent)]);
            }
        }
    }
}
