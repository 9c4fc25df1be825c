//! Reads the body of an HTTP response, up to a limit.

use std::error::Error as StdError;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;

use crate::CallError;

/// Copies each part. Without a copy a part would hold the whole buffer in which it was received,
/// kilobytes for each byte of a server that sends single bytes.
pub(crate) async fn read<B>(mut body: B, bytes_max: usize) -> Result<Bytes, CallError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: StdError + Send + Sync + 'static,
{
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CallError::Http(Arc::new(error)))?;
        let Ok(part) = frame.into_data() else { continue };
        if part.len() > bytes_max - whole.len() {
            return Err(CallError::TooLong);
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole.into())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use hyper::body::Frame;

    use super::*;

    /// A large buffer, of which a part is one byte.
    struct Buffer {
        bytes: Vec<u8>,
        held: Arc<AtomicUsize>,
    }

    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Drop for Buffer {
        fn drop(&mut self) {
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
    }

    struct Drip {
        left: usize,
        held: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
    }

    impl Body for Drip {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            self.most.fetch_max(self.held.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let buffer = Buffer { bytes: vec![b'a'; 4096], held: Arc::clone(&self.held) };
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(buffer).split_to(1)))))
        }
    }

    #[tokio::test]
    async fn parts_that_were_read_hold_no_buffers() {
        const PARTS: usize = 1_000;
        let most = Arc::new(AtomicUsize::new(0));
        let drip = || Drip { left: PARTS, held: Arc::default(), most: Arc::clone(&most) };
        assert_eq!(read(drip(), PARTS).await.unwrap().len(), PARTS);
        assert_eq!(most.load(Ordering::Relaxed), 1, "buffers at once");
        assert!(matches!(read(drip(), PARTS - 1).await, Err(CallError::TooLong)));
    }
}
