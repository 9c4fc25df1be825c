//! Records the last acknowledged version beside the tables and journals.
//!
//! fjall takes the first invalid record for the end of a journal, as a crash leaves it. Damage
//! there would silently drop everything after it; the note shows that something is missing. The
//! commit thread writes the note after each group, without a sync. So it survives the process, and
//! after a loss of power it may be older than the durable version, never newer.

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

    /// Returns 0 if there is no complete note.
    pub(super) fn read(&self) -> StoreVersion {
        let mut bytes = [0; 16];
        let read = self.0.read_exact_at(&mut bytes, 0);
        let noted = u128::from_be_bytes(bytes);
        let (version, check) = ((noted >> 64) as u64, noted as u64);
        if read.is_ok() && check == !version { version } else { 0 }
    }

    /// A failure does not fail the commit, because no promise relies on the note.
    pub(super) fn note(&self, version: StoreVersion) {
        let noted = u128::from(version) << 64 | u128::from(!version);
        if let Err(error) = self.0.write_all_at(&noted.to_be_bytes(), 0) {
            tracing::debug!(%error, "the last acknowledged version was not noted; nothing is lost");
        }
    }
}
