//! Ensures that Sentry lists functions: it only lists those with two samples in a chunk.
//!
//! Sentry's table of functions attributes a sample's time to the innermost in-app function in its stack, except the
//! root frame. It omits a function with only one such sample in a chunk, on any thread (observed with `vroomrs` 0.1.24,
//! which Sentry uses to read chunks). So the only sample of such a function is written as two samples that share its
//! time. Functions are identified as Sentry groups them: by name, and by module or else by binary.

use hashbrown::HashMap;

use profbridge_model::{Dictionary, StackId};

use super::frames::Frames;
use super::plan::ChunkPlan;

/// Finds the stacks whose only sample must be split into two. Memory is reused between chunks.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Number of samples of each function.
    uses: HashMap<u64, u32>,
    /// For each stack of the plan, the function to which its time is attributed; 0 if Sentry does not list that
    /// function.
    owners: Vec<u64>,
    /// For each stack of the plan, whether its only sample must be split.
    pub(super) halved: Vec<bool>,
}

impl Listing {
    /// Heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.uses.allocation_size() + self.owners.capacity() * size_of::<u64>() + self.halved.capacity()
    }

    /// Inspects a plan whose frames have been written. Returns the number of samples to split.
    pub(super) fn find_single_samples(
        &mut self,
        plan: &ChunkPlan,
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
