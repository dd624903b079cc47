//! One step of taking a request in: from where the step before has ended, until it is enough for one step.

use std::collections::HashSet;

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Cell, leading, timestamp};
use profbridge_model::arena::{Full, Source};
use profbridge_model::compact::split_values;
use profbridge_model::held::{Carrier, Shape};
use profbridge_model::{Position, Profile, Profiles, Reason, ResourceProfiles, Sample, ScopeProfiles};

use super::under_way::{Carried, MEMO, UnderWay};
use crate::config::Settings;
use crate::parts::{Parts, Ranged, Timed};
use crate::windows::Windows;

/// So much more memory is taken by one piece of a request, in bytes, before whoever drives this can look after the rest.
const PIECE: u64 = 1 << 20;

/// So often the memory of the dictionary is looked at, in pieces of samples: it takes as long as putting one in.
const LOOK: u32 = 64;

/// One step of taking in a request.
pub(super) struct Request<'a> {
    settings: &'a Settings,
    windows: &'a mut Windows,
    work: &'a mut UnderWay,
    /// The request of `work`.
    profiles: &'a Profiles,
    source: Source<'a>,
    cursor: Option<Cursor>,
    /// What was held when the step began, in bytes.
    before: u64,
    /// Pieces until the dictionary's memory is looked at.
    until_look: u32,
    /// Enough was taken in for one step.
    enough: bool,
}

/// Where the profile at hand goes: it is found once for many samples.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    process: u32,
    cell: Cell,
    shape: Shape,
    slot: u32,
    /// The position of the window's arena in [`UnderWay::carried`].
    carried: usize,
    series: u32,
    /// Whether something is moved out of the samples' attributes.
    moves: bool,
}

/// Those timestamps and values of a sample that lie in one cell.
#[derive(Debug, Clone, Copy)]
struct Piece<'b> {
    process: u32,
    cell: Cell,
    shape: Shape,
    timestamps: &'b [u8],
    values: &'b [u8],
    /// Whether it goes on with an observation of another cell: it does not say how far its process has come.
    continued: bool,
}

/// A profile with what it stands in.
#[derive(Clone, Copy)]
struct Place<'a> {
    at: u32,
    scope_at: u32,
    resource: &'a ResourceProfiles,
    scope: &'a ScopeProfiles,
    profile: &'a Profile,
}

