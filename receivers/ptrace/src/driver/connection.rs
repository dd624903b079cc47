//! The driver's connection to the sampler process: starts it, sends the targets, and restarts it when it has ended.

use profbridge_sampler::message::{Command, Select, Target, TargetId};
use tokio::time::Instant;

use super::remembered::DetachedProcess;
use super::{Driver, TargetState, sampled_at_once};
use crate::link::SamplerLink;
use crate::resource::ENVIRONMENT;

impl Driver {
    pub(super) fn connect(&mut self, link: SamplerLink) {
        self.link = Some(link);
        self.restarts.started(Instant::now());
        for index in 0..self.settings.targets.len() {
            if let Some(target) = self.watch(index) {
                self.send_command(Command::Watch(target));
            }
        }
    }

    /// The target that the sampler process is asked to watch. A command is started only once: later sampler processes
    /// get its process id instead.
    fn watch(&self, index: usize) -> Option<Target> {
        let (target, state) = (&self.settings.targets[index], &self.targets[index]);
        let select = match (&target.select, state) {
            (Select::Command(_), TargetState { ended: true, .. }) => return None,
            (Select::Command(_), TargetState { command: Some(known), .. }) => Select::Pid(known.pid),
            (select, _) => select.clone(),
        };
        Some(Target {
            id: TargetId(index as u32),
            select,
            settings: target.sampling,
            environment: ENVIRONMENT.map(str::to_owned).to_vec(),
            thread_attributes: self.settings.thread_attributes.clone(),
            sample_at_once: sampled_at_once(target),
        })
    }

    pub(super) fn send_command(&mut self, command: Command) {
        let Some(link) = &self.link else { return };
        if link.commands.try_send(command).is_err() {
            // Thousands of commands are unread, so the sampler process hangs. Dropping the link kills it and discards
            // its events.
            self.link = None;
            self.sampler_ended("it does not listen");
        }
    }

    pub(super) fn sampler_ended(&mut self, how: &str) {
        self.link = None;
        let now = Instant::now();
        let pause = self.restarts.ended(now).unwrap_or_default();
        tracing::error!("{}: the sampler process is gone, another one starts in {pause:?}: {how}", self.parts.id);
        self.parts.intake.note("sampler_restarts", 1);
        for (_, number) in std::mem::take(&mut self.live) {
            if let Some(process) = self.processes.get_mut(&number) {
                self.remembered.put(process.session.id, DetachedProcess::behind(process));
                process.end(now);
            }
            self.count_level(number);
        }
    }

    pub(super) fn restart(&mut self, now: Instant) {
        match (self.parts.launch)() {
            Ok(link) => self.connect(link),
            Err(error) => {
                let pause = self.restarts.ended(now).unwrap_or_default();
                tracing::error!(
                    "{}: the sampler process cannot start, next attempt in {pause:?}: {error}",
                    self.parts.id
                );
            }
        }
    }
}
