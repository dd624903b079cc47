//! `profbridge dump`: shows what each thread of a process does at this moment.
//!
//! A short run ([`crate::sample`]) samples all threads, until the whole stack of each was seen; of each, the last
//! sample with a whole stack is shown, or else the last one.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use profbridge_model::thread::{SampleThread, ThreadState};
use profbridge_model::{Dictionary, Profiles, Sample, Value};
use profbridge_receiver_ptrace::assemble::TRUST_ATTRIBUTE;
use profbridge_sampler::Descriptors;
use profbridge_sampler::message::{Batch, Process, ProcessId, Trust};
use profbridge_wire::folded::{self, CalledBy};
use profbridge_wire::sentry::chunk::origin::CodeOrigin;

use crate::args::sampling::DumpArgs;
use crate::sample::awaited::thread_ids;
use crate::sample::{Interrupt, Purpose, RunSnapshot, RunView, label, start};
use crate::terminal::counted;
use crate::views::fold::{CALLERS_NOT_KNOWN, FrameRole};
use crate::views::stacks::{StackCache, StackFunction, Stacks, clean};
use crate::views::waits::WaitReason;
use crate::{Failure, terminal};

/// How long threads are sampled if the whole stack of one of them is not seen earlier.
const LONGEST: Duration = Duration::from_secs(2);

/// Shows the threads of processes.
pub(crate) fn run(arguments: &DumpArgs) -> Result<ExitCode, Failure> {
    let dump = Dump { native: arguments.native, asked: arguments.pid.clone(), ..Dump::default() };
    // A signal ends it at once: there is nothing to lose.
    start(&arguments.subject(LONGEST), || Ok((Interrupt::default(), Purpose::View(Box::new(dump)))))
}

/// The threads of the processes of a run.
#[derive(Debug, Default)]
struct Dump {
    /// Whether all frames are shown.
    native: bool,
    /// The processes that were asked for.
    asked: Vec<u32>,
    /// The processes by id.
    processes: BTreeMap<u32, Dumped>,
    stacks: Stacks,
}

/// A process.
#[derive(Debug)]
struct Dumped {
    id: ProcessId,
    /// Its name, its id and its command line.
    title: String,
    /// Its threads by id.
    threads: BTreeMap<u32, DumpedThread>,
}

#[derive(Debug, Default)]
struct DumpedThread {
    name: Box<str>,
    /// Its id in the PID namespace of its process, by which profiles name it; `None` before its first sample.
    namespace_id: Option<u32>,
    /// Whether a sample shows where it is, with all callers.
    is_seen: bool,
    /// Whether it existed at the end.
    exists: bool,
    /// Its processor time at the end, if known.
    processor_time: Option<Duration>,
    /// The file or socket that it waited for at the end.
    awaited: Option<Box<str>>,
    latest: Option<ThreadSample>,
}

/// How much of a stack is known. A stack without callers says nothing of what the program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Part,
    Guessed,
    Whole,
}

/// A sample of a thread.
#[derive(Debug)]
struct ThreadSample {
    /// Whether the sample shows where the thread was, how much of the stack is known, and its time in nanoseconds since
    /// the Unix epoch.
    order: (bool, Known, u64),
    is_waiting: bool,
    /// How much of the stack is known, unless that is all of it.
    trust: Option<Box<str>>,
    /// The functions by number with the line at which each is (0 if unknown), leaf first.
    frames: Vec<(u32, u32)>,
}

impl RunView for Dump {
    fn is_live(&self) -> bool {
        false
    }

    fn attached(&mut self, process: &Process) {
        let mut title = label(process);
        let command = match &process.arguments[..] {
            [] => process.executable.clone(),
            words => words.join(" "),
        };
        write!(title, ": {}", clean(&command)).ok();
        let threads = thread_ids(process.pid).map(|id| (id, DumpedThread::default())).collect();
        self.processes.insert(process.pid, Dumped { id: process.id, title, threads });
    }

