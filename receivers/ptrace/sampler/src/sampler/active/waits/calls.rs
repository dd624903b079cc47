//! Finds where a thread was preempted if the kernel may not be sampled, so that no sample of the switch has its
//! registers: by comparing its stack memory with call chains of earlier samples, and by a sample right after it
//! resumes.

use std::time::{Duration, Instant};

use super::WaitStack;
use crate::sampler::active::Active;
use crate::sampler::timeline::Latest;
use crate::unwind::Frame;

/// How many call chains of a thread are kept, how many return addresses of each, and how many bytes of the stack are
/// compared with them.
const MOST_CALLS: usize = 8;
const MOST_RETURNS: usize = 8;
const COMPARED_STACK: usize = 1024;

/// A sample within this time after the switch-in shows where the thread resumed.
const RESUMED_WITHIN: Duration = Duration::from_millis(1);

/// Return addresses on a stack, innermost first: the stack address where each is stored, and its value.
type Returns = Vec<(u64, u64)>;

/// A call chain of an earlier sample of the thread.
#[derive(Debug)]
pub(super) struct Calls {
    returns: Returns,
    standing: WaitStack,
}

/// A wait of a preempted thread. A sample right after the thread resumes will show where it was preempted.
#[derive(Debug)]
pub(in crate::sampler) struct PreemptedWait {
    /// When the wait began.
    since: Instant,
    /// The call chain of the last sample before the wait.
    before: Returns,
    /// The known call chains that match the thread's stack memory during the wait, the newest first.
    meanwhile: Vec<Returns>,
}

impl PreemptedWait {
    /// Whether the thread was preempted where the sample `after` the wait was taken. If its memory matched a third call
    /// chain during the wait, the thread was preempted in that one, which returned right after the thread resumed. The
    /// chain `before` the wait does not count: its memory below the stack pointer may still match after it has
    /// returned.
    fn resumed_where_it_waited(&self, after: &Returns) -> bool {
        self.meanwhile.contains(after) || self.meanwhile.first().is_none_or(|newest| *newest == self.before)
    }
}

/// The return addresses of these frames. Each lies just below the stack pointer of its caller's frame.
fn returns(frames: &[Frame]) -> Returns {
    frames.iter().skip(1).take(MOST_RETURNS).map(|frame| (frame.sp.wrapping_sub(8), frame.pc)).collect()
}

impl Active {
    /// Stores the call chain of a sample for later comparison.
    pub(in crate::sampler) fn keep_calls(&mut self, index: usize, frames: &[Frame], standing: impl Fn() -> WaitStack) {
        if !self.watch.hides_kernel() {
            return;
        }
        let Some(recording) = &mut self.threads[index].recording else { return };
        let returns = returns(frames);
        if returns.is_empty() {
            return;
        }
        let calls = &mut recording.calls;
        let known = calls.iter().position(|of| of.returns == returns);
        if known.is_some() || calls.len() == MOST_CALLS {
            calls.remove(known.unwrap_or(0));
        }
        calls.push_back(Calls { returns, standing: standing().for_other_waits() });
    }

    /// Whether the stack memory of a preempted thread can be compared with call chains.
    pub(in crate::sampler::active) fn may_be_compared(&self, index: usize) -> bool {
        self.threads[index].recording.as_ref().is_some_and(|of| match of.timeline.latest() {
            Latest::Waiting { since, placed, .. } => !placed && of.looked != Some(since) && !of.calls.is_empty(),
            Latest::Unknown | Latest::Running | Latest::Ended => false,
        })
    }

    /// Assigns to a preempted thread the newest known call chain whose return addresses are all on its stack. Returns
    /// whether a sample is needed when the thread resumes.
    pub(in crate::sampler) fn look_at_preempted(&mut self, index: usize) -> bool {
        let is_native = self.stacks_are_native();
        let Some(recording) = &mut self.threads[index].recording else { return false };
        let Latest::Waiting { since, .. } = recording.timeline.latest() else { return false };
        recording.looked = Some(since);
        let Some(lowest) = recording.calls.iter().filter_map(|of| of.returns.first()).map(|(at, _)| *at).min() else {
            return false;
        };
        let mut stack = [0; COMPARED_STACK];
        let read = self.attached.files.read_memory(lowest, &mut stack);
        let stack = &stack[..read];
        let word = |at: u64| {
            let at = usize::try_from(at.wrapping_sub(lowest)).ok()?;
            Some(u64::from_ne_bytes(*stack.get(at..)?.first_chunk()?))
        };
        let stands = |of: &&Calls| {
            let mut words = of.returns.iter().map_while(|&(at, value)| word(at).map(|word| word == value)).peekable();
            words.peek().is_some() && words.all(|same| same)
        };
        let standing: Vec<&Calls> = recording.calls.iter().rev().filter(stands).collect();
        let before = recording.calls.back().map(|of| of.returns.clone()).unwrap_or_default();
        let meanwhile = standing.iter().map(|of| of.returns.clone()).collect();
        let newest = standing.first().map(|of| of.standing.clone());
        recording.preempted = is_native.then_some(PreemptedWait { since, before, meanwhile });
        if let Some(newest) = newest {
            recording.timeline.note_place(since, Instant::now(), newest);
        }
        is_native
    }

    /// Takes the preempted wait that a sample at this time is meant for, if the thread was switched in just before.
    pub(in crate::sampler) fn take_preempted_wait(&mut self, index: usize, at: Instant) -> Option<PreemptedWait> {
        let recording = self.threads[index].recording.as_mut()?;
        let is_near = |since: &Instant| at.saturating_duration_since(*since) < RESUMED_WITHIN;
        recording.timeline.running_since().filter(is_near)?;
        recording.preempted.take()
    }

    /// Assigns the sample taken after a preempted wait to the wait, if the thread was preempted there.
    pub(in crate::sampler) fn place_preempted_wait(
        &mut self,
        index: usize,
        preempted: &PreemptedWait,
        frames: &[Frame],
        standing: impl FnOnce() -> WaitStack,
    ) {
        if preempted.resumed_where_it_waited(&returns(frames)) {
            self.note_place(index, preempted.since, preempted.since, standing());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a preempted thread is assumed to have waited where it resumed, unless its memory matched a third
    /// call chain during the wait, neither the one before nor the one after it.
    #[test]
    fn resumed_where_it_waited() {
        let [before, then, after] = [1, 2, 3].map(|pc| vec![(8, pc)]);
        let rows = [
            (vec![], true),
            (vec![&before], true),
            (vec![&after], true),
            (vec![&then], false),
            (vec![&then, &after], true),
        ];
        for (meanwhile, expected) in rows {
            let meanwhile = meanwhile.into_iter().cloned().collect();
            let preempted = PreemptedWait { since: Instant::now(), before: before.clone(), meanwhile };
            assert_eq!(preempted.resumed_where_it_waited(&after), expected, "{:?}", preempted.meanwhile);
        }
    }
}
