//! Makes one call of the `Export` method of a signal's service.
//!
//! Does not use tonic's generated client: that would compress again at each attempt, and it panics if an error's
//! details are not valid base64. A unary call is one frame: a flag, a length, and the message, which is already
//! compressed (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Method, StatusCode, Uri, Version};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use profbridge_engine::component::{Accepted, Request, Retry, SendError};
use profbridge_engine::http_out;
use profbridge_engine::via::{self, Via};
use profbridge_model::Reason;
use profbridge_net::client::ConnectError;
use profbridge_net::error_chain;
use prost::Message as _;
use tonic::client::GrpcService as _;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::answer::{self, FailedAttempt};
use crate::prepare::OtlpMeta;
use crate::settings::{MAX_RESPONSE_BYTES, Settings};

const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const GRPC_STATUS_DETAILS: &str = "grpc-status-details-bin";

/// Encodings accepted for answers. Without spaces, since grpc-go does not trim the names.
const ACCEPT_ENCODING: &str = "zstd,gzip,deflate,identity";

/// Size of the flag and the length in front of a message.
const PREFIX: usize = 5;

/// Makes one attempt.
pub(crate) async fn export(
    channel: &Channel,
    settings: &Settings,
    via: &Via,
    request: &Request<OtlpMeta>,
) -> Result<Accepted, FailedAttempt> {
    let mut channel = channel.clone();
    let response = async {
        poll_fn(|cx| channel.poll_ready(cx)).await?;
        channel.call(build_call(settings, via, request)).await
    };
    let response = response.await.map_err(|error| unanswered(settings, &error))?;
    let (head, body) = response.into_parts();
    if head.headers.contains_key(Status::GRPC_STATUS) {
        // A response without a body has no message, and trailers do not matter.
        return verdict(settings, request, status(&head.headers), Err("it has no message".to_owned()));
    }
    let is_grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
    if head.status != StatusCode::OK || !head.headers.get(header::CONTENT_TYPE).is_some_and(is_grpc) {
        let text = format!("HTTP status {} and no gRPC status; this may not be a gRPC endpoint", head.status);
        return verdict(settings, request, (Status::new(code_of(head.status), text), None), Err(String::new()));
    }
    let (data, trailers) = read_answer(body).await.map_err(|cause| settings.peer.unanswered(&cause))?;
    let status = match trailers {
        Some(trailers) if trailers.contains_key(Status::GRPC_STATUS) => status(&trailers),
        // hyper reports a clean end without a status if a proxy resets the stream, so the peer has not answered.
        _ => return Err(settings.peer.unanswered("the answer ended without a grpc-status").into()),
    };
    verdict(settings, request, status, message(&head.headers, data))
}

/// Builds the request. The channel adds scheme, host and user agent.
fn build_call(settings: &Settings, via: &Via, request: &Request<OtlpMeta>) -> http::Request<tonic::body::Body> {
    let (signal, compression) = (request.meta.batch.signal.names(), request.meta.compression.content_encoding());
    let mut call = http::Request::new(tonic::body::Body::new(OneMessage::new(&request.body, compression.is_some())));
    *call.method_mut() = Method::POST;
    *call.version_mut() = Version::HTTP_2;
    *call.uri_mut() = Uri::from_static(signal.grpc_path);
    *call.headers_mut() = settings.peer.headers.clone();
    let headers = call.headers_mut();
    headers.insert(via::HEADER, via.header(signal.kind));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    if let Some(name) = compression {
        headers.insert(GRPC_ENCODING, HeaderValue::from_static(name));
    }
    headers.insert(GRPC_ACCEPT_ENCODING, HeaderValue::from_static(ACCEPT_ENCODING));
    headers.insert(GRPC_TIMEOUT, grpc_timeout(settings.timeout));
    call
}

/// Formats a timeout as at most eight digits and a unit, rounded up.
fn grpc_timeout(timeout: Duration) -> HeaderValue {
    let millis = timeout.as_nanos().div_ceil(1_000_000);
    let text = match millis {
        0..100_000_000 => format!("{millis}m"),
        _ => format!("{}S", (millis / 1000).min(99_999_999)),
    };
    // Only digits and a letter, so it is always a valid header.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("30S"))
}

/// A framed message, without copying it.
struct OneMessage {
    prefix: Bytes,
    message: Bytes,
}

impl OneMessage {
    fn new(message: &Bytes, compressed: bool) -> Self {
        let mut prefix = BytesMut::with_capacity(PREFIX);
        prefix.put_u8(compressed.into());
        // `max_request_bytes` limits a body to less than 2 GiB.
        prefix.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
        Self { prefix: prefix.freeze(), message: message.clone() }
    }
}

