//! Stops a body that is too large or too slow.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf as _;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::{BodyError, BodyLimits};
use crate::BoxError;

/// A body that enforces [`BodyLimits`]. It ends after an error.
#[derive(Debug)]
pub struct Guarded<B> {
    body: B,
    limits: BodyLimits,
    received: u64,
    /// The number of received bytes when the current progress interval began.
    mark: u64,
    deadline: Pin<Box<Sleep>>,
    interval: Pin<Box<Sleep>>,
    ended: bool,
}

impl<B: Body> Guarded<B> {
    /// Enforces `limits` on `body` from now on. Needs a tokio runtime with a timer.
    pub fn new(body: B, limits: BodyLimits) -> Guarded<B> {
        let now = Instant::now();
        Guarded {
            body,
            limits,
            received: 0,
            mark: 0,
            deadline: Box::pin(tokio::time::sleep_until(now + limits.timeout)),
            interval: Box::pin(tokio::time::sleep_until(now + limits.progress_interval)),
            ended: false,
        }
    }

    /// The body without the guard.
    pub fn into_inner(self) -> B {
        self.body
    }

    fn too_large(&self, more: u64) -> bool {
        self.received.saturating_add(more) > self.limits.max_bytes as u64
    }
}

impl<B> Body for Guarded<B>
where
    B: Body + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        let error = if this.too_large(this.body.size_hint().lower()) {
            BodyError::TooLarge { limit: this.limits.max_bytes }
        } else {
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let more = frame.data_ref().map_or(0, |data| data.remaining() as u64);
                    if !this.too_large(more) {
                        this.received += more;
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    BodyError::TooLarge { limit: this.limits.max_bytes }
                }
                Poll::Ready(Some(Err(error))) => BodyError::Broken { received: this.received, source: error.into() },
                Poll::Ready(None) => {
                    this.ended = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    if this.is_in_time(cx) {
                        return Poll::Pending;
                    }
                    BodyError::TimedOut { received: this.received }
                }
            }
        };
        this.ended = true;
        Poll::Ready(Some(Err(error)))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.body.is_end_stream() && !self.too_large(self.body.size_hint().lower()))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Guarded<B> {
    /// Whether the deadline and the minimum progress are kept. Checked only while the reader has to wait for the body,
    /// because data that has already arrived is not late.
    fn is_in_time(&mut self, cx: &mut Context<'_>) -> bool {
        if self.deadline.as_mut().poll(cx).is_ready() {
            return false;
        }
        while self.interval.as_mut().poll(cx).is_ready() {
            if self.received - self.mark < self.limits.min_progress as u64 {
                return false;
            }
            self.mark = self.received;
            self.interval.as_mut().reset(Instant::now() + self.limits.progress_interval);
        }
        true
    }
}
