//! Answers: one message and its trailers, or a status alone.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};

use super::ACCEPT_ENCODING;
use crate::call::Taken;
use crate::fault::{Fault, Kind};
use crate::message;

/// The body of an answer.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Reply {
    /// Bytes without trailers.
    pub(super) fn text(text: &'static str) -> Self {
        Self { data: Some(Bytes::from_static(text.as_bytes())), trailers: None }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match self.data.take() {
            Some(data) => Some(Frame::data(data)),
            None => self.trailers.take().map(Frame::trailers),
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

/// The answer to a call that succeeded, perhaps in part.
pub(super) fn success(taken: &Taken) -> Response<Reply> {
    let message = message::response(taken);
    let mut data = BytesMut::with_capacity(5 + message.len());
    data.put_u8(0);
    // A complaint is a few hundred bytes.
    data.put_u32(message.len() as u32);
    data.put(message);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let mut response = Response::new(Reply { data: Some(data.freeze()), trailers: Some(trailers) });
    response.headers_mut().insert(CONTENT_TYPE, tonic::metadata::GRPC_CONTENT_TYPE);
    response
}

/// The answer to a call that failed: the status in the headers, and no body.
pub(super) fn failure(fault: &Fault) -> Response<Reply> {
    let mut response: Response<Reply> = message::grpc_status(fault).into_http();
    if fault.kind == Kind::Coding {
        // gRPC doc/compression.md: the answer to an encoding that is not supported names those that are.
        response.headers_mut().insert("grpc-accept-encoding", HeaderValue::from_static(ACCEPT_ENCODING));
    }
    response
}
