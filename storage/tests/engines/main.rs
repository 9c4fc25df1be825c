//! The duties of every engine, tested on each of them. An engine passes all of it or is none.
#![allow(clippy::unwrap_used)]

mod checker;
mod checker_tests;
mod conflicts;
mod history;
mod limits;
mod model;
mod own_writes;
mod ranges;
mod retries;
mod stamps;
mod support;

/// The suite for the engine that `$open` opens: it is given the clock and returns the store with
/// what must live as long.
macro_rules! suite {
    ($engine:ident, $open:path) => {
        mod $engine {
            suite!(@tests $open, limits: keys_and_values_have_limits, a_transaction_has_a_size,
                a_transaction_has_an_age, an_inverted_range_is_refused, the_largest_transaction_commits);
            suite!(@tests $open, own_writes: own_writes_are_seen, own_writes_are_merged_into_ranges,
                a_cleared_range_is_empty_until_written_again, additions_are_seen,
                versionstamped_keys_are_unreadable, nothing_is_seen_by_others_before_the_commit,
                a_dropped_transaction_did_nothing);
            suite!(@tests $open, ranges: pages_go_on_where_they_ended, a_page_is_bounded_in_bytes,
                a_page_has_as_many_keys_as_asked_for,
                ends_and_directions);
            suite!(@tests $open, stamps: stamps_order_commits, user_bytes_order_within_a_commit,
                the_stamp_of_a_commit_is_the_one_in_its_keys, a_clear_is_older_than_an_append,
                an_append_leaves_older_keys_readable, additions_do_not_conflict_and_none_is_lost,
                additions_take_values_of_any_length, a_range_cleared_with_an_append_in_the_same_group);
            suite!(@tests $open, conflicts: a_lost_update_is_refused, a_write_skew_is_refused,
                a_phantom_is_refused, a_cleared_range_conflicts, an_append_conflicts_with_who_read_the_end,
                a_write_outside_the_read_ranges_does_not_conflict, snapshot_reads_do_not_conflict,
                explicit_conflict_ranges_count, a_read_only_transaction_never_conflicts,
                a_read_stays_at_its_version, only_the_pages_that_were_read_conflict,
                a_read_that_a_write_overtakes_conflicts_or_sees_it);
            suite!(@tests $open, retries: a_conflict_is_tried_again, attempts_are_bounded,
                errors_of_the_body_are_not_tried_again, a_future_may_move_between_threads,
                a_callback_hears_the_result,
                a_transaction_commits_once, many_run_at_once_on_one_thread);
            suite!(@tests $open, model: random_operations_do_what_a_map_does);
            suite!(@tests $open, history: random_transactions_are_strictly_serializable);
        }
    };
    (@tests $open:path, $module:ident: $($test:ident),+) => {
        $(#[test]
        fn $test() {
            let host = $crate::support::TestHost::new();
            let (database, _keep) = $open(host.clone());
            $crate::$module::$test(&database, &host);
        })+
    };
}

suite!(memory, crate::support::memory);
suite!(embedded, crate::support::embedded);
#[cfg(feature = "foundationdb")]
suite!(foundationdb, crate::support::foundationdb);
