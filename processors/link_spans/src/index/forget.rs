//! Forgets old entries, and entries for which there is no memory.

use super::{Index, OF_LINKS};

impl Index {
    /// Forgets observations that ended `keep` nanoseconds before the last one of their process or belong to another
    /// setting of its clock, processes without profiles for that long, and spans that no sample named for that long.
    pub(crate) fn forget(&mut self, now: u64, keep: u64) {
        self.sampled_links.forget(now, keep);
        self.segments.forget(now, keep);
        self.processes.retain(|_, process| {
            if now.saturating_sub(process.seen) > keep {
                return false;
            }
            process.threads.remember(process.remembered(now, keep));
            process.forget_ids();
            !process.threads.is_empty()
        });
        self.drop_what_is_unused();
    }

    /// Forgets until at most `max_bytes` are used. First the older, then the younger half of the spans named by
    /// samples, and of the segments, as long as they exceed their share; then the processes that were not seen for the
    /// longest time.
    pub(crate) fn shrink(&mut self, max_bytes: u64) {
        if self.bytes() <= max_bytes {
            return;
        }
        // Both generations are empty after the second pass.
        for _ in 0..2 {
            if self.sampled_links.bytes() > max_bytes / OF_LINKS {
                self.forgotten.named_spans += self.sampled_links.forget_old();
            }
            if self.segments.bytes() > max_bytes / OF_LINKS {
                self.forgotten.segments += self.segments.forget_old();
            }
        }
        let mut by_age: Vec<(u64, u32)> = self.processes.iter().map(|(number, of)| (of.seen, *number)).collect();
        by_age.sort_unstable();
        let mut by_age = by_age.into_iter();
        while self.bytes() > max_bytes && self.processes.len() + self.sampled_links.len() + self.segments.len() > 0 {
            // Half of the processes at a time: freeing fewer would not shrink the tables.
            let half = self.processes.len().div_ceil(2);
            for (_, number) in by_age.by_ref().take(half) {
                self.forgotten.processes += u64::from(self.processes.remove(&number).is_some());
            }
            if half <= 1 {
                self.forgotten.named_spans += self.sampled_links.forget_old();
                self.forgotten.segments += self.segments.forget_old();
            }
            self.drop_what_is_unused();
        }
    }

    /// Drops the names of forgotten processes and threads, and releases the memory.
    fn drop_what_is_unused(&mut self) {
        let Self { processes, by_identity, by_name, any_renamed, by_thread, .. } = self;
        by_identity.retain(|_, number| processes.contains_key(number));
        by_identity.shrink_to(processes.len() * 2);
        if std::mem::take(any_renamed) {
            by_name.clear();
            for process in processes.values() {
                process.claims.names().for_each(|name| by_name.add(name, process.number));
            }
        } else {
            by_name.retain(|number| processes.contains_key(&number));
        }
        by_thread.clear();
        // Rebuilt from scratch, because pointers of ended threads are reused.
        for process in processes.values() {
            process.thread_names().for_each(|name| by_thread.add(name, process.number));
        }
        processes.shrink_to(processes.len() * 2);
        self.sampled_links.retain(|process| self.processes.contains_key(&process));
        self.bytes = self.processes.values().map(|process| process.bytes()).sum();
    }
}
