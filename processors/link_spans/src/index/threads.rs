//! The threads of a process, in 40 bytes each.

use std::num::NonZeroU64;

use super::renamed::{AllRenamed, Renamed};
use super::texts::{TextId, Texts, grow};
use crate::covered::{Covered, Millis};

/// The id of a thread: a number below 2^31, as the system's are, or the number of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(u32);

/// Marks numbers of texts.
const TEXT: u32 = 1 << 31;

impl Key {
    /// Of what was observed on a thread that nobody knows.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// Of an id that is written as the system writes numbers.
    fn of_number(id: &str) -> Option<Self> {
        let is_plain = !id.starts_with(['0', '+']) || id == "0";
        id.parse().ok().filter(|number| is_plain && *number < TEXT).map(Self)
    }

    /// Of an id of the system's; `None` where that is larger than the system has any.
    pub(super) fn of_system(id: u32) -> Option<Self> {
        (id < TEXT).then_some(Self(id))
    }

    /// Of a thread that is to be remembered; `None` where there is no room for its id.
    pub(super) fn new(id: &str, texts: &mut Texts) -> Option<Self> {
        Self::of_number(id).or_else(|| texts.add(id).map(|text| Self(TEXT | text)))
    }

    /// Of a thread that is remembered, perhaps.
    pub(super) fn find(id: &str, texts: &Texts) -> Option<Self> {
        Self::of_number(id).or_else(|| texts.find(id).map(|text| Self(TEXT | text)))
    }

    /// The id; `None` where nobody knows it.
    pub(super) fn id(self, texts: &Texts) -> Option<String> {
        match self {
            Self::NONE => None,
            Self(number) if number < TEXT => Some(number.to_string()),
            Self(text) => Some(texts.get(text & !TEXT).to_owned()),
        }
    }

    /// The system's id, if it is one.
    pub(super) fn number(self) -> Option<u32> {
        (self.0 < TEXT).then_some(self.0)
    }

    /// The number of its text, if it is one.
    pub(super) fn text(self) -> Option<TextId> {
        (self.0 >= TEXT && self != Self::NONE).then_some(self.0 & !TEXT)
    }

    /// The same where texts got other numbers.
    pub(super) fn moved(self, moved: &[Option<TextId>]) -> Option<Self> {
        match self.text() {
            Some(text) => moved.get(text as usize).copied().flatten().map(|text| Self(TEXT | text)),
            None => Some(self),
        }
    }
}

/// A thread that was observed.
#[derive(Debug)]
pub(super) struct Thread {
    /// Its pointer, where it is known.
    pub(super) pointer: Option<NonZeroU64>,
    pub(super) covered: Covered,
    pub(super) key: Key,
    /// [`NO_NAME`] where it has none.
    name: TextId,
}

/// Stands for no name.
const NO_NAME: TextId = TextId::MAX;

impl Thread {
    pub(super) fn new(key: Key, covered: Covered) -> Self {
        Self { pointer: None, covered, key, name: NO_NAME }
    }

    /// The name that it had last: programs rename their threads.
    pub(super) fn name(&self) -> Option<TextId> {
        Some(self.name).filter(|name| *name != NO_NAME)
    }

    pub(super) fn set_name(&mut self, name: Option<TextId>) {
        self.name = name.unwrap_or(NO_NAME);
    }
}

/// The threads of a process, in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct Threads {
    all: Vec<Thread>,
    renamed: AllRenamed,
}

impl Threads {
    pub(super) fn get(&self, key: Key) -> Option<&Thread> {
        self.all.binary_search_by_key(&key, |thread| thread.key).ok().map(|at| &self.all[at])
    }

    /// Where a thread stands, or is to be inserted.
    pub(super) fn position(&self, key: Key) -> Result<usize, usize> {
        // Ids count up, so what is new is mostly behind all others.
        match self.all.last() {
            Some(last) if last.key < key => Err(self.all.len()),
            _ => self.all.binary_search_by_key(&key, |thread| thread.key),
        }
    }

