//! Converts the profiles of one process and window to `profile_chunk` items: Sentry's Sample Format V2.
//!
//! Relay answers 200 before it checks a chunk, so an invalid one disappears silently, and a valid one may still show
//! nothing. Each of the relevant rules has its own file:
//!
//! * `select`: chooses the profile type that shows where a process spent its time.
//! * `observe`, `threads`, `spread`, `overlap`: assign observations to threads, in order of time.
//! * `segments`: splits a window to limit the billed time and the size.
//! * `plan`, `ledger`: choose the samples of a chunk so that Sentry attributes the sampled time.
//! * `listing`: duplicates samples so that Sentry lists their functions.
//! * `frames`, `source`, `runtime`, `naming`, `module`, `path`, `in_app`, `images`: the fields of a frame. `origin`:
//!   the same decision about own code, for flame graphs and lists.
//! * `original`: preserves a batch that already was a chunk.
//! * `write`: the JSON. `check`: the final check.
//!
//! All observations are accounted for: see [`ConversionReport::balanced`]. The output for one batch is bounded, see
//! [`limits`].

mod called;
mod check;
mod frames;
mod head;
mod images;
mod in_app;
mod ledger;
pub mod limits;
mod listing;
mod module;
mod naming;
mod observe;
pub mod origin;
mod original;
mod overlap;
mod path;
mod plan;
mod program;
mod report;
mod runtime;
mod segments;
mod select;
mod settings;
mod sink;
mod source;
mod spread;
mod stamped;
mod threads;
mod timeline;
mod write;

#[cfg(test)]
pub(super) mod tests;

use profbridge_model::{ProcessWindow, ProfilerId, Profiles, Reason};
use uuid::Uuid;

pub use report::{CLIPPED_SECONDS, ConversionReport, Notes};
pub use settings::{BrokenRule, InApp, LoneSamples, Prefer, Settings};
pub use sink::{ChunkHead, ChunkSink, ChunkSummary, Collected};

use super::about::About;
use super::resource_attributes::ResourceAttributes;
use frames::Frames;
use head::Head;
use listing::Listing;
use observe::Window;
use original::OriginalChunk;
use plan::ChunkPlan;
use runtime::{RUNTIMES, Runtime, dominant};
use segments::Segment;
use timeline::{Timeline, number, tick};

use crate::pprof::pruned;

/// Nanoseconds per second.
const NANOS: u64 = 1_000_000_000;

/// Maximum memory in bytes that is kept between batches. An observation takes about 40 bytes without its frames, so a
/// minute of a process with eight threads at 20 samples per second takes a tenth of this.
const KEPT: usize = 4 << 20;

/// Converts batches of one process and window each. Reuses its memory unless it grew too large.
#[derive(Debug, Default)]
pub struct Converter {
    settings: Settings,
    window: Window,
    plan: ChunkPlan,
    frames: Frames,
    listing: Listing,
    buffer: Vec<u8>,
    busy: Vec<u64>,
    /// Clipped nanoseconds of less than a second, carried over to the next batch.
    clipped_nanos: u64,
}

/// The batch whose chunks are written.
#[derive(Clone, Copy)]
struct Subject<'a> {
    batch: &'a Profiles,
    profiler_id: ProfilerId,
    about: &'a About,
    /// The original chunk, if the batch came from one.
    original: Option<OriginalChunk<'a>>,
}

/// A planned chunk within the size limit.
struct Planned {
    platform: String,
    /// The metadata of the chunk's threads.
    threads: Vec<u8>,
    images: Vec<u8>,
    estimated_bytes: usize,
    notes: Notes,
}

impl Converter {
    /// Creates a converter with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Writes a batch as chunks.
    ///
    /// The batch must cover one process and window ([`Profiles::window`]); otherwise it is counted as lost. A batch
    /// that was read from an SDK's chunk becomes that chunk again. This never fails: the report contains losses, and
    /// the sink's error.
    pub fn convert(&mut self, batch: &Profiles, sink: &mut dyn ChunkSink) -> ConversionReport {
        let mut report = ConversionReport { observations: batch.observations(), ..ConversionReport::default() };
        match &batch.window {
            _ if self.convert_original(batch, sink, &mut report) => {}
            Some(window) => match pruned(batch) {
                Some(pruned) => {
                    report.notes.frame_patterns += pruned.not_applied;
                    self.convert_window(&pruned.batch, window, sink, &mut report);
                }
                None => self.convert_window(batch, window, sink, &mut report),
            },
            None => report.losses.add_observations(Reason::ChunkRule, batch.observations()),
        }
        let clipped = self.clipped_nanos.saturating_add(report.notes.clipped_nanos);
        (report.clipped_seconds, self.clipped_nanos) = (clipped / NANOS, clipped % NANOS);
        debug_assert!(report.balanced(), "observations vanished: {report:?}");
        if self.heap_bytes() > KEPT {
            let (settings, clipped_nanos) = (std::mem::take(&mut self.settings), self.clipped_nanos);
            *self = Self { settings, clipped_nanos, ..Self::default() };
        }
        report
    }

