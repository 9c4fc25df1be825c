//! Failures of the machine under the server: power, disk and clock. The disk itself is in
//! `millrace_faults`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use fastrand::Rng;
use millrace_faults::control::Field;
use millrace_faults::{Disk, FaultControl, Names};

use crate::failure::{Failure, Outcome, While};

const LAYER: &str = "libmillrace_faults_layer.so";
/// Longest healthy sync, so that kills find writes between their call and their sync.
const SYNC_MICROS_MAX: u64 = 3_000;
const SLOW_SYNC_MICROS: [(u64, u64); 3] = [(5_000, 30_000), (20_000, 100_000), (200_000, 600_000)];
const FAILS_AFTER_WRITES: u64 = 60;
const FAILS_AFTER_SYNCS: u64 = 30;
const FAILURES_MAX: u64 = 4;
const SPACE_BYTES_MAX: u64 = 400_000;
const NANOS: i64 = 1_000_000_000;
const CLOCK_NANOS: [i64; 4] = [0, 30 * NANOS, -3_600 * NANOS, -30 * NANOS];
/// The clock's final setting: later than any time of the run, by more than any will is delayed.
const CATCH_UP_NANOS: u64 = 60_000_000_000;
/// Files that may differ from the log at each kill, because the kill may come between a call and
/// its record.
const DIFFERENT_MAX: usize = 1;

/// Failures to plant. Without any, the server runs on the machine's own disk.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct HazardArgs {
    /// Each kill is a loss of power: unsynced writes of the server are lost, all of them or a
    /// random part.
    #[arg(long)]
    power_loss: bool,
    /// Before each kill a write or a sync fails.
    #[arg(long)]
    io_errors: bool,
    /// Before each kill the disk is full for a while; only writes report it.
    #[arg(long)]
    full_disk: bool,
    /// Syncs take 5 to 600 ms.
    #[arg(long)]
    slow_disk: bool,
    /// Before each kill the time of day jumps.
    #[arg(long)]
    clock_jumps: bool,
    /// Syncs make nothing durable, which shows that --power-loss can fail.
    #[arg(long, requires = "power_loss")]
    disk_lies: bool,
    /// The library that fails the server's calls; by default it is searched beside this program.
    #[arg(long)]
    faults_layer: Option<PathBuf>,
}

/// A failure that the server must survive before its next kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hazard {
    WriteError,
    SyncError,
    FullDisk,
}

/// How often each failure happened, and how many unsynced writes a loss of power found and kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HazardCounts {
    power_losses: usize,
    unsynced: usize,
    survived: usize,
    write_errors: u64,
    sync_errors: u64,
    full_errors: u64,
    clock_reads: u64,
}

pub(crate) struct Hazards {
    args: HazardArgs,
    disk: Disk,
    layer: PathBuf,
    rng: Rng,
    counts: HazardCounts,
}

impl Hazards {
    /// `None` without any option.
    pub(crate) fn new(args: &HazardArgs, folder: &Path, seed: u64) -> Outcome<Option<Self>> {
        let any = args.power_loss || args.io_errors || args.full_disk || args.slow_disk || args.clock_jumps;
        if !any {
            return Ok(None);
        }
        let layer = args.faults_layer.clone().or_else(find_layer).filter(|layer| layer.is_file());
        let layer = layer.ok_or_else(|| {
            Failure::new(format!("there is no {LAYER} beside this program: build millrace-faults-layer"))
        })?;
        let layer = layer.canonicalize().during("looking for the layer")?;
        let disk = Disk::new(folder, args.power_loss).during("making a disk")?;
        let hazards = Self {
            args: args.clone(),
            disk,
            layer,
            rng: Rng::with_seed(seed),
            counts: HazardCounts::default(),
        };
        hazards.set(Field::SyncMicrosMax, SYNC_MICROS_MAX)?;
        hazards.set(Field::Lies, args.disk_lies.into())?;
        Ok(Some(hazards))
    }

    pub(crate) fn root(&self) -> &Path {
        self.disk.root()
    }

    pub(crate) fn counts(&self) -> HazardCounts {
        self.counts
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.disk.environment(&self.layer)
    }

    /// The disk is healthy while a server starts.
    pub(crate) fn before_start(&self) -> Outcome<()> {
        self.disk.start().during("reading the log of the disk")?;
        self.heal()
    }

    pub(crate) fn heal(&self) -> Outcome<()> {
        self.disk.control().heal().during("healing the disk")
    }

    /// Changes latency and clock, and plants one failure. Returns it with a description.
    pub(crate) fn plant(&mut self) -> Outcome<(Option<Hazard>, String)> {
        let mut said = Vec::new();
        if self.args.slow_disk {
            let (min, max) = *self.rng.choice(&SLOW_SYNC_MICROS).unwrap_or(&SLOW_SYNC_MICROS[0]);
            self.set(Field::SyncMicrosMin, min)?;
            self.set(Field::SyncMicrosMax, max)?;
            said.push(format!("syncs take {} to {} ms", min / 1_000, max / 1_000));
        }
        if self.args.clock_jumps {
            let nanos = *self.rng.choice(&CLOCK_NANOS).unwrap_or(&0);
            self.set(Field::ClockNanos, nanos.cast_unsigned())?;
            said.push(format!("clock {:+} s", nanos / NANOS));
        }
        let mut kinds = Vec::new();
        if self.args.io_errors {
            kinds.extend([Hazard::WriteError, Hazard::SyncError]);
        }
        if self.args.full_disk {
            kinds.push(Hazard::FullDisk);
        }
        let hazard = self.rng.choice(&kinds).copied();
        let (count, control) = (self.rng.u64(1..=FAILURES_MAX), self.disk.control());
        match hazard {
            Some(Hazard::WriteError) => {
                control.fail_writes(self.rng.u64(..FAILS_AFTER_WRITES), count).during("planting")?;
                said.push(format!("{count} writes fail"));
            }
            Some(Hazard::SyncError) => {
                control.fail_syncs(self.rng.u64(..FAILS_AFTER_SYNCS), count).during("planting")?;
                said.push(format!("{count} syncs fail"));
            }
            Some(Hazard::FullDisk) => {
                let bytes = self.rng.u64(..SPACE_BYTES_MAX);
                self.set(Field::SpaceBytes, bytes)?;
                said.push(format!("the disk is full after {bytes} bytes"));
            }
            None => {}
        }
        Ok((hazard, said.join(", ")))
    }

