//! A connection of any kind: direct, through a proxy, plain, TLS, or TLS within TLS.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// The interface of every layer of a connection.
pub(super) trait Layer: Read + Write + Unpin + Send {}

impl<T: Read + Write + Unpin + Send> Layer for T {}

/// An open connection. The layers are boxed: a virtual call per read of many kilobytes costs next to nothing, and six
/// combinations of types become one.
pub(super) struct Stream {
    layer: Box<dyn Layer>,
    /// Whether requests use the absolute form, because a proxy forwards them.
    forwarded: bool,
    http2: bool,
    /// Set for a connection without TLS until the first bytes of the server show that it uses the same protocol:
    /// whether that is HTTP/2.
    expects_http2: Option<bool>,
}

impl Stream {
    pub(super) fn new(layer: impl Layer + 'static) -> Stream {
        Stream { layer: Box::new(layer), forwarded: false, http2: false, expects_http2: None }
    }

    pub(super) fn forwarded(mut self) -> Stream {
        self.forwarded = true;
        self
    }

    pub(super) fn http2(mut self, negotiated: bool) -> Stream {
        self.http2 = negotiated;
        self
    }

    /// Expects plain HTTP of this version. Reading fails with advice if the server answers in another protocol.
    pub(super) fn plain(mut self, http2: bool) -> Stream {
        self.expects_http2 = Some(http2);
        self
    }

    /// Returns the result of a write. If it failed because the server has closed the connection, the bytes that the
    /// server sent before explain more; over HTTP/2 nothing else reads them.
    fn written(&mut self, cx: &mut Context<'_>, result: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        if matches!(result, Poll::Ready(Err(_))) && self.expects_http2 == Some(true) {
            let mut bytes = [0; 4];
            let mut first = ReadBuf::new(&mut bytes);
            // Reading from a closed connection completes soon.
            ready!(Pin::new(&mut self.layer).poll_read(cx, first.unfilled()))?;
            check_protocol(first.filled(), true)?;
        }
        result
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
        if let Some(http2) = self.expects_http2 {
            let mut bytes = [0; 4];
            let mut first = ReadBuf::new(&mut bytes[..buf.remaining().min(4)]);
            ready!(Pin::new(&mut self.layer).poll_read(cx, first.unfilled()))?;
            self.expects_http2 = None;
            check_protocol(first.filled(), http2)?;
            buf.put_slice(first.filled());
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.layer).poll_read(cx, buf)
    }
}

/// Fails with advice if the first bytes of a server are of another protocol than plain HTTP.
fn check_protocol(first: &[u8], http2: bool) -> std::io::Result<()> {
    let advice = match first {
        // An alert of any version (RFC 8446, section 5.1).
        [0x15, 0x03, ..] => "the server speaks TLS: use https:// or `tls.insecure: false`",
        // SETTINGS or GOAWAY (RFC 9113, section 6).
        [0, 0, _, 4 | 7] if !http2 => {
            "the server speaks only HTTP/2, as for gRPC: use its port for HTTP, 4318 for OTLP, or the exporter `otlp`"
        }
        _ => return Ok(()),
    };
    Err(std::io::Error::new(std::io::ErrorKind::InvalidData, advice))
}

impl Write for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        let result = Pin::new(&mut self.layer).poll_write(cx, buf);
        self.written(cx, result)
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
        let result = Pin::new(&mut self.layer).poll_write_vectored(cx, bufs);
        self.written(cx, result)
    }
}
