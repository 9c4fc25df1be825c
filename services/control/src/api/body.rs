//! Reads the body of an HTTP request into memory, up to a limit of bytes and of time.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use tokio::time::timeout;

use super::problem::Problem;
use crate::limits::BODY_TIME_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge(usize),
    /// The connection failed, or the client ended the body before its announced length.
    Broken,
    /// The body was not whole within [`BODY_TIME_MAX`].
    Late,
}

impl From<BodyError> for Problem {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(bytes_max) => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("this request has more than the {bytes_max} bytes that it may have"),
            ),
            BodyError::Broken => {
                Self::new(StatusCode::BAD_REQUEST, "the body of the request ended too early: send it whole")
            }
            BodyError::Late => Self::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not come within {} s: send it again", BODY_TIME_MAX.as_secs()),
            ),
        }
    }
}

pub(super) async fn read(body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    within(BODY_TIME_MAX, body, bytes_max).await
}

async fn within(time_max: Duration, body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    timeout(time_max, whole(body, bytes_max)).await.unwrap_or(Err(BodyError::Late))
}

/// Copies each chunk, because a chunk keeps its whole receive buffer allocated: a client that sends single bytes would make the
/// server hold kilobytes for each.
async fn whole(mut body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    // Before the first read, so that a client that asks (`Expect: 100-continue`) need not send the body.
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(BodyError::TooLarge(bytes_max));
    }
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(chunk) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        if chunk.len() > bytes_max - whole.len() {
            return Err(BodyError::TooLarge(bytes_max));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.into())
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
    async fn a_body_over_the_limit_and_a_broken_one_differ() {
        let chunks = |chunks: &'static [Result<&'static str, &'static str>]| {
            Body::from_stream(stream::iter(chunks).map(|chunk| *chunk))
        };
        assert_eq!(read(Body::empty(), 0).await.as_deref(), Ok(&b""[..]));
        assert_eq!(read(chunks(&[Ok("ab"), Ok("c")]), 3).await.as_deref(), Ok(&b"abc"[..]));
        assert_eq!(read(chunks(&[Ok("ab"), Ok("cd")]), 3).await, Err(BodyError::TooLarge(3)));
        assert_eq!(read(chunks(&[Ok("ab"), Err("lost")]), 3).await, Err(BodyError::Broken));
    }

    #[tokio::test]
    async fn a_body_that_does_not_end_is_late() {
        let endless = Body::from_stream(stream::pending::<Result<&str, Infallible>>());
        assert_eq!(within(Duration::from_millis(1), endless, 3).await, Err(BodyError::Late));
    }

    #[test]
    fn each_error_has_its_status() {
        for (error, status) in [
            (BodyError::TooLarge(3), StatusCode::PAYLOAD_TOO_LARGE),
            (BodyError::Broken, StatusCode::BAD_REQUEST),
            (BodyError::Late, StatusCode::REQUEST_TIMEOUT),
        ] {
            assert!(Problem::from(error).is(status), "{error:?}");
        }
    }
}
