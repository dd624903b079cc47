//! The Firefox Profiler's format (firefox-devtools/profiler `docs-developer/processed-profile-format.md`), by the crate
//! `fxprof-processed-profile`.
//!
//! Each thread is a track with its samples in time and the CPU time between them, from which the viewer draws the
//! activity graph. Waiting time is in separate tracks that the viewer hides until the user selects them, and so is each
//! type of values that is not thread time. Weights may be negative.
//!
//! The format has no source file per function, so it is appended to the name. Weights are integers, so times are in
//! milliseconds, rounded so that their sum matches the thread's total.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, ProcessHandle, Profile,
    SamplingInterval, StackHandle, StringHandle, ThreadHandle, Timestamp, WeightType,
};

use profbridge_wire::sentry::chunk::origin::CodeOrigin;

use super::reading::{State, Unit};
use super::stacks::{Node, ORIGINS, Stacks};
use super::timeline::{Timeline, Track, thread_name};

/// The nanoseconds per unit of weight, if weights are times.
const MILLISECOND: u64 = 1_000_000;

/// The weight of a sample is below 2^31, so a heavier observation is written as several samples. This is the most
/// additional samples in a file; an observation that would need more is lost.
const MOST_FURTHER_SAMPLES: u64 = 1 << 16;

/// The sampling interval assumed by the viewer if there are fewer than two samples.
const USUAL_INTERVAL: u64 = 10 * MILLISECOND;

/// A profile in the crate's form.
#[derive(Debug)]
pub(crate) struct FirefoxFile {
    profile: Profile,
    /// Number of observations in the file.
    pub(crate) taken: u64,
    /// Number of observations that were too heavy for the format.
    pub(crate) lost: u64,
}

impl FirefoxFile {
    /// Converts a timeline. `title` is the name of what was profiled.
    pub(crate) fn new(timeline: &mut Timeline, title: &str) -> Self {
        timeline.sort();
        FirefoxWriter::new(timeline, title).file()
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// The error of the writer.
    pub(crate) fn write(&self, out: impl io::Write) -> io::Result<()> {
        serde_json::to_writer(out, &self.profile).map_err(io::Error::from)
    }
}

/// Builds the crate's profile from a timeline.
struct FirefoxWriter<'a> {
    timeline: &'a Timeline,
    tracks: Vec<&'a Track>,
    profile: Profile,
    /// Time of the first sample, in nanoseconds since the Unix epoch.
    start: u64,
    /// Name and category of each function.
    labels: Vec<(StringHandle, CategoryHandle)>,
    /// The processes, by number.
    processes: Vec<Option<ProcessHandle>>,
    /// How many additional samples may still be written.
    further: u64,
    /// Number of observations that were written, and that were lost.
    taken: u64,
    lost: u64,
}

impl<'a> FirefoxWriter<'a> {
    fn new(timeline: &'a Timeline, title: &str) -> Self {
        let tracks = timeline.tracks();
        let firsts = tracks.iter().filter_map(|track| track.observations.first());
        let start = firsts.map(|first| first.time_unix_nano).min().unwrap_or_default();
        let reference: SystemTime = UNIX_EPOCH + Duration::from_nanos(start);
        let interval = SamplingInterval::from_nanos(interval(&tracks));
        let mut profile = Profile::new(title, reference.into(), interval);
        // Names are complete, so the viewer need not look them up.
        profile.set_symbolicated(true);
        let categories = ORIGINS.map(|(origin, name)| profile.add_category(name, color(origin)));
        let labels = timeline.reading.stacks.functions().map(|(function, _)| {
            let label = format!("{}{}", function.name, function.in_place(None));
            let category = ORIGINS.iter().position(|(origin, _)| *origin == function.origin).map(|at| categories[at]);
            (profile.intern_string(&label), category.unwrap_or(CategoryHandle::OTHER))
        });
        let labels = labels.collect();
        let (processes, further) = (Vec::new(), MOST_FURTHER_SAMPLES);
        Self { timeline, tracks, profile, start, labels, processes, further, taken: 0, lost: 0 }
    }

    fn file(mut self) -> FirefoxFile {
        let first = self.tracks.first().map(|track| track.state);
        for (number, track) in std::mem::take(&mut self.tracks).into_iter().enumerate() {
            let thread = self.thread(track);
            // The tracks of the first state with any time are visible initially.
            if Some(track.state) == first {
                self.profile.add_initial_visible_thread(thread);
            }
            if number == 0 {
                self.profile.add_initial_selected_thread(thread);
            }
            self.samples(track, thread);
        }
        FirefoxFile { profile: self.profile, taken: self.taken, lost: self.lost }
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
        // The viewer would label a main thread with the process's name.
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
        let mut handles = ThreadHandles::default();
        let is_time = self.timeline.unit(track) == Unit::Nanoseconds;
        let scale = if is_time { MILLISECOND as i64 } else { 1 };
        let (mut sum, mut written) = (0i64, 0i64);
        // Time of the previous observation, and the running time from then on.
        let mut before = (0, 0);
        for one in &track.observations {
            let since_start = one.time_unix_nano.saturating_sub(self.start);
            // Rounds the running sum and not each weight, so that errors do not add up.
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
            let stack = self.stack(&mut handles, stacks, thread, one.node);
            let ran = if track.state == State::Running { one.weight.max(0).unsigned_abs() } else { 0 };
            // The viewer interprets this as the CPU time since the previous sample.
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

    /// The stack of a node in a thread. Creates all callers once, from the root.
    fn stack(
        &mut self,
        handles: &mut ThreadHandles,
        stacks: &Stacks,
        thread: ThreadHandle,
        node: Node,
    ) -> Option<StackHandle> {
        let mut missing = Vec::new();
        let mut at = node;
        while let Some((caller, function)) = stacks.edge(at)
            && !handles.stacks.contains_key(&at)
        {
            missing.push((at, function));
            at = caller;
        }
        let mut stack = handles.stacks.get(&at).copied();
        for (at, function) in missing.into_iter().rev() {
            let (label, category) = self.labels[function as usize];
            let profile = &mut self.profile;
            let frame = *handles.frames.entry(function).or_insert_with(|| {
                let frame = Frame::Label(label);
                let info = FrameInfo { frame, category_pair: category.into(), flags: FrameFlags::empty() };
                profile.intern_frame(thread, info)
            });
            let made = profile.intern_stack(thread, stack, frame);
            handles.stacks.insert(at, made);
            stack = Some(made);
        }
        stack
    }
}

/// The crate's ids for one thread, by numbers of functions and nodes.
#[derive(Default)]
struct ThreadHandles {
    frames: HashMap<u32, FrameHandle>,
    stacks: HashMap<Node, StackHandle>,
}

/// The typical sampling interval of a thread in nanoseconds: the median of the heaviest track.
fn interval(tracks: &[&Track]) -> u64 {
    let Some(track) = tracks.first() else { return USUAL_INTERVAL };
    let pairs = track.observations.windows(2);
    let mut gaps: Vec<u64> = pairs.map(|pair| pair[1].time_unix_nano - pair[0].time_unix_nano).collect();
    gaps.retain(|&gap| gap > 0);
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(USUAL_INTERVAL)
}

/// The colour of a category: that of the flame graph, if the viewer has it.
fn color(origin: CodeOrigin) -> CategoryColor {
    match origin {
        CodeOrigin::Own => CategoryColor::Orange,
        CodeOrigin::Library => CategoryColor::Blue,
        CodeOrigin::Interpreter => CategoryColor::Green,
        CodeOrigin::Kernel => CategoryColor::Purple,
    }
}
