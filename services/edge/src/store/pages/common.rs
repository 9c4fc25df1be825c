//! Streams that other sessions read too: their shared parts are merged in commit order, as far as a page takes them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use futures_util::future::join_all;
use millrace_layers::streams::{self, ReadLimit, StreamBatch, StreamId};
use millrace_layers::{LayerError, Position};
use millrace_storage::Read::Snapshot;

use super::super::parts::{PartEntry, StreamPart};
use super::{PageContent, StreamReads};

/// Entries of the first part of each stream, however many streams there are.
const PART_ENTRIES_MIN: usize = 4;
/// The same in bytes; a message that has more is read when its turn comes.
const PART_BYTES_MIN: usize = 16 * 1024;
/// A stream of which a page takes a whole part is busy: the next part has this many times its entries.
const GROWTH: usize = 4;

/// A stream of the merge.
struct CommonStream {
    /// Its index in [`super::StreamRead::sources`].
    number: usize,
    part: Arc<StreamPart>,
    /// The next entry of the part.
    next: usize,
}

impl CommonStream {
    fn next(&self) -> Option<&PartEntry> {
        self.part.entries.get(self.next)
    }

    /// The position of its next entry, or where its next part begins (`true`).
    fn head(&self) -> Option<(Position, bool)> {
        let rest = self.part.more.then_some((self.part.through, true));
        self.next().map(|entry| (entry.position, false)).or(rest)
    }
}

struct PartRead {
    stream: StreamId,
    after: Position,
    limit: ReadLimit,
    /// Whether an entry that exceeds the limit is left out.
    is_strict: bool,
}

impl StreamReads<'_, '_> {
    pub(super) async fn find_common(
        &self,
        numbers: &[usize],
        found: &mut PageContent,
    ) -> Result<(), LayerError> {
        if numbers.is_empty() {
            return Ok(());
        }
        let (broker, cursor) = (self.broker().id, self.read.cursor);
        let end = Position::end_of(self.tx.read_version().await?);
        found.ends(end, false);
        let streams = numbers.iter().map(|number| self.read.sources[*number].stream);
        let rows = join_all(streams.map(|stream| streams::stream(&self.tx, broker, stream, Snapshot))).await;
        let share = self.limit.entries * 2 / numbers.len();
        let least = PART_ENTRIES_MIN.min(self.limit.entries);
        let limit = ReadLimit {
            entries: share.clamp(least, self.limit.entries),
            bytes: (self.limit.bytes / numbers.len()).max(PART_BYTES_MIN),
        };
        let mut merged = Vec::with_capacity(numbers.len());
        for (number, row) in numbers.iter().zip(rows) {
            let source = self.read.sources[*number];
            let Some(row) = row? else { continue };
            let from = cursor.max(Position::end_of(source.since));
            found.missed += row.missed_since(from).at_most;
            // Trimmed messages are not delivered from memory either.
            let after = from.max(row.floor);
            let read = PartRead { stream: source.stream, after, limit, is_strict: true };
            let part = self.part(read).await?;
            self.note_end(&part, end, found);
            merged.push(CommonStream { number: *number, next: part.begin(after), part });
        }
        self.merge(merged, limit, end, found).await
    }

    /// A stream without more entries is known up to the end of its part.
    fn note_end(&self, part: &StreamPart, end: Position, found: &mut PageContent) {
        if !part.more {
            // A part read a moment ago lacks later commits, and a session that follows must read to the present end.
            found.ends(part.through, self.shared.is_shared && part.through < end);
        }
    }

    /// `first`: the limit of the first parts.
    async fn merge(
        &self,
        mut merged: Vec<CommonStream>,
        first: ReadLimit,
        end: Position,
        found: &mut PageContent,
    ) -> Result<(), LayerError> {
        let head =
            |merged: &[CommonStream], place: usize| merged[place].head().map(|head| Reverse((head, place)));
        let mut heads: BinaryHeap<_> = (0..merged.len()).filter_map(|place| head(&merged, place)).collect();
        let (mut entries, mut bytes): (Vec<(Position, _)>, usize) = (Vec::new(), 0);
        while let Some(Reverse(((at, is_rest), place))) = heads.pop() {
            // Nothing after the end of a stream can be delivered.
            if at > found.through || is_rest && at == found.through {
                found.more = true;
                break;
            }
            let last = entries.last().map(|(position, _)| *position);
            // The page is not filled with a few entries of a new part.
            let fill = if is_rest { 2 } else { 1 };
            let is_full = entries.len() * fill >= self.limit.entries || bytes * fill >= self.limit.bytes;
            if let Some(last) = last.filter(|last| is_full && (is_rest || *last != at)) {
                found.ends(last, true);
                break;
            }
            if is_rest {
                let old = &merged[place].part;
                let count = (old.entries.len() * GROWTH).clamp(first.entries, self.limit.entries);
                let stream = self.read.sources[merged[place].number].stream;
                // If its part is empty, its next entry is so long that it was left out.
                let is_strict = !old.entries.is_empty();
                let limit = ReadLimit { entries: count, ..first };
                let part = self.part(PartRead { stream, after: at, limit, is_strict }).await?;
                self.note_end(&part, end, found);
                (merged[place].next, merged[place].part) = (part.begin(at), part);
            } else if let Some(entry) = merged[place].next() {
                let number = merged[place].number;
                match entries.last_mut() {
                    Some((last, (_, _, sources))) if *last == at => Vec::push(sources, number),
                    _ => {
                        bytes += entry.message.size();
                        entries.push((at, (entry.message.clone(), entry.publisher, vec![number])));
                    }
                }
                merged[place].next += 1;
            }
            heads.extend(head(&merged, place));
        }
        found.entries.append(&mut entries);
        Ok(())
    }

    async fn part(&self, read: PartRead) -> Result<Arc<StreamPart>, LayerError> {
        let (key, now) = ((self.broker().id, read.stream), self.shared.clock.now());
        // A second reader waits here, and finds what the first one has read.
        let mut parts = self.parts.lock().await;
        if let Some(part) = parts.find(key, read.after, now) {
            return Ok(part);
        }
        let source = [streams::StreamSource { stream: read.stream, since: 0 }];
        let (tx, after) = (&self.tx, read.after);
        let StreamBatch { entries, through, more, .. } = if read.is_strict {
            streams::read_within(tx, key.0, &source, after, read.limit).await?
        } else {
            streams::read(tx, key.0, &source, after, read.limit).await?
        };
        let entry = |entry: streams::StreamEntry| {
            let (message, publisher) = self.message(&entry)?;
            Ok(PartEntry { position: entry.position, message, publisher })
        };
        let entries = entries.into_iter().map(entry).collect::<Result<_, LayerError>>()?;
        let part = Arc::new(StreamPart { after, through, more, entries });
        if through > after {
            parts.keep(key, part.clone(), now);
        }
        Ok(part)
    }
}
