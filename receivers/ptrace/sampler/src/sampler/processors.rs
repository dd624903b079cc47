//! Sampling by events of processors: which are open, for which processes, and how their rings are read.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::unistd::{SysconfVar, sysconf};

use super::active::Active;
use super::coverage::{Coverage, Permitted, THREADS, Usage, machine_cpu};
use super::events::{ASKED_AGAIN, Events};
use super::rings::{RunningSample, ThreadChange, ThreadChangeKind};
use super::run::Engine;
use super::shortfall::Shortfall;
use super::states::{PendingCheck, RunningThreadMethod};
use super::thread_state::ThreadState;
use super::tick::LOOKS;
use crate::address_space::recorded;
use crate::message::ProcessId;
use crate::os::time::ClockPair;
use crate::os::{affinity, time};
use crate::perf::control_group::{ControlGroup, Membership};
use crate::perf::open::{Opener, ProcessorEvents, Switches, online_processors, open_processors, write_into};
use crate::perf::period::{self, Pace, Varying};
use crate::perf::record::{Record, SampleHead, User};
use crate::perf::ring::Ring;
use crate::rights::may_see_all;

/// How often the coverage of a process's events is reviewed.
const REVIEW: Duration = Duration::from_secs(1);

/// The interval grows with each multiple of this many threads, up to `SELDOM` times.
const MANY_THREADS: usize = 1024;
const SELDOM: usize = 4;

/// The memory of all rings together, and the limits for the size of one, in bytes. A processor that is always busy
/// fills 1.7 MB per second at the usual rate, and on a saturated machine the sampling thread may have to wait half a
/// second for a processor.
const RINGS: usize = 16 << 20;
const RING: (usize, usize) = (64 << 10, 1 << 20);

/// An event of the whole machine keeps its period for this many periods, but at least for `LEAST_STEADY`.
const STEADY: u64 = 8;
const LEAST_STEADY: Duration = Duration::from_millis(50);

/// A set of events, one per processor, shared by the processes that are sampled with it.
#[derive(Debug)]
pub(super) struct Processors {
    /// The control group to which the events are limited; `None` for the whole machine.
    group: Option<ControlGroup>,
    /// What the events report about context switches.
    switches: Switches,
    period_nano: u64,
    rings: Vec<ProcessorEvent>,
    /// When the events get their next period, if they cover the whole machine.
    varied: Instant,
    /// The processors that were online when the events were opened.
    online: Vec<u32>,
    /// The sampled processes, with their process ids.
    processes: Vec<(ProcessId, u32)>,
}

impl Processors {
    fn open(
        opener: &dyn Opener,
        group: Option<ControlGroup>,
        online: Vec<u32>,
        period_nano: u64,
        switches: Switches,
    ) -> Option<Self> {
        let folder = group.as_ref().map(ControlGroup::folder);
        let events = open_processors(opener, &online, folder, period_nano, switches).ok()?;
        let bytes = (RINGS / events.len().max(1)).clamp(RING.0, RING.1);
        let mut rings = Vec::with_capacity(events.len());
        for ProcessorEvents { samples: event, switches } in events {
            let ring = Ring::map(event.as_fd(), bytes).ok()?;
            let varying = Varying::new(period_nano, time::unix_nano());
            let into = |switches: &OwnedFd| write_into(switches.as_fd(), event.as_fd()).is_ok();
            let switches = switches.filter(into);
            let pace = Pace::default();
            rings.push(ProcessorEvent { event, switches, ring, varying, pace, sampled: None, last_switch: None });
        }
        let lacks_samples = rings.iter().any(|of| of.switches.is_none());
        let switches = if switches == Switches::Sampled && lacks_samples { Switches::Hidden } else { switches };
        Some(Self { group, switches, period_nano, rings, varied: Instant::now(), online, processes: Vec::new() })
    }

