//! The processes of one request: one for each resource, and for each set of process attributes that its samples
//! carry.

use std::collections::HashMap;

use profbridge_model::{Attribute, AttributeId, AttributeSetId, IdentityStrength, Profiles};

use crate::identity::{Identity, RequestId};
use crate::moves::Moves;
use crate::rules::Rules;

/// The attributes that all processes of a request may have together beyond [`USUAL`] each, where they are told apart
/// by what samples carry: a resource is written for each of them, so that a hundred thousand attributes and as many
/// processes would keep the pipeline busy for an hour.
const MAX_ATTRIBUTES: usize = 2_000_000;

/// So many attributes of a process are not counted. Profilers send up to thirty.
const USUAL: usize = 64;

/// So many processes are remembered. What there is to know of one is found again.
const MOST: usize = 32_768;

/// A process in a request: a resource, and what is moved up into it.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    /// The resource's position.
    pub resource: u32,
    /// Which attributes of samples the resource gets, as a number: 0 is none.
    pub moved: u32,
    /// Who it is.
    pub identity: Identity,
}

/// The processes of a request, each found once.
#[derive(Debug)]
pub struct Processes {
    profiles: Profiles,
    rules: Rules,
    request: RequestId,
    /// How many processes were found, those among them that were forgotten.
    found: u32,
    moves: Moves,
    all: Vec<Process>,
    /// The process of each resource whose samples carry nothing to be moved, one more than its position in `all`.
    plain: Vec<u32>,
    index: HashMap<(u32, u32), u32>,
    /// How many attributes are left of [`MAX_ATTRIBUTES`].
    left: usize,
}

impl Processes {
    /// Of a request; nothing is looked at yet. `request` tells it from all others.
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

    /// Whether there are so many processes that they are better forgotten.
    pub fn are_many(&self) -> bool {
        self.all.len() >= MOST || self.moves.lists() >= MOST
    }

    /// Forgets all processes: what was found is not valid any more.
    pub fn forget(&mut self) {
        (self.all, self.index) = (Vec::new(), HashMap::new());
        self.plain.fill(0);
        self.moves.forget();
    }

    /// The memory that is allocated, in bytes.
    pub fn bytes(&self) -> usize {
        self.all.capacity() * size_of::<Process>()
            + self.plain.capacity() * size_of::<u32>()
            + self.index.capacity() * (size_of::<((u32, u32), u32)>() + 1)
            + self.moves.bytes()
    }

    /// Whether samples can carry something to be moved.
    pub fn any_moves(&self) -> bool {
        self.moves.any()
    }

    /// The process of a sample, given its resource's position and its attributes: a position for [`Processes::get`].
    /// `None` where what samples carry makes more processes than are told apart.
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
        self.all.push(Process { resource, moved, identity });
        self.index.insert((resource, moved), at);
        if moved == 0 {
            self.plain[resource as usize] = at + 1;
        }
        Some(at)
    }

    /// A process, by its position.
    #[inline]
    pub fn get(&self, at: u32) -> Process {
        self.all[at as usize]
    }

    /// What is said of a process, in order of precedence: the first attribute with a key counts. As
    /// [`Processes::merged`], without a list of them.
    pub fn said(&self, process: Process) -> impl Iterator<Item = &Attribute> + Clone {
        self.attributes(process.resource, process.moved)
    }

    /// Attributes in order of precedence: a sample's are nearer to the truth than its resource's.
    fn attributes(&self, resource: u32, moved: u32) -> impl Iterator<Item = &Attribute> + Clone {
        let (dictionary, resources) = (self.profiles.dictionary(), self.profiles.resources());
        let moved = self.moves.list(moved).iter().map(move |&id| dictionary.attribute(id));
        moved.chain(&resources[resource as usize].resource.attributes)
    }

    /// The attributes of a process's resource: those of the resource in their order, with what samples say in place
    /// of what it says, and then what it does not say.
    pub fn merged(&self, process: Process) -> Vec<&Attribute> {
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

    /// What stays in a sample's attribute set when the attributes of its process are moved up.
    pub fn stays(&self, set: Option<AttributeSetId>) -> impl Iterator<Item = Option<AttributeId>> + '_ {
        self.moves.stays(set)
    }
}
