//! Cuts a request at once: `window: 0s`.
//!
//! The usual request holds one process and less than a minute. It goes on as it came, with its own dictionary, and costs
//! a look at each timestamp. A few processes whose samples carry nothing that is moved share the dictionary as well.
//! Everything else is copied into batches with dictionaries of their own, which costs what each of them refers to.

use std::collections::{HashMap, VecDeque};

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::arena::Transfer;
use profbridge_model::compact::{Compact, split_values};
use profbridge_model::{AttributeSetId, ProcessWindow, Profile, Profiles, Reason, Sample, ScopeProfiles, Span};

use crate::budget::Budget;
use crate::cell::{Cell, leading, timestamp};
use crate::config::Settings;
use crate::identity::{Identity, RequestId};
use crate::parts::{self, Part, Parts, Ranged, Timed};
use crate::skew::Skew;
use crate::targets::Targets;

/// So many processes may share a dictionary. Whoever turns a batch into something else may look at all of its
/// dictionary, so more would make the work grow with the square of the processes.
const SHARED: usize = 32;

/// A process of the request, and where in time it lies.
#[derive(Debug, Clone, Copy)]
struct Group {
    identity: Identity,
    first: u64,
    last: u64,
    observations: u64,
}

/// Some timestamps of a sample, or, with a length of 0, a sample that has none.
#[derive(Debug, Clone, Copy)]
struct Piece {
    target: u32,
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
struct Bucket {
    group: usize,
    cell: Cell,
    observations: u64,
    pieces: Vec<Piece>,
}

/// Cuts requests at once.
pub(crate) struct Instant {
    settings: Settings,
    /// How many requests there were.
    requests: u64,
    transfer: Transfer,
    budget: Budget,
    /// The request that is being cut.
    cutting: Option<Box<Cutting>>,
}

/// A request that is being cut: a batch in each call.
struct Cutting {
    profiles: Profiles,
    targets: Targets,
    groups: Vec<Group>,
    way: Way,
    /// Observations that are neither put out nor lost.
    left: u64,
}

/// How the batches of a request are made.
enum Way {
    /// They share the dictionary. The process of each resource, and the next process.
    Share(Vec<Option<u32>>, usize),
    /// Each gets its own.
    Copy(VecDeque<Bucket>),
}

impl Cutting {
    /// What it takes besides the request itself, in bytes.
    fn bytes(&self) -> u64 {
        let way = match &self.way {
            Way::Share(of_resource, _) => of_resource.capacity() * size_of::<Option<u32>>(),
            Way::Copy(buckets) => {
                let pieces = buckets.iter().map(|bucket| bucket.pieces.capacity()).sum::<usize>();
                buckets.capacity() * size_of::<Bucket>() + pieces * size_of::<Piece>()
            }
        };
        (size_of::<Self>() + self.targets.bytes() + self.groups.capacity() * size_of::<Group>() + way) as u64
    }
}

impl Instant {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, requests: 0, transfer: Transfer::default(), budget: Budget::default(), cutting: None }
    }

    /// Makes the bounds small enough for so much memory.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
    }

    pub(crate) fn is_cutting(&self) -> bool {
        self.cutting.is_some()
    }

    /// What is not put out yet.
    pub(crate) fn observations(&self) -> u64 {
        self.cutting.as_ref().map_or(0, |cutting| cutting.left)
    }

    /// What is kept, besides the request itself, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.transfer.bytes() as u64 + self.cutting.as_ref().map_or(0, |cutting| cutting.bytes())
    }

    /// Cuts a request, and puts out the first batch.
    pub(crate) fn cut(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let settings = self.settings.clone();
        self.requests += 1;
        self.budget.earn(profiles.size_bytes());
        let id = RequestId { arrival: now.unix_nano, number: self.requests };
        let mut targets = Targets::new(&profiles, &settings.identity, id);
        let mut groups = Groups::default();
        // The process of each resource, as long as no resource has samples of two.
        let mut of_resource = vec![None; profiles.resources().len()];
        for (at, resource) in profiles.resources().iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                let width = settings.window;
                let refused =
                    groups.look_at(&profiles, &mut targets, at as u32, profile, (width, now), &mut of_resource[at]);
                out.drop(Reason::LimitExceeded, refused);
            }
        }
        groups.note(now, &profiles, out);
        let fits = |group: &Group| {
            group.last - group.first < settings.window && group.observations <= settings.max_observations
        };
        let (way, left) = if !targets.any_moves() && groups.all.len() <= SHARED && groups.all.iter().all(fits) {
            (Way::Share(of_resource, 0), groups.all.iter().map(|group| group.observations).sum())
        } else {
            let buckets = self.sort_out(&profiles, &mut targets, &groups, now, out);
            let left = buckets.iter().map(|bucket| bucket.observations).sum();
            (Way::Copy(buckets.into()), left)
        };
        self.cutting = Some(Box::new(Cutting { profiles, targets, groups: groups.all, way, left }));
        self.go_on(out);
    }

    /// Puts out the next batch of the request that is being cut.
    pub(crate) fn go_on(&mut self, out: &mut Outbox) {
        let Some(mut cutting) = self.cutting.take() else { return };
        let more = match &cutting.way {
            Way::Share(..) => self.share(&mut cutting, out),
            Way::Copy(..) => self.copy(&mut cutting, out),
        };
        if more {
            self.cutting = Some(cutting);
        } else if self.transfer.bytes() > 1 << 20 {
            self.transfer = Transfer::default();
        }
    }

    fn window(&self, identity: Identity, cell: Cell) -> ProcessWindow {
        ProcessWindow {
            profiler_id: identity.profiler_id(self.settings.session_of(cell.start)),
            strength: identity.strength,
            start_unix_nano: cell.start,
            end_unix_nano: cell.end,
        }
    }

    fn cell(&self, group: &Group) -> Cell {
        Cell { start: group.first, end: group.first.saturating_add(self.settings.window) }
    }

    /// Sends a batch for the next process; all share the dictionary and the samples. Returns whether there is another.
    fn share(&self, cutting: &mut Cutting, out: &mut Outbox) -> bool {
        let Way::Share(of_resource, next) = &mut cutting.way else { return false };
        let at = std::mem::replace(next, *next + 1);
        let (profiles, groups) = (&cutting.profiles, &cutting.groups);
        let Some(group) = groups.get(at) else { return false };
        let window = Some(self.window(group.identity, self.cell(group)));
        cutting.left -= group.observations;
        if groups.len() == 1 {
            let mut batch = profiles.clone();
            batch.window = window;
            out.send(batch);
            return false;
        }
        let mine = |(resource, group): (_, &Option<u32>)| (*group == Some(at as u32)).then_some(resource);
        let resources = profiles.resources().iter().zip(&*of_resource).filter_map(mine).cloned().collect();
        match profiles.with_resources(resources) {
            Ok(mut batch) => {
                batch.window = window;
                out.send(batch);
            }
            // These are resources of the batch itself: it does not happen.
            Err(_) => out.drop(Reason::Malformed, group.observations),
        }
        at + 1 < groups.len()
    }

    /// Sorts the samples of a request by process, stretch of time and size.
    fn sort_out(
        &self,
        profiles: &Profiles,
        targets: &mut Targets,
        groups: &Groups,
        now: Now,
        out: &mut Outbox,
    ) -> Vec<Bucket> {
        let parts = parts::allowance(profiles.observations());
        let mut buckets =
            Buckets { groups, settings: &self.settings, open: HashMap::new(), all: Vec::new(), parts, synthesized: 0 };
        for (at, resource) in profiles.resources().iter().enumerate() {
            for (scope_at, scope) in resource.scopes.iter().enumerate() {
                for (profile_at, profile) in scope.profiles.iter().enumerate() {
                    let process = |set| targets.of(at as u32, set);
                    let mut long = Long {
                        timed: Timed::of(profiles, profile),
                        ranged: Ranged::of(profiles, profile, self.settings.window, now.unix_nano, process),
                    };
                    for row in profile.samples.clone() {
                        let Some(target) = targets.of(at as u32, profiles.sample(row).attributes) else { continue };
                        let (scope, profile_at) = (scope_at as u32, profile_at as u32);
                        let (from, len, values, part, ranged) = (0, 0, Span::default(), None, false);
                        let piece = Piece { target, scope, profile: profile_at, row, from, len, values, part, ranged };
                        let identity = targets.get(target).identity;
                        buckets.put(profiles, profile, (identity, &mut long), piece, now);
                    }
                }
            }
        }
        out.synthesized += buckets.synthesized;
        buckets.all
    }

    /// Sends the next batch with its own dictionary. Returns whether there is another.
    fn copy(&mut self, cutting: &mut Cutting, out: &mut Outbox) -> bool {
        let Way::Copy(buckets) = &mut cutting.way else { return false };
        while let Some(bucket) = buckets.pop_front() {
            cutting.left -= bucket.observations;
            if self.budget.is_used_up() {
                out.drop(Reason::LimitExceeded, bucket.observations);
                continue;
            }
            match copy_of(&cutting.profiles, &cutting.targets, &bucket, &mut self.transfer) {
                Ok(mut batch) => {
                    self.budget.charge(batch.size_bytes(), bucket.observations);
                    batch.window = Some(self.window(cutting.groups[bucket.group].identity, bucket.cell));
                    out.send(batch);
                    break;
                }
                Err(_) => out.drop(Reason::LimitExceeded, bucket.observations),
            }
        }
        !buckets.is_empty()
    }
}