    /// Changes the periods of events of the whole machine when it is time. They are changed at fixed times: their
    /// timers always run, and on a mostly idle processor samples are too rare to count them instead. The timers of a
    /// group's events stop while the group does not run, so their periods are changed after a number of samples.
    ///
    /// A processor keeps its period if it has had no sample of these processes since the last change. The period of the
    /// sampling thread's own processor is changed whenever there was a sample, since changing it does not wait for
    /// another processor.
    fn vary(&mut self, now: Instant) {
        if self.group.is_some() || now < self.varied {
            return;
        }
        self.varied = now + Duration::from_nanos(self.period_nano.saturating_mul(STEADY)).max(LEAST_STEADY);
        let here = affinity::here();
        for ProcessorEvent { event, varying, pace, sampled, .. } in &mut self.rings {
            let now = Instant::now();
            if sampled.is_some() && (*sampled == here || pace.may_change(now)) {
                *sampled = None;
                period::set(event.as_fd(), varying.by_clock());
                pace.changed(now, Instant::now());
            }
        }
    }

    /// Whether these are the events of this group (`None`: the machine) on exactly these processors, with these reports
    /// of switches.
    fn are_of(&self, group: Option<&ControlGroup>, online: &[u32], switches: Switches) -> bool {
        self.group.as_ref() == group && self.online == online && self.switches == switches
    }
}

#[derive(Debug)]
struct ProcessorEvent {
    event: OwnedFd,
    /// The event that takes samples at switches and writes into the ring of `event`.
    #[allow(dead_code, reason = "dropping it closes it")]
    switches: Option<OwnedFd>,
    ring: Ring,
    varying: Varying,
    pace: Pace,
    /// The processor, if one of the processes was sampled on it since the period was changed.
    sampled: Option<u32>,
    /// When a thread last left the processor, in nanoseconds of CLOCK_MONOTONIC: the next thread was given the
    /// processor at that moment. `None` if records were lost since.
    last_switch: Option<u64>,
}

/// The use and the processors of the machine, read once for all processes.
#[derive(Debug, Default)]
pub(super) struct MachineUsage {
    read: Option<Instant>,
    /// The processor time used on the whole machine.
    cpu: Option<Duration>,
    /// The processors that are online.
    online: Vec<u32>,
    /// Whether the sampler may see everything that the processors execute.
    visible: bool,
}

impl MachineUsage {
    /// Reads the values again if they are older than half a review interval.
    fn refresh(&mut self, now: Instant) {
        if self.read.is_some_and(|read| now < read + REVIEW / 2) {
            return;
        }
        self.read = Some(now);
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
        self.cpu = ticks.and_then(|ticks| machine_cpu(&stat, ticks));
        self.online = online_processors().unwrap_or_default();
        self.visible = may_see_all();
    }
}

/// Decides what the events of a process cover, and when to review that.
#[derive(Debug)]
pub(super) struct Review {
    begun: Instant,
    due: Instant,
    membership: Membership,
    before: Option<Marks>,
    /// Whether the process is a command that was just started.
    started: bool,
    /// The coverages that could not be opened, and when each was tried.
    refused: Vec<(Coverage, Instant)>,
}

/// Processor time counters at one moment.
#[derive(Debug, Clone, Copy)]
struct Marks {
    at: Instant,
    own: Duration,
    group: Option<Duration>,
    machine: Duration,
}

impl Review {
    pub(super) fn new(now: Instant, started: bool) -> Self {
        Self { begun: now, due: now, membership: Membership::default(), before: None, started, refused: Vec::new() }
    }

    /// Finds the current control group of the process. After a move, the process's share of the new group's time is not
    /// known yet.
    pub(super) fn look_for_group(&mut self, process: BorrowedFd<'_>) {
        if self.membership.refresh(process)
            && let Some(before) = &mut self.before
        {
            before.group = None;
        }
    }

