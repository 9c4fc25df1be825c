//! Keeps traces that another pod announced until their messages arrive.

use std::collections::VecDeque;

use millrace_session::Trace;

use super::wire;

/// Most traces that wait for their message; older ones are dropped, because their message was lost.
const COMING_MAX: usize = 64;

#[derive(Clone, Copy)]
pub(super) struct AnnouncedTrace {
    pub(super) trace: Trace,
    pub(super) sent_ns: u64,
}

/// Traces whose message has not arrived yet, by [`wire::check`]. Other messages may arrive between a trace and its
/// message.
#[derive(Default)]
pub(super) struct Coming(VecDeque<(u64, AnnouncedTrace)>);

impl Coming {
    pub(super) fn push(&mut self, check: u64, traced: AnnouncedTrace) {
        if self.0.len() == COMING_MAX {
            self.0.pop_front();
        }
        self.0.push_back((check, traced));
    }

    pub(super) fn take(&mut self, entry: &[u8]) -> Option<AnnouncedTrace> {
        if self.0.is_empty() {
            return None;
        }
        let check = wire::check(entry);
        let at = self.0.iter().position(|(of, _)| *of == check)?;
        self.0.remove(at).map(|(_, traced)| traced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(sent_ns: u64) -> AnnouncedTrace {
        let trace = Trace { trace_id: [1; 16], span_id: [2; 8], parent: None, started_us: 0 };
        AnnouncedTrace { trace, sent_ns }
    }

    #[test]
    fn only_the_message_that_was_announced_is_followed() {
        let mut coming = Coming::default();
        coming.push(wire::check(b"one"), traced(1));
        assert!(coming.take(b"other").is_none(), "of another publisher");
        assert_eq!(coming.take(b"one").map(|traced| traced.sent_ns), Some(1));
        assert!(coming.take(b"one").is_none(), "once");
        for number in 0..2 * COMING_MAX as u64 {
            coming.push(number, traced(number));
        }
        assert_eq!(coming.0.len(), COMING_MAX, "what never comes is forgotten");
    }
}
