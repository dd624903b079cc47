//! Sampling running threads by perf events: which threads have one, and what their rings say.
//!
//! An event costs its thread microseconds at each switch to another one, so only threads that ran lately have one, and those that are switched very often
//! have it for a part of the time. The ledger makes up for both.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::active::Active;
use super::leases::{Captures, MOST_CAPTURED};
use super::processors::{Machine, Processors};
use super::reach::Reach;
use super::run::Engine;
use crate::message::{ProblemKind, Rung, Stops};
use crate::perf::open::{Failure, Kernel, next_right, open};
use crate::perf::period::{self, Varying};
use crate::perf::record::{OnCpuSample, Record, User, parse};
use crate::perf::ring::Ring;
use crate::threads::is_keepable;

/// The rings of the first threads are large enough for a quarter of a second at the usual rate, when the sampler gets no processor; those of more are
/// smaller, since all together are memory of the kernel.
const RINGS: [(usize, usize); 3] = [(8, 256 << 10), (64, 128 << 10), (512, 64 << 10)];

/// A thread that did not run for so long loses its event.
const IDLE: u64 = 2;

/// An event is kept for at least so long before its cost is judged.
const JUDGED: Duration = Duration::from_millis(100);

/// A thread that is given a processor more often than this in a second has its event for a part of the time only. With it each time costs 2.5
/// microseconds more.
const MOST_SWITCHES: u64 = 4_000;

/// An event is never away for more than so many times as long as it is there.
const MOST_THINNED: u64 = 50;

/// How running threads are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Not known yet.
    Undecided,
    /// By events.
    Events(Rung),
    /// By stopping those that may be stopped.
    Stops,
    /// Not at all: it is only known for how long they run.
    Not,
}

/// Where the kernel permits less than all, it is asked again after this: somebody may have given the right meanwhile.
pub(super) const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// The rung that opened, and why those above did not.
type Answer = (Rung, Vec<(Rung, Errno)>);

/// The event of one thread.
#[derive(Debug)]
pub(super) struct ThreadEvent {
    file: OwnedFd,
    ring: Ring,
    /// Since when it is judged, and how often the thread had been given a processor then.
    judged: (Instant, u64),
    varying: Varying,
}

impl ThreadEvent {
    /// A sample for each so many nanoseconds from now on, or about so many.
    fn set_period(&mut self, period_nano: u64, now: Instant) {
        self.varying = Varying::new(period_nano, crate::os::time::unix_nano(), now);
        period::set(self.file.as_fd(), period_nano);
    }

    /// Another period, where it is time for one.
    fn vary(&mut self, now: Instant) {
        if let Some(period_nano) = self.varying.next(now) {
            period::set(self.file.as_fd(), period_nano);
        }
    }
}

/// For which part of the time a thread has its event.
#[derive(Debug, Default)]
pub(super) struct Thinning {
    factor: u64,
    away_until: Option<Instant>,
}

impl Thinning {
    /// One part in so many.
    pub(super) fn factor(&self) -> u64 {
        self.factor.max(1)
    }
}

/// Waiting for the rings of all threads.
#[derive(Debug)]
pub(super) struct Events {
    epoll: Epoll,
    /// How many there are. Those that were closed since the last tick still count.
    open: usize,
    pub(super) processors: Vec<Processors>,
    pub(super) machine: Machine,
    pub(super) buffer: Vec<u8>,
}

impl Events {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            open: 0,
            processors: Vec::new(),
            machine: Machine::default(),
            buffer: Vec::new(),
        })
    }

    /// What is to be waited for; `None` while no thread has an event.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        (self.open > 0 || !self.processors.is_empty()).then(|| self.epoll.0.as_fd())
    }

    /// Waits for the ring of a processor, too.
    pub(super) fn wait_for(&self, event: BorrowedFd<'_>) -> Result<(), Errno> {
        self.epoll.add(event, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))
    }

    /// Opens an event for a thread.
    fn open(
        &mut self,
        thread: u32,
        period_nano: u64,
        from: Rung,
        switches: u64,
    ) -> Result<(ThreadEvent, Answer), Failure> {
        let Some(&(_, bytes)) = RINGS.iter().find(|(most, _)| self.open < *most) else {
            return Err(Failure::Exhausted(Errno::EMFILE));
        };
        let opened = open(&Kernel, thread, period_nano, from)?;
        let exhausted =
            |error: std::io::Error| Failure::Exhausted(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)));
        if !is_keepable(opened.event.as_raw_fd()) {
            return Err(Failure::Exhausted(Errno::EMFILE));
        }
        let ring = Ring::map(opened.event.as_fd(), bytes).map_err(exhausted)?;
        // Told once: a thread that ended would be told again and again until its event is closed.
        let interest = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, u64::from(thread));
        self.epoll.add(&opened.event, interest).map_err(Failure::Exhausted)?;
        self.open += 1;
        let now = Instant::now();
        let varying = Varying::new(period_nano, u64::from(thread) ^ crate::os::time::unix_nano(), now);
        let event = ThreadEvent { file: opened.event, ring, judged: (now, switches), varying };
        Ok((event, (opened.rung, opened.refused)))
    }
}

