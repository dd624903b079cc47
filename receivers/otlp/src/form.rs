//! How a request is written: in protobuf, or in JSON.

use bytes::Bytes;
use profbridge_engine::budget::Permit;
use profbridge_engine::component::Rejected;
use profbridge_engine::intake::Intake;
use profbridge_wire::otlp::Limits;
use profbridge_wire::otlp::json::{self, Message};

use crate::fault::Fault;

/// How a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// In protobuf.
    Protobuf,
    /// In JSON, which has names and therefore one layout.
    Json,
}

/// Reads a request in JSON as the protobuf message that says the same. Memory is asked for before it is taken; the
/// permit then holds what the message takes in place of the text.
pub(crate) fn read_json(
    message: Message,
    text: Bytes,
    limits: &Limits,
    intake: &Intake,
    permit: &mut Permit,
) -> Result<Bytes, Fault> {
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
            // Who keeps the request keeps no slack.
            let request = request.into_boxed_slice();
            permit.set(request.len() as u64);
            Ok(request.into())
        }
        (Err(_), Some(rejected)) => Err(rejected.into()),
        (Err(error), None) => Err(error.into()),
    }
}
