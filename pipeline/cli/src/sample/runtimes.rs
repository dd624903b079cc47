//! How much of the time has no names or guessed callers, by the runtime that is behind it, and what would change that.

mod kind;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use profbridge_model::{Location, Profiles, StackId, Value};
use profbridge_receiver_ptrace::assemble::TRUST_ATTRIBUTE;
use profbridge_sampler::runtime::{UNKNOWN_FUNCTION, WITH_INLINED};

use super::shares::times;
use kind::NOTES;
pub(crate) use kind::Runtime;

/// It is said from more than one of so many parts of the time on.
const PARTS: u64 = 10;

/// Less time than this says nothing, in nanoseconds.
const LEAST: u64 = 100_000_000;

/// The same of functions that an interpreter runs: it starts and ends, and has threads of its own, where it runs none.
const LEAST_OF_INTERPRETERS: u64 = 500_000_000;

/// What is known of the stacks of some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Quality {
    nano: u64,
    /// The part in which a function of the program has no name.
    nameless: u64,
    /// The part in which callers are guessed.
    guessed: u64,
    /// The part in which it is not known which of the functions that are inlined into each other it was.
    inlined: u64,
    /// The part in which a function was not told, for lack of a name or since it was moved meanwhile.
    untold: u64,
}

impl Quality {
    fn add(&mut self, other: Self) {
        self.nano = self.nano.saturating_add(other.nano);
        self.nameless = self.nameless.saturating_add(other.nameless);
        self.guessed = self.guessed.saturating_add(other.guessed);
        self.inlined = self.inlined.saturating_add(other.inlined);
        self.untold = self.untold.saturating_add(other.untold);
    }
}

/// The names of a stack's functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    /// They are told, or there is no function of the program.
    Told,
    /// They are told, and an interpreter's are among them.
    Read,
    /// A function of the program has none.
    Missing,
    /// An interpreter runs, and nothing says what.
    Silent,
}

/// A process with a runtime.
#[derive(Debug, Default)]
struct Process {
    nano: u64,
    /// Whether functions that an interpreter runs have names in any of its stacks.
    read: bool,
    /// The waiting time in which an interpreter was met alone. Where its functions are read it ran none then.
    silent: u64,
}

/// The processes with a runtime.
#[derive(Debug, Default)]
struct Processes {
    labels: HashMap<Box<str>, Process>,
    running: Quality,
    waiting: Quality,
}

/// What was met in a run.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    of: HashMap<Runtime, Processes>,
}

impl Runtimes {
    /// Adds the running part of a process's profiles, or the waiting one.
    pub(crate) fn add(&mut self, label: &str, runtime: Runtime, batch: &Profiles, waiting: bool) {
        let mut judged: HashMap<Option<StackId>, Names> = HashMap::new();
        let mut quality = Quality::default();
        let (mut read, mut silent) = (false, 0u64);
        for (sample, nano) in times(batch) {
            let names = *judged.entry(sample.stack).or_insert_with(|| names(runtime, batch, sample.stack));
            let nameless = matches!(names, Names::Missing | Names::Silent);
            read |= names == Names::Read;
            let trust = batch.dictionary().find(sample.attributes, TRUST_ATTRIBUTE);
            let guessed = trust.is_some_and(|trust| is_text(batch, trust, "guessed"));
            let part = |is: bool| if is { nano } else { 0 };
            let is_node = runtime == Runtime::Node;
            let untold = is_node && (nameless || has(batch, sample.stack, |name| name == UNKNOWN_FUNCTION));
            let inlined = is_node && !untold && has(batch, sample.stack, |name| name.ends_with(WITH_INLINED));
            // Ruby has a thread of its own that waits for what its timers are set to.
            let nameless = nameless && !(waiting && runtime == Runtime::Ruby);
            let is_silent = nameless && waiting && names == Names::Silent && runtime.is_interpreter();
            if is_silent {
                silent = silent.saturating_add(nano);
            }
            let nameless = nameless && !is_silent;
            let (nameless, guessed) = (part(nameless), part(guessed));
            quality.add(Quality { nano, nameless, guessed, inlined: part(inlined), untold: part(untold) });
        }
        let processes = self.of.entry(runtime).or_default();
        let process = processes.labels.entry(label.into()).or_default();
        process.nano = process.nano.saturating_add(quality.nano);
        process.read |= read;
        process.silent = process.silent.saturating_add(silent);
        if waiting { processes.waiting.add(quality) } else { processes.running.add(quality) }
    }

    /// How well the functions of Node programs are told, by running time; `None` without such.
    pub(crate) fn told(&self) -> Option<String> {
        let Quality { nano, inlined, untold, .. } = self.of.get(&Runtime::Node)?.running;
        let percent = |part: u64| part as f64 * 100.0 / nano as f64;
        let exact = nano.saturating_sub(inlined).saturating_sub(untold);
        (nano > 0).then(|| {
            format!(
                "running time of Node: {:.1} % with every function told, {:.1} % in functions that stand for inlined ones \
                 as well, {:.1} % with a function that is not told",
                percent(exact),
                percent(inlined),
                percent(untold)
            )
        })
    }

    /// What to say of each runtime of which more than a tenth is missing, most time first. `noted` says that notes were
    /// shown, of which one may be the reason.
    pub(crate) fn hints(&self, noted: bool) -> Vec<String> {
        let mut all: Vec<_> = self.of.iter().collect();
        all.sort_by_key(|(runtime, processes)| (std::cmp::Reverse(processes.running.nano), **runtime));
        all.into_iter().filter_map(|(runtime, processes)| processes.hint(*runtime, noted)).collect()
    }
}

