//! Tests the search for the best permitted level with a simulated kernel, and the events of the real kernel.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[path = "../../../tests/repeated/mod.rs"]
mod repeated;

use super::*;
use crate::perf::record::{Record, User, parse};
use crate::perf::ring::Ring;

/// A simulated kernel with predefined answers.
struct Answers<F> {
    answer: F,
    asked: RefCell<Vec<bool>>,
}

impl<F> fmt::Debug for Answers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("asked", &self.asked).finish_non_exhaustive()
    }
}

impl<F: Fn(bool) -> Result<(), Errno>> Opener for Answers<F> {
    fn open(&self, attr: &EventAttr, _subject: EventSubject<'_>) -> Result<OwnedFd, Errno> {
        self.asked.borrow_mut().push(attr.sees_kernel());
        (self.answer)(attr.sees_kernel())?;
        Ok(File::open("/dev/null").unwrap().into())
    }
}

fn with<F: Fn(bool) -> Result<(), Errno>>(answer: F) -> Answers<F> {
    Answers { answer, asked: RefCell::default() }
}

/// Guarantees: the best level that can be opened is used, whatever the kernel's reason for refusing a better one, and
/// the reasons are returned.
#[test]
fn ladder() {
    let opened = open(&with(|_| Ok(())), (1, None), 1, Level::Kernel, false).unwrap();
    assert_eq!((opened.level, opened.refused), (Level::Kernel, vec![]));
    for reason in [Errno::EACCES, Errno::EPERM, Errno::ENOSYS, Errno::EINVAL, Errno::EOPNOTSUPP, Errno::E2BIG] {
        let user = with(|kernel| if kernel { Err(reason) } else { Ok(()) });
        let opened = open(&user, (1, None), 1, Level::Kernel, false).unwrap();
        assert_eq!((opened.level, opened.refused), (Level::User, vec![(Level::Kernel, reason)]));
        let all = vec![(Level::Kernel, reason), (Level::User, reason)];
        assert_eq!(
            open(&with(|_| Err(reason)), (1, None), 1, Level::Kernel, false).unwrap_err(),
            OpenFailure::Refused(all)
        );
    }
    let lower = with(|_| Ok(()));
    assert_eq!(open(&lower, (1, None), 1, Level::User, false).unwrap().level, Level::User);
    assert_eq!(*lower.asked.borrow(), [false]);
}

