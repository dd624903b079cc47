//! Buffers unchanged requests by a key that the caller chooses.
//!
//! For processors that merge or delay requests. A request is absorbed in steps, so that the caller can do other work in
//! between.

use profbridge_model::arena::Work;
use profbridge_model::compact::split_values;
use profbridge_model::sample_log::SampleLayout;
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Position, Profiles, Sample};

use crate::intake::{Intake, KeyedPiece, MEMO, Request, Rewrite};
use crate::key::WindowKey;
use crate::limits::WindowLimits;
use crate::store::{Flushed, Store};
use crate::walk::{ScopedProfile, Visitor, walk};

/// The maximum number of windows that a request may close before the first of them is flushed.
const WAITING: usize = 4;

/// The maximum number of samples per step.
const STEP: usize = 8192;

/// Keeps resources and attributes unchanged.
struct KeepUnchanged;

impl Rewrite for KeepUnchanged {
    fn attributes<'a>(&'a self, place: &ScopedProfile<'a>, _resource: u32) -> Vec<&'a Attribute> {
        place.resource.resource.attributes.iter().collect()
    }

    fn stays(&self, _set: AttributeSetId) -> impl Iterator<Item = Option<AttributeId>> {
        std::iter::empty()
    }
}

/// The windows of requests, and the pending request.
#[derive(Debug)]
pub struct Requests<K> {
    windows: Store<K>,
    pending: Option<Box<PendingRequest<K>>>,
}

/// A request that is absorbed in steps.
#[derive(Debug)]
struct PendingRequest<K> {
    profiles: Profiles,
    key: K,
    monotonic_nano: u64,
    at: Position,
    /// The number of observations that are neither in a window nor lost yet.
    left: u64,
    intake: Intake<K>,
}

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Absorbed {
    /// The number of observations lost because they refer to data that is too large even for an empty window.
    pub lost: u64,
    /// The number of profiles whose original payload was removed. See [`PAYLOAD_REMOVED`](crate::PAYLOAD_REMOVED).
    pub payloads_removed: u64,
    /// The number of windows that were closed early. See [`CLOSED_EARLY`](crate::CLOSED_EARLY).
    pub closed_early: u64,
}

impl<K: WindowKey> Requests<K> {
    /// Creates an empty buffer.
    pub fn new(limits: WindowLimits) -> Self {
        Self { windows: Store::new(limits), pending: None }
    }

    /// Whether a request is pending. Continue with [`Requests::absorb`], and add no other request before it is
    /// absorbed.
    pub fn is_absorbing(&self) -> bool {
        self.pending.is_some()
    }

    /// Number of buffered observations, including those of the pending request.
    pub fn observations(&self) -> u64 {
        self.windows.observations() + self.pending.as_ref().map_or(0, |work| work.left)
    }

    /// Heap size of all buffered data, in bytes. The pending request is not included; the caller accounts for it.
    pub fn bytes(&self) -> u64 {
        let pending = self.pending.as_ref().map_or(0, |work| size_of::<PendingRequest<K>>() + work.intake.bytes());
        self.windows.bytes() + pending as u64
    }

    /// Work counters of the dictionaries of all windows so far.
    pub fn work(&self) -> Work {
        self.windows.work()
    }

    /// The time at which the next window is due, by the clock of `monotonic_nano`.
    pub fn due(&self) -> Option<u64> {
        if self.is_absorbing() { Some(0) } else { self.windows.due() }
    }

    /// Adds a request, or its first part, to the window of a key.
    pub fn add(&mut self, profiles: Profiles, key: K, monotonic_nano: u64) -> Absorbed {
        let (left, at) = (profiles.observations(), Position::default());
        let intake = Intake::default();
        self.pending = Some(Box::new(PendingRequest { profiles, key, monotonic_nano, at, left, intake }));
        self.absorb()
    }

    /// Absorbs as much of the pending request as one step allows.
    pub fn absorb(&mut self) -> Absorbed {
        let mut absorbed = Absorbed::default();
        if let Some(mut work) = self.pending.take() {
            work.intake.resume(&self.windows);
            let may_wait = self.windows.closed() + WAITING;
            let PendingRequest { profiles, key, monotonic_nano, at, left, intake } = &mut *work;
            let (request, windows) = (Request::new(profiles, *monotonic_nano), &mut self.windows);
            let mut step = RequestVisitor {
                windows,
                intake,
                request,
                key,
                absorbed: &mut absorbed,
                may_wait,
                samples: STEP,
                left,
            };
            let is_done = walk(profiles, at, &mut step);
            work.intake.settle(&mut self.windows);
            if is_done {
                work.intake.end(&mut self.windows);
            } else {
                self.pending = Some(work);
            }
        }
        absorbed.closed_early = self.windows.take_closed_early();
        absorbed
    }

    /// Flushes a window that is closed, due, or scheduled because of memory pressure.
    pub fn flush_due(&mut self, monotonic_nano: u64) -> Option<Flushed<K>> {
        self.windows.close_due(monotonic_nano);
        let flushed = self.windows.flush(true);
        self.windows.sweep();
        flushed
    }

    /// Flushes a window because memory is short. Continue until [`Requests::is_relieving`] is false: then half of the
    /// initial size is left. Also returns the number of windows that were closed early for this; the next [`Absorbed`]
    /// does not include them.
    pub fn flush_for_memory(&mut self) -> (Option<Flushed<K>>, u64) {
        self.windows.on_memory_pressure();
        (self.windows.flush(true), self.windows.take_closed_early())
    }

    /// Whether windows are being closed because of memory pressure.
    pub fn is_relieving(&self) -> bool {
        self.windows.is_relieving()
    }

    /// Flushes the oldest window at shutdown. No request may be pending.
    pub fn flush_at_end(&mut self) -> Option<Flushed<K>> {
        self.windows.close_for_the_end();
        let flushed = self.windows.flush(true);
        if self.windows.is_empty() {
            self.windows.sweep();
        }
        flushed
    }

    /// Whether nothing is buffered.
    pub fn is_empty(&self) -> bool {
        !self.is_absorbing() && self.windows.is_empty()
    }
}

/// One step of absorbing a request.
struct RequestVisitor<'a, K> {
    windows: &'a mut Store<K>,
    intake: &'a mut Intake<K>,
    request: Request<'a>,
    key: &'a K,
    absorbed: &'a mut Absorbed,
    /// The maximum number of closed windows that may wait.
    may_wait: usize,
    /// The number of samples that this step may still absorb.
    samples: usize,
    /// The number of observations that are neither in a window nor lost yet.
    left: &'a mut u64,
}

impl<'a, K: WindowKey> Visitor<'a> for RequestVisitor<'_, K> {
    fn profile(&mut self, place: ScopedProfile<'a>, at: Position) -> bool {
        // Checks this before the profile is started, because it would otherwise be started again after the pause.
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

    /// Adds the rest of a sample, in pieces if the sample does not fit into its window.
    fn sample(&mut self, place: ScopedProfile<'a>, sample: &Sample<'a>, at: &mut Position) -> bool {
        if self.samples == 0 {
            return false;
        }
        self.samples -= 1;
        let shape = SampleLayout::of(place.profile, sample.timestamps_bytes(), sample.values_bytes());
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
            let piece = KeyedPiece { sample, key, resource, rewritten, shape, timestamps, values, continued };
            let all = (timestamps.len() as u64 / 8).max(1);
            let put = self.intake.put(self.windows, &self.request, &KeepUnchanged, &place, &piece);
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
