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
    /// Until something came: whether HTTP/2 alone is spoken, without TLS.
    unheard: Option<bool>,
}

/// What is wrong with a server that begins so, where no TLS is spoken; and what to change.
fn mistaken(first: &[u8], only_http2: bool) -> Option<&'static str> {
    match first {
        // An alert of any version (RFC 8446, section 5.1).
        [0x15, 0x03, ..] => Some("the server speaks TLS: use https:// as the scheme, or `tls.insecure: false`"),
        [b'H', b'T', b'T', b'P', ..] if only_http2 => {
            Some("the server speaks HTTP/1, and gRPC needs HTTP/2: is this the port for gRPC, 4317 for OTLP?")
        }
        _ => None,
    }
}

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

    /// Fails where the server's first bytes say that it speaks something else, with what to change.
    pub(super) fn expecting(mut self, only_http2: bool) -> Stream {
        self.unheard = Some(only_http2);
        self
    }

    /// Why writing failed: a server that speaks something else may have said so and closed.
    fn why_closed<T>(&mut self, cx: &mut Context<'_>, written: Poll<std::io::Result<T>>) -> Poll<std::io::Result<T>> {
        let (Poll::Ready(Err(_)), Some(only_http2)) = (&written, self.unheard) else { return written };
        let mut first = [0; 16];
        let mut read = ReadBuf::new(&mut first);
        match Pin::new(&mut self.layer).poll_read(cx, read.unfilled()).map_ok(|()| mistaken(read.filled(), only_http2))
        {
            Poll::Ready(Ok(Some(mistake))) => Poll::Ready(Err(std::io::Error::other(mistake))),
            _ => written,
        }
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
        let Some(only_http2) = self.unheard else { return Pin::new(&mut self.layer).poll_read(cx, buf) };
        let mut first = [0; 16];
        let most = first.len().min(buf.remaining());
        let mut read = ReadBuf::new(&mut first[..most]);
        ready!(Pin::new(&mut self.layer).poll_read(cx, read.unfilled()))?;
        self.unheard = None;
        match mistaken(read.filled(), only_http2) {
            Some(mistake) => Poll::Ready(Err(std::io::Error::other(mistake))),
            None => {
                buf.put_slice(read.filled());
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.layer).poll_write(cx, buf);
        self.why_closed(cx, written)
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
        let written = Pin::new(&mut self.layer).poll_write_vectored(cx, bufs);
        self.why_closed(cx, written)
    }
}
