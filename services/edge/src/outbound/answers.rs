//! Counts the bytes in a connection's outbound buffer that are answers to its client, such as PUBACK, among messages.

/// Messages stand between answers, so an exact count would need the position of each answer. Two groups are enough: a
/// group counts until its last answer is written, while the second collects. So the count falls even while messages keep
/// the buffer long.
#[derive(Debug, Default)]
pub(super) struct Answers {
    first: AnswerGroup,
    second: AnswerGroup,
}

impl Answers {
    pub(super) fn bytes(&self) -> usize {
        self.first.bytes + self.second.bytes
    }

    /// Adds an answer of `bytes`, which ends `left` bytes after the written ones.
    pub(super) fn add(&mut self, bytes: usize, left: usize) {
        if bytes == 0 {
            return;
        }
        let group = if self.first.bytes == 0 { &mut self.first } else { &mut self.second };
        group.bytes += bytes;
        group.left = left;
    }

    pub(super) fn written(&mut self, bytes: usize) {
        for group in [&mut self.first, &mut self.second] {
            group.left = group.left.saturating_sub(bytes);
            if group.left == 0 {
                group.bytes = 0;
            }
        }
        if self.first.bytes == 0 {
            self.first = std::mem::take(&mut self.second);
        }
    }

    /// Bytes are inserted before all that waits.
    pub(super) fn moved_back(&mut self, bytes: usize) {
        self.first.left += bytes;
        self.second.left += bytes;
    }
}

#[derive(Debug, Default)]
struct AnswerGroup {
    bytes: usize,
    /// Bytes to write until the last answer of the group is written.
    left: usize,
}
