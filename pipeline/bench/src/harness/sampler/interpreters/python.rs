//! Python functions whose names prove themselves: by the native function below them, or by their file and line.

use std::time::Duration;

use profbridge_sampler::message::{Location, Settings};

use super::{
    super::{
        super::{
            Error,
            report::{Goal, Report},
        },
        Options,
        names::Names,
        session::Session,
        targets::Programs,
    },
    LONG, functions, named, percent, sampled, thrown,
    versions::Version,
};

/// The program.
pub(super) const PROGRAM: &str = "functions.py";

/// How many bytes its native functions are called with, and how long a call of a Python function is then.
const LENGTHS: [(&str, &str); 3] = [("24000", "15 to 40 us"), ("120000", "75 to 200 us"), ("1200000", "0.7 to 2 ms")];

/// Fast, for as many observations as possible. Ten times as many take ten times as much of the sampled thread's
/// processor as at the default rate, which here ends neither.
pub(super) fn fast() -> Settings {
    Settings { rate_hertz: 997.0, max_stopped: 0.5, ..Settings::default() }
}

pub(super) fn measure(
    python: &Version,
    options: &Options,
    programs: &Programs,
    report: &mut Report,
) -> Result<(), Error> {
    let name = &python.name;
    let start = |arguments: &[&str]| programs.interpret(&python.program.to_string_lossy(), PROGRAM, arguments);
    named(name, &start(&["mixed"])?, options, report)?;
    for (size, length) in LENGTHS {
        let target = start(&["pairs", size])?;
        let (session, _) = sampled(&target, fast(), Duration::from_secs_f64(LONG * options.seconds))?;
        pairs(name, length, &session, report)?;
    }
    thrown::measure(name, &python.program, options, programs, report)
}

/// Functions and callers that contradict the native function below them.
fn pairs(name: &str, length: &str, session: &Session, report: &mut Report) -> Result<(), Error> {
    let names = Names::of(session)?;
    let (mut leaves, mut wrong_leaves) = (0, 0);
    let (mut callers, mut wrong_callers, mut no_callers) = (0, 0, 0);
    for ((_, locations), count) in &session.stacks {
        let Some(truth) = truth(&names, locations) else { continue };
        let mut functions = functions(session, locations);
        let Some((leaf, ..)) = functions.next() else { continue };
        match leaf.strip_prefix("by_") {
            Some(said) => {
                leaves += count;
                wrong_leaves += if said == truth { 0 } else { *count };
            }
            None if leaf == "either" => {
                leaves += count;
                callers += count;
                match functions.next().and_then(|(caller, ..)| caller.strip_prefix("calls_")) {
                    Some(said) => wrong_callers += if said == truth { 0 } else { *count },
                    None => no_callers += count,
                }
            }
            // Neither of these calls the native function.
            None => {
                leaves += count;
                wrong_leaves += count;
            }
        }
    }
    let calls = format!("{name}, calls of {length}:");
    report.figure(
        format!("{calls} innermost functions that are wrong, of {leaves}"),
        wrong_leaves as f64,
        "",
        Some(Goal::AtMost(0.0)),
    );
    let row = format!("{calls} callers that are wrong, of {callers}");
    report.figure(row, percent(wrong_callers, callers), "%", Some(Goal::AtMost(0.5)));
    report.figure(format!("{calls}   and that are left out"), percent(no_callers, callers), "%", None);
    Ok(())
}

/// The native function that a stack is in.
pub(super) fn truth(names: &Names, locations: &[Location]) -> Option<&'static str> {
    let native = locations.iter().take_while(|location| matches!(location, Location::Native { .. }));
    native.filter(|location| !location.is_kernel()).find_map(|location| {
        let symbols = names.symbols(location)?;
        let is = |name: &str| symbols.frames.iter().any(|frame| frame.function.contains(name));
        ["crc32", "adler32"].into_iter().find(|name| is(name))
    })
}
