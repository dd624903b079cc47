//! Distributes values without timestamps over the time of their profile.
//!
//! Such a profile (pprof's) says how long each stack ran between its start and its end, but not when. The stacks are
//! placed one after the other from the start, each for as long as it ran: a thread's stacks on that thread, others on
//! as many synthetic threads as they fill. Eight cores that were busy for 30 s become eight threads of 30 s, not one of
//! four minutes. If a thread also has observations with timestamps, the values fill the time between them.

use hashbrown::HashMap;

use profbridge_model::{Losses, Profile, Reason};

use super::limits::MAX_SYNTHETIC_LANES;
use super::report::Notes;
use super::threads::Threads;
use super::timeline::{NUMBERS, RowObservation, Timeline, key, number, tick};

/// The values of one profile.
#[derive(Debug, Default)]
pub(super) struct Spread {
    /// Lane of the thread, stack number, and nanoseconds.
    values: Vec<(Option<usize>, u32, u64)>,
    totals: HashMap<usize, u64>,
    /// The profile's time within the window, in ticks.
    from: u64,
    to: u64,
    /// For a profile with a start but no duration: the time to the next profile, in nanoseconds.
    until_next: Option<u64>,
}

impl Spread {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.values.capacity() * size_of::<(Option<usize>, u32, u64)>() + self.totals.allocation_size()
    }

    /// Starts a profile. Its time is its own range within the window, or else the whole window. Without a duration, the
    /// range is computed from the profile's values and the next profile's start, `next`.
    pub(super) fn begin(&mut self, profile: &Profile, line: &Timeline, next: Option<u64>) {
        self.values.clear();
        self.totals.clear();
        let start = profile.time_unix_nano.clamp(line.start, line.end);
        let end = profile.time_unix_nano.saturating_add(profile.duration_nano).clamp(line.start, line.end);
        let is_within = (line.start..line.end).contains(&profile.time_unix_nano);
        let is_open = profile.duration_nano == 0 && is_within;
        self.until_next = is_open.then(|| next.map_or(u64::MAX, |next| next - profile.time_unix_nano));
        let known = profile.duration_nano > 0 && start < end;
        let (start, end) = match (known, is_open) {
            (true, _) => (start, end),
            (false, true) => (start, line.end),
            (false, false) => (line.start, line.end),
        };
        self.from = line.tick(start).unwrap_or(0);
        self.to = line.tick(end).unwrap_or(0);
    }

    /// Sets the end of a profile without a duration: late enough for each thread's values, and for values without
    /// threads at most the start of the next profile. A range that does not fit into the window begins earlier.
    fn close_range(&mut self, line: &Timeline) {
        let Some(until_next) = self.until_next.take() else { return };
        let of_threads = self.totals.values().copied().max().unwrap_or_default();
        let unnamed = self.values.iter().filter(|(lane, ..)| lane.is_none());
        let of_others = unnamed.fold(0u64, |sum, &(_, _, nanos)| sum.saturating_add(nanos)).min(until_next);
        let width = line.ticks_unclipped(of_threads.max(of_others)).max(1);
        self.from = self.from.min(self.to.saturating_sub(width));
        self.to = self.to.min(self.from.saturating_add(width));
    }

    /// Adds a value.
    pub(super) fn add(&mut self, lane: Option<usize>, stack: u32, nanos: u64) {
        self.values.push((lane, stack, nanos));
        if let Some(lane) = lane {
            let total = self.totals.entry(lane).or_default();
            *total = total.saturating_add(nanos);
        }
    }

    /// Places the values on their threads. Returns whether a value was divided because it does not fit on one thread.
    pub(super) fn place_on_threads(
        &mut self,
        line: &Timeline,
        wall: bool,
        threads: &mut Threads,
        seen: &mut Vec<RowObservation>,
        losses: &mut Losses,
        notes: &mut Notes,
    ) -> bool {
        self.close_range(line);
        let mut divided = false;
        let mut synthetic = 0;
        for &(lane, stack, nanos) in &self.values {
            let before = seen.len();
            let left = match lane {
                Some(lane) => {
                    let total = self.totals.get(&lane).copied().unwrap_or(nanos);
                    let fitting = self.fitting(line, nanos, total);
                    notes.clip(nanos - fitting);
                    let left = line.ticks_unclipped(fitting);
                    self.fill(left, stack, wall, &mut threads.lanes_mut()[lane], seen)
                }
                None => self.fill_synthetic(line.ticks_unclipped(nanos), stack, wall, &mut synthetic, threads, seen),
            };
            notes.clip(line.nanos(left));
            match seen.get_mut(before..) {
                Some([_, pieces @ ..]) => {
                    divided |= !pieces.is_empty();
                    pieces.iter_mut().for_each(|piece| piece.piece = true);
                }
                _ => losses.add_observations(Reason::LimitExceeded, 1),
            }
        }
        divided
    }

    /// The part of a value for which its thread has time, in nanoseconds: if the sum is longer than the profile, all
    /// values shrink in proportion.
    fn fitting(&self, line: &Timeline, nanos: u64, total: u64) -> u64 {
        let room = line.nanos(self.to - self.from);
        if total > room { (u128::from(nanos) * u128::from(room) / u128::from(total)) as u64 } else { nanos }
    }

    fn fill_synthetic(
        &self,
        mut left: u64,
        stack: u32,
        wall: bool,
        number: &mut usize,
        threads: &mut Threads,
        seen: &mut Vec<RowObservation>,
    ) -> u64 {
        loop {
            let index = threads.synthetic(*number);
            left = self.fill(left, stack, wall, &mut threads.lanes_mut()[index], seen);
            if left == 0 || *number + 1 >= MAX_SYNTHETIC_LANES {
                return left;
            }
            *number += 1;
        }
    }

    /// Places a value after the earlier ones on a thread, between its observations with timestamps. Returns the rest
    /// that did not fit.
    fn fill(
        &self,
        mut left: u64,
        stack: u32,
        wall: bool,
        lane: &mut super::threads::Lane,
        seen: &mut Vec<RowObservation>,
    ) -> u64 {
        let before = seen.len();
        loop {
            let at = lane.laid.max(self.from);
            let timed = &lane.keys[..lane.timed];
            let next = timed.partition_point(|&key| tick(key) <= at);
            let busy = next.checked_sub(1).map_or(0, |last| tick(timed[last]) + seen[number(timed[last])].weight);
            if busy > at {
                lane.laid = busy;
                continue;
            }
            let until = timed.get(next).map_or(self.to, |&key| tick(key).min(self.to));
            let weight = left.min(until.saturating_sub(at));
            // A value shorter than a tick still counts as an observation.
            let instant = left == 0 && at <= self.to && seen.len() == before;
            if (weight == 0 && !instant) || seen.len() + 1 >= NUMBERS {
                return left;
            }
            lane.keys.push(key(at, seen.len() as u32));
            seen.push(RowObservation { stack, weight, wall, exact: true, piece: false });
            lane.laid = at + weight;
            left -= weight;
        }
    }
}
