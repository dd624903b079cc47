//! The text at the end of a run: where the time went, and how reliable this is.

#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

use profbridge_sampler::message::{Level, Location, Mode, Status, Stops};
use profbridge_sampler::what_shows_more;
use unicode_width::UnicodeWidthStr;

use super::processes::{ChildrenTime, ProcessTime};
use super::stats::{complete_percent, without_callers};
use crate::terminal::counted;
use crate::views::fold::CALLERS_NOT_KNOWN;
use crate::views::reading::State;
use crate::views::stacks::{Node, Stacks, clean};
use crate::views::sums::Sums;
use crate::views::tree::{Tree, TreeRow, innermost_own};
use crate::views::waits::WaitReason;
use text::{chain, percent, seconds};

/// How many rows of functions are listed.
const MOST_ROWS: usize = 12;

/// How many rows of functions are listed below a list of processes at least, so that all is on one screen.
const LEAST_ROWS: usize = 4;

/// How many processes are listed.
const MOST_PROCESSES: usize = 6;

/// How many reasons of waiting are listed, and how many places of each.
const MOST_REASONS: usize = 5;
const MOST_PLACES: usize = 3;

/// A program that waits for its children for more than one part in this many of its time does its work in them.
const CHILDREN_PARTS: u32 = 4;

/// Descendants count as busy from one part in this many of the time on.
pub(crate) const BUSY_PARTS: u32 = 10;

/// Processor time that was not sampled is mentioned above one part in this many of the elapsed time.
const NOT_SAMPLED_PARTS: u128 = 100;

/// Below this share of complete stacks, in percent, the report explains what is missing.
const TRUSTED_PERCENT: f64 = 99.0;

/// Missed samples are mentioned above this share, in percent.
const MISSED_PERCENT: f64 = 2.0;

/// What the sampler costs is mentioned above this share of a processor, in percent.
const COSTLY_PERCENT: f64 = 5.0;

/// Stops that are longer than this are mentioned, in nanoseconds.
const LONG_STOP: u64 = 5_000_000;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// The time of all samples.
    pub(crate) sums: &'a mut Sums,
    /// Whether functions are listed as they were sampled, and not by own code.
    pub(crate) native: bool,
    /// Whether it says how it was sampled in any case.
    pub(crate) verbose: bool,
    /// The time by process, largest first.
    pub(crate) processes: Vec<ProcessTime>,
    /// Whether descendants of the command or process were sampled.
    pub(crate) followed: bool,
    /// The processor time of descendants that were not sampled.
    pub(crate) children: ChildrenTime,
    /// The files and sockets that threads were found to wait for, and how often, most first.
    pub(crate) awaited: Vec<(String, u64)>,
    /// How more functions could get names.
    pub(crate) hints: Vec<String>,
    /// How well the functions of Node programs could be named.
    pub(crate) node_quality: Option<String>,
    /// The time without a sampler process, if one ended unexpectedly.
    pub(crate) missing: Option<Missing>,
    /// The sampler's counters.
    pub(crate) status: Status,
    /// The sampling mode.
    pub(crate) mode: Mode,
    /// Which threads were stopped for sampling.
    pub(crate) stops: Stops,
    /// Whether a resource that perf events need was exhausted; this was already reported.
    pub(crate) lacked: bool,
    /// The length of the run.
    pub(crate) elapsed: Duration,
    /// The highest number of threads at one time.
    pub(crate) most_threads: u64,
}

/// Time without any data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Its length in nanoseconds.
    pub(crate) nano: u64,
    /// How often the sampler process ended.
    pub(crate) count: u32,
}

