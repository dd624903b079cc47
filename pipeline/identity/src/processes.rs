//! The processes of one request: one for each resource, and for each distinct set of process attributes in its samples.

use std::collections::HashMap;

use profbridge_model::{Attribute, AttributeId, AttributeSetId, IdentityStrength, Profiles};

use crate::identity::{Identity, RequestId};
use crate::moves::Moves;
use crate::rules::Rules;

/// If sample attributes distinguish processes, all processes of a request together may have this many attributes beyond
/// [`USUAL`] each. A resource is written for each process, so a hundred thousand attributes and as many processes would
/// keep the pipeline busy for an hour.
const MAX_ATTRIBUTES: usize = 2_000_000;

/// The number of attributes per process that do not count against [`MAX_ATTRIBUTES`]. Profilers send up to thirty.
const USUAL: usize = 64;

/// The maximum number of stored processes. Forgotten ones can be computed again.
const MOST: usize = 32_768;

/// A process in a request: a resource, and the sample attributes that move into it.
#[derive(Debug, Clone, Copy)]
pub struct IdentifiedProcess {
    /// The resource's position.
    pub resource: u32,
    /// The list of sample attributes that move to the resource; 0 for none.
    pub moved: u32,
    /// The identity of the process.
    pub identity: Identity,
}

/// The processes of a request, each found once.
#[derive(Debug)]
pub struct Processes {
    profiles: Profiles,
    rules: Rules,
    request: RequestId,
    /// The number of processes found, including forgotten ones.
    found: u32,
    moves: Moves,
    all: Vec<IdentifiedProcess>,
    /// For each resource, the process of samples without moving attributes: its position in `all` plus one.
    plain: Vec<u32>,
    index: HashMap<(u32, u32), u32>,
    /// The part of [`MAX_ATTRIBUTES`] that is left.
    left: usize,
}

impl Processes {
    /// Prepares a request without examining it yet. `request` distinguishes it from all others.
    pub fn new(profiles: &Profiles, rules: &Rules, request: RequestId) -> Self {
        Self {
            profiles: profiles.clone(),
            rules: rules.clone(),
            request,
            found: 0,
            moves: Moves::new(profiles.dictionary()),
            all: Vec::new(),
            plain: vec![0; profiles.resources().len()],
            index: HashMap::new(),
            left: MAX_ATTRIBUTES,
        }
    }

    /// Whether so many processes are stored that the caller should call [`Processes::forget`].
    pub fn are_many(&self) -> bool {
        self.all.len() >= MOST || self.moves.lists() >= MOST
    }

    /// Forgets all processes, so that earlier positions become invalid.
    pub fn forget(&mut self) {
        (self.all, self.index) = (Vec::new(), HashMap::new());
        self.plain.fill(0);
        self.moves.forget();
    }

    /// Allocated memory in bytes.
    pub fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<IdentifiedProcess>()
            + self.plain.capacity() * size_of::<u32>()
            + self.index.capacity() * (size_of::<((u32, u32), u32)>() + 1)
            + self.moves.bytes()
    }

    /// Whether samples may have attributes that move.
    pub fn any_moves(&self) -> bool {
        self.moves.any()
    }

    /// The process of a sample, given its resource's position and its attributes, as a position for [`Processes::get`].
    /// `None` if the processes would exceed `MAX_ATTRIBUTES`.
    #[inline]
    pub fn of(&mut self, resource: u32, attributes: Option<AttributeSetId>) -> Option<u32> {
        match (self.moves.of(attributes), self.plain[resource as usize]) {
            (0, known) if known > 0 => Some(known - 1),
            (moved, _) => self.find(resource, moved),
        }
    }

    fn find(&mut self, resource: u32, moved: u32) -> Option<u32> {
        if let Some(&known) = self.index.get(&(resource, moved)) {
            return Some(known);
        }
        if moved > 0 {
            let attributes = self.profiles.resources()[resource as usize].resource.attributes.len();
            let unusual = (attributes + self.moves.list(moved).len()).saturating_sub(USUAL);
            self.left = self.left.checked_sub(unusual)?;
        }
        let peer = self.profiles.peer.as_deref();
        let identity = self.rules.identify(self.profiles.dictionary(), self.attributes(resource, moved), peer);
        let at = self.all.len() as u32;
        let merges = identity.strength == IdentityStrength::Strong || !self.profiles.relayed;
        let identity = if merges { identity } else { identity.alone(self.request, self.found) };
        self.found = self.found.wrapping_add(1);
        self.all.push(IdentifiedProcess { resource, moved, identity });
        self.index.insert((resource, moved), at);
        if moved == 0 {
            self.plain[resource as usize] = at + 1;
        }
        Some(at)
    }

    /// A process, by its position.
    #[inline]
    pub fn get(&self, at: u32) -> IdentifiedProcess {
        self.all[at as usize]
    }

    /// The attributes of a process in order of precedence: if several have the same key, the first one counts. Like
    /// [`Processes::merged`], but without allocating a list.
    pub fn claimed_attributes(&self, process: IdentifiedProcess) -> impl Iterator<Item = &Attribute> + Clone {
        self.attributes(process.resource, process.moved)
    }

    /// Attributes in order of precedence: a sample's attributes are more specific than its resource's.
    fn attributes(&self, resource: u32, moved: u32) -> impl Iterator<Item = &Attribute> + Clone {
        let (dictionary, resources) = (self.profiles.dictionary(), self.profiles.resources());
        let moved = self.moves.list(moved).iter().map(move |&id| dictionary.attribute(id));
        moved.chain(&resources[resource as usize].resource.attributes)
    }

    /// The attributes for a process's resource: those of the resource in their order, replaced by sample attributes
    /// with the same key, followed by the remaining sample attributes.
    pub fn merged(&self, process: IdentifiedProcess) -> Vec<&Attribute> {
        let dictionary = self.profiles.dictionary();
        let resource = &self.profiles.resources()[process.resource as usize].resource;
        let mut moved: Vec<_> =
            self.moves.list(process.moved).iter().map(|&id| Some(dictionary.attribute(id))).collect();
        let keys: HashMap<&str, usize> = moved
            .iter()
            .enumerate()
            .filter_map(|(at, moved)| Some((dictionary.string((*moved)?.key), at)))
            .rev()
            .collect();
        let mut merged = Vec::with_capacity(resource.attributes.len() + moved.len());
        for attribute in &resource.attributes {
            let nearer = keys.get(dictionary.string(attribute.key)).and_then(|&at| moved[at].take());
            merged.push(nearer.unwrap_or(attribute));
        }
        merged.extend(moved.into_iter().flatten());
        merged
    }

    /// The attributes that stay in a sample's set when those of the process move.
    pub fn stays(&self, set: Option<AttributeSetId>) -> impl Iterator<Item = Option<AttributeId>> + '_ {
        self.moves.stays(set)
    }
}
