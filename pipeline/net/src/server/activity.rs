//! The activity of one connection, which distinguishes a silent connection from a busy one.
//!
//! hyper's own header timeout also runs between the requests of a persistent connection, so it would close the
//! connection of a client that reports once a minute. And hyper never closes a connection whose peer stops in the
//! middle of the HTTP/2 preface, or stops reading a response. So the deadlines here depend on three events: bytes
//! arrive, a request begins or ends, the peer reads a part of a response.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::ServerLimits;

/// The client's preface of an HTTP/2 connection is 24 bytes (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The state of one connection, shared by its task, its socket and its requests.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<ActivityState>,
}

#[derive(Debug)]
struct ActivityState {
    /// The number of running service calls.
    requests: usize,
    /// The time of the last event that counts as activity of the peer.
    last: Instant,
    /// The time since which the head of a request is expected.
    head_since: Option<Instant>,
    /// The number of bytes of the HTTP/2 preface that have arrived; `None` once the connection is known to be HTTP/1.
    preface: Option<usize>,
    /// The first bytes that arrived, at most four.
    first: Vec<u8>,
}

impl Activity {
    /// The activity of a connection that the peer may use from `now` on.
    pub(super) fn new(now: Instant) -> Activity {
        let state =
            ActivityState { requests: 0, last: now, head_since: Some(now), preface: Some(0), first: Vec::new() };
        Activity { state: Mutex::new(state) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut ActivityState) -> T) -> T {
        // The closures cannot panic, so the state is consistent even if the lock is poisoned.
        change(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Records the end of the handshake: requests may arrive from now on.
    pub(super) fn ready(&self, now: Instant) {
        self.with(|state| (state.last, state.head_since) = (now, Some(now)));
    }

    /// The first bytes that the peer sent.
    pub(super) fn first(&self) -> Vec<u8> {
        self.with(|state| state.first.clone())
    }

    /// The time since which no request has been handled; `None` while one is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        self.with(|state| (state.requests == 0).then_some(state.last))
    }

    /// Records that the peer sent `bytes`.
    pub(super) fn received(&self, bytes: &[u8]) {
        self.with(|state| {
            if state.first.is_empty() {
                state.first.extend_from_slice(&bytes[..bytes.len().min(4)]);
            }
            if let Some(seen) = state.preface
                && seen < PREFACE.len()
            {
                let more = bytes.len().min(PREFACE.len() - seen);
                let matches = bytes[..more] == PREFACE[seen..seen + more];
                state.preface = matches.then_some(seen + more);
                if state.preface == Some(PREFACE.len()) {
                    // From now on frames may arrive without a request, so the idle deadline applies.
                    state.head_since = None;
                }
            }
            if state.preface.is_none() && state.requests == 0 && state.head_since.is_none() {
                state.head_since = Some(Instant::now());
            }
        });
    }

    /// Records that a request's head is complete and its service call begins.
    pub(super) fn begin(self: &std::sync::Arc<Self>) -> RunningRequest {
        self.with(|state| {
            state.requests += 1;
            state.last = Instant::now();
            state.head_since = None;
        });
        RunningRequest(std::sync::Arc::clone(self))
    }

    /// Records that the connection accepted a part of a response.
    fn progressed(&self) {
        self.with(|state| state.last = Instant::now());
    }

    /// The time at which to close the connection without further activity; `None` while a request is being handled,
    /// because the service limits its own time.
    pub(super) fn deadline(&self, limits: &ServerLimits) -> Option<Instant> {
        let after = |since: Instant, timeout: Duration| since + timeout;
        self.with(|state| match (state.requests, state.head_since) {
            (0, None) => Some(after(state.last, limits.idle_timeout)),
            (0, Some(since)) => Some(after(since, limits.header_timeout)),
            _ => None,
        })
    }
}

/// A running request. It ends when this is dropped, so also when the request's future is cancelled.
#[derive(Debug)]
pub(super) struct RunningRequest(std::sync::Arc<Activity>);

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.requests -= 1;
            state.last = Instant::now();
        });
    }
}

/// A response body that reports when a part of it is read.
pub(super) struct ObservedBody<B> {
    body: Pin<Box<B>>,
    activity: std::sync::Arc<Activity>,
}

impl<B> ObservedBody<B> {
    pub(super) fn new(body: B, activity: std::sync::Arc<Activity>) -> Self {
        ObservedBody { body: Box::pin(body), activity }
    }
}

impl<B: Body> Body for ObservedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = self.body.as_mut().poll_frame(cx);
        if frame.is_ready() {
            self.activity.progressed();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// The seconds until the deadline of the connection.
    fn left(activity: &Activity) -> Option<u64> {
        let limits = ServerLimits {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
            ..ServerLimits::default()
        };
        activity.deadline(&limits).map(|deadline| (deadline - Instant::now()).as_secs())
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    /// Guarantees: on HTTP/1 the header deadline starts at accept, and again at the first byte of each later head,
    /// however the bytes arrive; in between the idle deadline applies.
    #[tokio::test(start_paused = true)]
    async fn an_http1_head_has_its_deadline() {
        let activity = Arc::new(Activity::new(Instant::now()));
        for bytes in [&b"P"[..], b"OST / H", b"TTP/1.1\r\n"] {
            seconds(2).await;
            activity.received(bytes);
        }
        assert_eq!(left(&activity), Some(4));
        let request = activity.begin();
        assert_eq!(left(&activity), None);
        seconds(1000).await;
        drop(request);
        assert_eq!(left(&activity), Some(300));
        seconds(60).await;
        assert_eq!(left(&activity), Some(240));
        activity.received(b"GET ");
        seconds(3).await;
        activity.received(b"/");
        assert_eq!(left(&activity), Some(7));
    }

    /// Guarantees: on HTTP/2 the header deadline applies until the preface is complete, in however many pieces; frames
    /// without a request, such as pings, neither restore this deadline nor count as activity.
    #[tokio::test(start_paused = true)]
    async fn an_http2_preface_has_its_deadline() {
        let activity = Arc::new(Activity::new(Instant::now()));
        seconds(1).await;
        activity.received(&PREFACE[..23]);
        assert_eq!(left(&activity), Some(9));
        activity.received(&PREFACE[23..]);
        assert_eq!(left(&activity), Some(299));
        seconds(100).await;
        activity.received(&[0; 17]);
        assert_eq!(left(&activity), Some(199));
        let (first, second) = (activity.begin(), activity.begin());
        drop(first);
        assert_eq!(left(&activity), None);
        drop(second);
        assert_eq!(left(&activity), Some(300));
    }

    /// Guarantees: a peer that reads a response piece by piece keeps its connection.
    #[tokio::test(start_paused = true)]
    async fn taking_a_response_is_activity() {
        use http_body_util::BodyExt as _;
        let activity = Arc::new(Activity::new(Instant::now()));
        drop(activity.begin());
        let body = http_body_util::Full::new(bytes::Bytes::from_static(b"part"));
        let mut body = ObservedBody::new(body, Arc::clone(&activity));
        seconds(200).await;
        assert_eq!(left(&activity), Some(100));
        assert!(body.frame().await.is_some());
        assert_eq!(left(&activity), Some(300));
    }
}
