//! Sends this pod's members of shared subscriptions to other pods, in pages.

use std::ops::Bound::{Excluded, Unbounded};

use millrace_fabric::PodId;

use super::PodNetwork;
use super::members::{GroupKey, Members, way};
use super::wire::PodNotice;

/// Groups that are sent under one lock.
pub(super) const PAGE: usize = 500;

/// Bytes of names after which a broker's members wait for the next second; the last page may exceed it.
const BYTES_PER_SECOND: usize = 1 << 20;

enum SentPage {
    /// Bytes of names; more follow.
    Sent(usize),
    Dropped,
    Last,
}

/// How far sending a broker's members to a pod has come; it continues a second later.
#[derive(Default)]
pub(super) struct Sending {
    last: Option<GroupKey>,
    /// They were requested again meanwhile, so all are sent again after the last.
    again: bool,
}

impl PodNetwork {
    pub(super) fn send_members(&self, broker: u64, pod: PodId) {
        self.members().asked.insert((broker, pod));
    }

    pub(super) fn send_asked_members(&self) {
        let begun = self.members().begin_asked();
        begun.into_iter().for_each(|key| self.go_on_sending(key, Sending::default()));
    }

    pub(super) fn resume_sending_members(&self) {
        let sending = std::mem::take(&mut self.members().sending);
        sending.into_iter().for_each(|(key, sending)| self.go_on_sending(key, sending));
    }

    fn go_on_sending(&self, key: (u64, PodId), mut sending: Sending) {
        let Some(fabric) = self.fabric.get() else { return };
        let (mut bytes, to) = (0, way(key.0, key.1));
        while bytes < BYTES_PER_SECOND {
            let is_sent = |notice: PodNotice<'_>| notice.try_send(fabric, to);
            let page = self.members().send_page(key.0, &mut sending, is_sent);
            match page {
                SentPage::Sent(more) => bytes += more,
                SentPage::Dropped => break,
                SentPage::Last if sending.again => return self.send_members(key.0, key.1),
                SentPage::Last => return,
            }
        }
        self.members().sending.insert(key, sending);
    }
}

impl Members {
    /// The next groups with members on this pod after `last`, and how many members.
    fn own_page(&self, of: u64, last: Option<&GroupKey>) -> Vec<(&GroupKey, &u16)> {
        let Some(of) = self.brokers.get(&of) else { return Vec::new() };
        let after = last.map_or(Unbounded, Excluded);
        of.own.range((after, Unbounded)).take(PAGE).collect()
    }

    fn begin_asked(&mut self) -> Vec<(u64, PodId)> {
        let Self { asked, sending, .. } = self;
        let is_new = |key: &(u64, PodId)| match sending.get_mut(key) {
            Some(sending) => {
                sending.again = true;
                false
            }
            None => true,
        };
        asked.drain().filter(is_new).collect()
    }

    fn send_page(
        &self,
        broker: u64,
        sending: &mut Sending,
        mut is_sent: impl FnMut(PodNotice<'_>) -> bool,
    ) -> SentPage {
        if sending.last.is_none() && !is_sent(PodNotice::AllMembers { broker }) {
            return SentPage::Dropped;
        }
        let (mut bytes, page) = (0, self.own_page(broker, sending.last.as_ref()));
        for (group @ (name, filter), count) in &page {
            if !is_sent(PodNotice::Members { broker, count: **count, name, filter }) {
                return SentPage::Dropped;
            }
            bytes += name.len() + filter.len();
            sending.last = Some((*group).clone());
        }
        if page.len() == PAGE { SentPage::Sent(bytes) } else { SentPage::Last }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn own_members_are_sent_in_pages() {
        let mut members = Members::default();
        let groups = 2 * PAGE + 1;
        (0..groups).for_each(|number| assert!(members.set_own(5, "g", &number.to_string(), 1)));
        let (mut sent, mut last) = (HashSet::new(), None);
        let pages = [(); 3].map(|()| {
            let page = members.own_page(5, last.as_ref());
            sent.extend(page.iter().map(|(group, _)| (*group).clone()));
            last = page.last().map(|(group, _)| (*group).clone());
            page.len()
        });
        assert_eq!((pages, sent.len()), ([PAGE, PAGE, 1], groups));
    }

    #[test]
    fn members_that_the_fabric_drops_are_sent_later_from_there_on() {
        let mut members = Members::default();
        let groups = 2 * PAGE + 1;
        (0..groups).for_each(|number| assert!(members.set_own(5, "g", &number.to_string(), 1)));
        let (mut sending, mut begun, mut sent) = (Sending::default(), 0, HashSet::new());
        for _ in 0..30 {
            let mut room = 100;
            let page = members.send_page(5, &mut sending, |notice| {
                let has_room = room > 0;
                room -= i32::from(has_room);
                match notice {
                    PodNotice::Members { filter, .. } if has_room => assert!(sent.insert(filter.to_owned())),
                    PodNotice::AllMembers { .. } => begun += 1,
                    _ => {}
                }
                has_room
            });
            if matches!(page, SentPage::Last) {
                break;
            }
        }
        assert_eq!((begun, sent.len()), (1, groups));
    }

    #[test]
    fn any_number_of_requests_for_members_causes_one_more_answer() {
        let mut members = Members::default();
        let key = (5, PodId(1));
        members.asked.insert(key);
        assert_eq!(members.begin_asked(), [key]);
        members.sending.insert(key, Sending::default());
        members.asked.insert(key);
        assert!(members.begin_asked().is_empty() && members.sending[&key].again);
    }
}
