//! Interprets a peer's answer: done, retry, or give up.
//!
//! The rules are those of opentelemetry-proto `docs/specification.md`, "Failures" of OTLP/gRPC and OTLP/HTTP.

use std::time::Duration;

use profbridge_codec::otlp::SignalCount;
use profbridge_engine::component::{Accepted, Request, Retry, SendError};
use profbridge_model::{Loss, Quantities, Reason};
use profbridge_wire::otlp::{Limits, json};
use prost::Message;
use tonic_types::RpcStatusExt as _;

use crate::prepare::OtlpMeta;
use crate::settings::Settings;

/// The used fields of `ExportProfilesServiceResponse`; `ExportTraceServiceResponse` has the same.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// `ExportProfilesPartialSuccess` and `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) struct FailedAttempt {
    pub(crate) error: SendError,
    /// Whether the peer says that the request is too large, so that a smaller one may succeed.
    pub(crate) too_large: bool,
}

impl From<SendError> for FailedAttempt {
    fn from(error: SendError) -> Self {
        Self { error, too_large: false }
    }
}

/// Whether an error text says that the request is too large. No status code says only that: grpc-go writes "received
/// message larger than max", tonic "decoded message length too large", grpc-java "gRPC message exceeds maximum size",
/// and the Collector's HTTP receiver "http: request body too large".
pub(crate) fn says_too_large(text: &str) -> bool {
    ["larger than", "too large", "maximum size"].iter().any(|words| text.contains(words))
}

/// Counts accepted requests whose answer could not be decoded, so that rejected items are unknown.
const UNREADABLE: &str = "otlp_answers_unreadable";

/// [`accepted`] for an answer in JSON.
pub(crate) fn accepted_json(settings: &Settings, request: &Request<OtlpMeta>, body: &[u8]) -> Accepted {
    match json::read(request.meta.batch.signal.names().response, body, &Limits::default(), &mut |_| true) {
        Ok(protobuf) => accepted(settings, request, &protobuf),
        Err(_) => unreadable(settings, "it is no response of the export service"),
    }
}

/// Interprets the body of a successful answer. Its content is never a reason to retry.
pub(crate) fn accepted(settings: &Settings, request: &Request<OtlpMeta>, body: &[u8]) -> Accepted {
    let Ok(response) = Response::decode(body) else {
        return unreadable(settings, "it is no response of the export service");
    };
    let Some(partial) = response.partial_success else { return Accepted::default() };
    let rejected = rejected(request, partial.rejected);
    let text = settings.peer.shown(&partial.error_message);
    let what = request.meta.batch.signal.names().elements;
    let message = match (partial.rejected, &*text) {
        (..=0, "") => return Accepted::default(),
        (..=0, text) => format!("{}: {text}", settings.peer.host),
        (count, "") => format!("{}: {count} {what} were rejected", settings.peer.host),
        (count, text) => format!("{}: {count} {what} were rejected: {text}", settings.peer.host),
    };
    let losses = vec![Loss { reason: Reason::RejectedByPeer, quantities: rejected }];
    Accepted { losses, message: Some(message), ..Accepted::default() }
}

/// A success whose body cannot be decoded. The status alone says that the request was accepted and must not be resent
/// (opentelemetry-proto `docs/specification.md`, "Full Success" and "Partial Success"). The number of rejected items is
/// unknown, so everything counts as sent, and the event is logged and counted separately.
pub(crate) fn unreadable(settings: &Settings, why: &str) -> Accepted {
    let why = settings.peer.shown(why);
    let message = format!(
        "{}: the request was taken, but the answer cannot be read, so it is unknown whether a part was rejected: {why}",
        settings.peer.host
    );
    Accepted { message: Some(message), notes: vec![(UNREADABLE, 1)], ..Accepted::default() }
}

/// The quantities in `rejected` profiles or spans of a request. The answer says how many were rejected but not which,
/// so each profile counts the request's average number of observations, rounded up.
fn rejected(request: &Request<OtlpMeta>, rejected: i64) -> Quantities {
    let rejected = u64::try_from(rejected).unwrap_or(0);
    let SignalCount { signal: _, counted } = request.meta.batch;
    let share = |of: u64| {
        let share = u128::from(of) * u128::from(rejected.min(counted));
        u64::try_from(share.div_ceil(u128::from(counted.max(1)))).unwrap_or(u64::MAX)
    };
    Quantities::of(|unit| share(request.quantities.get(unit)))
}

/// The delay of a `google.rpc.RetryInfo` in a status's details. `None` if there is no such detail. If the delay is
/// missing or zero, the client chooses it.
pub(crate) fn retry_info(status: &tonic_types::Status) -> Option<Retry> {
    let pause = |pause: Duration| (!pause.is_zero()).then_some(Retry::After(pause));
    status.get_details_retry_info().map(|info| info.retry_delay.and_then(pause).unwrap_or(Retry::Later))
}
