//! A request that is partly absorbed, and what is known about it.

use std::collections::{HashMap, HashSet};

use profbridge_engine::component::Now;
use profbridge_identity::Processes;
use profbridge_model::{Attribute, AttributeId, AttributeSetId, Position, Profiles};
use profbridge_windows::{Intake, MEMO, Rewrite, ScopedProfile};

use crate::config::Settings;
use crate::divide::Divider;
use crate::key::ProcessCell;

pub(super) struct PartlyAbsorbedRequest {
    pub(super) profiles: Profiles,
    pub(super) at: Position,
    pub(super) divider: Divider,
    pub(super) found: RequestProgress,
}

/// What is known about a request.
pub(super) struct RequestProgress {
    pub(super) processes: MovedAttributes,
    /// The starts of cells by process hash, where they are not at the usual boundaries.
    pub(super) phases: HashMap<u128, u64>,
    /// The arrival time.
    pub(super) now: Now,
    /// The maximum number of closed windows that may wait to be flushed while the request is absorbed.
    pub(super) may_wait: usize,
    /// The number of observations that are neither in a window nor lost yet.
    pub(super) left: u64,
    pub(super) intake: Intake<ProcessCell>,
    /// Processes that got observations.
    pub(super) touched: HashSet<u128>,
    /// Processes that occur only in the current resource.
    pub(super) alone: HashSet<u128>,
    /// The number of observations of unidentified processes that are not yet counted in a note.
    pub(super) weak: u64,
}

/// The processes of a request. Process attributes of samples move to the samples' resources.
pub(super) struct MovedAttributes(pub(super) Processes);

impl Rewrite for MovedAttributes {
    fn attributes<'a>(&'a self, _place: &ScopedProfile<'a>, process: u32) -> Vec<&'a Attribute> {
        self.0.merged(self.0.get(process))
    }

    fn stays(&self, set: AttributeSetId) -> impl Iterator<Item = Option<AttributeId>> {
        self.0.stays(Some(set))
    }
}

impl PartlyAbsorbedRequest {
    pub(super) fn new(
        profiles: Profiles,
        processes: Processes,
        phases: HashMap<u128, u64>,
        settings: &Settings,
        now: Now,
    ) -> Self {
        let (left, width) = (profiles.observations(), settings.rules.cell_width());
        let found = RequestProgress {
            processes: MovedAttributes(processes),
            phases,
            now,
            may_wait: usize::MAX,
            left,
            intake: Intake::default(),
            touched: HashSet::new(),
            alone: HashSet::new(),
            weak: 0,
        };
        let divider = Divider::new(left, width, settings.max_observations, now.unix_nano);
        Self { profiles, at: Position::default(), divider, found }
    }

    /// Approximate memory in addition to the request itself, in bytes. It is charged to the sender.
    pub(super) fn bytes(&self) -> u64 {
        let RequestProgress { processes, phases, intake, touched, alone, .. } = &self.found;
        let sets = (touched.capacity() + alone.capacity()) * (size_of::<u128>() + 1)
            + phases.capacity() * (size_of::<(u128, u64)>() + 1);
        (size_of::<Self>() + processes.0.bytes() + intake.bytes() + sets) as u64
    }
}

impl RequestProgress {
    /// Drops large lookup tables that can be rebuilt.
    pub(super) fn forget_much(&mut self) {
        if self.intake.entries() >= MEMO || self.processes.0.are_many() {
            self.processes.0.forget();
            self.intake.forget();
        }
    }
}
