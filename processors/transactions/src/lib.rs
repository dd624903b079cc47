//! The processor `transactions`: groups OTLP spans by local root, as Sentry shows them.
//!
//! A Sentry transaction is the work of one process for one request: the span with which it began there (the local
//! root), and all spans below it in that process. OTLP spans arrive individually, when they end, in arbitrary requests.
//! They are buffered here until the rest of their transaction should have arrived. See `README.md` for the options and
//! guarantees.
//!
//! This crate uses the model's spans and knows no format: encoded spans are copied as bytes.

mod closed;
mod config;
mod processor;
mod sent;
mod trees;

use profbridge_engine::registry::{Description, ProcessorFactory, SPANS};

pub use self::config::{Config, Settings};
pub use self::processor::Transactions;

/// Note: transactions sent without their local root, which did not arrive in time.
pub const WITHOUT_ROOT: &str = "transactions_without_root";

/// Note: transactions of spans that arrived after the transaction they belong to was sent.
pub const LATE: &str = "late_transactions";

/// Note: transactions sent early, because memory was short or they were too large.
pub const CLOSED_EARLY: &str = "closed_early";

/// Note: spans with the id of another span of their trace and process, but different content.
pub const EQUAL_IDS: &str = "equal_span_ids";

/// The processor's entry in the registry.
pub const FACTORY: ProcessorFactory = ProcessorFactory {
    // Sampled-out spans need not be buffered.
    description: Description::processor("transactions", "groups spans by local root, as Sentry shows them", SPANS)
        .behind(&["sample", "link_spans"]),
    create: |section, _| {
        Ok(Box::new(Transactions::new(section.extract_checked(|config: Config, section| config.check(section))?)))
    },
};