    /// Approximate size of the kept memory, in bytes.
    fn heap_bytes(&self) -> usize {
        self.window.heap_bytes()
            + self.plan.heap_bytes()
            + self.frames.heap_bytes()
            + self.listing.heap_bytes()
            + self.buffer.capacity()
    }

    /// Writes a batch that was a chunk, if Sentry accepts it unmodified. Returns whether it was written.
    fn convert_original(&mut self, batch: &Profiles, sink: &mut dyn ChunkSink, report: &mut ConversionReport) -> bool {
        let Some((original, window)) = OriginalChunk::of(batch) else { return false };
        let line = Timeline::new(&window);
        if self.window.read_kept(batch, original.profile, line).is_none() {
            return false;
        }
        self.plan.begin(self.window.stacks.len());
        let mut samples_bytes = 0;
        for (number, lane) in (0..).zip(self.window.threads.lanes()) {
            self.plan.kept(number, &lane.keys);
            samples_bytes += lane.keys.len() * (write::SAMPLE_BYTES + lane.id.len());
        }
        let (first, last) = (self.plan.first, self.plan.last);
        if first > last || !original::is_short(line.unix_nano(first), line.unix_nano(last)) {
            return false;
        }
        let about = About::of(&ResourceAttributes::of(batch), "");
        let subject = Subject { batch, profiler_id: window.profiler_id, about: &about, original: Some(original) };
        let planned = self.plan_frames(subject, samples_bytes, original::MAX_BYTES);
        let is_planned = planned.is_some();
        planned.into_iter().for_each(|planned| self.write(subject, planned, sink, report));
        is_planned
    }

    fn convert_window(
        &mut self,
        batch: &Profiles,
        process: &ProcessWindow,
        sink: &mut dyn ChunkSink,
        report: &mut ConversionReport,
    ) {
        let chosen = select::select(batch, &self.settings, &mut report.losses);
        if chosen.is_empty() {
            return;
        }
        let line = Timeline::new(process);
        self.window.read(batch, line, &chosen, &mut report.losses, &mut report.notes);
        let seen = &self.window.seen;
        let lanes = self.window.threads.lanes();
        if !self.settings.min_active_time.is_zero() {
            let weights = lanes.iter().flat_map(|lane| &lane.keys).map(|&key| line.nanos(seen[number(key)].weight));
            let active = weights.fold(0, u64::saturating_add);
            if u128::from(active) < self.settings.min_active_time.as_nanos() {
                let idle = lanes.iter().map(|lane| self.window.observations(&lane.keys)).sum();
                report.losses.add_observations(Reason::TooShort, idle);
                return;
            }
        }
        let max_gap = line.ticks(u64::try_from(self.settings.max_gap.as_nanos()).unwrap_or(u64::MAX));
        let weight = |key| seen[number(key)].weight;
        let lone = self.settings.lone_samples;
        let mut open = segments::cut_idle(lanes, line.last(), max_gap, lone, weight);
        open.reverse();
        let about = About::of(&ResourceAttributes::of(batch), &self.settings.environment);
        let subject = Subject { batch, profiler_id: process.profiler_id, about: &about, original: None };
        while let Some(segment) = open.pop() {
            self.convert_segment(subject, segment, &mut open, sink, report);
        }
    }

