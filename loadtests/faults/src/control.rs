//! The control file, by which the driver plants failures in a running program and reads counters.
//! The program maps it.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Environment variables that hold the paths of the folder, the log and the control file.
pub const VARIABLES: [&str; 3] = ["FAULTS_ROOT", "FAULTS_LOG", "FAULTS_CONTROL"];

pub const CONTROL_BYTES: usize = FIELDS * 8;
const FIELDS: usize = 32;

/// A field of the control file: a native number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Bytes that may still be written; `u64::MAX` is no limit.
    SpaceBytes = 0,
    /// Number of the first write that fails with EIO, and of the first that succeeds again.
    WriteFailsFrom = 1,
    WriteFailsUntil = 2,
    SyncFailsFrom = 3,
    SyncFailsUntil = 4,
    /// A sync takes a random time in this range, microseconds.
    SyncMicrosMin = 5,
    SyncMicrosMax = 6,
    /// Added to the time of day, nanoseconds.
    ClockNanos = 7,
    /// 1: syncs succeed and make nothing durable, as on a disk that lies.
    Lies = 8,
    Writes = 16,
    Syncs = 17,
    WriteErrors = 18,
    SyncErrors = 19,
    FullErrors = 20,
    ClockReads = 21,
    /// Not 0 when the layer could not follow a file, so the log is incomplete.
    Blind = 22,
}

#[derive(Debug)]
pub struct FaultControl(File);

impl FaultControl {
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(CONTROL_BYTES as u64)?;
        let control = Self(file);
        control.set(Field::SpaceBytes, u64::MAX)?;
        Ok(control)
    }

    pub fn set(&self, field: Field, value: u64) -> io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), field as u64 * 8)
    }

    pub fn get(&self, field: Field) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, field as u64 * 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The write after `after` more writes fails with EIO, and so do the following writes, `count`
    /// in all.
    pub fn fail_writes(&self, after: u64, count: u64) -> io::Result<()> {
        let from = self.get(Field::Writes)? + after;
        self.set(Field::WriteFailsUntil, from + count)?;
        self.set(Field::WriteFailsFrom, from)
    }

    pub fn fail_syncs(&self, after: u64, count: u64) -> io::Result<()> {
        let from = self.get(Field::Syncs)? + after;
        self.set(Field::SyncFailsUntil, from + count)?;
        self.set(Field::SyncFailsFrom, from)
    }

    /// Lets writes and syncs succeed again and gives the disk room; latency and clock stay as they
    /// are.
    pub fn heal(&self) -> io::Result<()> {
        for field in [Field::WriteFailsUntil, Field::SyncFailsUntil] {
            self.set(field, 0)?;
        }
        self.set(Field::SpaceBytes, u64::MAX)
    }
}
