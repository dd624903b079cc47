//! The state of a view and its settings. Pure: samples, keys and the state of the run are passed in.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use profbridge_model::{Profiles, Sample, Value};

use super::keys::Key;
use crate::sample::{Functions, Halves, Look, Shares, times};

/// The time range shown by default.
pub(super) const LATELY: Duration = Duration::from_secs(10);

/// How far the data may lag: running threads are reported every half second, and names take a moment longer. If nothing
/// arrived for longer, nothing ran.
const BEHIND: Duration = Duration::from_secs(2);

/// The approximate maximum length of a part.
const PART: Duration = Duration::from_secs(1);

/// At most this many messages are kept.
const MOST_SAID: usize = 200;

/// The maximum length of a filter in bytes, in case a file is pasted.
const LONGEST_FILTER: usize = 256;

/// At most this many threads are distinguished; a program may start any number.
const MOST_THREADS: usize = 10_000;

/// The sort key of the functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    /// Own running time.
    #[default]
    Own,
    /// Running time including callees.
    Total,
    /// Time that threads waited in them or their callees.
    Waiting,
}

/// The time of a function, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Times {
    pub(super) own: u64,
    pub(super) total: u64,
    pub(super) waiting: u64,
}

impl Times {
    pub(super) fn by(self, sort: Sort) -> u64 {
        match sort {
            Sort::Own => self.own,
            Sort::Total => self.total,
            Sort::Waiting => self.waiting,
        }
    }
}

/// A thread: its process, if there are several, and its id.
type ThreadKey = (Box<str>, i64);

/// The time of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ThreadTimes {
    pub(super) name: Box<str>,
    pub(super) running: u64,
    pub(super) waiting: u64,
    /// Its time by the innermost function of the program.
    pub(super) places: HashMap<u32, u64>,
}

/// The sums of a time range.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) functions: HashMap<u32, Times>,
    pub(super) threads: BTreeMap<ThreadKey, ThreadTimes>,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.running = self.running.saturating_add(other.running);
        self.waiting = self.waiting.saturating_add(other.waiting);
        for (number, times) in &other.functions {
            let sum = self.functions.entry(*number).or_default();
            sum.own = sum.own.saturating_add(times.own);
            sum.total = sum.total.saturating_add(times.total);
            sum.waiting = sum.waiting.saturating_add(times.waiting);
        }
        for (key, times) in &other.threads {
            if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(key) {
                continue;
            }
            let sum = self.threads.entry(key.clone()).or_default();
            sum.name.clone_from(&times.name);
            sum.running = sum.running.saturating_add(times.running);
            sum.waiting = sum.waiting.saturating_add(times.waiting);
            for (place, nano) in &times.places {
                let place = sum.places.entry(*place).or_default();
                *place = place.saturating_add(*nano);
            }
        }
    }

    /// The time covered by the samples, at least: that of the busiest thread. Only the arrival of samples is known, not
    /// their end, so they may cover some milliseconds more than the time between arrivals; no thread may exceed 100 %.
    fn covered(&self) -> Duration {
        // Samples without a thread may belong to any number of threads.
        let named = self.threads.iter().filter(|((_, id), _)| *id != 0);
        let longest = named.map(|(_, times)| times.running.saturating_add(times.waiting)).max();
        Duration::from_nanos(longest.unwrap_or_default())
    }
}

/// The state of the run.
#[derive(Debug, Clone, Default)]
pub(super) struct Course {
    pub(super) elapsed: Duration,
    pub(super) text: String,
}

/// The state of a view.
#[derive(Debug, Default)]
pub(super) struct State {
    shares: Shares,
    /// The parts of the last seconds, each with its end, relative to the start of the run.
    lately: VecDeque<(Duration, Totals)>,
    /// The end of the last part that was dropped from `lately`.
    left: Duration,
    /// The end of the last part.
    heard: Duration,
    all: Totals,
    pub(super) course: Course,
    said: VecDeque<String>,
    pub(super) sort: Sort,
    /// Whether program functions are not listed first.
    pub(super) mixed: bool,
    pub(super) since_start: bool,
    pub(super) hide_threads: bool,
    pub(super) filter: String,
    /// Whether the user is typing the filter.
    pub(super) typing: bool,
    /// The number of functions scrolled past.
    pub(super) scroll: usize,
    /// The number of functions that fit on the screen, if known.
    pub(super) page: usize,
}

impl State {
    /// Adds samples up to a time since the start of the run.
    pub(super) fn take(&mut self, halves: &Halves, until: Duration) {
        let mut part = Totals::default();
        for each in &halves.each {
            for (profiles, waiting) in [(&each.running, false), (&each.waiting, true)] {
                let Some(profiles) = profiles else { continue };
                self.shares.add(profiles, waiting);
                self.add_threads(&mut part, &each.label, profiles, waiting);
            }
        }
        let (running, waiting) = (std::mem::take(&mut self.shares.running), std::mem::take(&mut self.shares.waiting));
        (part.running, part.waiting) = (running.nano(), waiting.nano());
        for cost in running.by_own() {
            let times = part.functions.entry(cost.function).or_default();
            (times.own, times.total) = (cost.own_nano, cost.total_nano);
        }
        for cost in waiting.by_own() {
            part.functions.entry(cost.function).or_default().waiting = cost.total_nano;
        }
        self.all.add(&part);
        self.heard = self.heard.max(until);
        self.lately.push_back((self.heard, part));
    }

