//! The encoding of a request: protobuf or JSON.

use bytes::Bytes;
use profbridge_engine::budget::Permit;
use profbridge_engine::component::Rejected;
use profbridge_engine::intake::Intake;
use profbridge_wire::otlp::Limits;
use profbridge_wire::otlp::json::{self, Message};

use crate::fault::CallFault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEncoding {
    Protobuf,
    /// JSON. It contains field names and therefore has only one layout.
    Json,
}

/// Converts a JSON request to the equivalent protobuf message. Its memory is requested before it is allocated;
/// afterwards, the permit covers the message instead of the JSON text.
pub(crate) fn read_json(
    message: Message,
    text: Bytes,
    limits: &Limits,
    intake: &Intake,
    permit: &mut Permit,
) -> Result<Bytes, CallFault> {
    let came = permit.bytes();
    let mut rejected: Option<Rejected> = None;
    let mut grant = |wanted: usize| {
        let more = (came + wanted as u64).saturating_sub(permit.bytes());
        intake.grow(permit, more).map_err(|why| rejected = Some(why)).is_ok()
    };
    let read = json::read(message, &text, limits, &mut grant);
    match (read, rejected) {
        (Ok(request), _) => {
            drop(text);
            // Frees unused capacity, because the request may be kept for long.
            let request = request.into_boxed_slice();
            permit.set(request.len() as u64);
            Ok(request.into())
        }
        (Err(_), Some(rejected)) => Err(rejected.into()),
        (Err(error), None) => Err(error.into()),
    }
}
