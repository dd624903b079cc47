//! One step of taking a request in: from where the step before has ended, until it is enough for one step.

use profbridge_engine::component::Outbox;
use profbridge_identity::{Cell, leading, timestamp};
use profbridge_model::compact::split_values;
use profbridge_model::held::Shape;
use profbridge_model::{IdentityStrength, Position, Profiles, Reason, Sample};
use profbridge_windows::{MEMO, Piece, Place, Request, Store, Visitor, walk};

use super::under_way::UnderWay;
use super::{close_passed, in_order};
use crate::config::Settings;
use crate::key::ProcessCell;
use crate::parts::{Parts, Ranged, Timed};

/// So much more memory is taken by one step of a request, in bytes, before whoever drives this can look after the rest.
const STEP: u64 = 1 << 20;

/// One step of taking in a request.
pub(super) struct Step<'a> {
    settings: &'a Settings,
    windows: &'a mut Store<ProcessCell>,
    work: &'a mut UnderWay,
    /// The request of `work`.
    profiles: &'a Profiles,
    request: Request<'a>,
    out: &'a mut Outbox,
    /// What was held when the step began, in bytes.
    before: u64,
}

/// Those timestamps and values of a sample that lie in one cell.
#[derive(Debug, Clone, Copy)]
struct InCell<'b> {
    process: u32,
    cell: Cell,
    shape: Shape,
    timestamps: &'b [u8],
    values: &'b [u8],
    /// Whether it goes on with an observation of another cell: it does not say how far its process has come.
    continued: bool,
}

impl<'a> Step<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        windows: &'a mut Store<ProcessCell>,
        work: &'a mut UnderWay,
        profiles: &'a Profiles,
        out: &'a mut Outbox,
    ) -> Self {
        let (before, request) = (windows.bytes(), Request::new(profiles, work.now.monotonic_nano));
        Self { settings, windows, work, profiles, request, out, before }
    }

    /// Takes in what is left of the request, until it is enough. Returns whether that was all of it.
    pub(super) fn run(mut self) -> bool {
        let mut at = self.work.at;
        let is_done = walk(self.profiles, &mut at, &mut self);
        self.work.at = at;
        is_done
    }

    /// Whether enough was taken in for one step.
    fn is_enough(&self) -> bool {
        self.windows.closed() >= self.work.may_wait || self.windows.bytes() >= self.before.saturating_add(STEP)
    }

    /// Puts an observation that is longer than its cell into the windows of its parts.
    fn parts(&mut self, place: Place<'_>, sample: &Sample<'_>, (process, shape): (u32, Shape), parts: Parts) {
        for (number, part) in parts.enumerate() {
            let continued = number > 0;
            self.add(continued);
            self.work.parts = self.work.parts.saturating_sub(u64::from(continued));
            let (timestamps, values) = (&part.time.to_le_bytes()[..], &part.packed()[..]);
            self.put(place, sample, InCell { process, cell: part.cell, shape, timestamps, values, continued });
        }
    }

    /// Puts a sample without timestamps of a profile that is longer than a window into the windows of its parts.
    fn ranged(&mut self, place: Place<'_>, sample: &Sample<'_>, process: u32) {
        let Some(mut ranged) = self.work.ranged.take() else { return };
        let parts = ranged.parts(self.profiles, process, sample, &mut self.work.parts);
        let divided = parts.len() > 1;
        for (number, part) in parts.iter().enumerate() {
            self.add(number > 0);
            let Cell { start, end } = part.cell;
            let profile_id = place.profile.profile_id;
            let shape = Shape::Values { time_unix_nano: start, duration_nano: end - start, profile_id };
            let own = part.packed();
            let values = if divided { &own } else { sample.values_bytes() };
            self.put(
                place,
                sample,
                InCell { process, cell: part.cell, shape, timestamps: &[], values, continued: false },
            );
        }
        self.work.ranged = Some(ranged);
    }

    /// Counts a further part of an observation, which is about to be put in.
    fn add(&mut self, further: bool) {
        self.out.synthesize(u64::from(further));
        self.work.left += u64::from(further);
    }

    /// Puts what lies in one cell into its window, or as much as that still takes. Returns how many observations it were.
    fn put(&mut self, place: Place<'_>, sample: &Sample<'_>, piece: InCell<'_>) -> u64 {
        let InCell { process, cell, shape, timestamps, values, continued } = piece;
        let found = self.work.processes.0.get(process);
        let key = ProcessCell { identity: found.identity, cell };
        if self.work.intake.key_of_last(process, shape) != Some(&key) {
            self.touch(&key);
        }
        let rewritten = found.moved > 0;
        let piece = Piece { sample, key: &key, resource: process, rewritten, shape, timestamps, values, continued };
        let UnderWay { intake, processes, .. } = &mut *self.work;
        let put = intake.put(self.windows, &self.request, processes, &place, &piece);
        let observations = put.unwrap_or_else(|_| {
            let observations = (timestamps.len() as u64 / 8).max(1);
            self.out.drop_observations(Reason::LimitExceeded, observations);
            observations
        });
        self.work.left -= observations;
        observations
    }

    /// Remembers that a process gets something.
    fn touch(&mut self, key: &ProcessCell) {
        let work = &mut *self.work;
        if work.touched.len() >= MEMO {
            close_passed(self.windows, &mut work.touched, self.settings, work.now);
        }
        let came = if key.identity.alone { &mut work.alone } else { &mut work.touched };
        came.insert(key.identity.hash);
    }
}

