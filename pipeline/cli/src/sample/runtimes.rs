//! How much of the time has nameless functions or guessed callers, by the runtime responsible, and the remedy.

mod kind;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use profbridge_model::thread::ThreadState;
use profbridge_model::{Location, Profile, Profiles, ResourceProfiles, Sample, StackId, Value};
use profbridge_receiver_ptrace::assemble::TRUST_ATTRIBUTE;
use profbridge_sampler::runtime::{UNKNOWN_FUNCTION, WITH_INLINED};
use profbridge_wire::folded::choice::nanoseconds;

use crate::terminal;
pub(crate) use kind::Runtime;

/// If less than this share of Node's functions is known, in percent of the running time, the report says so.
const WELL_KNOWN_PERCENT: f64 = 90.0;

/// Hints appear above one part in this many of the time.
const PARTS: u64 = 10;

/// Times below this are not significant, in nanoseconds.
const LEAST: u64 = 100_000_000;

/// The same for interpreted functions: an interpreter runs none while it starts or exits, and on its own threads.
const LEAST_OF_INTERPRETERS: u64 = 500_000_000;

/// The defects of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StackDefect {
    /// A function has no name because its code was generated at run time.
    Generated,
    /// A function has no name because an unreadable interpreter runs it.
    Interpreted,
    /// A function has no name because the program's own file has no symbols.
    Own,
    /// Callers are guessed, behind code generated at run time.
    CallersOfGenerated,
    /// Callers are guessed, behind other code.
    Callers,
    /// It is unknown which of several inlined functions it was.
    Inlined,
    /// A function is unknown, because it has no name or was moved meanwhile.
    Unknown,
}

/// The quality of the stacks of some time.
#[derive(Debug, Clone, Copy, Default)]
struct Quality {
    nano: u64,
    /// The part of the time with each [`StackDefect`].
    lacks: [u64; 7],
}

/// The assessment of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StackNames {
    /// Why a function of the program has no name.
    nameless: Option<StackDefect>,
    /// Whether it passes through machine code generated at run time.
    generated: bool,
}

#[derive(Debug, Default)]
struct RuntimeProcesses {
    /// Their names, with the time of each.
    labels: HashMap<Box<str>, u64>,
    running: Quality,
    waiting: Quality,
}

/// The runtimes in a run.
#[derive(Debug, Default)]
pub(crate) struct Runtimes {
    of: HashMap<Runtime, RuntimeProcesses>,
}

impl Runtimes {
    /// Adds the profiles of a process: those of a resource of a batch.
    pub(crate) fn add(&mut self, label: &str, runtime: Runtime, batch: &Profiles, resource: &ResourceProfiles) {
        let mut known: HashMap<Option<StackId>, StackNames> = HashMap::new();
        let processes = self.of.entry(runtime).or_default();
        let time = processes.labels.entry(label.into()).or_default();
        let is_node = runtime == Runtime::Node;
        let add = |sum: &mut u64, nano| *sum = sum.saturating_add(nano);
        let profiles = resource.scopes.iter().flat_map(|scope| &scope.profiles);
        for (sample, nano) in times(batch, profiles) {
            let is_waiting = ThreadState::of(batch.dictionary(), sample.attributes) == Some(ThreadState::Waiting);
            let quality = if is_waiting { &mut processes.waiting } else { &mut processes.running };
            let names = *known.entry(sample.stack).or_insert_with(|| find_missing_names(runtime, batch, sample.stack));
            let StackNames { nameless, generated } = names;
            let trust = batch.dictionary().find(sample.attributes, TRUST_ATTRIBUTE);
            let is_guessed = trust.is_some_and(|trust| is_text(batch, trust, "guessed"));
            let guessed = if generated { StackDefect::CallersOfGenerated } else { StackDefect::Callers };
            let is_unknown = is_node && nameless.is_some();
            let is_inlined = || is_node && !is_unknown && has(batch, sample.stack, |name| name.ends_with(WITH_INLINED));
            let lacks = [
                nameless,
                is_guessed.then_some(guessed),
                is_unknown.then_some(StackDefect::Unknown),
                is_inlined().then_some(StackDefect::Inlined),
            ];
            add(time, nano);
            add(&mut quality.nano, nano);
            lacks.into_iter().flatten().for_each(|lack| add(&mut quality.lacks[lack as usize], nano));
        }
    }

