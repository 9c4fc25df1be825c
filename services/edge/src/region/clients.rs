//! Requests for connected clients to all other pods: one notice to all of them, one answer from each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_fabric::{PodId, To};
use serde::{Deserialize, Serialize};

use super::PodNetwork;
use super::wire::PodNotice;
use crate::client_traces::{EventCount, ForPod, TraceReport};
use crate::clients::{ClientsAnswer, PodAnswer, Question};
use crate::mailbox;

const INQUIRIES_MAX: usize = 1_000;

pub(crate) type AnswerSink = Arc<dyn Fn(PodAnswer) + Send + Sync>;

#[derive(Default)]
pub(super) struct Inquiries {
    last: AtomicU64,
    open: Mutex<HashMap<u64, AnswerSink>>,
}

impl Inquiries {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, AnswerSink>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Serialize, Deserialize)]
struct PodReport {
    #[serde(flatten)]
    report: TraceReport,
    count: Option<EventCount>,
}

impl PodNetwork {
    /// Sends a request to all other pods and calls `on_answer` for each answer. Returns the request's number for
    /// [`PodNetwork::forget_inquiry`]; `None`: the request cannot be sent.
    pub(crate) fn ask_clients(&self, broker: u64, question: &Question, on_answer: AnswerSink) -> Option<u64> {
        let fabric = self.fabric.get()?;
        let question = serde_json::to_vec(question).ok()?;
        let number = self.inquiries.last.fetch_add(1, Ordering::Relaxed);
        {
            let mut open = self.inquiries.lock();
            if open.len() >= INQUIRIES_MAX {
                return None;
            }
            open.insert(number, on_answer);
        }
        PodNotice::AskClients { number, broker, question: &question }.send(fabric, To::Pods);
        Some(number)
    }

    pub(crate) fn forget_inquiry(&self, number: u64) {
        self.inquiries.lock().remove(&number);
    }

    pub(super) fn asked_for_clients(&self, pod: PodId, number: u64, broker: u64, question: &[u8]) {
        // The request is of another version: the asking pod reports that this pod did not answer.
        let Ok(question) = serde_json::from_slice::<Question>(question) else { return };
        match &question {
            Question::Trace { client_id, number: trace } => {
                match self.begin_trace((pod, *trace), broker, client_id) {
                    ForPod::Begun => {}
                    // The asking pod only prolongs its trace, and waits for no answer.
                    ForPod::Renewed => return,
                    ForPod::TooMany => return self.answer(pod, number, None),
                }
            }
            Question::EndTrace(trace) => return self.brokers.traces.end(Some(pod), *trace),
            _ => {}
        }
        let Some(broker) = self.brokers.by_id(broker) else {
            return self.answer(pod, number, Some(&ClientsAnswer::default()));
        };
        let me = self.me.clone();
        let done = move |answer: Option<ClientsAnswer>| {
            if let Some(region) = me.upgrade() {
                region.answer(pod, number, answer.as_ref());
            }
        };
        mailbox::ask_clients(&self.mailboxes, broker, question, Box::new(done));
    }

    fn begin_trace(&self, (pod, number): (PodId, u64), broker: u64, client_id: &str) -> ForPod {
        let me = self.me.clone();
        let (since_ms, events) = (self.clock.unix_now_ms(), AtomicU64::new(0));
        let sink = move |report: TraceReport| {
            let Some(region) = me.upgrade() else { return };
            let more = report.left_out + u64::from(report.event.is_some());
            let events = events.fetch_add(more, Ordering::Relaxed) + more;
            let report = PodReport { report, count: Some(EventCount { since_ms, events }) };
            let (Some(fabric), Ok(report)) = (region.fabric.get(), serde_json::to_vec(&report)) else {
                return;
            };
            PodNotice::ClientTrace { number, report: &report }.send(fabric, To::Pod(pod));
        };
        let now_ms = self.clock.unix_now_ms();
        self.brokers.traces.begin_for_pod((pod, number), (broker, client_id), now_ms, Box::new(sink))
    }

    pub(super) fn receive_trace_report(&self, pod: PodId, number: u64, report: &[u8]) {
        if let Ok(PodReport { report, count }) = serde_json::from_slice(report) {
            self.brokers.traces.said(pod, number, report, count);
        }
    }

    pub(crate) fn end_trace(&self, number: u64) {
        let Ok(question) = serde_json::to_vec(&Question::EndTrace(number)) else { return };
        if let Some(fabric) = self.fabric.get() {
            // The pods do not answer.
            PodNotice::AskClients { number: 0, broker: 0, question: &question }.send(fabric, To::Pods);
        }
    }

    fn answer(&self, pod: PodId, number: u64, answer: Option<&ClientsAnswer>) {
        let answer = answer.and_then(|answer| serde_json::to_vec(answer).ok()).unwrap_or_default();
        if let Some(fabric) = self.fabric.get() {
            PodNotice::Clients { number, answer: &answer }.send(fabric, To::Pod(pod));
        }
    }

    pub(super) fn receive_clients(&self, pod: PodId, number: u64, answer: &[u8]) {
        let Some(on_answer) = self.inquiries.lock().get(&number).cloned() else { return };
        let pod = self.members().name_of(pod).unwrap_or_else(|| pod.to_string().into());
        on_answer(PodAnswer { pod: Some(pod), answer: serde_json::from_slice(answer).ok() });
    }
}
