//! Reports how much of running threads is visible: the number of sampled processes on each level, as gauges and in the
//! log.
//!
//! A process has a log line when its level becomes known and when it changes. Hundreds of processes may come and go,
//! and levels are reviewed every second, so there are at most [`MOST_LINES`] such lines a minute, and two per process,
//! since the first level often changes a second later. Lines that were left out and are still true are logged at the
//! end of the minute, combined into one if there are many. If a process is detached before that, the line about the
//! detaching includes its level.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use profbridge_engine::intake::Intake;
use profbridge_sampler::message::{Level, TargetId};
use tokio::time::Instant;

use super::Driver;

/// The time in which lines are limited.
const WINDOW: Duration = Duration::from_secs(60);

/// How many processes may have lines of their own in that time.
pub(super) const MOST_LINES: usize = 8;

/// The gauges, and the level that each counts.
const GAUGES: [(&str, Level); 5] = [
    ("sampler_processes_undecided", Level::Undecided),
    ("sampler_processes_without_events", Level::None),
    ("sampler_processes_user_events", Level::User),
    ("sampler_processes_kernel_events", Level::Kernel),
    ("sampler_processes_processor_events", Level::Processors),
];

/// The last log line about a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct LevelLine {
    pub(super) level: Level,
    at: Instant,
    /// The time of the line before that one.
    before: Option<Instant>,
}

/// How many processes are on each level, and what is still to be logged.
#[derive(Debug, Default)]
pub(super) struct Levels {
    counts: [u64; GAUGES.len()],
    /// The start of the current minute of counting; `None` if there was no line for a while.
    window: Option<Instant>,
    lines: usize,
}

impl Levels {
    /// Sets all gauges, so that each exists even if it counts nothing.
    pub(super) fn publish(&self, intake: &Intake) {
        for ((name, _), count) in GAUGES.into_iter().zip(self.counts) {
            intake.level(name, count);
        }
    }

    /// Moves a process from one gauge to another. A process is in no gauge before and after it is sampled.
    fn recount(&mut self, before: Option<Level>, now: Option<Level>, intake: &Intake) {
        for ((name, level), count) in GAUGES.into_iter().zip(&mut self.counts) {
            let (was, is) = (before == Some(level), now == Some(level));
            if was != is {
                *count = if is { *count + 1 } else { count.saturating_sub(1) };
                intake.level(name, *count);
            }
        }
    }

    /// When the lines that were left out have to be logged.
    pub(super) fn due(&self) -> Option<Instant> {
        self.window.map(|since| since + WINDOW)
    }

    /// Whether a process with this last line may have another one now. If so, the line is counted.
    fn may_log(&mut self, last: Option<LevelLine>, now: Instant) -> bool {
        let since = *self.window.get_or_insert(now);
        let before = last.and_then(|line| line.before);
        let may = self.lines < MOST_LINES && before.is_none_or(|before| before < since);
        self.lines += usize::from(may);
        may
    }
}

impl Driver {
    /// Logs the level of a process if it has changed.
    pub(super) fn log_level(&mut self, number: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let Some(level) = process.unlogged_level() else { return };
        let (last, now) = (process.logged_level, Instant::now());
        if self.levels.may_log(last, now) {
            process.logged_level = Some(LevelLine { level, at: now, before: last.map(|line| line.at) });
            let (pid, target) = (process.process.pid, process.process.target);
            let changed = if last.is_some() { "now " } else { "" };
            let described = self.describe(target, level);
            let (id, name) = (&self.parts.id, self.name(target));
            tracing::info!("{id}: running threads of process {pid} of {name} are {changed}{described}");
        }
    }

    /// Logs the lines that were left out, and restarts the counting.
    pub(super) fn log_levels(&mut self) {
        let unlogged =
            |number: &u64| self.processes.get(number).is_some_and(|process| process.unlogged_level().is_some());
        let mut unlogged: Vec<u64> = self.live.values().copied().filter(unlogged).collect();
        unlogged.sort_unstable();
        (self.levels.window, self.levels.lines) = (None, 0);
        if unlogged.len() <= MOST_LINES {
            return unlogged.into_iter().for_each(|number| self.log_level(number));
        }
        let (now, all) = (Instant::now(), unlogged.len());
        self.levels.window = Some(now);
        let mut counts = BTreeMap::<_, u64>::new();
        for number in unlogged {
            let Some(process) = self.processes.get_mut(&number) else { continue };
            let Some(level) = process.unlogged_level() else { continue };
            process.logged_level = Some(LevelLine { level, at: now, before: process.logged_level.map(|line| line.at) });
            let target = process.process.target;
            *counts.entry(self.describe(target, level)).or_default() += 1;
        }
        let mut text = format!("running threads of {all} more processes");
        for (position, (described, count)) in counts.into_iter().enumerate() {
            let separator = if position == 0 { ':' } else { ';' };
            // Writing into memory does not fail.
            write!(text, "{separator} those of {count} are {described}").ok();
        }
        tracing::info!("{}: {text}", self.parts.id);
    }

    /// Describes a level for processes of a target.
    pub(super) fn describe(&self, target: TargetId, level: Level) -> &'static str {
        let stops = self.settings.targets.get(target.0 as usize).map(|target| target.sampling.stops);
        level.description(stops.unwrap_or_default())
    }

    /// Called when a process has changed: updates the gauges that count it.
    pub(super) fn count_level(&mut self, number: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let sampled = process.lifecycle().is_running() && !process.ended;
        let now = sampled.then_some(process.status.level);
        let before = std::mem::replace(&mut process.counted, now);
        self.levels.recount(before, now, &self.parts.intake);
    }
}
