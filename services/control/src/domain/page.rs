use millrace_layers::documents;

use super::Error;

#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The `next` of the previous page; `None`: the first page.
    pub after: Option<Vec<u8>>,
    pub limit: usize,
}

#[derive(Clone, Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// `None`: this is the last page.
    pub next: Option<Vec<u8>>,
}

impl<T> Page<T> {
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
