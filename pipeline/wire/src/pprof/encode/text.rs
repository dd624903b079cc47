//! The string table of a profile that is written.

use std::borrow::Cow;
use std::collections::HashMap;

/// The strings, each once; the first is empty.
#[derive(Debug, Default)]
pub(super) struct Texts<'a> {
    indices: HashMap<Cow<'a, [u8]>, u64>,
    texts: Vec<Cow<'a, [u8]>>,
}

impl<'a> Texts<'a> {
    /// The index of a text that lives as long as the batch.
    pub(super) fn index(&mut self, text: &'a [u8]) -> u64 {
        self.put(Cow::Borrowed(text))
    }

    /// The index of a text that was made.
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

    /// All of them, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> + '_ {
        std::iter::once(&b""[..]).chain(self.texts.iter().map(|text| &**text))
    }
}
