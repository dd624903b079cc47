//! Handles events of the sampler process: processes that start and end, their mappings and their samples.

use profbridge_model::{Quantities, Reason};
use profbridge_sampler::message::{self, Command, Detached, Event, ProblemKind, Process, ProcessId, Select};
use profbridge_sampler::owner::Gaps;
use tokio::time::Instant;

use super::counted::missing;
use super::tracked::{self, Tracked};
use super::{Driver, sampled_at_once};
use crate::lifecycle::{LifecycleMode, ProfilerLifecycle};
use crate::record::{ProcessLife, ProcessRecord};
use crate::resource;
use crate::session::ProfilerSession;
use crate::symbols::ProcessNames;

/// The maximum size, in bytes, of the mappings and functions of one process, and of all processes. Locations in later
/// mappings have no file and no name, and later functions no name. 48,000 mappings with paths of 60 bytes take 16 MiB;
/// the kernel's own limit is 65,530 mappings (`vm.max_map_count`).
pub(super) const MAX_DESCRIPTIONS: (u64, u64) = (16 << 20, 256 << 20);

/// For how many threads of all processes the end of their samples is remembered: 20 MiB at most. Further threads have
/// unexplained gaps when a sampler process ends.
const MAX_THREADS: usize = 1 << 18;

/// How much of a message of the sampler process is logged, in characters.
pub(super) const MAX_LOGGED_TEXT: usize = 2048;

