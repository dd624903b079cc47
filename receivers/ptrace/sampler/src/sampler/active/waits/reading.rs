//! Finds out where threads wait, by unwinding their stacks from the registers with which they left their processors.

use std::time::Instant;

use super::stack::WaitStack;
use super::transitions::part_of_thread;
use crate::message::Trust;
use crate::probe::{Activity, SchedStat};
use crate::sampler::active::Active;
use crate::sampler::interpreters::{AtSample, Interpreted, UNSTOPPED};
use crate::sampler::places::WaitPlace;
use crate::sampler::stack_unwinder::StackUnwinder;
use crate::sampler::thread_state::ThreadState;
use crate::sampler::timeline::Latest;
use crate::unwind::Registers;

/// The maximum number of known places per process, and how many are added for each of its threads.
const PLACES: usize = 4096;
const PLACES_OF_THREAD: usize = 4;

/// With how many places that were read in the same tick a new place is compared.
const MOST_COMPARED: usize = 64;

/// A stack that was read while its thread may have run. Later records show whether it did.
#[derive(Debug)]
pub(super) struct UnprovenStack {
    thread: u32,
    from: Instant,
    until: Instant,
    place: WaitPlace,
    standing: WaitStack,
}

impl Active {
    /// The threads to examine in this tick: all threads, or only those whose place the records do not show but an
    /// examination may.
    pub(in crate::sampler) fn threads_in_doubt(&mut self) -> Vec<u32> {
        let generations = (self.attached.space_generation, self.attached.contexts.generation());
        let known = self.defers_records().then_some(generations);
        let is_same = std::mem::replace(&mut self.waits.awake_generations, known) == known;
        if known.is_none() || !is_same {
            self.apply_records();
            self.waits.awake.clear();
            return self.threads.iter().map(ThreadState::id).collect();
        }
        let mut awake: Vec<u32> = self.waits.awake.drain(..).map(|(id, _)| id).collect();
        awake.sort_unstable();
        awake.dedup();
        awake.iter().for_each(|id| self.apply_part(part_of_thread(*id)));
        awake
    }

    /// Schedules a thread for examination in the next tick.
    pub(in crate::sampler::active) fn look_again(&mut self, id: u32) {
        if self.defers_records() {
            self.waits.awake.push((id, Instant::now()));
        }
    }

    /// Whether the native stack is all that has to be known of a waiting thread, because the process has neither
    /// interpreters nor contexts.
    pub(super) fn stacks_are_native(&self) -> bool {
        self.attached.interpreters.is_empty() && !self.attached.contexts.is_read()
    }