impl Engine<'_> {
    /// Finds out how running threads of a process are sampled, and now and then whether more is permitted by now.
    pub(super) fn decide(&mut self, index: usize, now: Instant) {
        let process = &mut self.processes[index];
        let best = matches!(process.watch, Watch::Events(Rung::Kernel | Rung::Processors));
        if best || now < process.asked_again {
            return;
        }
        if process.settings.stops == Stops::Always {
            process.watch = Watch::Stops;
            return;
        }
        // Without a thread that could tell, the next tick asks.
        let Some(answer) = self.ask_for_events(index) else { return };
        let process = &mut self.processes[index];
        process.asked_again = now + ASKED_AGAIN;
        let (rung, refused) = match answer {
            Ok((rung, refused)) => (rung, refused),
            Err(Failure::Refused(refused)) => (Rung::None, refused),
            Err(Failure::Exhausted(error)) => (Rung::None, vec![(Rung::User, error)]),
            Err(Failure::Ended) => return,
        };
        if process.watch == Watch::Undecided || rung > process.status.rung {
            self.change_watch(index, rung, now);
        }
        let process = &self.processes[index];
        let Some(right) = next_right(process.status.rung, crate::rights::in_container()) else { return };
        let reason = refused.first().map_or(String::new(), |(_, error)| format!(" ({error})"));
        let instead = match process.watch {
            Watch::Stops => {
                "; those that stay in their own code are stopped for microseconds instead (stops: user-bound), of others only the amount of time is known"
            }
            Watch::Not => "; only the amount of their time is known (stops: never)",
            _ => "",
        };
        self.problem(index, ProblemKind::Events, format!("{right}{reason}{instead}"));
    }

    /// Opens an event of the first thread that there is, and says what came of it; `None` where there is none.
    fn ask_for_events(&mut self, index: usize) -> Option<Result<Answer, Failure>> {
        let process = &self.processes[index];
        let Some(events) = &mut self.events else { return Some(Err(Failure::Refused(Vec::new()))) };
        let period = process.event_period();
        let mut answers = process.threads.iter().map(|thread| events.open(thread.id(), period, Rung::Kernel, 0));
        let answer = answers.find(|answer| !matches!(answer, Err(Failure::Ended)))?.map(|(_, answer)| answer);
        events.open -= usize::from(answer.is_ok());
        Some(answer)
    }

    /// From now on running threads are sampled on this rung: what is known of their time until now is said.
    fn change_watch(&mut self, index: usize, rung: Rung, now: Instant) {
        if self.processes[index].watch != Watch::Undecided {
            self.drain_process(index);
            self.processes[index].settle_all(now);
            self.processes[index].close_events();
        }
        let process = &mut self.processes[index];
        process.status.rung = rung;
        process.watch = match (rung, process.settings.stops) {
            (Rung::None, Stops::Never) => Watch::Not,
            (Rung::None, _) => Watch::Stops,
            (rung, _) => Watch::Events(rung),
        };
    }

    /// Samples a thread while it runs.
    pub(super) fn watch_thread(&mut self, index: usize, thread: usize) {
        let process = &mut self.processes[index];
        let (Watch::Events(rung), Reach::Threads, Some(events)) =
            (process.watch, process.review.reach, &mut self.events)
        else {
            return;
        };
        let period = process.event_period();
        let state = &mut process.threads[thread];
        if state.event.is_some() || state.thinning.away_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        // Where it fails for this thread, its time is said not to be sampled.
        if let Ok((event, _)) = events.open(state.id(), period, rung, state.sched.timeslices) {
            state.event = Some(event);
        }
    }

    /// Closes the events that a process needs no more.
    pub(super) fn tend_events(&mut self, index: usize, now: Instant) {
        self.processes[index].tend_events(now);
        if let Some(events) = &mut self.events {
            let of = |process: &Active| process.threads.iter().filter(|thread| thread.event.is_some()).count();
            events.open = self.processes.iter().map(of).sum();
        }
    }

    /// Takes the samples of all rings that have some.
    pub(super) fn drain_ready(&mut self) {
        let Some(events) = self.events.as_ref().filter(|events| events.awaited().is_some()) else { return };
        // What woke this thread is known now. Which ring it was is seen in the rings: being asked for it by two calls, the kernel tells only one.
        let mut ready = [EpollEvent::empty(); 64];
        while events.epoll.wait(&mut ready, EpollTimeout::ZERO).is_ok_and(|count| count == ready.len()) {}
        for index in 0..self.processes.len() {
            self.drain_rings(index);
        }
        self.drain_processors();
        self.drop_strangers();
    }

    fn drain_rings(&mut self, index: usize) {
        for place in 0..self.processes[index].threads.len() {
            let event = self.processes[index].threads[place].event.as_ref();
            if event.is_some_and(|event| !event.ring.is_empty()) {
                self.drain_thread(index, place);
            }
        }
    }

    /// Takes all samples that there are of a process, and accounts for them.
    pub(super) fn drain_process(&mut self, index: usize) {
        self.drain_rings(index);
        self.drain_processors();
        self.drop_strangers();
        while let Some(captured) = self.captures.waiting.pop_front() {
            self.finish(captured);
        }
    }

    fn drain_thread(&mut self, index: usize, place: usize) {
        let Self { processes, captures, events: Some(events), .. } = self else { return };
        drain(&mut processes[index], place, captures, &mut events.buffer);
        self.make_room();
    }

    /// Unwinds what waits, where that is much.
    pub(super) fn make_room(&mut self) {
        if self.captures.waiting.len() < MOST_CAPTURED {
            return;
        }
        self.drop_strangers();
        while self.captures.waiting.len() >= MOST_CAPTURED {
            let Some(captured) = self.captures.waiting.pop_front() else { break };
            self.finish(captured);
        }
    }

    /// Drops what waits of processes that execute another program by now, or whose id another process has: some of it may be of that, and would be taken for
    /// what is known. What is of the same process now was so when it was sampled.
    fn drop_strangers(&mut self) {
        for process in &mut self.processes {
            let id = process.id;
            if self.captures.has_samples_of(id) && process.is_another() {
                self.captures.drop_samples_of(id);
                process.doubt = true;
            }
        }
    }
}

