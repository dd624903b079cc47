//! Spans that a client sends to Sentry's OTLP endpoint: an SDK's OTLP integration, or an OpenTelemetry SDK.
//!
//! They become spans of the pipelines that remember the client's project and key. Answers are those of Relay
//! (getsentry/relay `relay-server/src/endpoints/integrations`): 200 without a body, errors as `google.rpc.Status`.
//! Relay answers before it looks at the spans; the receiver also reports invalid spans to the client.
//!
//! Clients may send again what was answered 429 (opentelemetry-proto `docs/specification.md`, "OTLP/HTTP Throttling"),
//! so the pipelines do not get it, which would duplicate it. Spans that only some of the exporters would drop are
//! accepted.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use hyper::body::Incoming;
use profbridge_engine::body::{self, ReceivedBody};
use profbridge_engine::budget::Permit;
use profbridge_engine::intake::Intake;
use profbridge_engine::telemetry::ItemCounts;
use profbridge_model::envelope::RequestMeta;
use profbridge_model::spans::Packed;
use profbridge_model::{Quantities, Reason, TelemetryKind};
use profbridge_net::body::Guarded;
use profbridge_net::compression::Coding;
use profbridge_wire::otlp::json::{self, Message};
use profbridge_wire::otlp::traces::{self, DecodedSpans};
use profbridge_wire::otlp::{DecodeError, Limits, decode_granted};

use crate::call::{EnvelopeHandler, RequestHead, RequestOutcome, authenticate, is_allowed};
use crate::fault::{self, Fault};
use crate::limits;
use crate::own_requests;

/// The size of a request that Relay accepts, in bytes (getsentry/relay `relay-config/src/config.rs`,
/// `max_container_size`).
pub(crate) const MAX_BYTES: usize = 12 << 20;

/// The warning to senders whose ids Sentry would not accept in JSON. The spans are delivered as protobuf.
const BASE64_IDS: &str = "trace and span ids are base64, where OTLP/JSON has hexadecimal digits: Sentry itself would lose \
     these spans without a word";

/// The encoding of a request, and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Protobuf,
    Json,
}

impl Media {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// The encoding that the content type names; `None` for any other.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = value.split(';').next()?.trim();
        [Self::Protobuf, Self::Json].into_iter().find(|media| media.content_type().eq_ignore_ascii_case(essence))
    }
}

/// The fault of a request whose content type is neither.
pub(crate) fn unknown_media() -> Fault {
    let message = "send the spans as application/x-protobuf or application/json";
    Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content_type", message)
}

impl EnvelopeHandler {
    /// Reads a request with spans and hands them to the pipelines.
    pub(crate) async fn traces(
        &self,
        head: RequestHead,
        media: Media,
        body: &mut Option<Guarded<Incoming>>,
    ) -> Result<RequestOutcome, Fault> {
        let auth = authenticate(head.auth.clone(), None, head.project)?;
        is_allowed(&self.settings, &auth.key)?;
        let mut meta = RequestMeta {
            project_id: Some(head.project),
            public_key: Some(auth.key.clone()),
            sentry_client: auth.client.map(Into::into),
            ..head.meta.clone()
        };
        let limits = limits::limits_for(&self.peer_limits, head.project, &auth.key.0, []);
        if let Some(time) = self.peer_limits.spans_blocked(self.intake.exporters_of(TelemetryKind::Spans), &meta) {
            return Err(limits::fault(time, limits.as_ref()));
        }
        let intake = self.waiting();
        intake.room_for(TelemetryKind::Spans).await?;
        let (received, _) = self.read(&head, &intake, body).await?;
        let client = head.meta.forwarded_for.is_none().then_some(head.peer).flatten().zip(head.owner.clone());
        let own_hosts = if self.settings.drop_own_requests { head.hosts } else { Vec::new() };
        let ReceivedBody { bytes, permit } = received;
        let job = Box::new(TracesJob { coding: head.coding, media, own_hosts, bytes, permit, warning: None });
        let decoded = body::run_in_turn(&self.slots, &intake, job, TracesJob::run).await;
        let decoded = decoded.unwrap_or_else(|| Err(fault::internal()))?;
        let DecodedRequest { mut decoded, own_requests, permit, warning } = decoded;
        if own_requests > 0 {
            self.intake.refused(Reason::OwnRequests, Quantities::spans(own_requests));
        }
        let mut items = ItemCounts { spans: decoded.spans.spans().len() as u64, ..ItemCounts::NONE };
        let warning = self.complaint(&decoded)?.or(warning);
        if decoded.spans.is_empty() {
            items = ItemCounts::NONE;
            return Ok(RequestOutcome::Accepted { event_id: None, items, limits: None, warning });
        }
        meta.client_process = self.client(client).await;
        decoded.spans.peer = meta.client_address.map(|address| address.to_string().into());
        decoded.spans.client = Some(Arc::new(meta));
        intake.consume(decoded.spans, permit).await?;
        Ok(RequestOutcome::Accepted { event_id: None, items, limits, warning })
    }