/// Guarantees: lists of processors are parsed in the kernel's format, and malformed lists are rejected.
#[test]
fn processors() {
    assert_eq!(parse_processors("0"), Some(vec![0]));
    assert_eq!(parse_processors("0-3,8,10-11"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
    for nonsense in ["", "a", "1-", "-1", "0-4294967295", "1,,2", "8192"] {
        assert_eq!(parse_processors(nonsense), None, "{nonsense}");
    }
    assert!(!online_processors().unwrap().is_empty());
}

/// Guarantees: a processor that is offline is left out; after any other error no event stays open.
#[test]
fn all_processors_or_none() {
    #[derive(Debug)]
    struct OneBadProcessor(Errno);
    impl Opener for OneBadProcessor {
        fn open(&self, _attr: &EventAttr, subject: EventSubject<'_>) -> Result<OwnedFd, Errno> {
            let EventSubject::Processor { number, group: None } = subject else { panic!("{subject:?}") };
            if number == 1 { Err(self.0) } else { Ok(File::open("/dev/null").unwrap().into()) }
        }
    }
    let opened = |error, processors: &[u32]| {
        open_processors(&OneBadProcessor(error), processors, None, 1, Switches::Hidden).map(|all| all.len())
    };
    assert_eq!(opened(Errno::ENODEV, &[0, 1, 2]), Ok(2));
    assert_eq!(opened(Errno::EACCES, &[0, 1, 2]), Err(OpenFailure::Refused(vec![(Level::Processors, Errno::EACCES)])));
    assert_eq!(opened(Errno::EMFILE, &[0, 1, 2]), Err(OpenFailure::Exhausted(Lack::Descriptors)));
    assert_eq!(opened(Errno::ENODEV, &[1]), Err(OpenFailure::Refused(vec![(Level::Processors, Errno::ENODEV)])));
}

/// The permission checks of Linux (`perf_allow_kernel` and `perf_allow_cpu` in linux/perf_event.h), and of the kernels
/// of Debian and Ubuntu, which refuse everything from setting 3 on.
#[derive(Debug, Clone, Copy)]
struct Linux {
    /// `kernel.perf_event_paranoid`.
    paranoid: i32,
    /// Whether the caller has CAP_PERFMON or CAP_SYS_ADMIN.
    capable: bool,
    of_a_distribution: bool,
}

impl Opener for Linux {
    fn open(&self, attr: &EventAttr, subject: EventSubject<'_>) -> Result<OwnedFd, Errno> {
        let from_level = match subject {
            _ if self.of_a_distribution && self.paranoid > 2 => i32::MIN,
            EventSubject::Processor { .. } => 1,
            EventSubject::Thread { .. } if attr.sees_kernel() => 2,
            EventSubject::Thread { .. } => i32::MAX,
        };
        if self.paranoid >= from_level && !self.capable {
            return Err(Errno::EACCES);
        }
        Ok(File::open("/dev/null").unwrap().into())
    }
}

/// Guarantees: for each setting of `kernel.perf_event_paranoid`, with and without the right to see the kernel, threads
/// get the best level that the setting permits, and events of processors can be opened if permitted.
#[test]
fn settings_and_rights() {
    let decided = |linux: Linux| {
        let threads = open(&linux, (1, None), 1, Level::Kernel, false).map_or(Level::None, |opened| opened.level);
        (threads, open_processors(&linux, &[0, 1], None, 1, Switches::Hidden).is_ok())
    };
    for (paranoid, mainline, distribution) in [
        (-1, (Level::Kernel, true), (Level::Kernel, true)),
        (0, (Level::Kernel, true), (Level::Kernel, true)),
        (1, (Level::Kernel, false), (Level::Kernel, false)),
        (2, (Level::User, false), (Level::User, false)),
        (3, (Level::User, false), (Level::None, false)),
        (4, (Level::User, false), (Level::None, false)),
    ] {
        for (of_a_distribution, without) in [(false, mainline), (true, distribution)] {
            let linux = Linux { paranoid, capable: false, of_a_distribution };
            assert_eq!(decided(linux), without, "{linux:?}");
            let linux = Linux { capable: true, ..linux };
            assert_eq!(decided(linux), (Level::Kernel, true), "{linux:?}");
        }
    }
}

/// Guarantees: an ended thread and a lack of descriptors do not count as refusals: no lower level is tried then.
#[test]
fn no_refusals() {
    let ended = with(|_| Err(Errno::ESRCH));
    assert_eq!(open(&ended, (1, None), 1, Level::Kernel, false).unwrap_err(), OpenFailure::Ended);
    for reason in [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM] {
        let kernel = with(|_| Err(reason));
        assert!(
            matches!(open(&kernel, (1, None), 1, Level::Kernel, false).unwrap_err(), OpenFailure::Exhausted(_)),
            "{reason}"
        );
        assert_eq!(kernel.asked.borrow().len(), 1);
    }
}

/// Guarantees: each level except the best names the right that gives a better one; in a container, by the name that the
/// container runtime uses.
#[test]
fn rights() {
    for level in [Level::None, Level::User] {
        assert!(next_right(level, true).unwrap().contains("--cap-add PERFMON"));
        let outside = next_right(level, false).unwrap();
        assert!(outside.contains("cap_perfmon") && outside.contains("perf_event_paranoid"), "{outside}");
    }
    assert_eq!(next_right(Level::Kernel, false), None);
}

/// Starts a thread that repeats `work` until the returned function is called.
fn worker(work: impl Fn() + Send + 'static) -> (u32, impl FnOnce()) {
    let end = std::sync::Arc::new(AtomicBool::new(false));
    let (sender, id) = std::sync::mpsc::channel();
    let thread = std::thread::spawn({
        let end = std::sync::Arc::clone(&end);
        move || {
            sender.send(nix::unistd::gettid().as_raw().unsigned_abs()).unwrap();
            while !end.load(Ordering::Relaxed) {
                work();
            }
        }
    });
    let id = id.recv().unwrap();
    (id, move || {
        end.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    })
}

/// Whether the kernel that runs the tests permits events. If not, this prints a note, and the tests of the real kernel
/// are skipped.
fn permitted(level: Level) -> bool {
    let own = nix::unistd::gettid().as_raw().unsigned_abs();
    let permitted = open(&KernelOpener, (own, None), 1_000_000, level, false).is_ok_and(|opened| opened.level == level);
    if !permitted {
        untested(level);
    }
    permitted
}

/// Prints that a test is skipped.
fn untested(level: Level) {
    let why = format_args!("untested here: the kernel permits no perf events of {level:?}\n");
    std::io::Write::write_fmt(&mut std::io::stderr(), why).ok();
}

/// Guarantees: events of processors also sample threads that end before they can be examined, and the number of samples
/// agrees with the processor time that they used, except for samples that the kernel reports as lost; samples of other
/// processes are left out.
#[test]
fn brief_threads() {
    // On a virtual machine whose host runs other work, the number of samples differs from the processor time at random.
    repeated::by_some_run(|| {
        let Some((seen, lost, used)) = sample_brief_threads() else {
            untested(Level::Processors);
            return Ok(());
        };
        let is_close = seen < used + used / 4 && seen + lost > used - used / 4;
        is_close.then_some(()).ok_or_else(|| format!("{seen} and {lost} ns in samples, {used} ns used"))
    });
}

/// The time covered by samples of brief threads, the time of samples lost because the ring was full, and the time that
/// the threads used, in nanoseconds. `None` if events of processors are not permitted.
fn sample_brief_threads() -> Option<(u64, u64, u64)> {
    const PERIOD: u64 = 1_000_000;
    let processors = online_processors().unwrap();
    let events = open_processors(&KernelOpener, &processors, None, PERIOD, Switches::Hidden).ok()?;
    let mut rings: Vec<_> = events.iter().map(|event| Ring::map(event.samples.as_fd(), 512 << 10).unwrap()).collect();
    let (mut threads, mut used) = (std::collections::HashSet::new(), Duration::ZERO);
    let (mut seen, mut lost) = (0_u64, 0_u64);
    for _ in 0..200 {
        let work = || {
            while crate::os::time::thread_cpu() < Duration::from_millis(2) {
                std::hint::black_box((0..1000_u64).sum::<u64>());
            }
            (nix::unistd::gettid().as_raw().unsigned_abs(), crate::os::time::thread_cpu())
        };
        let (thread, cpu) = std::thread::spawn(work).join().unwrap();
        threads.insert(thread);
        used += cpu;
        let mut buffer = Vec::new();
        for ring in &mut rings {
            ring.drain(
                |process| process == std::process::id(),
                &mut buffer,
                |bytes| match parse(bytes).unwrap() {
                    Record::Sample(sample) => {
                        assert_eq!(sample.process, std::process::id());
                        seen += u64::from(threads.contains(&sample.thread)) * sample.period_nano;
                    }
                    Record::Lost(count) => lost += count * PERIOD,
                    _ => {}
                },
            );
        }
    }
    Some((seen, lost, used.as_nanos() as u64))
}

/// Guarantees: the kernel accepts another period for an open event, and samples become less frequent accordingly.
#[test]
fn another_period() {
    const OTHER: u64 = 10_000_000;
    const SAMPLES: usize = 50;
    if !permitted(Level::User) {
        return;
    }
    let (thread, end) = worker(|| {
        std::hint::black_box((0..10_000_u64).map(std::hint::black_box).sum::<u64>());
    });
    let opened = open(&KernelOpener, (thread, None), 1_000_000, Level::Kernel, false).unwrap();
    let mut ring = Ring::map(opened.event.as_fd(), 256 << 10).unwrap();
    let (mut buffer, mut times, mut changed) = (Vec::new(), Vec::new(), false);
    let deadline = Instant::now() + Duration::from_secs(60);
    while times.len() <= SAMPLES && Instant::now() < deadline {
        let wanted = |process| process == std::process::id();
        ring.drain(wanted, &mut buffer, |bytes| {
            if let Record::Sample(sample) = parse(bytes).unwrap() {
                times.push(sample.time_nano);
            }
        });
        if !changed && !times.is_empty() {
            // Set only once, because each call restarts the period. Earlier records have the old period.
            crate::perf::period::set(opened.event.as_fd(), OTHER);
            ring.drain(wanted, &mut buffer, |_| {});
            times.clear();
            changed = true;
        }
        std::thread::yield_now();
    }
    end();
    assert!(times.len() > SAMPLES, "{}", times.len());
    // Samples can be delayed on a slow machine, but not be more frequent than this.
    let took = times[SAMPLES] - times[0];
    assert!(took > OTHER * SAMPLES as u64 / 2, "{SAMPLES} samples in {took} ns");
}

/// Guarantees: an event that shows where a thread resumes takes one sample each time that it is armed, with registers
/// and stack, and none otherwise.
#[test]
fn one_sample_each_time() {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    let (thread, end) = worker(|| {
        std::hint::black_box((0..1000_u64).sum::<u64>());
        TURNS.fetch_add(1, Ordering::Relaxed);
    });
    let Ok(event) = KernelOpener.open(&EventAttr::of_resumption(), EventSubject::Thread { thread, processor: None })
    else {
        end();
        return eprintln!("untested here: perf events");
    };
    let mut ring = Ring::map(event.as_fd(), 256 << 10).unwrap();
    let mut buffer = Vec::new();
    let mut count = |ring: &mut Ring| {
        let mut samples = 0;
        ring.drain(
            |_| true,
            &mut buffer,
            |bytes| {
                if let Record::Resumed(sample) = parse(bytes).unwrap() {
                    assert_eq!(sample.thread, thread);
                    assert!(matches!(sample.user, User::Registers(_)) && !sample.stack.is_empty());
                    samples += 1;
                }
            },
        );
        samples
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    for _ in 0..3 {
        assert_eq!(count(&mut ring), 0);
        arm(event.as_fd());
        while ring.is_empty() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        // This takes many times the event's period, so a second sample would have arrived by now.
        let turns = TURNS.load(Ordering::Relaxed);
        while TURNS.load(Ordering::Relaxed) < turns + 1000 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(count(&mut ring), 1);
    }
    end();
}
