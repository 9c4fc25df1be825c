//! The log that the layer writes: one record for each write and sync, in the order in which they
//! took place.

/// A header is four little-endian numbers of 64 bits: kind, file, argument, and how many bytes
/// follow.
pub const HEADER_BYTES: usize = 32;

/// Records name files and folders by inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A file is new and empty; the number of a removed file may be used again.
    Create = 1,
    CreateFolder = 2,
    /// A write: the argument is the offset, the bytes follow.
    Write = 3,
    Resize = 4,
    /// The names in a folder that is about to be synced, as the kernel's `linux_dirent64`.
    Names = 5,
    /// Changes of this file before the offset `argument` of the log are durable.
    Sync = 6,
    /// A sync failed: as on Linux, no later sync makes these writes durable.
    Lost = 7,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub kind: RecordKind,
    pub file: u64,
    pub argument: u64,
    pub bytes: usize,
}

impl RecordHeader {
    #[must_use]
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let numbers = [self.kind as u64, self.file, self.argument, self.bytes as u64];
        for (part, number) in header.chunks_exact_mut(8).zip(numbers) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        header
    }

    fn decode(header: &[u8]) -> Option<Self> {
        let number = |at: usize| header.get(at * 8..at * 8 + 8)?.try_into().ok().map(u64::from_le_bytes);
        let kinds = [
            RecordKind::Create,
            RecordKind::CreateFolder,
            RecordKind::Write,
            RecordKind::Resize,
            RecordKind::Names,
            RecordKind::Sync,
            RecordKind::Lost,
        ];
        let kind = number(0)?;
        let kind = kinds.into_iter().find(|known| *known as u64 == kind)?;
        let bytes = usize::try_from(number(3)?).ok()?;
        Some(Self { kind, file: number(1)?, argument: number(2)?, bytes })
    }
}

/// A kill may have cut the last record off.
pub(crate) fn records(mut log: &[u8]) -> impl Iterator<Item = (RecordHeader, &[u8])> {
    std::iter::from_fn(move || {
        let header = RecordHeader::decode(log.get(..HEADER_BYTES)?)?;
        let bytes = log.get(HEADER_BYTES..HEADER_BYTES.checked_add(header.bytes)?)?;
        log = &log[HEADER_BYTES + header.bytes..];
        Some((header, bytes))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameKind {
    Folder,
    File,
}

/// The files and folders of a list of `linux_dirent64`, without `.` and `..`, sockets and links.
pub(crate) fn names(mut list: &[u8]) -> impl Iterator<Item = (u64, NameKind, &[u8])> {
    const FOLDER: u8 = 4;
    const FILE: u8 = 8;
    std::iter::from_fn(move || {
        loop {
            let file = u64::from_le_bytes(list.get(..8)?.try_into().ok()?);
            let bytes = usize::from(u16::from_le_bytes(list.get(16..18)?.try_into().ok()?));
            let kind = *list.get(18)?;
            let name = list.get(19..bytes)?;
            let name = &name[..name.iter().position(|byte| *byte == 0)?];
            list = &list[bytes..];
            match kind {
                FOLDER if name != b"." && name != b".." => return Some((file, NameKind::Folder, name)),
                FILE => return Some((file, NameKind::File, name)),
                _ => {}
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_up_to_where_a_kill_cut_it_off() {
        let first = RecordHeader { kind: RecordKind::Write, file: 7, argument: 4_096, bytes: 5 };
        let second = RecordHeader { kind: RecordKind::Sync, file: 7, argument: 1, bytes: 0 };
        let log = [&first.encode()[..], b"hello", &second.encode()].concat();
        let read = |length| records(&log[..length]).collect::<Vec<_>>();
        assert_eq!(read(log.len()), [(first, &b"hello"[..]), (second, b"")]);
        for length in HEADER_BYTES + 5..log.len() {
            assert_eq!(read(length), [(first, &b"hello"[..])]);
        }
        for length in 0..HEADER_BYTES + 5 {
            assert_eq!(read(length), []);
        }
    }
}
