use std::sync::Arc;

use millrace_router::Target;

use crate::core::testing::Loops;
use crate::jobs::PendingSubscribe;
use crate::mailbox::Mail;
use crate::quota::Limit;
use crate::routes::RouteProgress;

/// Only its own loop gives a connection its id and looks it up, so the order in which threads meet shows as the order of mail.
#[test]
fn mail_for_a_connection_that_has_gone_does_not_reach_the_next_one_in_its_slot() {
    let mut loops = Loops::start(1, |_| {});
    let first = loops.connect_as("first", true);
    let gone = loops.cores[0].id_of(loops.session(0, &first).connection);
    drop(first);
    loops.until(|loops| loops.cores[0].process.open_connections() == 0);
    let mut next = loops.connect_as("next", true);
    let id = loops.cores[0].id_of(loops.session(0, &next).connection);
    assert_eq!((id.core, id.slot), (gone.core, gone.slot));
    assert_ne!(id, gone);
    let of = || (loops.broker(), Arc::from("first"));
    let progress = RouteProgress::of_one(Target { core: 0, slot: 0, generation: 0 }, 1);
    let late = [
        Mail::Congested { publisher: gone, progress },
        Mail::Relieved(gone),
        Mail::Fanout { id: gone, has_begun: true },
        Mail::SendAgain(gone),
        Mail::Attached(gone, of(), None),
        Mail::OfAnotherUser(gone, of()),
        Mail::OverLimit(gone, of(), Limit::BrokerSessions),
        Mail::Suback(gone, Box::new(PendingSubscribe::new(None))),
        Mail::Left(gone),
    ];
    for mail in late {
        loops.cores[0].post(0, mail);
        loops.until(|loops| loops.cores[0].mail.is_sent());
        loops.turn(0);
        assert!(loops.connection(0, &next).is_reading());
        next.send(0xC0, b"");
        assert_eq!(loops.answer(&mut next, 0xD0), b"");
    }
}
