//! Sentry's status of a span, from OTLP's status and from HTTP and gRPC codes.
//!
//! OTLP's status is ok, error or unset. Sentry uses gRPC's codes (event schema, `SpanStatus`). The mapping is that of
//! Sentry's SDKs on OpenTelemetry (getsentry/sentry-javascript `packages/opentelemetry/src/utils/mapStatus.ts`,
//! `packages/core/src/tracing/spanstatus.ts`): ok stays ok. An error whose message is one of the codes has that code,
//! or else the HTTP or gRPC code in its attributes, or else it is an internal error. If the status is unset, the
//! attributes decide; without them it is ok.

use super::keys::{AttributeKey, KnownAttributes};
use crate::otlp::traces::OtherSpanFields;

/// The statuses, indexed by gRPC's numbers (grpc/grpc `doc/statuscodes.md`).
const OF_GRPC: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal_error",
    "unavailable",
    "data_loss",
    "unauthenticated",
];

const OK: &str = OF_GRPC[0];
const INTERNAL_ERROR: &str = "internal_error";

pub(super) fn sentry_status(fields: &OtherSpanFields<'_>, known: &KnownAttributes<'_>) -> &'static str {
    match fields.status_code {
        1 => OK,
        2 => {
            let known_status = OF_GRPC[1..].iter().copied().find(|status| *status == fields.status_message);
            known_status.or_else(|| of_codes(known).filter(|status| *status != OK)).unwrap_or(INTERNAL_ERROR)
        }
        _ => of_codes(known).unwrap_or(OK),
    }
}

/// The status for the response code in the attributes.
fn of_codes(known: &KnownAttributes<'_>) -> Option<&'static str> {
    if let Some(code) = known.int(&[AttributeKey::HttpResponseStatusCode, AttributeKey::HttpStatusCode]) {
        return Some(of_http(code));
    }
    if let Some(code) = known.int(&[AttributeKey::RpcGrpcStatusCode]) {
        return Some(usize::try_from(code).ok().and_then(|code| OF_GRPC.get(code)).copied().unwrap_or("unknown"));
    }
    // The newer attribute has the name of the code, specific to each protocol.
    let name = known.text(&[AttributeKey::RpcResponseStatusCode])?;
    OF_GRPC.iter().copied().find(|status| match *status {
        INTERNAL_ERROR => name == "INTERNAL",
        status => name.eq_ignore_ascii_case(status),
    })
}

fn of_http(code: i64) -> &'static str {
    match code {
        100..=399 => OK,
        401 => "unauthenticated",
        403 => "permission_denied",
        404 => "not_found",
        409 => "already_exists",
        413 => "failed_precondition",
        429 => "resource_exhausted",
        499 => "cancelled",
        400..=499 => "invalid_argument",
        501 => "unimplemented",
        503 => "unavailable",
        504 => "deadline_exceeded",
        _ => INTERNAL_ERROR,
    }
}