/// The processes of a request in order of first appearance.
#[derive(Default)]
struct Groups {
    all: Vec<Group>,
    index: HashMap<u128, u32>,
    skew: Skew,
}

impl Groups {
    fn of(&mut self, identity: Identity) -> u32 {
        let all = &mut self.all;
        *self.index.entry(identity.hash).or_insert_with(|| {
            all.push(Group { identity, first: u64::MAX, last: 0, observations: 0 });
            all.len() as u32 - 1
        })
    }

    /// Looks at a profile and returns how many of its observations are of too many processes.
    fn look_at(
        &mut self,
        profiles: &Profiles,
        targets: &mut Targets,
        resource: u32,
        profile: &Profile,
        (width, now): (u64, Now),
        of_resource: &mut Option<u32>,
    ) -> u64 {
        if profile.samples.is_empty() {
            return 0;
        }
        let ranged = Ranged::of(profiles, profile, width, now.unix_nano, |set| targets.of(resource, set));
        let start = Cell::of_range(profile, 1, 0, now.unix_nano).start;
        let range = match &ranged {
            Some(ranged) => ranged.extent(),
            None => (start, start.saturating_add(profile.duration_nano.saturating_sub(1))),
        };
        let timed = Timed::of(profiles, profile);
        if !targets.any_moves() {
            let Some(target) = targets.of(resource, None) else { return profiles.observations_of(profile) };
            let at = self.of(targets.get(target).identity);
            *of_resource = Some(at);
            let group = &mut self.all[at as usize];
            for sample in profiles.samples(profile) {
                group.see(&sample, range, timed);
            }
            return 0;
        }
        let mut refused = 0;
        for sample in profiles.samples(profile) {
            let Some(target) = targets.of(resource, sample.attributes) else {
                refused += sample.observations();
                continue;
            };
            let at = self.of(targets.get(target).identity);
            self.all[at as usize].see(&sample, range, timed);
        }
        refused
    }

