//! Handles peers that accept smaller requests than we send.
//!
//! The specification recommends 64 MiB for both sides, but the Collector's receivers accept 4 MiB over gRPC and 20 MiB
//! over HTTP by default (grpc-go `defaultServerMaxReceiveMessageSize`, opentelemetry-collector `config/confighttp`). A
//! request that such a peer refuses as too large is not lost: it is halved and sent in parts. The exporter remembers
//! the smaller limit, so this happens only a few times.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use profbridge_codec::otlp::{Cut, SignalCount, cut};
use profbridge_engine::component::{Accepted, Request, Retry, SendError};
use profbridge_model::Loss;

use crate::prepare::OtlpMeta;

/// The largest request that the peer is known to accept, in bytes before compression. It never grows.
#[derive(Debug)]
pub(crate) struct PeerLimit(Arc<AtomicUsize>);

impl PeerLimit {
    pub(crate) fn new(configured: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(configured)))
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Splits a request that the peer found too large, to the current limit or to about half its size. `None` if it
    /// cannot be split, or is so small that its size cannot be the reason.
    pub(crate) async fn cut(&self, host: &str, request: &Request<OtlpMeta>) -> Option<Vec<Request<OtlpMeta>>> {
        let OtlpMeta { batch: SignalCount { signal, .. }, encoding, compression, .. } = request.meta;
        let (known, body) = (self.get(), request.body.clone());
        let Cut { messages, size, limit } =
            tokio::task::spawn_blocking(move || cut(body, signal, encoding, compression, known)).await.ok()??;
        if self.0.fetch_min(limit, Ordering::Relaxed) > limit {
            tracing::warn!(
                "{host} takes no request of {size} bytes, so that requests are split below {limit} bytes from now on; \
                 a fitting `max_request_bytes` spares the attempts"
            );
        }
        let parts =
            messages.into_iter().map(|message| message.with(|batch| OtlpMeta::of(batch, encoding, compression)));
        Some(parts.collect())
    }
}

/// The unsent parts of a split request. Kept across attempts, so that sent parts are not sent again.
#[derive(Debug, Default)]
pub(crate) struct UnsentParts(Mutex<PartsState>);

#[derive(Debug, Default)]
struct PartsState {
    parts: VecDeque<Arc<Request<OtlpMeta>>>,
    /// Combined result of the parts sent so far.
    combined: Accepted,
}

impl UnsentParts {
    fn left(&self) -> MutexGuard<'_, PartsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part to send next; `None` if the request was not split.
    pub(crate) fn next(&self) -> Option<Arc<Request<OtlpMeta>>> {
        self.left().parts.front().cloned()
    }

    /// Replaces the next part, or the whole request, by smaller parts.
    pub(crate) fn replace(&self, smaller: Vec<Request<OtlpMeta>>) {
        let mut left = self.left();
        left.parts.pop_front();
        for part in smaller.into_iter().rev() {
            left.parts.push_front(Arc::new(part));
        }
    }

    /// Records the outcome of the next part. Returns the combined result after the last one. A part that was refused
    /// for good is lost, like the profiles of a partial success, and the other parts are still sent.
    ///
    /// # Errors
    ///
    /// If the part can be retried.
    pub(crate) fn record_outcome(
        &self,
        part: &Request<OtlpMeta>,
        outcome: Result<Accepted, SendError>,
    ) -> Result<Option<Accepted>, SendError> {
        let accepted = match outcome {
            Ok(accepted) => accepted,
            Err(error) if error.retry == Retry::Never => {
                let losses = vec![Loss { reason: error.reason, quantities: part.quantities }];
                Accepted { losses, message: Some(error.message), ..Accepted::default() }
            }
            Err(error) => return Err(error),
        };
        let mut left = self.left();
        left.combined.losses.extend(accepted.losses);
        left.combined.message = left.combined.message.take().or(accepted.message);
        left.combined.notes.extend(accepted.notes);
        left.parts.pop_front();
        Ok(left.parts.is_empty().then(|| left.combined.clone()))
    }
}
