//! Applies the kernel's context-switch records to threads: when each thread waited, why, and at which place (code
//! address and stack pointer). The stack of a place is read only once.
//!
//! * [`transitions`]: switch records, and the timelines of threads to which they are applied;
//! * [`recording`]: the state of one thread according to these records;
//! * [`reading`]: where a thread waits, by its registers when it left its processor; [`calls`]: by earlier samples;
//! * [`stack`]: the stack of a wait; [`frames`]: interpreter frames for waits in which they were not read;
//! * [`settling`]: samples of waits;
//! * [`costs`]: the cost of records, and which threads are recorded.

mod calls;
mod costs;
mod frames;
mod reading;
mod recording;
mod settling;
mod stack;
mod transitions;

use std::collections::VecDeque;
use std::time::Instant;

pub(in crate::sampler) use self::calls::PreemptedWait;
use self::costs::RecordCosts;
use self::reading::UnprovenStack;
pub(in crate::sampler) use self::recording::{RecordedState, Recording};
pub(in crate::sampler) use self::stack::WaitStack;
use self::transitions::{DeferredRecord, LeavingPlace, PARTS};
use crate::sampler::places::{CodeRanges, Places, WaitPlace};
use crate::sampler::thread_event::MOST_SWITCHES;

/// The known places at which threads of a process wait, and the records that are not applied yet.
#[derive(Debug)]
pub(super) struct Waits {
    places: Places<WaitStack>,
    unproven: Vec<UnprovenStack>,
    code: CodeRanges,
    /// The generation of the address space to which `code` and `places` belong.
    space_generation: Option<u64>,
    /// The latest samples of switches whose records have not arrived yet: rings are read one after the other.
    leaving: VecDeque<(u32, Instant, LeavingPlace)>,
    /// Records that were deferred, so that they are not applied to their threads yet.
    deferred: [Vec<DeferredRecord>; PARTS],
    /// If not all threads are examined in the next tick: those that are, with the time when each left its processor,
    /// and the generations of address space and contexts for which the other threads are known.
    awake: Vec<(u32, Instant)>,
    awake_generations: Option<(u64, u64)>,
    /// The index from which counters are compared with records in this batch, if not all threads are compared.
    compared: usize,
    /// The index of the thread of the last record.
    last: usize,
    costs: RecordCosts,
}

impl Waits {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            places: Places::default(),
            unproven: Vec::new(),
            code: CodeRanges::default(),
            space_generation: None,
            leaving: VecDeque::new(),
            deferred: [const { Vec::new() }; PARTS],
            awake: Vec::new(),
            awake_generations: None,
            compared: 0,
            last: 0,
            costs: RecordCosts { switches: 0, since: now, most: MOST_SWITCHES },
        }
    }

    /// The known stack of a place. Without interpreters and contexts, it may have been read from another thread.
    fn known(&mut self, place: WaitPlace, is_native: bool) -> Option<WaitStack> {
        let shared = if is_native { self.places.get(&place.of_any_thread()).cloned() } else { None };
        shared.or_else(|| self.places.get(&place).cloned())
    }

    /// Called when a thread was given a processor: the place where it waited need not be read any more. Rings are read
    /// one after the other, so the thread may have left its processor again after `at`; then the newer wait stays in
    /// the list.
    fn runs_since(&mut self, thread: u32, at: Instant) {
        if let Some(found) = self.awake.iter().position(|(id, left)| *id == thread && *left <= at) {
            self.awake.swap_remove(found);
        }
    }

    /// Whether records cost so much that threads with many switches may not be recorded.
    pub(super) fn are_expensive(&self) -> bool {
        self.costs.most < MOST_SWITCHES
    }

    /// The largest number of switches per second with which a thread is recorded.
    pub(super) fn most_switches(&self) -> u64 {
        self.costs.most
    }
}
