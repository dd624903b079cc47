//! Attaches to a process: opens its files, reads its maps, informs the owner, and passes it to the sampling thread.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address_space::{AddressSpace, LoadError};
use crate::command::Stopped;
use crate::control::{AttachedProcess, Control, contexts, upkeep};
use crate::message::{Event, Mapping, ProblemKind, ProcessId, Stops, TargetId};
use crate::pidfd::PidFd;
use crate::process_files::ProcessFiles;
use crate::process_info;
use crate::protocol::{MAX_MAPPINGS, MAX_PROCESSES};

/// How many times attaching is repeated while the process is executing another program: after 10 ms, 20 ms and so on,
/// 2.5 s in all.
const ATTEMPTS: u32 = 8;

/// How many faults of one process are listed in a message.
const NAMED_FAULTS: usize = 5;

/// A process to which attaching is to be tried again later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Again {
    pub(super) target: TargetId,
    pub(super) pid: u32,
    pub(super) start: u64,
    pub(super) due: Instant,
    attempts: u32,
}

impl Again {
    pub(super) fn at_once(target: TargetId, pid: u32, start: u64) -> Self {
        Self { target, pid, start, due: Instant::now(), attempts: 0 }
    }

    /// The next attempt, if there is one left.
    pub(super) fn next(self) -> Option<Self> {
        let pause = Duration::from_millis(10) * 2u32.pow(self.attempts.min(ATTEMPTS));
        let next = Self { due: Instant::now() + pause, attempts: self.attempts + 1, ..self };
        (next.attempts <= ATTEMPTS).then_some(next)
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Attached(ProcessId),
    /// The process cannot be attached to; the owner was informed of the reason.
    Refused,
    /// The process has ended.
    Gone,
    /// The process has no memory, because it is ending or executing another program.
    Changing,
}

impl Control {
    /// Attaches to the process with this id, for a target that selects it by id.
    pub(super) fn attach_named(&mut self, target: TargetId, pid: u32) {
        if self.own.is_pid(pid) {
            let message = format!("process {pid} is profbridge itself, which is never sampled");
            self.report(target, Some(pid), ProblemKind::Permission, message);
            return;
        }
        match self.attach(target, pid, None, None) {
            Attempt::Attached(_) | Attempt::Refused => {}
            Attempt::Gone => {
                let message = match process_of_thread(pid) {
                    Some(process) => format!("{pid} is a thread of process {process}: name the process instead"),
                    None => format!("there is no process {pid}"),
                };
                self.report(target, Some(pid), ProblemKind::Missing, message);
            }
            Attempt::Changing => {
                let start = std::fs::File::open(format!("/proc/{pid}")).ok().and_then(|directory| start_of(&directory));
                if let Some(start) = start {
                    self.again.push(Again::at_once(target, pid, start));
                }
            }
        }
    }

    /// Attaches to a command that is stopped at its first instruction, and lets it run.
    pub(super) fn attach_stopped(&mut self, target: TargetId, stopped: Stopped) {
        let pid = stopped.pid();
        let attempt = self.attach(target, pid, None, Some(stopped));
        if matches!(attempt, Attempt::Gone | Attempt::Changing) {
            let message = format!("the command (process {pid}) ended before it could be sampled");
            self.report(target, Some(pid), ProblemKind::Missing, message);
        }
    }

    /// Attaches to a process for a target. With `start`, it attaches only if the process started at that time. A
    /// stopped process is running when this returns.
    pub(super) fn attach(
        &mut self,
        target: TargetId,
        pid: u32,
        start: Option<u64>,
        stopped: Option<Stopped>,
    ) -> Attempt {
        let Some(wanted) = self.targets.get(&target) else { return Attempt::Refused };
        let (settings, sample_at_once) = (wanted.settings, wanted.sample_at_once);
        let environment = wanted.environment.clone();
        if let Some(other) = self.attached.values().find(|attached| attached.pid == pid && attached.ending.is_none()) {
            if other.target != target {
                let message = format!("process {pid} is already sampled for another target");
                self.report(target, Some(pid), ProblemKind::Traced, message);
            }
            return Attempt::Refused;
        }
        let count = self.attached.values().filter(|attached| attached.target == target).count();
        if count >= settings.max_processes || self.attached.len() >= MAX_PROCESSES {
            let message = if count >= settings.max_processes {
                format!("more than {count} processes match, the others are not sampled")
            } else {
                format!("{MAX_PROCESSES} processes are sampled already, those of this target are not")
            };
            self.report(target, None, ProblemKind::TooMany, message);
            return Attempt::Refused;
        }
        let files = match ProcessFiles::open(pid) {
            Ok(files) => Arc::new(files),
            Err(error) => return self.explain(target, pid, &error),
        };
        if start.is_some_and(|start| start != files.start_ticks()) {
            return Attempt::Gone;
        }
        if self.given_up.contains(&(pid, files.start_ticks())) {
            return Attempt::Refused;
        }
        let Ok(process) = PidFd::open(pid) else { return Attempt::Gone };
        let space = match AddressSpace::load(&*files, None, &mut self.cache) {
            Ok(space) => Arc::new(space),
            Err(LoadError::Gone) => return Attempt::Changing,
            Err(error @ LoadError::Architecture { .. }) => {
                self.report(
                    target,
                    Some(pid),
                    ProblemKind::Architecture,
                    format!("process {pid} cannot be sampled: {error}"),
                );
                return Attempt::Refused;
            }
            Err(LoadError::Maps(error) | LoadError::Memory(error)) => return self.explain(target, pid, &error),
        };
        let id = ProcessId(self.next_process);
        let Ok(described) = process_info::describe(&files, id, target, &environment, self.clock) else {
            return Attempt::Gone;
        };
        // The descriptor was opened by process id. If the process with this id still has the same start time, the
        // descriptor belongs to it.
        if files.alive() != crate::process_files::Life::Same {
            return Attempt::Changing;
        }
        // The process may have executed another program between its discovery and the opening of its files.
        if start.is_some() && self.other_target(target, pid).is_some() {
            return Attempt::Changing;
        }
        self.next_process += 1;
        let attached = AttachedProcess {
            target,
            pid,
            namespace_pid: described.process.namespace_pid,
            user: described.process.user,
            executable: described.process.executable.clone(),
            root: described.process.root.as_ref().and_then(|root| root.try_clone().ok()),
            files: Arc::clone(&files),
            space: Arc::clone(&space),
            process,
            perf_map: None,
            folders: 0,
            reload: upkeep::Reload::default(),
            mapped: Vec::new(),
            shown: contexts::PublishedContext::default(),
            ending: None,
        };
        self.outbox.push(Event::Attached(Box::new(described.process)));
        self.attached.insert(id, attached);
        if settings.subprocesses {
            self.children.attached(Instant::now());
        }
        self.announce(id, &space, 0);
        self.report_faults(target, pid, &space, described.faults);
        self.sampler.attach(id, files, space, settings);
        self.look_for_perf_map(id);
        self.look_at_context(id);
        let traced = stopped.is_some();
        if traced && sample_at_once && settings.stops != Stops::Always {
            self.sampler.sample_from_start(id);
        }
        // A thread has one tracer at most, so the tracer of the stopped command detaches before the sampling thread can
        // attach.
        drop(stopped);
        if sample_at_once {
            self.sampler.sample(id, true);
        }
        if !traced {
            self.look_at_standing(id);
        }
        Attempt::Attached(id)
    }

