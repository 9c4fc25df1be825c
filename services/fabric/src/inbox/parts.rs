//! A batch that arrives in parts, because it is longer than one NATS message may be: if one is missing, the rest is dropped as
//! `Stray`.

use bytes::Bytes;

use crate::clock::Millis;
use crate::frame::Numbers;

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) numbers: Numbers,
    next: u16,
    body: Vec<u8>,
    pub(super) since: Millis,
}

pub(super) enum PartOutcome {
    Waits,
    Whole(Bytes),
    Stray,
}

impl Parts {
    pub(super) fn new(numbers: Numbers, now: Millis) -> Self {
        Self { numbers, next: 0, body: Vec::new(), since: now }
    }

    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    pub(super) fn add(&mut self, numbers: Numbers, index: u16, parts: u16, piece: &[u8]) -> PartOutcome {
        if numbers != self.numbers || index != self.next || index >= parts {
            return PartOutcome::Stray;
        }
        if index == 0 {
            self.body.reserve(piece.len() * usize::from(parts.min(64)));
        }
        self.body.extend_from_slice(piece);
        self.next += 1;
        match self.next == parts {
            true => PartOutcome::Whole(std::mem::take(&mut self.body).into()),
            false => PartOutcome::Waits,
        }
    }
}
