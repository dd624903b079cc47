//! Holds the requests of each sender for a while and lets them go on as one, with one dictionary.
//!
//! Each element of a request is looked up once, so merging costs what comes in, not what is there already. (The
//! Collector's merge compares each with all.)

use std::sync::Arc;

use profbridge_engine::component::{Now, Outbox};
use profbridge_model::arena::Work;
use profbridge_model::compact::split_values;
use profbridge_model::sample_log::Shape;
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Position, Profiles, Reason, Sample};
use profbridge_windows::{Intake, Key, MEMO, Piece, Request, Rewrite, ScopedProfile, Store, Visitor, walk};

use crate::config::Settings;

/// So many windows may be closed for a request before the first of them is flushed.
const WAITING: usize = 4;

/// One part in so many of the memory of all data may be what all windows hold.
const SHARE: u64 = 4;

/// So many samples are taken in by one step.
const STEP: usize = 8192;

/// The key of a window: who sent what it holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sender(Option<Arc<str>>);

impl Key for Sender {}

/// Resources and attributes stay as they are.
struct AsTheyAre;

impl Rewrite for AsTheyAre {
    fn attributes<'a>(&'a self, place: &ScopedProfile<'a>, _resource: u32) -> Vec<&'a Attribute> {
        place.resource.resource.attributes.iter().collect()
    }

    fn stays(&self, _set: AttributeSetId) -> impl Iterator<Item = Option<AttributeId>> {
        std::iter::empty()
    }
}

/// The windows of senders.
#[derive(Debug)]
pub(crate) struct Merge {
    settings: Settings,
    windows: Store<Sender>,
    /// The request that is being taken in.
    under_way: Option<Box<UnderWay>>,
}

/// A request that is being taken in.
#[derive(Debug)]
struct UnderWay {
    profiles: Profiles,
    now: Now,
    at: Position,
    /// Observations that are neither in a window nor lost yet.
    left: u64,
    intake: Intake<Sender>,
}

impl Merge {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { windows: Store::new(settings.limits()), settings, under_way: None }
    }

    /// Makes the bounds small enough for the memory that all data of the process may take, in bytes: a window that is
    /// flushed takes several times of what it held, beside everything else.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.max_bytes = self.settings.max_bytes.min(limit / SHARE);
        self.windows = Store::new(self.settings.limits());
    }

    pub(crate) fn is_absorbing(&self) -> bool {
        self.under_way.is_some()
    }

    pub(crate) fn observations(&self) -> u64 {
        self.windows.observations() + self.under_way.as_ref().map_or(0, |work| work.left)
    }

    /// The memory of everything that is held, as allocated, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let under_way = self.under_way.as_ref().map_or(0, |work| size_of::<UnderWay>() + work.intake.bytes());
        self.windows.bytes() + under_way as u64
    }

    /// What the dictionaries of all windows that there are and were have done.
    pub(crate) fn work(&self) -> Work {
        self.windows.work()
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Option<u64> {
        if self.is_absorbing() { Some(0) } else { self.windows.due() }
    }

    /// Holds a request, or the beginning of it.
    pub(crate) fn take(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let (left, at) = (profiles.observations(), Position::default());
        self.under_way = Some(Box::new(UnderWay { profiles, now, at, left, intake: Intake::default() }));
        self.absorb(out);
        self.note_closed_early(out);
    }

    /// Takes in as much of a request as fits into one step.
    fn absorb(&mut self, out: &mut Outbox) {
        let Some(mut work) = self.under_way.take() else { return };
        work.intake.resume(&self.windows);
        let may_wait = self.windows.closed() + WAITING;
        let UnderWay { profiles, now, at, left, intake } = &mut *work;
        let (request, sender) = (Request::new(profiles, now.monotonic_nano), Sender(profiles.peer.clone()));
        let windows = &mut self.windows;
        let mut step = Step { windows, intake, request, sender, out, may_wait, samples: STEP, left };
        let is_done = walk(profiles, at, &mut step);
        work.intake.settle(&mut self.windows);
        if is_done {
            self.windows.end_request(work.intake);
        } else {
            self.under_way = Some(work);
        }
    }

    /// Flushes a window that is closed, is to be closed for want of memory, or is due, and takes in more of the
    /// request that is being taken in.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        self.windows.close_due(now.monotonic_nano);
        self.flush_one(out);
        self.windows.sweep();
        self.absorb(out);
        self.note_closed_early(out);
    }

    /// Flushes a window because memory is short, until half of what was held at the beginning is left. Returns whether
    /// there is more to do.
    pub(crate) fn on_memory_pressure(&mut self, out: &mut Outbox) -> bool {
        self.windows.on_memory_pressure();
        self.flush_one(out);
        self.note_closed_early(out);
        self.windows.is_relieving()
    }

    /// Flushes a window because the pipeline ends, the oldest first. Returns whether there is more to do.
    pub(crate) fn flush(&mut self, now: Now, out: &mut Outbox) -> bool {
        if self.is_absorbing() {
            self.advance(now, out);
            return true;
        }
        self.windows.close_for_the_end();
        self.flush_one(out);
        let more = !self.windows.is_empty();
        if !more {
            self.windows.sweep();
        }
        more
    }

    /// Flushes the next closed window.
    fn flush_one(&mut self, out: &mut Outbox) {
        let Some(flushed) = self.windows.flush(true) else { return };
        match flushed.batch {
            Some(batch) => out.send(batch),
            None => out.drop_observations(Reason::LimitExceeded, flushed.observations),
        }
    }

    fn note_closed_early(&mut self, out: &mut Outbox) {
        out.note(crate::CLOSED_EARLY, self.windows.take_closed_early());
    }
}

