//! One step of absorbing a request: continues after the previous step until enough memory is used.

use profbridge_engine::component::Outbox;
use profbridge_identity::{Cell, IdentifiedProcess};
use profbridge_model::sample_log::SampleLayout;
use profbridge_model::{IdentityStrength, Position, Profile, Profiles, Reason, Sample};
use profbridge_windows::{KeyedPiece, MEMO, Request, ScopedProfile, Store, Visitor, walk};

use super::under_way::{PartlyAbsorbedRequest, RequestProgress};
use super::{close_passed, in_order};
use crate::config::Settings;
use crate::divide::{self, Divider, PieceSink};
use crate::key::ProcessCell;

/// The amount of memory that one step takes, in bytes, before control returns to the caller.
const STEP: u64 = 1 << 20;

/// One step of absorbing a request.
struct HoldStep<'a> {
    profiles: &'a Profiles,
    divider: &'a mut Divider,
    target: HoldTarget<'a>,
}

/// The windows in which the samples of a request are stored.
struct HoldTarget<'a> {
    settings: &'a Settings,
    windows: &'a mut Store<ProcessCell>,
    found: &'a mut RequestProgress,
    request: Request<'a>,
    out: &'a mut Outbox,
    /// The memory held when the step began, in bytes.
    before: u64,
}

/// Absorbs the rest of a request until the step is full. Returns whether the request is finished.
pub(super) fn take_in(
    work: &mut PartlyAbsorbedRequest,
    settings: &Settings,
    windows: &mut Store<ProcessCell>,
    out: &mut Outbox,
) -> bool {
    let PartlyAbsorbedRequest { profiles, at, divider, found } = work;
    let before = windows.counted_bytes();
    let request = Request::new(profiles, found.now.monotonic_nano);
    walk(
        profiles,
        at,
        &mut HoldStep { profiles, divider, target: HoldTarget { settings, windows, found, request, out, before } },
    )
}

impl HoldTarget<'_> {
    fn is_enough(&self) -> bool {
        self.windows.closed() >= self.found.may_wait || self.windows.counted_bytes() >= self.before.saturating_add(STEP)
    }
}

impl<'a> Visitor<'a> for HoldStep<'_> {
    fn profile(&mut self, place: ScopedProfile<'a>, at: Position) -> bool {
        if self.target.is_enough() {
            return false;
        }
        let HoldTarget { found, out, .. } = &mut self.target;
        found.intake.begin_profile();
        if at.begins_profile() {
            if !place.profile.original_payload.is_empty() {
                out.note(crate::PAYLOAD_REMOVED, 1);
            }
            let process = |set| found.processes.0.of(place.resource_at, set);
            self.divider.profile(self.profiles, place.profile, process);
        }
        true
    }

    /// Puts the rest of a sample into the windows of its process and times.
    fn sample(&mut self, place: ScopedProfile<'a>, sample: &Sample<'a>, at: &mut Position) -> bool {
        let Self { profiles, divider, target } = self;
        if !divider.is_ranged() {
            target.found.forget_much();
        }
        if target.is_enough() {
            return false;
        }
        let Some(number) = target.found.processes.0.of(place.resource_at, sample.attributes) else {
            let observations = sample.observations() - at.timestamps as u64;
            target.found.left -= observations;
            target.out.drop_observations(Reason::LimitExceeded, observations);
            return true;
        };
        let process = target.found.processes.0.get(number);
        let shape = SampleLayout::of(place.profile, sample.timestamps_bytes(), sample.values_bytes());
        let mut one = OfOneSample { target, place, sample, number, process, shape };
        divider.sample((profiles, place.profile), number, sample, at, &mut one)
    }

    fn end_profile(&mut self) {
        self.divider.end_profile();
    }

    /// Closes the windows of processes that only occur in this resource, because nothing more will arrive for them.
    fn end_resource(&mut self) {
        for process in in_order(&mut self.target.found.alone) {
            self.target.windows.close_group(&ProcessCell::first(process), |_| true);
        }
    }
}

/// Stores the pieces of one sample.
struct OfOneSample<'a, 'b> {
    target: &'a mut HoldTarget<'b>,
    place: ScopedProfile<'a>,
    sample: &'a Sample<'a>,
    /// The number of the sample's process in the request, and the process.
    number: u32,
    process: IdentifiedProcess,
    shape: SampleLayout,
}

impl OfOneSample<'_, '_> {
    /// The width of the process's cells, and the start of the first one.
    fn grid(&self) -> (u64, u64) {
        let (identity, width) = (self.process.identity, self.target.settings.rules.cell_width());
        let phase = self.target.found.phases.get(&identity.hash).copied();
        (width, phase.unwrap_or_else(|| identity.phase(width)))
    }
}

impl PieceSink for OfOneSample<'_, '_> {
    fn is_enough(&self) -> bool {
        self.target.is_enough()
    }

    fn cell(&self, time: u64) -> Cell {
        let last = self.target.found.intake.key_of_last(self.number, self.shape).map(|key| key.cell);
        let known = last.filter(|cell| cell.contains(time));
        known.unwrap_or_else(|| {
            let (width, phase) = self.grid();
            Cell::of(time, width, phase)
        })
    }

    fn cell_of_range(&self, profile: &Profile) -> Cell {
        let (width, phase) = self.grid();
        Cell::of_range(profile, width, phase, self.target.found.now.unix_nano)
    }

    fn synthesize(&mut self) {
        self.target.out.synthesize(1);
        self.target.found.left += 1;
    }

    fn take(&mut self, piece: divide::Piece<'_>) -> usize {
        let Self { target, place, sample, number, process, .. } = self;
        let HoldTarget { settings, windows, found, request, out, .. } = &mut **target;
        let divide::Piece { cell, shape, timestamps, values, continued, .. } = piece;
        let IdentifiedProcess { identity, moved, .. } = *process;
        let key = ProcessCell { identity, cell };
        if found.intake.key_of_last(*number, shape) != Some(&key) {
            if found.touched.len() >= MEMO {
                close_passed(windows, &mut found.touched, settings, found.now);
            }
            let came = if identity.alone { &mut found.alone } else { &mut found.touched };
            came.insert(identity.hash);
        }
        let (key, resource, rewritten) = (&key, *number, moved > 0);
        let piece = KeyedPiece { sample, key, resource, rewritten, shape, timestamps, values, continued };
        let put = found.intake.put(windows, request, &found.processes, place, &piece);
        let observations = put.unwrap_or_else(|_| {
            let observations = (timestamps.len() as u64 / 8).max(1);
            out.drop_observations(Reason::LimitExceeded, observations);
            observations
        });
        found.left -= observations;
        found.weak += if identity.strength == IdentityStrength::Weak { observations } else { 0 };
        observations as usize
    }
}
