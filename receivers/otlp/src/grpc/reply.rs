//! Answers: one message with trailers, or only a status.

use std::convert::Infallible;
use std::future::{Ready, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt as _, Either, Full};

use super::ACCEPT_ENCODING;
use crate::call::AcceptedRequest;
use crate::fault::{CallFault, FaultKind};
use crate::message;

/// The body of an answer: a message with trailers, or bytes without trailers.
pub(crate) type GrpcReply =
    Either<WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>, Full<Bytes>>;

/// The answer to a fully or partly successful call.
pub(super) fn success(taken: &AcceptedRequest) -> Response<GrpcReply> {
    let message = message::response(taken);
    let mut data = BytesMut::with_capacity(5 + message.len());
    data.put_u8(0);
    // The message has a few hundred bytes, so its length fits.
    data.put_u32(message.len() as u32);
    data.put(message);
    let trailers = HeaderMap::from_iter([(tonic::Status::GRPC_STATUS, HeaderValue::from_static("0"))]);
    let body = Full::new(data.freeze()).with_trailers(ready(Some(Ok(trailers))));
    let mut response = Response::new(Either::Left(body));
    response.headers_mut().insert(CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE);
    response
}

/// The answer to a failed call: the status in the headers, without a body.
pub(super) fn failure(fault: &CallFault) -> Response<GrpcReply> {
    let mut response = message::grpc_status(fault).into_http().map(Either::Right);
    if fault.kind == FaultKind::Coding {
        // gRPC doc/compression.md: the answer to an unsupported encoding lists the supported ones.
        response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPT_ENCODING));
    }
    response
}
