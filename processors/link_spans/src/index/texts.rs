//! Interns texts that occur often, such as thread names.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::covered::ALLOCATION;

/// The interned texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: HashSet<Arc<str>>,
    /// Approximate bytes of the texts themselves.
    bytes: u64,
}

impl Texts {
    /// Interns a text.
    pub(super) fn add(&mut self, text: &str) -> Arc<str> {
        Arc::clone(self.all.get_or_insert_with(text, |text| {
            self.bytes += bytes_of(text);
            text.into()
        }))
    }

    /// Drops texts that nothing refers to any more.
    pub(super) fn drop_unused(&mut self) {
        self.all.retain(|text| Arc::strong_count(text) > 1);
        self.all.shrink_to(self.all.len() * 2);
        self.bytes = self.all.iter().map(|text| bytes_of(text)).sum();
    }

    /// Memory use in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.all.allocation_size() as u64
    }
}

/// An [`Arc`] stores two counters beside the text.
fn bytes_of(text: &str) -> u64 {
    (ALLOCATION + 2 * size_of::<usize>() + text.len()) as u64
}
