use super::*;
use crate::test_client::message;

fn held(message: &Arc<Message>, budget: &Arc<Budget>) -> Option<Hold> {
    Hold::new(message, budget, SPARED_MESSAGES_MAX, 0)
}

#[test]
fn a_message_counts_once_however_many_sessions_hold_it() {
    let all = Arc::new(Budget::new(u64::MAX, None));
    let budget = Arc::new(Budget::new(u64::MAX, Some(all.clone())));
    let message = message("a", 1, &[], &"x".repeat(1_000), 0);
    let mut holds: Vec<_> = (0..10).map(|_| held(&message, &budget)).collect();
    let bytes = 1_001 + MESSAGE_BYTES;
    assert_eq!(
        (budget.used(), all.used()),
        (bytes + 10 * Budget::HOLDER_BYTES, bytes + 10 * Budget::HOLDER_BYTES)
    );
    holds.truncate(1);
    assert_eq!(budget.used(), bytes + Budget::HOLDER_BYTES);
    holds.clear();
    assert_eq!((budget.used(), all.used()), (0, 0));
    // It may be held again.
    let again = held(&message, &budget);
    assert_eq!(budget.used(), bytes + Budget::HOLDER_BYTES);
    drop(again);
    assert_eq!(budget.used(), 0);
}

#[test]
fn beyond_the_limit_only_a_session_that_holds_little_may_hold_more() {
    let all = Arc::new(Budget::new(20_000, None));
    let budget = Arc::new(Budget::new(10_000, Some(all.clone())));
    let small = |_| message("a", 1, &[], &"x".repeat(1_000), 0);
    let messages: Vec<_> = (0..100).map(small).collect();
    let hoarded: Vec<_> = messages.iter().map_while(|message| held(message, &budget)).collect();
    assert_eq!(hoarded.len(), 8, "{budget:?}");
    assert!(held(&messages[50], &budget).is_none());
    let spared = Hold::new(&messages[50], &budget, SPARED_MESSAGES_MAX - 1, 0);
    assert!(spared.is_some(), "{budget:?}");
    let large = message("a", 1, &[], &"x".repeat(5_000), 0);
    assert!(Hold::new(&large, &budget, 0, 0).is_none(), "a large message");
    // The limit of the process spares nobody.
    let others: Vec<_> = messages.iter().map_while(|message| Hold::new(message, &budget, 0, 0)).collect();
    assert!(all.used() <= 20_000 && others.len() < 100, "{all:?}");
    drop((hoarded, spared, others));
    assert_eq!((budget.used(), all.used()), (0, 0));
}

#[test]
fn the_identifiers_of_a_holder_count() {
    let budget = Arc::new(Budget::new(100_000, None));
    let message = message("a", 1, &[], "x", 0);
    let holds: Vec<_> =
        (0..100).map_while(|_| Hold::new(&message, &budget, SPARED_MESSAGES_MAX, 1_000)).collect();
    assert_eq!(holds.len(), 24, "{budget:?}");
    drop(holds);
    assert_eq!(budget.used(), 0);
}
