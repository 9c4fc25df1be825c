//! Pages of lists, in the order of ids. A page continues after the id `next`, which the API encodes as its cursor.

use millrace_layers::documents::{Collection, DocumentPage};
use millrace_layers::{LayerResult, documents};
use millrace_storage::{Read, Transaction};
use serde::de::DeserializeOwned;

use super::Error;
use crate::limits::PAGE_BYTES_MAX;

#[derive(Clone, Debug)]
pub struct PageRequest {
    /// `None`: the first page.
    pub after: Option<Vec<u8>>,
    pub limit: usize,
}

impl PageRequest {
    /// Reads documents whose id begins with `search`: fewer than `limit` if they are long, because a server holds a page in
    /// memory until its client has taken it.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        tx: &Transaction,
        all: &Collection,
        search: &[u8],
    ) -> LayerResult<DocumentPage<T>> {
        let most = (self.limit, PAGE_BYTES_MAX);
        all.bounded_page(tx, search, self.after.as_deref(), most, Read::Snapshot).await
    }
}

#[derive(Clone, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// `None`: this is the last page.
    pub next: Option<Vec<u8>>,
}

impl<T> Page<T> {
    pub(super) fn of<D>(page: DocumentPage<D>, row: impl Fn(&[u8], documents::Document<D>) -> T) -> Self {
        let next = page.items.last().filter(|_| page.more).map(|(id, _)| id.to_vec());
        Self { items: page.items.into_iter().map(|(id, document)| row(&id, document)).collect(), next }
    }
}

pub(crate) fn wrong_cursor() -> Error {
    Error::field("cursor", "is not a cursor of this list: leave it out for the first page")
}
