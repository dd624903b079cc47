//! Passes on profiles that are complete chunks already.
//!
//! A Sentry SDK has already cut such a chunk and given it its ids (`profbridge_model::whole_chunk` describes how it is
//! recognised). It is sent alone, with its own time as its window, and is not held, merged or cut. The rest of its
//! request is processed as usual afterwards.

use std::collections::VecDeque;

use profbridge_engine::component::Outbox;
use profbridge_model::arena::Transfer;
use profbridge_model::compact::Compact;
use profbridge_model::dictionary::Invalid;
use profbridge_model::{ProcessWindow, Profiles, Reason, ResourceProfiles, ScopeProfiles, whole_chunk};

use crate::budget::AmplificationBudget;

/// The maximum number of chunks of a request that share its dictionary. An exporter may scan the whole dictionary for
/// each batch, so with more chunks the work would be quadratic.
const SHARED: usize = 32;

/// The position of a chunk in its request, and its time.
#[derive(Debug)]
struct FoundChunk {
    /// The positions of the chunk's resource, scope and profile, each within the one before.
    place: (usize, usize, usize),
    window: ProcessWindow,
}

/// The chunks of a request, which are sent one by one.
#[derive(Default)]
pub(crate) struct WholeChunks {
    request: Option<ChunkRequest>,
    transfer: Transfer,
    budget: AmplificationBudget,
}

struct ChunkRequest {
    profiles: Profiles,
    found: VecDeque<FoundChunk>,
    is_shared: bool,
    /// The profiles that are not chunks.
    rest: Option<Profiles>,
    /// The number of observations in the chunks that are not sent yet.
    left: u64,
}

impl WholeChunks {
    /// Accepts a request if it contains chunks; otherwise returns it.
    pub(crate) fn take(&mut self, profiles: Profiles) -> Option<Profiles> {
        let found = find(&profiles);
        if found.is_empty() {
            return Some(profiles);
        }
        self.budget.add_allowance(profiles.size_bytes());
        let rest = rest_of(&profiles, &found);
        let left = profiles.observations() - rest.as_ref().map_or(0, Profiles::observations);
        let is_shared = found.len() <= SHARED;
        self.request = Some(ChunkRequest { profiles, found, is_shared, rest, left });
        None
    }

    /// Whether a chunk or the rest of a request is left.
    pub(crate) fn is_busy(&self) -> bool {
        self.request.is_some()
    }

    /// The number of observations that are neither sent nor returned yet.
    pub(crate) fn observations(&self) -> u64 {
        let rest = |request: &ChunkRequest| request.rest.as_ref().map_or(0, Profiles::observations);
        self.request.as_ref().map_or(0, |request| request.left + rest(request))
    }

    /// Memory in addition to the request itself, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let found = self.request.as_ref().map_or(0, |request| request.found.capacity() * size_of::<FoundChunk>());
        (self.transfer.bytes() + found) as u64
    }

    /// Sends the next chunk. Returns the rest of the request once no chunk is left.
    pub(crate) fn go_on(&mut self, out: &mut Outbox) -> Option<Profiles> {
        let request = self.request.as_mut()?;
        while let Some(found) = request.found.pop_front() {
            let (resource, scope, profile) = found.place;
            let profile = &request.profiles.resources()[resource].scopes[scope].profiles[profile];
            let observations = request.profiles.observations_of(profile);
            request.left -= observations;
            if self.budget.is_used_up() && !request.is_shared {
                out.drop_observations(Reason::LimitExceeded, observations);
                continue;
            }
            let is_all = request.rest.is_none() && request.left == 0 && request.profiles.profiles().count() == 1;
            let batch = match (is_all, request.is_shared) {
                (true, _) => Ok(request.profiles.clone()),
                (false, true) => shared(&request.profiles, &found),
                (false, false) => copied(&request.profiles, &found, &mut self.transfer)
                    .inspect(|batch| self.budget.charge(batch.size_bytes(), observations)),
            };
            match batch {
                Ok(mut batch) => {
                    batch.window = Some(found.window);
                    out.send(batch);
                }
                Err(_) => {
                    out.drop_observations(Reason::LimitExceeded, observations);
                    continue;
                }
            }
            if !request.found.is_empty() || request.rest.is_some() {
                return None;
            }
        }
        if self.transfer.bytes() > 1 << 20 {
            self.transfer = Transfer::default();
        }
        self.request.take()?.rest
    }
}

fn find(profiles: &Profiles) -> VecDeque<FoundChunk> {
    let mut all = VecDeque::new();
    for (r, resource) in profiles.resources().iter().enumerate() {
        for (s, scope) in resource.scopes.iter().enumerate() {
            for (p, profile) in scope.profiles.iter().enumerate() {
                if let Some(window) = whole_chunk::window(profiles, resource, profile) {
                    all.push_back(FoundChunk { place: (r, s, p), window });
                }
            }
        }
    }
    all
}

/// The request without its chunks, or `None` if nothing is left.
fn rest_of(profiles: &Profiles, found: &VecDeque<FoundChunk>) -> Option<Profiles> {
    let mut places = found.iter().map(|found| found.place).peekable();
    profiles.map_profiles(|[r, s, p], profile| places.next_if_eq(&(r, s, p)).is_none().then(|| profile.clone()))
}

/// A batch of one chunk that shares the request's dictionary.
fn shared(profiles: &Profiles, found: &FoundChunk) -> Result<Profiles, Invalid> {
    let (r, s, p) = found.place;
    let ResourceProfiles { resource, scopes, schema_url } = &profiles.resources()[r];
    let ScopeProfiles { scope, profiles: all, schema_url: scope_url } = &scopes[s];
    let scope = ScopeProfiles { scope: scope.clone(), profiles: vec![all[p].clone()], schema_url: *scope_url };
    let resource = ResourceProfiles { resource: resource.clone(), scopes: vec![scope], schema_url: *schema_url };
    profiles.with_resources(vec![resource])
}

/// A batch of one chunk with its own dictionary.
fn copied(profiles: &Profiles, found: &FoundChunk, transfer: &mut Transfer) -> Result<Profiles, Invalid> {
    let (r, s, p) = found.place;
    let resource = &profiles.resources()[r];
    let profile = &resource.scopes[s].profiles[p];
    let mut compact = Compact::new(profiles, transfer);
    compact.resource(resource);
    compact.scope(&resource.scopes[s]);
    compact.profile(profile);
    profiles.samples(profile).for_each(|sample| compact.sample(&sample));
    compact.finish()
}