    fn note(&mut self, now: Now, profiles: &Profiles, out: &mut Outbox) {
        for group in &self.all {
            if group.identity.strength == profbridge_model::IdentityStrength::Weak {
                out.note(crate::WEAK_IDENTITY, group.observations);
            }
        }
        let far = self.all.iter().any(|group| Skew::is_far(group.first, now) || Skew::is_far(group.last, now));
        if far {
            self.skew.look_at(profiles, now);
            self.skew.note(out);
        }
    }
}

impl Group {
    #[inline]
    fn see(&mut self, sample: &Sample<'_>, range: (u64, u64), timed: Option<Timed>) {
        let (times, _) = sample.timestamps_bytes().as_chunks::<8>();
        if times.is_empty() {
            self.first = self.first.min(range.0);
            self.last = self.last.max(range.1);
            self.observations += 1;
            return;
        }
        if let Some(timed) = timed
            && !sample.values_bytes().is_empty()
        {
            for (&time, value) in times.iter().zip(sample.values()) {
                let (first, last) = timed.extent(timestamp(time), value);
                self.first = self.first.min(first);
                self.last = self.last.max(last);
            }
        }
        for &time in times {
            let time = timestamp(time);
            self.first = self.first.min(time);
            self.last = self.last.max(time);
        }
        self.observations += times.len() as u64;
    }
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
        let phase = self.groups.all[group as usize].first % self.settings.window;
        let sample = profiles.sample(piece.row);
        let (times, _) = sample.timestamps_bytes().as_chunks::<8>();
        let all = sample.values_bytes();
        if times.is_empty() {
            let piece = Piece { values: Span { start: 0, len: all.len() as u32 }, ..piece };
            let Some(ranged) = &mut long.ranged else {
                let cell = Cell::of_range(profile, self.settings.window, phase, now.unix_nano);
                return self.put_piece(group, cell, piece, 1);
            };
            let parts = ranged.parts(profiles, piece.target, &sample, &mut self.parts);
            self.synthesized += parts.len() as u64 - 1;
            for &part in parts {
                let own = (parts.len() > 1).then_some(part);
                self.put_piece(group, part.cell, Piece { part: own, ranged: true, ..piece }, 1);
            }
            return;
        }
        let (mut from, mut rest) = (0, all);
        while let Some(&time) = times.get(from) {
            let cell = Cell::of(timestamp(time), self.settings.window, phase);
            let mut left = leading(&times[from..], cell);
            while left > 0 {
                let mut room = self.room(group, cell).min(left as u64) as usize;
                let (mut mine, mut later) = split_values(rest, room);
                let timed = long.timed.filter(|_| !mine.is_empty() && self.parts > 0);
                let found =
                    timed.and_then(|timed| timed.find(&times[from..][..room], mine, cell, self.settings.window));
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

fn copy_of(
    profiles: &Profiles,
    targets: &Targets,
    bucket: &Bucket,
    transfer: &mut Transfer,
) -> Result<Profiles, profbridge_model::dictionary::Invalid> {
    let mut compact = Compact::new(profiles, transfer);
    let mut kept: HashMap<Option<AttributeSetId>, Option<AttributeSetId>> = HashMap::new();
    // Samples of one resource may belong to several targets in turn; each gets its resource once.
    let mut pieces: Vec<&Piece> = bucket.pieces.iter().collect();
    pieces.sort_by_key(|piece| (piece.target, piece.scope, piece.of_profile()));
    let mut before: Option<&Piece> = None;
    for piece in pieces {
        let target = targets.get(piece.target);
        let resource = &profiles.resources()[target.resource as usize];
        let scope: &ScopeProfiles = &resource.scopes[piece.scope as usize];
        let same_target = before.is_some_and(|before| before.target == piece.target);
        let same_scope = same_target && before.is_some_and(|before| before.scope == piece.scope);
        if !same_target {
            compact.resource_with(resource, targets.merged(target).into_iter());
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
        if target.moved == 0 {
            compact.some_of(&sample, timestamps, values);
            continue;
        }
        let attributes =
            *kept.entry(sample.attributes).or_insert_with(|| compact.attribute_set(targets.stays(sample.attributes)));
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
