//! Pages of lists.

use millrace_layers::documents;

use super::Error;

/// Which page of a list is asked for.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// After what the page begins: what the page before it said.
    pub after: Option<Vec<u8>>,
    /// Most rows.
    pub limit: usize,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Its rows.
    pub items: Vec<T>,
    /// After what the next page begins; `None`: this is the last one.
    pub next: Option<Vec<u8>>,
}

impl<T> Page<T> {
    /// A page of documents, each with its id and version.
    pub(super) fn of<D>(
        page: documents::DocumentPage<D>,
        row: impl Fn(&[u8], documents::Document<D>) -> T,
    ) -> Self {
        let next = page.items.last().filter(|_| page.more).map(|(id, _)| id.to_vec());
        Self { items: page.items.into_iter().map(|(id, document)| row(&id, document)).collect(), next }
    }
}

pub(crate) fn wrong_cursor() -> Error {
    Error::field("cursor", "is none that a page of this list has given")
}