    /// How well the functions of Node programs are known, by running time; `None` without Node programs and, unless it
    /// is wanted in any case, where nearly all are.
    pub(crate) fn node_quality(&self, in_any_case: bool) -> Option<String> {
        let Quality { nano, lacks } = self.of.get(&Runtime::Node)?.running;
        let [inlined, unknown] = [StackDefect::Inlined, StackDefect::Unknown].map(|lack| lacks[lack as usize]);
        let exact = nano.saturating_sub(inlined).saturating_sub(unknown);
        let [exact, inlined, unknown] = [exact, inlined, unknown].map(|part| part as f64 * 100.0 / nano as f64);
        (nano > 0 && (in_any_case || exact < WELL_KNOWN_PERCENT)).then(|| {
            format!(
                "running time of Node: {exact:.1} % with every function told, {inlined:.1} % in functions that stand for \
                 inlined ones as well, {unknown:.1} % with a function that is not told"
            )
        })
    }

    /// The hints for each runtime with a defect in more than a tenth of the time, largest time first. `notes` were
    /// shown before; one of them may be the reason.
    pub(crate) fn hints<'a>(&self, notes: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
        let mut all: Vec<_> = self.of.iter().collect();
        all.sort_by_key(|(runtime, processes)| (std::cmp::Reverse(processes.running.nano), **runtime));
        let hint = |(runtime, processes): (&Runtime, &RuntimeProcesses)| {
            processes.hint(*runtime, notes.clone().any(|note| runtime.is_named_in(note)))
        };
        all.into_iter().filter_map(hint).collect()
    }
}

impl RuntimeProcesses {
    fn hint(&self, runtime: Runtime, noted: bool) -> Option<String> {
        let mut parts = Vec::new();
        let least = if runtime.is_interpreter() { LEAST_OF_INTERPRETERS } else { LEAST };
        for (lack, least, naming) in [
            (StackDefect::Generated, LEAST, Some(runtime.naming_generated())),
            (StackDefect::Interpreted, least, runtime.naming_interpreted(noted)),
            (StackDefect::Own, LEAST, Some(runtime.naming_own())),
        ] {
            let Some((percent, of)) = self.worst(least, lack) else { continue };
            // A waiting interpreter may run no function at all, as at its start and in idle servers.
            let Some(naming) = naming.or((of == RUNNING).then_some("it is not known why")) else { continue };
            parts.push(format!("{percent:.0} % of {of} time is in functions without names: {naming}"));
        }
        for (lack, generated) in [(StackDefect::CallersOfGenerated, true), (StackDefect::Callers, false)] {
            if let Some((percent, of)) = self.worst(LEAST, lack) {
                parts.push(format!("{percent:.0} % of {of} time has guessed callers: {}", runtime.callers(generated)));
            }
        }
        if let Some((percent, of)) = self.worst(LEAST, StackDefect::Inlined) {
            parts.push(format!(
                "{percent:.0} % of {of} time is in functions that stand for those that were inlined into them as well: \
                 start it with --detailed-line-info"
            ));
        }
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_by_key(|(label, time)| (std::cmp::Reverse(**time), (*label).clone()));
        let first = labels.first()?.0;
        let who = terminal::with_others(first, labels.len() - 1);
        let run = if labels.len() == 1 { "runs" } else { "run" };
        (!parts.is_empty()).then(|| format!("{who} {run} {}; {}", runtime.what(), parts.join("; ")))
    }

    /// The affected share of running time, or else of waiting time, in percent, if it is above a tenth and above
    /// `least`.
    fn worst(&self, least: u64, lack: StackDefect) -> Option<(f64, &'static str)> {
        let sides = [(&self.running, RUNNING), (&self.waiting, "waiting")];
        sides.into_iter().find_map(|(quality, of)| {
            let part = quality.lacks[lack as usize];
            let much = part >= least && part > quality.nano / PARTS;
            much.then(|| (part as f64 * 100.0 / quality.nano as f64, of))
        })
    }
}

