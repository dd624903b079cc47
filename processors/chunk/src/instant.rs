//! Cuts a request at once: `window: 0s`.
//!
//! The usual request holds one process and less than a minute. It goes on as it came, with its own dictionary, and
//! costs a look at each timestamp. A few processes whose samples carry nothing that is moved share the dictionary as
//! well. Everything else is copied into batches with dictionaries of their own, which costs what each of them refers
//! to.

mod buckets;

use std::collections::{HashMap, VecDeque};

use profbridge_engine::component::{Now, Outbox};
use profbridge_identity::{Cell, Identity, Processes, RequestId, skew, timestamp};
use profbridge_model::arena::Transfer;
use profbridge_model::{Profile, Profiles, Reason, ResourceProfiles, Sample};
use profbridge_windows::SCRATCH;

use self::buckets::{Bucket, copy_of, sort_out};
use crate::budget::Budget;
use crate::config::Settings;
use crate::parts::{Ranged, Timed};

/// So many processes may share a dictionary. Whoever turns a batch into something else may look at all of its
/// dictionary, so more would make the work grow with the square of the processes.
const SHARED: usize = 32;

/// So many resources and observations are looked at together, before anything of them goes on: what is known of each
/// takes memory. Processes in resources that lie further apart than that get batches for each part. A resource is never
/// divided.
const TOGETHER: (usize, u64) = (1024, 32_768);

/// A process of the request, and where in time it lies.
#[derive(Debug, Clone, Copy)]
struct Group {
    identity: Identity,
    first: u64,
    last: u64,
    observations: u64,
}

/// Cuts requests at once.
pub(crate) struct Instant {
    settings: Settings,
    /// How many requests there were.
    requests: u64,
    transfer: Transfer,
    budget: Budget,
    /// The part of a request that is being cut.
    cutting: Option<Box<Cutting>>,
    /// The rest of that request.
    rest: Option<Rest>,
}

/// What of a request is still to be looked at.
struct Rest {
    profiles: Profiles,
    /// The first of its resources that is not cut yet.
    resource: usize,
    /// The observations of those.
    observations: u64,
    /// When it came.
    now: Now,
}

/// A part of a request that is being cut: a batch in each call.
struct Cutting {
    profiles: Profiles,
    processes: Processes,
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
        let part = size_of_val(self.profiles.resources());
        let way = match &self.way {
            Way::Share(of_resource, _) => of_resource.capacity() * size_of::<Option<u32>>(),
            Way::Copy(buckets) => buckets.iter().map(Bucket::bytes).sum::<usize>(),
        };
        (size_of::<Self>() + part + self.processes.bytes() + self.groups.capacity() * size_of::<Group>() + way) as u64
    }
}

