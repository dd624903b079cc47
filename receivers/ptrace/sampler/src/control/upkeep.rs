//! Periodic work: searches for processes, checks attached ones, and reads maps again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address_space::{AddressSpace, LoadError, MappedAt};
use crate::control::attach::Attempt;
use crate::control::{Control, UPKEEP};
use crate::message::{Detached, ProblemKind, ProcessId, Select};
use crate::perf_map;
use crate::process_files::Life;

/// The shortest and the longest pause between two reads of a process's maps.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// After a read, the pause is at least this many times as long as the read took: a target that keeps mapping files
/// uses at most a tenth of this thread's time.
const SHARE: u32 = 9;
/// The same ratio if the read found new files. It is smaller, because their code is unknown until they are read, and
/// each file is read only once.
const SHARE_OF_NEWS: u32 = 2;

/// How often a process's maps are compared with the known ones, and the minimum ratio between the pause after a
/// comparison and its duration.
const COMPARISON: (Duration, u32) = (Duration::from_millis(900), 1000);

/// Decides when a process's maps are read again.
#[derive(Debug)]
pub(super) struct Reload {
    wanted: bool,
    not_before: Option<Instant>,
    pause: Duration,
    compare_after: Option<Instant>,
}

impl Default for Reload {
    fn default() -> Self {
        Self { wanted: false, not_before: None, pause: PAUSE.0, compare_after: None }
    }
}

impl Reload {
    /// Schedules a read, because the sampling thread found code outside of all known mappings.
    pub(super) fn want(&mut self, now: Instant) {
        self.wanted = true;
        self.not_before.get_or_insert(now);
    }

    /// When the maps have to be read next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.wanted)
    }

    /// Whether it is time to check if the maps have changed.
    fn is_to_compare(&self, now: Instant) -> bool {
        !self.wanted && self.compare_after.is_none_or(|time| time <= now)
    }

    /// Records that the maps were compared, which took this long.
    fn compared(&mut self, took: Duration) {
        self.compare_after = Some(Instant::now() + COMPARISON.0.max(took * COMPARISON.1));
    }

    /// Records that the maps were read, which took this long; `news` says whether anything had changed.
    fn done(&mut self, took: Duration, news: bool) {
        self.wanted = false;
        self.pause = if news { PAUSE.0 } else { (self.pause * 2).min(PAUSE.1) };
        let share = if news { SHARE_OF_NEWS } else { SHARE };
        self.not_before = Some(Instant::now() + self.pause.max(took * share));
    }
}

impl Control {
    /// Does the work that is due.
    pub(super) fn attend(&mut self, now: Instant) {
        self.attach_again(now);
        self.reload(now);
        self.look_for_children(now);
        if now < self.next_upkeep {
            return;
        }
        self.next_upkeep = now + UPKEEP;
        if self.is_finding() {
            self.find();
        }
        let processes: Vec<ProcessId> = self.attached.keys().copied().collect();
        for process in processes {
            if self.is_same(process) {
                self.compare_maps(process, now);
                self.look_for_perf_map(process);
                self.look_at_context(process);
                self.look_at_standing(process);
                self.look_at_wrapper(process);
            }
        }
        // Drop the reported problems of processes that are gone, which would accumulate.
        if self.reported.len() > 1024 {
            self.reported
                .retain(|(_, pid, _)| pid.is_none_or(|pid| std::fs::exists(format!("/proc/{pid}")).unwrap_or(true)));
        }
        if self.given_up.len() > 1024 {
            self.given_up.retain(|(pid, _)| std::fs::exists(format!("/proc/{pid}")).unwrap_or(true));
        }
    }

    /// Checks whether a process is still the same: it may have ended or executed another program, also while it is not
    /// being sampled.
    fn is_same(&mut self, process: ProcessId) -> bool {
        let Some(attached) = self.attached.get_mut(&process).filter(|attached| attached.ending.is_none()) else {
            return false;
        };
        let ending = match attached.files.alive() {
            Life::Same => return true,
            Life::Executed => Detached::Executed,
            Life::Exited => Detached::Exited,
        };
        attached.ending = Some(ending);
        self.sampler.detach(process);
        false
    }

    fn attach_again(&mut self, now: Instant) {
        let mut due = Vec::new();
        self.again.retain(|again| {
            if again.due <= now {
                due.push(*again);
            }
            again.due > now
        });
        for again in due {
            let target = self.targets.get(&again.target);
            let follows = target.is_some_and(|target| target.settings.subprocesses);
            let named = target.is_some_and(|target| matches!(target.select, Select::Pid(_) | Select::Command(_)));
            if !named && !follows {
                // The process now executes another program, which may belong to another target or to none.
                if self.look_at(again.pid).is_some()
                    && let Some(next) = again.next()
                {
                    self.again.push(next);
                }
                continue;
            }
            // A process started by a target's process may be another profbridge.
            if follows && self.own.is_program(again.pid).unwrap_or(false) {
                continue;
            }
            let target = self.other_target(again.target, again.pid).unwrap_or(again.target);
            match self.attach(target, again.pid, Some(again.start), None) {
                Attempt::Attached(_) | Attempt::Refused | Attempt::Gone => {}
                Attempt::Changing => match again.next() {
                    Some(next) => self.again.push(next),
                    None => {
                        let message =
                            format!("process {} has no memory: it ends, or is a thread of the kernel", again.pid);
                        self.report(again.target, Some(again.pid), ProblemKind::Missing, message);
                    }
                },
            }
        }
    }

