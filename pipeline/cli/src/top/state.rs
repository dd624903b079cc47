//! The state of a view and its settings. Pure: samples, keys and the state of the run are passed in.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use profbridge_model::Profiles;
use profbridge_wire::folded::CalledBy;

use super::keys::Key;
use crate::sample::RunSnapshot;
use crate::views::reading::{Reading, State as ThreadState, Thread};
use crate::views::stacks::{Node, Stacks};
use crate::views::sums::Lines;
use crate::views::tree::{innermost_own, is_own};
use crate::views::waits::{self, WaitReason};

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

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ThreadTimes {
    pub(super) name: Box<str>,
    pub(super) running: u64,
    pub(super) waiting: u64,
    /// Its time by the innermost function of the program.
    pub(super) places: HashMap<u32, u64>,
    /// Its waiting time by what it waited for.
    pub(super) awaited: BTreeMap<Box<str>, u64>,
}

/// The times of stacks by thread and state.
type Weights = HashMap<(u32, bool, Node), u64>;

/// The sums of a time range.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) functions: HashMap<u32, Times>,
    pub(super) threads: BTreeMap<ThreadKey, ThreadTimes>,
    pub(super) reasons: BTreeMap<WaitReason, u64>,
}

impl Totals {
    /// Adds up stacks. `native` counts all functions as they were sampled.
    fn new(reading: &mut Reading, weights: &Weights, native: bool) -> Self {
        let mut totals = Self::default();
        let several = reading.threads.iter().any(|thread| thread.process != 0);
        // Whether a function was counted for a stack, so that recursion counts once.
        let mut last: HashMap<u32, usize> = HashMap::new();
        for (number, (&(thread, is_waiting, node), &nano)) in weights.iter().enumerate() {
            let stacks = &mut reading.stacks;
            let folded = stacks.fold(node, is_waiting);
            let path = stacks.path(if native { node } else { folded });
            let own = innermost_own(stacks, &path);
            // Own time includes the libraries that a function of the program calls, unless these are listed alike.
            let leaf = if native { path.last().copied() } else { own.or(path.last().copied()) };
            for &function in path.iter().filter(|&&function| last.insert(function, number) != Some(number)) {
                let times = totals.functions.entry(function).or_default();
                let sum = if is_waiting { &mut times.waiting } else { &mut times.total };
                *sum = sum.saturating_add(nano);
            }
            if let Some(leaf) = leaf.filter(|_| !is_waiting) {
                let sum = &mut totals.functions.entry(leaf).or_default().own;
                *sum = sum.saturating_add(nano);
            }
            let Thread { process, name, id } = &reading.threads[thread as usize];
            let label = if several { reading.processes[*process as usize].label.clone() } else { "".into() };
            let key = (label, id.parse().unwrap_or_default());
            if totals.threads.len() >= MOST_THREADS && !totals.threads.contains_key(&key) {
                continue;
            }
            let times = totals.threads.entry(key).or_default();
            times.name.clone_from(name);
            let (all, of_thread) = match is_waiting {
                true => (&mut totals.waiting, &mut times.waiting),
                false => (&mut totals.running, &mut times.running),
            };
            *all = all.saturating_add(nano);
            *of_thread = of_thread.saturating_add(nano);
            if let Some(place) = own.or(leaf) {
                *times.places.entry(place).or_default() += nano;
            }
            if is_waiting {
                let label = stacks.innermost(folded).map_or("", |function| &*function.name);
                let reason = WaitReason::of_frame(label).unwrap_or(WaitReason::Unknown);
                *times.awaited.entry(waits::named(label).into()).or_default() += nano;
                *totals.reasons.entry(reason).or_default() += nano;
            }
        }
        totals
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
pub(super) struct TimeHistory {
    pub(super) elapsed: Duration,
    pub(super) text: String,
    /// Whether samples wait for the names of their functions.
    pub(super) is_naming: bool,
}

#[derive(Debug, Default)]
pub(super) struct ViewState {
    reading: Reading,
    /// Lines of own code, and the one of each function with the most time, running and waiting.
    lines: Lines,
    hottest: [HashMap<u32, u32>; 2],
    /// The parts of the last seconds, each with its end, relative to the start of the run.
    lately: VecDeque<(Duration, Weights)>,
    /// The end of the last part that was dropped from `lately`.
    left: Duration,
    /// The end of the last part.
    last_end: Duration,
    all: Weights,
    /// Whether functions are shown as they were sampled, and not by own code.
    pub(super) native: bool,
    pub(super) course: TimeHistory,
    messages: VecDeque<String>,
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

impl ViewState {
    /// An empty view.
    pub(super) fn new(native: bool) -> Self {
        let reading = Reading::named_by(CalledBy::Executable);
        Self { reading, native, ..Self::default() }
    }

    /// Adds samples up to a time since the start of the run.
    pub(super) fn take(&mut self, profiles: &Profiles, until: Duration) {
        let mut part = Weights::new();
        self.reading.read(profiles, |one| {
            let nano = one.weight();
            let key = (one.thread, one.state == ThreadState::Waiting, one.node);
            for weights in [&mut part, &mut self.all] {
                let sum = weights.entry(key).or_default();
                *sum = sum.saturating_add(nano);
            }
            self.lines.add(one, nano);
        });
        self.last_end = self.last_end.max(until);
        self.lately.push_back((self.last_end, part));
    }

    /// Updates the state of the run.
    pub(super) fn look(&mut self, look: &RunSnapshot<'_>) {
        let text = look.to_string();
        let text = text.strip_prefix("sampling ").unwrap_or(&text).to_owned();
        self.course = TimeHistory { elapsed: look.elapsed, text, is_naming: look.is_naming };
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
        if self.messages.len() == MOST_SAID {
            self.messages.pop_front();
        }
        self.messages.push_back(text.to_owned());
    }

    /// The stored messages.
    pub(super) fn messages(&self) -> impl DoubleEndedIterator<Item = &String> {
        self.messages.iter()
    }

    /// The functions and stacks.
    pub(super) fn stacks(&self) -> &Stacks {
        &self.reading.stacks
    }

    /// Where a function is, behind its name: for own code with the line that ran most, or where most was waited.
    pub(super) fn place(&self, function: u32, waits: bool) -> String {
        self.stacks().get(function).in_place(self.hottest[usize::from(waits)].get(&function).copied())
    }

    /// Until when the activity of threads is known: no further than the samples that have names.
    fn end(&self) -> Duration {
        let behind = self.course.elapsed.saturating_sub(BEHIND);
        if self.course.is_naming { self.last_end } else { self.last_end.max(behind) }
    }

    /// Whether there are samples, and none of them has names yet.
    pub(super) fn awaits_names(&self) -> bool {
        self.course.is_naming && self.all.is_empty()
    }

    /// The sums to show, and the length of the time they cover: not the elapsed time, since the last samples are still
    /// to arrive.
    pub(super) fn totals(&mut self) -> (Totals, Duration) {
        let end = self.end();
        self.hottest = [ThreadState::Running, ThreadState::Waiting].map(|state| self.lines.hottest(state));
        if self.since_start {
            let totals = Totals::new(&mut self.reading, &self.all, self.native);
            let time = totals.covered().max(end);
            return (totals, time);
        }
        let mut weights = Weights::new();
        for (key, nano) in self.lately.iter().flat_map(|(_, part)| part) {
            let sum = weights.entry(*key).or_default();
            *sum = sum.saturating_add(*nano);
        }
        let totals = Totals::new(&mut self.reading, &weights, self.native);
        // The first part begins where the one before it ended, unless nothing arrived for a while.
        let first = self.lately.front().map_or(end, |(ended, _)| ended.saturating_sub(PART));
        let start = first.min(end.saturating_sub(LATELY)).max(self.left);
        let time = totals.covered().max(end.saturating_sub(start));
        (totals, time)
    }

    /// The functions to show, sorted. The filter matches parts of the function's name, or of its place without folders,
    /// which are not shown.
    pub(super) fn sorted(&self, totals: &Totals) -> Vec<(u32, Times)> {
        let wanted = self.filter.to_lowercase();
        let shown = |number: u32| {
            let function = self.stacks().get(number);
            wanted.is_empty()
                || [&*function.name, function.place()].into_iter().any(|text| text.to_lowercase().contains(&wanted))
        };
        let functions = totals.functions.iter().filter(|(number, _)| shown(**number));
        let mut rows: Vec<_> = functions.map(|(number, times)| (*number, *times)).collect();
        rows.sort_by_key(|(number, times)| {
            let by = times.by(self.sort);
            // Program functions that never ran are not listed first.
            let behind = !(self.mixed || is_own(self.stacks(), *number) && by.max(times.total) > 0);
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
            Key::Character('n') => self.native = !self.native,
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
