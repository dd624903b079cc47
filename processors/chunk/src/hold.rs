//! Puts requests into windows: `window` above `0s`.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::arena::{Full, Source, Transfer};
use profbridge_model::compact::split_values;
use profbridge_model::held::{Carrier, HeldResource, HeldScope, Shape};
use profbridge_model::{AttributeSetId, Profile, Profiles, Reason, ResourceProfiles, Sample, ScopeProfiles};

use crate::budget::size;
use crate::cell::{Cell, leading, timestamp};
use crate::config::Settings;
use crate::identity::RequestId;
use crate::parts::{self, Parts, Ranged, Timed};
use crate::skew::Skew;
use crate::targets::Targets;
use crate::windows::Windows;

/// Holds requests until their windows close.
pub(crate) struct Hold {
    settings: Settings,
    /// How many requests there were.
    requests: u64,
    pub(crate) windows: Windows,
}

/// Where the profile at hand goes: it is found once for many samples.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    target: u32,
    cell: Cell,
    shape: Shape,
    slot: u32,
    /// The position of the window's arena in [`Request::carried`].
    carried: usize,
    series: u32,
    /// Whether something is moved out of the samples' attributes.
    moves: bool,
}

/// Those timestamps and values of a sample that lie in one cell.
#[derive(Debug, Clone, Copy)]
struct Piece<'b> {
    target: u32,
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

/// What was carried into one arena.
struct Carried {
    epoch: u32,
    transfer: Transfer,
    /// Attribute sets without what was moved out of them.
    kept: HashMap<AttributeSetId, Option<AttributeSetId>>,
    /// The resources of targets, and the scopes of resources.
    resources: HashMap<u32, HeldResource>,
    scopes: HashMap<(u32, u32), HeldScope>,
}

impl Carried {
    fn new(epoch: u32) -> Self {
        Self {
            epoch,
            transfer: Transfer::default(),
            kept: HashMap::new(),
            resources: HashMap::new(),
            scopes: HashMap::new(),
        }
    }
}

/// One request on its way into the windows.
struct Request<'a> {
    settings: &'a Settings,
    windows: &'a mut Windows,
    profiles: &'a Profiles,
    source: Source<'a>,
    targets: Targets<'a>,
    now: Now,
    carried: Vec<Carried>,
    cursor: Option<Cursor>,
    /// How the values of the profile at hand tell time, and where they lie if it is longer than a window.
    timed: Option<Timed>,
    ranged: Option<Ranged>,
    /// How many parts observations may still be divided into, beyond the first of each.
    parts: u64,
    /// The resources of targets, and the scopes of resources, in the windows that they got to, by the windows' order.
    resources: HashMap<(u32, u64), u32>,
    scopes: HashMap<(u32, u32, u64), u32>,
    /// Processes that got something.
    touched: Vec<u128>,
    /// Processes of the resource at hand of which nothing else will come.
    alone: Vec<u128>,
    weak: u64,
}

impl Hold {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { windows: Windows::new(settings.clone()), settings, requests: 0 }
    }

    /// Puts a request into the windows of its processes and times.
    pub(crate) fn take(&mut self, profiles: &Profiles, now: Now, out: &mut Outbox) {
        self.windows.begin(size(profiles));
        self.requests += 1;
        let id = RequestId { arrival: now.unix_nano, number: self.requests };
        let mut request = Request {
            settings: &self.settings,
            windows: &mut self.windows,
            profiles,
            source: Source::from(&**profiles.dictionary()),
            targets: Targets::new(profiles, &self.settings.identity, id),
            now,
            carried: Vec::new(),
            cursor: None,
            timed: None,
            ranged: None,
            parts: parts::allowance(profiles.observations()),
            resources: HashMap::new(),
            scopes: HashMap::new(),
            touched: Vec::new(),
            alone: Vec::new(),
            weak: 0,
        };
        request.run(out);
        let (carried, mut touched, weak) = (request.carried, request.touched, request.weak);
        if weak > 0 {
            out.note(crate::WEAK_IDENTITY, weak);
        }
        let mut skew = Skew::default();
        skew.look_at(profiles, now);
        skew.note(out);
        touched.sort_unstable();
        touched.dedup();
        for process in touched {
            self.windows.close_passed(process, now, out);
        }
        for carried in carried {
            self.windows.settle_epoch(carried.epoch);
        }
        self.windows.sweep();
        if self.windows.bytes() > self.settings.max_bytes {
            self.windows.shrink(self.settings.max_bytes / 4 * 3, out);
        }
    }
}

