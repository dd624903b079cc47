//! Data left out of transactions, apart from lost spans.

/// Information for the operator that is not a loss of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Number of spans, resources and requests whose data was left out so that the transaction fits
    /// [`MAX_TRANSACTION_BYTES`](super::limits::MAX_TRANSACTION_BYTES).
    pub shed_data: u64,
    /// Number of values that Sentry cannot represent: NaN and infinities, lists that nest too deep, an invalid release
    /// or operation, elements beyond a limit of [`limits`](super::limits).
    pub invalid_values: u64,
    /// Number of texts truncated at a limit of [`limits`](super::limits).
    pub truncated_texts: u64,
}

impl Notes {
    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Notes) {
        let Notes { shed_data, invalid_values, truncated_texts } = other;
        self.shed_data += shed_data;
        self.invalid_values += invalid_values;
        self.truncated_texts += truncated_texts;
    }

    /// The non-zero counts, by their names in metrics and summaries.
    pub fn counts(self) -> impl Iterator<Item = (&'static str, u64)> {
        let Notes { shed_data, invalid_values, truncated_texts } = self;
        [
            ("shed_span_data", shed_data),
            ("invalid_span_values", invalid_values),
            ("truncated_span_texts", truncated_texts),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
    }
}
