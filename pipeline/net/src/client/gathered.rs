//! Writes that are gathered: what HTTP/2 writes frame by frame reaches the socket in larger pieces.
//!
//! h2 hands over each frame of data by itself, of 16 KiB with nearly all peers, and asks for a flush after each. Each is
//! a call of the kernel, a packet on its way, and a wake-up of the peer, which together cost several times what a copy of
//! the frame does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

/// So much is gathered, in bytes: what the kernel sends as one packet at most.
const MOST: usize = 64 * 1024;

/// A connection whose writes are gathered.
///
/// A flush that follows a write is put off until the next one, for which the task is woken: h2 flushes once more when it
/// has nothing left to write, in the same turn, and each time its connection is polled. So what was written is on its way
/// at the end of the turn, or of the next one at the latest.
pub(super) struct Gathered<L> {
    layer: L,
    /// What was taken and not handed on yet is what follows the first `sent` bytes.
    pieces: Vec<u8>,
    sent: usize,
    /// Whether something was written since a flush was asked for.
    written: bool,
}

impl<L: Write + Unpin> Gathered<L> {
    pub(super) fn new(layer: L) -> Self {
        Self { layer, pieces: Vec::new(), sent: 0, written: false }
    }

    fn poll_hand_on(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.pieces.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.layer).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                more => self.sent += more,
            }
        }
        self.pieces.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<L: Read + Unpin> Read for Gathered<L> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.layer).poll_read(cx, buf)
    }
}

impl<L: Write + Unpin> Write for Gathered<L> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.pieces.len() >= MOST {
            ready!(self.poll_hand_on(cx))?;
        }
        let before = self.pieces.len();
        for buf in bufs {
            let room = MOST - self.pieces.len();
            self.pieces.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        self.written = true;
        Poll::Ready(Ok(self.pieces.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if std::mem::take(&mut self.written) {
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_hand_on(cx))?;
        Pin::new(&mut self.layer).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_hand_on(cx))?;
        Pin::new(&mut self.layer).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    /// What came to a socket that takes so many bytes of each write, and now and then none.
    #[derive(Default)]
    struct Socket {
        came: Vec<u8>,
        writes: Vec<usize>,
        takes: usize,
        busy: bool,
        flushes: usize,
    }

    impl Write for Socket {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.busy = !self.busy && self.takes < MOST;
            if self.busy {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let taken = buf.len().min(self.takes);
            self.came.extend_from_slice(&buf[..taken]);
            self.writes.push(taken);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.flushes += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Guarantees: frames that are flushed one by one reach the socket in pieces of 64 KiB, in order, with each byte once,
    /// also where it takes less at a time; the last flush hands on what is left, and whoever flushes only once is woken to
    /// do it again.
    #[test]
    fn frames_are_gathered() {
        for takes in [7000, usize::MAX] {
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&woken));
            let mut cx = Context::from_waker(&waker);
            let mut out = Gathered::new(Socket { takes, ..Socket::default() });
            let mut sent = Vec::new();
            for number in 0..15_u8 {
                let (head, frame) = ([number; 9], vec![number; 16 * 1024]);
                let mut rest = [&head[..], &frame].concat();
                sent.extend_from_slice(&rest);
                while !rest.is_empty() {
                    let at = rest.len().min(9);
                    let bufs = [IoSlice::new(&rest[..at]), IoSlice::new(&rest[at..])];
                    if let Poll::Ready(taken) = Pin::new(&mut out).poll_write_vectored(&mut cx, &bufs) {
                        drop(rest.drain(..taken.unwrap()));
                    }
                }
                let wakes = woken.0.load(Ordering::Relaxed);
                assert!(Pin::new(&mut out).poll_flush(&mut cx).is_ready());
                assert_eq!((woken.0.load(Ordering::Relaxed), out.layer.flushes), (wakes + 1, 0));
            }
            assert!(out.layer.came.len() < sent.len());
            while Pin::new(&mut out).poll_flush(&mut cx).is_pending() {}
            assert_eq!((out.layer.came == sent, out.layer.flushes), (true, 1));
            let whole = [vec![MOST; sent.len() / MOST], vec![sent.len() % MOST]].concat();
            assert!(takes < MOST || out.layer.writes == whole, "{:?}", out.layer.writes);
        }
    }

    /// Guarantees: what was written leaves before the connection is shut down, and a socket that takes nothing more is an
    /// error.
    #[test]
    fn the_end() {
        let mut cx = Context::from_waker(Waker::noop());
        for takes in [MOST, 0] {
            let mut out = Gathered::new(Socket { takes, ..Socket::default() });
            assert!(matches!(Pin::new(&mut out).poll_write(&mut cx, b"bye"), Poll::Ready(Ok(3))));
            while Pin::new(&mut out).poll_flush(&mut cx).is_pending() {}
            assert!(out.layer.came.is_empty());
            let mut ended = Pin::new(&mut out).poll_shutdown(&mut cx);
            while ended.is_pending() {
                ended = Pin::new(&mut out).poll_shutdown(&mut cx);
            }
            assert!(matches!(ended, Poll::Ready(Ok(()))) == (takes > 0), "{ended:?}");
            assert_eq!(out.layer.came, if takes > 0 { &b"bye"[..] } else { b"" });
        }
    }
}