    /// Chooses the next coverage after `coverage`: the best one for which `opens` succeeds; the whole machine only if
    /// it is `visible`. A coverage that could not be opened is tried again after a while.
    fn choose(
        &mut self,
        coverage: Coverage,
        usage: Option<Usage>,
        visible: bool,
        now: Instant,
        mut opens: impl FnMut(Coverage) -> bool,
    ) -> Coverage {
        self.refused.retain(|(_, at)| now.saturating_duration_since(*at) < ASKED_AGAIN);
        let Self { membership, started, refused, .. } = self;
        let is_refused = |coverage| refused.iter().any(|(refused, _)| *refused == coverage);
        let permitted = Permitted {
            group: membership.group().is_some() && !is_refused(Coverage::Group),
            machine: visible && !is_refused(Coverage::Machine),
        };
        coverage.settle(usage, std::mem::take(started), permitted, |wanted| {
            let opened = opens(wanted);
            if !opened {
                refused.push((wanted, now));
            }
            opened
        })
    }

    /// Makes the review due in the next tick.
    pub(super) fn make_due(&mut self) {
        self.due = self.begun;
    }

    /// Reads the counters, and returns the use of the processors since the last call. `switches` is how many times the
    /// busiest thread was given a processor meanwhile.
    pub(super) fn usage(
        &mut self,
        pid: u32,
        threads: usize,
        switches: u64,
        machine: &MachineUsage,
        now: Instant,
    ) -> Option<Usage> {
        let marks = Marks {
            at: now,
            own: Duration::from_nanos(time::cpu_of(pid)?),
            group: self.membership.group().and_then(ControlGroup::cpu),
            machine: machine.cpu?,
        };
        let before = self.before.replace(marks)?;
        let elapsed = now.saturating_duration_since(before.at);
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let own = marks.own.saturating_sub(before.own);
        Some(Usage {
            elapsed,
            own,
            group: marks.group.zip(before.group).map(|(after, before)| after.saturating_sub(before)),
            machine: marks.machine.saturating_sub(before.machine),
            switches: switches.saturating_mul(1000) / millis,
            threads,
        })
    }
}

impl Events {
    /// Whether a process is sampled with the events of this group (`None`: the machine) on all processors that are
    /// online now.
    fn covers(&self, process: ProcessId, group: Option<&ControlGroup>, switches: Switches) -> bool {
        let mut of = self.processors.iter().filter(|set| set.are_of(group, &self.machine.online, switches));
        of.any(|set| set.processes.iter().any(|(id, _)| *id == process))
    }

    /// The index of the events of this group (`None`: the machine) with this period, which all processes that are
    /// sampled with them share. Opens them if necessary. `None` if that fails, or they are open with another period.
    fn open_processors(&mut self, group: Option<&ControlGroup>, period_nano: u64, switches: Switches) -> Option<usize> {
        let online = &self.machine.online;
        if let Some(index) = self.processors.iter().position(|set| set.are_of(group, online, switches)) {
            return (self.processors[index].period_nano == period_nano).then_some(index);
        }
        let set = Processors::open(&*self.opener, group.cloned(), online.clone(), period_nano, switches)?;
        if set.rings.iter().any(|of| self.wait_for(of.event.as_fd()).is_err()) {
            return None;
        }
        self.processors.push(set);
        Some(self.processors.len() - 1)
    }
}

impl Events {
    /// What the events of a group (`None`: the machine) should report about switches. If a set of events with
    /// [`Switches::Sampled`] is open already, it is used: one set costs less than two.
    fn shared_switches(&self, group: Option<&ControlGroup>, wanted: Switches) -> Switches {
        let online = &self.machine.online;
        let mut sets = self.processors.iter();
        let are_sampled = wanted == Switches::Recorded && sets.any(|set| set.are_of(group, online, Switches::Sampled));
        if are_sampled { Switches::Sampled } else { wanted }
    }
}

