//! What the sampler process is told to look at, and what becomes of the run when it ends.

use std::time::Instant;

use profbridge_receiver_ptrace::record::Life;
use profbridge_receiver_ptrace::resource::ENVIRONMENT;
use profbridge_sampler::message::{Command, Mode, Process, ProcessId, Select, Settings, Stops, Target, TargetId};
use profbridge_sampler::owner::Ending;

use super::{FINDING, Run, unix_nano};
use crate::Failure;
use crate::args::sampling::{self, Subject};
use crate::sample::TARGET;

/// So many processes of each that was asked for are sampled at the same time.
const MOST_PROCESSES: usize = 512;

/// How a run samples.
pub(super) fn settings(arguments: &Subject) -> Settings {
    let mode = match arguments.mode {
        sampling::Mode::Wall => Mode::Wall,
        sampling::Mode::Cpu => Mode::Cpu,
    };
    let stops = match arguments.stops {
        sampling::Stops::UserBound => Stops::UserBound,
        sampling::Stops::Never => Stops::Never,
        sampling::Stops::Always => Stops::Always,
    };
    let (rate_hertz, subprocesses) = (arguments.rate, arguments.subprocesses);
    Settings { rate_hertz, mode, stops, subprocesses, max_processes: MOST_PROCESSES, ..Settings::default() }
}

impl Run<'_> {
    /// Tells the sampler process of the targets.
    pub(super) fn watch(&mut self) -> Result<(), Failure> {
        self.told = Instant::now();
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
            // A command is held until it was attached to, and sampled when it runs.
            sample_at_once: id != TARGET || self.sampling.command.is_none(),
        };
        match self.sampling.sampler.send(Command::Watch(target)) {
            // Its end is heard of, and another one told again.
            Ok(()) | Err(profbridge_sampler::SendError::Gone) => Ok(()),
            Err(error) => Err(Failure::new("nothing can be sampled", &error)),
        }
    }

    /// Has a command sampled that was attached to, also after it executed another program. It runs as soon as it is.
    pub(super) fn sample_command(&mut self, process: &Process) {
        let Some(command) = &self.sampling.command else { return };
        if process.target != TARGET {
            return;
        }
        if process.pid != command.pid() {
            // The command started it, and its end is heard of.
            self.sampling.sampler.send(Command::Sample { process: process.id, on: true }).ok();
            return;
        }
        let held = self.sampling.command.as_ref().is_some_and(|command| command.is_held());
        let command = if held && self.settings.stops != Stops::Always {
            self.prepared = Some(process.id);
            Command::SampleFromStart(process.id)
        } else {
            // Before it can be stopped it has to be let go.
            self.release();
            Command::Sample { process: process.id, on: true }
        };
        // Its end is heard of.
        self.sampling.sampler.send(command).ok();
    }

    /// The sampler process said something of a process: from then on the command may run, if it is that.
    pub(super) fn is_sampled(&mut self, process: ProcessId) {
        if self.prepared.take_if(|prepared| *prepared == process).is_some() {
            self.release();
        }
    }

    /// Lets the command run, if it does not yet.
    pub(super) fn release(&self) {
        if let Some(command) = &self.sampling.command {
            command.let_run();
        }
    }

    /// Has what a command started sampled as well, where it does nothing but wait for that.
    pub(super) fn look_at_command(&mut self) {
        if self.sampling.command.is_none() || self.course.exit_code().is_some() {
            return;
        }
        if self.told.elapsed() >= FINDING {
            self.release();
        }
        let (false, [command]) = (self.subject.subprocesses, &self.sampling.pids[..]) else { return };
        if !self.course.ever_attached() {
            return;
        }
        let now = Instant::now();
        for (target, pid) in self.follow.look(*command, now) {
            // One that does not take it is about to end, which is heard of.
            self.watch_target(target, Select::Pid(pid)).ok();
        }
        if let Some(count) = self.follow.several(now) {
            self.say(&format!(
                "hint: the command waits for {count} processes that it started; --subprocesses samples them as well"
            ));
        }
    }

    /// Whether a process is one of those that were asked for by their ids, or the command, or has the name; and not one
    /// that these started. Of a name all count.
    pub(super) fn is_asked_for(&self, process: &Process) -> bool {
        self.course.is_root(process.target)
            && (self.sampling.pids.is_empty() || self.sampling.pids.contains(&process.pid))
    }

    /// Whether a process that was attached to is the one that was before. If not, the run is over.
    pub(super) fn is_the_same(&mut self, process: &Process) -> bool {
        let is = Life::of(process);
        // A later process with the name is as good as the first one.
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

    /// The sampler process ended by itself. What it sampled runs on.
    pub(super) fn sampler_ended(&mut self, ending: Ending) {
        // A command that it did not find yet runs without being sampled until it is found again.
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