    /// Unwinds the stack of a waiting thread from the registers with which it left its processor.
    pub(in crate::sampler) fn look_at_waiting(&mut self, index: usize, unwinder: &mut StackUnwinder) {
        let is_native = self.stacks_are_native();
        let Some(recording) = &mut self.threads[index].recording else { return };
        let (Some(left), Latest::Waiting { since, .. }) = (&recording.waits, recording.timeline.latest()) else {
            return;
        };
        // The registers are from the beginning of the wait. The thread may have run since: records of that arrive
        // later.
        let (mut place, registers, from) = (left.place, left.registers, since);
        if is_native
            && recording.incomplete_in.is_none()
            && self.waits.space_generation == Some(self.attached.space_generation)
        {
            if let Some(standing) = self.waits.known(place, true) {
                return recording.timeline.note_place(from, from, standing);
            }
            // If another thread at the same place was read in this tick, and that reading is confirmed later, it is
            // valid for this thread as well.
            let shared = place.of_any_thread();
            if self.waits.unproven.iter().take(MOST_COMPARED).any(|other| other.place == shared) {
                return;
            }
        }
        recording.looked = Some(since);
        let mut pieces = std::mem::take(&mut unwinder.pieces);
        let files = std::sync::Arc::clone(&self.attached.files);
        pieces.take(registers.stack_pointer(), &left.stack);
        let standing = self.counters_if_blocked_at(index, &registers);
        let mut memory = pieces.live(&files, None);
        let mut outcome = unwinder.unwind(self, &registers, &mut memory);
        let mut interpreted = Interpreted::default();
        self.capture_interpreted(index, UNSTOPPED, None, &mut interpreted);
        let worked = self.attached.contexts.is_read().then(|| self.standing(index));
        let until = Instant::now();
        let at_sample = AtSample { memory: &mut memory, copied: None, ran_on_since: None };
        let mut locations = Vec::new();
        let named = unwinder.name(self, &mut outcome, &interpreted, true, Some(at_sample), &mut locations);
        let is_copied = pieces.sufficed() && is_native;
        if is_copied && outcome.trust == Trust::Complete {
            place = place.of_any_thread();
        }
        unwinder.pieces = pieces;
        if self.are_switches_sampled() {
            // Without switch records, it is known only at the next time the thread leaves its processor that it ran. So
            // compare its counters.
            let task = self.attached.files.task();
            let now = self.threads[index].files.schedstat(task).ok();
            if !is_copied && (standing.is_none() || now != standing) {
                return;
            }
        }
        // The kernel copied this stack just when the thread left its processor.
        let until = if is_copied { from } else { until };
        let is_unknown = outcome.unknown_code.is_some();
        if is_unknown {
            self.attached.reload.want();
        }
        let generation = self.attached.space_generation;
        if let Some(recording) = &mut self.threads[index].recording {
            recording.incomplete_in = (outcome.trust != Trust::Complete).then_some(generation);
            let found = interpreted.is_any() || self.attached.interpreters.is_empty();
            recording.failed_lookups = if found { 0 } else { recording.failed_lookups.saturating_add(1) };
        }
        if outcome.unknown_code == Some(registers.instruction_pointer()) {
            // The stack is read again when the maps have been read. If the wait is over by then, its place stays
            // unknown.
            return;
        }
        let standing = WaitStack::new(outcome.trust, &locations, named, worked);
        let thread = self.threads[index].id();
        self.note_place(index, from, until, standing.clone());
        self.waits.unproven.push(UnprovenStack { thread, from, until, place, standing });
    }

    /// The counters of a thread if it is still blocked with these registers.
    fn counters_if_blocked_at(&mut self, index: usize, registers: &Registers) -> Option<SchedStat> {
        if !self.are_switches_sampled() {
            return None;
        }
        let task = self.attached.files.task();
        let files = &mut self.threads[index].files;
        let counters = files.schedstat(task).ok().filter(SchedStat::kept)?;
        match files.activity(task) {
            Ok(Activity::Blocked { sp, pc, .. })
                if (sp, pc) == (registers.stack_pointer(), registers.instruction_pointer()) =>
            {
                Some(counters)
            }
            _ => None,
        }
    }

    /// Records that a thread was at a place from `from` to `until`.
    pub(in crate::sampler::active) fn note_place(
        &mut self,
        index: usize,
        from: Instant,
        until: Instant,
        standing: WaitStack,
    ) {
        if let Some(recording) = &mut self.threads[index].recording {
            recording.timeline.note_place(from, until, standing);
        }
    }

    /// Stores the stacks that were read since the last call for later waits, if the records now show that their threads
    /// did not run meanwhile.
    pub(in crate::sampler) fn confirm_places(&mut self) {
        for at in 0..self.waits.unproven.len() {
            self.apply_part(part_of_thread(self.waits.unproven[at].thread));
        }
        let most = PLACES + PLACES_OF_THREAD * self.threads.len();
        for UnprovenStack { thread, from, until, place, standing } in std::mem::take(&mut self.waits.unproven) {
            let recording = self.find(thread).and_then(|index| self.threads[index].recording.as_ref());
            if recording.is_some_and(|recording| !recording.timeline.ran_between(from, until)) {
                self.waits.places.insert(place, standing.for_other_waits(), most);
            }
        }
    }
}