    /// Writes a part of the window as one chunk. If that is too large, adds its halves to `open` instead.
    fn convert_segment(
        &mut self,
        subject: Subject<'_>,
        segment: Segment,
        open: &mut Vec<Segment>,
        sink: &mut dyn ChunkSink,
        report: &mut ConversionReport,
    ) {
        let lanes = self.window.threads.lanes();
        if report.json_bytes > limits::MAX_WINDOW_BYTES || report.error.is_some() {
            let reason = if report.error.is_some() { Reason::WriteFailed } else { Reason::LimitExceeded };
            let lost = segment.lanes(lanes).iter().map(|lane| self.window.observations(segment.keys(lane))).sum();
            report.losses.add_observations(reason, lost);
            return;
        }
        let target = self.settings.target_bytes.min(limits::MAX_CHUNK_BYTES);
        let mut planned = self.plan(subject, &segment, target);
        if planned.is_none() {
            if let Some((left, right)) = segment.halves(self.window.threads.lanes()) {
                open.extend([right, left]);
                return;
            }
            planned = self.plan(subject, &segment, limits::MAX_CHUNK_BYTES);
        }
        let Some(planned) = planned else {
            let lanes = segment.lanes(self.window.threads.lanes()).iter();
            report.losses.add_observations(
                Reason::TooLarge,
                lanes.map(|lane| self.window.observations(segment.keys(lane))).sum(),
            );
            return;
        };
        report.losses.add_observations(Reason::LoneSample, self.plan.dropped);
        if !self.plan.threads.is_empty() {
            self.write(subject, planned, sink, report);
        }
    }

    /// Plans a chunk; `None` if it is longer than Relay accepts or larger than `limit` bytes.
    fn plan(&mut self, subject: Subject<'_>, segment: &Segment, limit: usize) -> Option<Planned> {
        let line = self.window.line;
        let lanes = self.window.threads.lanes();
        self.plan.begin(self.window.stacks.len());
        let mut samples_bytes = 0;
        for (number, lane) in (segment.lanes.start..).zip(segment.lanes(lanes)) {
            let before = self.plan.samples.len();
            let end = segment.next(lane).unwrap_or(line.last());
            self.plan.thread(number, segment.keys(lane), &self.window, end, self.settings.lone_samples);
            samples_bytes += (self.plan.samples.len() - before) * (write::SAMPLE_BYTES + lane.id.len());
            if samples_bytes > limit {
                return None;
            }
        }
        if line.nanos(self.plan.last.saturating_sub(self.plan.first)) > limits::MAX_CHUNK_NANOS {
            return None;
        }
        self.plan_frames(subject, samples_bytes, limit)
    }

    /// Completes the plan of a chunk whose samples are planned; `None` if the chunk is larger than `limit` bytes.
    fn plan_frames(&mut self, subject: Subject<'_>, mut samples_bytes: usize, limit: usize) -> Option<Planned> {
        let Subject { batch, about, original, .. } = subject;
        let dictionary = batch.dictionary();
        let mut notes = Notes::default();
        let mut runtimes = [0; RUNTIMES];
        self.frames.begin(dictionary, original.is_some());
        for (&stack, &uses) in self.plan.stacks.iter().zip(&self.plan.uses) {
            let runtime = self.frames.stack(dictionary, self.window.stacks[stack as usize], &mut notes);
            runtimes[runtime as usize] += u64::from(uses);
            if samples_bytes + self.frames.stacks().len() > limit || self.frames.is_full() {
                return None;
            }
        }
        let platform = match (original, &self.settings.platform) {
            (Some(original), _) => original.platform.to_owned(),
            (None, Some(platform)) => platform.clone(),
            (None, None) => dominant(&runtimes).to_owned(),
        };
        if original.is_none() && runtimes[Runtime::Python as usize] > 0 {
            let stacks = self.plan.stacks.iter().map(|&stack| self.window.stacks[stack as usize]);
            self.frames.find_program(dictionary, stacks);
        }
        let left = limit.checked_sub(samples_bytes + self.frames.stacks().len())?;
        let own = (&self.settings.in_app, &*about.executable);
        if !self.frames.write(dictionary, &platform, own, left, &mut notes) {
            return None;
        }
        if original.is_none() {
            let halved = self.listing.find_single_samples(&self.plan, &self.frames, dictionary, &self.window.stacks);
            samples_bytes += halved * (write::SAMPLE_BYTES + profbridge_model::thread::MAX_ID_BYTES);
            if halved > 0 {
                self.plan.halve(&self.listing.halved);
            }
        }
        // The kernel names the first thread after the program; Sentry's SDKs use these names instead.
        let first_name = match &*platform {
            _ if original.is_some() => None,
            "python" => Some(&b"MainThread"[..]),
            "node" => Some(&b"main"[..]),
            _ => None,
        };
        let mut threads = Vec::new();
        for thread in &self.plan.threads {
            let lane = &self.window.threads.lanes()[thread.lane as usize];
            let first_name = first_name.filter(|_| lane.id == about.pid);
            lane.write(dictionary, first_name, original.is_some(), &mut threads, &mut notes);
            if threads.len() > limit {
                return None;
            }
        }
        let mut images = Vec::new();
        match original {
            Some(original) => {
                self.frames.images.write_kept(dictionary, original.profile.attributes, &mut images, &mut notes);
            }
            None => self.frames.images.write(dictionary, &mut images, &mut notes),
        }
        let frames_bytes = self.frames.stacks().len() + self.frames.text.len();
        let estimated_bytes = samples_bytes + frames_bytes + threads.len() + images.len();
        notes.clipped_nanos = self.window.line.nanos(self.plan.clipped);
        (estimated_bytes <= limit).then_some(Planned { platform, threads, images, estimated_bytes, notes })
    }