    fn arrived(&mut self, batch: &Batch) {
        let Some(process) = self.processes.values_mut().find(|process| process.id == batch.process) else { return };
        for sample in &batch.samples {
            // Samples without a thread id are the time of threads that ended unseen.
            let thread = batch.threads.get(sample.thread as usize).filter(|thread| thread.id != 0);
            let Some(thread) = thread else { continue };
            let Some(stack) = batch.stacks.get(sample.stack as usize) else { continue };
            let is_whole = matches!(stack.trust, Trust::Complete | Trust::Guessed);
            let mut locations = stack.locations.iter().filter_map(|&at| batch.locations.get(at as usize));
            let known = process.threads.entry(thread.id).or_default();
            known.namespace_id = Some(if thread.namespace_id == 0 { thread.id } else { thread.namespace_id });
            known.is_seen |= is_whole && locations.any(|location| location.explanation().is_none());
        }
    }

    fn take(&mut self, profiles: &Profiles, _until: Duration) {
        let dictionary = profiles.dictionary();
        let mut cache = StackCache::new(profiles);
        for resource in profiles.resources() {
            let pid = folded::NamedProcess::of(profiles, &resource.resource, None, CalledBy::Executable).pid;
            let Some(process) = pid.and_then(|pid| self.processes.get_mut(&pid)) else { continue };
            let of = resource.scopes.iter().flat_map(|scope| &scope.profiles);
            for sample in of.flat_map(|profile| profiles.samples(profile)) {
                let Some(identity) = SampleThread::of(dictionary, sample.attributes) else { continue };
                let id = identity.id.parse().ok();
                let known = process.threads.values_mut().find(|thread| id.is_some() && thread.namespace_id == id);
                let Some(thread) = known else { continue };
                let seen = ThreadSample::of(&mut self.stacks, &mut cache, dictionary, &sample);
                if thread.latest.as_ref().is_none_or(|latest| latest.order <= seen.order) {
                    thread.latest = Some(seen);
                    // An interpreter's name is better than the kernel's.
                    thread.name = clean(dictionary.string(identity.name));
                }
            }
        }
    }

    fn look(&mut self, _look: &RunSnapshot<'_>) -> bool {
        let is_done = |pid: u32, (&id, thread): (&u32, &DumpedThread)| thread.is_seen || !task(pid, id, "").exists();
        let are_done = |(&pid, process): (&u32, &Dumped)| process.threads.iter().all(|one| is_done(pid, one));
        self.asked.iter().all(|pid| self.processes.contains_key(pid)) && self.processes.iter().all(are_done)
    }

    fn close(&mut self) {
        let mut descriptors = Descriptors::default();
        for (&pid, process) in &mut self.processes {
            for id in thread_ids(pid) {
                let thread = process.threads.entry(id).or_default();
                thread.exists = true;
                let read = |file: &str| std::fs::read_to_string(task(pid, id, file)).ok();
                if thread.name.is_empty() {
                    thread.name = clean(&read("comm").unwrap_or_default());
                }
                // The first number is the time on a processor in nanoseconds (Linux, Documentation/scheduler/
                // sched-stats.rst).
                let nano = read("schedstat").and_then(|line| line.split(' ').next()?.parse().ok());
                thread.processor_time = nano.map(Duration::from_nanos);
                thread.awaited = descriptors.awaited_by(pid, id).map(|name| clean(&name));
            }
        }
    }

    fn end(&mut self, _look: &RunSnapshot<'_>) {
        terminal::result(self.text());
    }
}

