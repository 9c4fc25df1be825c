//! Marks in-memory sessions as online or offline in their shared subscriptions; online members get the messages.

use millrace_mqtt::topic::Filter;
use millrace_session::ClientSubscription;

use crate::core::connection::{NONE, Paused};
use crate::core::{Core, LocalSession, work};

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
        let Some(next) = self.mark_members(session, begun, true) else { return true };
        self.work.coming_online.insert(slot, next);
        false
    }

    /// Over several turns, too. Until then [`Core::pick_member`] passes over it.
    pub(super) fn go_offline(&mut self, session: u32) {
        let target = self.target_of(session);
        let Some(next) = self.mark_members(session, 0, false) else { return };
        if self.work.going_offline.insert(session, (target, next)).is_none() {
            let broker = self.sessions[session as usize].broker.id;
            self.work.leaving.push(broker, session);
        }
    }

    pub(in crate::core) fn go_offline_more(&mut self) {
        let Some((broker, session)) = self.work.leaving.pop() else { return };
        let Some((target, begun)) = self.work.going_offline.remove(&session) else { return };
        let is_away =
            |local: &LocalSession| local.generation == target.generation && local.connection == NONE;
        if self.sessions.get(session as usize).is_some_and(is_away)
            && let Some(next) = self.mark_members(session, begun, false)
        {
            self.work.going_offline.insert(session, (target, next));
            self.work.leaving.push(broker, session);
        }
    }

    /// Marks a session in its shared subscriptions from the one at `begun` on, as far as a turn has budget for. Returns where a
    /// later turn must continue.
    fn mark_members(&mut self, session: u32, begun: usize, online: bool) -> Option<usize> {
        let target = self.target_of(session);
        let local = &self.sessions[session as usize];
        let broker = local.broker.clone();
        let (mut next, mut work) = (begun, (begun / work::PASSED_FILTERS) as u64);
        let mut part = Vec::new();
        for subscription in local.session.subscriptions().skip(begun) {
            if work >= work::FILTERS_WORK_MAX {
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
                .edit(|edit| part.iter().for_each(|(_, filter)| edit.set_online(*filter, target, online)));
            if online {
                self.announce_filters(&broker, part.iter().map(|(text, _)| *text));
            }
            self.announce_members(&broker, part.iter().map(|(text, _)| *text));
        }
        let is_over = next == local.session.subscriptions_len();
        self.work.spend(work);
        (!is_over).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use millrace_mqtt::QoS;

    use crate::core::connection::NONE;
    use crate::core::testing::{Loops, SUBACK, TestClient, publish, subscribe};
    use crate::core::{ConnectionEnd, work};

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
        loops.until(|loops| !loops.cores[0].work.has_removals());
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

    #[test]
    fn a_session_that_leaves_is_offline_in_many_groups_after_several_turns() {
        const FILTERS: usize = 2_000;
        let mut loops = Loops::start(2, |_| {});
        let filters: Vec<String> = (0..FILTERS).map(|number| format!("$share/g/t{number}")).collect();
        let [member, other] = [0, 1].map(|core| loops.id_of(core, "member"));
        let [mut client, mut other] = [&member, &other].map(|id| loops.connect_as(id, false));
        for client in [&mut client, &mut other] {
            client.send_all(&subscribe(&filters, QoS::AtLeastOnce));
            loops.answer(client, SUBACK);
        }
        let broker = loops.broker();
        let online = || -> usize {
            let snapshot = broker.router.snapshot();
            (0..FILTERS).map(|number| snapshot.group("g", &format!("t{number}")).unwrap().online()).sum()
        };
        let leave = |loops: &mut Loops, client: &TestClient| {
            let slot = loops.session(0, client).connection;
            loops.cores[0].work.begin_turn();
            loops.cores[0].end(slot, ConnectionEnd::Kicked, false);
            loops.cores[0].work.counted()
        };
        let mut publishers = [0, 1].map(|core| loops.connect(core, "publisher"));
        leave(&mut loops, &client);
        // The other member gets what is published meanwhile.
        let snapshot = broker.router.snapshot();
        let topics = (0..FILTERS).map(|number| format!("t{number}"));
        let mut still_online = topics.filter(|topic| snapshot.group("g", topic).unwrap().online() == 2);
        let topic = still_online.next().unwrap();
        for publisher in &mut publishers {
            publisher.send_all(&publish(1, &topic, b"x").repeat(4));
        }
        [1, 0].iter().for_each(|core| loops.turn(*core));
        let mut received = 0;
        loops.until(|_| {
            received += std::iter::from_fn(|| other.next()).count();
            received == 8
        });
        assert_eq!(loops.session(0, &client).session.waiting(), 0);
        // It comes back while it is leaving.
        let mut client = loops.connect_as(&member, false);
        loops.until(|_| online() == 2 * FILTERS);
        leave(&mut loops, &client);
        client = loops.connect_as(&member, false);
        loops.until(|loops| loops.cores[0].work.coming_online.is_empty());
        (0..20).for_each(|_| loops.turn(0));
        assert_eq!(online(), 2 * FILTERS);
        let mut turns = vec![leave(&mut loops, &client)];
        while online() > FILTERS {
            loops.turn(0);
            turns.push(loops.cores[0].work.counted());
        }
        assert!(turns.iter().sum::<u64>() >= FILTERS as u64 * work::FILTER, "{turns:?}");
        assert!(turns.iter().all(|work| *work < 3 * work::TURN), "{turns:?}");
    }
}