    /// Writes the planned chunk and counts the result.
    fn write(
        &mut self,
        subject: Subject<'_>,
        planned: Planned,
        sink: &mut dyn ChunkSink,
        report: &mut ConversionReport,
    ) {
        let Planned { platform, threads, images, estimated_bytes, mut notes } = planned;
        let is_original = subject.original.is_some();
        let line = self.window.line;
        let billed_nanos = line.nanos(self.plan.last - self.plan.first);
        let lanes = self.window.threads.lanes();
        let stack_count = self.plan.stacks.len() + 1;
        let head = Head::of(subject, &platform, &mut notes);
        let mut head_text = Vec::new();
        head.write(&mut head_text, is_original, &mut notes);
        let parts = write::ChunkParts {
            head: &head_text,
            stack_count,
            stacks: self.frames.stacks(),
            frames: &self.frames.text,
            images: &images,
            threads: &threads,
            id: head.id,
        };
        let rounding = if is_original { original::ROUNDING } else { 0 };
        let mut start = 0;
        let samples = &self.plan.samples;
        let of_threads = self.plan.threads.iter().map(|thread| {
            let of_thread = &samples[std::mem::replace(&mut start, thread.end)..thread.end];
            let sample = |&sample: &_| (number(sample) as u32, (line.unix_nano(tick(sample)) + rounding) / 1_000);
            (&*lanes[thread.lane as usize].id, of_thread.iter().map(sample))
        });
        let chunk_head = ChunkHead {
            platform: &platform,
            profiler_id: head.profiler_id,
            release: head.release,
            environment: head.environment.unwrap_or(&self.settings.environment),
            estimated_bytes,
        };
        let mut summary = ChunkSummary {
            chunk_id: Uuid::nil(),
            platform: platform.clone(),
            observations: self.plan.observations - self.plan.dropped,
            samples: samples.len() as u64,
            synthesized: self.plan.synthesized,
            coalesced: self.plan.coalesced,
            billed_nanos,
            first_unix_nano: line.unix_nano(self.plan.first),
            json_bytes: 0,
        };
        self.busy.clear();
        self.busy.extend(self.plan.threads.iter().map(|thread| thread.busy));
        let is_valid = |bytes| {
            let facts = check::Facts {
                busy: &self.busy,
                nanos: billed_nanos,
                stacks: (samples.iter().map(|&sample| number(sample) as u64).max().unwrap_or(0), stack_count as u64),
                frames: self.frames.len(),
                platform: &platform,
                bytes,
            };
            is_original || check::check(&facts).is_ok()
        };
        let buffer = &mut self.buffer;
        let begun = sink.begin(&chunk_head);
        let written =
            begun.and_then(|()| write::write(&parts, of_threads, buffer, sink).inspect_err(|_| sink.abandon()));
        let outcome = written.and_then(|(chunk_id, json_bytes)| {
            if !is_valid(json_bytes) {
                sink.abandon();
                return Ok(false);
            }
            (summary.chunk_id, summary.json_bytes) = (chunk_id, json_bytes);
            sink.finish(&summary).map(|()| true)
        });
        match outcome {
            Ok(true) => report.add(&summary, &notes),
            Ok(false) => report.losses.add_observations(Reason::ChunkRule, summary.observations),
            Err(error) => {
                report.losses.add_observations(Reason::WriteFailed, summary.observations);
                report.error = Some(error);
            }
        }
    }
}
