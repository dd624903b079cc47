//! Counts the data that is sampled out in the same way as Sentry's SDKs. Exporters report the counts to Sentry (Sentry
//! developer documentation, "Client Reports").
//!
//! A transaction counts as one transaction and as its spans, including its root. OTLP spans become one transaction per
//! local root. Spans received in a Sentry container never become a transaction and count only as spans.

use std::collections::BTreeMap;

use profbridge_engine::component::Outbox;
use profbridge_model::spans::{Assembly, Origin, Origins};
use profbridge_model::{SampledOutCounts, SampledOutOrigin, Span, SpanForm, Spans};

/// The counts for one span. The transaction of the span is counted separately.
fn of_span(span: &Span, form: SpanForm) -> SampledOutCounts {
    let is_alone = form == SpanForm::Otlp && span.segment.is_none();
    let is_transaction = is_alone && span.is_local_root() && !span.is_streamed;
    SampledOutCounts { transactions: u64::from(is_transaction), spans: 1, ..SampledOutCounts::default() }
}

/// The counts of a batch's data that is sampled out, by resource.
#[derive(Debug, Default)]
pub(crate) struct BatchCounts(BTreeMap<u32, SampledOutCounts>);

impl BatchCounts {
    /// Counts a sampled-out span of the batch.
    pub(crate) fn add(&mut self, batch: &Spans, span: &Span) {
        *self.0.entry(batch.scope_of(span).resource).or_default() += of_span(span, batch.form());
    }

    /// Counts a transaction of the resource at this index. Its spans are counted separately.
    pub(crate) fn add_transaction(&mut self, resource: u32) {
        self.0.entry(resource).or_default().transactions += 1;
    }

    /// The sum over all resources.
    pub(crate) fn total(&self) -> SampledOutCounts {
        self.0.values().copied().sum()
    }

    /// Reports the counts of each resource of the batch.
    pub(crate) fn report(self, batch: &Spans, out: &mut Outbox) {
        for (resource, counts) in self.0 {
            out.report_sampled_out(SampledOutOrigin::Process(batch.resource_alone(resource as usize)), counts);
        }
    }
}

/// The counts of buffered spans that are sampled out, by resource, until they are reported. The resources are kept
/// until then.
#[derive(Debug, Default)]
pub(crate) struct BufferedCounts(BTreeMap<u32, (Origin, SampledOutCounts)>);

impl BufferedCounts {
    /// Counts a buffered span. Its origin is released after the report.
    pub(crate) fn add(&mut self, origins: &mut Origins, span: &Span) {
        let origin = Origin::of(span.scope);
        let counts = of_span(span, SpanForm::Otlp);
        match self.0.get_mut(&origins.resource_of(origin)) {
            Some((_, known)) => {
                *known += counts;
                origins.release(origin);
            }
            None => drop(self.0.insert(origins.resource_of(origin), (origin, counts))),
        }
    }

    /// Reports the counts of each resource.
    pub(crate) fn report(&mut self, origins: &mut Origins, out: &mut Outbox) {
        for (_, (origin, counts)) in std::mem::take(&mut self.0) {
            // Spans of a resource that is too large for a batch were never buffered.
            if let Some(resource) = Assembly::resource_alone(origins, origin) {
                out.report_sampled_out(SampledOutOrigin::Process(resource), counts);
            }
            origins.release(origin);
        }
    }
}
