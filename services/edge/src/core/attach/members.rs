//! Whether a session without a store counts as online in its shared subscriptions, whose messages members that are online get.

use millrace_mqtt::topic::Filter;
use millrace_session::ClientSubscription;

use crate::core::connection::{NONE, Paused};
use crate::core::{Core, work};

fn shared<'s>((text, _): (&'s str, &ClientSubscription)) -> Option<Filter<'s>> {
    Filter::parse(text).filter(|filter| filter.share.is_some())
}

impl Core {
    /// Over several turns if the session has many filters. Its connection is not read meanwhile.
    pub(super) fn come_online(&mut self, slot: u32) {
        self.work.coming_online.insert(slot, 0);
        if !self.come_online_more(slot) && self.connections[slot as usize].paused != Paused::ForWork {
            self.resume_in_turn(slot);
        }
    }

    /// Returns false if a later turn must continue.
    pub(in crate::core) fn come_online_more(&mut self, slot: u32) -> bool {
        let Some(begun) = self.work.coming_online.remove(&slot) else { return true };
        let session = self.connections[slot as usize].session;
        if session == NONE {
            return true;
        }
        let target = self.target_of(session);
        let local = &self.sessions[session as usize];
        let broker = local.broker.clone();
        let (mut next, mut work) = (begun, (begun / work::PASSED_FILTERS) as u64);
        let mut part = Vec::new();
        for subscription in local.session.subscriptions().skip(begun) {
            if work >= work::FILTERS {
                break;
            }
            next += 1;
            match shared(subscription) {
                Some(filter) => {
                    work += work::filter_work(subscription.0.as_bytes());
                    part.push((subscription.0, filter));
                }
                None => work += work::SEEN,
            }
        }
        if !part.is_empty() {
            broker
                .router
                .edit(|edit| part.iter().for_each(|(_, filter)| edit.set_online(*filter, target, true)));
            self.announce_filters(&broker, part.iter().map(|(text, _)| *text));
            self.announce_members(&broker, part.iter().map(|(text, _)| *text));
        }
        let is_over = next == local.session.subscriptions_len();
        self.work.spend(work);
        if !is_over {
            self.work.coming_online.insert(slot, next);
        }
        is_over
    }

    /// In one turn, because the session must get no more messages of its groups.
    pub(super) fn go_offline(&mut self, session: u32) {
        let target = self.target_of(session);
        let local = &self.sessions[session as usize];
        if local.session.subscriptions().filter_map(shared).next().is_none() {
            return;
        }
        local.broker.router.edit(|edit| {
            for filter in local.session.subscriptions().filter_map(shared) {
                edit.set_online(filter, target, false);
            }
        });
        self.announce_members(&local.broker, local.session.subscriptions().map(|(filter, _)| filter));
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::QoS;

    use crate::core::connection::NONE;
    use crate::core::testing::{Loops, SUBACK, subscribe};
    use crate::core::work;

    #[test]
    fn a_session_that_comes_back_is_online_in_many_groups_after_several_turns() {
        const FILTERS: usize = 2_000;
        let mut loops = Loops::start(1, |_| {});
        let mut member = loops.connect_as("member", false);
        let filters: Vec<String> = (0..FILTERS).map(|number| format!("$share/g/t{number}")).collect();
        member.send_all(&subscribe(&filters, QoS::AtMostOnce));
        loops.answer(&mut member, SUBACK);
        drop(member);
        loops.until(|loops| loops.cores[0].sessions.iter().all(|(_, local)| local.connection == NONE));
        let broker = loops.broker();
        let online = || {
            let snapshot = broker.router.snapshot();
            let is_online =
                |number: &usize| snapshot.group("g", &format!("t{number}")).unwrap().online() == 1;
            (0..FILTERS).filter(is_online).count()
        };
        assert_eq!(online(), 0);
        let _member = loops.connect_as("member", false);
        let mut turns = vec![loops.cores[0].work.counted()];
        while online() < FILTERS {
            loops.turn(0);
            turns.push(loops.cores[0].work.counted());
        }
        assert!(turns.iter().sum::<u64>() >= FILTERS as u64 * work::FILTER, "{turns:?}");
        assert!(turns.iter().all(|work| *work < 3 * work::TURN), "{turns:?}");
    }
}