/// One step of taking in a request.
struct Step<'a> {
    windows: &'a mut Store<Sender>,
    intake: &'a mut Intake<Sender>,
    request: Request<'a>,
    sender: Sender,
    out: &'a mut Outbox,
    /// So many closed windows may wait.
    may_wait: usize,
    /// So many samples are still taken in.
    samples: usize,
    /// Observations that are neither in a window nor lost yet.
    left: &'a mut u64,
}

impl<'a> Visitor<'a> for Step<'_> {
    fn profile(&mut self, place: ScopedProfile<'a>, at: Position) -> bool {
        // Before it is noted that the profile begins, or it would be noted again after the pause.
        if self.samples == 0 || self.windows.closed() >= self.may_wait {
            return false;
        }
        self.intake.begin_profile();
        if self.intake.entries() >= MEMO {
            self.intake.forget();
        }
        if !place.profile.original_payload.is_empty() && at.begins_profile() {
            self.out.note(crate::PAYLOAD_REMOVED, 1);
        }
        true
    }

    /// Holds what is left of a sample, in pieces where it is larger than what a window still takes.
    fn sample(&mut self, place: ScopedProfile<'a>, sample: &Sample<'a>, at: &mut Position) -> bool {
        if self.samples == 0 {
            return false;
        }
        self.samples -= 1;
        let shape = Shape::of(place.profile, sample.timestamps_bytes(), sample.values_bytes());
        let (_, mut timestamps) = sample.timestamps_bytes().split_at(at.timestamps * 8);
        let (_, mut values) = sample.values_bytes().split_at(at.values);
        loop {
            if self.windows.closed() >= self.may_wait {
                at.timestamps = (sample.timestamps_bytes().len() - timestamps.len()) / 8;
                at.values = sample.values_bytes().len() - values.len();
                return false;
            }
            let (resource, rewritten, continued) = (place.resource_at, false, false);
            let key = &self.sender;
            let piece = Piece { sample, key, resource, rewritten, shape, timestamps, values, continued };
            let all = (timestamps.len() as u64 / 8).max(1);
            let put = self.intake.put(self.windows, &self.request, &AsTheyAre, &place, &piece);
            let done = put.unwrap_or_else(|_| {
                self.out.drop_observations(Reason::LimitExceeded, all);
                all
            });
            *self.left -= done;
            if done == all {
                return true;
            }
            timestamps = &timestamps[done as usize * 8..];
            values = split_values(values, done as usize).1;
        }
    }
}
