//! The last acknowledged version, stored beside the tables and journals.
//!
//! fjall assumes that a journal ends at the first invalid record, as a crash leaves it, so damage
//! there would silently drop everything after it. The commit thread therefore notes the version
//! here after each group, without a sync: the note survives the process, and after a loss of power
//! it may be older than the durable version, never newer.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use crate::version::StoreVersion;

const NAME: &str = "watermark";

pub(super) struct Watermark(File);

impl Watermark {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        options.open(folder.join(NAME)).map(Self)
    }

    /// 0 without a complete note.
    pub(super) fn read(&self) -> StoreVersion {
        let mut bytes = [0; 16];
        let read = self.0.read_exact_at(&mut bytes, 0);
        let noted = u128::from_be_bytes(bytes);
        let (version, check) = ((noted >> 64) as u64, noted as u64);
        if read.is_ok() && check == !version { version } else { 0 }
    }

    /// A failure does not fail the commit: no promise relies on the note.
    pub(super) fn note(&self, version: StoreVersion) {
        let noted = u128::from(version) << 64 | u128::from(!version);
        if let Err(error) = self.0.write_all_at(&noted.to_be_bytes(), 0) {
            tracing::debug!(%error, "the last acknowledged version was not noted; nothing is lost");
        }
    }
}
