//! The Firefox Profiler's format (firefox-devtools/profiler `docs-developer/processed-profile-format.md`), by the crate
//! `fxprof-processed-profile`.
//!
//! Each thread is a track with its samples at their times, and what it ran for between them, of which the viewer draws
//! how busy it was. Waiting time stands in tracks of its own, which the viewer hides until somebody chooses them, and so
//! does each type of values that is no time of threads. Weights may be below zero.
//!
//! The crate knows names and categories of functions and whole numbers as weights: a source file stands behind the
//! name, and times are milliseconds, rounded so that their sum is that of the thread.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, ProcessHandle, Profile,
    SamplingInterval, StackHandle, StringHandle, ThreadHandle, Timestamp, WeightType,
};

use super::kind::Kind;
use super::reading::{State, Unit};
use super::stacks::{Node, Stacks};
use super::timeline::{Timeline, Track, thread_name};

/// The nanoseconds of one unit of weight where weights are times.
const MILLISECOND: u64 = 1_000_000;

/// A sample of the format weighs less than 2^31, so what weighs more is written as several samples. So many more than
/// there are observations may be in a file; an observation that would need more than are left is lost.
const MOST_FURTHER_SAMPLES: u64 = 1 << 16;

/// What the viewer takes as the time between samples where there are not two of them.
const USUAL_INTERVAL: u64 = 10 * MILLISECOND;

/// What a file is made of.
#[derive(Debug)]
pub(crate) struct File {
    profile: Profile,
    /// How many observations are in it.
    pub(crate) taken: u64,
    /// How many are left out, because they are heavier than the format has room for.
    pub(crate) lost: u64,
}

impl File {
    /// Of a timeline. `title` is the name of what was profiled.
    pub(crate) fn new(timeline: &mut Timeline, title: &str) -> Self {
        timeline.sort();
        Writer::new(timeline, title).file()
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// What the writer fails with.
    pub(crate) fn write(&self, out: impl io::Write) -> io::Result<()> {
        serde_json::to_writer(out, &self.profile).map_err(io::Error::from)
    }
}

/// Makes the crate's profile of a timeline.
struct Writer<'a> {
    timeline: &'a Timeline,
    tracks: Vec<&'a Track>,
    profile: Profile,
    /// The first of all samples, in nanoseconds since the Unix epoch.
    start: u64,
    /// What each function is called, and whose it is.
    labels: Vec<(StringHandle, CategoryHandle)>,
    /// The processes, by their numbers.
    processes: Vec<Option<ProcessHandle>>,
    /// How many samples there may still be beyond one of each observation.
    further: u64,
    /// The observations that were taken, and those that were left out.
    taken: u64,
    lost: u64,
}

impl<'a> Writer<'a> {
    fn new(timeline: &'a Timeline, title: &str) -> Self {
        let tracks = timeline.tracks();
        let firsts = tracks.iter().filter_map(|track| track.observations.first());
        let start = firsts.map(|first| first.time_unix_nano).min().unwrap_or_default();
        let reference: SystemTime = UNIX_EPOCH + Duration::from_nanos(start);
        let interval = SamplingInterval::from_nanos(interval(&tracks));
        let mut profile = Profile::new(title, reference.into(), interval);
        // Names are there; nobody is to be asked for them.
        profile.set_symbolicated(true);
        let categories = Kind::ALL.map(|kind| profile.add_category(kind.name(), color(kind)));
        let labels = timeline.reading.stacks.functions().map(|(function, _)| {
            let label = match function.place() {
                "" => function.name.to_string(),
                place => format!("{} ({place})", function.name),
            };
            let category = Kind::ALL.iter().position(|&kind| kind == function.kind).map(|at| categories[at]);
            (profile.intern_string(&label), category.unwrap_or(CategoryHandle::OTHER))
        });
        let labels = labels.collect();
        let (processes, further) = (Vec::new(), MOST_FURTHER_SAMPLES);
        Self { timeline, tracks, profile, start, labels, processes, further, taken: 0, lost: 0 }
    }

    fn file(mut self) -> File {
        let first = self.tracks.first().map(|track| track.state);
        for (number, track) in std::mem::take(&mut self.tracks).into_iter().enumerate() {
            let thread = self.thread(track);
            // The first kind of state that there is any time of is what one sees.
            if Some(track.state) == first {
                self.profile.add_initial_visible_thread(thread);
            }
            if number == 0 {
                self.profile.add_initial_selected_thread(thread);
            }
            self.samples(track, thread);
        }
        File { profile: self.profile, taken: self.taken, lost: self.lost }
    }

