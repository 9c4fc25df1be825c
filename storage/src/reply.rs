use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::error::StoreError;

/// The result of a read; an engine with its data in memory answers at once, without an allocation.
#[must_use = "a read does nothing until it is awaited"]
pub enum Reply<'a, T> {
    /// `None` once the result was taken.
    Ready(Option<Result<T, StoreError>>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>),
}

impl<T> Reply<'_, T> {
    pub fn ready(answer: Result<T, StoreError>) -> Self {
        Self::Ready(Some(answer))
    }
}

// The answer is only ever moved out, never pinned.
impl<T> Unpin for Reply<'_, T> {}

impl<T> Future for Reply<'_, T> {
    type Output = Result<T, StoreError>;

    /// # Panics
    /// It is polled after it was done.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(answer) => Poll::Ready(answer.take().expect("polled after it was done")),
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}
