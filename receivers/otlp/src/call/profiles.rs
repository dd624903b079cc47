//! Results of requests with profiles.

use std::net::IpAddr;

use profbridge_engine::telemetry::ItemCounts;
use profbridge_model::{Quantities, Reason};
use profbridge_wire::otlp::Decoded;

use super::{AcceptedRequest, DecodedRequest, ExportHandler, complaint};
use crate::fault::CallFault;
use crate::producers;

/// Counts strings in which invalid UTF-8 was replaced.
const REPLACED: &str = "otlp_strings_replaced";

/// Counts rejected profiles, and returns the profiles for the pipelines.
///
/// # Errors
///
/// No profile can be accepted.
pub(super) fn decoded_request(
    handler: &ExportHandler,
    decoded: Decoded,
    sender: IpAddr,
) -> Result<DecodedRequest, CallFault> {
    let Decoded { profiles, refused, replaced_strings, layout, left_out } = decoded;
    producers::note(&handler.telemetry, &profiles, layout, sender);
    for (field, count) in left_out {
        handler.intake.note(producers::left_out(field), count);
    }
    let samples = profiles.profiles().map(|profile| profile.samples.len() as u64).sum();
    let mut taken = AcceptedRequest {
        items: ItemCounts::samples(samples),
        refused_items: ItemCounts::samples((profiles.columns().len() as u64).saturating_sub(samples)),
        refused: refused.iter().map(|refusal| refusal.profiles).sum(),
        complaint: None,
    };
    let is_empty = profiles.profiles().next().is_none();
    if let Some(first) = refused.first() {
        let observations = refused.iter().map(|refusal| refusal.observations).sum();
        handler.intake.refused(Reason::Malformed, Quantities::observations(observations));
        if is_empty {
            let fault = CallFault::invalid(&*first.invalid.place, &*first.invalid.rule);
            return Err(CallFault { items: taken.refused_items, ..fault });
        }
        taken.complaint = Some(complaint(&first.invalid, refused.len() as u64 - 1));
    }
    if replaced_strings > 0 {
        handler.intake.note(REPLACED, replaced_strings);
        let warning = format!("{replaced_strings} strings are not UTF-8, what is not was replaced by U+FFFD");
        taken.complaint = Some(match taken.complaint {
            Some(complaint) => format!("{complaint}; {warning}"),
            None => warning,
        });
    }
    Ok((taken, (!is_empty).then(|| profiles.into())))
}
