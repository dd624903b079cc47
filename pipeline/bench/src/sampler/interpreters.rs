//! Measures how many functions of interpreted programs have names, whether the names are right, and the cost of naming.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{array, collections::HashMap};

use profbridge_sampler::message::{Location, Settings};
use profbridge_symbolizer::{FileIdentity, Object, ObjectId, ObjectKey, ObjectSource, Symbolizer};

use super::SamplerBenchOptions;
use super::peers::works;
use super::session::{Session, WARM_UP};
use super::targets::Programs;
use super::turns::{self, Condition};
use crate::Error;
use crate::report::{Goal, Report};

/// Measurements that count observations last this many times longer.
const LONG: f64 = 3.0;

/// The number of bytes that the native functions of `functions.py` process, and the resulting duration of a call of a
/// Python function.
const LENGTHS: [(&str, &str); 3] = [("24000", "15 to 40 us"), ("120000", "75 to 200 us"), ("1200000", "0.7 to 2 ms")];

/// The functions that take 70, 20 and 10 % of the time.
const FUNCTIONS: [&str; 3] = ["seventy", "twenty", "ten"];

/// A fast rate, for many observations. At ten times the default rate, sampling takes ten times as much CPU time of the
/// sampled thread, so the limits on this are raised.
fn fast() -> Settings {
    Settings { rate_hertz: 997.0, max_stopped: 0.5, max_cpu: 1.0, ..Settings::default() }
}

pub(super) fn measure(options: &SamplerBenchOptions, programs: &Programs, report: &mut Report) -> Result<(), Error> {
    let mut pythons = options.python.clone();
    if pythons.is_empty() {
        pythons.push("python3".into());
    }
    let others = [("node", "functions.js"), ("php", "functions.php"), ("ruby", "functions.rb")];
    let parts = Parts { options, programs };
    let of_python = pythons.iter().flat_map(|python| {
        let results = [named, callers, over_native].map(|part| part(&parts, python, report));
        let shares = parts.shares(python, "functions.py", &["shares"], report);
        results.into_iter().chain([shares]).map(|result| (python.clone(), result)).collect::<Vec<_>>()
    });
    let mut results: Vec<_> = of_python.collect();
    for (program, script) in others.into_iter().filter(|(program, _)| works(Path::new(program))) {
        let program = PathBuf::from(program);
        results.push((program.clone(), parts.shares(&program, script, &[], report)));
    }
    for (program, result) in results {
        // A failed case is listed among the measured figures.
        if let Err(error) = result {
            let row = format!("{}: NOT MEASURED: {error}", program.display());
            report.figure(row, f64::NAN, "", Some(Goal::AtLeast(0.0)));
        }
    }
    Ok(())
}

struct Parts<'a> {
    options: &'a SamplerBenchOptions,
    programs: &'a Programs,
}

/// Reports the share of stacks in which every frame of the evaluation function is named, for a program that always runs
/// interpreted code. The share is a lower bound, since a stack may have several unnamed frames.
fn named(parts: &Parts<'_>, python: &Path, report: &mut Report) -> Result<(), Error> {
    let target = parts.programs.interpret(python, "functions.py", &["mixed"])?;
    let settings = Settings { rate_hertz: 499.0, ..Settings::default() };
    let (session, before) = Session::sampled(target.pid(), settings, parts.long())?;
    let all: u64 = session.stacks.values().map(|(observations, _)| observations).sum();
    let unproven = session.status.unproven_frames - before.unproven_frames;
    let row = format!("{}: stacks whose every evaluation frame is named, of {all}", python.display());
    report.figure(row, 100.0 - percent(unproven, all), "%", Some(Goal::AtLeast(99.0)));
    let row = format!("{}:   stops", python.display());
    report.figure(row, session.status.stops as f64, "", Some(Goal::AtMost(0.0)));
    Ok(())
}

/// Counts functions and callers that contradict the native function below them in the stack.
fn callers(parts: &Parts<'_>, python: &Path, report: &mut Report) -> Result<(), Error> {
    for (size, length) in LENGTHS {
        let target = parts.programs.interpret(python, "functions.py", &["pairs", size])?;
        let (session, _) = Session::sampled(target.pid(), fast(), parts.long())?;
        let truths = native_functions(&session)?;
        let (mut leaves, mut wrong_leaves) = (0, 0);
        let (mut callers, mut wrong_callers, mut no_callers) = (0, 0, 0);
        for (stack, (count, _)) in &session.stacks {
            let mut functions = session.functions(stack);
            let (Some(truth), Some(leaf)) = (truths.get(&stack.as_slice()), functions.next()) else { continue };
            leaves += count;
            match leaf.strip_prefix("by_") {
                Some(said) => wrong_leaves += if said == *truth { 0 } else { *count },
                None if leaf == "either" => {
                    callers += count;
                    match functions.next().and_then(|caller| caller.strip_prefix("calls_")) {
                        Some(said) => wrong_callers += if said == *truth { 0 } else { *count },
                        None => no_callers += count,
                    }
                }
                // No other function calls the native function.
                None => wrong_leaves += count,
            }
        }
        let calls = format!("{}, calls of {length}:", python.display());
        let row = format!("{calls} innermost functions that are wrong, of {leaves}");
        report.figure(row, wrong_leaves as f64, "", Some(Goal::AtMost(0.0)));
        let row = format!("{calls} callers that are wrong, of {callers}");
        report.figure(row, percent(wrong_callers, callers), "%", Some(Goal::AtMost(0.5)));
        report.figure(format!("{calls}   and that are left out"), percent(no_callers, callers), "%", None);
    }
    Ok(())
}

