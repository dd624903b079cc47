//! The messages that the receiver sends in answers.
//!
//! `ExportProfilesServiceResponse` is opentelemetry-proto
//! `opentelemetry/proto/collector/profiles/v1development/profiles_service.proto`, and `ExportTraceServiceResponse` of
//! `collector/trace/v1/trace_service.proto` has the same fields under other names; `google.rpc.Status` and its details
//! come from tonic-types.

use bytes::Bytes;
use prost::Message as _;
use tonic_types::{ErrorDetails, Status, StatusExt as _};

use crate::call::AcceptedRequest;
use crate::fault::CallFault;

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// The answer to a fully or partly successful call. `partial_success` stays unset in full success, as
/// opentelemetry-proto `docs/specification.md` requires ("Full Success").
pub(crate) fn response(taken: &AcceptedRequest) -> Bytes {
    let partial_success = taken.complaint.as_ref().map(|complaint| PartialSuccess {
        rejected: i64::try_from(taken.refused).unwrap_or(i64::MAX),
        error_message: complaint.clone(),
    });
    ExportResponse { partial_success }.encode_to_vec().into()
}

pub(crate) fn grpc_status(fault: &CallFault) -> tonic::Status {
    let mut details = ErrorDetails::new();
    if let Some(violation) = &fault.violation {
        details.add_bad_request_violation(violation.place.clone(), violation.rule.clone());
    }
    if let Some(delay) = fault.retry_after {
        details.set_retry_info(Some(delay));
    }
    if fault.violation.is_none() && fault.retry_after.is_none() {
        return tonic::Status::new(fault.code(), fault.message.clone());
    }
    tonic::Status::with_error_details(fault.code(), fault.message.clone(), details)
}

/// A fault as the `google.rpc.Status` in HTTP answers (opentelemetry-proto `docs/specification.md`, "Failures 1").
pub(crate) fn http_status(fault: &CallFault) -> Bytes {
    let status = grpc_status(fault);
    if !status.details().is_empty() {
        // The details of a gRPC status contain the whole `google.rpc.Status`.
        return Bytes::copy_from_slice(status.details());
    }
    let status = Status { code: fault.code() as i32, message: fault.message.clone(), details: Vec::new() };
    status.encode_to_vec().into()
}