impl Report<'_> {
    /// Lists the functions, and in wall mode what threads waited for.
    pub(crate) fn functions(&mut self) -> String {
        let mut out = String::new();
        self.list_processes(&mut out);
        self.list_running(&mut out);
        if self.mode == Mode::Wall {
            let waiting = self.sums.total(State::Waiting);
            let threads = counted(self.most_threads, "thread");
            line(&mut out, format_args!("waiting: {} ({threads})", seconds(waiting)));
            self.list_waits(&mut out, waiting);
        }
        self.name_children(&mut out);
        out
    }

    /// Lists the processes if there are several, to show which did the work, and in which function.
    fn list_processes(&mut self, out: &mut String) {
        if self.processes.len() < 2 {
            return;
        }
        let waits = if self.mode == Mode::Wall { "waiting" } else { "" };
        line(out, format_args!("{:>10}  {waits:>10}  process", "running"));
        let lines = self.sums.hottest_lines(State::Running);
        for process in self.processes.iter().take(MOST_PROCESSES) {
            let waiting = if self.mode == Mode::Wall { seconds(process.waiting_nano) } else { String::new() };
            let folded = self.sums.weighed(State::Running, process.number, true);
            let stacks = &self.sums.reading.stacks;
            let hottest = Tree::new(stacks, &folded).hottest().map(|(names, function, nano)| {
                let last = names.last().map(String::as_str).unwrap_or_default();
                let place = located(stacks, function, &lines);
                format!("  {} {}{place}", percent(nano, process.running_nano), text::shortened(last))
            });
            let hottest = hottest.unwrap_or_default();
            let label = &process.label;
            line(out, format_args!("{:>10}  {waiting:>10}  {label}{hottest}", seconds(process.running_nano)));
        }
        if let Some(more) = self.processes.len().checked_sub(MOST_PROCESSES).filter(|&more| more > 0) {
            let rest: u64 = self.processes.iter().skip(MOST_PROCESSES).map(|process| process.running_nano).sum();
            line(out, format_args!("{:>10}  {:>10}  in {more} more", seconds(rest), ""));
        }
    }

    fn list_running(&mut self, out: &mut String) {
        let running = self.sums.total(State::Running);
        let processors = running as f64 / (self.elapsed.as_nanos() as f64).max(1.0);
        write(out, format_args!("running: {} ({processors:.2} processors)", seconds(running)));
        if running == 0 {
            return out.push_str("\n  no function was found running\n");
        }
        let lines = self.sums.hottest_lines(State::Running);
        let weighed = self.sums.weighed_in_all(State::Running, !self.native);
        let stacks = &self.sums.reading.stacks;
        let processes = if self.processes.len() < 2 { 0 } else { self.processes.len().min(MOST_PROCESSES) + 2 };
        let most = MOST_ROWS.saturating_sub(processes).max(LEAST_ROWS);
        if stacks.by_line {
            out.push('\n');
            return list_lines(out, stacks, &weighed, running, most);
        }
        if self.native {
            out.push('\n');
            return list_functions(out, stacks, &weighed, running);
        }
        let tree = Tree::new(stacks, &weighed);
        let own = tree.own_total();
        line(out, format_args!(", {} % of it in own code and what that calls", own * 100 / running.max(1)));
        if let Some((names, function, nano)) = tree.hottest() {
            let place = located(stacks, function, &lines);
            line(out, format_args!("hottest: {}  {}{place}", chain(&names), percent(nano, running).trim_start()));
        }
        let (rows, others) = tree.rows(most);
        let names: Vec<String> = rows.iter().map(|row| "  ".repeat(row.depth) + &chain(&row.names)).collect();
        let place = |row: &TreeRow| {
            let of = |function| stacks.get(function).place_with(lines.get(&function).copied());
            row.function.map(of).unwrap_or_default()
        };
        let places: Vec<String> = rows.iter().map(place).collect();
        let widest = |texts: &[String]| texts.iter().map(|text| text.width()).max().unwrap_or_default();
        let (of_names, of_places) = (widest(&names), widest(&places));
        for ((row, name), place) in rows.iter().zip(&names).zip(&places) {
            let time = format!("{} {:>10}", percent(row.total, running), seconds(row.total));
            let inside: Vec<String> = row
                .inside
                .iter()
                .map(|(library, nano)| format!("{} {}", text::shortened(library), percent(*nano, running).trim_start()))
                .collect();
            let pad = |text: &str, width: usize| " ".repeat(width.saturating_sub(text.width()));
            let text = format!(
                "  {time:>18}  {name}{}  {place}{}  {}",
                pad(name, of_names),
                pad(place, of_places),
                inside.join(", ")
            );
            line(out, format_args!("{}", text.trim_end()));
        }
        if others > 0 {
            line(out, format_args!("  {:>18}  {} not listed", "", counted(others as u64, "more row")));
        }
    }

    /// Lists what threads waited for, and where.
    fn list_waits(&mut self, out: &mut String, waiting: u64) {
        let lines = self.sums.hottest_lines(State::Waiting);
        let weighed = self.sums.weighed_in_all(State::Waiting, true);
        let stacks = &self.sums.reading.stacks;
        let mut reasons: BTreeMap<WaitReason, (u64, HashMap<String, u64>)> = BTreeMap::new();
        for (node, nano) in weighed {
            let path = stacks.path(node);
            let label = path.last().map(|&last| stacks.label_of(last)).unwrap_or_default();
            let reason = WaitReason::of_frame(label).unwrap_or(WaitReason::Unknown);
            let own = innermost_own(stacks, &path);
            let place = match own {
                Some(own) => text::shortened(stacks.label_of(own)) + &located(stacks, own, &lines),
                // The outermost library functions tell more than the innermost ones.
                None => {
                    let first = path.iter().map(|&function| stacks.label_of(function));
                    let first = first.filter(|label| WaitReason::of_frame(label).is_none()).take(2).last();
                    first.unwrap_or("[no own code]").to_owned()
                }
            };
            let (total, places) = reasons.entry(reason).or_default();
            *total = total.saturating_add(nano);
            *places.entry(place).or_default() += nano;
        }
        let of_children = reasons.get(&WaitReason::Child).map_or(0, |(total, _)| *total);
        let mut reasons: Vec<_> = reasons.into_iter().collect();
        reasons.sort_by_key(|(reason, (total, _))| (std::cmp::Reverse(*total), *reason));
        for (reason, (total, places)) in reasons.iter().take(MOST_REASONS) {
            let time = format!("{} {:>10}", percent(*total, waiting), seconds(*total));
            let mut places: Vec<_> = places.iter().collect();
            places.sort_by_key(|(place, nano)| (std::cmp::Reverse(**nano), (*place).clone()));
            let shown = places.iter().take(MOST_PLACES);
            let shown: Vec<String> =
                shown.map(|(place, nano)| format!("{place} {}", percent(**nano, waiting).trim_start())).collect();
            line(out, format_args!("  {time:>18}  {:<14}  {}", reason.name(), shown.join(", ")));
            if *reason == WaitReason::Transfer && !self.awaited.is_empty() {
                let all = self.awaited.iter().map(|(_, count)| count).sum();
                let shown = self.awaited.iter().take(MOST_PLACES);
                let shown = shown
                    .map(|(name, count)| format!("{} {}", text::shortened(name), percent(*count, all).trim_start()));
                line(out, format_args!("  {:>18}  {:<14}  of it {}", "", "", shown.collect::<Vec<_>>().join(", ")));
            }
        }
        let much = u128::from(of_children) * u128::from(CHILDREN_PARTS) > self.elapsed.as_nanos();
        if !self.followed && !self.has_busy_children() && much {
            let time = seconds(of_children);
            let what = "went by while it waited for processes it started; those are not sampled";
            line(out, format_args!("children: {time} {what} (--subprocesses samples them)"));
        }
    }

    /// Whether what is sampled does its work in processes that it started.
    fn has_busy_children(&self) -> bool {
        let time = self.children.time;
        let running = Duration::from_nanos(self.sums.total(State::Running));
        time > running && time * BUSY_PARTS > self.elapsed
    }

    fn name_children(&self, out: &mut String) {
        if !self.has_busy_children() {
            return;
        }
        let ChildrenTime { time, busy } = &self.children;
        let named = busy.iter().take(MOST_PROCESSES).map(|(pid, name)| format!("{} (pid {pid})", clean(name)));
        let mut named = named.collect::<Vec<_>>().join(", ");
        if let Some(more) = busy.len().checked_sub(MOST_PROCESSES).filter(|&more| more > 0) {
            write(&mut named, format_args!(" and {more} more"));
        }
        let who = if named.is_empty() { "that have ended" } else { &named };
        let time = time.as_secs_f64();
        let what = "of processor time in processes that it started, which are not sampled";
        line(out, format_args!("children: {time:.2} s {what}: {who} (--subprocesses samples them)"));
    }

    /// How reliable the figures are, one line for each noteworthy fact.
    pub(crate) fn trust(&self) -> String {
        let status = &self.status;
        let stacks = complete_percent(status).map_or_else(
            || "none".to_owned(),
            |complete| format!("{} samples, {complete:.1} % complete", status.observations),
        );
        let mut out = format!("stacks: {stacks}");
        if complete_percent(status).is_some_and(|complete| complete < TRUSTED_PERCENT) {
            let why = [
                (without_callers(status), "without some callers"),
                (status.truncated, "truncated (callers are missing)"),
                (status.guessed, "guessed (callers may be wrong)"),
            ];
            for (count, what) in why.into_iter().filter(|(count, _)| *count > 0) {
                write(&mut out, format_args!(", {count} {what}"));
            }
        }
        out.push('\n');
        for hint in &self.hints {
            line(&mut out, format_args!("hint: {hint}"));
        }
        self.problems_of_sampling(&mut out);
        let how = match status.level {
            Level::Undecided | Level::None if self.lacked => {
                "not sampled for lack of what perf events need; only the amount of their time is known"
            }
            level => level.description(self.stops),
        };
        let is_lacking = matches!(status.level, Level::None | Level::User) || self.lacked;
        if is_lacking || self.verbose {
            line(&mut out, format_args!("running threads: {how}"));
        }
        let cpu = status.sampler_cpu_nano as f64 * 100.0 / (self.elapsed.as_nanos() as f64).max(1.0);
        let (stops, longest) = (status.stops, status.longest_stop_nano / 1_000);
        let is_costly = cpu > COSTLY_PERCENT || status.longest_stop_nano > LONG_STOP;
        if is_lacking || is_costly || self.verbose {
            line(&mut out, format_args!("sampler: {cpu:.1} % of a processor; {stops} stops, the longest {longest} us"));
        }
        out
    }

    fn problems_of_sampling(&self, out: &mut String) {
        let status = &self.status;
        let mut say = |text: String| line(out, format_args!("{text}"));
        if let Some(Missing { nano, count }) = self.missing {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            let time = seconds(nano);
            say(format!("missing: {time} of the run, since the sampler process ended by itself {times}"));
        }
        if u128::from(status.not_sampled_nano) * NOT_SAMPLED_PARTS > self.elapsed.as_nanos() {
            let time = seconds(status.not_sampled_nano);
            let more = what_shows_more(status.level, self.stops).filter(|_| !self.lacked);
            let more = more.map(|more| format!("; {more}")).unwrap_or_default();
            say(format!("not sampled: {time} of processor time, of which only the amount is known{more}"));
        }
        self.node_quality.iter().cloned().for_each(&mut say);
        let unknown = |state| of(self.sums.total_with(state, CALLERS_NOT_KNOWN), self.sums.total(state));
        let (running, waiting) = (unknown(State::Running), unknown(State::Waiting));
        if running.max(waiting) > MISSED_PERCENT {
            let why = "their threads ran on before they could be read";
            say(format!(
                "callers: not known for {running:.1} % of running and {waiting:.1} % of waiting time \
                 ({CALLERS_NOT_KNOWN}): {why}"
            ));
        }
        let threads = status.recorded_nano + status.counted_nano;
        let (sums, nowhere) = (of(status.counted_nano, threads), of(status.not_placed_nano, threads));
        if sums > MISSED_PERCENT {
            let what =
                "since not every switch of theirs was recorded: how long they waited is exact, where is an estimate";
            say(format!("waits: {sums:.1} % of the threads' time was divided by samples, {what}"));
        }
        let sampled = of(status.switches_sampled_nano, threads);
        if sampled > MISSED_PERCENT {
            let what = "where and how long they waited is exact, how much of it was for a processor is an estimate";
            say(format!("waits: for {sampled:.1} % of the threads' time, of a process with many, {what}"));
        }
        if u128::from(status.pooled_nano) * NOT_SAMPLED_PARTS > self.elapsed.as_nanos() {
            let time = seconds(status.pooled_nano);
            let what = "of many threads that ran too little to be sampled each";
            say(format!("running: {time} {what} have the functions of those that were ([threads sampled together])"));
        }
        if nowhere > MISSED_PERCENT {
            let frames = [Location::WAITING_NOT_SEEN, Location::WAITING_FOR_PROCESSOR].map(Location::explanation);
            let frames: Vec<&str> = frames.into_iter().flatten().collect();
            let frames = frames.join(" and ");
            say(format!(
                "waits: in {nowhere:.1} % of the threads' time they waited where no stack was read ({frames})"
            ));
        }
        let (unnamed, samples) = (status.unproven_frames + status.unknown_functions, status.interpreted);
        if of(unnamed, status.observations) > MISSED_PERCENT {
            let what = "functions of interpreted code";
            say(format!("names: {unnamed} {what}, in {samples} samples with such code, are not known"));
        }
        let what_was_lost = [
            (status.cut_calls, "cut", "system calls came back early since their thread was stopped"),
            (
                status.lost_samples,
                "lost",
                "of the kernel's records, samples and switches, so where threads were is an estimate",
            ),
            (status.lost_observations, "lost", "samples, since profbridge did not keep up"),
            (status.refused_stops, "refused", "stops, so running threads are missing (another tracer?)"),
        ];
        for (count, how, what) in what_was_lost.into_iter().filter(|(count, ..)| *count > 0) {
            say(format!("{how}: {count} {what}"));
        }
        let ticks = status.ticks + status.missed_ticks + status.lowered_ticks;
        let (lowered, missed) = (of(status.lowered_ticks, ticks), of(status.missed_ticks, ticks));
        if status.lowered_ticks > 0 {
            say(format!("rate: lowered, {lowered:.1} % of the samples were left out so that sampling costs no more"));
        }
        if missed > MISSED_PERCENT {
            // Events come from the kernel and are not missed.
            let what = if status.level <= Level::None { "samples" } else { "looks at waiting threads" };
            say(format!("late: {missed:.1} % of the {what} were missed, since the sampler had no processor"));
        }
    }
}

