//! The fast path of QoS 0: consecutive PUBLISH packets of one publisher to one topic, without properties or RETAIN, form a *run*.
//! Their bytes are exactly what a receiver with the same protocol version gets, so the server forwards them unchanged.

use std::ops::Range;
use std::sync::Arc;

use millrace_mqtt::{Frame, PacketType, Publish, QoS, Version};

use crate::core::Core;
use crate::core::connection::NONE;
use crate::core::limits;
use crate::deliveries::Run;
use crate::mailbox::Mail;
use crate::metering::Amount;
use crate::routes::Routes;

/// First byte of a PUBLISH with QoS 0 and without RETAIN.
const PLAIN_PUBLISH: u8 = (PacketType::Publish as u8) << 4;

/// A run being gathered: a range of the read buffer.
pub(in crate::core) struct RunInProgress {
    routes: Arc<Routes>,
    is_v5: bool,
    bytes: Range<usize>,
    amount: Amount,
}

impl RunInProgress {
    /// The sizes of the packet at the start of `bytes` and of its message, if the packet is complete and continues
    /// the run. The topic needs no check, because the run's first packet was checked.
    #[inline]
    pub(in crate::core) fn takes(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        if self.amount.messages >= limits::RUN_MESSAGES_MAX {
            return None;
        }
        let (remaining, head) = match bytes {
            [PLAIN_PUBLISH, a @ 0..=0x7F, ..] => (usize::from(*a), 2),
            [PLAIN_PUBLISH, a, b @ 1..=0x7F, ..] => (usize::from(a & 0x7F) | usize::from(*b) << 7, 3),
            _ => return None,
        };
        let body = bytes.get(head..head + remaining)?;
        let topic = self.routes.topic.as_bytes();
        let (length, rest) = body.split_first_chunk::<2>()?;
        let same = usize::from(u16::from_be_bytes(*length)) == topic.len() && rest.starts_with(topic);
        // 5.0: no properties.
        let plain = !self.is_v5 || rest.get(topic.len()) == Some(&0);
        (same && plain).then_some((head + remaining, rest.len() - usize::from(self.is_v5)))
    }

    #[inline]
    pub(in crate::core) fn add(&mut self, (packet, message): (usize, usize)) {
        self.bytes.end += packet;
        self.amount.add(message);
    }
}

impl Core {
    /// Whether this PUBLISH may be part of a run: it has nothing beside topic and payload, no earlier message of the client must be
    /// committed first, and neither a sampled trace nor the trace of a client needs this packet singly.
    pub(in crate::core) fn may_run(&mut self, slot: u32, framed: &Frame<'_>, publish: &Publish<'_>) -> bool {
        framed.first == PLAIN_PUBLISH
            && framed.has_shortest_length()
            && publish.properties.is_empty()
            && self.connections[slot as usize].session != NONE
            && self.connections[slot as usize].uncommitted == 0
            && !self.is_sample_due()
            && (!self.connections[slot as usize].is_traced() || self.is_trace_full(slot))
    }

    /// Begins a run with the packet at `at`; `None` when the packet was refused or processed by itself.
    pub(in crate::core) fn begin_run(
        &mut self,
        slot: u32,
        publish: &Publish<'_>,
        at: usize,
        size: usize,
    ) -> Option<RunInProgress> {
        self.spend_rules(slot, publish.topic);
        if let Err(refused) = self.may_publish(slot, publish.topic, publish) {
            self.count_received(slot, QoS::AtMostOnce, 1, size);
            tracing::debug!(topic = publish.topic, reason = %refused.0, "PUBLISH refused");
            self.leave_out_of_trace(slot, 1);
            return None;
        }
        let routes = self.routes_of(slot, publish.topic);
        if !routes.stored.webhooks.is_empty() || routes.is_over_limit {
            self.count_received(slot, QoS::AtMostOnce, 1, size);
            self.leave_out_of_trace(slot, 1);
            self.carry_out(slot, publish.topic, publish, &mut None);
            return None;
        }
        if !routes.matched.groups.is_empty() {
            self.count_received(slot, QoS::AtMostOnce, 1, size);
            self.leave_out_of_trace(slot, 1);
            let message = self.message_of(slot, &routes, publish, None);
            self.usage(&routes.broker).received.add(Amount::of(message.size()), 1);
            self.route(&routes, &message, Some(self.id_of(slot)));
            return None;
        }
        let is_v5 = self.connections[slot as usize].protocol.version() == Version::V5;
        let amount = Amount::of(publish.topic.len() + publish.payload.len());
        Some(RunInProgress { routes, is_v5, bytes: at..at + size, amount })
    }

    /// Forwards a run to its receivers, on this loop and on others. A run that costs more than a slice of work pauses its publisher.
    /// Returns false when the delivery has ended the publisher's connection.
    pub(in crate::core) fn finish_run(
        &mut self,
        slot: u32,
        bytes: &[u8],
        run: Option<RunInProgress>,
    ) -> bool {
        let Some(RunInProgress { routes, is_v5, bytes: range, amount }) = run else {
            return self.is_open(slot);
        };
        self.count_received(slot, QoS::AtMostOnce, amount.messages, range.len());
        self.usage(&routes.broker).received.add(amount, 1);
        if self.connections[slot as usize].is_traced() {
            self.leave_out_of_trace(slot, amount.messages);
        }
        let (from, publisher) = (self.id_of(slot), self.publisher_of(slot));
        let bytes = &bytes[range];
        let received_us = self.take_timed();
        let mut mailed: Option<Arc<[u8]>> = None;
        for (core, _) in &routes.cores {
            if *core == self.index {
                self.deliver_run(&routes, bytes, is_v5, amount, (from, publisher), received_us);
                continue;
            }
            let bytes = mailed.get_or_insert_with(|| bytes.into()).clone();
            let routes = routes.clone();
            let run = Run { routes, bytes, is_v5, amount, from: Some(from), publisher, received_us };
            self.note_mailed(&run.routes, *core, from);
            self.post(*core, Mail::Run(Box::new(run)));
            self.pause_for_mailbox(*core, from);
        }
        if let Some(region) = &self.process.region {
            region.publish_run(&routes, bytes, is_v5, amount.messages);
        }
        self.spend_bytes(bytes.len());
        if !self.is_open(slot) {
            return false;
        }
        self.pause_for_memory(from);
        if self.is_share_used() {
            self.pause_for_work(slot);
        }
        true
    }
}
