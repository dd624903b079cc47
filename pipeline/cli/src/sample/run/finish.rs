//! The end of a run: names, files, what is shown, and the command's status.

use std::path::Path;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use profbridge_ptrace::message::Command;
use profbridge_ptrace::owner::{Ending, Notice};

use super::{Finish, Run, TICK};
use crate::sample::report::Report;
use crate::terminal::shown;
use crate::{Failure, terminal};

/// How long reading symbols may take.
const NAMES: Duration = Duration::from_secs(120);

impl Run<'_> {
    /// Reads the last names, writes the result and shows it.
    pub(super) fn finish(&mut self, finish: Finish, elapsed: Duration) -> Result<(), Failure> {
        self.collector.cut();
        self.read_names();
        self.take_parts(true)?;
        self.progress = None;
        if finish == Finish::Sampler {
            let ending = self.ended.take();
            self.say(&format!("note: the sampler process ended by itself: {}", describe(ending.as_ref())));
        }
        let sampled = self.shares.running.observations() + self.shares.waiting.observations();
        if sampled == 0 {
            return self.nothing(elapsed);
        }
        let report = Report {
            shares: &self.shares,
            status: self.stats.total(),
            mode: self.settings.mode,
            elapsed,
            most_threads: self.stats.most_threads(),
        };
        self.show(report.functions().trim_end());
        self.show(report.trust().trim_end());
        self.write()
    }

    /// A command is free to end before anything can be seen of it; a process is expected to be seen.
    fn nothing(&mut self, elapsed: Duration) -> Result<(), Failure> {
        if let Some(refusal) = self.course.refusal() {
            return Err(Failure(format!("error: {refusal}")));
        }
        let why = if self.course.ever_attached() {
            format!("not a single sample in {:.1} s; no file is written", elapsed.as_secs_f64())
        } else {
            "there was nothing to sample".to_owned()
        };
        if self.course.exit_code().is_some() {
            self.say(&format!("note: {why}"));
            return Ok(());
        }
        Err(Failure(format!("error: {why}")))
    }

    /// Waits until the symbolizer has read what it was asked for.
    fn read_names(&mut self) {
        let deadline = Instant::now() + NAMES;
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

    fn write(&mut self) -> Result<(), Failure> {
        let Some(sink) = self.output.sink.take() else { return Ok(()) };
        let format = self.output.destination.as_ref().map(|destination| destination.format.what());
        let what = format.unwrap_or_default();
        let closed = sink.close(&mut self.output.written);
        let lost: Vec<String> = self.output.written.losses.explanations().collect();
        for explanation in lost {
            self.say(&format!("note: not in the file: {explanation}"));
        }
        closed?;
        for (path, size) in std::mem::take(&mut self.output.written.files) {
            self.show(&wrote(&path, size, what));
        }
        Ok(())
    }

    /// Shows a result: on standard output, unless that belongs to the command.
    fn show(&self, text: &str) {
        match self.arguments.pid {
            Some(_) => terminal::result(text),
            None => terminal::say(text),
        }
    }

    /// The exit code of the command, after waiting for its end. `None` without a command.
    pub(super) fn command_code(&mut self) -> Result<Option<i32>, Failure> {
        if self.arguments.pid.is_some() {
            return Ok(None);
        }
        if self.course.exit_code().is_none() && !self.course.never_started() && self.ended.is_none() {
            self.say("waiting for the command to end; Ctrl-C twice leaves it alone");
        }
        while self.course.exit_code().is_none() {
            // Nothing is sampled any more; what is still said of it is not kept.
            match self.sampling.events.next_within(TICK) {
                Ok(Notice::Event(event)) => self.course.hear(&event),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Notice::Ended(_)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure(
                        "error: the sampler process is gone, and the command's status with it".to_owned(),
                    ));
                }
            }
        }
        Ok(self.course.exit_code())
    }

    /// Lets the sampler process end by itself.
    pub(super) fn end_sampler(&mut self) {
        if self.sampling.sampler.send(Command::Stop).is_err() {
            return;
        }
        // It is ended by force where it takes longer than it may.
        while !matches!(self.sampling.events.next(), Some(Notice::Ended(_)) | None) {}
    }
}

fn wrote(path: &Path, size: u64, what: &str) -> String {
    format!("wrote {} ({}): {what}", shown(path), terminal::bytes(size))
}

fn describe(ending: Option<&Ending>) -> String {
    match ending {
        Some(Ending::Exited(code)) => format!("exit code {code}"),
        Some(Ending::Killed(signal)) => format!("signal {signal}"),
        Some(Ending::Misbehaved(what)) => format!("it broke the rules: {what}"),
        Some(Ending::Stopped | Ending::TimedOut | Ending::Unknown) | None => "nobody knows why".to_owned(),
    }
}
