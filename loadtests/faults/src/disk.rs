//! The folder of a program under test, and what of it would survive a loss of power.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use fastrand::Rng;

use crate::{
    control::{self, Control},
    image::{Image, Inventory},
    log::{HEADER_BYTES, records},
    sparse,
};

/// Which names a folder has after a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// As of the last sync of the folder, which is all that POSIX promises. A file that was synced is absent if its
    /// folder was not.
    Synced,
    /// All, also of files whose content is lost, as a file system may have it that writes its journal just in time.
    Current,
}

/// One disk: a folder for the program under test, and what is needed to take its power.
#[derive(Debug)]
pub struct Disk {
    root: PathBuf,
    durable: PathBuf,
    next: PathBuf,
    log: PathBuf,
    scratch: PathBuf,
    control_path: PathBuf,
    control: Control,
    inventory: Inventory,
    records_power: bool,
}

/// What a loss of power did.
#[derive(Debug)]
pub struct Loss {
    /// Writes that no sync had covered.
    pub unsynced: usize,
    /// Those of them that reached the disk all the same.
    pub survived: usize,
    /// Files that are not as the log says. One is possible, because a kill may come between a call and its record;
    /// more mean that the layer missed calls.
    pub different: Vec<PathBuf>,
    /// Files that were written and that the layer did not see opened.
    pub unknown: usize,
}

impl Disk {
    /// Makes an empty disk in `folder`. Without `records_power` it only fails, and cannot lose power.
    ///
    /// # Errors
    /// The files cannot be made.
    pub fn new(folder: &Path, records_power: bool) -> io::Result<Self> {
        let path = |name| folder.join(name);
        let (root, durable, control_path) = (path("disk"), path("durable"), path("control"));
        fs::create_dir(&root)?;
        fs::create_dir(&durable)?;
        // The layer compares paths, so this one has no links.
        let root = fs::canonicalize(root)?;
        let control = Control::create(&control_path)?;
        let inventory = Inventory::of(&root, &durable)?;
        let (next, log, scratch) = (path("durable.new"), path("log"), path("scratch"));
        File::create(&log)?;
        Ok(Self { root, durable, next, log, scratch, control_path, control, inventory, records_power })
    }

    /// The folder that is on the disk.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is planted, and how much of it happened.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The environment of a program on the disk. `layer` is the library.
    #[must_use]
    pub fn environment(&self, layer: &Path) -> Vec<(&'static str, OsString)> {
        let of = |path: &Path| path.as_os_str().to_owned();
        let log = if self.records_power { of(&self.log) } else { OsStr::new("").to_owned() };
        vec![
            ("LD_PRELOAD", of(layer)),
            (control::ROOT, of(&self.root)),
            (control::LOG, log),
            (control::CONTROL, of(&self.control_path)),
        ]
    }

    /// Lets another program go on after a kill that was no loss of power. Call this before each start.
    ///
    /// # Errors
    /// The log cannot be read or cut off.
    pub fn start(&self) -> io::Result<()> {
        let log = fs::read(&self.log)?;
        let whole: usize = records(&log).map(|(_, bytes)| HEADER_BYTES + bytes.len()).sum();
        File::options().write(true).open(&self.log)?.set_len(whole as u64)
    }

    /// Takes away what was not durable. The program must have ended. `rng` decides which unsynced writes survive;
    /// without it none does.
    ///
    /// # Errors
    /// Files cannot be read or written.
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