/// Returns which of the two native functions of `functions.py pairs` each stack contains.
fn native_functions(session: &Session) -> Result<HashMap<&[Location], &'static str>, Error> {
    let symbolizer = Symbolizer::start(Default::default())?;
    let mut objects: HashMap<u32, ObjectId> = HashMap::new();
    for mapping in &session.mappings {
        let Some(file) = &mapping.file else { continue };
        let file = file.try_clone()?;
        let key = ObjectKey::File(FileIdentity::of(&file)?);
        let object = Object { key, source: ObjectSource::File(file), root: None::<Arc<_>>, path: mapping.path.clone() };
        objects.insert(mapping.index, symbolizer.object(object));
    }
    let object = |location: &Location| objects.get(&location.mapping()?).copied();
    for location in session.stacks.keys().flatten() {
        if let Some(object) = object(location) {
            symbolizer.ask(object, &[location.address()]);
        }
    }
    if !symbolizer.wait(Duration::from_secs(30)) {
        return Err("the symbolizer does not come to an end".into());
    }
    let mut found = HashMap::new();
    for stack in session.stacks.keys() {
        let native = stack.iter().take_while(|location| matches!(location, Location::Native { .. }));
        let truth = native.filter(|location| !location.is_kernel()).find_map(|location| {
            let answer = symbolizer.answer(object(location)?, location.address());
            let is = |name: &&str| answer.symbols()?.frames.iter().find(|frame| frame.function.contains(*name));
            ["crc32", "adler32"].into_iter().find(|name| is(name).is_some())
        });
        found.extend(truth.map(|truth| (&stack[..], truth)));
    }
    Ok(found)
}

/// Compares the sampler's processor time with and without naming, for stacks of ten functions, one busy thread and
/// three waiting ones.
fn over_native(parts: &Parts<'_>, python: &Path, report: &mut Report) -> Result<(), Error> {
    let target = parts.programs.interpret(python, "deep.py", &[])?;
    let start = |interpreters| Session::start(target.pid(), Settings { interpreters, ..Settings::default() }, false);
    let mut both = [start(true)?, start(false)?];
    let time = parts.options.turn();
    let turn = |session: &mut Session| {
        session.sample(true)?;
        session.listen(WARM_UP)?;
        let used = session.cpu(time)?;
        session.sample(false)?;
        session.listen(Duration::from_millis(60))?;
        Ok(used)
    };
    let named = |[named, _]: &mut [Session; 2]| turn(named);
    let native = |[_, native]: &mut [Session; 2]| turn(native);
    let conditions: [Condition<'_, [Session; 2]>; 2] = [("named", &named), ("native", &native)];
    let costs = turns::costs(parts.options.turns, &mut both, &conditions)?;
    let more: Vec<_> = costs[0].iter().zip(&costs[1]).map(|(named, native)| named - native).collect();
    let name = python.display();
    report.turns(format!("{name}: processor time at 101 Hz"), &costs[0], "% of a core", None);
    report.turns(format!("{name}:   over native frames alone"), &more, "points", Some(Goal::AtMost(0.8)));
    Ok(())
}

impl Parts<'_> {
    fn long(&self) -> Duration {
        Duration::from_secs_f64(LONG * self.options.seconds)
    }

    /// Measures the greatest difference between the sampled shares of three functions and the shares that the program
    /// measures with its own clock.
    fn shares(&self, program: &Path, script: &str, arguments: &[&str], report: &mut Report) -> Result<(), Error> {
        let mut target = self.programs.interpret(program, script, arguments)?;
        let mut session = Session::start(target.pid(), fast(), true)?;
        session.listen(WARM_UP)?;
        session.stacks.clear();
        let before = target.numbers(FUNCTIONS)?;
        session.listen(self.long())?;
        let after = target.numbers(FUNCTIONS)?;
        let mut sampled = [0.0; 3];
        for (stack, (_, running)) in &session.stacks {
            let of = |name: &str| {
                let name = name.strip_suffix(" [with inlined functions]").unwrap_or(name);
                // Ruby methods have their class as a prefix.
                FUNCTIONS.iter().position(|function| name.rsplit(['#', '.']).next() == Some(*function))
            };
            if let Some(place) = session.functions(stack).find_map(of) {
                sampled[place] += *running as f64 / 1e9;
            }
        }
        let own: [f64; 3] = array::from_fn(|place| after[place] - before[place]);
        let share = |all: &[f64; 3], place: usize| 100.0 * all[place] / all.iter().sum::<f64>().max(1e-9);
        let worst = (0..3).map(|place| (share(&sampled, place) - share(&own, place)).abs()).fold(0.0, f64::max);
        let name = program.display();
        let row = format!("{name}: shares, greatest difference to its own clock");
        report.figure(row, worst, "points", Some(Goal::AtMost(2.0)));
        let running = session.stacks.values().map(|(_, running)| running).sum::<u64>() as f64 / 1e9;
        let found = 100.0 * sampled.iter().sum::<f64>() / running.max(1e-9);
        report.figure(format!("{name}:   running time that is in one of these"), found, "%", None);
        Ok(())
    }
}

fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}
