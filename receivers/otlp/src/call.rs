//! One export call between reading and answering: decompress, decode, hand over to the pipelines.

mod profiles;
mod traces;
mod work;

use std::net::IpAddr;
use std::sync::Arc;

use ::http::{HeaderMap, Request};
use profbridge_engine::body::{self, ReceivedBody};
use profbridge_engine::budget::Permit;
use profbridge_engine::clock::Clock;
use profbridge_engine::intake::Intake;
use profbridge_engine::telemetry::{ItemCounts, TransportTelemetry};
use profbridge_model::dictionary::Invalid;
use profbridge_model::{Telemetry, TelemetryKind};
use profbridge_net::compression::Coding;
use profbridge_net::server::Peer;
use profbridge_wire::otlp::json::Message;
use profbridge_wire::otlp::signal::SignalNames;
use profbridge_wire::otlp::{Layout, Signal};
use tokio::sync::Semaphore;

use self::work::{DecodeJob, DecodedBody};
use crate::fault::{CallFault, FaultKind, shortened};
use crate::origin::HostAttribution;
use crate::version;

/// Up to this size in bytes an uncompressed request is decoded on the socket's thread: decoding takes some tens of
/// microseconds, less than moving the request to another thread. Compressed requests are always moved, because they may
/// expand a thousandfold.
const SMALL: usize = 32 * 1024;

/// The corresponding limit for spans in protobuf, which decode several times as fast. An SDK's usual batch is smaller.
const SMALL_SPANS: usize = 256 * 1024;

/// Settings shared by the calls of one transport. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ExportHandler {
    pub(crate) intake: Intake,
    pub(crate) telemetry: TransportTelemetry,
    /// Maximum size of a request in bytes, after decompression.
    pub(crate) max_bytes: usize,
    /// Limits the number of requests that are decompressed and decoded at the same time.
    pub(crate) slots: Arc<Semaphore>,
    /// Information about peers, and attributes for their resources.
    pub(crate) origin: Arc<HostAttribution>,
    /// The source of arrival times.
    pub(crate) clock: Clock,
}

/// The kind of data in a request, determined by its path or service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestContent {
    /// Profiles, in this layout if the request named one.
    Profiles(Option<Layout>),
    /// Spans.
    Traces,
}

/// The encoding of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEncoding {
    /// Protobuf.
    Protobuf,
    /// JSON. It contains field names and therefore has only one layout.
    Json,
}

impl RequestContent {
    /// The content of a request of this signal with these headers. `is_1_3` is for the path that
    /// opentelemetry-proto 1.3 had.
    pub(crate) fn of(signal: Signal, is_1_3: bool, headers: &HeaderMap) -> Result<Self, CallFault> {
        Ok(match signal {
            Signal::Profiles if is_1_3 => Self::Profiles(Some(Layout::V1_3)),
            Signal::Profiles => Self::Profiles(version::announced(headers)?),
            Signal::Traces => Self::Traces,
        })
    }

    const fn signal(self) -> &'static SignalNames {
        match self {
            Self::Profiles(_) => Signal::Profiles.names(),
            Self::Traces => Signal::Traces.names(),
        }
    }

    /// The protobuf message of the request.
    pub(crate) const fn request(self) -> Message {
        self.signal().request
    }

    /// The kind of telemetry to which the request is decoded.
    pub(crate) const fn kind(self) -> TelemetryKind {
        self.signal().kind
    }
}

/// The result of a request that the pipelines accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AcceptedRequest {
    /// The number of accepted items.
    pub(crate) items: ItemCounts,
    /// The number of rejected items, if they could be counted.
    pub(crate) refused_items: ItemCounts,
    /// The number of rejected profiles or spans, for the answer.
    pub(crate) refused: u64,
    /// Why some items were rejected, or a warning about accepted data; `None` if everything was accepted unchanged.
    pub(crate) complaint: Option<String>,
}

/// A decoded request: the result, and the telemetry for the pipelines, if any.
type DecodedRequest = (AcceptedRequest, Option<Telemetry>);

impl ExportHandler {
    /// Whether requests of a signal are accepted: those of profiles always are, others if a pipeline accepts them.
    pub(crate) fn takes(&self, signal: Signal) -> bool {
        signal == Signal::Profiles || self.intake.takes(signal.names().kind)
    }

