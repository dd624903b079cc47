//! Sorts the samples of a request into batches that have dictionaries of their own.

use std::collections::HashMap;

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Cell, Processes};
use profbridge_model::arena::Transfer;
use profbridge_model::compact::{Compact, split_values};
use profbridge_model::{AttributeSetId, ByteRange, Position, Profile, Profiles, ScopeProfiles};

use super::Groups;
use crate::config::Settings;
use crate::divide::{self, Divider, PieceSink};
use crate::parts::Part;

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
    values: ByteRange,
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
    let width = settings.rules.cell_width();
    let mut divider = Divider::new(profiles.observations(), width, settings.max_observations, now.unix_nano);
    let mut buckets = Buckets { max_observations: settings.max_observations, open: HashMap::new(), all: Vec::new() };
    for (at, resource) in profiles.resources().iter().enumerate() {
        for (scope_at, scope) in resource.scopes.iter().enumerate() {
            for (profile_at, profile) in scope.profiles.iter().enumerate() {
                divider.profile(profiles, profile, |set| processes.of(at as u32, set));
                for row in profile.samples.clone() {
                    let sample = profiles.sample(row);
                    let Some(process) = processes.of(at as u32, sample.attributes) else { continue };
                    let hash = processes.get(process).identity.hash;
                    let Some(&group) = groups.index.get(&hash) else { continue };
                    let phase = groups.all[group as usize].first % width;
                    let (scope, profile_at) = (scope_at as u32, profile_at as u32);
                    let buckets = &mut buckets;
                    let mut one =
                        OfOneSample { buckets, out, group, phase, width, now, process, scope, profile_at, row };
                    let mut at = Position::default();
                    divider.sample((profiles, profile), process, &sample, &mut at, &mut one);
                }
            }
        }
    }
    buckets.all
}

/// The batches that a request is copied into.
struct Buckets {
    max_observations: u64,
    open: HashMap<(u32, Cell), usize>,
    all: Vec<Bucket>,
}

/// Where the pieces of one sample go.
struct OfOneSample<'a> {
    buckets: &'a mut Buckets,
    out: &'a mut Outbox,
    group: u32,
    phase: u64,
    width: u64,
    now: Now,
    process: u32,
    scope: u32,
    profile_at: u32,
    row: u32,
}

impl PieceSink for OfOneSample<'_> {
    fn cell(&self, time: u64) -> Cell {
        Cell::of(time, self.width, self.phase)
    }

    fn cell_of_range(&self, profile: &Profile) -> Cell {
        Cell::of_range(profile, self.width, self.phase, self.now.unix_nano)
    }

    fn synthesize(&mut self) {
        self.out.synthesize(1);
    }

    fn take(&mut self, piece: divide::Piece<'_>) -> usize {
        let divide::Piece { cell, timestamps, values, from, part, ranged, .. } = piece;
        let Self { group, process, scope, profile_at: profile, row, .. } = *self;
        let Buckets { max_observations, open, all } = &mut *self.buckets;
        let at = open.get(&(group, cell)).copied().filter(|&at| all[at].observations < *max_observations);
        let at = at.unwrap_or_else(|| {
            all.push(Bucket { group: group as usize, cell, observations: 0, pieces: Vec::new() });
            open.insert((group, cell), all.len() - 1);
            all.len() - 1
        });
        let bucket = &mut all[at];
        let room = usize::try_from(*max_observations - bucket.observations).unwrap_or(usize::MAX);
        let len = (timestamps.len() / 8).min(room);
        let values = if len < timestamps.len() / 8 { split_values(values, len).0 } else { values };
        // A part has a value of its own.
        let span = if part.is_some() {
            ByteRange::default()
        } else {
            ByteRange { start: from.1 as u32, len: values.len() as u32 }
        };
        bucket.observations += len.max(1) as u64;
        let (from, len) = (from.0 as u32, len as u32);
        bucket.pieces.push(Piece { process, scope, profile, row, from, len, values: span, part, ranged });
        len.max(1) as usize
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