impl<'a> Request<'a> {
    fn run(&mut self, out: &mut Outbox) {
        let profiles = self.profiles;
        for (at, resource) in profiles.resources().iter().enumerate() {
            for (scope_at, scope) in resource.scopes.iter().enumerate() {
                for profile in &scope.profiles {
                    self.cursor = None;
                    if !profile.original_payload.is_empty() {
                        out.note(crate::PAYLOAD_REMOVED, 1);
                    }
                    self.timed = Timed::of(profiles, profile);
                    let (width, unknown) = (self.settings.window, self.now.unix_nano);
                    let targets = &mut self.targets;
                    self.ranged = Ranged::of(profiles, profile, width, unknown, |set| targets.of(at as u32, set));
                    let place = Place { at: at as u32, scope_at: scope_at as u32, resource, scope, profile };
                    for sample in profiles.samples(profile) {
                        self.sample(place, &sample, out);
                    }
                }
            }
            self.close_alone(out);
        }
    }

    /// Closes the windows of processes of which nothing else will come: there is nothing to wait for.
    fn close_alone(&mut self, out: &mut Outbox) {
        self.alone.sort_unstable();
        self.alone.dedup();
        for process in std::mem::take(&mut self.alone) {
            self.cursor = None;
            self.windows.close_process(process, out);
        }
    }

    /// Puts a sample into the windows of its timestamps.
    fn sample(&mut self, place: Place<'_>, sample: &Sample<'a>, out: &mut Outbox) {
        let Some(target) = self.targets.of(place.at, sample.attributes) else {
            return out.drop(Reason::LimitExceeded, sample.observations());
        };
        let identity = self.targets.get(target).identity;
        if identity.strength == profbridge_model::IdentityStrength::Weak {
            self.weak += sample.observations();
        }
        let (timestamps, values) = (sample.timestamps_bytes(), sample.values_bytes());
        let shape = Shape::of(place.profile, timestamps, values);
        let (times, _) = timestamps.as_chunks::<8>();
        let known = self.cursor.filter(|cursor| cursor.target == target && cursor.shape == shape);
        if times.is_empty() && self.ranged.is_some() {
            return self.ranged(place, sample, target, out);
        }
        if times.is_empty() {
            let cell = Cell::of_range(
                place.profile,
                self.settings.window,
                identity.phase(self.settings.window),
                self.now.unix_nano,
            );
            self.piece(place, sample, Piece { target, cell, shape, timestamps, values, continued: false }, out);
            return;
        }
        let (mut from, mut values) = (0, values);
        while let Some(&first) = times.get(from) {
            let first = timestamp(first);
            let cell = match known {
                Some(cursor) if cursor.cell.contains(first) => cursor.cell,
                _ => Cell::of(first, self.settings.window, identity.phase(self.settings.window)),
            };
            // A piece that is larger than a window may get is not put in at once.
            let most = usize::try_from(self.settings.max_observations).unwrap_or(usize::MAX);
            let mut len = leading(&times[from..], cell).min(most);
            let (mut mine, mut rest) = if values.is_empty() { (values, values) } else { split_values(values, len) };
            // An observation that is longer than what is left of its cell goes on in the next.
            let timed = self.timed.filter(|_| !mine.is_empty() && self.parts > 0);
            let long = timed.and_then(|timed| timed.find(&times[from..][..len], mine, cell, self.settings.window));
            if let Some((0, parts)) = long {
                self.parts(place, sample, (target, shape), parts, out);
                (from, values) = (from + 1, split_values(values, 1).1);
                continue;
            }
            if let Some((before, _)) = long {
                len = before;
                (mine, rest) = split_values(values, len);
            }
            let timestamps = &timestamps[from * 8..(from + len) * 8];
            self.piece(place, sample, Piece { target, cell, shape, timestamps, values: mine, continued: false }, out);
            (from, values) = (from + len, rest);
        }
    }

    /// Puts an observation that is longer than its cell into the windows of its parts.
    fn parts(
        &mut self,
        place: Place<'_>,
        sample: &Sample<'_>,
        (target, shape): (u32, Shape),
        parts: Parts,
        out: &mut Outbox,
    ) {
        for (number, part) in parts.enumerate() {
            let continued = number > 0;
            out.synthesized += u64::from(continued);
            self.parts = self.parts.saturating_sub(u64::from(continued));
            let (timestamps, values) = (&part.time.to_le_bytes()[..], &part.packed()[..]);
            let piece = Piece { target, cell: part.cell, shape, timestamps, values, continued };
            self.piece(place, sample, piece, out);
        }
    }

