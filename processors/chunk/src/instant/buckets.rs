//! Sorts the samples of a request into batches that have dictionaries of their own.

use std::collections::HashMap;

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Cell, Identity, Processes, leading, timestamp};
use profbridge_model::arena::Transfer;
use profbridge_model::compact::{Compact, split_values};
use profbridge_model::{AttributeSetId, Profile, Profiles, ScopeProfiles, Span};

use super::Groups;
use crate::config::Settings;
use crate::parts::{self, Part, Parts, Ranged, Timed};

/// Some timestamps of a sample, or, with a length of 0, a sample that has none.
#[derive(Debug, Clone, Copy)]
struct Piece {
    process: u32,
    scope: u32,
    profile: u32,
    row: u32,
    from: u32,
    len: u32,
    /// Its values, in the bytes of the sample's values.
    values: Span,
    /// The part of an observation that it is instead, where that is divided.
    part: Option<Part>,
    /// Whether its profile is longer than a window, so that the batch's profile is as long as its cell.
    ranged: bool,
}

impl Piece {
    fn is_timed(&self) -> bool {
        self.len > 0
    }

    /// The profile that it becomes part of: samples with timestamps and without are told apart, because the range of
    /// the profile says something else about either.
    fn of_profile(&self) -> (u32, bool) {
        (self.profile, self.is_timed())
    }
}

/// One batch in the making.
pub(super) struct Bucket {
    pub(super) group: usize,
    pub(super) cell: Cell,
    pub(super) observations: u64,
    pieces: Vec<Piece>,
}

impl Bucket {
    /// What it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.pieces.capacity() * size_of::<Piece>()
    }
}

/// Sorts the samples of a request by process, stretch of time and size.
pub(super) fn sort_out(
    settings: &Settings,
    profiles: &Profiles,
    processes: &mut Processes,
    groups: &Groups,
    now: Now,
    out: &mut Outbox,
) -> Vec<Bucket> {
    let parts = parts::allowance(profiles.observations());
    let mut buckets = Buckets { groups, settings, open: HashMap::new(), all: Vec::new(), parts, synthesized: 0 };
    for (at, resource) in profiles.resources().iter().enumerate() {
        for (scope_at, scope) in resource.scopes.iter().enumerate() {
            for (profile_at, profile) in scope.profiles.iter().enumerate() {
                let process = |set| processes.of(at as u32, set);
                let mut long = Long {
                    timed: Timed::of(profiles, profile),
                    ranged: Ranged::of(profiles, profile, settings.rules.cell_width(), now.unix_nano, process),
                };
                for row in profile.samples.clone() {
                    let Some(process) = processes.of(at as u32, profiles.sample(row).attributes) else { continue };
                    let (scope, profile_at) = (scope_at as u32, profile_at as u32);
                    let (from, len, values, part, ranged) = (0, 0, Span::default(), None, false);
                    let piece = Piece { process, scope, profile: profile_at, row, from, len, values, part, ranged };
                    let identity = processes.get(process).identity;
                    buckets.put(profiles, profile, (identity, &mut long), piece, now);
                }
            }
        }
    }
    out.synthesize(buckets.synthesized);
    buckets.all
}

/// The batches that a request is copied into.
struct Buckets<'a> {
    groups: &'a Groups,
    settings: &'a Settings,
    open: HashMap<(u32, Cell), usize>,
    all: Vec<Bucket>,
    /// How many parts observations may still be divided into, beyond the first of each, and how many there are.
    parts: u64,
    synthesized: u64,
}

/// What is known of a profile whose observations may be longer than a window.
struct Long {
    timed: Option<Timed>,
    ranged: Option<Ranged>,
}

