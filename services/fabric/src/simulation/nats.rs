//! A simulated NATS of two servers with a route between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use fastrand::Rng;

use crate::address::{PodId, To};
use crate::outbox::Destination;

use super::pod::Pod;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    To(To),
    Control,
    ControlOf(PodId),
}

impl From<Destination> for Subject {
    fn from(destination: Destination) -> Self {
        match destination {
            Destination::To(to) => Self::To(to),
            Destination::Control => Self::Control,
            Destination::ControlOf(pod) => Self::ControlOf(pod),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Up {
    Subscribe(Subject),
    Unsubscribe(Subject),
    Publish { subject: Subject, frame: Bytes, probe: Option<u64> },
}

#[derive(Debug)]
pub(super) enum Down {
    Message { subject: Subject, frame: Bytes },
    NoResponders { to: To, probe: u64 },
}

enum Routed {
    Interest(Subject, bool),
    Message { subject: Subject, frame: Bytes },
}

#[derive(Default)]
struct Server {
    subscriptions: BTreeMap<Subject, BTreeSet<PodId>>,
    /// Subjects that the other server has announced listeners for.
    remote: BTreeSet<Subject>,
    route: VecDeque<Routed>,
}

#[derive(Default)]
pub(super) struct Nats {
    servers: [Server; 2],
    pub(super) down: BTreeMap<PodId, VecDeque<Down>>,
}

impl Nats {
    pub(super) fn drop_client(&mut self, server: usize, pod: PodId) {
        self.down.remove(&pod);
        let subjects: Vec<_> = self.servers[server].subscriptions.keys().copied().collect();
        for subject in subjects {
            self.unsubscribe(server, subject, pod);
        }
    }

    fn unsubscribe(&mut self, server: usize, subject: Subject, pod: PodId) {
        let server = &mut self.servers[server];
        if let Some(pods) = server.subscriptions.get_mut(&subject) {
            pods.remove(&pod);
            if pods.is_empty() {
                server.subscriptions.remove(&subject);
                server.route.push_back(Routed::Interest(subject, false));
            }
        }
    }

    /// The pod's server takes one command of it; false when there is none.
    pub(super) fn serve(&mut self, rng: &mut Rng, pod: &mut Pod) -> bool {
        let Some(up) = pod.wire.pop_front() else { return false };
        match up {
            Up::Subscribe(subject) => {
                let server = &mut self.servers[pod.server];
                if server.subscriptions.entry(subject).or_default().insert(pod.id) {
                    server.route.push_back(Routed::Interest(subject, true));
                }
            }
            Up::Unsubscribe(subject) => self.unsubscribe(pod.server, subject, pod.id),
            Up::Publish { subject, frame, probe } => {
                if !self.publish(rng, pod.server, Some(pod.id), subject, &frame, true)
                    && let (Subject::To(to), Some(probe)) = (subject, probe)
                {
                    self.down.entry(pod.id).or_default().push_back(Down::NoResponders { to, probe });
                }
            }
        }
        true
    }

    pub(super) fn route(&mut self, rng: &mut Rng) -> bool {
        let first = rng.usize(..2);
        for from in [first, 1 - first] {
            let Some(routed) = self.servers[from].route.pop_front() else { continue };
            match routed {
                Routed::Interest(subject, true) => {
                    self.servers[1 - from].remote.insert(subject);
                }
                Routed::Interest(subject, false) => {
                    self.servers[1 - from].remote.remove(&subject);
                }
                Routed::Message { subject, frame } => {
                    self.publish(rng, 1 - from, None, subject, &frame, false);
                }
            }
            return true;
        }
        false
    }

    /// Returns whether a pod gets the message. With `may_route` the other server gets it, too. A
    /// message from the other server goes no further, as in NATS.
    fn publish(
        &mut self,
        rng: &mut Rng,
        server: usize,
        from: Option<PodId>,
        subject: Subject,
        frame: &Bytes,
        may_route: bool,
    ) -> bool {
        let server = &mut self.servers[server];
        let mut pods: Vec<_> = server.subscriptions.get(&subject).into_iter().flatten().copied().collect();
        pods.retain(|pod| Some(*pod) != from);
        pods.sort_unstable();
        let is_remote = may_route && server.remote.contains(&subject);
        let takes_one = matches!(subject, Subject::To(To::Group { .. }));
        if takes_one && !pods.is_empty() {
            pods = vec![pods[rng.usize(..pods.len())]];
        }
        for pod in &pods {
            let message = Down::Message { subject, frame: frame.clone() };
            self.down.entry(*pod).or_default().push_back(message);
        }
        if is_remote && (!takes_one || pods.is_empty()) {
            server.route.push_back(Routed::Message { subject, frame: frame.clone() });
        }
        is_remote || !pods.is_empty()
    }
}