fn drain(process: &mut Active, place: usize, captures: &mut Captures, buffer: &mut Vec<u8>) {
    let (id, pid, space) = (process.id, process.files.pid(), process.space_number);
    let Some(event) = &mut process.threads[place].event else { return };
    let (status, foreign, period_nano) = (&mut process.status, &mut process.foreign, event.varying.average());
    let drained = event.ring.drain(
        |process| process == pid,
        buffer,
        |bytes| match parse(bytes) {
            Ok(Record::Sample(sample)) => {
                // One without registers is of a thread that ends: its time is not sampled.
                captures.take_sample(id, space, &OnCpuSample { period_nano, ..sample });
                *foreign |= sample.user == User::Foreign;
            }
            Ok(Record::Lost(count)) => status.lost_samples += count,
            Ok(_) => {}
            Err(_) => status.lost_samples += 1,
        },
    );
    status.lost_samples += u64::from(drained.broken);
}

impl Active {
    /// Threads have no events of their own any more.
    pub(super) fn close_events(&mut self) {
        for thread in &mut self.threads {
            thread.event = None;
            thread.thinning = Thinning::default();
        }
    }

    /// The running time between two samples.
    pub(super) fn event_period(&self) -> u64 {
        self.grid.period_nano() * self.grid.stride()
    }

    /// A tick only in every so many slots.
    pub(super) fn set_stride(&mut self, stride: u64) {
        if stride == self.grid.stride() {
            return;
        }
        self.grid.set_stride(stride);
        let (period, now) = (self.event_period(), Instant::now());
        for event in self.threads.iter_mut().filter_map(|thread| thread.event.as_mut()) {
            event.set_period(period, now);
        }
    }

    /// Closes the events of threads that are idle, or are switched too often.
    fn tend_events(&mut self, now: Instant) {
        let idle = IDLE * self.slots_per_second();
        let slot = self.slot;
        for thread in &mut self.threads {
            let Some(event) = &mut thread.event else { continue };
            event.vary(now);
            if !event.ring.is_empty() {
                // First what it says.
                continue;
            }
            if slot.saturating_sub(thread.idle_since) > idle {
                thread.event = None;
                continue;
            }
            let (since, switches) = event.judged;
            let open = now.saturating_duration_since(since);
            if open < JUDGED {
                continue;
            }
            let factor = thinned(thread.sched.timeslices.saturating_sub(switches), open);
            event.judged = (now, thread.sched.timeslices);
            thread.thinning.factor = factor;
            if factor > 1 {
                thread.event = None;
                // Not in step with what the thread does: up to an eighth more or less.
                let eighths = 7 + u32::try_from(slot % 3).unwrap_or(0);
                let away = open.saturating_mul(u32::try_from(factor - 1).unwrap_or(u32::MAX)) / 8 * eighths;
                thread.thinning.away_until = Some(now + away);
            }
        }
    }
}

/// For one part in how many of the time an event is affordable, with so many switches in this time.
fn thinned(switches: u64, open: Duration) -> u64 {
    let micros = u64::try_from(open.as_micros()).unwrap_or(u64::MAX).max(1);
    let rate = switches.saturating_mul(1_000_000) / micros;
    rate.div_ceil(MOST_SWITCHES).clamp(1, MOST_THINNED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: an event is there all the time up to 4000 switches a second, and for so much of it beyond that its thread is not switched more often with
    /// it, up to a bound.
    #[test]
    fn thinning() {
        let tenth = Duration::from_millis(100);
        for (switches, factor) in [(0, 1), (400, 1), (401, 2), (2_000, 5), (u64::MAX, MOST_THINNED)] {
            assert_eq!(thinned(switches, tenth), factor, "{switches}");
        }
        assert_eq!(thinned(400, Duration::ZERO), MOST_THINNED);
    }
}
