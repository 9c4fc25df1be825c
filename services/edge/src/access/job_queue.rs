//! The queue of authentication jobs. Tenants and their brokers take turns, so the slow checks of one do not delay the clients of another.

use std::sync::Arc;

use millrace_access::limits::USER_BYTES_MAX;
use millrace_access::webhook::WebhookAnswer;
use millrace_authentication::{AuthenticationQueue, ClientSource, Pushed, QueueLimits};

use super::service::PendingConnect;
use super::{AuthenticationRequest, Review, ScramAttempt};
use crate::broker::Broker;

/// Queued CONNECTs, and queued reviews of up to 500 clients each; the queue gives one tenant half of them at most. A CONNECT
/// beyond it is refused as "server busy".
const JOBS: QueueLimits = QueueLimits { all_max: 20_000, broker_max: 20_000 };
/// Jobs that a thread takes at once. Their credentials are read together, so on a network store a thread authenticates that many
/// clients in a millisecond or two.
const TAKEN: usize = 64;

pub(super) enum AccessJob {
    Connect(Box<AuthenticationRequest>),
    Attempt(Box<ScramAttempt>),
    Answered(Box<(PendingConnect, WebhookAnswer)>),
    Review(Vec<Review>),
}

impl AccessJob {
    fn request(&self) -> Option<&AuthenticationRequest> {
        match self {
            Self::Connect(request) => Some(request),
            Self::Attempt(attempt) => Some(&attempt.request),
            Self::Answered(answered) => Some(&answered.0.request),
            Self::Review(_) => None,
        }
    }

    fn broker(&self) -> Option<&Arc<Broker>> {
        match (self.request(), self) {
            (Some(request), _) => Some(&request.broker),
            (None, Self::Review(reviews)) => reviews.first().map(|review| &review.broker),
            (None, _) => None,
        }
    }
}

pub(super) struct JobQueue(AuthenticationQueue<AccessJob>);

impl JobQueue {
    pub(super) fn new() -> Self {
        Self(AuthenticationQueue::new(JOBS))
    }

    pub(super) fn push(&self, job: AccessJob) -> Pushed<AccessJob> {
        let (address, user) = job.request().map_or((None, ""), |request| {
            (request.address.map(|address| address.ip()), request.user.as_deref().unwrap_or_default())
        });
        let user: Box<str> = user[..user.floor_char_boundary(USER_BYTES_MAX)].into();
        let (tenant, broker) = job.broker().map_or((Arc::default(), 0), |of| (of.tenant(), of.id));
        self.0.push(&tenant, broker, ClientSource::new(address), &user, job)
    }

    /// Waits for jobs; `None` once the queue is closed.
    pub(super) fn take(&self) -> Option<Vec<AccessJob>> {
        self.0.pop_up_to(TAKEN)
    }

    pub(super) fn close(&self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_id::ConnectionId;

    fn connect(broker: &Arc<Broker>, user: &str) -> AccessJob {
        AccessJob::Connect(Box::new(AuthenticationRequest {
            connection: ConnectionId { core: 0, slot: 0, generation: 0 },
            broker: broker.clone(),
            client_id: "c".into(),
            assigned: false,
            address: None,
            user: Some(user.into()),
            password: None,
            cancellation: millrace_authentication::Cancellation::default(),
            certificate: None,
        }))
    }

    #[test]
    fn a_newcomer_goes_before_a_flooding_broker() {
        let queue = JobQueue::new();
        let [slow, other] = [1, 2].map(|id| Arc::new(Broker::new(id, "b", 1)));
        (0..1_000).for_each(|_| assert!(matches!(queue.push(connect(&slow, "eve")), Pushed::Waits)));
        assert!(matches!(queue.push(connect(&other, "ann")), Pushed::Waits));
        let jobs = queue.take().unwrap();
        let brokers: Vec<u64> = jobs.iter().take(3).map(|job| job.broker().unwrap().id).collect();
        assert_eq!(brokers, [2, 1, 1]);
    }
}
