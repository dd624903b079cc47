//! Where a thread waits for a processor, where the kernel may not be seen: nobody knows its registers then. Its memory is
//! compared with the calls in which it was met, and a sample is taken where it goes on.

use std::time::{Duration, Instant};

use super::Standing;
use crate::sampler::active::Active;
use crate::sampler::timeline::Latest;
use crate::unwind::Frame;

/// How many of the calls in which a thread was met are remembered, how many callers of each, and how much of a stack is
/// compared with them, in bytes.
const MOST_CALLS: usize = 8;
const MOST_RETURNS: usize = 8;
const COMPARED_STACK: usize = 1024;

/// A sample so soon after a thread was given a processor shows where it goes on.
const GOES_ON: Duration = Duration::from_millis(1);

/// Where a stack has return addresses, and which, the innermost first.
type Returns = Vec<(u64, u64)>;

/// Calls in which a thread was met.
#[derive(Debug)]
pub(super) struct Calls {
    returns: Returns,
    standing: Standing,
}

/// What is known of where a thread waits for a processor before it goes on.
#[derive(Debug)]
pub(in crate::sampler) struct Resumes {
    /// When the wait began.
    since: Instant,
    /// The calls in which it was met last before that, and those that its memory showed during the wait.
    before: Returns,
    meanwhile: Option<Returns>,
}

impl Resumes {
    /// Whether it waited where it goes on: memory knows better only where it shows neither that nor what was before,
    /// as it does of a function that was called since then and returns at once when it goes on.
    fn waited_behind(&self, behind: &Returns) -> bool {
        self.meanwhile.as_ref().is_none_or(|meanwhile| meanwhile == behind || *meanwhile == self.before)
    }
}

/// The return addresses of these frames: a caller's part of the stack begins behind the return address into it.
fn returns(frames: &[Frame]) -> Returns {
    frames.iter().skip(1).take(MOST_RETURNS).map(|frame| (frame.sp.wrapping_sub(8), frame.pc)).collect()
}

impl Active {
    /// A thread was in these calls when it was sampled, or waited in them.
    pub(in crate::sampler) fn saw_calls(&mut self, index: usize, frames: &[Frame], standing: impl Fn() -> Standing) {
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
        calls.push_back(Calls { returns, standing: standing() });
    }

    /// Whether it may be found out by its memory where a thread waits that is ready to run.
    pub(in crate::sampler::active) fn may_be_compared(&self, index: usize) -> bool {
        self.threads[index].recording.as_ref().is_some_and(|of| match of.timeline.latest() {
            Latest::Waiting { since, placed, .. } => !placed && of.looked != Some(since) && !of.calls.is_empty(),
            Latest::Unknown | Latest::Running | Latest::Ended => false,
        })
    }

    /// Finds out in which of the calls in which a thread was met it waits for a processor: the newest whose return
    /// addresses are all on its stack. Where no samples of switches are permitted, nobody knows its registers.
    /// Returns whether a sample of where it goes on is to tell more.
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
        let found = recording.calls.iter().rev().find(stands);
        let before = recording.calls.back().map(|of| of.returns.clone()).unwrap_or_default();
        let meanwhile = found.map(|of| of.returns.clone());
        recording.resumes = is_native.then_some(Resumes { since, before, meanwhile });
        if let Some(standing) = found.map(|of| of.standing.clone()) {
            recording.timeline.stood(since, Instant::now(), standing);
        }
        is_native
    }

    /// A thread that waited for a processor goes on: returns what is known of that wait, if this was just now.
    pub(in crate::sampler) fn goes_on_at(&mut self, index: usize, at: Instant) -> Option<Resumes> {
        let recording = self.threads[index].recording.as_mut()?;
        let is_near = |since: &Instant| at.saturating_duration_since(*since) < GOES_ON;
        recording.timeline.running_since().filter(is_near)?;
        recording.resumes.take()
    }

    /// A thread goes on here after a wait for a processor. It goes on where it waited, a moment later.
    pub(in crate::sampler) fn went_on(
        &mut self,
        index: usize,
        resumes: &Resumes,
        frames: &[Frame],
        standing: impl FnOnce() -> Standing,
    ) {
        if resumes.waited_behind(&returns(frames)) {
            self.stood(index, resumes.since, resumes.since, standing());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a thread that was kept from its processor waited where it goes on, unless its memory showed meanwhile
    /// calls that are neither those nor those of before: then there, since they were begun and are over.
    #[test]
    fn waited_behind() {
        let [before, then, behind] = [1, 2, 3].map(|pc| vec![(8, pc)]);
        let rows = [(None, true), (Some(&before), true), (Some(&behind), true), (Some(&then), false)];
        for (meanwhile, expected) in rows {
            let resumes = Resumes { since: Instant::now(), before: before.clone(), meanwhile: meanwhile.cloned() };
            assert_eq!(resumes.waited_behind(&behind), expected, "{meanwhile:?}");
        }
    }
}