const RUNNING: &str = "running";

/// The samples of profiles whose values are durations, in nanoseconds.
fn times<'a>(
    batch: &'a Profiles,
    profiles: impl Iterator<Item = &'a Profile>,
) -> impl Iterator<Item = (Sample<'a>, u64)> {
    let timed = profiles.filter_map(|profile| Some((profile, nanoseconds(batch, profile)?)));
    timed.flat_map(|(profile, scale)| {
        batch.samples(profile).map(move |sample| {
            let sum = sample.values().fold(0u64, |sum, value| sum.saturating_add(value.max(0).unsigned_abs()));
            let value = if sample.values_bytes().is_empty() { sample.observations() } else { sum };
            (sample, value.saturating_mul(scale))
        })
    })
}

/// Whether a function of a stack has a name that marks it as standing for several functions, or as unknown
/// (`receivers/ptrace/sampler/README.md`).
fn has(batch: &Profiles, stack: Option<StackId>, is_it: impl Fn(&str) -> bool) -> bool {
    let mut locations = batch.dictionary().stack(stack).flatten().map(|id| batch.dictionary().location(id));
    locations.any(|location| name(batch, location).is_some_and(&is_it))
}

/// Checks whether a stack passes through a nameless function of the program: code generated at run time, a program file
/// without symbols, or an interpreter that stands for the program's functions.
fn find_missing_names(runtime: Runtime, batch: &Profiles, stack: Option<StackId>) -> StackNames {
    let dictionary = batch.dictionary();
    let (mut interprets, mut named, mut generated, mut nameless) = (false, false, false, None);
    for location in dictionary.stack(stack).flatten().map(|id| dictionary.location(id)) {
        let kind = dictionary.find(location.attributes, "profile.frame.type");
        let is = |text: &str| kind.is_some_and(|kind| is_text(batch, kind, text));
        let name = name(batch, location);
        if is("kernel") {
            continue;
        }
        let file = location.mapping.map(|mapping| dictionary.string(dictionary.mapping(mapping).filename));
        let Some(file) = file.filter(|file| !is_memory(file)) else {
            generated |= location.address != 0 && (name.is_none() || is("native"));
            if name.is_none() && location.address != 0 {
                nameless = nameless.or(Some(StackDefect::Generated));
            }
            // For example WebAssembly.
            if runtime == Runtime::Node && name == Some(UNKNOWN_FUNCTION) {
                nameless = nameless.or(Some(StackDefect::Generated));
            }
            named |= !is("native") || (runtime == Runtime::Php && name.is_some_and(is_compiled_php));
            continue;
        };
        match (name, Runtime::of_file(file)) {
            // The entry of V8's interpreter, which stands for the function that it runs.
            (Some(name), Some(Runtime::Node | Runtime::Deno)) if name.starts_with("Builtins_Interpreter") => {
                interprets = true;
            }
            (_, Some(belongs)) if belongs.is_interpreter() && belongs.is_same_kind(runtime) => interprets = true,
            (None, None) if matches!(runtime, Runtime::Native | Runtime::Go) && is_own(file) => {
                nameless = nameless.or(Some(StackDefect::Own));
            }
            _ => {}
        }
    }
    if nameless.is_none() && interprets && !named {
        nameless = Some(if generated { StackDefect::Generated } else { StackDefect::Interpreted });
    }
    StackNames { nameless, generated }
}

/// Whether a mapping is no file but named memory, as JITs use for their code: `/dev/zero (deleted)`,
/// `/memfd:doublemapper (deleted)`.
fn is_memory(file: &str) -> bool {
    ["/dev/zero", "/memfd:", "/SYSV", "//anon"].iter().any(|memory| file.starts_with(memory))
}

/// Whether PHP's JIT gave this name to a function, or a part of one, in a perf map (`opcache.jit_debug=0x10`; php-src
/// `ext/opcache/jit/zend_jit.c`, `zend_jit_trace.c`).
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
    let name = terminal::base_name(file);
    !name.is_empty() && !name.starts_with('[') && !name.starts_with("ld-") && !name.contains(".so")
}
