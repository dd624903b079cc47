//! Cuts requests at once, without holding them: `window: 0s`.
//!
//! The usual request contains one process and less than a minute. It passes unchanged with its own dictionary, at the
//! cost of reading each timestamp once. A few processes whose samples have no attributes to move also share the
//! dictionary. All other requests are put into windows that close when the request is in them; the windows of a process
//! start at its first observation.

use std::collections::HashMap;

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Cell, Identity, Processes, Rules, timestamp};
use profbridge_model::{Profile, Profiles, Reason, ResourceProfiles, Sample};

use crate::config::Settings;
use crate::hold::Hold;
use crate::parts::{Ranged, Timed};

/// The maximum number of processes that share a dictionary. An exporter may scan the whole dictionary for each batch,
/// so with more processes the work would be quadratic.
const SHARED: usize = 32;

/// The maximum number of resources and observations that are examined together before any of them is sent, to limit the
/// memory for the results. Processes whose resources are further apart get one batch per part. A resource is never
/// split.
const TOGETHER: (usize, u64) = (512, 32_768);

/// A process of the request and its time range.
#[derive(Debug, Clone, Copy)]
struct ProcessBatch {
    identity: Identity,
    first: u64,
    last: u64,
    observations: u64,
}

/// Cuts requests without holding them.
#[derive(Default)]
pub(crate) struct Instant {
    /// The current part of a request, whose processes share its dictionary.
    sharing: Option<Sharing>,
    /// The rest of the current request.
    rest: Option<RemainingRequest>,
}

/// The part of a request that is not examined yet.
struct RemainingRequest {
    profiles: Profiles,
    /// The first resource that is not cut yet.
    resource: usize,
    /// The observations of the remaining resources.
    observations: u64,
    /// The arrival time of the request.
    now: Now,
}

/// A part of a request whose processes share its dictionary: each call sends one batch.
struct Sharing {
    profiles: Profiles,
    groups: Vec<ProcessBatch>,
    /// The process of each resource.
    of_resource: Vec<Option<u32>>,
    /// The next process to send.
    next: usize,
    /// The number of observations that are not sent yet.
    left: u64,
}

impl Instant {
    pub(crate) fn is_cutting(&self) -> bool {
        self.sharing.is_some() || self.rest.is_some()
    }

    /// The number of observations that are neither sent nor in windows yet.
    pub(crate) fn observations(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.observations);
        self.sharing.as_ref().map_or(0, |sharing| sharing.left) + rest
    }

    /// Memory in addition to the request itself, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let of = |sharing: &Sharing| {
            size_of_val(sharing.profiles.resources())
                + sharing.of_resource.capacity() * size_of::<Option<u32>>()
                + sharing.groups.capacity() * size_of::<ProcessBatch>()
        };
        self.sharing.as_ref().map_or(0, of) as u64
    }

    /// Accepts a request and sends the first batch.
    pub(crate) fn cut(&mut self, profiles: Profiles, hold: &mut Hold, now: Now, out: &mut Outbox) {
        let observations = profiles.observations();
        if profiles.resources().len() <= TOGETHER.0 && observations <= TOGETHER.1 {
            self.examine(profiles, hold, now, out);
        } else {
            self.rest = Some(RemainingRequest { profiles, resource: 0, observations, now });
        }
        self.go_on(hold, out);
    }

    /// Examines the next resources of a partly cut request.
    fn examine_more(&mut self, hold: &mut Hold, out: &mut Outbox) {
        let Some(rest) = &mut self.rest else { return };
        let (mut together, mut observations): (Vec<ResourceProfiles>, u64) = (Vec::new(), 0);
        for resource in rest.profiles.resources()[rest.resource..].iter().take(TOGETHER.0) {
            if observations >= TOGETHER.1 {
                break;
            }
            let profiles = resource.scopes.iter().flat_map(|scope| &scope.profiles);
            observations += profiles.map(|profile| rest.profiles.observations_of(profile)).sum::<u64>();
            together.push(resource.clone());
        }
        rest.resource += together.len();
        rest.observations -= observations;
        let (part, now) = (rest.profiles.with_resources(together), rest.now);
        if rest.resource >= rest.profiles.resources().len() {
            self.rest = None;
        }
        match part {
            Ok(part) => self.examine(part, hold, now, out),
            // This cannot happen: the resources come from the batch itself.
            Err(_) => out.drop_observations(Reason::Malformed, observations),
        }
    }

    /// Groups a request, or a part of one, by process.
    fn examine(&mut self, profiles: Profiles, hold: &mut Hold, now: Now, out: &mut Outbox) {
        let mut processes = hold.processes_of(&profiles, now);
        let Settings { rules, max_observations, .. } = hold.settings();
        let width = rules.cell_width();
        let mut groups = Groups::default();
        // The process of each resource, as long as no resource has samples of two processes.
        let mut of_resource = vec![None; profiles.resources().len()];
        for (at, resource) in profiles.resources().iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                groups.examine(&profiles, &mut processes, at as u32, profile, (width, now), &mut of_resource[at]);
            }
        }
        let fits = |group: &ProcessBatch| group.last - group.first < width && group.observations <= *max_observations;
        if !processes.any_moves() && groups.all.len() <= SHARED && groups.all.iter().all(fits) {
            groups.note_weak(out);
            let left = groups.all.iter().map(|group| group.observations).sum();
            self.sharing = Some(Sharing { profiles, groups: groups.all, of_resource, next: 0, left });
        } else {
            let phases = groups.all.iter().map(|group| (group.identity.hash, group.first % width)).collect();
            hold.take_of(profiles, processes, phases, now, out);
        }
    }

    /// Sends the next batch of the current request.
    pub(crate) fn go_on(&mut self, hold: &mut Hold, out: &mut Outbox) {
        if self.sharing.is_none() && hold.is_empty() {
            self.examine_more(hold, out);
        }
        self.sharing = self.sharing.take().and_then(|sharing| sharing.go_on(&hold.settings().rules, out));
    }
}

