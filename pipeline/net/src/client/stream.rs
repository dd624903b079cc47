//! A connection of any kind: direct, through a proxy, plain, TLS, or TLS within TLS.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// The interface of every layer of a connection.
pub(super) trait Layer: Read + Write + Unpin + Send {}

impl<T: Read + Write + Unpin + Send> Layer for T {}

/// An open connection. The layers are boxed: one virtual call per read of many kilobytes costs nothing, and six
/// combinations of types become one.
pub(super) struct Stream {
    layer: Box<dyn Layer>,
    /// Whether requests use the absolute form, because a proxy forwards them.
    forwarded: bool,
    http2: bool,
}

impl Stream {
    pub(super) fn new(layer: impl Layer + 'static) -> Stream {
        Stream { layer: Box::new(layer), forwarded: false, http2: false }
    }

    pub(super) fn forwarded(mut self) -> Stream {
        self.forwarded = true;
        self
    }

    pub(super) fn http2(mut self, negotiated: bool) -> Stream {
        self.http2 = negotiated;
        self
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.forwarded);
        if self.http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.layer).poll_read(cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.layer).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.layer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.layer).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.layer.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.layer).poll_write_vectored(cx, bufs)
    }
}
