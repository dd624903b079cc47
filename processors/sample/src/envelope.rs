//! Samples the transactions, spans and profiles in envelopes.
//!
//! An envelope is delivered as a whole: data that is sampled out is removed from the envelope's parsed views, and an
//! item whose view is empty is not sent. With a dropped transaction, its V1 profile and the envelope's attachments are
//! dropped too, because the SDK would not have sent them either: an envelope has one event or transaction
//! (getsentry/relay `relay-server/src/utils/sizes.rs`), to which its attachments belong (Sentry developer
//! documentation, "Envelope Items", "Attachment").

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::{
    Envelope, ItemView, Profiles, Quantities, Reason, SampledOutCounts, SampledOutOrigin, SpanForm, Viewed,
};
use profbridge_wire::sentry::envelope::ItemHeader;
use profbridge_wire::sentry::trace_header::TraceHeader;

use crate::complete::{self, Sender};
use crate::processes;
use crate::sessions::Sessions;
use crate::traces::{DecisionContext, Traces};

/// Decides about the contents of an envelope, and sends the remaining ones.
pub(crate) fn sample(
    mut envelope: Envelope,
    traces: &mut Traces,
    context: &mut DecisionContext<'_>,
    sessions: &mut Sessions,
    now: Now,
    out: &mut Outbox,
) {
    let header = TraceHeader::read(&envelope.header);
    let sender = Sender { header, client: processes::client(&envelope.meta) };
    let mut is_changed = false;
    let mut counts = SampledOutCounts::default();
    let mut transaction = None;
    for view in &mut envelope.views {
        let Viewed::Spans(spans) = &mut view.what else { continue };
        let before = (spans.spans().len(), spans.received().is_some());
        counts += complete::decide(spans, &sender, traces, context, now, out).total();
        is_changed |= before != (spans.spans().len(), spans.received().is_some());
        if spans.form() == SpanForm::SentryTransaction && spans.is_empty() && before.0 > 0 {
            transaction = Some(view.item);
            out.note(crate::TRANSACTIONS, 1);
        }
    }
    if !counts.is_none() {
        let profiles = envelope.profiles().next().cloned();
        let meta = Box::new(envelope.meta.clone());
        if let Some(transaction) = transaction {
            remove_transaction(&mut envelope, transaction, &mut counts, out);
        }
        out.report_sampled_out(SampledOutOrigin::Client { meta, profiles }, counts);
    }
    for ItemView { what, .. } in &mut envelope.views {
        let Viewed::Profiles(profiles) = what else { continue };
        if !sessions.keeps_all() {
            let before = profiles.observations();
            let left = sessions.filter(profiles.clone(), now, out);
            *profiles = left.unwrap_or_else(|| without_profiles(profiles));
            is_changed |= profiles.observations() < before;
        }
    }
    if is_changed {
        if let Some(received) = &mut envelope.received {
            received.changed = true;
        }
        // All items were sampled out.
        if envelope.items.is_empty() || envelope.quantities().is_none() {
            return;
        }
    }
    out.send(envelope);
}

/// Removes a dropped transaction from its envelope, with its profile and attachments, and counts them.
fn remove_transaction(envelope: &mut Envelope, transaction: usize, counts: &mut SampledOutCounts, out: &mut Outbox) {
    let kinds = envelope.items.iter().map(|item| ItemHeader::read(&item.header).map(|header| header.kind));
    let kinds: Vec<_> = kinds.map(|kind| kind.map_or_else(|_| String::new(), |kind| kind.into_owned())).collect();
    // There should be no second transaction. If there is one, the owner of the attachments is unknown.
    let of_another =
        kinds.iter().enumerate().any(|(at, kind)| at != transaction && matches!(&**kind, "event" | "transaction"));
    for (at, kind) in kinds.iter().enumerate().rev() {
        match &**kind {
            _ if at == transaction => {}
            "profile" => counts.profiles += 1,
            "attachment" if !of_another => counts.attachment_bytes += envelope.items[at].payload.len() as u64,
            _ => continue,
        }
        if at != transaction {
            let view = envelope.views.iter().find(|view| view.item == at);
            out.drop(Reason::SampleRate, view.map_or(Quantities::items(1), ItemView::quantities));
        }
        envelope.remove_item(at);
    }
}

fn without_profiles(profiles: &Profiles) -> Profiles {
    // A batch without resources is always valid.
    profiles.with_resources(Vec::new()).unwrap_or_else(|_| profiles.clone())
}
