//! The end of a run: names, files, output, and the command's status.

use std::path::Path;
use std::time::{Duration, Instant};

use profbridge_sampler::message::Command;

use super::{Finish, LAST_SAMPLES, Run, TICK, unix_nano};
use crate::destination::Destination;
use crate::sample::processes::{process_times, title, unsampled};
use crate::sample::report::{Missing, Report};
use crate::sample::sampler::NextEvent;
use crate::terminal::shown;
use crate::{Failure, terminal};

/// How long reading symbols may take.
const NAMES: Duration = Duration::from_secs(120);

/// The same limit for a live view, where only its last lines depend on it.
const NAMES_OF_VIEW: Duration = Duration::from_secs(5);

impl Run<'_> {
    /// Detaches from the target, receives its last samples, and lets the sampler process end normally.
    pub(super) fn stop_sampling(&mut self, finish: Finish) -> Result<(), Failure> {
        // A command that was never found is released.
        self.release();
        self.read_children();
        if matches!(finish, Finish::Duration | Finish::Interrupt) {
            let roots: Vec<_> = self.course.roots().map(|(target, _)| target).collect();
            for target in self.follow.targets().chain(roots) {
                // If it is gone, there is nothing to detach.
                self.sampling.sampler.send(Command::Unwatch(target)).ok();
            }
            let deadline = Instant::now() + LAST_SAMPLES;
            while self.course.is_attached() && Instant::now() < deadline && self.sampling.sampler.is_there() {
                self.handle_next_event(TICK)?;
            }
        }
        if self.sampling.sampler.send(Command::Stop).is_err() {
            return Ok(());
        }
        // It is killed after the deadline.
        while self.sampling.sampler.is_there() {
            match self.sampling.sampler.next_event(TICK) {
                NextEvent::Event(event) => self.take(event)?,
                NextEvent::Nothing | NextEvent::Started | NextEvent::Ended(_) => {}
            }
        }
        Ok(())
    }

    /// Waits for the last names, writes the result and shows it.
    pub(super) fn finish(&mut self, finish: Finish, elapsed: Duration) -> Result<(), Failure> {
        let viewed = self.view.is_some();
        let ends_shown = self.view.as_ref().is_none_or(|view| view.shows_the_end());
        if ends_shown {
            self.collector.cut();
            let is_live = self.view.as_ref().is_some_and(|view| view.is_live());
            self.read_names(if is_live { NAMES_OF_VIEW } else { NAMES });
            self.take_parts(true)?;
        }
        self.progress = None;
        if finish == Finish::Sampler {
            self.say("note: the sampler process ended too often, so the rest of the run is missing");
        }
        if viewed && (self.course.ever_attached() || self.observations > 0) {
            if ends_shown {
                self.show_end(elapsed);
            }
            return Ok(());
        }
        if self.observations == 0 {
            return self.nothing(elapsed);
        }
        let processes = process_times(&self.sums);
        let title = title(&processes).unwrap_or_default();
        let children =
            unsampled(std::mem::take(&mut self.busy_children), &processes, |pid| self.named.of.contains_key(&pid));
        let mut report = Report {
            sums: &mut self.sums,
            native: self.graph.native,
            verbose: self.verbose,
            processes,
            hints: self.runtimes.hints(self.reported_problems.iter().filter_map(|(_, note)| note.as_deref())),
            node_quality: self.runtimes.node_quality(self.verbose),
            followed: self.follow.any() || self.settings.subprocesses,
            children,
            awaited: self.awaited.most(),
            missing: (self.gaps.count() > 0)
                .then(|| Missing { nano: self.gaps.total_nano(unix_nano()), count: self.gaps.count() }),
            status: self.stats.total(),
            mode: self.settings.mode,
            stops: self.settings.stops,
            lacked: self.lacked,
            elapsed,
            most_threads: self.stats.most_threads(),
        };
        let (functions, trust) = (report.functions(), report.trust());
        self.show(functions.trim_end());
        self.show(trust.trim_end());
        self.write(&title)
    }

    /// Handles a run without samples. A command may end before it can be sampled; for a process it is an error.
    fn nothing(&mut self, elapsed: Duration) -> Result<(), Failure> {
        if let Some(refusal) = self.course.refusal() {
            return Err(Failure(format!("error: {refusal}")));
        }
        if let (Some(pattern), false) = (&self.subject.name, self.course.ever_attached()) {
            return Err(Failure(format!("error: there is no process named {pattern}")));
        }
        let why = if self.course.ever_attached() {
            format!("not a single sample in {:.2} s, so no file is written", elapsed.as_secs_f64())
        } else {
            "there was nothing to sample".to_owned()
        };
        if self.sampling.command.is_some() {
            self.say(&format!("note: {why}"));
            return Ok(());
        }
        Err(Failure(format!("error: {why}")))
    }

    /// Waits until the symbolizer has finished all requests.
    fn read_names(&mut self, most: Duration) {
        let deadline = Instant::now() + most;
        while !self.collector.is_empty() && Instant::now() < deadline {
            let idle = self.symbolizer.wait(TICK);
            if idle && self.collector.are_named() {
                return;
            }
            if let Some(progress) = &mut self.progress {
                progress.show(format!("reading symbols: {} addresses to go", self.symbolizer.waiting()));
            }
        }
    }

    fn write(&mut self, title: &str) -> Result<(), Failure> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let format = self.destination.as_ref().map(|destination| destination.format.what());
        let what = format.unwrap_or_default();
        let closed = writer.close(title);
        let error = writer.report.error.iter().map(ToString::to_string);
        for explanation in writer.report.losses.explanations().chain(error) {
            self.say(&format!("note: not in the file: {explanation}"));
        }
        for (path, size) in closed? {
            self.show(&wrote(&path, size, what));
        }
        Ok(())
    }

    /// Shows a result on standard output, unless the command uses it or the file goes there.
    fn show(&self, text: &str) {
        let is_taken = self.destination.as_ref().is_some_and(Destination::is_standard);
        if self.sampling.command.is_some() || is_taken {
            terminal::say(text);
        } else {
            terminal::result(text);
        }
    }

    /// The exit code of the command, after waiting for its end. `None` without a command.
    pub(super) fn command_code(&mut self) -> Option<i32> {
        let command = std::sync::Arc::clone(self.sampling.command.as_ref()?);
        command.let_run();
        if command.exit_code().is_none() && !command.ended_within(Duration::ZERO) {
            let how = if self.sampling.interrupt.is_wanted() {
                ""
            } else {
                "; Ctrl-C reaches it as well, and twice kills it"
            };
            self.say(&format!("waiting for the command to end{how}"));
        }
        loop {
            if let Some(code) = command.exit_code() {
                self.sampling.interrupt.stay_if_ending();
                return Some(code);
            }
            if command.ended_within(TICK) {
                // Its status is being collected.
                std::thread::yield_now();
            }
        }
    }
}

fn wrote(path: &Path, size: u64, what: &str) -> String {
    terminal::written(path, || format!("wrote {} ({}): {what}", shown(path), terminal::bytes(size)))
}