impl Instant {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            requests: 0,
            transfer: Transfer::default(),
            budget: Budget::default(),
            cutting: None,
            rest: None,
        }
    }

    /// Makes the bounds small enough for so much memory.
    pub(crate) fn fit_memory(&mut self, limit: u64) {
        self.settings.fit_memory(limit);
    }

    pub(crate) fn is_cutting(&self) -> bool {
        self.cutting.is_some() || self.rest.is_some()
    }

    /// What is not put out yet.
    pub(crate) fn observations(&self) -> u64 {
        let rest = self.rest.as_ref().map_or(0, |rest| rest.observations);
        self.cutting.as_ref().map_or(0, |cutting| cutting.left) + rest
    }

    /// What is kept, besides the request itself, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.transfer.bytes() as u64 + self.cutting.as_ref().map_or(0, |cutting| cutting.bytes())
    }

    /// Cuts a request, and puts out the first batch.
    pub(crate) fn cut(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        self.budget.earn(profiles.size_bytes());
        let observations = profiles.observations();
        if profiles.resources().len() <= TOGETHER.0 && observations <= TOGETHER.1 {
            self.look_at(profiles, now, out);
        } else {
            self.rest = Some(Rest { profiles, resource: 0, observations, now });
        }
        self.go_on(out);
    }

    /// Looks at the next resources of a request of which a part is cut.
    fn look_at_more(&mut self, out: &mut Outbox) {
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
            Ok(part) => self.look_at(part, now, out),
            // These are resources of the batch itself: it does not happen.
            Err(_) => out.drop_observations(Reason::Malformed, observations),
        }
    }

    /// Sorts out what is in a request, or in a part of one.
    fn look_at(&mut self, profiles: Profiles, now: Now, out: &mut Outbox) {
        let settings = self.settings.clone();
        self.requests += 1;
        let id = RequestId { arrival: now.unix_nano, number: self.requests };
        let mut processes = Processes::new(&profiles, &settings.rules, id);
        let mut groups = Groups::default();
        // The process of each resource, as long as no resource has samples of two.
        let mut of_resource = vec![None; profiles.resources().len()];
        for (at, resource) in profiles.resources().iter().enumerate() {
            for profile in resource.scopes.iter().flat_map(|scope| &scope.profiles) {
                let width = settings.rules.cell_width();
                let refused =
                    groups.look_at(&profiles, &mut processes, at as u32, profile, (width, now), &mut of_resource[at]);
                out.drop_observations(Reason::LimitExceeded, refused);
            }
        }
        groups.note(now, &profiles, out);
        let fits = |group: &Group| {
            group.last - group.first < settings.rules.cell_width() && group.observations <= settings.max_observations
        };
        let (way, left) = if !processes.any_moves() && groups.all.len() <= SHARED && groups.all.iter().all(fits) {
            (Way::Share(of_resource, 0), groups.all.iter().map(|group| group.observations).sum())
        } else {
            let buckets = sort_out(&settings, &profiles, &mut processes, &groups, now, out);
            let left = buckets.iter().map(|bucket| bucket.observations).sum();
            (Way::Copy(buckets.into()), left)
        };
        self.cutting = Some(Box::new(Cutting { profiles, processes, groups: groups.all, way, left }));
    }

    /// Puts out the next batch of the request that is being cut.
    pub(crate) fn go_on(&mut self, out: &mut Outbox) {
        if self.cutting.is_none() {
            self.look_at_more(out);
        }
        let Some(mut cutting) = self.cutting.take() else { return };
        let more = match &cutting.way {
            Way::Share(..) => self.share(&mut cutting, out),
            Way::Copy(..) => self.copy(&mut cutting, out),
        };
        if more {
            self.cutting = Some(cutting);
        } else if self.transfer.bytes() > SCRATCH {
            self.transfer = Transfer::default();
        }
    }

    fn cell(&self, group: &Group) -> Cell {
        Cell { start: group.first, end: group.first.saturating_add(self.settings.rules.cell_width()) }
    }

    /// Sends a batch for the next process; all share the dictionary and the samples. Returns whether there is another.
    fn share(&self, cutting: &mut Cutting, out: &mut Outbox) -> bool {
        let Way::Share(of_resource, next) = &mut cutting.way else { return false };
        let at = std::mem::replace(next, *next + 1);
        let (profiles, groups) = (&cutting.profiles, &cutting.groups);
        let Some(group) = groups.get(at) else { return false };
        let window = Some(self.settings.rules.window(group.identity, self.cell(group)));
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
            Err(_) => out.drop_observations(Reason::Malformed, group.observations),
        }
        at + 1 < groups.len()
    }

    /// Sends the next batch with its own dictionary. Returns whether there is another.
    fn copy(&mut self, cutting: &mut Cutting, out: &mut Outbox) -> bool {
        let Way::Copy(buckets) = &mut cutting.way else { return false };
        while let Some(bucket) = buckets.pop_front() {
            cutting.left -= bucket.observations;
            if self.budget.is_used_up() {
                out.drop_observations(Reason::LimitExceeded, bucket.observations);
                continue;
            }
            match copy_of(&cutting.profiles, &cutting.processes, &bucket, &mut self.transfer) {
                Ok(mut batch) => {
                    self.budget.charge(batch.size_bytes(), bucket.observations);
                    let identity = cutting.groups[bucket.group].identity;
                    batch.window = Some(self.settings.rules.window(identity, bucket.cell));
                    out.send(batch);
                    break;
                }
                Err(_) => out.drop_observations(Reason::LimitExceeded, bucket.observations),
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
        processes: &mut Processes,
        resource: u32,
        profile: &Profile,
        (width, now): (u64, Now),
        of_resource: &mut Option<u32>,
    ) -> u64 {
        if profile.samples.is_empty() {
            return 0;
        }
        let ranged = Ranged::of(profiles, profile, width, now.unix_nano, |set| processes.of(resource, set));
        let start = Cell::of_range(profile, 1, 0, now.unix_nano).start;
        let range = match &ranged {
            Some(ranged) => ranged.extent(),
            None => (start, start.saturating_add(profile.duration_nano.saturating_sub(1))),
        };
        let timed = Timed::of(profiles, profile);
        if !processes.any_moves() {
            let Some(process) = processes.of(resource, None) else { return profiles.observations_of(profile) };
            let at = self.of(processes.get(process).identity);
            *of_resource = Some(at);
            let group = &mut self.all[at as usize];
            for sample in profiles.samples(profile) {
                group.see(&sample, range, timed);
            }
            return 0;
        }
        let mut refused = 0;
        for sample in profiles.samples(profile) {
            let Some(process) = processes.of(resource, sample.attributes) else {
                refused += sample.observations();
                continue;
            };
            let at = self.of(processes.get(process).identity);
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
        let is_far = |time| skew::is_far(time, now.unix_nano);
        if self.all.iter().any(|group| is_far(group.first) || is_far(group.last)) {
            crate::note_skew(profiles, now, out);
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
