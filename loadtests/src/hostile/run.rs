//! Runs one attack: friendly clients start, the attack runs, the hostile clients leave, and the
//! figures are compared with their limits.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::attacks::{Attack, By};
use super::friends::{Friend, FriendKind};
use super::report::{Row, Usage};
use super::ring::Ring;
use super::server::{ATTACKED, FRIENDLY, Server};
use super::verdict::{AttackLimits, Bound, Check, MESSAGES_LOST, SERVER_ENDED, Waits};
use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::machine::stand_back;
use crate::machine::stretch;

/// Milliseconds for which the friendly clients run alone before the attack.
const BEFORE_MS: u64 = 700;
const BEFORE_SHORT_MS: u64 = 300;
/// Milliseconds to wait at most for memory to fall once the hostile clients have left.
const SETTLE_MS_MAX: u64 = 8_000;
const LOOK_EVERY_MS: u64 = 100;
const SETTLE_LOOKS_MIN: u64 = 5;
/// A store that has grown keeps more of its files open.
const FILES_STAY: u64 = 256;
/// Above it, waits say more about the machine than about the server. Threads of the server that wait for each other count, too, so an
/// attack must not be able to loosen its own limits.
pub(super) const STRETCH_MAX: f64 = 2.0;

/// Friendly clients: of another broker (`other`), of the attacked broker (`same`), with durable
/// publishes, with new connections, and a thread that does not use the server (`machine`).
pub(super) struct Friends {
    other: Friend,
    same: Friend,
    durable: Friend,
    dialer: Friend,
    machine: Friend,
}

#[derive(Clone, Copy, Default)]
pub(super) struct FriendWaits {
    pub(super) other: Waits,
    pub(super) same: Waits,
    pub(super) durable: Waits,
    pub(super) dial: Waits,
    pub(super) machine: Waits,
    pub(super) lost: u64,
    pub(super) refused: u64,
    /// The factor by which the machine slowed down the server.
    pub(super) stretch: f64,
}

impl Friends {
    pub(super) fn start(server: &Server) -> Outcome<Self> {
        Ok(Self {
            other: Friend::start(FriendKind::Live, server.mqtt, FRIENDLY, 2)?,
            same: Friend::start(FriendKind::Live, server.mqtt, ATTACKED, 3)?,
            durable: Friend::start(FriendKind::Durable, server.mqtt, FRIENDLY, 4)?,
            dialer: Friend::start(FriendKind::Dialer, server.mqtt, FRIENDLY, 5)?,
            machine: Friend::start(FriendKind::Machine, server.mqtt, FRIENDLY, 6)?,
        })
    }

    /// Returns the waits that began between the two times.
    pub(super) fn end(self, from_ns: u64, until_ns: u64) -> FriendWaits {
        let [other, same, durable, dialer, machine] =
            [self.other, self.same, self.durable, self.dialer, self.machine].map(Friend::end);
        let waits = |seen| Waits::of(seen, from_ns, until_ns);
        let cut = [&other, &durable].iter().filter(|seen| seen.disconnected).count() as u64;
        FriendWaits {
            other: waits(&other),
            same: waits(&same),
            durable: waits(&durable),
            dial: waits(&dialer),
            machine: waits(&machine),
            lost: other.lost + durable.lost + cut,
            refused: dialer.lost,
            stretch: 1.0,
        }
    }
}

/// # Errors
/// The attack could not be run, so its effect is unknown.
pub(super) fn attack(attack: &'static Attack, program: &Path, more: &[String], short: bool) -> Outcome<Row> {
    let mut server = Server::start(program, &(attack.setup)(), more)?;
    let friends = Friends::start(&server)?;
    clock::pause_ms(if short { BEFORE_SHORT_MS } else { BEFORE_MS });
    server.reset_peak();
    let (before, lines_before) = (Usage::of(&server), server.log_lines());
    let ring = Ring::new(&server, short, 0);
    let threads = server.threads();
    let from_ns = clock::now_ns();
    let (outcome, files_peak) = strike(attack, &ring);
    let seconds = clock::ns_seconds(clock::now_ns() - from_ns);
    let (mut checks, notes) = ring.into_findings();
    let limits = if short { attack.limits.loosened() } else { attack.limits };
    // Included in the attack, because other clients may wait while the server cleans up after the
    // hostile ones.
    settle(&server, before.rss_kb + limits.stays_mib * 1024);
    let until_ns = clock::now_ns();
    let peak = Usage { rss_kb: server.memory().peak_kb, open_files: files_peak };
    let after = Usage::of(&server);
    let log_lines_s = (server.log_lines() - lines_before) as f64 / clock::ns_seconds(until_ns - from_ns);
    let stretch = stretch(&threads, &server.threads());
    let waits = FriendWaits { stretch, ..friends.end(from_ns, until_ns) };
    let has_ended = server.has_ended();
    if has_ended {
        checks.push(Check { what: SERVER_ENDED, seen: 1.0, bound: Bound::AtMost(0.0), unit: "times" });
    } else if let Err(why) = outcome {
        return Err(Failure::new(format!("{}: {why}\n{}", attack.name, server.log_tail())));
    }
    checks.extend(judge(&waits, &limits, [before, peak, after], log_lines_s, attack.by));
    Ok(Row {
        name: attack.name,
        by: attack.by,
        seconds,
        waits,
        before,
        peak,
        after,
        log_lines_s,
        checks,
        notes,
        known: Vec::new(),
    })
}

