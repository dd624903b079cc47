//! The string table of a profile that is being written.

use std::borrow::Cow;
use std::collections::HashMap;

/// The distinct strings; the first is empty.
#[derive(Debug, Default)]
pub(super) struct Texts<'a> {
    indices: HashMap<Cow<'a, [u8]>, u64>,
    texts: Vec<Cow<'a, [u8]>>,
}

impl<'a> Texts<'a> {
    /// The index of a text that is borrowed from the batch.
    pub(super) fn index(&mut self, text: &'a [u8]) -> u64 {
        self.put(Cow::Borrowed(text))
    }

    /// The index of an owned text.
    pub(super) fn made(&mut self, text: String) -> u64 {
        self.put(Cow::Owned(text.into_bytes()))
    }

    fn put(&mut self, text: Cow<'a, [u8]>) -> u64 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&known) = self.indices.get(&text) {
            return known;
        }
        self.texts.push(text.clone());
        let index = self.texts.len() as u64;
        self.indices.insert(text, index);
        index
    }

    /// All strings, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> + '_ {
        std::iter::once(&b""[..]).chain(self.texts.iter().map(|text| &**text))
    }
}
