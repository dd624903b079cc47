//! Reports what the processors sampled out to the project that it would have been sent to, as SDKs report what they
//! sample out themselves (Sentry developer documentation, "Client Reports").

use profbridge_model::{SampledOut, SampledOutCounts, SampledOutOrigin};
use profbridge_wire::sentry::client_report::Discarded;
use profbridge_wire::sentry::{Category, ResourceAttributes};

use crate::Settings;
use crate::config::SpanMode;
use crate::routing::{self, Route};

/// Adds sampled-out items to the next client report of their project. Items without a project are not reported.
pub(crate) fn count(settings: &Settings, what: &SampledOut) {
    let route = match &what.whose {
        SampledOutOrigin::Client { meta, profiles } => routing::of_client(settings, meta, profiles).ok().flatten(),
        SampledOutOrigin::Process(spans) if spans.client.is_some() => {
            let meta = spans.client.as_deref();
            meta.and_then(|meta| routing::of_client(settings, meta, []).ok().flatten())
        }
        SampledOutOrigin::Process(spans) => {
            let attributes = spans.resources().first().map(|resource| ResourceAttributes::of_resource(spans, resource));
            attributes.and_then(|attributes| routing::of_process(settings, &attributes)).map(Route::Configured)
        }
    };
    let Some(route) = route else { return };
    let destination = route.destination(settings);
    let SampledOutCounts { transactions, spans, profiles, attachment_bytes } = what.counts;
    // If the exporter sends spans as spans, none of them would have become a transaction.
    let as_spans = match &what.whose {
        SampledOutOrigin::Client { .. } => false,
        SampledOutOrigin::Process(spans) => {
            spans.client.is_some() || matches!(settings.spans, SpanMode::Otlp | SpanMode::Streamed)
        }
    };
    let transactions = if as_spans { 0 } else { transactions };
    let mut report = destination.report();
    for (category, quantity) in [
        (Category::Transaction, transactions),
        (Category::Span, spans),
        (Category::Profile, profiles),
        (Category::Attachment, attachment_bytes),
    ] {
        report.record(Discarded::SampleRate, category, quantity);
    }
}
