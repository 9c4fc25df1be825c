use bytes::Bytes;
use millrace_storage::{Database, Read, block_on};

use super::*;
use crate::{
    LayerError, Position, Positions,
    due::{self, Due, DueKind, DueRange, SHARDS},
    metering::{self, HeldLevels},
    qos2::{self, Direction},
    subscriptions::{self, StoredOptions},
    testing::{BROKER, attached, database, id, request, rows, run, try_run},
};

const HOW: Detach = Detach { now_ms: 1_000, expiry_s: None, keep_will: KeepWill::Yes };

fn detached(database: &Database, client: &str, epoch: u64, how: Detach) -> Option<Bytes> {
    run(database, async |tx| detach(fence(tx, id(client), epoch).await?, how).await)
}

fn with_will(mut request: Attach, delay_s: u32) -> Attach {
    request.will = Some(PendingWill { delay_s, body: Bytes::from_static(b"gone") });
    request
}

/// Takes and settles all that is due.
fn sweep(database: &Database, now_ms: u64) -> Vec<(Due, Settled)> {
    run(database, async |tx| {
        let mut settled = Vec::new();
        for shard in 0..SHARDS {
            for due in due::take_due(tx, DueRange::until(shard, now_ms), 100).await? {
                let result = settle(tx, &due, now_ms).await?;
                settled.push((due, result));
            }
        }
        Ok(settled)
    })
}

#[test]
fn every_attach_has_a_later_epoch_also_after_the_session_was_gone() {
    let database = database();
    let mut last = 0;
    for round in 0..6 {
        let mut request = request("pod", round);
        request.clean = round == 3;
        let attached = attached(&database, "c", &request);
        assert!(attached.epoch > last, "round {round}");
        last = attached.epoch;
        if round == 4 {
            run(&database, async |tx| end(fence(tx, id("c"), last).await?).await);
            assert!(rows(&database).is_empty());
        }
    }
}

