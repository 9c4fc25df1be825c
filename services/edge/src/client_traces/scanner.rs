//! Finds the packets in the bytes that a connection sends, to show them: keeps the beginning of each packet and skips the rest,
//! so a large payload is not copied.

const HEAD_BYTES: usize = 2 * 1024;

/// The first bytes must begin a packet.
#[derive(Default)]
pub(crate) struct Scanner {
    head: Vec<u8>,
    received: usize,
    /// Size of the packet; 0: its fixed header is incomplete.
    size: usize,
}

impl Scanner {
    /// Calls `on_packet` with the beginning of each complete packet and its size.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_packet: impl FnMut(&[u8], usize)) {
        while let Some((first, after)) = bytes.split_first() {
            if self.size == 0 {
                self.head.push(*first);
                bytes = after;
                self.received = self.head.len();
                self.size = size(&self.head).unwrap_or(0);
            } else {
                let taken = bytes.len().min(self.size - self.received);
                let kept = taken.min(HEAD_BYTES.saturating_sub(self.head.len()));
                self.head.extend_from_slice(&bytes[..kept]);
                self.received += taken;
                bytes = &bytes[taken..];
            }
            if self.size != 0 && self.received == self.size {
                on_packet(&self.head, self.size);
                *self = Self { head: std::mem::take(&mut self.head), ..Self::default() };
                self.head.clear();
            }
        }
    }
}

/// Size of a packet whose fixed header ends where `head` ends.
fn size(head: &[u8]) -> Option<usize> {
    let (_, lengths) = head.split_first()?;
    let is_complete = lengths.last()? & 0x80 == 0;
    let length = lengths.iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7F));
    is_complete.then_some(head.len() + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_however_the_bytes_are_cut() {
        let large = [&[0x30, 0xB8, 0x17, 0, 1, b'a'][..], &[7; 3_000 - 3]].concat();
        let small: &[u8] = &[0xD0, 0];
        let acknowledgement: &[u8] = &[0x40, 2, 0, 9];
        let all = [small, &large, acknowledgement, small].concat();
        for piece in [1, 2, 3, 7, 100, all.len()] {
            let (mut scanner, mut found) = (Scanner::default(), Vec::new());
            for bytes in all.chunks(piece) {
                scanner.feed(bytes, |head, size| found.push((head.to_vec(), size)));
            }
            let sizes: Vec<usize> = found.iter().map(|(_, size)| *size).collect();
            assert_eq!(sizes, [2, large.len(), 4, 2], "pieces of {piece} bytes");
            assert_eq!(found[0].0, small);
            assert_eq!(found[1].0, large[..HEAD_BYTES]);
            assert_eq!(found[2].0, acknowledgement);
        }
    }
}