    fn add_threads(&mut self, part: &mut Totals, label: &str, batch: &Profiles, waiting: bool) {
        let lines = self.shares.functions.intern(batch);
        for (sample, nano) in times(batch) {
            let (id, name) = thread(batch, &sample);
            let times = part.threads.entry((label.into(), id)).or_default();
            times.name = crate::sample::printable(name);
            let side = if waiting { &mut times.waiting } else { &mut times.running };
            *side = side.saturating_add(nano);
            let stack = batch.dictionary().stack(sample.stack).flatten();
            let numbers = || stack.clone().flat_map(|location| lines.of(location).iter().copied());
            let own = |number: &u32| {
                let function = self.shares.functions.get(*number);
                function.own && !function.is_unknown()
            };
            if let Some(place) = numbers().find(own).or_else(|| numbers().next()) {
                let time = times.places.entry(place).or_default();
                *time = time.saturating_add(nano);
            }
        }
    }

    /// Updates the state of the run.
    pub(super) fn look(&mut self, look: &Look<'_>) {
        let text = look.to_string();
        let text = text.strip_prefix("sampling ").unwrap_or(&text).to_owned();
        self.course = Course { elapsed: look.elapsed, text };
        let end = self.end();
        while let Some((ended, _)) = self.lately.front()
            && end.saturating_sub(*ended) >= LATELY
        {
            self.left = *ended;
            self.lately.pop_front();
        }
    }

    /// Stores a message to the user.
    pub(super) fn say(&mut self, text: &str) {
        if self.said.len() == MOST_SAID {
            self.said.pop_front();
        }
        self.said.push_back(text.to_owned());
    }

    /// The stored messages.
    pub(super) fn said(&self) -> impl DoubleEndedIterator<Item = &String> {
        self.said.iter()
    }

    /// The functions, by number.
    pub(super) fn functions(&self) -> &Functions {
        &self.shares.functions
    }

    /// Until when the activity of threads is known.
    fn end(&self) -> Duration {
        self.heard.max(self.course.elapsed.saturating_sub(BEHIND))
    }

    /// The sums to show, and the length of the time they cover: not the elapsed time, since the last samples are still
    /// to arrive.
    pub(super) fn totals(&self) -> (Totals, Duration) {
        let end = self.end();
        if self.since_start {
            let time = self.all.covered().max(end);
            return (self.all.clone(), time);
        }
        let mut totals = Totals::default();
        self.lately.iter().for_each(|(_, part)| totals.add(part));
        // The first part begins where the one before it ended, unless nothing arrived for a while.
        let first = self.lately.front().map_or(end, |(ended, _)| ended.saturating_sub(PART));
        let start = first.min(end.saturating_sub(LATELY)).max(self.left);
        let time = totals.covered().max(end.saturating_sub(start));
        (totals, time)
    }

    /// The functions to show, sorted.
    pub(super) fn sorted(&self, totals: &Totals) -> Vec<(u32, Times)> {
        let wanted = self.filter.to_lowercase();
        let shown = |number: u32| {
            let function = self.functions().get(number);
            wanted.is_empty()
                || function.name.to_lowercase().contains(&wanted)
                || function.module.to_lowercase().contains(&wanted)
                || function.source.to_lowercase().contains(&wanted)
        };
        let functions = totals.functions.iter().filter(|(number, _)| shown(**number));
        let mut rows: Vec<_> = functions.map(|(number, times)| (*number, *times)).collect();
        rows.sort_by_key(|(number, times)| {
            let by = times.by(self.sort);
            // Program functions without any time do not deserve the first places.
            let behind = !(self.mixed || self.functions().get(*number).own && by > 0);
            (behind, std::cmp::Reverse((by, times.total, times.waiting)), *number)
        });
        rows
    }

    /// Handles a key. Returns whether it ends the view.
    pub(super) fn press(&mut self, key: Key) -> bool {
        if self.typing {
            match key {
                Key::Enter => self.typing = false,
                Key::Escape => {
                    self.typing = false;
                    self.filter.clear();
                }
                Key::Backspace => {
                    self.filter.pop();
                }
                Key::Character(c) if self.filter.len() < LONGEST_FILTER => self.filter.push(c),
                _ => {}
            }
            self.scroll = 0;
            return false;
        }
        match key {
            Key::Character('q' | 'Q') => return true,
            Key::Character('s') => self.sort_by(Sort::Own),
            Key::Character('t') => self.sort_by(Sort::Total),
            Key::Character('w') => self.sort_by(Sort::Waiting),
            Key::Character('o') => self.mixed = !self.mixed,
            Key::Character('h') => self.hide_threads = !self.hide_threads,
            Key::Character('a') => self.since_start = !self.since_start,
            Key::Character('/') => self.typing = true,
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Character('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Character('j') => self.scroll += 1,
            Key::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            Key::PageDown => self.scroll += self.page,
            Key::Home => self.scroll = 0,
            Key::Character(_) | Key::Enter | Key::Backspace => {}
        }
        false
    }

    fn sort_by(&mut self, sort: Sort) {
        self.sort = sort;
        self.scroll = 0;
    }
}

/// The thread of a sample.
fn thread<'a>(batch: &'a Profiles, sample: &Sample<'_>) -> (i64, &'a str) {
    let dictionary = batch.dictionary();
    let id = match dictionary.find(sample.attributes, "thread.id") {
        Some(Value::Int(id)) => *id,
        _ => 0,
    };
    let name = match dictionary.find(sample.attributes, "thread.name") {
        Some(Value::String(name)) => dictionary.string(*name),
        _ => "",
    };
    (id, name)
}