    /// Counts the spans that break a rule, and describes the first.
    ///
    /// # Errors
    ///
    /// If all of them do.
    fn complaint(&self, decoded: &DecodedSpans) -> Result<Option<(u64, String)>, Fault> {
        let Some(first) = decoded.refused.first() else { return Ok(None) };
        let refused = decoded.refused_spans;
        self.intake.refused(Reason::Malformed, Quantities::spans(refused));
        let message = format!("{}: {}", first.place, first.rule);
        if decoded.spans.is_empty() {
            return Err(Fault::malformed(message));
        }
        Ok(Some((refused, message)))
    }
}

/// The CPU work of a request. JSON is replaced by the protobuf message that it says, from which another attempt starts.
struct TracesJob {
    coding: Coding,
    media: Media,
    /// By which names clients know this receiver, if spans of posts to it are dropped.
    own_hosts: Vec<String>,
    bytes: Bytes,
    permit: Permit,
    /// The number of spans that are lost, and what is wrong with the request.
    warning: Option<(u64, String)>,
}

/// Decoded spans.
struct DecodedRequest {
    decoded: DecodedSpans,
    /// The number of spans that were dropped, because an SDK's own posts made them.
    own_requests: u64,
    permit: Permit,
    /// The number of spans that are lost, and what is wrong with the request.
    warning: Option<(u64, String)>,
}

impl TracesJob {
    /// Decodes the spans with memory from this intake. If it lacks memory, gives back what it took.
    fn run(mut self: Box<Self>, intake: &Intake) -> Result<DecodedRequest, (Fault, Option<Box<Self>>)> {
        match self.decode(intake) {
            Ok(mut decoded) => {
                let own_requests = own_requests::remove_spans(&mut decoded.spans, &self.own_hosts);
                Ok(DecodedRequest { decoded, own_requests, permit: self.permit, warning: self.warning })
            }
            Err(fault) => {
                self.permit.set(self.bytes.len() as u64);
                let lacks_memory = fault.retry_after.is_some();
                Err((fault, lacks_memory.then_some(self)))
            }
        }
    }

    fn decode(&mut self, intake: &Intake) -> Result<DecodedSpans, Fault> {
        let limits = Limits { max_request: MAX_BYTES, ..Limits::default() };
        if self.media == Media::Json {
            let text = body::unpack_instead(self.bytes.clone(), self.coding, MAX_BYTES, intake, &mut self.permit)?;
            self.warning = json::has_base64_ids(&text).then(|| (0, BASE64_IDS.to_owned()));
            let held = self.permit.bytes();
            let grant = |wanted: usize| intake.grow_to(&mut self.permit, held + wanted as u64);
            self.bytes = json::read_granted(Message::TracesRequest, text, &limits, grant, unreadable)?;
            (self.coding, self.media) = (Coding::Identity, Media::Protobuf);
            self.permit.set(self.bytes.len() as u64);
        }
        let (request, packed) =
            body::unpack_keeping(self.bytes.clone(), self.coding, MAX_BYTES, intake, &mut self.permit)?;
        let held = self.permit.bytes();
        let grant = |memory: usize| intake.grow_to(&mut self.permit, held + memory as u64);
        let mut decoded = decode_granted(&request, limits, grant, traces::decode, unreadable)?;
        if let (Some(bytes), Some(coding)) = (packed, self.coding.content_encoding()) {
            decoded.spans.keep_packed(Packed { coding, bytes });
        }
        // The received size once more, for encoding the spans again while they are still held.
        self.permit.set(held + (decoded.memory() + request.len()) as u64);
        Ok(decoded)
    }
}

fn unreadable(error: DecodeError) -> Fault {
    match json::without_offset(error) {
        error @ DecodeError::LimitExceeded { .. } => Fault::too_large(error.to_string()),
        error => Fault::malformed(error.to_string()),
    }
}
