//! Divides samples among the cells of their process, and splits observations longer than a cell.

use profbridge_identity::{Cell, leading, timestamp};
use profbridge_model::compact::split_values;
use profbridge_model::sample_log::SampleLayout;
use profbridge_model::{AttributeSetId, Position, Profile, Profiles, Sample};

use crate::parts::{self, Ranged, TimePart, Timed};

/// The part of a sample that lies in one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece<'a> {
    pub(crate) cell: Cell,
    pub(crate) shape: SampleLayout,
    /// The timestamps, eight little-endian bytes each. Empty if the sample has none.
    pub(crate) timestamps: &'a [u8],
    /// The values as packed varints, one per timestamp or none; without timestamps, all values of the sample.
    pub(crate) values: &'a [u8],
    /// Whether the piece continues an observation of another cell.
    pub(crate) continued: bool,
}

/// Receives the pieces of samples.
pub(crate) trait PieceSink {
    /// Whether the divider should pause now.
    fn is_enough(&self) -> bool;

    fn cell(&self, time: u64) -> Cell;

    /// The cell of samples without timestamps.
    fn cell_of_range(&self, profile: &Profile) -> Cell;

    /// Counts an added observation: a further part of an observation that was split.
    fn synthesize(&mut self);

    /// Accepts a piece, or only its first observations. Returns how many observations were accepted: at least one.
    fn take(&mut self, piece: Piece<'_>) -> usize;
}

/// Divides the samples of a request.
#[derive(Debug)]
pub(crate) struct Divider {
    width: u64,
    /// The maximum number of observations that are divided together.
    most: usize,
    /// The time for samples without one, in nanoseconds since the Unix epoch.
    unknown: u64,
    /// The number of parts that splitting may still add.
    parts: u64,
    /// How the values of the current profile measure time, and their positions if the profile is longer than a window.
    timed: Option<Timed>,
    ranged: Option<Ranged>,
}

impl Divider {
    /// Creates a divider for a request with this many observations. `width` is the length of a cell.
    pub(crate) fn new(observations: u64, width: u64, max_observations: u64, unknown: u64) -> Self {
        let most = usize::try_from(max_observations).unwrap_or(usize::MAX);
        Self { width, most, unknown, parts: parts::allowance(observations), timed: None, ranged: None }
    }

    /// Begins a profile. `process` returns the number of a sample's process, given the sample's attributes.
    pub(crate) fn profile(
        &mut self,
        profiles: &Profiles,
        profile: &Profile,
        process: impl FnMut(Option<AttributeSetId>) -> Option<u32>,
    ) {
        self.timed = Timed::of(profiles, profile);
        self.ranged = Ranged::of(profiles, profile, self.width, self.unknown, process);
    }

    /// Whether the current profile is longer than a window. Then processes are stored by number.
    pub(crate) fn is_ranged(&self) -> bool {
        self.ranged.is_some()
    }

    pub(crate) fn end_profile(&mut self) {
        self.ranged = None;
    }

    /// Divides the rest of a sample, starting at `at`, which is updated if the divider pauses. Returns whether the
    /// sample is finished.
    pub(crate) fn sample(
        &mut self,
        (profiles, profile): (&Profiles, &Profile),
        process: u32,
        sample: &Sample<'_>,
        at: &mut Position,
        sink: &mut impl PieceSink,
    ) -> bool {
        let (all, all_values) = (sample.timestamps_bytes(), sample.values_bytes());
        let shape = SampleLayout::of(profile, all, all_values);
        let whole = |cell| Piece { cell, shape, timestamps: all, values: all_values, continued: false };
        let (times, _) = all.as_chunks::<8>();
        if times.is_empty() {
            match &mut self.ranged {
                Some(ranged) => {
                    let parts = ranged.parts(profiles, process, sample, &mut self.parts);
                    ranges(profile, parts, &whole(Cell::FIRST), sink);
                }
                None => {
                    sink.take(whole(sink.cell_of_range(profile)));
                }
            }
            return true;
        }
        let (mut from, mut values) = (at.timestamps, &all_values[at.values..]);
        let mut known: Option<Cell> = None;
        while let Some(&first) = times.get(from) {
            if sink.is_enough() {
                (at.timestamps, at.values) = (from, all_values.len() - values.len());
                return false;
            }
            let first = timestamp(first);
            let cell = known.filter(|cell| cell.contains(first)).unwrap_or_else(|| sink.cell(first));
            known = Some(cell);
            let mut len = leading(&times[from..], cell).min(self.most);
            let mut mine = if values.is_empty() { values } else { split_values(values, len).0 };
            let timed = self.timed.filter(|_| !mine.is_empty() && self.parts > 0);
            let long = timed.and_then(|timed| timed.find(&times[from..][..len], mine, cell, self.width));
            if let Some((0, parts)) = long {
                for (number, part) in parts.enumerate() {
                    if number > 0 {
                        self.parts = self.parts.saturating_sub(1);
                        sink.synthesize();
                    }
                    let (time, own) = (part.time.to_le_bytes(), part.packed());
                    let continued = number > 0;
                    sink.take(Piece { cell: part.cell, shape, timestamps: &time, values: &own, continued });
                }
                (from, values) = (from + 1, split_values(values, 1).1);
                continue;
            }
            if let Some((before, _)) = long {
                len = before;
                mine = split_values(values, len).0;
            }
            let timestamps = &all[from * 8..(from + len) * 8];
            let taken = sink.take(Piece { timestamps, values: mine, ..whole(cell) });
            let done = if taken < len && !mine.is_empty() { split_values(mine, taken).0.len() } else { mine.len() };
            (from, values) = (from + taken, &values[done..]);
        }
        true
    }
}

/// Passes on the parts of a sample without timestamps, of a profile longer than a window.
fn ranges(profile: &Profile, parts: &[TimePart], whole: &Piece<'_>, sink: &mut impl PieceSink) {
    for (number, &part) in parts.iter().enumerate() {
        if number > 0 {
            sink.synthesize();
        }
        let Cell { start, end } = part.cell;
        let (time_unix_nano, duration_nano, profile_id) = (start, end - start, profile.profile_id);
        let shape = SampleLayout::Values { time_unix_nano, duration_nano, profile_id };
        let piece = Piece { cell: part.cell, shape, ..*whole };
        if parts.len() > 1 {
            sink.take(Piece { values: &part.packed(), ..piece });
        } else {
            sink.take(piece);
        }
    }
}