impl Sharing {
    /// Sends the batch of the next process. Returns the rest.
    fn go_on(mut self, rules: &Rules, out: &mut Outbox) -> Option<Self> {
        let at = self.next;
        let group = *self.groups.get(at)?;
        self.next += 1;
        self.left -= group.observations;
        let cell = Cell { start: group.first, end: group.first.saturating_add(rules.cell_width()) };
        let window = Some(rules.window(group.identity, cell));
        if self.groups.len() == 1 {
            self.profiles.window = window;
            out.send(self.profiles);
            return None;
        }
        let mine = |(resource, group): (_, &Option<u32>)| (*group == Some(at as u32)).then_some(resource);
        let resources = self.profiles.resources().iter().zip(&self.of_resource).filter_map(mine).cloned().collect();
        match self.profiles.with_resources(resources) {
            Ok(mut batch) => {
                batch.window = window;
                out.send(batch);
            }
            // This cannot happen: the resources come from the batch itself.
            Err(_) => out.drop_observations(Reason::Malformed, group.observations),
        }
        (self.next < self.groups.len()).then_some(self)
    }
}

/// The processes of a request in order of first appearance.
#[derive(Default)]
struct Groups {
    all: Vec<ProcessBatch>,
    index: HashMap<u128, u32>,
}

impl Groups {
    fn of(&mut self, identity: Identity) -> u32 {
        let all = &mut self.all;
        *self.index.entry(identity.hash).or_insert_with(|| {
            all.push(ProcessBatch { identity, first: u64::MAX, last: 0, observations: 0 });
            all.len() as u32 - 1
        })
    }

    /// Adds a profile. Observations beyond the maximum number of processes are omitted.
    fn examine(
        &mut self,
        profiles: &Profiles,
        processes: &mut Processes,
        resource: u32,
        profile: &Profile,
        (width, now): (u64, Now),
        of_resource: &mut Option<u32>,
    ) {
        if profile.samples.is_empty() {
            return;
        }
        let ranged = Ranged::of(profiles, profile, width, now.unix_nano, |set| processes.of(resource, set));
        let start = Cell::of_range(profile, 1, 0, now.unix_nano).start;
        let range = match &ranged {
            Some(ranged) => ranged.extent(),
            None => (start, start.saturating_add(profile.duration_nano.saturating_sub(1))),
        };
        let timed = Timed::of(profiles, profile);
        if !processes.any_moves() {
            let Some(process) = processes.of(resource, None) else { return };
            let at = self.of(processes.get(process).identity);
            *of_resource = Some(at);
            let group = &mut self.all[at as usize];
            return profiles.samples(profile).for_each(|sample| group.count(&sample, range, timed));
        }
        for sample in profiles.samples(profile) {
            let Some(process) = processes.of(resource, sample.attributes) else { continue };
            let at = self.of(processes.get(process).identity);
            self.all[at as usize].count(&sample, range, timed);
        }
    }

    fn note_weak(&self, out: &mut Outbox) {
        for group in &self.all {
            if group.identity.strength == profbridge_model::IdentityStrength::Weak {
                out.note(crate::WEAK_IDENTITY, group.observations);
            }
        }
    }
}

impl ProcessBatch {
    #[inline]
    fn count(&mut self, sample: &Sample<'_>, range: (u64, u64), timed: Option<Timed>) {
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