impl Buckets<'_> {
    /// Puts a sample into the batches of its timestamps.
    fn put(
        &mut self,
        profiles: &Profiles,
        profile: &Profile,
        (identity, long): (Identity, &mut Long),
        piece: Piece,
        now: Now,
    ) {
        let Some(&group) = self.groups.index.get(&identity.hash) else { return };
        let width = self.settings.rules.cell_width();
        let phase = self.groups.all[group as usize].first % width;
        let sample = profiles.sample(piece.row);
        let (times, _) = sample.timestamps_bytes().as_chunks::<8>();
        let all = sample.values_bytes();
        if times.is_empty() {
            let piece = Piece { values: Span { start: 0, len: all.len() as u32 }, ..piece };
            let Some(ranged) = &mut long.ranged else {
                let cell = Cell::of_range(profile, width, phase, now.unix_nano);
                return self.put_piece(group, cell, piece, 1);
            };
            let parts = ranged.parts(profiles, piece.process, &sample, &mut self.parts);
            self.synthesized += parts.len() as u64 - 1;
            for &part in parts {
                let own = (parts.len() > 1).then_some(part);
                self.put_piece(group, part.cell, Piece { part: own, ranged: true, ..piece }, 1);
            }
            return;
        }
        let (mut from, mut rest) = (0, all);
        while let Some(&time) = times.get(from) {
            let cell = Cell::of(timestamp(time), width, phase);
            let mut left = leading(&times[from..], cell);
            while left > 0 {
                let mut room = self.room(group, cell).min(left as u64) as usize;
                let (mut mine, mut later) = split_values(rest, room);
                let timed = long.timed.filter(|_| !mine.is_empty() && self.parts > 0);
                let found = timed.and_then(|timed| timed.find(&times[from..][..room], mine, cell, width));
                if let Some((0, parts)) = found {
                    self.put_parts(group, parts, piece);
                    (from, left, rest) = (from + 1, left - 1, split_values(rest, 1).1);
                    continue;
                }
                if let Some((before, _)) = found {
                    room = before;
                    (mine, later) = split_values(rest, room);
                }
                let values = Span { start: (all.len() - rest.len()) as u32, len: mine.len() as u32 };
                let piece = Piece { from: from as u32, len: room as u32, values, ..piece };
                self.put_piece(group, cell, piece, room as u64);
                (from, left, rest) = (from + room, left - room, later);
            }
        }
    }

    /// Puts an observation that is longer than its cell into the batches of its parts.
    fn put_parts(&mut self, group: u32, parts: Parts, piece: Piece) {
        for (number, part) in parts.enumerate() {
            let more = u64::from(number > 0);
            self.synthesized += more;
            self.parts = self.parts.saturating_sub(more);
            self.put_piece(group, part.cell, Piece { len: 1, part: Some(part), ..piece }, 1);
        }
    }

    /// How many observations the open batch of a cell still takes: one at least.
    fn room(&self, group: u32, cell: Cell) -> u64 {
        let used = self.open.get(&(group, cell)).map_or(0, |&at| self.all[at].observations);
        if used >= self.settings.max_observations {
            self.settings.max_observations
        } else {
            self.settings.max_observations - used
        }
    }

    fn put_piece(&mut self, group: u32, cell: Cell, piece: Piece, observations: u64) {
        let at = self.open.get(&(group, cell)).copied();
        let at = at.filter(|&at| self.all[at].observations < self.settings.max_observations).unwrap_or_else(|| {
            self.all.push(Bucket { group: group as usize, cell, observations: 0, pieces: Vec::new() });
            self.open.insert((group, cell), self.all.len() - 1);
            self.all.len() - 1
        });
        let bucket = &mut self.all[at];
        bucket.observations += observations;
        bucket.pieces.push(piece);
    }
}

/// Makes the batch of a bucket, with a dictionary of its own.
pub(super) fn copy_of(
    profiles: &Profiles,
    processes: &Processes,
    bucket: &Bucket,
    transfer: &mut Transfer,
) -> Result<Profiles, profbridge_model::dictionary::Invalid> {
    let mut compact = Compact::new(profiles, transfer);
    let mut kept: HashMap<Option<AttributeSetId>, Option<AttributeSetId>> = HashMap::new();
    // Samples of one resource may belong to several processes in turn; each gets its resource once.
    let mut pieces: Vec<&Piece> = bucket.pieces.iter().collect();
    pieces.sort_by_key(|piece| (piece.process, piece.scope, piece.of_profile()));
    let mut before: Option<&Piece> = None;
    for piece in pieces {
        let process = processes.get(piece.process);
        let resource = &profiles.resources()[process.resource as usize];
        let scope: &ScopeProfiles = &resource.scopes[piece.scope as usize];
        let same_process = before.is_some_and(|before| before.process == piece.process);
        let same_scope = same_process && before.is_some_and(|before| before.scope == piece.scope);
        if !same_process {
            compact.resource_with(resource, processes.merged(process).into_iter());
        }
        if !same_scope {
            compact.scope(scope);
        }
        if !same_scope || before.is_some_and(|before| before.of_profile() != piece.of_profile()) {
            let profile = &scope.profiles[piece.profile as usize];
            compact.profile(&in_cell(profile, piece, bucket.cell));
        }
        before = Some(piece);
        let sample = profiles.sample(piece.row);
        let mut timestamps = &sample.timestamps_bytes()[piece.from as usize * 8..][..piece.len as usize * 8];
        let mut values = &sample.values_bytes()[piece.values.start as usize..][..piece.values.len as usize];
        let own = piece.part.map(|part| (part.time.to_le_bytes(), part.packed()));
        if let Some((time, value)) = &own {
            timestamps = &time[..timestamps.len()];
            values = value;
        }
        if process.moved == 0 {
            compact.some_of(&sample, timestamps, values);
            continue;
        }
        let attributes =
            *kept.entry(sample.attributes).or_insert_with(|| compact.attribute_set(processes.stays(sample.attributes)));
        compact.some_of_with(&sample, attributes, timestamps, values);
    }
    compact.finish()
}

/// The profile with the part of its range that lies in a cell, where its samples have timestamps or it is longer than a
/// window.
fn in_cell(profile: &Profile, piece: &Piece, cell: Cell) -> Profile {
    let mut profile = profile.clone();
    let range = if piece.ranged { cell.start..cell.end } else { cell.clip(&profile) };
    if (piece.is_timed() || piece.ranged) && !range.is_empty() {
        profile.time_unix_nano = range.start;
        profile.duration_nano = range.end - range.start;
    }
    profile
}
