//! Replays the log of writes and syncs ([`crate::log`]) into the content that a disk has after a loss of power.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirEntryExt, FileExt},
    },
    path::{Path, PathBuf},
};

use fastrand::Rng;

use crate::{
    log::{self, NameKind, RecordHeader, RecordKind, records},
    sparse,
};

const SECTOR_BYTES: usize = 512;

#[derive(Clone, Copy)]
enum Change<'a> {
    Write { offset: u64, bytes: &'a [u8] },
    Resize(u64),
}

/// The offset of a record in the log, and its change.
type Pending<'a> = (u64, Change<'a>);

/// A file: its durable content before the log (`base`), then its changes in the log: the durable
/// changes, the changes in the cache, and all.
#[derive(Default)]
struct FileState<'a> {
    base: Option<PathBuf>,
    durable: Vec<Change<'a>>,
    pending: Vec<Pending<'a>>,
    all: Vec<Change<'a>>,
}

#[derive(Clone, Copy)]
enum Node {
    File(usize),
    Folder(usize),
}

type Entries = Vec<(OsString, Node)>;

/// The names in a folder that are durable, and the names that a sync under way will make durable.
#[derive(Default)]
struct FolderState {
    durable: Entries,
    pending: Option<(u64, Entries)>,
}

/// Inode numbers of the folder before the log began, with the paths of the same files among the
/// durable ones.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    files: HashMap<u64, PathBuf>,
    folders: HashMap<u64, Vec<(OsString, u64)>>,
    root: u64,
}

impl Inventory {
    pub(crate) fn of(seen: &Path, durable: &Path) -> io::Result<Self> {
        let mut inventory = Self { root: inode(seen)?, ..Self::default() };
        inventory.add(seen, durable)?;
        Ok(inventory)
    }

    fn add(&mut self, seen: &Path, durable: &Path) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(seen)? {
            let entry = entry?;
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            if kind.is_dir() {
                self.add(&entry.path(), &durable.join(&name))?;
            } else if kind.is_file() {
                self.files.insert(entry.ino(), durable.join(&name));
            } else {
                continue;
            }
            names.push((name, entry.ino()));
        }
        self.folders.insert(inode(seen)?, names);
        Ok(())
    }
}

fn inode(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(path)?.ino())
}

/// All files and folders that the log names, by inode number.
pub(crate) struct Image<'a> {
    files: Vec<FileState<'a>>,
    folders: Vec<FolderState>,
    file_of: HashMap<u64, usize>,
    folder_of: HashMap<u64, usize>,
    root: usize,
    /// Files in the log that it has not seen created: their content is incomplete.
    pub(crate) unknown: usize,
}

impl<'a> Image<'a> {
    /// `rng` decides which writes of a failed sync reach the disk by chance.
    pub(crate) fn replay(inventory: &Inventory, log: &'a [u8], rng: &mut Rng) -> Self {
        let mut image = Self {
            files: Vec::new(),
            folders: Vec::new(),
            file_of: HashMap::new(),
            folder_of: HashMap::new(),
            root: 0,
            unknown: 0,
        };
        for (inode, path) in &inventory.files {
            let at = image.new_file(*inode);
            image.files[at].base = Some(path.clone());
        }
        for inode in inventory.folders.keys() {
            image.new_folder(*inode);
        }
        for (inode, names) in &inventory.folders {
            let entries = names.iter().filter_map(|(name, inode)| Some((name.clone(), image.node(*inode)?)));
            let entries = entries.collect();
            let at = image.folder_of[inode];
            image.folders[at].durable = entries;
        }
        image.root = image.folder_of[&inventory.root];
        let mut place = 0;
        for (header, bytes) in records(log) {
            image.read(place, header, bytes, rng);
            place += (log::HEADER_BYTES + bytes.len()) as u64;
        }
        image
    }

    fn new_file(&mut self, inode: u64) -> usize {
        self.files.push(FileState::default());
        self.folder_of.remove(&inode);
        self.file_of.insert(inode, self.files.len() - 1);
        self.files.len() - 1
    }

    fn new_folder(&mut self, inode: u64) -> usize {
        self.folders.push(FolderState::default());
        self.file_of.remove(&inode);
        self.folder_of.insert(inode, self.folders.len() - 1);
        self.folders.len() - 1
    }

    fn node(&self, inode: u64) -> Option<Node> {
        let file = self.file_of.get(&inode).map(|at| Node::File(*at));
        file.or_else(|| self.folder_of.get(&inode).map(|at| Node::Folder(*at)))
    }

    /// The node of an inode; makes a missing one, and counts a missing file as unknown.
    fn known(&mut self, inode: u64, kind: NameKind) -> Node {
        match (kind, self.node(inode)) {
            (NameKind::File, Some(node @ Node::File(_)))
            | (NameKind::Folder, Some(node @ Node::Folder(_))) => node,
            (NameKind::Folder, _) => Node::Folder(self.new_folder(inode)),
            (NameKind::File, _) => {
                self.unknown += 1;
                Node::File(self.new_file(inode))
            }
        }
    }

