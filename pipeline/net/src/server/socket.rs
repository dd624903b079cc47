//! The socket of a connection, plain or TLS, which records received bytes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::activity::Activity;

/// A stream that records received bytes in its connection's [`Activity`].
pub(super) struct Socket {
    pub(super) stream: Stream,
    pub(super) activity: Arc<Activity>,
}

/// Plain or encrypted.
pub(super) enum Stream {
    Plain(TcpStream),
    // Boxed, because the state of a TLS session takes a kilobyte, which a plain connection should not need.
    Tls(Box<TlsStream<TcpStream>>),
}

/// The maximum number of unread bytes that are read and discarded before closing.
const MAX_DISCARDED: usize = 64 * 1024;

impl Drop for Socket {
    /// Discards unread bytes, because the kernel resets a connection that is closed with unread bytes, and the peer may
    /// then lose the answer.
    fn drop(&mut self) {
        let Stream::Plain(stream) = &self.stream else { return };
        let mut part = [0; 4096];
        let mut left = MAX_DISCARDED;
        while let Ok(count @ 1..) = stream.try_read(&mut part) {
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
        }
    }
}

macro_rules! on_stream {
    ($self:expr, $stream:ident => $call:expr) => {
        match &mut $self.get_mut().stream {
            Stream::Plain(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Stream::Tls(stream) => {
                let $stream = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = on_stream!(self.as_mut(), stream => stream.poll_read(cx, buf));
        if matches!(read, Poll::Ready(Ok(()))) && buf.filled().len() > before {
            self.activity.received(&buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(self, stream => stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_stream!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
