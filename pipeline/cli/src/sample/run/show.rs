//! The messages and the progress of a run.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use profbridge_sampler::message::TargetId;

use super::Run;
use crate::Failure;
use crate::sample::RunSnapshot;
use crate::sample::collect::PartProfiles;
use crate::terminal::{self, Progress};
use crate::views::stacks::clean;

/// At most this many processes are announced when they are found; the result lists all.
const MOST_NAMED: usize = 8;

/// How often a view gets new samples.
const VIEWED: Duration = Duration::from_millis(500);

/// The processes that were announced to the user.
#[derive(Debug, Default)]
pub(super) struct AnnouncedProcesses {
    /// Their names by id.
    pub(super) of: HashMap<u32, String>,
    /// The targets that they are sampled for.
    pub(super) targets: HashMap<u32, TargetId>,
    /// How many were announced.
    announced: usize,
}

impl AnnouncedProcesses {
    /// What to say of another process that is found, if anything: a build starts thousands.
    pub(super) fn another(&mut self, pid: u32, label: &str, why: &str) -> Option<String> {
        if self.of.contains_key(&pid) || self.announced > MOST_NAMED {
            return None;
        }
        self.announced += 1;
        Some(match self.announced > MOST_NAMED {
            true => "further processes are sampled without a message; the result lists those that ran most".to_owned(),
            false => format!("sampling {label} as well{why}"),
        })
    }
}

impl Run<'_> {
    pub(super) fn say_hints(&mut self) {
        for hint in std::mem::take(&mut self.rights.hints) {
            self.say(&format!("hint: {hint}"));
        }
    }

    /// Prints a message on its own line. The target may have chosen part of the text.
    pub(in crate::sample) fn say(&mut self, text: &str) {
        if let Some(view) = &mut self.view {
            text.lines().for_each(|line| view.say(&clean(line)));
            return;
        }
        let shown = self.progress.take().is_some();
        text.lines().for_each(|line| terminal::say(clean(line)));
        self.progress = shown.then(Progress::new);
    }

    /// Prints a message about a process that is sampled as well.
    pub(super) fn announce(&mut self, text: &str) {
        if self.view.as_ref().is_none_or(|view| view.is_live()) {
            self.say(text);
        }
    }

    /// Prints that another process is sampled as well, unless that was said of many.
    pub(super) fn announce_another(&mut self, pid: u32, label: &str, why: &str) {
        if let Some(text) = self.named.another(pid, label, why) {
            self.announce(&text);
        }
    }

    /// Shows the progress of the run. Returns whether the user wants to quit.
    pub(super) fn show_progress(&mut self) -> bool {
        if self.view.is_none() && self.progress.is_none() {
            return false;
        }
        let title = self.title_of_all();
        let look = self.look(&title, self.begun.map(|begun| begun.elapsed()).unwrap_or_default());
        if let (Some(progress), Some(_)) = (&mut self.progress, self.begun) {
            progress.show(&look);
        }
        self.view.as_mut().is_some_and(|view| view.look(&look))
    }

    /// Shows everything up to the end in a view.
    pub(super) fn show_end(&mut self, elapsed: Duration) {
        let title = self.title_of_all();
        // By now all threads may have ended.
        let look = RunSnapshot { threads: self.stats.most_threads(), ..self.look(&title, elapsed) };
        if let Some(view) = &mut self.view {
            view.end(&look);
        }
    }

    fn title_of_all(&self) -> String {
        if let (None, Some(pattern)) = (self.begun, &self.subject.name) {
            return format!("{pattern} (awaited)");
        }
        match self.stats.processes().saturating_sub(1) {
            0 => self.title.clone(),
            more => format!("{} and {more} more", self.title),
        }
    }

    fn look<'t>(&self, title: &'t str, elapsed: Duration) -> RunSnapshot<'t> {
        RunSnapshot {
            title,
            elapsed,
            duration: self.subject.duration,
            status: self.stats.total(),
            threads: self.stats.threads(),
            rate_hertz: self.stats.rate_hertz(),
            is_naming: !self.collector.is_empty(),
        }
    }

    /// Passes the samples so far to the view.
    pub(super) fn cut_for_view(&mut self) {
        if self.view.is_some() && self.next_part <= Instant::now() {
            self.next_part = Instant::now() + VIEWED;
            self.collector.cut();
        }
    }

    /// Sums up and writes the parts whose names are complete, or all parts if `give_up` is set.
    pub(super) fn take_parts(&mut self, give_up: bool) -> Result<(), Failure> {
        for part in self.collector.ready(give_up) {
            let profiles = self.collector.assemble(&part).map_err(|error| Failure::new("the samples", &error))?;
            self.add_profiles(&profiles, part.arrived)?;
        }
        Ok(())
    }

    fn add_profiles(&mut self, part: &PartProfiles, arrived: Instant) -> Result<(), Failure> {
        self.observations += part.profiles.observations();
        for ((label, runtime), resource) in part.processes.iter().zip(part.profiles.resources()) {
            self.runtimes.add(label, *runtime, &part.profiles, resource);
        }
        if let Some(view) = &mut self.view {
            let until = self.begun.map(|begun| arrived.saturating_duration_since(begun));
            view.take(&part.profiles, until.unwrap_or_default());
        } else {
            self.sums.add(&part.profiles);
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.report.losses.add_observations(profbridge_model::Reason::Malformed, part.malformed);
        writer.take(&part.profiles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: of any number of processes only the first are announced, each once, and then once that there are
    /// more.
    #[test]
    fn announcements() {
        let mut named = AnnouncedProcesses::default();
        named.of.insert(1, "known".to_owned());
        let mut said = Vec::new();
        for pid in 1..40 {
            said.extend(named.another(pid, &format!("work (pid {pid})"), ", which was started there"));
        }
        assert_eq!(said.len(), MOST_NAMED + 1, "{said:?}");
        assert_eq!(said[0], "sampling work (pid 2) as well, which was started there");
        assert!(said[MOST_NAMED].starts_with("further processes are sampled without a message"), "{said:?}");
    }
}