    fn read(&mut self, place: u64, header: RecordHeader, bytes: &'a [u8], rng: &mut Rng) {
        let RecordHeader { kind, file: inode, argument, .. } = header;
        match kind {
            RecordKind::Create => drop(self.new_file(inode)),
            RecordKind::CreateFolder => drop(self.new_folder(inode)),
            RecordKind::Write => self.change(place, inode, Change::Write { offset: argument, bytes }),
            RecordKind::Resize => self.change(place, inode, Change::Resize(argument)),
            RecordKind::Names => {
                let Node::Folder(at) = self.known(inode, NameKind::Folder) else { return };
                let entries = log::names(bytes)
                    .map(|(inode, kind, name)| (OsStr::from_bytes(name).to_owned(), self.known(inode, kind)))
                    .collect();
                self.folders[at].pending = Some((place, entries));
            }
            RecordKind::Sync => match self.node(inode) {
                Some(Node::File(at)) => self.files[at].settle(argument, |_| true),
                Some(Node::Folder(at)) => self.folders[at].settle(argument),
                None => {}
            },
            RecordKind::Lost => {
                if let Some(Node::File(at)) = self.node(inode) {
                    self.files[at]
                        .settle(argument, |change| matches!(change, Change::Resize(_)) || rng.bool());
                }
            }
        }
    }

    fn change(&mut self, place: u64, inode: u64, change: Change<'a>) {
        if let Node::File(at) = self.known(inode, NameKind::File) {
            self.files[at].pending.push((place, change));
            self.files[at].all.push(change);
        }
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.files.iter().map(|file| file.pending.len()).sum()
    }

    /// Lets unsynced writes reach the disk by chance; returns how many did.
    pub(crate) fn survive(&mut self, rng: &mut Rng) -> usize {
        self.files.iter_mut().map(|file| file.survive(rng)).sum()
    }

    pub(crate) fn write_durable(&self, target: &Path) -> io::Result<()> {
        self.write_folder(self.root, target)
    }

    fn write_folder(&self, at: usize, target: &Path) -> io::Result<()> {
        fs::create_dir(target)?;
        for (name, node) in &self.folders[at].durable {
            match node {
                Node::File(file) => self.files[*file].write_durable(&target.join(name))?,
                Node::Folder(folder) => self.write_folder(*folder, &target.join(name))?,
            }
        }
        Ok(())
    }

    /// Writes a folder with the names that `seen` has now, and the durable contents.
    pub(crate) fn write_current(&self, seen: &Path, target: &Path) -> io::Result<()> {
        fs::create_dir(target)?;
        each(seen, &mut |entry, is_folder| {
            let target = target.join(entry.file_name());
            match self.file_of.get(&entry.ino()) {
                _ if is_folder => self.write_current(&entry.path(), &target),
                Some(at) => self.files[*at].write_durable(&target),
                None => File::create(target).map(drop),
            }
        })
    }

    /// Returns the files in `seen` whose content is not what all changes of the log give.
    pub(crate) fn differences(&self, seen: &Path, scratch: &Path) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        each(seen, &mut |entry, is_folder| {
            if is_folder {
                found.extend(self.differences(&entry.path(), scratch)?);
                return Ok(());
            }
            let same = match self.file_of.get(&entry.ino()) {
                Some(at) => {
                    self.files[*at].write(scratch, &self.files[*at].all)?;
                    let same = sparse::same(scratch, &entry.path())?;
                    fs::remove_file(scratch)?;
                    same
                }
                None => false,
            };
            if !same {
                found.push(entry.path());
            }
            Ok(())
        })?;
        Ok(found)
    }
}

fn each(folder: &Path, found: &mut dyn FnMut(&fs::DirEntry, bool) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() || kind.is_file() {
            found(&entry, kind.is_dir())?;
        }
    }
    Ok(())
}

impl FolderState {
    fn settle(&mut self, before: u64) {
        if self.pending.as_ref().is_some_and(|(place, _)| *place < before)
            && let Some((_, entries)) = self.pending.take()
        {
            self.durable = entries;
        }
    }
}

impl<'a> FileState<'a> {
    /// Takes the changes before `before` out of the cache; they reach the disk if `kept` says so.
    fn settle(&mut self, before: u64, mut kept: impl FnMut(&Change<'a>) -> bool) {
        let synced = self.pending.partition_point(|(place, _)| *place < before);
        let synced = self.pending.drain(..synced).map(|(_, change)| change);
        self.durable.extend(synced.filter(|change| kept(change)));
    }

    fn survive(&mut self, rng: &mut Rng) -> usize {
        let mut pending: Vec<Change<'a>> = self.pending.drain(..).map(|(_, change)| change).collect();
        match rng.u8(..4) {
            0 => pending.clear(),
            // In any order, because the kernel writes pages back in any order.
            1 => pending.retain(|_| rng.bool()),
            // A prefix, of which the last write is torn.
            2 => {
                pending.truncate(rng.usize(..=pending.len()));
                if let Some(Change::Write { bytes, .. }) = pending.last_mut() {
                    let sectors = bytes.len().div_ceil(SECTOR_BYTES);
                    *bytes = &bytes[..(rng.usize(..=sectors) * SECTOR_BYTES).min(bytes.len())];
                }
            }
            _ => {}
        }
        let survived = pending.len();
        self.durable.extend(pending);
        survived
    }

    fn write_durable(&self, target: &Path) -> io::Result<()> {
        match &self.base {
            // A link suffices, because durable files are never written in place.
            Some(base) if self.durable.is_empty() => fs::hard_link(base, target),
            _ => self.write(target, &self.durable),
        }
    }

    fn write(&self, target: &Path, changes: &[Change<'_>]) -> io::Result<()> {
        if let Some(base) = &self.base {
            sparse::copy(base, target)?;
        }
        let file = File::options().write(true).create(true).truncate(self.base.is_none()).open(target)?;
        for change in changes {
            match change {
                Change::Write { offset, bytes } => file.write_all_at(bytes, *offset)?,
                Change::Resize(length) => file.set_len(*length)?,
            }
        }
        Ok(())
    }
}
