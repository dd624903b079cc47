//! Interpreter frames for waits during which they were not read.
//!
//! The place of a wait (`places.rs`) determines its native frames only: an interpreter stores the frames of its program
//! in other memory. Frames that were read in another wait at the same place may belong to another function. So if
//! frames were not read during a wait, it gets those that the thread had both before and after it, if these agree and
//! are near in time. Otherwise its callers are unknown.

use std::rc::Rc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::stack::{ReadStack, WaitStack};
use crate::message::{Location, Trust};
use crate::runtime::Merged;
use crate::sampler::history::History;
use crate::sampler::interpreters::NamedFrames;
use crate::sampler::timeline::Wait;

/// The interpreter frames that were read from a thread over time, each reading from the innermost frame outwards.
#[derive(Debug, Default)]
pub(in crate::sampler) struct FrameHistory(History<Rc<[Location]>>);

/// The number of native frames before the innermost interpreter frame, or before the frame that replaces unknown
/// callers.
pub(super) fn native_frames(locations: &[Location]) -> Option<usize> {
    locations.iter().position(|of| of.is_interpreted() || *of == Location::CALLERS_NOT_KNOWN)
}

/// The frames common to two readings; lines that differ become 0. `None` if the functions differ.
fn agreed(before: &[Location], after: &[Location]) -> Option<Vec<Location>> {
    let agreed = |pair: (&Location, &Location)| match pair {
        (&Location::Interpreted { function, line }, &Location::Interpreted { function: other, line: other_line }) => {
            let line = if line == other_line { line } else { 0 };
            (function == other).then_some(Location::Interpreted { function, line })
        }
        (before, after) => (!before.is_interpreted() && !after.is_interpreted()).then_some(*before),
    };
    if before.len() != after.len() {
        return None;
    }
    before.iter().zip(after).map(agreed).collect()
}

impl FrameHistory {
    /// Adds the frames of a stack that was the same from `from` to `until`.
    pub(in crate::sampler) fn note(&mut self, from: Instant, until: Instant, locations: &[Location]) {
        let Some(native) = native_frames(locations) else { return };
        let frames = &locations[native..];
        if frames.contains(&Location::CALLERS_NOT_KNOWN) {
            return;
        }
        let known = self.0.last().filter(|known| ***known == *frames);
        let frames = known.map_or_else(|| frames.into(), Rc::clone);
        self.0.note(from, until, frames);
    }

    /// Adds the frames of waits in which they were read, and gives the other waits the frames from before and after
    /// them.
    pub(super) fn complete(&mut self, waits: &mut [Wait<WaitStack>]) {
        let was_read =
            |wait: &Wait<WaitStack>| !wait.shared && wait.place.as_ref().is_some_and(|WaitStack(of)| of.is_read);
        for wait in waits.iter().filter(|wait| was_read(wait)) {
            let Some(WaitStack(found)) = &wait.place else { continue };
            self.note(wait.begins, wait.begins + Duration::from_nanos(wait.nano), &found.locations);
        }
        self.0.sort();
        // Waits with the same stack share it.
        let mut completed = HashMap::<_, WaitStack, foldhash::fast::FixedState>::default();
        for wait in waits.iter_mut().filter(|wait| !was_read(wait)) {
            let Some(WaitStack(found)) = &wait.place else { continue };
            let Some(native) = native_frames(&found.locations) else { continue };
            let around = self.0.around(wait.begins);
            let key = (Rc::as_ptr(found), around.map(|pair| pair.map(Rc::as_ptr)));
            let complete = || found.with_frames(native, around.and_then(|[before, after]| agreed(before, after)));
            let standing = completed.entry(key).or_insert_with(complete).clone();
            wait.place = Some(standing);
        }
        self.0.keep_last();
    }
}

impl ReadStack {
    /// A copy of this stack whose interpreter frames are replaced by these, or by one frame for unknown callers.
    fn with_frames(&self, native: usize, frames: Option<Vec<Location>>) -> WaitStack {
        let native = &self.locations[..native];
        match frames {
            Some(frames) => {
                let trust = if self.trust == Trust::MissingCallers { Trust::Complete } else { self.trust };
                WaitStack::new(trust, &[native, &frames].concat(), self.named, None)
            }
            None => {
                let named = NamedFrames {
                    merged: Merged { missing_callers: 1, ..Merged::default() },
                    ..NamedFrames::default()
                };
                WaitStack::new(Trust::MissingCallers, &[native, &[Location::CALLERS_NOT_KNOWN]].concat(), named, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::timeline::{Cause, ThreadTimeline};

    const NATIVE: Location = Location::Native { mapping: Some(1), address: 0x10 };

    fn frames(functions: &[(u32, u32)]) -> Vec<Location> {
        let frames = functions.iter().map(|&(function, line)| Location::Interpreted { function, line });
        std::iter::once(NATIVE).chain(frames).collect()
    }

    /// Guarantees: a wait in which the interpreter frames were not read gets the frames that its thread had before and
    /// after it, without lines that differ. If these are frames of different functions or far apart in time, the
    /// callers are unknown. A wait in which the frames were read keeps them.
    #[test]
    fn frames_of_other_waits_are_not_believed() {
        let elsewhere =
            WaitStack::new(Trust::Complete, &frames(&[(9, 1)]), NamedFrames::default(), None).for_other_waits();
        let read = WaitStack::new(Trust::Complete, &frames(&[(1, 1)]), NamedFrames::default(), None);
        let unknown = (vec![NATIVE, Location::CALLERS_NOT_KNOWN], Trust::MissingCallers);
        let known = |functions: &[(u32, u32)]| (frames(functions), Trust::Complete);
        let (same, line, other) = ([(1, 1), (2, 7)], [(1, 2), (2, 7)], [(1, 1), (3, 7)]);
        let rows = [
            (&elsewhere, Some(5), same, (20, same), known(&same)),
            (&elsewhere, Some(5), same, (20, line), known(&[(1, 0), (2, 7)])),
            (&elsewhere, Some(5), same, (20, other), unknown.clone()),
            (&elsewhere, Some(5), same, (106, same), unknown.clone()),
            (&elsewhere, None, same, (20, same), unknown),
            (&read, Some(5), same, (20, same), known(&[(1, 1)])),
        ];
        for (standing, before_at, before, (after_at, after), expected) in rows {
            let start = Instant::now();
            let at = |ms| start + Duration::from_millis(ms);
            let mut history = FrameHistory::default();
            before_at.into_iter().for_each(|ms| history.note(at(ms), at(ms), &frames(&before)));
            history.note(at(after_at), at(after_at), &frames(&after));
            let mut thread = ThreadTimeline::new(start);
            thread.switched_in(start);
            thread.switched_out(at(10), Cause::Preempted, Some(standing.clone()));
            thread.switched_in(at(15));
            let mut waits = thread.settle(at(200), None).waits;
            history.complete(&mut waits);
            let [Wait { place: Some(WaitStack(found)), .. }] = &waits[..] else { panic!("{waits:?}") };
            assert_eq!((found.locations.clone(), found.trust), expected);
        }
    }
}
