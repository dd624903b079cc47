//! What is left out, counted as Sentry's SDKs report it: exporters tell Sentry (Sentry developer documentation, "Client
//! Reports").
//!
//! A transaction counts as itself and as its spans, of which it is one. Spans of OTLP become a transaction for each
//! local root; those that were spans of a container of Sentry's never do, and count as spans alone.

use std::collections::BTreeMap;

use profbridge_engine::component::Outbox;
use profbridge_model::spans::{Assembly, Origin, Origins};
use profbridge_model::{SampledOutCounts, Span, SpanForm, Spans, Whose};

/// What one span that is left out counts as, but for the transaction that it was put to, which is counted as a whole.
fn of_span(span: &Span, form: SpanForm) -> SampledOutCounts {
    let is_alone = form == SpanForm::Otlp && span.segment.is_none();
    let is_transaction = is_alone && span.is_local_root() && !span.is_streamed;
    SampledOutCounts { transactions: u64::from(is_transaction), spans: 1, ..SampledOutCounts::default() }
}

/// What is left out of one batch, by resource.
#[derive(Debug, Default)]
pub(crate) struct OfBatch(BTreeMap<u32, SampledOutCounts>);

impl OfBatch {
    /// Counts a span of the batch that is left out.
    pub(crate) fn add(&mut self, batch: &Spans, span: &Span) {
        *self.0.entry(batch.scope_of(span).resource).or_default() += of_span(span, batch.form());
    }

    /// Counts a transaction of a resource, given by its position, whose spans are counted by themselves.
    pub(crate) fn add_transaction(&mut self, resource: u32) {
        self.0.entry(resource).or_default().transactions += 1;
    }

    /// All of it, whosever it is.
    pub(crate) fn total(&self) -> SampledOutCounts {
        self.0.values().copied().sum()
    }

    /// Says it, for each resource of the batch.
    pub(crate) fn say(self, batch: &Spans, out: &mut Outbox) {
        for (resource, counts) in self.0 {
            out.say_sampled_out(Whose::Process(batch.resource_alone(resource as usize)), counts);
        }
    }
}

/// What is left out of spans that were held, by resource, until it is said. The resources stay held until then.
#[derive(Debug, Default)]
pub(crate) struct OfHeld(BTreeMap<u32, (Origin, SampledOutCounts)>);

impl OfHeld {
    /// Counts a span that was held, and lets go of what made it, once that is said.
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

    /// Says it, for each resource.
    pub(crate) fn say(&mut self, origins: &mut Origins, out: &mut Outbox) {
        for (_, (origin, counts)) in std::mem::take(&mut self.0) {
            // Where a resource is too large for a batch its spans never came.
            if let Some(resource) = Assembly::resource_alone(origins, origin) {
                out.say_sampled_out(Whose::Process(resource), counts);
            }
            origins.release(origin);
        }
    }
}