    /// Reads the maps of all processes that are due.
    fn reload(&mut self, now: Instant) {
        let due: Vec<ProcessId> = self
            .attached
            .iter()
            .filter(|(_, attached)| attached.ending.is_none() && attached.reload.due().is_some_and(|due| due <= now))
            .map(|(id, _)| *id)
            .collect();
        for process in due {
            self.read_maps_again(process);
        }
    }

    /// Schedules a read of a process's maps if it has mapped other files at addresses that were used before.
    fn compare_maps(&mut self, process: ProcessId, now: Instant) {
        let Some(attached) = self.attached.get_mut(&process).filter(|attached| attached.reload.is_to_compare(now))
        else {
            return;
        };
        let start = Instant::now();
        let outdated = attached.space.is_outdated(&*attached.files);
        attached.reload.compared(start.elapsed());
        // If the maps could not be read, they are tried again at the next comparison, unless the process is gone.
        if outdated.unwrap_or(false) {
            attached.reload.want(now);
        }
    }

    /// Reads the current maps of a process, and rebuilds them for each time at which code was replaced.
    fn read_maps_again(&mut self, process: ProcessId) {
        let Some(attached) = self.attached.get_mut(&process) else { return };
        let mapped = std::mem::take(&mut attached.mapped);
        let start = Instant::now();
        let ends = (1..mapped.len()).filter(|end| mapped[*end].replaces).chain([mapped.len()]);
        for end in ends {
            let mapped = &mapped[..end];
            self.read_maps_of(process, start, mapped.last().map_or_else(Instant::now, |last| last.at), mapped);
        }
        // The new code may be compiled at run time, so look for its perf map; it is sent as soon as the process is
        // sampled.
        self.look_for_perf_map(process);
    }

    /// Reads the maps and applies the mappings that were `mapped` up to `at`. `start` is when the first of these reads
    /// began.
    fn read_maps_of(&mut self, process: ProcessId, start: Instant, at: Instant, mapped: &[MappedAt]) {
        let Some(attached) = self.attached.get_mut(&process) else { return };
        let known = attached.space.mappings().len();
        let loaded = AddressSpace::load_with(&*attached.files, Some(&attached.space), &mut self.cache, mapped);
        let space = match loaded {
            Ok(space) => Arc::new(space),
            Err(error) => {
                attached.reload.done(start.elapsed(), false);
                // If the process is gone, another check notices it.
                if !matches!(error, LoadError::Gone) {
                    let (target, pid) = (attached.target, attached.pid);
                    self.report(target, Some(pid), ProblemKind::Malformed, format!("process {pid}: {error}"));
                }
                return;
            }
        };
        let news = space.mappings().len() > known || !mapped.is_empty();
        attached.reload.done(start.elapsed(), news);
        attached.space = Arc::clone(&space);
        let (target, pid) = (attached.target, attached.pid);
        // Must be sent before the sampling thread can refer to these mappings.
        self.announce(process, &space, known);
        self.report_faults(target, pid, &space, Vec::new());
        self.sampler.set_space(process, at, space);
        self.look_at_context(process);
    }

    /// Sends a process's perf map to the owner if there is a new one.
    pub(super) fn look_for_perf_map(&mut self, process: ProcessId) {
        let Some(attached) = self.attached.get_mut(&process) else { return };
        let Some(root) = &attached.root else { return };
        let mut found = perf_map::open(root, attached.namespace_pid, attached.user, attached.perf_map);
        if attached.perf_map.is_none()
            && matches!(found, Ok(None))
            && let Some(dump) = &attached.space.jit_dump
        {
            found = perf_map::open_dump(&*attached.files, dump, attached.user);
        }
        match found {
            Ok(None) => {}
            Ok(Some((file, identity))) => {
                attached.perf_map = Some(identity);
                if let Ok(shared) = file.try_clone() {
                    self.sampler.set_perf_map(process, Arc::new(shared));
                }
                self.outbox.push(crate::message::Event::PerfMap { process, file });
            }
            Err(reason) => {
                let (target, pid) = (attached.target, attached.pid);
                self.report(target, Some(pid), ProblemKind::Malformed, format!("process {pid}: {reason}"));
            }
        }
    }
}
