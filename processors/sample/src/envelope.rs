//! Envelopes: the transactions, spans and profiles in them.
//!
//! An envelope is delivered as a whole, and what is left out of it is left out of its views: a view in which nothing is
//! left stands for an item that does not leave. A profile of sample format V1 goes with its transaction.

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::{Envelope, Profiles, Quantities, Reason, SpanForm, View, Viewed};
use profbridge_wire::sentry::trace_header::TraceHeader;

use crate::sessions::{Sessions, is_v1};
use crate::traces::Asking;
use crate::whole;

/// Decides about what was read of an envelope, and puts out what is left of it.
pub(crate) fn take(
    mut envelope: Envelope,
    asking: &mut Asking<'_>,
    sessions: &mut Sessions,
    now: Now,
    out: &mut Outbox,
) {
    let header = TraceHeader::read(&envelope.header);
    let (mut is_changed, mut lost_transaction) = (false, false);
    for view in &mut envelope.views {
        let Viewed::Spans(spans) = &mut view.what else { continue };
        let before = (spans.spans().len(), spans.received().is_some());
        whole::decide(spans, &header, asking, now, out);
        is_changed |= before != (spans.spans().len(), spans.received().is_some());
        if spans.form() == SpanForm::SentryTransaction && spans.is_empty() && before.0 > 0 {
            lost_transaction = true;
            out.note(crate::TRANSACTIONS, 1);
        }
    }
    for View { what, .. } in &mut envelope.views {
        let Viewed::Profiles(profiles) = what else { continue };
        let before = profiles.observations();
        if lost_transaction && is_v1(profiles) {
            out.drop(Reason::SampleRate, Quantities::observations(before));
            *profiles = without_profiles(profiles);
        } else if !sessions.keeps_all() {
            let left = sessions.filter(profiles.clone(), now, out);
            *profiles = left.unwrap_or_else(|| without_profiles(profiles));
        }
        is_changed |= profiles.observations() < before;
    }
    if is_changed {
        if let Some(received) = &mut envelope.received {
            received.changed = true;
        }
        // Of every item something was read, and nothing is left of any.
        if envelope.quantities().is_none() {
            return;
        }
    }
    out.send(envelope);
}

fn without_profiles(profiles: &Profiles) -> Profiles {
    // No profiles at all are in no place that could be wrong.
    profiles.with_resources(Vec::new()).unwrap_or_else(|_| profiles.clone())
}