impl Processes {
    fn hint(&self, runtime: Runtime, noted: bool) -> Option<String> {
        let unread = self.labels.values().filter(|process| !process.read);
        let silent = unread.fold(0u64, |sum, process| sum.saturating_add(process.silent));
        let nameless = |is_waiting: bool, quality: &Quality| {
            if is_waiting { quality.nameless.saturating_add(silent) } else { quality.nameless }
        };
        let least = if runtime.is_interpreter() { LEAST_OF_INTERPRETERS } else { LEAST };
        let nameless = self.worst_side(least, nameless);
        let guessed = self.worst(|quality| quality.guessed);
        let mut parts = Vec::new();
        if let Some((percent, of)) = nameless {
            let naming = runtime.naming();
            // Nobody is sent to look for what was not said.
            let naming = if noted { naming.to_owned() } else { naming.replace(NOTES, "") };
            parts.push(format!("{percent:.0} % of {of} time is in functions without names: {naming}"));
        }
        if let Some((percent, of)) = guessed {
            parts.push(format!("{percent:.0} % of {of} time has guessed callers: {}", runtime.callers()));
        }
        if let Some((percent, of)) = self.worst(|quality| quality.inlined) {
            parts.push(format!(
                "{percent:.0} % of {of} time is in functions that stand for those that were inlined into them as well: \
                 start it with --detailed-line-info"
            ));
        }
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_by_key(|(label, time)| (std::cmp::Reverse(time.nano), (*label).clone()));
        let first = labels.first()?.0;
        let who = match labels.len() - 1 {
            0 => format!("{first} runs"),
            1 => format!("{first} and one more process run"),
            more => format!("{first} and {more} more processes run"),
        };
        (!parts.is_empty()).then(|| format!("{who} {}; {}", runtime.what(), parts.join("; ")))
    }

    /// The share of running time, or else of waiting time, in percent, where it is more than a tenth.
    fn worst(&self, part: impl Fn(&Quality) -> u64) -> Option<(f64, &'static str)> {
        self.worst_side(LEAST, |_, quality| part(quality))
    }

    /// The same, of a part that depends on the side as well, where it is `least` or more.
    fn worst_side(&self, least: u64, part: impl Fn(bool, &Quality) -> u64) -> Option<(f64, &'static str)> {
        let sides = [(&self.running, "running"), (&self.waiting, "waiting")];
        sides.into_iter().find_map(|(quality, of)| {
            let part = part(of == "waiting", quality);
            let much = part >= least && part > quality.nano / PARTS;
            much.then(|| (part as f64 * 100.0 / quality.nano as f64, of))
        })
    }
}

/// Whether a function of a stack has such a name: one stands for others as well, or cannot be told
/// (`receivers/ptrace/sampler/README.md`).
fn has(batch: &Profiles, stack: Option<StackId>, is_it: impl Fn(&str) -> bool) -> bool {
    let mut locations = batch.dictionary().stack(stack).flatten().map(|id| batch.dictionary().location(id));
    locations.any(|location| name(batch, location).is_some_and(&is_it))
}

/// Whether a stack passes through a function of the program that has no name: code that was made at run time, a
/// program's own file without symbols, or an interpreter that stands for the functions of the program.
fn names(runtime: Runtime, batch: &Profiles, stack: Option<StackId>) -> Names {
    let dictionary = batch.dictionary();
    let mut interprets = false;
    let mut named = false;
    for location in dictionary.stack(stack).flatten().map(|id| dictionary.location(id)) {
        let kind = dictionary.find(location.attributes, "profile.frame.type");
        let is = |text: &str| kind.is_some_and(|kind| is_text(batch, kind, text));
        let name = name(batch, location);
        if is("kernel") {
            continue;
        }
        let Some(mapping) = location.mapping else {
            if name.is_none() && location.address != 0 {
                return Names::Missing;
            }
            named |= !is("native") || (runtime == Runtime::Php && name.is_some_and(is_compiled_php));
            continue;
        };
        let file = dictionary.string(dictionary.mapping(mapping).filename);
        let belongs = Runtime::of_file(file);
        match (name, belongs) {
            // The entry into V8's interpreter, which stands for the function that it runs.
            (Some(name), Some(Runtime::Node | Runtime::Deno)) if name.starts_with("Builtins_Interpreter") => {
                interprets = true;
            }
            (_, Some(belongs)) if belongs == runtime && runtime.is_interpreter() => interprets = true,
            (None, None) if matches!(runtime, Runtime::Native | Runtime::Go) && is_own(file) => return Names::Missing,
            _ => {}
        }
    }
    match (interprets, named) {
        (true, false) => Names::Silent,
        (_, true) => Names::Read,
        (false, false) => Names::Told,
    }
}

/// Whether a name is what PHP's JIT calls a function, or a part of one, in a perf map (`opcache.jit_debug=0x10`;
/// php-src `ext/opcache/jit/zend_jit.c`, `zend_jit_trace.c`).
fn is_compiled_php(name: &str) -> bool {
    name.starts_with("JIT$") || name.starts_with("TRACE-")
}

fn is_text(batch: &Profiles, value: &Value, text: &str) -> bool {
    matches!(value, Value::String(id) if batch.dictionary().string(*id) == text)
}

/// The name of the innermost function at a location.
fn name<'a>(batch: &'a Profiles, location: &Location) -> Option<&'a str> {
    let dictionary = batch.dictionary();
    let function = dictionary.lines(location).iter().find_map(|line| line.function)?;
    let name = dictionary.string(dictionary.function(function).name);
    (!name.is_empty()).then_some(name)
}

/// Whether a file is the program's own, and not a library.
fn is_own(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    !name.is_empty() && !name.starts_with('[') && !name.starts_with("ld-") && !name.contains(".so")
}
