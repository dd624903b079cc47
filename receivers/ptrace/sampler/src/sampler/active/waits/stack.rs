//! The stack of a waiting thread, and what it shares with other waits at the same place.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::frames::native_frames;
use crate::message::{Location, Trust};
use crate::sampler::batch::BatchEntry;
use crate::sampler::contexts::TraceContextReading;
use crate::sampler::interpreters::NamedFrames;

/// The stack of a waiting thread. Two values are equal only if they share the same data.
#[derive(Debug, Clone)]
pub(in crate::sampler) struct WaitStack(pub(super) Rc<ReadStack>);

#[derive(Debug)]
pub(super) struct ReadStack {
    pub(super) trust: Trust,
    pub(super) locations: Vec<Location>,
    pub(super) named: NamedFrames,
    /// The trace context of the thread; `None` if it was not read during this wait.
    pub(super) worked: Option<TraceContextReading>,
    /// Whether the stack was read during this wait, not during another wait at the same place.
    pub(super) is_read: bool,
    /// The index of the stack in the batch that is being built.
    pub(super) entry: Cell<Option<BatchEntry>>,
}

impl WaitStack {
    pub(in crate::sampler) fn new(
        trust: Trust,
        locations: &[Location],
        named: NamedFrames,
        worked: Option<TraceContextReading>,
    ) -> Self {
        let (locations, entry) = (locations.to_vec(), Cell::new(None));
        Self(Rc::new(ReadStack { trust, locations, named, worked, is_read: true, entry }))
    }

    /// A copy for other waits at this place: the place determines the native stack, but not interpreter frames and
    /// context.
    pub(super) fn for_other_waits(self) -> Self {
        if native_frames(&self.0.locations).is_none() {
            return self.with_context(None);
        }
        let ReadStack { trust, locations, named, .. } = &*self.0;
        let (locations, entry) = (locations.clone(), Cell::new(None));
        Self(Rc::new(ReadStack { trust: *trust, locations, named: *named, worked: None, is_read: false, entry }))
    }

    /// A copy for a wait at another time with this trace context (`None` if unknown).
    pub(super) fn with_context(self, worked: Option<&TraceContextReading>) -> Self {
        let ReadStack { trust, locations, named, worked: read, .. } = &*self.0;
        if read.as_ref() == worked { self } else { Self::new(*trust, locations, *named, worked.cloned()) }
    }
}

impl PartialEq for WaitStack {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for WaitStack {}

impl Hash for WaitStack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Rc::as_ptr(&self.0).hash(state);
    }
}
