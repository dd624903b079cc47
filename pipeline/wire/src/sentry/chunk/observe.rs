//! The observations of one window, by thread and in order of time.
//!
//! The chosen profiles are read once. The data that all observations of a row share (stack, weight) is stored once per
//! row and referenced by number, so that an observation takes eight bytes.

use profbridge_model::{Dictionary, Losses, Meaning, Profile, Profiles, Reason, Sample, StackId, varint};

use super::overlap;
use super::report::Notes;
use super::select::Chosen;
use super::spread::Spread;
use super::stamped::Stamped;
use super::threads::Threads;
use super::timeline::{NUMBERS, RowObservation, Timeline, key, number};

/// The observations of one window. Memory is reused between windows.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) line: Timeline,
    pub(super) threads: Threads,
    /// The data of observations. Keys refer to it by number.
    pub(super) seen: Vec<RowObservation>,
    /// The distinct stacks with frames, in order of first use.
    pub(super) stacks: Vec<StackId>,
    by_stack: Stamped,
    /// Whether any observation was divided into pieces.
    has_pieces: bool,
    /// Keys of observations without a thread.
    without_thread: Vec<u64>,
    spread: Spread,
}

/// Marks a stack without frames.
const NO_FRAMES: u32 = u32::MAX;

impl Window {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.seen.capacity() * size_of::<RowObservation>()
            + self.stacks.capacity() * size_of::<StackId>()
            + self.without_thread.capacity() * size_of::<u64>()
            + self.by_stack.heap_bytes()
            + self.threads.heap_bytes()
            + self.spread.heap_bytes()
    }

    fn begin(&mut self, dictionary: &Dictionary, line: Timeline, kept: bool) {
        self.line = line;
        self.threads.begin(dictionary, kept);
        self.by_stack.begin(dictionary.tables().stacks.len());
        self.seen.clear();
        self.stacks.clear();
        self.without_thread.clear();
        self.has_pieces = false;
    }

    /// Reads the samples of a preserved chunk. In the keys stacks are numbered from 1 on; 0 means no frames. `None` if
    /// a sample has no thread.
    pub(super) fn read_kept(&mut self, batch: &Profiles, profile: &Profile, line: Timeline) -> Option<()> {
        let dictionary = batch.dictionary();
        self.begin(dictionary, line, true);
        for sample in batch.samples(profile) {
            let lane = self.threads.find(dictionary, sample.attributes, None)?;
            let number = self.stack_number(dictionary, sample.stack).map_or(0, |stack| stack + 1);
            let keys = &mut self.threads.lanes_mut()[lane].keys;
            keys.extend(sample.timestamps().filter_map(|time| Some(key(line.tick(time)?, number))));
        }
        self.sort();
        Some(())
    }

    /// Reads the chosen profiles.
    pub(super) fn read(
        &mut self,
        batch: &Profiles,
        line: Timeline,
        chosen: &[Chosen<'_>],
        losses: &mut Losses,
        notes: &mut Notes,
    ) {
        self.begin(batch.dictionary(), line, false);
        for Chosen { profile, meaning } in chosen {
            self.read_timed(batch, profile, *meaning, losses, notes);
        }
        self.sort();
        // A profile without a duration ends at the start of the next one, so profiles are read in the order of their
        // starts.
        let mut in_order: Vec<&Chosen<'_>> = chosen.iter().collect();
        in_order.sort_by_key(|chosen| chosen.profile.time_unix_nano);
        for (at, Chosen { profile, meaning }) in in_order.iter().enumerate() {
            let mut later = in_order[at + 1..].iter().map(|chosen| chosen.profile.time_unix_nano);
            let is_open = profile.duration_nano == 0;
            let next = is_open.then(|| later.find(|&start| start > profile.time_unix_nano)).flatten();
            self.read_untimed(batch, (profile, next), *meaning, losses, notes);
        }
        self.sort();
        if !self.without_thread.is_empty() {
            self.without_thread.sort_unstable();
            overlap::place_on_threads(&self.without_thread, &self.seen, &mut self.threads);
        }
        self.threads.finish();
    }

    fn sort(&mut self) {
        for lane in self.threads.lanes_mut() {
            lane.keys.sort_unstable();
            lane.timed = lane.keys.len();
        }
    }

    /// The number of observations for these keys.
    pub(super) fn observations(&self, keys: &[u64]) -> u64 {
        let pieces = match self.has_pieces {
            true => keys.iter().filter(|&&key| self.seen[number(key)].piece).count(),
            false => 0,
        };
        (keys.len() - pieces) as u64
    }

    /// The number of a sample's stack, and its thread; `None` if the sample cannot be shown, which is counted.
    fn place(
        &mut self,
        dictionary: &Dictionary,
        profile: &Profile,
        sample: &Sample<'_>,
        losses: &mut Losses,
    ) -> Option<(u32, Option<usize>)> {
        let Some(stack) = self.stack_number(dictionary, sample.stack) else {
            losses.add_observations(Reason::NoFrames, sample.observations());
            return None;
        };
        if self.seen.len() + sample.observations() as usize >= NUMBERS {
            losses.add_observations(Reason::LimitExceeded, sample.observations());
            return None;
        }
        Some((stack, self.threads.find(dictionary, sample.attributes, profile.attributes)))
    }

    fn read_timed(
        &mut self,
        batch: &Profiles,
        profile: &Profile,
        meaning: Meaning,
        losses: &mut Losses,
        notes: &mut Notes,
    ) {
        for sample in batch.samples(profile).filter(|sample| !sample.timestamps_bytes().is_empty()) {
            let Some((stack, lane)) = self.place(batch.dictionary(), profile, &sample, losses) else { continue };
            let outside = self.read_timestamps(&sample, stack, lane, meaning, notes);
            losses.add_observations(Reason::Malformed, outside);
        }
    }

    /// Reads the samples without timestamps, after those with timestamps, because they fill the remaining time.
    fn read_untimed(
        &mut self,
        batch: &Profiles,
        (profile, next): (&Profile, Option<u64>),
        meaning: Meaning,
        losses: &mut Losses,
        notes: &mut Notes,
    ) {
        self.spread.begin(profile, &self.line, next);
        for sample in batch.samples(profile).filter(|sample| sample.timestamps_bytes().is_empty()) {
            let Some((stack, lane)) = self.place(batch.dictionary(), profile, &sample, losses) else { continue };
            // Without timestamps, the values of a row are parts of one observation.
            let nanos = sample.values().fold(0u64, |sum, value| sum.saturating_add(time(value, meaning)));
            if nanos == 0 {
                // A value of zero represents no time.
                losses.add_observations(Reason::NoTimeUnit, 1);
            } else {
                self.spread.add(lane, stack, nanos);
            }
        }
        self.has_pieces |=
            self.spread.place_on_threads(&self.line, meaning.wall, &mut self.threads, &mut self.seen, losses, notes);
    }

    /// Reads the timestamps of a row. Returns the number outside of the window.
    fn read_timestamps(
        &mut self,
        sample: &Sample<'_>,
        stack: u32,
        lane: Option<usize>,
        meaning: Meaning,
        notes: &mut Notes,
    ) -> u64 {
        let line = self.line;
        let keys = match lane {
            Some(lane) => &mut self.threads.lanes_mut()[lane].keys,
            None => &mut self.without_thread,
        };
        let (times, _) = sample.timestamps_bytes().as_chunks::<8>();
        let times = times.iter().map(|time| u64::from_le_bytes(*time));
        let mut outside = 0;
        if sample.values_bytes().is_empty() && !meaning.ends_at_timestamp {
            let number = self.seen.len() as u32;
            self.seen.push(RowObservation {
                stack,
                weight: line.ticks(meaning.unit_nanos),
                wall: meaning.wall,
                exact: false,
                piece: false,
            });
            let mut inside = 0;
            for time in times {
                match line.tick(time) {
                    Some(tick) => {
                        keys.push(key(tick, number));
                        inside += 1;
                    }
                    None => outside += 1,
                }
            }
            notes.clip(line.beyond(meaning.unit_nanos).saturating_mul(inside));
            return outside;
        }
        let values = sample.values().map(Some).chain(std::iter::repeat(None));
        for (at, value) in times.zip(values) {
            let nanos = value.map_or(meaning.unit_nanos, |value| time(value, meaning));
            let Some(mut tick) = line.tick(at) else {
                outside += 1;
                continue;
            };
            let mut weight = line.ticks(nanos);
            notes.clip(line.beyond(nanos));
            if meaning.ends_at_timestamp {
                // The part before the window is not shown.
                notes.clip(line.nanos(weight.saturating_sub(tick)));
                weight = weight.min(tick);
                tick -= weight;
            }
            keys.push(key(tick, self.seen.len() as u32));
            let exact = value.is_some() && meaning.timed_values && nanos != meaning.period_nanos;
            self.seen.push(RowObservation { stack, weight, wall: meaning.wall, exact, piece: false });
        }
        outside
    }

    /// The number of a stack in this window; `None` if it has no frames, since Sentry treats such a sample as idle
    /// time.
    #[inline]
    fn stack_number(&mut self, dictionary: &Dictionary, stack: Option<StackId>) -> Option<u32> {
        let stack = stack?;
        if let Some(number) = self.by_stack.get(stack.index()) {
            return (number != NO_FRAMES).then_some(number);
        }
        // Index 0 means "not set" and is not a frame.
        let has_frames = varint::Packed::new(dictionary.stack_bytes(Some(stack))).any(|location| location != 0);
        let number = if has_frames { self.stacks.len() as u32 } else { NO_FRAMES };
        self.by_stack.set(stack.index(), number);
        if has_frames {
            self.stacks.push(stack);
        }
        has_frames.then_some(number)
    }
}

/// The time that a value represents, in nanoseconds. Negative values count as 0.
fn time(value: i64, meaning: Meaning) -> u64 {
    u64::try_from(value).unwrap_or(0).saturating_mul(meaning.unit_nanos)
}
