//! The targets for the sampler process, and how a run reacts to its end.

use std::time::{Duration, Instant};

use profbridge_receiver_ptrace::record::ProcessLife;
use profbridge_receiver_ptrace::resource::ENVIRONMENT;
use profbridge_sampler::DescendantsTime;
use profbridge_sampler::message::{Command, Mode, Process, ProcessId, Select, Settings, Stops, Target, TargetId};
use profbridge_sampler::owner::Ending;

use super::{FINDING, Run, unix_nano};
use crate::Failure;
use crate::args::sampling::{self, Subject};
use crate::sample::TARGET;
use crate::sample::processes::ChildrenTime;
use crate::sample::report::BUSY_PARTS;

/// At most this many processes per target are sampled at the same time.
const MOST_PROCESSES: usize = 512;

/// The sampler settings of a run.
pub(super) fn settings(arguments: &Subject) -> Settings {
    let mode = match arguments.mode {
        sampling::SamplingMode::Wall => Mode::Wall,
        sampling::SamplingMode::Cpu => Mode::Cpu,
    };
    let stops = match arguments.stops {
        sampling::Stops::UserBound => Stops::UserBound,
        sampling::Stops::Never => Stops::Never,
        sampling::Stops::Always => Stops::Always,
    };
    let (rate_hertz, subprocesses) = (arguments.rate, arguments.subprocesses);
    Settings { rate_hertz, mode, stops, subprocesses, max_processes: MOST_PROCESSES, ..Settings::default() }
}

/// How long processes are observed to find out whether only their children run.
const LOOK_AT_CHILDREN: Duration = Duration::from_secs(1);

/// Processes count as idle below one part in this many of the time.
const IDLE_PARTS: u32 = 50;

