use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::runtime::RawFrame;

impl SharedInterpreters {
    /// Adds a reader of nothing that was found.
    pub(in crate::sampler) fn add(&mut self, instance: Box<dyn Instance>) {
        self.any = true;
        self.in_memory |= !instance.is_native();
        self.lock().add(instance);
    }
}

impl Interpreters {
    /// Adds a reader of nothing that was found.
    pub(in crate::sampler) fn add(&mut self, instance: Box<dyn Instance>) {
        self.instances.extend(Found::php(0x1000, 0x08_02_00).ok().map(|found| (found, instance)));
    }
}

/// An interpreter whose frames are always cut, for the one reason or the other, of which there are as many as this says
/// for each time that they are read.
#[derive(Debug)]
struct Cut {
    too_many: bool,
    frames: [usize; 3],
    captures: Arc<AtomicU32>,
}

impl Instance for Cut {
    fn capture(&mut self, _: ThreadKey, _: usize, _: Instant, _: &mut dyn Target, captured: &mut Captured) -> bool {
        let before = self.captures.fetch_add(1, Ordering::Relaxed);
        let count = self.frames[before as usize];
        captured.frames.resize(count, RawFrame { address: u64::from(before), ..RawFrame::default() });
        (captured.cut, captured.too_many) = (true, self.too_many);
        count > 0
    }

    fn resolve(&mut self, _: &Captured, _: bool, _: &mut dyn Target, _: &mut Functions, _: &mut Vec<Resolved>) {}

    fn executed(&mut self, _: u64, _: &mut dyn Target, _: &mut Functions) -> Option<Executed> {
        None
    }

    fn evaluation(&self) -> Option<std::ops::Range<u64>> {
        None
    }
}

/// What comes of reading a running thread's frames: how often they are read, how many there are, and which reading they
/// are of.
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

/// Guarantees: the frames of a running thread are read again if they made no sense, and not because there are more than
/// may be read; nor before a stop, where reading them is to no other end than that the next time is quicker.
#[test]
fn what_is_read_again() {
    let reads = |too_many, limit| read(too_many, [1; 3], limit).0;
    assert_eq!([reads(false, UNSTOPPED), reads(true, UNSTOPPED)], [ATTEMPTS, 1]);
    assert_eq!([reads(false, WHILE_STOPPED), reads(true, WHILE_STOPPED)], [1, 1]);
}

/// Guarantees: where frames of a running thread make no sense each time, those of the first reading are kept that had
/// most of them.
#[test]
fn most_frames_are_kept() {
    let kept = |frames| read(false, frames, UNSTOPPED);
    assert_eq!(kept([2, 5, 1]), (3, 5, Some(1)));
    assert_eq!(kept([4, 0, 4]), (3, 4, Some(0)));
    assert_eq!(kept([0, 0, 3]), (3, 3, Some(2)));
    assert_eq!(kept([0, 0, 0]), (3, 0, None));
    assert_eq!(read(false, [2, 0, 0], WHILE_STOPPED), (1, 2, Some(0)));
}