/// The percentage of a part.
fn of(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// Where a function is, behind its name.
fn located(stacks: &Stacks, function: u32, lines: &HashMap<u32, u32>) -> String {
    stacks.get(function).in_place(lines.get(&function).copied())
}

/// Lists lines of own code by the time in them and in the libraries that they call.
fn list_lines(out: &mut String, stacks: &Stacks, weighed: &[(Node, u64)], running: u64, most: usize) {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (node, nano) in weighed {
        if let Some(function) = innermost_own(stacks, &stacks.path(*node)) {
            *sums.entry(function).or_default() += nano;
        }
    }
    let mut lines: Vec<(u32, u64)> = sums.into_iter().collect();
    lines.sort_by_key(|&(_, nano)| std::cmp::Reverse(nano));
    for &(function, nano) in lines.iter().take(most) {
        let time = format!("{} {:>10}", percent(nano, running), seconds(nano));
        let place = stacks.get(function).place_with(Some(stacks.get(function).start));
        line(out, format_args!("  {time:>18}  {place}  {}", text::shortened(&stacks.get(function).name)));
    }
    if let Some(more) = lines.len().checked_sub(most).filter(|&more| more > 0) {
        line(out, format_args!("  {:>18}  {} not listed", "", counted(more as u64, "more line")));
    }
}

/// Lists functions by their own time.
fn list_functions(out: &mut String, stacks: &Stacks, weighed: &[(Node, u64)], all: u64) {
    let costs = stacks.costs(weighed);
    line(out, format_args!("  {:>18}  {:>18}  function", "self", "total"));
    for cost in costs.iter().take(MOST_ROWS) {
        let own = format!("{} {:>10}", percent(cost.own, all), seconds(cost.own));
        let total = format!("{} {:>10}", percent(cost.total, all), seconds(cost.total));
        let name = text::shortened(stacks.label_of(cost.function));
        let place = stacks.get(cost.function).in_place(None);
        line(out, format_args!("  {own:>18}  {total:>18}  {name}{place}"));
    }
    if let Some(more) = costs.len().checked_sub(MOST_ROWS).filter(|&more| more > 0) {
        let rest: u64 = costs.iter().skip(MOST_ROWS).map(|cost| cost.own).sum();
        let own = format!("{} {:>10}", percent(rest, all), seconds(rest));
        line(out, format_args!("  {own:>18}  {:>18}  in {}", "", counted(more as u64, "more function")));
    }
}

fn write(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing into memory does not fail.
    out.write_fmt(text).ok();
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    write(out, text);
    out.push('\n');
}