impl Dump {
    /// A paragraph for each process with its threads, the main thread first.
    fn text(&self) -> String {
        let mut text = String::new();
        for (&pid, process) in &self.processes {
            let ended = !process.threads.values().any(|thread| thread.exists);
            let is_shown = |thread: &DumpedThread| thread.exists || ended && thread.latest.is_some();
            let mut threads: Vec<_> = process.threads.iter().filter(|(_, thread)| is_shown(thread)).collect();
            threads.sort_by_key(|&(&id, _)| (id != pid, id));
            let blank = if text.is_empty() { "" } else { "\n" };
            let ended = if ended { ", ended meanwhile" } else { "" };
            writeln!(text, "{blank}{}, {}{ended}", process.title, counted(threads.len() as u64, "thread")).ok();
            for (id, thread) in threads {
                self.write_thread(&mut text, *id, thread);
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn write_thread(&self, text: &mut String, id: u32, thread: &DumpedThread) {
        let name = if thread.name.is_empty() { String::new() } else { format!(" \"{}\"", thread.name) };
        let state = match &thread.latest {
            None => "not seen",
            Some(seen) if seen.is_waiting => {
                let functions = seen.frames.iter().map(|&(function, _)| self.stacks.get(function));
                WaitReason::of(functions).frame().trim_matches(['[', ']'])
            }
            Some(_) => "running",
        };
        let used = thread.processor_time.map(|time| format!(", {:.2} s of processor time so far", time.as_secs_f64()));
        let awaited =
            thread.awaited.as_ref().filter(|_| state == WaitReason::Transfer.frame().trim_matches(['[', ']']));
        let awaited = awaited.map(|awaited| format!(", {awaited}")).unwrap_or_default();
        writeln!(text, "thread {id}{name}: {state}{awaited}{}", used.unwrap_or_default()).ok();
        let Some(seen) = &thread.latest else { return };
        let is_said =
            |function: &StackFunction| function.is_placeholder() && function.name.trim_matches(['[', ']']) == state;
        let mut before = None;
        for (number, line) in self.shown(seen) {
            let function = self.stacks.get(number);
            // What is not known of several native calls in a row is said once.
            let is_repeated = before.replace(number) == Some(number) && function.is_placeholder();
            if !is_said(function) && !is_repeated {
                writeln!(text, "    {}{}", self.stacks.label_of(number), place(function, line)).ok();
            }
        }
        match seen.trust.as_deref() {
            Some("truncated") => writeln!(text, "    {CALLERS_NOT_KNOWN}").ok(),
            Some("guessed") => writeln!(text, "    [some of these callers are guesses]").ok(),
            _ => None,
        };
    }

    /// The frames to show. A thread that runs interpreted functions is shown without the machine code that executes
    /// them and, while it waits, without libraries, since its state already says what they do. Any other thread is
    /// shown without the kernel. If nothing is left, all frames are shown.
    fn shown(&self, seen: &ThreadSample) -> Vec<(u32, u32)> {
        let is_interpreted = seen.frames.iter().any(|&(function, _)| self.stacks.get(function).is_interpreted);
        let is_shown = |&&(function, _): &&(u32, u32)| {
            let function = self.stacks.get(function);
            let is_machinery = match FrameRole::of(function) {
                FrameRole::Caller => true,
                FrameRole::Library => seen.is_waiting && !function.is_interpreted,
                FrameRole::Own | FrameRole::Placeholder | FrameRole::Collector => false,
            };
            // A frame that stands for no function counts as the kernel's by its address.
            let is_kernel = function.origin == CodeOrigin::Kernel && !function.is_placeholder();
            self.native || if is_interpreted { !is_machinery } else { !is_kernel }
        };
        let shown: Vec<_> = seen.frames.iter().filter(is_shown).copied().collect();
        if shown.is_empty() { seen.frames.clone() } else { shown }
    }
}

impl ThreadSample {
    fn of(stacks: &mut Stacks, cache: &mut StackCache<'_>, dictionary: &Dictionary, sample: &Sample<'_>) -> Self {
        let mut frames: Vec<(u32, u32)> = Vec::new();
        for location in dictionary.stack(sample.stack).flatten() {
            let of_location = stacks.location(cache, location);
            frames.extend(cache.frames[of_location].iter().flatten());
        }
        let has_place = frames.iter().any(|&(function, _)| !stacks.get(function).is_placeholder());
        let trust = match dictionary.find(sample.attributes, TRUST_ATTRIBUTE) {
            Some(Value::String(trust)) => Some(dictionary.string(*trust).into()),
            _ => None,
        };
        let known = match trust.as_deref() {
            None | Some("") => Known::Whole,
            Some("guessed") => Known::Guessed,
            Some(_) => Known::Part,
        };
        Self {
            order: (has_place, known, sample.timestamps().max().unwrap_or_default()),
            is_waiting: ThreadState::of(dictionary, sample.attributes) == Some(ThreadState::Waiting),
            trust,
            frames,
        }
    }
}

/// Where a frame is: `(shop.py:51)` by its source, else the file with its machine code. Empty if neither is known.
fn place(function: &StackFunction, line: u32) -> String {
    match function.place() {
        "" => String::new(),
        place if line > 0 && function.file.ends_with(place) => format!(" ({place}:{line})"),
        place => format!(" ({place})"),
    }
}

/// A file of a thread, or its folder.
fn task(pid: u32, id: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{id}/{file}"))
}

#[cfg(test)]
mod tests;
