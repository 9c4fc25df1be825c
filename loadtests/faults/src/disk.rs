//! The folder of a program under test, and the part of it that survives a simulated loss of power. The layer (`LD_PRELOAD`) logs writes
//! and syncs; a loss of power replays the log on the durable copy and puts the result in the place of the folder.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use fastrand::Rng;

use crate::{
    control::{FaultControl, VARIABLES},
    image::{Image, Inventory},
    log::{HEADER_BYTES, records},
    sparse,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// The names as of the last sync of the folder, which is all that POSIX promises.
    Synced,
    /// All names, even of files whose content is lost, as if the file system had just written its
    /// journal.
    Current,
}

#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    /// A copy of `root` as it was after the last loss of power.
    durable: PathBuf,
    /// The next `durable` while it is written.
    next: PathBuf,
    /// Writes and syncs since the last loss of power, recorded by the layer.
    log: PathBuf,
    scratch: PathBuf,
    control_path: PathBuf,
    control: FaultControl,
    inventory: Inventory,
    records_power: bool,
}

#[derive(Debug)]
pub struct Loss {
    pub unsynced: usize,
    /// Unsynced writes that reached the disk by chance.
    pub survived: usize,
    /// Files that differ from the log. One may differ, because a kill may come between a call and
    /// its record; more show that the layer missed calls.
    pub different: Vec<PathBuf>,
    /// Files that a synced folder names and the log does not know, which shows that the layer
    /// missed calls.
    pub unknown: usize,
}

impl Disk {
    /// Without `records_power` it can inject failures, but not lose power.
    pub fn new(folder: &Path, records_power: bool) -> io::Result<Self> {
        let path = |name| folder.join(name);
        let (root, durable, control_path) = (path("disk"), path("durable"), path("control"));
        fs::create_dir(&root)?;
        fs::create_dir(&durable)?;
        // Without links, because the layer compares paths.
        let root = fs::canonicalize(root)?;
        let control = FaultControl::create(&control_path)?;
        let inventory = Inventory::of(&root, &durable)?;
        let (next, log, scratch) = (path("durable.new"), path("log"), path("scratch"));
        File::create(&log)?;
        Ok(Self { root, durable, next, log, scratch, control_path, control, inventory, records_power })
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    #[must_use]
    pub fn control(&self) -> &FaultControl {
        &self.control
    }

    /// The variables of a program on the disk; `layer` is the path of the `LD_PRELOAD` library.
    #[must_use]
    pub fn environment(&self, layer: &Path) -> Vec<(&'static str, OsString)> {
        let of = |path: &Path| path.as_os_str().to_owned();
        let log = if self.records_power { of(&self.log) } else { OsStr::new("").to_owned() };
        let paths = [of(&self.root), log, of(&self.control_path)];
        VARIABLES.into_iter().zip(paths).chain([("LD_PRELOAD", of(layer))]).collect()
    }

    /// Cuts a record that a kill left incomplete. Call this before each start of a program.
    pub fn start(&self) -> io::Result<()> {
        let log = fs::read(&self.log)?;
        let whole: usize = records(&log).map(|(_, bytes)| HEADER_BYTES + bytes.len()).sum();
        File::options().write(true).open(&self.log)?.set_len(whole as u64)
    }

    /// Discards data that was not durable; the program must have ended. `rng` decides which
    /// unsynced writes survive, and without it none does.
    pub fn lose_power(&mut self, rng: Option<&mut Rng>, names: Names) -> io::Result<Loss> {
        let log = fs::read(&self.log)?;
        let mut fixed = Rng::with_seed(0);
        let survives = rng.is_some();
        let rng = rng.unwrap_or(&mut fixed);
        let mut image = Image::replay(&self.inventory, &log, rng);
        let different = image.differences(&self.root, &self.scratch)?;
        let unsynced = image.unsynced();
        let survived = if survives { image.survive(rng) } else { 0 };
        match names {
            Names::Synced => image.write_durable(&self.next)?,
            Names::Current => image.write_current(&self.root, &self.next)?,
        }
        let unknown = image.unknown;
        drop(image);
        fs::remove_dir_all(&self.durable)?;
        fs::rename(&self.next, &self.durable)?;
        empty(&self.root)?;
        fill(&self.durable, &self.root)?;
        self.inventory = Inventory::of(&self.root, &self.durable)?;
        File::create(&self.log)?;
        Ok(Loss { unsynced, survived, different, unknown })
    }
}

fn empty(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn fill(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&to)?;
            fill(&entry.path(), &to)?;
        } else {
            sparse::copy(&entry.path(), &to)?;
        }
    }
    Ok(())
}