    /// Sends the owner the mapped files with this index and higher ones.
    pub(super) fn announce(&mut self, process: ProcessId, space: &AddressSpace, from: usize) {
        let executable = self.attached.get(&process).map_or("", |attached| &attached.executable);
        for (index, mapped) in (0..MAX_MAPPINGS).zip(space.mappings()).skip(from) {
            // The kernel shows the path of any of the file's hard links.
            let path = if mapped.main && !executable.is_empty() { executable } else { &mapped.path };
            self.outbox.push(Event::Mapping(Mapping {
                process,
                index,
                path: path.to_owned(),
                start: mapped.start,
                end: mapped.end,
                file_offset: mapped.file_offset,
                build_id: mapped.build_id.clone(),
                htlhash: mapped.htlhash,
                main: mapped.main,
                go: mapped.go,
                file: mapped.file.as_ref().and_then(|file| file.try_clone().ok()),
            }));
        }
    }

    /// Reports which files of a process could not be used.
    pub(super) fn report_faults(&mut self, target: TargetId, pid: u32, space: &AddressSpace, mut faults: Vec<String>) {
        faults.extend(space.faults().iter().map(|fault| format!("{}: {}", fault.path, fault.reason)));
        if faults.is_empty() {
            return;
        }
        let more = faults.len().saturating_sub(NAMED_FAULTS);
        faults.truncate(NAMED_FAULTS);
        let mut message = format!("process {pid}: not everything could be read: {}", faults.join("; "));
        if more > 0 {
            message.push_str(&format!("; and {more} more"));
        }
        self.report(target, Some(pid), ProblemKind::Malformed, message);
    }

    /// Reports why a process could not be opened.
    fn explain(&mut self, target: TargetId, pid: u32, error: &std::io::Error) -> Attempt {
        let directory = match File::open(format!("/proc/{pid}")) {
            Ok(directory) => directory,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Attempt::Gone,
            Err(_) => {
                let (kind, message) = self.powers.explain(pid, None, error);
                self.report(target, Some(pid), kind, message);
                return Attempt::Refused;
            }
        };
        if let Some(message) = super::standing::zombie(&directory, pid) {
            self.report(target, Some(pid), ProblemKind::Zombie, message);
            return Attempt::Refused;
        }
        // A kernel thread has no memory, and neither has a process while it executes another program.
        let memoryless =
            matches!(error.raw_os_error(), Some(libc::ESRCH)) || error.kind() == std::io::ErrorKind::InvalidInput;
        if memoryless {
            return Attempt::Changing;
        }
        let status = process_info::status(directory.as_fd(), "status").ok();
        let (kind, message) = self.powers.explain(pid, status, error);
        self.report(target, Some(pid), kind, message);
        Attempt::Refused
    }
}

/// The process of a thread that is not the first one of its process.
fn process_of_thread(thread: u32) -> Option<u32> {
    let directory = File::open(format!("/proc/{thread}")).ok()?;
    let process = process_info::status(directory.as_fd(), "status").ok()?.process;
    (process != 0 && process != thread).then_some(process)
}

/// The start time of a process.
pub(super) fn start_of(directory: &File) -> Option<u64> {
    let (stat, _) = crate::discover::read_at_most(directory, "stat", 4096).ok()?;
    Some(crate::probe::parse_stat(&stat)?.start_ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a thread that is not its process's first one is distinguished from a process, and from an unused
    /// id.
    #[test]
    fn threads_are_no_processes() {
        let own = std::process::id();
        let thread = std::thread::spawn(|| process_of_thread(nix::unistd::gettid().as_raw().unsigned_abs()));
        assert_eq!(thread.join().unwrap(), Some(own));
        assert_eq!((process_of_thread(own), process_of_thread(u32::MAX)), (None, None));
    }
}