impl Body for OneMessage {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        let this = self.get_mut();
        let part = [&mut this.prefix, &mut this.message].into_iter().find(|part| !part.is_empty());
        Poll::Ready(part.map(|part| Ok(Frame::data(std::mem::take(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.prefix.is_empty() && self.message.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.prefix.len() + self.message.len()) as u64)
    }
}

/// Reads the frames and the trailers of an answer. The frames are `None` if they exceed the limit.
async fn read_answer(mut body: tonic::body::Body) -> Result<(Option<Bytes>, Option<HeaderMap>), String> {
    let mut data = Some(Vec::new());
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the answer broke off: {}", error_chain(&error)))?;
        match frame.into_data() {
            // An oversized message is read only to reach the status in the trailers.
            Ok(piece) => match &mut data {
                Some(kept) if kept.len() + piece.len() <= MAX_RESPONSE_BYTES + PREFIX => kept.extend_from_slice(&piece),
                _ => data = None,
            },
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((data.map(Bytes::from), trailers))
}

/// The message of an answer, or why it is unreadable.
fn message(headers: &HeaderMap, data: Option<Bytes>) -> Result<Bytes, String> {
    let mut data = data.ok_or_else(|| format!("it is larger than {MAX_RESPONSE_BYTES} bytes"))?;
    if data.is_empty() {
        return Err("it has no message".to_owned());
    }
    if data.len() < PREFIX {
        return Err("its message is cut off".to_owned());
    }
    let (flag, length) = (data.get_u8(), data.get_u32());
    if length as usize != data.len() {
        return Err("it is not one whole message".to_owned());
    }
    match (flag, headers.get(GRPC_ENCODING)) {
        (0, _) => Ok(data),
        (1, Some(encoding)) => http_out::unpacked(Some(encoding), data, MAX_RESPONSE_BYTES),
        (1, None) => Err("it is compressed and does not say how".to_owned()),
        _ => Err(format!("its message has the flag {flag}, which gRPC does not know")),
    }
}

/// The status, and the delay that the peer asks for. Decodes the details itself, since tonic panics if they are not
/// valid base64.
fn status(headers: &HeaderMap) -> (Status, Option<Retry>) {
    let mut headers = headers.clone();
    let details = headers.remove(GRPC_STATUS_DETAILS).and_then(|value| {
        let mut one = HeaderMap::new();
        one.insert(GRPC_STATUS_DETAILS, value);
        let metadata = MetadataMap::from_headers(one);
        let bytes = metadata.get_bin(GRPC_STATUS_DETAILS)?.to_bytes().ok()?;
        tonic_types::Status::decode(bytes).ok()
    });
    // Unlike tonic, keeps the code if the message cannot be decoded.
    let code = headers.get(Status::GRPC_STATUS).map_or(Code::Unknown, |code| Code::from_bytes(code.as_bytes()));
    let text = Status::from_header_map(&headers).map(|status| status.message().to_owned()).unwrap_or_default();
    (Status::new(code, text), details.and_then(|details| answer::retry_info(&details)))
}

/// The specification's table (opentelemetry-proto `docs/specification.md`, "Failures").
fn verdict(
    settings: &Settings,
    request: &Request<OtlpMeta>,
    (status, retry_info): (Status, Option<Retry>),
    message: Result<Bytes, String>,
) -> Result<Accepted, FailedAttempt> {
    let (retry, reason) = match status.code() {
        Code::Ok => {
            return Ok(match message {
                Ok(message) => answer::accepted(settings, request, &message),
                Err(why) => answer::unreadable(settings, &why),
            });
        }
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unavailable
        | Code::DataLoss => (retry_info.unwrap_or(Retry::Later), Reason::RetriesExhausted),
        Code::ResourceExhausted => match retry_info {
            Some(retry) => (retry, Reason::RateLimited),
            None => (Retry::Never, Reason::RejectedByPeer),
        },
        _ => (Retry::Never, Reason::RejectedByPeer),
    };
    let mut error = settings.peer.refused(retry, reason, &name(status.code()), status.message());
    // tonic's servers answer with OUT_OF_RANGE.
    let too_large = matches!(status.code(), Code::ResourceExhausted | Code::OutOfRange)
        && retry_info.is_none()
        && answer::says_too_large(status.message());
    if retry == Retry::Never {
        let what = request.meta.batch.signal.names().name;
        match (status.code(), request.meta.compression.content_encoding()) {
            (Code::Unimplemented, Some("zstd")) => {
                error.message.push_str(&format!("; it may not take {what}, or not with `compression: zstd`"));
            }
            (Code::Unimplemented, _) => error.message.push_str(&format!("; it may not take {what}")),
            _ => {}
        }
    }
    Err(FailedAttempt { error, too_large })
}

/// The gRPC code for an HTTP status without a gRPC status, as a proxy sends it
/// (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>).
fn code_of(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502 | 503 | 504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// The code's name in specifications: `NOT_FOUND` for `NotFound`.
fn name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Describes a missing answer. Prefers the connector's error if there was no connection.
fn unanswered(settings: &Settings, error: &(dyn std::error::Error + 'static)) -> SendError {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(connect) = error.downcast_ref::<ConnectError>() {
            return settings.peer.unanswered(&connect.to_string());
        }
        next = error.source();
    }
    settings.peer.broken(&error_chain(error))
}
