//! Tracks which file descriptors of the program belong to the folder under test (`FAULTS_ROOT`),
//! and appends what the program does to these files and folders to the log (`FAULTS_LOG`).

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use millrace_faults::control::Field;
use millrace_faults::log::{RecordHeader, RecordKind};

use crate::panel::Panel;
use crate::system::{self, call};

/// Descriptors from this number on are not tracked: [`Field::Blind`] then says that the log is
/// incomplete.
const FDS_MAX: usize = 1 << 16;
const PATH_MAX: usize = 4_096;
const GETDENTS_BYTES: usize = 64 * 1024;
const FOLDER_BIT: u64 = 1 << 63;

/// For each descriptor the inode number of its file, with [`FOLDER_BIT`] for a folder; 0 when the
/// file is not tracked.
static INODES: [AtomicU64; FDS_MAX] = [const { AtomicU64::new(0) }; FDS_MAX];

pub(crate) struct Recorder {
    root: &'static [u8],
    pub(crate) panel: Panel,
    log: Option<c_int>,
    /// Held while a file is changed and the change is recorded, so that the log has the order of
    /// the changes.
    order: Mutex<()>,
}

#[derive(Clone, Copy)]
pub(crate) struct Tracked {
    pub(crate) inode: u64,
    pub(crate) is_folder: bool,
}

/// `None` in a program that was started without `FAULTS_ROOT` or `FAULTS_CONTROL`: its calls go
/// straight to the kernel.
pub(crate) fn recorder() -> Option<&'static Recorder> {
    static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();
    RECORDER.get_or_init(Recorder::start).as_ref()
}

pub(crate) fn tracked(fd: c_int) -> Option<Tracked> {
    let inode = INODES.get(usize::try_from(fd).ok()?)?.load(Relaxed);
    (inode != 0).then_some(Tracked { inode: inode & !FOLDER_BIT, is_folder: inode & FOLDER_BIT != 0 })
}

pub(crate) fn untrack(fd: c_int) {
    if let Some(inode) = usize::try_from(fd).ok().and_then(|at| INODES.get(at)) {
        inode.store(0, Relaxed);
    }
}

impl Recorder {
    fn start() -> Option<Self> {
        let root = system::variable(c"FAULTS_ROOT")?.to_bytes();
        let control = system::open(system::variable(c"FAULTS_CONTROL")?, libc::O_RDWR)?;
        let panel = Panel::map(control)?;
        let open = |path: &CStr| system::open(path, libc::O_WRONLY | libc::O_APPEND);
        let log = system::variable(c"FAULTS_LOG").and_then(open);
        Some(Self { root, panel, log, order: Mutex::new(()) })
    }

    pub(crate) fn lock_order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn track(&self, fd: c_int) -> Option<Tracked> {
        let mut path = [0; PATH_MAX];
        let length = system::path_of(fd, &mut path);
        let below = path[..length].strip_prefix(self.root)?;
        if !(below.is_empty() || below.starts_with(b"/")) {
            return None;
        }
        let (inode, is_folder) = system::identity(fd)?;
        match INODES.get(usize::try_from(fd).ok()?) {
            Some(tracked) => tracked.store(inode | if is_folder { FOLDER_BIT } else { 0 }, Relaxed),
            None => drop(self.panel.count(Field::Blind)),
        }
        Some(Tracked { inode, is_folder })
    }

    pub(crate) fn track_duplicate(&self, fd: c_int, duplicate: c_int) {
        let (Ok(fd), Ok(duplicate)) = (usize::try_from(fd), usize::try_from(duplicate)) else { return };
        let inode = INODES.get(fd).map_or(0, |inode| inode.load(Relaxed));
        match INODES.get(duplicate) {
            Some(tracked) => tracked.store(inode, Relaxed),
            None if inode != 0 => drop(self.panel.count(Field::Blind)),
            None => {}
        }
    }

    pub(crate) fn record(&self, kind: RecordKind, inode: u64, argument: u64, bytes: &[u8]) {
        let Some(log) = self.log else { return };
        let header = RecordHeader { kind, file: inode, argument, bytes: bytes.len() }.encode();
        let part =
            |part: &[u8]| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        let parts = [part(&header), part(bytes)];
        // SAFETY: both parts live until the call returns, and the kernel only reads them.
        let written = unsafe { call!(SYS_writev, log, parts.as_ptr(), parts.len()) };
        if usize::try_from(written) != Ok(header.len() + bytes.len()) {
            self.panel.count(Field::Blind);
        }
    }

    /// A sync of a folder makes the names durable that the folder has at that time, so they are recorded with it.
    pub(crate) fn record_names_before_sync(&self, fd: c_int, inode: u64) {
        let mut names = Vec::new();
        let mut part = [0_u8; GETDENTS_BYTES];
        system::position(fd, 0, libc::SEEK_SET);
        loop {
            // SAFETY: the kernel writes at most the given length.
            let bytes = unsafe { call!(SYS_getdents64, fd, part.as_mut_ptr().cast::<c_void>(), part.len()) };
            match usize::try_from(bytes) {
                Ok(0) => break,
                Ok(bytes) => names.extend_from_slice(&part[..bytes]),
                Err(_) => {
                    self.panel.count(Field::Blind);
                    break;
                }
            }
        }
        system::position(fd, 0, libc::SEEK_SET);
        self.record(RecordKind::Names, inode, 0, &names);
    }

    pub(crate) fn log_bytes(&self) -> u64 {
        self.log.map_or(0, |log| system::position(log, 0, libc::SEEK_END))
    }
}