impl<'a> Request<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        windows: &'a mut Windows,
        work: &'a mut UnderWay,
        profiles: &'a Profiles,
    ) -> Self {
        let before = windows.bytes();
        let source = Source::from(&**profiles.dictionary());
        Self { settings, windows, work, profiles, source, cursor: None, before, until_look: LOOK, enough: false }
    }

    /// Whether there is more of the request for another step.
    pub(super) fn goes_on(&self) -> bool {
        self.enough
    }

    /// Takes in what is left of the request, until it is enough.
    pub(super) fn run(&mut self, out: &mut Outbox) {
        let profiles = self.profiles;
        while let Some(resource) = profiles.resources().get(self.work.at.resource) {
            while let Some(scope) = resource.scopes.get(self.work.at.scope) {
                while let Some(profile) = scope.profiles.get(self.work.at.profile) {
                    let Position { resource: at, scope: scope_at, .. } = self.work.at;
                    let place = Place { at: at as u32, scope_at: scope_at as u32, resource, scope, profile };
                    if !self.profile(place, out) {
                        self.enough = true;
                        return;
                    }
                    self.work.at = self.work.at.next_profile();
                }
                self.work.at = self.work.at.next_scope();
            }
            self.work.at = self.work.at.next_resource();
            self.close_alone();
        }
    }

    /// Closes the windows of processes of which nothing else will come: there is nothing to wait for.
    fn close_alone(&mut self) {
        let mut alone: Vec<u128> = std::mem::take(&mut self.work.alone).into_iter().collect();
        alone.sort_unstable();
        for process in alone {
            self.cursor = None;
            self.windows.close_process(process);
        }
    }

    /// Takes in what is left of a profile. Returns whether that was all of it.
    fn profile(&mut self, place: Place<'_>, out: &mut Outbox) -> bool {
        if self.is_enough() {
            return false;
        }
        self.cursor = None;
        if self.work.at.begins_profile() {
            if !place.profile.original_payload.is_empty() {
                out.note(crate::PAYLOAD_REMOVED, 1);
            }
            let (profiles, width) = (self.profiles, self.settings.rules.cell_width());
            let unknown = self.work.now.unix_nano;
            self.work.timed = Timed::of(profiles, place.profile);
            let processes = &mut self.work.processes;
            self.work.ranged = Ranged::of(profiles, place.profile, width, unknown, |set| processes.of(place.at, set));
        }
        let rows = place.profile.samples.clone();
        while let Some(row) = rows.start.checked_add(self.work.at.sample).filter(|row| rows.contains(row)) {
            let sample = self.profiles.sample(row);
            if self.work.forget_much() {
                self.cursor = None;
            }
            if self.is_enough() || !self.sample(place, &sample, out) {
                return false;
            }
            self.work.at = self.work.at.next_sample();
        }
        self.work.ranged = None;
        true
    }

    /// Whether enough was taken in for one step.
    fn is_enough(&self) -> bool {
        self.windows.closed() >= self.work.may_wait || self.windows.bytes() >= self.before.saturating_add(PIECE)
    }

    /// Puts what is left of a sample into the windows of its timestamps. Returns whether that was all of it.
    fn sample(&mut self, place: Place<'_>, sample: &Sample<'a>, out: &mut Outbox) -> bool {
        let all = sample.timestamps_bytes();
        let (times, _) = all.as_chunks::<8>();
        let Position { timestamps: mut from, values: values_from, .. } = self.work.at;
        let Some(process) = self.work.processes.of(place.at, sample.attributes) else {
            let observations = sample.observations() - from as u64;
            self.work.left -= observations;
            out.drop_observations(Reason::LimitExceeded, observations);
            return true;
        };
        let identity = self.work.processes.get(process).identity;
        let is_weak = identity.strength == profbridge_model::IdentityStrength::Weak;
        let shape = Shape::of(place.profile, all, sample.values_bytes());
        let known = self.cursor.filter(|cursor| cursor.process == process && cursor.shape == shape);
        if times.is_empty() && self.work.ranged.is_some() {
            self.work.weak += u64::from(is_weak);
            self.ranged(place, sample, process, out);
            return true;
        }
        if times.is_empty() {
            let cell = self.settings.rules.cell_of_range(identity, place.profile, self.work.now.unix_nano);
            self.work.weak += u64::from(is_weak);
            self.piece(
                place,
                sample,
                Piece { process, cell, shape, timestamps: all, values: sample.values_bytes(), continued: false },
                out,
            );
            return true;
        }
        let (_, mut values) = sample.values_bytes().split_at(values_from);
        let width = self.settings.rules.cell_width();
        while let Some(&first) = times.get(from) {
            if self.is_enough() {
                let done = sample.values_bytes().len() - values.len();
                (self.work.at.timestamps, self.work.at.values) = (from, done);
                return false;
            }
            let first = timestamp(first);
            let cell = match known {
                Some(cursor) if cursor.cell.contains(first) => cursor.cell,
                _ => self.settings.rules.cell(identity, first),
            };
            // A piece that is larger than a window may get is not put in at once.
            let most = usize::try_from(self.settings.max_observations).unwrap_or(usize::MAX);
            let mut len = leading(&times[from..], cell).min(most);
            let (mut mine, mut rest) = if values.is_empty() { (values, values) } else { split_values(values, len) };
            // An observation that is longer than what is left of its cell goes on in the next.
            let timed = self.work.timed.filter(|_| !mine.is_empty() && self.work.parts > 0);
            let long = timed.and_then(|timed| timed.find(&times[from..][..len], mine, cell, width));
            if let Some((0, parts)) = long {
                self.work.weak += u64::from(is_weak);
                self.parts(place, sample, (process, shape), parts, out);
                (from, values) = (from + 1, split_values(values, 1).1);
                continue;
            }
            if let Some((before, _)) = long {
                len = before;
                (mine, rest) = split_values(values, len);
            }
            let timestamps = &all[from * 8..(from + len) * 8];
            self.work.weak += if is_weak { len as u64 } else { 0 };
            self.piece(place, sample, Piece { process, cell, shape, timestamps, values: mine, continued: false }, out);
            (from, values) = (from + len, rest);
        }
        true
    }

    /// Puts an observation that is longer than its cell into the windows of its parts.
    fn parts(
        &mut self,
        place: Place<'_>,
        sample: &Sample<'_>,
        (process, shape): (u32, Shape),
        parts: Parts,
        out: &mut Outbox,
    ) {
        for (number, part) in parts.enumerate() {
            let continued = number > 0;
            self.add(continued, out);
            self.work.parts = self.work.parts.saturating_sub(u64::from(continued));
            let (timestamps, values) = (&part.time.to_le_bytes()[..], &part.packed()[..]);
            let piece = Piece { process, cell: part.cell, shape, timestamps, values, continued };
            self.piece(place, sample, piece, out);
        }
    }

    /// Puts a sample without timestamps of a profile that is longer than a window into the windows of its parts.
    fn ranged(&mut self, place: Place<'_>, sample: &Sample<'a>, process: u32, out: &mut Outbox) {
        let Some(mut ranged) = self.work.ranged.take() else { return };
        let parts = ranged.parts(self.profiles, process, sample, &mut self.work.parts);
        let divided = parts.len() > 1;
        for (number, part) in parts.iter().enumerate() {
            self.add(number > 0, out);
            let Cell { start, end } = part.cell;
            let shape = Shape::Values {
                time_unix_nano: start,
                duration_nano: end - start,
                profile_id: place.profile.profile_id,
            };
            let own = part.packed();
            let values = if divided { &own } else { sample.values_bytes() };
            let piece = Piece { process, cell: part.cell, shape, timestamps: &[], values, continued: false };
            self.piece(place, sample, piece, out);
        }
        self.work.ranged = Some(ranged);
    }

    /// Counts a further part of an observation, which is about to be put in.
    fn add(&mut self, further: bool, out: &mut Outbox) {
        out.synthesize(u64::from(further));
        self.work.left += u64::from(further);
    }

    /// Puts a sample, or a part of it that lies in one cell, into its window.
    fn piece(&mut self, place: Place<'_>, sample: &Sample<'_>, piece: Piece<'_>, out: &mut Outbox) {
        let observations = (piece.timestamps.len() as u64 / 8).max(1);
        self.work.left -= observations;
        // A full arena closes the window, and another one is tried. Nothing is larger than an empty arena: it was in a
        // batch, which is addressed with the same 32 bits.
        for _ in 0..2 {
            match self.put(place, sample, piece, out) {
                Ok(slot) => {
                    if !self.windows.settle(slot, observations, out) {
                        self.cursor = None;
                    }
                    self.look(slot, out);
                    return;
                }
                Err(Full { .. }) => {
                    let identity = self.work.processes.get(piece.process).identity;
                    let slot = self.windows.find(identity, piece.cell, &self.profiles.peer, self.work.now, out);
                    self.windows.retire(slot, out);
                    self.cursor = None;
                }
            }
        }
        out.drop_observations(Reason::LimitExceeded, observations);
    }

    /// Looks once in a while at what the dictionary has come to.
    fn look(&mut self, slot: u32, out: &mut Outbox) {
        self.until_look -= 1;
        if self.until_look > 0 {
            return;
        }
        self.until_look = LOOK;
        for carried in &self.work.carried {
            self.windows.settle_epoch(carried.epoch);
        }
        if self.cursor.is_some() && self.windows.retire_if_large(slot, out) {
            self.cursor = None;
        }
        if self.work.touched.len() >= MEMO {
            close_passed(self.windows, &mut self.work.touched, self.work.now);
            self.cursor = None;
        }
    }

    /// Puts a piece into its window and returns the window's slot.
    fn put(&mut self, place: Place<'_>, sample: &Sample<'_>, piece: Piece<'_>, out: &mut Outbox) -> Result<u32, Full> {
        let cursor = match self.cursor {
            Some(at) if (at.process, at.cell, at.shape) == (piece.process, piece.cell, piece.shape) => at,
            _ => self.enter(place, piece, out)?,
        };
        let Some((window, arena, _)) = self.windows.get_mut(cursor.slot) else { return Ok(cursor.slot) };
        let work = &mut *self.work;
        let Carried { transfer, kept, .. } = &mut work.carried[cursor.carried];
        let stack = transfer.stack(&self.source, arena, sample.stack)?;
        let link = transfer.link(&self.source, arena, sample.link)?;
        let attributes = match sample.attributes.filter(|_| cursor.moves) {
            None => transfer.attribute_set(&self.source, arena, sample.attributes)?,
            Some(set) => match kept.get(&set) {
                Some(&known) => known,
                None => {
                    let stays = work.processes.stays(Some(set));
                    let there = transfer.some_attributes(&self.source, arena, stays)?;
                    kept.insert(set, there);
                    there
                }
            },
        };
        window.held.push(cursor.series, stack, attributes, link, piece.timestamps, piece.values);
        if let Some(&last) = piece.timestamps.as_chunks::<8>().0.last()
            && !piece.continued
        {
            window.latest = window.latest.max(timestamp(last));
        }
        Ok(cursor.slot)
    }

    /// Finds the window of a piece, and what its profile is called there.
    fn enter(&mut self, place: Place<'_>, piece: Piece<'_>, out: &mut Outbox) -> Result<Cursor, Full> {
        let work = &mut *self.work;
        let process = work.processes.get(piece.process);
        let slot = self.windows.find(process.identity, piece.cell, &self.profiles.peer, work.now, out);
        let came = if process.identity.alone { &mut work.alone } else { &mut work.touched };
        came.insert(process.identity.hash);
        let Some((window, arena, number)) = self.windows.get_mut(slot) else {
            return Err(Full { what: "windows", limit: self.settings.max_processes as u64 });
        };
        let carried = work.carried.iter().rposition(|carried| carried.number == number).unwrap_or_else(|| {
            work.carried.push(Carried::new(window.epoch, number));
            work.carried.len() - 1
        });
        let Carried { transfer, resources, scopes, .. } = &mut work.carried[carried];
        let mut carrier = Carrier { source: &self.source, transfer, arena };
        let resource = match work.resources.get(&(piece.process, window.order)) {
            Some(&known) => known,
            None => {
                let held = match resources.get(&piece.process) {
                    Some(&held) => held,
                    None => carrier.resource(place.resource, work.processes.merged(process).into_iter())?,
                };
                resources.insert(piece.process, held);
                *work.resources.entry((piece.process, window.order)).or_insert(window.held.resource(held))
            }
        };
        let scope = match work.scopes.get(&(place.at, place.scope_at, window.order)) {
            Some(&known) => known,
            None => {
                let held = match scopes.get(&(place.at, place.scope_at)) {
                    Some(&held) => held,
                    None => carrier.scope(place.scope)?,
                };
                scopes.insert((place.at, place.scope_at), held);
                *work.scopes.entry((place.at, place.scope_at, window.order)).or_insert(window.held.scope(held))
            }
        };
        let series = carrier.series(place.profile, resource, scope, piece.shape)?;
        let series = window.held.series(series, piece.cell.clip(place.profile), place.profile.profile_id);
        let moves = process.moved > 0;
        let cursor =
            Cursor { process: piece.process, cell: piece.cell, shape: piece.shape, slot, carried, series, moves };
        self.cursor = Some(cursor);
        Ok(cursor)
    }
}

/// Closes what these processes have left behind in time, in an order that does not change from run to run.
pub(super) fn close_passed(windows: &mut Windows, touched: &mut HashSet<u128>, now: Now) {
    let mut processes: Vec<u128> = std::mem::take(touched).into_iter().collect();
    processes.sort_unstable();
    for process in processes {
        windows.close_passed(process, now);
    }
}
