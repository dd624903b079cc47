//! Converts observations of one process to samples, so that Sentry attributes the measured time.
//!
//! In Sentry a sample lasts until the next sample of its thread, and the last one has no duration (observed with
//! `vroomrs` 0.1.24).

use std::{collections::BTreeMap, rc::Rc};

/// One stack of one thread, with its duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    /// The time, in nanoseconds since the epoch.
    pub(super) timestamp: u64,
    /// The duration, in nanoseconds.
    pub(super) weight: u64,
    /// The thread, if the producer names it.
    pub(super) thread: Option<Rc<str>>,
    /// An index into the dictionary's stack table.
    pub(super) stack: i32,
}

/// A sample to be written. Without a stack, the thread is idle from then on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) timestamp: u64,
    pub(super) thread: Rc<str>,
    pub(super) stack: Option<i32>,
}

/// The longest chunk: Relay rejects more than 66.0 s (getsentry/relay `relay-profiling/src/sample/v2.rs`).
pub(super) const WINDOW: u64 = 60_000_000_000;

/// Distributes values without timestamps over the time from `start` on: one after the other per thread; without thread
/// ids on as many parallel lanes as needed so that values neither overlap nor exceed `duration`. A value that crosses a
/// minute is split there.
pub(super) fn spread(values: &[(i32, Option<Rc<str>>, u64)], start: u64, duration: u64) -> Vec<Observation> {
    let mut totals: BTreeMap<&Option<Rc<str>>, u64> = BTreeMap::new();
    for (_, thread, weight) in values {
        let total = totals.entry(thread).or_default();
        *total = total.saturating_add(*weight);
    }
    let range = if duration == 0 { WINDOW } else { duration };
    let mut cursors: BTreeMap<&Option<Rc<str>>, u64> = BTreeMap::new();
    let mut observations = Vec::new();
    for (stack, thread, weight) in values {
        let cursor = cursors.entry(thread).or_default();
        let total = totals.get(thread).copied().unwrap_or(0);
        let mut left = if thread.is_some() { scaled(*weight, total, duration) } else { *weight };
        while left > 0 {
            let (lane, offset) = match thread {
                Some(thread) => (thread.clone(), *cursor),
                None => (Rc::from((*cursor / range).to_string()), *cursor % range),
            };
            let minute = WINDOW - offset % WINDOW;
            let weight = left.min(if thread.is_some() { minute } else { minute.min(range - offset) });
            let timestamp = start.saturating_add(offset);
            observations.push(Observation { timestamp, weight, thread: Some(lane), stack: *stack });
            *cursor = cursor.saturating_add(weight);
            left -= weight;
        }
    }
    observations
}

/// Scales a thread's time to the profile's range, because rounding by the producer must not move samples past its end.
fn scaled(weight: u64, total: u64, duration: u64) -> u64 {
    if duration == 0 || total <= duration {
        return weight;
    }
    (u128::from(weight) * u128::from(duration) / u128::from(total)) as u64
}

/// Assigns observations without a thread to the first lane that is free at their time. They may overlap by half a
/// weight of jitter.
pub(super) fn assign_lanes(observations: &mut [Observation]) {
    observations.sort_by_key(|observation| observation.timestamp);
    let mut lanes: Vec<u64> = Vec::new();
    for observation in observations.iter_mut().filter(|observation| observation.thread.is_none()) {
        let (now, weight) = (observation.timestamp, observation.weight);
        let free = lanes.iter().position(|&end| end <= now.saturating_add(weight / 2));
        let lane = free.unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(0);
        }
        lanes[lane] = now.saturating_add(weight);
        observation.thread = Some(Rc::from(lane.to_string()));
    }
}

/// Cuts at every full minute after `start`. An observation belongs to the window in which it begins.
pub(super) fn windows(observations: Vec<Observation>, start: u64) -> BTreeMap<u64, Vec<Observation>> {
    let mut windows: BTreeMap<u64, Vec<Observation>> = BTreeMap::new();
    for observation in observations {
        let begin = start + observation.timestamp.saturating_sub(start) / WINDOW * WINDOW;
        windows.entry(begin).or_default().push(observation);
    }
    windows
}

/// The samples of one window, in order of time.
pub(super) fn entries(mut observations: Vec<Observation>, window_end: u64) -> Vec<Entry> {
    observations.sort_by_key(|observation| observation.timestamp);
    let mut threads: BTreeMap<Rc<str>, Vec<Observation>> = BTreeMap::new();
    for observation in observations {
        threads.entry(observation.thread.clone().unwrap_or_else(|| Rc::from(""))).or_default().push(observation);
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (thread, observations) in threads {
        match observations.as_slice() {
            [lone] => entries.extend(lone_entries(&thread, lone, window_end)),
            many => entries.extend(thread_entries(&thread, many, window_end)),
        }
    }
    entries.sort_by_key(|entry| entry.timestamp);
    entries
}

/// Relay drops a thread with fewer than two non-idle samples, so a single one is written as two halves.
fn lone_entries(thread: &Rc<str>, lone: &Observation, window_end: u64) -> Vec<Entry> {
    let entry = |timestamp, stack| Entry { timestamp, thread: Rc::clone(thread), stack };
    let end = closing_time(lone, 0, window_end);
    let middle = lone.timestamp + (end - lone.timestamp) / 2;
    vec![entry(lone.timestamp, Some(lone.stack)), entry(middle, Some(lone.stack)), entry(end, None)]
}

fn thread_entries(thread: &Rc<str>, observations: &[Observation], window_end: u64) -> Vec<Entry> {
    let mut entries = Vec::with_capacity(observations.len() + 1);
    // `excess` is the shown time of the thread minus its sampled time, and `most` the allowed maximum: the thread's
    // largest weight. A negative excess is missing time; `earlier`, its value one observation before, shows for how
    // long it has been missing.
    let (mut excess, mut earlier, mut most) = (0_i128, 0_i128, 0_i128);
    for (position, observation) in observations.iter().enumerate() {
        let stack = Some(observation.stack);
        entries.push(Entry { timestamp: observation.timestamp, thread: Rc::clone(thread), stack });
        let weight = i128::from(observation.weight);
        most = most.max(weight);
        // One observation passes on at most one weight of missing time to the next, and all of them at most 64.
        excess = excess.max(earlier.min(0) - weight).max(-64 * weight);
        earlier = excess;
        // Each observation makes up for at most one weight. If half a weight or more is missing, the end is moved.
        let owed = (-excess).clamp(0, weight);
        let later = if 2 * owed >= weight - weight % 2 { owed } else { 0 };
        let distance = observations.get(position + 1).map(|next| i128::from(next.timestamp - observation.timestamp));
        let open = distance.filter(|distance| {
            let then = excess + distance - weight;
            (then <= 0 && *distance <= weight + owed) || (then <= most && 2 * distance <= 3 * weight)
        });
        match open {
            Some(distance) => excess += distance - weight,
            None => {
                excess += later;
                let timestamp = closing_time(observation, later as u64, window_end);
                entries.push(Entry { timestamp, thread: Rc::clone(thread), stack: None });
            }
        }
    }
    entries
}

/// The end of an observation's weight plus its thread's missing time, not after the window's end and not before the
/// observation.
fn closing_time(observation: &Observation, owed: u64, window_end: u64) -> u64 {
    let end = observation.timestamp.saturating_add(observation.weight).saturating_add(owed);
    end.min(window_end.max(observation.timestamp))
}
