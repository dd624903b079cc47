use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::runtime::RawFrame;

impl SharedInterpreters {
    /// Adds an interpreter for a test.
    pub(in crate::sampler) fn add(&mut self, instance: Box<dyn Instance>) {
        self.any = true;
        self.in_memory |= !instance.is_native();
        self.lock().add(instance);
    }
}

impl Interpreters {
    /// Adds an interpreter for a test.
    pub(in crate::sampler) fn add(&mut self, instance: Box<dyn Instance>) {
        self.instances.extend(Found::php(0x1000, 0x08_02_00).ok().map(|found| (found, instance)));
    }
}

/// An interpreter whose frames are never complete: because there are `too_many`, or else because they are inconsistent.
/// `frames` says how many frames each reading yields.
#[derive(Debug)]
struct Cut {
    too_many: bool,
    frames: [usize; 3],
    captures: Arc<AtomicU32>,
}

impl Instance for Cut {
    fn capture(
        &mut self,
        _: ThreadKey,
        _: usize,
        _: Instant,
        _: &mut dyn TargetMemory,
        captured: &mut Captured,
    ) -> bool {
        let before = self.captures.fetch_add(1, Ordering::Relaxed);
        let count = self.frames[before as usize];
        captured.frames.resize(count, RawFrame { address: u64::from(before), ..RawFrame::default() });
        (captured.cut, captured.too_many) = (true, self.too_many);
        count > 0
    }

    fn resolve(&mut self, _: &Captured, _: bool, _: &mut dyn TargetMemory, _: &mut Functions, _: &mut Vec<Resolved>) {}

    fn executed(&mut self, _: u64, _: &mut dyn TargetMemory, _: &mut Functions) -> Option<Executed> {
        None
    }

    fn evaluation(&self) -> Option<std::ops::Range<u64>> {
        None
    }
}

/// Reads a running thread's frames. Returns the number of readings, the number of frames, and which reading they are
/// from.
fn read(too_many: bool, frames: [usize; 3], limit: usize) -> (u32, usize, Option<u64>) {
    let files = ProcessFiles::open(std::process::id()).unwrap();
    let captures = Arc::new(AtomicU32::new(0));
    let mut interpreters = Interpreters::default();
    interpreters.add(Box::new(Cut { too_many, frames, captures: Arc::clone(&captures) }));
    let mut interpreted = Interpreted::default();
    interpreters.capture(ThreadKey { id: 1, pointer: 0 }, limit, &files, None, &mut interpreted);
    let frames = &interpreted.captured.frames;
    assert_eq!((interpreted.is_any(), interpreted.captured.cut), (!frames.is_empty(), !frames.is_empty()));
    (captures.load(Ordering::Relaxed), frames.len(), frames.first().map(|frame| frame.address))
}

/// Guarantees: the frames of a running thread are read again if they were inconsistent, but not if there are too many;
/// nor before a stop, when they are read only to warm the caches.
#[test]
fn what_is_read_again() {
    let reads = |too_many, limit| read(too_many, [1; 3], limit).0;
    assert_eq!([reads(false, UNSTOPPED), reads(true, UNSTOPPED)], [ATTEMPTS, 1]);
    assert_eq!([reads(false, WHILE_STOPPED), reads(true, WHILE_STOPPED)], [1, 1]);
}

/// Guarantees: if no reading of a running thread's frames is consistent, the first of those with the most frames is
/// kept.
#[test]
fn most_frames_are_kept() {
    let kept = |frames| read(false, frames, UNSTOPPED);
    assert_eq!(kept([2, 5, 1]), (3, 5, Some(1)));
    assert_eq!(kept([4, 0, 4]), (3, 4, Some(0)));
    assert_eq!(kept([0, 0, 3]), (3, 3, Some(2)));
    assert_eq!(kept([0, 0, 0]), (3, 0, None));
    assert_eq!(read(false, [2, 0, 0], WHILE_STOPPED), (1, 2, Some(0)));
}
