//! The content type of a request, which its answer shares (opentelemetry-proto `docs/specification.md`, "OTLP/HTTP
//! Response").

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use profbridge_wire::otlp::Layout;
use profbridge_wire::otlp::json::{self, Message};

use crate::call::{RequestContent, RequestEncoding};
use crate::fault::{CallFault, FaultKind};
use crate::message;

/// The content type of protobuf.
const PROTOBUF: &str = "application/x-protobuf";

/// The content type of JSON.
const JSON: &str = "application/json";

/// The content type of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Protobuf,
    Json,
    /// Another content type, or none.
    Other,
}

impl Media {
    /// Reads the content type. Parameters, such as a charset, are ignored.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let essence = value.split(';').next().unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case(PROTOBUF) {
            Self::Protobuf
        } else if essence.eq_ignore_ascii_case(JSON) {
            Self::Json
        } else {
            Self::Other
        }
    }

    /// The request's encoding.
    pub(super) fn form(self, content: RequestContent) -> Result<RequestEncoding, CallFault> {
        let text = match (self, content) {
            (Self::Protobuf, _) => return Ok(RequestEncoding::Protobuf),
            (Self::Json, RequestContent::Profiles(Some(layout))) if layout != Layout::V1_10 => {
                "profiles of an earlier layout are not taken in JSON, send protobuf with the content type \
                 application/x-protobuf"
            }
            (Self::Json, _) => return Ok(RequestEncoding::Json),
            (Self::Other, _) => {
                "the content type is not supported, send protobuf as application/x-protobuf or JSON as application/json"
            }
        };
        Err(CallFault::new(FaultKind::Format, text))
    }

    /// The content type and the body of an answer with a message, which is given in protobuf.
    pub(super) fn response(self, message: Message, protobuf: Bytes) -> (&'static str, Bytes) {
        let mut text = Vec::new();
        match self {
            // This receiver encoded the message itself, so it can be converted.
            Self::Json if json::write(message, &protobuf, usize::MAX, &mut text).is_ok() => (JSON, text.into()),
            _ => (PROTOBUF, protobuf),
        }
    }

    /// The content type and the body of an answer with a fault: a `google.rpc.Status`, in protobuf unless the request
    /// is JSON.
    pub(super) fn status(self, fault: &CallFault) -> (&'static str, Bytes) {
        match self {
            Self::Protobuf | Self::Other => (PROTOBUF, message::http_status(fault)),
            Self::Json => {
                let status = serde_json::json!({ "code": fault.code() as i32, "message": fault.message });
                (JSON, status.to_string().into())
            }
        }
    }
}
