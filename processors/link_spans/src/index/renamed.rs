//! Threads that had another name before: programs rename their threads, and of each only the last name is known to be
//! its own, from the end of the first batch that says it on. In 12 bytes each, of renamed threads only.

use super::texts::{TextId, grow};
use super::threads::Key;

/// A thread that had another name before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renamed {
    thread: Key,
    /// The last name that it had before.
    pub(super) before: TextId,
    /// The end of the first batch that said its name, on the scale of the process. It may have had it for a while.
    pub(super) since: u32,
}

/// The renamed threads of a process, in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct AllRenamed(Vec<Renamed>);

impl AllRenamed {
    /// A thread has another name.
    pub(super) fn add(&mut self, thread: Key, before: TextId, since: u32) {
        let renamed = Renamed { thread, before, since };
        match self.0.binary_search_by_key(&thread, |known| known.thread) {
            Ok(at) => self.0[at] = renamed,
            Err(at) => {
                grow(&mut self.0);
                self.0.insert(at, renamed);
            }
        }
    }

    /// What is known of a thread's last change of its name.
    pub(super) fn get(&self, thread: Key) -> Option<&Renamed> {
        self.0.binary_search_by_key(&thread, |known| known.thread).ok().map(|at| &self.0[at])
    }

    /// The numbers of the names that threads had before.
    pub(super) fn texts(&self) -> impl Iterator<Item = TextId> {
        self.0.iter().map(|renamed| renamed.before)
    }

    /// Forgets threads that are forgotten, and changes that were before a time.
    pub(super) fn retain(&mut self, is_known: impl Fn(Key) -> bool, start: u32) {
        self.0.retain(|renamed| renamed.since >= start && is_known(renamed.thread));
        if self.0.capacity() / 2 > self.0.len() {
            self.0.shrink_to(self.0.len() + self.0.len() / 8);
        }
    }

    /// Makes them those of a scale that began so much later.
    pub(super) fn move_by(&mut self, by: u32) {
        self.0.iter_mut().for_each(|renamed| renamed.since = renamed.since.saturating_sub(by));
    }

    /// Gives texts their new numbers.
    pub(super) fn move_texts(&mut self, moved: &[Option<TextId>]) {
        self.0.retain_mut(|renamed| {
            let new = |text: TextId| moved.get(text as usize).copied().flatten();
            let (thread, before) = (renamed.thread.moved(moved), new(renamed.before));
            (renamed.thread, renamed.before) = (thread.unwrap_or(renamed.thread), before.unwrap_or(renamed.before));
            thread.is_some() && before.is_some()
        });
        self.0.sort_unstable_by_key(|renamed| renamed.thread);
    }

    /// The memory of it, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<Renamed>()) as u64
    }
}
