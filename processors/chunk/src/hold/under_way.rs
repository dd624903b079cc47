//! A request that is being taken in, and what was found about it.

use std::collections::{HashMap, HashSet};

use profbridge_engine::component::Now;
use profbridge_identity::{Processes, RequestId};
use profbridge_model::arena::Transfer;
use profbridge_model::held::{HeldResource, HeldScope};
use profbridge_model::{AttributeSetId, Position, Profiles};

use crate::config::Settings;
use crate::parts::{self, Ranged, Timed};

/// What was found about a request is forgotten when it is more than this, in entries: it is found again.
pub(super) const MEMO: usize = 32_768;

/// A request that is being taken in.
pub(super) struct UnderWay {
    pub(super) profiles: Profiles,
    pub(super) processes: Processes,
    /// When it came.
    pub(super) now: Now,
    pub(super) at: Position,
    /// So many closed windows may wait to be put out while it is taken in.
    pub(super) may_wait: usize,
    /// Observations that are neither in a window nor lost yet.
    pub(super) left: u64,
    pub(super) carried: Vec<Carried>,
    /// How the values of the profile at hand tell time, and where they lie if it is longer than a window.
    pub(super) timed: Option<Timed>,
    pub(super) ranged: Option<Ranged>,
    /// How many parts observations may still be divided into, beyond the first of each.
    pub(super) parts: u64,
    /// The resources of processes, and the scopes of resources, in the windows that they got to, by the windows' order.
    pub(super) resources: HashMap<(u32, u64), u32>,
    pub(super) scopes: HashMap<(u32, u32, u64), u32>,
    /// Processes that got something.
    pub(super) touched: HashSet<u128>,
    /// Processes of the resource at hand of which nothing else will come.
    pub(super) alone: HashSet<u128>,
    /// Observations of processes that were not identified, not noted yet.
    pub(super) weak: u64,
}

/// What was carried into one arena.
pub(super) struct Carried {
    /// The arena, and its number: another one may get its place.
    pub(super) epoch: u32,
    pub(super) number: u64,
    pub(super) transfer: Transfer,
    /// Attribute sets without what was moved out of them.
    pub(super) kept: HashMap<AttributeSetId, Option<AttributeSetId>>,
    /// The resources of processes, and the scopes of resources.
    pub(super) resources: HashMap<u32, HeldResource>,
    pub(super) scopes: HashMap<(u32, u32), HeldScope>,
}

impl Carried {
    pub(super) fn new(epoch: u32, number: u64) -> Self {
        Self {
            epoch,
            number,
            transfer: Transfer::default(),
            kept: HashMap::new(),
            resources: HashMap::new(),
            scopes: HashMap::new(),
        }
    }

    pub(super) fn entries(&self) -> usize {
        self.kept.len() + self.resources.len() + self.scopes.len()
    }

    /// Rough, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.transfer.bytes()
            + self.kept.capacity() * (size_of::<(AttributeSetId, Option<AttributeSetId>)>() + 1)
            + self.resources.capacity() * (size_of::<(u32, HeldResource)>() + 1)
            + self.scopes.capacity() * (size_of::<((u32, u32), HeldScope)>() + 1)
    }
}

impl UnderWay {
    pub(super) fn new(profiles: Profiles, settings: &Settings, id: RequestId, now: Now) -> Self {
        Self {
            processes: Processes::new(&profiles, &settings.rules, id),
            left: profiles.observations(),
            timed: None,
            ranged: None,
            parts: parts::allowance(profiles.observations()),
            profiles,
            now,
            at: Position::default(),
            may_wait: usize::MAX,
            carried: Vec::new(),
            resources: HashMap::new(),
            scopes: HashMap::new(),
            touched: HashSet::new(),
            alone: HashSet::new(),
            weak: 0,
        }
    }

    /// The memory that is taken besides the request itself, which is charged to whoever sent it. Rough, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = size_of::<Self>()
            + self.processes.bytes()
            + self.carried.iter().map(Carried::bytes).sum::<usize>()
            + self.resources.capacity() * (size_of::<((u32, u64), u32)>() + 1)
            + self.scopes.capacity() * (size_of::<((u32, u32, u64), u32)>() + 1)
            + (self.touched.capacity() + self.alone.capacity()) * (size_of::<u128>() + 1);
        bytes as u64
    }

    /// Forgets what can be found again, where it has become much. Returns whether it did.
    pub(super) fn forget_much(&mut self) -> bool {
        let known = self.carried.iter().map(Carried::entries).sum::<usize>() + self.resources.len() + self.scopes.len();
        // Where values without timestamps lie is remembered by process.
        let is_much = self.ranged.is_none() && (known >= MEMO || self.processes.are_many());
        if is_much {
            self.processes.forget();
            (self.resources, self.scopes) = (HashMap::new(), HashMap::new());
            for carried in &mut self.carried {
                (carried.kept, carried.resources, carried.scopes) = (HashMap::new(), HashMap::new(), HashMap::new());
            }
        }
        is_much
    }
}
