//! Why a request was refused, with Relay's status for it.

use http::StatusCode;
use profbridge_wire::sentry::client_auth::ClientAuthError;
use profbridge_wire::sentry::envelope::ReadError as EnvelopeError;
use profbridge_wire::sentry::item_limits::ItemLimitError;

pub(crate) use profbridge_engine::http_fault::HttpFault as Fault;

/// The fault for a defect of profbridge.
pub(crate) fn internal() -> Fault {
    Fault::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the request could not be read")
}

/// The fault for an unknown key or project.
pub(crate) fn unauthenticated(error: ClientAuthError) -> Fault {
    let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::UNAUTHORIZED);
    Fault::new(status, "authentication", error.to_string())
}

/// The fault for a body that is not an envelope.
pub(crate) fn unreadable(error: EnvelopeError) -> Fault {
    Fault::malformed(error.to_string())
}

/// The fault for an item that is larger than Sentry accepts.
pub(crate) fn too_large(error: ItemLimitError) -> Fault {
    Fault::too_large(error.to_string())
}
