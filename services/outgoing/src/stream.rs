//! A connection that holds its permit while it lives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) struct OutgoingStream {
    inner: TokioIo<TcpStream>,
    _permit: OwnedSemaphorePermit,
}

impl OutgoingStream {
    pub(crate) fn new(stream: TcpStream, permit: OwnedSemaphorePermit) -> Self {
        Self { inner: TokioIo::new(stream), _permit: permit }
    }
}

impl Connection for OutgoingStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for OutgoingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, to)
    }
}

impl Write for OutgoingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