impl Engine<'_> {
    /// Reviews what the events of a process should cover, when a review is due.
    pub(super) fn review_coverage(&mut self, index: usize, now: Instant) {
        for set in self.events.iter_mut().flat_map(|events| &mut events.processors) {
            set.vary(now);
        }
        let process = &mut self.processes[index];
        let Some(before) = process.watch.coverage().filter(|_| now >= process.review.due) else { return };
        // The kernel adds up the CPU time of all threads of a process, which is slow if there are many.
        let seldom = (1 + process.threads.len() / MANY_THREADS).min(SELDOM);
        process.review.due = now + REVIEW * u32::try_from(seldom).unwrap_or(1);
        let Some(events) = &mut self.events else { return };
        events.machine.refresh(now);
        let process = &mut self.processes[index];
        let usage = process.usage(&events.machine, now);
        let (id, period_nano) = (process.attached.id, process.event_period());
        // Events of processors also cost other processes time. So they are used only while the budget has not lowered
        // the rate, or if the process has so many threads that their own events would cost more. They wake no readers,
        // so they are not used if readers are needed.
        let many = process.threads.len() > THREADS;
        let spare = process.is_at_full_rate() && !process.are_records_expensive();
        let spare = (spare || many) && !process.wants_readers();
        let switches = process.wanted_switches(now);
        let review = &mut process.review;
        review.started |= many && usage.is_none();
        let group = review.membership.group().cloned();
        let mut opened = None;
        let coverage = if spare {
            review.choose(before, usage, events.machine.visible, now, |coverage| {
                let group = if coverage == Coverage::Group { group.as_ref() } else { None };
                // In a group, the previous thread on the processor may not be sampled, so its switch is not known.
                let switches = if coverage == Coverage::Group && switches == Switches::Sampled {
                    Switches::Recorded
                } else {
                    events.shared_switches(group, switches)
                };
                if coverage == before && events.covers(id, group, switches) {
                    return true;
                }
                opened = events.open_processors(group, period_nano, switches);
                opened.is_some()
            })
        } else {
            Coverage::Threads
        };
        if coverage == before && opened.is_none() {
            return;
        }
        // The samples so far are from the previous events. The process is added to the new set only after these were
        // read, so that no time is sampled twice.
        self.drain_all();
        if let (Some(events), Some(opened)) = (&mut self.events, opened) {
            let pid = self.processes[index].attached.files.pid();
            events.processors[opened].processes.push((id, pid));
        }
        let set = opened.and_then(|opened| self.events.as_ref()?.processors.get(opened));
        let switches = set.map_or(Switches::Hidden, |set| set.switches);
        self.leave_processors_but(id, opened);
        let process = &mut self.processes[index];
        process.switches = switches;
        process.watch = RunningThreadMethod::covering(coverage);
        process.attached.status.level = process.watch.level();
        process.close_recordings(Instant::now());
        process.close_events();
        let hidden = coverage == Coverage::Threads || process.switches == Switches::Hidden;
        let recorded = if hidden { &[][..] } else { &process.threads };
        let recorded: Vec<u32> = recorded.iter().map(ThreadState::id).collect();
        for (number, id) in recorded.into_iter().enumerate() {
            if number % LOOKS == LOOKS - 1 {
                self.drain_processors();
            }
            // Reading the records may have inserted threads before this one.
            if let Some(thread) = self.processes[index].find(id) {
                self.processes[index].begin_recording(thread, Instant::now());
            }
        }
    }

    /// Stops sampling a process with events of processors.
    pub(super) fn leave_processors(&mut self, process: ProcessId) {
        self.leave_processors_but(process, None);
    }

    /// Removes a process from all sets of events of processors except `kept`.
    fn leave_processors_but(&mut self, process: ProcessId, kept: Option<usize>) {
        let Some(events) = &mut self.events else { return };
        for (index, set) in events.processors.iter_mut().enumerate() {
            if Some(index) != kept {
                set.processes.retain(|(id, _)| *id != process);
            }
        }
        // Sets that no process uses are closed. So a set that was opened before a processor went online or offline is
        // closed with its last process.
        events.processors.retain(|set| !set.processes.is_empty());
    }

    /// Reads the samples of all processors. Of samples of other processes only the process id is read.
    pub(super) fn drain_processors(&mut self) {
        let sets = self.events.as_ref().map_or(0, |events| events.processors.len());
        if sets == 0 {
            return;
        }
        let (began, mut switches) = (time::thread_cpu(), 0);
        for set in 0..sets {
            let rings = self.events.as_ref().map_or(0, |events| events.processors[set].rings.len());
            for ring in 0..rings {
                switches += self.drain_processor(set, ring);
            }
        }
        self.record_cost.note(time::thread_cpu().saturating_sub(began), switches);
    }

    /// Reads the samples of one processor. Returns how many switches were recorded.
    fn drain_processor(&mut self, set: usize, ring: usize) -> usize {
        let Self { processes: sampled, captures, events: Some(events), .. } = self else { return 0 };
        let Processors { group, rings, processes, switches: reported, .. } = &mut events.processors[set];
        let ProcessorEvent { event, ring, varying, pace, sampled: processor, last_switch, .. } = &mut rings[ring];
        if ring.is_empty() {
            return 0;
        }
        let mut switches = 0;
        let are_sampled = *reported == Switches::Sampled;
        // When the processor was given to the current thread, and when to the previous one.
        let (since, before) = (Cell::new(*last_switch), Cell::new(None));
        let wanted = |head: SampleHead| {
            if head.switched_nano.is_some() {
                before.set(since.replace(head.switched_nano));
            }
            processes.iter().any(|(_, own)| *own == head.process)
        };
        let clock = ClockPair::now();
        let (samples, shortfall) = Shortfall::drain(ring, wanted, &mut events.buffer, |record| {
            let sample = match record {
                Record::Sample(sample) => sample,
                Record::Leaving(sample) => {
                    let Some(process) = with_pid(sampled, processes, sample.process) else { return };
                    let at = clock.instant_of(sample.time_nano);
                    if are_sampled {
                        switches += 1;
                        let since = before.get().map(|nano| clock.instant_of(nano));
                        process.note_sampled_turn(since, at, &sample);
                    } else if let User::Registers(registers) = sample.user {
                        process.note_leaving(sample.thread, at, registers, sample.stack);
                    }
                    return;
                }
                Record::Mapped(mapped) => {
                    if let Some(process) = with_pid(sampled, processes, mapped.process)
                        && let Some(entry) = recorded(&mapped)
                    {
                        process.attached.mapped(clock.instant_of(mapped.time_nano), entry);
                    }
                    return;
                }
                record => {
                    if let Some(happened) = ThreadChange::from_record(&record, clock)
                        && let Some(process) = with_pid(sampled, processes, happened.process)
                    {
                        switches += usize::from(matches!(happened.what, ThreadChangeKind::In));
                        process.note_switch(happened);
                    }
                    return;
                }
            };
            let Some(process) = with_pid(sampled, processes, sample.process) else { return };
            *processor = Some(sample.processor);
            if are_sampled && let Some(since) = since.get() {
                let (process_id, thread) = (sample.process, sample.thread);
                let at = clock.instant_of(since);
                process.note_switch(ThreadChange { process: process_id, thread, at, what: ThreadChangeKind::Runs });
            }
            if sample.user == User::OtherArchitecture {
                process.concern = PendingCheck::OtherArchitecture;
            }
            let pieces = captures.spare.pop().unwrap_or_default();
            let of = (process.attached.id, process.attached.space_generation);
            captures.take_sample(of, RunningSample::from_sample(&sample, pieces, clock), sample.period_nano, None);
        });
        *last_switch = since.get();
        if group.is_some()
            && let now = Instant::now()
            && let Some(period_nano) = varying.count_samples(samples, pace.may_change(now))
        {
            period::set(event.as_fd(), period_nano);
            pace.changed(now, Instant::now());
        }
        if shortfall != Shortfall::default() {
            *last_switch = None;
            // It is not known whose samples were lost, so the loss is counted for each process of the set.
            for (id, _) in processes.iter() {
                if let Some(process) = sampled.iter_mut().find(|process| process.attached.id == *id) {
                    process.lost(shortfall);
                }
            }
        }
        self.make_room();
        switches
    }
}

/// The process with this process id among those that share a set of events.
fn with_pid<'a>(sampled: &'a mut [Active], sharers: &[(ProcessId, u32)], pid: u32) -> Option<&'a mut Active> {
    let (id, _) = sharers.iter().find(|(_, of)| *of == pid)?;
    sampled.iter_mut().find(|process| process.attached.id == *id)
}

#[cfg(test)]
pub(super) mod tests;