impl<'a> Visitor<'a> for Step<'_> {
    fn profile(&mut self, place: Place<'a>, at: Position) -> bool {
        if self.is_enough() {
            return false;
        }
        let work = &mut *self.work;
        work.intake.begin_profile();
        if at.begins_profile() {
            if !place.profile.original_payload.is_empty() {
                self.out.note(crate::PAYLOAD_REMOVED, 1);
            }
            let (width, unknown) = (self.settings.rules.cell_width(), work.now.unix_nano);
            work.timed = Timed::of(self.profiles, place.profile);
            let processes = &mut work.processes.0;
            let process = |set| processes.of(place.resource_at, set);
            work.ranged = Ranged::of(self.profiles, place.profile, width, unknown, process);
        }
        true
    }

    /// Puts what is left of a sample into the windows of its timestamps.
    fn sample(&mut self, place: Place<'a>, sample: &Sample<'a>, at: &mut Position) -> bool {
        self.work.forget_much();
        if self.is_enough() {
            return false;
        }
        let all = sample.timestamps_bytes();
        let (times, _) = all.as_chunks::<8>();
        let mut from = at.timestamps;
        let Some(process) = self.work.processes.0.of(place.resource_at, sample.attributes) else {
            let observations = sample.observations() - from as u64;
            self.work.left -= observations;
            self.out.drop_observations(Reason::LimitExceeded, observations);
            return true;
        };
        let identity = self.work.processes.0.get(process).identity;
        let weak = u64::from(identity.strength == IdentityStrength::Weak);
        let shape = Shape::of(place.profile, all, sample.values_bytes());
        let rules = &self.settings.rules;
        if times.is_empty() {
            self.work.weak += weak;
            if self.work.ranged.is_some() {
                self.ranged(place, sample, process);
                return true;
            }
            let cell = rules.cell_of_range(identity, place.profile, self.work.now.unix_nano);
            let values = sample.values_bytes();
            self.put(place, sample, InCell { process, cell, shape, timestamps: all, values, continued: false });
            return true;
        }
        let known = self.work.intake.key_of_last(process, shape).map(|key| key.cell);
        let (_, mut values) = sample.values_bytes().split_at(at.values);
        let width = rules.cell_width();
        while let Some(&first) = times.get(from) {
            if self.is_enough() {
                let done = sample.values_bytes().len() - values.len();
                (at.timestamps, at.values) = (from, done);
                return false;
            }
            let first = timestamp(first);
            let cell = match known {
                Some(cell) if cell.contains(first) => cell,
                _ => rules.cell(identity, first),
            };
            // A piece that is larger than a window may get is not looked at as a whole.
            let most = usize::try_from(self.settings.max_observations).unwrap_or(usize::MAX);
            let mut len = leading(&times[from..], cell).min(most);
            let mut mine = if values.is_empty() { values } else { split_values(values, len).0 };
            // An observation that is longer than what is left of its cell goes on in the next.
            let timed = self.work.timed.filter(|_| !mine.is_empty() && self.work.parts > 0);
            let long = timed.and_then(|timed| timed.find(&times[from..][..len], mine, cell, width));
            if let Some((0, parts)) = long {
                self.work.weak += weak;
                self.parts(place, sample, (process, shape), parts);
                (from, values) = (from + 1, split_values(values, 1).1);
                continue;
            }
            if let Some((before, _)) = long {
                len = before;
                mine = split_values(values, len).0;
            }
            let timestamps = &all[from * 8..(from + len) * 8];
            let piece = InCell { process, cell, shape, timestamps, values: mine, continued: false };
            let put = self.put(place, sample, piece) as usize;
            self.work.weak += weak * put as u64;
            let done = if put == len || values.is_empty() { mine.len() } else { split_values(mine, put).0.len() };
            (from, values) = (from + put, &values[done..]);
        }
        true
    }

    fn end_profile(&mut self) {
        self.work.ranged = None;
    }

    /// Closes the windows of processes of which nothing else will come: there is nothing to wait for.
    fn end_resource(&mut self) {
        for process in in_order(&mut self.work.alone) {
            self.windows.close_group(&ProcessCell::first(process), |_| true);
        }
    }
}
