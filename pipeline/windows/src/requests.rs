//! Holds requests as they are: nothing is moved, cut or told apart but by the key that the caller gives a request.
//!
//! For processors that merge or delay. A request is taken in by steps; whoever drives this looks after other things
//! between them.

use profbridge_model::arena::Work;
use profbridge_model::compact::split_values;
use profbridge_model::sample_log::Shape;
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Position, Profiles, Sample};

use crate::intake::{Intake, MEMO, Piece, Request, Rewrite};
use crate::key::Key;
use crate::limits::Limits;
use crate::store::{Flushed, Store};
use crate::walk::{ScopedProfile, Visitor, walk};

/// So many windows may be closed for a request before the first of them is flushed.
const WAITING: usize = 4;

/// So many samples are taken in by one step.
const STEP: usize = 8192;

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

/// Requests in windows, and the one that is being taken in.
#[derive(Debug)]
pub struct Requests<K> {
    windows: Store<K>,
    under_way: Option<Box<UnderWay<K>>>,
}

/// A request that is being taken in.
#[derive(Debug)]
struct UnderWay<K> {
    profiles: Profiles,
    key: K,
    monotonic_nano: u64,
    at: Position,
    /// Observations that are neither in a window nor lost yet.
    left: u64,
    intake: Intake<K>,
}

/// What became of a step of taking in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Absorbed {
    /// Observations that were lost: what they refer to is too large even for an empty window.
    pub lost: u64,
    /// Profiles whose original payload was left out. See [`PAYLOAD_REMOVED`](crate::PAYLOAD_REMOVED).
    pub payloads_removed: u64,
    /// Windows that were closed before their time. See [`CLOSED_EARLY`](crate::CLOSED_EARLY).
    pub closed_early: u64,
}

impl<K: Key> Requests<K> {
    /// Holds nothing.
    pub fn new(limits: Limits) -> Self {
        Self { windows: Store::new(limits), under_way: None }
    }

    /// Whether a request is being taken in: go on with [`Requests::absorb`], and bring no other one before that is
    /// done.
    pub fn is_absorbing(&self) -> bool {
        self.under_way.is_some()
    }

    /// How many observations are held, those of the request that is being taken in among them.
    pub fn observations(&self) -> u64 {
        self.windows.observations() + self.under_way.as_ref().map_or(0, |work| work.left)
    }

    /// The memory of everything that is held, as allocated, in bytes; the request that is being taken in is its
    /// caller's.
    pub fn bytes(&self) -> u64 {
        let under_way = self.under_way.as_ref().map_or(0, |work| size_of::<UnderWay<K>>() + work.intake.bytes());
        self.windows.bytes() + under_way as u64
    }

    /// What the dictionaries of all windows that there are and were have done.
    pub fn work(&self) -> Work {
        self.windows.work()
    }

    /// When there is something to do, by the clock of `monotonic_nano`.
    pub fn due(&self) -> Option<u64> {
        if self.is_absorbing() { Some(0) } else { self.windows.due() }
    }

    /// Holds a request in the window of a key, or the beginning of it.
    pub fn take(&mut self, profiles: Profiles, key: K, monotonic_nano: u64) -> Absorbed {
        let (left, at) = (profiles.observations(), Position::default());
        let intake = Intake::default();
        self.under_way = Some(Box::new(UnderWay { profiles, key, monotonic_nano, at, left, intake }));
        self.absorb()
    }

    /// Takes in as much of the request under way as fits into one step.
    pub fn absorb(&mut self) -> Absorbed {
        let mut absorbed = Absorbed::default();
        if let Some(mut work) = self.under_way.take() {
            work.intake.resume(&self.windows);
            let may_wait = self.windows.closed() + WAITING;
            let UnderWay { profiles, key, monotonic_nano, at, left, intake } = &mut *work;
            let (request, windows) = (Request::new(profiles, *monotonic_nano), &mut self.windows);
            let mut step =
                Step { windows, intake, request, key, absorbed: &mut absorbed, may_wait, samples: STEP, left };
            let is_done = walk(profiles, at, &mut step);
            work.intake.settle(&mut self.windows);
            if is_done {
                self.windows.end_request(work.intake);
            } else {
                self.under_way = Some(work);
            }
        }
        absorbed.closed_early = self.windows.take_closed_early();
        absorbed
    }

    /// Flushes a window that is closed, is to be closed for want of memory, or is due.
    pub fn flush_due(&mut self, monotonic_nano: u64) -> Option<Flushed<K>> {
        self.windows.close_due(monotonic_nano);
        let flushed = self.windows.flush(true);
        self.windows.sweep();
        flushed
    }

    /// Flushes a window because memory is short. Go on until [`Requests::is_relieving`] is over: then half of what was
    /// held at the beginning is left. How many windows that closed early, the next [`Absorbed`] does not say again.
    pub fn relieve(&mut self) -> (Option<Flushed<K>>, u64) {
        self.windows.on_memory_pressure();
        (self.windows.flush(true), self.windows.take_closed_early())
    }

    /// Whether windows are being closed for want of memory.
    pub fn is_relieving(&self) -> bool {
        self.windows.is_relieving()
    }

    /// Flushes the oldest window because the end has come. Only while nothing is being taken in.
    pub fn flush_at_end(&mut self) -> Option<Flushed<K>> {
        self.windows.close_for_the_end();
        let flushed = self.windows.flush(true);
        if self.windows.is_empty() {
            self.windows.sweep();
        }
        flushed
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        !self.is_absorbing() && self.windows.is_empty()
    }
}

/// One step of taking in a request.
struct Step<'a, K> {
    windows: &'a mut Store<K>,
    intake: &'a mut Intake<K>,
    request: Request<'a>,
    key: &'a K,
    absorbed: &'a mut Absorbed,
    /// So many closed windows may wait.
    may_wait: usize,
    /// So many samples are still taken in.
    samples: usize,
    /// Observations that are neither in a window nor lost yet.
    left: &'a mut u64,
}

impl<'a, K: Key> Visitor<'a> for Step<'_, K> {
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
            self.absorbed.payloads_removed += 1;
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
            let key = self.key;
            let piece = Piece { sample, key, resource, rewritten, shape, timestamps, values, continued };
            let all = (timestamps.len() as u64 / 8).max(1);
            let put = self.intake.put(self.windows, &self.request, &AsTheyAre, &place, &piece);
            let done = put.unwrap_or_else(|_| {
                self.absorbed.lost += all;
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
