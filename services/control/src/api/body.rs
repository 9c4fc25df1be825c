//! Reads the body of a request.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, Bytes, HttpBody};

/// `None` when the body has more than `bytes_max` bytes, or ends early. Each part is copied, because it holds the buffer in
/// which it was received: the parts of a client that sends single bytes would take kilobytes each.
pub(super) async fn read(mut body: Body, bytes_max: usize) -> Option<Bytes> {
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(part) = frame.ok()?.into_data() else { continue };
        if part.len() > bytes_max - whole.len() {
            return None;
        }
        whole.extend_from_slice(&part);
    }
    Some(whole.into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{StreamExt as _, stream};

    use super::*;

    /// A part of one byte in a large buffer.
    struct Part {
        buffer: Vec<u8>,
        held: Arc<AtomicUsize>,
    }

    impl AsRef<[u8]> for Part {
        fn as_ref(&self) -> &[u8] {
            &self.buffer
        }
    }

    impl Drop for Part {
        fn drop(&mut self) {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn parts_that_were_read_hold_no_buffers() {
        const PARTS: usize = 1_000;
        let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let parts = stream::iter(0..PARTS).map(move |_| {
            seen.fetch_max(held.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let part = Part { buffer: vec![b'a'; 4096], held: Arc::clone(&held) };
            Ok::<_, Infallible>(Bytes::from_owner(part).split_to(1))
        });
        let body = read(Body::from_stream(parts), PARTS).await.unwrap();
        assert_eq!(body.len(), PARTS);
        let most = most.load(Ordering::Relaxed);
        assert!(most <= 2, "{most} buffers at once");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_or_with_an_error_is_none() {
        let parts = |parts: &'static [Result<&'static str, &'static str>]| {
            Body::from_stream(stream::iter(parts).map(|part| *part))
        };
        assert_eq!(read(Body::empty(), 0).await.as_deref(), Some(&b""[..]));
        assert_eq!(read(parts(&[Ok("ab"), Ok("c")]), 3).await.as_deref(), Some(&b"abc"[..]));
        assert_eq!(read(parts(&[Ok("ab"), Ok("cd")]), 3).await, None);
        assert_eq!(read(parts(&[Ok("ab"), Err("lost")]), 3).await, None);
    }
}
