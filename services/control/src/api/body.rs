//! Reads the body of an HTTP request into memory, up to a limit.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, Bytes, HttpBody};

/// Returns `None` when the body has more than `bytes_max` bytes, or when the connection fails before the end of the body. Each
/// chunk is copied, because a chunk keeps its whole receive buffer allocated: a client that sends single bytes would make the
/// server hold kilobytes for each.
pub(super) async fn read(mut body: Body, bytes_max: usize) -> Option<Bytes> {
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(chunk) = frame.ok()?.into_data() else { continue };
        if chunk.len() > bytes_max - whole.len() {
            return None;
        }
        whole.extend_from_slice(&chunk);
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

    /// A receive buffer, which counts itself in `live` until it is freed.
    struct Buffer {
        bytes: Vec<u8>,
        live: Arc<AtomicUsize>,
    }

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Drop for Buffer {
        fn drop(&mut self) {
            self.live.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn chunks_that_were_read_keep_no_buffers() {
        const CHUNKS: usize = 1_000;
        let (live, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = Arc::clone(&most);
        let chunks = stream::iter(0..CHUNKS).map(move |_| {
            seen.fetch_max(live.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let buffer = Buffer { bytes: vec![b'a'; 4096], live: Arc::clone(&live) };
            Ok::<_, Infallible>(Bytes::from_owner(buffer).split_to(1))
        });
        let body = read(Body::from_stream(chunks), CHUNKS).await.unwrap();
        assert_eq!(body.len(), CHUNKS);
        let most = most.load(Ordering::Relaxed);
        assert!(most <= 2, "{most} buffers at once");
    }

    #[tokio::test]
    async fn a_body_over_the_limit_or_with_an_error_is_none() {
        let chunks = |chunks: &'static [Result<&'static str, &'static str>]| {
            Body::from_stream(stream::iter(chunks).map(|chunk| *chunk))
        };
        assert_eq!(read(Body::empty(), 0).await.as_deref(), Some(&b""[..]));
        assert_eq!(read(chunks(&[Ok("ab"), Ok("c")]), 3).await.as_deref(), Some(&b"abc"[..]));
        assert_eq!(read(chunks(&[Ok("ab"), Ok("cd")]), 3).await, None);
        assert_eq!(read(chunks(&[Ok("ab"), Err("lost")]), 3).await, None);
    }
}