impl Driver {
    /// Handles an event.
    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Ready(rights) => {
                for hint in rights.hints {
                    if self.reported.is_new(("hint", &hint)) {
                        tracing::warn!("{}: {}", self.parts.id, one_line(&hint));
                    }
                }
            }
            Event::Attached(process) => self.attached(*process),
            Event::Batch(batch) => self.batch(batch),
            Event::Status(status) => self.status(status),
            Event::Problem(problem) => self.problem(&problem),
            Event::Detached { process, why } => self.detached(process, why),
            Event::CommandEnded { target, code } => {
                if let Some(state) = self.targets.get_mut(target.0 as usize) {
                    state.ended = true;
                    tracing::info!("{}: the command of {} ended with code {code}", self.parts.id, self.name(target));
                }
            }
            Event::Mapping(_) | Event::PerfMap { .. } | Event::Functions { .. } | Event::Resource { .. } => {
                self.learn(event);
            }
        }
    }

    fn attached(&mut self, mut process: Process) {
        let index = process.target.0 as usize;
        let Some(target) = self.settings.targets.get(index) else { return };
        if matches!(target.select, Select::Command(_)) {
            let is = ProcessLife::from_process(&process);
            match self.targets[index].command {
                // A process that the command started, with `subprocesses`. The command itself is reported first.
                Some(known) if known.pid != process.pid => {}
                // The command's process id was reused before this sampler process found the command.
                Some(known) if !known.is_same(is) => {
                    self.targets[index].ended = true;
                    return self.send_command(Command::Unwatch(process.target));
                }
                _ => self.targets[index].command = Some(is),
            }
        }
        let target = &self.settings.targets[index];
        let session = ProfilerSession::of(&self.parts.host, &process, target.session_sample_rate);
        let open = self.spans.sampled(process.target, process.pid);
        let mut lifecycle = ProfilerLifecycle::launch(target.lifecycle, session.sampled, target.start_on_launch, open);
        let mut gaps = Gaps::default();
        if let Some(mut left) = self.remembered.remove(session.id) {
            // Spans may have started and ended in between.
            left.spans_changed(open);
            (lifecycle, gaps) = (left.lifecycle, left.gaps);
        }
        if target.lifecycle == LifecycleMode::Trace && session.sampled {
            if open > 0 {
                self.announcers.announced(process.target);
            }
            self.announcers.found(process.target, Instant::now());
        }
        let described = resource::describe(&self.parts.host, &process, &target.names, session, &self.settings.insert);
        if let Some(complaint) = described.complaint
            && self.reported.is_new(("environment", process.target, &complaint))
        {
            tracing::warn!("{}: process {} of {}: {complaint}", self.parts.id, process.pid, target.name);
        }
        let state = match (lifecycle.is_running(), session.sampled) {
            (true, _) => "it is sampled",
            (false, true) => "it is not sampled until its profiler starts",
            (false, false) => "its session is not sampled (profile_session_sample_rate)",
        };
        tracing::info!(
            "{}: process {} ({}) belongs to {}: {state}",
            self.parts.id,
            process.pid,
            process.executable.escape_debug(),
            target.name
        );
        let at_once = sampled_at_once(target);
        self.next += 1;
        let (id, number, root) = (process.id, self.next, process.root.take());
        let names = self.parts.symbolizer.clone();
        let names = names.map(|symbolizer| ProcessNames::new(symbolizer, number, root));
        let running = lifecycle.is_running();
        let due = Instant::now() + self.settings.export_interval;
        let identity = resource::identity(&self.parts.identity, &described.attributes);
        let record = ProcessRecord::new(described.attributes, names, &self.settings.thread_attributes);
        let tracked = Tracked::new(process, session, lifecycle, record, identity, gaps, due);
        self.processes.insert(number, tracked);
        self.live.insert(id, number);
        self.count_level(number);
        if running != at_once {
            self.send_command(Command::Sample { process: id, on: running });
        }
    }

    /// Handles the description of a process.
    fn learn(&mut self, event: Event) {
        let Some(&number) = ProcessRecord::described_by(&event).and_then(|process| self.live.get(&process)) else {
            return;
        };
        let all: u64 = self.processes.values().map(|process| process.record.bytes()).sum();
        let Some(process) = self.processes.get_mut(&number) else { return };
        let own = MAX_DESCRIPTIONS.0.saturating_sub(process.record.bytes());
        let left = own.min(MAX_DESCRIPTIONS.1.saturating_sub(all));
        let is_resource = matches!(event, Event::Resource { .. });
        let is_mapping = matches!(event, Event::Mapping(_));
        let omitted = process.record.learn(event, left, &self.settings.thread_attributes);
        if is_resource {
            // If the configuration identifies processes by their service instance, a process whose instance is known
            // only from this event has an identity from now on.
            process.identity = resource::identity(&self.parts.identity, process.record.resource());
        }
        if omitted > 0 {
            let note = if is_mapping { "sampler_mappings_left_out" } else { "sampler_functions_left_out" };
            self.parts.intake.note(note, omitted);
        }
    }

    fn batch(&mut self, batch: message::Batch) {
        let number = self.live.get(&batch.process).copied();
        // The lifecycle may have stopped a process before its sampler process was replaced, but the new one samples it
        // from the start. Samples taken before the new one received the stop are not wanted.
        if number.and_then(|number| self.processes.get(&number)).is_some_and(|process| !process.has_run()) {
            return self.parts.intake.note("sampler_unwanted_samples", batch.samples.len() as u64);
        }
        let waiting: u64 = self.processes.values().map(|process| process.pending_bytes).sum();
        let waiting = waiting + self.parts.delivery.waiting();
        let limit = self.settings.max_pending_bytes;
        let observations = batch.samples.len() as u64;
        if waiting + tracked::size(&batch) > limit {
            self.parts.intake.refused(Reason::QueueFull, Quantities::observations(observations));
            if self.full.pass().is_some() {
                tracing::warn!(
                    "{}: samples are lost, since {limit} bytes wait for names and pipelines already: see max_pending_bytes",
                    self.parts.id
                );
            }
            return;
        }
        let Some(number) = number else {
            // The process's entry was removed when its sampler process ended, which cannot send anything after that.
            return self.parts.intake.refused(Reason::Internal, Quantities::observations(observations));
        };
        let Some(process) = self.processes.get_mut(&number) else { return };
        process.add_batch(batch);
        // A process with many samples must not use up the space of the others.
        if process.pending_bytes > limit / 4 {
            self.export(number);
        }
        let threads: usize = self.processes.values().map(|process| process.gaps.threads()).sum();
        self.remembered.keep_threads(MAX_THREADS.saturating_sub(threads));
        if threads > MAX_THREADS
            && let Some(process) = self.processes.get_mut(&number)
        {
            process.gaps.forget();
        }
    }

    fn problem(&mut self, problem: &message::Problem) {
        if !self.reported.is_new((problem.target, problem.pid, problem.kind, &problem.message)) {
            return;
        }
        let (id, name) = (&self.parts.id, self.name(problem.target));
        let message = one_line(&problem.message);
        let who = problem.pid.map_or_else(|| name.to_owned(), |pid| format!("process {pid} of {name}"));
        match problem.kind {
            ProblemKind::Internal => tracing::error!("{id}: {who}: {message}"),
            _ => tracing::warn!("{id}: {who}: {message}"),
        }
    }

    fn detached(&mut self, process: ProcessId, why: Detached) {
        let Some(number) = self.live.remove(&process) else { return };
        let Some(tracked) = self.processes.get_mut(&number) else { return };
        tracked.end(Instant::now());
        let (pid, target) = (tracked.process.pid, tracked.process.target);
        let why = match why {
            Detached::Exited => "ended",
            Detached::Executed => "executed another program",
            Detached::Asked => "was let go",
            Detached::Failed => "cannot be sampled any more",
        };
        let stops = self.settings.targets.get(target.0 as usize).map(|target| target.sampling.stops);
        let missing = missing(&tracked.status, stops.unwrap_or_default());
        let level = tracked.unlogged_level().map(|level| self.describe(target, level));
        let level = level.map(|level| format!("; its running threads were {level}")).unwrap_or_default();
        tracing::info!("{}: process {pid} of {} {why}{level}{missing}", self.parts.id, self.name(target));
        self.count_level(number);
    }
}

/// Makes text from the sampler process safe for the log: a target may have compromised that process.
pub(super) fn one_line(text: &str) -> String {
    text.chars().take(MAX_LOGGED_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
