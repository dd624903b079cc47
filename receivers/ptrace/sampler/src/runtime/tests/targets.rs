//! Variants of recordings: with hostile words, counted reads, unreadable parts, or changing memory.

use std::ops::Range;

use super::Recording;
use crate::runtime::TargetMemory;
use crate::runtime::target::word_at;

impl Recording {
    /// Recordings with one hostile word each: zeroed, flipped, huge, pointing to itself, far away or slightly off; with
    /// the offset of the word in its part.
    pub(in crate::runtime) fn hostile(&self) -> impl Iterator<Item = (usize, Self)> + '_ {
        let words = self.parts.iter().flat_map(|(&start, part)| {
            let places = (0..part.len().saturating_sub(7)).step_by(8);
            places.map(move |at| (at, start + at as u64, word_at(part, at)))
        });
        words.flat_map(|(at, address, word)| {
            [0, !word, u64::MAX, address, word ^ 1 << 62, word.wrapping_add(8)].map(|hostile| {
                let mut recording = self.clone();
                recording.add(address, &hostile.to_le_bytes());
                (at, recording)
            })
        })
    }
}

/// Counts reads, to check that they are bounded.
pub(in crate::runtime) struct CountingTarget<'a> {
    pub(in crate::runtime) target: &'a mut dyn TargetMemory,
    pub(in crate::runtime) reads: usize,
}

impl TargetMemory for CountingTarget<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        self.target.read(address, bytes)
    }
}

/// A recording with an unreadable part.
pub(in crate::runtime) struct Hidden<'a> {
    pub(in crate::runtime) recording: &'a mut Recording,
    pub(in crate::runtime) hidden: Range<u64>,
}

impl TargetMemory for Hidden<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let end = address.saturating_add(bytes.len() as u64);
        let is_hidden = address < self.hidden.end && self.hidden.start < end;
        !is_hidden && self.recording.read(address, bytes)
    }
}

/// Memory that changes just before one of the reads.
pub(in crate::runtime) struct Changing {
    before: Recording,
    after: Recording,
    reads: usize,
    pub(in crate::runtime) at: usize,
}

impl Changing {
    /// Calls `read` repeatedly: memory changes before its first read, then before its second one and so on, and in the
    /// last call not at all.
    pub(in crate::runtime) fn at_all_moments(before: &Recording, after: &Recording, mut read: impl FnMut(&mut Self)) {
        for at in 0.. {
            let mut changing = Self { before: before.clone(), after: after.clone(), reads: 0, at };
            read(&mut changing);
            if changing.reads < at {
                return;
            }
        }
    }
}

impl TargetMemory for Changing {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        self.reads += 1;
        if self.reads > self.at { &mut self.after } else { &mut self.before }.read(address, bytes)
    }
}
