//! The processor `transactions`: groups OTLP spans by local root, as Sentry shows them.
//!
//! A transaction of Sentry's is what one process did for one request: the span with which it began there (the local
//! root) and all spans below it in that process. Spans of OTLP come one by one, when they end, in whatever request
//! their SDK puts them. So they are held here until the rest of their transaction should have come. See `README.md` for
//! the options and guarantees.
//!
//! It knows spans as the model does, and no format; what a span says is bytes that are copied.

mod config;
mod hold;
mod leaving;
mod left;
mod trees;

use profbridge_engine::component::{Held, Now, Outbox, Processor};
use profbridge_engine::config::{Problems, Section};
use profbridge_engine::registry::{Description, ProcessorFactory, SPANS};
use profbridge_model::{SpanForm, Spans, Telemetry};

use self::hold::Hold;

pub use self::config::{Config, Settings};

/// Note: transactions that left without their local root, which had not come in time.
pub const WITHOUT_ROOT: &str = "transactions_without_root";

/// Note: transactions of spans that came after the one to which they belong had left.
pub const LATE: &str = "late_transactions";

/// Note: transactions that left before their time, for want of memory or since they were too large.
pub const CLOSED_EARLY: &str = "closed_early";

/// Note: spans with the id of another span of their trace and process, which says something else.
pub const EQUAL_IDS: &str = "equal_span_ids";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    // What is sampled away need not be held.
    description: Description::processor("transactions", "groups spans by local root, as Sentry shows them", SPANS)
        .behind(&["sample", "link_spans"]),
    create: |section, _identity| create(section),
};

fn create(section: &Section) -> Result<Box<dyn Processor>, Problems> {
    let settings = section.extract::<Config>()?.check(section)?;
    Ok(Box::new(Transactions::new(settings)))
}

/// The processor.
#[derive(Debug)]
pub struct Transactions {
    hold: Hold,
}

impl Transactions {
    /// A processor that holds nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self { hold: Hold::new(settings) }
    }
}

/// Spans that belong to no transaction, since they came to Sentry in containers and become such again, and the others.
fn apart(mut spans: Spans) -> (Option<Spans>, Spans) {
    if !spans.spans().iter().any(|span| span.is_streamed) {
        return (None, spans);
    }
    let mut others = spans.clone();
    others.retain(|_, span| !span.is_streamed);
    spans.retain(|_, span| span.is_streamed);
    (Some(spans), others)
}

impl Processor for Transactions {
    fn fit_memory(&mut self, limit: u64) {
        self.hold.fit_memory(limit);
    }

    fn process(&mut self, telemetry: Telemetry, now: Now, out: &mut Outbox) {
        match telemetry {
            Telemetry::Spans(spans) if spans.form() == SpanForm::Otlp => match apart(spans) {
                (None, spans) => self.hold.take(spans, now, out),
                (Some(streamed), others) => {
                    out.send(streamed);
                    // One batch leaves in a call, so the others are taken in by the next.
                    if !others.is_empty() {
                        self.hold.begin(others);
                    }
                }
            },
            // Sentry's SDKs make transactions themselves, and their spans of version 2 are none.
            other => out.send(other),
        }
    }

    fn is_absorbing(&self) -> bool {
        self.hold.is_absorbing()
    }

    fn due(&self) -> Option<u64> {
        self.hold.due()
    }

    fn advance(&mut self, now: Now, out: &mut Outbox) {
        self.hold.advance(now, out);
    }

    fn on_memory_pressure(&mut self, _now: Now, out: &mut Outbox) -> bool {
        self.hold.on_memory_pressure(out)
    }

    fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        self.hold.flush(now, out)
    }

    fn held(&self) -> Held {
        self.hold.held()
    }
}
