//! Reads an interpreter from a recording.

use std::time::{Duration, Instant};

use super::Recording;
use crate::message::{Function, Location};
use crate::runtime::{Captured, Executed, Functions, Instance, MAX_FRAMES, Resolved, Target, ThreadKey};

/// How long after a sample its frames are read.
const LATER: Duration = Duration::from_secs(1);

/// An interpreter, and the functions read so far.
pub(in crate::runtime) struct Reader {
    pub(in crate::runtime) instance: Box<dyn Instance>,
    pub(in crate::runtime) functions: Functions,
    pub(in crate::runtime) told: Vec<Function>,
    pub(in crate::runtime) now: Instant,
    pub(in crate::runtime) captured: Captured,
    pub(in crate::runtime) resolved: Vec<Resolved>,
}

/// Name, file and line of a frame.
pub(in crate::runtime) type Told = (String, String, u32);

impl Reader {
    /// A reader that has read nothing yet; `None` if there is no interpreter.
    pub(in crate::runtime) fn new(recording: &mut Recording) -> Option<Self> {
        Some(Self {
            instance: recording.found().ok()?.instance(),
            functions: Functions::default(),
            told: Vec::new(),
            now: Instant::now(),
            captured: Captured::default(),
            resolved: Vec::new(),
        })
    }

    /// The thread of a recording.
    pub(in crate::runtime) fn key(recording: &Recording) -> ThreadKey {
        ThreadKey { id: recording.thread, pointer: recording.pointer }
    }

    /// Reads a stack, some time after the last one. The thread is stopped if `stands`; otherwise it was sampled a
    /// second ago.
    pub(in crate::runtime) fn read(&mut self, recording: &mut Recording, stands: bool) -> Vec<Told> {
        self.instance.sampled(None, self.now);
        self.now += Duration::from_secs(60);
        let sampled = (!stands).then(|| self.now - LATER);
        self.read_of(recording, sampled)
    }

    /// The same for a sample taken at `sampled`, whose thread has run since; `None` if it is stopped.
    pub(in crate::runtime) fn read_of(&mut self, recording: &mut Recording, sampled: Option<Instant>) -> Vec<Told> {
        if !self.instance.capture(Self::key(recording), MAX_FRAMES, self.now, recording, &mut self.captured) {
            return Vec::new();
        }
        self.instance.sampled(sampled, self.now);
        self.resolve(recording, sampled.is_none())
    }

    /// Resolves the frames that were read.
    pub(in crate::runtime) fn resolve(&mut self, target: &mut dyn Target, stands: bool) -> Vec<Told> {
        self.instance.resolve(&self.captured, stands, target, &mut self.functions, &mut self.resolved);
        assert_eq!(self.resolved.len(), self.captured.frames.len());
        let locations: Vec<Location> = self.resolved.iter().filter_map(|frame| frame.location).collect();
        locations.into_iter().map(|location| self.text(location)).collect()
    }

    /// The name, file and line of a location.
    pub(in crate::runtime) fn text(&mut self, location: Location) -> Told {
        if let Some((first, fresh)) = self.functions.take_fresh() {
            assert_eq!(first as usize, self.told.len());
            self.told.extend(fresh);
        }
        let Location::Interpreted { function, line } = location else { return Told::default() };
        let Function { name, file, .. } = &self.told[function as usize];
        (name.clone(), file.clone(), line)
    }

    /// The function at an address, and whether others share its instructions.
    pub(in crate::runtime) fn executed(&mut self, address: u64, target: &mut dyn Target) -> Option<(Told, bool)> {
        let Executed { resolved, shared, .. } = self.instance.executed(address, target, &mut self.functions)?;
        Some((self.text(resolved.location?), shared))
    }
}