    pub(super) fn insert(&mut self, at: usize, thread: Thread) -> &mut Thread {
        grow(&mut self.all);
        self.all.insert(at, thread);
        &mut self.all[at]
    }

    pub(super) fn at(&mut self, at: usize) -> &mut Thread {
        &mut self.all[at]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.all.iter()
    }

    /// A thread had another name before. Until the end of the batch that says so, and as long as it was observed by
    /// then, it may have had either.
    pub(super) fn rename(&mut self, key: Key, before: TextId, batch: u32) {
        if let Some(observed) = self.get(key).map(|thread| thread.covered.end()) {
            self.renamed.add(key, before, observed.max(batch));
        }
    }

    /// What is known of a thread's last change of its name.
    pub(super) fn renamed(&self, key: Key) -> Option<&Renamed> {
        self.renamed.get(key)
    }

    /// Forgets what is not of a time.
    pub(super) fn remember(&mut self, time: Millis) {
        self.retain(|thread| thread.covered.forget_after(time.end) && thread.covered.forget_before(time.start));
        self.drop_renamed(time.start);
    }

    /// Makes them those of a scale that began so much later.
    pub(super) fn move_by(&mut self, by: u32) {
        self.retain(|thread| thread.covered.move_by(by));
        self.drop_renamed(by);
        self.renamed.move_by(by);
    }

    fn retain(&mut self, keep: impl FnMut(&mut Thread) -> bool) {
        self.all.retain_mut(keep);
        if self.all.capacity() / 2 > self.all.len() {
            self.all.shrink_to(self.all.len() + self.all.len() / 8);
        }
    }

    /// Forgets the earlier names of threads that are forgotten, and those that were not had since a time.
    fn drop_renamed(&mut self, start: u32) {
        let all = &self.all;
        self.renamed.retain(|key| all.binary_search_by_key(&key, |thread| thread.key).is_ok(), start);
    }

    /// The numbers of the texts that are said of them.
    pub(super) fn texts(&self) -> impl Iterator<Item = TextId> {
        let of_thread = |thread: &Thread| thread.name().into_iter().chain(thread.key.text());
        self.all.iter().flat_map(of_thread).chain(self.renamed.texts())
    }

    /// Gives texts their new numbers.
    pub(super) fn move_texts(&mut self, moved: &[Option<TextId>]) {
        let new = |text: TextId| moved.get(text as usize).copied().flatten();
        self.all.retain_mut(|thread| {
            thread.set_name(thread.name().and_then(new));
            let key = thread.key.moved(moved);
            thread.key = key.unwrap_or(thread.key);
            key.is_some()
        });
        self.all.sort_unstable_by_key(|thread| thread.key);
        self.renamed.move_texts(moved);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The memory of their rows, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.all.capacity() * size_of::<Thread>()) as u64 + self.renamed.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a thread takes 40 bytes beside its texts, and ids that are not written as the system does are
    /// others.
    #[test]
    fn keys() {
        assert_eq!(size_of::<Thread>(), 40);
        let mut texts = Texts::default();
        let ids = ["0", "7", "07", "+7", "2147483647", "2147483648", "worker", "-1", ""];
        let keys: Vec<Key> = ids.iter().map(|id| Key::new(id, &mut texts).unwrap()).collect();
        for (id, key) in ids.iter().zip(&keys) {
            assert_eq!((key.id(&texts).as_deref(), Key::find(id, &texts)), (Some(*id), Some(*key)));
            assert_eq!(keys.iter().filter(|other| *other == key).count(), 1, "{id}");
        }
        assert_eq!((keys[1].number(), keys[2].number(), keys[4].number()), (Some(7), None, Some(2_147_483_647)));
        assert_eq!((Key::NONE.id(&texts), Key::NONE.number(), Key::NONE.text()), (None, None, None));
        assert_eq!(Key::find("nobody", &texts), None);
    }
}
