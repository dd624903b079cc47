//! The content type of a request, which is also that of its answer (opentelemetry-proto `docs/specification.md`,
//! "OTLP/HTTP Response").

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::fault::{Fault, Kind};
use crate::message;

/// The content type of protobuf.
pub(super) const PROTOBUF: &str = "application/x-protobuf";

/// The content type of JSON.
const JSON: &str = "application/json";

/// What a request says that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Protobuf,
    Json,
    /// Something else, or nothing.
    Other,
}

impl Media {
    /// What the headers say. Parameters, such as a charset, mean nothing.
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

    /// Refuses what is not protobuf.
    pub(super) fn check(self) -> Result<(), Fault> {
        let text = match self {
            Self::Protobuf => return Ok(()),
            Self::Json => {
                "OTLP profiles in JSON are not supported, send protobuf with the content type application/x-protobuf"
            }
            Self::Other => {
                "the content type is not supported, send protobuf with the content type application/x-protobuf"
            }
        };
        Err(Fault::new(Kind::Format, text))
    }

    /// The content type and the body of an answer that is a fault: a `google.rpc.Status`, in protobuf unless the
    /// request is JSON.
    pub(super) fn status(self, fault: &Fault) -> (&'static str, Bytes) {
        match self {
            Self::Protobuf | Self::Other => (PROTOBUF, message::http_status(fault)),
            Self::Json => {
                let status = serde_json::json!({ "code": fault.code() as i32, "message": fault.message });
                (JSON, status.to_string().into())
            }
        }
    }
}
