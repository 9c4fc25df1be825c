//! Collects mail for the event loops. The fabric's thread gathers it by core, and wakes each core once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::PodNetwork;
use crate::deliveries::{Run, amount_of_run};
use crate::mailbox::Mail;
use crate::routes::Routes;

/// Mail per core with its bytes, collected while a batch is decoded.
pub(super) struct CoreMail<'r> {
    region: &'r PodNetwork,
    mail: Vec<(Vec<Mail>, usize)>,
}

impl<'r> CoreMail<'r> {
    pub(super) fn new(region: &'r PodNetwork) -> Self {
        Self { region, mail: region.mailboxes.iter().map(|_| (Vec::new(), 0)).collect() }
    }

    pub(super) fn post_run(&mut self, routes: &Arc<Routes>, bytes: &[u8], is_v5: bool) {
        let amount = amount_of_run(&routes.topic, bytes, is_v5);
        let bytes: Arc<[u8]> = bytes.into();
        for (core, _) in &routes.cores {
            let (routes, bytes) = (routes.clone(), bytes.clone());
            let run = Run { routes, bytes, is_v5, amount, from: None, publisher: 0, received_us: 0 };
            self.post(*core, Mail::Run(Box::new(run)));
        }
    }

    /// The fabric's thread cannot wait for a lagging core, so mail over the mailbox's limit is
    /// dropped.
    pub(super) fn post(&mut self, core: u16, mail: Mail) {
        let Some((gathered, bytes)) = self.mail.get_mut(usize::from(core)) else { return };
        let waiting = self.region.mailboxes[usize::from(core)].bytes() + *bytes;
        let is_notice = mail.size() == 0;
        let mail = match mail {
            mail if is_notice || waiting <= self.region.mailbox_bytes_max => mail,
            // The message is in the store: a notice is enough, and sessions read it from there.
            Mail::Committed(committed) => Mail::Grown(committed.routes.clone()),
            _ => {
                self.region.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        *bytes += mail.size();
        gathered.push(mail);
    }

    pub(super) fn deliver(self) {
        for (mailbox, (mut mail, bytes)) in self.region.mailboxes.iter().zip(self.mail) {
            if !mail.is_empty() {
                mailbox.deliver(&mut mail, bytes);
            }
        }
    }
}
