//! A connection of any kind: direct, through a proxy, plain, TLS, or TLS within TLS.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// What every layer of a connection is.
pub(super) trait Layer: Read + Write + Unpin + Send {}

impl<T: Read + Write + Unpin + Send> Layer for T {}

/// An open connection. The layers are boxed: a call per read of many kilobytes costs nothing, and
/// six combinations of types become one.
pub(super) struct Stream {
    layer: Box<dyn Layer>,
    /// Whether requests go to a proxy in absolute form.
    forwarded: bool,
    http2: bool,
    /// Whose connection it is, where no TLS is spoken and nothing has come yet.
    unheard: Option<String>,
}

/// An alert of TLS, whatever its version (RFC 8446, section 5.1).
const ALERT: [u8; 2] = [0x15, 0x03];

impl Stream {
    pub(super) fn new(layer: impl Layer + 'static) -> Stream {
        Stream { layer: Box::new(layer), forwarded: false, http2: false, unheard: None }
    }

    pub(super) fn forwarded(mut self) -> Stream {
        self.forwarded = true;
        self
    }

    pub(super) fn http2(mut self, negotiated: bool) -> Stream {
        self.http2 = negotiated;
        self
    }

    /// Fails where the first bytes of the server `to` say that it speaks TLS. It is said in the log as well: of a
    /// connection that fails with HTTP/2, requests are told no more than that.
    pub(super) fn without_tls(mut self, to: String) -> Stream {
        self.unheard = Some(to);
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
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.unheard.is_none() {
            return Pin::new(&mut self.layer).poll_read(cx, buf);
        }
        let mut first = [0; 16];
        let most = first.len().min(buf.remaining());
        let mut read = ReadBuf::new(&mut first[..most]);
        ready!(Pin::new(&mut self.layer).poll_read(cx, read.unfilled()))?;
        let to = self.unheard.take();
        if read.filled().starts_with(&ALERT) {
            let mistake = "the server speaks TLS: use https:// as the scheme, or `tls.insecure: false`";
            tracing::warn!(to, "{mistake}");
            return Poll::Ready(Err(std::io::Error::other(mistake)));
        }
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
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
