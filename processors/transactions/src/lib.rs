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

use profbridge_engine::registry::{Description, ProcessorFactory, SPANS};

pub use self::config::{Config, Settings};
pub use self::hold::Transactions;

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
    create: |section, _| Ok(Box::new(Transactions::new(section.extract::<Config>()?.check(section)?))),
};