impl Run<'_> {
    /// Sends the targets to the sampler process.
    pub(super) fn watch(&mut self) -> Result<(), Failure> {
        self.watched_since = Instant::now();
        let name = self.subject.name.clone().unwrap_or_default();
        let roots = self.course.roots();
        let select = |pid: Option<u32>| pid.map_or_else(|| Select::Name(name.clone()), Select::Pid);
        let targets: Vec<_> = roots.map(|(target, pid)| (target, select(pid))).collect();
        targets.into_iter().try_for_each(|(target, select)| self.watch_target(target, select))
    }

    fn watch_target(&self, id: TargetId, select: Select) -> Result<(), Failure> {
        let target = Target {
            id,
            select,
            settings: self.settings,
            environment: ENVIRONMENT.map(str::to_owned).to_vec(),
            thread_attributes: Vec::new(),
            // A command is held until it is attached, and sampled once it runs.
            sample_at_once: id != TARGET || self.sampling.command.is_none(),
        };
        match self.sampling.sampler.send(Command::Watch(target)) {
            // Its end will be reported, and its successor gets the targets.
            Ok(()) | Err(profbridge_sampler::SendError::Gone) => Ok(()),
            Err(error) => Err(Failure::new("nothing can be sampled", &error)),
        }
    }

    /// Samples an attached command, also after it executed another program. It is released as soon as it is sampled.
    pub(super) fn sample_command(&mut self, process: &Process) {
        let Some(command) = &self.sampling.command else { return };
        if process.target != TARGET {
            return;
        }
        if process.pid != command.pid() {
            // The process is a descendant of the command. If the sampler is gone, its end will be reported.
            self.sampling.sampler.send(Command::Sample { process: process.id, on: true }).ok();
            return;
        }
        let held = self.sampling.command.as_ref().is_some_and(|command| command.is_held());
        let command = if held && self.settings.stops != Stops::Always {
            self.prepared = Some(process.id);
            Command::SampleFromStart(process.id)
        } else {
            // It has to be released before it can be stopped.
            self.release();
            Command::Sample { process: process.id, on: true }
        };
        // If the sampler is gone, its end will be reported.
        self.sampling.sampler.send(command).ok();
    }

    /// The sampler process reported on a process: if it is the command, the command may run now.
    pub(super) fn is_sampled(&mut self, process: ProcessId) {
        if self.prepared.take_if(|prepared| *prepared == process).is_some() {
            self.release();
        }
    }

    /// Releases the command if it is still held.
    pub(super) fn release(&self) {
        if let Some(command) = &self.sampling.command {
            command.let_run();
        }
    }

    /// Also samples the process that a command started and only waits for.
    pub(super) fn look_at_command(&mut self) {
        if self.sampling.command.is_none() || self.course.exit_code().is_some() {
            return;
        }
        if self.watched_since.elapsed() >= FINDING {
            self.release();
        }
        let (false, [command]) = (self.subject.subprocesses, &self.sampling.pids[..]) else { return };
        if !self.course.ever_attached() {
            return;
        }
        let now = Instant::now();
        for (target, pid) in self.follow.look(*command, now) {
            // If the sampler refuses it, it is about to end, which will be reported.
            self.watch_target(target, Select::Pid(pid)).ok();
        }
        if let Some(count) = self.follow.several(now) {
            self.say(&format!(
                "hint: the command waits for {count} processes that it started; --subprocesses samples them as well"
            ));
        }
    }

    /// Samples the children of the requested processes from now on as well, if these run while the processes do not.
    pub(super) fn look_at_children(&mut self) {
        let (Some(begun), now) = (self.begun, Instant::now()) else { return };
        if self.settings.subprocesses || now < self.next_look_at_children.max(begun + LOOK_AT_CHILDREN) {
            return;
        }
        self.next_look_at_children = now + LOOK_AT_CHILDREN;
        let (own, of_children) = self.read_children();
        let is_meant = !self.subject.no_subprocesses && !self.subject.pid.is_empty();
        // Processes that wait for their children wake up for signals.
        if !is_meant || own * IDLE_PARTS > begun.elapsed() || of_children * BUSY_PARTS < begun.elapsed() {
            return;
        }
        self.settings.subprocesses = true;
        self.children.clear();
        self.busy_children.clear();
        let which =
            if let [pid] = self.subject.pid[..] { format!("process {pid} does") } else { "these do".to_owned() };
        let what = "so the processes started there are sampled as well (--no-subprocesses leaves them out)";
        self.announce(&format!("note: {which} not run, {what}"));
        let roots: Vec<_> = self.course.roots().map(|(target, _)| target).collect();
        for target in roots {
            // If the sampler is gone, its end will be reported, and its successor gets the settings.
            self.sampling.sampler.send(Command::FindChildren(target)).ok();
        }
    }

    /// Reads how much the processes and their descendants have run since they were found.
    pub(super) fn read_children(&mut self) -> (Duration, Duration) {
        let (mut own, mut of_children) = (Duration::ZERO, Duration::ZERO);
        for (pid, before) in &self.children {
            let now = DescendantsTime::read(*pid);
            own += now.own_since(before);
            let (time, busy) = now.since(before);
            of_children += time;
            // Of a process that has ended nothing can be read.
            let known = self.busy_children.entry(*pid).or_default();
            if time >= known.time {
                *known = ChildrenTime { time, busy };
            }
        }
        (own, of_children)
    }

    /// Whether a process was requested by id, is the command, or has the requested name, and is not a descendant of
    /// those. With a name all processes count.
    pub(super) fn is_asked_for(&self, process: &Process) -> bool {
        self.course.is_root(process.target)
            && (self.sampling.pids.is_empty() || self.sampling.pids.contains(&process.pid))
    }

    /// Whether an attached process is still the one that was found before. If not, the run is over.
    pub(super) fn is_the_same(&mut self, process: &Process) -> bool {
        let is = ProcessLife::from_process(process);
        // With a name, any later process is as good as the first one.
        if self.sampling.pids.is_empty() {
            return true;
        }
        let known = self.identities.get(&process.pid);
        let same = self.sampling.command.is_some() || known.is_none_or(|known| known.is_same(is));
        if same {
            self.identities.insert(process.pid, is);
        } else {
            self.say(&format!("note: process {} ended, and its id belongs to another one now", process.pid));
            self.sampling.sampler.send(Command::Unwatch(process.target)).ok();
        }
        same
    }

    /// Handles an unexpected end of the sampler process. The sampled processes continue.
    pub(super) fn sampler_ended(&mut self, ending: Ending) {
        // A command that was not found yet is released, and runs without being sampled until it is found.
        self.release();
        self.course.lose();
        self.collector.sampler_ended();
        self.stats.forget_all();
        self.follow.start_over();
        let begun = if self.begun.is_some() { self.begun_unix_nano } else { unix_nano() };
        self.gaps.open(begun);
        let next = if self.sampling.sampler.is_hopeful() { "; another one is started" } else { "" };
        self.say(&format!("note: the sampler process ended by itself: {ending}{next}"));
    }
}