    fn thread(&mut self, track: &Track) -> ThreadHandle {
        let begins = Timestamp::from_nanos_since_reference(0);
        let (thread, process) = self.timeline.thread(track);
        let at = thread.process as usize;
        if self.processes.len() <= at {
            self.processes.resize(at + 1, None);
        }
        let pid = process.pid.unwrap_or_default();
        let profile = &mut self.profile;
        let handle = *self.processes[at].get_or_insert_with(|| profile.add_process(&process.label, pid, begins));
        let tid = thread.id.parse().unwrap_or_default();
        // A main thread would be shown under its process's name instead of its own.
        let handle = profile.add_thread(handle, tid, begins, false);
        let mut name = match thread_name(thread) {
            name if name.is_empty() => "all threads".to_owned(),
            name => name,
        };
        name.push_str(&self.timeline.suffix(track));
        profile.set_thread_name(handle, &name);
        profile.set_thread_samples_weight_type(
            handle,
            match self.timeline.unit(track) {
                Unit::Nanoseconds => WeightType::TracingMs,
                Unit::Count(_) => WeightType::Samples,
                Unit::Bytes => WeightType::Bytes,
            },
        );
        handle
    }

    fn samples(&mut self, track: &Track, thread: ThreadHandle) {
        let stacks = &self.timeline.reading.stacks;
        let mut interned = Interned::default();
        let is_time = self.timeline.unit(track) == Unit::Nanoseconds;
        let scale = if is_time { MILLISECOND as i64 } else { 1 };
        let (mut sum, mut written) = (0i64, 0i64);
        // When the observation before was made, and for how long it ran from then on.
        let mut before = (0, 0);
        for one in &track.observations {
            let since_start = one.time_unix_nano.saturating_sub(self.start);
            // Rounding down each would lose a part of every sample.
            let mut weight = (sum.saturating_add(one.weight) / scale).saturating_sub(written);
            let further = weight.unsigned_abs().saturating_sub(1) / i32::MAX as u64;
            let Some(left) = self.further.checked_sub(further) else {
                self.lost += 1;
                continue;
            };
            self.further = left;
            self.taken += 1;
            sum = sum.saturating_add(one.weight);
            written += weight;
            let stack = self.stack(&mut interned, stacks, thread, one.node);
            let ran = if track.state == State::Running { one.weight.max(0).unsigned_abs() } else { 0 };
            // The viewer takes it for the time since the sample before.
            let mut cpu = CpuDelta::from_nanos(before.1.min(since_start.saturating_sub(before.0)));
            before = (since_start, ran);
            loop {
                let part = weight.clamp(-i64::from(i32::MAX), i32::MAX.into()) as i32;
                let time = Timestamp::from_nanos_since_reference(since_start);
                self.profile.add_sample(thread, time, stack, cpu, part);
                weight -= i64::from(part);
                cpu = CpuDelta::ZERO;
                if weight == 0 {
                    break;
                }
            }
        }
    }

    /// The stack of a node in a thread, made from the root on, each caller once.
    fn stack(
        &mut self,
        interned: &mut Interned,
        stacks: &Stacks,
        thread: ThreadHandle,
        node: Node,
    ) -> Option<StackHandle> {
        let mut missing = Vec::new();
        let mut at = node;
        while let Some((caller, function)) = stacks.edge(at)
            && !interned.stacks.contains_key(&at)
        {
            missing.push((at, function));
            at = caller;
        }
        let mut stack = interned.stacks.get(&at).copied();
        for (at, function) in missing.into_iter().rev() {
            let (label, category) = self.labels[function as usize];
            let profile = &mut self.profile;
            let frame = *interned.frames.entry(function).or_insert_with(|| {
                let frame = Frame::Label(label);
                let info = FrameInfo { frame, category_pair: category.into(), flags: FrameFlags::empty() };
                profile.intern_frame(thread, info)
            });
            let made = profile.intern_stack(thread, stack, frame);
            interned.stacks.insert(at, made);
            stack = Some(made);
        }
        stack
    }
}

/// What the crate knows of one thread, by the numbers of functions and nodes.
#[derive(Default)]
struct Interned {
    frames: HashMap<u32, FrameHandle>,
    stacks: HashMap<Node, StackHandle>,
}

/// The usual time between two samples of a thread: the middle one of the heaviest track, in nanoseconds.
fn interval(tracks: &[&Track]) -> u64 {
    let Some(track) = tracks.first() else { return USUAL_INTERVAL };
    let pairs = track.observations.windows(2);
    let mut gaps: Vec<u64> = pairs.map(|pair| pair[1].time_unix_nano - pair[0].time_unix_nano).collect();
    gaps.retain(|&gap| gap > 0);
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(USUAL_INTERVAL)
}

/// The colour of a category, those of the flame graph as far as the viewer has them.
fn color(kind: Kind) -> CategoryColor {
    match kind {
        Kind::Own => CategoryColor::Orange,
        Kind::Library => CategoryColor::Blue,
        Kind::Interpreter => CategoryColor::Green,
        Kind::Kernel => CategoryColor::Purple,
    }
}
