//! What Sentry lists: a function needs two samples in a chunk.
//!
//! Sentry's table of functions gives a sample's time to the innermost function of own code in its stack, the root frame
//! aside, and leaves out a function with only one such sample in a chunk, whichever thread that is on (observed with
//! `vroomrs` 0.1.24, with which Sentry reads chunks). So the one sample of such a function is written as two that share
//! its time. Functions are told apart as Sentry groups them: by module, else by the file of the code, and by name.

use hashbrown::HashMap;

use profbridge_model::{Dictionary, StackId};

use super::frames::Frames;
use super::plan::Plan;

/// Finds the stacks whose one sample has to become two. Its memory is reused from chunk to chunk.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The samples of each function.
    uses: HashMap<u64, u32>,
    /// The function that owns the time of each of the plan's stacks; 0 where it is none that is listed.
    owners: Vec<u64>,
    /// Whether the one sample of a stack of the plan is to be halved.
    pub(super) halved: Vec<bool>,
}

impl Listing {
    /// The memory that is allocated, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.uses.allocation_size() + self.owners.capacity() * size_of::<u64>() + self.halved.capacity()
    }

    /// Looks at a plan whose frames are written. Returns how many samples there are to be halved.
    pub(super) fn look_at(
        &mut self,
        plan: &Plan,
        frames: &Frames,
        dictionary: &Dictionary,
        stacks: &[StackId],
    ) -> usize {
        if plan.uses.iter().all(|&uses| uses > 1) {
            return 0;
        }
        self.uses.clear();
        self.owners.clear();
        for (&stack, &uses) in plan.stacks.iter().zip(&plan.uses) {
            let owner = frames.owner(dictionary, stacks[stack as usize]);
            self.owners.push(owner);
            if owner != 0 {
                *self.uses.entry(owner).or_default() += uses;
            }
        }
        self.halved.clear();
        self.halved.extend(self.owners.iter().map(|owner| self.uses.get(owner) == Some(&1)));
        self.halved.iter().filter(|&&halved| halved).count()
    }
}
