//! Measures, with a counting allocator, how much memory the packets of a compromised sampler cost the owner.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use profbridge_sampler::message::{
    Batch, Command, Context, Event, Process, ProcessId, Rights, Sample, Select, Settings, Stack, Target, TargetId,
    Thread,
};
use profbridge_sampler::protocol::{MAX_PACKET, PacketChecker, decode_event, encode_event};

/// The system's allocator, with counters of the allocated bytes: now, and at the peak.
struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(size: usize) {
    PEAK.fetch_max(LIVE.fetch_add(size, Relaxed) + size, Relaxed);
}

// SAFETY: all calls are passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller follows the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller follows the rules of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both allocations may exist for a moment.
        count(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller follows the rules of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Encodes an event, and extends an empty list in it with zeros: `each` bytes for each of as many entries as there is
/// room for. `behind` is the number of bytes after the list's length.
fn full(event: Event, behind: usize, each: usize) -> Vec<u8> {
    let mut packet = encode_event(event).bytes;
    packet.truncate(packet.len() - behind - 1);
    let count = (MAX_PACKET - packet.len() - 3 - behind) / each;
    packet.extend([count & 127 | 128, count >> 7 & 127 | 128, count >> 14].map(|byte| byte as u8));
    packet.resize(packet.len() + count * each + behind, 0);
    packet
}

fn process(id: u64) -> Process {
    Process { id: ProcessId(id), pid: 1, namespace_pid: 1, ..Process::default() }
}

/// Decodes a packet and checks it. Returns the event, the peak of the memory that this took, and the memory of the
/// event, both in bytes.
fn receive(packet: &[u8]) -> (Option<Event>, usize, usize) {
    let mut checker = PacketChecker::default();
    checker.note(&Command::Watch(Target {
        id: TargetId(0),
        select: Select::Pid(1),
        settings: Settings::default(),
        environment: Vec::new(),
        thread_attributes: Vec::new(),
        sample_at_once: true,
    }));
    for event in [Event::Ready(Rights::default()), Event::Attached(Box::new(process(0)))] {
        assert_eq!(checker.check(&event), Ok(()));
    }
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let event = decode_event(packet, None).ok().filter(|event| checker.check(event).is_ok());
    (event, PEAK.load(Relaxed) - before, LIVE.load(Relaxed) - before)
}

/// Guarantees: however many entries a packet has or claims to have, receiving it takes at most 50 times its length, and
/// an accepted event at most 1.25 MiB.
#[test]
fn full_of_nothing() {
    let batch = || Event::Batch(Batch { process: ProcessId(0), period_nano: 1, ..Batch::default() });
    let functions = || Event::Functions { process: ProcessId(0), first: 0, functions: Vec::new() };
    let resource = || Event::Resource { process: ProcessId(0), attributes: Vec::new() };
    let attached = || Event::Attached(Box::new(process(1)));
    let ready = || Event::Ready(Rights::default());
    type EventFactory<'a> = &'a dyn Fn() -> Event;
    // The lists of a batch, by the number of bytes that follow the list's length.
    let tables = (0..5).map(|behind| (&batch as EventFactory<'_>, behind));
    let others = [(&functions as EventFactory<'_>, 0), (&resource, 0), (&attached, 0), (&attached, 4), (&ready, 0)];
    for (event, behind) in tables.chain(others) {
        for each in 1..=16 {
            let (_, peak, kept) = receive(&full(event(), behind, each));
            assert!(peak <= 50 * MAX_PACKET && kept <= 5 << 18, "{:?} {behind} {each}: {peak}, {kept}", event());
        }
    }
    // A batch in which each sample has its own entry in each table.
    let count = (MAX_PACKET - 64) / 15;
    let batch = Batch {
        process: ProcessId(0),
        period_nano: 1,
        threads: vec![Thread::default(); count],
        stacks: vec![Stack::default(); count],
        contexts: vec![Context::default(); count],
        samples: vec![Sample::default(); count],
        ..Batch::default()
    };
    let (event, peak, kept) = receive(&encode_event(Event::Batch(batch)).bytes);
    assert!(event.is_some() && peak <= 5 << 18 && kept <= 5 << 18, "{peak}, {kept}");
}