/// Runs the attack on a hostile thread, and meanwhile records the most open files of the server.
fn strike(attack: &Attack, ring: &Ring<'_>) -> (Outcome<()>, u64) {
    let (done, files) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                files.fetch_max(ring.server.open_files(), Ordering::Relaxed);
                clock::pause_ms(LOOK_EVERY_MS);
            }
        });
        let hostile = scope.spawn(|| {
            stand_back();
            (attack.run)(ring)
        });
        let outcome = hostile.join().unwrap_or_else(|_| Err(Failure::new("the attack panicked")));
        done.store(true, Ordering::Relaxed);
        (outcome, files.load(Ordering::Relaxed))
    })
}

/// Returns when the memory is below `below_kb`, or after [`SETTLE_MS_MAX`].
fn settle(server: &Server, below_kb: u64) {
    for look in 0..SETTLE_MS_MAX / LOOK_EVERY_MS {
        clock::pause_ms(LOOK_EVERY_MS);
        if server.memory().rss_kb <= below_kb && look >= SETTLE_LOOKS_MIN {
            return;
        }
    }
}

/// Compares what friendly clients and the server felt with the limits of the attack.
fn judge(
    waits: &FriendWaits,
    limits: &AttackLimits,
    usage: [Usage; 3],
    log_lines_s: f64,
    by: By,
) -> Vec<Check> {
    let [before, peak, after] = usage;
    // The machine's part is added to each limit: it lets every thread wait, and a busy thread
    // longer.
    let stretch = waits.stretch.min(STRETCH_MAX);
    let allowed = |ms: u64| Bound::AtMost(ms as f64 * stretch + waits.machine.worst_ms);
    let mib = |usage: Usage| (usage.rss_kb as f64 - before.rss_kb as f64) / 1024.0;
    let limited = [
        ("wait of another broker", waits.other.worst_ms, limits.other_ms),
        ("wait of the same broker", waits.same.worst_ms, limits.same_ms),
        ("wait for a PUBACK", waits.durable.worst_ms, limits.durable_ms),
        ("wait for a CONNACK", waits.dial.worst_ms, limits.dial_ms),
    ];
    let mut checks: Vec<Check> = (limited.into_iter())
        .filter(|(.., most)| *most > 0)
        .map(|(what, seen, most)| Check { what, seen, bound: allowed(most), unit: "ms" })
        .collect();
    let most = |what, seen, most: u64, unit| Check { what, seen, bound: Bound::AtMost(most as f64), unit };
    checks.push(most("memory that stays", mib(after), limits.stays_mib, "MiB"));
    if limits.peak_mib > 0 {
        checks.push(most("memory at the peak", mib(peak), limits.peak_mib, "MiB"));
    }
    checks.push(most("log lines", log_lines_s, limits.log_lines_s, "a second"));
    checks.push(most(
        "open files that stay",
        after.open_files as f64 - before.open_files as f64,
        FILES_STAY,
        "",
    ));
    checks.push(most(MESSAGES_LOST, waits.lost as f64, 0, ""));
    let measured = [waits.other, waits.durable, waits.dial];
    let fewest = measured.iter().map(|waits| waits.count).min().unwrap_or_default();
    checks.push(Check {
        what: "friendly answers of each kind",
        seen: fewest as f64,
        bound: Bound::AtLeast(1.0),
        unit: "",
    });
    if by == By::Tenant {
        checks.push(most("friendly connects refused", waits.refused as f64, 0, ""));
    }
    checks
}