/// Found by the simulation: these writes change rows that an attach reads, but not the row of the session.
#[test]
fn a_takeover_sees_what_the_earlier_owner_is_writing() {
    type Write = fn(&Owned<'_>) -> crate::LayerResult<()>;
    let writes: [(&str, Write); 3] = [
        ("subscribe", |owned| {
            block_on(subscriptions::subscribe(owned, b"b", StoredOptions::default())).map(drop)
        }),
        ("unsubscribe", |owned| block_on(subscriptions::unsubscribe(owned, b"a")).map(drop)),
        ("packet id", |owned| qos2::set(owned, Direction::Inbound, 7, &Bytes::new())),
    ];
    for (name, write) in writes {
        let database = database();
        let old = attached(&database, "c", &request("pod1", 1)).epoch;
        run(&database, async |tx| {
            subscriptions::subscribe(&fence(tx, id("c"), old).await?, b"a", StoredOptions::default()).await
        });
        let takeover = database.begin_unretried();
        block_on(attach(&takeover, id("c"), request("pod2", 2))).unwrap();
        block_on(qos2::list(&takeover, id("c"), Direction::Inbound, Read::Serializable)).unwrap();
        run(&database, async |tx| write(&fence(tx, id("c"), old).await?));
        let failure = block_on(takeover.commit()).unwrap_err();
        assert_eq!(failure, millrace_storage::StoreError::Conflict, "{name}");
    }
}

#[test]
fn who_was_replaced_writes_nothing_any_more() {
    let database = database();
    let old = attached(&database, "c", &request("pod1", 1));
    assert_eq!((old.present, old.replaced), (false, None));
    let new = attached(&database, "c", &request("pod2", 2));
    assert!(new.present);
    assert_eq!(new.replaced, Some((Bytes::from_static(b"pod1"), old.epoch)));
    let before = rows(&database);
    let fenced = Err(LayerError::Fenced { epoch: old.epoch });
    let refused = try_run(&database, async |tx| {
        checkpoint(&fence(tx, id("c"), old.epoch).await?, Position::end_of(5), &Positions::default())
    });
    assert_eq!(refused, fenced);
    let refused =
        try_run(&database, async |tx| detach(fence(tx, id("c"), old.epoch).await?, HOW).await.map(|_| ()));
    assert_eq!(refused, fenced);
    assert_eq!(rows(&database), before);
}

#[test]
fn a_detached_session_is_of_its_last_owner_until_it_is_taken() {
    let database = database();
    let epoch = attached(&database, "c", &request("pod", 1)).epoch;
    detached(&database, "c", epoch, HOW);
    let until_taken = || try_run(&database, async |tx| fence_until_taken(tx, id("c"), epoch).await.map(drop));
    let fenced = Err(LayerError::Fenced { epoch });
    assert_eq!(try_run(&database, async |tx| fence(tx, id("c"), epoch).await.map(drop)), fenced);
    assert_eq!(until_taken(), Ok(()));
    attached(&database, "c", &request("pod", 2));
    assert_eq!(until_taken(), fenced);
}

#[test]
fn a_takeover_between_fence_and_commit_makes_the_old_owner_conflict() {
    let database = database();
    let old = attached(&database, "c", &request("pod1", 1));
    let tx = database.begin_unretried();
    block_on(async {
        checkpoint(
            &fence(&tx, id("c"), old.epoch).await.unwrap(),
            Position::end_of(9),
            &Positions::default(),
        )
        .unwrap();
    });
    attached(&database, "c", &request("pod2", 2));
    assert_eq!(block_on(tx.commit()), Err(millrace_storage::StoreError::Conflict));
}

#[test]
fn checkpoints_do_not_disturb_the_other_transactions_of_their_owner() {
    let database = database();
    let epoch = attached(&database, "c", &request("pod", 1)).epoch;
    let tx = database.begin_unretried();
    block_on(async {
        let owned = fence(&tx, id("c"), epoch).await.unwrap();
        qos2::set(&owned, Direction::Inbound, 7, &Bytes::new()).unwrap();
    });
    run(&database, async |tx| {
        checkpoint(
            &fence(tx, id("c"), epoch).await?,
            Position::end_of(9),
            &[Position::end_of(11)].into_iter().collect(),
        )
    });
    block_on(tx.commit()).unwrap();
    let record = run(&database, async |tx| get(tx, id("c"), Read::Snapshot).await).unwrap();
    assert_eq!(
        (record.cursor, record.acknowledged),
        (Position::end_of(9), [Position::end_of(11)].into_iter().collect())
    );
}

#[test]
fn a_session_comes_back_with_all_it_had_until_it_expires() {
    let database = database();
    let mut first = request("pod", 1);
    first.details = Some(Bytes::from_static(b"details"));
    let epoch = attached(&database, "c", &first).epoch;
    let stream = run(&database, async |tx| {
        let owned = fence(tx, id("c"), epoch).await?;
        qos2::set(&owned, Direction::Outbound, 3, &Bytes::from_static(b"m"))?;
        subscriptions::subscribe(&owned, b"a/+", StoredOptions { bits: 1, identifier: 9 }).await
    })
    .stream;
    run(&database, async |tx| {
        checkpoint(&fence(tx, id("c"), epoch).await?, Position::end_of(4), &Positions::default())
    });
    detached(&database, "c", epoch, HOW);

    let back = attached(&database, "c", &request("pod", 100_999));
    assert!(back.present && back.replaced.is_none());
    assert_eq!((back.record.cursor, &back.record.details[..]), (Position::end_of(4), &b"details"[..]));
    assert_eq!((back.subscriptions.len(), back.subscriptions[0].stream), (1, stream));
    assert_eq!(back.subscriptions[0].options, StoredOptions { bits: 1, identifier: 9 });
    assert!(sweep(&database, u64::MAX - 1).is_empty(), "nothing is due while it is attached");
    let ids = run(&database, async |tx| qos2::list(tx, id("c"), Direction::Outbound, Read::Snapshot).await);
    assert_eq!(ids, [(3, Bytes::from_static(b"m"))]);

    detached(&database, "c", back.epoch, Detach { now_ms: 200_000, ..HOW });
    let late = attached(&database, "c", &request("pod", 300_000));
    assert!(!late.present && late.subscriptions.is_empty() && late.record.details.is_empty());
    assert_eq!(late.record.cursor, Position::MIN);
    let ids = run(&database, async |tx| qos2::list(tx, id("c"), Direction::Outbound, Read::Snapshot).await);
    assert!(ids.is_empty());
}

#[test]
fn expiry_sweeps_all_of_a_session_and_never_one_that_came_back() {
    let database = database();
    for client in ["stays", "goes", "never"] {
        let mut request = request("pod", 1);
        request.expiry_s = if client == "never" { EXPIRY_NEVER } else { 100 };
        let epoch = attached(&database, client, &request).epoch;
        run(&database, async |tx| {
            let owned = fence(tx, id(client), epoch).await?;
            subscriptions::subscribe(&owned, b"a", StoredOptions::default()).await
        });
        detached(&database, client, epoch, HOW);
    }
    attached(&database, "stays", &request("pod", 50_000));
    assert!(sweep(&database, 100_999).is_empty());
    let settled = sweep(&database, 101_000);
    assert_eq!(settled.len(), 1);
    assert!(settled[0].1.ended && settled[0].0.client == "goes" && settled[0].0.kind == DueKind::Expiry);
    let left = run(&database, async |tx| list(tx, BROKER, None, 10).await);
    assert_eq!(left.iter().map(|(client, _)| client.as_ref()).collect::<Vec<_>>(), [&b"never"[..], b"stays"]);
    assert!(sweep(&database, u64::MAX - 1).is_empty());
}

#[test]
fn a_will_fires_once_after_its_delay_or_with_the_sessions_end() {
    // Delay and expiry in seconds; when it fires after the end of the connection.
    for (delay_s, expiry_s, at_ms) in [(0, 100, 0), (10, 100, 10_000), (200, 100, 100_000), (10, 0, 0)] {
        let database = database();
        let mut request = with_will(request("pod", 1), delay_s);
        request.expiry_s = expiry_s;
        let epoch = attached(&database, "c", &request).epoch;
        let fired = detached(&database, "c", epoch, HOW);
        assert_eq!(fired.is_some(), at_ms == 0, "delay {delay_s}");
        let fired = |settled: Vec<(Due, Settled)>| {
            settled.into_iter().filter_map(|(_, settled)| settled.will).collect::<Vec<_>>()
        };
        if at_ms > 0 {
            assert!(fired(sweep(&database, 1_000 + at_ms - 1)).is_empty());
            assert_eq!(fired(sweep(&database, 1_000 + at_ms)), [&b"gone"[..]]);
        }
        assert!(fired(sweep(&database, u64::MAX - 1)).is_empty());
        assert!(rows(&database).is_empty(), "delay {delay_s}: all of the session is gone");
    }
}

#[test]
fn a_farewell_takes_the_will_back() {
    let database = database();
    let epoch = attached(&database, "c", &with_will(request("pod", 1), 10)).epoch;
    assert_eq!(detached(&database, "c", epoch, Detach { keep_will: KeepWill::No, ..HOW }), None);
    assert!(sweep(&database, u64::MAX - 1).iter().all(|(_, settled)| settled.will.is_none()));
    assert!(rows(&database).is_empty());
}

#[test]
fn the_end_of_a_connection_that_was_not_accepted_publishes_no_will_without_a_delay() {
    for (delay_s, expected) in [(0, vec![]), (10, vec![&b"gone"[..]])] {
        let database = database();
        let epoch = attached(&database, "c", &with_will(request("pod", 1), delay_s)).epoch;
        assert_eq!(detached(&database, "c", epoch, Detach { keep_will: KeepWill::IfDelayed, ..HOW }), None);
        let settled = sweep(&database, u64::MAX - 1).into_iter();
        assert_eq!(settled.filter_map(|(_, settled)| settled.will).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn who_comes_back_in_time_takes_the_will_back() {
    // Delay, whether the connection had ended, whether the next one begins anew, when it comes; whether the will fires.
    for (delay_s, ended, clean, now_ms, fires) in [
        (10, true, false, 10_999, false),
        (10, true, false, 11_000, true),
        (10, true, true, 2_000, true),
        (10, false, false, 2_000, false),
        (0, false, false, 2_000, true),
        (10, false, true, 2_000, true),
    ] {
        let database = database();
        let epoch = attached(&database, "c", &with_will(request("pod", 1), delay_s)).epoch;
        if ended {
            assert_eq!(detached(&database, "c", epoch, HOW), None);
        }
        let mut next = request("pod", now_ms);
        next.clean = clean;
        let case = (delay_s, ended, clean, now_ms);
        assert_eq!(attached(&database, "c", &next).will.is_some(), fires, "{case:?}");
        assert!(sweep(&database, u64::MAX - 1).is_empty(), "{case:?}");
    }
}

#[test]
fn a_will_longer_than_a_value_is_kept_whole() {
    let database = database();
    let body = Bytes::from(vec![3; 131_000]);
    let mut request = request("pod", 1);
    request.will = Some(PendingWill { delay_s: 0, body: body.clone() });
    let epoch = attached(&database, "c", &request).epoch;
    assert_eq!(detached(&database, "c", epoch, HOW), Some(body));
}

#[test]
fn the_end_of_a_session_names_its_subscriptions() {
    let database = database();
    for (client, expiry_s) in [("ends", 0), ("stays", 100)] {
        let mut request = request("dead", 1);
        request.expiry_s = expiry_s;
        let epoch = attached(&database, client, &request).epoch;
        run(&database, async |tx| {
            let owned = fence(tx, id(client), epoch).await?;
            for filter in ["a", "b/+"] {
                subscriptions::subscribe(&owned, filter.as_bytes(), StoredOptions::default()).await?;
            }
            Ok(())
        });
        let left = run(&database, async |tx| abandon(tx, id(client), b"dead", 9_000).await);
        let filters: Vec<&[u8]> = left.subscriptions.iter().map(|ended| &*ended.filter).collect();
        let ended: &[&[u8]] = if expiry_s == 0 { &[b"a", b"b/+"] } else { &[] };
        assert_eq!((left.ended, &filters[..]), (expiry_s == 0, ended));
    }
}

#[test]
fn sessions_of_a_dead_pod_are_found_and_their_wills_fire() {
    let database = database();
    for (client, owner) in [("a", "dead"), ("b", "dead"), ("c", "alive"), ("d", "dead")] {
        attached(&database, client, &with_will(request(owner, 1), 0));
    }
    attached(&database, "d", &request("alive", 2));
    let found = run(&database, async |tx| of_owner(tx, b"dead", None, 10).await);
    assert_eq!(found.iter().map(|session| session.client.as_ref()).collect::<Vec<_>>(), [b"a", b"b"]);
    let next = run(&database, async |tx| of_owner(tx, b"dead", Some(found[0].id()), 10).await);
    assert_eq!(next, found[1..]);
    for client in ["a", "b", "c", "d"] {
        let left = run(&database, async |tx| abandon(tx, id(client), b"dead", 9_000).await);
        assert_eq!(left.will.is_some(), ["a", "b"].contains(&client), "{client}");
    }
    assert!(run(&database, async |tx| of_owner(tx, b"dead", None, 10).await).is_empty());
    assert_eq!(run(&database, async |tx| of_owner(tx, b"alive", None, 10).await).len(), 2);
    let record = run(&database, async |tx| get(tx, id("a"), Read::Snapshot).await).unwrap();
    assert_eq!(record.detached_at_ms, 9_000);
}

#[test]
fn ids_are_known_with_all_that_belongs_to_them_until_they_are_removed() {
    let database = database();
    let epoch = attached(&database, "c", &request("pod", 1)).epoch;
    let long = |length: usize| Bytes::from((0..length).map(|at| (at / 1000) as u8).collect::<Vec<u8>>());
    for direction in [Direction::Inbound, Direction::Outbound] {
        let set = |packet_id, details: Bytes| {
            run(&database, async |tx| {
                qos2::set(&fence(tx, id("c"), epoch).await?, direction, packet_id, &details)
            });
        };
        let clear_but = |kept: &[u16]| {
            run(&database, async |tx| qos2::clear_but(&fence(tx, id("c"), epoch).await?, direction, kept));
        };
        let ids = || run(&database, async |tx| qos2::list(tx, id("c"), direction, Read::Snapshot).await);
        let known = || ids().into_iter().map(|(id, _)| id).collect::<Vec<u16>>();
        set(1, long(1));
        set(65_535, Bytes::new());
        set(256, long(250_000));
        assert_eq!(ids(), [(1, long(1)), (256, long(250_000)), (65_535, Bytes::new())], "{direction:?}");
        // The next message under an id is shorter.
        set(256, long(100_000));
        assert_eq!(ids()[1], (256, long(100_000)), "{direction:?}");
        set(256, long(3));
        assert_eq!(ids()[1], (256, long(3)), "{direction:?}");
        run(&database, async |tx| qos2::remove(&fence(tx, id("c"), epoch).await?, direction, 1));
        assert_eq!(known(), [256, 65_535]);
        set(300, long(200_000));
        clear_but(&[300, 256]);
        assert_eq!(ids(), [(256, long(3)), (300, long(200_000))], "{direction:?}");
        clear_but(&[]);
        assert!(ids().is_empty());
    }
}

#[test]
fn an_idle_session_with_a_filter_of_its_own_takes_less_than_400_bytes() {
    let database = database();
    let client = "sensor-4711-building-23";
    for attach_only in [true, false] {
        let mut request = request("edge-7f9c4d5b6-x2x9z", 1_700_000_000_000);
        request.details = Some(Bytes::from(vec![1; 16]));
        let epoch = attached(&database, client, &request).epoch;
        let filter = format!("devices/{client}/commands");
        run(&database, async |tx| {
            let owned = fence(tx, id(client), epoch).await?;
            subscriptions::subscribe(&owned, filter.as_bytes(), StoredOptions::default()).await
        });
        if !attach_only {
            detached(&database, client, epoch, Detach { now_ms: 1_700_000_000_000, ..HOW });
        }
        let bytes: usize = rows(&database).iter().map(|row| row.key.len() + row.value.len()).sum();
        println!("attached: {attach_only}, {bytes} bytes in {} rows", rows(&database).len());
        assert!(bytes < 400, "{bytes} bytes");
    }
}

#[test]
fn what_a_broker_holds_is_counted_until_it_is_gone() {
    let database = database();
    let held = || run(&database, async |tx| metering::held(tx, BROKER).await);
    let long_will = PendingWill { delay_s: 50, body: Bytes::from(vec![3; 131_000]) };
    let with_long_will = Attach { will: Some(long_will), ..request("pod", 1) };
    let epoch = attached(&database, "a", &with_long_will).epoch;
    assert_eq!(
        held(),
        HeldLevels { sessions: 0, will_bytes: 131_000 },
        "only sessions without a client count"
    );
    let record = run(&database, async |tx| get(tx, id("a"), Read::Snapshot).await).unwrap();
    assert_eq!(run(&database, async |tx| will_bytes(tx, id("a"), &record).await), 131_000);
    detached(&database, "a", epoch, HOW);
    assert_eq!(held(), HeldLevels { sessions: 1, will_bytes: 131_000 });
    let back = attached(&database, "a", &with_will(request("pod", 2_000), 10));
    assert_eq!(held(), HeldLevels { sessions: 0, will_bytes: 4 }, "another will replaces the former one");
    detached(&database, "a", back.epoch, HOW);
    let epoch = attached(&database, "b", &with_will(request("pod", 1), 10)).epoch;
    detached(&database, "b", epoch, Detach { keep_will: KeepWill::No, ..HOW });
    assert_eq!(held(), HeldLevels { sessions: 2, will_bytes: 4 });
    sweep(&database, 11_000);
    assert_eq!(held(), HeldLevels { sessions: 2, will_bytes: 0 }, "the will has fired");
    sweep(&database, u64::MAX - 1);
    assert_eq!(held(), HeldLevels::default());
}

#[test]
fn what_an_owner_may_have_sent_is_known_until_it_is_acknowledged() {
    type End = fn(&Database, u64);
    let ends: [(&str, End, bool); 3] = [
        ("said", |database, epoch| drop(detached(database, "c", epoch, HOW)), false),
        ("dead", |database, _| drop(run(database, async |tx| abandon(tx, id("c"), b"pod", 9).await)), true),
        ("silent", |_, _| {}, true),
    ];
    for (name, end, may) in ends {
        let database = database();
        let first = attached(&database, "c", &request("pod", 1));
        assert_eq!(first.record.maybe_sent, Position::MIN);
        end(&database, first.epoch);
        let next = attached(&database, "c", &request("pod2", 2));
        // Others commit on a cluster, so a version from before the attach may be older than the one that it read.
        let after = run(&database, async |tx| Ok(tx.read_version().await?));
        let maybe_sent = next.record.maybe_sent;
        assert_eq!(maybe_sent > Position::MIN, may, "{name}");
        assert!(maybe_sent <= Position::end_of(after), "{name}: later messages were not sent");
        // It stays over connections that end as they should, until the cursor has passed it.
        detached(&database, "c", next.epoch, HOW);
        let third = attached(&database, "c", &request("pod", 3));
        assert_eq!(third.record.maybe_sent, maybe_sent, "{name}");
        run(&database, async |tx| {
            checkpoint(&fence(tx, id("c"), third.epoch).await?, maybe_sent, &Positions::default())
        });
        detached(&database, "c", third.epoch, HOW);
        let last = attached(&database, "c", &request("pod", 4));
        assert_eq!(
            (last.record.maybe_sent, last.record.owner.as_ref()),
            (Position::MIN, &b"pod"[..]),
            "{name}"
        );
    }
}

#[test]
fn a_record_of_an_earlier_version_is_read() {
    // Epoch, expiry, time of detachment, will, owner, details.
    let old = |has_will: u8| {
        let mut value = vec![0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 5, has_will];
        crate::rows::put_sized(&mut value, b"pod");
        value.extend_from_slice(b"user");
        Bytes::from(value)
    };
    for has_will in [false, true] {
        let record = crate::session_record::decode(old(has_will.into())).unwrap();
        assert_eq!((record.epoch, record.expiry_s, record.detached_at_ms), (7, 100, 5));
        assert_eq!((record.has_will, record.maybe_sent), (has_will, Position::MIN));
        assert_eq!((&record.owner[..], &record.details[..]), (&b"pod"[..], &b"user"[..]));
    }
}