    /// Puts a sample without timestamps of a profile that is longer than a window into the windows of its parts.
    fn ranged(&mut self, place: Place<'_>, sample: &Sample<'a>, target: u32, out: &mut Outbox) {
        let Some(mut ranged) = self.ranged.take() else { return };
        let parts = ranged.parts(self.profiles, target, sample, &mut self.parts);
        let divided = parts.len() > 1;
        for (number, part) in parts.iter().enumerate() {
            out.synthesized += u64::from(number > 0);
            let Cell { start, end } = part.cell;
            let shape = Shape::Values {
                time_unix_nano: start,
                duration_nano: end - start,
                profile_id: place.profile.profile_id,
            };
            let own = part.packed();
            let values = if divided { &own } else { sample.values_bytes() };
            let piece = Piece { target, cell: part.cell, shape, timestamps: &[], values, continued: false };
            self.piece(place, sample, piece, out);
        }
        self.ranged = Some(ranged);
    }

    /// Puts a sample, or a part of it that lies in one cell, into its window.
    fn piece(&mut self, place: Place<'_>, sample: &Sample<'_>, piece: Piece<'_>, out: &mut Outbox) {
        let observations = (piece.timestamps.len() as u64 / 8).max(1);
        // A full arena closes the window, and another one is tried. Nothing is larger than an empty arena: it was in a
        // batch, which is addressed with the same 32 bits.
        for _ in 0..2 {
            match self.put(place, sample, piece, out) {
                Ok(slot) => {
                    if !self.windows.settle(slot, observations, out) {
                        self.cursor = None;
                    }
                    return;
                }
                Err(Full { .. }) => {
                    let identity = self.targets.get(piece.target).identity;
                    let slot = self.windows.find(identity, piece.cell, &self.profiles.peer, self.now, out);
                    self.windows.retire(slot, out);
                    self.cursor = None;
                }
            }
        }
        out.drop(Reason::LimitExceeded, observations);
    }

    /// Puts a piece into its window and returns the window's slot.
    fn put(&mut self, place: Place<'_>, sample: &Sample<'_>, piece: Piece<'_>, out: &mut Outbox) -> Result<u32, Full> {
        let cursor = match self.cursor {
            Some(at) if (at.target, at.cell, at.shape) == (piece.target, piece.cell, piece.shape) => at,
            _ => self.enter(place, piece, out)?,
        };
        let Some((window, arena)) = self.windows.get_mut(cursor.slot) else { return Ok(cursor.slot) };
        let Carried { transfer, kept, .. } = &mut self.carried[cursor.carried];
        let stack = transfer.stack(&self.source, arena, sample.stack)?;
        let link = transfer.link(&self.source, arena, sample.link)?;
        let attributes = match sample.attributes.filter(|_| cursor.moves) {
            None => transfer.attribute_set(&self.source, arena, sample.attributes)?,
            Some(set) => match kept.get(&set) {
                Some(&known) => known,
                None => {
                    let stays = self.targets.stays(Some(set));
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
        let target = self.targets.get(piece.target);
        let slot = self.windows.find(target.identity, piece.cell, &self.profiles.peer, self.now, out);
        let came = if target.identity.alone { &mut self.alone } else { &mut self.touched };
        came.push(target.identity.hash);
        let Some((window, arena)) = self.windows.get_mut(slot) else {
            return Err(Full { what: "windows", limit: self.settings.max_processes as u64 });
        };
        let carried = self.carried.iter().rposition(|carried| carried.epoch == window.epoch).unwrap_or_else(|| {
            self.carried.push(Carried::new(window.epoch));
            self.carried.len() - 1
        });
        let Carried { transfer, resources, scopes, .. } = &mut self.carried[carried];
        let mut carrier = Carrier { source: &self.source, transfer, arena };
        let resource = match self.resources.get(&(piece.target, window.order)) {
            Some(&known) => known,
            None => {
                let held = match resources.get(&piece.target) {
                    Some(&held) => held,
                    None => carrier.resource(place.resource, self.targets.merged(target).into_iter())?,
                };
                resources.insert(piece.target, held);
                *self.resources.entry((piece.target, window.order)).or_insert(window.held.resource(held))
            }
        };
        let scope = match self.scopes.get(&(place.at, place.scope_at, window.order)) {
            Some(&known) => known,
            None => {
                let held = match scopes.get(&(place.at, place.scope_at)) {
                    Some(&held) => held,
                    None => carrier.scope(place.scope)?,
                };
                scopes.insert((place.at, place.scope_at), held);
                *self.scopes.entry((place.at, place.scope_at, window.order)).or_insert(window.held.scope(held))
            }
        };
        let series = carrier.series(place.profile, resource, scope, piece.shape)?;
        let series = window.held.series(series, piece.cell.clip(place.profile), place.profile.profile_id);
        let moves = target.moved > 0;
        let cursor =
            Cursor { target: piece.target, cell: piece.cell, shape: piece.shape, slot, carried, series, moves };
        self.cursor = Some(cursor);
        Ok(cursor)
    }
}
