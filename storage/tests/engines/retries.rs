//! `Database::run`, and the ways to receive the result of a commit.

use std::{
    future::{Future, poll_fn},
    sync::{Arc, atomic::Ordering, mpsc::sync_channel},
    task::Poll,
    thread,
};

use millrace_storage::{Database, StoreError, TransactionFailure, block_on};

use crate::support::{TestHost, begin, get, number, set};

pub(crate) fn a_conflict_is_tried_again(database: &Database, host: &Arc<TestHost>) {
    let mut attempts = Vec::new();
    let result = block_on(database.run(|transaction, attempt| {
        attempts.push((attempt.number, attempt.maybe_committed));
        async move {
            let seen = transaction.get("a", Default::default()).await?;
            if attempt.number < 3 {
                set(database, &[("a", "changed")]);
            }
            transaction.set("b", "1")?;
            Ok::<_, StoreError>(seen)
        }
    }));
    assert_eq!(result.unwrap().unwrap(), "changed");
    assert_eq!(attempts, [(1, false), (2, false), (3, false)]);
    assert_eq!(host.pauses.load(Ordering::Relaxed), 2);
}

pub(crate) fn attempts_are_bounded(database: &Database, host: &Arc<TestHost>) {
    let result = block_on(database.run(|transaction, _| async move {
        transaction.get("a", Default::default()).await?;
        set(database, &[("a", "1")]);
        transaction.set("b", "1")
    }));
    assert_eq!(result, Err(StoreError::Conflict));
    assert_eq!(host.pauses.load(Ordering::Relaxed), 49);
}

#[derive(Debug, PartialEq)]
enum Refusal {
    Store(StoreError),
    Own,
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl TransactionFailure for Refusal {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Own => None,
        }
    }
}

pub(crate) fn errors_of_the_body_are_not_tried_again(database: &Database, host: &Arc<TestHost>) {
    let own = block_on(database.run(|transaction, _| async move {
        transaction.set("a", "1")?;
        Err::<(), _>(Refusal::Own)
    }));
    assert_eq!(own, Err(Refusal::Own));
    let limit = block_on(database.run(|transaction, _| async move {
        transaction.set("", "1")?;
        Ok::<_, Refusal>(())
    }));
    assert_eq!(limit, Err(Refusal::Store(StoreError::KeyNotAllowed(0))));
    assert_eq!(get(&begin(database), "a"), None);
    assert_eq!(host.pauses.load(Ordering::Relaxed), 0);
}

pub(crate) fn a_future_may_move_between_threads(database: &Database, _: &Arc<TestHost>) {
    let database_there = database.clone();
    let key = String::from("a");
    let future = async move {
        let run = database_there.run(|transaction, _| {
            let key = &key;
            async move {
                let seen = transaction.get(key, Default::default()).await?;
                transaction.set(key, "1")?;
                Ok::<_, StoreError>(seen)
            }
        });
        run.await
    };
    assert_eq!(thread::spawn(move || block_on(future)).join().unwrap(), Ok(None));
    assert_eq!(get(&begin(database), "a").unwrap(), "1");
}

pub(crate) fn a_callback_hears_the_result(database: &Database, _: &Arc<TestHost>) {
    let (sender, mailbox) = sync_channel(1);
    let transaction = begin(database);
    transaction.set("a", "1").unwrap();
    transaction.commit_then(move |result| sender.send(result).unwrap());
    assert!(mailbox.recv().unwrap().unwrap().versionstamp.is_some());
    assert_eq!(get(&begin(database), "a").unwrap(), "1");
}

pub(crate) fn a_transaction_commits_once(database: &Database, _: &Arc<TestHost>) {
    let transaction = begin(database);
    transaction.set("a", "1").unwrap();
    let clone = transaction.clone();
    crate::support::commit(transaction).unwrap();
    assert_eq!(clone.set("a", "2"), Err(StoreError::Used));
    assert_eq!(block_on(clone.get("a", Default::default())), Err(StoreError::Used));
    assert_eq!(crate::support::commit(clone), Err(StoreError::Used));
}

pub(crate) fn many_run_at_once_on_one_thread(database: &Database, _: &Arc<TestHost>) {
    let run = |number: usize| {
        database.run(move |transaction, _| async move {
            let key = format!("k{number:03}");
            let seen = transaction.get(&key, Default::default()).await?;
            transaction.set(&key, "1")?;
            transaction.atomic_add("n", 1)?;
            Ok::<_, StoreError>(seen)
        })
    };
    let mut left: Vec<_> = (0..500).map(|number| Box::pin(run(number))).collect();
    block_on(poll_fn(|context| {
        left.retain_mut(|run| match run.as_mut().poll(context) {
            Poll::Ready(seen) => {
                assert_eq!(seen, Ok(None));
                false
            }
            Poll::Pending => true,
        });
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
    assert_eq!(number(get(&begin(database), "n")), 500);
}
