//! Texts that many say, such as names of threads: each once, one after the other.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The number of a text, below 2^31.
pub(super) type TextId = u32;

/// So many texts there may be, and so many bytes of them.
const MOST: usize = 1 << 30;

/// What may be there of texts that nobody says any more, in bytes, beside as much as there was when it was looked last.
const SPARE: usize = 4096;

/// The texts. Nothing is forgotten but by [`Texts::keep`].
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: String,
    /// Where each ends, and the next begins.
    ends: Vec<u32>,
    known: HashTable<TextId>,
    hasher: DefaultHashBuilder,
    /// The bytes that were left when it was looked last for what nobody says any more.
    kept: usize,
}

impl Texts {
    /// The number of a text, which is added where it is new; `None` where there is no room.
    pub(super) fn add(&mut self, text: &str) -> Option<TextId> {
        if let Some(known) = self.find(text) {
            return Some(known);
        }
        if self.ends.len() >= MOST || self.all.len() + text.len() > MOST {
            return None;
        }
        let id = self.ends.len() as TextId;
        grow(&mut self.ends);
        if self.all.capacity() - self.all.len() < text.len() {
            self.all.reserve_exact((self.all.len() / 8).max(text.len()));
        }
        self.all.push_str(text);
        self.ends.push(self.all.len() as u32);
        let Self { all, ends, known, hasher, .. } = self;
        known.insert_unique(hasher.hash_one(text), id, |id| hasher.hash_one(get(all, ends, *id)));
        Some(id)
    }

    /// The number of a text that is there.
    pub(super) fn find(&self, text: &str) -> Option<TextId> {
        self.known.find(self.hasher.hash_one(text), |id| self.get(*id) == text).copied()
    }

    pub(super) fn get(&self, id: TextId) -> &str {
        get(&self.all, &self.ends, id)
    }

    /// Whether so much came since it was looked last that it is worth another look.
    pub(super) fn is_worth_a_look(&self) -> bool {
        self.all.len() > 2 * self.kept + SPARE
    }

    /// Whether any came since it was looked last.
    pub(super) fn any_new(&self) -> bool {
        self.all.len() > self.kept
    }

    /// The same with those texts only for which `is_said`, and the new number of each.
    pub(super) fn keep(&mut self, is_said: impl Fn(TextId) -> bool) -> Vec<Option<TextId>> {
        let mut kept = Self { hasher: self.hasher.clone(), ..Self::default() };
        let moved =
            (0..self.ends.len() as TextId).map(|id| is_said(id).then(|| kept.add(self.get(id))).flatten()).collect();
        kept.kept = kept.all.len();
        *self = kept;
        moved
    }

    /// The memory of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.all.capacity() + self.ends.capacity() * size_of::<u32>() + self.known.allocation_size()) as u64
    }
}

fn get<'a>(all: &'a str, ends: &[u32], id: TextId) -> &'a str {
    let end_of = |id: usize| ends.get(id).map_or(0, |end| *end as usize);
    let start = (id as usize).checked_sub(1).map_or(0, end_of);
    all.get(start..end_of(id as usize)).unwrap_or_default()
}

/// Makes room for one more where there is none: for an eighth more, not for twice as much.
pub(super) fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 8).max(2));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Guarantees: equal texts have one number and others have others; what is still said keeps its text under the
        /// number that it is told, and what is not is gone.
        #[test]
        fn as_a_list_says(texts in prop::collection::vec("[ab]{0,3}", 0..30), said in any::<u32>()) {
            let mut all = Texts::default();
            let ids: Vec<TextId> = texts.iter().map(|text| all.add(text).unwrap()).collect();
            for (text, id) in texts.iter().zip(&ids) {
                prop_assert_eq!((all.get(*id), all.find(text)), (&**text, Some(*id)));
            }
            let is_said = |id: TextId| said >> (id % 32) & 1 == 1;
            let moved = all.keep(is_said);
            for (text, id) in texts.iter().zip(&ids) {
                prop_assert_eq!(all.find(text), moved[*id as usize]);
                prop_assert_eq!(moved[*id as usize].map(|id| all.get(id)), is_said(*id).then_some(&**text));
            }
        }
    }
}
