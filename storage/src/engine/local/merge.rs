//! Reads a range as a transaction sees it: the store's keys with its own writes laid over them.

use bytes::Bytes;

use super::{
    backend::View,
    buffer::{Buffer, Op, add},
};
use crate::{
    engine::range_set::RangeSet,
    error::StoreError,
    key::KeyRange,
    limits::PAGE_BYTES_MAX,
    read::{KeyValue, RangeOptions, RangePage},
};

/// A transaction's own writes, copied so that no lock is held while the store is read.
pub(super) struct Layer {
    written: Vec<(Bytes, Op)>,
    cleared: RangeSet,
}

impl Layer {
    pub(super) fn of(buffer: &Buffer, range: &KeyRange, reverse: bool) -> Option<Self> {
        if buffer.is_untouched() {
            return None;
        }
        let mut written = buffer.written(range);
        if reverse {
            written.reverse();
        }
        Some(Self { written, cleared: buffer.cleared().within(range) })
    }
}

/// Reads one page of `range`. Without `layer` the transaction has written nothing there.
pub(super) fn page(
    view: &impl View,
    range: &KeyRange,
    options: RangeOptions,
    layer: Option<Layer>,
) -> Result<RangePage, StoreError> {
    let mut page = Builder { page: RangePage::default(), limit: options.limit, bytes: 0 };
    let Some(layer) = layer else {
        view.scan(range, options.reverse, &mut |key, value| page.push(key, value))?;
        return Ok(page.page);
    };
    let mut own = layer.written.into_iter().peekable();
    let is_before = |a: &Bytes, b: &Bytes| if options.reverse { a > b } else { a < b };
    view.scan(range, options.reverse, &mut |key, value| {
        while let Some((own_key, op)) = own.next_if(|(own_key, _)| is_before(own_key, &key)) {
            if !page.push_own(own_key, op, None) {
                return false;
            }
        }
        match own.next_if(|(own_key, _)| *own_key == key) {
            Some((_, op)) => page.push_own(key, op, Some(value)),
            None if layer.cleared.contains(&key) => true,
            None => page.push(key, value),
        }
    })?;
    for (key, op) in own {
        if page.page.more || !page.push_own(key, op, None) {
            break;
        }
    }
    Ok(page.page)
}

struct Builder {
    page: RangePage,
    limit: usize,
    bytes: usize,
}

impl Builder {
    fn push(&mut self, key: Bytes, value: Bytes) -> bool {
        if self.page.items.len() >= self.limit || self.bytes >= PAGE_BYTES_MAX {
            self.page.more = true;
            return false;
        }
        self.bytes += key.len() + value.len();
        self.page.items.push(KeyValue { key, value });
        true
    }

    fn push_own(&mut self, key: Bytes, op: Op, stored: Option<Bytes>) -> bool {
        match op {
            Op::Set(value) => self.push(key, value),
            Op::Add(addend) => self.push(key, add(stored, addend)),
            Op::Clear => true,
        }
    }
}
