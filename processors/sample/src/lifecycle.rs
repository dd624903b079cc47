//! Profiles in the lifecycle `trace`: keeps the observations made while a sampled root span of the process was open
//! (Sentry's profiles specification 2.5.0, "Profile Lifecycle Modes").
//!
//! A span arrives after it has ended, so profiles wait for the spans of their time. All wait equally long, since it is
//! unknown whether another span will arrive.

use std::collections::{HashMap, VecDeque};

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Processes, RequestId, Rules, profiler_name};
use profbridge_model::{Profiles, Reason, Span};

use crate::config::Settings;
use crate::roots::RootSpanTimes;

/// The maximum number of process names that are cached for one batch. Beyond that, the cache is cleared.
const MOST_NAMES: usize = 32_768;

#[derive(Debug)]
struct WaitingProfiles {
    profiles: Profiles,
    deadline: u64,
    bytes: u64,
}

/// Waiting profiles, and the times of sampled root spans.
#[derive(Debug)]
pub(crate) struct TraceLifecycle {
    rules: Rules,
    wait: u64,
    max_bytes: u64,
    roots: RootSpanTimes,
    waiting: VecDeque<WaitingProfiles>,
    observations: u64,
    bytes: u64,
    requests: u64,
}

impl TraceLifecycle {
    pub(crate) fn new(settings: &Settings, rules: &Rules) -> Self {
        Self {
            rules: rules.clone(),
            wait: settings.profile_wait,
            max_bytes: settings.max_bytes,
            roots: RootSpanTimes::default(),
            waiting: VecDeque::new(),
            observations: 0,
            bytes: 0,
            requests: 0,
        }
    }

    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.max_bytes = self.max_bytes.min(limit / 4);
    }

    pub(crate) fn observations(&self) -> u64 {
        self.observations
    }

    pub(crate) fn bytes(&self) -> u64 {
        let list = self.waiting.capacity() * size_of::<WaitingProfiles>() + self.roots.bytes();
        self.bytes + list as u64
    }

    /// Whether the size limit is exceeded, so that the oldest batches must be released.
    pub(crate) fn is_over_full(&self) -> bool {
        self.bytes > self.max_bytes
    }

    pub(crate) fn due(&self) -> Option<u64> {
        if self.is_over_full() { Some(0) } else { self.waiting.front().map(|first| first.deadline) }
    }

    /// Records a sampled root span of the process with these names.
    pub(crate) fn add_root(&mut self, names: &[u128], span: &Span, now: Now, out: &mut Outbox) {
        self.roots.forget(now.monotonic_nano, self.wait / 4);
        let until = now.monotonic_nano.saturating_add(self.wait);
        out.note(crate::FORGOTTEN, self.roots.add(names, span.start_unix_nano, span.end_unix_nano, until));
    }

    /// Buffers a batch.
    pub(crate) fn take(&mut self, profiles: Profiles, now: Now) {
        let bytes = profiles.size_bytes().max(1);
        self.bytes += bytes;
        self.observations += profiles.observations();
        let deadline = now.monotonic_nano.saturating_add(self.wait);
        self.waiting.push_back(WaitingProfiles { profiles, deadline, bytes });
    }

    /// Releases one batch that has waited long enough, or that exceeds the size limit.
    pub(crate) fn advance(&mut self, now: Now, out: &mut Outbox) {
        if self.is_over_full() {
            out.note(crate::DECIDED_EARLY, 1);
            self.release(now, out);
        } else if self.waiting.front().is_some_and(|first| first.deadline <= now.monotonic_nano) {
            self.release(now, out);
        }
    }

    /// Sends the sampled part of the oldest batch. Returns whether there is another batch.
    pub(crate) fn release(&mut self, now: Now, out: &mut Outbox) -> bool {
        if let Some(WaitingProfiles { profiles, bytes, .. }) = self.waiting.pop_front() {
            self.bytes -= bytes;
            self.observations -= profiles.observations();
            let kept = self.covered(&profiles, now);
            let left = kept.as_ref().map_or(0, Profiles::observations);
            out.drop_observations(Reason::NoSampledSpan, profiles.observations() - left);
            kept.into_iter().for_each(|kept| out.send(kept));
        }
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        !self.waiting.is_empty()
    }

    /// The part of a batch that was observed while a sampled root span was open. For samples without timestamps, the
    /// range of their profile is used.
    fn covered(&mut self, profiles: &Profiles, now: Now) -> Option<Profiles> {
        self.requests += 1;
        let request = RequestId { arrival: now.unix_nano, number: self.requests };
        let mut processes = Processes::new(profiles, &self.rules, request);
        let mut names: HashMap<(u32, u64), Vec<u128>> = HashMap::new();
        profiles.retain(|resource, profile, sample, time| {
            let Some(at) = processes.of(resource, sample.attributes) else { return false };
            let range = profile.time_unix_nano..=profile.time_unix_nano.saturating_add(profile.duration_nano);
            let (from, to) = time.map_or((*range.start(), *range.end()), |time| (time, time));
            let process = processes.get(at);
            let cell = self.rules.cell(process.identity, from);
            let session = cell.start.checked_div(self.rules.session).unwrap_or(0);
            if names.len() >= MOST_NAMES {
                names.clear();
            }
            let names = names.entry((at, session)).or_insert_with(|| {
                let attributes = processes.merged(process);
                let mut names = self.rules.names(profiles.dictionary(), attributes.into_iter());
                names.push(profiler_name(self.rules.profiler_id(process.identity, cell)));
                names
            });
            self.roots.cover(names, from, to)
        })
    }
}