    /// The names of the accepted signals.
    pub(crate) fn accepted_signals(&self) -> Vec<&'static str> {
        Signal::ALL.into_iter().filter(|signal| self.takes(*signal)).map(|signal| signal.names().name).collect()
    }

    /// The sender of a request with this content, and the request's content coding, from the header named `encoding`.
    pub(crate) fn sender<B>(
        &self,
        request: &Request<B>,
        content: RequestContent,
        encoding: &str,
    ) -> Result<(Peer, Coding), CallFault> {
        let peer = request.extensions().get::<Peer>().copied();
        let peer = peer.ok_or_else(|| CallFault::new(FaultKind::Internal, "the connection has no peer"))?;
        let mut values = request.headers().get_all(encoding).iter();
        let name = match values.next().map(|value| value.to_str()) {
            Some(Ok(name)) if values.next().is_none() => Some(name),
            None => None,
            Some(_) => return Err(CallFault::new(FaultKind::Coding, format!("{encoding} is not one name"))),
        };
        let coding = Coding::parse(name)?;
        self.intake.record_via(request.headers(), content.kind())?;
        Ok((peer, coding))
    }

    /// Decompresses and decodes a request, and passes it to the pipelines.
    pub(crate) async fn call(
        &self,
        received: ReceivedBody,
        coding: Coding,
        content: RequestContent,
        form: RequestEncoding,
        peer: Peer,
    ) -> Result<AcceptedRequest, CallFault> {
        let (decoded, permit) = self.decode(received, coding, content, form, peer).await?;
        let (taken, telemetry) = match decoded {
            DecodedBody::Profiles(decoded) => profiles::decoded_request(self, *decoded, sender(peer))?,
            DecodedBody::Traces(decoded) => traces::decoded_request(self, *decoded)?,
        };
        // An empty request succeeds (opentelemetry-proto docs/specification.md, "Full Success").
        let Some(telemetry) = telemetry else { return Ok(taken) };
        match self.intake.consume(telemetry, permit).await {
            Ok(()) => Ok(taken),
            Err(rejected) => Err(CallFault { items: taken.items, ..rejected.into() }),
        }
    }

    async fn decode(
        &self,
        received: ReceivedBody,
        coding: Coding,
        content: RequestContent,
        form: RequestEncoding,
        peer: Peer,
    ) -> Result<(DecodedBody, Permit), CallFault> {
        let ReceivedBody { bytes, permit } = received;
        let job = DecodeJob {
            intake: self.intake.clone(),
            max_bytes: self.max_bytes,
            content,
            form,
            permit,
            origin: Arc::clone(&self.origin),
            sender: sender(peer),
            arrival: self.clock.now().unix_nano,
        };
        let small = match (content, form) {
            (RequestContent::Traces, RequestEncoding::Protobuf) => SMALL_SPANS,
            _ => SMALL,
        };
        if coding == Coding::Identity && bytes.len() <= small {
            return job.run(bytes, coding);
        }
        let done = body::run_in(&self.slots, &self.intake, move || job.run(bytes, coding)).await;
        let defect = "the request could not be decoded, see the log of profbridge";
        done.unwrap_or_else(|| Err(CallFault::new(FaultKind::Internal, defect)))
    }
}

/// Counts a call by its outcome, and logs why it failed.
pub(crate) fn count(
    outcome: &Result<AcceptedRequest, CallFault>,
    telemetry: &TransportTelemetry,
    peer: Option<IpAddr>,
) {
    match outcome {
        Ok(taken) => {
            telemetry.accepted(taken.items);
            telemetry.failed_partly(taken.refused_items);
        }
        Err(fault) => {
            match fault.refused {
                Some(_) => telemetry.refused(fault.items),
                None => telemetry.failed(fault.items),
            }
            telemetry.not_taken(fault.refusal(peer));
        }
    }
}

/// The first broken rule, and the number of further ones.
fn complaint(first: &Invalid, more: u64) -> String {
    let more = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    shortened(format!("{}: {}", first.place, first.rule)) + &more
}

/// The sender's address without its port, which changes with every connection. Behind a proxy, the address is the
/// proxy's.
fn sender(peer: Peer) -> IpAddr {
    peer.addr.ip().to_canonical()
}

#[cfg(test)]
mod tests;
