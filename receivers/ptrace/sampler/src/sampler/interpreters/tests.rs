use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// An interpreter whose frames are always cut, for the one reason or the other.
#[derive(Debug)]
struct Cut {
    too_many: bool,
    captures: Arc<AtomicU32>,
}

impl Instance for Cut {
    fn capture(&mut self, _: ThreadKey, _: usize, _: Instant, _: &mut dyn Target, captured: &mut Captured) -> bool {
        self.captures.fetch_add(1, Ordering::Relaxed);
        (captured.cut, captured.too_many) = (true, self.too_many);
        true
    }

    fn resolve(&mut self, _: &Captured, _: bool, _: &mut dyn Target, _: &mut Functions, _: &mut Vec<Resolved>) {}

    fn executed(&mut self, _: u64, _: &mut dyn Target, _: &mut Functions) -> Option<Executed> {
        None
    }

    fn evaluation(&self) -> Option<std::ops::Range<u64>> {
        None
    }
}

/// Guarantees: the frames of a running thread are read again if they made no sense, and not because there are more than
/// may be read; nor before a stop, where reading them is to no other end than that the next time is quicker.
#[test]
fn what_is_read_again() {
    let files = ProcessFiles::open(std::process::id()).unwrap();
    let reads = |too_many: bool, limit: usize| {
        let captures = Arc::new(AtomicU32::new(0));
        let mut interpreters = Interpreters::default();
        interpreters.add(Box::new(Cut { too_many, captures: Arc::clone(&captures) }));
        let mut interpreted = Interpreted::default();
        interpreters.capture(ThreadKey { id: 1, pointer: 0 }, limit, &files, None, &mut interpreted);
        assert!(interpreted.is_any());
        captures.load(Ordering::Relaxed)
    };
    assert_eq!([reads(false, UNSTOPPED), reads(true, UNSTOPPED)], [ATTEMPTS, 1]);
    assert_eq!([reads(false, WHILE_STOPPED), reads(true, WHILE_STOPPED)], [1, 1]);
}
