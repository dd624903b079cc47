use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use super::*;
use crate::perf::attr::EventAttr;
use crate::perf::open::EventSubject;
use crate::sampler::processors::tests::engine;
use crate::sampler::shortfall::Shortfall;

/// Guarantees: samples that a processor's ring reports as missing are counted for each process that is sampled by
/// events of its threads.
#[test]
fn what_threads_miss() {
    let mut engine = engine(std::process::id(), &|| {}, Instant::now(), false);
    let [throttled, lost] = crate::sampler::shortfall::tests::throttled_and_lost();
    let mut ring = crate::perf::ring::tests::ring_of(&[&throttled, &lost, &throttled]);
    let (_, shortfall) = Shortfall::drain(&mut ring, |_| true, &mut Vec::new(), |_| {});
    engine.take_item(RingItem::Missing(shortfall), Instant::now());
    engine.processes[0].watch = RunningThreadMethod::Machine;
    engine.take_item(RingItem::Missing(shortfall), Instant::now());
    let status = &engine.processes[0].attached.status;
    assert_eq!((status.missed_ticks, status.lost_samples), (2, 7));
}

/// An opener that uses the kernel, but only up to the level that the test permits.
#[derive(Debug, Clone)]
struct Permitting(Arc<Mutex<Permitted>>);

/// The permitted level, and how many times events were requested.
#[derive(Debug)]
struct Permitted {
    up_to: Level,
    /// The error for requests above the permitted level.
    error: Errno,
    asked: u32,
}

impl Opener for Permitting {
    fn open(&self, attr: &EventAttr, subject: EventSubject<'_>) -> Result<OwnedFd, Errno> {
        let mut permitted = self.0.lock().unwrap();
        permitted.asked += 1;
        let level = if attr.sees_kernel() { Level::Kernel } else { Level::User };
        if level > permitted.up_to { Err(permitted.error) } else { KernelOpener.open(attr, subject) }
    }
}

/// The level that the kernel permits this program for its own threads.
fn permitted_here() -> Level {
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    open(&KernelOpener, (own, None), 1_000_000, Level::Kernel, true).map_or(Level::None, |opened| opened.level)
}

/// Guarantees: after a refusal or a lack of resources the kernel is asked again after 60 seconds, not earlier, and a
/// better level is used if it is permitted then. At the best level the kernel is never asked again.
#[test]
fn refusals_are_asked_for_again() {
    const SECOND: Duration = Duration::from_secs(1);
    let here = permitted_here();
    for (up_to, error, first) in [
        (Level::None, Errno::EPERM, RunningThreadMethod::Stops),
        (Level::None, Errno::ENOSYS, RunningThreadMethod::Stops),
        (Level::None, Errno::EMFILE, RunningThreadMethod::Not),
        (Level::User, Errno::EACCES, RunningThreadMethod::for_level(here.min(Level::User), Stops::UserBound)),
    ] {
        let kernel = Permitting(Arc::new(Mutex::new(Permitted { up_to, error, asked: 0 })));
        let asked = || std::mem::take(&mut kernel.0.lock().unwrap().asked);
        let start = Instant::now();
        let mut engine = engine(std::process::id(), &|| {}, start, false);
        engine.events = Events::with(Box::new(kernel.clone()), None).ok();
        engine.processes[0].watch = RunningThreadMethod::Undecided;
        engine.processes[0].find_or_add_thread(std::process::id());
        let mut decide = |at| {
            engine.decide(0, at);
            engine.processes[0].watch
        };
        assert_eq!(decide(start), first, "{error}");
        assert!(asked() > 0, "{error}");
        for later in [Duration::ZERO, SECOND, 30 * SECOND, 60 * SECOND - Duration::from_nanos(1)] {
            assert_eq!((decide(start + later), asked()), (first, 0), "{error} {later:?}");
        }
        assert_eq!(decide(start + 60 * SECOND), first, "{error}");
        assert!(asked() > 0, "{error}");
        kernel.0.lock().unwrap().up_to = Level::Kernel;
        assert_eq!((decide(start + 119 * SECOND), asked()), (first, 0), "{error}");
        assert_eq!(decide(start + 120 * SECOND), RunningThreadMethod::for_level(here, Stops::UserBound), "{error}");
        asked();
        decide(start + 180 * SECOND);
        assert_eq!(asked() == 0, here == Level::Kernel, "{error}");
    }
}
