//! What one request is cut into: for each resource, and for each set of process attributes that its samples carry, the
//! process that they belong to.

use std::collections::HashMap;

use profbridge_model::{Attribute, AttributeSetId, IdentityStrength, Profiles};

use crate::attributes::Moves;
use crate::identity::{Identity, Kind, RequestId, identify};

/// The attributes that all processes of a request may have together, where they are told apart by what samples carry: a
/// resource is written for each of them. A hundred thousand processes with twenty attributes.
const MAX_ATTRIBUTES: usize = 2_000_000;

/// A process in a request: a resource, and what is moved up into it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    /// The resource's position.
    pub(crate) resource: u32,
    /// The list of attributes that samples carry and the resource gets, see [`Moves`]; 0 is none.
    pub(crate) moved: u32,
    pub(crate) identity: Identity,
}

/// The processes of a request, each found once.
pub(crate) struct Targets<'a> {
    profiles: &'a Profiles,
    kinds: &'a [Kind],
    request: RequestId,
    moves: Moves<'a>,
    all: Vec<Target>,
    /// The process of each resource whose samples carry nothing to be moved, one more than its position in `all`.
    plain: Vec<u32>,
    index: HashMap<(u32, u32), u32>,
    /// How many attributes are left of [`MAX_ATTRIBUTES`].
    left: usize,
}

impl<'a> Targets<'a> {
    pub(crate) fn new(profiles: &'a Profiles, kinds: &'a [Kind], request: RequestId) -> Self {
        Self {
            profiles,
            kinds,
            request,
            moves: Moves::new(profiles.dictionary()),
            all: Vec::new(),
            plain: vec![0; profiles.resources().len()],
            index: HashMap::new(),
            left: MAX_ATTRIBUTES,
        }
    }

    /// Whether samples can carry something to be moved.
    pub(crate) fn any_moves(&self) -> bool {
        self.moves.any()
    }

    /// The process of a sample: a position for [`Targets::get`]. `None` where there are too many.
    #[inline]
    pub(crate) fn of(&mut self, resource: u32, attributes: Option<AttributeSetId>) -> Option<u32> {
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
            self.left = self.left.checked_sub(attributes + self.moves.list(moved).len())?;
        }
        let peer = self.profiles.peer.as_deref();
        let identity = identify(self.profiles.dictionary(), self.attributes(resource, moved), peer, self.kinds);
        let at = self.all.len() as u32;
        let merges = identity.strength == IdentityStrength::Strong || !self.profiles.relayed;
        let identity = if merges { identity } else { identity.alone(self.request, at) };
        self.all.push(Target { resource, moved, identity });
        self.index.insert((resource, moved), at);
        if moved == 0 {
            self.plain[resource as usize] = at + 1;
        }
        Some(at)
    }

    /// A process.
    #[inline]
    pub(crate) fn get(&self, at: u32) -> Target {
        self.all[at as usize]
    }

    /// Attributes in order of precedence: a sample's are nearer to the truth than its resource's.
    fn attributes(&self, resource: u32, moved: u32) -> impl Iterator<Item = &'a Attribute> + Clone + use<'_, 'a> {
        let (dictionary, resources) = (self.profiles.dictionary(), self.profiles.resources());
        let moved = self.moves.list(moved).iter().map(move |&id| dictionary.attribute(id));
        moved.chain(&resources[resource as usize].resource.attributes)
    }

    /// The attributes of a process's resource: those of the resource in their order, with what samples say in place of
    /// what it says, and then what it does not say.
    pub(crate) fn merged(&self, target: Target) -> Vec<&'a Attribute> {
        let dictionary = self.profiles.dictionary();
        let resource = &self.profiles.resources()[target.resource as usize].resource;
        let mut moved: Vec<_> =
            self.moves.list(target.moved).iter().map(|&id| Some(dictionary.attribute(id))).collect();
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

    /// What stays in a sample's attribute set.
    pub(crate) fn stays(
        &self,
        set: Option<AttributeSetId>,
    ) -> impl Iterator<Item = Option<profbridge_model::AttributeId>> + '_ {
        self.moves.stays(set)
    }
}