    /// How often the failure happened since the run began.
    pub(crate) fn happened(&self, hazard: Hazard) -> Outcome<u64> {
        self.get(match hazard {
            Hazard::WriteError => Field::WriteErrors,
            Hazard::SyncError => Field::SyncErrors,
            Hazard::FullDisk => Field::FullErrors,
        })
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.rng.bool()
    }

    /// The longest sync that the layer makes the server wait for, ms.
    pub(crate) fn sync_ms(&self) -> Outcome<u64> {
        Ok(self.get(Field::SyncMicrosMax)? / 1_000)
    }

    /// Called after each kill. Returns what became of the disk.
    pub(crate) fn after_kill(&mut self) -> Outcome<String> {
        if self.get(Field::Blind)? > 0 {
            return Err(Failure::new("the layer lost sight of a file"));
        }
        if !self.args.power_loss {
            return Ok(String::new());
        }
        let names = if self.rng.bool() { Names::Synced } else { Names::Current };
        let survivors = if self.rng.u8(..3) > 0 { Some(&mut self.rng) } else { None };
        let loss = self.disk.lose_power(survivors, names).during("taking the power")?;
        if loss.unknown > 0 || loss.different.len() > DIFFERENT_MAX {
            return Err(Failure::new(format!(
                "the layer missed calls of the server: {} unknown files, and different from the log are {:?}",
                loss.unknown, loss.different
            )));
        }
        self.counts.power_losses += 1;
        self.counts.unsynced += loss.unsynced;
        self.counts.survived += loss.survived;
        let names = if names == Names::Synced { "synced" } else { "all" };
        Ok(format!(
            "power lost, with {} of {} unsynced writes and {names} names",
            loss.survived, loss.unsynced
        ))
    }

    /// Sets the clock so late that every will is due; true if the clock had jumped. Due times are
    /// stored by the time of day, so a clock that was set back by an hour would delay wills by an
    /// hour.
    pub(crate) fn catch_up(&self) -> Outcome<bool> {
        if self.args.clock_jumps {
            self.set(Field::ClockNanos, CATCH_UP_NANOS)?;
        }
        Ok(self.args.clock_jumps)
    }

    /// Fails if a requested failure never happened.
    pub(crate) fn finish(&mut self) -> Outcome<()> {
        self.counts.write_errors = self.get(Field::WriteErrors)?;
        self.counts.sync_errors = self.get(Field::SyncErrors)?;
        self.counts.full_errors = self.get(Field::FullErrors)?;
        self.counts.clock_reads = self.get(Field::ClockReads)?;
        let HazardCounts { unsynced, survived, write_errors, sync_errors, full_errors, clock_reads, .. } =
            self.counts;
        let args = &self.args;
        let proofs = [
            (args.power_loss, unsynced > survived, "no unsynced write was lost"),
            (args.io_errors, write_errors + sync_errors > 0, "no call failed"),
            (args.full_disk, full_errors > 0, "the disk never was full"),
            (args.clock_jumps, clock_reads > 0, "the server never read the changed clock"),
        ];
        match proofs.into_iter().find(|(asked, happened, _)| *asked && !happened) {
            Some((_, _, what)) => Err(Failure::new(format!("the run proves nothing: {what}"))),
            None => Ok(()),
        }
    }

    fn get(&self, field: Field) -> Outcome<u64> {
        self.control().get(field).during("reading the control file")
    }

    fn set(&self, field: Field, value: u64) -> Outcome<()> {
        self.control().set(field, value).during("writing the control file")
    }

    fn control(&self) -> &FaultControl {
        self.disk.control()
    }
}

impl HazardArgs {
    /// True when a failing disk excuses that the server refuses clients.
    pub(crate) fn allows_refusals(&self) -> bool {
        self.io_errors || self.full_disk
    }

    pub(crate) fn moves_clock(&self) -> bool {
        self.clock_jumps
    }

    /// True when takeovers may be slow, because taking a session over needs the store.
    pub(crate) fn delays_takeovers(&self) -> bool {
        self.allows_refusals() || self.slow_disk
    }
}

impl HazardCounts {
    pub(crate) fn rows(&self) -> [(&'static str, u64); 7] {
        [
            ("losses of power", self.power_losses as u64),
            ("unsynced writes at these", self.unsynced as u64),
            ("  of these written all the same", self.survived as u64),
            ("writes that failed", self.write_errors),
            ("syncs that failed", self.sync_errors),
            ("writes to a full disk", self.full_errors),
            ("readings of a changed clock", self.clock_reads),
        ]
    }
}

fn find_layer() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    [folder.join(LAYER), folder.join("deps").join(LAYER)].into_iter().find(|path| path.is_file())
}
