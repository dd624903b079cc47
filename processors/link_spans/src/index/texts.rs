//! Texts that many say, such as names of threads: each once.

use std::sync::Arc;

use hashbrown::HashSet;

use crate::covered::ALLOCATION;

/// The texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: HashSet<Arc<str>>,
    /// The memory of the texts themselves, in bytes, about.
    bytes: u64,
}

impl Texts {
    /// A text, which is added where it is new.
    pub(super) fn add(&mut self, text: &str) -> Arc<str> {
        Arc::clone(self.all.get_or_insert_with(text, |text| {
            self.bytes += bytes_of(text);
            text.into()
        }))
    }

    /// Forgets what nobody says any more.
    pub(super) fn drop_unused(&mut self) {
        self.all.retain(|text| Arc::strong_count(text) > 1);
        self.all.shrink_to(self.all.len() * 2);
        self.bytes = self.all.iter().map(|text| bytes_of(text)).sum();
    }

    /// The memory of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.all.allocation_size() as u64
    }
}

/// Beside the text there are the two counters of an [`Arc`].
fn bytes_of(text: &str) -> u64 {
    (ALLOCATION + 2 * size_of::<usize>() + text.len()) as u64
}
