//! Why a request was refused, with Relay's status for it.

use http::StatusCode;
use profbridge_wire::sentry::client_auth::ClientAuthError;
use profbridge_wire::sentry::envelope::ReadError as EnvelopeError;
use profbridge_wire::sentry::item_limits::ItemLimitError;

pub(crate) use profbridge_engine::http_fault::HttpFault as Fault;

/// profbridge has a defect.
pub(crate) fn internal() -> Fault {
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request could not be read")
}

/// The client's key or project is unknown.
pub(crate) fn unauthenticated(error: ClientAuthError) -> Fault {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::UNAUTHORIZED);
    Fault::new(status, "authentication", error.to_string())
}

/// The body is not an envelope.
pub(crate) fn unreadable(error: EnvelopeError) -> Fault {
    Fault::malformed(error.to_string())
}

/// An item is larger than Sentry accepts.
pub(crate) fn too_large(error: ItemLimitError) -> Fault {
    Fault::too_large(error.to_string())
}
