//! The control file: what the layer plants and counts. The program under test maps it, the driver reads and writes it.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

/// Names of the environment variables from which the layer takes the folder, the log and the control file.
pub const ROOT: &str = "FAULTS_ROOT";
/// See [`ROOT`].
pub const LOG: &str = "FAULTS_LOG";
/// See [`ROOT`].
pub const CONTROL: &str = "FAULTS_CONTROL";

/// The size of the control file.
pub const CONTROL_BYTES: usize = FIELDS * 8;
const FIELDS: usize = 32;

/// A field of the control file: a native number of 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Bytes that may still be written; then writes fail with ENOSPC. `u64::MAX` is no limit.
    SpaceBytes = 0,
    /// The first write that fails with EIO, counted as [`Field::Writes`], and the one after the last.
    WriteFailsFrom = 1,
    /// See [`Field::WriteFailsFrom`].
    WriteFailsUntil = 2,
    /// The first sync that fails with EIO, counted as [`Field::Syncs`], and the one after the last.
    SyncFailsFrom = 3,
    /// See [`Field::SyncFailsFrom`].
    SyncFailsUntil = 4,
    /// A sync takes a random time in this range, microseconds.
    SyncMicrosMin = 5,
    /// See [`Field::SyncMicrosMin`].
    SyncMicrosMax = 6,
    /// Added to the time of day, nanoseconds. Negative numbers are in two's complement.
    ClockNanos = 7,
    /// 1: syncs succeed and make nothing durable, as on a disk that lies.
    Lies = 8,
    /// Writes until now.
    Writes = 16,
    /// Syncs until now.
    Syncs = 17,
    /// Writes that failed with EIO.
    WriteErrors = 18,
    /// Syncs that failed with EIO.
    SyncErrors = 19,
    /// Writes that failed with ENOSPC.
    FullErrors = 20,
    /// Readings of a changed time of day.
    ClockReads = 21,
    /// Not zero: the layer could not follow a file, so the log is incomplete.
    Blind = 22,
}

/// The driver's side of the control file.
#[derive(Debug)]
pub struct Control(File);

impl Control {
    /// Makes the file, without any failure.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.set_len(CONTROL_BYTES as u64)?;
        let control = Self(file);
        control.set(Field::SpaceBytes, u64::MAX)?;
        Ok(control)
    }

    /// # Errors
    /// The file cannot be written.
    pub fn set(&self, field: Field, value: u64) -> io::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), field as u64 * 8)
    }

    /// # Errors
    /// The file cannot be read.
    pub fn get(&self, field: Field) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, field as u64 * 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The write after `after` more ones fails with EIO, and so do the next ones, `count` in all.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn fail_writes(&self, after: u64, count: u64) -> io::Result<()> {
        let from = self.get(Field::Writes)? + after;
        self.set(Field::WriteFailsUntil, from + count)?;
        self.set(Field::WriteFailsFrom, from)
    }

    /// As [`Control::fail_writes`], for syncs.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn fail_syncs(&self, after: u64, count: u64) -> io::Result<()> {
        let from = self.get(Field::Syncs)? + after;
        self.set(Field::SyncFailsUntil, from + count)?;
        self.set(Field::SyncFailsFrom, from)
    }

    /// Writes and syncs succeed again, and the disk has room. Latency and clock stay.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn heal(&self) -> io::Result<()> {
        for field in [Field::WriteFailsUntil, Field::SyncFailsUntil] {
            self.set(field, 0)?;
        }
        self.set(Field::SpaceBytes, u64::MAX)
    }
}
