//! The code of a process over time.
//!
//! Samples are unwound and symbolized a little after they were taken, and meanwhile other code may be mapped at the
//! same address. The kernel's records show when something was mapped, but its contents have to be read first. Until
//! then its addresses are unknown from that time on, and samples of earlier times still use the previous code.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::view::MapsEntry;
use super::{AddressSpace, ModuleKind};

/// How many address spaces are kept. Samples wait for a fraction of a second; if a program replaces its code more
/// often, some samples get wrong names.
const MOST: usize = 64;

/// How long replaced address spaces are kept: longer than samples wait even on a busy machine.
const KEPT: Duration = Duration::from_secs(10);

/// How many records may wait for the maps to be read. Beyond that they are dropped, as if the kernel had not sent
/// them.
const MOST_RECORDS: usize = 64;

/// A new mapping, and the time at which it was mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedAt {
    /// The time of the mapping.
    pub at: Instant,
    /// The mapping.
    pub entry: MapsEntry,
    /// Whether the mapping replaces other code, so that its addresses belong to other functions from then on.
    pub replaces: bool,
}

/// An address space, and the time from which it is valid.
#[derive(Debug)]
struct Version {
    since: Instant,
    space: Arc<AddressSpace>,
    /// The addresses whose code is unknown, because it was mapped at `since` and has not been read yet.
    unread: Option<Range<u64>>,
}

/// The address spaces of a process by time: never empty, in ascending order.
#[derive(Debug)]
pub(crate) struct History {
    versions: VecDeque<Version>,
    records: Vec<MappedAt>,
}

impl History {
    /// Creates a history that begins with this address space.
    pub(crate) fn new(space: Arc<AddressSpace>, now: Instant) -> Self {
        Self { versions: [Version { since: now, space, unread: None }].into(), records: Vec::new() }
    }

    pub(crate) fn latest(&self) -> &Arc<AddressSpace> {
        &self.versions[self.versions.len() - 1].space
    }

    /// The address space at a time; the first one if the time is before all of them.
    pub(crate) fn at(&self, time: Instant) -> &Arc<AddressSpace> {
        &self.versions[self.place(time)].space
    }

    fn place(&self, time: Instant) -> usize {
        self.versions.partition_point(|version| version.since <= time).saturating_sub(1)
    }

    /// Adds a kernel record. Returns whether the maps have to be read now, because other code was at these addresses
    /// before. A mapping at unused addresses is read when its code is first executed.
    pub(crate) fn mapped(&mut self, at: Instant, entry: MapsEntry) -> bool {
        let latest = self.latest();
        if latest.has(&entry) || latest.unread.len() >= MOST_RECORDS {
            return false;
        }
        let range = entry.start..entry.end;
        // For memory without a file, the record does not tell whether other code was compiled into it.
        let is_file = entry.file.inode != 0;
        let is_replaced = |record: &MappedAt| {
            let MapsEntry { start, end, file, .. } = &record.entry;
            *start < range.end && range.start < *end && (is_file || file.inode != 0)
        };
        let replaces = latest.overlaps(&range, |kind| is_file || kind != ModuleKind::Generated)
            || self.records.iter().any(is_replaced);
        if self.records.len() >= MOST_RECORDS {
            let Some(oldest) = self.records.iter().position(|record| !record.replaces) else { return false };
            self.records.remove(oldest);
        }
        // Records written on several processors may be read out of order.
        let at = at.max(self.versions[self.versions.len() - 1].since);
        if replaces {
            let space = Arc::new(self.latest().without(range.clone()));
            let is_old = |version: &Version| at.saturating_duration_since(version.since) > KEPT;
            while self.versions.len() >= MOST || self.versions.get(1).is_some_and(is_old) {
                self.versions.pop_front();
            }
            self.versions.push_back(Version { since: at, space, unread: Some(range) });
        }
        self.records.push(MappedAt { at, entry, replaces });
        replaces
    }

    /// Returns and removes the records because of which the maps have to be read.
    pub(crate) fn take_records(&mut self) -> Vec<MappedAt> {
        std::mem::take(&mut self.records)
    }

    /// Sets the address space that was read at a time: it is valid since the last replacement before that time. Returns
    /// whether it is the latest one.
    pub(crate) fn set(&mut self, at: Instant, space: Arc<AddressSpace>) -> bool {
        let place = self.place(at);
        self.records.retain(|record| record.replaces || record.at > at);
        self.versions[place].unread = None;
        self.versions[place].space = space;
        for next in place + 1..self.versions.len() {
            let Some(range) = self.versions[next].unread.clone() else { return false };
            self.versions[next].space = Arc::new(self.versions[next - 1].space.without(range));
        }
        place + 1 == self.versions.len()
    }
}

#[cfg(test)]
mod tests;
